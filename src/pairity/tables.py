"""Tables from files: CSV, TSV, Parquet, Arrow, Feather and LETOR, plain or compressed by gzip."""

from __future__ import annotations

import csv
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairity.columns import Column, object_array, show
from pairity.exceptions import InputError, MissingExtraError
from pairity.files import opened, opened_text, require_file
from pairity.progress import Progress, Show

KINDS = {
    ".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".parquet": "parquet", ".pq": "parquet",
    ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow", ".letor": "letor", ".svm": "letor",
    ".svmlight": "letor", ".libsvm": "letor",
}  # fmt: skip
MOST_COLUMNS = 100_000

_DELIMITERS = {"csv": ",", "tsv": "\t"}
_LONGEST_FIELD = 1_000_000
_BLOCK = 1024  # rows whose text is held at a time
_REMEMBERED = 50_000  # words of a column that are kept once however often they stand there
_MISSING = ("", "NA", "NaN", "nan", "null", "None")
_LETOR = re.compile(r"\s*[-+.\deE]+\s+(qid:\d+\s+)?\d+:\S")
_LITTLE = 2**30  # bytes: what any Parquet or Arrow file may hold
_MOST_TIMES = 1000  # and how many times its own size a larger one

GUESSES = {
    "label": ("label", "relevance", "rel", "grade", "target", "y", "clicked", "click", "hired"),
    "query": (
        "qid", "query_id", "query", "queryid", "search_id", "topic", "session_id", "srch_id",
        "search", "user_id",
    ),
    "group": ("group", "gender", "sex", "race", "ethnicity", "protected", "sensitive", "age_group"),
    "score": ("score", "model_score", "prediction", "predicted", "pred", "y_pred"),
}  # fmt: skip
"""What columns of a role are often called; offered where none is named, never taken."""


@dataclass(frozen=True, eq=False)
class Table:
    """Columns by name, in the order of the file.

    Attributes
    ----------
    path : str
    columns : dict from name to array of shape (n_rows,)
        Numbers are float64 (a missing one is NaN), int64 or bool; all else objects, None where
        missing.
    roles : mapping from role to name
        What the file's format itself says: in LETOR files the label and the query.
    zeros : bool
        Whether a column that is not there is all zeros, as in LETOR files.
    """

    path: str
    columns: dict[str, Column]
    roles: Mapping[str, str] = field(default_factory=dict)
    zeros: bool = False

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values())))

    def __getitem__(self, name: str) -> Column:
        """A column."""
        return self.columns[name]

    def likely(self, role: str) -> str | None:
        """The column whose name is one that columns of the role often have."""
        known = {name.lower(): name for name in self.columns}
        return next((known[guess] for guess in GUESSES.get(role, ()) if guess in known), None)

    def column_for(self, role: str, name: str | None, option: str | None = None) -> str:
        """The name of the column that plays a role, or an error that offers a likely one."""
        option = option or f"--{role}"
        if name is None and role in self.roles:
            return self.roles[role]
        if name is None:
            likely = self.likely(role)
            offer = f" Did you mean {option} {shlex.quote(likely)}?" if likely else ""
            raise InputError(
                f"{option} is missing: which column is the {role}?{offer} {self._there}"
            )
        if name not in self.columns:
            close = get_close_matches(name, self.columns, 1)
            meant = f" Did you mean {shlex.quote(close[0])}?" if close else ""
            raise InputError(f"{self.path} has no column {name!r} ({option}).{meant} {self._there}")
        return name

    def features(
        self, names: Sequence[str] | None, exclude: Sequence[str], taken: Sequence[str]
    ) -> tuple[NDArray[np.float64], tuple[str, ...]]:
        """The matrix of features and their names: those named, or all numbers not taken."""
        for name in (*(names or ()), *exclude):
            if not (self.zeros and name.isdigit()):
                self.column_for(
                    "feature", name, "--features" if name in (names or ()) else "--exclude"
                )
        taken = [*taken, *self.roles.values()]
        chosen = list(names) if names else [n for n in self.columns if n not in taken]
        chosen = [name for name in chosen if name not in exclude]
        words = [n for n in chosen if n in self.columns and self.columns[n].dtype.kind == "O"]
        if words:
            it = "it" if len(words) == 1 else "them"
            raise InputError(
                f"{_listed(words)} in {self.path} hold{'s' if it == 'it' else ''} words, not "
                f"numbers. Leave {it} out with --exclude {shlex.join(words[:5])}"
                f"{' …' if len(words) > 5 else ''}, or turn {it} into numbers."
            )
        if not chosen:
            raise InputError(f"No column of {self.path} is left as a feature. {self._there}")
        matrix = np.zeros((self.n_rows, len(chosen)))
        for at, name in enumerate(chosen):
            if name in self.columns:
                matrix[:, at] = self.columns[name]
        return matrix, tuple(chosen)

    @property
    def _there(self) -> str:
        return f"There are {_listed(list(self.columns))}."


def read_table(
    path: str | os.PathLike[str], kind: str | None = None, *, progress: Show = "auto"
) -> Table:
    """Read a table from a file.

    Parameters
    ----------
    path : path
    kind : {"csv", "tsv", "parquet", "arrow", "letor"}, optional
        By default told from the end of the file's name; ``.gz`` may follow.
    progress : {"auto"} or bool

    Returns
    -------
    Table

    Notes
    -----
    Text is UTF-8 with a header. A column whose every entry is a number is numbers; empty entries
    and NA, NaN, null and None are missing; whole numbers beyond 64 bits are words, so that long
    ids stay apart. It is read in blocks of rows, so that the memory needed is that of the columns
    and a little more. Parquet and Arrow need pyarrow. The columns of a LETOR file are called label,
    qid, and by the numbers of its features.
    """
    file = require_file(path)
    kind = kind or _kind(file)
    if kind not in set(KINDS.values()):
        known = ", ".join(dict.fromkeys(KINDS.values()))
        raise InputError(f"The format {kind!r} is not known. Choose one of {known}.")
    if kind == "letor":
        return _read_letor(file, progress)
    if kind in _DELIMITERS:
        columns = _read_text(file, _DELIMITERS[kind], progress)
    else:
        columns = _read_arrow(file, kind)
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
            f"The format of {file} cannot be told from its name.{_looks_like(file)} Rename it to "
            f"end in {', '.join(KINDS)}, or say --input-format."
        )
    return kind


def _looks_like(file: Path) -> str:
    """What the first line says, as an offer."""
    with opened(file) as source:
        start = source.peek(1000)[:1000].decode("utf-8", "replace")
    if start.startswith("PAR1"):
        return " It looks like Parquet: --input-format parquet."
    if _LETOR.match(start):
        return " It looks like LETOR: --input-format letor."
    first = start.partition("\n")[0]
    for name, delimiter in (("tsv", "\t"), ("csv", ",")):
        if delimiter in first and first.isprintable() | ("\t" in first):
            return f" It looks like {name.upper()}: --input-format {name}."
    return ""


# --- text ----------------------------------------------------------------------------------------


def _read_text(file: Path, delimiter: str, progress: Show) -> dict[str, Column]:
    """The columns of a text table.

    What a column holds is known at its end only: where words come after blocks of numbers, the
    file is read once more, that column as words from its first row.
    """
    words: set[int] = set()
    while True:
        header, columns = _read_blocks(file, delimiter, words, progress)
        late = {at for at, column in enumerate(columns) if column.late}
        if not late:
            return {name: c.finish() for name, c in zip(header, columns, strict=True)}
        words |= late


def _read_blocks(
    file: Path, delimiter: str, words: set[int], progress: Show
) -> tuple[list[str], list[_Growing]]:
    size = max(1, file.stat().st_size // 2**20)
    with (
        opened_text(file) as lines,
        _field_limit(),
        Progress(size, f"reading {file.name}", progress) as shown,
    ):
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        try:
            header = next(reader, [])
            _require_names(header, file)
            columns = [_Growing(at in words) for at in range(len(header))]
            for rows in _blocks(reader, len(header), file, delimiter):
                for column, entries in zip(columns, zip(*rows, strict=True), strict=True):
                    column.add(entries)
                shown.advance(0, f"{lines.number:,} lines")
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
            raise InputError(
                f"Line {reader.line_num} of {file} has {len(row)} entries, the header {width}. Is "
                f"the delimiter {delimiter!r}?"
            )
        rows.append(row)
        if len(rows) == most:
            yield rows
            rows = []
    if rows:
        yield rows


@contextmanager
def _field_limit() -> Iterator[None]:
    before = csv.field_size_limit(_LONGEST_FIELD)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _require_names(header: Sequence[str], file: Path) -> None:
    if len(header) > MOST_COLUMNS:
        raise InputError(
            f"{file} has {len(header):,} columns; there may be {MOST_COLUMNS:,}. Are rows and "
            "columns the right way round?"
        )
    if any(not name.strip() for name in header) or not header:
        raise InputError(f"{file} has a column without a name. Give every column one in line 1.")
    seen: set[str] = set()
    for name in header:
        if name in seen:
            raise InputError(f"{file} has two columns named {show(name)}. Rename one of them.")
        seen.add(name)


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
        return np.concatenate(self._blocks, dtype=kind)


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
    if not _is_plain(entries) or ((np.abs(numbers) >= 2**63).any() and _are_ids(entries)):
        return None
    return numbers


def _is_plain(entries: Sequence[str]) -> bool:
    """Whether numbers are written as everybody writes them; Python takes 1_000 and ٣ as well."""
    joined = "".join(entries)
    return joined.isascii() and "_" not in joined


def _are_ids(entries: Sequence[str]) -> bool:
    """Whether all are whole numbers in digits, some of which float64 could not tell apart."""
    return all(entry.strip() in _MISSING or entry.strip().isdigit() for entry in entries)


# --- LETOR ---------------------------------------------------------------------------------------


def _read_letor(file: Path, progress: Show) -> Table:
    from pairity.datasets.letor import read_letor_arrays

    arrays = read_letor_arrays(file, progress=progress)
    X: Any = arrays.X
    if X.shape[1] > MOST_COLUMNS:
        raise InputError(
            f"{file} has features up to {X.shape[1]:,}; a table may have {MOST_COLUMNS:,}. Read it "
            "with pairity.datasets.read_letor(..., sparse=True)."
        )
    columns: dict[str, Column] = {"label": arrays.y}
    roles = {"label": "label"}
    if arrays.qid is not None:
        columns["qid"] = arrays.qid
        roles["query"] = "qid"
    columns.update({str(at + 1): X[:, at] for at in range(X.shape[1])})
    return Table(str(file), columns, roles, zeros=True)


# --- Arrow ---------------------------------------------------------------------------------------


def _read_arrow(file: Path, kind: str) -> dict[str, Column]:
    try:
        pa, feather, parquet = (
            import_module(name) for name in ("pyarrow", "pyarrow.feather", "pyarrow.parquet")
        )
    except ImportError as error:
        raise MissingExtraError(
            f'Reading {kind} needs pyarrow. Install it with: pip install "pairity[parquet]"'
        ) from error
    with opened(file) as source:
        try:
            data = pa.BufferReader(source.read())
            if kind == "parquet":
                held = parquet.ParquetFile(data)
                _require_size(held.metadata.num_rows, held.metadata.num_columns, file)
                table = held.read()
            else:
                table = feather.read_table(data)
            _require_names(table.column_names, file)
            return {name: _from_arrow(table[name], pa) for name in table.column_names}
        except InputError:
            raise
        except (
            pa.ArrowException, OSError, ValueError, TypeError, OverflowError, RecursionError,
            MemoryError, NotImplementedError, KeyError, IndexError,
        ) as error:  # fmt: skip
            told = str(error).partition("\n")[0] or type(error).__name__
            raise InputError(f"{file} is not a readable {kind} file: {told[:300]}") from error


def _require_size(n_rows: int, n_columns: int, file: Path) -> None:
    """Refuse a file of some kilobytes that says it holds more than the memory does."""
    size = file.stat().st_size
    if n_rows * n_columns * 8 > max(_LITTLE, _MOST_TIMES * size):
        raise InputError(
            f"{file} says it has {n_rows:,} rows × {n_columns:,} columns in {size:,} bytes, which "
            "is not likely. If it is right, give only the columns that are needed."
        )


def _from_arrow(column: Any, pa: Any) -> Column:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if pa.types.is_uint64(kind) and (pa.compute.max(column).as_py() or 0) >= 2**63:
        return object_array(column.to_pylist())
    if pa.types.is_integer(kind) and not column.null_count:
        return np.asarray(column.to_numpy(), dtype=np.int64)
    if pa.types.is_boolean(kind) and not column.null_count:
        return np.asarray(column.to_numpy(), dtype=np.bool_)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return np.asarray(column.cast(pa.float64()).to_numpy(), dtype=np.float64)
    return object_array(column.to_pylist())


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(show(name) for name in names[:8])
    return f"{shown} and {len(names) - 8} more" if len(names) > 8 else shown
