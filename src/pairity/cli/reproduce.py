"""``pairity reproduce``: the paper's experiments."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pairity.cli.options import add_command, add_output, shows_progress
from pairity.cli.output import print_json, say

_EXAMPLES = """\
examples:
  pairity reproduce --quick                      a trial in a few minutes
  pairity reproduce --data DIR                   everything, the data sets being in DIR
  pairity reproduce --only TREC --seeds 5        one data set, five splits

Without --data, the data sets are looked for in the folder that PAIRITY_DATA names and in the user's
cache, and fetched from where they are published otherwise. An interrupted run goes on where it
stopped when it is started again.
"""


def add_to(commands: Any) -> None:
    """Say the arguments."""
    parser = add_command(
        commands, "reproduce",
        about="run the paper's experiments: tables, figures, verdicts",
        says="Run the paper's experiments; write tables, figures and verdicts.",
        examples=_EXAMPLES,
    )  # fmt: skip
    parser.add_argument("--data", metavar="DIR", help="where the data sets lie")
    parser.add_argument(
        "--output", metavar="DIR", default="paper", help="what to write to (default: paper)"
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help="TREC, 'Engineering Students' or MSLR; may be given more than once",
    )
    parser.add_argument(
        "--attribute",
        choices=("with", "without", "both"),
        default="both",
        help="whether the protected attribute is among the features (default: both)",
    )
    parser.add_argument("--seeds", type=int, metavar="N", help="splits (default: 20; MSLR 5)")
    parser.add_argument("--quick", action="store_true", help="two splits, fewer settings, no MSLR")
    parser.add_argument(
        "--bare",
        action="store_true",
        help="the five methods alone: no plain update, no Adam, no shares of λ*, no further checks",
    )
    parser.add_argument(
        "--jobs", type=int, default=-1, metavar="N", help="processes (default: all)"
    )
    add_output(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Reproduce, and say what was found."""
    from pairity._utils.text import render_table
    from pairity.paper.claims import Verdict, count_verdicts
    from pairity.paper.reproduction import DATA, reproduce

    result = reproduce(
        given.output,
        data_home=given.data,
        data=given.only or DATA,
        attribute=given.attribute,
        n_seeds=given.seeds,
        quick=given.quick,
        bare=given.bare,
        n_jobs=given.jobs,
        progress=shows_progress(given),
        command=given.command,
    )
    counts = count_verdicts(result.claims)
    header = ["claim", *map(str, Verdict)]
    rows = [[text, *map(str, held.values())] for text, held in counts.items()]
    written = sorted(path.name for path in Path(given.output).iterdir() if path.is_file())
    if given.format == "json":
        print_json(
            {
                "output": given.output,
                "files": written,
                "claims": {
                    text: {str(v): n for v, n in held.items()} for text, held in counts.items()
                },
            }
        )
    elif not given.quiet:
        say(
            lambda: render_table(header, rows, left=(0,)),
            f"\nIn {given.output}: {', '.join(written)}.",
        )
    return 0
