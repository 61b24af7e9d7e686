"""Columns and feature matrices from whatever table the caller has.

NumPy arrays, lists, SciPy sparse matrices, and pandas, polars and pyarrow tables (through
narwhals) become plain NumPy or CSR here, once; nothing behind this module knows what came in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import narwhals as nw
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pairity.exceptions import InputError

Column = NDArray[Any]
Features = NDArray[np.float64] | sp.csr_array

_NUMERIC = "biuf"


def as_column(values: Any, name: str) -> Column:
    """One column as a one-dimensional array; text and other objects as an object array."""
    native = nw.from_native(values, pass_through=True, eager_only=True, allow_series=True)
    if isinstance(native, nw.DataFrame):
        if len(native.columns) != 1:
            raise InputError(
                f"{name} has {len(native.columns)} columns, but one is needed. "
                f"Give a single column, one entry per row."
            )
        native = native[native.columns[0]]
    if isinstance(native, nw.Series):
        return _series(native)
    if sp.issparse(values):
        raise InputError(f"{name} is a sparse matrix. Give a one-dimensional array.")
    if isinstance(values, np.ndarray):
        array = values
    elif values is None or isinstance(values, (str, bytes, Mapping)) or np.isscalar(values):
        raise InputError(
            f"{name} is {type(values).__name__}, but one entry per row is needed. "
            "Give a one-dimensional array, list or table column."
        )
    elif hasattr(values, "__array__"):
        array = np.asarray(values)
    else:
        try:
            array = _from_iterable(list(values))
        except TypeError as error:
            raise InputError(
                f"{name} is {type(values).__name__}, which is not a column. "
                "Give a one-dimensional array, list or table column."
            ) from error
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InputError(
            f"{name} has shape {array.shape}, but one entry per row is needed. "
            "Give a one-dimensional array."
        )
    return array.astype(object) if array.dtype.kind in "US" else array


def as_columns(values: Any, name: str) -> list[tuple[str, Column]]:
    """One or several columns, each with its name (empty where it has none)."""
    native = nw.from_native(values, pass_through=True, eager_only=True, allow_series=True)
    if isinstance(native, nw.DataFrame):
        return [(str(key), _series(native[key])) for key in native.columns]
    if isinstance(values, Mapping):
        return [(str(key), as_column(column, f"{name}[{key!r}]")) for key, column in values.items()]
    if isinstance(values, np.ndarray) and values.ndim == 2:
        return [("", as_column(values[:, k], name)) for k in range(values.shape[1])]
    return [("", as_column(values, name))]


def missing(column: Column) -> NDArray[np.bool_]:
    """Where a column has no value: None, NaN, NaT, and the tables' own nulls."""
    if column.dtype.kind == "f":
        return np.asarray(np.isnan(column))
    if column.dtype.kind in "mM":
        return np.asarray(np.isnat(column))
    if column.dtype.kind == "O":
        return np.fromiter((_is_missing(value) for value in column), bool, len(column))
    return np.zeros(len(column), dtype=bool)


def as_numbers(values: Any, name: str, n_rows: int | None = None) -> NDArray[np.float64]:
    """A column of finite real numbers, with as many entries as there are rows."""
    column = as_column(values, name)
    if n_rows is not None:
        require_length(column, n_rows, name)
    if column.dtype.kind == "c":
        raise InputError(f"Complex data not supported: {name} holds complex numbers.")
    try:
        numbers = column.astype(np.float64)
    except (TypeError, ValueError) as error:
        example = next((v for v in column if not isinstance(v, (int, float))), None)
        raise InputError(
            f"{name} must be numbers, but holds {example!r}. Give one number per row."
        ) from error
    bad = ~np.isfinite(numbers)
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"{name} has {int(bad.sum())} entries that are NaN or infinity, the first in row "
            f"{row} ({numbers[row]}). Remove those rows or fill in a number."
        )
    return numbers


def as_features(X: Any) -> tuple[Features, tuple[str, ...] | None]:
    """A feature matrix of finite float64 (CSR where it was sparse) and its column names."""
    names: tuple[str, ...] | None = None
    native = nw.from_native(X, pass_through=True, eager_only=True)
    if isinstance(native, nw.DataFrame):
        names = tuple(str(column) for column in native.columns)
        _require_numeric_columns(native)
        X = native.to_numpy() if native.columns else np.empty((len(native), 0))
    if sp.issparse(X):
        return _sparse_features(X), names
    array = np.asarray(X)
    if array.dtype.kind == "c":
        raise InputError("Complex data not supported: X holds complex numbers.")
    if array.ndim != 2:
        raise InputError(
            f"Expected 2D array for X, got {array.ndim}D with shape {array.shape}. Reshape your "
            "data to one row per item and one column per feature."
        )
    _require_not_empty(*array.shape)
    try:
        matrix = np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"X must be numbers. {str(error).capitalize()}.") from error
    with np.errstate(over="ignore", invalid="ignore"):
        suspicious = not np.isfinite(matrix.sum())
    if suspicious:
        bad = ~np.isfinite(matrix)
        if bad.any():
            row, column = (int(at) for at in np.argwhere(bad)[0])
            label = f"{names[column]!r}" if names else f"{column}"
            _raise_not_finite(int(bad.sum()), row, label, matrix[row, column])
    return matrix, names


def require_length(column: Column, n_rows: int, name: str) -> None:
    """Refuse a column whose length is not the table's."""
    if len(column) != n_rows:
        raise InputError(
            f"{name} has {len(column)} entries but there are {n_rows} rows (inconsistent numbers "
            f"of samples). Give one entry of {name} per row."
        )


def object_array(values: list[Any]) -> Column:
    """A one-dimensional object array, also where the values are tuples or lists themselves."""
    array = np.empty(len(values), dtype=object)
    for at, value in enumerate(values):
        array[at] = value
    return array


def _from_iterable(values: list[Any]) -> Column:
    kinds = {type(value) for value in values}
    if kinds <= {int, float, bool}:
        if kinds == {int}:
            try:
                return np.array(values, dtype=np.int64)
            except OverflowError:
                return object_array(values)
        return np.array(values)
    if all(isinstance(value, np.generic) for value in values):
        return np.array(values)
    return object_array(values)


def _series(series: nw.Series[Any]) -> Column:
    if series.dtype.is_numeric() or series.dtype == nw.Boolean:
        if not series.is_null().any():
            array = series.to_numpy()
            if array.dtype.kind in _NUMERIC:
                return np.asarray(array)
        return object_array(series.to_list())
    return object_array(series.to_list())


def _is_missing(value: Any) -> bool:
    if value is None:
        return True
    if isinstance(value, (str, bytes, tuple)):
        return False
    try:
        return bool(value != value)  # NaN and NaT are unlike themselves
    except (TypeError, ValueError):
        return type(value).__name__ == "NAType"  # pandas.NA has no truth value


def _require_numeric_columns(table: nw.DataFrame[Any]) -> None:
    for column, dtype in table.schema.items():
        if not (dtype.is_numeric() or dtype == nw.Boolean):
            raise InputError(
                f"Column {column!r} of X is {dtype}, not a number. Encode it as numbers or leave "
                "it out of X."
            )


def _require_not_empty(n_rows: int, n_columns: int) -> None:
    if n_rows == 0:
        raise InputError(
            f"X has 0 sample(s) (shape=({n_rows}, {n_columns})) while a minimum of 1 is required. "
            "Give at least one query of two items."
        )
    if n_columns == 0:
        raise InputError(
            f"X has 0 feature(s) (shape=({n_rows}, 0)) while a minimum of 1 is required. "
            "Give at least one feature."
        )


def _raise_not_finite(count: int, row: int, column: str, value: float) -> None:
    raise InputError(
        f"X contains NaN or infinity: {count} values, the first in row {row}, column {column} "
        f"({value}). Fill in or remove them."
    )


def _sparse_features(X: Any) -> sp.csr_array:
    if X.ndim != 2:
        raise InputError(f"Expected 2D array for X, got {X.ndim}D. Give one row per item.")
    _require_not_empty(*X.shape)
    if X.dtype.kind == "c":
        raise InputError("Complex data not supported: X holds complex numbers.")
    try:
        matrix = sp.csr_array(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError("X is sparse but does not hold numbers. Give numbers.") from error
    bad = ~np.isfinite(matrix.data)
    if bad.any():
        at = int(np.argmax(bad))
        row = int(np.searchsorted(matrix.indptr, at, side="right")) - 1
        _raise_not_finite(int(bad.sum()), row, f"{matrix.indices[at]}", matrix.data[at])
    return matrix
