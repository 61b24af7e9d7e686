"""The two figures of the paper, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pairity.comparisons.plots import STYLES, error_bars, import_matplotlib, save_plot
from pairity.paper.means import level_over_seeds
from pairity.paper.pages import READS_GROUPS
from pairity.paper.protocol import BASELINES, CONSTRAINTS, REWEIGHTED, SHARES, Entry, Setting

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
    for axis, in_panel in _panels(axes, settings, entries):
        for (colour, marker), method in zip(STYLES, _METHODS, strict=False):
            points = [e for e in in_panel if e.method == method]
            if points:
                fairness = level_over_seeds(e.own_fairness for e in points)
                auc = level_over_seeds(e.auc for e in points)
                axis.errorbar(
                    fairness.value, auc.value,
                    xerr=error_bars(fairness.value, fairness.low, fairness.high),
                    yerr=error_bars(auc.value, auc.low, auc.high),
                    color=colour, marker=marker, linestyle="none", ecolor=(colour, 0.4),
                    label=f"{method} (reads groups)" if method == READS_GROUPS else method,
                )  # fmt: skip
    _label(figure, axes, settings, "fairness (1 − violation)", "test AUC")
    return axes


def draw_shares(settings: Sequence[Setting], entries: Sequence[Entry]) -> Any:
    """Draw utility and fairness against x, training with x · λ*."""
    figure, axes = _grid(len(settings), sharey=False)
    for axis, points in _panels(axes, settings, entries):
        curves = {"AUC": "auc", "fairness": "own_fairness"}
        for (colour, marker), (name, measure) in zip(STYLES, curves.items(), strict=False):
            means = [
                level_over_seeds(getattr(e, measure) for e in points if e.settings["x"] == x)
                for x in SHARES
            ]
            axis.plot(SHARES, [m.value for m in means], color=colour, marker=marker, label=name)
            low, high = [m.low for m in means], [m.high for m in means]
            axis.fill_between(SHARES, low, high, color=colour, alpha=0.15)
        axis.axvline(1.0, color="0.7", linewidth=0.8, zorder=0)
    _label(figure, axes, settings, "x, the share of λ* trained with", "on test queries")
    return axes


def _grid(n_rows: int, **options: Any) -> Any:
    return import_matplotlib("pyplot").subplots(
        n_rows, len(CONSTRAINTS), figsize=(3.2 * len(CONSTRAINTS), 2.6 * n_rows + 0.8),
        squeeze=False, layout="constrained", **options,
    )  # fmt: skip


def _panels(
    axes: Any, settings: Sequence[Setting], entries: Sequence[Entry]
) -> Iterator[tuple[Any, list[Entry]]]:
    """Yield every panel with the entries of its data set and constraint."""
    for row, setting in zip(axes, settings, strict=True):
        for axis, constraint in zip(row, CONSTRAINTS, strict=True):
            yield axis, [e for e in entries if setting.matches(e) and e.constraint == constraint]


def _label(figure: Any, axes: Any, settings: Sequence[Setting], below: str, left: str) -> None:
    for axis, constraint in zip(axes[0], CONSTRAINTS, strict=True):
        axis.set_title(constraint)
    for axis in axes[-1]:
        axis.set_xlabel(below)
    for row, setting in zip(axes, settings, strict=True):
        row[0].set_ylabel(setting.title.replace(", ", "\n") + f"\n{left}")
    for axis in axes.flat:
        axis.grid(visible=True, color="0.92")
        axis.set_axisbelow(True)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))


def _save(target: Path, name: str, axes: Any) -> None:
    for ending in ("png", "svg"):
        save_plot(axes, target / f"{name}.{ending}")
    import_matplotlib("pyplot").close(axes[0, 0].figure)
