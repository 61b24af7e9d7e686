"""Frontiers as figures: utility against fairness, the upper right best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from pairity.exceptions import MissingExtraError
from pairity.figures import Figure

# Colours that people with any kind of colour vision tell apart (Okabe & Ito), each with a marker.
STYLES = (
    ("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#CC79A7", "D"), ("#E69F00", "v"),
    ("#56B4E9", "P"), ("#000000", "X"), ("#666666", "*"),
)  # fmt: skip
NAMES = {"auc": "AUC", "ndcg@10": "NDCG@10"}
_LEGEND_COLUMNS = 4

Drawn = tuple[str, bool, Figure, Figure, bool]


def plot_panels(panels: Mapping[str, Sequence[Drawn]], *, utility: str, ax: Any = None) -> Any:
    """One panel for each constraint, in a row.

    Parameters
    ----------
    panels : mapping from a constraint's name to its points
        Each (method, whether it reads groups, violation, utility, whether it is on the front).
    utility : str
    ax : Matplotlib Axes, optional
        Where to draw the only panel.

    Returns
    -------
    Matplotlib Figure
    """
    methods: dict[str, bool] = {}
    for points in panels.values():
        for method, needs_group, *_ in points:
            methods.setdefault(method, needs_group)
    styles = {name: STYLES[at % len(STYLES)] for at, name in enumerate(methods)}
    if ax is None:
        figure, axes = _figure(len(panels), len(methods))
    else:
        figure, axes = ax.figure, [ax]
    for at, (axis, (name, points)) in enumerate(zip(axes, panels.items(), strict=True)):
        _panel(axis, points, styles)
        axis.set_title(name)
        axis.set_xlabel("fairness (1 − violation)")
        if at == 0:
            axis.set_ylabel(NAMES.get(utility, utility))
    handles = _handles(styles, methods)
    if ax is None:
        figure.legend(handles=handles, loc="outside lower center", ncols=_LEGEND_COLUMNS)
    else:
        ax.legend(handles=handles)
    return figure


def _figure(n_panels: int, n_methods: int) -> tuple[Any, Any]:
    pyplot = _matplotlib("pyplot")
    height = 3.2 + 0.2 * ceil((n_methods + 1) / _LEGEND_COLUMNS)
    figure, axes = pyplot.subplots(
        1, n_panels, figsize=(max(3.4 * n_panels, 5.0), height), sharey=True, squeeze=False,
        layout="constrained",
    )  # fmt: skip
    return figure, axes[0]


def _panel(axis: Any, points: Sequence[Drawn], styles: Mapping[str, tuple[str, str]]) -> None:
    for method, _, violation, useful, on_front in points:
        colour, marker = styles[method]
        axis.errorbar(
            1.0 - violation.value,
            useful.value,
            xerr=_bars(1.0 - violation.value, 1.0 - violation.high, 1.0 - violation.low),
            yerr=_bars(useful.value, useful.low, useful.high),
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


def _bars(value: float, low: float, high: float) -> list[list[float]] | None:
    """Lengths below and above, where there is an interval; it need not hold the value."""
    if low != low or high != high:
        return None
    return [[max(value - low, 0.0)], [max(high - value, 0.0)]]


def _handles(styles: Mapping[str, tuple[str, str]], methods: Mapping[str, bool]) -> list[Any]:
    line = _matplotlib("lines").Line2D
    handles = [
        line([], [], color=colour, marker=marker, linestyle="none",
             label=f"{name} (reads groups)" if methods[name] else name)
        for name, (colour, marker) in styles.items()
    ]  # fmt: skip
    return [*handles, line([], [], color="0.5", linewidth=1.0, label="Pareto front")]


def _matplotlib(module: str) -> Any:
    from importlib import import_module

    try:
        return import_module(f"matplotlib.{module}")
    except ImportError as error:
        raise MissingExtraError(
            'A plot needs Matplotlib. Install it with: pip install "pairity[plot]"'
        ) from error
