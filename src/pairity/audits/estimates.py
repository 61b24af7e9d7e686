"""Figures: from measures per query to numbers with intervals, and what each of them rests on.

An `Estimate` is a list of figures together with the rule that computes their values from query
weights. Resampling whole queries is nothing but other query weights, so one rule gives both the
values and their intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from pairity._utils.typing import Array
from pairity.constraints.pairwise import Constraint, Contrasts, PairwiseConstraint, largest_gap
from pairity.data.queries import Queries
from pairity.pairs.cells import PairKind, cell_counts, mean_of_totals, totals_over_queries

FEW_QUERIES = 10
FEW_PAIRS = 100
_RESAMPLED_AT_ONCE = 4_000_000  # entries of a block of resampling weights

NAN = float("nan")


@dataclass(frozen=True)
class Estimate:
    """One number of an audit.

    Attributes
    ----------
    measure : str
        What is measured; see `pairity.audit` for the list.
    value, low, high : float
        The estimate and its interval; NaN where it is not defined. A figure that rests on one
        query has no interval.
    group, other : str or None
        The groups it is about; None where it is about all items.
    constraint : str or None
        The constraint that a violation or gap belongs to.
    n_queries : int
        On how many queries it rests.
    n_items : int
        How many items of its groups (of all, where it is about all) those queries hold.
    n_pairs : int or None
        On how many pairs, leaving out those of weight 0; None where pairs play no part.
    small : bool
        Whether it rests on fewer than 10 queries or 100 pairs: too few to trust.

    Notes
    -----
    A gap has two ends; its numbers of queries, items and pairs are those of the weaker end. A
    violation has those of its largest gap.
    """

    measure: str
    value: float = NAN
    low: float = NAN
    high: float = NAN
    group: str | None = None
    other: str | None = None
    constraint: str | None = None
    n_queries: int = 0
    n_items: int = 0
    n_pairs: int | None = None

    @property
    def small(self) -> bool:
        """Whether it rests on too few queries or pairs to trust."""
        few_pairs = self.n_pairs is not None and self.n_pairs < FEW_PAIRS
        return self.n_queries < FEW_QUERIES or few_pairs


@dataclass(frozen=True, eq=False)
class Measure:
    """A measure per query: of all items, by group or by cell.

    Attributes
    ----------
    name : str
    values : array of shape (n_queries,), (n_queries, K) or (n_queries, K, K)
        NaN where the measure is not defined.
    pairs : array of the same shape, or None
        How many pairs each value rests on.
    """

    name: str
    values: Array
    pairs: Array | None = None


@dataclass(frozen=True, eq=False)
class Statistics:
    """Figures that lack their numbers, their values, and how to compute these anew.

    Attributes
    ----------
    figures : list of Figure
    values : array of shape (n_figures,)
    resample : function, or None where there is none
        Turns query weights of shape (n_resamples, n_queries) into values of shape
        (n_resamples, n_figures).
    """

    estimates: list[Estimate]
    values: Array
    resample: Callable[[Array], Array] | None


class Counts(TypedDict):
    """What a figure rests on."""

    n_queries: int
    n_items: int
    n_pairs: int | None


class Support:
    """Counts what figures rest on.

    Attributes
    ----------
    sizes : int64 array of shape (n_queries, K + 1), items by query and group, the missing one last
    """

    def __init__(self, queries: Queries) -> None:
        width = queries.n_groups + 1
        cell = queries.query * width + queries.group
        self.sizes = np.bincount(cell, minlength=queries.n_queries * width).reshape(-1, width)
        self._counted = queries
        if queries.item_weight is not None:
            there = (queries.item_weight > 0).astype(np.float64)
            self._counted = replace(queries, item_weight=there)

    def all_pairs(self) -> Array:
        """Per query, the number of preference pairs, with or without a group."""
        return np.asarray(cell_counts(self._counted).sum(axis=(1, 2)))

    def pairs(self, kind: PairKind) -> Array:
        """Per query and cell of known groups, the number of pairs."""
        known = slice(self._counted.n_groups)
        return cell_counts(self._counted, pairs=kind)[:, known, known]

    def of(self, there: NDArray[np.bool_], pairs: Array | None) -> list[Counts]:
        """Per figure, from where it is defined; arguments are shaped as in `Measure`."""
        items = self.sizes[:, :-1]
        if there.ndim == 1:
            items = self.sizes.sum(axis=1)
        elif there.ndim == 3:
            another = 1 - np.eye(items.shape[1], dtype=np.int64)
            items = items[:, :, None] + another * items[:, None, :]
        n_queries = np.ravel(there.sum(axis=0)).tolist()
        n_items = np.ravel((there * items).sum(axis=0)).tolist()
        n_pairs = [None] * len(n_queries)
        if pairs is not None:
            n_pairs = np.ravel(pairs.sum(axis=0)).astype(np.int64).tolist()
        return [
            Counts(n_queries=queries_, n_items=items_, n_pairs=pairs_)
            for queries_, items_, pairs_ in zip(n_queries, n_items, n_pairs, strict=True)
        ]


# --- two kinds of estimates ----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Part:
    """What a part of the queries adds to figures.

    Attributes
    ----------
    counts : list of Counts, for each entry
    totals : function
        Turns query weights, of shape (n_queries,) or (n_resamples, n_queries), into the totals
        that values are made of; those of several parts add up.
    """

    counts: list[Counts]
    totals: Callable[[Array], Array]


Layout = list[tuple[str, tuple[int, ...]]]  # of measures: their names, and the shape of a query's


def means(measures: list[Measure], queries: Queries, support: Support) -> Statistics:
    """Each measure, averaged over the queries where it is defined."""
    part = part_of_means(measures, support)
    layout = [(measure.name, measure.values.shape[1:]) for measure in measures]
    totals = part.totals(queries.weight_of_query)
    return estimate_means(layout, queries.groups, part.counts, totals, part.totals)


def part_of_means(measures: list[Measure], support: Support) -> Part:
    """What some queries add to the means."""
    counts = [
        count
        for measure in measures
        for count in support.of(~np.isnan(measure.values), measure.pairs)
    ]
    flat = [measure.values.reshape(len(measure.values), -1) for measure in measures]
    values = np.concatenate(flat, axis=1)
    there = ~np.isnan(values)
    sums, weight = np.where(there, values, 0.0), there.astype(np.float64)

    def totals(query_weight: Array) -> Array:
        return totals_over_queries(sums, weight, query_weight, "pair")

    return Part(counts, totals)


def estimate_means(
    layout: Layout,
    groups: tuple[str, ...],
    counts: list[Counts],
    totals: Array,
    resampled: Callable[[Array], Array],
) -> Statistics:
    """Means from the counts and totals of all parts; `resampled` gives totals of resamples."""
    entries = [(name, cell) for name, shape in layout for cell in np.ndindex(shape)]
    estimates = []
    for (name, cell), count in zip(entries, counts, strict=True):
        group, other = [*(groups[at] for at in cell), None, None][:2]
        estimates.append(Estimate(name, group=group, other=other, **count))
    values = mean_of_totals(totals)
    return Statistics(estimates, values, lambda weight: mean_of_totals(resampled(weight)))


def violation(
    constraint: Constraint, label: str, queries: Queries, scores: Array, support: Support
) -> Statistics:
    """The violation of a constraint, and the gaps behind it."""
    if not isinstance(constraint, PairwiseConstraint):
        delta = constraint.delta(queries, scores)
        everything = support.of(np.ones(queries.n_queries, dtype=bool), None)
        return _gaps(delta, everything * delta.size, label, queries.groups, None)
    part = part_of_violation(constraint, queries, scores, support)
    totals = part.totals(queries.weight_of_query)
    return estimate_violation(constraint, label, queries.groups, part.counts, totals, part.totals)


def part_of_violation(
    constraint: PairwiseConstraint, queries: Queries, scores: Array, support: Support
) -> Part:
    """What some queries add to a violation."""
    sums, weight = constraint.sums(queries, scores), constraint.counts(queries)
    pairs = support.pairs(constraint.pairs)
    if constraint.by_group:
        pairs = pairs.sum(axis=2)

    def totals(query_weight: Array) -> Array:
        return constraint.totals_of(sums, weight, query_weight)

    return Part(support.of(pairs > 0, pairs), totals)


def estimate_violation(
    constraint: PairwiseConstraint,
    label: str,
    groups: tuple[str, ...],
    counts: list[Counts],
    totals: Array,
    resampled: Callable[[Array], Array],
) -> Statistics:
    """A violation from the counts and totals of all parts."""

    def violate(query_weight: Array) -> Array:
        return constraint.from_totals(resampled(query_weight), groups)

    return _gaps(constraint.from_totals(totals, groups), counts, label, groups, violate)


def _gaps(
    delta: Array,
    ends: list[Counts],
    label: str,
    groups: tuple[str, ...],
    violate: Callable[[Array], Array] | None,
) -> Statistics:
    """The largest gap of a violation, then all of them; `ends` are the counts of its entries."""
    contrasts = Contrasts.of(delta)
    gaps = contrasts.gaps(delta)
    measures, names = _names(contrasts, groups)
    estimates = []
    for measure, (group, other), first, second in zip(
        measures, names, contrasts.first, contrasts.second, strict=True
    ):
        weaker = _weaker(ends[first], ends[second if second >= 0 else first])
        estimates.append(Estimate(measure, group=group, other=other, constraint=label, **weaker))
    worst = Estimate("violation", constraint=label)
    if estimates:
        widest = estimates[int(np.argmax(np.abs(gaps)))]
        worst = replace(widest, measure="violation", group=None, other=None)
    resample = None
    if violate is not None:

        def resample(query_weight: Array) -> Array:
            again = violate(query_weight)
            return np.column_stack([_worst_gaps(again, contrasts), contrasts.gaps(again)])

    return Statistics([worst, *estimates], np.r_[largest_gap(delta), gaps], resample)


def _names(
    contrasts: Contrasts, groups: tuple[str, ...]
) -> tuple[list[str], list[tuple[str, str]]]:
    """The measure of each contrast, and the two groups that it sets against each other."""
    n = len(groups)
    first, second = contrasts.first, contrasts.second
    if len(contrasts.shape) == 1:
        return ["gap"] * len(first), [
            (groups[k], groups[j]) for k, j in zip(first, second, strict=True)
        ]
    within = first // n == first % n
    measures = np.where(within & ~within.all(), "gap_within", "gap").tolist()
    other = np.where(within, second // n, first % n)
    return measures, [(groups[k], groups[j]) for k, j in zip(first // n, other, strict=True)]


def _weaker(one: Counts, another: Counts) -> Counts:
    pairs = (one["n_pairs"], another["n_pairs"])
    return Counts(
        n_queries=min(one["n_queries"], another["n_queries"]),
        n_items=min(one["n_items"], another["n_items"]),
        n_pairs=None if pairs[0] is None or pairs[1] is None else min(pairs[0], pairs[1]),
    )


def _worst_gaps(delta: Array, contrasts: Contrasts) -> Array:
    """`largest_gap` of each of several resampled violations.

    `contrasts` are those of the whole sample, and a resample has no entry that the sample lacks.
    Where it lacks one of a cell and its mirror, the other stands alone, as in `Contrasts.of`.
    """
    gaps = contrasts.gaps(delta)
    if delta.ndim == 3:
        n = delta.shape[-1]
        mirrored = (contrasts.first // n != contrasts.first % n) & (contrasts.second >= 0)
        one_lacks = contrasts.gaps(np.isnan(delta).astype(np.float64)) != 0.0
        gaps = np.where(mirrored & one_lacks, contrasts.gaps(np.nan_to_num(delta)), gaps)
    return np.asarray(np.fmax.reduce(np.abs(gaps), axis=1, initial=np.nan))


# --- intervals -----------------------------------------------------------------------------------


def resampled_weights(weight: Array, n_resamples: int, random_state: object) -> Iterator[Array]:
    """Blocks of shape (resamples, queries): how often each query was drawn, times its weight.

    None for a single query, which tells nothing about others.
    """
    seed = check_random_state(random_state).randint(np.iinfo(np.int32).max)
    rng = np.random.default_rng(seed)
    n = len(weight)
    if n == 1:
        return
    block = max(1, _RESAMPLED_AT_ONCE // n)
    for begin in range(0, n_resamples, block):
        size = min(block, n_resamples - begin)
        drawn = rng.integers(n, size=(size, n)) + n * np.arange(size)[:, None]
        yield np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n) * weight


def with_intervals(
    statistics: list[Statistics], draws: Iterator[Array], confidence: float
) -> Iterator[Estimate]:
    """The figures of all estimates, with their values and with percentiles over the draws."""
    resampled: list[list[Array]] = [[] for _ in statistics]
    for query_weight in draws:
        for statistic, kept in zip(statistics, resampled, strict=True):
            if statistic.resample is not None:
                kept.append(statistic.resample(query_weight))
    levels = np.array([0.5 - confidence / 2, 0.5 + confidence / 2])
    for statistic, kept in zip(statistics, resampled, strict=True):
        ends = np.full((2, len(statistic.estimates)), np.nan)
        if kept:
            ends = _quantiles(np.concatenate(kept), levels)
        for at, estimate in enumerate(statistic.estimates):
            low, high = ends[:, at] if estimate.n_queries > 1 else (NAN, NAN)
            value = float(statistic.values[at])
            yield replace(estimate, value=value, low=float(low), high=float(high))


def _quantiles(values: Array, levels: Array) -> Array:
    """Quantiles of each column, of shape (n_levels, n_columns); NaN entries are left out."""
    ordered = np.sort(values, axis=0)  # NaN comes last
    last = np.maximum(np.count_nonzero(~np.isnan(values), axis=0) - 1, 0)
    at = levels[:, None] * last
    below = np.floor(at).astype(np.int64)
    column = np.arange(values.shape[1])
    low, high = ordered[below, column], ordered[np.minimum(below + 1, last), column]
    return np.asarray(low + (at - below) * (high - low))
