"""``pairity demo``: the main job on built-in data."""

from __future__ import annotations

import argparse
import time
from typing import Any

from pairity.cli.inputs import add_command, add_output, add_seed, shows_progress
from pairity.cli.printing import print_json, say

_EXAMPLES = """\
examples:
  pairity demo
  pairity demo --seed 3 --format json
"""


def add_to(commands: Any) -> None:
    """Say the arguments."""
    parser = add_command(
        commands, "demo",
        about="the main job on built-in data",
        says="Train a plain and a reweighted ranker on built-in data, and compare them.",
        examples=_EXAMPLES,
    )  # fmt: skip
    add_seed(parser, "of the data")
    add_output(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Train, audit, print."""
    from pairity.demo import demonstrate

    began = time.perf_counter()
    demo = demonstrate(given.seed, shows_progress(given))
    if given.format == "json":
        print_json(demo.to_dict())
    elif not given.quiet:
        say(demo, f"\nDone in {time.perf_counter() - began:.1f} s.")
        # The report is written here, from `demo`, and the last line names its file.
    return 0
