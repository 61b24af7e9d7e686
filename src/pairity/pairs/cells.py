"""What the kernels mean: losses and cell sums over the pairs that labels and queries imply.

Two directions, one definition of a cell (k, l): `pairwise_logistic` hands the weight table's
values from cells to pairs; `cell_sums` gathers from pairs to cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pairity._utils.threads import run_blocks
from pairity._utils.typing import Array
from pairity.data.queries import Queries
from pairity.exceptions import InputError
from pairity.pairs.kernels import counting
from pairity.pairs.kernels import logistic as kernels
from pairity.pairs.kernels import long_lists as chebyshev

PairKind = Literal["preference", "all"]
Average = Literal["query", "pair"]


@dataclass(frozen=True, eq=False)
class PairwiseLoss:
    """The weighted pairwise logistic loss at given scores, and its derivatives in them.

    Attributes
    ----------
    loss : float
        Summed over pairs; 0 where it was not asked for.
    gradient, hessian : float64 arrays of shape (n_items,)
        First derivative, and diagonal of the second, in the caller's row order.
    """

    loss: float
    gradient: Array
    hessian: Array


def pairwise_logistic(
    queries: Queries, scores: Array, table: ArrayLike, *, with_loss: bool = True
) -> PairwiseLoss:
    r"""Weighted pairwise logistic loss, gradient and diagonal Hessian, in one pass.

    .. math:: L = \sum_{(i,j):\, y_i > y_j} v_q\, u_i u_j\, W_{g_i g_j} \log(1 + e^{-(s_i - s_j)})

    Parameters
    ----------
    scores : float64 array of shape (n_items,)
        Finite, of any size.
    queries : Queries
        Its item weights are u, its query weights v.
    table : array of shape (n_groups, n_groups)
        W; pairs with an item of unknown group have weight 1.
    with_loss : bool
        Whether to compute the loss itself; boosting needs only the derivatives.
    """
    gradient, hessian, _, losses = _run_logistic(queries, scores, queries.pad(table), with_loss)
    return PairwiseLoss(float(losses.sum()), gradient, hessian)


def handicapped(queries: Queries, scores: Array, margin: float) -> Array:
    """Scores less a margin for each step of the label, by which pairs are to be won.

    The logistic loss of these is log(1 + exp(margin - d)) where d = s_i - s_j and the labels are
    a step apart: with a wide margin, a smooth hinge.
    """
    if margin == 0.0:
        return scores
    steps = queries.cached("label steps", None, lambda: _label_steps(queries))
    return np.asarray(scores - margin * steps)


def _label_steps(queries: Queries) -> Array:
    """How many labels of its query are below an item's own."""
    steps = np.empty(queries.n_items)
    steps[queries.layout.order] = queries.layout.level
    return steps


def pairwise_hessian_product(
    queries: Queries, scores: Array, table: ArrayLike, vector: Array
) -> Array:
    """The full Hessian of `pairwise_logistic` in the scores, times a vector over the items."""
    layout = queries.layout
    scores, vector, padded = _float64(scores), _float64(vector), queries.pad(table)
    out = np.empty(queries.n_items)
    run_blocks(
        kernels.hessian_product, layout.bounds, scores, layout.order, layout.bounds,
        layout.start, layout.code, layout.by_group, layout.weight, layout.longest,
        padded, queries.weight_of_query, vector, out,
    )  # fmt: skip

    def long_list(q: int, part: slice, rows: NDArray[np.int64]) -> None:
        product = np.empty(len(rows))
        chebyshev.hessian_product_long(
            scores[rows], layout.start[part], layout.code[part], padded, layout.weight[part],
            vector[rows], product,
        )  # fmt: skip
        out[rows] = queries.weight_of_query[q] * product

    _for_long_lists(queries, long_list)
    return out


def cell_sums(
    queries: Queries,
    scores: Array,
    *,
    pairs: PairKind = "preference",
    soft: bool = False,
) -> Array:
    """Per query and cell, the sum of the predicted pair label over the pairs of the cell.

    Parameters
    ----------
    scores : float64 array of shape (n_items,)
    queries : Queries
        A pair counts with the product of its items' weights; query weights are not applied.
    pairs : {"preference", "all"}
        Pairs whose first item has the higher label, or all ordered pairs of two items.
    soft : bool
        Whether the predicted label is σ(s_i - s_j) rather than 1[s_i > s_j], a tie one half.

    Returns
    -------
    array of shape (n_queries, n_codes, n_codes); the last code is the missing group, if any

    Notes
    -----
    Hard sums of long lists need no pair loop: O(n log n) per query.
    """
    layout = queries.layout
    if not soft:
        sums = np.empty((queries.n_queries, queries.n_codes, queries.n_codes))
        run_blocks(
            counting.hard_sums, layout.bounds, _float64(scores), layout.order, layout.bounds,
            layout.start, layout.level, layout.code, layout.by_group, layout.weight,
            layout.longest, counting.SHORT, pairs == "all", sums,
        )  # fmt: skip
        return sums
    ones = np.ones((queries.n_codes, queries.n_codes))
    if pairs == "preference":
        misses = _run_logistic(queries, scores, ones, False)[2]
        return cell_counts(queries) - misses
    # Every unordered pair once, in the order of the layout, then its mirror.
    first = layout.bounds[queries.query[layout.order]]
    each = (np.arange(queries.n_items) - first + 1).astype(np.int32)
    misses = _run_logistic(queries, scores, ones, False, start=each)[2]
    counts = np.empty_like(misses)
    run_blocks(
        counting.pair_counts, layout.bounds, layout.bounds, each, layout.code, layout.weight,
        False, counts,
    )  # fmt: skip
    return counts - misses + misses.transpose(0, 2, 1)


def cell_counts(queries: Queries, *, pairs: PairKind = "preference") -> Array:
    """Per query and cell, how many pairs there are (their weight, where items have weights).

    Counted once for given queries; not to be written to.
    """
    return queries.cached(f"{pairs} pairs", None, lambda: _count_cells(queries, pairs))


def _count_cells(queries: Queries, pairs: PairKind) -> Array:
    layout = queries.layout
    counts = np.empty((queries.n_queries, queries.n_codes, queries.n_codes))
    run_blocks(
        counting.pair_counts, layout.bounds, layout.bounds, layout.start, layout.code,
        layout.weight, pairs == "all", counts,
    )  # fmt: skip
    counts.flags.writeable = False
    return counts


def mean_over_queries(
    sums: Array,
    counts: Array,
    weight: Array,
    average: Average,
) -> Array:
    """Sums and counts per query, of shape (n_queries, ...), as means over the queries.

    Parameters
    ----------
    weight : array of shape (n_queries,), or (n_resamples, n_queries)
        Query weights; several rows give several means at once.
    average : {"query", "pair"}
        Whether every query counts the same, or every pair.

    Returns
    -------
    array of the shape of one query's entry (behind n_resamples, where given), NaN where no query
    has a pair

    Notes
    -----
    With "query", a query without a pair is left out of that entry's mean.
    """
    shape = sums.shape[1:]
    top, counted = sums.reshape(len(sums), -1), counts.reshape(len(counts), -1)
    means = mean_of_totals(totals_over_queries(top, counted, weight, average))
    return means.reshape(*weight.shape[:-1], *shape)


def totals_over_queries(
    sums: Array,
    counts: Array,
    weight: Array,
    average: Average,
) -> Array:
    """What the means over queries are quotients of: those of parts of the data add up.

    Parameters are those of `mean_over_queries`, with entries in one axis.

    Returns
    -------
    array of shape (..., 2, n_entries): numerators and denominators
    """
    if average == "query":
        there = counts > 0
        sums = np.divide(sums, counts, out=np.zeros_like(sums), where=there)
        counts = there.astype(np.float64)
    return np.stack([weight @ sums, weight @ counts], axis=-2)


def mean_shares(counts: Array, weight: Array, average: Average) -> Array:
    """What one pair's label adds to the mean over queries, of the shape of `counts`.

    The means of many sums over the same pairs are then ``(shares * sums).sum(axis=0)``.
    """
    there = counts > 0
    bottom = weight @ np.where(there, counts if average == "pair" else 1.0, 0.0)
    each = bottom * (counts if average == "query" else np.ones_like(counts))
    shares = np.zeros_like(counts)
    np.divide(weight[:, None], each, out=shares, where=there & (each > 0))
    return shares


def mean_of_totals(totals: Array) -> Array:
    """Numerators over denominators, NaN where no query has a pair."""
    top, bottom = totals[..., 0, :], totals[..., 1, :]
    means = np.full(top.shape, np.nan)
    np.divide(top, bottom, out=means, where=bottom > 0)
    return means


def cell_means(
    queries: Queries,
    scores: Array,
    *,
    average: Average = "query",
    pairs: PairKind = "preference",
    soft: bool = False,
) -> Array:
    r"""How often the first item is ranked above the other, in each cell (k, l).

    .. math:: A_{kl} = \mathrm{mean}\{\hat l_{ij} : y_i > y_j,\ g_i = k,\ g_j = l\}

    Returns
    -------
    array of shape (n_groups, n_groups), NaN where no pair lies

    Notes
    -----
    With ``average="query"`` a query without a pair in a cell is left out of that cell's mean.
    Items without a group are left out. A tie in the scores counts one half.

    Examples
    --------
    Two preferred items (one of each group) above a third of group m:

    >>> import numpy as np
    >>> from pairity import Queries
    >>> from pairity.pairs.cells import cell_means
    >>> queries = Queries.from_arrays(
    ...     None, [1, 1, 0], qid=[0, 0, 0], sensitive_features=["f", "m", "m"]
    ... )
    >>> cell_means(queries, np.array([0.2, 0.9, 0.5]))
    array([[nan,  0.],
           [nan,  1.]])
    """
    known = slice(queries.n_groups)
    sums = cell_sums(queries, scores, pairs=pairs, soft=soft)[:, known, known]
    counts = cell_counts(queries, pairs=pairs)[:, known, known]
    return mean_over_queries(sums, counts, queries.weight_of_query, average)


def query_auc(queries: Queries, scores: Array) -> Array:
    """Per query, the share of preference pairs put in the right order; NaN without a pair.

    All items count, with or without a group. For binary labels this is the area under the ROC
    curve; a tie counts one half.
    """
    sums = cell_sums(queries, scores).sum(axis=(1, 2))
    counts = cell_counts(queries).sum(axis=(1, 2))
    values = np.full(len(sums), np.nan)
    np.divide(sums, counts, out=values, where=counts > 0)
    return values


def mean_auc(queries: Queries, scores: Array) -> float:
    """`query_auc`, averaged over the queries that have a preference pair, by query weight."""
    return float(mean_of_totals(queries.total(_auc_totals, scores))[0])


def _auc_totals(queries: Queries, scores: Array) -> Array:
    sums, counts = cell_sums(queries, scores), cell_counts(queries)
    top, bottom = (table.sum(axis=(1, 2))[:, None] for table in (sums, counts))
    return totals_over_queries(top, bottom, queries.weight_of_query, "query")


def total_weight(queries: Queries, table: ArrayLike) -> float:
    """The weight of all preference pairs together, under a weight table."""
    return float(queries.total(partial(_weight_under, table)))


def _weight_under(table: ArrayLike, queries: Queries) -> Array:
    by_cell = np.tensordot(queries.weight_of_query, cell_counts(queries), axes=1)
    return np.asarray((by_cell * queries.pad(table)).sum())


def iter_pairs(
    queries: Queries, *, block: int = 1_000_000
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """The preference pairs as rows (preferred, other), in blocks, for tools that want a list.

    A block ends behind the first preferred item that brings it to `block` pairs or more.
    """
    layout = queries.layout
    query = queries.query[layout.order]
    begin = layout.bounds[query] + layout.start
    lengths = layout.bounds[query + 1] - begin
    at = 0
    while at < queries.n_items:
        passed = np.cumsum(lengths[at:])
        end = at + int(np.searchsorted(passed, block)) + 1
        count = lengths[at:end]
        preferred = np.repeat(np.arange(at, at + len(count)), count)
        offset = np.arange(len(preferred)) - np.repeat(np.cumsum(count) - count, count)
        other = np.repeat(begin[at:end], count) + offset
        if len(preferred):
            yield layout.order[preferred], layout.order[other]
        at = end


def n_weighted_pairs(queries: Queries, table: ArrayLike) -> int:
    """How many preference pairs weigh more than nothing, under a weight table."""
    return round(total_weight(_which_weigh(queries), queries.pad(table) > 0))


def iter_weighted_pairs(
    queries: Queries, table: ArrayLike, *, block: int = 1_000_000
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], Array]]:
    """The preference pairs that weigh something, as rows (preferred, other) and weight, in blocks.

    Weights are relative to their mean, so that a tool's own penalties do not depend on how W is
    scaled; pairs that weigh nothing are left out, and are not in the mean.
    """
    total = total_weight(queries, table)
    if not total > 0.0:
        raise InputError("The pair weights add up to nothing. Give a table with some weight.")
    relative = queries.pad(table) * (n_weighted_pairs(queries, table) / total)
    indicator, all_weigh = _which_weigh(queries), bool((relative > 0).all())
    for part in (queries.item_weight, queries.query_weight):
        all_weigh = all_weigh and (part is None or bool((part > 0).all()))
    for preferred, other in iter_pairs(queries, block=block):
        weight = _weigh(queries, relative, preferred, other)
        if all_weigh:
            yield preferred, other, weight
            continue
        keep = _weigh(indicator, relative > 0, preferred, other) > 0
        if keep.any():
            yield preferred[keep], other[keep], weight[keep]


def _which_weigh(queries: Queries) -> Queries:
    """The queries with weights 1 where something weighs, and 0 where it does not."""
    items, by_query = (
        None if weight is None else (weight > 0).astype(np.float64)
        for weight in (queries.item_weight, queries.query_weight)
    )
    return replace(queries, X=None, item_weight=items, query_weight=by_query)


def _weigh(
    queries: Queries, padded: ArrayLike, preferred: NDArray[np.int64], other: NDArray[np.int64]
) -> Array:
    """What some pairs weigh, under a padded weight table."""
    weight = np.asarray(padded, dtype=np.float64)[queries.group[preferred], queries.group[other]]
    if queries.item_weight is not None:
        weight *= queries.item_weight[preferred] * queries.item_weight[other]
    if queries.query_weight is not None:
        weight *= queries.query_weight[queries.query[preferred]]
    return weight


def _run_logistic(
    queries: Queries,
    scores: Array,
    padded: Array,
    with_loss: bool,
    *,
    start: NDArray[np.int32] | None = None,
) -> tuple[Array, Array, Array, Array]:
    layout = queries.layout
    scores = _float64(scores)
    start = layout.start if start is None else start
    gradient, hessian = np.empty(queries.n_items), np.empty(queries.n_items)
    cells = np.empty((queries.n_queries, queries.n_codes, queries.n_codes))
    losses = np.empty(queries.n_queries)
    run_blocks(
        kernels.logistic, layout.bounds, scores, layout.order, layout.bounds, start,
        layout.code, layout.by_group, layout.weight, layout.uniform, layout.longest, padded,
        queries.weight_of_query, with_loss, gradient, hessian, cells, losses,
    )  # fmt: skip

    def long_list(q: int, part: slice, rows: NDArray[np.int64]) -> None:
        first, second = np.empty(len(rows)), np.empty(len(rows))
        loss = chebyshev.logistic_long(
            scores[rows], start[part], layout.code[part], padded, layout.weight[part], with_loss,
            first, second, cells[q],
        )  # fmt: skip
        weight = queries.weight_of_query[q]
        losses[q], gradient[rows], hessian[rows] = weight * loss, weight * first, weight * second

    _for_long_lists(queries, long_list)
    return gradient, hessian, cells, losses


def _for_long_lists(
    queries: Queries, function: Callable[[int, slice, NDArray[np.int64]], None]
) -> None:
    """Call a function for each list that the kernels pass over: query, sorted range, rows.

    `pairity.pairs.kernels.long_lists` takes a while to compile, so it is called, and compiled,
    only here.
    """
    bounds = queries.layout.bounds
    for q in np.flatnonzero(np.diff(bounds) > kernels.LONGEST):
        part = slice(bounds[q], bounds[q + 1])
        function(int(q), part, queries.layout.order[part])


def _float64(values: Array) -> Array:
    return np.require(values, np.float64, ["C", "W"])  # read-only would compile the kernels anew
