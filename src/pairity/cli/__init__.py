"""The command ``pairity``: subcommands that read files, call one library function and write.

Each subcommand is a module here. Its docstring is its help: the first line is shown in the list of
commands, the second paragraph above the options, and the examples below them. `add_to` declares the
options, and `run` does the work and returns the exit status: 0 for success, 1 if a target that was
asked for was not reached, 2 for bad usage or input, 130 after an interruption, 141 if the reader of
the output went away.
"""

import argparse
import os
import re
import shlex
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import pairity
from pairity.cli.output import note
from pairity.exceptions import PairityError, PairityWarning

_COMMANDS = (
    "demo", "audit", "train", "report", "predict", "sweep", "weights", "datasets", "reproduce",
)  # fmt: skip
_FORMATTER = argparse.RawDescriptionHelpFormatter
_STYLE: dict[str, Any] = {"formatter_class": _FORMATTER, "allow_abbrev": False}
_EXAMPLES = """\
start here:
  pairity demo                                   the main job on built-in data
  pairity audit ranked.csv                       asks for the columns that it needs
  pairity COMMAND --help                         shows examples

Exit status: 0 success, 1 a target that was asked for was not reached, 2 bad usage or input.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, by default those of the process."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):  # escape names that the terminal cannot show
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        status = _run(words)
        sys.stdout.flush()
    except PairityError as error:
        note(str(error))
        return 2
    except KeyboardInterrupt as interruption:
        for message in ("Interrupted.", *getattr(interruption, "__notes__", ())):
            note(message)
        return 130
    except BrokenPipeError:  # for example with `| head`
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except MemoryError:
        note("There is not enough memory. Use fewer rows or columns.")
        return 2
    except OSError as error:
        note(f"{error.filename or 'A file'}: {error.strerror or error}.")
        return 2
    return status


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="pairity",
        description="Measure how a ranker orders groups, reweight pairs, and show the trade-off.",
        epilog=_EXAMPLES,
        **_STYLE,
    )
    parser.add_argument("--version", action="version", version=f"pairity {pairity.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name in _COMMANDS:
        module = import_module(f"pairity.cli.{name}")
        # Python without docstrings (-OO) shows the options only.
        line, description, examples = (module.__doc__ or "\n\n" * 2).split("\n\n", 2)
        line = line[:1].lower() + line[1:].removesuffix(".")
        texts: Any = {"description": description, "epilog": f"examples:\n{examples}", **_STYLE}
        command = commands.add_parser(name, help=line, **texts)
        command.set_defaults(run=module.run, parser=command)
        module.add_to(command)
    return parser


def _run(words: list[str]) -> int:
    parser = make_parser()
    if not words:
        parser.print_help(sys.stderr)
        return 2
    defaults = argparse.Namespace(command=shlex.join(["pairity", *words]), quiet=False)
    args, unknown = parser.parse_known_args(words, defaults)
    if unknown:
        options = re.findall(r"--[a-z][a-z-]+", args.parser.format_help())
        close = get_close_matches(unknown[0], options, 1)
        suggestion = f" Did you mean {close[0]}?" if close else ""
        parser.error(f"unrecognized arguments: {' '.join(unknown)}.{suggestion}")
    with warnings.catch_warnings():
        show_other = warnings.showwarning

        def show_warning(message: Any, category: type[Warning], *rest: Any) -> None:
            if not issubclass(category, PairityWarning):
                show_other(message, category, *rest)
            elif not args.quiet:
                note(f"warning: {message}")

        warnings.showwarning = show_warning  # type: ignore[assignment]
        return int(args.run(args))
