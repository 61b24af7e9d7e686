"""ParquetFeatures: a feature matrix that stays in Parquet files and is read in blocks of rows."""

import glob
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairity._utils.extras import import_extra
from pairity._utils.files import GzipReader, as_list, open_binary
from pairity._utils.typing import Array
from pairity.data.columns import Column, object_array
from pairity.exceptions import InputError, NoMemoryError, NotNumbersError

LITTLE_MEMORY = (
    "If the limit applies to allocated memory, set ARROW_DEFAULT_MEMORY_POOL=system, "
    "MALLOC_ARENA_MAX=1 and MALLOC_MMAP_THRESHOLD_=65536 in the environment, and ulimit -s 2048."
)

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

BLOCK_ENTRIES = 2_000_000  # entries of a block: 16 MB as float64
SMALL = 4_000_000  # entries of a selection that is loaded into memory: 32 MB
_GROUP_BYTES = 2**27  # row groups above this size are read page by page
_COLUMNS_AT_ONCE = 16  # columns of a row group that are decoded at once, to avoid a second copy
_PAGES = 2**16  # bytes that are read ahead per column of a large row group


@dataclass(frozen=True)
class ParquetFile:
    """One file: its path, the rows of each row group, and its size and time of change."""

    path: str
    groups: tuple[int, ...]
    state: tuple[int, int]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(self.groups)

    def opened(self, **options: Any) -> Any:
        """Open pyarrow's reader, unless the file has changed since it was described."""
        if _state(self.path) != self.state:
            raise InputError(
                f"{self.path} has changed since it was first read. Do not change the files while "
                "they are in use, and read them again."
            )
        return open_parquet(self.path, buffer_size=_PAGES, **options)


@dataclass(frozen=True, eq=False, repr=False)
class ParquetFeatures:
    """A numeric matrix in the columns of Parquet files that is read in blocks when it is needed.

    `pairity.data.read_parquet` creates it. Only the names of files and columns and the indices of
    the chosen rows are in memory.

    Attributes
    ----------
    files : tuple of ParquetFile, in the order of the rows
    names : tuple of str, the columns
    dtype : float32 if all columns have it, else float64
    rows : int64 array of the chosen rows, increasing; None for all
    """

    files: tuple[ParquetFile, ...]
    names: tuple[str, ...]
    dtype: np.dtype[Any]
    rows: NDArray[np.int64] | None = None

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        n_rows = sum(file.n_rows for file in self.files) if self.rows is None else len(self.rows)
        return n_rows, len(self.names)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"ParquetFeatures(shape={self.shape}, files={len(self.files)})"

    def take(self, rows: NDArray[np.int64]) -> Any:
        """Return some rows in their order: a view, or the numbers themselves if they are few."""
        if (rows[1:] <= rows[:-1]).any():
            raise InputError(
                "Rows of Parquet files can only be read in their order. Choose them in increasing "
                "order, or load the features into memory first: X.load()."
            )
        chosen = replace(self, rows=rows if self.rows is None else self.rows[rows])
        return chosen.load() if len(rows) * len(self.names) <= SMALL else chosen

    def load(self) -> Array:
        """Load the matrix into memory as float64."""
        matrix = np.empty(self.shape)
        for rows, block in self.blocks():
            matrix[rows] = block
        return matrix

    def blocks(self, cuts: Any = None) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Yield the rows in blocks; the next block is read while one is processed.

        Parameters
        ----------
        cuts : increasing integers from 0 to the number of rows, optional
            The bounds of the blocks, independent of row groups and files. By default a block has
            two million entries.

        Yields
        ------
        rows : slice
        block : array of shape (n_rows, n_features)
            Missing entries are NaN. The array is valid until the next block is requested.
        """
        if cuts is None:
            cuts = [*range(0, len(self), max(1, BLOCK_ENTRIES // len(self.names))), len(self)]
        ends = iter([int(cut) for cut in cuts[1:]])
        pending: list[NDArray[Any]] = []
        begin, end, position = 0, next(ends, 0), 0
        for chunk in _ahead(self._chunks()):
            used = 0
            while end and position + (chunk.shape[1] - used) >= end:
                piece = chunk[:, used : used + end - position]
                used, position = used + end - position, end
                with memory_for_reading():
                    block = (np.concatenate([*pending, piece], axis=1) if pending else piece).T
                yield slice(begin, end), block
                begin, end, pending = end, next(ends, 0), []
            if used < chunk.shape[1]:
                with memory_for_reading():
                    pending.append(chunk[:, used:].copy())
                position += chunk.shape[1] - used

    def _chunks(self) -> Iterator[NDArray[Any]]:
        """Yield the chosen rows of each row group, of shape (n_features, n_rows).

        Two buffers alternate: one may be in use while the other is filled.
        """
        sizes = [n for file in self.files for n in file.groups if self._fits(n)]
        places = [np.empty(len(self.names) * max(sizes, default=0), self.dtype) for _ in range(2)]
        first = number = 0
        for file in self.files:
            if self.rows is not None and not len(self._chosen(first, first + file.n_rows)):
                first += file.n_rows
                continue
            with file.opened() as reader:
                for group, n_rows in enumerate(file.groups):
                    chosen = self._chosen(first, first + n_rows)
                    if len(chosen) and self._fits(n_rows):
                        yield self._whole_group(reader, group, chosen, places[number % 2])
                        number += 1
                    elif len(chosen):
                        yield from self._paged_group(reader, group, first)
                    first += n_rows

    def _fits(self, n_rows: int) -> bool:
        """Whether a row group is small enough for a buffer."""
        return n_rows * len(self.names) * self.dtype.itemsize <= _GROUP_BYTES

    def _chosen(self, first: int, last: int) -> NDArray[np.int64]:
        """Return the chosen rows between two rows, counted from the first."""
        if self.rows is None:
            return np.arange(last - first)
        return self.rows[slice(*np.searchsorted(self.rows, [first, last]))] - first

    def _whole_group(
        self, reader: Any, number: int, chosen: NDArray[np.int64], place: NDArray[Any]
    ) -> NDArray[Any]:
        """Read a row group, some columns at a time."""
        part = place[: len(self.names) * len(chosen)].reshape(len(self.names), len(chosen))
        for at in range(0, len(self.names), _COLUMNS_AT_ONCE):
            names = list(self.names[at : at + _COLUMNS_AT_ONCE])
            table = reader.read_row_group(number, columns=names, use_threads=False)
            for k, name in enumerate(names, at):
                _fill(part[k], table.column(name), chosen)
        return part

    def _paged_group(self, reader: Any, number: int, first: int) -> Iterator[NDArray[Any]]:
        """Read a row group that is too large for a buffer, in batches."""
        height = max(1, BLOCK_ENTRIES // len(self.names))
        for batch in reader.iter_batches(
            batch_size=height, row_groups=[number], columns=list(self.names), use_threads=False
        ):
            chosen = self._chosen(first, first + batch.num_rows)
            first += batch.num_rows
            part = np.empty((len(self.names), len(chosen)), dtype=self.dtype)
            for k, name in enumerate(self.names):
                _fill(part[k], batch.column(name), chosen)
            if len(chosen):
                yield part


def _fill(place: NDArray[Any], column: Any, chosen: NDArray[np.int64]) -> None:
    numbers = to_numbers(column)
    place[:] = numbers if len(chosen) == len(numbers) else numbers[chosen]


def _ahead(chunks: Iterator[NDArray[Any]]) -> Iterator[NDArray[Any]]:
    """Yield the chunks; a thread reads the next one while one is processed."""
    with ThreadPoolExecutor(1, "pairity-reader") as reader:
        with memory_for_reading():
            coming = reader.submit(next, chunks, None)
        while True:
            with memory_for_reading():
                chunk = coming.result()
            if chunk is None:
                return
            coming = reader.submit(next, chunks, None)
            yield chunk


def is_lack_of_memory(error: BaseException) -> bool:
    """Whether an error is one of those with which libraries report a lack of memory."""
    message = str(error)
    return isinstance(error, MemoryError) or any(
        words in message for words in ("bad_alloc", "bad_malloc", "new thread", "worker thread")
    )


@contextmanager
def memory_for_reading() -> Iterator[None]:
    """Raise `NoMemoryError` with a remedy if memory lacks for a block or for the reading thread."""
    try:
        yield
    except Exception as error:
        if isinstance(error, NoMemoryError) or not is_lack_of_memory(error):
            raise
        raise NoMemoryError(
            f"Memory ran out in reading Parquet files ({str(error)[:200]}). Besides about 100 "
            "bytes per row, two row groups are in memory: write the files with smaller row groups "
            f"(row_group_size). {LITTLE_MEMORY}"
        ) from error


# --- files ---------------------------------------------------------------------------------------


def list_files(path: Paths) -> list[str]:
    """Return Parquet files from a file, a folder, a pattern or a list of these, sorted by name."""
    names = [name for place in as_list(path) for name in _files_of(os.fspath(place))]
    if not names:
        raise InputError(f"There is no Parquet file in {path!r}. Pass files, or a folder of files.")
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise InputError(f"{name} is named {count} times. Pass every file once.")
    return names


def is_set_of_files(path: Any) -> bool:
    """Whether a path is a folder with Parquet files, or a pattern of file names."""
    name = os.fspath(path)
    return bool(os.path.isdir(name) and _files_of(name)) or (
        glob.has_magic(name) and not os.path.exists(name)
    )


def _files_of(name: str) -> list[str]:
    place = Path(name)
    if place.is_dir():
        inside = (file for end in ("parquet", "pq") for file in place.rglob(f"*.{end}"))
        return sorted(
            str(file) for file in inside
            if not any(part[0] in "._" for part in file.relative_to(place).parts)
        )  # fmt: skip
    if place.exists():
        return [name]
    matching = sorted(glob.glob(name)) if glob.has_magic(name) else []
    if not matching:
        raise InputError(f"{name} does not exist. Pass Parquet files, or a folder of files.")
    return matching


def open_parquet(path: str, **options: Any) -> Any:
    """Open pyarrow's reader of a file, which may be compressed with gzip."""
    pa = import_arrow()
    with open_binary(path) as content:
        compressed = isinstance(content.raw, GzipReader)
        source: Any = pa.BufferReader(content.read()) if compressed else path
    try:
        return pa.parquet.ParquetFile(source, **options)
    except (OSError, ValueError, pa.ArrowException) as error:
        if is_lack_of_memory(error):
            raise
        reason = str(error).partition("\n")[0]
        raise InputError(f"{path} is not a readable Parquet file: {reason}") from error


def describe_file(path: str) -> tuple[ParquetFile, Any]:
    """Return the description of a file, and its schema."""
    with open_parquet(path) as reader:
        metadata = reader.metadata
        sizes = tuple(metadata.row_group(k).num_rows for k in range(metadata.num_row_groups))
        return ParquetFile(path, sizes, _state(path)), reader.schema_arrow


def import_arrow() -> Any:
    """Import pyarrow with its Parquet module."""
    import_extra("pyarrow.parquet", "Reading Parquet", "parquet")
    return import_module("pyarrow")


@cache
def is_numeric(kind: Any) -> bool:
    """Whether a column of this Arrow type can be a feature."""
    types, kind = import_arrow().types, plain_type(kind)
    numbers = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    return any(is_kind(kind) for is_kind in numbers)


@cache
def is_text(kind: Any) -> bool:
    """Whether a column of this Arrow type holds text, or categories that are text."""
    types, kind = import_arrow().types, plain_type(kind)
    texts = (types.is_string, types.is_large_string, types.is_string_view)
    return any(is_kind(kind) for is_kind in texts)


def plain_type(kind: Any) -> Any:
    """Return the type of the values, for an Arrow type of categories; else the type itself."""
    return kind.value_type if hasattr(kind, "index_type") else kind


def to_numbers(column: Any) -> NDArray[Any]:
    """Return a column of numbers, NaN where missing."""
    pa = import_arrow()
    kind = plain_type(column.type)
    if not is_numeric(kind):
        raise NotNumbersError(f"A column of {kind} is not numeric. Encode it, or omit it.")
    if pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        kind = pa.float64()
    return np.asarray(column.cast(kind))


def to_column(column: Any) -> Column:
    """Return an Arrow column as an array.

    Booleans and integers without missing values keep their kind; other numbers are float64, NaN
    where missing. All else is objects, None where missing; equal texts are one object.
    """
    types = import_arrow().types
    kind = plain_type(column.type)
    if is_text(kind) or types.is_binary(kind):
        parts = []
        for chunk in (column if kind != column.type else column.dictionary_encode()).chunks:
            words = object_array([*chunk.dictionary.to_pylist(), None])
            codes = chunk.indices.cast("int64").fill_null(len(words) - 1)
            parts.append(words[codes.to_numpy(zero_copy_only=False)])
        return np.concatenate(parts or [object_array([])])
    column = column.cast(kind)
    large = types.is_uint64(kind) and (import_module("pyarrow.compute").max(column).as_py() or 0)
    if not is_numeric(kind) or large >= 2**63 or (types.is_boolean(kind) and column.null_count):
        return object_array(column.to_pylist())
    if types.is_boolean(kind):
        return np.asarray(column)
    integers = types.is_integer(kind) and not column.null_count
    return np.asarray(column.cast("int64" if integers else "float64"))


def _state(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns
