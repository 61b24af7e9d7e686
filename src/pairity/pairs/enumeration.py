"""Preference pairs as explicit rows, in blocks, for tools that require a list of pairs."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pairity._utils.typing import Array
from pairity.data.queries import Queries
from pairity.exceptions import InputError
from pairity.pairs.cells import total_weight

NO_WEIGHT = "The pair weights add up to 0. Pass a table with at least one positive weight."


def iter_pairs(
    queries: Queries, *, block: int = 1_000_000
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield the preference pairs as rows (preferred, other), in blocks.

    A block ends after the first preferred item that brings it to `block` pairs or more.
    """
    layout = queries.layout
    query = queries.query[layout.order]
    begin = layout.bounds[query] + layout.start
    lengths = layout.bounds[query + 1] - begin
    first = 0
    while first < queries.n_items:
        passed = np.cumsum(lengths[first:])
        last = first + int(np.searchsorted(passed, block)) + 1
        count = lengths[first:last]
        preferred = np.repeat(np.arange(first, first + len(count)), count)
        offset = np.arange(len(preferred)) - np.repeat(np.cumsum(count) - count, count)
        other = np.repeat(begin[first:last], count) + offset
        if len(preferred):
            yield layout.order[preferred], layout.order[other]
        first = last


def n_weighted_pairs(queries: Queries, table: ArrayLike) -> int:
    """The number of pairs with a positive weight, in each order if there are two tables."""
    return round(total_weight(_positive_weights(queries), queries.pad(table) > 0))


def relative_weights(queries: Queries, table: ArrayLike) -> Array:
    """The padded weights divided by the mean total weight of the pairs that have any.

    A tool's penalties then do not depend on the scale of W.
    """
    padded = queries.pad(table)
    total = total_weight(queries, padded)
    if not total > 0.0:
        raise InputError(NO_WEIGHT)
    combined = padded if padded.ndim == 2 else padded.sum(axis=0)
    return np.asarray(padded * (n_weighted_pairs(queries, combined) / total))


def iter_weighted_pairs(
    queries: Queries, table: ArrayLike, *, block: int = 1_000_000
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], Array]]:
    """Yield the pairs of positive weight as rows (preferred, other) and weights.

    Weights are those of `relative_weights`. Pairs of weight 0 are left out. With two tables, the
    mirrored pairs of a block follow it, with the item of lower label as the preferred one.
    """
    relative, signs = relative_weights(queries, table), _positive_weights(queries)
    parts = (relative, queries.item_weight, queries.query_weight)
    all_positive = all(part is None or bool((part > 0).all()) for part in parts)
    everything: Any = slice(None)
    for preferred, other in iter_pairs(queries, block=block):
        rows = (preferred, other)
        for padded in relative if relative.ndim == 3 else relative[None]:
            weight, keep = _weigh(queries, padded, preferred, other), everything
            if not all_positive:
                keep = _weigh(signs, padded > 0, preferred, other) > 0
            if len(weight[keep]):
                yield rows[0][keep], rows[1][keep], weight[keep]
            rows = (other, preferred)  # of mirrored pairs


def _positive_weights(queries: Queries) -> Queries:
    """The queries with positive weights replaced by 1, which products cannot underflow to 0."""

    def make() -> Queries:
        items, by_query = (
            None if weight is None else (weight > 0).astype(np.float64)
            for weight in (queries.item_weight, queries.query_weight)
        )
        signs = replace(queries, X=None, item_weight=items, query_weight=by_query)
        return replace(signs, equal_queries=False)

    return queries.cached("positive weights", None, make)


def _weigh(
    queries: Queries, padded: ArrayLike, preferred: NDArray[np.int64], other: NDArray[np.int64]
) -> Array:
    """The weights of some pairs under a padded weight table."""
    weight = np.asarray(padded, dtype=np.float64)[queries.group[preferred], queries.group[other]]
    if queries.item_weight is not None:
        weight *= queries.item_weight[preferred] * queries.item_weight[other]
    if queries.query_weight is not None or queries.equal_queries:
        weight *= queries.training_weight[queries.query[preferred]]
    return weight
