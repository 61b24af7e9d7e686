"""How delta responds to λ, for rankers that know how their scores follow the pair weights."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pairity._utils.typing import Array
from pairity.constraints import Constraint, PairwiseConstraint
from pairity.data.queries import Queries
from pairity.pairs.by_group import cell_products, sums_by_group
from pairity.rankers._linear_data import row_weights
from pairity.rankers._products import one_blas_thread
from pairity.reweighting.problem import Problem, scores_of
from pairity.reweighting.weights import Weigher

# The hard violation has steps, so its derivative is that of a violation smoothed over this share of
# the standard deviation of the scores (method.md, section 7f).
_BANDWIDTH = 0.25
_SHARP = 0.08  # the same where the wider one promises no more progress


@dataclass(frozen=True, eq=False)
class Foresight:
    """What is expected of delta around the multipliers λ of a fitted ranker.

    The weights follow λ exactly, and delta follows the weights linearly.

    Attributes
    ----------
    weigher : Weigher
    lambda_ : array
    by_weight : array of shape (n_entries, 2 K² + 1), the derivatives in `Weigher.weights`
    """

    weigher: Weigher
    lambda_: Array
    by_weight: Array

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
    """Predict how delta follows λ around a fitted ranker that has a `response`."""
    part, weigher = problem.sample, problem.weigher
    with one_blas_thread:
        directions, coefficients = model.response(part, weigher.table(lambda_))
        scores = part.each(partial(scores_of, model))
        width = _SHARP if sharp else _BANDWIDTH
        slopes = _slopes(problem.constraint, width, part, scores, directions)
    by_weight = slopes @ coefficients.reshape(-1, coefficients.shape[-1]).T
    # A ranker does not change if all weights are multiplied by the same number. This gives the
    # response to the pairs of unknown group, or else removes an error of the sample.
    weights, shares = weigher.weights(lambda_), weigher.shares
    along = by_weight @ weights[:-1]
    by_weight = np.column_stack([by_weight, -along if shares[-1] > 0.0 else 0.0 * along])
    if shares[-1] == 0.0:
        by_weight -= np.outer(along, shares / (shares @ weights))
    return Foresight(weigher, lambda_, by_weight)


def _slopes(
    constraint: Constraint, width: float, part: Any, scores: Array, directions: Array
) -> Array:
    """Return the derivatives of the smoothed delta along several directions of the scores."""
    if not isinstance(constraint, PairwiseConstraint):
        return _differences(constraint, width, part, scores, directions)
    weight, squares = part.total(_squares, scores, ())
    bandwidth = max(width * float(np.sqrt(squares / weight)), 1e-300)
    totals = part.total(partial(_pair_slopes, constraint, bandwidth), scores, directions)
    numerators, denominators = totals[:, :-1], totals[:, -1:]
    slopes = np.divide(numerators, denominators, out=0.0 * numerators, where=denominators > 0)
    return np.asarray(slopes[:-1] - slopes[-1] if constraint.has_reference else slopes[:-1])


def _pair_slopes(
    constraint: PairwiseConstraint, width: float, queries: Queries, scores: Array, directions: Array
) -> Array:
    """Return the derivatives of the numerators of the smoothed means, and their denominators.

    There is one row for each of `PairwiseConstraint.entries`. Denominators are the last column.
    """
    k, weight = queries.n_groups, queries.weight_of_query
    counts = constraint.entries(constraint.counts(queries))
    shares = np.where(counts > 0, weight[:, None], 0.0)
    if constraint.average == "query":
        np.divide(shares, counts, out=shares, where=counts > 0)
    denominators = (shares * counts).sum(axis=0)
    sums = sums_by_group(queries, scores / width, pairs=constraint.pairs, curved=True)
    above, below = (table[:, :k] / width for table in sums)
    if constraint.pairs == "all":  # in both orders
        above = below = above + below
    shape = (-1, k, 1) if constraint.by_group else (-1, k, k)
    of_cell = np.broadcast_to(shares[:, :-1].reshape(shape), (len(shares), k, k))
    group = np.minimum(queries.group, k - 1)  # items of unknown group are in no cell
    own, others = of_cell[queries.query, group], of_cell[queries.query, :, group]
    cells = cell_products(queries, own * above, others * below, directions.T)
    by_cell = cells.sum(axis=1) if constraint.by_group else cells.reshape(k * k, -1)
    known = queries.group < k
    of_all = shares[queries.query, -1] * known * (above - below).sum(axis=1)
    return np.column_stack([np.vstack([by_cell, directions @ of_all]), denominators])


def _differences(
    constraint: Constraint, width: float, part: Any, scores: Array, directions: Array
) -> Array:
    """Return about the same of a constraint whose values have steps: differences over `width`."""
    sizes = np.sqrt(part.total(_squares, scores, directions)[1:])
    steps = width * np.divide(sizes[0], sizes[1:], where=sizes[1:] > 0, out=0.0 * sizes[1:])
    moved = [scores + step * move for step, move in zip(steps, directions, strict=True)]
    flat = np.array([constraint.delta(part, values).ravel() for values in (scores, *moved)])
    slopes = np.nan_to_num(flat[1:] - flat[0]).T
    return np.asarray(np.divide(slopes, steps, out=np.zeros_like(slopes), where=steps > 0))


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
