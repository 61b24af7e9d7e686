"""Layout: the order in which kernels walk the items of queries, and the pairs it implies."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairity._utils.typing import Array

if TYPE_CHECKING:
    from pairity.data.queries import Queries

_SORTED_AT_ONCE = 250_000  # rows, which bounds the memory that sorting needs beside the result


class Layout(NamedTuple):
    """The order in which kernels walk the items, and which pairs that order implies.

    Items are sorted by query, then by falling label, so that the items with lower labels than an
    item form one contiguous range, from its ``start`` to the end of its query.

    Attributes
    ----------
    order : int64 array of shape (n_items,)
        The row at each sorted position.
    bounds : int64 array of shape (n_queries + 1,)
        Sorted positions at which the queries start and end.
    start : int32 array of shape (n_items,)
        Within its query, the first sorted position whose label is lower than this item's.
    level : int32 array of shape (n_items,)
        The number of distinct lower labels in the query.
    code : int32 array of shape (n_items,)
        Group codes, a missing group last.
    by_group : int32 array of shape (n_items,)
        Within its query, the sorted positions listed by group and then by falling label.
    weight : float64 array of shape (n_items,)
        Item weights.
    uniform : bool
        Whether there are no item weights, so that all are 1.
    longest : int
        The number of items in the longest query.
    """

    order: NDArray[np.int64]
    bounds: NDArray[np.int64]
    start: NDArray[np.int32]
    level: NDArray[np.int32]
    code: NDArray[np.int32]
    by_group: NDArray[np.int32]
    weight: Array
    uniform: bool
    longest: int

    def pair_counts(self) -> NDArray[np.int64]:
        """The number of preference pairs of each query, whatever their weight."""
        lengths = np.diff(self.bounds)
        lower = np.repeat(lengths, lengths) - self.start  # per item
        passed: NDArray[np.int64] = np.r_[0, np.cumsum(lower)]
        return np.diff(passed[self.bounds])

    def pair_weights(self) -> Array:
        """The total weight of the preference pairs of each query."""
        if self.uniform:
            return self.pair_counts().astype(np.float64)
        lengths = np.diff(self.bounds)
        number = np.repeat(np.arange(len(lengths)), lengths)
        total, lower = np.zeros((2, len(lengths)))
        by_level = np.argsort(self.level, kind="stable")
        for rows in np.split(by_level, np.cumsum(np.bincount(self.level))[:-1]):
            first = np.flatnonzero(np.diff(number[rows], prepend=-1))
            queries, weight = number[rows[first]], np.add.reduceat(self.weight[rows], first)
            total[queries] += weight * lower[queries]
            lower[queries] += weight
        return total

    def between(self, first: int, last: int) -> Layout:
        """The layout of the queries `first` to `last`, if all are numbered in row order."""
        rows = slice(*self.bounds[[first, last]].tolist())
        by_row = ("start", "level", "code", "by_group", "weight")
        return self._replace(
            order=self.order[rows] - rows.start,
            bounds=self.bounds[first : last + 1] - rows.start,
            **{name: getattr(self, name)[rows] for name in by_row},
        )


def lay_out(queries: Queries) -> Layout:
    """The layout of the items of some queries."""
    y, query, group, item_weight = queries.y, queries.query, queries.group, queries.item_weight
    n_items = len(y)
    sizes = np.bincount(query, minlength=queries.n_queries)
    bounds = np.r_[0, np.cumsum(sizes)].astype(np.int64)
    order = np.arange(n_items)
    if not (query[1:] >= query[:-1]).all():
        order = np.argsort(query, kind="stable")
    start, level, code, by_group = np.empty((4, n_items), dtype=np.int32)
    marks = np.arange(0, n_items, _SORTED_AT_ONCE)[1:]
    cuts = np.unique(np.r_[0, bounds[np.searchsorted(bounds, marks)], n_items])
    for low, high in pairwise(cuts.tolist()):
        part = slice(low, high)
        rows = order[part]
        rows = rows[np.lexsort((group[rows], -y[rows], query[rows]))]
        number, labels = query[rows], y[rows]
        order[part], code[part] = rows, group[rows]
        begins = np.r_[True, (number[1:] != number[:-1]) | (labels[1:] != labels[:-1])]
        run = np.cumsum(begins) - 1  # of items with equal labels
        ends = np.r_[np.flatnonzero(begins)[1:], len(rows)]
        first = bounds[number] - low
        start[part] = ends[run] - first
        level[part] = run[bounds[number + 1] - 1 - low] - run
        by_group[part] = np.lexsort((code[part], number)) - first
    uniform, longest = item_weight is None, int(sizes.max(initial=0))
    weight = np.ones(n_items) if item_weight is None else item_weight[order]
    return Layout(order, bounds, start, level, code, by_group, weight, uniform, longest)
