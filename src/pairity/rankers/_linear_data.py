"""What a linear fit asks of its data: sums over rows and pairs, wherever the rows are.

`LinearRanker` knows its data by the protocol `LinearData` alone. What it asks for are K × K tables
in and vectors of one number per feature out, so that features may lie in memory (`InMemory`), on
disk (`Streamed`), or on other machines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from pairity._utils.threads import run_all
from pairity._utils.typing import Array
from pairity.data.features import Features, require_finite
from pairity.data.parquet_features import BLOCK_ENTRIES, ParquetFeatures
from pairity.data.queries import Queries
from pairity.exceptions import InputError
from pairity.pairs.cells import cell_counts, total_weight
from pairity.pairs.logistic import pairwise_hessian_product, pairwise_logistic, subtract_margin
from pairity.rankers._products import one_blas_thread, times, transposed_times

MOST_WHITENED = 1500  # features up to which a dense Cholesky factor pays
_BLOCK_ENTRIES = 100_000  # of a centred copy, made block by block: small enough for the cache
_SAMPLE_ENTRIES = 4_000_000  # of the dense part of X that curvature is estimated from, at most
_SAMPLE_ROWS = 100  # rows per feature that it is estimated from


class LinearData(Protocol):
    """Queries whose features are multiplied by coefficients, in the units of the features.

    Pairs are the preference pairs of the queries. A `table` is W of shape (n_groups, n_groups); a
    pair with an item of unknown group weighs `fill`. Sums are over pairs and are not divided. The
    loss is logistic, of pairs to be won by `margin` (`pairs.subtract_margin`).
    """

    margin: float

    @property
    def n_features(self) -> int:
        """Number of features."""
        ...

    def deviations(self) -> Array:
        """Standard deviation of every feature over the weighted rows; infinite where constant."""
        ...

    def total_weight(self, table: Array, *, fill: float = 1.0) -> float:
        """The weight of all pairs."""
        ...

    def loss_and_gradient(self, coef: Array, table: Array) -> tuple[float, Array]:
        """The loss, summed over pairs, and its gradient in `coef`."""
        ...

    def gradients(self, coef: Array, tables: Array, *, fill: float = 1.0) -> Array:
        """The gradients under several tables at the same `coef`, one row for each."""
        ...

    def hessian_product(self, coef: Array, table: Array, direction: Array) -> Array:
        """The Hessian of the loss at `coef`, times a direction in which `coef` moves."""
        ...

    def scores(self, coefs: Array) -> Array:
        """Scores of shape (n_coefs, n_items), for several coefficient vectors."""
        ...

    def sample(self, table: Array) -> Any:
        """Some of the queries with features in memory, here or elsewhere; they weigh something."""
        ...


def linear_data(queries: Any, margin: float = 0.0) -> LinearData:
    """What a linear fit asks, of these queries."""
    if not isinstance(queries, Queries):
        found: Spread = queries.cached("spread", margin, lambda: Spread(queries, margin))
        return found
    if queries.X is None:
        raise InputError("The queries have no features. Build them with X.")
    if isinstance(queries.X, ParquetFeatures):
        return queries.cached("streamed", margin, lambda: Streamed(queries, margin))
    return InMemory(queries, margin)


class InMemory:
    """`LinearData` of queries whose features are a dense or sparse matrix in memory."""

    def __init__(self, queries: Queries, margin: float = 0.0) -> None:
        self.queries = queries
        self.margin = margin
        self.X: Features = queries.X
        self._last: tuple[Array, Array] | None = None

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self.X.shape[1])

    def deviations(self) -> Array:
        """Standard deviations, found once for given queries."""
        return self.queries.cached("deviations", None, lambda: _standard_deviations(self.queries))

    def total_weight(self, table: Array, *, fill: float = 1.0) -> float:
        """The weight of all pairs."""
        return total_weight(self.queries, self.queries.pad(table, fill=fill))

    def loss_and_gradient(self, coef: Array, table: Array) -> tuple[float, Array]:
        """Loss and gradient."""
        at = pairwise_logistic(self.queries, self._at(coef), table)
        return at.loss, transposed_times(self.X, at.gradient)

    def gradients(self, coef: Array, tables: Array, *, fill: float = 1.0) -> Array:
        """Gradients under several tables."""
        scores, found = self._at(coef), np.empty((len(tables), self.n_features))
        for at, table in enumerate(tables):
            padded = self.queries.pad(table, fill=fill)
            pull = pairwise_logistic(self.queries, scores, padded, with_loss=False).gradient
            found[at] = transposed_times(self.X, pull)
        return found

    def hessian_product(self, coef: Array, table: Array, direction: Array) -> Array:
        """Hessian times a direction."""
        along = times(self.X, direction)
        moved = pairwise_hessian_product(self.queries, self._at(coef), table, along)
        return transposed_times(self.X, moved)

    def scores(self, coefs: Array) -> Array:
        """Scores for several coefficient vectors."""
        return np.array([times(self.X, coef) for coef in coefs])

    def sample(self, table: Array) -> Queries:
        """Some of the queries, or all where those weigh nothing."""
        step = sampling_step(self.queries.n_items, self.n_features)
        if step == 1:
            return self.queries
        part = self.queries.take(np.arange(0, self.queries.n_queries, step))
        return part if total_weight(part, table) > 0.0 else self.queries

    def _at(self, coef: Array) -> Array:
        """Scores, remembered: several sums are asked for at one place."""
        if self._last is None or not np.array_equal(self._last[0], coef):
            scores = subtract_margin(self.queries, times(self.X, coef), self.margin)
            self._last = coef.copy(), scores
        return self._last[1]


class Streamed:
    """`LinearData` of queries whose features lie in Parquet files.

    Every sum is one pass over the files, in blocks of whole queries: scores, pairs and products
    of a block are done with before the next. Deviations and the sample take one pass together.
    """

    def __init__(self, queries: Queries, margin: float = 0.0) -> None:
        self.queries = queries
        self.margin = margin
        self.X: ParquetFeatures = queries.X
        self.ordered = queries.by_query()[0]
        bounds = self.ordered.layout.bounds
        height = max(1, BLOCK_ENTRIES // self.n_features)
        marks = np.arange(height, queries.n_items, height)
        self._cuts = np.unique(np.r_[0, np.searchsorted(bounds, marks), len(bounds) - 1])
        self._prepared: tuple[Array, Queries] | None = None

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self.X.shape[1])

    def deviations(self) -> Array:
        """Standard deviations, found once."""
        return self._prepare()[0]

    def total_weight(self, table: Array, *, fill: float = 1.0) -> float:
        """The weight of all pairs."""
        return total_weight(self.queries, self.queries.pad(table, fill=fill))

    def loss_and_gradient(self, coef: Array, table: Array) -> tuple[float, Array]:
        """Loss and gradient."""
        loss, gradient = 0.0, np.zeros(self.n_features)
        for part, block in self._parts():
            at = pairwise_logistic(part, self._of_block(block, coef, part), table)
            loss += at.loss
            gradient += at.gradient @ block
        return loss, gradient

    def gradients(self, coef: Array, tables: Array, *, fill: float = 1.0) -> Array:
        """Gradients under several tables, in one pass."""
        found = np.zeros((len(tables), self.n_features))
        for part, block in self._parts():
            scores = self._of_block(block, coef, part)
            for at, table in enumerate(tables):
                padded = part.pad(table, fill=fill)
                pull = pairwise_logistic(part, scores, padded, with_loss=False).gradient
                found[at] += pull @ block
        return found

    def hessian_product(self, coef: Array, table: Array, direction: Array) -> Array:
        """Hessian times a direction."""
        product = np.zeros(self.n_features)
        for part, block in self._parts():
            scores = self._of_block(block, coef, part)
            along = pairwise_hessian_product(part, scores, table, block @ direction)
            product += along @ block
        return product

    def scores(self, coefs: Array) -> Array:
        """Scores for several coefficient vectors, in one pass."""
        scores = np.empty((len(coefs), self.queries.n_items))
        for rows, block in self.X.blocks():
            scores[:, rows] = coefs @ block.T
        return scores

    def sample(self, table: Array) -> Queries:
        """Some of the queries; others where those weigh nothing."""
        part = self._prepare()[1]
        if total_weight(part, table) > 0.0:
            return part
        weigh = (cell_counts(self.queries) * self.queries.pad(table)).sum(axis=(1, 2)) > 0.0
        which = np.flatnonzero(weigh & (self.queries.weight_of_query > 0.0))
        return self.queries.take(which[:: -(-len(which) // part.n_queries)]).in_memory()

    def _of_block(self, block: Array, coef: Array, part: Queries) -> Array:
        """A block's scores, less the margin."""
        return subtract_margin(part, block @ coef, self.margin)

    def _parts(self) -> Iterator[tuple[Queries, Array]]:
        """Blocks of whole queries and their features."""
        blocks = self.X.blocks(self.ordered.layout.bounds[self._cuts])
        spans = zip(self._cuts[:-1].tolist(), self._cuts[1:].tolist(), strict=True)
        for (first, last), (_, block) in zip(spans, blocks, strict=True):
            yield self.ordered.between(first, last), np.asarray(block, dtype=np.float64)

    def _prepare(self) -> tuple[Array, Queries]:
        """Deviations and the sample; what is missing or infinite is found here."""
        if self._prepared is None:
            queries = replace(self.queries, X=None)
            step = sampling_step(queries.n_items, self.n_features)
            chosen = np.zeros(queries.n_queries, dtype=bool)
            chosen[::step] = True
            of_row = chosen[queries.query]
            picked, moments = [], _Moments(self.n_features)
            weight = row_weights(queries)
            for rows, block in self.X.blocks():
                require_finite(block, self.X.names, rows.start)
                moments.add(np.asarray(block, dtype=np.float64), weight[rows])
                picked.append(np.array(block[of_row[rows]], dtype=np.float64, order="C"))
            deviations = as_deviations(moments.mean, moments.squares)
            self._prepared = deviations, replace(queries.take(chosen), X=np.concatenate(picked))
        return self._prepared


class Spread:
    """`LinearData` of queries that lie on the workers of a cluster.

    What travels: coefficients and tables to the workers, sums from them.
    """

    def __init__(self, queries: Any, margin: float = 0.0) -> None:
        self.queries = queries
        self.margin = margin
        self._sampled: Any = None
        self._deviations: Array | None = None

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self.queries.n_features)

    def deviations(self) -> Array:
        """Standard deviations, from the moments of the shares."""
        if self._deviations is None:
            whole = _Moments(self.n_features)
            for weight, mean, squares in self.queries.gather(_moments_of):
                whole.merge(weight, mean, squares)
            self._deviations = as_deviations(whole.mean, whole.squares / whole.weight)
        return self._deviations

    def total_weight(self, table: Array, *, fill: float = 1.0) -> float:
        """The weight of all pairs."""
        return float(self._sum("total_weight", table, fill=fill))

    def loss_and_gradient(self, coef: Array, table: Array) -> tuple[float, Array]:
        """Loss and gradient."""
        both = self._sum("loss_and_gradient", coef, table)
        return float(both[0]), both[1:]

    def gradients(self, coef: Array, tables: Array, *, fill: float = 1.0) -> Array:
        """Gradients under several tables."""
        return self._sum("gradients", coef, tables, fill=fill)

    def hessian_product(self, coef: Array, table: Array, direction: Array) -> Array:
        """Hessian times a direction."""
        return self._sum("hessian_product", coef, table, direction)

    def scores(self, coefs: Array) -> Any:
        """Scores, kept where the items are."""
        return self.queries.each(partial(_ask, "scores", self.margin, (coefs,), {}))

    def sample(self, table: Array) -> Any:
        """Some of the queries, where they are; all, where those weigh nothing."""
        if self._sampled is None:
            step = sampling_step(self.queries.n_items, self.n_features)
            self._sampled = self.queries.thinned(step)
        return self._sampled if total_weight(self._sampled, table) > 0.0 else self.queries

    def _sum(self, what: str, *arguments: Any, **options: Any) -> Array:
        found: Array = self.queries.total(partial(_ask, what, self.margin, arguments, options))
        return found


def _ask(what: str, margin: float, arguments: Any, options: Any, queries: Queries) -> Array:
    """One of the questions of `LinearData`, to the share of one worker."""
    data = queries.cached("linear", margin, lambda: InMemory(queries, margin))
    with one_blas_thread:
        answer = getattr(data, what)(*arguments, **options)
    return np.concatenate([[answer[0]], answer[1]]) if isinstance(answer, tuple) else answer


def _moments_of(queries: Queries) -> tuple[float, Array, Array]:
    """The weight of the rows, their mean, and their weighted squares around it."""
    whole = queries.weight_of_query[queries.query]
    if queries.item_weight is not None:
        whole = whole * queries.item_weight
    weight = float(whole.sum())
    if not weight > 0.0:
        return 0.0, np.zeros(queries.X.shape[1]), np.zeros(queries.X.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):
        mean, variance = _moments(queries.X, whole / weight)
    return weight, mean, weight * variance


class _Moments:
    """Weighted means and squared distances from them, block by block."""

    def __init__(self, n_features: int) -> None:
        self.weight, self.mean, self.squares = 0.0, np.zeros(n_features), np.zeros(n_features)

    def add(self, block: Array, weight: Array) -> None:
        """Take in some rows."""
        total = float(weight.sum())
        if total == 0.0:
            return
        with np.errstate(over="ignore", invalid="ignore"):
            mean = weight @ block / total
            self.merge(total, mean, weight @ (block - mean) ** 2)

    def merge(self, weight: float, mean: Array, squares: Array) -> None:
        """Take in the moments of some rows."""
        if weight == 0.0:
            return
        with np.errstate(over="ignore", invalid="ignore"):
            apart, whole = mean - self.mean, self.weight + weight
            self.squares += squares
            self.squares += apart**2 * (self.weight * weight / whole)
            self.mean += apart * (weight / whole)
        self.weight = whole


def sampling_step(n_items: int, n_features: int) -> int:
    """Of how many queries one is enough to estimate curvature from."""
    wanted = max(_SAMPLE_ROWS * min(n_features, MOST_WHITENED), 2000)
    if n_features <= MOST_WHITENED:
        wanted = min(wanted, _SAMPLE_ENTRIES // n_features)
    return -(-n_items // wanted)


def _standard_deviations(queries: Queries) -> Array:
    """Per feature, over the weighted rows; infinite where it is constant, which takes it out."""
    weight = row_weights(queries)
    with np.errstate(over="ignore", invalid="ignore"):
        mean, variance = _moments(queries.X, weight)
    return as_deviations(mean, variance)


def row_weights(queries: Queries) -> Array:
    """The weight of each row, of its query and its own; they add up to 1."""
    weight = queries.weight_of_query[queries.query]
    if queries.item_weight is not None:
        weight = weight * queries.item_weight
    return np.asarray(weight / weight.sum())


def as_deviations(mean: Array, variance: Array) -> Array:
    """Standard deviations from moments; infinite for what is constant but for rounding."""
    if not np.isfinite(variance).all():
        worst = int(np.argmin(np.isfinite(variance)))
        raise InputError(
            f"Feature {worst} of X has values so large that their squares overflow. Rescale it."
        )
    deviation = np.sqrt(np.maximum(variance, 0.0))
    size = np.maximum(np.abs(mean), deviation)
    return np.where(deviation > 1e-12 * size, deviation, np.inf)


def _moments(X: Features, weight: Array) -> tuple[Array, Array]:
    """Weighted mean and variance of every feature."""
    mean = transposed_times(X, weight)
    if sp.issparse(X):
        centred = sp.csr_array((X.data - mean[X.indices], X.indices, X.indptr), shape=X.shape)
        stored = sp.csr_array((np.ones_like(X.data), X.indices, X.indptr), shape=X.shape)
        absent = 1.0 - np.asarray(stored.T @ weight)  # the weight of a column's zeros
        absent[absent < 1e-12] = 0.0
        variance = np.asarray(centred.multiply(centred).T @ weight) + absent * mean**2
    else:
        height = max(1, _BLOCK_ENTRIES // X.shape[1])
        blocks = [slice(at, at + height) for at in range(0, X.shape[0], height)]
        parts = [partial(_squares, X, mean, weight, rows) for rows in blocks]
        variance = np.sum(run_all(parts), axis=0)
    return mean, variance


def _squares(X: Array, mean: Array, weight: Array, rows: slice) -> Array:
    """Some rows' share of the variance."""
    return np.asarray(weight[rows] @ (X[rows] - mean) ** 2)
