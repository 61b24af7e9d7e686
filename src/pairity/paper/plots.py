"""The two figures of the paper, as PNG and SVG."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pairity.comparisons.plots import STYLES, error_bars, import_matplotlib, save_plot
from pairity.paper.claims import level_over_seeds
from pairity.paper.protocol import COMPARED, CONSTRAINTS, READS_GROUPS, SHARES, Entry, Setting

_METHODS = (COMPARED[-1], *COMPARED[:-1])  # pairity's method has the first style


def draw_all(
    target: Path, settings: Sequence[Setting], entries: Sequence[Entry], shares: Sequence[Entry]
) -> None:
    """Write ``frontier`` and, if there are shares, ``shares``, each as PNG and SVG.

    ``frontier`` shows utility against fairness, and ``shares`` both against x, training with
    x · λ*.
    """
    labels = "fairness (1 − violation)", "test AUC"
    _draw(target / "frontier", settings, entries, _draw_methods, labels, sharey="row")
    scaled = [setting for setting in settings if any(map(setting.matches, shares))]
    if scaled:
        labels = "x, the share of λ* trained with", "on test queries"
        _draw(target / "shares", scaled, shares, _draw_curves, labels)


def _draw_methods(axis: Any, entries: Sequence[Entry]) -> None:
    for (colour, marker), method in zip(STYLES, _METHODS, strict=False):
        points = [e for e in entries if e.method == method]
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


def _draw_curves(axis: Any, entries: Sequence[Entry]) -> None:
    curves = {"AUC": "auc", "fairness": "own_fairness"}
    for (colour, marker), (name, measure) in zip(STYLES, curves.items(), strict=False):
        means = [
            level_over_seeds(getattr(e, measure) for e in entries if e.settings["x"] == x)
            for x in SHARES
        ]
        axis.plot(SHARES, [m.value for m in means], color=colour, marker=marker, label=name)
        low, high = [m.low for m in means], [m.high for m in means]
        axis.fill_between(SHARES, low, high, color=colour, alpha=0.15)
    axis.axvline(1.0, color="0.7", linewidth=0.8, zorder=0)


def _draw(
    path: Path,
    settings: Sequence[Setting],
    entries: Sequence[Entry],
    draw_panel: Callable[[Any, Sequence[Entry]], None],
    labels: tuple[str, str],
    **options: Any,
) -> None:
    """Write a figure with a row for each data set and a column for each constraint."""
    pyplot = import_matplotlib("pyplot")
    figure, axes = pyplot.subplots(
        len(settings), len(CONSTRAINTS), squeeze=False, layout="constrained",
        figsize=(3.2 * len(CONSTRAINTS), 2.6 * len(settings) + 0.8), **options,
    )  # fmt: skip
    for row, setting in zip(axes, settings, strict=True):
        row[0].set_ylabel(setting.title.replace(", ", "\n") + f"\n{labels[1]}")
        for axis, constraint in zip(row, CONSTRAINTS, strict=True):
            own = [e for e in entries if setting.matches(e) and e.constraint == constraint]
            draw_panel(axis, own)
            axis.grid(visible=True, color="0.92")
            axis.set_axisbelow(True)
    for top, bottom, constraint in zip(axes[0], axes[-1], CONSTRAINTS, strict=True):
        top.set_title(constraint)
        bottom.set_xlabel(labels[0])
    handles, names = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names))
    for ending in ("png", "svg"):
        save_plot(axes, path.with_name(f"{path.name}.{ending}"))
    pyplot.close(figure)
