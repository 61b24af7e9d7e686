"""Evidence: everything a report shows, as plain data that can be kept beside a model.

A report computes nothing: what it draws is here, measured once on held-out queries by
`pairity.reports.collect.collect`, written as JSON and read back with every entry checked.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pairity._utils.json_codec import Place, from_plain, parse_document, to_plain
from pairity.audits.audit import Audit
from pairity.audits.estimates import NAN, Estimate
from pairity.exceptions import InputError
from pairity.reweighting.algorithm import Outcome

FORMAT = "pairity evidence 1"
FILE = "evidence.json"  # its name in a saved model's folder
HELD_OUT = "held-out data, SHA-256"  # an entry of its provenance
Table = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Change:
    """How far a figure moved from the first ranker to this one, on the same queries.

    Attributes
    ----------
    measure : str, "violation" or "auc"
    value, low, high : float
        The difference and its interval; both rankers are measured on the same resampled queries.
    lower : float
        In which share of the resamples this ranker's figure was lower; NaN without resamples.
    """

    measure: str
    value: float
    low: float = NAN
    high: float = NAN
    lower: float = NAN


@dataclass(frozen=True)
class Caveat:
    """What a reader should not conclude; `measured` where these data say so themselves."""

    text: str
    measured: bool


@dataclass(frozen=True, eq=False)
class Candidate:
    """One ranker that a reader may choose: a point of the frontier.

    Attributes
    ----------
    name : str
    method : str, which candidates share a colour and a marker
    needs_group : bool, whether groups are read where it is applied
    figures : tuple of Figure
        AUC, NDCG@10 and the violations by constraint.
    audit : Audit or None, with the figures that a report shows
    changes : tuple of Change, against the first ranker
    weights : K × K table of pair weights, or None where none were learnt
    positions : by group, its share of the first, second, ... position
    histogram : numbers of queries by their signed gap, in the bins of `Evidence.bins`
    tops : for each query of `Evidence.queries`, its items from rank 1 down
    scores : the scores of these items
    note : str, what else is to be said
    caveats : tuple of Caveat, what is not to be concluded
    """

    name: str
    method: str
    needs_group: bool = False
    estimates: tuple[Estimate, ...] = ()
    audit: Audit | None = None
    changes: tuple[Change, ...] = ()
    weights: Table | None = None
    positions: Table = ()
    histogram: tuple[int, ...] = ()
    tops: tuple[tuple[int, ...], ...] = ()
    scores: Table = ()
    note: str = ""
    caveats: tuple[Caveat, ...] = ()

    def estimate(self, measure: str, constraint: str | None = None) -> Estimate:
        """The figure of that measure; one without numbers where there is none."""
        for found in self.estimates:
            if found.measure == measure and found.constraint == constraint:
                return found
        return Estimate(measure, constraint=constraint)

    def change(self, measure: str) -> Change | None:
        """The change of that figure against the first ranker, where it was measured."""
        return next((found for found in self.changes if found.measure == measure), None)


@dataclass(frozen=True)
class Item:
    """An item of a list that is shown: its name, group (-1: not known), label and first rank."""

    name: str
    group: int
    label: float
    rank: int


@dataclass(frozen=True)
class ShownQuery:
    """A query whose ranking is shown, with the items that some candidate has at the top."""

    name: str
    n_items: int
    gap: float
    items: tuple[Item, ...]


@dataclass(frozen=True)
class RoundSeen:
    """A round of Algorithm 1: λ by cell (see `Evidence.lambda_cells`), violation and AUC."""

    number: int
    lambda_: tuple[float, ...]
    violation: float
    auc: float


@dataclass(frozen=True, eq=False, repr=False)
class Evidence:
    """What a report shows; made by `collect`, kept as JSON.

    Attributes
    ----------
    title : str
    constraint : str, the name of the violation that was driven down
    definition : str, what that constraint prints as
    tolerance : float or None
    confidence : float, of all intervals
    n_resamples : int, behind them
    groups : tuple of str
    attributes : tuple of str, the columns that groups were made of, where they are known
    gap : (str, str), the groups of the first ranker's largest gap, the favoured one first
    candidates : tuple of Candidate
    before, after : int
        The candidates compared when the page opens.
    bins : edges of `Candidate.histogram`
    queries : tuple of ShownQuery
    n_queries : int, how many were held out
    rounds : tuple of RoundSeen
    lambda_cells : the groups (numbers) of each entry of λ that moved, preferred one first
    outcome : Outcome or None, how the fit ended
    provenance : tuple of (str, str), how to get it again
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
    bins: tuple[float, ...] = ()
    queries: tuple[ShownQuery, ...] = ()
    n_queries: int = 0
    rounds: tuple[RoundSeen, ...] = ()
    lambda_cells: tuple[tuple[int, ...], ...] = ()
    outcome: Outcome | None = None
    provenance: tuple[tuple[str, str], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python; None where a number is not defined."""
        return {"format": FORMAT, **to_plain(self)}

    def to_json(self) -> str:
        """The same as JSON."""
        return json.dumps(self.to_dict(), allow_nan=False, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Evidence:
        """From JSON, as `to_json` gives it; nothing in it is run."""
        place = Place("evidence", "Pass what to_json() returned.")
        evidence: Evidence = from_plain(cls, parse_document(text, FORMAT, place), place)
        _require_consistent(evidence)
        return evidence

    def __repr__(self) -> str:
        names = ", ".join(repr(each.name) for each in self.candidates)
        return f"Evidence(constraint={self.constraint!r}, candidates=[{names}])"


def _require_consistent(evidence: Evidence) -> None:
    """Refuse indices and shapes that lead nowhere."""
    n, k, shown = len(evidence.candidates), len(evidence.groups), len(evidence.queries)
    fits = 0 <= evidence.before < n and 0 <= evidence.after < n and len(evidence.gap) in (0, 2)
    for query in evidence.queries:
        fits &= all(-1 <= item.group < k for item in query.items)
    for each in evidence.candidates:
        fits &= len(each.tops) in (0, shown) and len(each.scores) in (0, shown)
        for top, query in zip(each.tops, evidence.queries, strict=False):
            fits &= all(0 <= at < len(query.items) for at in top)
        fits &= len(each.positions) in (0, k)
        fits &= len(each.histogram) in (0, max(len(evidence.bins) - 1, 0))
        fits &= each.weights is None or [len(row) for row in each.weights] == [k] * k
        fits &= each.audit is None or each.audit.groups == evidence.groups
    fits &= all(len(each.lambda_) == len(evidence.lambda_cells) for each in evidence.rounds)
    fits &= all(0 <= at < k for cell in evidence.lambda_cells for at in cell)
    fits &= set(evidence.gap) <= set(evidence.groups)
    if not fits:
        raise InputError(
            "The evidence does not fit together: an entry points to what is not there. Write it "
            "anew with to_json()."
        )
