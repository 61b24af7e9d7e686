"""The parts that the checks of rankers and of methods share."""

import random
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np

from pairity._utils.typing import Array
from pairity._utils.validation import require_choice
from pairity.exceptions import ContractError

RTOL = 1e-4
INTERRUPTIONS = (0.0, 0.3, 0.6, 0.9)  # where a fit is interrupted, as shares of its calls


@dataclass(frozen=True, eq=False)
class Subject:
    """What a check examines: a ranker or a method.

    Attributes
    ----------
    property : str, the name of the property that is checked
    title : str, what errors call the subject
    rtol : float, see `check_ranker`
    """

    property: str
    title: str
    rtol: float

    def run(self, check: Callable[[Any], None]) -> None:
        """Run a check, and name the property in any other exception too."""
        try:
            check(self)
        except ContractError:
            raise
        except Exception as error:
            message = str(error).partition("\n")[0]
            self.fail(f"it raised {type(error).__name__}: {message}", error)

    def fail(self, message: str, cause: Exception | None = None) -> None:
        """Raise the error that the subject lacks the property."""
        text = f"{self.title} fails {self.property!r}: {message}"
        raise ContractError(text, (self.property,)) from cause

    def difference(self, got: Array, want: Array) -> float:
        """The largest difference between two score vectors, as a share of their spread."""
        gap, spread = float(np.abs(got - want).max()), float(np.ptp(want))
        return gap / spread if spread > 0 else np.inf if gap else 0.0

    def same(self, got: Array, want: Array, what: str, advice: str) -> None:
        """Require equal scores."""
        difference = self.difference(got, want)
        if not difference <= self.rtol:
            self.fail(
                f"{what}: scores differ by up to {difference:.2g} of their spread (rtol is "
                f"{self.rtol:g}). {advice}"
            )

    def reproducible(self, run: Callable[[], Array], what: str, advice: str) -> None:
        """Require equal scores, whatever the state of NumPy's and Python's global generators."""
        states, scores = (np.random.get_state(), random.getstate()), []  # noqa: NPY002
        try:
            for seed in (1, 2):
                np.random.seed(seed)  # noqa: NPY002
                random.seed(seed)
                scores.append(run())
        finally:
            np.random.set_state(states[0])  # noqa: NPY002
            random.setstate(states[1])
        self.same(scores[1], scores[0], what, advice)


class Checks(dict[str, Callable[..., None]]):
    """The checks of a contract by the names of the properties, in order.

    Parameters
    ----------
    subject : callable
        Called with the name of a property, the ranker or method, and the options of a check.
    """

    def __init__(self, subject: Callable[..., Subject]) -> None:
        super().__init__()
        self._subject = subject

    def property(self, name: str) -> Callable[[Callable[[Any], None]], Callable[..., None]]:
        """Register a function of a subject as the check of a property."""

        def register(function: Callable[[Any], None]) -> Callable[..., None]:
            def check(examined: Any, **options: Any) -> None:
                self._subject(name, examined, **options).run(function)

            check.__name__ = check.__qualname__ = function.__name__
            check.__doc__ = function.__doc__
            self[name] = check
            return check

        return register


def select(
    checks: dict[str, Callable[..., None]], skip: Collection[str], examined: Any, **options: Any
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the checks that are not skipped, by name, bound to what they examine."""
    skipped = (skip,) if isinstance(skip, str) else tuple(skip)
    for name in skipped:
        require_choice("A name in skip", name, tuple(checks))
    for name, check in checks.items():
        if name not in skipped:
            yield name, partial(check, examined, **options)


def run_all(checks: Iterable[tuple[str, Callable[[], None]]]) -> None:
    """Run all checks, and raise one error that names every property that fails."""
    failures, n_checks = [], 0
    for _, check in checks:
        n_checks += 1
        try:
            check()
        except ContractError as error:
            failures.append(error)
    if len(failures) == 1:
        raise failures[0]
    if failures:
        lines = "\n".join(f"- {failure}" for failure in failures)
        names = tuple(name for failure in failures for name in failure.properties)
        raise ContractError(f"{len(failures)} of {n_checks} properties fail.\n{lines}", names)


class Calls:
    """Count the calls inside a block, and optionally raise KeyboardInterrupt at one of them.

    This simulates Ctrl-C, which Python also delivers only between its own instructions, but at the
    same place every time. Only calls from pairity and from the subject's package count: elsewhere,
    Python code may run inside an engine's C code, which need not survive an exception.

    Parameters
    ----------
    subject : the ranker, or a method's function
    stop : int, the number of the call at which to interrupt; 0 only counts
    """

    def __init__(self, subject: Any, stop: int = 0) -> None:
        module = getattr(subject, "__module__", None) or type(subject).__module__
        self.packages = {"pairity", module.partition(".")[0]}
        self.stop, self.n = stop, 0

    @property
    def stops(self) -> list[int]:
        """The calls at which to interrupt a fit that makes `n` calls; the first is the fit."""
        return [2 + int(share * (self.n - 2)) for share in INTERRUPTIONS]

    def __enter__(self) -> Self:
        self.profile, self.hook = sys.getprofile(), sys.unraisablehook
        sys.unraisablehook = self._ignore
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self.profile)
        sys.unraisablehook = self.hook

    def _count(self, frame: Any, event: str, _: Any) -> None:
        module = frame.f_globals.get("__name__", "")
        if event not in ("call", "c_call") or module.startswith("pairity.testing"):
            return
        if module.partition(".")[0] in self.packages:
            self.n += 1
            if self.n == self.stop:
                raise KeyboardInterrupt

    def _ignore(self, unraisable: Any) -> None:
        """Ignore an interruption that Python itself drops, inside a callback from C."""
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            self.hook(unraisable)
