"""What a report shows beyond an audit: changes, gaps by query, positions, rankings, the fit."""

import platform
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import metadata
from typing import Any

import numpy as np

from pairity._utils.typing import Array
from pairity.audits import estimates
from pairity.audits.estimates import NAN, Measure, Statistics, Support
from pairity.constraints import Constraint, Contrasts, PairwiseConstraint
from pairity.data.columns import require_length
from pairity.data.queries import Queries
from pairity.metrics.positions import Positions, ratio, sums
from pairity.pairs.cells import query_auc, terms_of_queries
from pairity.reports.evidence import HELD_OUT, Change, Item, RecordedRound, ShownQuery
from pairity.reweighting.fair_ranker import FairRanker

# How much fits on a page.
TOP = 10
POSITIONS = 20
SHOWN_QUERIES = 20
BINS = tuple(np.linspace(-1.0, 1.0, 22).round(10).tolist())


class Observer:
    """Measures every ranker in the same way, relative to the first ranker.

    The keywords are the `confidence`, `n_resamples` and `random_state` of intervals.

    Attributes
    ----------
    queries : Queries
    label : str, the name of the constraint
    first : array, the scores of the first ranker
    pairwise : bool, whether the constraint has a gap in each query
    """

    def __init__(
        self, queries: Queries, constraint: Constraint, label: str, first: Array, **sampling: Any
    ) -> None:
        self.queries, self.constraint, self.label, self.first = queries, constraint, label, first
        self.confidence = sampling.pop("confidence")
        self.sampling = sampling
        self.support = Support(queries)
        self.pairwise = isinstance(constraint, PairwiseConstraint)
        delta = constraint.delta(queries, first)
        self.contrasts = Contrasts.of(delta)
        gaps = self.contrasts.gaps(delta)
        self.widest = int(np.abs(gaps).argmax()) if len(gaps) else -1
        self.sign = -1.0 if self.widest >= 0 and gaps[self.widest] < 0 else 1.0
        self.statistics = self._statistics(first)

    def _statistics(self, scores: Array) -> dict[str, Statistics]:
        queries, weight = self.queries, self.queries.weight_of_query
        auc = Measure("auc", query_auc(queries, scores))
        parts = estimates.parts_of([auc], [self.constraint], queries, scores, self.support)
        draws = estimates.resampled_weights(weight, **self.sampling)
        totals, named = estimates.sum_parts(parts, weight, draws), {self.label: self.constraint}
        utility, violation = estimates.estimate_all([("auc", ())], named, queries.groups, totals)
        return {"violation": violation, "auc": utility}

    def changes(self, scores: Array) -> Iterator[Change]:
        """The changes of violation and AUC; both rankers are measured on the same resamples."""
        for name, new in self._statistics(scores).items():
            differences = new.values[:, 0] - self.statistics[name].values[:, 0]
            change, resampled = Change(name, float(differences[0])), differences[1:]
            resampled = resampled[~np.isnan(resampled)]
            if len(resampled):
                ends = [0.5 - self.confidence / 2, 0.5 + self.confidence / 2]
                low, high = np.quantile(resampled, ends).tolist()
                change = replace(change, low=low, high=high, lower=float(np.mean(resampled < 0.0)))
            yield change

    def gaps(self, scores: Array) -> Array:
        """The signed gap of each query, between the groups of the first ranker's largest gap."""
        queries, constraint = self.queries, self.constraint
        if not isinstance(constraint, PairwiseConstraint) or self.widest < 0:
            return np.full(queries.n_queries, NAN)
        sums = constraint.entries(constraint.sums(queries, scores))
        counts = constraint.entries(constraint.counts(queries))
        terms = terms_of_queries(sums, counts, constraint.average)
        delta = constraint.from_totals(np.stack(terms, axis=-2), queries.groups)
        return np.asarray(self.sign * self.contrasts.gaps(delta)[:, self.widest])

    def histogram(self, scores: Array) -> tuple[int, ...]:
        """Numbers of queries by their signed gap."""
        if not self.pairwise:
            return ()
        gaps = self.gaps(scores)
        counts, _ = np.histogram(np.clip(gaps[~np.isnan(gaps)], -1.0, 1.0), bins=BINS)
        return tuple(counts.tolist())


def position_shares(queries: Queries, scores: Array) -> Array:
    """Each group's share of the first positions; ties are broken at random."""
    ranks = Positions.of(queries, scores)
    last = min(POSITIONS, int(np.bincount(queries.query).max()))
    use = ranks.rank <= last
    weight = queries.weight_of_query[queries.query[ranks.order]][use]
    position = ranks.rank[use] - 1
    total = sums(position, weight, last)
    members = (queries.group[ranks.order] == k for k in range(queries.n_groups))
    weighted = (weight * ranks.share(member)[ranks.order][use] for member in members)
    return np.array([ratio(sums(position, values, last), total) for values in weighted])


# --- example rankings ----------------------------------------------------------------------------


def choose_queries(queries: Queries, gaps: Array) -> list[int]:
    """Queries that are evenly spaced from the first ranker's largest gap to the smallest."""
    known = np.flatnonzero(~np.isnan(gaps))
    if not len(known):
        known, gaps = np.arange(queries.n_queries), np.zeros(queries.n_queries)
    order = known[np.argsort(-gaps[known], kind="stable")]
    index = np.linspace(0, len(order) - 1, min(SHOWN_QUERIES, len(order))).round()
    chosen: list[int] = order[np.unique(index).astype(np.int64)].tolist()
    return chosen


def _ranked_rows(queries: Queries, scores: Array, query: int) -> Any:
    rows = np.flatnonzero(queries.query == query)
    return rows[np.argsort(-scores[rows], kind="stable")]


def top_rows(queries: Queries, scores: Array, shown: Sequence[int]) -> list[list[int]]:
    """The rows of the first items of each query."""
    return [_ranked_rows(queries, scores, query)[:TOP].tolist() for query in shown]


def list_queries(
    observer: Observer, shown: Sequence[int], tops: Collection[list[list[int]]],
    items: Sequence[Any] | None,
) -> list[tuple[ShownQuery, list[int]]]:  # fmt: skip
    """The queries that are shown, with the items that some ranker has among its first, and rows."""
    queries = observer.queries
    if items is not None:
        require_length(items, queries.n_items, "items")
    gaps = observer.gaps(observer.first)
    listed = []
    for index, query in enumerate(shown):
        order = _ranked_rows(queries, observer.first, query).tolist()
        rows = list(dict.fromkeys(row for top in tops for row in top[index]))
        items_of_query = tuple(
            Item(
                name=f"row {row + 1}" if items is None else str(items[row]),
                group=int(queries.group[row]) if queries.group[row] < queries.n_groups else -1,
                label=float(queries.y[row]),
                rank=order.index(row) + 1,
            )
            for row in rows
        )
        name, gap = str(queries.query_ids[query]), float(gaps[query])
        listed.append((ShownQuery(name, len(order), gap, items_of_query), rows))
    return listed


# --- the fit and its data ------------------------------------------------------------------------


def describe_fit(model: FairRanker) -> dict[str, Any]:
    """The rounds of a fit, with the entries of λ that ever changed, and its outcome."""
    changed = np.any([round_.lambda_ != 0.0 for round_ in model.history_], axis=0)
    return {
        "rounds": tuple(
            RecordedRound(
                number=int(round_.number),
                lambda_=tuple(round_.lambda_[changed].tolist()),
                violation=float(round_.violation),
                auc=float(round_.auc),
            )
            for round_ in model.history_
        ),
        "lambda_cells": tuple(map(tuple, np.argwhere(changed).tolist())),
        "outcome": model.outcome_,
    }


def provenance(model: FairRanker, train: Queries, test: Queries) -> dict[str, str]:
    """Versions, settings and digests."""
    engine = type(model.ranker_).__module__.rpartition(".")[2]
    return {
        "trained on": _size(train),
        "training data, SHA-256": model.training_digest_,
        "measured on": _size(test),
        HELD_OUT: test.digest(),
        "model": " ".join(repr(model).split()),
        "versions": show_versions("pairity", "numpy", "scikit-learn", engine),
    }


def _size(queries: Queries) -> str:
    pairs = int(Support(queries).all_pairs().sum())
    return f"{queries.n_queries:,} queries, {queries.n_items:,} items, {pairs:,} preference pairs"


def show_versions(*libraries: str) -> str:
    """The versions of Python and of those libraries that are installed."""
    versions = [f"Python {platform.python_version()}"]
    for name in libraries:
        with suppress(metadata.PackageNotFoundError):
            versions.append(f"{name} {metadata.version(name)}")
    return ", ".join(versions)
