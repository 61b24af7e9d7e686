"""Lists at given scores: the hinges and the order of their preference pairs, of any weights."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from pairity._utils.threads import run_blocks
from pairity._utils.typing import Array
from pairity.data.queries import Queries
from pairity.pairs.cells import cell_sums
from pairity.pairs.kernels import merging as merge_kernels
from pairity.pairs.losses import two_hinges


class HingedLists(Protocol):
    """What the game asks of lists."""

    def look(self, scores: Array) -> None:
        """Take the scores that all else is about."""

    def sums(self) -> Array:
        """`pairity.pairs.cell_sums` of the preference pairs."""

    def gradient(self, queries: Queries, table: Array, mirrored: Array) -> Array:
        """That of `pairity.pairs.losses.two_hinges`; both tables have a row for each code.

        The queries may differ from the lists in weights alone: those of queries, and those of items
        by a factor for each query, label and group.
        """


def hinged_lists(queries: Queries) -> HingedLists:
    """Lists that are merged, where no query has more than two labels; else compared."""
    return ComparedLists(queries) if queries.layout.level.max() > 1 else MergedLists(queries)


class ComparedLists:
    """Lists with any labels, by the kernels that compare their pairs."""

    def __init__(self, queries: Queries) -> None:
        self._queries, self._scores = queries, np.zeros(queries.n_items)

    def look(self, scores: Array) -> None:
        self._scores = scores

    def sums(self) -> Array:
        return cell_sums(self._queries, self._scores)

    def gradient(self, queries: Queries, table: Array, mirrored: Array) -> Array:
        return two_hinges(queries, self._scores, table, mirrored)[1]


class MergedLists:
    """Lists with two labels, sorted and merged once for all weights."""

    def __init__(self, queries: Queries) -> None:
        self._queries, layout = queries, queries.layout
        first = layout.bounds[queries.query[layout.order]]
        place = np.arange(queries.n_items) - first
        self._rising = place.astype(np.uint32)
        lower = place >= layout.start[first]
        self._cell = (queries.query[layout.order] * 2 + lower) * queries.n_codes + layout.code
        self._near, self._far = np.zeros((2, queries.n_items), dtype=np.uint32)
        self._weights = np.zeros((queries.n_codes, queries.n_items + 2 * queries.n_queries))
        self._sums = np.zeros((queries.n_queries, queries.n_codes, queries.n_codes))
        self._shares: list[tuple[Queries, Array]] = []

    def look(self, scores: Array) -> None:
        layout = self._queries.layout
        run_blocks(
            merge_kernels.merge, layout.bounds, scores, layout.order, layout.bounds, layout.start,
            layout.code, layout.weight, layout.longest, 1.0, self._rising, self._near, self._far,
            self._weights, self._sums,
        )  # fmt: skip

    def sums(self) -> Array:
        return self._sums

    def gradient(self, queries: Queries, table: Array, mirrored: Array) -> Array:
        layout, gradient = self._queries.layout, np.zeros(queries.n_items)
        run_blocks(
            merge_kernels.reaching, layout.bounds, layout.order, layout.bounds, layout.start,
            layout.code, layout.weight, layout.longest, self._rising, self._near, self._far,
            self._weights, table, mirrored, self._share(queries), queries.weight_of_query,
            gradient,
        )  # fmt: skip
        return gradient

    def _share(self, queries: Queries) -> Array:
        """Their item weights by ours, for each query, side and group."""
        for known, share in self._shares:
            if known is queries:
                return share
        shape = (queries.n_queries, 2, queries.n_codes)
        theirs, own = (
            np.bincount(self._cell, each.layout.weight, np.prod(shape)).reshape(shape)
            for each in (queries, self._queries)
        )
        share = np.divide(theirs, own, out=np.zeros(shape), where=own > 0)
        self._shares.append((queries, share))
        return share
