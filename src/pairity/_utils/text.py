"""Tables for people and for programs: aligned plain text, and frames through narwhals."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from pairity.exceptions import InputError, MissingExtraError

NAME_WIDTH = 20
_BACKENDS = ("pandas", "polars", "pyarrow")
_TERMINAL: ContextVar[Any] = ContextVar("_TERMINAL", default=None)


@contextmanager
def tables_for_console(console: Any) -> Iterator[None]:
    """Within the block, tables are drawn for a Rich console instead of as plain text."""
    before = _TERMINAL.set(console)
    try:
        yield
    finally:
        _TERMINAL.reset(before)


def render_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: Collection[int] = (0,),
) -> str:
    """A table as plain text; columns not in `left` are aligned to the right."""
    if _TERMINAL.get() is not None:
        return _draw_table(_TERMINAL.get(), header, rows, left)
    from rich.cells import cell_len

    def pad(cell: str, at: int) -> str:
        blank = " " * (widths[at] - cell_len(cell))
        return cell + blank if at in left else blank + cell

    table = [header, *rows]
    widths = [max(cell_len(row[at]) for row in table) for at in range(len(header))]
    lines = ["  ".join(pad(cell, at) for at, cell in enumerate(row)).rstrip() for row in table]
    lines.insert(1, "-" * (sum(widths) + 2 * (len(widths) - 1)))
    return "\n".join(lines)


def _draw_table(
    console: Any, header: Sequence[str], rows: Sequence[Sequence[str]], left: Collection[int]
) -> str:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, show_edge=False)
    for at, name in enumerate(header):
        side: Any = "left" if at in left else "right"
        table.add_column(Text(name), justify=side, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    with console.capture() as drawn:
        console.print(table)
    return str(drawn.get()).strip("\n")


def shorten(text: str, width: int = NAME_WIDTH) -> str:
    """Text on one line, at most `width` columns wide; what cannot be printed is escaped."""
    from rich.cells import cell_len, set_cell_size

    shown = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text[: width + 1]
    )
    if not shown.strip():
        shown = repr(shown)
    if len(text) <= width and cell_len(shown) <= width:
        return shown
    return set_cell_size(shown, width - 1).rstrip() + "…"


def short_names(names: Sequence[str], width: int = NAME_WIDTH) -> list[str]:
    """Names as `shorten` shows them; those that would look the same are numbered."""
    shown = [shorten(name, width) for name in names]
    numbers = [f" ({at + 1})" if shown.count(name) > 1 else "" for at, name in enumerate(shown)]
    return [
        shorten(name, width - len(number)) + number
        for name, number in zip(names, numbers, strict=True)
    ]


def make_frame(columns: Mapping[str, Sequence[Any]], backend: str | None = None) -> Any:
    """A data frame of the backend asked for, or of the first one that is installed."""
    import importlib.util

    import narwhals as nw

    if backend is None:
        installed = [name for name in _BACKENDS if importlib.util.find_spec(name)]
        if not installed:
            raise MissingExtraError(
                "A data frame needs pandas, polars or pyarrow. Install one, for example with: "
                "pip install pandas; or use to_dict()."
            )
        backend = installed[0]
    if backend not in _BACKENDS:
        raise InputError(f"backend is {backend!r}; choose one of {', '.join(_BACKENDS)}.")
    if importlib.util.find_spec(backend) is None:
        raise MissingExtraError(f"{backend} is not installed. Install it: pip install {backend}")
    data = {name: list(values) for name, values in columns.items()}
    return nw.from_dict(data, backend=backend).to_native()  # type: ignore[arg-type]
