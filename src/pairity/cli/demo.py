"""``pairity demo``: the main job on built-in data, up to the report."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairity.cli.options import add_command, add_output, add_seed, shows_progress
from pairity.cli.output import note, print_json, say
from pairity.exceptions import MissingExtraError

if TYPE_CHECKING:
    from pairity.cli._demonstration import Demo

_EXAMPLES = """\
examples:
  pairity demo
  pairity demo --seed 3 --output demo.html --format json
"""


def add_to(commands: Any) -> None:
    """Say the arguments."""
    parser = add_command(
        commands, "demo",
        about="the main job on built-in data",
        says="Train a plain and a reweighted ranker on built-in data, compare them, draw a report.",
        examples=_EXAMPLES,
    )  # fmt: skip
    parser.add_argument(
        "--output", metavar="FILE", default="pairity-demo.html",
        help="the report; replaces a file (default: pairity-demo.html)",
    )  # fmt: skip
    add_seed(parser, "of the data")
    add_output(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Train, audit, print, and draw the report."""
    from pairity._utils.files import require_output_file
    from pairity.cli._demonstration import demonstrate

    require_output_file(Path(given.output))
    began = time.perf_counter()
    demo = demonstrate(given.seed, shows_progress(given))
    report = _report(demo, given)
    if given.format == "json":
        print_json({**demo.to_dict(), "report": report})
    elif not given.quiet:
        done = f"\nDone in {time.perf_counter() - began:.1f} s."
        say(demo, done if report is None else f"{done} The report is {report}.")
    return 0


def _report(demo: Demo, given: argparse.Namespace) -> str | None:
    from pairity.reports.collect import collect_training
    from pairity.reports.report import Report

    evidence = collect_training(
        demo.plain, demo.fair, demo.train, demo.test, audits=demo.audits,
        provenance={"command": given.command, "data": "built-in, synthetic", "seed": given.seed},
        title="Synthetic data whose labels favour one group",
    )  # fmt: skip
    try:
        Report(evidence).save(given.output)
    except MissingExtraError as error:
        note(str(error))
        return None
    return str(given.output)
