"""Cautions: what the reader of a report should not conclude, from measured facts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import isfinite

import numpy as np

from pairity._utils.text import shorten
from pairity.audits.estimates import FEW_PAIRS, FEW_QUERIES, Estimate
from pairity.reports.evidence import Candidate, Caveat, Evidence
from pairity.reweighting.algorithm import Outcome
from pairity.reweighting.weights import PairWeights

MODEST_QUERIES = 50
SMALL_SHARE = 0.05
WIDE = 0.1
ROSE = 0.01
_OF_LABELS = {
    "statistical": (
        "This disparity does not look at labels: a ranking that evens it out may put less relevant "
        "items above more relevant ones."
    ),
}


def quote(name: str) -> str:
    """A group's name inside a sentence: cut where it is long, its direction kept to itself."""
    return f"‘\u2068{shorten(name, 40)}\u2069’"


def add_caveats(evidence: Evidence) -> Evidence:
    """The same evidence, every candidate with what its figures do not show."""
    candidates = tuple(
        replace(each, caveats=_caveats(evidence, each)) for each in evidence.candidates
    )
    return replace(evidence, candidates=candidates)


def _caveats(evidence: Evidence, after: Candidate) -> tuple[Caveat, ...]:
    """What these data say against themselves, then what no data can tell."""
    before = evidence.candidates[evidence.before]
    measured = [
        *_few(evidence, after),
        *_small(after),
        *_uncertain(evidence, after),
        *_side_effects(evidence, before, after),
        *_weights(evidence, after),
        *_choice(evidence, after),
    ]
    return (
        *(Caveat(text, True) for text in measured),
        *(Caveat(text, False) for text in _always(evidence, after)),
    )


def _few(evidence: Evidence, after: Candidate) -> Iterator[str]:
    n = evidence.n_queries
    if n < FEW_QUERIES:
        were = "query was" if n == 1 else "queries were"
        yield f"Only {n} {were} held out: too few to trust any figure on this page."
    elif n < MODEST_QUERIES:
        yield (
            f"Only {n} queries were held out: intervals are wide, and on few queries a disparity "
            "comes out too high rather than too low."
        )
    result = after.audit
    if result is None:
        return
    if result.n_missing:
        share = result.n_missing / result.n_items
        yield (
            f"{result.n_missing:,} of {result.n_items:,} held-out items ({share:.1%}) have no "
            "known group. They are ranked, but compared with nobody; if they differ from the "
            "others, the disparity differs too."
        )
    for name, size in zip(result.groups, result.group_sizes, strict=True):
        if size < SMALL_SHARE * result.n_items:
            yield (
                f"{quote(name)} is a small group: {size:,} of {result.n_items:,} held-out items. "
                "Its figures are the least certain ones."
            )


def _small(after: Candidate) -> Iterator[str]:
    if after.audit is None:
        return
    cells = [f for f in after.audit.estimates if f.measure in ("preferred_above", "above")]
    small = [f for f in cells if f.small]
    if small:
        named = "; ".join(
            f"{quote(str(f.group))} above {quote(str(f.other))} "
            f"({f.n_pairs or 0:,} pairs in {f.n_queries:,} queries)"
            for f in small[:3]
        )
        more = f" and {len(small) - 3} more" if len(small) > 3 else ""
        yield (
            f"Marked, for resting on fewer than {FEW_QUERIES} queries or {FEW_PAIRS} pairs: "
            f"{len(small)} of {len(cells)} cells, {named}{more}."
        )


def _uncertain(evidence: Evidence, after: Candidate) -> Iterator[str]:
    estimate = after.estimate("violation", evidence.constraint)
    if not isfinite(estimate.low):
        yield "The disparity has no interval: how far it would differ on others is not known."
        return
    told = f"{estimate.value:.3f} ({_range(estimate)}) on {estimate.n_queries:,} held-out queries"
    if estimate.high - estimate.low > WIDE:
        yield f"The interval of the disparity is wide: {told}."
    if estimate.value < estimate.low:
        yield (
            f"The disparity lies below its own interval: {told}. It is the largest of several "
            "gaps, and noise can only raise that; on so few queries it is mostly noise."
        )
    limit = evidence.tolerance
    if limit is None:
        return
    if min(estimate.low, estimate.value) > limit:
        yield (
            f"The tolerance of {limit:g} is not kept on held-out queries: the disparity is "
            f"{told}, its whole interval above it."
        )
    elif estimate.high > limit:
        yield (
            f"Whether the disparity is within the tolerance of {limit:g} on new queries cannot be "
            f"told from these: it is {told}."
        )


def _side_effects(evidence: Evidence, before: Candidate, after: Candidate) -> Iterator[str]:
    if before is after:
        return
    for old in before.estimates:
        if old.measure != "violation" or old.constraint == evidence.constraint:
            continue
        new = after.estimate("violation", old.constraint)
        if new.value > old.value + ROSE:
            yield (
                f"Another disparity rose: {quote(str(old.constraint))}, from {old.value:.3f} "
                f"({_range(old)}) to {new.value:.3f} ({_range(new)})."
            )


def _weights(evidence: Evidence, after: Candidate) -> Iterator[str]:
    chosen = after is evidence.candidates[evidence.after]
    if chosen and evidence.outcome not in (None, Outcome.WITHIN_TOLERANCE, Outcome.NO_ROUNDS):
        yield f"On the queries it was trained for: {evidence.outcome}"
    if after.weights is None:
        return
    saturated = PairWeights(np.array(after.weights), evidence.groups).saturated()
    if saturated:
        yield (
            f"{len(saturated)} of {len(after.weights) ** 2} pair weights are at their limits, 0 or "
            "2: reweighting can push no further there."
        )


def _choice(evidence: Evidence, after: Candidate) -> Iterator[str]:
    if after.needs_group:
        yield "This ranker reads the groups of the items it ranks: they must be known in use."
    if len(evidence.candidates) > 2:
        yield (
            f"{len(evidence.candidates)} rankers are shown on the same held-out queries. If you "
            "choose one of them by these figures, expect its figures to be a little worse on new "
            "queries; confirm it on others."
        )


def _always(evidence: Evidence, after: Candidate) -> Iterator[str]:
    if after.weights is not None:
        yield (
            "Reweighting assumes that the labels deviate from unbiased ones as little as the "
            "disparity requires (Sonoda 2021, Proposition 1), which no data of this kind confirm."
        )
    yield "Accuracy is agreement with the labels as they are, biased or not."
    if evidence.constraint in _OF_LABELS:
        yield _OF_LABELS[evidence.constraint]
    if evidence.attributes:
        told = " and ".join(quote(name) for name in evidence.attributes)
        yield (
            f"Only groups by {told} were considered. Nothing here is known about any other "
            "attribute, nor about groups within these groups."
        )
    else:
        yield (
            "Only the groups named here were considered. Nothing is known about any other "
            "attribute, nor about groups within these groups."
        )
    yield (
        "Only who is ranked above whom was measured. Whether the items were collected evenly, and "
        "what happens to people after the ranking, is not on this page."
    )


def _range(estimate: Estimate) -> str:
    return f"{estimate.low:.3f} to {estimate.high:.3f}" if isfinite(estimate.low) else "no interval"
