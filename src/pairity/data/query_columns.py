"""Labels, query ids and weights: checked, and encoded as arrays."""

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairity._utils.typing import Array
from pairity._utils.validation import show
from pairity.data import columns
from pairity.data.columns import Column
from pairity.exceptions import InputError

_MANY = 10_000  # ids; from this number on, NumPy sorts text in half the time of Python
_LONGEST = 64  # characters of an id that NumPy sorts: it stores all ids at the longest one's length
_LEAST_WEIGHT, _LARGEST_WEIGHT = 1e-100, 1e100  # products of three weights stay within float64


def read_labels(y: Any, n_rows: int | None) -> Array:
    """One finite number per row; different labels must stay different as float64."""
    if y is None:
        raise InputError("This requires y to be passed, but the target y is None. Pass labels.")
    if isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] == 1:
        from sklearn.exceptions import DataConversionWarning

        warnings.warn(
            "A column-vector y was passed when a 1d array was expected; its one column is used.",
            DataConversionWarning,
            stacklevel=3,
        )
    labels = columns.as_numbers(y, "y", n_rows)
    if len(labels) == 0:
        raise InputError("y has 0 entries: the table is empty. Pass at least one query.")
    if np.abs(labels).max() >= 2**53:  # beyond, float64 does not represent every whole number
        column = columns.as_column(y, "y")
        n_given, n_kept = len(set(column.tolist())), len(np.unique(labels))
        if n_kept < n_given:
            raise InputError(
                f"y has {n_given} different labels, up to {show(column[int(labels.argmax())])}, of "
                f"which float64 distinguishes only {n_kept}. Subtract a common value, or pass "
                "ranks."
            )
    return labels


def read_group_sizes(group: Any, qid: Any, n_rows: int) -> Any:
    """Query ids from the number of rows of each query; ids that are passed too must agree."""
    sizes = columns.as_column(group, "group")
    wrong = [value for value in sizes.tolist() if not (columns.is_whole(value) and value > 0)]
    if wrong or not len(sizes):
        fact = f"holds {show(wrong[0])}" if wrong else "is empty"
        raise InputError(
            f"group {fact}, but must hold the number of rows of each query: positive whole "
            "numbers. Pass query ids as qid, and protected groups as sensitive_features."
        )
    sizes = sizes.astype(np.int64)
    if sizes.sum() != n_rows:
        raise InputError(
            f"group has {len(sizes)} queries with {sizes.sum()} rows, but there are {n_rows} rows. "
            "Pass the number of rows of each query, in the order of the rows."
        )
    if qid is None:
        return np.repeat(np.arange(len(sizes)), sizes)
    query, ids = encode_queries(qid, n_rows)
    starts = np.cumsum(sizes) - sizes
    runs = query_runs(query, ids, "Sort the rows by query, or pass only qid.")
    differs = np.setxor1d(starts, runs)
    if len(differs):
        row = int(differs[0])
        starting, other = ("group", "qid") if row in starts else ("qid", "group")
        raise InputError(
            f"group and qid disagree: by {starting} a query starts in row {row}, by {other} it "
            "does not. Pass only one of the two."
        )
    return qid


def query_runs(query: NDArray[np.int64], ids: Column, remedy: str) -> Any:
    """The rows in which queries start; a query whose rows are not contiguous is refused."""
    runs = np.r_[0, np.flatnonzero(np.diff(query)) + 1]
    _, first = np.unique(query[runs], return_index=True)
    if len(first) < len(runs):
        row = int(np.delete(runs, first)[0])
        raise InputError(
            f"The rows of a query must be contiguous, but the query {show(ids[query[row]])} "
            f"continues in row {row} after rows of other queries. {remedy}"
        )
    return runs


def encode_queries(qid: Any, n_rows: int) -> tuple[NDArray[np.int64], Column]:
    """The number of each row's query, and the sorted ids of the queries."""
    if qid is None:
        raise InputError(
            "qid is missing. Pass one query id per row as qid, or the number of rows of each query "
            "as group."
        )
    column = columns.as_column(qid, "qid")
    columns.require_length(column, n_rows, "qid")
    remedy = "Pass a query id for every row."
    columns.refuse_entries(columns.missing(column), "qid is missing in {} rows", column, remedy)
    if column.dtype.kind != "O":
        distinct, codes = np.unique(column, return_inverse=True)
        return codes.astype(np.int64), distinct
    values = column.tolist()
    fact = "qid holds values that cannot be hashed and compared, such as lists"
    with columns.explain_errors(fact, "Use numbers, strings or tuples."):
        ids = list(dict.fromkeys(values))
        codes = np.arange(n_rows)
        if len(ids) < n_rows:
            position = dict(zip(ids, range(len(ids)), strict=True))
            codes = np.fromiter(map(position.__getitem__, values), np.int64, n_rows)
        order = np.asarray(_sorted_positions(ids), dtype=np.int64)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank[codes], columns.object_array(ids)[order]


def _sorted_positions(ids: list[Any]) -> Sequence[int] | NDArray[np.intp]:
    """Positions in sorted order, whatever the order of rows; ids of mixed types by type."""
    positions = range(len(ids))
    if len(ids) > _MANY and _is_short_text(ids):
        return np.argsort(np.array(ids), kind="stable")
    kinds = [type(value).__name__ for value in ids]
    for key in (ids.__getitem__, lambda position: (kinds[position], ids[position])):
        with suppress(Exception):  # such as numbers and text, or tuples of both
            return sorted(positions, key=key)
    return sorted(positions, key=lambda position: (kinds[position], str(ids[position])))


def _is_short_text(ids: list[Any]) -> bool:
    """Whether NumPy may sort the ids: it drops trailing NUL characters."""
    is_short = set(map(type, ids)) == {str} and max(map(len, ids)) <= _LONGEST
    return is_short and "\0" not in "".join(ids)


def read_weights(values: Any, name: str, n_rows: int) -> Array | None:
    """Weights that are not negative, not all zero, and can be multiplied; None without weights."""
    if values is None:
        return None
    weights = columns.as_numbers(values, name, n_rows)
    remedy = "Weights must be 0 or greater."
    columns.refuse_entries(weights < 0, f"{name} has {{}} negative entries", weights, remedy)
    if not weights.any():
        raise InputError(f"{name} is zero in all {n_rows} rows. Pass some positive weights.")
    positive = weights[weights > 0]
    if positive.min() < _LEAST_WEIGHT or positive.max() > _LARGEST_WEIGHT:
        raise InputError(
            f"{name} ranges from {positive.min():g} to {positive.max():g}; weights are multiplied, "
            f"so they must lie between {_LEAST_WEIGHT:g} and {_LARGEST_WEIGHT:g}. Divide all by a "
            "common number."
        )
    return weights


def asks_for_equal_queries(query_weight: Any) -> bool:
    """Whether the weights of queries are the word "equal"; other words are refused."""
    if not isinstance(query_weight, str):
        return False
    if query_weight != "equal":
        raise InputError(
            f"query_weight is {show(query_weight)}. Pass one weight per query, as a column or a "
            'mapping, or "equal", with which all queries have the same weight in training.'
        )
    return True


def read_query_weights(values: Any, query: NDArray[np.int64], query_ids: Column) -> Array | None:
    """One weight per query, from a column or a mapping; None without weights."""
    if isinstance(values, Mapping):
        values = _look_up(values, query_ids)[query]
    weights = read_weights(values, "query_weight", len(query))
    if weights is None:
        return None
    by_query = np.empty(len(query_ids))
    by_query[query] = weights
    differs = by_query[query] != weights
    if differs.any():
        row = int(np.argmax(differs))
        raise InputError(
            f"query_weight differs within the query {show(query_ids[query[row]])} (row {row}). "
            "Pass the same weight in all rows of a query, or use sample_weight for item weights."
        )
    return by_query


def _look_up(weights: Mapping[Any, Any], query_ids: Column) -> Column:
    """The weight of each query, by its NumPy id or by its Python id."""
    ids = list(zip(query_ids, query_ids.tolist(), strict=True))
    unknown = [plain for scalar, plain in ids if scalar not in weights and plain not in weights]
    if unknown:
        raise InputError(
            f"query_weight has no weight for {len(unknown)} queries, the first is "
            f"{show(unknown[0])}. Pass a weight for every query id."
        )
    values = [weights[scalar] if scalar in weights else weights[plain] for scalar, plain in ids]
    return columns.as_column(values, "query_weight")
