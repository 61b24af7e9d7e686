"""Audits of scores on the workers of a Dask cluster.

Every worker measures its own queries and sends sums of each measure: for the data and for each
resample. The client draws how many of a resample's draws fall to each worker, and the worker draws
which of its queries these are. The result is a resample of all queries, as on one machine, with
other random numbers.
"""

from functools import partial, reduce

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from pairity.audits.estimates import draw_queries
from pairity.audits.measures import Measured, Settings, measure
from pairity.constraints import PairwiseConstraint
from pairity.data.distributed.queries import DaskQueries
from pairity.data.queries import Queries
from pairity.exceptions import InputError


def measure_on_workers(queries: DaskQueries, settings: Settings) -> Measured:
    """What all workers measure on queries whose scores are their one feature."""
    for label, constraint in settings.constraints.items():
        if not isinstance(constraint, PairwiseConstraint):
            raise InputError(
                f"The constraint {label!r} is a function of all queries at once, which are on "
                "several workers. Audit Dask collections with constraints of the catalogue."
            )
    n_workers = len(queries.shares)
    seeds = check_random_state(settings.random_state).randint(2**31 - 1, size=1 + n_workers)
    n_queries = np.array(queries.gather(lambda part: np.count_nonzero(part.weight_of_query)))
    n = int(n_queries.sum())
    n_resamples = settings.n_resamples if n > 1 else 0  # one query has no variation between queries
    rng = np.random.default_rng(int(seeds[0]))
    n_draws = rng.multinomial(n, n_queries / n, size=n_resamples)  # of each worker's queries
    plans = list(zip(seeds[1:].tolist(), n_draws.T, strict=True))
    parts = queries.gather(partial(_measure, settings), plans)
    total: Measured = reduce(Measured.__add__, [part for part in parts if part is not None])
    return total


def _measure(
    settings: Settings, queries: Queries, plan: tuple[int, NDArray[np.int64]]
) -> Measured | None:
    """What one worker measures; None if all its queries have weight 0."""
    if not queries.weight_of_query.any():
        return None
    (seed, n_draws), weight = plan, queries.weight_of_query
    draws = draw_queries(np.random.default_rng(seed), weight[weight > 0], n_draws)
    return measure(queries, settings, draws)
