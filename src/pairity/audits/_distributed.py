"""An audit of scores that lie on the workers of a cluster.

Every worker measures its own queries and sends sums: of each figure, for the data as they are and
for each resample. How many of a resample's draws fall to which worker is drawn on the client, and
which of its queries they are on the worker: together a resample of all queries, as on one machine,
with other random numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from pairity._utils.typing import Array
from pairity.audits.estimates import (
    Layout,
    Part,
    Statistics,
    Support,
    draw_queries,
    estimate_means,
    estimate_violation,
    layout_of,
    part_of_means,
    part_of_violation,
)
from pairity.audits.measures import measures_of
from pairity.constraints import PairwiseConstraint
from pairity.data.distributed.queries import DaskQueries
from pairity.data.queries import Queries
from pairity.exceptions import InputError


@dataclass(frozen=True, eq=False)
class Summed:
    """What one worker sends, or all of them together.

    Attributes
    ----------
    layout : of the measures
    counts : for each estimate, the counts of its entries
    totals, resampled : for each estimate, arrays of shape (2, n) and (n_resamples, 2, n)
    sizes : int64 array: queries, items, items without a group, pairs, and items of each group
    """

    layout: Layout
    counts: list[Array]
    totals: list[Array]
    resampled: list[Array]
    sizes: NDArray[np.int64]


def audit_distributed(
    queries: DaskQueries,
    constraints: dict[str, Any],
    cuts: tuple[int, ...],
    gain: str,
    n_resamples: int,
    random_state: Any,
) -> tuple[list[Statistics], Summed]:
    """The estimates of an audit, whose scores are the one feature of the queries."""
    for label, constraint in constraints.items():
        if not isinstance(constraint, PairwiseConstraint):
            raise InputError(
                f"The constraint {label!r} is a function of all queries at once, which Dask keeps "
                "apart. Audit Dask collections by constraints of the catalogue."
            )
    seeds = check_random_state(random_state).randint(2**31 - 1, size=1 + len(queries.shares))
    weighing = np.array(queries.gather(_n_weighing), dtype=np.int64)
    draws = _draws(weighing, n_resamples, int(seeds[0]))
    ask = partial(_summed, tuple(constraints.values()), cuts, gain)
    plans = [
        (int(seed), own) for seed, own in zip(seeds[1:].tolist(), draws.T, strict=True)
    ]  # fmt: skip
    parts = [each for each in queries.gather(ask, plans) if each is not None]
    whole = parts[0]
    for part in parts[1:]:
        whole = _added(whole, part)
    first = whole.resampled[0]
    statistics = [
        estimate_means(
            whole.layout, queries.groups, whole.counts[0], whole.totals[0], lambda _: first
        )
    ]
    for (label, constraint), counts, totals, resampled in zip(
        constraints.items(), whole.counts[1:], whole.totals[1:], whole.resampled[1:], strict=True
    ):
        statistics.append(
            estimate_violation(
                constraint, label, queries.groups, counts, totals, partial(_itself, resampled)
            )
        )
    return statistics, whole


def _itself(values: Array, _weight: Any) -> Array:
    return values


def _n_weighing(queries: Queries) -> int:
    return int(np.count_nonzero(queries.weight_of_query))


def _draws(n_queries: NDArray[np.int64], n_resamples: int, seed: int) -> NDArray[np.int64]:
    """Per resample and worker, how many of the draws fall to its queries."""
    n = int(n_queries.sum())
    if n < 2:  # a single query tells nothing about others
        return np.zeros((0, len(n_queries)), dtype=np.int64)
    rng = np.random.default_rng(seed)
    return np.asarray(rng.multinomial(n, n_queries / n, size=n_resamples))


# --- on a worker ---------------------------------------------------------------------------------


def _summed(
    constraints: Sequence[PairwiseConstraint],
    cuts: tuple[int, ...],
    gain: str,
    queries: Queries,
    plan: tuple[int, NDArray[np.int64]],
) -> Summed | None:
    """The sums of one worker; None where none of its queries weighs anything."""
    weighs = queries.weight_of_query > 0
    if not weighs.any():
        return None
    if not weighs.all():
        queries = queries.take(weighs)
    scores, support = np.ascontiguousarray(queries.X[:, 0]), Support(queries)
    measures = list(measures_of(queries, scores, cuts, gain, support))
    parts = [part_of_means(measures, support)]
    parts += [part_of_violation(each, queries, scores, support) for each in constraints]
    own = queries.weight_of_query
    sizes = [queries.n_queries, queries.n_items, queries.n_missing, int(support.all_pairs().sum())]
    return Summed(
        layout=layout_of(measures),
        counts=[part.counts for part in parts],
        totals=[part.totals(own) for part in parts],
        resampled=_resampled(parts, own, *plan),
        sizes=np.array([*sizes, *support.sizes[:, :-1].sum(axis=0)], dtype=np.int64),
    )


def _resampled(
    parts: list[Part], weight: Array, seed: int, draws: NDArray[np.int64]
) -> list[Array]:
    """The totals of every resample, block by block."""
    resampled: list[list[Array]] = [[] for _ in parts]
    for query_weight in draw_queries(np.random.default_rng(seed), weight, draws):
        for part, totals in zip(parts, resampled, strict=True):
            totals.append(part.totals(query_weight))
    return [np.concatenate(totals) if totals else np.zeros((0, 2, 0)) for totals in resampled]


def _added(one: Summed, other: Summed) -> Summed:
    return Summed(
        layout=one.layout,
        counts=[a + b for a, b in zip(one.counts, other.counts, strict=True)],
        totals=[a + b for a, b in zip(one.totals, other.totals, strict=True)],
        resampled=[a + b for a, b in zip(one.resampled, other.resampled, strict=True)],
        sizes=one.sizes + other.sizes,
    )
