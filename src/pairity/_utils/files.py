"""Files: reading with gzip decompression and size limits, and atomic writing."""

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

LONGEST_LINE = 2**24  # characters; the longest lines of LETOR data have some thousands
GZIP = b"\x1f\x8b"  # the first bytes of a gzip file

# A compressed file may expand to 64 MiB, and a larger one to 200 times its size. Real tables
# seldom reach 50 times.
_FREE_BYTES = 2**26
_MAX_RATIO = 200

FilePath = str | os.PathLike[str]


# --- reading -------------------------------------------------------------------------------------


def as_list(values: Any) -> list[Any]:
    """A list of one text or path, or of several; empty for None."""
    if values is None:
        return []
    return [values] if isinstance(values, str | os.PathLike) else list(values)


def require_file(path: FilePath) -> Path:
    """Return the path of a regular file that exists."""
    file = Path(path)
    try:
        if file.is_file():
            return file
        kind = "a folder" if file.is_dir() else "not a regular file"
        wrong = f"is {kind}" if file.exists() else "does not exist"
    except (OSError, ValueError) as error:  # such as a name that is too long or contains NUL
        raise InputError(f"{str(path)[:200]!r} is not a valid file name: {error}.") from error
    raise InputError(f"{file} {wrong}. Pass the path of a file.")


@contextmanager
def open_binary(path: FilePath) -> Iterator[io.BufferedReader]:
    """Open a file for reading, and decompress it while it is read if it starts like a gzip file.

    A file that cannot be opened or decompressed is an `InputError`. So is a compressed file that
    expands to more than 64 MiB and 200 times its size: it is probably damaged, or meant to exhaust
    memory.
    """
    file = require_file(path)
    try:
        with file.open("rb") as raw:
            compressed = raw.read(2) == GZIP
            raw.seek(0)
            yield io.BufferedReader(GzipReader(raw, file), 2**18) if compressed else raw
    except (OSError, EOFError, zlib.error) as error:  # gzip raises all three
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{file} cannot be read: {reason}. Check if it is complete.") from error


def megabytes_read(source: io.BufferedReader) -> int:
    """How many megabytes of a file were read so far, before decompression."""
    raw: Any = source.raw
    return int(raw.on_disk() if isinstance(raw, GzipReader) else raw.tell()) // 2**20


class GzipReader(io.RawIOBase):
    """The content of a gzip file, up to a multiple of the file's size."""

    def __init__(self, raw: IO[bytes], file: Path) -> None:
        self.on_disk = raw.tell
        self._source = gzip.GzipFile(fileobj=raw)
        self._file = file
        self._limit = max(_FREE_BYTES, _MAX_RATIO * os.fstat(raw.fileno()).st_size)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes into a buffer."""
        size = self._source.readinto(buffer)
        if self._source.tell() > self._limit:
            raise InputError(
                f"{self._file} expands to more than {_MAX_RATIO} times its size. If this is "
                "intended, decompress it first (gunzip) and pass the plain file."
            )
        return size


@contextmanager
def open_text(path: FilePath) -> Iterator[LineReader]:
    """Open a text file in UTF-8, compressed or not, with or without a byte order mark.

    Bytes that are not UTF-8 and lines that are too long are an `InputError` with the line number.
    """
    with open_binary(path) as source:
        if source.peek(2)[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise InputError(f"{path} is UTF-16. Save it as UTF-8.")
        text = io.TextIOWrapper(source, encoding="utf-8-sig", newline="")
        lines = LineReader(text, path, source)
        try:
            yield lines
        except UnicodeDecodeError as error:
            line = lines.number + 1 + error.object[: error.start].count(b"\n")
            raise InputError(
                f"Line {line} of {path} is not UTF-8: {error.reason}. Save it as UTF-8."
            ) from error
        finally:
            text.detach()


class LineReader(Iterator[str]):
    """The lines of a text, with their ends and a limit on their length; `number` counts them."""

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
                "characters. Pass a text file with one row per line."
            )
        return line


def read_lines(path: FilePath) -> list[str]:
    """Return all lines of a text file, without surrounding white space."""
    with open_text(path) as lines:
        return [line.strip() for line in lines]


# --- writing -------------------------------------------------------------------------------------


def require_output_file(file: Path) -> None:
    """Refuse the path of a folder, and a path in a folder that does not exist."""
    if file.is_dir():
        raise InputError(f"{str(file)!r} is a folder. Pass the path of a file.")
    if not file.parent.is_dir():
        raise InputError(f"{str(file.parent)!r} is not a folder. Pass a file in an existing one.")


@contextmanager
def atomic_write(path: FilePath) -> Iterator[IO[bytes]]:
    """Open a file for writing that replaces an existing one only when it is complete.

    After an error, or Ctrl-C, the existing file is unchanged. A path that cannot be written to is
    an `InputError`.
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
            f"{str(file)!r} cannot be written: {error.strerror or error}. An existing file is "
            "unchanged. Free some space, or pass another path."
        ) from error
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def write_file(path: FilePath, content: bytes) -> None:
    """Write a file as `atomic_write` does."""
    with atomic_write(path) as file:
        file.write(content)
