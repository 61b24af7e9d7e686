"""The command ``pairity``: subcommands that read files, call one library function, and write.

Each subcommand is a module here with `add_to`, which says its arguments, and `run`, which does it
and returns the exit status: 0 done, 1 target not reached where one was asked for, 2 bad usage or
input.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence

import pairity
from pairity.cli import auditing, predicting, reproducing, training, weighing
from pairity.exceptions import PairityError

_COMMANDS = (auditing, training, predicting, weighing, reproducing)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, by default those of the process."""
    parser = argparse.ArgumentParser(
        prog="pairity",
        description="Rankers that treat groups even-handedly: measure, reweight, trade off.",
    )
    parser.add_argument("--version", action="version", version=f"pairity {pairity.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add_to(commands)
    words = sys.argv[1:] if arguments is None else list(arguments)
    given = parser.parse_args(words, argparse.Namespace(command=shlex.join(["pairity", *words])))
    try:
        return int(given.run(given))
    except PairityError as error:
        print(f"pairity: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as interruption:
        for note in ("Interrupted.", *getattr(interruption, "__notes__", ())):
            print(f"pairity: {note}", file=sys.stderr)
        return 130
