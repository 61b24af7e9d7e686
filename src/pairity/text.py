"""Tables for people and for programs: plain text through Rich, frames through narwhals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any

from pairity.exceptions import InputError, MissingExtraError

_BACKENDS = ("pandas", "polars", "pyarrow")


def render_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, title: str | None = None
) -> str:
    """A table as plain text, the first column left-aligned, the others right-aligned."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for at, name in enumerate(header):
        table.add_column(Text(name), justify="left" if at == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    out = StringIO()
    Console(file=out, width=10_000, no_color=True, highlight=False).print(table)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    return "\n".join(line for line in lines if line)


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
