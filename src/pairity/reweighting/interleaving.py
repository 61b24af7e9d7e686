"""DualAscent: λ moves between the trees of one training run, and not between many runs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pairity._utils.typing import Array
from pairity.constraints import Constraint, Contrasts
from pairity.data.queries import Queries
from pairity.exceptions import InputError
from pairity.reweighting.weights import Weigher


class DualAscent:
    r"""Follows one training run, and moves λ every few trees by the delta so far.

    .. math:: \lambda \leftarrow \lambda - \eta \, (\Delta_t + \kappa t\, (\Delta_t - \Delta_{t-1}))

    This is the paper's update between retrainings, applied to the part of Δ that makes up the
    gaps: a change that all compared entries share is not a violation, and would only move the
    weights to their limits. The second term is the trend of Δ. All trees so far make up the scores,
    so Δ follows λ with a lag that grows with the number t of updates. Without the trend, λ goes too
    far and then swings back.

    Each entry has its own step size η, which is halved whenever its delta changes sign, and a
    largest change, which is halved, down to its first value, whenever λ turns round. Otherwise both
    grow slowly. During the last trees λ stays fixed at the mean of its
    last values.

    A run that is measured on other queries than it trains on records the optimism of its training
    queries: how much their delta differs. A later run on all queries, which can only be measured
    in training, corrects its delta by it (`expected_optimism`).

    Parameters
    ----------
    constraint : Constraint
    measured_on : Queries
        The queries whose scores the run reports.
    weigher : Weigher
    lambda_ : array
        The first multipliers.
    trained_on : Queries, optional
        The queries of the run, if the optimism is to be recorded.
    correction : callable, optional
        What to add to the delta of an update, from the number of updates before it.

    Attributes
    ----------
    lambda_ : array, the current multipliers; at the end, those of the last trees
    optimism : list of array, delta less that of the training queries, for each update

    Notes
    -----
    The settings are class attributes, since they were chosen together: on training queries of
    star and MathAchieve, split again, and on synthetic data with three queries of 480 items. On
    such long lists λ ran to its limits without the trend and the largest change, if the group was
    among the features.
    """

    every = 3  # trees between two updates
    eta = 5.0  # the first step size, in exponents for a delta of one
    growth = 1.1  # of the step size after an update without a change of sign
    max_growth = 4.0  # the largest step size, as a multiple of the first
    limit = 0.3  # the largest change of an exponent in the first update
    limit_growth = 1.2  # of the largest change after an update in the same direction
    shrinkage = 0.5  # of the step size after a change of sign, and of the largest change
    lead = 0.25  # κ, the share of the updates so far by which Δ lags behind
    fixed_from = 0.975  # the share of the trees after which λ stays fixed
    averaged = 0.3  # the share of the updates whose mean is the final λ

    def __init__(
        self,
        constraint: Constraint,
        measured_on: Queries,
        weigher: Weigher,
        lambda_: Array,
        *,
        trained_on: Queries | None = None,
        correction: Callable[[int], Array] | None = None,
    ) -> None:
        self.constraint, self.measured_on, self.weigher = constraint, measured_on, weigher
        self.lambda_, self.trained_on, self.correction = lambda_, trained_on, correction
        self.optimism: list[Array] = []
        self._step = np.full(lambda_.shape, self.eta)
        self._limit = np.full(lambda_.shape, self.limit)
        self._previous, self._last_move = np.zeros(lambda_.shape), np.zeros(lambda_.shape)
        self._visited: list[Array] = []
        self._fixed = False
        self._projection: Array | None = None  # onto the part of delta that makes up the gaps

    def __call__(self, n_trees: int, n_total: int, scores: Callable[..., Array]) -> Array:
        """Return the weight table for the next tree.

        Parameters
        ----------
        n_trees : int
            The number of trees so far.
        n_total : int
            The number of trees at the end.
        scores : callable
            Returns the scores of the items measured on, by the trees so far, or with
            ``training=True`` those of the training items.
        """
        if n_trees >= self.fixed_from * n_total:
            self._fix()
        elif n_trees and n_trees % min(self.every, max(1, n_total // 20)) == 0:
            delta = self.constraint.delta(self.measured_on, scores())
            if self.trained_on is not None:
                in_training = self.constraint.delta(self.trained_on, scores(training=True))
                self.optimism.append(np.nan_to_num(delta - in_training))
            if self.correction is not None:
                delta = delta + self.correction(len(self._visited))
            self._move(delta)
        return self.weigher.table(self.lambda_)

    def _move(self, delta: Array) -> None:
        if self._projection is None:
            differences = Contrasts.of(delta).matrix()
            self._projection = np.linalg.pinv(differences) @ differences
        delta = (self._projection @ np.nan_to_num(delta).ravel()).reshape(delta.shape)
        move = delta + self.lead * len(self._visited) * (delta - self._previous)
        grown = np.minimum(self.growth * self._step, self.max_growth * self.eta)
        crossed, turned = delta * self._previous < 0, move * self._last_move < 0
        self._step = np.where(crossed, self.shrinkage * self._step, grown)
        self._limit *= np.where(turned, self.shrinkage, self.limit_growth)
        self._limit = np.maximum(self._limit, self.limit)
        change = np.clip(self._step * move, -self._limit, self._limit)
        self._previous, self._last_move = delta, move
        self.lambda_ = self.weigher.settle(self.lambda_ - self.weigher.scale * change)
        self._visited.append(self.lambda_)

    def _fix(self) -> None:
        if not self._fixed and self._visited:
            n_last = max(1, round(self.averaged * len(self._visited)))
            self.lambda_ = self.weigher.settle(np.mean(self._visited[-n_last:], axis=0))
        self._fixed = True


def expected_optimism(ascents: Sequence[DualAscent], share: float, n_updates: int) -> Array:
    """The expected optimism of a run on all queries, after as many updates.

    It is the mean of what several runs on a share of the queries recorded, times this share,
    because the optimism of a model falls in proportion to the number of its training queries.
    """
    recorded = [last for ascent in ascents for last in ascent.optimism[: n_updates + 1][-1:]]
    return np.asarray(share * np.mean(recorded, axis=0) if recorded else 0.0)


def as_schedule(
    schedule: Any, ranker: Any, solver: Any = "damped", fit_params: Mapping[str, Any] | None = None
) -> str:
    """Check a schedule against the ranker; "auto" selects the better one that it supports.

    At equal cost, interleaving left a smaller violation in every setting of
    ``python -m benchmarks schedules``. "auto" retrains if the user chose a solver, and if there
    are evaluation sets, since early stopping would remove the trees for which λ is right.
    """
    able = hasattr(ranker, "fit_following")
    if schedule == "auto":
        chosen = not (isinstance(solver, str) and solver == "damped")
        stops = "eval_set" in (fit_params or {})
        interleaves = able and getattr(ranker, "follows", True) and not chosen and not stops
        return "interleaved" if interleaves else "retrain"
    if schedule not in ("retrain", "interleaved"):
        raise InputError(f"schedule is {schedule!r}; choose 'auto', 'retrain' or 'interleaved'.")
    if schedule == "interleaved" and not able:
        raise InputError(
            f"{type(ranker).__name__} cannot change pair weights during training, which "
            "schedule='interleaved' requires; LightGBM and XGBoost can. Use schedule='retrain'."
        )
    return str(schedule)
