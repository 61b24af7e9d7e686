"""Score rows with a saved model.

Score rows with a saved model, in the order of the rows.

  pairity predict model new.csv > scores.csv
  pairity predict model new.parquet --output scores.csv
  pairity predict model new.csv --format json

The output has one score per row, in the order of the rows. Groups are not needed. Columns are found
by the names that the model was trained on; other columns are ignored.
"""

import argparse
import io
import json
import sys
import warnings
from typing import Any

import pairity
from pairity._utils.files import atomic_write
from pairity.cli import options
from pairity.cli.output import note
from pairity.exceptions import InputError


def add_to(parser: Any) -> None:
    """Declare the options."""
    options.add_model(parser)
    options.add_file(parser)
    options.add(parser, "--output FILE", "write to this file and replace it (default: print)")
    options.add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Score the rows and write the scores."""
    import numpy as np

    from pairity.data.features import require_finite

    model = pairity.load(args.model)
    names = options.feature_names(model, args.model)
    table = options.open_table(args)
    missing = [name for name in names if name not in table.columns]
    if missing and not table.zeros:
        raise InputError(
            f"{args.file} lacks {len(missing)} of the {len(names)} columns that the model was "
            f"trained on; the first is {missing[0]!r}. Add them."
        )
    X, _ = table.features(names, (), ())
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")  # order is right
        try:
            scores = np.asarray(model.predict(X), dtype=np.float64).tolist()
        except InputError:
            if isinstance(X, np.ndarray):
                require_finite(X, tuple(names))  # names the column
            raise
    _write(scores, args)
    return 0


def _write(scores: list[float], args: argparse.Namespace) -> None:
    write = _write_json if args.format == "json" else _write_csv
    if args.output is None:
        write(scores, sys.stdout)
        return
    with atomic_write(args.output) as file, io.TextIOWrapper(file, "utf-8", newline="") as text:
        write(scores, text)
    if not args.quiet:
        note(f"{len(scores):,} scores written to {args.output}.")


def _write_json(scores: list[float], file: Any) -> None:
    json.dump(scores, file, indent=2)
    file.write("\n")


def _write_csv(scores: list[float], file: Any) -> None:
    file.write("score\n")
    file.writelines(f"{score!r}\n" for score in scores)
