"""Algorithm 1: measure delta, move λ, weigh the pairs, train again.

λ has one entry per cell (k, l) or per group, and a preference pair in cell (k, l) has the weight
W_kl. That K × K table is all that is learned from the data. `retrain` trains the ranker anew for
every λ; `interleave` moves λ during one training run. Both record their rounds in a `Trace`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from pairity._utils.typing import Array
from pairity.rankers._products import one_blas_thread
from pairity.reweighting.problem import Problem, Trained
from pairity.reweighting.response import foresight
from pairity.reweighting.solvers import Solver, settle

if TYPE_CHECKING:
    from pairity.reweighting.checkpoints import Checkpoint  # which imports Round from here


class Outcome(Enum):
    """How a fit ended; the value is a sentence for the user."""

    WITHIN_TOLERANCE = "The violation came within the tolerance."
    NO_ROUNDS = "No reweighting was requested; this is the plain ranker."
    ROUNDS_EXHAUSTED = (
        "The violation was above the tolerance after the last round; the round with the smallest "
        "violation was kept. More rounds may help."
    )
    UNREACHABLE = (
        "The tolerance is probably not reachable by reweighting pairs with this ranker and this "
        "data. No weight change that was tried reduced the violation further. The round with the "
        "smallest violation was kept."
    )
    INTERRUPTED = "The fit was interrupted; the round with the smallest violation so far was kept."

    def __str__(self) -> str:
        return self.value


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
    """

    number: int
    lambda_: Array
    delta: Array
    violation: float
    auc: float
    seconds: float

    @property
    def usable(self) -> bool:
        """Whether the round may be kept: scores and their negatives have the same violation."""
        return self.auc >= 0.5


@dataclass(frozen=True, eq=False)
class Solution:
    """All rounds, the best one with its ranker and weight table, and how the fit ended."""

    rounds: tuple[Round, ...]
    best: Round
    model: Any
    table: Array
    outcome: Outcome


@dataclass(eq=False)
class Trace:
    """The rounds of one fit: it records them, keeps the best, and knows how the fit ended.

    As a context manager it turns a KeyboardInterrupt after the first round into an outcome, and
    adds the number of the round to any other exception.

    Parameters
    ----------
    tolerance : float
        The fit ends with the first round whose violation is within it.
    max_rounds : int
        The largest number of rounds after the plain ranker's.
    on_round : callable, optional
        Called with every `Round` as it ends.
    store : Checkpoint, optional
        Rounds that it has are not trained again.

    Attributes
    ----------
    rounds : list of Round
    best : Round or None, the first one with the smallest violation
    model : the ranker of the best round
    outcome : Outcome, or None while the fit continues
    """

    tolerance: float
    max_rounds: int
    on_round: Callable[[Round], None] | None = None
    store: Checkpoint | None = None
    rounds: list[Round] = field(default_factory=list, init=False)
    best: Round | None = field(default=None, init=False)
    model: Any = field(default=None, init=False)
    outcome: Outcome | None = field(default=None, init=False)
    _number: int = field(default=0, init=False)

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
            current, model = Round(number, *trained[1:]), trained.model
            if self.store is not None:
                self.store.keep(current, model)
        else:
            current, model = stored
        self.rounds.append(current)
        lower = self.best is None or current.violation < self.best.violation
        if self.best is None or (lower and current.usable):
            self.best, self.model = current, model
        if self.on_round is not None:
            self.on_round(current)
        if self.max_rounds == 0:
            self.outcome = Outcome.NO_ROUNDS
        elif current.violation <= self.tolerance and current is self.best:
            self.outcome = Outcome.WITHIN_TOLERANCE
        elif number == self.max_rounds:
            self.outcome = Outcome.ROUNDS_EXHAUSTED
        return current, model

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if isinstance(error, KeyboardInterrupt) and self.best is not None:
            within = self.max_rounds > 0 and self.best.violation <= self.tolerance
            self.outcome = Outcome.WITHIN_TOLERANCE if within else Outcome.INTERRUPTED
            return True
        if isinstance(error, Exception):
            error.add_note(
                f"In round {self._number} of at most {self.max_rounds}; 0 is the plain ranker."
            )
        return False

    def solution(self, problem: Problem) -> Solution:
        """The result, once the fit has ended."""
        if self.best is None or self.outcome is None:
            raise RuntimeError("The fit has not ended.")
        table = problem.weigher.table(self.best.lambda_)
        return Solution(tuple(self.rounds), self.best, self.model, table, self.outcome)


def retrain(problem: Problem, solver: Solver, trace: Trace) -> Solution:
    """Algorithm 1: train the ranker anew for every λ that the solver proposes.

    A ranker that has a `response` tells the solver how delta will follow λ.
    """
    scale = problem.weigher.scale
    lambda_, model = np.zeros(scale.shape), None
    state = solver.start(problem.unranked, scale, trace.tolerance)
    with trace:
        for number in range(trace.max_rounds + 1):  # round 0 is the plain ranker: λ = 0, W = 1
            train = partial(problem.train, lambda_, model)
            current, model = trace.round(number, lambda_, train)
            if trace.outcome is not None:
                break
            foresee = None
            if hasattr(model, "response"):
                foresee = partial(foresight, problem, model, current.lambda_)
            with one_blas_thread:  # for such small matrices more threads are slower
                following, state = solver.step(current, state, foresee)
            if following is not None:
                lambda_ = settle(following, scale)
            if following is None or np.array_equal(lambda_, current.lambda_):
                trace.outcome = Outcome.UNREACHABLE
                break
    return trace.solution(problem)


def interleave(problem: Problem, trace: Trace) -> Solution:
    """Move λ during one training run, and repeat the run from its λ while that helps.

    There is no round 0: the plain ranker is not trained.
    """
    lambda_ = np.zeros(problem.weigher.scale.shape)
    with trace:
        for number in range(1, trace.max_rounds + 1):
            train = partial(problem.train_following, lambda_)
            current, _ = trace.round(number, None, train)
            if trace.outcome is None and current is not trace.best:
                trace.outcome = Outcome.UNREACHABLE
            if trace.outcome is not None:
                break
            lambda_ = current.lambda_
    return trace.solution(problem)
