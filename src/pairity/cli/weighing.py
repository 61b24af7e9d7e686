"""``pairity weights``: the pair weights that a saved model learnt."""

from __future__ import annotations

import argparse
import json
from typing import Any

from pairity.cli.inputs import print_json

_EXAMPLES = """\
examples:
  pairity weights model
  pairity weights model --format json > weights.json
"""


def add_to(commands: Any) -> None:
    """Say the arguments."""
    parser = commands.add_parser(
        "weights",
        help="what a saved model learnt: the weights of pairs, by group",
        description="The table of pair weights, by the groups of the two items.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", metavar="DIR", help="what `pairity train` saved")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Print the table."""
    from pairity.exceptions import InputError
    from pairity.model_files import load

    weights = getattr(load(given.model), "pair_weights_", None)
    if weights is None:
        raise InputError(f"The model in {given.model} is a plain ranker: it learnt no weights.")
    if given.format == "json":
        print_json(json.loads(weights.to_json()))
    else:
        print(weights)
    return 0
