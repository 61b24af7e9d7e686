"""Algorithm 1: measure delta, move λ, weigh the pairs, train again.

λ has one entry per cell (k, l) or per group, and a preference pair in cell (k, l) has the weight
W_kl. That K × K table is all that is learned from the data. `retrain` trains the ranker anew for
every λ; `interleave` moves λ during one training run. Both record their rounds in a `Trace`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from pairity._utils.typing import Array
from pairity.constraints import largest_gap
from pairity.rankers._products import one_blas_thread
from pairity.reweighting.limits import limits_of
from pairity.reweighting.outcomes import NAN, FitOutcome, Outcome
from pairity.reweighting.problem import Problem, Trained
from pairity.reweighting.response import Outlook
from pairity.reweighting.solvers import Solver

if TYPE_CHECKING:
    from pairity.reweighting.checkpoints import Checkpoint  # which imports Round from here


@dataclass(frozen=True, eq=False)
class Round:
    """One round: the multipliers used, and the measurements of the ranker trained with them.

    Attributes
    ----------
    number : int, 0 for the plain ranker
    lambda_ : array of shape (n_groups, n_groups) or (n_groups,)
    delta : array of the same shape, Δ on the queries it is measured on
    violation : float, the largest gap between compared entries of delta
    auc : float, on the same queries
    seconds : float, for training and measuring
    utility : float, the metric that `max_loss` limits, on the same queries; AUC by default
    noise_floor : float, the violation that noise between these queries produces by itself
    error : float, the standard error of the violation, from the variation between these queries
    usable : bool
        Whether the round may be kept. A ranker with an AUC below ½ may not, because scores and
        their negatives have the same violation; nor may one that loses more than `max_loss`.
    """

    number: int
    lambda_: Array
    delta: Array
    violation: float
    auc: float
    seconds: float
    utility: float = NAN
    noise_floor: float = NAN
    error: float = NAN
    usable: bool = True

    def beats(self, other: Round) -> bool:
        """Whether the round has a lower violation and no less AUC, or the reverse."""
        no_worse = self.violation <= other.violation and self.auc >= other.auc
        return no_worse and (self.violation < other.violation or self.auc > other.auc)


@dataclass(frozen=True, eq=False)
class Solution:
    """All rounds, the best one with its ranker and weight table, and how the fit ended."""

    rounds: tuple[Round, ...]
    best: Round
    model: Any
    table: Array
    outcome: FitOutcome


# Violations that differ by less than this share are equally good: the smaller multipliers are kept.
_EQUAL = 0.02
_N_SHARES = 4  # of the λ of an interleaved run, tried where it loses more than `max_loss`
_NOT_REACHED = (
    Outcome.UNREACHABLE, Outcome.ROUNDS_EXHAUSTED, Outcome.WITHIN_NOISE, Outcome.LIMITED_BY_LOSS,
)  # fmt: skip
_DEFAULT_TOLERANCE = 0.01  # for "auto", where the noise floor is not known


@dataclass(eq=False)
class Trace:
    """The rounds of one fit: it records them, keeps the best, and knows how the fit ended.

    As a context manager it turns a KeyboardInterrupt after the first round into an outcome, and
    adds the number of the round to any other exception.

    Parameters
    ----------
    tolerance : float or "auto"
        The fit ends with the first round whose violation is within it. "auto" is the noise floor.
    max_rounds : int
        The largest number of rounds after the plain ranker's.
    max_loss : float, optional
        How much less than the plain ranker's the utility of a usable round may be.
    on_round : callable, optional
        Called with every `Round` as it ends.
    store : Checkpoint, optional
        Rounds that it has are not trained again.

    Attributes
    ----------
    rounds : list of Round
    best : Round or None
        The round with the lowest violation; of several that are about as low, the one with the
        smallest multipliers. No other usable round has both a lower violation and a higher AUC.
    model : the ranker of the best round
    ending : Outcome, or None while the fit continues
    """

    tolerance: Any
    max_rounds: int
    max_loss: float | None = None
    on_round: Callable[[Round], None] | None = None
    store: Checkpoint | None = None
    rounds: list[Round] = field(default_factory=list, init=False)
    best: Round | None = field(default=None, init=False)
    model: Any = field(default=None, init=False)
    ending: Outcome | None = field(default=None, init=False)
    _number: int = field(default=0, init=False)

    @property
    def limit(self) -> float:
        """The tolerance as a number, which "auto" is after the first round."""
        if self.tolerance != "auto":
            return float(self.tolerance)
        floor = self.rounds[0].noise_floor
        return floor if floor == floor else _DEFAULT_TOLERANCE

    @property
    def plain(self) -> Round | None:
        """The round of the plain ranker, if it was trained."""
        return self.rounds[0] if self.rounds and self.rounds[0].number == 0 else None

    def round(
        self, number: int, lambda_: Array | None, train: Callable[[str], Trained]
    ) -> tuple[Round, Any]:
        """Recall a stored round or train it, record it, and decide whether it is the last.

        Parameters
        ----------
        lambda_ : array, or None where λ moves during training
            A stored round must have been trained with these multipliers.
        train : callable, from a label for error messages to a `Trained`
        """
        self._number = number
        stored = None if self.store is None else self.store.recall(number, lambda_)
        if stored is None:
            place = f"in round {number} of at most {self.max_rounds}"
            trained = train(f"{place} (0 is the plain ranker)")
            current, model = self._read(number, trained), trained.model
            if self.store is not None:
                self.store.keep(current, model)
        else:
            current, model = stored
        if self._prefers(current):
            self.best, self.model = current, model
        self.rounds.append(current)
        if self.on_round is not None:
            self.on_round(current)
        if self.max_rounds == 0:
            self.ending = Outcome.NO_ROUNDS
        elif current.usable and current.violation <= self.limit and current is self.best:
            self.ending = Outcome.WITHIN_TOLERANCE
        elif number == self.max_rounds:
            self.ending = Outcome.ROUNDS_EXHAUSTED
        return current, model

    def _read(self, number: int, trained: Trained) -> Round:
        """The round of a training, with the noise floor of the first."""
        measured, plain = trained.measured, self.plain
        floor = self.rounds[0].noise_floor if self.rounds else measured.noise_floor
        usable = measured.auc >= 0.5
        if plain is not None and self.max_loss is not None:
            usable = usable and plain.utility - measured.utility <= self.max_loss
        return Round(
            number, trained.lambda_, measured.delta, measured.violation, measured.auc,
            trained.seconds, measured.utility, floor, measured.error, usable,
        )  # fmt: skip

    def _prefers(self, current: Round) -> bool:
        """Whether a round is to be kept in place of the best one so far."""
        best = self.best
        if best is None:
            return True
        others = [other for other in self.rounds if other.usable]
        if not current.usable or any(other.beats(current) for other in others):
            return False
        if current.beats(best) or not best.usable or current.violation <= self.limit:
            return True
        lowest = min(other.violation for other in (*others, current))
        if best.violation > (1.0 + _EQUAL) * lowest:
            return current.violation < best.violation
        near = current.violation <= (1.0 + _EQUAL) * lowest
        return near and np.linalg.norm(current.lambda_) < np.linalg.norm(best.lambda_)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if isinstance(error, KeyboardInterrupt) and self.best is not None:
            within = self.max_rounds > 0 and self.best.violation <= self.limit
            self.ending = Outcome.WITHIN_TOLERANCE if within else Outcome.INTERRUPTED
            return True
        if isinstance(error, Exception):
            error.add_note(
                f"In round {self._number} of at most {self.max_rounds}; 0 is the plain ranker."
            )
        return False

    def solution(self, problem: Problem) -> Solution:
        """The result, once the fit has ended. With folds, the ranker is trained on all queries."""
        if self.best is None or self.ending is None:
            raise RuntimeError("The fit has not ended.")
        best, plain, training = self.best, self.plain, NAN
        model = problem.complete(self.model, best.lambda_)
        if problem.folds:
            scores = problem.measured_elsewhere(problem.queries).scores(model)
            training = largest_gap(problem.constraint.delta(problem.queries, scores))
        kind = self._kind(self.ending, best)
        limits: tuple[str, ...] = ()
        if kind in _NOT_REACHED:
            limits = limits_of(problem, best, self.limit)
        outcome = FitOutcome(
            kind, problem.where, best.violation, best.noise_floor,
            NAN if problem.on_training else best.error, self.limit,
            NAN if plain is None else plain.violation, training, limits,
        )  # fmt: skip
        table = problem.weigher.table(best.lambda_)
        return Solution(tuple(self.rounds), best, model, table, outcome)

    def _kind(self, ending: Outcome, best: Round) -> Outcome:
        """Why the fit ended, where the last round alone does not tell."""
        if ending in _NOT_REACHED:
            if self.max_loss is not None and not all(round_.usable for round_ in self.rounds):
                return Outcome.LIMITED_BY_LOSS
            if best.violation <= best.noise_floor:
                return Outcome.WITHIN_NOISE
        return ending


def retrain(problem: Problem, solver: Solver, trace: Trace) -> Solution:
    """Algorithm 1: train the ranker anew for every λ that the solver proposes.

    A ranker that has a `response` tells the solver how delta will follow λ.
    """
    scale = problem.weigher.scale
    lambda_, model, state = np.zeros(scale.shape), None, None
    with trace:
        for number in range(trace.max_rounds + 1):  # round 0 is the plain ranker: λ = 0, W = 1
            current, model = trace.round(number, lambda_, partial(problem.train, lambda_, model))
            if trace.ending is not None:
                break
            if state is None:
                state = solver.start(problem.unranked, scale, trace.limit)
            ranker = model[0] if isinstance(model, tuple) else model
            known = hasattr(ranker, "response")
            outlook = Outlook(problem, ranker, current.lambda_) if known else None
            with one_blas_thread:  # for such small matrices more threads are slower
                following, state = solver.step(current, state, outlook)
            if following is not None:
                lambda_ = problem.weigher.settle(following)
            if following is None or np.array_equal(lambda_, current.lambda_):
                trace.ending = Outcome.UNREACHABLE
                break
    return trace.solution(problem)


def interleave(problem: Problem, trace: Trace) -> Solution:
    """Move λ during one training run, and repeat the run from its λ while that helps.

    With folds the run is not repeated, so that its cost stays small. There is no round 0, unless
    the plain ranker's utility must be known for `max_loss`. Where a run loses more than that,
    rankers between the two are trained with a share of its λ. Where no run may be kept, because
    its AUC is below one half, the plain ranker is.
    """
    lambda_ = np.zeros(problem.weigher.scale.shape)
    with trace:
        if trace.max_loss is not None:
            trace.round(0, lambda_, partial(problem.train, lambda_, None))
        for number in range(1, trace.max_rounds + 1) if trace.ending is None else ():
            current, _ = trace.round(number, None, partial(problem.train_following, lambda_))
            lost = not current.usable
            if trace.ending is None and (current is not trace.best or problem.folds):
                trace.ending = Outcome.UNREACHABLE
            if trace.ending is not None:
                break
            lambda_ = current.lambda_
        if trace.ending is Outcome.UNREACHABLE and trace.max_loss is not None and lost:
            _shorten(problem, trace, current)
        if trace.plain is None and trace.best is not None and not trace.best.usable:
            none = np.zeros_like(lambda_)
            trace.round(trace.best.number + 1, none, partial(problem.train, none, None))
    return trace.solution(problem)


def _shorten(problem: Problem, trace: Trace, last: Round) -> None:
    """Train with shares of λ, to find the largest one that loses no more than `max_loss`."""
    low, high = 0.0, 1.0
    for number in range(last.number + 1, min(last.number + _N_SHARES, trace.max_rounds) + 1):
        share = 0.5 * (low + high)
        lambda_ = problem.weigher.settle(share * last.lambda_)
        current, _ = trace.round(number, lambda_, partial(problem.train, lambda_, None))
        low, high = (share, high) if current.usable else (low, share)
