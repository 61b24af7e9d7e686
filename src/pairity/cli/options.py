"""What the subcommands share: options, the rankers they name, and the queries of a table."""

from __future__ import annotations

import argparse
import ast
import shlex
import warnings
from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple

import pairity
from pairity._utils.extras import import_extra
from pairity._utils.files import as_list, read_lines
from pairity.exceptions import InputError, PairityWarning

if TYPE_CHECKING:
    from pairity.data.columns import Column
    from pairity.data.tables import Table

# The names of `pairity.constraints.CATALOGUE`, whose import takes too long for --help.
CONSTRAINTS = "statistical, inter, intra or marginal"
FORMATS = "CSV, TSV, Parquet (a file or a folder), Arrow, Feather or LETOR; .gz is allowed"
ROLES = {
    "label": "a higher label is more relevant",
    "query": "items with the same id are ranked together",
    "group": "the protected attribute",
    "score": "a higher score is ranked higher",
}


def add(parser: Any, name: str, text: str, **settings: Any) -> None:
    """Add an argument.

    Parameters
    ----------
    name : str
        The argument, followed by a space and the name of its value if it has one.
    text : str
        The help. If there is a default, the help shows it, and values have its type.
    **settings
        As in `argparse.ArgumentParser.add_argument`.
    """
    name, _, metavar = name.partition(" ")
    default = settings.get("default")
    if default not in (None, "", []):
        text = f"{text} (default: {default})"
        settings = {"type": type(default), **settings}
    if metavar:
        settings["metavar"] = metavar
    parser.add_argument(name, help=text, **settings)


def add_file(parser: Any, **settings: Any) -> None:
    """Add the table's file and its format."""
    add(parser, "file FILE", FORMATS, **settings)
    add_format(parser)


def add_format(parser: Any) -> None:
    """Add the options that say how to read a table's file."""
    kinds = "csv, tsv, parquet, arrow or letor (default: from the file's name)"
    add(parser, "--input-format KIND", kinds)
    add(parser, "--delimiter CHAR", "separates the entries of a CSV row (default: a comma)")
    stream = (
        "leave features in Parquet files and read them in blocks; rows of a query must be "
        "contiguous (default: if features would take more than a quarter of the memory)"
    )
    add(parser, "--stream", stream, action="store_true")


def add_model(parser: Any, name: str = "model", **settings: Any) -> None:
    """Add the folder of a saved model."""
    add(parser, f"{name} DIR", "a folder that `pairity train` saved", **settings)


def add_constraint(parser: Any) -> None:
    """Add the constraint whose violation is to be reduced."""
    add(parser, "--constraint NAME", CONSTRAINTS, default="inter")


def add_share(parser: Any, name: str, text: str) -> None:
    """Add a share of the queries, one fifth by default."""
    add(parser, f"{name} SHARE", text, default=0.2)


def add_roles(parser: Any, *, score: bool = False, features: bool = False) -> None:
    """Add the options that say which column plays which role."""
    several: dict[str, Any] = {"action": "append", "default": []}
    add(parser, "--label COLUMN", ROLES["label"])
    add(parser, "--query COLUMN", ROLES["query"])
    repeat = "; repeat the option to use an intersection of attributes"
    add(parser, "--group COLUMN", ROLES["group"] + repeat, **several)
    lines = "a text file with the group of each row, one per line"
    add(parser, "--group-file FILE", lines, **several)
    quantiles = (
        "cut a numeric --group column into N groups of about the same size, or at shares such as "
        "0.4 or 0.25,0.75"
    )
    add(parser, "--quantile-groups [COLUMN=]N", quantiles)
    if score:
        add(parser, "--score COLUMN", ROLES["score"])
    if features:
        add(parser, "--features COLUMN", "(default: all other columns)", nargs="+")
        several |= {"action": "extend", "nargs": "+"}
        add(parser, "--exclude COLUMN", "columns that are not features", **several)


def add_output(parser: Any, *formats: str) -> None:
    """Add the options that say how to print."""
    parser.add_argument("--format", choices=("text", "json", *formats), default="text")
    add_quiet(parser)


def add_quiet(parser: Any) -> None:
    """Add the option that prints errors only."""
    add(parser, "--quiet", "print errors only", action="store_true")


def add_seed(parser: Any, text: str) -> None:
    """Add the seed."""
    add(parser, "--seed N", text, type=whole_number(0, 2**32 - 1), default=0)


def whole_number(least: int, most: int = 10**9) -> Callable[[str], int]:
    """Make a function that reads a whole number from `least` to `most`."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a whole number from {least:,} to {most:,}"
            )
        return int(text)

    return read


def progress_setting(args: argparse.Namespace) -> Any:
    """Whether long work shows its progress, as library functions take it."""
    return False if args.quiet else "auto"


def feature_names(model: Any, folder: str) -> list[str]:
    """Return the names of the columns that a model was trained on."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        raise InputError(
            f"The model in {folder} was trained on a matrix without column names, so its features "
            "cannot be found in a table. Train it with `pairity train`, or on a data frame."
        )
    return [str(name) for name in names]


# --- tables ---------------------------------------------------------------------------------------


def has_workers(args: argparse.Namespace) -> bool:
    """Whether a Dask cluster was asked for."""
    return args.scheduler is not None or args.workers is not None


def workers_read(args: argparse.Namespace) -> bool:
    """Whether Dask workers read the file themselves, so that no row comes to this process."""
    from pairity.data.tables import find_kind

    reads = has_workers(args) and not (args.group_file or args.quantile_groups)
    return reads and find_kind(args.file, args.input_format) == "parquet"


def open_table(args: argparse.Namespace, *, lazy: bool = False) -> Table:
    """Read the file named on the command line; `lazy` leaves columns in Parquet files."""
    table = pairity.read_table(
        args.file, args.input_format, delimiter=args.delimiter, stream=args.stream or lazy,
        progress=progress_setting(args),
    )  # fmt: skip
    if len(table.columns) == 1 and args.delimiter is None:
        (name,) = table.columns
        likely = next((mark for mark in ";\t|" if mark in name), None)
        if likely is not None:
            raise InputError(
                f"{args.file} has one column, {name[:60]!r}. If it holds several, run:\n"
                f"  {args.command} --delimiter {shlex.quote(likely)}"
            )
    return table


def require_roles(table: Table, args: argparse.Namespace, roles: tuple[str, ...]) -> None:
    """Raise an error if roles are missing, with the columns and the command to run instead.

    Columns with likely names are suggested, but never used without the user's word.
    """
    for role in roles:
        for name in as_list(getattr(args, role)):
            table.column_for(role, name)
    from_file = {"group"} if args.group_file else set()
    known = {*table.roles, *from_file}
    missing = [role for role in roles if role not in known and not as_list(getattr(args, role))]
    if not missing:
        return
    suggested = {role: table.likely(role) for role in missing}
    options = [f"--{role} {shlex.quote(name or 'COLUMN')}" for role, name in suggested.items()]
    needs = ", ".join(f"--{role} ({ROLES[role]})" for role in missing)
    unknown = [role for role, name in suggested.items() if name is None]
    fill = f" with a column's name for each COLUMN ({', '.join(unknown)})" if unknown else ""
    run = "Run" if unknown == missing else "If the names below are right, run"
    raise InputError(
        f"{needs} {'is' if len(missing) == 1 else 'are'} missing.\n"
        f"The columns of {table.path}: {', '.join(map(shlex.quote, list(table.columns)[:50]))}"
        f"{' …' if len(table.columns) > 50 else ''}\n"
        f"{run}{fill}:\n  {args.command} {' '.join(options)}"
    )


def read_queries(table: Table, args: argparse.Namespace) -> pairity.Queries:
    """Make queries without features from the columns named on the command line."""
    require_roles(table, args, ("label", "query", "group"))
    label, query = table.column_for("label", args.label), table.column_for("query", args.query)
    groups = read_groups(table, args)
    try:
        return pairity.Queries.from_arrays(
            None,
            table[label],
            qid=table[query],
            sensitive_features=groups if len(groups) > 1 else next(iter(groups.values())),
        )
    except InputError as error:
        raise InputError(
            f"{error} (Here y is --label {label}, qid is --query {query}, and sensitive_features "
            f"is --group {', '.join(groups)}; rows are counted from 0, without the header.)"
        ) from error


def read_training_queries(
    table: Table, args: argparse.Namespace, *, missing: bool = False
) -> pairity.Queries:
    """Make queries with features; `missing` allows missing values among the features."""
    queries = read_queries(table, args)  # wrong roles are more frequent than wrong features
    X, names = read_features(table, args, missing=missing)
    return queries.with_features(X, names, raw=missing)


def with_query_weights(queries: pairity.Queries, table: Table, name: str) -> pairity.Queries:
    """Return the queries with the weights of a column."""
    from pairity.data.query_columns import read_query_weights

    column = table[table.column_for("query weight", name, "--query-weight")]
    weights = read_query_weights(column, queries.query, queries.query_ids)
    return replace(queries, query_weight=weights)


def read_features(
    table: Table, args: argparse.Namespace, *, missing: bool = False
) -> tuple[Any, tuple[str, ...]]:
    """Return the feature matrix and its names: all columns without a role, unless named.

    Values that are missing or infinite are rejected with the name of their column, unless
    `missing` allows them.
    """
    from numpy import ndarray

    from pairity.data.features import require_finite

    taken = [args.label, args.query, *args.group]
    for name in args.exclude:
        table.column_for("feature", name, "--exclude")
    others = [name for name in table.columns if name not in (*taken, *args.exclude)]
    words = [name for name in others if table.holds_words(name)]
    if words and args.features is None:
        many = len(words) > 1
        raise InputError(
            f"{', '.join(map(repr, words[:20]))}{' …' if len(words) > 20 else ''} in {table.path} "
            f"hold{'' if many else 's'} words, not numbers. Turn {'them' if many else 'it'} into "
            f"numbers, or leave {'them' if many else 'it'} out:\n"
            f"  {args.command} --exclude {shlex.join(words)}"
        )
    X, names = table.features(args.features, args.exclude, taken)
    if isinstance(X, ndarray) and not missing:
        require_finite(X, names)
    return X, names


def read_groups(table: Table, args: argparse.Namespace) -> dict[str, Column]:
    """Return the group columns by name, cut into quantiles where the user asked for that."""
    from numpy import unique

    from pairity.data.columns import object_array, require_length
    from pairity.data.groups import MOST_NUMERIC_GROUPS

    columns = {name: table[table.column_for("group", name)] for name in args.group}
    for name, column in columns.items():
        numeric = not args.quantile_groups and column.dtype.kind != "O"
        n_values = len(unique(column)) if numeric else 0
        if n_values > MOST_NUMERIC_GROUPS:
            raise InputError(
                f"--group {name} holds {n_values:,} different numbers. To cut them into groups, "
                f"run:\n  {args.command} --quantile-groups {shlex.quote(name)}=4"
            )
    if args.quantile_groups:
        name, cut = _parse_quantiles(args)
        columns[name] = pairity.quantile_groups(columns[name], cut)
    for path in args.group_file:
        columns[path] = object_array([line or None for line in read_lines(path)])
        require_length(columns[path], table.n_rows, path)
    return columns


def _parse_quantiles(args: argparse.Namespace) -> tuple[str, Any]:
    name, equals, cut = args.quantile_groups.rpartition("=")
    if not equals:
        name = args.group[0] if len(args.group) == 1 else ""
    if name not in args.group:
        raise InputError(
            f"--quantile-groups {args.quantile_groups!r} does not name a --group column to cut. "
            "Write COLUMN=N, as in --group age --quantile-groups age=4."
        )
    try:
        return name, int(cut) if cut.isdigit() else [float(share) for share in cut.split(",")]
    except ValueError as error:
        raise InputError(
            f"--quantile-groups {args.quantile_groups!r}: {cut!r} is neither a number of groups, "
            "such as 4, nor a list of shares, such as 0.25,0.75."
        ) from error


# --- rankers --------------------------------------------------------------------------------------


class Engine(NamedTuple):
    """Where a ranker's class is, the name of its seed, and settings that keep it quiet."""

    module: str
    name: str
    seed: str | None = "random_state"
    quiet: dict[str, Any] = {}  # noqa: RUF012 - never written to
    takes_missing: bool = True


_SILENT_CATBOOST = {"verbose": False, "allow_writing_files": False}
ENGINES = {
    "linear": Engine("pairity", "LinearRanker", seed=None, takes_missing=False),
    "lightgbm": Engine("lightgbm", "LGBMRanker", quiet={"verbose": -1}),
    "xgboost": Engine("xgboost", "XGBRanker"),
    "catboost": Engine("catboost", "CatBoostRanker", "random_seed", _SILENT_CATBOOST),
}


def add_ranker(parser: Any) -> None:
    """Add the options that choose a ranker and its settings."""
    parser.add_argument("--ranker", choices=tuple(ENGINES), default="linear")
    text = "a setting of the ranker, such as num_leaves=63; may be repeated"
    add(parser, "--set NAME=VALUE", text, action="append", default=[])


def make_ranker(name: str, settings: list[str], seed: int) -> Any:
    """Make the ranker with these settings, each NAME=VALUE.

    A value that is not a Python literal is taken as text.
    """
    engine = ENGINES[name]
    make = getattr(import_extra(engine.module, f"--ranker {name}", name), engine.name)
    chosen = _parse(settings)
    defaults = {**engine.quiet, **({engine.seed: seed} if engine.seed else {})}
    try:
        ranker = make(**{**defaults, **chosen})
    except TypeError as error:
        raise InputError(f"{engine.name} does not accept these settings: {error}.") from error
    _warn_about_spelling(make, chosen)
    return ranker


def _warn_about_spelling(make: Any, settings: dict[str, Any]) -> None:
    """Warn about settings that look misspelt: some engines accept any name and ignore it."""
    known = {**signature(make).parameters, **make().get_params()}
    for name in settings:
        close = get_close_matches(name, known, 1, 0.75)
        if name not in known and close:
            warnings.warn(
                f"{make.__name__} has no setting {name}, although its engine may accept it. "
                f"Did you mean {close[0]}?",
                PairityWarning,
                stacklevel=3,
            )


def _parse(settings: list[str]) -> dict[str, Any]:
    parsed: dict[str, Any] = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise InputError(f"--set {text!r} must have the form NAME=VALUE, as in num_leaves=63.")
        try:
            parsed[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            parsed[name] = {"true": True, "false": False}.get(value.lower(), value)
    return parsed
