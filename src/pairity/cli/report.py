"""Write the page about a saved model, for the people who decide.

Write the page about models that `pairity train` saved.

  pairity report model
  pairity report model --output hiring.html --title "Hiring, March"
  pairity report model other-model --output both.html

The page needs no network and no server: open it, send it, print it. Several models share one page
if they were measured on the same held-out queries with the same constraint.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pairity
from pairity._utils.files import require_output_file
from pairity.cli import options
from pairity.cli.output import show
from pairity.exceptions import InputError

if TYPE_CHECKING:
    from pairity.reports.evidence import Evidence


def add_to(parser: Any) -> None:
    """Declare the options."""
    options.add_model(parser, "models", nargs="+")
    options.add(parser, "--output FILE", "the file to write or replace", default="report.html")
    options.add(parser, "--title TEXT", "the heading of the page", default="")
    options.add_quiet(parser)


def run(args: argparse.Namespace) -> int:
    """Read the models' evidence and write the page."""
    from pairity.reports.merge import merge_evidence

    require_output_file(Path(args.output))
    evidence = merge_evidence({folder: _read(folder) for folder in args.models})
    pairity.Report(evidence, title=args.title).save(args.output)
    if not args.quiet:
        show(f"The report is {args.output}.")
    return 0


def _read(folder: str) -> Evidence:
    from pairity._utils.model_folder import read_model
    from pairity.reports.evidence import FILE, Evidence

    _, files = read_model(folder)
    if FILE not in files:
        raise InputError(
            f"The model in {folder} has no {FILE}: it was not saved by `pairity train`, or it was "
            "saved with --no-report. Train it again."
        )
    return Evidence.from_json(files[FILE])
