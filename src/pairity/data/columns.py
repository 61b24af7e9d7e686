"""Single columns from any table or sequence, as plain NumPy arrays.

NumPy arrays, lists, and pandas, polars and pyarrow columns (through narwhals) are converted here,
once. `pairity.data.features` does the same for feature matrices.
"""

import sys
from collections.abc import Iterator, Mapping, Sized
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple, NoReturn

import narwhals as nw
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pairity._utils.typing import Array
from pairity._utils.validation import show
from pairity.exceptions import InputError, NotNumbersError

Column = NDArray[Any]

NUMERIC = "biuf"  # NumPy's kinds of real numbers

_EXACT = 2**53  # the largest range in which float64 represents every whole number
_NEVER_MISSING = {str, bytes, int, bool}
_NOT_A_SEQUENCE = (Mapping, AbstractSet, str, bytes, bytearray, memoryview)


class Attribute(NamedTuple):
    """One column of a table: its name, its values, and its categories if it declares any."""

    name: str
    column: Column
    categories: list[Any] | None


def as_column(values: Any, name: str) -> Column:
    """One column as a one-dimensional array; text and other objects as an object array."""
    table = wrap_table(values, name)
    if isinstance(table, nw.DataFrame):
        if len(table.columns) != 1:
            raise InputError(
                f"{name} has {len(table.columns)} columns, but must have one. Pass a single "
                "column, with one entry per row."
            )
        table = next(table.iter_columns())
    if isinstance(table, nw.Series):
        return series_values(table, name)
    array = _as_array(values, name)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InputError(
            f"{name} has shape {array.shape}, but must have one entry per row. Pass a "
            "one-dimensional array."
        )
    return array.astype(object) if array.dtype.kind in "UST" else array


def as_columns(values: Any, name: str) -> list[Attribute]:
    """One or several columns, each with its name (empty if it has none)."""
    table = wrap_table(values, name)
    if isinstance(table, nw.DataFrame):
        return [_entry(series.name, series, name) for series in table.iter_columns()]
    if isinstance(table, nw.Series):
        return [_entry("", table, name)]
    if isinstance(values, Mapping) and not sp.issparse(values):
        return [_entry(key, column, f"{name}[{show(key)}]") for key, column in values.items()]
    columns = [values]
    rows = values if isinstance(values, list | tuple) else ()
    if rows and all(isinstance(row, list | tuple) for row in rows):
        for number, row in enumerate(rows):
            if len(row) != len(rows[0]):
                raise InputError(
                    f"{name} has {len(rows[0])} entries in row 0 but {len(row)} in row {number}. "
                    "Pass rows of the same length."
                )
        columns = list(map(list, zip(*rows, strict=True)))
    elif isinstance(values, np.ndarray) and values.ndim == 2:
        columns = list(plain_array(values, name).T)
    return [Attribute("", as_column(column, name), None) for column in columns]


def missing(column: Column) -> NDArray[np.bool_]:
    """Where a column has no value: None, NaN, NaT, and the null values of tables."""
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
    """A column of finite real numbers, with one entry per row if `n_rows` is passed."""
    column = as_column(values, name)
    if n_rows is not None:
        require_length(column, n_rows, name)
    numbers = to_floats(column, name)
    fact = f"{name} has {{}} entries that are missing (NaN) or infinity"
    refuse_entries(~np.isfinite(numbers), fact, column, "Remove those rows or fill in a number.")
    return numbers


def to_floats(column: Column, name: str) -> Array:
    """A new float64 column, NaN where a value is missing; only numbers are accepted."""
    if column.dtype.kind in NUMERIC:
        with np.errstate(over="ignore"):
            return column.astype(np.float64)
    if column.dtype.kind == "c":
        raise_complex(name)
    numbers = np.full(len(column), np.nan)
    present = ~missing(column)
    values = column[present]
    is_object = column.dtype.kind == "O"
    if is_object and all(map(is_number, set(map(type, values.tolist())))):
        with suppress(Exception), np.errstate(over="ignore"):  # a value too large is found below
            numbers[present] = values.astype(np.float64)
            return numbers
    for row in np.flatnonzero(present).tolist():
        if not is_object or not is_number(type(column[row])):
            raise NotNumbersError(
                f"{name} must be numbers, but holds {show(column[row])} ({kind_of(column[row])}) "
                f"in row {row}. Convert it first: this argument must be free of strings and other "
                "objects, one number per row."
            )
        fact = f"{name} holds {show(column[row])} in row {row}, which does not fit a float64"
        with explain_errors(fact, "Pass numbers below 1e308."):
            numbers[row] = float(column[row])
    return numbers


def require_length(column: Sized, n_rows: int, name: str) -> None:
    """Refuse a column whose length differs from the number of rows."""
    if len(column) != n_rows:
        raise InputError(
            f"{name} has {len(column)} entries but there are {n_rows} rows (inconsistent numbers "
            f"of samples). Pass one entry of {name} per row."
        )


def object_array(values: list[Any]) -> Column:
    """A one-dimensional object array, even if the values are tuples or lists."""
    return np.fromiter(values, dtype=object, count=len(values))


def is_number(kind: type) -> bool:
    """Whether values of this type are real numbers; a time span is not."""
    return issubclass(kind, (Real, Decimal, np.bool_)) and not issubclass(kind, np.timedelta64)


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number, but not a bool."""
    try:
        return is_number(type(value)) and not isinstance(value, bool) and bool(value == int(value))
    except (OverflowError, ValueError):  # infinity, NaN
        return False


# --- tables and arrays -----------------------------------------------------------------------


def wrap_table(values: Any, name: str) -> Any:
    """A narwhals table or series if the values are one, otherwise the values unchanged."""
    remedy = "Rename equal columns, or pass a NumPy array, or a pandas, polars or pyarrow table."
    with explain_errors(f"{name} ({kind_of(values)}) cannot be read as a table", remedy):
        table = nw.from_native(_as_table(values), pass_through=True, allow_series=True)
        if isinstance(table, nw.DataFrame):
            _ = table.columns  # raises DuplicateError if names are not unique
    if isinstance(table, nw.LazyFrame):
        raise InputError(f"{name} is a lazy table ({kind_of(values)}). Pass {name}.collect().")
    return table


def _as_table(values: Any) -> Any:
    """The table or series for pyarrow and pandas objects that narwhals does not accept."""
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


def _as_array(values: Any, name: str) -> Column:
    if isinstance(values, np.ndarray):
        return plain_array(values, name)
    if sp.issparse(values):
        raise InputError(f"{name} is a sparse matrix. Pass a one-dimensional array.")
    remedy = "Pass a one-dimensional array, list or table column."
    with explain_errors(f"{name} ({kind_of(values)}) cannot be read as a column", remedy):
        if hasattr(values, "__array__"):
            return plain_array(np.asarray(values), name)
        is_sequence = hasattr(values, "__len__") and hasattr(values, "__getitem__")
        if is_sequence and not isinstance(values, _NOT_A_SEQUENCE):
            return _from_list(list(values))
    raise InputError(
        f"{name} is {kind_of(values)}, but must be an ordered column with one entry per row. "
        f"{remedy}"
    )


def plain_array(array: Column, name: str) -> Column:
    """The array without a subclass; refuses arrays that NumPy would convert silently."""
    if array.dtype.kind == "V":
        fields = f"the fields {', '.join(array.dtype.names)}" if array.dtype.names else "raw bytes"
        raise InputError(
            f"{name} is a structured array with {fields}. Pass plain columns, such as "
            "array['field']."
        )
    if isinstance(array, np.ma.MaskedArray):
        raise InputError(
            f"{name} is a masked array, {int(np.ma.getmaskarray(array).sum())} of its {array.size} "
            "entries masked. Pass a plain array, with those rows left out or filled in."
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
    elif any(kind.__module__.startswith("pyarrow") for kind in kinds):
        values = [value.as_py() if hasattr(value, "as_py") else value for value in values]
    elif all(issubclass(kind, np.generic) for kind in kinds):
        dtypes = {value.dtype for value in values}
        if len(dtypes) == 1 and dtypes.pop().kind in "biufcmM":
            return np.array(values)
    return object_array(values)


def _entry(key: Any, values: Any, name: str) -> Attribute:
    return Attribute(str(key), as_column(values, name), _categories(wrap_table(values, name)))


def series_values(series: nw.Series[Any], name: str) -> Column:
    """The values of a table's column: numbers without gaps as they are, the rest as objects."""
    dtype = series.dtype
    numeric = dtype.is_float() or dtype.is_integer() or dtype == nw.Boolean
    remedy = "Convert it to strings or numbers first."
    with explain_errors(f"{name} has a column of {dtype} that cannot be read", remedy):
        if numeric and dtype not in (nw.Int128, nw.UInt128) and not series.is_null().any():
            array = series.to_numpy()
            if array.dtype.kind in NUMERIC:
                return np.asarray(array)
        return object_array(series.to_list())


def _categories(series: Any) -> list[Any] | None:
    """The categories in the order that their type declares."""
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
    if isinstance(value, tuple):  # a tuple that holds NaN does not equal itself either
        return any(part is not None and _is_missing(part) for part in value)
    if isinstance(value, Decimal):
        return value.is_nan()  # a signalling NaN cannot be compared
    try:
        return bool(value != value)  # NaN and NaT do not equal themselves
    except Exception:  # a value that cannot be compared is present
        return False


@contextmanager
def explain_errors(fact: str, remedy: str) -> Iterator[None]:
    """Report an error that the values of a caller cause as an `InputError`."""
    try:
        yield
    except (InputError, MemoryError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # polars panics on dates that Python cannot represent
        raise InputError(f"{fact} ({' '.join(str(error).split())}). {remedy}") from error


def refuse_entries(bad: NDArray[np.bool_], fact: str, values: Any, remedy: str) -> None:
    """Refuse a column if some entries are bad; the message counts them and shows the first."""
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"{fact.format(int(bad.sum()))}, the first in row {row} ({show(values[row])}). {remedy}"
        )


def kind_of(value: Any) -> str:
    """The type of a value, for messages."""
    return "None" if value is None else type(value).__name__


def raise_complex(name: str) -> NoReturn:
    """Refuse complex numbers."""
    raise InputError(f"Complex data not supported: {name} has complex numbers. Pass real numbers.")
