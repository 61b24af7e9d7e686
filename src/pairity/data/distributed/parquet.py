"""Parquet files that workers read themselves, in partitions of whole queries.

The client looks at the footers of the files alone. Where partitions begin is found by workers, who
look at the queries around each place where one might.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from pairity._utils.validation import show
from pairity.data.distributed.clients import worker_address
from pairity.data.parquet import ParquetColumns
from pairity.data.parquet_features import Paths, import_arrow, open_parquet
from pairity.exceptions import InputError, MissingExtraError

_PARTITION = 2**26  # bytes of a partition, at 8 for each entry
_NEAR = 0.25  # of a partition: how far it is moved to begin with a row group
_BATCH = 2**16  # rows that are read at once
_PAGES = 2**16  # bytes that are read ahead of each column


class RowGroup(NamedTuple):
    """Some rows of a file: where it is, and the first of them among the rows of all files."""

    path: str
    number: int
    first: int
    n_rows: int
    state: tuple[int, int]  # of the file, so that Dask takes another one for another


def read_frame(
    paths: Paths, query: str, *, columns: Sequence[str] | None = None, npartitions: int = 1
) -> Any:
    """A Dask DataFrame of Parquet files whose partitions hold whole queries; workers read it.

    Parameters
    ----------
    paths : path, pattern or several
        As `pairity.data.read_parquet` takes them. All machines see the files under the same
        path: on shared storage, or as copies. The rows of a query stand together; row groups and
        files may cut it.
    query : str, the column of query ids
    columns : names of columns, optional
        Which to read besides; all by default.
    npartitions : int
        At least so many where there are as many queries, such as two for each worker. There are
        more where a partition would take more than 64 MB.

    Notes
    -----
    Nothing is shuffled: a partition is a range of rows that begins and ends with a query. Queries
    whose rows do not stand together are refused by `fit` and `audit`; `repartition_by_query`
    brings them together.
    """
    try:
        dask, frames = import_module("dask"), import_module("dask.dataframe")
    except ImportError as error:
        raise MissingExtraError(
            'Reading Parquet on workers needs Dask. Install it with: pip install "pairity[dask]"'
        ) from error
    held = ParquetColumns(paths)
    names = list(dict.fromkeys([query, *(held if columns is None else columns)]))
    lacking = next((name for name in names if name not in held), None)
    if lacking is not None:
        raise InputError(f"{held.files[0].path} has no column {show(lacking)}.")
    if not held.n_rows:
        raise InputError(f"{paths} has no rows. Give a table with at least one row.")
    groups = _row_groups(held)
    wanted = max(int(npartitions), -(-8 * held.n_rows * len(names) // _PARTITION))
    starts = _query_starts(dask, groups, query, _places(groups, held.n_rows, wanted))
    bounds = sorted({0, held.n_rows, *starts})
    return frames.from_map(
        partial(_read_rows, names),
        [_between(groups, *each) for each in pairwise(bounds)],
        meta=_plain(held.schema.empty_table().select(names)).to_pandas(),
        enforce_metadata=False,
    )


def _row_groups(held: ParquetColumns) -> list[RowGroup]:
    found, first = [], 0
    for file in held.files:
        path = os.path.abspath(file.path)  # a worker's own folder is another one
        for number, n_rows in enumerate(file.groups):
            if n_rows:
                found.append(RowGroup(path, number, first, n_rows, file.state))
            first += n_rows
    return found


def _places(groups: Sequence[RowGroup], n_rows: int, wanted: int) -> list[int]:
    """Rows at which partitions might begin: evenly, or with a row group that is near."""
    even = np.linspace(0, n_rows, min(wanted, n_rows) + 1)[1:-1]
    firsts = np.array([each.first for each in groups])
    nearest = firsts[np.abs(firsts - even[:, None]).argmin(axis=1)] if len(even) else even
    near = np.abs(nearest - even) <= _NEAR * n_rows / wanted
    return sorted(set(np.where(near, nearest, even).astype(int).tolist()) - {0})


def _query_starts(dask: Any, groups: Sequence[RowGroup], query: str, rows: list[int]) -> list[int]:
    """The first row of the query that each of some rows belongs to."""
    firsts = [each.first for each in groups]
    looking: list[tuple[int, Any]] = [(row, None) for row in rows]
    found = []
    while looking:
        at = [groups[bisect_right(firsts, row) - 1] for row, _ in looking]
        asked = [
            dask.delayed(_start_of_run)(group, query, row - group.first, wanted)
            for group, (row, wanted) in zip(at, looking, strict=True)
        ]
        answers, looking = list(zip(at, dask.compute(*asked), strict=True)), []
        for group, (start, own) in answers:
            if start or not group.first:
                found.append(group.first + start)
            else:  # it may have begun in the row group before
                looking.append((group.first - 1, (own,)))
    return found


def _between(groups: Sequence[RowGroup], first: int, last: int) -> list[tuple[RowGroup, int, int]]:
    """The row groups that some rows lie in, each with those rows, counted from its own first."""
    return [
        (each, max(first - each.first, 0), min(last - each.first, each.n_rows))
        for each in groups
        if each.first < last and first < each.first + each.n_rows
    ]


# --- on a worker ---------------------------------------------------------------------------------


def _start_of_run(
    group: RowGroup, query: str, row: int, wanted: tuple[Any] | None
) -> tuple[int, Any]:
    """Where the query of a row begins in its row group, and its id.

    Where the id is not the one that is wanted, that one begins in the row behind.
    """
    with _opened(group) as reader:
        column = _plain(reader.read_row_group(group.number, columns=[query])).column(query)
    own = column[row].as_py()
    if wanted is not None and own != wanted[0]:
        return row + 1, own
    same = import_module("pyarrow.compute").equal(column.slice(0, row + 1), column[row])
    others = np.flatnonzero(~same.fill_null(False).to_numpy())
    return int(others[-1]) + 1 if len(others) else 0, own


def _read_rows(names: list[str], parts: list[tuple[RowGroup, int, int]]) -> Any:
    """A partition."""
    pa, _ = import_arrow()
    tables = []
    for group, first, last in parts:
        with _opened(group) as reader:
            at = 0
            for batch in reader.iter_batches(
                _BATCH, row_groups=[group.number], columns=names, use_threads=False
            ):
                begin, end = max(first - at, 0), min(last - at, batch.num_rows)
                at += batch.num_rows
                if begin < end:
                    own = pa.Table.from_batches([batch.slice(begin, end - begin)])
                    tables.append(_plain(own.select(names)))
                if at >= last:
                    break
    return pa.concat_tables(tables, promote_options="permissive").to_pandas(self_destruct=True)


def _opened(group: RowGroup) -> Any:
    """Pyarrow's reader of the file, which must be the one that the client saw."""
    if not os.path.isfile(group.path):
        raise InputError(
            f"The worker {worker_address()} does not see {group.path}. Workers read Parquet files "
            "themselves: put them on storage that all machines see under the same path."
        )
    reader = open_parquet(group.path, buffer_size=_PAGES, pre_buffer=False)
    metadata = reader.metadata
    if (
        group.number >= metadata.num_row_groups
        or metadata.row_group(group.number).num_rows != group.n_rows
    ):
        raise InputError(
            f"On the worker {worker_address()}, {group.path} is another file than on the client, "
            "or it has changed. Leave the files alone while they are in use."
        )
    return reader


def _plain(table: Any) -> Any:
    """Categories as what they stand for, and decimals as numbers, as on one machine."""
    pa, _ = import_arrow()
    for at, field in enumerate(table.schema):
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        kind = pa.float64() if pa.types.is_decimal(kind) else kind
        if kind != field.type:
            table = table.set_column(at, field.name, table.column(at).cast(kind))
    return table
