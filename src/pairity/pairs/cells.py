"""Sums, counts and means of pairs by cell (k, l): the groups of the preferred and other item."""

from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from pairity._utils.threads import run_blocks
from pairity._utils.typing import Array
from pairity.data.layout import Layout
from pairity.data.queries import Queries
from pairity.pairs.kernels import counting
from pairity.pairs.logistic import as_kernel_input, run_logistic

PairKind = Literal["preference", "all"]
Average = Literal["query", "pair"]


def cell_sums(
    queries: Queries, scores: Array, *, pairs: PairKind = "preference", soft: bool = False
) -> Array:
    """Per query and cell, the sum of the predicted pair label over the pairs of the cell.

    Parameters
    ----------
    queries : Queries
        A pair counts with the product of its items' weights; query weights are not applied.
    scores : float64 array of shape (n_items,)
    pairs : {"preference", "all"}
        Pairs whose first item has the higher label, or all ordered pairs of two items.
    soft : bool
        Whether the predicted label is σ(s_i - s_j) rather than 1[s_i > s_j], a tie one half.

    Returns
    -------
    array of shape (n_queries, n_codes, n_codes); the last code is the missing group, if any

    Notes
    -----
    Hard sums of long lists take O(n log n) per query, without a loop over pairs.
    """
    layout, k = queries.layout, queries.n_codes
    if not soft:
        sums = np.empty((queries.n_queries, k, k))
        run_blocks(
            counting.hard_sums, layout.bounds, layout, as_kernel_input(scores), counting.SHORT,
            pairs == "all", sums,
        )  # fmt: skip
        return sums
    if pairs == "all":
        layout = each_pair_once(queries)  # then its mirror
    misses = run_logistic(queries, scores, np.ones((k, k)), False, layout)[2]
    if pairs == "preference":
        return cell_counts(queries) - misses
    return _count_cells(layout, k, False) - misses + misses.transpose(0, 2, 1)


def each_pair_once(queries: Queries) -> Layout:
    """The layout with every unordered pair once, in the order of the items, whatever the labels."""
    layout = queries.layout
    first = layout.bounds[queries.query[layout.order]]
    return layout._replace(start=(np.arange(queries.n_items) - first + 1).astype(np.int32))


def cell_counts(queries: Queries, *, pairs: PairKind = "preference") -> Array:
    """Per query and cell, the number of pairs (their total weight, if items have weights).

    The result is cached in the queries and is read-only.
    """

    def count() -> Array:
        return _count_cells(queries.layout, queries.n_codes, pairs == "all")

    return queries.cached(f"{pairs} pairs", None, count)


def _count_cells(layout: Layout, n_codes: int, all_pairs: bool) -> Array:
    counts = np.empty((len(layout.bounds) - 1, n_codes, n_codes))
    run_blocks(counting.pair_counts, layout.bounds, layout, all_pairs, counts)
    counts.flags.writeable = False
    return counts


def mean_over_queries(sums: Array, counts: Array, weight: Array, average: Average) -> Array:
    """Means over the queries, from sums and counts per query of shape (n_queries, ...).

    Parameters
    ----------
    weight : array of shape (n_queries,), or (n_resamples, n_queries)
        Query weights; each row gives its own means.
    average : {"query", "pair"}
        Whether every query or every pair counts the same.

    Returns
    -------
    array of the shape of one query's entry (after n_resamples, if any), NaN where no query has a
    pair

    Notes
    -----
    With "query", a query without a pair is left out of that entry's mean.
    """
    flat_sums, flat_counts = (table.reshape(len(table), -1) for table in (sums, counts))
    means = mean_of_totals(totals_over_queries(flat_sums, flat_counts, weight, average))
    return means.reshape(*weight.shape[:-1], *sums.shape[1:])


def totals_over_queries(sums: Array, counts: Array, weight: Array, average: Average) -> Array:
    """The numerators and denominators of means over queries; those of parts of the data add up.

    Parameters are those of `mean_over_queries`, with all entries in one axis.

    Returns
    -------
    array of shape (..., 2, n_entries): numerators and denominators
    """
    numerators, denominators = terms_of_queries(sums, counts, average)
    return np.stack([weight @ numerators, weight @ denominators], axis=-2)


def terms_of_queries(sums: Array, counts: Array, average: Average) -> tuple[Array, Array]:
    """What each query adds to the numerators and denominators of means, before its weight."""
    if average == "pair":
        return sums, counts
    return ratio(sums, counts, otherwise=0.0), (counts > 0).astype(np.float64)


def mean_shares(counts: Array, weight: Array, average: Average) -> Array:
    """The coefficient of each query's sum in the mean over queries, of the shape of `counts`.

    The means of many sums over the same pairs are then ``(shares * sums).sum(axis=0)``.
    """
    present = (counts > 0).astype(np.float64)
    total = weight @ (np.maximum(counts, 0.0) if average == "pair" else present)
    divisor = total * (counts if average == "query" else present)
    return ratio(weight[:, None], divisor, otherwise=0.0)


def mean_of_totals(totals: Array) -> Array:
    """Numerators divided by denominators, NaN where no query has a pair."""
    return ratio(totals[..., 0, :], totals[..., 1, :])


def ratio(numerator: Array, denominator: Array, *, otherwise: float = np.nan) -> Array:
    """The quotient where the denominator is positive, `otherwise` elsewhere."""
    result = np.full(np.broadcast_shapes(numerator.shape, denominator.shape), otherwise)
    np.divide(numerator, denominator, out=result, where=denominator > 0)
    return result


def cell_means(
    queries: Queries,
    scores: Array,
    *,
    average: Average = "query",
    pairs: PairKind = "preference",
    soft: bool = False,
) -> Array:
    r"""The share of pairs whose first item is ranked above the other, in each cell (k, l).

    .. math:: A_{kl} = \mathrm{mean}\{\hat l_{ij} : y_i > y_j,\ g_i = k,\ g_j = l\}

    Returns
    -------
    array of shape (n_groups, n_groups), NaN for a cell without a pair

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
    """Per query, the share of correctly ordered preference pairs; NaN without a pair.

    All items count, with or without a group. For binary labels this is the area under the ROC
    curve; a tie counts one half.
    """
    return ratio(*_sums_and_counts(queries, scores))


def mean_auc(queries: Queries, scores: Array) -> float:
    """`query_auc`, averaged over the queries that have a preference pair, by query weight."""
    return float(mean_of_totals(queries.total(_auc_totals, scores))[0])


def _auc_totals(queries: Queries, scores: Array) -> Array:
    sums, counts = _sums_and_counts(queries, scores)
    return totals_over_queries(sums[:, None], counts[:, None], queries.weight_of_query, "query")


def _sums_and_counts(queries: Queries, scores: Array) -> tuple[Array, Array]:
    """Per query, the sum of the predicted labels of all preference pairs, and their number."""
    return cell_sums(queries, scores).sum(axis=(1, 2)), cell_counts(queries).sum(axis=(1, 2))


def pairs_by_cell(queries: Queries) -> Array:
    """The weight in training of the preference pairs of known groups in each cell."""
    known = slice(queries.n_groups)
    counts = cell_counts(queries)[:, known, known]
    return np.asarray(np.tensordot(queries.training_weight, counts, axes=1))


def total_weight(queries: Queries, table: ArrayLike) -> float:
    """The total weight in training of all preference pairs under a weight table."""
    return float(queries.total(partial(_weight_under, table)))


def _weight_under(table: ArrayLike, queries: Queries) -> Array:
    by_cell = np.tensordot(queries.training_weight, cell_counts(queries), axes=1)
    return np.asarray((by_cell * queries.pad(table)).sum())
