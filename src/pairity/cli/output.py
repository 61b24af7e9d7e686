"""How the subcommands print: tables by Rich on a terminal, plain text when piped, JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any


def say(*parts: Any) -> None:
    """Print things one after the other; a function is called for what it returns.

    Their tables are drawn by Rich where somebody is looking at a terminal.
    """
    from contextlib import nullcontext

    from pairity._utils.text import tables_for_console

    console = _terminal()
    with nullcontext() if console is None else tables_for_console(console):
        for part in parts:
            print(part() if isinstance(part, Callable) else part)  # type: ignore[arg-type]


def note(text: str) -> None:
    """One line for people, beside what is printed."""
    print(f"pairity: {text}", file=sys.stderr)


def print_json(value: Any) -> None:
    """As one JSON document."""
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def _terminal() -> Any:
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    from rich.console import Console

    console = Console(file=sys.stdout)
    return console if console.is_terminal and not console.is_dumb_terminal else None
