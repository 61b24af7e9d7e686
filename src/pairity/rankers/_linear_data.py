"""Sums over rows and pairs that a linear fit needs, wherever the rows are.

`LinearRanker` accesses its data only through `LinearData`. It passes K × K tables and receives
vectors with one number per feature, so that features may be in memory (`InMemory`), on disk
(`Streamed`) or on other machines (`OnWorkers`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, cast

import numpy as np
import scipy.sparse as sp

from pairity._utils.threads import run_all
from pairity._utils.typing import Array
from pairity.data.checks import require_features
from pairity.data.features import Features, require_finite
from pairity.data.parquet_features import BLOCK_ENTRIES, ParquetFeatures
from pairity.data.queries import Queries
from pairity.exceptions import InputError
from pairity.pairs.by_group import cell_products
from pairity.pairs.cells import cell_counts, total_weight
from pairity.pairs.logistic import pairwise_hessian_product, pairwise_logistic, subtract_margin
from pairity.rankers._products import one_blas_thread, row_blocks, times, transposed_times

MOST_WHITENED = 1500  # features up to which a dense Cholesky factor is worth its cost
_BLOCK_ENTRIES = 100_000  # entries of a centred copy, made block by block: they fit in the cache
_SAMPLE_ENTRIES = 4_000_000  # most entries of the dense part of X that curvature is estimated from
_FEWEST_ROWS = 6000  # that curvature is estimated from, if there are as many
_SAMPLE_ROWS = 100  # rows per feature that curvature is estimated from

# Receives a part of the queries, its features and scores, the margin and further arguments.
Terms = Callable[..., Array]


class LinearData(ABC):
    """Queries whose features are multiplied by coefficients, in the units of the features.

    Pairs are the preference pairs of the queries. `weights` is W of shape (n_groups, n_groups); a
    pair with an item of unknown group has weight 1. Sums are over pairs and not divided. The
    loss is logistic, of pairs to be won by `margin` (`pairs.logistic.subtract_margin`).
    """

    def __init__(self, queries: Any, margin: float = 0.0) -> None:
        self.queries, self.margin = queries, margin

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self.queries.n_features)

    def deviations(self) -> Array:
        """Return the standard deviation of each feature over weighted rows; inf if constant."""
        return cast(Array, self.queries.cached("deviations", None, self._deviations))

    @abstractmethod
    def _deviations(self) -> Array:
        """Compute `deviations`."""

    @abstractmethod
    def _sum(self, terms: Terms, coef: Array, *arguments: Any) -> Array:
        """Return the sum of `terms` over parts of the queries, at the scores of `coef`."""

    @abstractmethod
    def scores(self, coefs: Array) -> Array:
        """Return scores of shape (n_coefs, n_items), for several coefficient vectors."""

    def loss_and_gradient(self, coef: Array, weights: Array) -> tuple[float, Array]:
        """Return the loss, summed over pairs, and its gradient in `coef`."""
        both = self._sum(_loss_and_gradient, coef, weights)
        return float(both[0]), both[1:]

    def hessian_product(self, coef: Array, weights: Array, direction: Array) -> Array:
        """Return the Hessian of the loss at `coef`, times a direction."""
        return self._sum(_hessian_product, coef, weights, direction)

    def cell_gradients(self, coef: Array) -> Array:
        """Return the gradients of the loss of each cell, of shape (2, K, K, n_features).

        The first K × K are those of the observed pairs, the others those of the mirrored pairs.
        """
        observed = self._sum(_cell_gradients, coef, 1.0)
        if self.margin == 0.0:  # L(-d) = L(d) + d, and the gradient of L at equal scores is -1/2
            zero = np.zeros_like(coef)
            differences = self.queries.cached(
                "differences by cell", None, lambda: -2.0 * self._sum(_cell_gradients, zero, 1.0)
            )
            return np.stack([observed, observed + differences])
        return np.stack([observed, -self._sum(_cell_gradients, coef, -1.0)])

    def sample(self, weights: Array) -> Any:
        """Return some of the queries, with features in memory, or all if those have weight 0."""
        queries, step = self.queries, sampling_step(self.queries.n_items, self.n_features)
        part = queries.cached("curvature sample", step, lambda: queries.thinned(step))
        return part if total_weight(part, weights) > 0.0 else queries


def linear_data(queries: Any, margin: float = 0.0) -> LinearData:
    """Return the `LinearData` of these queries."""
    if not isinstance(queries, Queries):
        make = partial(OnWorkers, queries, margin)
        return cast(LinearData, queries.cached("linear", margin, make))
    require_features(queries)
    if isinstance(queries.X, ParquetFeatures):
        return queries.cached("streamed", margin, lambda: Streamed(queries, margin))
    return InMemory(queries, margin)


class _Local(LinearData):
    """`LinearData` of one process: sums over parts of the queries."""

    @abstractmethod
    def _parts(self, coef: Array) -> Iterator[tuple[Queries, Any, Array]]:
        """Yield parts of the queries, their features, and their scores."""

    def scores(self, coefs: Array) -> Array:
        """Return scores for several coefficient vectors, in one pass."""
        return times(self.queries.X, coefs.T).T

    def _sum(self, terms: Terms, coef: Array, *arguments: Any) -> Array:
        parts = (terms(*part, self.margin, *arguments) for part in self._parts(coef))
        return sum(parts, start=next(parts))


def _loss_and_gradient(
    part: Queries, X: Any, scores: Array, margin: float, weights: Array
) -> Array:
    """Return the loss, followed by its gradient in the coefficients."""
    terms = pairwise_logistic(part, scores, weights, margin=margin)
    return np.concatenate([[terms.loss], transposed_times(X, terms.gradient)])


def _hessian_product(
    part: Queries, X: Any, scores: Array, margin: float, weights: Array, direction: Array
) -> Array:
    along = times(X, direction)
    product = pairwise_hessian_product(part, scores, weights, along, margin=margin)
    return transposed_times(X, product)


def _cell_gradients(part: Queries, X: Any, scores: Array, margin: float, sign: float) -> Array:
    """Return the gradients by cell of the loss of the scores, or of their negatives."""
    shape = (part.n_queries, part.n_groups, part.n_groups)
    factors = np.broadcast_to(part.training_weight[:, None, None], shape)
    return -cell_products(part, subtract_margin(part, sign * scores, margin), factors, X)


class InMemory(_Local):
    """`LinearData` of queries whose features are a dense or sparse matrix in memory."""

    _last: tuple[Array, Array] | None = None

    def _deviations(self) -> Array:
        return _as_deviations(*_moments(self.queries.X, row_weights(self.queries))[1:])

    def _parts(self, coef: Array) -> Iterator[tuple[Queries, Any, Array]]:
        """Yield all queries. Scores are cached: several sums are needed at the same `coef`."""
        if self._last is None or not np.array_equal(self._last[0], coef):
            self._last = coef.copy(), times(self.queries.X, coef)
        yield self.queries, self.queries.X, self._last[1]


class Streamed(_Local):
    """`LinearData` of queries whose features are in Parquet files.

    Every sum is one pass over the files, in blocks of whole queries. Deviations and the sample
    take one pass in total.
    """

    def __init__(self, queries: Queries, margin: float = 0.0) -> None:
        super().__init__(queries, margin)
        self.X: ParquetFeatures = queries.X
        self.ordered = queries.by_query()[0]
        bounds = self.ordered.layout.bounds
        height = max(1, BLOCK_ENTRIES // self.n_features)
        marks = np.arange(height, queries.n_items, height)
        self._cuts = np.unique(np.r_[0, np.searchsorted(bounds, marks), len(bounds) - 1])

    def _deviations(self) -> Array:
        return self._prepared[0]

    def sample(self, weights: Array) -> Queries:
        """Return some of the queries, or others if those have weight 0."""
        part = self._prepared[1]
        if total_weight(part, weights) > 0.0:
            return part
        positive = (cell_counts(self.queries) * self.queries.pad(weights)).sum(axis=(1, 2)) > 0.0
        chosen = np.flatnonzero(positive & (self.queries.weight_of_query > 0.0))
        queries: Queries = self.queries.take(chosen[:: -(-len(chosen) // part.n_queries)])
        return queries.in_memory()

    def _parts(self, coef: Array) -> Iterator[tuple[Queries, Any, Array]]:
        """Yield blocks of whole queries."""
        blocks = self.X.blocks(self.ordered.layout.bounds[self._cuts])
        spans = zip(self._cuts[:-1].tolist(), self._cuts[1:].tolist(), strict=True)
        for (first, last), (_, block) in zip(spans, blocks, strict=True):
            part, X = self.ordered.between(first, last), np.asarray(block, dtype=np.float64)
            yield part, X, times(X, coef)

    @cached_property
    def _prepared(self) -> tuple[Array, Queries]:
        """Deviations and the sample. This pass finds missing and infinite values."""
        queries = replace(self.queries, X=None)
        chosen = np.zeros(queries.n_queries, dtype=bool)
        chosen[:: sampling_step(queries.n_items, self.n_features)] = True
        of_row, weight = chosen[queries.query], row_weights(queries)
        picked, moments = [], []
        for rows, block in self.X.blocks():
            require_finite(block, self.X.names, rows.start)
            moments.append(_moments(np.asarray(block, dtype=np.float64), weight[rows]))
            picked.append(np.array(block[of_row[rows]], dtype=np.float64, order="C"))
        return _merge_moments(moments), replace(queries.take(chosen), X=np.concatenate(picked))


class OnWorkers(LinearData):
    """`LinearData` of queries on the workers of a cluster.

    Coefficients and weight tables are sent to the workers, which return sums.
    """

    def _deviations(self) -> Array:
        return _merge_moments(self.queries.gather(lambda part: _moments(part.X, row_weights(part))))

    def scores(self, coefs: Array) -> Any:
        """Return scores, which stay on the workers."""
        return self.queries.each(partial(_on_share, "scores", self.margin, (coefs,)))

    def _sum(self, terms: Terms, coef: Array, *arguments: Any) -> Array:
        task = partial(_on_share, "_sum", self.margin, (terms, coef, *arguments))
        return np.asarray(self.queries.total(task))


def _on_share(method: str, margin: float, arguments: Any, queries: Queries) -> Any:
    """Call a method of `LinearData` for one worker's share of the queries."""
    data = queries.cached("linear", margin, lambda: InMemory(queries, margin))
    with one_blas_thread:
        return getattr(data, method)(*arguments)


def sampling_step(n_items: int, n_features: int) -> int:
    """Return the step k such that every k-th query suffices to estimate curvature."""
    n_rows = max(_SAMPLE_ROWS * min(n_features, MOST_WHITENED), _FEWEST_ROWS)
    if n_features <= MOST_WHITENED:
        n_rows = min(n_rows, _SAMPLE_ENTRIES // n_features)
    return -(-n_items // n_rows)


# --- standard deviations --------------------------------------------------------------------------


def _merge_moments(parts: Iterable[tuple[float, Array, Array]]) -> Array:
    """Return the standard deviations of all rows, from the `_moments` of some rows at a time."""
    weight, mean, squares = 0.0, np.zeros(1), np.zeros(1)
    with np.errstate(over="ignore", invalid="ignore"):
        for added, own_mean, variance in parts:
            if added > 0.0:
                distance, total = own_mean - mean, weight + added
                squares = squares + (added * variance + distance**2 * (weight * added / total))
                mean, weight = mean + distance * (added / total), total
    return _as_deviations(mean, squares / weight)


def row_weights(queries: Queries) -> Array:
    """Return the weight of each row: its query's weight times its own."""
    weight = queries.weight_of_query[queries.query]
    return np.asarray(weight if queries.item_weight is None else weight * queries.item_weight)


def _moments(X: Features, weight: Array) -> tuple[float, Array, Array]:
    """Return the total weight, and the weighted mean and variance of every feature."""
    total = float(weight.sum())
    if not total > 0.0:
        return 0.0, np.zeros(X.shape[1]), np.zeros(X.shape[1])
    weight = weight / total
    with np.errstate(over="ignore", invalid="ignore"):
        mean = transposed_times(X, weight)
        if sp.issparse(X):
            centred = sp.csr_array((X.data - mean[X.indices], X.indices, X.indptr), shape=X.shape)
            stored = sp.csr_array((np.ones_like(X.data), X.indices, X.indptr), shape=X.shape)
            absent = 1.0 - np.asarray(stored.T @ weight)  # the weight of a column's zeros
            absent[absent < 1e-12] = 0.0
            variance = np.asarray(centred.multiply(centred).T @ weight) + absent * mean**2
        else:
            blocks = row_blocks(X, _BLOCK_ENTRIES)
            parts = [partial(_squares, X, mean, weight, rows) for rows in blocks]
            variance = np.sum(run_all(parts), axis=0)
    return total, mean, variance


def _squares(X: Array, mean: Array, weight: Array, rows: slice) -> Array:
    """Return the contribution of some rows to the variance."""
    with np.errstate(over="ignore", invalid="ignore"):  # the setting of each thread
        return np.asarray(weight[rows] @ (X[rows] - mean) ** 2)


def _as_deviations(mean: Array, variance: Array) -> Array:
    """Return standard deviations; infinite for features that are constant up to rounding."""
    if not np.isfinite(variance).all():
        feature = int(np.argmin(np.isfinite(variance)))
        raise InputError(
            f"Feature {feature} of X has values so large that their squares overflow. Rescale it."
        )
    deviation = np.sqrt(np.maximum(variance, 0.0))
    size = np.maximum(np.abs(mean), deviation)
    return np.where(deviation > 1e-12 * size, deviation, np.inf)
