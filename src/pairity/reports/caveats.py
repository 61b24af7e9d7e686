"""Caveats: what the reader of a report should not conclude, derived from the measurements."""

from collections.abc import Iterator
from dataclasses import replace
from math import isfinite

import numpy as np

from pairity.audits.estimates import FEW_PAIRS, FEW_QUERIES
from pairity.reports.evidence import Candidate, Caveat, Evidence
from pairity.reports.prose import disparity, number, quote, violation
from pairity.reweighting.outcomes import Outcome
from pairity.reweighting.weights import PairWeights

# Limits beyond which the reader is told. They are conventions, not results of tests.
MODEST_QUERIES = 50  # with fewer, the largest gap overstates visibly
SMALL_SHARE = 0.05  # of all items, for a group
WIDE_INTERVAL = 0.1
VISIBLE_RISE = 0.01  # of another violation


def add_caveats(evidence: Evidence) -> Evidence:
    """The same evidence with the caveats of every candidate."""
    candidates = tuple(
        replace(candidate, caveats=_caveats(evidence, candidate))
        for candidate in evidence.candidates
    )
    return replace(evidence, candidates=candidates)


def _caveats(evidence: Evidence, after: Candidate) -> tuple[Caveat, ...]:
    """Caveats from these data, then caveats that hold for any data."""
    kinds = (_sample, _small_cells, _noise, _uncertainty, _side_effects, _training, _selection)
    measured = [Caveat(text, True) for kind in kinds for text in kind(evidence, after)]
    return (*measured, *(Caveat(text, False) for text in _always(evidence, after)))


def _sample(evidence: Evidence, after: Candidate) -> Iterator[str]:
    n = evidence.n_queries
    if n < FEW_QUERIES:
        verb = "query was" if n == 1 else "queries were"
        yield f"Only {n} {verb} held out: too few to rely on any number of this report."
    elif n < MODEST_QUERIES:
        yield (
            f"Only {n} queries were held out: intervals are wide, and with few queries the "
            "disparity tends to be overestimated."
        )
    result = after.audit
    if result is None:
        return
    if result.n_missing:
        share = result.n_missing / result.n_items
        yield (
            f"{result.n_missing:,} of {result.n_items:,} held-out items ({share:.1%}) have no "
            "known group. They are ranked but not compared; if they differ from the others, the "
            "disparity differs too."
        )
    for name, size in zip(result.groups, result.group_sizes, strict=True):
        if size < SMALL_SHARE * result.n_items:
            yield (
                f"{quote(name)} is a small group: {size:,} of {result.n_items:,} held-out items. "
                "Its estimates are the least certain."
            )


def _small_cells(_: Evidence, after: Candidate) -> Iterator[str]:
    estimates = () if after.audit is None else after.audit.estimates
    cells = [e for e in estimates if e.measure in ("preferred_above", "above")]
    small = [cell for cell in cells if cell.small]
    if small:
        examples = "; ".join(
            f"{quote(str(cell.group))} above {quote(str(cell.other))} "
            f"({cell.n_pairs or 0:,} pairs in {cell.n_queries:,} queries)"
            for cell in small[:3]
        )
        more = f" and {len(small) - 3} more" if len(small) > 3 else ""
        yield (
            f"{len(small)} of {len(cells)} cells have fewer than {FEW_QUERIES} queries or "
            f"{FEW_PAIRS} pairs and are marked: {examples}{more}."
        )


def _noise(evidence: Evidence, after: Candidate) -> Iterator[str]:
    """Which of the two disparities are no larger than variation between queries makes them."""
    within = []
    for ranker in dict.fromkeys((evidence.candidates[evidence.before], after)):
        value = ranker.estimate("violation", evidence.constraint).value
        floor = ranker.noise_floor(evidence.constraint)
        if value <= floor:
            name = quote(ranker.name)
            within.append(f"with {name} ({number(value)}, noise floor {number(floor)})")
    if within:
        yield (
            f"The {disparity(evidence)} is within the noise floor {' and '.join(within)}: "
            f"these {evidence.n_queries:,} held-out queries could not show a smaller one."
        )


def _uncertainty(evidence: Evidence, after: Candidate) -> Iterator[str]:
    estimate = after.estimate("violation", evidence.constraint)
    if not isfinite(estimate.low):
        yield "The disparity has no interval, so its variation between samples is unknown."
        return
    value = f"{violation(after, evidence.constraint)} on {estimate.n_queries:,} held-out queries"
    if estimate.high - estimate.low > WIDE_INTERVAL:
        yield f"The interval of the disparity is wide: {value}."
    if estimate.value < estimate.low:
        yield (
            f"The disparity lies below its own interval: {value}. It is the largest of several "
            "gaps, and noise can only raise it; with so few queries it is mostly noise."
        )
    limit = evidence.tolerance
    if limit is not None and min(estimate.low, estimate.value) > limit:
        yield (
            f"The tolerance of {limit:g} is not met on held-out queries: the disparity is {value}, "
            "and its interval is above the tolerance."
        )
    elif limit is not None and estimate.high > limit:
        yield (
            f"These queries do not show whether the disparity is within the tolerance of {limit:g} "
            f"on new queries: it is {value}."
        )


def _side_effects(evidence: Evidence, after: Candidate) -> Iterator[str]:
    before = evidence.candidates[evidence.before]
    for old in before.estimates:
        if old.measure == "violation" and old.constraint != evidence.constraint:
            new = after.estimate("violation", old.constraint)
            if new.value > old.value + VISIBLE_RISE:
                yield (
                    f"Another disparity rose: {quote(str(old.constraint))}, from "
                    f"{violation(before, old.constraint)} to {violation(after, old.constraint)}."
                )


def _training(evidence: Evidence, after: Candidate) -> Iterator[str]:
    outcome, expected = evidence.outcome, (Outcome.WITHIN_TOLERANCE, Outcome.NO_ROUNDS)
    is_after = after is evidence.candidates[evidence.after]
    if is_after and outcome is not None and outcome.kind not in expected:
        yield f"In training: {outcome.summary}"
    if after.weights is None:
        return
    weights = PairWeights(np.array(after.weights), evidence.groups, after.mirrored)
    if weights.reversed():
        yield (
            f"In {len(weights.reversed())} of {len(after.weights) ** 2} cells the ranker was "
            "trained mostly against the observed preferences. Check whether their labels are that "
            "wrong."
        )
    if weights.extreme():
        yield (
            f"In {len(weights.extreme())} of {len(after.weights) ** 2} cells a pair counts more "
            "than 100 times as much as an unweighted pair, or less than a hundredth. The ranker "
            "depends on few pairs."
        )


def _selection(evidence: Evidence, after: Candidate) -> Iterator[str]:
    if after.needs_group:
        yield "This ranker reads the groups of the items it ranks: they must be known in use."
    if len(evidence.candidates) > 2:
        yield (
            f"{len(evidence.candidates)} rankers are shown on the same held-out queries. If you "
            "select one of them by these estimates, expect slightly worse results on new queries, "
            "and confirm them on other queries."
        )


def _always(evidence: Evidence, after: Candidate) -> Iterator[str]:
    if after.weights is not None:
        yield (
            "Reweighting assumes that the labels deviate from unbiased labels as little as the "
            "disparity requires (Sonoda 2021, Proposition 1). Data of this kind cannot confirm it."
        )
    yield "Accuracy is agreement with the labels as they are, whether or not they are biased."
    if evidence.constraint == "statistical":
        yield (
            "This disparity does not use labels: a ranking that reduces it may place less relevant "
            "items above more relevant ones."
        )
    groups = "the groups named here"
    if evidence.attributes:
        groups = f"groups by {' and '.join(map(quote, evidence.attributes))}"
    yield (
        f"Only {groups} were considered. The report says nothing about other attributes, or about "
        "groups within these groups."
    )
    yield (
        "Only the order of items was measured. The report does not show whether the items were "
        "collected evenly, or what happens to people after the ranking."
    )
