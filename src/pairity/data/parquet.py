"""Queries from Parquet files whose features may be larger than memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import numpy as np

from pairity._utils.files import as_list
from pairity._utils.typing import Array
from pairity._utils.validation import show
from pairity.data.columns import Column, object_array
from pairity.data.parquet_features import (
    ParquetFeatures,
    ParquetFile,
    Paths,
    describe_file,
    import_arrow,
    is_numeric,
    list_files,
    memory_for_reading,
    to_numbers,
)
from pairity.data.queries import Queries
from pairity.data.query_columns import encode_queries
from pairity.exceptions import InputError, NotNumbersError


@memory_for_reading()
def read_parquet(
    paths: Paths,
    *,
    y: str,
    qid: str,
    sensitive_features: str | Sequence[str] | None = None,
    features: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    sample_weight: str | None = None,
    query_weight: str | None = None,
    client: Any = None,
) -> Any:
    """Read queries from Parquet files, in blocks when needed or by the workers of a Dask cluster.

    Parameters
    ----------
    paths : path, pattern or several
        A file, a folder (all ``.parquet`` and ``.pq`` files in it and below, in the order of their
        names), a pattern such as ``"part-*.parquet"``, or a list of these. Rows are joined in that
        order.
    y, qid : str
        The columns of labels and of query ids. Rows of a query must be contiguous, but may span
        row groups and files.
    sensitive_features : str or sequence of str, optional
        The columns of the protected attribute: numbers, text or categories. Several columns stand
        for their intersection.
    features : names of columns, optional
        By default all columns that have no other role. They must be numbers or booleans; an empty
        list reads no features.
    exclude : names of columns that are not features
    sample_weight, query_weight : str, optional
        Columns of weights, as in `Queries.from_arrays`.
    client : distributed.Client, optional
        The cluster whose workers read the files, each its share of the queries, into their memory;
        no row comes to the client. All machines must see the files under the same path: on shared
        storage, or as copies.

    Returns
    -------
    Queries, or DaskQueries with a client
        With `X` a `pairity.data.parquet_features.ParquetFeatures`. ``model.fit(queries)``,
        ``model.predict(queries.X)``, `Queries.split` and `pairity.audit` work as with any other;
        `X.load()` reads it all.

    Notes
    -----
    `LinearRanker`, LightGBM and XGBoost train on such features; every ranker predicts on them.
    About 100 bytes per row stay in memory (labels, queries, groups and their indices), and two row
    groups at a time. Row groups of more than 128 MB are read in pages, about 3 MB per feature.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import pandas as pd
    >>> from pairity.data import read_parquet
    >>> table = pd.DataFrame({"q": [1, 1, 2, 2], "y": [0, 1, 1, 0], "f": [.1, .9, .8, .3]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table.to_parquet(Path(folder) / "table.parquet")
    ...     queries = read_parquet(folder, y="y", qid="q")
    >>> queries
    Queries(n_queries=2, n_items=4, n_features=1, groups=(), n_missing=4)
    """
    files, schemas = zip(*map(describe_file, list_files(paths)), strict=True)
    groups = as_list(sensitive_features)
    weights = [name for name in (sample_weight, query_weight) if name is not None]
    roles = [y, qid, *groups, *weights]
    chosen = _features(files[0].path, schemas[0], roles, features, exclude)
    for file, schema in zip(files, schemas, strict=True):
        _require_columns(file.path, schema, [*roles, *chosen], files[0].path)
        _require_numbers(file.path, schema, chosen)
        _require_alike(file.path, schema, schemas[0], [qid, *groups])
    n_rows = sum(file.n_rows for file in files)
    if not n_rows:
        raise InputError(f"{files[0].path} has no rows. A table needs at least one row.")
    if client is not None:
        from pairity.data.distributed.parquet import read_queries

        names = {
            "X": chosen, "y": y, "qid": qid, "sensitive_features": groups,
            "sample_weight": sample_weight, "query_weight": query_weight,
        }  # fmt: skip
        return read_queries(client, paths, names)
    types = {str(schema.field(name).type) for schema in schemas for name in chosen}
    dtype = np.dtype(np.float32 if types == {"float"} else np.float64)
    X = ParquetFeatures(files, tuple(chosen), dtype) if chosen else None
    starts, ids = _runs(files, qid)
    numbers, query_ids = encode_queries(ids, len(ids))
    columns = {name: _values(files, name) for name in groups}
    queries = Queries.from_arrays(
        X,
        _numbers(files, y),
        qid=np.repeat(numbers, np.diff([*starts, n_rows])),
        sensitive_features=None if not groups else columns if groups[1:] else columns[groups[0]],
        sample_weight=None if sample_weight is None else _numbers(files, sample_weight),
        query_weight=None if query_weight is None else _numbers(files, query_weight),
    )
    return replace(queries, query_ids=query_ids)


class ParquetColumns(Mapping[str, Column]):
    """The columns of Parquet files by name, each read when it is used.

    Parameters
    ----------
    paths : as `read_parquet` takes them
    """

    def __init__(self, paths: Paths) -> None:
        self.files, schemas = zip(*map(describe_file, list_files(paths)), strict=True)
        self.schema = schemas[0]
        _require_unique(self.schema.names, self.files[0].path)
        for file, schema in zip(self.files, schemas, strict=True):
            _require_columns(file.path, schema, list(self), self.files[0].path)
            _require_alike(file.path, schema, self.schema, list(self))

    def __iter__(self) -> Iterator[str]:
        return iter(self.schema.names)

    def __len__(self) -> int:
        return len(self.schema.names)

    def __contains__(self, name: object) -> bool:
        return name in self.schema.names

    def __getitem__(self, name: str) -> Column:
        """Return numbers, as integers if all are; other columns as objects, None where missing."""
        if name not in self:
            raise KeyError(name)
        if self.holds_words(name):
            return _values(self.files, name)
        chunks = [to_numbers(chunk) for _, chunk in _chunks(self.files, name)]
        return np.concatenate([np.zeros(0, dtype=np.int8), *chunks])

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(file.n_rows for file in self.files)

    def holds_words(self, name: str) -> bool:
        """Whether a column contains anything but numbers."""
        return not is_numeric(self.schema.field(name).type)

    def features(self, names: Sequence[str]) -> ParquetFeatures:
        """Return some columns as a matrix that stays in the files."""
        return ParquetFeatures(self.files, tuple(names), np.dtype(np.float64))


# --- which columns -------------------------------------------------------------------------------


def _features(
    path: str, schema: Any, roles: list[str], names: Sequence[str] | None, exclude: Sequence[str]
) -> list[str]:
    """Return the names of the features."""
    present = schema.names
    _require_unique(present, path)
    if isinstance(names, str) or isinstance(exclude, str):
        raise InputError("features and exclude must be lists of names, not one name. Pass a list.")
    _require_columns(path, schema, [*roles, *(names or ()), *exclude], path)
    if names is not None:
        both = [name for name in names if name in roles]
        if both:
            raise InputError(
                f"{show(both[0])} is named as a feature and in another role. Name it once."
            )
        return [name for name in names if name not in exclude]
    chosen = [name for name in present if name not in roles and name not in exclude]
    if not chosen:
        raise InputError(
            f"No column of {path} is left as a feature. The columns are {list_names(present)}."
        )
    return chosen


def _require_unique(names: Sequence[str], path: str) -> None:
    """Refuse two columns of the same name."""
    repeated = next((name for name, count in Counter(names).items() if count > 1), None)
    if repeated is not None:
        raise InputError(f"{path} has two columns named {show(repeated)}. Rename one of them.")


def _require_columns(path: str, schema: Any, names: list[str], first: str) -> None:
    """Refuse a file that lacks some columns; `first` is the file that defines them."""
    present = set(schema.names)
    lacking = [name for name in names if name not in present]
    if not lacking:
        return
    if path != first:
        raise InputError(
            f"{path} lacks {len(lacking)} columns that {first} has, such as {show(lacking[0])}. "
            "Pass files with the same columns."
        )
    close = get_close_matches(lacking[0], schema.names, 1)
    meant = f" Did you mean {show(close[0])}?" if close else ""
    raise InputError(
        f"{path} has no column {show(lacking[0])}.{meant} The columns are "
        f"{list_names(schema.names)}."
    )


def _require_numbers(path: str, schema: Any, names: list[str]) -> None:
    pa, _ = import_arrow()
    words = [name for name in names if not is_numeric(schema.field(name).type)]
    if words:
        kind = schema.field(words[0]).type
        content = "categories" if pa.types.is_dictionary(kind) else str(kind)
        more = f", and {len(words) - 1} more such columns" if words[1:] else ""
        raise NotNumbersError(
            f"The column {show(words[0])} of {path} holds {content}, not numbers{more}. Omit it "
            f"with exclude={words[:1]!r}, or encode it as numbers."
        )


def _require_alike(path: str, schema: Any, first: Any, names: list[str]) -> None:
    """Refuse ids or groups that are numbers in one file and text in another."""
    for name in names:
        content, expected = _family(schema.field(name).type), _family(first.field(name).type)
        if content != expected:
            raise InputError(
                f"The column {show(name)} of {path} holds {content}, but {expected} in earlier "
                "files. Write it with the same type in all files."
            )


def _family(kind: Any) -> str:
    pa, _ = import_arrow()
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if is_numeric(kind):
        return "numbers"
    text = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return "text" if any(check(kind) for check in text) else str(kind)


def list_names(names: Sequence[str]) -> str:
    """Return the first eight names for a message, and the number of the others."""
    shown = ", ".join(show(name) for name in names[:8])
    return f"{shown} and {len(names) - 8} more" if len(names) > 8 else shown


# --- columns in memory -------------------------------------------------------------


def _chunks(files: Sequence[ParquetFile], name: str) -> Iterator[tuple[slice, Any]]:
    """Yield rows and values of a column by row group; categories are replaced by their values."""
    pa, _ = import_arrow()
    begin = 0
    for file in files:
        with file.opened() as reader:
            for number, n_rows in enumerate(file.groups):
                if not n_rows:
                    continue
                table = reader.read_row_group(number, columns=[name], use_threads=False)
                column = table.column(name)
                if pa.types.is_dictionary(column.type):
                    column = column.cast(column.type.value_type)
                yield slice(begin, begin + n_rows), column.combine_chunks()
                begin += n_rows


def _numbers(files: Sequence[ParquetFile], name: str) -> Array:
    numbers = np.empty(sum(file.n_rows for file in files))
    for rows, chunk in _chunks(files, name):
        if not is_numeric(chunk.type):
            raise NotNumbersError(
                f"The column {show(name)} holds {chunk.type}, but it must be numbers. Convert it."
            )
        numbers[rows] = to_numbers(chunk)
    return numbers


def _values(files: Sequence[ParquetFile], name: str) -> Column:
    """Return a column of few different values as objects, each value stored once."""
    codes = np.empty(sum(file.n_rows for file in files), dtype=np.int32)
    known: dict[Any, int] = {None: 0}
    for rows, chunk in _chunks(files, name):
        coded = chunk.dictionary_encode(null_encoding="encode")
        values = [value if value == value else None for value in coded.dictionary.to_pylist()]
        recode = np.array([known.setdefault(value, len(known)) for value in values], dtype=np.int32)
        codes[rows] = recode[coded.indices.to_numpy()]
    return object_array(list(known))[codes]


def _runs(files: Sequence[ParquetFile], name: str) -> tuple[list[int], list[Any]]:
    """Return the first row of each query, and its id."""
    pa, _ = import_arrow()
    compute = import_module("pyarrow.compute")
    starts: list[int] = []
    ids: list[Any] = []
    for rows, chunk in _chunks(files, name):
        absent = np.asarray(compute.is_null(chunk, nan_is_null=True))
        if absent.any():
            row = rows.start + int(absent.argmax())
            raise InputError(
                f"The query {show(name)} is missing in row {row}. Every row needs a query id."
            )
        changes = np.asarray(compute.not_equal(chunk[1:], chunk[:-1]))
        first = np.r_[0, np.flatnonzero(changes) + 1]
        values = chunk.take(pa.array(first)).to_pylist()
        again = bool(ids) and values[0] == ids[-1]  # the query continues from the previous chunk
        starts += (first[again:] + rows.start).tolist()
        ids += values[again:]
    if len(set(ids)) < len(ids):
        first_run = {query: run for run, query in reversed(list(enumerate(ids)))}
        run = next(run for run, query in enumerate(ids) if first_run[query] != run)
        raise InputError(
            f"The query {show(ids[run])} continues in row {starts[run]} after rows of other "
            f"queries. Rows of a query must be contiguous: sort the table by {show(name)}, over "
            "all files, before it is written."
        )
    return starts, ids
