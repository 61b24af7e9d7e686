"""CSV and TSV tables: columns from text, read in blocks of rows.

Large files are split and converted by pyarrow where it is installed. Python's `csv` reads all other
files, and those that pyarrow may read differently. Both give the same columns.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from pairity._utils.files import megabytes_read, open_binary, open_text
from pairity._utils.progress import Progress, Show
from pairity._utils.validation import show
from pairity.data.columns import Column, object_array
from pairity.exceptions import InputError

MOST_COLUMNS = 100_000  # a table with more is most likely transposed
LARGE = 2**22  # bytes; `csv` reads a smaller file in about the time that importing pyarrow takes

_LONGEST_FIELD = 1_000_000  # characters
_BLOCK_ROWS = 1024  # rows that `csv` splits before they are converted
_BLOCK_CELLS = 2**20  # the same for tables of more than 1024 columns
_BLOCK_BYTES = 800_000  # bytes that pyarrow splits at a time; rows above 200 kB are left to `csv`
_SHARED_WORDS = 50_000  # different words of a column that are stored once each
_MISSING = ("", "NA", "NaN", "nan", "null", "None")


def read_text(file: Path, delimiter: str, progress: Show) -> dict[str, Column]:
    """Read the columns of a text table by name.

    The type of a column is known only at its end: if words follow blocks of numbers, the file is
    read again with that column as words from its first row on.
    """
    read = _arrow_blocks if file.stat().st_size >= LARGE else _csv_blocks
    words: set[int] = set()
    while True:
        try:
            with closing(read(file, delimiter, progress)) as blocks:
                header = next(blocks)
                require_names(header, file)
                columns = [_GrowingColumn(k in words) for k in range(len(header))]
                for block in blocks:
                    for column, cells in zip(columns, block, strict=True):
                        column.add(cells)
        except _NotPlainError:
            read = _csv_blocks
            continue
        late = {k for k, column in enumerate(columns) if column.late}
        if not late:
            return {name: c.finish() for name, c in zip(header, columns, strict=True)}
        words |= late


def require_names(header: Sequence[str], file: Path | str) -> None:
    """Refuse column names that are missing, repeated or too many."""
    if len(header) > MOST_COLUMNS:
        raise InputError(
            f"{file} has {len(header):,} columns, but at most {MOST_COLUMNS:,} are supported. "
            "Check that rows and columns are not transposed."
        )
    if not header:
        raise InputError(f"{file} has no header in line 1. Write the names of the columns there.")
    if not all(name.strip() for name in header):
        raise InputError(f"{file} has a column without a name. Name every column in line 1.")
    name, count = Counter(header).most_common(1)[0]
    if count > 1:
        raise InputError(f"{file} has {count} columns named {show(name)}. Rename all but one.")


class _GrowingColumn:
    """A column that grows by blocks: int64 while possible, then float64, then words.

    Attributes
    ----------
    late : bool
        Whether words followed blocks that were kept as numbers.
    """

    def __init__(self, words: bool) -> None:
        self._kind = 2 if words else 0
        self._blocks: list[Column] = []
        self._shared: dict[str, Any] = dict.fromkeys(_MISSING)
        self.late = False

    def add(self, cells: _Cells | _ArrowCells) -> None:
        """Add the next block of rows."""
        converters = (cells.integers, cells.numbers, partial(cells.words, self._shared))
        while not self.late:
            block = converters[self._kind]()
            if block is not None:
                self._blocks.append(block)
                return
            self._kind += 1
            self.late = self._kind == 2 and bool(self._blocks)

    def finish(self) -> Column:
        """Return the column, and free its blocks."""
        column = np.concatenate(self._blocks or [np.empty(0)])
        self._blocks.clear()
        return column


# --- the standard library's csv ------------------------------------------------------------------


class _Cells:
    """The entries of a column in one block of rows."""

    def __init__(self, entries: Sequence[str]) -> None:
        self._entries = entries

    def integers(self) -> Column | None:
        """Return the entries as int64, or None if one is not an integer of 64 bits."""
        try:
            numbers = np.array(list(map(int, self._entries)), dtype=np.int64)
        except (ValueError, OverflowError):
            return None
        return numbers if self._is_plain() else None

    def numbers(self) -> Column | None:
        """Return the entries as float64, NaN where missing, or None if one is not a number.

        An integer of more than 64 bits is not a number but an id: float64 would confuse such ids.
        """
        for convert in (float, _float_or_nan):
            try:
                numbers = np.array(list(map(convert, self._entries)))
            except ValueError:
                continue
            long_id = (np.abs(numbers) >= 2**63).any() and self._has_long_id()
            return numbers if self._is_plain() and not long_id else None
        return None

    def words(self, shared: dict[str, Any]) -> Column:
        """Return the entries as text, None where missing; equal ones are one object, `shared`."""
        known = shared.setdefault if len(shared) < _SHARED_WORDS else shared.get
        return object_array([known(entry, entry) for entry in self._entries])

    def _is_plain(self) -> bool:
        """Whether numbers are in the usual notation; Python also reads 1_000 and ٣."""
        joined = "".join(self._entries)
        return joined.isascii() and "_" not in joined

    def _has_long_id(self) -> bool:
        digits = (entry.strip().lstrip("+-") for entry in self._entries)
        return any(d.isdigit() and len(d) > 18 and int(d[:99]) >= 2**63 for d in digits)


def _float_or_nan(entry: str) -> float:
    return np.nan if entry.strip() in _MISSING else float(entry)


def _csv_blocks(file: Path, delimiter: str, progress: Show) -> Generator[Any]:
    """Yield the header, then the cells of each column, block by block."""
    limit = csv.field_size_limit(_LONGEST_FIELD)
    try:
        with open_text(file) as lines, _reading(file, progress) as shown:
            reader = csv.reader(lines, delimiter=delimiter, strict=True)
            header = next(reader, [])
            yield header
            most = max(1, min(_BLOCK_ROWS, _BLOCK_CELLS // len(header)))
            rows = _rows(reader, len(header), f"of {file}", delimiter)
            while block := list(islice(rows, most)):
                yield map(_Cells, zip(*block, strict=True))
                shown.advance(megabytes_read(lines.source), "MB")
    except csv.Error as error:
        raise InputError(f"Line {lines.number} of {file} cannot be read: {error}.") from error
    finally:
        csv.field_size_limit(limit)


def _rows(reader: Any, width: int, place: str, delimiter: str) -> Iterator[list[str]]:
    """Yield the rows that are not empty, which must have as many entries as the header."""
    for row in filter(None, reader):
        if len(row) != width:
            raise InputError(
                f"Line {reader.line_num} {place} has {len(row)} entries, but the header has "
                f"{width}. Is the delimiter {delimiter!r}?"
            )
        yield row


def _reading(file: Path, progress: Show) -> Progress:
    return Progress(max(1, file.stat().st_size // 2**20), f"reading {file.name}", progress)


# --- pyarrow -------------------------------------------------------------------------------------


class _NotPlainError(Exception):
    """The file must be read by `csv`: pyarrow is missing, or may read it differently."""


class _ArrowCells:
    """The same as `_Cells`, for a pyarrow array of text or of float64.

    Attributes
    ----------
    floats : Column, or None
        The entries as float64 if pyarrow converted them as Python would.
    """

    def __init__(self, array: Any) -> None:
        self._array = array
        self.floats = _as_floats(array) if str(array.type) == "double" else None

    def integers(self) -> Column | None:
        compute = import_module("pyarrow.compute")
        hexadecimal = (compute.starts_with(self._array, prefix) for prefix in ("0x", "0X"))
        if not any(compute.any(entries).as_py() for entries in hexadecimal):
            with suppress(ValueError):  # pyarrow.ArrowInvalid
                return np.asarray(self._array.cast("int64"))
        return _Cells(self._array.to_pylist()).integers()

    def numbers(self) -> Column | None:
        if self.floats is None:
            self.floats = _as_floats(self._array)
        if self.floats is None:
            compute = import_module("pyarrow.compute")
            missing = compute.is_in(self._array, import_module("pyarrow").array(_MISSING))
            self.floats = _as_floats(compute.if_else(missing, None, self._array))
        if self.floats is None:
            return _Cells(self._array.to_pylist()).numbers()
        return self.floats

    def words(self, shared: dict[str, Any]) -> Column:
        coded = self._array.dictionary_encode()
        words = _Cells(coded.dictionary.to_numpy(zero_copy_only=False).tolist()).words(shared)
        return np.asarray(words[coded.indices.to_numpy()])


def _as_floats(array: Any) -> Column | None:
    """Return float64, or None if Python might read an entry differently: nan(1), or a long id."""
    try:
        array = array.cast("float64")
    except ValueError:  # pyarrow.ArrowInvalid
        return None
    floats = np.asarray(array.to_numpy(zero_copy_only=False))
    unusual = np.isnan(floats).sum() > array.null_count or (np.abs(floats) >= 2**63).any()
    return None if unusual else floats


def _arrow_blocks(file: Path, delimiter: str, progress: Show) -> Generator[Any]:
    """Yield the same as `_csv_blocks`; columns of float64 are converted while they are split."""
    try:
        pa, reader = import_module("pyarrow"), import_module("pyarrow.csv")
    except ImportError as error:
        raise _NotPlainError from error
    with closing(_csv_blocks(file, delimiter, False)) as blocks:
        header = next(blocks)
    yield header
    names = [str(k) for k in range(len(header))]
    read = reader.ReadOptions(
        use_threads=False, block_size=2 * _LONGEST_FIELD, column_names=names,
        skip_rows_after_names=1,
    )  # fmt: skip
    parse = reader.ParseOptions(delimiter=delimiter, newlines_in_values=True)

    def split(block: bytes, floats: Sequence[bool]) -> list[_ArrowCells] | None:
        """Return the columns, or None if an entry cannot be read as the type of its column."""
        types = (pa.float64() if is_float else pa.string() for is_float in floats)
        convert = reader.ConvertOptions(
            column_types=dict(zip(names, types, strict=True)), null_values=_MISSING
        )
        try:
            table = reader.read_csv(pa.BufferReader(block), read, parse, convert)
        except pa.ArrowInvalid:
            return None
        cells = [_ArrowCells(column.combine_chunks()) for column in table.columns]
        suitable = (c.floats is not None or not f for c, f in zip(cells, floats, strict=True))
        return cells if all(suitable) else None

    text = floats = [False] * len(header)
    with open_binary(file) as source, _reading(file, progress) as shown:
        for block in _plain_blocks(source, delimiter):
            cells = split(block, floats) or split(block, text)
            if cells is None:
                raise _NotPlainError
            yield cells
            floats = [column.floats is not None for column in cells]
            read.skip_rows_after_names = 0
            shown.advance(megabytes_read(source), "MB")


def _plain_blocks(source: Any, delimiter: str) -> Generator[bytes]:
    """Yield blocks of complete rows in which quotes enclose complete fields only."""
    edge = b"[\r\n%b]" % re.escape(delimiter.encode())
    quoted = re.compile(b'"(?:(?<=^.)|(?<=%b.))[^"]*+(?:""[^"]*+)*+"(?=%b)' % (edge, edge))
    rest, more = source.read(3).removeprefix(b"\xef\xbb\xbf"), b"more"
    while more:
        more = source.read(_BLOCK_BYTES)
        block = rest + (more or b"\n")
        end = block.rfind(b"\n") + 1
        if b'"' in block:
            text = np.frombuffer(block, np.uint8)
            outside = ~np.logical_xor.accumulate(text == ord('"'))
            end = int(np.flatnonzero(outside & (text == ord("\n"))).max(initial=-1)) + 1
            end = end if more else len(block)
            if b'"' in quoted.sub(b"", block[:end]):
                raise _NotPlainError
        block, rest = block[:end], block[end:]
        if max(len(block), len(rest)) > _LONGEST_FIELD:
            raise _NotPlainError
        if block.strip(b"\r\n"):
            yield block
