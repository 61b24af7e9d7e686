"""HTML elements: every text is escaped, unless it is HTML that this module made."""

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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
    """Text that is already HTML; any other text in an element is escaped."""

    __slots__ = ()


def escape(text: Any) -> Html:
    """Escape any text; `Html` stays as it is."""
    if isinstance(text, Html):
        return text
    valid = str(text).encode("utf-8", "replace").decode("utf-8")
    return Html(html.escape(_CONTROLS.sub("\ufffd", valid)))


def join(parts: Iterable[Any]) -> Html:
    """Escape and concatenate parts."""
    return Html("".join(escape(part) for part in parts))


def tag(element: str, /, *children: Any, **attributes: Any) -> Html:
    """Make an element; attributes that are None are left out, and ``class_`` is its class.

    Examples
    --------
    >>> from pairity._utils.html import tag
    >>> print(tag("p", "1 < 2 ", tag("b", "yes"), class_="note", title=None))
    <p class="note">1 &lt; 2 <b>yes</b></p>
    """
    text = "".join(
        f' {key.rstrip("_")}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{element}{text}>{join(children)}</{element}>")


def notebook(*content: Any) -> Html:
    """Wrap content for a notebook, with a style sheet for its tables."""
    return tag("div", tag("style", Html(_STYLE)), *content, class_="pairity")


def shade(difference: float) -> str:
    """The style of a cell by its difference from parity: orange above, blue below."""
    colour = "213 94 0" if difference > 0 else "0 114 178"  # of Okabe and Ito
    return f"background: rgb({colour} / {min(abs(difference) / 0.4, 0.62):.2f})"


def table(
    header: Sequence[Any],
    rows: Iterable[Sequence[Any]],
    *,
    caption: Any = None,
    styles: Mapping[tuple[int, int], str] | None = None,
) -> Html:
    """Make a table whose first column has the row names; `styles` are those of some cells."""
    head = tag("tr", *(tag("th", cell, scope="col") for cell in header))
    body = []
    for number, (name, *values) in enumerate(rows):
        cells = [
            tag("td", cell, style=(styles or {}).get((number, column)))
            for column, cell in enumerate(values, start=1)
        ]
        body.append(tag("tr", tag("th", name, scope="row"), *cells))
    title = () if caption is None else (tag("caption", caption),)
    return tag("table", *title, tag("thead", head), tag("tbody", *body))
