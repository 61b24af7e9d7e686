"""DualAscent: λ moves between the trees of one training run, and not between many runs."""

from __future__ import annotations

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

    .. math:: \lambda \leftarrow \lambda - \eta \, \Delta

    This is the paper's update between retrainings, applied to the part of Δ that makes up the
    gaps: a change that all compared entries share is not a violation, and would only move the
    weights to their limits. Each entry has its own step size, which is halved whenever its delta
    changes sign and otherwise grows slowly. During the last trees λ stays fixed at the mean of
    its last values.

    Parameters
    ----------
    constraint : Constraint
    measured_on : Queries
        The queries whose scores the run reports.
    weigher : Weigher
    lambda_ : array
        The first multipliers.

    Attributes
    ----------
    lambda_ : array, the current multipliers; at the end, those of the last trees
    path : list of array, the multipliers of each tree

    Notes
    -----
    The settings are class attributes, since they were chosen together: λ moves every 3 trees, at
    first by 5 exponents for a delta of one, and stays fixed for the last tenth of the trees. Over
    24 settings (K = 2, 3 and 5, four constraints, LightGBM, 100 trees) the mean violation at the
    end was between 0.007 and 0.012 for neighbouring choices, so they are not critical.
    """

    every = 3  # trees between two updates
    eta = 5.0  # the first step size, in exponents
    growth = 1.1  # of the step size after an update without a change of sign
    max_growth = 4.0  # the largest step size, as a multiple of the first
    fixed_from = 0.9  # the share of the trees after which λ stays fixed
    averaged = 0.2  # the share of the updates whose mean is the final λ

    def __init__(
        self, constraint: Constraint, measured_on: Queries, weigher: Weigher, lambda_: Array
    ) -> None:
        self.constraint, self.measured_on, self.weigher = constraint, measured_on, weigher
        self.lambda_ = lambda_
        self.path: list[Array] = []
        self._step = np.full(lambda_.shape, self.eta)
        self._previous = np.zeros(lambda_.shape)
        self._visited: list[Array] = []
        self._fixed = False

    def __call__(self, n_trees: int, n_total: int, scores: Callable[[], Array]) -> Array:
        """Return the weight table for the next tree.

        Parameters
        ----------
        n_trees : int
            The number of trees so far.
        n_total : int
            The number of trees at the end.
        scores : callable
            Returns the scores of the items measured on, by the trees so far.
        """
        if n_trees >= self.fixed_from * n_total:
            self._fix()
        elif n_trees and n_trees % min(self.every, max(1, n_total // 20)) == 0:
            self._move(self.constraint.delta(self.measured_on, scores()))
        self.path.append(self.lambda_)
        return self.weigher.table(self.lambda_)

    def _move(self, delta: Array) -> None:
        differences = Contrasts.of(delta).matrix()
        projected = np.linalg.pinv(differences) @ differences @ np.nan_to_num(delta).ravel()
        delta = projected.reshape(delta.shape)
        grown = np.minimum(self.growth * self._step, self.max_growth * self.eta)
        self._step = np.where(delta * self._previous < 0, 0.5 * self._step, grown)
        self._previous = delta
        moved = self.lambda_ - self._step * self.weigher.scale * delta
        self.lambda_ = self.weigher.settle(moved)
        self._visited.append(self.lambda_)

    def _fix(self) -> None:
        if not self._fixed and self._visited:
            n_last = max(1, round(self.averaged * len(self._visited)))
            self.lambda_ = np.mean(self._visited[-n_last:], axis=0)
        self._fixed = True


def mean_multipliers(ascents: Sequence[DualAscent], n_trees: int) -> Array:
    """The mean of the multipliers that several runs used after as many trees; -1 is the last."""
    paths = [ascent.path for ascent in ascents]
    used = [path[min(n_trees, len(path) - 1)] for path in paths]
    return ascents[0].weigher.settle(np.mean(used, axis=0))


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
