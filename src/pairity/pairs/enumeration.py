"""Preference pairs as explicit rows, in blocks, for tools that require a list of pairs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pairity._utils.typing import Array
from pairity.data.queries import Queries
from pairity.exceptions import InputError
from pairity.pairs.cells import total_weight


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
