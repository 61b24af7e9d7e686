"""DualAscent: λ moved between the trees of one training run, instead of between many runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pairity._utils.typing import Array
from pairity.constraints import Constraint, Contrasts
from pairity.data.queries import Queries
from pairity.exceptions import InputError
from pairity.reweighting.solvers import settle


class DualAscent:
    r"""Follows one training run, and moves λ every few trees by the violation so far.

    .. math:: \lambda \leftarrow \lambda - \eta \, \Delta

    as the paper's update does between retrainings, with the part of Δ that the gaps are made of:
    what all compared entries have in common is no violation, and would only carry the weights to
    their limits. Each entry has a step size of its own, which
    is halved whenever its violation changes sign and otherwise grows slowly, so that it neither
    crawls nor swings. For the last trees λ is held at the mean of its last values.

    Parameters
    ----------
    constraint : Constraint
    measured_on : Queries
        Whose scores the run reports.
    weigh : callable
        From λ to the weight table.
    lambda_ : array
        Where to begin.
    scale : array of λ's shape
        The change of λ that moves the exponent of a pair's weight by one.

    Attributes
    ----------
    lambda_ : array, the multipliers in force; at the end, those that were held

    Notes
    -----
    The settings are of the class, since they were chosen together: λ moves every 3 trees, 5
    exponents for a violation of one at first, and is held for the last tenth of the trees. Over
    24 settings (K = 2, 3 and 5, four constraints, LightGBM, 100 trees) the mean violation that was
    left varied between 0.007 and 0.012 with these choices; they are no fine point.
    """

    every = 3
    eta = 5.0
    growth = 1.1
    most = 4.0  # times the first step size
    held_from = 0.9  # of the trees
    averaged = 0.2  # of the updates, at the end

    def __init__(
        self,
        constraint: Constraint,
        measured_on: Queries,
        weigh: Callable[[Array], Array],
        lambda_: Array,
        scale: Array,
    ) -> None:
        self.constraint, self.measured_on, self.weigh = constraint, measured_on, weigh
        self.lambda_, self.scale = lambda_, scale
        self._step = np.full(lambda_.shape, self.eta)
        self._last = np.zeros(lambda_.shape)
        self._passed: list[Array] = []
        self._held = False

    def __call__(self, n_trees: int, n_total: int, scores: Callable[[], Array]) -> Array:
        """The weight table for the next tree.

        Parameters
        ----------
        n_trees : int
            Trees there are so far.
        n_total : int
            Trees there will be.
        scores : callable
            Returns the scores of the items measured on, by the trees so far.
        """
        if n_trees >= self.held_from * n_total:
            self._hold()
        elif n_trees and n_trees % min(self.every, max(1, n_total // 20)) == 0:
            self._move(self.constraint.delta(self.measured_on, scores()))
        return self.weigh(self.lambda_)

    def _move(self, violation: Array) -> None:
        differences = Contrasts.of(violation).matrix()
        uneven = np.linalg.pinv(differences) @ differences @ np.nan_to_num(violation).ravel()
        violation = uneven.reshape(violation.shape)
        turned = violation * self._last < 0
        grown = np.minimum(self.growth * self._step, self.most * self.eta)
        self._step = np.where(turned, 0.5 * self._step, grown)
        self._last = violation
        self.lambda_ = settle(self.lambda_ - self._step * self.scale * violation, self.scale)
        self._passed.append(self.lambda_)

    def _hold(self) -> None:
        if not self._held and self._passed:
            last = max(1, round(self.averaged * len(self._passed)))
            self.lambda_ = np.mean(self._passed[-last:], axis=0)
        self._held = True


def as_schedule(
    schedule: Any, ranker: Any, solver: Any = "damped", fit_params: Mapping[str, Any] | None = None
) -> str:
    """Check a schedule against what the ranker can do; "auto" takes the better one it can.

    At equal cost, interleaving left less of the violation in every setting of
    ``python -m benchmarks schedules``. Two things ask for retraining: a solver of one's own
    choice, and evaluation sets, since early stopping would cut off the trees that λ came to be
    right for.
    """
    if schedule == "auto":
        able = hasattr(ranker, "fit_following") and getattr(ranker, "follows", True)
        own_solver = not (isinstance(solver, str) and solver == "damped")
        stops = "eval_set" in (fit_params or {})
        return "interleaved" if able and not own_solver and not stops else "retrain"
    if schedule not in ("retrain", "interleaved"):
        raise InputError(f"schedule is {schedule!r}; choose 'auto', 'retrain' or 'interleaved'.")
    if schedule == "interleaved" and not hasattr(ranker, "fit_following"):
        raise InputError(
            f"{type(ranker).__name__} cannot change pair weights while it trains, which "
            "schedule='interleaved' needs; LightGBM and XGBoost can. Use schedule='retrain'."
        )
    return str(schedule)
