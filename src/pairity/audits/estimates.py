"""Estimates: values averaged over queries, with intervals and sample sizes.

A `Part` maps query weights to totals, from which values are computed. A bootstrap resample of
queries is another vector of query weights, so the same rule gives both the values and their
intervals. Totals of parts of the data, such as those on several workers, add up.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from pairity._utils.typing import Array
from pairity.constraints import Constraint, Contrasts, PairwiseConstraint, largest_gaps
from pairity.data.queries import Queries
from pairity.pairs.cells import PairKind, cell_counts, mean_of_totals, totals_over_queries

# An estimate from fewer queries or pairs is marked. The limits are conventions, not test results.
FEW_QUERIES = 10
FEW_PAIRS = 100
_BLOCK_ENTRIES = 4_000_000  # of a block of resampling weights: 32 MB as float64

NAN = float("nan")


@dataclass(frozen=True)
class Estimate:
    """One value with its confidence interval and sample sizes.

    Attributes
    ----------
    measure : str
        What is measured; `pairity.audit` lists the measures.
    value, low, high : float
        The value and its confidence interval. NaN where undefined. An estimate from one query
        has no interval.
    group, other : str or None
        The groups that the estimate compares or describes; None for all items.
    constraint : str or None
        The constraint of a violation, noise floor or gap.
    n_queries : int
        Number of queries on which the measure is defined.
    n_items : int
        Number of items of the groups (of all items, if no group is named) in those queries.
    n_pairs : int or None
        Number of pairs with positive weight; None for measures that do not use pairs.
    small : bool
        Whether there are fewer than 10 queries or 100 pairs, which is too few to rely on.

    Notes
    -----
    A gap compares two entries and has the smaller of their numbers of queries, items and pairs. A
    violation and its noise floor have the numbers of the largest gap.
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
        """Whether there are too few queries or pairs to rely on."""
        few_pairs = self.n_pairs is not None and self.n_pairs < FEW_PAIRS
        return self.n_queries < FEW_QUERIES or few_pairs


def groups_of_largest_gap(gaps: Iterable[Estimate]) -> tuple[str, ...]:
    """The two groups of the largest of some gaps; the group with the higher value is first."""
    widest = max(gaps, key=lambda gap: abs(gap.value), default=None)
    if widest is None:
        return ()
    groups = (str(widest.group), str(widest.other))
    return groups if widest.value >= 0 else groups[::-1]


@dataclass(frozen=True, eq=False)
class Measure:
    """A measure per query: of all items, by group or by cell.

    Attributes
    ----------
    name : str
    values : array of shape (n_queries,), (n_queries, K) or (n_queries, K, K)
        NaN where the measure is undefined.
    pairs : array of the same shape, or None
        Number of pairs behind each value.
    """

    name: str
    values: Array
    pairs: Array | None = None


@dataclass(frozen=True, eq=False)
class Statistics:
    """Estimates without values, and their values.

    Attributes
    ----------
    estimates : list of Estimate
    values : array of shape (1 + n_resamples, n_estimates)
        First the values of the data, then those of resampled queries; only the first where
        resampling is not possible.
    """

    estimates: list[Estimate]
    values: Array


class Support:
    """Counts the queries, items and pairs behind estimates.

    Attributes
    ----------
    sizes : int64 array of shape (n_queries, K + 1)
        Number of items by query and group; items without a group are in the last column.
    """

    def __init__(self, queries: Queries) -> None:
        width = queries.n_groups + 1
        cell = queries.query * width + queries.group
        self.sizes = np.bincount(cell, minlength=queries.n_queries * width).reshape(-1, width)
        self._unweighted = queries
        if queries.item_weight is not None:
            positive = (queries.item_weight > 0).astype(np.float64)
            self._unweighted = replace(queries, item_weight=positive)

    def all_pairs(self) -> Array:
        """Number of preference pairs of each query, whether or not their items have a group."""
        return np.asarray(cell_counts(self._unweighted).sum(axis=(1, 2)))

    def pairs(self, kind: PairKind) -> Array:
        """Number of pairs by query and cell of known groups."""
        known = slice(self._unweighted.n_groups)
        return cell_counts(self._unweighted, pairs=kind)[:, known, known]

    def counts(self, defined: NDArray[np.bool_], pairs: Array | None) -> Array:
        """Queries, items and pairs behind each entry, of shape (n_entries, 3).

        `defined` and `pairs` are shaped as `Measure.values`. The number of pairs is NaN where
        `pairs` is None. (Sums and minima of NaN are NaN, so the counts need no special case.)
        """
        items = self.sizes[:, :-1]
        if defined.ndim == 1:
            items = self.sizes.sum(axis=1)
        elif defined.ndim == 3:
            different = 1 - np.eye(items.shape[1], dtype=np.int64)
            items = items[:, :, None] + different * items[:, None, :]
        n_queries, n_items = defined.sum(axis=0), (defined * items).sum(axis=0)
        n_pairs = np.full(n_queries.shape, NAN) if pairs is None else pairs.sum(axis=0)
        return np.stack([np.ravel(count) for count in (n_queries, n_items, n_pairs)], axis=1)


def _estimate(measure: str, counts: Array, **names: str | None) -> Estimate:
    sizes = [None if np.isnan(count) else int(count) for count in counts]
    named = dict(zip(("n_queries", "n_items", "n_pairs"), sizes, strict=True))
    return Estimate(measure, **named, **names)  # type: ignore[arg-type]


# --- means of measures, and violations -----------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Part:
    """The contribution of some of the queries to estimates.

    Attributes
    ----------
    counts : array of shape (n_entries, 3), as `Support.counts` returns it
    totals : function
        Maps query weights, of shape (n_queries,) or (n_resamples, n_queries), to the totals from
        which values are computed. The totals of several parts add up.
    resampled : bool, whether totals of resampled queries can be computed
    """

    counts: Array
    totals: Callable[[Array], Array]
    resampled: bool = True


@dataclass(frozen=True, eq=False)
class Sums:
    """The counts and totals of a part; those of several parts add up.

    Attributes
    ----------
    counts : array of shape (n_entries, 3)
    totals : array of shape (1 + n_resamples, ...), first of the data, then of resampled queries
    """

    counts: Array
    totals: Array

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.counts + other.counts, self.totals + other.totals)


Layout = list[tuple[str, tuple[int, ...]]]  # the names of measures, and their shapes per query


def layout_of(measures: Sequence[Measure]) -> Layout:
    """The names of measures, and their shapes per query."""
    return [(measure.name, measure.values.shape[1:]) for measure in measures]


def _part_of_means(measures: Sequence[Measure], support: Support) -> Part:
    """The contribution of some queries to the means of measures over queries that define them."""
    counts = [support.counts(~np.isnan(m.values), m.pairs) for m in measures]
    values = np.concatenate([m.values.reshape(len(m.values), -1) for m in measures], axis=1)
    defined = ~np.isnan(values)
    sums, weight = np.where(defined, values, 0.0), defined.astype(np.float64)
    return Part(np.concatenate(counts), partial(totals_over_queries, sums, weight, average="pair"))


def _part_of_violation(
    constraint: Constraint, queries: Queries, scores: Array, support: Support
) -> Part:
    """The contribution of some queries to a violation; of all, if it is not pairwise."""
    if not isinstance(constraint, PairwiseConstraint):
        delta = constraint.delta(queries, scores)
        counts = support.counts(np.ones(queries.n_queries, dtype=bool), None)
        return Part(counts.repeat(delta.size, axis=0), lambda _: delta, resampled=False)
    sums, weight = constraint.sums(queries, scores), constraint.counts(queries)
    pairs = support.pairs(constraint.pairs)
    if constraint.by_group:
        pairs = pairs.sum(axis=2)
    return Part(support.counts(pairs > 0, pairs), partial(constraint.totals_of, sums, weight))


def parts_of(
    measures: Sequence[Measure],
    constraints: Iterable[Constraint],
    queries: Queries,
    scores: Array,
    support: Support,
) -> list[Part]:
    """The contribution of some queries to the means of measures, and then to each violation."""
    violations = [_part_of_violation(kind, queries, scores, support) for kind in constraints]
    return [_part_of_means(measures, support), *violations]


def sum_parts(parts: Sequence[Part], weight: Array, draws: Iterable[Array]) -> list[Sums]:
    """The sums of parts of the same queries, for their weights and for resampled weights."""
    totals = [[part.totals(weight)[None]] for part in parts]
    for query_weight in draws:
        for part, blocks in zip(parts, totals, strict=True):
            if part.resampled:
                blocks.append(part.totals(query_weight))
    blocks_of = zip(parts, totals, strict=True)
    return [Sums(part.counts, np.concatenate(blocks)) for part, blocks in blocks_of]


def estimate_all(
    layout: Layout, constraints: dict[str, Constraint], groups: tuple[str, ...], sums: list[Sums]
) -> list[Statistics]:
    """The means of measures, and each constraint's violation, noise floor and gaps."""
    entries = [(name, cell) for name, shape in layout for cell in np.ndindex(shape)]
    estimates = []
    for (name, cell), count in zip(entries, sums[0].counts, strict=True):
        group, other = [*(groups[k] for k in cell), None, None][:2]
        estimates.append(_estimate(name, count, group=group, other=other))
    statistics = [Statistics(estimates, mean_of_totals(sums[0].totals))]
    for (label, constraint), part in zip(constraints.items(), sums[1:], strict=True):
        deltas = part.totals
        if isinstance(constraint, PairwiseConstraint):
            deltas = constraint.from_totals(deltas, groups)
        statistics.append(_gaps(deltas, part.counts, label, groups))
    return statistics


def _gaps(deltas: Array, counts: Array, label: str, groups: tuple[str, ...]) -> Statistics:
    """The largest gap of each delta, its noise floor, then every gap.

    `counts` are those of a delta's entries.
    """
    delta = deltas[0]
    contrasts = Contrasts.of(delta)
    gaps = contrasts.gaps(deltas)
    second = np.where(contrasts.second >= 0, contrasts.second, contrasts.first)
    weaker = np.minimum(counts[contrasts.first], counts[second])
    estimates = [
        _estimate(measure, count, group=group, other=other, constraint=label)
        for (measure, group, other), count in zip(_names(contrasts, groups), weaker, strict=True)
    ]
    largest = Estimate("violation", constraint=label)
    if estimates:
        widest = estimates[int(np.argmax(np.abs(gaps[0])))]
        largest = replace(widest, measure="violation", group=None, other=None)
    floor = np.full(len(deltas), NAN)  # a floor has no interval
    floor[0] = _noise_floor(gaps[:, weaker[:, 0] > 1])
    values = np.column_stack([largest_gaps(deltas, delta.ndim), floor, gaps])
    return Statistics([largest, replace(largest, measure="noise_floor"), *estimates], values)


def _noise_floor(gaps: Array) -> float:
    """The mean over resamples of the largest distance of a gap from its value on the data.

    It is the violation that variation between queries alone produces; NaN without resamples.
    """
    largest = np.fmax.reduce(np.abs(gaps[1:] - gaps[0]), axis=1, initial=NAN)
    known = largest[~np.isnan(largest)]
    return float(known.mean()) if len(known) else NAN


def _names(contrasts: Contrasts, groups: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """The measure of each contrast, and the two groups that it compares."""
    first, second = contrasts.first, contrasts.second
    measure = np.full(len(first), "gap", dtype="<U10")
    if len(contrasts.shape) == 2:
        within = first // len(groups) == first % len(groups)
        if not within.all():
            measure[within] = "gap_within"
        second = np.where(within, second // len(groups), first % len(groups))
        first = first // len(groups)
    for name, k, j in zip(measure.tolist(), first, second, strict=True):
        yield name, groups[k], groups[j]


# --- intervals -----------------------------------------------------------------------------------


def resampled_weights(weight: Array, n_resamples: int, random_state: Any) -> Iterator[Array]:
    """Blocks of shape (resamples, queries): how often each query was drawn, times its weight.

    A single query gives no block, because it has no variation between queries.
    """
    seed = check_random_state(random_state).randint(np.iinfo(np.int32).max)
    n_draws = np.full(n_resamples if len(weight) > 1 else 0, len(weight))
    return draw_queries(np.random.default_rng(seed), weight, n_draws)


def draw_queries(
    rng: np.random.Generator, weight: Array, n_draws: NDArray[np.int64]
) -> Iterator[Array]:
    """Blocks of resampled query weights; resample i draws ``n_draws[i]`` queries."""
    n = len(weight)
    size = max(1, _BLOCK_ENTRIES // n)
    for begin in range(0, len(n_draws), size):
        block = n_draws[begin : begin + size]
        resample = np.repeat(np.arange(len(block)), block)
        cell = n * resample + rng.integers(n, size=len(resample))
        yield np.bincount(cell, minlength=n * len(block)).reshape(len(block), n) * weight


def with_intervals(statistics: Iterable[Statistics], confidence: float) -> Iterator[Estimate]:
    """All estimates with their values, and percentiles over resampled queries as intervals."""
    levels = [0.5 - confidence / 2, 0.5 + confidence / 2]
    for statistic in statistics:
        first, resampled = statistic.values[0], statistic.values[1:]
        ends = np.full((len(first), 2), NAN)
        if len(resampled):
            with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # only NaN
                ends = np.nanquantile(resampled, levels, axis=0).T
        for estimate, value, interval in zip(statistic.estimates, first, ends, strict=True):
            low, high = interval.tolist() if estimate.n_queries > 1 else (NAN, NAN)
            yield replace(estimate, value=float(value), low=low, high=high)
