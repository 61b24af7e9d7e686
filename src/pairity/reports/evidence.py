"""Evidence: everything that a report shows, as plain data that can be stored with a model.

`pairity.reports.collect.collect` measures it once on held-out queries. It is written as JSON, and
every entry is checked when it is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pairity._utils.json_codec import Place, from_plain, parse_document, to_plain
from pairity.audits.audit import Audit
from pairity.audits.estimates import NAN, Estimate
from pairity.exceptions import InputError
from pairity.reweighting.outcomes import FitOutcome

FORMAT = "pairity evidence 1"
FILE = "evidence.json"  # in the folder of a saved model
HELD_OUT = "held-out data, SHA-256"  # an entry of the provenance
Table = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Change:
    """The change of an estimate from the first ranker to this one, on the same queries.

    Attributes
    ----------
    measure : str, "violation" or "auc"
    value, low, high : float
        The difference and its interval; both rankers are measured on the same resampled queries.
    lower : float
        The share of resamples in which this ranker's value is lower; NaN without resamples.
    """

    measure: str
    value: float
    low: float = NAN
    high: float = NAN
    lower: float = NAN


@dataclass(frozen=True)
class Caveat:
    """What a reader should not conclude; `measured` if it follows from these data."""

    text: str
    measured: bool


@dataclass(frozen=True, eq=False)
class Candidate:
    """One ranker that a reader may select: a point of the frontier.

    Attributes
    ----------
    name : str
    method : str; candidates of one method share a colour and a marker
    needs_group : bool, whether the ranker reads the groups of the items that it ranks
    estimates : tuple of Estimate
        AUC, NDCG@10, and the violations and noise floors by constraint.
    audit : Audit or None, with the estimates that a report shows
    changes : tuple of Change, relative to the first ranker
    weights : K × K table of pair weights, or None if there are none
    mirrored : K × K table of the weights of the same pairs in the opposite order, or None
    positions : by group, its share of the first, second, ... position
    histogram : numbers of queries by their signed gap, in the bins of `Evidence.bins`
    tops : for each query of `Evidence.queries`, the indices of its first items in order
    scores : the scores of these items
    note : str, a remark
    caveats : tuple of Caveat, what a reader should not conclude
    """

    name: str
    method: str
    needs_group: bool = False
    estimates: tuple[Estimate, ...] = ()
    audit: Audit | None = None
    changes: tuple[Change, ...] = ()
    weights: Table | None = None
    mirrored: Table | None = None
    positions: Table = ()
    histogram: tuple[int, ...] = ()
    tops: tuple[tuple[int, ...], ...] = ()
    scores: Table = ()
    note: str = ""
    caveats: tuple[Caveat, ...] = ()

    def estimate(self, measure: str, constraint: str | None = None) -> Estimate:
        """The estimate of a measure; one without a value if there is none."""
        named = {(estimate.measure, estimate.constraint): estimate for estimate in self.estimates}
        return named.get((measure, constraint), Estimate(measure, constraint=constraint))

    def noise_floor(self, constraint: str | None) -> float:
        """The mean violation that variation between queries alone produces; NaN if unknown."""
        return self.estimate("noise_floor", constraint).value

    def change(self, measure: str) -> Change | None:
        """The change of an estimate relative to the first ranker, if it was measured."""
        return next((change for change in self.changes if change.measure == measure), None)


@dataclass(frozen=True)
class Item:
    """An item of a query that is shown: name, group (-1 if unknown), label and rank before."""

    name: str
    group: int
    label: float
    rank: int


@dataclass(frozen=True)
class ShownQuery:
    """A query whose ranking is shown, with the items that some candidate ranks first."""

    name: str
    n_items: int
    gap: float
    items: tuple[Item, ...]


@dataclass(frozen=True)
class RecordedRound:
    """A round of Algorithm 1: λ of the cells `Evidence.lambda_cells`, violation and AUC."""

    number: int
    lambda_: tuple[float, ...]
    violation: float
    auc: float


@dataclass(frozen=True, eq=False, repr=False)
class Evidence:
    """What a report shows; `collect` returns it, and JSON stores it.

    Attributes
    ----------
    title : str
    constraint : str, the name of the violation that the report is about
    definition : str, the representation of that constraint
    tolerance : float or None
    confidence : float, of all intervals
    n_resamples : int, the number of bootstrap resamples behind them
    groups : tuple of str
    attributes : tuple of str, the columns from which groups were made, if known
    gap : (str, str), the groups of the first ranker's largest gap; the favoured group is first
    candidates : tuple of Candidate
    before, after : int
        The candidates that are compared when the page opens.
    remedies : tuple of int
        The candidates that were tried because the fit missed its tolerance.
    bins : edges of `Candidate.histogram`
    queries : tuple of ShownQuery
    n_queries : int, the number of held-out queries
    rounds : tuple of RecordedRound
    lambda_cells : the group numbers of each entry of λ that changed; the preferred one is first
    outcome : FitOutcome or None, how the fit ended
    provenance : tuple of (str, str), how to reproduce the report
    """

    title: str
    constraint: str
    definition: str
    tolerance: float | None
    confidence: float
    n_resamples: int
    groups: tuple[str, ...]
    attributes: tuple[str, ...]
    gap: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    before: int
    after: int
    remedies: tuple[int, ...] = ()
    bins: tuple[float, ...] = ()
    queries: tuple[ShownQuery, ...] = ()
    n_queries: int = 0
    rounds: tuple[RecordedRound, ...] = ()
    lambda_cells: tuple[tuple[int, ...], ...] = ()
    outcome: FitOutcome | None = None
    provenance: tuple[tuple[str, str], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python; None for numbers that are undefined."""
        return {"format": FORMAT, **to_plain(self)}

    def to_json(self) -> str:
        """What `to_dict` returns, as JSON."""
        return json.dumps(self.to_dict(), allow_nan=False, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Evidence:
        """Evidence from what `to_json` returned, with every entry checked; it runs no code."""
        place = Place("evidence", "Pass what to_json() returned.")
        evidence: Evidence = from_plain(cls, parse_document(text, FORMAT, place), place)
        if not all(_consistent(evidence)):
            raise InputError(
                "The evidence is inconsistent: an index or a shape does not match. Write it again "
                "with to_json()."
            )
        return evidence

    def __repr__(self) -> str:
        names = [candidate.name for candidate in self.candidates]
        return f"Evidence(constraint={self.constraint!r}, candidates={names})"


def _consistent(evidence: Evidence) -> Iterator[bool]:
    """Whether indices are in range and shapes match, one by one."""
    n, k = len(evidence.candidates), len(evidence.groups)
    sizes, n_cells = [len(query.items) for query in evidence.queries], len(evidence.lambda_cells)
    yield all(0 <= m < n for m in (evidence.before, evidence.after, *evidence.remedies))
    yield len(evidence.gap) in (0, 2) and set(evidence.gap) <= set(evidence.groups)
    yield all(-1 <= item.group < k for query in evidence.queries for item in query.items)
    yield all(len(round_.lambda_) == n_cells for round_ in evidence.rounds)
    yield all(0 <= group < k for cell in evidence.lambda_cells for group in cell)
    for candidate in evidence.candidates:
        tops, weights, audit = candidate.tops, candidate.weights, candidate.audit
        yield len(tops) in (0, len(sizes))
        yield all(0 <= index < m for top, m in zip(tops, sizes, strict=False) for index in top)
        yield [len(row) for row in candidate.scores] == [len(top) for top in tops]
        yield len(candidate.positions) in (0, k)
        yield len(candidate.histogram) in (0, max(len(evidence.bins) - 1, 0))
        for table in (weights, candidate.mirrored):
            yield table is None or [len(row) for row in table] == [k] * k
        yield audit is None or (audit.groups == evidence.groups and len(audit.group_sizes) == k)
