"""``pairity predict``: scores of a table's rows by a saved model."""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
import warnings
from typing import TYPE_CHECKING, Any

from pairity._utils.typing import Array
from pairity.cli.options import (
    add_command,
    add_file,
    add_model,
    add_output,
    feature_names,
    read_given,
)
from pairity.cli.output import note, print_json
from pairity.exceptions import InputError

if TYPE_CHECKING:
    pass

_BLOCK = 100_000  # scores turned into text at a time
_EXAMPLES = """\
examples:
  pairity predict model new.csv > scores.csv
  pairity predict model new.parquet --output scores.csv
  pairity predict model new.csv --format json

One score a row, in the order of the rows. Groups are not needed. Columns are found by the names
that the model was trained on; others are left alone.
"""


def add_to(commands: Any) -> None:
    """Say the arguments."""
    parser = add_command(
        commands, "predict",
        about="score rows by a saved model",
        says="Scores by a saved model, in the order of the rows.",
        examples=_EXAMPLES,
    )  # fmt: skip
    add_model(parser)
    add_file(parser)
    parser.add_argument(
        "--output", metavar="FILE", help="what to write to, replacing it (default: print)"
    )
    add_output(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Score, and write."""
    import numpy as np

    from pairity.data.columns import require_finite
    from pairity.reweighting.persistence import load

    model = load(given.model)
    names = feature_names(model, given.model)
    table = read_given(given)
    lacking = [name for name in names if name not in table.columns]
    if lacking and not table.zeros:
        raise InputError(
            f"{given.file} lacks {len(lacking)} of the {len(names)} columns that the model was "
            f"trained on, the first being {lacking[0]!r}. Add them."
        )
    X, _ = table.features(names, (), ())
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        try:
            scores = np.asarray(model.predict(X), dtype=np.float64)
        except InputError:
            if isinstance(X, np.ndarray):
                require_finite(X, tuple(names))  # says which column by its name
            raise
    _write(scores, given)
    return 0


def _write(scores: Array, given: argparse.Namespace) -> None:
    if given.output is None:
        if given.format == "json":
            print_json(scores.tolist())
        else:
            _as_csv(scores, sys.stdout)
        return
    from pairity._utils.files import atomic_write

    with atomic_write(given.output) as file:
        if given.format == "json":
            file.write(json.dumps(scores.tolist()).encode())
        else:
            text = io.TextIOWrapper(file, encoding="utf-8", newline="")
            _as_csv(scores, text)
            text.flush()
            text.detach()
    if not given.quiet:
        note(f"{len(scores):,} scores written to {given.output}.")


def _as_csv(scores: Array, file: Any) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["score"])
    for at in range(0, len(scores), _BLOCK):
        writer.writerows([repr(score)] for score in scores[at : at + _BLOCK].tolist())
