"""Tables from files: CSV, TSV, Parquet, Arrow, Feather and LETOR, plain or compressed with gzip."""

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from pairity._utils.extras import import_extra
from pairity._utils.files import open_binary, require_file
from pairity._utils.progress import Show
from pairity.data.columns import Column
from pairity.data.parquet import ParquetColumns, list_names, unknown_name
from pairity.data.parquet_features import is_set_of_files, to_column
from pairity.data.text_tables import MOST_COLUMNS, read_text, require_names
from pairity.exceptions import InputError

KINDS = {
    ".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".parquet": "parquet", ".pq": "parquet",
    ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow", ".letor": "letor", ".svm": "letor",
    ".svmlight": "letor", ".libsvm": "letor",
}  # fmt: skip

_DELIMITERS = {"csv": ",", "tsv": "\t"}
_LETOR = re.compile(r"\s*[-+.\deE]+\s+(qid:\d+\s+)?\d+:\S")
_LARGE = 0.25  # of the memory; Parquet files above this share are read in blocks
_FREE_BYTES = 2**30  # in memory, which any Parquet or Arrow file may take
_MAX_RATIO = 1000  # of the bytes in memory to those of a file, above _FREE_BYTES

GUESSES = {
    "label": ("label", "relevance", "rel", "grade", "target", "y", "clicked", "click", "hired"),
    "query": (
        "qid", "query_id", "query", "queryid", "search_id", "topic", "session_id", "srch_id",
        "search", "user_id",
    ),
    "group": ("group", "gender", "sex", "race", "ethnicity", "protected", "sensitive", "age_group"),
    "score": ("score", "model_score", "prediction", "predicted", "pred", "y_pred"),
}  # fmt: skip
"""Common names of columns by role; they are suggested if none is named, but never used."""


@dataclass(frozen=True, eq=False)
class Table:
    """Columns by name, in the order of the file.

    Attributes
    ----------
    path : str
    columns : mapping from name to array of shape (n_rows,)
        Numbers are float64 (NaN where missing), int64 or bool; all other columns are objects, None
        where missing. Columns of large Parquet files are read when they are used.
    roles : mapping from role to name
        The roles that the file format defines: label and query of LETOR files.
    zeros : bool
        Whether all entries of an absent column are zero, as in LETOR files.
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
        """Return a column."""
        return self.columns[name]

    def holds_words(self, name: str) -> bool:
        """Whether a column contains anything but numbers."""
        if isinstance(self.columns, ParquetColumns):
            return self.columns.holds_words(name)
        return self.columns[name].dtype.kind == "O"

    def likely(self, role: str) -> str | None:
        """Return the column with a common name of the role, if there is one."""
        known = {name.lower(): name for name in self.columns}
        return next((known[guess] for guess in GUESSES.get(role, ()) if guess in known), None)

    def column_for(self, role: str, name: str | None, option: str | None = None) -> str:
        """Return the name of the column of a role, or raise an error that suggests one."""
        option = option or f"--{role}"
        if name is None and role in self.roles:
            return self.roles[role]
        if name is None:
            likely = self.likely(role)
            offer = f" Did you mean {option} {shlex.quote(likely)}?" if likely else ""
            raise InputError(f"{option} is missing. Name the {role} column.{offer} {self._names}")
        if name not in self.columns:
            unknown = unknown_name(name, list(self.columns), f" ({option})")
            raise InputError(f"{self.path} has no column {unknown}")
        return name

    def features(
        self, names: Sequence[str] | None, exclude: Sequence[str], taken: Sequence[str]
    ) -> tuple[Any, tuple[str, ...]]:
        """Return the feature matrix and the names of its columns: `names`, or all without a role.

        `taken` are the columns that have another role.
        """
        for option, listed in (("--features", names or ()), ("--exclude", exclude)):
            for name in listed:
                if not (self.zeros and name.isdigit()):
                    self.column_for("feature", name, option)
        taken = [*taken, *self.roles.values()]
        chosen = list(names) if names else [n for n in self.columns if n not in taken]
        chosen = [name for name in chosen if name not in exclude]
        words = [name for name in chosen if name in self.columns and self.holds_words(name)]
        if words:
            holds, them = ("holds", "it") if len(words) == 1 else ("hold", "them")
            raise InputError(
                f"{list_names(words)} in {self.path} {holds} words, not numbers. Encode {them} as "
                "numbers."
            )
        if not chosen:
            raise InputError(f"No column of {self.path} is left as a feature. {self._names}")
        if isinstance(self.columns, ParquetColumns):
            return self.columns.features(chosen), tuple(chosen)
        matrix = np.zeros((self.n_rows, len(chosen)))
        for k, name in enumerate(chosen):
            if name in self.columns:
                matrix[:, k] = self.columns[name]
        return matrix, tuple(chosen)

    @property
    def _names(self) -> str:
        return f"The columns are {list_names(list(self.columns))}."


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
        A file; or a folder or pattern of Parquet files, such as ``part-*.parquet``.
    kind : {"csv", "tsv", "parquet", "arrow", "letor"}, optional
        The format. By default the ending of the file name decides; ``.gz`` may follow it.
    delimiter : str, optional
        The character between the entries of a line: by default a comma, or a tab in TSV.
    stream : bool
        Whether features stay in Parquet files and are read in blocks. This takes little memory and
        requires that the rows of a query are contiguous. Files that would take more than a quarter
        of the memory are always read in this way.
    progress : {"auto"} or bool

    Returns
    -------
    Table

    Notes
    -----
    Text must be UTF-8 with a header. A column is numeric if all its entries are numbers; empty
    entries, NA, NaN, nan, null and None are missing values. Integers of more than 64 bits are text,
    so that long ids remain distinct. Text is read in blocks of rows, so that the peak of memory is
    little more than the columns. Large text files are read with pyarrow if it is installed. Parquet
    and Arrow require pyarrow. The columns of a LETOR file are named label, qid, and after the
    numbers of its features.
    """
    kind, file = find_kind(path, kind), Path(path)
    if kind not in set(KINDS.values()):
        known = ", ".join(dict.fromkeys(KINDS.values()))
        raise InputError(f"The format {kind!r} is unknown. Choose one of {known}.")
    if delimiter is not None and (
        kind not in _DELIMITERS or len(delimiter) != 1 or delimiter in '"\r\n' or delimiter > "~"
    ):
        raise InputError(
            f"delimiter must be one ASCII character, such as ';', for CSV or TSV (got "
            f"{delimiter!r})."
        )
    if stream and kind != "parquet":
        raise InputError(f"Only Parquet can be read in blocks, but {file} is {kind}. Convert it.")
    if kind == "letor":
        return _read_letor(file, progress)
    if kind == "parquet":
        return _read_parquet(path, stream)
    if kind in _DELIMITERS:
        columns = read_text(file, delimiter or _DELIMITERS[kind], progress)
    else:
        columns = _read_arrow(file)
    if not columns or not len(next(iter(columns.values()))):
        raise InputError(f"{file} has no rows. A table needs a header and at least one row.")
    return Table(str(file), columns)


def find_kind(path: str | os.PathLike[str], kind: str | None) -> str:
    """Return the format in which `read_table` reads; several files are always Parquet."""
    if kind in (None, "parquet") and is_set_of_files(path):
        return "parquet"
    file = require_file(path)
    if kind is not None:
        return kind
    ending = Path(file.name.lower().removesuffix(".gz")).suffix
    if ending not in KINDS:
        raise InputError(
            f"The name of {file} does not determine its format.{_looks_like(file)} Rename it to "
            f"end in {', '.join(KINDS)}, or pass --input-format."
        )
    return KINDS[ending]


def _looks_like(file: Path) -> str:
    """Return a suggestion that follows from the first line."""
    with open_binary(file) as source:
        start = source.peek(1000)[:1000].decode("utf-8", "replace")
    first = start.partition("\n")[0]
    signs = {
        "a spreadsheet: save it as CSV": start.startswith("PK"),
        "Parquet: --input-format parquet": start.startswith("PAR1"),
        "LETOR: --input-format letor": _LETOR.match(start),
        "TSV: --input-format tsv": "\t" in first,
        "CSV: --input-format csv": "," in first and first.isprintable(),
    }
    return next((f" It looks like {content}." for content, sign in signs.items() if sign), "")


# --- LETOR ---------------------------------------------------------------------------------------


def _read_letor(file: Path, progress: Show) -> Table:
    from pairity.data.letor import read_letor_arrays

    arrays = read_letor_arrays(file, progress=progress)
    X: Any = arrays.X
    if X.shape[1] > MOST_COLUMNS:
        raise InputError(
            f"{file} has features up to {X.shape[1]:,}, but a table may have {MOST_COLUMNS:,}. "
            "Read it with pairity.data.read_letor(..., sparse=True)."
        )
    columns: dict[str, Column] = {"label": arrays.y}
    roles = {"label": "label"}
    if arrays.qid is not None:
        columns["qid"] = arrays.qid
        roles["query"] = "qid"
    columns.update({str(k + 1): X[:, k] for k in range(X.shape[1])})
    return Table(str(file), columns, roles, zeros=True)


# --- Arrow ---------------------------------------------------------------------------------------


def _read_arrow(file: Path) -> dict[str, Column]:
    feather = import_extra("pyarrow.feather", "Reading arrow", "parquet")
    pa = import_module("pyarrow")
    with open_binary(file) as source, _readable(file, "arrow"):
        data = pa.py_buffer(source.read())
        if data[:6].to_pybytes() == b"ARROW1":
            table = _read_batches(pa.ipc.open_file(data), file)
        else:
            table = feather.read_table(pa.BufferReader(data))  # of the first version
        require_names(table.column_names, file)
        return {name: to_column(table[name]) for name in table.column_names}


def _read_parquet(path: str | os.PathLike[str], stream: bool) -> Table:
    """Read Parquet files, in blocks if `stream` is set or they are large."""
    with _readable(path, "parquet"):
        columns = ParquetColumns(path)
        require_names(list(columns), columns.path)
        columns.require(list(columns))
        n_bytes = 8 * columns.n_rows * len(columns)
        if stream or _share_of_memory(n_bytes) > _LARGE:
            return Table(str(path), columns)
        _require_size(n_bytes, sum(file.state[0] for file in columns.files), path)
        return Table(str(path), columns.read(list(columns)))


@contextmanager
def _readable(path: str | os.PathLike[str], kind: str) -> Iterator[None]:
    """Report the errors of pyarrow in reading a damaged file as one `InputError`."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # pyarrow raises many kinds, also for a lack of memory
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise InputError(f"{path} is not a readable {kind} file: {reason[:300]}") from error


def _share_of_memory(n_bytes: int) -> float:
    """Return the share of the memory of this process that a number of bytes takes."""
    limits: list[float] = [np.inf]
    with suppress(AttributeError, OSError, ValueError):  # not available on every system
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            limits.append(int(Path(name).read_text()))
    with suppress(ImportError):
        import resource

        soft = (resource.getrlimit(k)[0] for k in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
        limits += [limit for limit in soft if limit > 0]
    return n_bytes / min(limits)


def _read_batches(reader: Any, file: Path) -> Any:
    """Read an Arrow file batch by batch, unless it takes too much memory."""
    batches, size = [], 0
    for number in range(reader.num_record_batches):
        batches.append(reader.get_batch(number))
        size += batches[-1].nbytes
        _require_size(size, file.stat().st_size, file)
    return import_module("pyarrow").Table.from_batches(batches, reader.schema)


def _require_size(needed: int, size: int, path: str | os.PathLike[str]) -> None:
    """Refuse a small file that would exhaust the memory."""
    if needed > max(_FREE_BYTES, _MAX_RATIO * size):
        raise InputError(
            f"{path} has {size:,} bytes and would take {needed:,} in memory, which is unlikely for "
            "a table. If it is a table, store only the columns that are needed."
        )
