"""The charts of a report, made with Bokeh; its script draws them in the reader's browser."""

from __future__ import annotations

from math import isfinite, isnan
from pathlib import Path
from typing import Any

from pairity._utils.text import shorten
from pairity.audits.estimates import Estimate
from pairity.exceptions import MissingExtraError
from pairity.reports.evidence import Candidate, Evidence
from pairity.reports.prose import number, told

# Colours that people with any kind of colour vision tell apart (Okabe & Ito), with a shape each:
# as Bokeh calls it, and as a letter.
COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#7f7f7f",
)  # fmt: skip
MARKERS = (
    "circle", "square", "triangle", "diamond", "inverted_triangle", "plus", "x", "star",
)  # fmt: skip
SHAPES = ("●", "■", "▲", "◆", "▼", "✚", "✖", "★")
METHOD_ORDER = (7, 2, 3, 4, 5, 6, 0, 1)  # so that rankers do not look like groups
DASHES = ("solid", "dashed", "dotted", "dotdash", "dashdot", "solid", "dashed", "dotted")
MOST_LINES = 8
_BARS = "#5b7fae"
_SIZES = {"frontier": 380, "positions": 300, "histogram": 260, "rounds": 280}


def library() -> str:
    """Bokeh's script, from the package that is installed."""
    bokeh = _import("bokeh")
    path = Path(bokeh.__file__).parent / "server" / "static" / "js" / "bokeh.min.js"
    return path.read_text(encoding="utf-8")


def draw(evidence: Evidence) -> dict[str, Any]:
    """Each chart that there is something to draw in, as Bokeh's own JSON."""
    embed = _import("bokeh.embed")
    after = evidence.candidates[evidence.after]
    charts = {"frontier": _frontier(evidence)}
    if any(each.positions for each in evidence.candidates):
        charts["positions"] = _positions(evidence, after)
    if any(each.histogram for each in evidence.candidates):
        charts["histogram"] = _histogram(evidence, after)
    if len(evidence.rounds) > 1:
        charts["rounds"] = _rounds(evidence)
    ids: dict[str, str] = {}
    return {name: _renumbered(embed.json_item(figure), ids) for name, figure in charts.items()}


def _renumbered(value: Any, ids: dict[str, str]) -> Any:
    """The same with Bokeh's ids counted from 1, so that a page can be had again, byte by byte."""
    if isinstance(value, dict):
        return {
            key: ids.setdefault(part, f"p{len(ids) + 1}")
            if key in ("id", "root_id") and isinstance(part, str)
            else _renumbered(part, ids)
            for key, part in value.items()
        }
    return [_renumbered(part, ids) for part in value] if isinstance(value, list) else value


def columns(evidence: Evidence, candidate: Candidate) -> dict[str, dict[str, Any]]:
    """What a chart's source holds when this candidate is chosen, by the source's name."""
    found: dict[str, dict[str, Any]] = {"chosen": _place(evidence, candidate)}
    lines = _lines(evidence, candidate)
    for at, shares in enumerate(lines):
        found[f"positions-{at}"] = {"x": list(range(1, len(shares) + 1)), "y": shares}
    found["histogram-after"] = {
        **_bars(evidence),
        "top": list(candidate.histogram) or [0] * len(_bars(evidence)["left"]),
    }
    return found


def method_styles(evidence: Evidence) -> dict[str, tuple[str, str, str]]:
    """Colour, marker and letter of each method."""
    methods = dict.fromkeys(each.method for each in evidence.candidates)
    styles = [(COLOURS[METHOD_ORDER[at]], MARKERS[at], SHAPES[at]) for at in range(8)]
    return {name: styles[at % 8] for at, name in enumerate(methods)}


# --- the charts ----------------------------------------------------------------------------------


def _frontier(evidence: Evidence) -> Any:
    styles = method_styles(evidence)
    rows: list[dict[str, Any]] = []
    for at, each in enumerate(evidence.candidates):
        gap, auc = each.estimate("violation", evidence.constraint), each.estimate("auc")
        colour, marker, _ = styles[each.method]
        rows.append(
            {
                "x": gap.value, "y": auc.value, **_ends("x", gap), **_ends("y", auc),
                "at": at, "name": shorten(each.name, 48), "colour": colour, "marker": marker,
                "disparity": told(gap), "accuracy": told(auc),
            }
        )  # fmt: skip
    models = _import("bokeh.models")
    source = models.ColumnDataSource(
        {key: [row[key] for row in rows] for key in rows[0]}, name="frontier"
    )
    hover = models.HoverTool(
        tooltips=[("ranker", "@name"), ("disparity", "@disparity"), ("accuracy", "@accuracy")],
        renderers=[], attachment="vertical",
    )  # fmt: skip
    figure = _figure(
        "frontier", "disparity (violation), 0 is even", "accuracy (AUC)",
        tools=[hover, models.TapTool()],
    )  # fmt: skip
    first = rows[evidence.before]
    for method in styles:
        path = [
            row
            for row, each in zip(rows, evidence.candidates, strict=True)
            if each.method == method and each.weights is not None
        ]
        figure.line(
            [row["x"] for row in (first, *path)], [row["y"] for row in (first, *path)],
            line_color="#888888", line_dash="dotted", line_width=1.5,
        )  # fmt: skip
    style = {"source": source, "line_color": "colour", "line_alpha": 0.55, "line_width": 1.5}
    figure.segment("x_low", "y", "x_high", "y", **style)
    figure.segment("x", "y_low", "x", "y_high", **style)
    chosen = models.ColumnDataSource(
        _place(evidence, evidence.candidates[evidence.after]), name="chosen"
    )
    figure.scatter(
        "x", "y", source=chosen, size=24, fill_color=None, line_color="#888888", line_width=3,
        name="ring",
    )  # fmt: skip
    dots = figure.scatter(
        "x", "y", source=source, size=12, marker="marker", fill_color="colour",
        line_color="colour",
    )  # fmt: skip
    dots.nonselection_glyph = dots.selection_glyph = None
    hover.renderers = [dots]
    if evidence.tolerance is not None:
        figure.add_layout(
            models.Span(
                location=evidence.tolerance, dimension="height", line_dash="dashed",
                line_color="#888888", line_width=1,
            )
        )  # fmt: skip
    # From even to the widest, so that the tolerance, which lies between, is in sight.
    ends = [evidence.tolerance or 0.0, *(row["x_high"] for row in rows)]
    width = max(filter(isfinite, ends))
    if width > 0.0:
        figure.x_range.start, figure.x_range.end = -0.03 * width, 1.05 * width
    return figure


def _positions(evidence: Evidence, after: Candidate) -> Any:
    models = _import("bokeh.models")
    figure = _figure("positions", "position in the ranking", "share held by the group")
    before = evidence.candidates[evidence.before]
    pairs = zip(_lines(evidence, before), _lines(evidence, after), strict=True)
    for at, (old, new) in enumerate(pairs):
        colour, marker = COLOURS[at], MARKERS[at]
        places = list(range(1, len(old) + 1))
        figure.line(places, old, line_color=colour, line_dash="dotted", line_width=2)
        source = models.ColumnDataSource(
            {"x": list(range(1, len(new) + 1)), "y": new}, name=f"positions-{at}"
        )
        figure.line("x", "y", source=source, line_color=colour, line_width=2)
        figure.scatter(
            "x", "y", source=source, marker=marker, size=8, fill_color=colour, line_color=colour
        )
    figure.y_range.start = 0
    return figure


def _histogram(evidence: Evidence, after: Candidate) -> Any:
    models = _import("bokeh.models")
    figure = _figure("histogram", "gap in one query (0 is even)", "queries")
    before, bars = evidence.candidates[evidence.before], _bars(evidence)
    figure.quad(
        left=bars["left"], right=bars["right"], top=list(before.histogram), bottom=0,
        fill_color=None, line_color="#888888", line_width=2, line_dash="dashed",
    )  # fmt: skip
    source = models.ColumnDataSource(
        columns(evidence, after)["histogram-after"], name="histogram-after"
    )
    figure.quad(
        left="left", right="right", top="top", bottom=0, source=source, fill_color=_BARS,
        fill_alpha=0.5, line_color=_BARS, hatch_pattern="right_diagonal_line",
        hatch_color=_BARS, hatch_alpha=0.5,
    )  # fmt: skip
    figure.add_layout(models.Span(location=0, dimension="height", line_color="#888888"))
    figure.y_range.start = 0
    return figure


def _rounds(evidence: Evidence) -> Any:
    figure = _figure("rounds", "retraining", "multiplier λ")
    at = [each.number for each in evidence.rounds]
    for index in range(min(len(evidence.lambda_cells), MOST_LINES)):
        values = [each.lambda_[index] for each in evidence.rounds]
        colour = COLOURS[index]
        figure.line(at, values, line_color=colour, line_dash=DASHES[index], line_width=2)
        figure.scatter(
            at, values, marker=MARKERS[index], size=9, fill_color=colour, line_color=colour
        )
    figure.xaxis.ticker.min_interval = 1
    return figure


# --- what they share -----------------------------------------------------------------------------


def _figure(name: str, x: str, y: str, tools: Any = "") -> Any:
    figure = _import("bokeh.plotting").figure(
        name=name, height=_SIZES[name], sizing_mode="stretch_width", toolbar_location=None,
        tools=tools, x_axis_label=x, y_axis_label=y, output_backend="svg", min_border_right=12,
    )  # fmt: skip
    figure.background_fill_alpha = figure.border_fill_alpha = 0
    figure.outline_line_color = None
    figure.grid.grid_line_color, figure.grid.grid_line_alpha = "#808080", 0.22
    for axis in figure.axis:
        axis.axis_label_text_font_style = "normal"
        axis.axis_label_text_font_size = axis.major_label_text_font_size = "13px"
        axis.axis_label_text_font = axis.major_label_text_font = "system-ui, sans-serif"
        axis.minor_tick_line_color = None
    return figure


def _lines(evidence: Evidence, candidate: Candidate) -> list[list[float | None]]:
    """The group's shares of the first positions; nothing where the candidate has none."""
    n = min(len(evidence.groups), MOST_LINES)
    return [
        [None if isnan(value) else value for value in shares]
        for shares in (candidate.positions or ((),) * n)[:n]
    ]


def _bars(evidence: Evidence) -> dict[str, list[float]]:
    return {"left": list(evidence.bins[:-1]), "right": list(evidence.bins[1:])}


def _ends(name: str, figure: Estimate) -> dict[str, float]:
    here = isnan(figure.low)
    return {
        f"{name}_low": figure.value if here else figure.low,
        f"{name}_high": figure.value if here else figure.high,
    }


def _place(evidence: Evidence, candidate: Candidate) -> dict[str, list[float | None]]:
    values = (
        candidate.estimate("violation", evidence.constraint).value,
        candidate.estimate("auc").value,
    )
    return {
        axis: [None if number(value) == "–" else value]
        for axis, value in zip("xy", values, strict=True)
    }


def _import(module: str) -> Any:
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            'A report needs Bokeh. Install it with: pip install "pairity[report]"'
        ) from error
