"""``pairity predict``: scores of a table's rows by a saved model."""

from __future__ import annotations

import argparse
import csv
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pairity.cli.inputs import print_json
from pairity.exceptions import InputError
from pairity.tables import read_table

_EXAMPLES = """\
examples:
  pairity predict model new.csv > scores.csv
  pairity predict model new.parquet --output scores.csv

One score a row, in the order of the rows. Groups are not needed. Columns are found by the names
that the model was trained on; others are left alone.
"""


def add_to(commands: Any) -> None:
    """Say the arguments."""
    parser = commands.add_parser(
        "predict",
        help="score rows by a saved model",
        description="Scores by a saved model, in the order of the rows.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", metavar="DIR", help="what `pairity train` saved")
    parser.add_argument("file", metavar="FILE", help="CSV, TSV, Parquet, Arrow or Feather; or .gz")
    parser.add_argument("--input-format", metavar="KIND", help="csv, tsv, parquet or arrow")
    parser.add_argument("--output", metavar="FILE", help="a CSV to write (default: print it)")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Score, and write."""
    from pairity.model_files import load

    model = load(given.model)
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        raise InputError(
            f"The model in {given.model} was trained on a matrix without names, so that columns "
            "cannot be found. Train it with `pairity train`, or on a data frame."
        )
    table = read_table(given.file, given.input_format)
    lacking = [str(name) for name in names if name not in table.columns]
    if lacking:
        raise InputError(
            f"{given.file} lacks {len(lacking)} of the {len(names)} columns that the model was "
            f"trained on, the first being {lacking[0]!r}. Add them."
        )
    X, _ = table.features([str(name) for name in names], (), ())
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        scores = np.asarray(model.predict(X), dtype=np.float64)
    if given.format == "json":
        print_json(scores.tolist())
    elif given.output is None:
        _write(sys.stdout, scores.tolist())
    else:
        beside = Path(f"{given.output}.part")
        with beside.open("w", newline="", encoding="utf-8") as file:
            _write(file, scores.tolist())
        os.replace(beside, given.output)
    return 0


def _write(file: Any, scores: Sequence[float]) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["score"])
    writer.writerows([repr(score)] for score in scores)
