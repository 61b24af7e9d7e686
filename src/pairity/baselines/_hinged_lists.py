"""Query lists sorted by scores: the hinges and the order of their preference pairs."""

import numpy as np

from pairity._utils.threads import run_blocks
from pairity._utils.typing import Array
from pairity.data.queries import Queries
from pairity.metrics.positions import sums
from pairity.pairs.cells import cell_sums, ratio
from pairity.pairs.kernels import merging as merge_kernels
from pairity.pairs.losses import two_hinges


class ComparedLists:
    """Lists with any labels, for the kernels that compare all their pairs."""

    def __init__(self, queries: Queries) -> None:
        self._queries, self._scores = queries, np.zeros(queries.n_items)

    def sort(self, scores: Array) -> None:
        """Sort by these scores, which `sums` and `gradient` then use."""
        self._scores = scores

    def sums(self) -> Array:
        """Return `pairity.pairs.cells.cell_sums` of the preference pairs."""
        return cell_sums(self._queries, self._scores)

    def gradient(self, queries: Queries, table: Array, mirrored: Array) -> Array:
        """Return that of `pairity.pairs.losses.two_hinges`; both tables have a row for each code.

        The queries may differ from the lists only in their weights: those of queries, and those of
        items by a factor for each query, label and group.
        """
        return two_hinges(queries, self._scores, table, mirrored)[1]


class MergedLists:
    """Lists with two labels, which are sorted and merged once for all weights.

    The methods are those of `ComparedLists`.
    """

    def __init__(self, queries: Queries) -> None:
        self._queries, layout = queries, queries.layout
        first = layout.bounds[queries.query[layout.order]]
        position = np.arange(queries.n_items) - first
        self._rising = position.astype(np.uint32)
        lower = position >= layout.start[first]
        self._cell = (queries.query[layout.order] * 2 + lower) * queries.n_codes + layout.code
        self._near, self._far = np.zeros((2, queries.n_items), dtype=np.uint32)
        self._weights = np.zeros((queries.n_codes, queries.n_items + 2 * queries.n_queries))
        self._sums = np.zeros((queries.n_queries, queries.n_codes, queries.n_codes))
        self._shares: list[tuple[Queries, Array]] = []

    def sort(self, scores: Array) -> None:
        layout = self._queries.layout
        run_blocks(
            merge_kernels.merge, layout.bounds, layout, scores, 1.0, self._rising, self._near,
            self._far, self._weights, self._sums,
        )  # fmt: skip

    def sums(self) -> Array:
        return self._sums

    def gradient(self, queries: Queries, table: Array, mirrored: Array) -> Array:
        layout, gradient = self._queries.layout, np.zeros(queries.n_items)
        run_blocks(
            merge_kernels.reaching, layout.bounds, layout, self._rising, self._near, self._far,
            self._weights, table, mirrored, self._share(queries), queries.weight_of_query,
            gradient,
        )  # fmt: skip
        return gradient

    def _share(self, queries: Queries) -> Array:
        """Return the queries' item weights over the lists', by query, side and group."""
        for known, share in self._shares:
            if known is queries:
                return share
        shape = (queries.n_queries, 2, queries.n_codes)
        weighted, own = (
            sums(self._cell, lists.layout.weight, int(np.prod(shape))).reshape(shape)
            for lists in (queries, self._queries)
        )
        self._shares.append((queries, ratio(weighted, own, otherwise=0.0)))
        return self._shares[-1][1]


HingedLists = ComparedLists | MergedLists


def hinged_lists(queries: Queries) -> HingedLists:
    """Return lists that are merged if no query has more than two labels, else compared."""
    return ComparedLists(queries) if queries.layout.level.max() > 1 else MergedLists(queries)
