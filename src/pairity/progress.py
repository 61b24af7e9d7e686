"""A progress line for work that turns out to take longer than a couple of seconds."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Literal, Self

from pairity.exceptions import InputError

PATIENCE = 2.0
Show = bool | Literal["auto"]


class Progress:
    """Counts rounds; stays silent for `PATIENCE` seconds, and for ever where told to.

    Parameters
    ----------
    total : int
        The most rounds there can be.
    show : {"auto"} or bool
        "auto" shows on a terminal or in a notebook only.
    """

    def __init__(self, total: int, description: str, show: Show = "auto") -> None:
        if show not in (True, False, "auto"):
            raise InputError(f"progress is {show!r}; choose True, False or 'auto'.")
        self._wanted = (_interactive() if show == "auto" else show) and total > 0
        self._total = total
        self._description = description
        self._began = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        return self

    def advance(self, done: int, note: str) -> None:
        """Say that `done` rounds have ended, and how things stand."""
        if not self._wanted:
            return
        if self._bar is None:
            if time.monotonic() - self._began < PATIENCE:
                return
            self._start()
        self._bar.update(self._task, completed=done, note=note)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        self._bar = Bar(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", markup=False), TimeElapsedColumn(),
            console=Console(file=sys.stderr), transient=True,
        )  # fmt: skip
        self._bar.start()
        self._task = self._bar.add_task(self._description, total=self._total, note="")


def _interactive() -> bool:
    return bool(sys.stderr is not None and sys.stderr.isatty()) or "ipykernel" in sys.modules
