"""merge_evidence: the evidence of several models on one page."""

from collections.abc import Mapping
from dataclasses import replace

from pairity.exceptions import InputError
from pairity.reports.caveats import add_caveats
from pairity.reports.evidence import HELD_OUT, Candidate, Evidence, ShownQuery


def merge_evidence(models: Mapping[str, Evidence]) -> Evidence:
    """Merge the evidence of several models; their rankers are named after the models.

    All models must be measured on the same held-out queries by the same constraint. The first
    model determines which rankers are compared when the page opens, the rounds and the
    provenance. If the plain ranker of another model differs, it is added, and the changes and
    rankings of that model, which are relative to it, are left out.
    """
    (first_name, first), *others = models.items()
    if not others:
        return first
    start = first.candidates[first.before]
    candidates = [
        candidate if candidate is start else _rename(candidate, first_name)
        for candidate in first.candidates
    ]
    queries = first.queries
    for name, other in others:
        _require_comparable(first, other, (first_name, name))
        other_start = other.candidates[other.before]
        same = repr(start.estimates) == repr(other_start.estimates)  # in which NaN equals NaN
        same &= [query.name for query in queries] == [query.name for query in other.queries]
        merged = [_merge(*pair) for pair in zip(queries, other.queries, strict=same)]
        if same:
            queries = tuple(query for query, _ in merged)
        for candidate in other.candidates:
            if not same:
                candidates.append(_rename(replace(candidate, changes=(), tops=(), scores=()), name))
            elif candidate is not other_start:
                tops = tuple(
                    tuple(index[item] for item in top)
                    for (_, index), top in zip(merged, candidate.tops, strict=False)
                )
                candidates.append(replace(_rename(candidate, name), tops=tops))
    return add_caveats(replace(first, candidates=tuple(candidates), queries=queries))


def _rename(candidate: Candidate, model: str) -> Candidate:
    """A ranker named after its model; the reweighted rankers of a model share a method."""
    method = model if candidate.weights is not None else f"{model}: {candidate.method}"
    return replace(candidate, name=f"{model}: {candidate.name}", method=method)


def _require_comparable(first: Evidence, other: Evidence, names: tuple[str, str]) -> None:
    """Reject models that were measured on different queries or by different constraints."""
    keys = ("constraint", "definition", "groups", "n_queries", "confidence")
    different = [key for key in keys if getattr(first, key) != getattr(other, key)]
    if dict(first.provenance).get(HELD_OUT) != dict(other.provenance).get(HELD_OUT):
        different.append("held-out queries")
    if different:
        raise InputError(
            f"{names[0]} and {names[1]} differ in {different[0]}, so they cannot be shown on one "
            "page. Train both on the same file with the same --seed, --test and --constraint."
        )


def _merge(first: ShownQuery, other: ShownQuery) -> tuple[ShownQuery, list[int]]:
    """A query with the items of both, and the indices of the other's items in it.

    An item is identified by its rank before.
    """
    items = {item.rank: item for item in (*first.items, *other.items)}
    items |= {item.rank: item for item in first.items}
    index = {rank: number for number, rank in enumerate(items)}
    return replace(first, items=tuple(items.values())), [index[item.rank] for item in other.items]
