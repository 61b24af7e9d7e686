"""Feature matrices from any table or matrix: float64, CSR, or the caller's own table."""

from typing import Any, NoReturn

import narwhals as nw
import numpy as np
import scipy.sparse as sp

from pairity._utils.typing import Array
from pairity._utils.validation import show
from pairity.data import columns
from pairity.data.columns import Column, kind_of
from pairity.data.parquet_features import ParquetFeatures
from pairity.exceptions import InputError, NotNumbersError

Features = Array | sp.csr_array


def as_features(X: Any) -> tuple[Features, tuple[str, ...] | None]:
    """A feature matrix of finite float64 (CSR if it was sparse) and its column names.

    An array that is float64 already is not copied. Features in Parquet files stay there, and are
    checked when they are read.
    """
    if sp.issparse(X):
        return _sparse_features(X), None
    features, names = as_raw_features(X)
    if not isinstance(features, ParquetFeatures):
        is_array = isinstance(features, np.ndarray)
        features = _dense_features(features) if is_array else _table_features(features)
        require_finite(features, names)
    return features, names


def as_raw_features(X: Any) -> tuple[Any, tuple[str, ...] | None]:
    """Features for an engine that reads tables itself, and their column names.

    Tables keep their categories and missing values; sparse matrices become CSR; other values
    become a NumPy matrix with the type of their entries. Features in Parquet files stay there.
    """
    if isinstance(X, ParquetFeatures):
        return X, X.names
    if sp.issparse(X):
        matrix: Any = X
        _require_not_empty(*matrix.shape)
        return sp.csr_array(matrix), None
    table = columns.wrap_table(X, "X")
    if isinstance(table, nw.Series):
        raise InputError(
            f"Expected 2D array for X, got a single column of {len(table)} entries. Pass a table "
            "with one row per item and one column per feature: X.to_frame() for one feature, "
            "X.to_frame().T for one item."
        )
    if isinstance(table, nw.DataFrame):
        _require_not_empty(*table.shape)
        return table.to_native(), _feature_names(table)
    return _as_matrix(X), None


def require_finite(matrix: Array, names: tuple[str, ...] | None, first_row: int = 0) -> None:
    """Refuse features that are missing or infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(matrix.sum()):
            return
    bad = ~np.isfinite(matrix)
    if bad.any():
        row, column = np.argwhere(bad)[0].tolist()
        label = repr(names[column]) if names else f"{column}"
        _raise_not_finite(int(bad.sum()), first_row + row, label, matrix[row, column])


def feature_types(X: Any, features: Any) -> str | list[str]:
    """The data types of the columns; one text if all columns share one type.

    Parameters
    ----------
    X : the caller's table or matrix
    features : the result of `as_features` or `as_raw_features`
    """
    table = X if isinstance(X, ParquetFeatures) else columns.wrap_table(X, "X")
    if isinstance(table, nw.DataFrame):
        return [str(dtype) for dtype in table.schema.values()]
    dtype = getattr(X, "dtype", features.dtype)
    return f"sparse {dtype}" if sp.issparse(X) else str(dtype)


def take_rows(X: Any, rows: Any) -> Any:
    """Some rows of a column, matrix or table, as the same kind of object; None for None."""
    if X is None or isinstance(X, (np.ndarray, sp.csr_array)):
        return None if X is None else X[rows]
    if isinstance(X, ParquetFeatures):
        return X.take(rows)
    return nw.from_native(X, eager_only=True)[rows].to_native()


def _feature_names(table: nw.DataFrame[Any]) -> tuple[str, ...] | None:
    """The names of columns, as scikit-learn has them: numbers are not names."""
    others = [column for column in table.columns if not isinstance(column, str)]
    if others and len(others) < len(table.columns):
        raise InputError(
            f"X has column names that are text and others that are not, such as {show(others[0])}. "
            "Convert all of them to text: X.columns = X.columns.astype(str)."
        )
    return None if others else tuple(table.columns)


def _table_features(X: Any) -> Array:
    table, direct = nw.from_native(X, eager_only=True), True
    for column, dtype in table.schema.items():
        if dtype in (nw.Object, nw.Unknown, nw.Decimal, nw.Int128, nw.UInt128):
            direct = False
        elif not (dtype.is_numeric() or dtype == nw.Boolean):
            raise NotNumbersError(
                f"Column {column!r} of X is {dtype}, not a number. Encode it as numbers or leave "
                "it out of X."
            )
    if direct:
        matrix = table.to_numpy()
        if matrix.dtype.kind in columns.NUMERIC:
            return np.asarray(matrix, dtype=np.float64)
    return np.column_stack(
        [
            columns.to_floats(columns.series_values(series, "X"), f"Column {series.name!r} of X")
            for series in table.iter_columns()
        ]
    )


def _dense_features(array: Column) -> Array:
    if array.dtype.kind in columns.NUMERIC:
        with np.errstate(over="ignore"):
            return np.asarray(array, dtype=np.float64)
    return np.column_stack(
        [columns.to_floats(column, f"Column {k} of X") for k, column in enumerate(array.T)]
    )


def _as_matrix(X: Any) -> Column:
    """A two-dimensional NumPy array that is not empty."""
    remedy = "Pass rows with one number per feature."
    with columns.explain_errors(f"X ({kind_of(X)}) cannot be read as a table", remedy):
        array = columns.plain_array(X if isinstance(X, np.ndarray) else np.asarray(X), "X")
        if array.dtype.kind in "US" and not isinstance(X, np.ndarray):
            array = np.asarray(X, dtype=object)  # NumPy turns numbers beside text into text
    if array.dtype.kind == "c":
        columns.raise_complex("X")
    if array.size == 0 and array.ndim <= 2:
        _require_not_empty(len(array), array.shape[1] if array.ndim == 2 else 0)
    if array.ndim != 2:
        raise InputError(
            f"Expected 2D array for X, got {kind_of(X)} with shape {array.shape} ({array.ndim}D). "
            "Reshape your data to one row per item and one column per feature."
        )
    return array.astype(object) if array.dtype.kind in "UST" else array


def _sparse_features(X: Any) -> sp.csr_array:
    if X.ndim != 2:
        raise InputError(f"Expected 2D array for X, got {X.ndim}D. Pass one row per item.")
    _require_not_empty(*X.shape)
    if X.dtype.kind == "c":
        columns.raise_complex("X")
    remedy = "Pass numbers in a valid format."
    with columns.explain_errors("X is a sparse matrix that cannot be used", remedy):
        with np.errstate(over="ignore"):
            matrix = sp.csr_array(X, dtype=np.float64)
        matrix.check_format(full_check=True)
    bad = ~np.isfinite(matrix.data)
    if bad.any():
        entry = int(np.argmax(bad))
        row = int(np.searchsorted(matrix.indptr, entry, side="right")) - 1
        _raise_not_finite(int(bad.sum()), row, f"{matrix.indices[entry]}", matrix.data[entry])
    return matrix


def _require_not_empty(n_rows: int, n_columns: int) -> None:
    for count, noun, one in ((n_rows, "sample", "row"), (n_columns, "feature", "feature")):
        if count == 0:
            raise InputError(
                f"X has 0 {noun}(s) (shape=({n_rows}, {n_columns})) while a minimum of 1 is "
                f"required. Pass at least one {one}."
            )


def _raise_not_finite(count: int, row: int, column: str, value: float) -> NoReturn:
    raise InputError(
        f"X contains NaN or infinity: {count} values, the first in row {row}, column {column} "
        f"({value}). Fill in or remove them."
    )
