"""Positions: where scores place the items of each query, with ties shared.

Every measure reads a ranking through a `Positions`, so that all treat ties alike: items that share
a score share, on average, the positions that they occupy, as if ties were broken at random.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pairity._utils.typing import Array
from pairity.data.columns import as_numbers
from pairity.data.queries import Queries
from pairity.exceptions import InputError
from pairity.pairs.cells import ratio as ratio

T = TypeVar("T")

DISCOUNTS: Mapping[str, Callable[[NDArray[np.int64]], Array]] = {
    "log2": lambda rank: 1.0 / np.log2(1.0 + rank),
    "trec": lambda rank: 1.0 / np.log2(np.maximum(rank, 2.0)),
}


@dataclass(frozen=True, eq=False)
class Positions:
    """The positions of all items: rows sorted by query, then by falling score.

    Attributes
    ----------
    order : int64 array of shape (n_items,)
        The caller's row at each position; positions run query by query.
    rank : int64 array of shape (n_items,)
        The rank of each position within its query, from 1.
    edges : int64 array of shape (n_blocks + 1,)
        Where tie blocks (items of one query that share a score) start and end.
    block : int64 array of shape (n_items,)
        The tie block of each position.

    Examples
    --------
    >>> from pairity.metrics import Positions
    >>> from pairity.data.queries import Queries
    >>> queries = Queries.from_arrays(None, [0, 0, 1, 1], qid=[1, 2, 1, 1])
    >>> places = Positions.of(queries, [0.5, 0.7, 0.9, 0.5])
    >>> places.order.tolist(), places.rank.tolist()
    ([2, 0, 3, 1], [1, 2, 3, 1])
    >>> places.share(places.rank).tolist()  # rows 0 and 3 tie for the ranks 2 and 3
    [2.5, 1.0, 1.0, 2.5]
    """

    order: NDArray[np.int64]
    rank: NDArray[np.int64]
    edges: NDArray[np.int64]
    block: NDArray[np.int64]

    @classmethod
    def of(cls, queries: Queries, scores: Scores) -> Positions:
        """Sort the items by their scores; positions are returned as they are."""
        if isinstance(scores, Positions):
            return scores
        numbers = as_numbers(scores, "scores", queries.n_items)
        order = np.lexsort((-numbers, queries.query))
        query, numbers = queries.query[order], numbers[order]
        opens = np.r_[True, query[1:] != query[:-1]]
        begins = opens | np.r_[True, numbers[1:] != numbers[:-1]]
        places = np.arange(len(order))
        first = places[opens][np.cumsum(opens) - 1]
        edges = np.r_[places[begins], len(order)]
        return cls(order, places - first + 1, edges, np.cumsum(begins) - 1)

    def share(self, values: ArrayLike) -> Array:
        """Values per position, averaged over tie blocks, as values per row."""
        totals = np.add.reduceat(np.asarray(values, dtype=np.float64), self.edges[:-1])
        return self._to_rows((totals / np.diff(self.edges))[self.block])

    def at_block_end(self, values: Array) -> Array:
        """Values per position at the end of each tie block, as values per row."""
        return self._to_rows(values[self.edges[1:] - 1][self.block])

    def counts(self, member: NDArray[np.bool_]) -> Array:
        """The expected number of members (a mask per row) down to each position."""
        total = np.r_[0, np.cumsum(member[self.order])]
        start, end = self.edges[:-1], self.edges[1:]
        before = total[start] - total[start - self.rank[start] + 1]
        inside, size = total[end] - total[start], end - start
        into = np.arange(len(self.order)) - start[self.block] + 1
        return np.asarray(before[self.block] + into * inside[self.block] / size[self.block])

    def top(self, k: int | None) -> NDArray[np.bool_]:
        """Whether each position is among the first k of its query; all are if k is None."""
        if k is None:
            return np.ones(len(self.rank), dtype=bool)
        if k < 1 or k % 1:
            raise InputError(f"k must be a whole number, 1 or greater (got {k!r}).")
        return self.rank <= k

    def discount(self, name: str) -> Array:
        """The attention that each position receives, by the name of a formula in `DISCOUNTS`."""
        return choose(DISCOUNTS, name, "discount")(self.rank)

    def _to_rows(self, values: Array) -> Array:
        rows = np.empty_like(values)
        rows[self.order] = values
        return rows


Scores = ArrayLike | Positions


def choose(table: Mapping[str, T], name: str, what: str) -> T:
    """The entry with this name, or an `InputError` that lists the names."""
    if name not in table:
        raise InputError(f"{what} is {name!r}. Choose one of {', '.join(map(repr, table))}.")
    return table[name]


def sums(cell: NDArray[np.integer], values: ArrayLike, n_cells: int) -> Array:
    """The sum of the values in each cell."""
    return np.asarray(np.bincount(cell, values, n_cells), dtype=np.float64)


def has_negative(queries: Queries) -> NDArray[np.bool_]:
    """Whether each query has a negative label, which is neither a gain nor a merit."""
    return sums(queries.query, queries.y < 0, queries.n_queries) > 0
