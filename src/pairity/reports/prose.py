"""The sentences of a report, written from its estimates."""

from math import isfinite, isnan

from pairity._utils.text import shorten
from pairity.audits.estimates import NAN, Estimate
from pairity.constraints import CATALOGUE
from pairity.reports.evidence import Candidate, Change, Evidence

# Words for the share of resamples that agree on the direction of a change.
_CERTAINTY = ((0.99, "nearly certain"), (0.95, "very likely"), (0.8, "likely"))

# The measure that each violation compares.
_COMPARED = {
    "statistical": "above",
    "inter": "preferred_above",
    "intra": "auc_within",
    "marginal": "auc",
}

Sentence = list[tuple[str, bool]]  # parts with whether they are emphasised


def quote(name: str) -> str:
    """A name inside a sentence: shortened, and isolated from the direction of the text."""
    return f"‘\u2068{shorten(name, 40)}\u2069’"


def number(value: float, digits: int = 3) -> str:
    """A number with a typographic minus, or a dash for NaN."""
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
    """The confidence interval, or an empty text."""
    if not isfinite(estimate.low):
        return ""
    return f"{number(estimate.low)} to {number(estimate.high)}"


def with_interval(estimate: Estimate, floor: float = NAN) -> str:
    """A value with its confidence interval, and the noise floor of a violation."""
    beside = "" if isnan(floor) else f", noise floor {number(floor)}"
    return f"{number(estimate.value)} ({interval(estimate) or 'no interval'}{beside})"


def violation(candidate: Candidate, constraint: str | None) -> str:
    """A violation with its confidence interval and its noise floor."""
    estimate = candidate.estimate("violation", constraint)
    return with_interval(estimate, candidate.noise_floor(constraint))


def count(n: int, noun: str) -> str:
    """A number with its noun in the singular or plural."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{n:,} {noun if n == 1 else plural}"


def compared_groups(evidence: Evidence) -> str:
    """The two groups of the first ranker's largest gap."""
    return " and ".join(map(quote, evidence.gap)) or "the groups"


def disparity(evidence: Evidence) -> str:
    """The disparity that the report is about."""
    known = CATALOGUE.get(evidence.constraint)
    what = known.description if known else f"the constraint {quote(evidence.constraint)}"
    if "," in what:
        what += ","  # which closes its clause
    groups = compared_groups(evidence)
    if len(evidence.groups) == 2:
        return f"disparity between {groups} in {what}"
    before = quote(evidence.candidates[evidence.before].name)
    return (
        f"largest disparity between any two of {len(evidence.groups)} groups (with {before}: "
        f"{groups}) in {what}"
    )


# --- the summary ---------------------------------------------------------------------------------


def summary(evidence: Evidence, after: Candidate) -> tuple[Sentence, str]:
    """Two sentences: what changed at what cost, and how certain the change is."""
    before = evidence.candidates[evidence.before]
    old, new = (ranker.estimate("violation", evidence.constraint) for ranker in (before, after))
    old_auc, new_auc = (ranker.estimate("auc") for ranker in (before, after))
    floors = [ranker.noise_floor(evidence.constraint) for ranker in (before, after)]
    result = after.audit or before.audit
    sample = f"On {count(evidence.n_queries, 'held-out query')}"
    if result is not None:
        pairs = count(result.n_pairs, "labelled pair")
        sample += f" with {count(result.n_items, 'item')} and {pairs}"
    subject = f"{sample}, the {disparity(evidence)}"
    accuracy = "accuracy, the share of labelled pairs in the right order,"
    confidence = f"{100 * evidence.confidence:g}\u00a0% interval "
    if after is before:
        sentence = [
            (f"{subject} is, with {quote(before.name)}, ", False),
            *_emphasise(old, confidence, floors[0]),
            (f"; its {accuracy} is ", False), *_emphasise(old_auc), (".", False),
        ]  # fmt: skip
        if len(evidence.candidates) > 1:
            return sentence, "Select another ranker to compare it with."
        return sentence, _certainty(evidence, after)
    sentence = [
        (f"{subject} {_direction(old, new)} from ", False),
        *_emphasise(old, confidence, floors[0]),
        (f" with {quote(before.name)} to ", False), *_emphasise(new, "", floors[1]),
        (f" with {quote(after.name)}; {accuracy} {_direction(old_auc, new_auc)} from ", False),
        *_emphasise(old_auc), (" to ", False), *_emphasise(new_auc), (".", False),
    ]  # fmt: skip
    return sentence, _certainty(evidence, after)


def _emphasise(estimate: Estimate, confidence: str = "", floor: float = NAN) -> Sentence:
    value, _, rest = with_interval(estimate, floor).partition(" (")
    return [(value, True), (f" ({confidence if isfinite(estimate.low) else ''}{rest}", False)]


def _direction(old: Estimate, new: Estimate) -> str:
    if isnan(new.value - old.value) or number(old.value) == number(new.value):
        return "went"
    return "fell" if new.value < old.value else "rose"


def _certainty(evidence: Evidence, after: Candidate) -> str:
    """The second sentence: how certain the change of the disparity is."""
    before = evidence.candidates[evidence.before]
    old, new = (ranker.estimate("violation", evidence.constraint) for ranker in (before, after))
    change, cost = after.change("violation"), after.change("auc")
    if change is None or not isfinite(change.low):
        if after is before or not isfinite(old.low) or not isfinite(new.low):
            return "No confidence intervals are available for a comparison."
        if new.high < old.low or old.high < new.low:
            return (
                "The two intervals do not overlap, so the difference is larger than chance "
                "explains on queries like these."
            )
        return "The two intervals overlap, so the difference is not certain on queries like these."
    share = change.lower if change.value <= 0 else 1.0 - change.lower
    certainty = next((word for least, word in _CERTAINTY if share >= least), "not certain")
    text = (
        f"A {'smaller' if change.value <= 0 else 'larger'} disparity is {certainty}: it occurs in "
        f"{100 * share:.0f}\u00a0% of {evidence.n_resamples:,} bootstrap resamples of the queries. "
        f"The change is {signed(change.value)} ({interval(change)})"
    )
    if cost is not None:
        text += f", and the change in accuracy is {signed(cost.value)} ({interval(cost)})"
    return f"{text}.{_tolerance(evidence, new)}"


def _tolerance(evidence: Evidence, estimate: Estimate) -> str:
    limit = evidence.tolerance
    if limit is None or not isfinite(estimate.low):
        return ""
    if estimate.high <= limit:
        return f" The interval of the disparity is within the tolerance of {limit:g}."
    if min(estimate.low, estimate.value) > limit:
        return f" The interval of the disparity is above the tolerance of {limit:g}."
    return f" Whether the disparity is within the tolerance of {limit:g} on new queries is unknown."


# --- what the numbers mean -----------------------------------------------------------------------


def explain(evidence: Evidence, candidate: Candidate) -> str:
    """The disparity of a ranker in percentages; empty if percentages do not express it."""
    result, label = candidate.audit, evidence.constraint
    if result is None or not evidence.gap or label not in _COMPARED:
        return ""
    others = evidence.gap[::-1] if label in ("statistical", "inter") else (None, None)
    high, low = (
        result.estimate(_COMPARED[label], group=group, other=other)
        for group, other in zip(evidence.gap, others, strict=True)
    )
    pair = set(evidence.gap)
    gaps = [e.value for e in result.estimates if e.measure == "gap" and {e.group, e.other} == pair]
    if not gaps or not abs(abs(high.value - low.value) - abs(gaps[0])) <= 1e-6:
        return ""  # the constraint averages in another way, or has a target
    first, second = map(quote, evidence.gap)
    name, a, b = quote(candidate.name), *(f"{100 * e.value:.0f}\u00a0%" for e in (high, low))
    if label == "statistical":
        return (
            f"{name} ranks an item of {first} above an item of {second} in {a} of such pairs, and "
            f"below it in {b}."
        )
    if label == "inter":
        return (
            f"Where the labels prefer an item of {first} to an item of {second}, {name} agrees in "
            f"{a} of the pairs; where they prefer {second} to {first}, it agrees in {b}."
        )
    where = "inside" if label == "intra" else "for"
    return f"{name} respects {a} of the preferences {where} {first}, and {b} {where} {second}."


def weight_sentences(evidence: Evidence, candidate: Candidate, most: int = 6) -> list[str]:
    """What the pair weights do, the strongest first."""
    groups, weights = evidence.groups, candidate.weights or ()
    mirrored = candidate.mirrored or [[0.0] * len(groups)] * len(weights)
    cells = [
        (abs(weights[k][j] - 1.0) + mirrored[k][j], weights[k][j], mirrored[k][j], groups[k], other)
        for k in range(len(weights))
        for j, other in enumerate(groups)
    ]
    moved = sorted((cell for cell in cells if cell[0] >= 0.005), key=lambda cell: -cell[0])
    if not moved:
        return ["Every training pair counts once: nothing was reweighted."] if cells else []
    sentences = []
    for _, value, opposite, preferred, other in moved[:most]:
        second = "another of the same group" if preferred == other else f"one of {quote(other)}"
        turned = f", and {opposite:.2f} times in the opposite order" if opposite >= 0.005 else ""
        sentences.append(
            f"A training pair in which an item of {quote(preferred)} was preferred to {second} "
            f"counts {value:.2f} times{turned}."
        )
    if len(moved) > most:
        sentences.append(f"{len(moved) - most} more cells of the table differ from 1.")
    elif len(moved) < len(cells):
        sentences.append("All other pairs count once.")
    return sentences
