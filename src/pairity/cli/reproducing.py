"""``pairity reproduce``: the paper's experiments."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

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
    parser = commands.add_parser(
        "reproduce",
        help="run the paper's experiments: tables, figures, verdicts",
        description="Run the paper's experiments; write tables, figures and verdicts.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
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
    parser.add_argument("--seeds", type=int, metavar="N", help="splits (default: 20; MSLR 5)")
    parser.add_argument("--quick", action="store_true", help="two splits, fewer settings, no MSLR")
    parser.add_argument(
        "--jobs", type=int, default=-1, metavar="N", help="processes (default: all)"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bars")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Reproduce, and say what was found."""
    from pairity.paper.claims import Verdict, count_verdicts
    from pairity.paper.reproduction import DATA, reproduce
    from pairity.text import render_table

    result = reproduce(
        given.output,
        data_home=given.data,
        data=given.only or DATA,
        n_seeds=given.seeds,
        quick=given.quick,
        n_jobs=given.jobs,
        progress=False if given.quiet else "auto",
        command=given.command,
    )
    counts = count_verdicts(result.claims)
    header = ["claim", *map(str, Verdict)]
    rows = [[text, *map(str, held.values())] for text, held in counts.items()]
    print(render_table(header, rows, left=(0,)))
    written = sorted(path.name for path in Path(given.output).iterdir() if path.is_file())
    print(f"\nIn {given.output}: {', '.join(written)}.")
    return 0
