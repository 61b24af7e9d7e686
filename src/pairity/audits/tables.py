"""The estimates of an audit, or of several beside each other, as tables in text and HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import TYPE_CHECKING

from pairity._utils.html import Html, join, shade, table, tag
from pairity._utils.text import render_table, short_names, shorten
from pairity.audits.estimates import FEW_PAIRS, FEW_QUERIES, Estimate, groups_of_largest_gap
from pairity.constraints import CATALOGUE
from pairity.exceptions import InputError

if TYPE_CHECKING:
    from pairity.audits.audit import Audit

MOST_GROUPS = 8  # that fit beside each other on a terminal of 120 columns
_UNDEFINED = "-"


@dataclass(frozen=True)
class Section:
    """One table.

    Attributes
    ----------
    title : str
    header : list of str
    rows : list of list of str
    left : tuple of int
        The columns that are aligned to the left; the others are numbers.
    differences : mapping from (row, column) to float
        How far a value is from equality; HTML tables show it as a colour.
    """

    title: str
    header: list[str]
    rows: list[list[str]]
    left: tuple[int, ...] = (0,)
    differences: Mapping[tuple[int, int], float] = field(default_factory=dict)


def to_text(audit: Audit) -> str:
    """The tables of an audit; at most 8 groups are shown."""
    tables = [
        (f"{section.title}\n" if section.title else "")
        + render_table(section.header, section.rows, left=section.left)
        for section in _sections(audit)
    ]
    return "\n\n".join([*tables, "\n".join(_notes(audit))])


def to_html(audit: Audit) -> Html:
    """The same as HTML; colours in K × K tables show how far a value is from equality."""
    tables = [
        table(
            [tag("bdi", cell) for cell in section.header],
            [[tag("bdi", cell) for cell in row] for row in section.rows],
            caption=section.title or None,
            styles={place: shade(far) for place, far in section.differences.items() if far},
        )
        for section in _sections(audit)
    ]
    return join([*tables, *(tag("p", note) for note in _notes(audit))])


def _sections(audit: Audit) -> list[Section]:
    names = dict(zip(audit.groups, short_names(audit.groups), strict=True))
    shown = {group: names[group] for group in audit.groups[:MOST_GROUPS]}
    interval = f"{100 * audit.confidence:g} % interval"
    preferred = "How often the preferred item (row) is ranked above the other item (column)"
    above = "How often an item of the row is ranked above an item of the column, for any labels"
    sections = [
        _overall(audit, interval),
        _violations(audit, names, interval),
        _by_group(audit, shown),
        _cells(audit, shown, "preferred_above", preferred),
        _cells(audit, shown, "above", above),
    ]
    return [section for section in sections if section.rows]


def _overall(audit: Audit, interval: str) -> Section:
    names = {
        "auc": "AUC",
        **{f"ndcg@{k}": f"NDCG@{k}" for k in audit.k},
        "average_precision": "average precision",
        "awrf": "AWRF (1 is parity)",
        "ndkl": "NDKL (0 is parity)",
    }
    estimates = [audit.estimate(measure) for measure in names]
    rows = [
        [name, value, _interval(estimate), f"{estimate.n_queries:,}"]
        for name, value, estimate in zip(names.values(), _values(estimates), estimates, strict=True)
    ]
    return Section("", ["all items", "value", interval, "queries"], rows)


def _violations(audit: Audit, names: dict[str, str], interval: str) -> Section:
    estimates = [estimate for estimate in audit.estimates if estimate.measure == "violation"]
    rows = []
    for estimate, value in zip(estimates, _values(estimates), strict=True):
        name = str(estimate.constraint)
        gaps = [e for e in audit.estimates if e.constraint == name and e.measure.startswith("gap")]
        ends = [names[group] for group in groups_of_largest_gap(gaps)] or [_UNDEFINED] * 2
        rows.append(
            [
                shorten(name, 40), value, _interval(estimate), _number(audit.noise_floor[name]),
                *ends, f"{estimate.n_queries:,}", _count(estimate.n_pairs),
                CATALOGUE[name].title if name in CATALOGUE else "",
            ]
        )  # fmt: skip
    header = [
        "violation", "value", interval, "noise floor", "higher for", "lower for", "queries",
        "pairs", "constraint",
    ]  # fmt: skip
    return Section("", header, rows, (0, 4, 5, 8))


def _by_group(audit: Audit, shown: dict[str, str]) -> Section:
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
    columns = [_values([audit.estimate(name, group=group) for name in names]) for group in shown]
    rows = [list(row) for row in zip(names.values(), *columns, strict=True)]
    return Section("", ["by group", *shown.values()], rows)


def _cells(audit: Audit, shown: dict[str, str], measure: str, title: str) -> Section:
    """A K × K table of a measure, with the number of pairs beside each value."""
    equality = 0.5 if measure == "above" else audit.auc
    header, columns, differences = [measure.split("_")[0]], [list(shown.values())], {}
    for other, name in shown.items():
        estimates = [audit.estimate(measure, group=group, other=other) for group in shown]
        for row, estimate in enumerate(estimates):
            if not isnan(estimate.value - equality):
                differences[row, len(columns)] = estimate.value - equality
        header += [name, "pairs"]
        columns += [_values(estimates), [_count(estimate.n_pairs) for estimate in estimates]]
    rows = [list(row) for row in zip(*columns, strict=True)]
    return Section(title, header, rows, differences=differences)


def _notes(audit: Audit) -> Iterator[str]:
    estimates = [e for e in audit.estimates if e.measure != "noise_floor"]
    if any(estimate.small for estimate in estimates):
        yield f"* Fewer than {FEW_QUERIES} queries or {FEW_PAIRS} pairs: too few to rely on."
    if any(isnan(estimate.value) for estimate in estimates):
        yield f"{_UNDEFINED} Undefined on these queries (NDCG and merit need labels of 0 or more)."
    if audit.violation:
        yield "A violation is the largest gap between two groups; fairness is 1 - violation."
    floors = {name: floor for name, floor in audit.noise_floor.items() if not isnan(floor)}
    if floors:
        mean = "the mean violation that variation between the queries alone produces"
        yield f"The noise floor is {mean}."
    within = [name for name, floor in floors.items() if audit.violation[name] <= floor]
    if within:
        names = ", ".join(shorten(name, 40) for name in within)
        sample = f"These {audit.n_queries:,} queries"
        yield f"Within the noise floor: {names}. {sample} could not show a smaller violation."
    yield "to_frame() and --format json have every estimate with its interval and counts."


def _values(estimates: list[Estimate]) -> list[str]:
    """A column of values; if one value has a star, the others have a blank instead."""
    starred = [estimate.small and not isnan(estimate.value) for estimate in estimates]
    return [
        _number(estimate.value) + (("*" if star else " ") if any(starred) else "")
        for estimate, star in zip(estimates, starred, strict=True)
    ]


def _number(value: float) -> str:
    return _UNDEFINED if isnan(value) else f"{value:.3f}"


def _interval(estimate: Estimate) -> str:
    return _UNDEFINED if isnan(estimate.low) else f"{estimate.low:.3f} to {estimate.high:.3f}"


def _count(count: int | None) -> str:
    """A count in few characters: 12,345 or 1.23M."""
    if count is None:
        return _UNDEFINED
    if count < 100_000:
        return f"{count:,}"
    for unit, size in (("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12)):
        if count < 999.5 * size:
            digits = 2 if count < 9.995 * size else 1 if count < 99.95 * size else 0
            return f"{count / size:.{digits}f}{unit}"
    return f"{count:.2e}"


# --- several audits ------------------------------------------------------------------------------


def compare(
    audits: Mapping[str, Audit], more: Mapping[str, Sequence[Estimate]] | None = None
) -> str:
    """Violations and utility of several rankers as one table, with confidence intervals.

    Below each violation is its noise floor, if it is known: the mean violation that variation
    between the queries alone produces.

    Parameters
    ----------
    audits : mapping from the name of a ranker to its audit
        All audits must be of the same queries.
    more : mapping from a title to one estimate per ranker, optional
        Further rows.

    Examples
    --------
    >>> from pairity import audit
    >>> from pairity.audits import compare
    >>> lists = dict(qid=[1, 1, 1, 2, 2, 2], sensitive_features=list("aababb"))
    >>> scores = {"plain": [3, 2, 1, 3, 2, 1], "other": [1, 2, 3, 3, 2, 1]}
    >>> audits = {
    ...     name: audit([1, 0, 0, 1, 0, 0], s, **lists, constraints="statistical", n_resamples=0)
    ...     for name, s in scores.items()
    ... }
    >>> print(compare(audits))
    on 2 queries            plain  other
    ------------------------------------
    violation: statistical  1.000  0.000
    AUC                     1.000  0.500
    NDCG@10                 1.000  0.750
    """
    first = next(iter(audits.values()), None)
    sizes = sorted({audit.n_queries for audit in audits.values()})
    if first is None or len(sizes) > 1:
        counts = " and ".join(f"{size:,}" for size in sizes) or "no"
        raise InputError(
            f"The audits are of {counts} queries. Pass one or more audits of the same queries."
        )
    keys = {}
    for name in first.violation:
        keys[f"violation: {name}"] = ("violation", name)
        if not all(isnan(audit.noise_floor[name]) for audit in audits.values()):
            keys[f"noise floor: {name}"] = ("noise_floor", name)
    keys |= {"AUC": ("auc", ""), f"NDCG@{max(first.k)}": (f"ndcg@{max(first.k)}", "")}
    rows: dict[str, Sequence[Estimate]] = {
        title: [audit.estimate(measure, constraint=name) for audit in audits.values()]
        for title, (measure, name) in keys.items()
    }
    rows |= more or {}
    with_intervals = any(not isnan(e.low) for estimates in rows.values() for e in estimates)
    intervals = f", with {100 * first.confidence:g} % intervals" if with_intervals else ""
    return render_table(
        [f"on {first.n_queries:,} queries{intervals}", *audits],
        [[title, *map(_cell, estimates)] for title, estimates in rows.items()],
    )


def _cell(estimate: Estimate) -> str:
    interval = f" ({estimate.low:.3f} to {estimate.high:.3f})"
    return f"{estimate.value:.3f}{'' if isnan(estimate.low) else interval}"
