"""Tables from files: CSV, TSV, Parquet, Arrow and Feather, plain or compressed by gzip."""

from __future__ import annotations

import csv
import gzip
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from pairity.columns import Column, object_array, show
from pairity.exceptions import InputError, MissingExtraError

KINDS = {
    ".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".parquet": "parquet", ".pq": "parquet",
    ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow",
}  # fmt: skip
_DELIMITERS = {"csv": ",", "tsv": "\t"}
_GZIP = b"\x1f\x8b"
_LONGEST_FIELD = 1_000_000
_MISSING = ("", "NA", "NaN", "nan", "null", "None")

GUESSES = {
    "label": ("label", "relevance", "rel", "grade", "target", "y"),
    "query": ("qid", "query_id", "query", "queryid", "topic", "session_id", "srch_id", "user_id"),
    "group": ("group", "gender", "sex", "race", "ethnicity", "protected", "sensitive", "age_group"),
    "score": ("score", "prediction", "pred", "y_pred"),
}
"""What columns of a role are often called; offered where none is named, never taken."""


@dataclass(frozen=True, eq=False)
class Table:
    """Columns by name, in the order of the file.

    Attributes
    ----------
    path : str
    columns : dict from name to array of shape (n_rows,)
        Numbers are float64 (a missing one is NaN) or int64; all else objects, None where missing.
    """

    path: str
    columns: dict[str, Column]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values())))

    def __getitem__(self, name: str) -> Column:
        """A column."""
        return self.columns[name]

    def column_for(self, role: str, name: str | None, option: str | None = None) -> str:
        """The name of the column that plays a role, or an error that offers a likely one."""
        option = option or f"--{role}"
        if name is None:
            likely = self._likely(role)
            offer = f" Did you mean {option} {_quoted(likely)}?" if likely else ""
            raise InputError(
                f"{option} is missing: which column is the {role}?{offer} {self._there}"
            )
        if name not in self.columns:
            close = get_close_matches(name, self.columns, 1)
            meant = f" Did you mean {_quoted(close[0])}?" if close else ""
            raise InputError(f"{self.path} has no column {name!r} ({option}).{meant} {self._there}")
        return name

    def features(
        self, names: Sequence[str] | None, exclude: Sequence[str], taken: Sequence[str]
    ) -> tuple[np.ndarray[Any, np.dtype[np.float64]], tuple[str, ...]]:
        """The matrix of features and their names: those named, or all numbers not taken."""
        for name in (*(names or ()), *exclude):
            self.column_for("feature", name, "--features" if name in (names or ()) else "--exclude")
        chosen = list(names) if names else [n for n in self.columns if n not in taken]
        chosen = [name for name in chosen if name not in exclude]
        words = [name for name in chosen if self.columns[name].dtype.kind == "O"]
        if words:
            raise InputError(
                f"{_listed(words)} in {self.path} hold{'s' if len(words) == 1 else ''} words, not "
                f"numbers. Leave {'it' if len(words) == 1 else 'them'} out with "
                f"{' '.join(f'--exclude {_quoted(name)}' for name in words[:5])}"
                f"{' …' if len(words) > 5 else ''}, or turn {'it' if len(words) == 1 else 'them'} "
                "into numbers."
            )
        if not chosen:
            raise InputError(f"No column of {self.path} is left as a feature. {self._there}")
        matrix = np.column_stack([self.columns[name].astype(np.float64) for name in chosen])
        return matrix, tuple(chosen)

    def _likely(self, role: str) -> str | None:
        known = {name.lower(): name for name in self.columns}
        return next((known[guess] for guess in GUESSES.get(role, ()) if guess in known), None)

    @property
    def _there(self) -> str:
        return f"There are {_listed(list(self.columns))}."


def read_table(path: str | os.PathLike[str], kind: str | None = None) -> Table:
    """Read a table from a file.

    Parameters
    ----------
    path : path
    kind : {"csv", "tsv", "parquet", "arrow"}, optional
        By default told from the end of the file's name; ``.gz`` may follow.

    Returns
    -------
    Table

    Notes
    -----
    Text is UTF-8 with a header. A column whose every entry is a number is numbers; empty entries
    and NA, NaN, null and None are missing. Parquet and Arrow need pyarrow.
    """
    file = Path(path)
    if not file.is_file():
        raise InputError(f"{file} is {'a folder' if file.is_dir() else 'not there'}. Give a file.")
    kind = kind or _kind(file)
    if kind not in set(KINDS.values()):
        raise InputError(f"The format {kind!r} is not known. Choose csv, tsv, parquet or arrow.")
    try:
        with _opened(file) as source:
            if kind in _DELIMITERS:
                columns = _read_text(source, file, _DELIMITERS[kind])
            else:
                columns = _read_arrow(source, file, kind)
    except (OSError, EOFError, gzip.BadGzipFile) as error:
        raise InputError(f"{file} cannot be read: {error}.") from error
    if not columns or not len(next(iter(columns.values()))):
        raise InputError(f"{file} has no rows. Give a table with a header and at least one row.")
    return Table(str(file), columns)


def _kind(file: Path) -> str:
    endings = [ending.lower() for ending in file.suffixes]
    if endings and endings[-1] == ".gz":
        endings.pop()
    kind = KINDS.get(endings[-1]) if endings else None
    if kind is None:
        raise InputError(
            f"The format of {file} cannot be told from its name. Rename it to end in "
            f"{', '.join(KINDS)}, or say --input-format."
        )
    return kind


def _opened(file: Path) -> BinaryIO:
    with file.open("rb") as source:
        zipped = source.read(2) == _GZIP
    return gzip.open(file, "rb") if zipped else file.open("rb")  # type: ignore[return-value]


# --- text ----------------------------------------------------------------------------------------


def _read_text(source: BinaryIO, file: Path, delimiter: str) -> dict[str, Column]:
    csv.field_size_limit(_LONGEST_FIELD)
    with io.TextIOWrapper(source, encoding="utf-8-sig", newline="") as text:
        reader = csv.reader(text, delimiter=delimiter, strict=True)
        try:
            header = next(reader, [])
            _require_names(header, file)
            columns: list[list[str]] = [[] for _ in header]
            for row in reader:
                _add_row(columns, row, f"Line {reader.line_num} of {file}", delimiter)
        except csv.Error as error:
            raise InputError(
                f"Line {reader.line_num} of {file} cannot be read: {error}."
            ) from error
        except UnicodeDecodeError as error:
            raise InputError(
                f"{file} is not UTF-8 near line {reader.line_num + 1}: {error.reason}. Save it so."
            ) from error
    return {name: _typed(entries) for name, entries in zip(header, columns, strict=True)}


def _add_row(columns: list[list[str]], row: list[str], where: str, delimiter: str) -> None:
    if not row:
        return
    if len(row) != len(columns):
        raise InputError(
            f"{where} has {len(row)} entries, the header {len(columns)}. Is the delimiter "
            f"{delimiter!r}?"
        )
    for column, entry in zip(columns, row, strict=True):
        column.append(entry)


def _require_names(header: list[str], file: Path) -> None:
    if any(not name.strip() for name in header) or not header:
        raise InputError(f"{file} has a column without a name. Give every column one in line 1.")
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{file} has two columns named {show(twice)}. Rename one of them.")


def _typed(entries: list[str]) -> Column:
    """Whole numbers, numbers or words."""
    try:
        whole = np.array(entries, dtype=np.int64)
    except (ValueError, OverflowError):
        pass
    else:
        return whole
    try:
        return np.array([np.nan if e.strip() in _MISSING else float(e) for e in entries])
    except ValueError:
        return object_array([None if entry in _MISSING else entry for entry in entries])


# --- Arrow ---------------------------------------------------------------------------------------


def _read_arrow(source: BinaryIO, file: Path, kind: str) -> dict[str, Column]:
    try:
        pa, feather, parquet = (
            import_module(name) for name in ("pyarrow", "pyarrow.feather", "pyarrow.parquet")
        )
    except ImportError as error:
        raise MissingExtraError(
            f'Reading {kind} needs pyarrow. Install it with: pip install "pairity[parquet]"'
        ) from error
    try:
        data = pa.BufferReader(source.read())
        table = parquet.read_table(data) if kind == "parquet" else feather.read_table(data)
    except (pa.ArrowException, ValueError) as error:
        told = str(error).partition("\n")[0]
        raise InputError(f"{file} is not a readable {kind} file: {told}") from error
    _require_names(table.column_names, file)
    return {name: _from_arrow(table[name], pa) for name in table.column_names}


def _from_arrow(column: Any, pa: Any) -> Column:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if pa.types.is_integer(kind) and not column.null_count:
        return np.asarray(column.to_numpy(), dtype=np.int64)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return np.asarray(column.cast(pa.float64()).to_numpy(), dtype=np.float64)
    return object_array(column.to_pylist())


def _quoted(name: str | None) -> str:
    return f"'{name}'" if name and not name.replace("_", "").isalnum() else str(name)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(show(name) for name in names[:8])
    return f"{shown} and {len(names) - 8} more" if len(names) > 8 else shown
