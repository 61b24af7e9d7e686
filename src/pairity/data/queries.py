"""Queries: the lists to be ranked, as flat arrays that are validated once.

Rows stay in the caller's order. The order in which kernels walk them (query by query, labels
falling) is a `pairity.data.layout.Layout`, computed once from labels, query ids and groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from pairity._utils.allreduce import sum_over_peers
from pairity._utils.typing import Array
from pairity.data import query_columns
from pairity.data.cache import Cache
from pairity.data.columns import Column, as_numbers
from pairity.data.digest import digest
from pairity.data.features import as_features, as_raw_features, feature_types, take_rows
from pairity.data.groups import encode_groups, name_groups
from pairity.data.layout import Layout, lay_out
from pairity.data.parquet_features import ParquetFeatures
from pairity.data.splits import as_mask, draw_queries, is_among
from pairity.exceptions import InputError

_KEYS = ("X", "y", "qid", "sensitive_features", "sample_weight", "query_weight")

T = TypeVar("T")


@dataclass(frozen=True, eq=False, repr=False)
class Queries(Cache, Mapping[str, Any]):
    """All queries of a data set: features, labels, query ids and protected groups.

    Create one with `Queries.from_arrays` and pass it to ``model.fit(queries)``,
    ``model.path(queries)`` and ``audit(queries, scores)``. It is also a mapping of the columns
    that `fit` takes: ``Queries.from_arrays(**queries) == queries``. Queries on the workers of a
    Dask cluster (`pairity.data.distributed.queries.DaskQueries`) have the same methods.

    Attributes
    ----------
    X : float64 array or CSR array of shape (n_items, n_features), or None
        With ``raw=True``, the caller's own table.
    y : float64 array of shape (n_items,)
    query : int64 array of shape (n_items,), the query of each row, 0..n_queries-1
    query_ids : array of shape (n_queries,), the caller's ids, sorted
    group : int32 array of shape (n_items,), 0..n_groups-1, or n_groups where it is missing
    groups : tuple of str, the names of the groups
    item_weight : float64 array of shape (n_items,), or None
        The weight of a pair is the product of its items' weights, as if items were repeated.
    query_weight : float64 array of shape (n_queries,), or None
        Multiplies every pair of the query, as if the query were repeated.
    equal_queries : bool
        Whether the pairs of all queries have the same total weight in training. Measurements, and
        methods that train on single items, are not affected.
    feature_names : tuple of str, or None
    feature_types : str or list of str, or None
        The data types of the caller's columns; one text if all columns share one type.
    raw : bool
        Whether X was left as the caller passed it.

    Notes
    -----
    The arrays are read-only, except X, which is not copied if it is float64 already. Two objects
    are equal if they hold the same items, labels, queries, groups and weights; the names and types
    of features are not compared.

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
    feature_types: str | list[str] | None = None
    raw: bool = False
    equal_queries: bool = False

    distributed: ClassVar[bool] = False  # whether the rows are on several machines
    client: ClassVar[Any] = None  # of Dask, if they are

    def __post_init__(self) -> None:
        arrays = (self.y, self.query, self.query_ids, self.group)
        for array in (*arrays, self.item_weight, self.query_weight):
            if array is not None:
                array.flags.writeable = False

    @classmethod
    def from_arrays(
        cls,
        X: Any,
        y: Any,
        *,
        qid: Any = None,
        group: Any = None,
        sensitive_features: Any = None,
        sample_weight: Any = None,
        query_weight: Any = None,
        raw: bool = False,
    ) -> Queries:
        """Validate and encode a table; with `qid`, rows may be in any order.

        Parameters
        ----------
        X : table or matrix of shape (n_items, n_features), or None
            NumPy, SciPy sparse, pandas, polars or pyarrow; None if only scores are evaluated.
        y : column of shape (n_items,)
            Labels, binary, graded or real; a higher label is preferred.
        qid : column of shape (n_items,)
            Query ids: numbers, strings, or any hashable values; equal ids are one query.
        group : sequence of shape (n_queries,)
            The number of rows of each query, as in LightGBM, in place of `qid`: the rows of a query
            are contiguous, and queries are numbered from 0. If both are passed, they must agree.
        sensitive_features : column or table of shape (n_items,) or (n_items, n_attributes)
            Groups, as strings, whole numbers, booleans or categories; several columns define
            their intersection; None, NaN and null mark an item whose group is unknown. By
            default no item has a group.
        sample_weight : column of shape (n_items,), optional
            Item weights, 0 or greater. The weight of a pair is the product of its items' weights.
        query_weight : column of shape (n_items,), mapping from query id to weight, or "equal"
            Query weights, 0 or greater. A column has the same value in all rows of a query. With
            "equal", see `with_equal_queries`. By default all weights are 1.
        raw : bool
            Whether X is kept as it is (missing values, categories, text), for rankers whose
            engine reads tables itself.
        """
        read = as_raw_features if raw else as_features
        features, names = (None, None) if X is None else read(X)
        labels = query_columns.read_labels(y, None if features is None else int(features.shape[0]))
        n_items = len(labels)
        if group is not None:
            qid = query_columns.read_group_sizes(group, qid, n_items)
        query, query_ids = query_columns.encode_queries(qid, n_items)
        codes, groups = encode_groups(sensitive_features, n_items)
        equal = query_columns.asks_for_equal_queries(query_weight)
        by_query = None if equal else query_weight
        return cls(
            X=features,
            y=labels,
            query=query,
            query_ids=query_ids,
            group=codes,
            groups=groups,
            item_weight=query_columns.read_weights(sample_weight, "sample_weight", n_items),
            query_weight=query_columns.read_query_weights(by_query, query, query_ids),
            feature_names=names,
            feature_types=None if X is None else feature_types(X, features),
            raw=raw,
            equal_queries=equal,
        )

    # --- sizes -----------------------------------------------------------------------------

    @property
    def n_items(self) -> int:
        """Number of rows."""
        return len(self.y)

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return len(self.query_ids)

    @property
    def n_features(self) -> int:
        """Number of features; 0 without X."""
        return 0 if self.X is None else int(self.X.shape[1])

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
        """Number of codes in `group`: K, plus one if some group is missing."""
        return self.n_groups + (1 if self.n_missing else 0)

    @cached_property
    def n_pairs(self) -> int:
        """Number of preference pairs, whatever their weight."""
        return int(self.layout.pair_counts().sum())

    # --- derived ---------------------------------------------------------------------------

    @cached_property
    def layout(self) -> Layout:
        """The order in which kernels walk the pairs."""
        return lay_out(self)

    @cached_property
    def weight_of_query(self) -> Array:
        """Query weights, 1 by default."""
        return np.ones(self.n_queries) if self.query_weight is None else self.query_weight.copy()

    @cached_property
    def training_weight(self) -> Array:
        """The weight of each query's pairs in training; see `with_equal_queries`."""
        if not self.equal_queries:
            return self.weight_of_query
        total = self.layout.pair_weights()
        return np.asarray(self.weight_of_query / np.where(total > 0, total, 1.0))

    def digest(self) -> str:
        """The SHA-256 of the content, as 64 hexadecimal digits; see `pairity.data.digest`."""
        return digest(self)

    def pad(self, table: ArrayLike, *, fill: float = 1.0) -> Array:
        """A K × K table with one more row and column if some group is missing.

        A table that has them already is returned unchanged. Of two tables, the second contains
        the weights of mirrored pairs (`pairity.pairs.logistic`) and is filled with 0.
        """
        table = np.asarray(table, dtype=np.float64)
        if table.ndim == 3:
            return np.stack([self.pad(table[0], fill=fill), self.pad(table[1], fill=0.0)])
        if table.shape == (self.n_codes, self.n_codes):
            return np.require(table, np.float64, ["C", "W"])
        padded = np.full((self.n_codes, self.n_codes), fill)
        padded[: self.n_groups, : self.n_groups] = table
        return padded

    def total(self, function: Callable[..., ArrayLike], *columns: Any) -> Array:
        """The sum of ``function(queries, *columns)`` over all parts of the data.

        In memory there is one part, unless this process trains jointly with others
        (`pairity._utils.allreduce`).
        """
        return sum_over_peers(function(self, *columns))

    def each(self, function: Callable[..., T], *columns: Any) -> T:
        """``function(queries, *columns)`` for each part of the data; in memory there is one."""
        return function(self, *columns)

    # --- subsets and other versions --------------------------------------------------------

    def take(self, queries: ArrayLike) -> Queries:
        """The chosen queries, with all groups; rows keep their order.

        Parameters
        ----------
        queries : whole numbers from 0 to n_queries - 1, each once, or a mask of n_queries booleans
        """
        mask = as_mask(queries, self.n_queries)
        renumber = np.cumsum(mask) - 1
        part = self._rows(np.flatnonzero(mask[self.query]))
        return replace(
            part,
            query=renumber[part.query],
            query_ids=self.query_ids[mask],
            query_weight=take_rows(self.query_weight, mask),
        )

    def thinned(self, every: int) -> Queries:
        """Every `every`-th query, starting with the first."""
        if every == 1:
            return self
        chosen = np.arange(0, self.n_queries, every)
        if isinstance(self.X, ParquetFeatures):  # its rows are all over the files: read them once
            return self.cached("thinned", every, lambda: self.take(chosen).in_memory())
        return self.take(chosen)

    def split(self, fraction: float, random_state: Any = None) -> tuple[Queries, Queries]:
        """Split at random by query; the second part has about `fraction` of the queries."""
        drawn = draw_queries(self.n_queries, fraction, random_state)
        return self.take(~drawn), self.take(drawn)

    def training_record(self, source: Queries) -> tuple[Queries, NDArray[np.int64] | None]:
        """What a fitted model keeps of its training queries, which are some queries of `source`.

        Returns
        -------
        These queries without features, and their rows in `source` (None if these are all rows).
        Queries on workers have no record.
        """
        return replace(self, X=None), None if self is source else source.rows_of(self)

    def rows_of(self, part: Queries) -> NDArray[np.int64]:
        """The rows of some of these queries, in order."""
        return np.flatnonzero(is_among(self.query_ids, part.query_ids)[self.query])

    def in_memory(self) -> Queries:
        """The same queries with features in memory."""
        return replace(self, X=self.X.load()) if isinstance(self.X, ParquetFeatures) else self

    def validated(self) -> Queries:
        """The same queries with features that are finite numbers, for engines that need them."""
        if not self.raw or self.X is None:
            return self
        return replace(self, X=as_features(self.X)[0], raw=False)

    def with_scores(self, scores: Any) -> Queries:
        """The same queries with scores as their one feature."""
        column = as_numbers(scores, "scores", self.n_items)[:, None]
        return replace(self, X=column, feature_names=None, feature_types=None, raw=False)

    def with_equal_queries(self) -> Queries:
        """The same queries, whose pairs have the same total weight in every query in training.

        The weight of a pair is divided by that of all preference pairs of its query, so that long
        lists do not dominate. Constraints and metrics are measured as before.
        """
        if self.query_weight is not None:
            raise InputError(
                'The queries have weights already, which query_weight="equal" would replace. Leave '
                "out one of the two."
            )
        return replace(self, equal_queries=True)

    def with_features(
        self, X: Any, names: tuple[str, ...] | None = None, *, raw: bool = False
    ) -> Queries:
        """The same queries with these features; `names` are those of a matrix without names."""
        features, own_names = as_raw_features(X) if raw else as_features(X)
        n_rows = int(features.shape[0])
        if n_rows != self.n_items:
            raise InputError(
                f"X has {n_rows} rows, but the queries have {self.n_items} items. Pass one "
                "row per item."
            )
        return replace(
            self, X=features, feature_names=own_names or names,
            feature_types=feature_types(X, features), raw=raw,
        )  # fmt: skip

    def with_groups_of(self, other: Queries | tuple[str, ...]) -> Queries:
        """The same queries with the group codes of `other`, matched by name."""
        groups = other if isinstance(other, tuple) else other.groups
        code = {name: number for number, name in enumerate(groups)}
        recode = np.array([*(code.get(name, -1) for name in self.groups), len(groups)], np.int32)
        recoded = recode[self.group]
        if (recoded < 0).any():
            name = self.groups[int(self.group[recoded < 0].min())]
            raise InputError(
                f"The group {name!r} was not among the training groups "
                f"({', '.join(map(repr, groups))}). Use the same groups in both."
            )
        return replace(self, group=recoded, groups=groups)

    def by_query(self) -> tuple[Queries, NDArray[np.int64]]:
        """The same queries with contiguous rows, and the original row of each.

        Features in files are not moved: their queries are numbered in the order of their rows.
        """
        identity = np.arange(self.n_items)
        if (self.query[1:] >= self.query[:-1]).all():
            return self, identity
        if isinstance(self.X, ParquetFeatures):
            return self.cached("in row order", None, self._in_row_order), identity
        rows = np.argsort(self.query, kind="stable")
        return self._rows(rows), rows

    def _in_row_order(self) -> Queries:
        remedy = "Sort the table by query before it is written to files."
        starts = query_columns.query_runs(self.query, self.query_ids, remedy)
        order = self.query[starts]
        return replace(
            self,
            query=np.argsort(order)[self.query],
            query_ids=self.query_ids[order],
            query_weight=take_rows(self.query_weight, order),
        )

    def between(self, first: int, last: int) -> Queries:
        """Queries `first` to `last` without features, if all are numbered in row order.

        The layout is shared, not computed again.
        """
        rows = slice(*self.layout.bounds[[first, last]].tolist())
        part = replace(
            replace(self, X=None)._rows(rows),
            query=self.query[rows] - first,
            query_ids=self.query_ids[first:last],
            query_weight=take_rows(self.query_weight, slice(first, last)),
        )
        part.__dict__["training_weight"] = self.training_weight[first:last]
        part.__dict__["n_codes"] = self.n_codes
        part.__dict__["layout"] = self.layout.between(first, last)
        return part

    def _rows(self, rows: NDArray[np.int64] | slice) -> Queries:
        by_row = ("X", "y", "query", "group", "item_weight")
        return replace(self, **{name: take_rows(getattr(self, name), rows) for name in by_row})

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
        if key == "query_weight" and self.equal_queries:
            return "equal"
        if key == "query_weight" and self.query_weight is not None:
            return self.query_weight[self.query]
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        by_query = self.equal_queries or self.query_weight is not None
        present = {"sample_weight": self.item_weight is not None, "query_weight": by_query}
        return (key for key in _KEYS if present.get(key, True))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Queries):
            return NotImplemented
        names = ("y", "query", "group", "item_weight", "query_weight", "X")
        return (
            self.groups == other.groups
            and self.equal_queries == other.equal_queries
            and all(_same(getattr(self, name), getattr(other, name)) for name in names)
            and self.query_ids.tolist() == other.query_ids.tolist()
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"Queries(n_queries={self.n_queries}, n_items={self.n_items}, "
            f"n_features={self.n_features}, groups={self.groups}, n_missing={self.n_missing})"
        )


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, sp.csr_array) and isinstance(right, sp.csr_array):
        return left.shape == right.shape and not (left - right).count_nonzero()
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return np.array_equal(left, right)
    return left is right  # None and None
