r"""The noise floor: how large a violation is by chance, because the queries are a sample.

Δ is a mean over queries, so every query moves it a little. The influence of query q on the mean R
of an entry is

.. math:: u_q = \frac{w_q (v_q - R\, d_q)}{\sum_p w_p d_p}

with the query's weight w and its terms v and d of the mean's numerator and denominator. The sum of
products of influences over queries is the covariance C of the gaps. The noise floor is the mean of
the largest absolute entry of N(0, C): the mean violation that this number of queries shows even
if there is no disparity at all. A smaller violation cannot be told from none.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from pairity._utils.typing import Array
from pairity.constraints.base import Constraint, Contrasts
from pairity.constraints.pairwise import PairwiseConstraint
from pairity.data.queries import Queries
from pairity.pairs.cells import mean_of_totals, terms_of_queries

_N_DRAWS = 1_000  # the floor's simulation error is then about 1 %
_SEED = 0


@dataclass(frozen=True, eq=False)
class Noise:
    """How much the gaps of a delta vary between queries.

    Attributes
    ----------
    delta : array, the constraint's delta of the same queries and scores
    covariance : array of shape (n_gaps, n_gaps)
        Covariance of the gaps, in the order of ``Contrasts.of(delta)``. NaN for a gap with an entry
        that only one query measures, because its variation between queries is unknown.
    floor : float
        The mean of the largest absolute entry of N(0, covariance): the violation that variation
        between queries alone produces if there is no disparity. Gaps of unknown variation are left
        out; NaN if there is no other.
    error : float
        Standard error of the largest observed gap, NaN if unknown.
    """

    delta: Array
    covariance: Array
    floor: float
    error: float


def noise_of(constraint: Constraint, queries: Queries, scores: Array) -> Noise:
    """The noise in a violation, by the influence of each query on each gap.

    Parameters
    ----------
    constraint : Constraint
        All values are NaN for a constraint that is not a `PairwiseConstraint`, because nothing is
        known about how its delta depends on single queries.
    queries : Queries
    scores : array of shape (n_items,)

    Notes
    -----
    The covariance is that of a bootstrap over queries for many resamples, times n / (n - 1), where
    n is the smaller number of queries behind the two entries of a gap. It takes two passes over
    the pairs. The simulation has a fixed seed, so the same data have the same floor.

    Examples
    --------
    >>> from pairity.constraints import StatisticalParity, noise_of
    >>> from pairity.datasets import make_biased_ranking
    >>> queries = make_biased_ranking(n_queries=50, random_state=0).queries()
    >>> noise = noise_of(StatisticalParity(), queries, queries.X[:, 0])
    >>> noise.covariance.shape, noise.floor < 0.1
    ((1, 1), True)
    """
    if not isinstance(constraint, PairwiseConstraint):
        delta = constraint.delta(queries, scores)
        n_gaps = len(Contrasts.of(delta).first)
        return Noise(delta, np.full((n_gaps, n_gaps), np.nan), np.nan, np.nan)
    sums = queries.total(partial(_totals_and_counts, constraint), scores)
    totals, n_queries = sums[:2], sums[2]
    delta = constraint.from_totals(totals, queries.groups)
    contrasts = Contrasts.of(delta)
    if not len(contrasts.first):
        return Noise(delta, np.zeros((0, 0)), np.nan, np.nan)
    covariance = queries.total(partial(_products, constraint, contrasts, totals), scores)
    n = np.minimum(n_queries[contrasts.first], n_queries[contrasts.second])  # -1: of all entries
    factor = np.sqrt(np.divide(n, n - 1, out=np.full_like(n, np.nan), where=n > 1))
    covariance = covariance * np.outer(factor, factor)
    largest = int(np.argmax(np.abs(contrasts.gaps(delta))))
    error = float(np.sqrt(covariance[largest, largest]))
    return Noise(delta, covariance, _floor(covariance), error)


def _totals_and_counts(constraint: PairwiseConstraint, queries: Queries, scores: Array) -> Array:
    """The rows of `PairwiseConstraint.totals`, then the number of queries with pairs per entry."""
    present = constraint.entries(constraint.counts(queries)) > 0
    n_queries = present[queries.weight_of_query > 0].sum(axis=0)
    return np.vstack([constraint.totals(queries, scores), n_queries])


def _products(
    constraint: PairwiseConstraint,
    contrasts: Contrasts,
    totals: Array,
    queries: Queries,
    scores: Array,
) -> Array:
    """The sum over queries of products of their influences on any two gaps."""
    tables = constraint.sums(queries, scores), constraint.counts(queries)
    sums, counts = (constraint.entries(table) for table in tables)
    numerators, denominators = terms_of_queries(sums, counts, constraint.average)
    means, total = mean_of_totals(totals), np.where(totals[1] > 0, totals[1], np.nan)
    influence = queries.weight_of_query[:, None] * (numerators - means * denominators) / total
    reference = influence[:, -1:] if constraint.has_reference else 0.0
    of_gaps = contrasts.gaps((influence[:, :-1] - reference).reshape(-1, *contrasts.shape))
    return np.asarray(of_gaps.T @ of_gaps)


def _floor(covariance: Array) -> float:
    """The mean of the largest absolute entry of N(0, covariance), over the known entries."""
    known = ~np.isnan(covariance.diagonal())
    covariance = covariance[np.ix_(known, known)]
    if len(covariance) < 2:
        return float(np.sqrt(2 / np.pi * covariance[0, 0])) if len(covariance) else np.nan
    values, vectors = np.linalg.eigh(covariance)
    factor = vectors * np.sqrt(np.maximum(values, 0.0))
    normal = np.random.default_rng(_SEED).normal(size=(_N_DRAWS, len(values)))
    return float(np.abs(normal @ factor.T).max(axis=1).mean())
