"""How a fit ended: why it stopped, what was reached, on which queries, and how sure that is."""

from dataclasses import dataclass
from enum import Enum

NAN = float("nan")


class Outcome(Enum):
    """Why a fit stopped; the value is a sentence for the user."""

    WITHIN_TOLERANCE = "The violation came within the tolerance."
    NO_ROUNDS = "No reweighting was requested; this is the plain ranker."
    WITHIN_NOISE = (
        "The violation is above the tolerance, but no larger than what noise between these queries "
        "produces by itself. They cannot show whether a smaller one was reached."
    )
    ROUNDS_EXHAUSTED = (
        "The violation was above the tolerance after the last round; the best round was kept. More "
        "rounds may help."
    )
    UNREACHABLE = (
        "The tolerance is probably not reachable by reweighting pairs with this ranker and this "
        "data. No weight change that was tried reduced the violation further. The best round was "
        "kept."
    )
    LIMITED_BY_LOSS = (
        "The tolerance was not reached, because a smaller violation would cost more utility than "
        "max_loss allows. The best round within max_loss was kept."
    )
    INTERRUPTED = "The fit was interrupted; the best round so far was kept."

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class FitOutcome:
    """Why a fit stopped, and what was measured; it prints as a few sentences.

    Attributes
    ----------
    kind : Outcome
    measured_on : str
        The queries that the violation was measured on, such as "120 training queries" or
        "120 queries out of fold".
    violation : float
        The largest gap of the kept round, on those queries.
    noise_floor : float
        The mean largest gap that noise between as many queries produces without any disparity
        (`pairity.constraints.noise`). NaN if it is not known.
    error : float
        The standard error of the violation on queries that the ranker did not train on. NaN if it
        was measured on the training queries.
    tolerance : float
    plain_violation : float
        The violation of the plain ranker on the same queries; NaN if it was not trained.
    training_violation : float
        The violation of the final ranker on its training queries, if the violation was measured on
        others; otherwise NaN.
    limits : tuple of str
        If the tolerance was not reached: what was found to limit it, and what may help.
    """

    kind: Outcome
    measured_on: str = ""
    violation: float = NAN
    noise_floor: float = NAN
    error: float = NAN
    tolerance: float = NAN
    plain_violation: float = NAN
    training_violation: float = NAN
    limits: tuple[str, ...] = ()

    @property
    def reached(self) -> bool:
        """Whether the violation came within the tolerance."""
        return self.kind is Outcome.WITHIN_TOLERANCE

    def __str__(self) -> str:
        return " ".join((self.summary, *self.limits))

    @property
    def summary(self) -> str:
        """Why the fit stopped, and what was measured, without the limits."""
        if not self.measured_on:
            return str(self.kind)
        known = [("the plain ranker's was {:.4f}", self.plain_violation)]
        if self.kind is not Outcome.NO_ROUNDS:
            known.append(("the tolerance is {:.4g}", self.tolerance))
        known.append(("the noise floor is {:.4f}", self.noise_floor))
        known.append(
            ("the final ranker's on its training queries is {:.4f}", self.training_violation)
        )
        rest = "".join(f"; {text.format(value)}" for text, value in known if value == value)
        error = f" ± {self.error:.4f}" if self.error == self.error else ""
        return f"{self.kind} Violation on {self.measured_on}: {self.violation:.4f}{error}{rest}."
