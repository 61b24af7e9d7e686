"""Requirements that training and auditing have of queries, in memory or on workers."""

from typing import Any

import numpy as np

from pairity._utils.typing import Array
from pairity.data.queries import Queries
from pairity.exceptions import InputError

_FEW_EFFECTIVE = 0.5  # the share of queries that count effectively in training by pairs


def require_features(queries: Any) -> None:
    """Refuse queries without features."""
    if not queries.n_features:
        raise InputError("The queries have no features. Pass X, with one row per item.")


def require_groups(queries: Any) -> None:
    """Refuse queries with fewer than two groups."""
    if queries.n_groups < 2:
        present = f"only the group {queries.groups[0]!r}" if queries.groups else "no group"
        raise InputError(
            f"sensitive_features has {present} in {_rows(queries)}; a comparison needs at least "
            "two groups. Check the column."
        )


def require_preferences(queries: Any) -> None:
    """Refuse queries without a preference pair of positive weight."""
    if not has_preferences(queries):
        raise InputError(
            f"No query has two different labels: none of the {queries.n_queries} queries in "
            f"{_rows(queries)} has a preference pair of positive weight, so there is nothing to "
            "rank by. Check y, qid and the weights."
        )


def suggests_equal_queries(queries: Any) -> bool:
    """Whether lists differ so much in length that ``query_weight="equal"`` may help.

    Training pools pairs, so a query counts by its number of pairs n_q, while a constraint may
    average over queries. Of N queries, (Σ n_q)² / Σ n_q² count effectively; "equal" is suggested if
    these are less than half. It is not suggested where queries count equally already.
    """
    if queries.equal_queries:
        return False
    n_queries, total, squares = queries.total(_pair_moments)
    return bool(total**2 < _FEW_EFFECTIVE * n_queries * squares)


def _pair_moments(queries: Queries) -> Array:
    """The number of queries that count, and the sums of their pairs and of the squares."""
    counts = np.where(queries.weight_of_query > 0, queries.layout.pair_counts(), 0.0)
    return np.array([np.count_nonzero(counts), counts.sum(), counts @ counts])


def has_preferences(queries: Any) -> bool:
    """Whether some query has a preference pair of positive weight."""
    return bool(queries.total(_n_preferring))


def _n_preferring(queries: Queries) -> int:
    """The number of queries with a preference pair of positive weight."""
    weight = queries.weight_of_query[queries.query]
    if queries.item_weight is not None:
        weight = weight * queries.item_weight
    rows = np.flatnonzero(weight > 0)
    lowest, highest = np.full(queries.n_queries, np.inf), np.full(queries.n_queries, -np.inf)
    np.minimum.at(lowest, queries.query[rows], queries.y[rows])
    np.maximum.at(highest, queries.query[rows], queries.y[rows])
    return int(np.count_nonzero(lowest < highest))


def _rows(queries: Any) -> str:
    return "1 row (1 sample)" if queries.n_items == 1 else f"{queries.n_items} rows"
