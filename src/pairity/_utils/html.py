"""HTML that cannot go wrong: every text is escaped unless it was made here."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import Any

from pairity._utils.text import shorten

_VOID = {"input", "meta", "br", "hr"}
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff]")
_STYLE = """
.pairity table { border-collapse: collapse; margin: .6em 0 1.2em; }
.pairity caption { caption-side: top; text-align: left; padding: .3em 0; white-space: nowrap; }
.pairity th, .pairity td { text-align: left; padding: .25em .7em; white-space: nowrap; }
.pairity thead th { border-bottom: 1px solid rgb(128 128 128 / .6); }
.pairity tbody th { font-weight: normal; }
.pairity p { margin: .2em 0; }
"""


class Html(str):
    """Text that is HTML already; whatever else is put into an element is escaped."""

    __slots__ = ()


def escape(text: Any) -> Html:
    """Any text as HTML that shows it, and does nothing else."""
    if isinstance(text, Html):
        return text
    shown = str(text).encode("utf-8", "replace").decode("utf-8")
    return Html(html.escape(_CONTROLS.sub("\ufffd", shown)))


def join(parts: Iterable[Any]) -> Html:
    """Parts one after the other."""
    return Html("".join(escape(part) for part in parts))


def tag(element: str, /, *children: Any, **attributes: Any) -> Html:
    """An element; ``cls`` is its class, and an underscore in a name stands for a hyphen.

    Attributes that are None or False are left out; one that is True stands alone.

    Examples
    --------
    >>> from pairity._utils.html import tag
    >>> print(tag("p", "1 < 2 ", tag("b", "yes"), cls="note", data_at=3))
    <p class="note" data-at="3">1 &lt; 2 <b>yes</b></p>
    """
    said = "".join(
        f" {_attribute(key)}" if value is True else f' {_attribute(key)}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if element in _VOID:
        return Html(f"<{element}{said}>")
    return Html(f"<{element}{said}>{join(children)}</{element}>")


def _attribute(key: str) -> str:
    return {"cls": "class"}.get(key, key.rstrip("_").replace("_", "-"))


def name_tag(name: str, width: int = 40) -> Html:
    """A name that somebody gave: cut where it is long, its direction of writing its own affair."""
    short = shorten(name, width)
    return tag("bdi", short, title=None if short == name else name[:500])


def notebook(*content: Any) -> Html:
    """Content for a notebook, whose tables look the same whatever the page around them."""
    return tag("div", tag("style", Html(_STYLE)), *content, cls="pairity")


def shade(difference: float) -> str:
    """The colour of a value that differs this much from what is even: orange above, blue below."""
    colour = "213 94 0" if difference > 0 else "0 114 178"
    return f"background: rgb({colour} / {min(abs(difference) / 0.4, 0.62):.2f})"


def table(
    header: Sequence[Any], rows: Iterable[Sequence[Any]], *, caption: Any = None, **attributes: Any
) -> Html:
    """A table whose first column names its rows; a row may be an element already."""
    head = tag("tr", *(tag("th", cell, scope="col") for cell in header))
    body = [
        row
        if isinstance(row, Html)
        else tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:]))
        for row in rows
    ]
    title = () if caption is None else (tag("caption", caption),)
    return tag("table", *title, tag("thead", head), tag("tbody", *body), **attributes)
