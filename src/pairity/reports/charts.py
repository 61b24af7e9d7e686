"""The charts of a report, made with Bokeh, whose script draws them in the reader's browser."""

from functools import partial
from math import isfinite, isnan
from pathlib import Path
from typing import Any

from pairity._utils.extras import import_extra
from pairity._utils.json_codec import to_plain
from pairity._utils.text import shorten
from pairity.reports.evidence import Candidate, Evidence
from pairity.reports.prose import violation, with_interval

# Colours that people with any colour vision can distinguish (Okabe & Ito), and a shape for each:
# its name in Bokeh, and a character.
COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#7f7f7f",
)  # fmt: skip
MARKERS = (
    "circle", "square", "triangle", "diamond", "inverted_triangle", "plus", "x", "star",
)  # fmt: skip
SHAPES = ("●", "■", "▲", "◆", "▼", "✚", "✖", "★")
METHOD_ORDER = (7, 2, 3, 4, 5, 6, 0, 1)  # of colours, so that rankers do not look like groups
DASHES = ("solid", "dashed", "dotted", "dotdash", "dashdot", "solid", "dashed", "dotted")
MOST_LINES = 8
_BARS, _GREY = "#5b7fae", "#888888"
_HEIGHTS = {"frontier": 380, "positions": 300, "histogram": 260, "rounds": 280}


import_report = partial(import_extra, user="A report", extra="report")


def library() -> str:
    """Bokeh's script, from the installed package."""
    bokeh = import_report("bokeh")
    path = Path(bokeh.__file__).parent / "server" / "static" / "js" / "bokeh.min.js"
    return path.read_text(encoding="utf-8")


def draw(evidence: Evidence) -> dict[str, Any]:
    """The charts for which there are data, as Bokeh's JSON."""
    json_item = import_report("bokeh.embed").json_item
    charts = {"frontier": _frontier(evidence)}
    if any(candidate.positions for candidate in evidence.candidates):
        charts["positions"] = _positions(evidence)
    if any(candidate.histogram for candidate in evidence.candidates):
        charts["histogram"] = _histogram(evidence)
    if len(evidence.rounds) > 1:
        charts["rounds"] = _rounds(evidence)
    ids: dict[str, str] = {}
    return {name: _renumber(json_item(figure), ids) for name, figure in charts.items()}


def _renumber(value: Any, ids: dict[str, str]) -> Any:
    """Count Bokeh's ids from 1, so that the same evidence gives the same page byte for byte."""
    if isinstance(value, dict):
        return {
            key: ids.setdefault(part, f"p{len(ids) + 1}")
            if key in ("id", "root_id") and isinstance(part, str)
            else _renumber(part, ids)
            for key, part in value.items()
        }
    return [_renumber(part, ids) for part in value] if isinstance(value, list) else value


def columns(evidence: Evidence, candidate: Candidate) -> dict[str, dict[str, Any]]:
    """The data of each named source of the charts when this candidate is selected."""
    gap, auc = candidate.estimate("violation", evidence.constraint), candidate.estimate("auc")
    chosen = {"x": [to_plain(gap.value)], "y": [to_plain(auc.value)]}
    sources: dict[str, dict[str, Any]] = {"chosen": chosen}
    for k, shares in enumerate(_lines(evidence, candidate)):
        sources[f"positions-{k}"] = {"x": list(range(1, len(shares) + 1)), "y": shares}
    left, right = list(evidence.bins[:-1]), list(evidence.bins[1:])
    top = list(candidate.histogram) or [0] * len(left)
    sources["histogram-after"] = {"left": left, "right": right, "top": top}
    return sources


def method_styles(evidence: Evidence) -> dict[str, tuple[int, int]]:
    """The numbers of the colour and of the marker of each method."""
    methods = dict.fromkeys(candidate.method for candidate in evidence.candidates)
    return {name: (METHOD_ORDER[index % 8], index % 8) for index, name in enumerate(methods)}


# --- the charts ----------------------------------------------------------------------------------


def _frontier(evidence: Evidence) -> Any:
    models = import_report("bokeh.models")
    rows = _frontier_rows(evidence)
    source = models.ColumnDataSource(
        {key: [row[key] for row in rows] for key in rows[0]}, name="frontier"
    )
    hover = models.HoverTool(
        tooltips=[("ranker", "@name"), ("disparity", "@disparity"), ("accuracy", "@accuracy")],
        renderers=[], attachment="vertical",
    )  # fmt: skip
    figure = _figure(
        "frontier", "disparity (violation), 0 is parity", "accuracy (AUC)",
        tools=[hover, models.TapTool()],
    )  # fmt: skip
    for method in method_styles(evidence):
        pairs = zip(rows, evidence.candidates, strict=True)
        path = [row for row, c in pairs if c.method == method and c.weights is not None]
        path.insert(0, rows[evidence.before])
        figure.line(
            [row["x"] for row in path], [row["y"] for row in path], line_color=_GREY,
            line_dash="dotted", line_width=1.5,
        )  # fmt: skip
    style = {"source": source, "line_color": "colour", "line_alpha": 0.55, "line_width": 1.5}
    figure.segment("x_low", "y", "x_high", "y", **style)
    figure.segment("x", "y_low", "x", "y_high", **style)
    figure.scatter(
        "x", "y", source=_source(evidence, "chosen"), size=24, fill_color=None, line_color=_GREY,
        line_width=3, name="ring",
    )  # fmt: skip
    dots = figure.scatter(
        "x", "y", source=source, size=12, marker="marker", fill_color="colour", line_color="colour"
    )
    dots.nonselection_glyph = dots.selection_glyph = None
    hover.renderers = [dots]
    if evidence.tolerance is not None:
        figure.add_layout(_vertical(evidence.tolerance, line_dash="dashed", line_width=1))
    # The axis starts at parity and includes the tolerance.
    ends = [evidence.tolerance or 0.0, *(row["x_high"] for row in rows)]
    width = max(filter(isfinite, ends))
    if width > 0.0:
        figure.x_range.start, figure.x_range.end = -0.03 * width, 1.05 * width
    return figure


def _frontier_rows(evidence: Evidence) -> list[dict[str, Any]]:
    styles, rows = method_styles(evidence), []
    for index, candidate in enumerate(evidence.candidates):
        row: dict[str, Any] = {"candidate": index, "name": shorten(candidate.name, 48)}
        colour, marker = styles[candidate.method]
        row["colour"], row["marker"] = COLOURS[colour], MARKERS[marker]
        gap, auc = candidate.estimate("violation", evidence.constraint), candidate.estimate("auc")
        row["disparity"] = violation(candidate, evidence.constraint)
        row["accuracy"] = with_interval(auc)
        for axis, estimate in (("x", gap), ("y", auc)):
            value, low, high = estimate.value, estimate.low, estimate.high
            low, high = (value, value) if isnan(low) else (low, high)
            row |= {axis: value, f"{axis}_low": low, f"{axis}_high": high}
        rows.append(row)
    return rows


def _positions(evidence: Evidence) -> Any:
    figure = _figure("positions", "position in the ranking", "share held by the group")
    for k, before in enumerate(_lines(evidence, evidence.candidates[evidence.before])):
        positions = list(range(1, len(before) + 1))
        figure.line(positions, before, line_color=COLOURS[k], line_dash="dotted", line_width=2)
        _marked_line(figure, k, "x", "y", 8, source=_source(evidence, f"positions-{k}"))
    figure.y_range.start = 0
    return figure


def _histogram(evidence: Evidence) -> Any:
    figure = _figure("histogram", "gap of a query (0 is parity)", "queries")
    before = evidence.candidates[evidence.before]
    figure.quad(
        left=list(evidence.bins[:-1]), right=list(evidence.bins[1:]), top=list(before.histogram),
        bottom=0, fill_color=None, line_color=_GREY, line_width=2, line_dash="dashed",
    )  # fmt: skip
    figure.quad(
        left="left", right="right", top="top", bottom=0,
        source=_source(evidence, "histogram-after"), fill_color=_BARS, fill_alpha=0.5,
        line_color=_BARS, hatch_pattern="right_diagonal_line", hatch_color=_BARS, hatch_alpha=0.5,
    )  # fmt: skip
    figure.add_layout(_vertical(0))
    figure.y_range.start = 0
    return figure


def _rounds(evidence: Evidence) -> Any:
    figure = _figure("rounds", "round", "multiplier λ")
    numbers = [round_.number for round_ in evidence.rounds]
    for k in range(min(len(evidence.lambda_cells), MOST_LINES)):
        values = [round_.lambda_[k] for round_ in evidence.rounds]
        _marked_line(figure, k, numbers, values, 9, line_dash=DASHES[k])
    figure.xaxis.ticker.min_interval = 1
    return figure


# --- shared by the charts ------------------------------------------------------------------------


def _figure(name: str, x: str, y: str, tools: Any = "") -> Any:
    figure = import_report("bokeh.plotting").figure(
        name=name, height=_HEIGHTS[name], sizing_mode="stretch_width", toolbar_location=None,
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


def _source(evidence: Evidence, name: str) -> Any:
    """A named source with the data of the candidate that is selected first."""
    data = columns(evidence, evidence.candidates[evidence.after])[name]
    return import_report("bokeh.models").ColumnDataSource(data, name=name)


def _marked_line(
    figure: Any, k: int, x: Any, y: Any, size: int, source: Any = None, **style: Any
) -> None:
    data = {} if source is None else {"source": source}
    figure.line(x, y, line_color=COLOURS[k], line_width=2, **style, **data)
    figure.scatter(
        x, y, marker=MARKERS[k], size=size, fill_color=COLOURS[k], line_color=COLOURS[k], **data
    )


def _vertical(location: float, **style: Any) -> Any:
    models = import_report("bokeh.models")
    return models.Span(location=location, dimension="height", line_color=_GREY, **style)


def _lines(evidence: Evidence, candidate: Candidate) -> Any:
    """Each group's shares of the first positions; empty if the candidate has none."""
    n = min(len(evidence.groups), MOST_LINES)
    return to_plain((candidate.positions or ((),) * n)[:n])
