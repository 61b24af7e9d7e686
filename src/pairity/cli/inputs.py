"""What the subcommands share: the arguments that say what a table's columns are, and printing."""

from __future__ import annotations

import argparse
import json
from typing import Any

from pairity.queries import Queries
from pairity.tables import Table, read_table


def add_table(parser: Any, *, score: bool = False, features: bool = False) -> None:
    """The file, and which of its columns is what."""
    parser.add_argument("file", metavar="FILE", help="CSV, TSV, Parquet, Arrow or Feather; or .gz")
    parser.add_argument("--input-format", metavar="KIND", help="csv, tsv, parquet or arrow")
    parser.add_argument("--label", metavar="COLUMN", help="the higher, the more relevant")
    parser.add_argument("--query", metavar="COLUMN", help="which items are ranked together")
    parser.add_argument(
        "--group", metavar="COLUMN", action="append", help="protected attribute; may be repeated"
    )
    if score:
        parser.add_argument("--score", metavar="COLUMN", help="the higher, the higher it is ranked")
    if features:
        parser.add_argument(
            "--features", metavar="COLUMN", nargs="+", help="(default: all other columns)"
        )
        parser.add_argument(
            "--exclude",
            metavar="COLUMN",
            nargs="+",
            default=[],
            help="columns that are no features",
        )


def add_output(parser: Any) -> None:
    """How to print."""
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--quiet", action="store_true", help="print no more than asked for")


def read_given(given: argparse.Namespace) -> Table:
    """The file named on the command line."""
    return read_table(given.file, given.input_format)


def queries_of(table: Table, given: argparse.Namespace, X: Any = None) -> Queries:
    """Queries from the columns named on the command line."""
    label = table.column_for("label", given.label)
    query = table.column_for("query", given.query)
    groups = [table.column_for("group", name) for name in given.group or [None]]
    columns = {name: table[name] for name in groups}
    return Queries.from_arrays(
        X,
        table[label],
        qid=table[query],
        sensitive_features=columns if len(columns) > 1 else columns[groups[0]],
    )


def print_json(value: Any) -> None:
    """As one JSON document."""
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))
