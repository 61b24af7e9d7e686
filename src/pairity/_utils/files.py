"""Files as the rest sees them: gzip undone and limits kept when reading, whole when written."""

from __future__ import annotations

import gzip
import io
import os
import secrets
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from pairity.exceptions import InputError

LONGEST_LINE = 2**24  # letters
GZIP = b"\x1f\x8b"

_LITTLE = 2**26  # bytes: what any compressed file may unpack to
_MOST_TIMES = 200  # and how many times its own size a larger one; tables seldom reach 50

FilePath = str | os.PathLike[str]


# --- reading -------------------------------------------------------------------------------------


def require_file(path: FilePath) -> Path:
    """The path of a file that is there."""
    file = Path(path)
    try:
        if file.is_file():
            return file
        wrong = "a folder" if file.is_dir() else "no plain file" if file.exists() else "not there"
    except (OSError, ValueError) as error:  # such as a name that is too long, or holds a NUL
        raise InputError(f"{str(path)[:200]!r} is no name of a file: {error}.") from error
    raise InputError(f"{file} is {wrong}. Give a file.")


@contextmanager
def open_binary(path: FilePath) -> Iterator[io.BufferedReader]:
    """The bytes of a file; one that begins as gzip files do is unpacked as it is read.

    What cannot be opened or unpacked is an `InputError`. A compressed file that unpacks to more
    than 64 MiB and 200 times its own size is refused: it is more likely broken, or meant to fill
    the memory, than a table.
    """
    file = require_file(path)
    try:
        with file.open("rb") as raw:
            zipped = raw.read(2) == GZIP
            raw.seek(0)
            yield io.BufferedReader(GzipReader(raw, file), 2**18) if zipped else raw
    except (OSError, EOFError, zlib.error) as error:  # gzip has errors of all three kinds
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"{file} cannot be read: {said}. Is the file whole?") from error


def megabytes_read(source: io.BufferedReader) -> int:
    """How much of a file was read so far, as it lies on the disk."""
    raw: Any = source.raw
    return int(raw.on_disk() if isinstance(raw, GzipReader) else raw.tell()) // 2**20


class GzipReader(io.RawIOBase):
    """What a gzip file holds; stops where that grows out of all proportion."""

    def __init__(self, raw: IO[bytes], file: Path) -> None:
        self.on_disk = raw.tell
        self._source = gzip.GzipFile(fileobj=raw)
        self._file = file
        self._most = max(_LITTLE, _MOST_TIMES * os.fstat(raw.fileno()).st_size)
        self._done = 0

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """The next bytes."""
        piece = self._source.read(len(buffer))
        self._done += len(piece)
        if self._done > self._most:
            raise InputError(
                f"{self._file} unpacks to more than {_MOST_TIMES} times its size. If that is "
                "right, unpack it first (gunzip), and give the plain file."
            )
        buffer[: len(piece)] = piece
        return len(piece)


@contextmanager
def open_text(path: FilePath) -> Iterator[LineReader]:
    """The lines of a text file in UTF-8, plain or compressed, with or without a mark at its start.

    Bytes that are no UTF-8 and lines that never end are an `InputError` that says where.
    """
    with open_binary(path) as source:
        if source.peek(2)[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise InputError(f"{path} is UTF-16. Save it as UTF-8.")
        text = io.TextIOWrapper(source, encoding="utf-8-sig", newline="")
        lines = LineReader(text, path, source)
        try:
            yield lines
        except UnicodeDecodeError as error:
            raise utf8_error(path, lines.number, error) from error
        finally:
            text.detach()


def utf8_error(path: FilePath, n_lines: int, error: UnicodeDecodeError) -> InputError:
    """The error where a block of bytes that begins after so many lines is not UTF-8."""
    line = n_lines + 1 + error.object[: error.start].count(b"\n")
    return InputError(f"Line {line} of {path} is not UTF-8: {error.reason}. Save it as UTF-8.")


class LineReader(Iterator[str]):
    """The lines of a text, with their ends, none longer than can be; `number` counts them."""

    def __init__(self, text: io.TextIOWrapper, path: FilePath, source: io.BufferedReader) -> None:
        self._text, self._path = text, path
        self.source = source
        self.number = 0

    def __next__(self) -> str:
        line = self._text.readline(LONGEST_LINE)
        if not line:
            raise StopIteration
        self.number += 1
        if len(line) == LONGEST_LINE and line[-1] not in "\r\n":
            raise InputError(
                f"Line {self.number} of {self._path} has more than {LONGEST_LINE >> 20} million "
                "letters. Is it a text file with one row a line?"
            )
        return line


def read_lines(path: FilePath) -> list[str]:
    """All lines of a text file, without blanks around them."""
    with open_text(path) as lines:
        return [line.strip() for line in lines]


# --- writing -------------------------------------------------------------------------------------


def require_output_file(file: Path) -> None:
    """Refuse the path of a folder, and one in a folder that is not there."""
    if file.is_dir() or not file.parent.is_dir():
        wrong = f"{str(file)!r} is a" if file.is_dir() else f"{str(file.parent)!r} is no"
        raise InputError(f"{wrong} folder. Give the path of a file, in a folder that is there.")


@contextmanager
def atomic_write(path: FilePath) -> Iterator[IO[bytes]]:
    """A file that takes its name when it is complete; an error, or Ctrl-C, leaves what was there.

    A place that cannot be written to is an `InputError`.
    """
    file = Path(path)
    require_output_file(file)
    unfinished = file.with_name(f".{file.name[:100]}.{secrets.token_hex(4)}.unfinished")
    try:
        with unfinished.open("xb") as target:
            yield target
        unfinished.replace(file)
    except OSError as error:
        raise InputError(
            f"{str(file)!r} cannot be written: {error.strerror or error}. What was there before is "
            "as it was."
        ) from error
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
