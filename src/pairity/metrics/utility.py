"""Utility: how well scores order the labels, one value per query.

Parameters shared by all measures: ``queries``; ``scores``, one number per row in the caller's
order, or their `Positions` if these exist already, so that an audit sorts once. All return an array
of shape (n_queries,), NaN for a query in which the measure is undefined; average over the others.
All items of a query count, whether or not their group is known.
"""

from collections.abc import Callable, Mapping

import numpy as np

from pairity._utils.typing import Array
from pairity.data.queries import Queries
from pairity.exceptions import InputError
from pairity.metrics.positions import Positions, Scores, choose, has_negative, ratio, sums

HIGHEST_EXPONENT = 31  # 2^y - 1 is meant for grades; LightGBM stops at 30


def ndcg(
    queries: Queries, scores: Scores, *, k: int | None = None, gain: str = "exponential"
) -> Array:
    r"""Discounted cumulative gain of each query, as a share of the best possible.

    .. math:: \sum_{r_i \le k} \frac{g(y_i)}{\log_2(1 + r_i)} \Big/ \text{the same, sorted by } y

    Parameters
    ----------
    k : int, optional
        Count only the first k positions.
    gain : {"exponential", "linear"}
        :math:`2^y - 1`, as in [1]_ and LightGBM, or :math:`y`, as in [2]_ and scikit-learn.

    Returns
    -------
    array of shape (n_queries,)

    Notes
    -----
    Ties: items that share a score share the average of their positions' discounts, as in
    scikit-learn [3]_. Empty queries: NaN if the best possible gain is 0, because every order is
    then equally good (scikit-learn returns 0, LightGBM 1), and if a label is negative.

    References
    ----------
    .. [1] Burges et al. (2005). Learning to rank using gradient descent. ICML.
    .. [2] Järvelin & Kekäläinen (2002). Cumulated gain-based evaluation of IR techniques. TOIS.
    .. [3] McSherry & Najork (2008). Computing information retrieval performance measures
       efficiently in the presence of tied scores. ECIR.

    Examples
    --------
    >>> from pairity.metrics import ndcg
    >>> from pairity.data.queries import Queries
    >>> queries = Queries.from_arrays(None, [1, 0, 0, 0], qid=[1, 1, 2, 2])
    >>> ndcg(queries, [0.2, 0.8, 0.5, 0.1]).round(3)  # 1/log2(3); no item of query 2 is relevant
    array([0.631,   nan])
    """
    places = Positions.of(queries, scores)
    discount = np.where(places.top(k), places.discount("log2"), 0.0)
    best = np.empty_like(discount)
    best[queries.layout.order] = discount  # the layout is sorted by query, like the positions
    gains = choose(GAINS, gain, "gain")(queries.y)
    reached = sums(queries.query, gains * places.share(discount), queries.n_queries)
    ideal = sums(queries.query, gains * best, queries.n_queries)
    return np.where(has_negative(queries), np.nan, ratio(reached, ideal))


def average_precision(queries: Queries, scores: Scores, *, relevant_above: float = 0.0) -> Array:
    r"""Precision at the position of each relevant item, averaged over a query's relevant items.

    .. math:: \frac{1}{|R|} \sum_{i \in R}
        \frac{|\{j \in R : s_j \ge s_i\}|}{|\{j : s_j \ge s_i\}|}, \qquad
        R = \{i : y_i > \text{relevant\_above}\}

    Parameters
    ----------
    relevant_above : float
        Items whose label is higher than this are relevant.

    Returns
    -------
    array of shape (n_queries,)

    Notes
    -----
    Ties: items that share a score are one threshold, as in `sklearn.metrics
    .average_precision_score`; this is not the expectation over random tie-breaking. Empty
    queries: NaN if no item is relevant.

    References
    ----------
    Manning, Raghavan & Schütze (2008). Introduction to Information Retrieval, section 8.4.

    Examples
    --------
    >>> from pairity.metrics import average_precision
    >>> from pairity.data.queries import Queries
    >>> queries = Queries.from_arrays(None, [1, 0, 1, 0], qid=[1, 1, 1, 2])
    >>> average_precision(queries, [0.9, 0.5, 0.2, 0.1]).round(3)  # (1/1 + 2/3) / 2
    array([0.833,   nan])
    """
    places = Positions.of(queries, scores)
    relevant = queries.y > relevant_above
    precision = places.at_block_end(places.counts(relevant) / places.rank)
    total = sums(queries.query, relevant * precision, queries.n_queries)
    return ratio(total, sums(queries.query, relevant, queries.n_queries))


def _exponential(labels: Array) -> Array:
    if labels.max() > HIGHEST_EXPONENT:
        raise InputError(
            f"The highest label is {labels.max():g}, but the exponential gain 2^y - 1 is limited "
            f'to grades up to {HIGHEST_EXPONENT}. Use gain="linear", or recode y as grades.'
        )
    return np.exp2(labels) - 1.0


GAINS: Mapping[str, Callable[[Array], Array]] = {
    "exponential": _exponential,
    "linear": lambda labels: labels,
}
