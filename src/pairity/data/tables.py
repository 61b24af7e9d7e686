"""Tables from files: CSV, TSV, Parquet, Arrow, Feather and LETOR, plain or compressed by gzip."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from pairity._utils.files import open_binary, require_file
from pairity._utils.progress import Show
from pairity._utils.validation import show
from pairity.data.columns import Column, object_array
from pairity.data.parquet import ParquetColumns
from pairity.data.parquet_features import describe_file, is_set_of_files
from pairity.data.text_tables import MOST_COLUMNS, read_text, require_names
from pairity.exceptions import InputError, MissingExtraError

KINDS = {
    ".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".parquet": "parquet", ".pq": "parquet",
    ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow", ".letor": "letor", ".svm": "letor",
    ".svmlight": "letor", ".libsvm": "letor",
}  # fmt: skip

_DELIMITERS = {"csv": ",", "tsv": "\t"}
_LETOR = re.compile(r"\s*[-+.\deE]+\s+(qid:\d+\s+)?\d+:\S")
_LARGE = 0.25  # of the memory; larger Parquet files are read in blocks
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
    columns : mapping from name to array of shape (n_rows,)
        Numbers are float64 (a missing one is NaN), int64 or bool; all else objects, None where
        missing. Those of large Parquet files are read when they are asked for.
    roles : mapping from role to name
        What the file's format itself says: in LETOR files the label and the query.
    zeros : bool
        Whether a column that is not there is all zeros, as in LETOR files.
    """

    path: str
    columns: Mapping[str, Column]
    roles: Mapping[str, str] = field(default_factory=dict)
    zeros: bool = False

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        if isinstance(self.columns, ParquetColumns):
            return self.columns.n_rows
        return len(next(iter(self.columns.values())))

    def __getitem__(self, name: str) -> Column:
        """A column."""
        return self.columns[name]

    def holds_words(self, name: str) -> bool:
        """Whether a column holds anything but numbers."""
        if isinstance(self.columns, ParquetColumns):
            return self.columns.holds_words(name)
        return self.columns[name].dtype.kind == "O"

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
    ) -> tuple[Any, tuple[str, ...]]:
        """The matrix of features and their names: those named, or all numbers not taken."""
        for name in (*(names or ()), *exclude):
            if not (self.zeros and name.isdigit()):
                self.column_for(
                    "feature", name, "--features" if name in (names or ()) else "--exclude"
                )
        taken = [*taken, *self.roles.values()]
        chosen = list(names) if names else [n for n in self.columns if n not in taken]
        chosen = [name for name in chosen if name not in exclude]
        words = [name for name in chosen if name in self.columns and self.holds_words(name)]
        if words:
            it = "it" if len(words) == 1 else "them"
            raise InputError(
                f"{_listed(words)} in {self.path} hold{'s' if it == 'it' else ''} words, not "
                f"numbers. Turn {it} into numbers."
            )
        if not chosen:
            raise InputError(f"No column of {self.path} is left as a feature. {self._there}")
        if isinstance(self.columns, ParquetColumns):
            return self.columns.features(chosen), tuple(chosen)
        matrix = np.zeros((self.n_rows, len(chosen)))
        for at, name in enumerate(chosen):
            if name in self.columns:
                matrix[:, at] = self.columns[name]
        return matrix, tuple(chosen)

    @property
    def _there(self) -> str:
        return f"There are {_listed(list(self.columns))}."


def read_table(
    path: str | os.PathLike[str],
    kind: str | None = None,
    *,
    delimiter: str | None = None,
    stream: bool = False,
    progress: Show = "auto",
) -> Table:
    """Read a table from a file.

    Parameters
    ----------
    path : path
        Of a file; or a folder, or a pattern such as ``part-*.parquet``, of Parquet files.
    kind : {"csv", "tsv", "parquet", "arrow", "letor"}, optional
        By default told from the end of the file's name; ``.gz`` may follow.
    delimiter : str, optional
        What stands between the entries of a line; by default a comma, or a tab in TSV.
    stream : bool
        Whether features stay in Parquet files and are read in blocks, which takes little memory
        and wants the rows of a query together. Files that would take more than a quarter of the
        memory are read so in any case.
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
    if kind in (None, "parquet") and is_set_of_files(path):
        return _read_parquet_files(path, stream=stream)
    file = require_file(path)
    kind = kind or _kind(file)
    if kind not in set(KINDS.values()):
        known = ", ".join(dict.fromkeys(KINDS.values()))
        raise InputError(f"The format {kind!r} is not known. Choose one of {known}.")
    if delimiter is not None and (
        kind not in _DELIMITERS or len(delimiter) != 1 or delimiter in '"\r\n' or delimiter > "~"
    ):
        raise InputError(
            f"The delimiter is {delimiter!r}; give one letter, such as ';', for CSV or TSV."
        )
    if stream and kind != "parquet":
        raise InputError(f"Only Parquet is read in blocks, but {file} is {kind}. Convert it.")
    if kind == "letor":
        return _read_letor(file, progress)
    if kind == "parquet" and (stream or _is_large(file)):
        return _read_parquet_files(path, stream=True)
    if kind in _DELIMITERS:
        columns = read_text(file, delimiter or _DELIMITERS[kind], progress)
    else:
        columns = _read_arrow(file, kind)
    if not columns or not len(next(iter(columns.values()))):
        raise InputError(f"{file} has no rows. Give a table with a header and at least one row.")
    return Table(str(file), columns)


def is_parquet(path: str | os.PathLike[str], kind: str | None = None) -> bool:
    """Whether `read_table` would read Parquet that is not compressed as a whole."""
    if kind in (None, "parquet") and is_set_of_files(path):
        return True
    file = require_file(path)
    return (kind or _kind(file)) == "parquet" and _begins_as_parquet(file)


def _begins_as_parquet(file: Path) -> bool:
    with file.open("rb") as source:
        return source.read(4) == b"PAR1"


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
    with open_binary(file) as source:
        start = source.peek(1000)[:1000].decode("utf-8", "replace")
    if start.startswith("PK"):
        return " It looks like a spreadsheet: save it as CSV."
    if start.startswith("PAR1"):
        return " It looks like Parquet: --input-format parquet."
    if _LETOR.match(start):
        return " It looks like LETOR: --input-format letor."
    first = start.partition("\n")[0]
    for name, delimiter in (("tsv", "\t"), ("csv", ",")):
        if delimiter in first and first.isprintable() | ("\t" in first):
            return f" It looks like {name.upper()}: --input-format {name}."
    return ""


# --- LETOR ---------------------------------------------------------------------------------------


def _read_letor(file: Path, progress: Show) -> Table:
    from pairity.data.letor import read_letor_arrays

    arrays = read_letor_arrays(file, progress=progress)
    X: Any = arrays.X
    if X.shape[1] > MOST_COLUMNS:
        raise InputError(
            f"{file} has features up to {X.shape[1]:,}; a table may have {MOST_COLUMNS:,}. Read it "
            "with pairity.data.read_letor(..., sparse=True)."
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
    with open_binary(file) as source:
        try:
            data = pa.BufferReader(source.read())
            if kind == "parquet":
                table = _read_parquet(data, file, pa, parquet)
            elif data.read(6) == b"ARROW1":
                table = _read_batches(data, file, pa)
            else:
                data.seek(0)
                table = feather.read_table(data)  # of the first version
            require_names(table.column_names, file)
            return {name: _from_arrow(table[name], pa) for name in table.column_names}
        except InputError:
            raise
        except (
            pa.ArrowException, OSError, ValueError, TypeError, OverflowError, RecursionError,
            MemoryError, NotImplementedError, KeyError, IndexError,
        ) as error:  # fmt: skip
            told = str(error).partition("\n")[0] or type(error).__name__
            raise InputError(f"{file} is not a readable {kind} file: {told[:300]}") from error


def _is_large(file: Path) -> bool:
    """Whether a Parquet file would take more than a quarter of the memory."""
    if not _begins_as_parquet(file):  # such as one compressed by gzip
        return False
    held, schema = describe_file(str(file))
    return _share_of_memory(held.n_rows * len(schema.names)) > _LARGE


def _read_parquet_files(path: str | os.PathLike[str], *, stream: bool) -> Table:
    """Parquet files, read in blocks where they are many or large."""
    columns = ParquetColumns(path)
    if not columns.n_rows:
        raise InputError(f"{path} has no rows. Give a table with at least one row.")
    if stream or _share_of_memory(columns.n_rows * len(columns)) > _LARGE:
        return Table(str(path), columns)
    return Table(str(path), {name: columns[name] for name in columns})


def _share_of_memory(n_entries: int) -> float:
    """How much of the memory that this process may use so many numbers take."""
    limits: list[float] = [np.inf]
    with suppress(AttributeError, OSError, ValueError):  # not every system tells
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            limits.append(int(Path(name).read_text()))
    with suppress(ImportError):
        import resource

        for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
            soft = resource.getrlimit(kind)[0]
            limits += [soft] if soft > 0 else []
    return 8 * n_entries / min(limits)


def _read_parquet(data: Any, file: Path, pa: Any, parquet: Any) -> Any:
    """A Parquet file; words that repeat are kept once."""
    held = parquet.ParquetFile(data)
    _require_size(held.metadata.num_rows * held.metadata.num_columns * 8, file)
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)
    words = [each.name for each in held.schema_arrow if any(kind(each.type) for kind in texts)]
    data.seek(0)
    return parquet.ParquetFile(data, read_dictionary=words).read()


def _read_batches(data: Any, file: Path, pa: Any) -> Any:
    """An Arrow file, batch by batch, as long as it stays in proportion."""
    data.seek(0)
    held = pa.ipc.open_file(data)
    batches, size = [], 0
    for at in range(held.num_record_batches):
        batches.append(held.get_batch(at))
        size += batches[-1].nbytes
        _require_size(size, file)
    return pa.Table.from_batches(batches, held.schema)


def _require_size(needed: int, file: Path) -> None:
    """Refuse a file of some kilobytes that holds more than the memory does."""
    size = file.stat().st_size
    if needed > max(_LITTLE, _MOST_TIMES * size):
        raise InputError(
            f"{file} has {size:,} bytes and would take {needed:,} in memory, which is not likely "
            "to be a table. If it is one, give only the columns that are needed."
        )


def _from_arrow(column: Any, pa: Any) -> Column:
    kind = column.type
    if pa.types.is_dictionary(kind) and not pa.types.is_primitive(kind.value_type):
        return np.concatenate([_from_dictionary(chunk) for chunk in column.chunks or [[]]])
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


def _from_dictionary(chunk: Any) -> Column:
    """Words, equal ones as one object."""
    if not len(chunk):
        return object_array([])
    words = object_array([*chunk.dictionary.to_pylist(), None])
    at = chunk.indices.cast("int64").fill_null(len(words) - 1).to_numpy(zero_copy_only=False)
    return np.asarray(words[at])


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(show(name) for name in names[:8])
    return f"{shown} and {len(names) - 8} more" if len(names) > 8 else shown
