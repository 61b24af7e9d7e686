"""How delta responds to λ, for rankers that know how their scores follow the pair weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from pairity._utils.typing import Array
from pairity.constraints import Constraint, PairwiseConstraint
from pairity.data.queries import Queries
from pairity.rankers._linear_data import row_weights
from pairity.reweighting.problem import Problem, scores_of
from pairity.reweighting.weights import Weigher

# The hard violation has steps, so its derivative is that of a violation smoothed over this share of
# the standard deviation of the scores (method.md, section 7f).
_BANDWIDTH = 0.25
_SHARP = 0.08  # the same where the wider one promises no more progress
_SMALL_SAMPLE = 0.25  # of the training items, up to which training on the sample is cheap
_STEP = 0.05  # of the bandwidth: the difference from which the derivative of smooth values is taken


@dataclass(frozen=True, eq=False)
class Foresight:
    """What is expected of delta around the multipliers λ of a fitted ranker.

    The weights follow λ exactly, and delta follows the weights linearly. Where a sample is much
    smaller than the training data, `rehearse` says what a ranker trained on the sample would do.

    Attributes
    ----------
    weigher : Weigher
    lambda_ : array
    by_weight : array of shape (n_entries, 2 K² + 1), the derivatives in `Weigher.weights`
    rehearse : callable or None, from a change of λ to the change of delta on the sample
    """

    weigher: Weigher
    lambda_: Array
    by_weight: Array
    rehearse: Callable[[Array], Array] | None = None

    def __call__(self, change: Array) -> Array:
        """Return the expected change of delta for a change of λ."""
        weights = self.weigher.weights(np.stack([self.lambda_, self.lambda_ + change]))
        before, after = weights / (weights @ self.weigher.shares)[:, None]
        return np.asarray(self.by_weight @ (after - before)).reshape(change.shape)

    def jacobian(self, change: Array, width: float = 1e-4) -> Array:
        """Return the derivatives of the expected delta in the entries of λ, at a change of λ."""
        steps = width * np.where(self.weigher.scale > 0, self.weigher.scale, 1.0)
        middle = self.lambda_ + change
        weights = self.weigher.weights(middle)
        mean = float(weights @ self.weigher.shares)
        along_mean = np.outer(self.by_weight @ weights, self.weigher.shares / mean)
        relative = (self.by_weight - along_mean)[:, :-1] / (2.0 * mean)
        if self.weigher.separable:  # one difference serves all entries
            ahead, behind = self.weigher.tables(middle + np.stack([steps, -steps]))
            by_cell = relative.reshape(-1, *ahead.shape) * (ahead - behind)
            by_entry = by_cell.sum(axis=1) if change.ndim == 2 else by_cell.sum(axis=(1, 3))
            return np.asarray(by_entry.reshape(len(by_entry), -1) / steps.ravel())
        moves = steps * np.eye(change.size).reshape(-1, *change.shape)
        difference = self.weigher.tables(middle + moves) - self.weigher.tables(middle - moves)
        return np.asarray(relative @ difference.reshape(change.size, -1).T / steps.ravel())


def foresight(problem: Problem, model: Any, lambda_: Array, *, sharp: bool = False) -> Foresight:
    """Predict how delta follows λ around a fitted ranker that has a `response`.

    Everything is computed on a sample of the training queries, for a ranker trained on it.
    """
    part, weigher, rehearse = problem.sample, problem.weigher, None
    width = _SHARP if sharp else _BANDWIDTH
    if part.n_items <= _SMALL_SAMPLE * problem.queries.n_items:
        model = problem.train_on_sample(lambda_, model)
        rehearse = partial(_rehearse, problem, model, width, lambda_)
    directions, coefficients = model.response(part, weigher.table(lambda_))
    scores = part.each(partial(scores_of, model))
    slopes = _slopes(problem.constraint, width, part, scores, directions)
    by_weight = slopes @ coefficients.reshape(-1, coefficients.shape[-1]).T
    # A ranker does not change if all weights are multiplied by the same number. This gives the
    # response to the pairs of unknown group, or else removes an error of the sample.
    weights, shares = weigher.weights(lambda_), weigher.shares
    along = by_weight @ weights[:-1]
    by_weight = np.column_stack([by_weight, -along if shares[-1] > 0.0 else 0.0 * along])
    if shares[-1] == 0.0:
        by_weight -= np.outer(along, shares / (shares @ weights))
    return Foresight(weigher, lambda_, by_weight, rehearse)


def _rehearse(problem: Problem, model: Any, width: float, lambda_: Array, change: Array) -> Array:
    """Return the change of the smoothed delta when the sample is retrained with a change of λ."""
    part = problem.sample
    before = part.each(partial(scores_of, model))
    after = part.each(partial(scores_of, problem.train_on_sample(lambda_ + change, model)))
    bandwidth = width * _deviation(part.total(_squares, before, ()))
    move = part.each(_difference, after, before)
    changes = _changes(problem.constraint, bandwidth, np.ones(1), part, before, move)
    return changes.reshape(change.shape)


def _difference(_queries: Queries, after: Array, before: Array) -> Array:
    return (after - before)[None]


def _deviation(squares: Array) -> float:
    """Return the standard deviation of the scores within queries."""
    return max(float(np.sqrt(squares[1] / squares[0])), 1e-300)


def _slopes(
    constraint: Constraint, width: float, part: Any, scores: Array, directions: Array
) -> Array:
    """Return the derivatives of the smoothed delta along several directions of the scores."""
    squares = part.total(_squares, scores, directions)
    sizes = np.sqrt(squares[1:])
    step = _STEP if isinstance(constraint, PairwiseConstraint) else 1.0  # other values have steps
    steps = step * width * np.divide(sizes[0], sizes[1:], where=sizes[1:] > 0, out=sizes[1:])
    bandwidth = width * _deviation(squares)
    slopes = _changes(constraint, bandwidth, steps, part, scores, directions).T
    return np.asarray(np.divide(slopes, steps, out=np.zeros_like(slopes), where=steps > 0))


def _changes(
    constraint: Any, width: float, steps: Array, part: Any, scores: Array, directions: Array
) -> Array:
    """Return the changes of the smoothed delta by a step along each direction, as rows."""
    if isinstance(constraint, PairwiseConstraint):
        constraint = replace(constraint, soft=True)
    moved = partial(_moved, constraint, width, steps)
    if hasattr(constraint, "totals"):
        totals = part.total(moved, scores, directions)
        deltas = np.array([constraint.from_totals(total, part.groups) for total in totals])
    else:
        deltas = moved(part, scores, directions)
    flat = np.nan_to_num(deltas).reshape(len(steps) + 1, -1)
    return np.asarray(flat[1:] - flat[0])


def _moved(
    constraint: Any, width: float, steps: Array, queries: Queries, scores: Array, directions: Array
) -> Array:
    """Return delta, or its totals, of the scores and of scores moved along each direction."""
    measure = getattr(constraint, "totals", constraint.delta)
    moved = (scores + step * move for step, move in zip(steps, directions, strict=True))
    return np.array([measure(queries, values / width) for values in (scores, *moved)])


def _squares(queries: Queries, scores: Array, directions: Array) -> Array:
    """Return the weight of all rows, and sums of squares within queries: of scores, directions."""
    weight, n_queries = row_weights(queries), queries.n_queries
    sizes = np.bincount(queries.query, weight, n_queries)
    sizes[sizes == 0.0] = 1.0
    squares = [weight.sum()]
    for values in (scores, *directions):
        means = np.bincount(queries.query, weight * values, n_queries) / sizes
        squares.append(np.sum(weight * (values - means[queries.query]) ** 2))
    return np.array(squares)
