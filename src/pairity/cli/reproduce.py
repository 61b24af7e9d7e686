"""Run the paper's experiments: tables, figures, verdicts.

Run the paper's experiments and write tables, figures and verdicts.

  pairity reproduce --quick                      a trial in a few minutes
  pairity reproduce --data DIR                   everything, with the data sets in DIR
  pairity reproduce --only TREC --seeds 5        one data set, five splits

Without --data, the data sets are looked for in the folder that PAIRITY_DATA names and in the user's
cache, and downloaded otherwise. An interrupted run resumes when it is started again.
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from pairity.cli import options
from pairity.cli.output import show_or_json


def add_to(parser: Any) -> None:
    """Declare the options."""
    option = partial(options.add, parser)
    option("--data DIR", "the folder of the data sets")
    option("--output DIR", "the folder to write", default="paper")
    option("--only NAME", "TREC, 'Engineering Students' or MSLR; may be repeated", action="append")
    attribute = "whether the protected attribute is among the features"
    option("--attribute", attribute, choices=("with", "without", "both"), default="both")
    option("--seeds N", "splits (default: 20; MSLR 5)", type=int)
    option("--quick", "two splits, fewer settings, no MSLR", action="store_true")
    bare = "the five methods only: no plain update, no Adam, no shares of λ*, no further checks"
    option("--bare", bare, action="store_true")
    option("--jobs N", "processes; -1 for all cores", default=-1)
    options.add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Run the experiments and print the verdicts."""
    from pairity._utils.text import render_table
    from pairity.paper.claims import Verdict, count_verdicts
    from pairity.paper.reproduction import DATA, reproduce

    result = reproduce(
        args.output,
        data_home=args.data,
        data=args.only or DATA,
        attribute=args.attribute,
        n_seeds=args.seeds,
        quick=args.quick,
        bare=args.bare,
        n_jobs=args.jobs,
        progress=options.progress_setting(args),
        command=args.command,
    )
    counts = {
        claim: {str(verdict): n for verdict, n in verdicts.items()}
        for claim, verdicts in count_verdicts(result.claims).items()
    }
    written = sorted(path.name for path in Path(args.output).iterdir() if path.is_file())
    header = ["claim", *map(str, Verdict)]
    rows = [[claim, *map(str, verdicts.values())] for claim, verdicts in counts.items()]
    show_or_json(
        args,
        {"output": args.output, "files": written, "claims": counts},
        lambda: render_table(header, rows),
        f"\nIn {args.output}: {', '.join(written)}.",
    )
    return 0
