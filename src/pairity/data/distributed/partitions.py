"""Partitions of Dask collections, read as queries; the rows of a query must be on one partition.

Boosters silently lose the pairs of a query that is cut, so such queries are refused.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pairity._utils.validation import show
from pairity.data.columns import Attribute, as_columns, object_array
from pairity.data.groups import encode_attributes
from pairity.data.queries import Queries
from pairity.data.query_columns import encode_queries
from pairity.data.sources import errors_about
from pairity.exceptions import InputError

_FEATURES = ("n_features", "feature_names")
_SHARED = ("n_items", "n_queries", "n_pairs", "n_missing", *_FEATURES)  # of Queries and Summary
_MOST_DISTINCT = 10_000  # combinations of sensitive features per partition; groups are far fewer
_MOST_COUNTED = 100_000  # cut queries whose lost pairs are counted: more would fill the client


def repartition_by_query(frame: Any, qid: str, *, npartitions: int | None = None) -> Any:
    """A Dask DataFrame with all rows of a query on one partition; rows are shuffled by query.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
    qid : str, the column of query ids
    npartitions : int, optional
        By default the number of partitions stays the same.

    Notes
    -----
    All columns are sent between the workers, once. Data that were written query by query, into
    one Parquet file per partition, do not need this.
    """
    if not hasattr(frame, "shuffle") or not hasattr(frame, "npartitions"):
        raise InputError(
            f"{type(frame).__name__} is not a Dask DataFrame. Pass one that has features, labels "
            "and groups beside the query ids, so that rows stay complete."
        )
    if qid not in frame.columns:
        names = ", ".join(map(show, list(frame.columns)[:8]))
        raise InputError(f"There is no column {show(qid)}. There are {names}.")
    return frame.shuffle(on=qid, npartitions=npartitions or frame.npartitions)


# --- pieces --------------------------------------------------------------------------------------


def as_pieces(columns: dict[str, Any]) -> list[dict[str, Any]]:
    """Dask collections as one mapping of delayed pieces per partition.

    Parameters
    ----------
    columns : mapping from argument to Dask DataFrame, Series or array, or None
    """
    pieces: dict[str, list[Any]] = {}
    for name, column in columns.items():
        if column is None:
            continue
        if not hasattr(column, "to_delayed"):
            raise InputError(
                f"{name} is {type(column).__name__}, but other columns are Dask collections. Pass "
                "all of them as Dask collections with the same partitions."
            )
        if len(getattr(column, "numblocks", ())) == 2:
            column = column.rechunk({1: -1})
        delayed = column.to_delayed(optimize_graph=False)  # so that columns share what they read
        pieces[name] = np.ravel(np.asarray(delayed, dtype=object)).tolist()
    counts = {name: len(parts) for name, parts in pieces.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise InputError(
            f"The collections have different numbers of partitions: {listed}. Take all columns "
            "from one Dask DataFrame, or rechunk the arrays alike."
        )
    return [dict(zip(pieces, parts, strict=True)) for parts in zip(*pieces.values(), strict=True)]


@dataclass(frozen=True, eq=False)
class Piece:
    """One partition, read.

    Attributes
    ----------
    queries : Queries, with the groups of the partition; None if the partition is empty
    distinct : list of Attribute, which has each combination of sensitive features once
    """

    queries: Queries | None
    distinct: list[Attribute]


def read_piece(number: int, raw: bool, columns: dict[str, Any]) -> Piece:
    """Read a partition; errors name it."""
    with errors_about(f"partition {number}"):
        columns = dict(columns)
        if not len(columns["y"]):
            return Piece(None, [])
        scores = columns.pop("scores", None)
        queries = Queries.from_arrays(**{"X": None, **columns}, raw=raw)
        if scores is not None:
            queries = queries.with_scores(scores)
        groups = columns.get("sensitive_features")
        return Piece(queries, [] if groups is None else _distinct(groups))


def _distinct(sensitive_features: Any) -> list[Attribute]:
    """The combinations of sensitive features that occur, by column."""
    columns = as_columns(sensitive_features, "sensitive_features")
    rows = dict.fromkeys(zip(*(column.tolist() for _, column, _ in columns), strict=True))
    if len(rows) > _MOST_DISTINCT:
        raise InputError(
            f"sensitive_features has {len(rows)} combinations, too many for groups. Pass fewer "
            "columns, or fewer values."
        )
    by_column = zip(columns, zip(*rows, strict=True), strict=True)
    return [column._replace(column=object_array(list(values))) for column, values in by_column]


def mapped(function: Callable[[Queries], Queries], piece: Piece) -> Piece:
    """The same partition after a function of its queries, if it has any."""
    return replace(piece, queries=None if piece.queries is None else function(piece.queries))


@dataclass(frozen=True)
class Summary:
    """What the client knows of a partition: a few numbers, whatever its size."""

    n_items: int
    n_queries: int
    n_pairs: int
    n_missing: int
    n_features: int
    feature_names: tuple[str, ...] | None
    categories: dict[str, str]  # a digest for each feature that has categories
    first: Any
    last: Any


def summarize(piece: Piece) -> Summary | None:
    """The summary of a partition; None if it is empty."""
    queries = piece.queries
    if queries is None:
        return None
    first, last = queries.query_ids[[0, -1]].tolist()
    shared = {name: getattr(queries, name) for name in _SHARED}
    return Summary(**shared, categories=_category_digests(queries.X), first=first, last=last)


def _category_digests(X: Any) -> dict[str, str]:
    """A digest of the categories of each column that has some: codes depend on them."""
    return {
        str(name): hashlib.sha256(repr([*map(str, dtype.categories)]).encode()).hexdigest()
        for name, dtype in (X.dtypes.items() if hasattr(X, "dtypes") else ())
        if hasattr(dtype, "categories")
    }


def piece_digest(piece: Piece) -> str:
    """The digest of a partition's content; an empty text if it has no rows."""
    return "" if piece.queries is None else piece.queries.digest()


# --- all partitions ------------------------------------------------------------------------------


def require_alike(summaries: Sequence[Summary | None]) -> None:
    """Refuse partitions whose features, or their categories, differ."""
    present = [(number, summary) for number, summary in enumerate(summaries) if summary is not None]
    if not present:
        raise InputError("All partitions are empty. Pass at least one query.")
    (first, expected), rest = present[0], present[1:]
    for number, summary in rest:
        if any(getattr(expected, name) != getattr(summary, name) for name in _FEATURES):
            raise InputError(
                f"Partition {number} has other features than partition {first} "
                f"({summary.n_features} and {expected.n_features}). Pass the same columns in the "
                "same order in all partitions."
            )
        if expected.categories != summary.categories:
            differing = dict(expected.categories.items() ^ summary.categories.items())
            raise InputError(
                f"The categories of the feature {min(differing)!r} differ between partitions "
                f"{first} and {number}, so that equal codes mean different categories. Unify them: "
                "ddf = ddf.categorize()."
            )


def common_groups(pieces: Sequence[list[Attribute]]) -> tuple[str, ...]:
    """The names of all groups, in the order that one table of all rows would have."""
    present = [columns for columns in pieces if columns]
    if not present:
        return ()
    table = []
    for first, *others in zip(*present, strict=True):
        values = np.concatenate([first.column, *(other.column for other in others)])
        same = all(other.categories == first.categories for other in others)
        table.append(Attribute(first.name, values, first.categories if same else None))
    return encode_attributes(table, len(table[0].column))[1]


# --- queries that are cut ------------------------------------------------------------------------


def may_be_cut(summaries: Sequence[Summary]) -> bool:
    """Whether ranges of query ids overlap, so that a query may be on two partitions."""
    try:
        ordered = sorted(summaries, key=lambda summary: (summary.first, summary.last))
        return any(left.last >= right.first for left, right in pairwise(ordered))
    except TypeError:  # ids of several types
        return True


def id_hashes(piece: Piece) -> NDArray[np.uint64]:
    """Eight bytes for each query id, the same on all machines."""
    ids = [] if piece.queries is None else piece.queries.query_ids.tolist()
    return np.fromiter(map(_hash, ids), np.uint64, len(ids))


def _hash(value: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = f"{type(value).__name__} {value}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def repeated(hashes: Sequence[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    """The hashes that more than one partition has."""
    distinct, counts = np.unique(np.concatenate(hashes), return_counts=True)
    return np.asarray(distinct[counts > 1])


def labels_of_cut(cut: NDArray[np.uint64], piece: Piece) -> dict[int, tuple[Any, list[float]]]:
    """The id and the labels that this partition has of each query that is cut, by hash."""
    queries = piece.queries
    if queries is None:
        return {}
    hashes = id_hashes(piece)
    return {
        int(hashes[query]): (queries.query_ids[query], queries.y[queries.query == query].tolist())
        for query in np.flatnonzero(np.isin(hashes, cut[:_MOST_COUNTED]))
    }


def refuse_cut(
    n_cut: int, summaries: Sequence[Summary], parts: Sequence[dict[int, tuple[Any, list[float]]]]
) -> None:
    """Refuse queries that are cut, with the number of pairs that would be lost."""
    n_queries = sum(summary.n_queries for summary in summaries) - n_cut
    n_pairs = sum(summary.n_pairs for summary in summaries)
    labels: dict[int, list[float]] = {}
    for part in parts:
        for key, (_, own) in part.items():
            labels.setdefault(key, []).extend(own)
    n_kept = sum(_pairs_of(own) for part in parts for _, own in part.values())
    n_lost = sum(map(_pairs_of, labels.values())) - n_kept
    key = next(iter(labels))
    where = [number for number, part in enumerate(parts) if key in part]
    raise InputError(
        f"{n_cut} of {n_queries} queries lie on more than one partition, the first is "
        f"{show(parts[where[0]][key][0])} on partitions {', '.join(map(str, where[:4]))}. The "
        f"labels imply {n_pairs + n_lost:,} preference pairs, the partitions hold {n_pairs:,}: "
        f"{n_lost:,} would be lost silently. Bring the rows of each query to one partition: sort "
        "files by query before they are written, or use "
        "ddf = pairity.data.distributed.repartition_by_query(ddf, qid)."
    )


def _pairs_of(labels: list[float]) -> int:
    counts = np.unique(np.asarray(labels), return_counts=True)[1].astype(np.int64)
    return (len(labels) ** 2 - int((counts**2).sum())) // 2


# --- parts of a worker ---------------------------------------------------------------------------


def ids_of(queries: Queries) -> Any:
    """The ids of queries; whole numbers as int64, which take a tenth of the memory of objects."""
    ids = np.asarray(queries.query_ids.tolist())
    return ids if ids.dtype.kind == "i" and ids.ndim == 1 else queries.query_ids


def chosen_ids(drawn: NDArray[np.uint8], ids: Sequence[Any]) -> list[NDArray[np.bool_]]:
    """A mask for each part of the data; `drawn` has one bit per query, in the order of ids."""
    ranks, _ = encode_queries(np.concatenate(ids), sum(map(len, ids)))
    mask = np.unpackbits(drawn, count=len(ranks)).astype(bool)[ranks]
    return np.split(mask, np.cumsum([len(part) for part in ids])[:-1])


def part_of(groups: tuple[str, ...], mask: NDArray[np.bool_], pieces: Sequence[Piece]) -> Piece:
    """Some queries of some partitions."""
    return Piece(join(groups, pieces).take(mask), [])


def join(groups: tuple[str, ...], pieces: Sequence[Piece]) -> Queries:
    """Several partitions as one."""
    parts = [p.queries.with_groups_of(groups) for p in pieces if p.queries is not None]
    if len(parts) == 1:
        return parts[0]
    first = np.cumsum([0, *(part.n_queries for part in parts)])
    stacked = ("X", "y", "group", "item_weight", "query_weight")
    return replace(
        parts[0],
        query=np.concatenate([part.query + n for part, n in zip(parts, first, strict=False)]),
        query_ids=object_array([name for part in parts for name in part.query_ids.tolist()]),
        **{name: _stack([getattr(part, name) for part in parts]) for name in stacked},
    )


def _stack(parts: list[Any]) -> Any:
    if parts[0] is None:
        return None
    if hasattr(parts[0], "columns"):
        import pandas as pd

        return pd.concat(parts, ignore_index=True)
    if sp.issparse(parts[0]):
        return sp.csr_array(sp.vstack(parts, format="csr"))
    return np.concatenate(parts)
