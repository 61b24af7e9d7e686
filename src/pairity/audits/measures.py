"""The measures of an audit, query by query."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from pairity import metrics
from pairity._utils.typing import Array
from pairity.audits.estimates import Measure, Support
from pairity.data.queries import Queries
from pairity.metrics.positions import Positions, ratio
from pairity.pairs.cells import cell_counts, cell_sums


def measures_of(
    queries: Queries, scores: Array, cuts: tuple[int, ...], gain: str, support: Support
) -> Iterator[Measure]:
    """Every measure of `pairity.audit` except the violations."""
    ranks = Positions.of(queries, scores)

    def measure(function: Callable[..., Array], name: str = "", **options: Any) -> Measure:
        values = function(queries, scores, positions=ranks, **options)
        return Measure(name or function.__name__, values)

    sums, weight = cell_sums(queries, scores), cell_counts(queries)
    auc = ratio(sums.sum(axis=(1, 2)), weight.sum(axis=(1, 2)))
    yield Measure("auc", auc, support.all_pairs())
    for k in cuts:
        yield measure(metrics.ndcg, f"ndcg@{k}", k=k, gain=gain)
    for overall in (metrics.average_precision, metrics.awrf, metrics.ndkl):
        yield measure(overall)

    known = slice(queries.n_groups)
    sums, weight = sums[:, known, known], weight[:, known, known]
    cells, pairs = ratio(sums, weight), support.pairs("preference")
    yield Measure("auc", ratio(sums.sum(axis=2), weight.sum(axis=2)), pairs.sum(axis=2))
    yield Measure("auc_within", _diagonal(cells), _diagonal(pairs))
    yield from _ndcg_within(queries, scores, cuts, gain)
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


def _ndcg_within(
    queries: Queries, scores: Array, cuts: tuple[int, ...], gain: str
) -> Iterator[Measure]:
    """NDCG of the list of each query and group."""
    width = queries.n_groups + 1  # items without a group are last, and not reported
    lists = queries.query * width + queries.group
    ids = np.arange(queries.n_queries * width)
    inside = Queries(None, queries.y, lists, ids, queries.group, queries.groups)
    ranks = Positions.of(inside, scores)
    for k in cuts:
        values = metrics.ndcg(inside, scores, k=k, gain=gain, positions=ranks)
        yield Measure(f"ndcg_within@{k}", values.reshape(-1, width)[:, :-1])
