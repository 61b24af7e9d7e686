"""An audit as plain text: a few aligned tables, small cells starred, then notes."""

from __future__ import annotations

from math import isnan

from pairity.audits import Audit
from pairity.figures import FEW_PAIRS, FEW_QUERIES, Figure
from pairity.text import render_table, short_names, shorten

_MOST_GROUPS = 8
_NONE = "-"
_COMPARES = {
    "statistical": "who is above whom",
    "inter": "preferences across groups",
    "intra": "preferences inside a group",
    "marginal": "preferences for a group",
}


def render_audit(audit: Audit) -> str:
    """The audit as text; see `Audit.to_frame` for every figure."""
    names = dict(zip(audit.groups, short_names(audit.groups), strict=True))
    shown = {group: names[group] for group in audit.groups[:_MOST_GROUPS]}
    parts = [
        _head(audit, shown),
        _overall(audit),
        _violations(audit, names),
        _by_group(audit, shown),
        "How often the preferred item (row) is ranked above the other (column)\n"
        + _cells(audit, shown, "preferred_above", "preferred"),
        "How often an item of the row is ranked above one of the column, whatever the labels\n"
        + _cells(audit, shown, "above", "above"),
        _notes(audit),
    ]
    return "\n\n".join(part for part in parts if part)


def _head(audit: Audit, shown: dict[str, str]) -> str:
    title = f"Audit of {shorten(audit.name, 60)}" if audit.name else "Audit"
    sizes = [f"{name} {n:,}" for name, n in zip(shown.values(), audit.group_sizes, strict=False)]
    if len(shown) < len(audit.groups):
        rest = sum(audit.group_sizes[len(shown) :])
        sizes.append(f"{len(audit.groups) - len(shown)} more groups {rest:,}")
    if audit.n_missing:
        sizes.append(f"no group {audit.n_missing:,}")
    return (
        f"{title}: {_plural(audit.n_queries, 'query', 'queries')}, {audit.n_items:,} items, "
        f"{_plural(audit.n_pairs, 'preference pair', 'preference pairs')}\n"
        f"Items by group: {', '.join(sizes)}"
    )


def _overall(audit: Audit) -> str:
    names = {
        "auc": "AUC",
        **{f"ndcg@{k}": f"NDCG@{k}" for k in audit.k},
        "average_precision": "average precision",
        "awrf": "AWRF (1 is parity)",
        "ndkl": "NDKL (0 is parity)",
    }
    figures = [audit.figure(measure) for measure in names]
    values = _values(figures)
    rows = [
        [name, value, _interval(figure), f"{figure.n_queries:,}"]
        for name, value, figure in zip(names.values(), values, figures, strict=True)
    ]
    return render_table(["all items", "value", _percent(audit), "queries"], rows)


def _violations(audit: Audit, names: dict[str, str]) -> str:
    figures = [figure for figure in audit.figures if figure.measure == "violation"]
    if not figures:
        return ""
    rows = []
    for figure, value in zip(figures, _values(figures), strict=True):
        higher, lower = _ends(audit, figure, names)
        rows.append(
            [
                shorten(str(figure.constraint), 40), value, _interval(figure), higher, lower,
                f"{figure.n_queries:,}", _count(figure.n_pairs),
                _COMPARES.get(str(figure.constraint), ""),
            ]
        )  # fmt: skip
    header = [
        "violation", "value", _percent(audit), "higher for", "lower for", "queries", "pairs",
        "compares",
    ]  # fmt: skip
    return render_table(header, rows, left=(0, 3, 4, 7))


def _ends(audit: Audit, violation: Figure, names: dict[str, str]) -> tuple[str, str]:
    """The two groups of the largest gap, the favoured one first."""
    gaps = [
        figure
        for figure in audit.figures
        if figure.constraint == violation.constraint and figure.measure != "violation"
    ]
    if not gaps:
        return _NONE, _NONE
    widest = max(gaps, key=lambda gap: abs(gap.value))
    first, second = names[str(widest.group)], names[str(widest.other)]
    return (first, second) if widest.value >= 0 else (second, first)


def _by_group(audit: Audit, shown: dict[str, str]) -> str:
    names = {
        "auc": "AUC, group preferred",
        "auc_within": "AUC inside the group",
        **{f"ndcg_within@{k}": f"NDCG@{k} inside the group" for k in audit.k},
        "merit": "mean label (merit)",
        "exposure": "exposure",
        "exposure_to_merit": "exposure / merit",
        **{f"top_share@{k}": f"share of the top {k}" for k in audit.k},
        "population_share": "share of all items",
    }
    columns = [
        _values([audit.figure(measure, group=group) for measure in names]) for group in shown
    ]
    rows = list(zip(names.values(), *columns, strict=True))
    return render_table(["by group", *shown.values()], rows)


def _cells(audit: Audit, shown: dict[str, str], measure: str, corner: str) -> str:
    header, columns = [corner], [list(shown.values())]
    for other, name in shown.items():
        figures = [audit.figure(measure, group=group, other=other) for group in shown]
        header += [name, "pairs"]
        columns += [_values(figures), [_count(figure.n_pairs) for figure in figures]]
    return render_table(header, list(zip(*columns, strict=True)))


def _notes(audit: Audit) -> str:
    notes = ["to_frame() has every figure with its interval and what it rests on."]
    if audit.violation:
        notes.insert(
            0, "A violation is the largest gap between two groups; fairness is 1 - violation."
        )
    if any(figure.small for figure in audit.figures):
        notes.insert(
            0, f"* rests on fewer than {FEW_QUERIES} queries or {FEW_PAIRS} pairs: too few to trust"
        )
    return "\n".join(notes)


def _values(figures: list[Figure]) -> list[str]:
    """A column of values; where one has a star, the others have a blank."""
    mark = any(figure.small and not isnan(figure.value) for figure in figures)
    return [
        (_NONE if isnan(figure.value) else f"{figure.value:.3f}")
        + (("*" if figure.small and not isnan(figure.value) else " ") if mark else "")
        for figure in figures
    ]


def _interval(figure: Figure) -> str:
    return _NONE if isnan(figure.low) else f"{figure.low:.3f} to {figure.high:.3f}"


def _percent(audit: Audit) -> str:
    return f"{100 * audit.confidence:g} % interval"


def _plural(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _count(count: int | None) -> str:
    """A count in few letters: 12,345 or 1.23M."""
    if count is None:
        return _NONE
    if count < 100_000:
        return f"{count:,}"
    for unit, size in (("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12)):
        if count < 999.5 * size:
            digits = 2 if count < 9.995 * size else 1 if count < 99.95 * size else 0
            return f"{count / size:.{digits}f}{unit}"
    return f"{count:.2e}"
