"""``pairity report``: the page about models that `pairity train` saved."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairity.cli.options import add_command, add_model, add_quiet
from pairity.cli.output import say
from pairity.exceptions import InputError

if TYPE_CHECKING:
    from pairity.reports.evidence import Evidence

_EXAMPLES = """\
examples:
  pairity report model
  pairity report model --output hiring.html --title "Hiring, March"
  pairity report model other-model --output both.html

A page needs no network and no server: open it, send it, print it. Models are put on one page where
they were measured on the same held-out queries, by the same constraint.
"""


def add_to(commands: Any) -> None:
    """Say the arguments."""
    parser = add_command(
        commands, "report",
        about="the page about a saved model, for whoever decides",
        says="Draw the page about models that `pairity train` saved.",
        examples=_EXAMPLES,
    )  # fmt: skip
    add_model(parser, "models", nargs="+")
    parser.add_argument(
        "--output", metavar="FILE", default="report.html",
        help="what to write; replaces a file (default: report.html)",
    )  # fmt: skip
    parser.add_argument("--title", metavar="TEXT", default="", help="the heading")
    add_quiet(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Read, draw, write."""
    from pairity._utils.files import require_output_file
    from pairity.reports.merge import merge_evidence
    from pairity.reports.report import Report

    require_output_file(Path(given.output))
    evidence = merge_evidence({folder: _read(folder) for folder in given.models})
    Report(evidence, title=given.title).save(given.output)
    if not given.quiet:
        say(f"The report is {given.output}.")
    return 0


def _read(folder: str) -> Evidence:
    from pairity._utils.model_folder import read_model
    from pairity.reports.evidence import FILE, Evidence

    _, files = read_model(folder)
    if FILE not in files:
        raise InputError(
            f"The model in {folder} has no {FILE}: it was not saved by `pairity train`, or with "
            "--no-report. Train it again."
        )
    return Evidence.from_json(files[FILE])
