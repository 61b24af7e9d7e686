"""The command ``pairity``: subcommands that read files, call one library function, and write.

Each subcommand is a module here with `add_to`, which says its arguments, and `run`, which does it
and returns the exit status: 0 done, 1 target not reached where one was asked for, 2 bad usage or
input; 130 where it was interrupted, 141 where whoever read its output went away.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

import pairity
from pairity.cli import audit as auditing
from pairity.cli import datasets as listing
from pairity.cli import demo as demonstrating
from pairity.cli import predict as predicting
from pairity.cli import report as reporting
from pairity.cli import reproduce as reproducing
from pairity.cli import sweep as sweeping
from pairity.cli import train as training
from pairity.cli import weights as weighing
from pairity.cli.output import note
from pairity.exceptions import PairityError, PairityWarning

_COMMANDS = (
    demonstrating, auditing, training, reporting, predicting, sweeping, weighing, listing,
    reproducing,
)  # fmt: skip
_EXAMPLES = """\
start here:
  pairity demo                                   the main job on built-in data
  pairity audit ranked.csv                       asks for what it needs to know
  pairity COMMAND --help                         has examples

Exit status: 0 done, 1 a target that was asked for was not reached, 2 bad usage or input.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, by default those of the process."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):  # a name that the terminal cannot show
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        status = _run(words)
        sys.stdout.flush()
    except PairityError as error:
        note(str(error))
        return 2
    except KeyboardInterrupt as interruption:
        for said in ("Interrupted.", *getattr(interruption, "__notes__", ())):
            note(said)
        return 130
    except BrokenPipeError:  # such as by `| head`
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except MemoryError:
        note("There is not enough memory for this. Give fewer rows or columns.")
        return 2
    except OSError as error:
        note(f"{error.filename or 'A file'}: {error.strerror or error}.")
        return 2
    return status


def make_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="pairity",
        description="Rankers that treat groups even-handedly: measure, reweight, trade off.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"pairity {pairity.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add_to(commands)
    for each in commands.choices.values():
        each.set_defaults(options=each._actions)
    return parser


def _run(words: list[str]) -> int:
    parser = make_parser()
    if not words:
        parser.print_help(sys.stderr)
        return 2
    given, unknown = parser.parse_known_args(
        words, argparse.Namespace(command=shlex.join(["pairity", *words]), quiet=False)
    )
    if unknown:
        known = [option for each in given.options for option in each.option_strings]
        close = get_close_matches(unknown[0], known, 1)
        meant = f" Did you mean {close[0]}?" if close else ""
        parser.error(f"unrecognized arguments: {' '.join(unknown)}.{meant}")
    with warnings.catch_warnings():
        shown = warnings.showwarning

        def show(message: Any, category: type[Warning], *rest: Any) -> None:
            if not issubclass(category, PairityWarning):
                shown(message, category, *rest)
            elif not given.quiet:
                note(f"warning: {message}")

        warnings.showwarning = show  # type: ignore[assignment]
        return int(given.run(given))
