"""LETOR and SVMlight files: ``label qid:7 1:0.5 2:3 … # comment``, one item a line."""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, NoReturn

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pairity._utils.files import GZIP, GzipReader, read_lines
from pairity._utils.progress import Progress, Show
from pairity._utils.threads import n_threads, run_all
from pairity._utils.typing import Array
from pairity._utils.validation import show
from pairity.data import letor_kernels as kernels
from pairity.data.columns import Column, as_numbers, object_array
from pairity.data.features import Features
from pairity.data.queries import Queries
from pairity.exceptions import InputError

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
FirstIndex = Literal[0, 1, "auto"]

_BLOCK = 2**20  # bytes read at a time, for each thread
_LONGEST_LINE = 2**26
_CHUNK = 2**26  # bytes of a dense chunk; so large a one goes back to the system when it is freed
_THIN = 200  # a dense matrix with more cells for each entry is refused, if it is large at all
_LARGE = 2**26  # bytes
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, eq=False)
class LetorArrays:
    """What stands in LETOR files.

    Attributes
    ----------
    X : float64 array or CSR array of shape (n_items, n_features)
    y : float64 array of shape (n_items,), the labels
    qid : int64 array of shape (n_items,), or None where no line has one
    """

    X: Features
    y: Array
    qid: NDArray[np.int64] | None


def read_letor(
    paths: Paths,
    *,
    sensitive_features: Any = None,
    qid: Any = None,
    query_sizes: Any = None,
    n_features: int | None = None,
    first_index: FirstIndex = 1,
    sparse: bool = False,
    complete: bool = False,
    progress: Show = "auto",
) -> Queries:
    r"""Read the queries of LETOR (SVMlight) files.

    Parameters
    ----------
    paths : path, or several whose rows are joined
        Plain or compressed with gzip, told by its first bytes. A line is ``label qid:7 1:0.5 4:2
        # comment``; what is left out is 0. Line ends of either kind, blank lines and lines that
        are all comment are fine.
    sensitive_features : column or table with a row per item, or path, optional
        The groups, as `Queries.from_arrays` takes them; or a text file with one name per line, in
        which an empty line is a group that is not known.
    qid : column of shape (n_items,), optional
        Query ids, where the files have none.
    query_sizes : column of shape (n_queries,), or path, optional
        Where the files have no query ids: how many rows each query has, in order (LightGBM's
        ``.query`` files).
    n_features : int, optional
        By default the largest index there is. Give it where parts of one data set are read one
        by one and some may lack the last features.
    first_index : {1, 0, "auto"}
        What the first feature is called; "auto" counts from 0 where some line has the index 0.
    sparse : bool
        Whether X is a CSR array, which leaves out all zeros.
    complete : bool
        Whether a line that leaves out a feature is refused; that finds files that were cut off.
        It needs `n_features`.
    progress : {"auto"} or bool

    Returns
    -------
    Queries

    Notes
    -----
    Numbers are read exactly: each becomes the double that Python's ``float`` gives. NaN and
    infinity are refused, as are indices that repeat or fall. The text is read in blocks, so that
    the memory needed is that of the result and a little more.

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
    arrays = read_letor_arrays(
        paths, n_features=n_features, first_index=first_index, sparse=sparse, complete=complete,
        progress=progress,
    )  # fmt: skip
    names = ", ".join(str(path) for path in _paths(paths))
    given = [name for name, it in (("qid", qid), ("query_sizes", query_sizes)) if it is not None]
    if arrays.qid is not None:
        if given:
            raise InputError(f"{names} has query ids of its own. Leave out {' and '.join(given)}.")
        qid = arrays.qid
    elif len(given) != 1:
        raise InputError(
            f"{names} has no query ids (qid:…). Give either qid, one per row, or query_sizes, the "
            "number of rows of each query."
        )
    elif query_sizes is not None:
        qid = _ids_of_sizes(query_sizes, len(arrays.y))
    if isinstance(sensitive_features, str | os.PathLike):
        sensitive_features = _names_in(Path(sensitive_features))
    return Queries.from_arrays(
        arrays.X, arrays.y, qid=qid, sensitive_features=sensitive_features
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
    """Read LETOR (SVMlight) files as plain arrays; `read_letor` explains the parameters.

    Returns
    -------
    LetorArrays
    """
    arrays, _, _ = read_apart(
        paths, None, n_features=n_features, first_index=first_index, sparse=sparse,
        complete=complete, progress=progress,
    )  # fmt: skip
    return arrays


def read_apart(
    paths: Paths,
    apart: int | None,
    *,
    n_features: int | None = None,
    first_index: FirstIndex = 1,
    sparse: bool = False,
    complete: bool = False,
    progress: Show = "auto",
) -> tuple[LetorArrays, Array | None, list[int]]:
    """The arrays without the feature `apart`, that feature (dense only), and the rows of each file.

    It is taken out while the rows are put together, so that there is never a second matrix.
    """
    if first_index not in (0, 1, "auto"):
        raise InputError(f"first_index is {show(first_index)}; choose 1, 0 or 'auto'.")
    lowest = 0 if first_index == "auto" else int(first_index)
    highest = kernels.LARGEST_INDEX
    if n_features is not None:
        if isinstance(n_features, bool) or not isinstance(n_features, int | np.integer):
            raise InputError(f"n_features is {show(n_features)}; give a whole number.")
        if not 1 <= n_features <= kernels.LARGEST_INDEX:
            raise InputError(f"n_features is {n_features}; give a number from 1 to 2^31 - 1.")
        highest = int(n_features) if first_index == "auto" else int(n_features) + lowest - 1
    if complete and (n_features is None or first_index == "auto"):
        raise InputError("complete=True needs n_features, and first_index 0 or 1.")
    files = _paths(paths)
    matrix: _Dense | _Sparse = _Sparse() if sparse else _Dense(lowest)
    table = _Table(matrix, lowest, highest, complete)
    total = sum(_size(path) for path in files)
    before, ends = 0, []
    with Progress(max(1, total // 2**20), f"reading {files[0].name}", progress) as shown:
        for path in files:
            say = partial(_say, shown, before, table)
            _read_file(path, table, say)
            before += _size(path)
            ends.append(table.n_rows)
    if table.n_rows == 0:
        raise InputError(f"{_joined(files)} has no rows: every line is empty or a comment.")
    base = lowest
    if first_index == "auto":
        base = 0 if table.lowest == 0 else 1
        if n_features is not None and table.highest - base + 1 > n_features:
            raise InputError(
                f"{_joined(files)} has features from {table.lowest} to {table.highest}, more than "
                f"n_features={n_features}. Leave n_features out, or correct it."
            )
    width = int(n_features) if n_features is not None else table.highest - base + 1
    if width < 1:
        raise InputError(f"{_joined(files)} has no features in any of its {table.n_rows} rows.")
    X, column = matrix.finish(table.n_rows, width, base, apart)
    qid = np.concatenate(table.qids) if table.has_qid else None
    arrays = LetorArrays(X, np.concatenate(table.labels), qid)
    return arrays, column, np.diff(ends, prepend=0).tolist()


# --- putting rows together ---------------------------------------------------------------------


class _Dense:
    """Rows in large chunks, which are freed one by one as the whole matrix is filled."""

    def __init__(self, lowest: int) -> None:
        self._lowest = lowest
        self._chunks: list[Array] = []
        self._used: list[int] = []
        self._cells = self._entries = 0

    def add(self, part: _Part) -> None:
        width = max(part.highest - self._lowest + 1, 1)
        if self._chunks:
            width = max(width, self._chunks[-1].shape[1])
        n_rows = len(part.ends)
        self._entries += len(part.values)
        self._require_filled(n_rows * width)
        if (
            not self._chunks
            or self._chunks[-1].shape[1] < width
            or len(self._chunks[-1]) - self._used[-1] < n_rows
        ):
            room = max(n_rows, _CHUNK // (8 * width) + 1)
            self._chunks.append(np.zeros((room, width)))
            self._used.append(0)
        begin = self._used[-1]
        kernels.scatter(
            part.ends, part.indices, part.values, self._lowest,
            self._chunks[-1][begin : begin + n_rows],
        )  # fmt: skip
        self._used[-1] += n_rows
        self._cells += n_rows * width

    def finish(
        self, n_rows: int, width: int, base: int, apart: int | None
    ) -> tuple[Features, Array | None]:
        self._require_filled(n_rows * width - self._cells)
        without = width if apart is None else apart - base
        X = np.zeros((n_rows, width - (apart is not None)))
        column = None if apart is None else np.zeros(n_rows)
        end = n_rows
        while self._chunks:
            chunk, used = self._chunks.pop(), self._used.pop()
            filled = chunk[:used, base - self._lowest :]
            n, rows = filled.shape[1], slice(end - used, end)
            X[rows, : min(n, without)] = filled[:, :without]
            if column is not None and n > without:
                X[rows, without : n - 1] = filled[:, without + 1 :]
                column[rows] = filled[:, without]
            end -= used
            del chunk, filled
        return X, column

    def _require_filled(self, further: int) -> None:
        cells = self._cells + further
        if cells > _LARGE // 8 and cells > _THIN * self._entries:
            raise InputError(
                f"X would be dense with {cells:.2g} cells, for {self._entries:,} entries: the "
                "largest index is far above their number. Read with sparse=True, or, if that "
                "index is a mistake, give n_features to find it."
            )


class _Growing:
    """A column that grows by large chunks, freed one by one as the whole is filled."""

    def __init__(self, dtype: Any) -> None:
        self._dtype = np.dtype(dtype)
        self._chunks: list[Column] = []
        self._used: list[int] = []

    def add(self, values: Column) -> None:
        if not self._chunks or len(self._chunks[-1]) - self._used[-1] < len(values):
            room = max(len(values), _CHUNK // self._dtype.itemsize)
            self._chunks.append(np.empty(room, self._dtype))
            self._used.append(0)
        begin = self._used[-1]
        self._chunks[-1][begin : begin + len(values)] = values
        self._used[-1] += len(values)

    def finish(self) -> Column:
        end = sum(self._used)
        whole = np.empty(end, self._dtype)
        while self._chunks:
            chunk, used = self._chunks.pop(), self._used.pop()
            whole[end - used : end] = chunk[:used]
            end -= used
            del chunk
        return whole


class _Sparse:
    """Entries other than zero."""

    def __init__(self) -> None:
        self._indices, self._values = _Growing(np.int32), _Growing(np.float64)
        self._sizes: list[NDArray[np.int64]] = []

    def add(self, part: _Part) -> None:
        kept = part.values != 0.0
        until = np.concatenate([[0], np.cumsum(kept)])[part.ends]
        self._sizes.append(np.diff(until, prepend=0))
        self._indices.add(part.indices[kept])
        self._values.add(part.values[kept])

    def finish(
        self, n_rows: int, width: int, base: int, apart: int | None
    ) -> tuple[Features, Array | None]:
        assert apart is None  # noqa: S101 - only our own loaders ask, for dense features
        bounds = np.concatenate([[0], np.cumsum(np.concatenate(self._sizes))])
        indices, values = self._indices.finish(), self._values.finish()
        indices -= np.int32(base)
        if bounds[-1] < 2**31:
            bounds = bounds.astype(np.int32)  # else SciPy makes both of them 64 bits
        return sp.csr_array((values, indices, bounds), shape=(n_rows, width)), None


class _Table:
    """All that was read so far."""

    def __init__(self, matrix: _Dense | _Sparse, lowest: int, highest: int, complete: bool) -> None:
        self.matrix = matrix
        self.bounds = (lowest, highest, complete)
        self.labels: list[Array] = []
        self.qids: list[NDArray[np.int64]] = []
        self.n_rows = 0
        self.has_qid: bool | None = None
        self.lowest, self.highest = kernels.LARGEST_INDEX, -1

    def add(self, part: _Part) -> None:
        self.matrix.add(part)
        self.labels.append(part.labels.copy())
        if self.has_qid:
            self.qids.append(part.qids.copy())
        self.n_rows += len(part.labels)
        self.lowest, self.highest = min(self.lowest, part.lowest), max(self.highest, part.highest)


# --- reading -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Part:
    """The rows of one block, in arrays that the next block will overwrite."""

    labels: Array
    qids: NDArray[np.int64]
    ends: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: Array
    lowest: int
    highest: int
    has_qid: bool
    first_row: int
    status: int
    where: int


class _Workspace:
    """Arrays for one block: a row takes at least two bytes (``1⏎``), an entry four (`` 1:0``)."""

    def __init__(self) -> None:
        self._size = 0

    def parse(self, block: bytes, bounds: tuple[int, int, bool]) -> _Part:
        text = np.frombuffer(block, np.uint8)
        self._make_room(len(text))
        state = np.zeros(kernels.STATE_SIZE, np.int64)
        kernels.parse_lines(
            text, *bounds, self._labels, self._qids, self._ends, self._indices, self._values,
            *self._hard, state,
        )  # fmt: skip
        status, where = int(state[kernels.STATUS]), int(state[kernels.WHERE])
        for at in range(state[kernels.HARD]):
            entry, begin, end = (int(column[at]) for column in self._hard)
            value = float(block[begin:end])
            if not np.isfinite(value):
                status = kernels.BAD_LABEL if entry < 0 else kernels.BAD_VALUE
                where = begin if entry < 0 else block.rindex(b":", 0, begin)
                break
            if entry < 0:
                self._labels[-1 - entry] = value
            else:
                self._values[entry] = value
        n_rows, n_entries = int(state[kernels.ROWS]), int(state[kernels.ENTRIES])
        return _Part(
            labels=self._labels[:n_rows],
            qids=self._qids[:n_rows],
            ends=self._ends[:n_rows],
            indices=self._indices[:n_entries],
            values=self._values[:n_entries],
            lowest=int(state[kernels.LOWEST]),
            highest=int(state[kernels.HIGHEST]),
            has_qid=bool(state[kernels.HAS_QID] == 1),
            first_row=int(state[kernels.FIRST_ROW]),
            status=status,
            where=where,
        )

    def _make_room(self, size: int) -> None:
        if size <= self._size:
            return
        self._size = size
        n_rows, n_entries = size // 2 + 1, size // 4 + 1
        self._labels = np.empty(n_rows)
        self._qids, self._ends = (np.empty(n_rows, np.int64) for _ in range(2))
        self._indices, self._values = np.empty(n_entries, np.int32), np.empty(n_entries)
        entry, begin, end = (np.empty(n_rows + n_entries, np.int64) for _ in range(3))
        self._hard = (entry, begin, end)


def _read_file(path: Path, table: _Table, say: Callable[[int], None]) -> None:
    spaces = [_Workspace() for _ in range(n_threads())]
    n_lines = 0
    try:
        with path.open("rb") as raw:
            blocks = _blocks(raw, path)
            while batch := [block for _, block in zip(spaces, blocks, strict=False)]:
                tasks = [
                    partial(space.parse, block, table.bounds)
                    for space, block in zip(spaces, batch, strict=False)
                ]
                for part, block in zip(run_all(tasks), batch, strict=True):
                    if table.has_qid is None and part.first_row >= 0:
                        table.has_qid = part.has_qid
                    if part.first_row >= 0 and part.has_qid != table.has_qid:
                        status = kernels.SOME_QID if part.has_qid else kernels.NO_QID
                        _refuse(path, block, n_lines, status, part.first_row, table.bounds)
                    if part.status != kernels.FINE:
                        _refuse(path, block, n_lines, part.status, part.where, table.bounds)
                    table.add(part)
                    n_lines += block.count(b"\n")
                say(raw.tell())
    except (OSError, EOFError, zlib.error) as error:  # gzip has errors of all three kinds
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        after = f" after line {n_lines}" if n_lines else ""
        raise InputError(
            f"{path} cannot be read{after}: {said}. Check the path, and that the file is whole."
        ) from error


def _blocks(raw: BinaryIO, path: Path) -> Iterator[bytes]:
    """The bytes of a file in blocks of whole lines, the last line feed added where it lacks."""
    zipped = raw.read(2) == GZIP
    raw.seek(0)
    file = io.BufferedReader(GzipReader(raw, path), _BLOCK) if zipped else raw
    begun, n_lines = b"", 0
    first = True
    while more := file.read(_BLOCK):
        if first:
            more, first = more.removeprefix(_BOM), False
        end = more.rfind(b"\n") + 1
        if not end:
            begun += more
            if len(begun) > _LONGEST_LINE:
                raise InputError(
                    f"{path} has more than {_LONGEST_LINE >> 20} MiB without a line end, after "
                    f"line {n_lines}. Is it a text file, one item a line?"
                )
            continue
        block = begun + more[:end]
        n_lines += block.count(b"\n")
        yield block
        begun = more[end:]
    if begun:
        yield begun + b"\n"


_REASONS = {
    kernels.BAD_LABEL: "the label {word} is not a finite number",
    kernels.BAD_QID: "{word} is not a query id; write qid: and a whole number",
    kernels.LARGE_QID: "{word} is a query id above 2^63 - 1; number the queries anew",
    kernels.NO_QID: "the row has no query id (qid:…), but the rows before have; give all or none",
    kernels.SOME_QID: "the row has a query id, but the rows before have none; give all or none",
    kernels.BAD_ENTRY: "{word} is not a feature; write index:value, the index a whole number",
    kernels.LARGE_INDEX: "the index of {word} is above {highest}, the largest there may be",
    kernels.LOW_INDEX: "the index of {word} is below 1; if features count from 0, read with "
    "first_index=0",
    kernels.REPEATED_INDEX: "the index of {word} stands twice in the row",
    kernels.FALLING_INDEX: "the index of {word} is below the one before; indices must rise",
    kernels.BAD_VALUE: "the value of {word} is not a finite number",
    kernels.INCOMPLETE: "the row has not all features from {lowest} to {highest}; is the file cut "
    "off?",
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
    several = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not several:
        raise InputError("There is no path to read from. Give at least one.")
    return [Path(path) for path in several]


def _joined(files: list[Path]) -> str:
    return str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _say(shown: Progress, before: int, table: _Table, at: int) -> None:
    shown.advance((before + at) // 2**20, f"MB, {table.n_rows:,} rows")


# --- what stands beside the rows -----------------------------------------------------------------


def _names_in(path: Path) -> NDArray[np.object_]:
    return object_array([line or None for line in read_lines(path)])


def _ids_of_sizes(query_sizes: Any, n_rows: int) -> NDArray[np.int64]:
    if isinstance(query_sizes, str | os.PathLike):
        words = [line for line in read_lines(query_sizes) if line]
        bad = [word for word in words if not (word.isascii() and word.isdigit() and len(word) < 16)]
        if bad:
            raise InputError(f"{query_sizes} holds {show(bad[0])}; give one whole number a line.")
        query_sizes = [int(word) for word in words]
    sizes = as_numbers(query_sizes, "query_sizes")
    if (sizes < 0).any() or (sizes != np.floor(sizes)).any() or sizes.sum() != n_rows:
        raise InputError(
            f"query_sizes has {len(sizes)} entries that sum up to {sizes.sum():g}, but there are "
            f"{n_rows} rows. Give the number of rows of each query, in order."
        )
    return np.repeat(np.arange(len(sizes)), sizes.astype(np.int64))
