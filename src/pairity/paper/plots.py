"""The two figures of the paper, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pairity.comparisons.plots import STYLES, import_matplotlib, save_plot
from pairity.paper.pages import READS_GROUPS
from pairity.paper.protocol import (
    BASELINES,
    CONSTRAINTS,
    REWEIGHTED,
    SHARES,
    Entry,
    Mean,
    Setting,
    level_over_seeds,
)

_METHODS = (REWEIGHTED, *BASELINES)


def draw_all(
    target: Path, settings: Sequence[Setting], entries: Sequence[Entry], shares: Sequence[Entry]
) -> None:
    """Write ``frontier`` and, if there are shares, ``shares``, each as PNG and SVG."""
    _save(target, "frontier", draw_grid(settings, entries))
    scaled = [setting for setting in settings if any(map(setting.matches, shares))]
    if scaled:
        _save(target, "shares", draw_shares(scaled, shares))


def draw_grid(settings: Sequence[Setting], entries: Sequence[Entry]) -> Any:
    """Draw utility against fairness: a row for each data set, a column for each constraint."""
    figure, axes = _grid(len(settings), sharey="row")
    for row, setting in zip(axes, settings, strict=True):
        for axis, constraint in zip(row, CONSTRAINTS, strict=True):
            for (colour, marker), method in zip(STYLES, _METHODS, strict=False):
                points = [
                    e for e in filter(setting.matches, entries)
                    if (e.constraint, e.method) == (constraint, method)
                ]  # fmt: skip
                if points:
                    fairness = level_over_seeds(e.own_fairness for e in points)
                    auc = level_over_seeds(e.auc for e in points)
                    axis.errorbar(
                        fairness.value, auc.value, xerr=_bars(fairness), yerr=_bars(auc),
                        color=colour, marker=marker, linestyle="none", ecolor=(colour, 0.4),
                        label=f"{method} (reads groups)" if method == READS_GROUPS else method,
                    )  # fmt: skip
    _label(figure, axes, settings, "fairness (1 − violation)", "test AUC")
    return axes


def draw_shares(settings: Sequence[Setting], entries: Sequence[Entry]) -> Any:
    """Draw utility and fairness against x, training with x · λ*."""
    figure, axes = _grid(len(settings), sharey=False)
    for row, setting in zip(axes, settings, strict=True):
        for axis, constraint in zip(row, CONSTRAINTS, strict=True):
            points = [e for e in filter(setting.matches, entries) if e.constraint == constraint]
            for (colour, marker), name in zip(STYLES, ("AUC", "fairness"), strict=False):
                means = [
                    level_over_seeds(
                        e.auc if name == "AUC" else e.own_fairness
                        for e in points
                        if e.settings["x"] == x
                    )
                    for x in SHARES
                ]
                axis.plot(SHARES, [m.value for m in means], color=colour, marker=marker, label=name)
                low, high = [m.low for m in means], [m.high for m in means]
                axis.fill_between(SHARES, low, high, color=colour, alpha=0.15)
            axis.axvline(1.0, color="0.7", linewidth=0.8, zorder=0)
    _label(figure, axes, settings, "x, the share of λ* trained with", "on test queries")
    return axes


def _grid(n_rows: int, **options: Any) -> tuple[Any, Any]:
    pyplot = import_matplotlib("pyplot")
    figure, axes = pyplot.subplots(
        n_rows, len(CONSTRAINTS), figsize=(3.2 * len(CONSTRAINTS), 2.6 * n_rows + 0.8),
        squeeze=False, layout="constrained", **options,
    )  # fmt: skip
    return figure, axes


def _label(figure: Any, axes: Any, settings: Sequence[Setting], below: str, left: str) -> None:
    for axis, constraint in zip(axes[0], CONSTRAINTS, strict=True):
        axis.set_title(constraint)
    for axis in axes[-1]:
        axis.set_xlabel(below)
    for row, setting in zip(axes, settings, strict=True):
        where = "with" if setting.attribute else "without"
        row[0].set_ylabel(f"{setting.data}\n{where} the attribute\n{left}")
    for axis in axes.flat:
        axis.grid(visible=True, color="0.92")
        axis.set_axisbelow(True)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))


def _bars(mean: Mean) -> list[list[float]] | None:
    if mean.low != mean.low:
        return None
    return [[mean.value - mean.low], [mean.high - mean.value]]


def _save(target: Path, name: str, axes: Any) -> None:
    for ending in ("png", "svg"):
        save_plot(axes, target / f"{name}.{ending}")
    import_matplotlib("pyplot").close(axes[0, 0].figure)
