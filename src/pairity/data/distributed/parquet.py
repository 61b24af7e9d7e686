"""Parquet files that workers read themselves; no partition cuts a query.

The client reads only the footers of the files. Workers look at the queries around each row where a
partition may start.
"""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from pairity._utils.files import as_list
from pairity.data.distributed.clients import n_workers, using_client, worker_address
from pairity.data.distributed.queries import DaskQueries
from pairity.data.parquet import ParquetColumns
from pairity.data.parquet_features import Paths, import_arrow, open_parquet, plain_type
from pairity.exceptions import InputError

_PARTITION = 2**26  # bytes of a partition, at 8 per entry: 64 MB
_NEAR = 0.25  # of a partition: how far its start may move to that of a row group
_BATCH = 2**16  # rows that are read at a time
_PAGES = 2**16  # bytes that are read ahead of each column
_PER_WORKER = 2  # partitions at least, so that the load can be balanced


class RowGroup(NamedTuple):
    """One row group of a file, and its first row among the rows of all files."""

    path: str
    number: int
    first: int
    n_rows: int
    state: tuple[int, int]  # of the file, so that Dask does not reuse results of an older one


def read_queries(client: Any, paths: Paths, names: Mapping[str, Any]) -> DaskQueries:
    """Queries on the workers of a cluster; see `pairity.read_parquet`.

    Parameters
    ----------
    names : mapping from an argument of `Queries.from_arrays` to the name or names of its columns
    """
    with using_client(client), client.as_current():
        columns = read_columns(paths, names, _PER_WORKER * n_workers(client))
        return DaskQueries.from_collections(client, raw=True, **columns)


def read_columns(paths: Paths, names: Mapping[str, Any], n_partitions: int) -> dict[str, Any]:
    """The columns that `read_queries` names, as Dask collections; see `read_frame`."""
    roles = {role: columns for role, columns in names.items() if columns}
    wanted = [name for columns in roles.values() for name in as_list(columns)]
    frame = read_frame(paths, names["qid"], columns=wanted, npartitions=n_partitions)
    return {role: frame[columns] for role, columns in roles.items()}


def read_frame(
    paths: Paths, qid: str, *, columns: Sequence[str] | None = None, npartitions: int = 1
) -> Any:
    """A Dask DataFrame of Parquet files; each partition is a range of rows that cuts no query.

    Parameters
    ----------
    paths : path, pattern or several, as `pairity.read_parquet` takes them
    qid : str, the column of query ids
    columns : names of columns, optional
        Columns to read besides; all by default.
    npartitions : int
        The least number of partitions, if there are as many queries. There are more if a
        partition would take more than 64 MB.
    """
    dask, frames = import_module("dask"), import_module("dask.dataframe")
    table = ParquetColumns(paths)
    names = list(dict.fromkeys([qid, *(table if columns is None else columns)]))
    table.require(names)
    groups = _row_groups(table)
    n_partitions = max(int(npartitions), -(-8 * table.n_rows * len(names) // _PARTITION))
    rows = _candidates(groups, table.n_rows, n_partitions)
    known = dask.delayed(groups, traverse=False)  # sent to each worker once
    starts = dask.compute(*(dask.delayed(_query_start)(known, qid, row) for row in rows))
    bounds = sorted({0, table.n_rows, *starts})
    return frames.from_map(
        partial(_read_rows, names),
        [_between(groups, first, last) for first, last in pairwise(bounds)],
        meta=_plain(table.schema.empty_table().select(names)).to_pandas(),
        enforce_metadata=False,
    )


def _row_groups(table: ParquetColumns) -> list[RowGroup]:
    groups, first = [], 0
    for file in table.files:
        path = os.path.abspath(file.path)  # workers may run in another folder
        for number, n_rows in enumerate(file.groups):
            if n_rows:
                groups.append(RowGroup(path, number, first, n_rows, file.state))
            first += n_rows
    return groups


def _candidates(groups: Sequence[RowGroup], n_rows: int, n_partitions: int) -> list[int]:
    """Rows at which partitions may start: evenly spaced, or the start of a row group nearby."""
    even = np.linspace(0, n_rows, min(n_partitions, n_rows) + 1)[1:-1]
    firsts = np.array([group.first for group in groups])
    nearest = firsts[np.abs(firsts - even[:, None]).argmin(axis=1)]
    near = np.abs(nearest - even) <= _NEAR * n_rows / n_partitions
    return sorted(set(np.where(near, nearest, even).astype(int).tolist()) - {0})


def _between(groups: Sequence[RowGroup], first: int, last: int) -> list[tuple[RowGroup, int, int]]:
    """The row groups of some rows, with the first and last of these rows in each."""
    return [
        (group, max(first - group.first, 0), min(last - group.first, group.n_rows))
        for group in groups
        if group.first < last and first < group.first + group.n_rows
    ]


# --- on a worker ---------------------------------------------------------------------------------


def _query_start(groups: Sequence[RowGroup], qid: str, row: int) -> int:
    """The first row of the query that a row belongs to; it may be in an earlier row group."""
    query = None
    for group in reversed([group for group in groups if group.first <= row]):
        with _opened(group) as reader:
            column = _plain(reader.read_row_group(group.number, columns=[qid])).column(qid)
        column = column.slice(0, row + 1 - group.first)
        last = column[-1]
        if query is not None and last.as_py() != query:
            return group.first + len(column)
        query = last.as_py()
        same = import_module("pyarrow.compute").equal(column, last).fill_null(False)
        others = np.flatnonzero(~same.to_numpy())
        if len(others):
            return group.first + int(others[-1]) + 1
    return 0


def _read_rows(names: list[str], parts: list[tuple[RowGroup, int, int]]) -> Any:
    """A partition, as a pandas DataFrame."""
    pa = import_arrow()
    tables = []
    for group, first, last in parts:
        with _opened(group) as reader:
            row = 0
            for batch in reader.iter_batches(
                _BATCH, row_groups=[group.number], columns=names, use_threads=False
            ):
                begin, end = max(first - row, 0), min(last - row, batch.num_rows)
                row += batch.num_rows
                if begin < end:
                    rows = pa.Table.from_batches([batch.slice(begin, end - begin)])
                    tables.append(_plain(rows.select(names)))
                if row >= last:
                    break
    return pa.concat_tables(tables, promote_options="permissive").to_pandas(self_destruct=True)


def _opened(group: RowGroup) -> Any:
    """Pyarrow's reader of the file, which must be the file that the client saw."""
    if not os.path.isfile(group.path):
        raise InputError(
            f"The worker {worker_address()} does not see {group.path}. Workers read Parquet files "
            "themselves: put them on storage that all machines see under the same path."
        )
    reader = open_parquet(group.path, buffer_size=_PAGES, pre_buffer=False)
    metadata = reader.metadata
    exists = group.number < metadata.num_row_groups
    if not exists or metadata.row_group(group.number).num_rows != group.n_rows:
        raise InputError(
            f"On the worker {worker_address()}, {group.path} differs from the file that the client "
            "saw. Do not change files while they are in use."
        )
    return reader


def _plain(table: Any) -> Any:
    """Categories as their values, and decimals as numbers, as on one machine."""
    pa = import_arrow()
    kinds = [plain_type(field.type) for field in table.schema]
    kinds = [pa.float64() if pa.types.is_decimal(kind) else kind for kind in kinds]
    fields = zip(table.column_names, kinds, strict=True)
    return table.cast(pa.schema(fields, metadata=table.schema.metadata))
