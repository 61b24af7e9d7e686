"""Plots of frontiers: utility against fairness; the upper right is best."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from pairity._utils.extras import import_extra
from pairity._utils.files import atomic_write
from pairity.audits.estimates import Estimate

# Colours that can be distinguished with any kind of colour vision (Okabe & Ito), with markers.
STYLES = (
    ("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#CC79A7", "D"), ("#E69F00", "v"),
    ("#56B4E9", "P"), ("#000000", "X"), ("#666666", "*"),
)  # fmt: skip
NAMES = {"auc": "AUC", "ndcg@10": "NDCG@10"}
_LEGEND_COLUMNS = 4
_ENTRY, _LETTER = 0.6, 0.08  # measured inches of a legend entry, and of each of its letters

Drawn = tuple[str, bool, Estimate, Estimate, bool]


def plot_panels(panels: Mapping[str, Sequence[Drawn]], *, utility: str, ax: Any = None) -> Any:
    """Draw one panel for each constraint, in a row.

    Parameters
    ----------
    panels : mapping from a constraint's name to its points
        Each is (method, whether it reads groups, violation, utility, whether it is on the front).
    utility : str
    ax : Matplotlib Axes, optional
        Where to draw a single panel.

    Returns
    -------
    array of Matplotlib Axes, one for each panel
    """
    drawn = [point for points in panels.values() for point in points]
    methods = {method: needs_group for method, needs_group, *_ in drawn}
    styles = dict(zip(methods, cycle(STYLES)))
    handles = _handles(styles, methods)
    if ax is None:
        width = max(3.4 * len(panels), 5.0)
        columns = _columns([str(handle.get_label()) for handle in handles], width)
        figure, axes = import_matplotlib("pyplot").subplots(
            1, len(panels), figsize=(width, 3.2 + 0.2 * ceil(len(handles) / columns)),
            sharey=True, squeeze=False, layout="constrained",
        )  # fmt: skip
        figure.legend(handles=handles, loc="outside lower center", ncols=columns)
    else:
        axes = np.array([[ax]])
        ax.legend(handles=handles)
    for axis, (name, points) in zip(axes[0], panels.items(), strict=True):
        _panel(axis, points, styles)
        axis.set_title(name)
        axis.set_xlabel("fairness (1 − violation)")
        axis.set_xlim(_view([(1.0 - violation.value, violation) for _, _, violation, *_ in points]))
    axes[0, 0].set_ylabel(NAMES.get(utility, utility))
    axes[0, 0].set_ylim(_view([(useful.value, useful) for *_, useful, _ in drawn]))
    return axes[0]


def _columns(labels: Sequence[str], width: float) -> int:
    """Return how many columns of the legend fit; the first ones have one more entry."""
    sizes = [_ENTRY + _LETTER * len(label) for label in labels]
    for columns in range(min(_LEGEND_COLUMNS, len(labels)), 1, -1):
        if sum(part.max() for part in np.array_split(sizes, columns)) <= width:
            return columns
    return 1


def _view(drawn: Sequence[tuple[float, Estimate]]) -> tuple[float, float] | None:
    """Return the limits of an axis: all points, and an interval of median length.

    A few very long intervals leave the frame instead of squeezing all points into a corner.
    """
    if not drawn:
        return None
    values = [value for value, _ in drawn]
    halves = sorted((e.high - e.low) / 2 if e.high == e.high else 0.0 for _, e in drawn)
    low, high = min(values), max(values)
    room = max(0.08 * (high - low), halves[len(halves) // 2], 0.005)
    low -= room
    return low, min(high + room, 1.0 + 0.04 * (1.0 - low))  # nothing is above 1


def _panel(axis: Any, points: Sequence[Drawn], styles: Mapping[str, tuple[str, str]]) -> None:
    for method, _, violation, useful, on_front in points:
        colour, marker = styles[method]
        axis.errorbar(
            1.0 - violation.value,
            useful.value,
            xerr=error_bars(1.0 - violation.value, 1.0 - violation.high, 1.0 - violation.low),
            yerr=error_bars(useful.value, useful.low, useful.high),
            color=colour, marker=marker, markersize=7 if on_front else 5,
            markeredgecolor="black" if on_front else colour, ecolor=(colour, 0.35),
            elinewidth=0.9, linestyle="none", zorder=3 if on_front else 2,
        )  # fmt: skip
    front = sorted(
        (1.0 - violation.value, useful.value)
        for _, _, violation, useful, on_front in points
        if on_front
    )
    if front:
        fairness, utility = zip(*front, strict=True)
        axis.plot(fairness, utility, drawstyle="steps-pre", color="0.5", linewidth=1.0, zorder=1)
    axis.grid(visible=True, color="0.92")
    axis.set_axisbelow(True)


def error_bars(value: float, low: float, high: float) -> list[list[float]] | None:
    """Return the lengths below and above, if there is an interval; it may exclude the value."""
    if low != low or high != high:
        return None
    return [[max(value - low, 0.0)], [max(high - value, 0.0)]]


def _handles(styles: Mapping[str, tuple[str, str]], methods: Mapping[str, bool]) -> list[Any]:
    line = import_matplotlib("lines").Line2D
    handles = [
        line([], [], color=colour, marker=marker, linestyle="none",
             label=f"{name} (reads groups)" if methods[name] else name)
        for name, (colour, marker) in styles.items()
    ]  # fmt: skip
    return [*handles, line([], [], color="0.5", linewidth=1.0, label="Pareto front")]


def import_matplotlib(module: str) -> Any:
    """Import a module of Matplotlib, or raise an error that says how to install it."""
    return import_extra(f"matplotlib.{module}", "A plot", "plot")


def save_plot(axes: Any, path: Path) -> None:
    """Write the figure of an Axes, or an array of them; equal plots make equal files."""
    figure = np.ravel(axes)[0].figure
    ending = path.suffix[1:].lower()
    dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(ending)
    context = import_matplotlib("pyplot").rc_context({"svg.hashsalt": "pairity"})
    with atomic_write(path) as file, context:
        figure.savefig(file, format=ending, dpi=150, metadata=dated)
