"""Fairness: what each group receives from a ranking, per query, or per query and group.

Parameters shared by all measures: ``queries``; ``scores``, one number per row in the caller's
order, or their `Positions` if these exist already, so that an audit sorts once; ``discount``, the
attention that a position receives:
``"log2"``, 1/log2(1 + rank), as in Singh & Joachims, or ``"trec"``, 1/log2(max(rank, 2)), as in the
TREC Fair Ranking track, which gives the first two positions equal attention.

Values by group have shape (n_queries, n_groups), the groups in the order of ``queries.groups``.
NaN marks a query (or a group of a query) for which a measure is undefined; average over the others.
Ties: items that share a score share the average of their positions' discounts. An item of unknown
group occupies its position, but belongs to no group.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import rel_entr

from pairity._utils.typing import Array
from pairity.data.queries import Queries
from pairity.exceptions import InputError
from pairity.metrics.positions import Positions, Scores, choose, has_negative, ratio, sums


def exposure(queries: Queries, scores: Scores, *, discount: str = "log2") -> Array:
    r"""Mean attention that the items of each group receive.

    .. math:: E_k = \frac{1}{|G_k|} \sum_{i \in G_k} v(r_i)

    Returns
    -------
    array of shape (n_queries, n_groups), NaN if a query has no item of the group

    References
    ----------
    Singh & Joachims (2018). Fairness of exposure in rankings. KDD.

    Examples
    --------
    >>> from pairity.metrics import exposure
    >>> from pairity.data.queries import Queries
    >>> queries = Queries.from_arrays(None, [1, 0, 1], qid=[7] * 3, sensitive_features=list("aab"))
    >>> exposure(queries, [0.9, 0.5, 0.2]).round(3)  # (1 + 1/log2(3)) / 2 and 1/log2(4)
    array([[0.815, 0.5  ]])
    """
    places = Positions.of(queries, scores)
    return _group_means(queries, places.share(places.discount(discount)))


def merit(queries: Queries) -> Array:
    r"""Mean label of each group's items, :math:`U_k = \frac{1}{|G_k|} \sum_{i \in G_k} y_i`.

    Returns
    -------
    array of shape (n_queries, n_groups), NaN if a query has no item of the group, and for all
    groups of a query that has a negative label

    References
    ----------
    Singh & Joachims (2018), as in `exposure`; they call it average utility.

    Examples
    --------
    >>> from pairity.metrics import merit
    >>> from pairity.data.queries import Queries
    >>> queries = Queries.from_arrays(None, [1, 0, 1], qid=[7] * 3, sensitive_features=list("aab"))
    >>> merit(queries)
    array([[0.5, 1. ]])
    """
    means = _group_means(queries, queries.y)
    return np.where(has_negative(queries)[:, None], np.nan, means)


def exposure_to_merit(queries: Queries, scores: Scores, *, discount: str = "log2") -> Array:
    r"""Attention of each group per unit of its merit, :math:`E_k / U_k`.

    If it is equal for all groups, there is no disparate treatment in the sense of Singh & Joachims:
    groups receive attention in proportion to their merit.

    Returns
    -------
    array of shape (n_queries, n_groups), NaN if the `merit` is 0 or NaN

    References
    ----------
    Singh & Joachims (2018), as in `exposure`.

    Examples
    --------
    >>> from pairity.metrics import exposure_to_merit
    >>> from pairity.data.queries import Queries
    >>> queries = Queries.from_arrays(None, [1, 0, 1], qid=[7] * 3, sensitive_features=list("aab"))
    >>> exposure_to_merit(queries, [0.9, 0.5, 0.2]).round(3)  # 0.815 / 0.5 and 0.5 / 1
    array([[1.631, 0.5  ]])
    """
    return ratio(exposure(queries, scores, discount=discount), merit(queries))


def click_to_merit(queries: Queries, scores: Scores, *, discount: str = "log2") -> Array:
    r"""Clicks of each group per unit of its merit, a click being attention times label.

    .. math:: \frac{1}{|G_k|} \sum_{i \in G_k} v(r_i)\, y_i \Big/ U_k

    If it is equal for all groups, there is no disparate impact in the sense of Singh & Joachims.

    Returns
    -------
    array of shape (n_queries, n_groups), NaN if the `merit` is 0 or NaN

    References
    ----------
    Singh & Joachims (2018), as in `exposure`.

    Examples
    --------
    >>> from pairity.metrics import click_to_merit
    >>> from pairity.data.queries import Queries
    >>> queries = Queries.from_arrays(None, [1, 0, 1], qid=[7] * 3, sensitive_features=list("aab"))
    >>> click_to_merit(queries, [0.9, 0.5, 0.2])  # (1·1 + 0·0.631) / 2 / 0.5 and 1·0.5 / 1
    array([[1. , 0.5]])
    """
    places = Positions.of(queries, scores)
    clicks = queries.y * places.share(places.discount(discount))
    return ratio(_group_means(queries, clicks), merit(queries))


def top_share(queries: Queries, scores: Scores, *, k: int) -> Array:
    """Share of a query's first min(k, n) positions that each group occupies (expected, if tied).

    Parameters
    ----------
    k : int
        The number of positions that count as the top.

    Returns
    -------
    array of shape (n_queries, n_groups), 0 for a group that a query lacks

    Notes
    -----
    All top positions are counted, so the shares of a query add up to less than 1 if an item of
    unknown group may be among them. Compare with `population_share`.

    References
    ----------
    Geyik, Ambler & Kenthapadi (2019), as in `ndkl`; the logarithm of the ratio to a target is
    their Skew@k.

    Examples
    --------
    >>> from pairity.metrics import top_share
    >>> from pairity.data.queries import Queries
    >>> queries = Queries.from_arrays(None, [1, 0, 1], qid=[7] * 3, sensitive_features=list("aab"))
    >>> top_share(queries, [0.9, 0.5, 0.5], k=2)  # both tie for the second position
    array([[0.75, 0.25]])
    """
    places = Positions.of(queries, scores)
    occupied = _group_sums(queries, places.share(places.top(k)))
    size = np.bincount(queries.query, minlength=queries.n_queries)
    return occupied / np.minimum(size, k)[:, None]


def population_share(queries: Queries) -> Array:
    """Share of a query's items in each group; the sum is below 1 if some groups are unknown.

    Returns
    -------
    array of shape (n_queries, n_groups), 0 for a group that a query lacks

    Examples
    --------
    >>> from pairity.metrics import population_share
    >>> from pairity.data.queries import Queries
    >>> queries = Queries.from_arrays(
    ...     None, [1, 0, 1, 0], qid=[7, 7, 7, 7], sensitive_features=["a", "a", "b", None]
    ... )
    >>> population_share(queries)
    array([[0.5 , 0.25]])
    """
    size = np.bincount(queries.query, minlength=queries.n_queries)
    return _group_sums(queries, np.ones(queries.n_items)) / size[:, None]


def awrf(
    queries: Queries, scores: Scores, *, target: ArrayLike = "population", discount: str = "trec"
) -> Array:
    r"""Attention-weighted rank fairness: how close groups' shares of attention are to a target.

    .. math:: 1 - \mathrm{JSD}_2(a \,\|\, t), \qquad a_k \propto \sum_{i \in G_k} v(r_i)

    Parameters
    ----------
    target : {"population", "relevant"} or array of shape (n_groups,)
        The groups' shares of the query's items, of its relevant items (label above 0), or
        probabilities in the order of ``queries.groups``.

    Returns
    -------
    array of shape (n_queries,), from 0 to 1; 1 is parity

    Notes
    -----
    Shares are among items of known group. NaN if a query has no such item or, with the target
    ``"relevant"``, no relevant one. A query with one group has the value 1 under the target
    ``"population"``. The divergence is in bits, so that the value reaches 0; TREC's scripts use
    nats, and their value is 1 − ln 2 · (1 − this value).

    References
    ----------
    Sapiezynski et al. (2019). Quantifying the impact of user attention on fair group
    representation in ranked lists. WWW Companion.
    Ekstrand et al. (2021, 2022). Overview of the TREC Fair Ranking Track.

    Examples
    --------
    >>> from pairity.metrics import awrf
    >>> from pairity.data.queries import Queries
    >>> queries = Queries.from_arrays(None, [1, 0], qid=[7, 7], sensitive_features=list("ab"))
    >>> awrf(queries, [0.9, 0.5])  # both positions receive the attention 1
    array([1.])
    """
    places = Positions.of(queries, scores)
    attention = _shares(_group_sums(queries, places.share(places.discount(discount))))
    goal = _target(queries, target)
    middle = (attention + goal) / 2
    nats = (rel_entr(attention, middle) + rel_entr(goal, middle)).sum(axis=1) / 2
    value = 1.0 - np.clip(nats / np.log(2.0), 0.0, 1.0)  # outside by rounding only
    return np.where(attention.any(axis=1), value, np.nan)


def ndkl(queries: Queries, scores: Scores, *, target: ArrayLike = "population") -> Array:
    r"""Divergence of the groups' shares of each prefix from a target, as a discounted mean.

    .. math:: \frac{1}{Z} \sum_i \frac{d_{KL}(D_i \,\|\, D)}{\log_2(i + 1)}, \qquad
        Z = \sum_i \frac{1}{\log_2(i + 1)}

    Parameters
    ----------
    target : {"population", "relevant"} or array of shape (n_groups,)
        As in `awrf`.

    Returns
    -------
    array of shape (n_queries,), in nats, from 0; 0 is parity in every prefix

    Notes
    -----
    Ties: a prefix that cuts a tie has its expected counts. :math:`D_i` are shares among the first i
    items of known group; prefixes without one are left out of the sum and of Z. NaN if a query has
    no item of known group or, with the target ``"relevant"``, if one of its groups has no relevant
    item, because the divergence is then infinite.

    References
    ----------
    Geyik, Ambler & Kenthapadi (2019). Fairness-aware ranking in search & recommendation systems
    with application to LinkedIn talent search. KDD.

    Examples
    --------
    >>> from pairity.metrics import ndkl
    >>> from pairity.data.queries import Queries
    >>> queries = Queries.from_arrays(None, [1, 0], qid=[7, 7], sensitive_features=list("ab"))
    >>> ndkl(queries, [0.9, 0.5]).round(3)  # (ln 2 · 1 + 0 · 0.631) / (1 + 0.631)
    array([0.425])
    """
    places = Positions.of(queries, scores)
    goal = _target(queries, target)
    if not isinstance(target, str):
        _require_positive(queries, goal)
    query, known = queries.query[places.order], places.counts(queries.group < queries.n_groups)
    divergence = np.zeros(queries.n_items)
    for k in range(queries.n_groups):
        divergence += rel_entr(ratio(places.counts(queries.group == k), known), goal[query, k])
    weight = np.where(known > 0, places.discount("log2"), 0.0)
    weighted = np.where(known > 0, weight * np.maximum(divergence, 0.0), 0.0)
    total, norm = (sums(query, values, queries.n_queries) for values in (weighted, weight))
    value = ratio(total, norm)
    return np.where(np.isinf(value), np.nan, value)


def _group_sums(queries: Queries, values: ArrayLike) -> Array:
    """Sums of values per row, by query and group."""
    width = queries.n_groups + 1  # the last column is for items of unknown group
    cell = queries.query * width + queries.group
    return sums(cell, values, queries.n_queries * width).reshape(-1, width)[:, :-1]


def _group_means(queries: Queries, values: Array) -> Array:
    return ratio(_group_sums(queries, values), _group_sums(queries, np.ones(queries.n_items)))


def _shares(totals: Array) -> Array:
    return ratio(totals, totals.sum(axis=1, keepdims=True))


def _target(queries: Queries, target: ArrayLike) -> Array:
    """The groups' target shares in each query: shape (n_queries, n_groups)."""
    if isinstance(target, str):
        return _shares(_group_sums(queries, choose(TARGETS, target, "target")(queries)))
    shares = np.asarray(target, dtype=np.float64)
    shape = (queries.n_groups,)
    if shares.shape != shape or not (shares >= 0).all() or not np.isclose(shares.sum(), 1.0):
        raise InputError(
            f"target is {shares.tolist()}, but must be one probability for each of the groups "
            f"{queries.groups}, in this order, and they must add up to 1."
        )
    return np.broadcast_to(shares, (queries.n_queries, queries.n_groups))


def _require_positive(queries: Queries, goal: Array) -> None:
    size = np.bincount(queries.group, minlength=queries.n_groups)
    for name, n_items, probability in zip(queries.groups, size, goal[0], strict=False):
        if n_items and not probability:
            raise InputError(
                f"The target probability of the group {name!r} is 0, but it has {n_items} items, "
                "so the divergence is infinite. Pass a positive one for every group that occurs."
            )


TARGETS: Mapping[str, Callable[[Queries], Array]] = {
    "population": lambda queries: np.ones(queries.n_items),
    "relevant": lambda queries: (queries.y > 0).astype(np.float64),
}
