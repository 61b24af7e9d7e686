"""What checks of contracts share: data, failures, interruptions."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Self

import numpy as np

from pairity._utils.typing import Array
from pairity.exceptions import ContractError, InputError

RTOL = 1e-4
INTERRUPTIONS = (0.0, 0.3, 0.6, 0.9)  # of the calls in a fit


def each_but(
    skip: Collection[str], known: dict[str, Callable[..., None]], subject: Any, **options: Any
) -> Iterator[tuple[str, Callable[[], None]]]:
    """The checks that are not to be skipped, by name, each bound to what it looks at."""
    left_out = (skip,) if isinstance(skip, str) else tuple(skip)
    for name in left_out:
        if name not in known:
            raise InputError(
                f"There is no property named {name!r} to skip. Choose among "
                f"{', '.join(map(repr, known))}."
            )
    for name, check in known.items():
        if name not in left_out:
            yield name, partial(check, subject, **options)


def run_all(checks: Iterable[tuple[str, Callable[[], None]]]) -> None:
    """Run them all, and raise one error that names every property that fails, if any does."""
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
        listed = "\n".join(f"- {failure}" for failure in failures)
        names = tuple(name for failure in failures for name in failure.properties)
        raise ContractError(f"{len(failures)} of {n_checks} properties fail.\n{listed}", names)


@contextmanager
def named_failures(whose: str, name: str) -> Iterator[None]:
    """Say of any other exception which property it stood in the way of."""
    try:
        yield
    except ContractError:
        raise
    except Exception as error:
        told = str(error).partition("\n")[0]
        raise ContractError(
            f"{whose} fails {name!r}: it raised {type(error).__name__}: {told}", (name,)
        ) from error


def titled(check: Callable[..., None], function: Callable[..., None]) -> Callable[..., None]:
    """The check under the name and with the words of the function it runs."""
    check.__name__ = check.__qualname__ = function.__name__
    check.__doc__ = function.__doc__
    return check


def mixed_lists() -> dict[str, Any]:
    """Thirty lists of twelve: three grades, and three groups that are favoured unequally."""
    rng = np.random.default_rng(20210)
    n_queries, n_items = 30, 12
    qid = np.repeat(np.arange(n_queries), n_items)
    group = rng.integers(0, 3, len(qid))
    X = rng.normal(size=(len(qid), 4))
    X[:, 3] += group - 1.0
    latent = X @ [1.0, -0.6, 0.3, 0.0] + 0.8 * (group - 1.0) + 0.7 * rng.normal(size=len(qid))
    rank = latent.reshape(n_queries, n_items).argsort(axis=1).argsort(axis=1).ravel()
    return {
        "X": X,
        "y": (rank // 4).astype(float),
        "qid": qid,
        "sensitive_features": np.array(["a", "b", "c"], dtype=object)[group],
    }


class Calls:
    """Counts the calls that a ranker makes inside a block, and interrupts it at one of them.

    This stands for Ctrl-C, which Python also delivers between its own instructions only, but hits
    the same place every time. Calls are those that the ranker's own package and pairity make;
    elsewhere the Python code may run inside an engine's C, which need not survive an exception.
    """

    def __init__(self, ranker: Any, at: int = 0) -> None:
        module = getattr(ranker, "__module__", None) or type(ranker).__module__
        self.packages = {"pairity", module.partition(".")[0]}
        self.at, self.n = at, 0

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
            if self.n == self.at:
                raise KeyboardInterrupt

    def _ignore(self, unraisable: Any) -> None:
        """Python drops an interruption inside a callback from C; so do we."""
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            self.hook(unraisable)


def with_global_seed(seed: int, run: Callable[[], Array]) -> Array:
    """Run with NumPy's and Python's global generators seeded, and put them back."""
    kept = np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        np.random.seed(seed)  # noqa: NPY002
        random.seed(seed)
        return run()
    finally:
        np.random.set_state(kept[0])  # noqa: NPY002
        random.setstate(kept[1])
