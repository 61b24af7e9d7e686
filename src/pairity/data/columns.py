"""Columns and feature matrices from whatever table the caller has.

NumPy arrays, lists, SciPy sparse matrices, and pandas, polars and pyarrow tables (through
narwhals) become plain NumPy or CSR here, once; nothing behind this module knows what came in.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple, NoReturn, cast

import narwhals as nw
import numpy as np
import scipy.sparse as sp
from narwhals.exceptions import DuplicateError
from numpy.typing import NDArray

from pairity._utils.typing import Array
from pairity._utils.validation import show
from pairity.data.parquet_features import ParquetFeatures
from pairity.exceptions import InputError, NotNumbersError

Column = NDArray[Any]
Features = Array | sp.csr_array

_NUMERIC = "biuf"
_EXACT = 2**53  # up to here float64 tells whole numbers apart
_NEVER_MISSING = {str, bytes, int, bool}
_NOT_A_SEQUENCE = (Mapping, AbstractSet, str, bytes, bytearray, memoryview)


class Attribute(NamedTuple):
    """One column of a table: its name, its values, and its categories if it declares any."""

    name: str
    column: Column
    categories: list[Any] | None


def as_column(values: Any, name: str) -> Column:
    """One column as a one-dimensional array; text and other objects as an object array."""
    table = _read(values, name)
    if isinstance(table, nw.DataFrame):
        if len(table.columns) != 1:
            raise InputError(
                f"{name} has {len(table.columns)} columns, but one is needed. "
                f"Give a single column, one entry per row."
            )
        table = next(table.iter_columns())
    if isinstance(table, nw.Series):
        return _series(table, name)
    array = _array(values, name)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InputError(
            f"{name} has shape {array.shape}, but one entry per row is needed. "
            "Give a one-dimensional array."
        )
    return array.astype(object) if array.dtype.kind in "UST" else array


def as_columns(values: Any, name: str) -> list[Attribute]:
    """One or several columns, each with its name (empty where it has none)."""
    table = _read(values, name)
    if isinstance(table, nw.DataFrame):
        return [
            Attribute(str(series.name), _series(series, name), _categories(series))
            for series in table.iter_columns()
        ]
    if isinstance(table, nw.Series):
        return [Attribute("", _series(table, name), _categories(table))]
    if isinstance(values, Mapping) and not sp.issparse(values):
        return [_entry(key, column, f"{name}[{show(key)}]") for key, column in values.items()]
    if _is_list_of_rows(values):
        width = len(values[0])
        for at, row in enumerate(values):
            if len(row) != width:
                raise InputError(
                    f"{name} has {width} entries in row 0 but {len(row)} in row {at}. "
                    "Give every row as many."
                )
        by_column = [[row[k] for row in values] for k in range(width)]
        return [Attribute("", as_column(column, name), None) for column in by_column]
    if isinstance(values, np.ndarray) and values.ndim == 2:
        array = _plain(values, name)
        return [Attribute("", as_column(array[:, k], name), None) for k in range(array.shape[1])]
    return [Attribute("", as_column(values, name), None)]


def missing(column: Column) -> NDArray[np.bool_]:
    """Where a column has no value: None, NaN, NaT, and the tables' own nulls."""
    if column.dtype.kind in "fc":
        return np.asarray(np.isnan(column))
    if column.dtype.kind in "mM":
        return np.asarray(np.isnat(column))
    if column.dtype.kind == "O":
        values = column.tolist()
        if not set(map(type, values)) <= _NEVER_MISSING:
            return np.fromiter(map(_is_missing, values), bool, len(values))
    return np.zeros(len(column), dtype=bool)


def as_numbers(values: Any, name: str, n_rows: int | None = None) -> Array:
    """A column of finite real numbers, with as many entries as there are rows."""
    column = as_column(values, name)
    if n_rows is not None:
        require_length(column, n_rows, name)
    numbers = to_floats(column, name)
    bad = ~np.isfinite(numbers)
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"{name} has {int(bad.sum())} entries that are missing (NaN) or infinity, the first "
            f"in row {row} ({show(column[row])}). Remove those rows or fill in a number."
        )
    return numbers


def to_floats(column: Column, name: str) -> Array:
    """A new column of float64, NaN where it is missing; only numbers are let through."""
    if column.dtype.kind in _NUMERIC:
        with np.errstate(over="ignore"):
            return column.astype(np.float64)
    if column.dtype.kind == "c":
        _raise_complex(name)
    present = ~missing(column)
    numbers = np.full(len(column), np.nan)
    if column.dtype.kind != "O":
        if present.any():
            _raise_not_a_number(name, int(np.argmax(present)), column[int(np.argmax(present))])
        return numbers
    values = column[present]
    if all(map(is_number, set(map(type, values.tolist())))):
        with suppress(Exception), np.errstate(over="ignore"):  # one too large: found below
            numbers[present] = values.astype(np.float64)
            return numbers
    for row in np.flatnonzero(present).tolist():
        if not is_number(type(column[row])):
            _raise_not_a_number(name, row, column[row])
        try:
            numbers[row] = float(column[row])
        except Exception as error:
            raise InputError(
                f"{name} holds {show(column[row])} in row {row}, which does not fit a float64. "
                "Give numbers below 1e308."
            ) from error
    return numbers


def as_features(X: Any) -> tuple[Features, tuple[str, ...] | None]:
    """A feature matrix of finite float64 (CSR where it was sparse) and its column names.

    An array that is float64 already is not copied. Features in Parquet files stay there, and are
    looked at when they are read.
    """
    if isinstance(X, ParquetFeatures):
        return cast(Any, X), X.names
    table = _read(X, "X")
    if isinstance(table, nw.Series):
        _raise_single_column(table)
    if sp.issparse(X):
        return _sparse_features(X), None
    names = None
    if isinstance(table, nw.DataFrame):
        names = _feature_names(table)
        _require_not_empty(len(table), len(names))
        matrix = _table_features(table)
    else:
        matrix = _dense_features(X)
    require_finite(matrix, names)
    return matrix, names


def require_finite(matrix: Array, names: tuple[str, ...] | None, first_row: int = 0) -> None:
    """Refuse features that are missing or infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        suspicious = not np.isfinite(matrix.sum())
    if suspicious:
        bad = ~np.isfinite(matrix)
        if bad.any():
            row, column = (int(at) for at in np.argwhere(bad)[0])
            label = repr(names[column]) if names else f"{column}"
            _raise_not_finite(int(bad.sum()), first_row + row, label, matrix[row, column])


def as_raw_features(X: Any) -> tuple[Any, tuple[str, ...] | None]:
    """Features for an engine that reads tables itself, and their column names.

    Tables stay what they are, with their categories and missing values; sparse matrices become
    CSR; anything else becomes a NumPy matrix of whatever its entries are. Features in Parquet
    files stay there.
    """
    if isinstance(X, ParquetFeatures):
        return X, X.names
    table = _read(X, "X")
    if isinstance(table, nw.DataFrame):
        names = _feature_names(table)
        _require_not_empty(len(table), len(names))
        return table.to_native(), names
    if isinstance(table, nw.Series):
        _raise_single_column(table)
    matrix: Any = X
    if sp.issparse(X):
        _require_not_empty(*matrix.shape)
        return sp.csr_array(matrix), None
    return _two_dimensional(X), None


def feature_types(X: Any, read: Any) -> str | list[str]:
    """What the columns hold; one text where all hold the same.

    Parameters
    ----------
    X : the caller's table or matrix
    read : what `as_features` or `as_raw_features` made of it
    """
    if isinstance(X, ParquetFeatures):
        return str(X.dtype)
    table = _read(X, "X")
    if isinstance(table, nw.DataFrame):
        return [str(dtype) for dtype in table.schema.values()]
    kind = getattr(X, "dtype", read.dtype)
    return f"sparse {kind}" if sp.issparse(X) else str(kind)


def take_rows(X: Any, rows: NDArray[np.int64]) -> Any:
    """Some rows of a feature matrix or table, as the same kind of thing."""
    if isinstance(X, (np.ndarray, sp.csr_array)):
        return X[rows]
    if isinstance(X, ParquetFeatures):
        return X.take(rows)
    return nw.from_native(X, eager_only=True)[rows].to_native()


def require_length(column: Column, n_rows: int, name: str) -> None:
    """Refuse a column whose length is not the table's."""
    if len(column) != n_rows:
        raise InputError(
            f"{name} has {len(column)} entries but there are {n_rows} rows (inconsistent numbers "
            f"of samples). Give one entry of {name} per row."
        )


def object_array(values: list[Any]) -> Column:
    """A one-dimensional object array, also where the values are tuples or lists themselves."""
    return np.fromiter(values, dtype=object, count=len(values))


def is_number(kind: type) -> bool:
    """Whether values of this type are real numbers (a time span is not)."""
    return issubclass(kind, (Real, Decimal, np.bool_)) and not issubclass(kind, np.timedelta64)


# --- what came in ----------------------------------------------------------------------------


def _read(values: Any, name: str) -> Any:
    """A narwhals table or series where the values are one, else the values as they are."""
    try:
        table = nw.from_native(_whole(values), pass_through=True, allow_series=True)
        if isinstance(table, nw.DataFrame):
            _ = table.columns  # names that are not unique are noticed here
    except DuplicateError as error:
        raise InputError(
            f"{name} has columns of the same name. {' '.join(str(error).split())}. Rename them."
        ) from error
    except MemoryError:
        raise
    except Exception as error:
        raise InputError(
            f"{name} ({_kind(values)}) cannot be read as a table: {error} Give a NumPy array, or "
            "a pandas, polars or pyarrow table."
        ) from error
    if isinstance(table, nw.LazyFrame):
        raise InputError(f"{name} is a lazy table ({_kind(values)}). Give {name}.collect().")
    return table


def _whole(values: Any) -> Any:
    """The table or series around the parts that narwhals leaves alone."""
    library = type(values).__module__.partition(".")[0]
    if library == "pyarrow":
        pa = sys.modules[library]
        if isinstance(values, pa.Array):
            return pa.chunked_array([values])
        if isinstance(values, pa.RecordBatch):
            return pa.Table.from_batches([values])
    if library == "pandas":
        pd = sys.modules[library]
        if isinstance(values, pd.MultiIndex):
            values = values.to_flat_index()
        if isinstance(values, (pd.Index, pd.api.extensions.ExtensionArray)):
            return pd.Series(values)
    return values


def _array(values: Any, name: str) -> Column:
    if isinstance(values, np.ndarray):
        return _plain(values, name)
    if sp.issparse(values):
        raise InputError(f"{name} is a sparse matrix. Give a one-dimensional array.")
    try:
        if hasattr(values, "__array__"):
            return _plain(np.asarray(values), name)
        if (
            not isinstance(values, _NOT_A_SEQUENCE)
            and hasattr(values, "__len__")
            and hasattr(values, "__getitem__")
        ):
            return _from_list(list(values))
    except (InputError, MemoryError):
        raise
    except Exception as error:
        raise InputError(
            f"{name} ({type(values).__name__}) cannot be read as a column: {error}. "
            "Give a one-dimensional array, list or table column."
        ) from error
    raise InputError(
        f"{name} is {_kind(values)}, but one entry per row is needed, in a certain order. "
        "Give a one-dimensional array, list or table column."
    )


def _plain(array: Column, name: str) -> Column:
    """Refuse what NumPy would convert behind our back; otherwise the bare array."""
    if array.dtype.kind == "V":
        fields = f"the fields {', '.join(array.dtype.names)}" if array.dtype.names else "raw bytes"
        raise InputError(
            f"{name} is a structured array with {fields}. Give plain columns, such as "
            "array['field']."
        )
    if isinstance(array, np.ma.MaskedArray):
        raise InputError(
            f"{name} is a masked array, {int(np.ma.getmaskarray(array).sum())} of its {array.size} "
            "entries masked. Give a plain array, with those rows left out or filled in."
        )
    return np.asarray(array)


def _from_list(values: list[Any]) -> Column:
    kinds = set(map(type, values))
    if kinds and kinds <= {int, float, bool}:
        if kinds == {bool} or kinds == {float}:
            return np.array(values)
        if float not in kinds:
            with suppress(OverflowError):
                return np.array(values, dtype=np.int64)
        elif all(abs(value) <= _EXACT for value in values if type(value) is int):
            return np.array(values, dtype=np.float64)
        return object_array(values)
    if any(kind.__module__.startswith("pyarrow") for kind in kinds):
        values = [value.as_py() if hasattr(value, "as_py") else value for value in values]
    elif all(issubclass(kind, np.generic) for kind in kinds):
        dtypes = {value.dtype for value in values}
        if len(dtypes) == 1 and dtypes.pop().kind in "biufcmM":
            return np.array(values)
    return object_array(values)


def _is_list_of_rows(values: Any) -> bool:
    return (
        isinstance(values, (list, tuple))
        and len(values) > 0
        and all(isinstance(row, (list, tuple)) for row in values)
    )


def _entry(key: Any, values: Any, name: str) -> Attribute:
    return Attribute(str(key), as_column(values, name), _categories(_read(values, name)))


def _series(series: nw.Series[Any], name: str) -> Column:
    dtype = series.dtype
    plain = dtype.is_float() or dtype.is_integer() or dtype == nw.Boolean
    try:
        if plain and dtype not in (nw.Int128, nw.UInt128) and not series.is_null().any():
            array = series.to_numpy()
            if array.dtype.kind in _NUMERIC:
                return np.asarray(array)
        return object_array(series.to_list())
    except (MemoryError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a date that Python cannot write: polars panics, no Exception
        raise InputError(
            f"{name} has a column of {dtype} that cannot be read: {error}. Convert it to strings "
            "or numbers first."
        ) from error


def _categories(series: Any) -> list[Any] | None:
    """The categories in the order their type declares, not that in which they turn up."""
    if not isinstance(series, nw.Series):
        return None
    if isinstance(series.dtype, nw.Enum):
        return list(series.dtype.categories)
    if series.dtype == nw.Categorical and series.implementation.is_pandas_like():
        declared = getattr(series.to_native().dtype, "categories", None)
        return None if declared is None else list(declared)
    return None


# --- single values ---------------------------------------------------------------------------


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ == "NAType":  # pandas.NA has no truth value
        return True
    if isinstance(value, (str, bytes)):
        return False
    if isinstance(value, tuple):  # a NaN within is as unlike itself as one alone
        return any(part is not None and _is_missing(part) for part in value)
    if isinstance(value, Decimal):
        return value.is_nan()  # a signalling one cannot be compared
    try:
        return bool(value != value)  # NaN and NaT are unlike themselves
    except Exception:  # whatever it is, it is there
        return False


def _kind(value: Any) -> str:
    return "None" if value is None else type(value).__name__


def _raise_complex(name: str) -> NoReturn:
    raise InputError(f"Complex data not supported: {name} holds complex numbers. Give real ones.")


def _raise_not_a_number(name: str, row: int, value: Any) -> NoReturn:
    raise NotNumbersError(
        f"{name} must be numbers, but holds {show(value)} ({_kind(value)}) in row {row}. Convert "
        "it first: this argument must be free of strings and other objects, one number per row."
    )


# --- features --------------------------------------------------------------------------------


def _feature_names(table: nw.DataFrame[Any]) -> tuple[str, ...]:
    kinds = {isinstance(column, str) for column in table.columns}
    if len(kinds) > 1:
        other = next(column for column in table.columns if not isinstance(column, str))
        raise InputError(
            f"X has column names that are text and others that are not, such as {show(other)}. "
            "Make all of them text: X.columns = X.columns.astype(str)."
        )
    return tuple(str(column) for column in table.columns)


def _table_features(table: nw.DataFrame[Any]) -> Array:
    plain = True
    for column, dtype in table.schema.items():
        if dtype in (nw.Object, nw.Unknown, nw.Decimal, nw.Int128, nw.UInt128):
            plain = False
        elif not (dtype.is_numeric() or dtype == nw.Boolean):
            raise NotNumbersError(
                f"Column {column!r} of X is {dtype}, not a number. Encode it as numbers or leave "
                "it out of X."
            )
    if plain:
        matrix = table.to_numpy()
        if matrix.dtype.kind in _NUMERIC:
            return np.asarray(matrix, dtype=np.float64)
    return np.column_stack(
        [
            to_floats(_series(series, "X"), f"Column {series.name!r} of X")
            for series in table.iter_columns()
        ]
    )


def _dense_features(X: Any) -> Array:
    array = _two_dimensional(X)
    if array.dtype.kind in _NUMERIC:
        with np.errstate(over="ignore"):
            return np.asarray(array, dtype=np.float64)
    columns = [to_floats(array[:, k], f"Column {k} of X") for k in range(array.shape[1])]
    return np.column_stack(columns)


def _two_dimensional(X: Any) -> Column:
    array = _matrix(X)
    if array.dtype.kind == "c":
        _raise_complex("X")
    if array.ndim == 0:
        raise InputError(
            f"X is {_kind(X)}, not a table (expected 2D array). Give a matrix or table with one "
            "row per item and one column per feature."
        )
    if array.size == 0 and array.ndim <= 2:
        _require_not_empty(array.shape[0], array.shape[1] if array.ndim == 2 else 0)
    if array.ndim != 2:
        raise InputError(
            f"Expected 2D array for X, got {array.ndim}D with shape {array.shape}. Reshape your "
            "data to one row per item and one column per feature."
        )
    return array


def _matrix(X: Any) -> Column:
    if isinstance(X, np.ndarray):
        array = _plain(X, "X")
    else:
        try:
            array = _plain(np.asarray(X), "X")
            if array.dtype.kind in "US":  # which entries were text, and which only beside it?
                array = np.asarray(X, dtype=object)
        except (InputError, MemoryError):
            raise
        except Exception as error:
            raise InputError(
                f"X ({_kind(X)}) cannot be read as a table: {' '.join(str(error).split())} "
                "Give every row as many numbers as there are features."
            ) from error
    return array.astype(object) if array.dtype.kind in "UST" else array


def _sparse_features(X: Any) -> sp.csr_array:
    if X.ndim != 2:
        raise InputError(f"Expected 2D array for X, got {X.ndim}D. Give one row per item.")
    _require_not_empty(*X.shape)
    if X.dtype.kind == "c":
        _raise_complex("X")
    try:
        with np.errstate(over="ignore"):
            matrix = sp.csr_array(X, dtype=np.float64)
        matrix.check_format(full_check=True)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"X is a sparse matrix that cannot be used: {error}. Give numbers, in a valid format."
        ) from error
    bad = ~np.isfinite(matrix.data)
    if bad.any():
        at = int(np.argmax(bad))
        row = int(np.searchsorted(matrix.indptr, at, side="right")) - 1
        _raise_not_finite(int(bad.sum()), row, f"{matrix.indices[at]}", matrix.data[at])
    return matrix


def _require_not_empty(n_rows: int, n_columns: int) -> None:
    if n_rows == 0:
        raise InputError(
            f"X has 0 sample(s) (shape=({n_rows}, {n_columns})) while a minimum of 1 is required. "
            "Give at least one row."
        )
    if n_columns == 0:
        raise InputError(
            f"X has 0 feature(s) (shape=({n_rows}, 0)) while a minimum of 1 is required. "
            "Give at least one feature."
        )


def _raise_single_column(series: nw.Series[Any]) -> NoReturn:
    raise InputError(
        f"Expected 2D array for X, got a single column of {len(series)} entries. Give a table "
        "with one row per item and one column per feature: X.to_frame() where it is one "
        "feature, X.to_frame().T where it is one item."
    )


def _raise_not_finite(count: int, row: int, column: str, value: float) -> NoReturn:
    raise InputError(
        f"X contains NaN or infinity: {count} values, the first in row {row}, column {column} "
        f"({value}). Fill in or remove them."
    )
