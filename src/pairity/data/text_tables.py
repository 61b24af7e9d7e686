"""CSV and TSV: columns from lines of text, in blocks, each column as numbers where it can be.

Large files without quotes are taken apart by compiled code; all others by Python's own reader. Both
give the same columns.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from pairity._utils.files import LONGEST_LINE, megabytes_read, open_binary, open_text, utf8_error
from pairity._utils.progress import Progress, Show
from pairity._utils.typing import Array
from pairity._utils.validation import show
from pairity.data.columns import Column, object_array
from pairity.exceptions import InputError

MOST_COLUMNS = 100_000
LARGE = 2**22  # bytes: a smaller file is read before the compiled code is there

_LONGEST_FIELD = 1_000_000
_BLOCK = 1024  # rows whose text is held at a time
_BYTES = 2**20  # the same for compiled code
_REMEMBERED = 50_000  # words of a column that are kept once however often they stand there
_MISSING = ("", "NA", "NaN", "nan", "null", "None")


def read_text(file: Path, delimiter: str, progress: Show) -> dict[str, Column]:
    """The columns of a text table, by name.

    What a column holds is known at its end only: where words come after blocks of numbers, the
    file is read once more, that column as words from its first row.
    """
    read = _read_compiled if file.stat().st_size >= LARGE else _read_rows
    words: set[int] = set()
    while True:
        try:
            header, columns = read(file, delimiter, words, progress)
        except _NotPlain:
            read = _read_rows
            continue
        late = {at for at, column in enumerate(columns) if column.late}
        if not late:
            return {name: c.finish() for name, c in zip(header, columns, strict=True)}
        words |= late


def require_names(header: Sequence[str], file: Path) -> None:
    """Refuse names of columns that are missing, double, or too many."""
    if len(header) > MOST_COLUMNS:
        raise InputError(
            f"{file} has {len(header):,} columns; there may be {MOST_COLUMNS:,}. Are rows and "
            "columns the right way round?"
        )
    if not header:
        raise InputError(f"{file} has no header: line 1 is empty. Give every column a name there.")
    if any(not name.strip() for name in header):
        raise InputError(f"{file} has a column without a name. Give every column one in line 1.")
    seen: set[str] = set()
    for name in header:
        if name in seen:
            raise InputError(f"{file} has two columns named {show(name)}. Rename one of them.")
        seen.add(name)


# --- Python's reader -----------------------------------------------------------------------------


def _read_rows(
    file: Path, delimiter: str, words: set[int], progress: Show
) -> tuple[list[str], list[_Growing]]:
    """By Python's reader, row by row."""
    with (
        open_text(file) as lines,
        _field_limit(),
        _shown(file, progress) as shown,
    ):
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        try:
            header = next(reader, [])
            require_names(header, file)
            columns = [_Growing(at in words) for at in range(len(header))]
            for rows in _blocks(reader, len(header), file, delimiter):
                for column, entries in zip(columns, zip(*rows, strict=True), strict=True):
                    column.add(entries)
                shown.advance(megabytes_read(lines.source), f"MB, {lines.number:,} lines")
        except csv.Error as error:
            raise InputError(f"Line {lines.number} of {file} cannot be read: {error}.") from error
    return header, columns


def _blocks(reader: Any, width: int, file: Path, delimiter: str) -> Iterator[list[list[str]]]:
    rows: list[list[str]] = []
    most = max(1, min(_BLOCK, 2**20 // width))
    for row in reader:
        if len(row) != width:
            if not row:
                continue
            raise InputError(_uneven(reader.line_num, file, len(row), width, delimiter))
        rows.append(row)
        if len(rows) == most:
            yield rows
            rows = []
    if rows:
        yield rows


def _uneven(line: int, file: Path, found: int, width: int, delimiter: str) -> str:
    return (
        f"Line {line} of {file} has {found} entries, the header {width}. Is the delimiter "
        f"{delimiter!r}?"
    )


@contextmanager
def _field_limit() -> Iterator[None]:
    before = csv.field_size_limit(_LONGEST_FIELD)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _shown(file: Path, progress: Show) -> Progress:
    return Progress(max(1, file.stat().st_size // 2**20), f"reading {file.name}", progress)


# --- compiled code -------------------------------------------------------------------------------


class _NotPlain(Exception):  # noqa: N818 - nobody's error
    """There are quotes, or other things that compiled code leaves to Python's reader."""


def _read_compiled(
    file: Path, delimiter: str, words: set[int], progress: Show
) -> tuple[list[str], list[_Growing]]:
    """By compiled code, block by block."""
    header: list[str] = []
    columns: list[_Growing] = []
    n_lines = 0
    with open_binary(file) as source, _shown(file, progress) as shown:
        for block in _plain_blocks(source):
            text, first = block, n_lines
            if not header:
                line, _, text = block.partition(b"\n")
                header = _decoded(line.removesuffix(b"\r"), file, 0).split(delimiter)
                require_names(header, file)
                columns = [_Growing(at in words) for at in range(len(header))]
                first = 1
            if text:
                _add_cells(columns, text, delimiter, file, first)
            n_lines += block.count(b"\n")
            shown.advance(megabytes_read(source), f"MB, {n_lines:,} lines")
    return header, columns


def _plain_blocks(source: IO[bytes]) -> Iterator[bytes]:
    """Whole lines, the last line feed added where it lacks."""
    begun, first = b"", True
    while more := source.read(_BYTES):
        if first:
            more, first = more.removeprefix(b"\xef\xbb\xbf"), False
        if b'"' in more or b"\x00" in more:
            raise _NotPlain
        end = more.rfind(b"\n") + 1
        if not end:
            begun += more
            if len(begun) > LONGEST_LINE:
                raise _NotPlain
            continue
        yield _unix(begun + more[:end])
        begun = more[end:]
    if begun:
        yield _unix(begun + b"\n")


def _unix(block: bytes) -> bytes:
    if b"\r" in block and block.count(b"\r") != block.count(b"\r\n"):
        raise _NotPlain
    return block


def _decoded(block: bytes, file: Path, n_lines: int) -> str:
    try:
        return block.decode()
    except UnicodeDecodeError as error:
        if block[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise _NotPlain from error
        raise utf8_error(file, n_lines, error) from error


def _add_cells(
    columns: list[_Growing], block: bytes, delimiter: str, file: Path, n_lines: int
) -> None:
    from pairity.data.cell_kernels import EMPTY, WHOLE, parse_cells

    width = len(columns)
    n_rows = block.count(b"\n")
    begins, ends = (np.empty((width, n_rows), np.int32) for _ in range(2))
    values, kinds = np.empty((width, n_rows)), np.empty((width, n_rows), np.uint8)
    n_rows, line, found = parse_cells(
        np.frombuffer(block, np.uint8), ord(delimiter), begins, ends, values, kinds
    )
    if found != width:
        raise InputError(_uneven(n_lines + line, file, found, width, delimiter))
    if n_rows == 0:
        return
    if int((ends - begins)[:, :n_rows].max()) > _LONGEST_FIELD:
        raise _NotPlain
    text = _decoded(block, file, n_lines)
    for at, column in enumerate(columns):
        kind = int(kinds[at, :n_rows].max())
        if kind <= EMPTY and not column.words:
            column.add_numbers(values[at, :n_rows], whole=kind == WHOLE)
        elif not column.late:
            cells = zip(begins[at, :n_rows].tolist(), ends[at, :n_rows].tolist(), strict=True)
            if len(text) == len(block):
                column.add([text[begin:end] for begin, end in cells])
            else:
                column.add([block[begin:end].decode() for begin, end in cells])


# --- columns -------------------------------------------------------------------------------------


class _Growing:
    """A column as it grows: whole numbers as long as it can be, then numbers, then words.

    Attributes
    ----------
    late : bool
        Whether words came after blocks that were kept as numbers.
    """

    def __init__(self, words: bool) -> None:
        self._kind = "words" if words else "whole"
        self._blocks: list[Column] = []
        self._shared: dict[str, str] = {}
        self.late = False

    @property
    def words(self) -> bool:
        """Whether it holds words, and nothing else from now on."""
        return self._kind == "words"

    def add_numbers(self, values: Array, *, whole: bool) -> None:
        """The next block of rows, read already; whole ones have at most 15 digits."""
        if self._kind == "whole" and not whole:
            self._kind = "numbers"
        self._blocks.append(values.astype(np.int64 if self._kind == "whole" else np.float64))

    def add(self, entries: Sequence[str]) -> None:
        """The next block of rows."""
        if self.late:
            return
        if self._kind == "whole":
            block = _whole_numbers(entries)
            if block is not None:
                self._blocks.append(block)
                return
            self._kind = "numbers"
        if self._kind == "numbers":
            block = _numbers(entries)
            if block is not None:
                self._blocks.append(block)
                return
            self._kind = "words"
            if self._blocks:
                self.late = True
                self._blocks.clear()
                return
        self._blocks.append(object_array(list(self._once(entries))))

    def _once(self, entries: Iterable[str]) -> Iterator[str | None]:
        """The words, equal ones as one object; None where they are missing."""
        shared = self._shared
        for entry in entries:
            known = shared.get(entry)
            if known is not None:
                yield known
            elif entry in _MISSING:
                yield None
            else:
                if len(shared) < _REMEMBERED:
                    shared[entry] = entry
                yield entry

    def finish(self) -> Column:
        """The whole column."""
        self._shared.clear()
        if not self._blocks:
            return np.empty(0)
        kind = np.float64 if self._kind == "numbers" else self._blocks[0].dtype
        column = np.concatenate(self._blocks, dtype=kind)
        self._blocks.clear()  # so that one column at a time is there twice
        return column


def _whole_numbers(entries: Sequence[str]) -> Column | None:
    try:
        numbers = np.array(list(map(int, entries)), dtype=np.int64)
    except (ValueError, OverflowError):
        return None
    return numbers if _is_plain(entries) else None


def _numbers(entries: Sequence[str]) -> Column | None:
    try:
        numbers = np.array(list(map(float, entries)))
    except ValueError:
        try:
            numbers = np.array([np.nan if e.strip() in _MISSING else float(e) for e in entries])
        except ValueError:
            return None
    if not _is_plain(entries) or ((np.abs(numbers) >= 2**63).any() and _has_ids(entries)):
        return None
    return numbers


def _is_plain(entries: Sequence[str]) -> bool:
    """Whether numbers are written as everybody writes them; Python takes 1_000 and ٣ as well."""
    joined = "".join(entries)
    return joined.isascii() and "_" not in joined


def _has_ids(entries: Sequence[str]) -> bool:
    """Whether some are whole numbers in digits, so large that float64 cannot tell them apart."""
    found = (entry.strip().lstrip("+-") for entry in entries)
    return any(entry.isdigit() and len(entry) > 18 and int(entry[:99]) >= 2**63 for entry in found)
