"""LETOR and SVMlight files: ``label qid:7 1:0.5 2:3 … # comment``, one item per line."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pairity._utils.files import as_list, megabytes_read, open_binary, read_lines, require_file
from pairity._utils.progress import Progress, Show
from pairity._utils.threads import n_threads, run_all
from pairity._utils.typing import Array
from pairity._utils.validation import require_choice, require_count, show
from pairity.data import letor_kernels as kernels
from pairity.data.columns import Column, object_array
from pairity.data.features import Features
from pairity.data.queries import Queries
from pairity.exceptions import InputError

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
FirstIndex = Literal[0, 1, "auto"]

_BLOCK = 2**20  # bytes that each thread parses at a time
_LONGEST_LINE = 2**26  # bytes; a longer one is not text with one item per line
_BOM = b"\xef\xbb\xbf"  # the byte order mark of UTF-8


@dataclass(frozen=True, eq=False)
class LetorArrays:
    """The content of LETOR files.

    Attributes
    ----------
    X : float64 array or CSR array of shape (n_items, n_features)
    y : float64 array of shape (n_items,), the labels
    qid : int64 array of shape (n_items,), or None if no line has one
    n_rows : list of int, the number of items of each file
    """

    X: Features
    y: Array
    qid: NDArray[np.int64] | None
    n_rows: list[int]


def read_letor(
    paths: Paths,
    *,
    sensitive_features: Any = None,
    qid: Any = None,
    group: Any = None,
    **options: Any,
) -> Queries:
    r"""Read the queries of LETOR (SVMlight) files.

    Parameters
    ----------
    paths : path, or sequence of paths whose rows are joined
        Plain files or gzip files, recognised by their first bytes. A line is ``label qid:7 1:0.5
        4:2 # comment``; omitted features are 0. Line ends of Unix and Windows, blank lines and
        lines that contain only a comment are accepted.
    sensitive_features : column or table with one row per item, or path, optional
        The groups, as in `Queries.from_arrays`; or a text file with one group name per line, in
        which an empty line marks an unknown group.
    qid : column of shape (n_items,), optional
        Query ids, if the files have none.
    group : column of shape (n_queries,), or path, optional
        The number of rows of each query in order, as in LightGBM and its ``.query`` files, in
        place of query ids. If the files have query ids, both must agree.
    **options
        Those of `read_letor_arrays`: n_features, first_index, sparse, complete and progress.

    Returns
    -------
    Queries

    Notes
    -----
    Numbers are read exactly: each becomes the double that Python's ``float`` gives. NaN, infinity,
    and indices that repeat or decrease are errors. The text is read in blocks, so that the peak of
    memory is little more than the result.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from pairity.data import read_letor
    >>> text = "2 qid:1 1:0.5 3:1 # first\n0 qid:1 2:4\n1 qid:2 1:7\n"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "train.txt"
    ...     _ = path.write_text(text)
    ...     queries = read_letor(path, sensitive_features=["f", "m", "f"])
    >>> queries
    Queries(n_queries=2, n_items=3, n_features=3, groups=('f', 'm'), n_missing=0)
    >>> queries.X.tolist()
    [[0.5, 0.0, 1.0], [0.0, 4.0, 0.0], [7.0, 0.0, 0.0]]
    """
    arrays = read_letor_arrays(paths, **options)
    if arrays.qid is not None and qid is not None:
        raise InputError(f"{_joined(_paths(paths))} has query ids. Do not pass qid.")
    if arrays.qid is None and qid is None and group is None:
        raise InputError(
            f"{_joined(_paths(paths))} has no query ids (qid:…). Pass either qid, one per row, or "
            "group, the number of rows of each query."
        )
    if isinstance(group, str | os.PathLike):
        lines = [line for line in read_lines(group) if line]
        integers = [line.isascii() and line.isdigit() and len(line) < 16 for line in lines]
        group = [int(line) if ok else line for line, ok in zip(lines, integers, strict=True)]
    if isinstance(sensitive_features, str | os.PathLike):
        sensitive_features = object_array([name or None for name in read_lines(sensitive_features)])
    return Queries.from_arrays(
        arrays.X, arrays.y, qid=qid if arrays.qid is None else arrays.qid, group=group,
        sensitive_features=sensitive_features,
    )  # fmt: skip


def read_letor_arrays(
    paths: Paths,
    *,
    n_features: int | None = None,
    first_index: FirstIndex = 1,
    sparse: bool = False,
    complete: bool = False,
    progress: Show = "auto",
) -> LetorArrays:
    """Read LETOR (SVMlight) files as plain arrays.

    Parameters
    ----------
    paths : path, or sequence of paths
        As in `read_letor`.
    n_features : int, optional
        By default the largest index. Pass it if parts of one data set are read one by one and some
        may lack the last features.
    first_index : {1, 0, "auto"}
        The index of the first feature; "auto" means 0 if some line has the index 0, else 1.
    sparse : bool
        Whether X is a CSR array without zeros.
    complete : bool
        Whether a line that omits a feature is an error, which finds truncated files. It requires
        `n_features`.
    progress : {"auto"} or bool

    Returns
    -------
    LetorArrays
    """
    require_choice("first_index", first_index, (1, 0, "auto"))
    lowest = 0 if first_index == "auto" else int(first_index)
    highest = kernels.LARGEST_INDEX
    if n_features is not None:
        if require_count(n_features, "n_features") > kernels.LARGEST_INDEX:
            raise InputError(f"n_features must be from 1 to 2^31 - 1 (got {n_features}).")
        highest = int(n_features) if first_index == "auto" else int(n_features) + lowest - 1
    if complete and (n_features is None or first_index == "auto"):
        raise InputError("complete=True requires n_features, and first_index 0 or 1.")
    files = [require_file(path) for path in _paths(paths)]
    matrix = SparseMatrix() if sparse else DenseMatrix(lowest)
    table = _Table(matrix, (lowest, highest, complete))
    sizes = [path.stat().st_size >> 20 for path in files]  # megabytes
    ends = []
    with Progress(max(1, sum(sizes)), f"reading {files[0].name}", progress) as shown:
        for number, path in enumerate(files):
            for megabytes in _read_file(path, table):
                shown.advance(sum(sizes[:number]) + megabytes, f"MB, {table.n_rows:,} rows")
            ends.append(table.n_rows)
    if table.n_rows == 0:
        raise InputError(f"{_joined(files)} has no rows: every line is empty or a comment.")
    base = lowest
    if first_index == "auto":
        base = 0 if table.lowest == 0 else 1
        if n_features is not None and table.highest - base + 1 > n_features:
            raise InputError(
                f"{_joined(files)} has features from {table.lowest} to {table.highest}, more than "
                f"n_features={n_features}. Omit n_features, or correct it."
            )
    width = table.highest - base + 1 if n_features is None else int(n_features)
    if width < 1:
        raise InputError(f"{_joined(files)} has no features in any of its {table.n_rows} rows.")
    X = matrix.finish(table.n_rows, width, base)
    qid = np.concatenate(table.qids) if table.has_qid else None
    return LetorArrays(X, np.concatenate(table.labels), qid, np.diff(ends, prepend=0).tolist())


@dataclass(eq=False)
class _Table:
    """The rows that were read so far."""

    matrix: DenseMatrix | SparseMatrix
    bounds: tuple[int, int, bool]  # the least and largest index, and whether lines are complete
    labels: list[Array] = field(default_factory=list)
    qids: list[NDArray[np.int64]] = field(default_factory=list)
    n_rows: int = 0
    has_qid: int | None = None  # 1 or 0
    lowest: int = kernels.LARGEST_INDEX
    highest: int = -1

    def add(self, part: _Part) -> None:
        self.matrix.add(part)
        self.labels.append(part.labels.copy())
        if self.has_qid:
            self.qids.append(part.qids.copy())
        self.n_rows += len(part.labels)
        self.lowest, self.highest = min(self.lowest, part.lowest), max(self.highest, part.highest)


# --- reading -----------------------------------------------------------------------------------


class _Part(NamedTuple):
    """The rows of one block."""

    labels: Array
    qids: NDArray[np.int64]
    ends: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: Array
    status: int
    where: int
    has_qid: int
    first_row: int
    lowest: int
    highest: int


def _parse(bounds: tuple[int, int, bool], block: bytes) -> _Part:
    """Parse complete lines; a row has at least two bytes (``1⏎``), an entry four (`` 1:0``)."""
    n_rows, n_entries = len(block) // 2 + 1, len(block) // 4 + 1
    labels, values = np.empty(n_rows), np.empty(n_entries)
    qids, ends = np.empty((2, n_rows), np.int64)
    indices = np.empty(n_entries, np.int32)
    hard = np.empty((3, n_rows + n_entries), np.int64)  # entry, begin and end
    status, where, n_rows, n_entries, n_hard, *rest = kernels.parse_lines(
        np.frombuffer(block, np.uint8), *bounds, labels, qids, ends, indices, values, *hard
    )
    for entry, begin, end in hard[:, :n_hard].T.tolist():
        value = float(block[begin:end])
        if not np.isfinite(value):
            status = kernels.BAD_LABEL if entry < 0 else kernels.BAD_VALUE
            where = begin if entry < 0 else block.rindex(b":", 0, begin)
            break
        if entry < 0:
            labels[-1 - entry] = value
        else:
            values[entry] = value
    rows, entries = slice(n_rows), slice(n_entries)
    return _Part(
        labels[rows], qids[rows], ends[rows], indices[entries], values[entries], status, where,
        *rest,
    )  # fmt: skip


def _read_file(path: Path, table: _Table) -> Iterator[int]:
    """Add the rows of a file to the table; yield how many megabytes were read so far."""
    n_lines = 0
    with open_binary(path) as source:
        blocks = _blocks(source, path)
        while batch := list(islice(blocks, n_threads())):
            parts = run_all([partial(_parse, table.bounds, block) for block in batch])
            for part, block in zip(parts, batch, strict=True):
                if table.has_qid is None and part.first_row >= 0:
                    table.has_qid = part.has_qid
                if part.first_row >= 0 and part.has_qid != table.has_qid:
                    status = kernels.SOME_QID if part.has_qid else kernels.NO_QID
                    _refuse(path, block, n_lines, status, part.first_row, table.bounds)
                if part.status != kernels.FINE:
                    _refuse(path, block, n_lines, part.status, part.where, table.bounds)
                table.add(part)
                n_lines += block.count(b"\n")
            yield megabytes_read(source)


def _blocks(source: io.BufferedReader, path: Path) -> Iterator[bytes]:
    """Yield blocks of complete lines; a missing line feed at the end is added."""
    rest, n_lines = source.read(len(_BOM)).removeprefix(_BOM), 0
    while more := source.read(_BLOCK):
        end = more.rfind(b"\n") + 1
        if not end:
            rest += more
            if len(rest) > _LONGEST_LINE:
                raise InputError(
                    f"{path} has more than {_LONGEST_LINE >> 20} MiB without a line end after line "
                    f"{n_lines}. Check that it is a text file with one item per line."
                )
            continue
        block = rest + more[:end]
        n_lines += block.count(b"\n")
        yield block
        rest = more[end:]
    if rest:
        yield rest + b"\n"


_REASONS = {
    kernels.BAD_LABEL: "the label {word} is not a finite number",
    kernels.BAD_QID: "{word} is not a query id; write qid: and a whole number",
    kernels.LARGE_QID: "{word} is a query id above 2^63 - 1; renumber the queries",
    kernels.NO_QID: "the row has no query id (qid:…), but earlier rows have one; use all or none",
    kernels.SOME_QID: "the row has a query id, but earlier rows have none; use all or none",
    kernels.BAD_ENTRY: "{word} is not a feature; write index:value with a whole index",
    kernels.LARGE_INDEX: "the index of {word} is above {highest}, the largest that is allowed",
    kernels.LOW_INDEX: "the index of {word} is below 1; if features are counted from 0, read "
    "with first_index=0",
    kernels.REPEATED_INDEX: "the index of {word} appears twice in the row",
    kernels.FALLING_INDEX: "the index of {word} is below the previous one; indices must increase",
    kernels.BAD_VALUE: "the value of {word} is not a finite number",
    kernels.INCOMPLETE: "the row lacks some of the features from {lowest} to {highest}; check if "
    "the file is truncated",
}


def _refuse(
    path: Path, block: bytes, n_lines: int, status: int, where: int, bounds: tuple[int, int, bool]
) -> NoReturn:
    while status == kernels.BAD_VALUE and block[where - 1 : where].isdigit():
        where -= 1  # back from the colon to the index
    line = n_lines + block.count(b"\n", 0, where) + 1
    words = block[where : where + 200].split(b"\n")[0].split()
    word = show(words[0].decode("utf-8", "backslashreplace")) if words else "''"
    reason = _REASONS[status].format(word=word, lowest=bounds[0], highest=bounds[1])
    raise InputError(f"{path}, line {line}: {reason}.")


def _paths(paths: Paths) -> list[Path]:
    if not (several := as_list(paths)):
        raise InputError("There is no path to read. Pass at least one.")
    return [Path(path) for path in several]


def _joined(files: list[Path]) -> str:
    return str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"


# --- matrices that grow --------------------------------------------------------------------------

# Rows are collected in large chunks. The final matrix is filled chunk by chunk, and each chunk is
# freed as soon as it is copied, so that the peak of memory is little more than the matrix.
_CHUNK = 2**26  # bytes; the allocator returns so large an array to the system when it is freed
_MAX_CELLS_PER_ENTRY = 200  # of a dense matrix above _LARGE bytes; a sparser one is refused
_LARGE = 2**26  # bytes


class _Chunks:
    """Rows in large arrays, each with the number of its rows that are in use."""

    def __init__(self, dtype: Any) -> None:
        self._dtype = np.dtype(dtype)
        self._chunks: list[NDArray[Any]] = []
        self._used: list[int] = []

    def reserve(self, n_rows: int, *shape: int) -> NDArray[Any]:
        """Return room for further rows of some shape, filled with zeros."""
        full = not self._chunks or len(self._chunks[-1]) - self._used[-1] < n_rows
        if full or self._chunks[-1].shape[1:] != shape:
            room = max(n_rows, _CHUNK // (self._dtype.itemsize * int(np.prod(shape))) + 1)
            self._chunks.append(np.zeros((room, *shape), self._dtype))
            self._used.append(0)
        begin = self._used[-1]
        self._used[-1] += n_rows
        return self._chunks[-1][begin : begin + n_rows]

    def drain(self) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Yield the chunks with their rows, the last first; each is freed after its use."""
        end = sum(self._used)
        while self._chunks:
            used = self._used.pop()
            yield slice(end - used, end), self._chunks.pop()[:used]
            end -= used

    def column(self) -> Column:
        """Return all entries of a column."""
        column = np.empty(sum(self._used), self._dtype)
        for rows, chunk in self.drain():
            column[rows] = chunk
        return column


class DenseMatrix:
    """A dense matrix whose first feature has the index `lowest`."""

    def __init__(self, lowest: int) -> None:
        self._lowest, self._width = lowest, 1
        self._rows = _Chunks(np.float64)
        self._n_cells = self._n_entries = 0

    def add(self, part: Any) -> None:
        """Add the rows of a block."""
        self._width = width = max(part.highest - self._lowest + 1, self._width)
        n_rows = len(part.ends)
        self._n_entries += len(part.values)
        self._require_filled(n_rows * width)
        room = self._rows.reserve(n_rows, width)
        kernels.scatter(part.ends, part.indices, part.values, self._lowest, room)
        self._n_cells += n_rows * width

    def finish(self, n_rows: int, width: int, base: int) -> Features:
        """Return the matrix."""
        self._require_filled(n_rows * width - self._n_cells)
        X = np.zeros((n_rows, width))
        for rows, chunk in self._rows.drain():
            filled = chunk[:, base - self._lowest :]
            X[rows, : filled.shape[1]] = filled
        return X

    def _require_filled(self, n_further: int) -> None:
        n_cells = self._n_cells + n_further
        if n_cells > _LARGE // 8 and n_cells > _MAX_CELLS_PER_ENTRY * self._n_entries:
            raise InputError(
                f"X would be dense with {n_cells:.2g} cells for {self._n_entries:,} entries: the "
                "largest index is far above the number of entries. Read with sparse=True, or, if "
                "that index is a mistake, pass n_features to find it."
            )


class SparseMatrix:
    """A CSR matrix without zeros."""

    def __init__(self) -> None:
        self._indices, self._values = _Chunks(np.int32), _Chunks(np.float64)
        self._sizes: list[NDArray[np.int64]] = []

    def add(self, part: Any) -> None:
        """Add the rows of a block."""
        nonzero = part.values != 0.0
        self._sizes.append(np.diff(np.concatenate([[0], np.cumsum(nonzero)])[part.ends], prepend=0))
        for chunks, entries in ((self._indices, part.indices), (self._values, part.values)):
            chunks.reserve(int(nonzero.sum()))[:] = entries[nonzero]

    def finish(self, n_rows: int, width: int, base: int) -> Features:
        """Return the matrix."""
        bounds = np.concatenate([[0], np.cumsum(np.concatenate(self._sizes))])
        indices, values = self._indices.column(), self._values.column()
        indices -= np.int32(base)
        if bounds[-1] < 2**31:
            bounds = bounds.astype(np.int32)  # else SciPy converts the indices to 64 bits too
        return sp.csr_array((values, indices, bounds), shape=(n_rows, width))
