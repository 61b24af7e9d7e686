"""How delta responds to λ, for rankers that know how their scores follow the pair weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from pairity._utils.typing import Array
from pairity.constraints import Constraint, PairwiseConstraint
from pairity.data.queries import Queries
from pairity.pairs.by_group import cell_products
from pairity.rankers._linear_data import row_weights
from pairity.reweighting.problem import Problem, scores_of
from pairity.reweighting.weights import Weigher

# The hard violation has steps, so its derivative is that of a violation smoothed over this share of
# the standard deviation of the scores (method.md, section 7f).
_BANDWIDTH = 0.25


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
        """Return the expected change of delta, or of the gaps, for a change of λ."""
        weights = self.weigher.weights(np.stack([self.lambda_, self.lambda_ + change]))
        before, after = weights / (weights @ self.weigher.shares)[:, None]
        return np.asarray(self.by_weight @ (after - before))

    def of_gaps(self, contrasts: Array) -> Foresight:
        """Return what is expected of the gaps, by the matrix that maps delta to them."""
        return replace(self, by_weight=contrasts @ self.by_weight)

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


@dataclass(frozen=True, eq=False)
class Outlook:
    """What a fitted ranker tells about rankers with other λ, on a sample of its training queries.

    Parameters
    ----------
    problem : Problem
    model : a fitted ranker with a `response`
    lambda_ : array, the multipliers that it was trained with
    """

    problem: Problem
    model: Any
    lambda_: Array

    @cached_property
    def scores(self) -> Any:
        """The scores of the sample."""
        return self.problem.sample.each(partial(scores_of, self.model))

    def mixed(self, other: Outlook) -> Callable[[float], Array]:
        """Return delta of mixtures of the scores of both rankers, from the share of the other."""
        part, constraint = self.problem.sample, self.problem.constraint
        own, others = self.scores, other.scores

        def delta(share: float) -> Array:
            mix = part.each(lambda _, a, b: (1.0 - share) * a + share * b, own, others)
            return constraint.delta(part, mix)

        return delta

    def foresight(self) -> Foresight:
        """Predict how delta follows λ around the ranker."""
        part, weigher = self.problem.sample, self.problem.weigher
        directions, coefficients = self.model.response(part, weigher.table(self.lambda_))
        slopes = smoothed_slopes(self.problem.constraint, _BANDWIDTH, part, self.scores, directions)
        by_weight = slopes @ coefficients.reshape(-1, coefficients.shape[-1]).T
        # A ranker does not change if all weights are multiplied by the same number. This gives the
        # response to the pairs of unknown group, or else removes an error of the sample.
        weights, shares = weigher.weights(self.lambda_), weigher.shares
        along = by_weight @ weights[:-1]
        by_weight = np.column_stack([by_weight, -along if shares[-1] > 0.0 else 0.0 * along])
        if shares[-1] == 0.0:
            by_weight -= np.outer(along, shares / (shares @ weights))
        return Foresight(weigher, self.lambda_, by_weight)


def smoothed_slopes(
    constraint: Constraint, width: float, part: Any, scores: Array, directions: Array
) -> Array:
    """Return the derivatives of the smoothed delta along several directions of the scores."""
    if not isinstance(constraint, PairwiseConstraint):
        return _differences(constraint, width, part, scores, directions)
    weight, squares = part.total(_squares, scores)
    bandwidth = max(width * float(np.sqrt(squares / weight)), 1e-300)
    totals = part.total(partial(_pair_slopes, constraint, bandwidth), scores, directions)
    sums, numbers, pairs = totals[:, :-2], totals[:, -2:-1], totals[:, -1]
    slopes = np.divide(sums, numbers, out=np.zeros_like(sums), where=numbers > 0)
    reference = pairs @ slopes / max(pairs.sum(), 1e-300) if constraint.has_reference else 0.0
    return np.asarray(slopes - reference)


def _pair_slopes(
    constraint: PairwiseConstraint, width: float, queries: Queries, scores: Array, directions: Array
) -> Array:
    """Return sums over queries for each entry of delta: one row of the entry's numbers.

    They are the derivatives of the smoothed sum along each direction, the number that the sum is
    divided by, and the weight of its pairs.
    """
    k, counts = queries.n_groups, constraint.counts(queries)
    counts = counts.sum(axis=2, keepdims=True) if constraint.by_group else counts
    weight = np.where(counts > 0, queries.weight_of_query[:, None, None], 0.0)
    shares = weight / np.maximum(counts, 1e-300) if constraint.average == "query" else weight
    cells = cell_products(
        queries, scores / width, np.broadcast_to(shares / width, (len(counts), k, k)),
        directions.T, pairs=constraint.pairs, curved=True,
    )  # fmt: skip
    slopes = cells.sum(axis=1) if constraint.by_group else cells.reshape(k * k, -1)
    numbers = [(table * counts).sum(axis=0).ravel() for table in (shares, weight)]
    return np.column_stack([slopes, *numbers])


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


def _squares(queries: Queries, scores: Array, directions: Sequence[Array] | Array = ()) -> Array:
    """Return the weight of all rows, and sums of squares within queries: of scores, directions."""
    weight, n_queries = row_weights(queries), queries.n_queries
    sizes = np.bincount(queries.query, weight, n_queries)
    sizes[sizes == 0.0] = 1.0
    squares = [weight.sum()]
    for values in (scores, *directions):
        means = np.bincount(queries.query, weight * values, n_queries) / sizes
        squares.append(np.sum(weight * (values - means[queries.query]) ** 2))
    return np.array(squares)
