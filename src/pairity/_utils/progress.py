"""A progress line for work that turns out to take longer than a couple of seconds."""

from __future__ import annotations

import multiprocessing
import sys
import threading
import time
from threading import Lock, Timer
from types import TracebackType
from typing import Any, Literal, Protocol, Self

from pairity.exceptions import InputError

PATIENCE = 2.0
Show = bool | Literal["auto"]


class Progress:
    """Counts rounds on stderr; stays silent for `PATIENCE` seconds, and for ever where told to.

    Parameters
    ----------
    total : int
        The most rounds there can be.
    description : str
    show : {"auto"} or bool
        "auto" shows on a terminal or in a notebook only, and not in the workers of a parallel
        job; True writes plain lines where there is no terminal.
    """

    def __init__(self, total: int, description: str, show: Show = "auto") -> None:
        if not isinstance(show, bool) and not (isinstance(show, str) and show == "auto"):
            raise InputError(f"progress is {show!r}; choose True, False or 'auto'.")
        self._wanted = sys.stderr is not None and (_interactive() if show == "auto" else show)
        self._total = total
        self._description = description
        self._done, self._note = 0, ""
        self._lock = Lock()
        self._timer: Timer | None = None
        self._display: _Display | None = None

    def __enter__(self) -> Self:
        if self._wanted:
            self._began = time.monotonic()
            self._timer = Timer(PATIENCE, self._start)  # a single round may be a long one
            self._timer.daemon = True
            self._timer.start()
        return self

    def advance(self, done: int, note: str) -> None:
        """Say that `done` rounds have ended, and how things stand."""
        with self._lock:
            self._done, self._note = done, note
            if self._display is not None:
                self._display.show(done, note)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._wanted = False  # for a timer that has just gone off
            if self._display is not None:
                self._display.close()

    def _start(self) -> None:
        with self._lock:
            if not self._wanted:
                return
            kind = _Bar if sys.stderr.isatty() else _Lines
            self._display = kind(self._total, self._description, self._began)
            self._display.show(self._done, self._note)


class _Display(Protocol):
    def show(self, done: int, note: str) -> None: ...

    def close(self) -> None: ...


class _Bar:
    """A bar that is drawn over itself on a terminal, and wiped away at the end."""

    def __init__(self, total: int, description: str, began: float) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        self._bar = Bar(
            TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", markup=False), TimeElapsedColumn(),
            console=Console(file=sys.stderr), transient=True, get_time=time.monotonic,
            redirect_stdout=False,  # what others print stays where they print it
        )  # fmt: skip
        self._task: Any = self._bar.add_task(description, total=total, note="")
        self._bar.tasks[0].start_time = began

    def show(self, done: int, note: str) -> None:
        self._bar.update(self._task, completed=done, note=note)
        self._bar.start()  # once; from then on it draws itself

    def close(self) -> None:
        self._bar.stop()


class _Lines:
    """A line now and then, for logs and notebooks."""

    def __init__(self, total: int, description: str, began: float) -> None:
        self._total, self._description, self._began = total, description, began
        self._last = -float("inf")

    def show(self, done: int, note: str) -> None:
        now = time.monotonic()
        if now - self._last < PATIENCE:
            return
        self._last = now
        said = f", {note}" if note else ""
        sys.stderr.write(
            f"{self._description}: {done}/{self._total}{said}, {now - self._began:.0f} s\n"
        )
        sys.stderr.flush()

    def close(self) -> None:
        """Nothing is left open."""


def _interactive() -> bool:
    """Whether somebody is watching, and this is not one of several workers."""
    if multiprocessing.parent_process() is not None:
        return False
    if threading.current_thread() is not threading.main_thread():
        return False
    return sys.stderr.isatty() or "ipykernel" in sys.modules
