"""What an audit measures, query by query."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pairity._utils.typing import Array
from pairity.audits.estimates import Measure, Support
from pairity.data.queries import Queries
from pairity.metrics import (
    Positions,
    average_precision,
    awrf,
    click_to_merit,
    exposure,
    exposure_to_merit,
    merit,
    ndcg,
    ndkl,
    population_share,
    top_share,
)
from pairity.metrics.positions import ratio
from pairity.pairs.cells import cell_counts, cell_sums


def measures_of(
    queries: Queries, scores: Array, cuts: tuple[int, ...], gain: str, support: Support
) -> Iterator[Measure]:
    """Every measure of `pairity.audit` but the violations."""
    places = Positions.of(queries, scores)
    sums, weight = cell_sums(queries, scores), cell_counts(queries)
    values = ratio(sums.sum(axis=(1, 2)), weight.sum(axis=(1, 2)))
    yield Measure("auc", values, support.all_pairs())
    for k in cuts:
        yield Measure(f"ndcg@{k}", ndcg(queries, scores, k=k, gain=gain, positions=places))
    yield Measure("average_precision", average_precision(queries, scores, positions=places))
    yield Measure("awrf", awrf(queries, scores, positions=places))
    yield Measure("ndkl", ndkl(queries, scores, positions=places))

    known = slice(queries.n_groups)
    sums, weight = sums[:, known, known], weight[:, known, known]
    cells, pairs = ratio(sums, weight), support.pairs("preference")
    yield Measure("auc", ratio(sums.sum(axis=2), weight.sum(axis=2)), pairs.sum(axis=2))
    yield Measure("auc_within", _diagonal(cells), _diagonal(pairs))
    yield from _ndcg_within(queries, scores, cuts, gain)
    yield Measure("merit", merit(queries))
    yield Measure("exposure", exposure(queries, scores, positions=places))
    trec = exposure(queries, scores, discount="trec", positions=places)
    yield Measure("exposure_trec", trec)
    yield Measure("exposure_to_merit", exposure_to_merit(queries, scores, positions=places))
    yield Measure("click_to_merit", click_to_merit(queries, scores, positions=places))
    for k in cuts:
        yield Measure(f"top_share@{k}", top_share(queries, scores, k=k, positions=places))
    yield Measure("population_share", population_share(queries))

    yield Measure("preferred_above", cells, pairs)
    sums, weight = cell_sums(queries, scores, pairs="all"), cell_counts(queries, pairs="all")
    yield Measure("above", ratio(sums, weight)[:, known, known], support.pairs("all"))


def _diagonal(table: Array) -> Array:
    return np.diagonal(table, axis1=1, axis2=2)


def _ndcg_within(
    queries: Queries, scores: Array, cuts: tuple[int, ...], gain: str
) -> Iterator[Measure]:
    """NDCG of the lists that each query falls into, one for each group (the missing one last)."""
    width = queries.n_groups + 1
    lists = queries.query * width + queries.group
    ids = np.arange(queries.n_queries * width)
    inside = Queries(None, queries.y, lists, ids, queries.group, queries.groups)
    places = Positions.of(inside, scores)
    for k in cuts:
        values = ndcg(inside, scores, k=k, gain=gain, positions=places)
        yield Measure(f"ndcg_within@{k}", values.reshape(-1, width)[:, :-1])
