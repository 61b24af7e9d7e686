"""What the subcommands share: the arguments that say what a table's columns are."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING, Any

from pairity.exceptions import InputError

if TYPE_CHECKING:
    from pairity.data.columns import Column
    from pairity.data.queries import Queries
    from pairity.data.tables import Table

FORMATS = "CSV, TSV, Parquet (or a folder of it), Arrow, Feather or LETOR; or .gz"
_WHAT = {
    "label": "the higher, the more relevant",
    "query": "which items are ranked together",
    "group": "the protected attribute",
    "score": "the higher, the higher it is ranked",
}


def add_command(commands: Any, name: str, *, about: str, says: str, examples: str) -> Any:
    """The parser of a subcommand."""
    return commands.add_parser(
        name,
        help=about,
        description=says,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_file(parser: Any, **options: Any) -> None:
    """The table's file, and its format."""
    parser.add_argument("file", metavar="FILE", help=FORMATS, **options)
    add_format(parser)


def add_format(parser: Any) -> None:
    """What a table's file is."""
    parser.add_argument(
        "--input-format", metavar="KIND",
        help="csv, tsv, parquet, arrow or letor (default: by the file's name)",
    )  # fmt: skip
    parser.add_argument(
        "--delimiter", metavar="CHAR", help="between the entries of a CSV (default: a comma)"
    )
    parser.add_argument(
        "--stream", action="store_true",
        help="leave features in Parquet files and read them in blocks, rows of a query together "
        "(default: where they would take more than a quarter of the memory)",
    )  # fmt: skip


def add_model(parser: Any, name: str = "model", **options: Any) -> None:
    """The folder of a saved model."""
    parser.add_argument(name, metavar="DIR", help="what `pairity train` saved", **options)


def feature_names(model: Any, folder: str) -> list[str]:
    """The columns that a model was trained on."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        raise InputError(
            f"The model in {folder} was trained on a matrix without names, so that columns "
            "cannot be found. Train it with `pairity train`, or on a data frame."
        )
    return [str(name) for name in names]


def add_constraint(parser: Any) -> None:
    """What to even out."""
    parser.add_argument(
        "--constraint", default="inter", metavar="NAME",
        help="statistical, inter, intra or marginal (default: inter)",
    )  # fmt: skip


def add_share(parser: Any, name: str, says: str) -> None:
    """A share of the queries, a fifth unless said."""
    parser.add_argument(
        name, type=float, default=0.2, metavar="SHARE", help=f"{says} (default: 0.2)"
    )


def add_roles(parser: Any, *, score: bool = False, features: bool = False) -> None:
    """Which of the columns is what."""
    parser.add_argument("--label", metavar="COLUMN", help=_WHAT["label"])
    parser.add_argument("--query", metavar="COLUMN", help=_WHAT["query"])
    parser.add_argument(
        "--group", metavar="COLUMN", action="append", default=[],
        help="the protected attribute; several make their intersection",
    )  # fmt: skip
    parser.add_argument(
        "--group-file", metavar="FILE", action="append", default=[],
        help="a text file with the group of each row, one a line",
    )  # fmt: skip
    parser.add_argument(
        "--quantile-groups", metavar="[COLUMN=]N",
        help="cut the numbers of a --group column into N groups of about the same size, or at "
        "given shares, such as 0.4 or 0.25,0.75",
    )  # fmt: skip
    if score:
        parser.add_argument("--score", metavar="COLUMN", help=_WHAT["score"])
    if features:
        parser.add_argument(
            "--features", metavar="COLUMN", nargs="+", help="(default: all other columns)"
        )
        parser.add_argument(
            "--exclude", metavar="COLUMN", nargs="+", action="extend", default=[],
            help="columns that are no features",
        )  # fmt: skip


def add_output(parser: Any, *formats: str) -> None:
    """How to print."""
    parser.add_argument("--format", choices=("text", "json", *formats), default="text")
    add_quiet(parser)


def add_quiet(parser: Any) -> None:
    """Not to print."""
    parser.add_argument("--quiet", action="store_true", help="errors only: no tables, no progress")


def add_seed(parser: Any, says: str) -> None:
    """Where randomness begins."""
    parser.add_argument("--seed", type=_seed, default=0, metavar="N", help=f"{says} (default: 0)")


def has_workers(given: argparse.Namespace) -> bool:
    """Whether a cluster was asked for."""
    return given.scheduler is not None or given.workers is not None


def workers_read(given: argparse.Namespace) -> bool:
    """Whether there are workers who read the file themselves, so that no row of it comes here."""
    from pairity.data.tables import is_parquet

    here = given.group_file or given.quantile_groups  # which take all rows together
    return has_workers(given) and not here and is_parquet(given.file, given.input_format)


def read_given(given: argparse.Namespace, *, later: bool = False) -> Table:
    """The file named on the command line; `later` leaves columns in Parquet files."""
    from pairity.data.tables import read_table

    table = read_table(
        given.file, given.input_format, delimiter=given.delimiter, stream=given.stream or later,
        progress=shows_progress(given),
    )  # fmt: skip
    if len(table.columns) == 1 and given.delimiter is None:
        (name,) = table.columns
        likely = next((mark for mark in ";\t|" if mark in name), None)
        if likely is not None:
            raise InputError(
                f"{given.file} has one column, {name[:60]!r}. Is it several? Run:\n"
                f"  {given.command} --delimiter {shlex.quote(likely)}"
            )
    return table


def shows_progress(given: argparse.Namespace) -> Any:
    """Whether long work says how far it is."""
    return False if given.quiet else "auto"


def require_roles(table: Table, given: argparse.Namespace, roles: tuple[str, ...]) -> None:
    """Refuse a command that lacks roles, with the columns there are and what to run instead.

    Likely columns are offered, never taken.
    """
    lacking = [role for role in roles if not _is_given(table, given, role)]
    for role in roles:
        for name in _named(given, role):
            table.column_for(role, name)
    if not lacking:
        return
    offered = [f"--{role} {shlex.quote(table.likely(role) or 'COLUMN')}" for role in lacking]
    said = ", ".join(f"--{role} ({_WHAT[role]})" for role in lacking)
    unknown = [role for role in lacking if table.likely(role) is None]
    fill = f" with a column's name for each COLUMN ({', '.join(unknown)})" if unknown else ""
    run = "Run" if unknown == lacking else "If the names below are right, run"
    raise InputError(
        f"{said} {'is' if len(lacking) == 1 else 'are'} missing.\n"
        f"The columns of {table.path}: {', '.join(map(shlex.quote, list(table.columns)[:50]))}"
        f"{' …' if len(table.columns) > 50 else ''}\n"
        f"{run}{fill}:\n  {given.command} {' '.join(offered)}"
    )


def queries_of(
    table: Table, given: argparse.Namespace, X: Any = None, *, gaps: bool = False
) -> Queries:
    """Queries from the columns named on the command line; `gaps` allows missing features."""
    from pairity.data.queries import Queries

    require_roles(table, given, ("label", "query", "group"))
    label, query = table.column_for("label", given.label), table.column_for("query", given.query)
    groups = groups_of(table, given)
    try:
        return Queries.from_arrays(
            X,
            table[label],
            qid=table[query],
            sensitive_features=groups if len(groups) > 1 else next(iter(groups.values())),
            raw=gaps,
        )
    except InputError as error:
        raise InputError(
            f"{error} (Here y is --label {label}, qid is --query {query}, and sensitive_features "
            f"is --group {', '.join(groups)}; rows are counted from 0, the header aside.)"
        ) from error


def features_of(
    table: Table, given: argparse.Namespace, *, gaps: bool = False
) -> tuple[Any, tuple[str, ...]]:
    """The matrix of features and their names: all columns without a role, unless named.

    Missing and infinite ones are refused by their column's name, unless `gaps` are allowed.
    """
    from numpy import ndarray

    from pairity.data.columns import require_finite

    taken = [given.label, given.query, *given.group]
    for name in given.exclude:
        table.column_for("feature", name, "--exclude")
    others = [name for name in table.columns if name not in (*taken, *given.exclude)]
    words = [name for name in others if table.holds_words(name)]
    if words and given.features is None:
        many = len(words) > 1
        raise InputError(
            f"{', '.join(map(repr, words[:20]))}{' …' if len(words) > 20 else ''} in {table.path} "
            f"hold{'' if many else 's'} words, not numbers. Turn {'them' if many else 'it'} into "
            f"numbers, or run without:\n  {given.command} --exclude {shlex.join(words)}"
        )
    X, names = table.features(given.features, given.exclude, taken)
    if isinstance(X, ndarray) and not gaps:
        require_finite(X, names)
    return X, names


def groups_of(table: Table, given: argparse.Namespace) -> dict[str, Column]:
    """The columns of groups, by name, cut into quantiles where that was asked for."""
    from numpy import unique

    from pairity._utils.files import read_lines
    from pairity.data.columns import object_array, require_length
    from pairity.data.groups import MOST_NUMERIC_GROUPS, quantile_groups

    columns = {name: table[table.column_for("group", name)] for name in given.group}
    for name, column in columns.items():
        several = 0 if given.quantile_groups or column.dtype.kind == "O" else len(unique(column))
        if several > MOST_NUMERIC_GROUPS:
            raise InputError(
                f"--group {name} holds {several:,} different numbers. To cut them into groups, run:"
                f"\n  {given.command} --quantile-groups {shlex.quote(name)}=4"
            )
    if given.quantile_groups:
        name, cut = _quantiles(given)
        columns[name] = quantile_groups(columns[name], cut)
    for path in given.group_file:
        columns[path] = object_array([line or None for line in read_lines(path)])
        require_length(columns[path], table.n_rows, path)
    return columns


def _quantiles(given: argparse.Namespace) -> tuple[str, Any]:
    name, equals, cut = given.quantile_groups.rpartition("=")
    if not equals:
        name = given.group[0] if len(given.group) == 1 else ""
    if name not in given.group:
        raise InputError(
            f"--quantile-groups {given.quantile_groups!r} does not say which --group column to "
            "cut. Write COLUMN=N, such as --group age --quantile-groups age=4."
        )
    try:
        return name, int(cut) if cut.isdigit() else [float(share) for share in cut.split(",")]
    except ValueError as error:
        raise InputError(
            f"--quantile-groups {given.quantile_groups!r}: {cut!r} is neither a number of groups, "
            "such as 4, nor shares, such as 0.25,0.75."
        ) from error


def _is_given(table: Table, given: argparse.Namespace, role: str) -> bool:
    from_file = role == "group" and bool(given.group_file)
    return bool(_named(given, role)) or role in table.roles or from_file


def _named(given: argparse.Namespace, role: str) -> list[str]:
    value = getattr(given, role)
    return list(value) if isinstance(value, list) else [] if value is None else [value]


def _seed(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 2**32):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to 2^32 - 1")
    return int(text)


def count(text: str) -> int:
    """A whole number of at least 1."""
    return whole(text, 1)


def whole(text: str, least: int = 0) -> int:
    """A whole number that is not negative."""
    if not (text.isascii() and text.isdigit() and least <= int(text) < 10**9):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
    return int(text)
