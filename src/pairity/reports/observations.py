"""What a report shows beyond an audit: paired changes, gaps by query, positions, rankings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pairity._utils.typing import Array
from pairity.audits.estimates import (
    NAN,
    Measure,
    Statistics,
    Support,
    means,
    resampled_weights,
    violation,
)
from pairity.constraints import Constraint, Contrasts, PairwiseConstraint
from pairity.data.queries import Queries
from pairity.exceptions import InputError
from pairity.metrics.positions import Positions, ratio
from pairity.pairs.cells import cell_counts, cell_sums
from pairity.reports.evidence import Change, Item, ShownQuery

TOP = 10
POSITIONS = 20
SHOWN_QUERIES = 20
BINS = tuple(float(edge) for edge in np.round(np.linspace(-1.0, 1.0, 22), 10))
_AT_ONCE = 64  # queries whose violations are computed together


class Observed:
    """What is measured of every ranker alike, against the first."""

    def __init__(
        self, queries: Queries, constraint: Constraint, label: str, first: Array,
        confidence: float, n_resamples: int, random_state: int,
    ) -> None:  # fmt: skip
        self.queries, self.constraint, self.label, self.first = queries, constraint, label, first
        self.confidence, self.n_resamples = confidence, n_resamples
        self.random_state = random_state
        self.support = Support(queries)
        self.pairwise = isinstance(constraint, PairwiseConstraint)
        delta = constraint.delta(queries, first)
        self.contrasts = Contrasts.of(delta)
        gaps = self.contrasts.gaps(delta)
        self.widest = int(np.abs(gaps).argmax()) if len(gaps) else -1
        self.sign = -1.0 if self.widest >= 0 and gaps[self.widest] < 0 else 1.0
        self.statistics = self._estimates(first)

    def _estimates(self, scores: Array) -> tuple[Statistics, Statistics]:
        right = cell_sums(self.queries, scores).sum(axis=(1, 2))
        auc = ratio(right, cell_counts(self.queries).sum(axis=(1, 2)))
        return (
            violation(self.constraint, self.label, self.queries, scores, self.support),
            means([Measure("auc", auc)], self.queries, self.support),
        )

    def changes(self, scores: Array) -> tuple[Change, ...]:
        """Of violation and AUC, with intervals from resampling both rankers' queries alike."""
        ours = self._estimates(scores)
        found = []
        for name, mine, theirs in zip(("violation", "auc"), ours, self.statistics, strict=True):
            change = Change(name, float(mine.values[0] - theirs.values[0]))
            if mine.resample is not None and theirs.resample is not None and self.n_resamples:
                draws = resampled_weights(
                    self.queries.weight_of_query, self.n_resamples, self.random_state
                )
                moved = [
                    (mine.resample(weight) - theirs.resample(weight))[:, 0] for weight in draws
                ]
                if moved:
                    change = _interval(change, np.concatenate(moved), self.confidence)
            found.append(change)
        return tuple(found)

    def gaps(self, scores: Array) -> Array:
        """The signed gap of each query, between the groups of the first ranker's largest one."""
        queries, constraint = self.queries, self.constraint
        if not isinstance(constraint, PairwiseConstraint) or self.widest < 0:
            return np.full(queries.n_queries, NAN)
        sums, counts = constraint.sums(queries, scores), constraint.counts(queries)
        found = []
        for begin in range(0, queries.n_queries, _AT_ONCE):
            part = slice(begin, begin + _AT_ONCE)
            totals = constraint.totals_of(sums[part], counts[part], np.eye(len(sums[part])))
            delta = constraint.from_totals(totals, queries.groups)
            found.append(self.sign * self.contrasts.gaps(delta)[:, self.widest])
        return np.concatenate(found)

    def histogram(self, scores: Array) -> tuple[int, ...]:
        """Numbers of queries by their signed gap."""
        if not self.pairwise:
            return ()
        gaps = self.gaps(scores)
        counts, _ = np.histogram(np.clip(gaps[~np.isnan(gaps)], -1.0, 1.0), bins=BINS)
        return tuple(counts.tolist())


def _interval(change: Change, moved: Array, confidence: float) -> Change:
    moved = moved[~np.isnan(moved)]
    if not len(moved):
        return change
    low, high = np.quantile(moved, [0.5 - confidence / 2, 0.5 + confidence / 2])
    return replace(change, low=float(low), high=float(high), lower=float(np.mean(moved < 0.0)))


def position_shares(queries: Queries, scores: Array) -> Array:
    """By group, its share of each of the first positions, ties being broken at random."""
    places = Positions.of(queries, scores)
    longest = int(np.bincount(queries.query).max())
    last = min(POSITIONS, longest)
    use = places.rank <= last
    weight = queries.weight_of_query[queries.query[places.order]][use]
    at = places.rank[use] - 1
    total = np.bincount(at, weight, last)
    shares = np.full((queries.n_groups, last), NAN)
    for k in range(queries.n_groups):
        member = places.share((queries.group == k)[places.order])[places.order]
        held = np.bincount(at, weight * member[use], last)
        np.divide(held, total, out=shares[k], where=total > 0)
    return shares


# --- rankings to look at -----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Listed:
    """A query that is shown, and the rows of its items."""

    shown: ShownQuery
    rows: list[int]


def choose_queries(queries: Queries, gaps: Array) -> list[int]:
    """Some queries, from the one with the first ranker's largest gap to that with the smallest."""
    known = np.flatnonzero(~np.isnan(gaps))
    if not len(known):
        known, gaps = np.arange(queries.n_queries), np.zeros(queries.n_queries)
    order = known[np.argsort(-gaps[known], kind="stable")]
    at = np.unique(np.linspace(0, len(order) - 1, min(SHOWN_QUERIES, len(order))).round())
    return [int(order[int(each)]) for each in at]


def top_rows(queries: Queries, scores: Array, shown: Sequence[int]) -> list[list[int]]:
    """The rows of each query's first items."""
    found = []
    for query in shown:
        rows = np.flatnonzero(queries.query == query)
        order = np.argsort(-scores[rows], kind="stable")
        found.append(rows[order[:TOP]].tolist())
    return found


def list_queries(
    queries: Queries, observed: Observed, shown: Sequence[int],
    tops: Mapping[str, list[list[int]]], items: Sequence[Any] | None,
) -> list[Listed]:  # fmt: skip
    """The queries that are shown, with all items that somebody ranks at the top."""
    if items is not None and len(items) != queries.n_items:
        raise InputError(f"There are {queries.n_items} items, but {len(items)} names of items.")
    first = observed.first
    gaps = observed.gaps(first)
    found = []
    for at, query in enumerate(shown):
        inside = np.flatnonzero(queries.query == query)
        order = inside[np.argsort(-first[inside], kind="stable")]
        rank = {int(row): place + 1 for place, row in enumerate(order)}
        rows = list(dict.fromkeys(row for each in tops.values() for row in each[at]))
        listed = tuple(
            Item(
                name=f"row {row + 1}" if items is None else str(items[row]),
                group=int(queries.group[row]) if queries.group[row] < queries.n_groups else -1,
                label=float(queries.y[row]),
                rank=rank[row],
            )
            for row in rows
        )
        name = str(queries.query_ids[query])
        found.append(Listed(ShownQuery(name, len(inside), float(gaps[query]), listed), rows))
    return found
