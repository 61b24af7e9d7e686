"""Printing: tables drawn by Rich on a terminal, plain text in a pipe, JSON for scripts."""

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

from pairity._utils.context import value_in_block


def show(*parts: Any) -> None:
    """Print each part on its own lines; a function is called and its result printed.

    On a terminal, the tables that these functions render are drawn by Rich.
    """
    from pairity._utils.text import CONSOLE

    with value_in_block(CONSOLE, _terminal()):
        for part in parts:
            print(part() if isinstance(part, Callable) else part)  # type: ignore[arg-type]


def show_or_json(args: argparse.Namespace, document: Any, *parts: Any) -> None:
    """Print a JSON document or the parts, as --format and --quiet say."""
    if args.format == "json":
        print_json(document)
    elif not args.quiet:
        show(*parts)


def note(text: str) -> None:
    """Print a message for people on stderr."""
    print(f"pairity: {text}", file=sys.stderr)


def print_json(value: Any) -> None:
    """Print one JSON document."""
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def _terminal() -> Any:
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    from rich.console import Console

    console = Console(file=sys.stdout)
    return console if console.is_terminal and not console.is_dumb_terminal else None
