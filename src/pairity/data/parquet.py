"""Queries from Parquet files whose features may be larger than memory."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import numpy as np

from pairity._utils.files import as_list
from pairity._utils.validation import show
from pairity.data import parquet_features
from pairity.data.columns import Column
from pairity.data.parquet_features import ParquetFeatures, Paths, is_numeric, is_text, plain_type
from pairity.data.queries import Queries
from pairity.data.query_columns import encode_queries, query_runs
from pairity.exceptions import InputError, NotNumbersError


@parquet_features.memory_for_reading()
def read_parquet(
    paths: Paths,
    *,
    y: str,
    qid: str,
    sensitive_features: str | Sequence[str] | None = None,
    features: Sequence[str] | Callable[[str], bool] | None = None,
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
    features : names of columns, or function of a name, optional
        By default all columns that have no other role. A function chooses among these by name:
        ``lambda name: name != "date"``. Features must be numbers or booleans; an empty list reads
        no features.
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
    groups = as_list(sensitive_features)
    named = {
        "y": y, "qid": qid, "sensitive_features": groups, "sample_weight": sample_weight,
        "query_weight": query_weight,
    }  # fmt: skip
    roles = [name for names in named.values() for name in as_list(names)]
    table = ParquetColumns(paths)
    chosen = _features(table, roles, features)
    table.require([*roles, *chosen], numbers=chosen)
    if client is not None:
        from pairity.data.distributed.parquet import read_queries

        return read_queries(client, paths, {"X": chosen, **named})
    starts, ids = _runs(table, qid)
    numbers, query_ids = encode_queries(ids, len(ids))
    query = np.repeat(numbers, np.diff([*starts, table.n_rows]))
    query_runs(query, query_ids, f"Sort the rows by {show(qid)}, over all files, and write them.")
    queries = Queries.from_arrays(
        table.features(chosen) if chosen else None,
        table[y],
        qid=query,
        sensitive_features=table.read(groups) or None,
        sample_weight=None if sample_weight is None else table[sample_weight],
        query_weight=None if query_weight is None else table[query_weight],
    )
    return replace(queries, query_ids=query_ids)


class ParquetColumns(Mapping[str, Column]):
    """The columns of Parquet files by name, each read when it is used.

    Parameters
    ----------
    paths : as `read_parquet` takes them
    """

    def __init__(self, paths: Paths) -> None:
        files = parquet_features.list_files(paths)
        self.files, self.schemas = zip(*map(parquet_features.describe_file, files), strict=True)
        self.schema, self.path = self.schemas[0], self.files[0].path
        repeated = [name for name, count in Counter(self.schema.names).items() if count > 1]
        if repeated:
            raise InputError(f"{self.path} has two columns {show(repeated[0])}. Rename one.")

    def __iter__(self) -> Iterator[str]:
        return iter(self.schema.names)

    def __len__(self) -> int:
        return len(self.schema.names)

    def __contains__(self, name: object) -> bool:
        return name in self.schema.names

    def __getitem__(self, name: str) -> Column:
        if name not in self:
            raise KeyError(name)
        return self.read([name])[name]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(file.n_rows for file in self.files)

    def holds_words(self, name: str) -> bool:
        """Whether a column contains anything but numbers."""
        return not is_numeric(self.schema.field(name).type)

    def read(self, names: Sequence[str]) -> dict[str, Column]:
        """Return columns as arrays, see `to_column`; row groups are converted one by one."""
        parts: dict[str, list[Column]] = {name: [] for name in names}
        for _, group in self.row_groups(names):
            for name, column in parts.items():
                column.append(parquet_features.to_column(group.column(name)))
        return {name: np.concatenate(column) for name, column in parts.items()}

    def row_groups(self, names: Sequence[str]) -> Iterator[tuple[int, Any]]:
        """Yield the first row and the table of each row group; texts are read as categories."""
        begin = 0
        for file, schema in zip(self.files, self.schemas, strict=True):
            texts = [name for name in names if is_text(schema.field(name).type)]
            with file.opened(read_dictionary=texts) as reader:
                for number, n_rows in enumerate(file.groups):
                    if n_rows:
                        yield begin, reader.read_row_group(number, list(names), use_threads=False)
                    begin += n_rows

    def features(self, names: Sequence[str]) -> ParquetFeatures:
        """Return some columns as a matrix that stays in the files."""
        types = {str(schema.field(name).type) for schema in self.schemas for name in names}
        dtype = np.dtype(np.float32 if types == {"float"} else np.float64)
        return ParquetFeatures(self.files, tuple(names), dtype)

    def require(self, names: Sequence[str], numbers: Sequence[str] = ()) -> None:
        """Refuse files without rows or some columns, or with columns of different types.

        The columns in `numbers` must be numeric.
        """
        if not self.n_rows:
            raise InputError(f"{self.path} has no rows. A table needs at least one row.")
        for file, schema in zip(self.files, self.schemas, strict=True):
            present = set(schema.names)
            lacking = [name for name in names if name not in present]
            if lacking and file.path == self.path:
                unknown = unknown_name(lacking[0], schema.names)
                raise InputError(f"{file.path} has no column {unknown}")
            if lacking:
                raise InputError(
                    f"{file.path} lacks {len(lacking)} columns that {self.path} has, such as "
                    f"{show(lacking[0])}. Pass files with the same columns."
                )
            words = [name for name in numbers if not is_numeric(schema.field(name).type)]
            if words:
                kind = schema.field(words[0]).type
                content = "categories" if plain_type(kind) != kind else str(kind)
                more = f", and {len(words) - 1} more such columns" if words[1:] else ""
                raise NotNumbersError(
                    f"The column {show(words[0])} of {file.path} holds {content}, not numbers"
                    f"{more}. Omit it with features=lambda name: name not in {words[:1]!r}, or "
                    "encode it as numbers."
                )
            for name in names:
                kind, expected = schema.field(name).type, self.schema.field(name).type
                if kind != expected and _family(kind) != _family(expected):
                    raise InputError(
                        f"The column {show(name)} of {file.path} holds {_family(kind)}, but "
                        f"{_family(expected)} in earlier files. Write the same type in all files."
                    )


def _features(table: ParquetColumns, roles: list[str], features: Any) -> list[str]:
    """Return the names of the features."""
    if isinstance(features, str):
        raise InputError("features must be a list of names, not one name. Pass a list.")
    if features is not None and not callable(features):
        both = [name for name in features if name in roles]
        if both:
            raise InputError(f"{show(both[0])} is named as a feature and as another role.")
        return list(features)
    others = [name for name in table if name not in roles]
    chosen = others if features is None else list(filter(features, others))
    if not chosen:
        raise InputError(
            f"No column of {table.path} is left as a feature. The columns are "
            f"{list_names(list(table))}."
        )
    return chosen


def _family(kind: Any) -> str:
    if is_numeric(kind):
        return "numbers"
    return "text" if is_text(kind) else str(plain_type(kind))


def unknown_name(name: str, names: Sequence[str], option: str = "") -> str:
    """Return the part of a message that shows an unknown name, a similar one, and all names."""
    close = get_close_matches(name, names, 1)
    meant = f" Did you mean {show(close[0])}?" if close else ""
    return f"{show(name)}{option}.{meant} The columns are {list_names(names)}."


def list_names(names: Sequence[str]) -> str:
    """Return the first eight names for a message, and the number of the others."""
    shown = ", ".join(show(name) for name in names[:8])
    return f"{shown} and {len(names) - 8} more" if len(names) > 8 else shown


def _runs(table: ParquetColumns, name: str) -> tuple[list[int], list[Any]]:
    """Return the first row of each query, and its id."""
    pa = parquet_features.import_arrow()
    compute = import_module("pyarrow.compute")
    starts: list[int] = []
    ids: list[Any] = []
    for begin, group in table.row_groups([name]):
        column = group.column(name)
        column = column.cast(plain_type(column.type)).combine_chunks()
        absent = np.asarray(compute.is_null(column, nan_is_null=True))
        if absent.any():
            row = begin + int(absent.argmax())
            raise InputError(f"{show(name)} is missing in row {row}. Every row needs a query id.")
        changes = np.asarray(compute.not_equal(column[1:], column[:-1]))
        first = np.r_[0, np.flatnonzero(changes) + 1]
        values = column.take(pa.array(first)).to_pylist()
        again = bool(ids) and values[0] == ids[-1]  # the query continues from the row group before
        starts += (first[again:] + begin).tolist()
        ids += values[again:]
    return starts, ids
