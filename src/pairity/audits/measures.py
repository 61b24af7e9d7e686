"""The measures of an audit: query by query, and summed over queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairity import metrics
from pairity._utils.typing import Array
from pairity.audits import estimates
from pairity.audits.estimates import Layout, Measure, Sums, Support
from pairity.constraints import Constraint
from pairity.data.queries import Queries
from pairity.metrics.positions import Positions, ratio
from pairity.pairs.cells import cell_counts, cell_sums


@dataclass(frozen=True)
class Settings:
    """What is measured, and how intervals are computed; see `pairity.audit`."""

    constraints: dict[str, Constraint]
    cuts: tuple[int, ...]
    gain: str = "auto"
    confidence: float = 0.95
    n_resamples: int = 1000
    random_state: Any = 0


@dataclass(frozen=True, eq=False)
class Measured:
    """What some of the queries contribute to an audit; the contributions add up.

    Attributes
    ----------
    layout : of the measures
    sums : list of Sums, of the means and then of each violation
    sizes : int64 array
        Numbers of queries, items, items without a group, pairs, and items of each group.
    """

    layout: Layout
    sums: list[Sums]
    sizes: NDArray[np.int64]

    def __add__(self, other: Measured) -> Measured:
        sums = [a + b for a, b in zip(self.sums, other.sums, strict=True)]
        return Measured(self.layout, sums, self.sizes + other.sizes)


def measure(queries: Queries, settings: Settings, draws: Iterable[Array]) -> Measured:
    """Measure queries whose scores are their one feature, except those of weight 0.

    `draws` are blocks of resampled weights of the other queries.
    """
    if not queries.weight_of_query.all():
        queries = queries.take(np.flatnonzero(queries.weight_of_query))
    scores, support = np.ascontiguousarray(queries.X[:, 0]), Support(queries)
    measures = list(measures_of(queries, scores, settings, support))
    parts = estimates.parts_of(measures, settings.constraints.values(), queries, scores, support)
    sums = estimates.sum_parts(parts, queries.weight_of_query, draws)
    pairs, by_group = support.all_pairs().sum(), support.sizes[:, :-1].sum(axis=0)
    sizes = [queries.n_queries, queries.n_items, queries.n_missing, int(pairs), *by_group]
    return Measured(estimates.layout_of(measures), sums, np.array(sizes, dtype=np.int64))


def measures_of(
    queries: Queries, scores: Array, settings: Settings, support: Support
) -> Iterator[Measure]:
    """Every measure of `pairity.audit` except the violations."""
    ranks, cuts, gain = Positions.of(queries, scores), settings.cuts, settings.gain

    def measure(function: Callable[..., Array], name: str = "", **options: Any) -> Measure:
        return Measure(name or function.__name__, function(queries, ranks, **options))

    sums, weight = cell_sums(queries, scores), cell_counts(queries)
    yield Measure("auc", ratio(sums.sum(axis=(1, 2)), weight.sum(axis=(1, 2))), support.all_pairs())
    for k in cuts:
        yield measure(metrics.ndcg, f"ndcg@{k}", k=k, gain=gain)
    for overall in (metrics.average_precision, metrics.awrf, metrics.ndkl):
        yield measure(overall)

    known = slice(queries.n_groups)
    sums, weight = sums[:, known, known], weight[:, known, known]
    cells, pairs = ratio(sums, weight), support.pairs("preference")
    yield Measure("auc", ratio(sums.sum(axis=2), weight.sum(axis=2)), pairs.sum(axis=2))
    yield Measure("auc_within", _diagonal(cells), _diagonal(pairs))
    yield from _ndcg_within(queries, scores, settings)
    yield Measure("merit", metrics.merit(queries))
    yield measure(metrics.exposure)
    yield measure(metrics.exposure, "exposure_trec", discount="trec")
    for by_merit in (metrics.exposure_to_merit, metrics.click_to_merit):
        yield measure(by_merit)
    for k in cuts:
        yield measure(metrics.top_share, f"top_share@{k}", k=k)
    yield Measure("population_share", metrics.population_share(queries))

    yield Measure("preferred_above", cells, pairs)
    sums, weight = cell_sums(queries, scores, pairs="all"), cell_counts(queries, pairs="all")
    yield Measure("above", ratio(sums, weight)[:, known, known], support.pairs("all"))


def _diagonal(table: Array) -> Array:
    return np.diagonal(table, axis1=1, axis2=2)


def _ndcg_within(queries: Queries, scores: Array, settings: Settings) -> Iterator[Measure]:
    """NDCG of the list of each query and group."""
    width = queries.n_groups + 1  # items without a group are last, and not reported
    lists = queries.query * width + queries.group
    ids = np.arange(queries.n_queries * width)
    inside = Queries(None, queries.y, lists, ids, queries.group, queries.groups)
    ranks = Positions.of(inside, scores)
    for k in settings.cuts:
        values = metrics.ndcg(inside, ranks, k=k, gain=settings.gain)
        yield Measure(f"ndcg_within@{k}", values.reshape(-1, width)[:, :-1])


# --- on the workers of a cluster -----------------------------------------------------------------

# Every worker measures its own queries and sends sums of each measure: for the data and for each
# resample. The client draws how many of a resample's draws fall to each worker, and the worker
# draws which of its queries these are. The result is a resample of all queries, as on one machine,
# with other random numbers.
