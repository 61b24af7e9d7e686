"""Audits of scores on the workers of a Dask cluster.

Every worker measures its own queries and sends sums of each measure: for the data and for each
resample. The client draws how many of a resample's draws fall to each worker, and the worker draws
which of its queries these are. The result is a resample of all queries, as on one machine, with
other random numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from pairity._utils.typing import Array
from pairity.audits.audit import Settings, sizes_of, with_positive_weight
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
class Sums:
    """The sums of one worker, or of all workers.

    Attributes
    ----------
    layout : of the measures
    counts, totals, resampled : list of array
        For the means and then for each violation: counts of shape (n, 3), totals of shape (2, n),
        and totals of resamples of shape (n_resamples, 2, n).
    sizes : int64 array, see `sizes_of`
    """

    layout: Layout
    counts: list[Array]
    totals: list[Array]
    resampled: list[Array]
    sizes: NDArray[np.int64]

    def __add__(self, other: Sums) -> Sums:
        def add(name: str) -> list[Array]:
            return [a + b for a, b in zip(getattr(self, name), getattr(other, name), strict=True)]

        sums = {name: add(name) for name in ("counts", "totals", "resampled")}
        return Sums(self.layout, **sums, sizes=self.sizes + other.sizes)


def measure(
    queries: DaskQueries, settings: Settings, gain: str
) -> tuple[list[Statistics], Iterator[Array], list[int]]:
    """The statistics and sizes of queries whose scores are their one feature.

    The resampled weights are a placeholder, because the workers have already used them.
    """
    constraints = {}
    for label, constraint in settings.constraints.items():
        if not isinstance(constraint, PairwiseConstraint):
            raise InputError(
                f"The constraint {label!r} is a function of all queries at once, which are on "
                "several workers. Audit Dask collections with constraints of the catalogue."
            )
        constraints[label] = constraint
    n_workers = len(queries.shares)
    seeds = check_random_state(settings.random_state).randint(2**31 - 1, size=1 + n_workers)
    n_queries = np.array(queries.gather(_n_with_weight), dtype=np.int64)
    n_draws = _share_draws(n_queries, settings.n_resamples, int(seeds[0]))
    plans = list(zip(seeds[1:].tolist(), n_draws.T, strict=True))
    parts = queries.gather(partial(_sums, list(constraints.values()), settings.cuts, gain), plans)
    total = reduce(Sums.__add__, [part for part in parts if part is not None])
    resampled = [lambda _, totals=totals: totals for totals in total.resampled]
    arguments = list(zip(total.counts, total.totals, resampled, strict=True))
    statistics = [estimate_means(total.layout, queries.groups, *arguments[0])]
    for (label, constraint), sums in zip(constraints.items(), arguments[1:], strict=True):
        statistics.append(estimate_violation(constraint, label, queries.groups, *sums))
    draws = [np.zeros(0)] if len(n_draws) else []
    return statistics, iter(draws), total.sizes.tolist()


def _n_with_weight(queries: Queries) -> int:
    return int(np.count_nonzero(queries.weight_of_query))


def _share_draws(n_queries: NDArray[np.int64], n_resamples: int, seed: int) -> NDArray[np.int64]:
    """The number of draws of each resample that fall to each worker's queries."""
    n = int(n_queries.sum())
    if n < 2:  # a single query has no variation between queries
        return np.zeros((0, len(n_queries)), dtype=np.int64)
    rng = np.random.default_rng(seed)
    return np.asarray(rng.multinomial(n, n_queries / n, size=n_resamples))


# --- on a worker ---------------------------------------------------------------------------------


def _sums(
    constraints: Sequence[PairwiseConstraint],
    cuts: tuple[int, ...],
    gain: str,
    queries: Queries,
    plan: tuple[int, NDArray[np.int64]],
) -> Sums | None:
    """The sums of one worker; None if all its queries have weight 0."""
    if not queries.weight_of_query.any():
        return None
    queries = with_positive_weight(queries)
    scores, support = np.ascontiguousarray(queries.X[:, 0]), Support(queries)
    measures = list(measures_of(queries, scores, cuts, gain, support))
    parts = [part_of_means(measures, support)]
    parts += [part_of_violation(kind, queries, scores, support) for kind in constraints]
    return Sums(
        layout=layout_of(measures),
        counts=[part.counts for part in parts],
        totals=[part.totals(queries.weight_of_query) for part in parts],
        resampled=_resampled(parts, queries.weight_of_query, *plan),
        sizes=np.array(sizes_of(queries, support), dtype=np.int64),
    )


def _resampled(
    parts: list[Part], weight: Array, seed: int, n_draws: NDArray[np.int64]
) -> list[Array]:
    """The totals of every resample, block by block."""
    resampled: list[list[Array]] = [[] for _ in parts]
    for query_weight in draw_queries(np.random.default_rng(seed), weight, n_draws):
        for part, totals in zip(parts, resampled, strict=True):
            totals.append(part.totals(query_weight))
    return [np.concatenate(totals) if totals else np.zeros((0, 2, 0)) for totals in resampled]
