"""How delta responds to λ, for rankers that know how their scores follow the pair weights."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np

from pairity._utils.typing import Array
from pairity.data.queries import Queries
from pairity.reweighting.problem import Problem, scores_of
from pairity.reweighting.solvers import Foresight

_RESPONSE_ITEMS = 12_000  # the response is estimated on about this many items, for speed
_RESPONSE_STEP = 0.5  # half the width of the central differences, in units of the exponent


def foresight(problem: Problem, model: Any, lambda_: Array) -> Foresight:
    """Predict how delta follows λ around a fitted ranker that has a `response`.

    The weights follow λ exactly, as far as each entry of λ moves its own weights. The scores are
    assumed to move linearly with the weights. The hard violation has steps, so it is measured on
    the moved scores, on a part of the training queries.

    Returns
    -------
    callable, from a change of λ to the change of delta
    """
    constraint, weigher = problem.constraint, problem.weigher
    part = problem.queries.thinned(max(1, problem.queries.n_items // _RESPONSE_ITEMS))
    scores = part.each(partial(scores_of, model))
    current = constraint.delta(part, scores)
    entries = np.flatnonzero(np.isfinite(current))
    table = weigher.table(lambda_)
    units = np.eye(lambda_.size)[entries].reshape(-1, *lambda_.shape)
    steps = _RESPONSE_STEP * weigher.scale * units
    changes = np.array(
        [(weigher.table(lambda_ + step) - weigher.table(lambda_ - step)) / 2 for step in steps]
    )
    moves = model.response(part, table, changes)
    lengths = np.maximum(np.sum(changes**2, axis=(1, 2)), 1e-300)

    @lru_cache(maxsize=4096)  # a search returns to the same values of an entry
    def share(index: int, change: float) -> float:
        weights = weigher.table(lambda_ + change * units[index])
        return float(np.sum((weights - table) * changes[index]) / lengths[index])

    def foreseen(change: Array) -> Array:
        shares = np.array([share(index, value) for index, value in enumerate(change.flat[entries])])
        moved = part.each(partial(_moved, shares), scores, moves)
        return np.nan_to_num(constraint.delta(part, moved) - current)

    return foreseen


def _moved(shares: Array, _queries: Queries, scores: Array, moves: Array) -> Array:
    return np.asarray(scores + shares @ moves)
