"""The panels of a report as HTML: one for each candidate, of which the chosen one is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isnan
from typing import Any

from pairity._utils.html import Html, join, name_tag, table, tag
from pairity.audits.audit import Audit
from pairity.audits.estimates import FEW_PAIRS, FEW_QUERIES, Estimate
from pairity.constraints import CATALOGUE
from pairity.reports.charts import COLOURS, MOST_LINES, SHAPES, method_styles
from pairity.reports.evidence import Candidate, Evidence, ShownQuery
from pairity.reports.prose import (
    answer,
    count,
    interval,
    meaning,
    number,
    signed,
    weight_sentences,
)

MOST_GROUPS = 12
WIDE_GROUPS = 3  # with more of them, tables do not fit side by side
_CELLS = {
    "preferred_above": (
        "How often the item that the labels prefer (row) is ranked above the other (column)"
    ),
    "above": "How often an item of the row is ranked above one of the column, whatever the labels",
}


def per_candidate(evidence: Evidence, render: Callable[[Candidate], Html]) -> Html:
    """A panel for each candidate; only that of the one chosen first is shown."""
    return join(
        tag("div", render(each), data_point=at, hidden=at != evidence.after)
        for at, each in enumerate(evidence.candidates)
    )


def section(name: str, title: str, *content: Any) -> Html:
    """A part of the page with its heading."""
    heading = tag("h2", title, id=f"{name}-title")
    return tag("section", heading, *content, id=name, aria_labelledby=f"{name}-title")


def group_name(evidence: Evidence, at: int, width: int = 32) -> Html:
    """A group with its colour and shape; of a long name the whole stands in the list of groups."""
    if at < 0:
        return tag("span", "no known group", cls="muted")
    mark = tag("span", SHAPES[at % 8], cls=f"mark g{at % 8}", aria_hidden="true")
    return tag("span", mark, " ", name_tag(evidence.groups[at], width), cls="group")


def shown_groups(evidence: Evidence) -> list[int]:
    """The groups that tables have room for: those of the widest gap, and the largest."""
    every = range(len(evidence.groups))
    if len(every) <= MOST_GROUPS:
        return list(every)
    sizes = next((each.audit.group_sizes for each in evidence.candidates if each.audit), ())
    order = sorted(
        every,
        key=lambda at: (evidence.groups[at] not in evidence.gap, -sizes[at] if sizes else at),
    )
    return sorted(order[:MOST_GROUPS])


# --- 1. the answer -------------------------------------------------------------------------------


def answer_panel(evidence: Evidence, candidate: Candidate) -> Html:
    """Two sentences, the figures behind them, and what they mean in percentages."""
    first, second = answer(evidence, candidate)
    before = evidence.candidates[evidence.before]
    meant = [
        tag("li", text)
        for text in (meaning(evidence, before), meaning(evidence, candidate))
        if text
    ]
    if candidate is before:
        meant = meant[:1]
    tiles = tag(
        "div",
        _tile(evidence, candidate, "violation", evidence.constraint, "Disparity", "0 is even"),
        _tile(evidence, candidate, "auc", None, "Accuracy (AUC)", "1 is best, 0.5 is chance"),
        cls="tiles",
    )
    return join(
        (
            tag("p", first, cls="lead"),
            tag("p", second, cls="lead sure"),
            tiles,
            tag("ul", *meant, cls="meant") if meant else "",
            tag("p", candidate.note, cls="muted") if candidate.note else "",
        )
    )


def _tile(
    evidence: Evidence, candidate: Candidate, measure: str, constraint: str | None, title: str,
    scale: str,
) -> Html:  # fmt: skip
    before = evidence.candidates[evidence.before]
    old, new = (each.estimate(measure, constraint) for each in (before, candidate))
    lines = [tag("p", title, cls="tile-title")]
    if candidate is before:
        lines.append(tag("p", tag("b", number(old.value)), cls="tile-value"))
        lines.append(tag("p", interval(old), cls="muted"))
    else:
        arrow = tag("span", " → ", cls="muted")
        values = tag("p", number(old.value), arrow, tag("b", number(new.value)), cls="tile-value")
        ranges = tag("p", f"{interval(old) or '–'} → {interval(new) or '–'}", cls="muted")
        lines += [values, ranges]
        change = candidate.change(measure)
        if change is not None:
            text = f"change {signed(change.value)}"
            lines.append(tag("p", f"{text} ({interval(change)})" if interval(change) else text))
    lines.append(tag("p", scale, cls="muted"))
    return tag("div", *lines, cls="tile")


# --- 2. tables of cells --------------------------------------------------------------------------


def tables_panel(evidence: Evidence, candidate: Candidate) -> Html:
    """The tables of cells, before and after; that of the constraint first."""
    before = evidence.candidates[evidence.before]
    order = ["preferred_above", "above"]
    if evidence.constraint == "statistical":
        order.reverse()
    side = "pair" if len(evidence.groups) <= WIDE_GROUPS else "stack"
    first, second = (
        tag("div", *(_heat(evidence, each, measure, title) for each, title in (
            (before, "Before"), (candidate, "After"))), cls=side)
        for measure in order
    )  # fmt: skip
    return join(
        (
            tag("p", f"{_CELLS[order[0]]}."),
            first,
            tag("details", tag("summary", _CELLS[order[1]]), second),
        )
    )


def _heat(evidence: Evidence, candidate: Candidate, measure: str, title: str) -> Html:
    result = candidate.audit
    caption = join((tag("b", title), ": ", name_tag(candidate.name)))
    if result is None:
        return tag("div", tag("p", caption), _not_kept("table"), cls="half")
    shown = shown_groups(evidence)
    even = 0.5 if measure == "above" else result.auc
    head = tag(
        "tr", tag("td"), *(tag("th", group_name(evidence, at, 20), scope="col") for at in shown)
    )
    rows = []
    for at in shown:
        cells = [
            _cell(result, measure, evidence.groups[at], evidence.groups[other], even)
            for other in shown
        ]
        rows.append(tag("tr", tag("th", group_name(evidence, at, 20), scope="row"), *cells))
    body = tag(
        "table", tag("caption", caption), tag("thead", head), tag("tbody", *rows), cls="heat"
    )
    left = len(evidence.groups) - len(shown)
    told = f"{left} more groups, which are smaller, are not shown."
    more = tag("p", told, cls="muted") if left > 0 else ""
    return tag("div", tag("div", body, cls="scroll", tabindex="0"), more, cls="half")


def _cell(result: Audit, measure: str, group: str, other: str, even: float) -> Html:
    estimate = result.estimate(measure, group=group, other=other)
    if isnan(estimate.value):
        return tag("td", "no pairs", cls="none")
    step = max(-5, min(5, round((estimate.value - even) / 0.05)))
    few = tag("span", "✻ few", cls="few") if estimate.small else ""
    return tag(
        "td",
        tag("span", number(estimate.value), cls="value"),
        tag("span", f"{interval(estimate)}", cls="range") if interval(estimate) else "",
        tag(
            "span", f"{count(estimate.n_pairs or 0, 'pair')}, {count(estimate.n_queries, 'query')}"
        ),
        few,
        cls=f"h{step}".replace("-", "m") + (" small" if estimate.small else ""),
    )


def heat_key(evidence: Evidence) -> Html:
    """What colours and marks mean."""
    even = "0.5" if evidence.constraint == "statistical" else "the accuracy over all pairs"
    swatches = [tag("span", cls=f"swatch h{step}".replace("-", "m")) for step in range(-5, 6)]
    return tag(
        "p", "lower ", *swatches, f" higher than {even}, in steps of 0.05. ",
        tag("span", "✻ few", cls="few"),
        f" and hatching: rests on fewer than {FEW_QUERIES} queries or {FEW_PAIRS} pairs, too few "
        "to trust. Small figures are the interval, and what the value rests on.", cls="key muted",
    )  # fmt: skip


# --- 3. the frontier -----------------------------------------------------------------------------


def choice_table(evidence: Evidence) -> Html:
    """Every ranker with its figures; choosing one changes all panels."""
    styles = method_styles(evidence)
    names = dict.fromkeys(
        f.constraint for each in evidence.candidates for f in each.estimates if f.constraint
    )
    shown = [evidence.constraint, *(name for name in names if name != evidence.constraint)]
    header: list[Any] = ["ranker", "accuracy (AUC)", "NDCG"]
    header += [join(("disparity: ", name_tag(str(name), 24))) for name in shown]
    rows = []
    for at, each in enumerate(evidence.candidates):
        colour, _, shape = styles[each.method]
        mark = tag("span", shape, cls=f"mark g{COLOURS.index(colour)}", aria_hidden="true")
        radio = tag(
            "input", type="radio", name="point", value=at, id=f"point-{at}",
            checked=at == evidence.after,
        )  # fmt: skip
        label = tag("label", mark, " ", name_tag(each.name, 48), for_=f"point-{at}")
        role = " (before)" if at == evidence.before else ""
        reads = tag("span", " reads groups", cls="muted") if each.needs_group else ""
        useful = next((f for f in each.estimates if f.measure.startswith("ndcg")), Estimate("ndcg"))
        estimates = [each.estimate("auc"), useful]
        estimates += [each.estimate("violation", name) for name in shown]
        rows.append([join((radio, label, role, reads)), *map(_in_cell, estimates)])
    made = table(header, rows, caption="Every ranker", cls="choice")
    return join(
        (
            tag("p", "Choose a ranker, here or in the chart: every panel follows."),
            tag("div", made, cls="scroll", tabindex="0"),
        )
    )


def _in_cell(estimate: Estimate) -> Html:
    return join((number(estimate.value), tag("span", interval(estimate), cls="range")))


def chooser(evidence: Evidence) -> Html:
    """The choice once more, always in reach."""
    options = [
        tag("option", named_text(each.name), value=at, selected=at == evidence.after)
        for at, each in enumerate(evidence.candidates)
    ]
    before = evidence.candidates[evidence.before]
    return tag(
        "div",
        tag("label", "Compare ", name_tag(before.name, 24), " with ", for_="choose"),
        tag("select", *options, id="choose"),
        tag("span", "", role="status", id="status", cls="visually-hidden"),
        cls="chooser", role="region", aria_label="What is compared",
    )  # fmt: skip


def named_text(name: str) -> str:
    """A name where no element can stand, such as in an option."""
    from pairity._utils.text import shorten

    return shorten(name, 60)


# --- 4. what was learnt --------------------------------------------------------------------------


def weights_panel(evidence: Evidence, candidate: Candidate) -> Html:
    """The pair weights in words, and as the table that they are."""
    said = weight_sentences(evidence, candidate)
    if candidate.weights is None:
        return tag("p", "No pair weights are recorded for ", name_tag(candidate.name), ".")
    shown = shown_groups(evidence)
    header = ["preferred ╲ other", *(group_name(evidence, at, 20) for at in shown)]
    rows = [
        [group_name(evidence, at, 20), *(f"{candidate.weights[at][to]:.2f}" for to in shown)]
        for at in shown
    ]
    made = table(header, rows, caption="What a training pair counts; 1 leaves it as it is")
    return join(
        (
            tag("ul", *(tag("li", text) for text in said), cls="said"),
            tag("div", made, cls="scroll", tabindex="0"),
        )
    )


# --- 5. rankings ---------------------------------------------------------------------------------


def rankings(evidence: Evidence) -> Html:
    """The first items of some queries, before and after, side by side."""
    if not evidence.queries:
        return _not_kept("ranking")
    options = [
        tag("option", f"{named_text(query.name)} (gap before {signed(query.gap)})", value=at,
            selected=at == 0)
        for at, query in enumerate(evidence.queries)
    ]  # fmt: skip
    picker = tag(
        "p", tag("label", "Query ", for_="query"), tag("select", *options, id="query"), cls="picker"
    )
    before = evidence.candidates[evidence.before]
    panels = []
    for number_, query in enumerate(evidence.queries):
        left = _top(evidence, before, number_, query, moved=False)
        after = [
            tag("div", _top(evidence, each, number_, query, moved=True), data_point=at,
                hidden=at != evidence.after, cls="half")
            for at, each in enumerate(evidence.candidates)
        ]  # fmt: skip
        panels.append(
            tag("div", tag("div", left, cls="half"), *after, cls="pair", data_query=number_,
                hidden=number_ != 0)
        )  # fmt: skip
    of = (
        f"{len(evidence.queries)} of {evidence.n_queries:,} held-out queries can be looked at, "
        "spread evenly from the one with the widest gap before to the one with the narrowest. "
        "Movement is against the ranking before; ties stand in the order of the table."
    )
    return join((picker, *panels, tag("p", of, cls="muted")))


def _top(
    evidence: Evidence, candidate: Candidate, at: int, query: ShownQuery, *, moved: bool
) -> Html:
    title = join((tag("b", "After" if moved else "Before"), ": ", name_tag(candidate.name)))
    if not candidate.tops:
        return join((tag("p", title), _not_kept("ranking")))
    rows = []
    for place, item_at in enumerate(candidate.tops[at], start=1):
        item = query.items[item_at]
        cells: list[Any] = [place, name_tag(item.name, 28), group_name(evidence, item.group, 20)]
        cells += [f"{item.label:g}", f"{candidate.scores[at][place - 1]:.3g}"]
        if moved:
            cells.append(_movement(item.rank - place, item.rank))
        first, *others = cells
        colour = f"t{item.group % 8}" if item.group >= 0 else None
        rows.append(
            tag("tr", tag("th", first, scope="row"), *(tag("td", cell) for cell in others),
                cls=colour)
        )  # fmt: skip
    header = ["rank", "item", "group", "label", "score", *(["moved"] if moved else [])]
    return table(header, rows, caption=title, cls="top")


def _movement(up: int, before: int) -> Html:
    if up == 0:
        return tag("span", "=", cls="muted")
    shape, word = ("▲", "up") if up > 0 else ("▼", "down")
    told_ = tag("span", f" {word} from rank {before}", cls="visually-hidden")
    return tag("span", f"{shape} {abs(up)}", told_, cls=word, title=f"rank {before} before")


# --- 6. exposure ---------------------------------------------------------------------------------


def exposure_panel(evidence: Evidence, candidate: Candidate) -> Html:
    """Attention and the top's shares by group, before and after."""
    before = evidence.candidates[evidence.before]
    one, two = before.audit, candidate.audit
    if one is None or two is None:
        return _not_kept("exposure")
    k = max(one.k)
    wanted = {
        "share of all items": "population_share",
        f"share of the top {k}": f"top_share@{k}",
        "exposure of an item": "exposure",
    }
    header: list[Any] = ["group"]
    for title, measure in wanted.items():
        header += [title] if measure == "population_share" else [f"{title}, before", "after"]
    rows = []
    for at in shown_groups(evidence):
        name = evidence.groups[at]
        row: list[Any] = [group_name(evidence, at)]
        for measure in wanted.values():
            estimates = [each.estimate(measure, group=name) for each in (one, two)]
            row += [_in_cell(f) for f in estimates[: 1 if measure == "population_share" else 2]]
        rows.append(row)
    made = table(
        header, rows,
        caption="Attention falls with the position as 1 / log2(1 + rank); a list's first is 1",
    )  # fmt: skip
    return tag("div", made, cls="scroll", tabindex="0")


def positions_key(evidence: Evidence) -> Html:
    """Which line is whose."""
    shown = range(min(len(evidence.groups), MOST_LINES))
    left = len(evidence.groups) - len(shown)
    more = f" {left} more groups are not drawn." if left > 0 else ""
    names = [tag("li", group_name(evidence, at)) for at in shown]
    return join((tag("ul", *names, cls="legend"), tag("p", more, cls="muted") if more else ""))


def rounds_key(evidence: Evidence) -> Html:
    """Which line is λ of which cell."""
    names = []
    for at, cell in enumerate(evidence.lambda_cells[:MOST_LINES]):
        mark = tag("span", SHAPES[at], cls=f"mark g{at}", aria_hidden="true")
        first, *rest = (name_tag(evidence.groups[group], 24) for group in cell)
        said = join((first, *(part for name in rest for part in (" preferred to ", name))))
        names.append(tag("li", mark, " ", said))
    return tag("ul", *names, cls="legend")


def histogram_key() -> Html:
    """Which bars are whose."""
    return tag(
        "ul", tag("li", tag("span", cls="bar before"), " before"),
        tag("li", tag("span", cls="bar after"), " after"), cls="legend",
    )  # fmt: skip


def rounds_table(evidence: Evidence) -> Html:
    """Every retraining."""
    if not evidence.rounds:
        return tag("p", "No rounds were recorded.", cls="muted")
    rows = [
        [each.number, number(each.violation, 4), number(each.auc, 4)]
        for each in evidence.rounds[:200]
    ]
    return table(
        ["retraining", "violation", "AUC"], rows,
        caption="On the queries that the violation was driven down on; 0 is the plain ranker",
    )  # fmt: skip


# --- 7. and 8. -----------------------------------------------------------------------------------


def caveats_panel(candidate: Candidate) -> Html:
    """What these data say against themselves, then what no data can tell."""
    lists = []
    for measured, title in ((True, "Measured here"), (False, "Always")):
        said = [tag("li", each.text) for each in candidate.caveats if each.measured is measured]
        if said:
            lists.append(tag("div", tag("h3", title), tag("ul", *said), cls="half"))
    return tag("div", *lists, cls="pair")


def provenance_list(evidence: Evidence) -> Html:
    """How to get it again."""
    rows: Sequence[tuple[str, str]] = (
        *evidence.provenance,
        ("constraint", evidence.definition),
        ("tolerance", "–" if evidence.tolerance is None else f"{evidence.tolerance:g}"),
        ("intervals", f"{100 * evidence.confidence:g} %, from resampling queries"),
    )
    parts = [
        part
        for key, value in rows
        for part in (tag("dt", key), tag("dd", tag("code", value[:4000])))
    ]
    return tag("dl", *parts)


def groups_list(evidence: Evidence) -> Html:
    """Every group with its whole name, and how many items it has."""
    sizes = next((each.audit.group_sizes for each in evidence.candidates if each.audit), ())
    items = []
    for at, name in enumerate(evidence.groups[:200]):
        mark = tag("span", SHAPES[at % 8], cls=f"mark g{at % 8}", aria_hidden="true")
        size = f" – {count(sizes[at], 'item')}" if at < len(sizes) else ""
        items.append(tag("li", mark, " ", tag("bdi", name, cls="whole"), size))
    return tag("ul", *items, cls="groups")


def _not_kept(what: str) -> Html:
    return tag(
        "p", f"No {what} is recorded for this ranker: of it there are figures alone.", cls="muted"
    )


def title_of(evidence: Evidence) -> str:
    """The disparity that the page is about."""
    known = CATALOGUE.get(evidence.constraint)
    return known.title if known else evidence.constraint


def summary_line(evidence: Evidence) -> str:
    """What was measured on."""
    result = next((each.audit for each in evidence.candidates if each.audit), None)
    items = "" if result is None else f", {count(result.n_items, 'item')}"
    return (
        f"{count(evidence.n_queries, 'query')} held out{items}, {len(evidence.groups)} groups, "
        f"{count(len(evidence.candidates), 'ranker')}"
    )
