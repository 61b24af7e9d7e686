"""Tables: aligned plain text, Rich tables on a terminal, and data frames through narwhals."""

import csv
import importlib.util
import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from pairity._utils.validation import require_choice
from pairity.exceptions import MissingExtraError

NAME_WIDTH = 20
_BACKENDS = ("pandas", "polars", "pyarrow")

CONSOLE: ContextVar[Any] = ContextVar("pairity_console", default=None)
"""The Rich console for which tables are drawn; None for plain text."""


def render_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[int] = (0,)
) -> str:
    """Format a table as text; columns that are not in `left` are aligned to the right."""
    if CONSOLE.get() is not None:
        return _draw_table(CONSOLE.get(), header, rows, left)
    from rich.cells import cell_len

    def pad(cell: str, column: int) -> str:
        blank = " " * (widths[column] - cell_len(cell))
        return cell + blank if column in left else blank + cell

    table = [header, *rows]
    widths = [max(map(cell_len, cells)) for cells in zip(*table, strict=True)]
    lines = ["  ".join(map(pad, row, range(len(row)))).rstrip() for row in table]
    lines.insert(1, "-" * (sum(widths) + 2 * (len(widths) - 1)))
    return "\n".join(lines)


def _draw_table(
    console: Any, header: Sequence[str], rows: Sequence[Sequence[str]], left: Collection[int]
) -> str:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, show_edge=False)
    for column, name in enumerate(header):
        side: Any = "left" if column in left else "right"
        table.add_column(Text(name), justify=side, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    with console.capture() as capture:
        console.print(table)
    return str(capture.get()).strip("\n")


def shorten(text: str, width: int = NAME_WIDTH) -> str:
    """Shorten text to one line of at most `width` columns, and escape unprintable characters."""
    from rich.cells import cell_len, set_cell_size

    escaped = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text[: width + 1]
    )
    if not escaped.strip():
        escaped = repr(escaped)
    if len(text) <= width and cell_len(escaped) <= width:
        return escaped
    return set_cell_size(escaped, width - 1).rstrip() + "…"


def short_names(names: Sequence[str], width: int = NAME_WIDTH) -> list[str]:
    """Shorten names, and number those that would look the same."""
    short = [shorten(name, width) for name in names]
    numbers = [f" ({k + 1})" if short.count(name) > 1 else "" for k, name in enumerate(short)]
    return [
        shorten(name, width - len(number)) + number
        for name, number in zip(names, numbers, strict=True)
    ]


def to_csv(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows with the same columns as CSV; an empty text if there are none."""
    listed, text = list(rows), io.StringIO()
    if listed:
        writer = csv.DictWriter(text, list(listed[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(listed)
    return text.getvalue()


def make_frame(columns: Mapping[str, Sequence[Any]], backend: str | None = None) -> Any:
    """Make a data frame with the chosen backend, or with the first one that is installed."""
    import narwhals as nw

    installed = [name for name in _BACKENDS if importlib.util.find_spec(name)]
    if backend is None and not installed:
        raise MissingExtraError(
            "A data frame requires pandas, polars or pyarrow. Use to_dict(), or install one: "
            "pip install pandas"
        )
    backend = installed[0] if backend is None else backend
    require_choice("backend", backend, _BACKENDS)
    if backend not in installed:
        raise MissingExtraError(f"{backend} is not installed: pip install {backend}")
    data = {name: list(values) for name, values in columns.items()}
    return nw.from_dict(data, backend=backend).to_native()  # type: ignore[arg-type]
