"""merge_evidence: the evidence of several models on one page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pairity.exceptions import InputError
from pairity.reports.caveats import add_caveats
from pairity.reports.evidence import HELD_OUT, Candidate, Evidence, ShownQuery


def merge_evidence(found: Mapping[str, Evidence]) -> Evidence:
    """The evidence of several models as one, their rankers named after the models.

    They must have been measured on the same held-out queries, by the same constraint. The first
    model says what is compared with what when the page opens, how its fit went, and how to get it
    again. A model with another plain ranker brings that along, and its changes and rankings,
    which are measured against it, are left out.
    """
    names = list(found)
    first = found[names[0]]
    if len(found) == 1:
        return first
    start = first.candidates[first.before]
    candidates = [
        each if at == first.before else _renamed(each, names[0])
        for at, each in enumerate(first.candidates)
    ]
    queries = first.queries
    for name in names[1:]:
        other = found[name]
        _require_alike(first, other, (names[0], name))
        theirs = other.candidates[other.before]
        alike = repr(start.estimates) == repr(theirs.estimates)  # NaN is NaN here
        alike &= [each.name for each in queries] == [each.name for each in other.queries]
        merged = [_merged(*pair) for pair in zip(queries, other.queries, strict=alike)]
        if alike:
            queries = tuple(query for query, _ in merged)
        for at, each in enumerate(other.candidates):
            if at == other.before and alike:
                continue
            kept = replace(_renamed(each, name), changes=(), tops=(), scores=())
            if alike:
                tops = tuple(
                    tuple(index[item] for item in top)
                    for (_, index), top in zip(merged, each.tops, strict=False)
                )
                kept = replace(kept, changes=each.changes, tops=tops, scores=each.scores)
            candidates.append(kept)
    return add_caveats(replace(first, candidates=tuple(candidates), queries=queries))


def _renamed(candidate: Candidate, model: str) -> Candidate:
    """A ranker named after its model; those of one model look alike, but for its plain ranker."""
    method = model if candidate.weights is not None else f"{model}: {candidate.method}"
    return replace(candidate, name=f"{model}: {candidate.name}", method=method)


def _require_alike(one: Evidence, other: Evidence, names: tuple[str, str]) -> None:
    """Refuse models that were measured on other queries or by another constraint."""
    for what in ("constraint", "definition", "groups", "n_queries", "confidence"):
        if getattr(one, what) != getattr(other, what):
            break
    else:
        what = "held-out queries"
        if dict(one.provenance).get(HELD_OUT) == dict(other.provenance).get(HELD_OUT):
            return
    raise InputError(
        f"{names[0]} and {names[1]} differ in {what}, so they cannot stand on one page. Train both "
        "on the same file with the same --seed, --test and --constraint."
    )


def _merged(mine: ShownQuery, theirs: ShownQuery) -> tuple[ShownQuery, list[int]]:
    """A query with the items of both, and where theirs are in it; a first rank names an item."""
    items, place = list(mine.items), {item.rank: at for at, item in enumerate(mine.items)}
    for item in theirs.items:
        if item.rank not in place:
            place[item.rank] = len(items)
            items.append(item)
    return replace(mine, items=tuple(items)), [place[item.rank] for item in theirs.items]
