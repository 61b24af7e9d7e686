"""Partitions of Dask collections, read as queries; a query that is cut is refused.

Boosters lose the pairs of a cut query without a word, so every partition must hold whole queries.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pairity._utils.validation import show
from pairity.data.columns import as_columns, as_numbers, object_array
from pairity.data.digest import digest
from pairity.data.groups import encode_groups
from pairity.data.queries import Queries, n_pairs
from pairity.data.query_columns import rank_queries
from pairity.exceptions import InputError

_MOST_DISTINCT = 10_000  # rows of sensitive features of one partition; groups are far fewer
_MOST_COUNTED = 100_000  # cut queries whose lost pairs are counted


def repartition_by_query(frame: Any, qid: str, *, npartitions: int | None = None) -> Any:
    """A Dask DataFrame whose partitions hold whole queries: rows are shuffled by their query.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
    qid : str, the column of query ids
    npartitions : int, optional
        As many as there are by default.

    Notes
    -----
    All columns travel, once, between the workers. Data that is written query by query into one
    Parquet file for each partition needs none of this.
    """
    if not hasattr(frame, "shuffle") or not hasattr(frame, "npartitions"):
        raise InputError(
            f"{type(frame).__name__} is no Dask DataFrame. Give one with the features, the labels "
            "and the groups beside the query ids, so that they travel together."
        )
    if qid not in frame.columns:
        names = ", ".join(map(show, list(frame.columns)[:8]))
        raise InputError(f"There is no column {show(qid)}. There are {names}.")
    return frame.shuffle(on=qid, npartitions=npartitions or frame.npartitions)


# --- in pieces -----------------------------------------------------------------------------------


def as_pieces(columns: dict[str, Any]) -> list[dict[str, Any]]:
    """Dask collections as one mapping of delayed pieces for each partition.

    Parameters
    ----------
    columns : mapping from argument to Dask DataFrame, Series or array, or None
    """
    pieces: dict[str, list[Any]] = {}
    given = {name: column for name, column in columns.items() if column is not None}
    for name, column in given.items():
        if not hasattr(column, "to_delayed"):
            raise InputError(
                f"{name} is {type(column).__name__}, but other columns are Dask collections. Give "
                "all of them as Dask collections with the same partitions."
            )
        if len(getattr(column, "numblocks", ())) == 2:
            given[name] = column.rechunk({1: -1})  # rows with all their features
    for name, column in given.items():
        delayed = column.to_delayed(optimize_graph=False)  # so that they share what they read
        pieces[name] = np.ravel(np.asarray(delayed, dtype=object)).tolist()
    counts = {name: len(found) for name, found in pieces.items()}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise InputError(
            f"The collections have different numbers of partitions: {told}. Take all columns from "
            "one Dask DataFrame, or rechunk the arrays alike."
        )
    return [dict(zip(pieces, each, strict=True)) for each in zip(*pieces.values(), strict=True)]


@dataclass(frozen=True, eq=False)
class Piece:
    """One partition, read.

    Attributes
    ----------
    queries : Queries, with the groups that are there; None where the partition is empty
    distinct : list of (name, values, categories), each combination of sensitive features once
    """

    queries: Queries | None
    distinct: list[tuple[str, list[Any], list[Any] | None]]


def read_piece(number: int, raw: bool, columns: dict[str, Any]) -> Piece:
    """Read a partition; errors say which it is."""
    try:
        columns = dict(columns)
        if not len(columns["y"]):
            return Piece(None, [])
        scores = columns.pop("scores", None)
        queries = Queries.from_arrays(**{"X": None, **columns}, raw=raw)
        if scores is not None:
            queries = scored(queries, scores)
        given = columns.get("sensitive_features")
        distinct = [] if given is None else _distinct(given)
        return Piece(queries, distinct)
    except InputError as error:
        raise type(error)(f"In partition {number}: {error}") from error


def scored(queries: Queries, scores: Any) -> Queries:
    """The same queries with scores as their one feature."""
    return replace(queries, X=as_numbers(scores, "scores", queries.n_items)[:, None])


def _distinct(sensitive_features: Any) -> list[tuple[str, list[Any], list[Any] | None]]:
    """The combinations of sensitive features that occur, by column."""
    columns = as_columns(sensitive_features, "sensitive_features")
    rows = dict.fromkeys(zip(*(column.tolist() for _, column, _ in columns), strict=True))
    if len(rows) > _MOST_DISTINCT:
        raise InputError(f"sensitive_features has {len(rows)} combinations: too many for groups.")
    values = zip(*rows, strict=True)
    return [
        (name or "", list(found), categories)
        for (name, _, categories), found in zip(columns, values, strict=True)
    ]


@dataclass(frozen=True)
class Facts:
    """What the client knows of a partition: a few numbers, whatever its size."""

    n_items: int
    n_queries: int
    n_pairs: int
    n_missing: int
    n_features: int
    names: tuple[str, ...] | None
    types: tuple[tuple[str, str], ...]
    first: Any
    last: Any
    item_weights: bool


def describe(piece: Piece) -> Facts | None:
    """The facts of a partition; None where it is empty."""
    queries = piece.queries
    if queries is None:
        return None
    ids = queries.query_ids
    return Facts(
        n_items=queries.n_items,
        n_queries=queries.n_queries,
        n_pairs=n_pairs(queries),
        n_missing=queries.n_missing,
        n_features=0 if queries.X is None else int(queries.X.shape[1]),
        names=queries.feature_names,
        types=_category_types(queries.X),
        first=ids[0].item() if hasattr(ids[0], "item") else ids[0],
        last=ids[-1].item() if hasattr(ids[-1], "item") else ids[-1],
        item_weights=queries.item_weight is not None,
    )


def _category_types(X: Any) -> tuple[tuple[str, str], ...]:
    """Columns of categories, each with a digest of these: codes mean nothing without them."""
    found = []
    for name, kind in getattr(X, "dtypes", {}).items() if hasattr(X, "columns") else ():
        if hasattr(kind, "categories"):
            text = repr([str(each) for each in kind.categories]).encode()
            found.append((str(name), hashlib.sha256(text).hexdigest()))
    return tuple(found)


# --- all together --------------------------------------------------------------------------------


def require_alike(facts: Sequence[Facts | None]) -> None:
    """Refuse partitions that do not have the same features, or not the same categories."""
    there = [(at, each) for at, each in enumerate(facts) if each is not None]
    if not there:
        raise InputError("All partitions are empty. Give at least one query.")
    (at, one), rest = there[0], there[1:]
    for other_at, other in rest:
        if (one.n_features, one.names) != (other.n_features, other.names):
            raise InputError(
                f"Partition {other_at} has other features than partition {at} ({other.n_features} "
                f"and {one.n_features}). Give the same columns in the same order everywhere."
            )
        if one.types != other.types:
            mine, theirs = dict(one.types), dict(other.types)
            name = next(n for n in {**mine, **theirs} if mine.get(n) != theirs.get(n))
            raise InputError(
                f"The categories of the feature {name!r} differ between partitions {at} and "
                f"{other_at}, so that their codes mean different things. Make them one: "
                "ddf = ddf.categorize()."
            )


def common_groups(pieces: Sequence[list[tuple[str, list[Any], list[Any] | None]]]) -> Any:
    """The names of all groups, as one table of all rows would number them."""
    there = [each for each in pieces if each]
    if not there:
        return ()
    columns: dict[str, Any] = {}
    n_rows = sum(len(each[0][1]) for each in there)
    for at, (name, _, categories) in enumerate(there[0]):
        values = [value for each in there for value in each[at][1]]
        same = all(each[at][2] == categories for each in there)
        columns[name or f"column {at}"] = _column(values, categories if same else None)
    single = columns[next(iter(columns))] if len(columns) == 1 else columns
    return encode_groups(single, n_rows)[1]


def _column(values: list[Any], categories: list[Any] | None) -> Any:
    if categories is None:
        return object_array(values)
    import pandas as pd

    return pd.Series(pd.Categorical(values, categories=categories))


def may_be_cut(facts: Sequence[Facts | None]) -> bool:
    """Whether the ranges of query ids overlap, so that one may lie on two partitions."""
    there = [each for each in facts if each is not None]
    try:
        ordered = sorted(there, key=lambda each: (each.first, each.last))
        return not all(one.last < other.first for one, other in pairwise(ordered))
    except TypeError:  # ids of several kinds
        return True


def id_hashes(piece: Piece) -> NDArray[np.uint64]:
    """Eight bytes for each query id, the same on all machines."""
    ids = [] if piece.queries is None else piece.queries.query_ids.tolist()
    return np.fromiter((_hash(each) for each in ids), np.uint64, len(ids))


def _hash(value: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = f"{type(value).__name__} {value}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def find_cut(hashes: Sequence[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    """The hashes that more than one partition has."""
    found, counts = np.unique(np.concatenate(hashes), return_counts=True)
    return np.asarray(found[counts > 1])


def cut_labels(cut: NDArray[np.uint64], piece: Piece) -> dict[int, tuple[Any, list[float]]]:
    """Of the queries that are cut, the id and the labels that this partition has."""
    if piece.queries is None:
        return {}
    hashes = id_hashes(piece)
    order = np.flatnonzero(np.isin(hashes, cut[:_MOST_COUNTED]))
    queries = piece.queries
    return {
        int(hashes[at]): (queries.query_ids[at], queries.y[queries.query == at].tolist())
        for at in order
    }


def refuse_cut(
    n_cut: int, n_queries: int, n_found: int, parts: Sequence[dict[int, tuple[Any, list[float]]]]
) -> None:
    """Refuse queries that are cut, with the number of pairs that would be lost."""
    labels: dict[int, list[float]] = {}
    kept = 0
    for part in parts:
        for key, (_, own) in part.items():
            labels.setdefault(key, []).extend(own)
            kept += _pairs_of(own)
    whole = sum(map(_pairs_of, labels.values()))
    key = next(iter(labels))
    where = [at for at, part in enumerate(parts) if key in part]
    name = next(part[key][0] for part in parts if key in part)
    raise InputError(
        f"{n_cut} of {n_queries} queries lie on more than one partition, the first is {show(name)} "
        f"on partitions {', '.join(map(str, where[:4]))}. The labels imply "
        f"{n_found - kept + whole:,} preference pairs, the partitions hold {n_found:,}: "
        f"{whole - kept:,} would be lost without a word. Bring the rows of each query together: "
        "sort files by query before they are written, or "
        "ddf = pairity.data.distributed.repartition_by_query(ddf, qid)."
    )


def _pairs_of(labels: list[float]) -> int:
    counts = np.unique(np.asarray(labels), return_counts=True)[1]
    return (len(labels) ** 2 - int((counts.astype(np.int64) ** 2).sum())) // 2


def piece_digest(piece: Piece) -> str:
    """The digest of a partition's content; empty where it is."""
    return "" if piece.queries is None else digest(piece.queries)


def common_digest(parts: Sequence[str]) -> str:
    """The digest of all partitions in order, whichever workers have them."""
    return hashlib.sha256("".join(parts).encode()).hexdigest()


# --- split ---------------------------------------------------------------------------------------


def ids_of(queries: Queries) -> Any:
    """The ids of queries; whole numbers as such, which take a tenth of the room of objects."""
    ids = np.asarray(queries.query_ids.tolist())
    return ids if ids.dtype.kind == "i" and ids.ndim == 1 else queries.query_ids


def find_drawn(drawn: NDArray[np.uint8], ids: Sequence[Any]) -> list[NDArray[np.bool_]]:
    """Of some parts of the data, the queries that were drawn, given as bits in the order of ids."""
    ranks = rank_queries(np.concatenate(ids))
    chosen = np.unpackbits(drawn, count=len(ranks)).astype(bool)[ranks]
    return np.split(chosen, np.cumsum([len(each) for each in ids])[:-1])


def part_of(groups: tuple[str, ...], chosen: NDArray[np.bool_], pieces: Sequence[Piece]) -> Piece:
    """Some queries of some partitions."""
    return Piece(join(groups, pieces).take(chosen), [])


# --- joined --------------------------------------------------------------------------------------


def join(groups: tuple[str, ...], pieces: Sequence[Piece]) -> Queries:
    """The partitions of one worker as one."""
    parts = [p.queries.with_groups_of(groups) for p in pieces if p.queries is not None]
    if len(parts) == 1:
        return parts[0]
    sizes = np.cumsum([0, *(part.n_queries for part in parts)])
    numbered = zip(parts, sizes, strict=False)
    weighted = parts[0].query_weight is not None
    return Queries(
        X=_stack([part.X for part in parts]),
        y=np.concatenate([part.y for part in parts]),
        query=np.concatenate([part.query + first for part, first in numbered]),
        query_ids=object_array([each for part in parts for each in part.query_ids.tolist()]),
        group=np.concatenate([part.group for part in parts]),
        groups=groups,
        item_weight=_stack([part.item_weight for part in parts]),
        query_weight=np.concatenate([part.weight_of_query for part in parts]) if weighted else None,
        feature_names=parts[0].feature_names,
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
