"""Progress of long work on stderr: a Rich bar on a terminal, plain lines in a log."""

import multiprocessing
import sys
import threading
import time
from threading import RLock, Timer
from typing import Any, Literal, Self

from pairity.exceptions import InputError

PATIENCE = 2.0  # seconds without output at the start, and between two lines of a log
Show = bool | Literal["auto"]


class Progress:
    """Show how much of some work is done, once it has taken more than `PATIENCE` seconds.

    Parameters
    ----------
    total : int
        The largest number of steps.
    description : str
    show : {"auto"} or bool
        "auto" shows progress on a terminal or in a notebook only, and not in the workers of a
        parallel job. True also writes plain lines to a log.
    """

    def __init__(self, total: int, description: str, show: Show = "auto") -> None:
        if not isinstance(show, bool) and not (isinstance(show, str) and show == "auto"):
            raise InputError(f"progress must be True, False or 'auto' (got {show!r}).")
        wanted = sys.stderr is not None and (_interactive() if show == "auto" else show)
        # A timer, because a single step may take long.
        self._timer = Timer(PATIENCE, self._show) if wanted else None
        self._total, self._description = total, description
        self._done, self._note = 0, ""
        self._lock = RLock()  # Ctrl-C may come while this thread holds it
        self._shown = False
        self._bar: Any = None
        self._last_line = -float("inf")

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()
        return self

    def advance(self, done: int, note: str) -> None:
        """Record that `done` steps are complete, with a note to show beside them."""
        with self._lock:
            self._done, self._note = done, note
            if self._shown:
                self._draw()

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._timer = None  # in case the timer is just calling `_show`
            if self._bar is not None:
                self._bar.stop()

    def _show(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._shown = True
                if sys.stderr.isatty():
                    self._bar = _make_bar(self._description, self._total, self._began)
                self._draw()

    def _draw(self) -> None:
        now = time.monotonic()
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self._done, note=self._note)
            self._bar.start()  # the first call draws the bar, later ones do nothing
        elif now - self._last_line >= PATIENCE:
            self._last_line = now
            state = f"{self._done}/{self._total}" + (f", {self._note}" if self._note else "")
            sys.stderr.write(f"{self._description}: {state}, {now - self._began:.0f} s\n")
            sys.stderr.flush()


def _make_bar(description: str, total: int, began: float) -> Any:
    """A bar that redraws itself, and is erased when it stops."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    bar = Bar(
        TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
        TextColumn("{task.fields[note]}", markup=False), TimeElapsedColumn(),
        console=Console(file=sys.stderr), transient=True, get_time=time.monotonic,
        redirect_stdout=False,  # what other code prints must reach stdout
    )  # fmt: skip
    bar.add_task(description, total=total, note="")
    bar.tasks[0].start_time = began
    return bar


def _interactive() -> bool:
    """Whether a person watches stderr, and this is not one of several workers."""
    is_main = threading.current_thread() is threading.main_thread()
    is_worker = multiprocessing.parent_process() is not None or not is_main
    return not is_worker and (sys.stderr.isatty() or "ipykernel" in sys.modules)
