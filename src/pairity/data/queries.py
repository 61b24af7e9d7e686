"""Queries: the lists to be ranked, as flat arrays, validated once at the door.

Rows stay in the caller's order throughout. The order in which kernels walk them (query by query,
labels falling) is a `pairity.data.layout.Layout`, computed once from labels, query ids and groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from pairity._utils.allreduce import sum_over_peers
from pairity._utils.typing import Array
from pairity._utils.validation import show
from pairity.data.columns import Column, as_features, as_raw_features, take_rows
from pairity.data.groups import encode_groups, name_groups
from pairity.data.layout import Layout, lay_out
from pairity.data.parquet_features import ParquetFeatures
from pairity.data.query_columns import encode_queries, read_labels, read_query_weights, read_weights
from pairity.exceptions import InputError

_KEYS = ("X", "y", "qid", "sensitive_features", "sample_weight", "query_weight")

T = TypeVar("T")


@dataclass(frozen=True, eq=False, repr=False)
class Queries(Mapping[str, Any]):
    """All queries of a data set: features, labels, query ids and protected groups.

    Make one with `Queries.from_arrays`. It is a mapping of the arrays that `fit` takes, so that
    ``model.fit(**queries)`` works, and ``Queries.from_arrays(**queries)`` equals it.

    Attributes
    ----------
    X : float64 array or CSR array of shape (n_items, n_features), or None
        With ``raw=True``, the caller's own table.
    y : float64 array of shape (n_items,)
    query : int64 array of shape (n_items,), the query each row belongs to, 0..n_queries-1
    query_ids : array of shape (n_queries,), the caller's ids, sorted
    group : int32 array of shape (n_items,), 0..n_groups-1, or n_groups where it is missing
    groups : tuple of str, the names of the groups
    item_weight : float64 array of shape (n_items,), or None
        A pair weighs the product of its items' weights, as if the items were repeated.
    query_weight : float64 array of shape (n_queries,), or None
        Multiplies every pair of the query, as if the query were repeated.
    feature_names : tuple of str, or None

    Notes
    -----
    The arrays cannot be written to, except X, which is the caller's own where it was float64
    already. Two objects are equal when they hold the same items, labels, queries, groups and
    weights; the names of the features are a caption and are not compared.

    Examples
    --------
    >>> from pairity import Queries
    >>> queries = Queries.from_arrays(
    ...     [[0.1], [0.9], [0.4], [0.3]], [1, 0, 1, 0],
    ...     qid=["b", "b", "a", "a"], sensitive_features=["f", "m", "m", None],
    ... )
    >>> queries
    Queries(n_queries=2, n_items=4, n_features=1, groups=('f', 'm'), n_missing=1)
    """

    X: Any
    y: Array
    query: NDArray[np.int64]
    query_ids: Column
    group: NDArray[np.int32]
    groups: tuple[str, ...]
    item_weight: Array | None = None
    query_weight: Array | None = None
    feature_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for array in (self.y, self.query, self.query_ids, self.group):
            array.flags.writeable = False
        for weight in (self.item_weight, self.query_weight):
            if weight is not None:
                weight.flags.writeable = False

    @classmethod
    def from_arrays(
        cls,
        X: Any,
        y: Any,
        *,
        qid: Any,
        sensitive_features: Any = None,
        sample_weight: Any = None,
        query_weight: Any = None,
        raw: bool = False,
    ) -> Queries:
        """Check and encode a table; the rows may come in any order.

        Parameters
        ----------
        X : table or matrix of shape (n_items, n_features), or None
            NumPy, SciPy sparse, pandas, polars or pyarrow; None where only scores are looked at.
        y : column of shape (n_items,)
            Labels, binary, graded or real; a higher one is preferred.
        qid : column of shape (n_items,)
            Query ids: numbers, strings, or anything hashable; equal ids are one query.
        sensitive_features : column or table of shape (n_items,) or (n_items, n_attributes)
            Groups, as strings, whole numbers, booleans or categories; several columns stand for
            their intersection; None, NaN and null mark an item whose group is not known. Left
            out, no item has a group.
        sample_weight : column of shape (n_items,), optional
            Item weights, not negative. A pair weighs the product of its two items' weights.
        query_weight : column of shape (n_items,) or mapping from query id to weight, optional
            Query weights, not negative. A column has the same value in all rows of a query.
        raw : bool
            Whether X is left as it is (missing values, categories, text), for rankers whose
            engine reads tables itself.
        """
        read = as_raw_features if raw else as_features
        features, names = (None, None) if X is None else read(X)
        labels = read_labels(y, None if features is None else int(features.shape[0]))
        n_items = len(labels)
        query, query_ids = encode_queries(qid, n_items)
        if sensitive_features is None:
            group = np.zeros(n_items, dtype=np.int32)
            groups: tuple[str, ...] = ()
        else:
            group, groups = encode_groups(sensitive_features, n_items)
        item_weight = None
        if sample_weight is not None:
            item_weight = read_weights(sample_weight, "sample_weight", n_items)
        by_query = None
        if query_weight is not None:
            by_query = read_query_weights(query_weight, query, query_ids)
        return cls(features, labels, query, query_ids, group, groups, item_weight, by_query, names)

    # --- sizes -----------------------------------------------------------------------------

    @property
    def n_items(self) -> int:
        """Number of rows."""
        return len(self.y)

    @property
    def n_queries(self) -> int:
        """Number of lists."""
        return len(self.query_ids)

    @property
    def n_groups(self) -> int:
        """Number of groups, K; a missing group is not counted."""
        return len(self.groups)

    @cached_property
    def n_missing(self) -> int:
        """Number of items whose group is missing."""
        return int(np.count_nonzero(self.group == self.n_groups))

    @cached_property
    def n_codes(self) -> int:
        """Number of codes in `group`: K, and one more where some group is missing."""
        return self.n_groups + (1 if self.n_missing else 0)

    # --- derived ---------------------------------------------------------------------------

    @cached_property
    def layout(self) -> Layout:
        """How kernels walk the pairs."""
        return lay_out(self.y, self.query, self.group, self.item_weight, self.n_queries)

    @cached_property
    def weight_of_query(self) -> Array:
        """Query weights, 1 where none were given."""
        return np.ones(self.n_queries) if self.query_weight is None else self.query_weight.copy()

    def pad(self, table: ArrayLike, *, fill: float = 1.0) -> Array:
        """A K × K table with a further row and column where some group is missing.

        A table that has them already is handed back.
        """
        table = np.asarray(table, dtype=np.float64)
        if table.shape == (self.n_codes, self.n_codes):
            return np.require(table, np.float64, ["C", "W"])
        padded = np.full((self.n_codes, self.n_codes), fill)
        padded[: self.n_groups, : self.n_groups] = table
        return padded

    def total(self, function: Callable[..., ArrayLike], *columns: Any) -> Array:
        """What a function of queries and columns returns, added up over all parts of the data.

        Here there is one part, the queries themselves, unless peers train with others
        (`pairity._utils.allreduce`).
        """
        return sum_over_peers(function(self, *columns))

    def each(self, function: Callable[..., T], *columns: Any) -> T:
        """What a function of queries and columns returns for the parts of the data: here, one."""
        return function(self, *columns)

    def cached(self, name: str, settings: Any, make: Callable[[], T]) -> T:
        """What `make` made of these queries, made once and kept as long as they live.

        Engines keep their binned data here, so that every round uses the same. One thing is kept
        for each name, and made anew where the settings differ.
        """
        kept = self.__dict__.setdefault("_kept", {})
        if not self.has_cached(name, settings):
            kept.pop(name, None)
            kept[name] = (settings, make())
        made: T = kept[name][1]
        return made

    def has_cached(self, name: str, settings: Any) -> bool:
        """Whether `cached` would find what it is asked for."""
        kept = self.__dict__.get("_kept", {})
        return name in kept and kept[name][0] == settings

    def forget(self, name: str) -> None:
        """Drop what `cached` keeps under a name."""
        self.__dict__.get("_kept", {}).pop(name, None)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_kept"}

    # --- subsets ---------------------------------------------------------------------------

    def take(self, queries: ArrayLike) -> Queries:
        """The chosen queries, whole, with the same groups; rows keep their order.

        Parameters
        ----------
        queries : whole numbers from 0 to n_queries - 1, each once, or a mask of n_queries booleans
        """
        chosen = self._chosen(queries)
        renumber = np.cumsum(chosen) - 1
        part = self._rows(np.flatnonzero(chosen[self.query]))
        weight = None if self.query_weight is None else self.query_weight[chosen]
        return replace(
            part,
            query=renumber[part.query],
            query_ids=self.query_ids[chosen],
            query_weight=weight,
        )

    def thinned(self, every: int) -> Queries:
        """Every so many queries, from the first on."""
        if every == 1:
            return self
        chosen = np.arange(0, self.n_queries, every)
        if isinstance(self.X, ParquetFeatures):  # gathered from all over the files: once
            return self.cached("thinned", every, lambda: self.take(chosen).in_memory())
        return self.take(chosen)

    def in_memory(self) -> Queries:
        """The same queries with features in memory."""
        return replace(self, X=self.X.load()) if isinstance(self.X, ParquetFeatures) else self

    def by_query(self) -> tuple[Queries, NDArray[np.int64]]:
        """The same queries with the rows of each together, and the caller's row of each.

        Features in files are not moved: their queries are numbered in the order they come in.
        """
        as_given = np.arange(self.n_items)
        if (self.query[1:] >= self.query[:-1]).all():
            return self, as_given
        if isinstance(self.X, ParquetFeatures):
            return self.cached("as they come", None, self._as_they_come), as_given
        rows = np.argsort(self.query, kind="stable")
        return self._rows(rows), rows

    def _as_they_come(self) -> Queries:
        begins = np.r_[0, np.flatnonzero(np.diff(self.query)) + 1]
        if len(begins) > self.n_queries:
            raise InputError(
                f"The rows of {self.n_queries} queries stand in {len(begins)} places of a table "
                "that is read from files. Sort it by query before it is written."
            )
        number = np.empty(self.n_queries, dtype=np.int64)
        number[self.query[begins]] = np.arange(self.n_queries)
        ids = self.query[begins]
        return replace(
            self,
            query=number[self.query],
            query_ids=self.query_ids[ids],
            query_weight=None if self.query_weight is None else self.query_weight[ids],
        )

    def between(self, first: int, last: int) -> Queries:
        """Some queries without features, where all are numbered in the order of their rows.

        What is known of all is shared, not worked out again.
        """
        layout = self.layout
        rows = slice(int(layout.bounds[first]), int(layout.bounds[last]))
        part = Queries(
            None,
            self.y[rows],
            self.query[rows] - first,
            self.query_ids[first:last],
            self.group[rows],
            self.groups,
            None if self.item_weight is None else self.item_weight[rows],
            None if self.query_weight is None else self.query_weight[first:last],
        )
        part.__dict__["n_codes"] = self.n_codes
        part.__dict__["layout"] = replace(
            layout,
            order=layout.order[rows] - rows.start,
            bounds=layout.bounds[first : last + 1] - rows.start,
            **{name: getattr(layout, name)[rows]
               for name in ("start", "level", "code", "by_group", "weight")},
        )  # fmt: skip
        return part

    def _rows(self, rows: NDArray[np.int64]) -> Queries:
        return replace(
            self,
            X=None if self.X is None else take_rows(self.X, rows),
            y=self.y[rows],
            query=self.query[rows],
            group=self.group[rows],
            item_weight=None if self.item_weight is None else self.item_weight[rows],
        )

    def _chosen(self, queries: ArrayLike) -> NDArray[np.bool_]:
        try:
            at = np.asarray(queries)
            chosen = np.zeros(self.n_queries, dtype=bool)
            if at.size:
                chosen[at] = True
        except (IndexError, TypeError, ValueError) as error:
            raise InputError(
                f"The choice {show(queries)} is not among the {self.n_queries} queries. Give whole "
                f"numbers from 0 to {self.n_queries - 1}, or a mask of {self.n_queries} booleans."
            ) from error
        if not chosen.any():
            raise InputError(
                f"None of the {self.n_queries} queries is chosen. Choose at least one."
            )
        if at.dtype.kind != "b" and at.size != np.count_nonzero(chosen):
            raise InputError(
                f"The choice has {at.size} entries but only {np.count_nonzero(chosen)} different "
                "queries. Choose each once; to repeat a query, give it a query_weight."
            )
        return chosen

    def split(self, fraction: float, random_state: Any = None) -> tuple[Queries, Queries]:
        """Cut at random, by query, into a larger part and a share of about `fraction`."""
        held = draw_queries(self.n_queries, fraction, random_state)
        return self.take(~held), self.take(held)

    def with_groups_of(self, other: Queries | tuple[str, ...]) -> Queries:
        """The same queries with group codes as `other` numbers them, matched by name."""
        groups = other if isinstance(other, tuple) else other.groups
        code = {name: at for at, name in enumerate(groups)}
        held = set(self.group.tolist())
        for at, name in enumerate(self.groups):
            if at in held and name not in code:
                raise InputError(
                    f"The group {name!r} was not among the training groups "
                    f"({', '.join(map(repr, groups))}). Use the same groups in both."
                )
        recode = np.array(
            [*(code.get(name, -1) for name in self.groups), len(groups)], dtype=np.int32
        )
        return replace(self, group=recode[self.group], groups=groups)

    # --- the mapping that fit(**queries) unpacks ----------------------------------------------

    def __getitem__(self, key: str) -> Any:
        if key in ("X", "y"):
            return getattr(self, key)
        if key == "qid":
            return self.query_ids[self.query]
        if key == "sensitive_features":
            return name_groups(self.group, self.groups)
        if key == "sample_weight" and self.item_weight is not None:
            return self.item_weight
        if key == "query_weight" and self.query_weight is not None:
            return self.query_weight[self.query]
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        given = {"sample_weight": self.item_weight, "query_weight": self.query_weight}
        return (key for key in _KEYS if key not in given or given[key] is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Queries):
            return NotImplemented
        return (
            self.groups == other.groups
            and all(
                _same(mine, theirs)
                for mine, theirs in (
                    (self.y, other.y),
                    (self.query, other.query),
                    (self.group, other.group),
                    (self.item_weight, other.item_weight),
                    (self.query_weight, other.query_weight),
                    (self.X, other.X),
                )
            )
            and self.query_ids.tolist() == other.query_ids.tolist()
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        n_features = 0 if self.X is None else self.X.shape[1]
        return (
            f"Queries(n_queries={self.n_queries}, n_items={self.n_items}, "
            f"n_features={n_features}, groups={self.groups}, n_missing={self.n_missing})"
        )


def draw_queries(
    n_queries: int, fraction: float, random_state: Any, *, turn: int = 0
) -> NDArray[np.bool_]:
    """Which of so many queries, in the order of their ids, are in a share drawn at random.

    Shares of one draw at other turns follow on each other, so that every query is in one of them.
    """
    from sklearn.utils import check_random_state

    size = share_size(n_queries, fraction)
    try:
        shuffled = check_random_state(random_state).permutation(n_queries)
    except ValueError as error:
        raise InputError(
            f"random_state is {show(random_state)}. Give a whole number from 0 up, a "
            "numpy.random.RandomState, or None."
        ) from error
    drawn = np.zeros(n_queries, dtype=bool)
    drawn[shuffled[(turn * size + np.arange(size)) % n_queries]] = True
    return drawn


def share_size(n_queries: int, fraction: float) -> int:
    """How many queries a share is, some being left on either side."""
    _require_share(fraction)
    size = round(n_queries * fraction)
    if size == 0 or size == n_queries:
        raise InputError(
            f"Holding out {fraction:g} of {n_queries} queries leaves {size} and "
            f"{n_queries - size}. Give more queries, or another share."
        )
    return size


def require_preferences(queries: Queries) -> None:
    """Refuse queries whose labels prefer nothing, or only what weighs nothing."""
    if not queries.total(_n_preferring):
        raise InputError(
            f"No query has two different labels: none of the {queries.n_queries} queries in "
            f"{_rows(queries)} makes a preference pair of positive weight, so there is nothing to "
            "rank by. Check y, qid and the weights."
        )


def _n_preferring(queries: Queries) -> int:
    """The number of queries with a preference pair that weighs something."""
    labels, weight = queries.y, queries.weight_of_query[queries.query]
    if queries.item_weight is not None:
        weight = weight * queries.item_weight
    rows = np.flatnonzero(weight > 0)
    lowest, highest = np.full(queries.n_queries, np.inf), np.full(queries.n_queries, -np.inf)
    np.minimum.at(lowest, queries.query[rows], labels[rows])
    np.maximum.at(highest, queries.query[rows], labels[rows])
    return int(np.count_nonzero(lowest < highest))


def require_groups(queries: Queries) -> None:
    """Refuse queries with fewer than two groups."""
    if queries.n_groups < 2:
        held = f"only the group {queries.groups[0]!r}" if queries.groups else "no group at all"
        raise InputError(
            f"sensitive_features has {held} in {_rows(queries)}; a comparison needs at least two "
            "groups. Check the column."
        )


def _rows(queries: Queries) -> str:
    return "1 row (1 sample)" if queries.n_items == 1 else f"{queries.n_items} rows"


def _same(mine: Any, theirs: Any) -> bool:
    if isinstance(mine, sp.csr_array) and isinstance(theirs, sp.csr_array):
        return mine.shape == theirs.shape and not (mine - theirs).count_nonzero()
    if isinstance(mine, np.ndarray) and isinstance(theirs, np.ndarray):
        return np.array_equal(mine, theirs)
    return mine is theirs  # None and None


def _require_share(fraction: Any) -> None:
    if not isinstance(fraction, Real) or not 0.0 < float(fraction) < 1.0:
        raise InputError(f"The share to hold out is {show(fraction)}; it must lie between 0 and 1.")


def n_pairs(queries: Queries) -> int:
    """How many preference pairs there are, whatever they weigh."""
    layout = queries.layout
    lengths = np.diff(layout.bounds)
    return int((lengths[queries.query[layout.order]] - layout.start).sum())
