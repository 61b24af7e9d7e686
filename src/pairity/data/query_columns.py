"""Labels, query ids and weights at the door: checked, and encoded as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairity._utils.typing import Array
from pairity._utils.validation import show
from pairity.data.columns import (
    Column,
    as_column,
    as_numbers,
    missing,
    object_array,
    require_length,
)
from pairity.exceptions import InputError

_MANY = 10_000  # ids; from here it pays to sort text with NumPy
_LEAST_WEIGHT, _LARGEST_WEIGHT = 1e-100, 1e100


def read_labels(y: Any, n_rows: int | None) -> Array:
    """One finite number a row; none that float64 cannot tell from another."""
    if y is None:
        raise InputError(
            "A ranking requires y to be passed, but the target y is None. Give one label per row."
        )
    if isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] == 1:
        _warn_column_vector()
    labels = as_numbers(y, "y", n_rows)
    if len(labels) == 0:
        raise InputError("y has 0 entries: the table is empty. Give at least one query.")
    if np.abs(labels).max() >= 2**53:
        _require_told_apart(as_column(y, "y"), labels)
    return labels


def _require_told_apart(column: Column, labels: Array) -> None:
    given, kept = len(set(column.tolist())), len(np.unique(labels))
    if kept < given:
        raise InputError(
            f"y has {given} different labels, up to {show(column[int(labels.argmax())])}, of which "
            f"float64 keeps only {kept} apart. Subtract a common value, or give ranks."
        )


def _warn_column_vector() -> None:
    import warnings

    from sklearn.exceptions import DataConversionWarning

    warnings.warn(
        "A column-vector y was passed when a 1d array was expected; its one column is used.",
        DataConversionWarning,
        stacklevel=4,
    )


def encode_queries(qid: Any, n_rows: int) -> tuple[NDArray[np.int64], Column]:
    """The number of each row's query, and the ids of the queries, sorted."""
    column = as_column(qid, "qid")
    require_length(column, n_rows, "qid")
    absent = missing(column)
    if absent.any():
        row = int(np.argmax(absent))
        raise InputError(
            f"qid is missing in {int(absent.sum())} rows, the first is row {row} "
            f"({show(column[row])}). Give every row its query."
        )
    if column.dtype.kind != "O":
        ids, codes = np.unique(column, return_inverse=True)
        return codes.astype(np.int64), ids
    values = column.tolist()
    try:
        found = list(dict.fromkeys(values))
        codes = np.arange(n_rows)
        if len(found) < n_rows:
            position = dict(zip(found, range(len(found)), strict=True))
            codes = np.fromiter(map(position.__getitem__, values), np.int64, n_rows)
        order = np.asarray(_in_order(found), dtype=np.int64)
    except Exception as error:
        raise InputError(
            f"qid holds values that cannot be hashed and compared, such as lists ({error}). Use "
            "numbers, strings or tuples."
        ) from error
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank[codes], object_array(found)[order]


def rank_queries(ids: Column) -> NDArray[np.int64]:
    """The place of each of some ids, no two the same, in the order that `Queries` has them in."""
    return encode_queries(ids, len(ids))[0]


def _in_order(ids: list[Any]) -> Sequence[int] | NDArray[np.intp]:
    """Positions in sorted order, so that the order of rows does not matter; mixed kinds apart."""
    every = range(len(ids))
    if len(ids) > _MANY and _is_short_text(ids):
        return np.argsort(np.array(ids), kind="stable")  # the same, in half the time
    try:
        return sorted(every, key=ids.__getitem__)
    except TypeError:
        kinds = [type(value).__name__ for value in ids]
    if len(set(kinds)) == 1:  # such as tuples of numbers and text
        with suppress(Exception):
            return sorted(every, key=lambda at: str(ids[at]))
        return every
    order: list[int] = []
    for kind in sorted(set(kinds)):
        part = [at for at in every if kinds[at] == kind]
        order += [part[at] for at in _in_order([ids[at] for at in part])]
    return order


def _is_short_text(ids: list[Any]) -> bool:
    """Whether NumPy may sort them: one long text would make all long, and it drops a last NUL."""
    if set(map(type, ids)) != {str} or max(map(len, ids)) > 64:
        return False
    return "\0" not in "".join(ids)


def read_weights(values: Any, name: str, n_rows: int) -> Array:
    """Weights that are not negative, not all zero, and can be multiplied."""
    weights = as_numbers(values, name, n_rows)
    if (weights < 0).any():
        row = int(np.argmax(weights < 0))
        raise InputError(
            f"{name} has {int((weights < 0).sum())} negative entries, the first in row {row} "
            f"({weights[row]:g}). Weights must be 0 or more."
        )
    if not weights.any():
        raise InputError(f"{name} is zero in all {n_rows} rows. Give some a positive weight.")
    positive = weights[weights > 0]
    if positive.min() < _LEAST_WEIGHT or positive.max() > _LARGEST_WEIGHT:
        raise InputError(
            f"{name} goes from {positive.min():g} to {positive.max():g}; weights are multiplied, "
            f"which needs them between {_LEAST_WEIGHT:g} and {_LARGEST_WEIGHT:g}. Divide all by "
            "a common number."
        )
    return weights


def read_query_weights(values: Any, query: NDArray[np.int64], query_ids: Column) -> Array:
    """One weight a query, from a column or from a mapping."""
    if isinstance(values, Mapping):
        values = _look_up(values, query_ids)[query]
    rows = read_weights(values, "query_weight", len(query))
    by_query = np.empty(len(query_ids))
    by_query[query] = rows
    if (by_query[query] != rows).any():
        row = int(np.argmax(by_query[query] != rows))
        raise InputError(
            f"query_weight differs within the query {show(query_ids[query[row]])} (row {row}). "
            "Give all rows of a query the same weight, or use sample_weight for item weights."
        )
    return by_query


def _look_up(weights: Mapping[Any, Any], query_ids: Column) -> Column:
    ids = list(zip(query_ids, query_ids.tolist(), strict=True))  # NumPy's ids and Python's
    unknown = [plain for own, plain in ids if own not in weights and plain not in weights]
    if unknown:
        raise InputError(
            f"query_weight has no weight for {len(unknown)} queries, the first is "
            f"{show(unknown[0])}. Give a weight for every query id."
        )
    found = [weights[own] if own in weights else weights[plain] for own, plain in ids]
    return as_column(found, "query_weight")
