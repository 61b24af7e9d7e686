"""What the figures of a report say, as sentences."""

from __future__ import annotations

from math import isfinite, isnan

from pairity._utils.html import Html, join, tag
from pairity.audits.estimates import Estimate
from pairity.constraints import CATALOGUE
from pairity.reports.caveats import quote
from pairity.reports.evidence import Candidate, Change, Evidence


def number(value: float, digits: int = 3) -> str:
    """A number, or a dash where there is none; the minus is a minus."""
    if isnan(value):
        return "–"
    text = f"{value:.{digits}f}"
    if float(text) == 0.0:
        text = text.removeprefix("-")
    return text.replace("-", "−")


def signed(value: float) -> str:
    """A number with its sign."""
    text = number(value)
    return f"+{text}" if value > 0 and text != "0.000" else text


def interval(estimate: Estimate | Change) -> str:
    """The interval in words, or nothing."""
    if not isfinite(estimate.low):
        return ""
    return f"{number(estimate.low)} to {number(estimate.high)}"


def told(estimate: Estimate, confidence: float | None = None) -> str:
    """A figure with its interval."""
    found = interval(estimate)
    if not found:
        return f"{number(estimate.value)} (no interval)"
    of = "" if confidence is None else f"{100 * confidence:g}\u00a0% interval "
    return f"{number(estimate.value)} ({of}{found})"


def count(n: int, what: str) -> str:
    """A number of things, in the singular where there is one."""
    plural = f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
    return f"{n:,} {what if n == 1 else plural}"


def disparity(evidence: Evidence) -> str:
    """Between whom the page measures."""
    groups, before = between(evidence), quote(evidence.candidates[evidence.before].name)
    if len(evidence.groups) == 2:
        return f"disparity between {groups}"
    of = f"any two of {len(evidence.groups)} groups"
    return f"widest disparity between {of} (with {before}: {groups})"


def between(evidence: Evidence) -> str:
    """The two groups of the first ranker's widest gap."""
    return " and ".join(map(quote, evidence.gap)) or "the groups"


def what_is_measured(evidence: Evidence) -> str:
    """The disparity in words."""
    known = CATALOGUE.get(evidence.constraint)
    return known.description if known else f"the constraint {quote(evidence.constraint)}"


def answer(evidence: Evidence, after: Candidate) -> tuple[Html, str]:
    """Two sentences: what changed and at what cost, and how sure that is."""
    before = evidence.candidates[evidence.before]
    old, new = (each.estimate("violation", evidence.constraint) for each in (before, after))
    useful, left = (each.estimate("auc") for each in (before, after))
    result = after.audit or before.audit
    on = f"On {count(evidence.n_queries, 'held-out query')}"
    if result is not None:
        on += f" with {count(result.n_items, 'item')} and {count(result.n_pairs, 'labelled pair')}"
    what = f"{disparity(evidence)} in {what_is_measured(evidence)}"
    first, last = quote(before.name), quote(after.name)
    accuracy = "accuracy, the share of labelled pairs in the right order,"
    parts: tuple[str, ...]
    if after is before:
        parts = (
            f"{on}, the {what} is, with {first}, ",
            *_bold(old, evidence.confidence), f"; its {accuracy} is ", *_bold(useful), ".",
        )  # fmt: skip
        alone = len(evidence.candidates) == 1
        return join(parts), _certain(evidence, after) if alone else (
            "Choose another ranker to compare it with."
        )
    parts = (
        f"{on}, the {what} "
        f"{_went(after.change('violation'), old, new)} from ",
        *_bold(old, evidence.confidence), f" with {first} to ", *_bold(new), f" with {last}; "
        f"{accuracy} {_went(after.change('auc'), useful, left)} from ",
        *_bold(useful), " to ", *_bold(left), ".",
    )  # fmt: skip
    return join(parts), _certain(evidence, after)


def _bold(estimate: Estimate, confidence: float | None = None) -> tuple[Html, str]:
    value, rest = told(estimate, confidence).split(" ", 1)
    return tag("b", value), f" {rest}"


def _went(change: Change | None, old: Estimate, new: Estimate) -> str:
    value = change.value if change is not None else new.value - old.value
    if isnan(value) or number(old.value) == number(new.value):
        return "went"
    return "fell" if value < 0 else "rose"


def _certain(evidence: Evidence, after: Candidate) -> str:
    """How sure the first sentence is."""
    before = evidence.candidates[evidence.before]
    old, new = (each.estimate("violation", evidence.constraint) for each in (before, after))
    change, cost = after.change("violation"), after.change("auc")
    if change is None or not isfinite(change.low):
        if after is before or not isfinite(old.low) or not isfinite(new.low):
            return "How sure this is cannot be told: there are no intervals."
        apart = new.high < old.low or old.high < new.low
        return (
            f"The two intervals {'do not overlap' if apart else 'overlap'}, so the difference "
            f"is {'larger than chance explains' if apart else 'not certain'} on queries like these."
        )
    share = change.lower if change.value <= 0 else 1.0 - change.lower
    direction = "smaller" if change.value <= 0 else "larger"
    how = _sure(share)
    text = (
        f"That the disparity is {direction} is {how}: it is so in {100 * share:.0f}\u00a0% of "
        f"{evidence.n_resamples:,} resamplings of the queries, the change being "
        f"{signed(change.value)} ({interval(change)})"
    )
    if cost is not None:
        text += f"; the change in accuracy is {signed(cost.value)} ({interval(cost)})"
    return f"{text}{_tolerance(evidence, new)}."


def _sure(share: float) -> str:
    for least, word in ((0.99, "nearly certain"), (0.95, "very likely"), (0.8, "likely")):
        if share >= least:
            return word
    return "not certain"


def _tolerance(evidence: Evidence, estimate: Estimate) -> str:
    limit = evidence.tolerance
    if limit is None or not isfinite(estimate.low):
        return ""
    if estimate.high <= limit:
        return f"; the disparity is within the tolerance of {limit:g}, with its whole interval"
    if min(estimate.low, estimate.value) > limit:
        return f"; the disparity is above the tolerance of {limit:g}, with its whole interval"
    return f"; whether it is within the tolerance of {limit:g} on new queries is not settled"


def meaning(evidence: Evidence, candidate: Candidate) -> str:
    """The disparity of one ranker in percentages; nothing where they are not at hand."""
    result, label = candidate.audit, evidence.constraint
    if result is None or len(evidence.gap) != 2:
        return ""
    first, second = evidence.gap
    one, other = quote(first), quote(second)
    name = quote(candidate.name)
    cells = {
        "statistical": ("above", (first, second), (second, first)),
        "inter": ("preferred_above", (first, second), (second, first)),
        "intra": ("auc_within", (first, None), (second, None)),
        "marginal": ("auc", (first, None), (second, None)),
    }
    if label not in cells:
        return ""
    measure, here, there = cells[label]
    high, low = (result.estimate(measure, group=g, other=o) for g, o in (here, there))
    gaps = [
        abs(found.value)
        for found in result.estimates
        if found.measure == "gap" and {found.group, found.other} == {first, second}
    ]
    if not gaps or not abs(abs(high.value - low.value) - gaps[0]) <= 1e-6:
        return ""  # the constraint averages otherwise, or aims elsewhere
    a, b = f"{100 * high.value:.0f}\u00a0%", f"{100 * low.value:.0f}\u00a0%"
    if label == "statistical":
        return (
            f"{name} ranks an item of {one} above one of {other} in {a} of such pairs, and below "
            f"it in {b}."
        )
    if label == "inter":
        return (
            f"Where the labels prefer an item of {one} to one of {other}, {name} agrees in {a} of "
            f"pairs; where they prefer {other} to {one}, in {b}."
        )
    where = "inside" if label == "intra" else "for"
    return (
        f"{name} respects {a} of the preferences {where} {one}, and {b} of those {where} {other}."
    )


def weight_sentences(evidence: Evidence, candidate: Candidate, most: int = 6) -> list[str]:
    """What the pair weights say, the strongest first."""
    weights = candidate.weights
    if weights is None:
        return []
    cells = [
        (abs(value - 1.0), value, preferred, other)
        for preferred, row in zip(evidence.groups, weights, strict=True)
        for other, value in zip(evidence.groups, row, strict=True)
    ]
    moved = sorted((cell for cell in cells if cell[0] >= 0.005), key=lambda cell: -cell[0])
    if not moved:
        return ["Every training pair counts once: nothing was reweighted."]
    said = []
    for _, value, preferred, other in moved[:most]:
        if preferred == other:
            pair = f"an item of {quote(preferred)} was preferred to another of them"
        else:
            pair = f"an item of {quote(preferred)} was preferred to one of {quote(other)}"
        said.append(f"A training pair in which {pair} counts {value:.2f} times.")
    if len(moved) > most:
        said.append(f"{len(moved) - most} more cells of the table differ from 1.")
    elif len(moved) < len(cells):
        said.append("All other pairs count once.")
    return said
