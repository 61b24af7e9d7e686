"""Sums over the pairs of each cell of differences between the items."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairity import Queries
from pairity.pairs.by_group import cell_products
from pairity.pairs.cells import cell_counts
from pairity.pairs.logistic import pairwise_logistic
from support import reference


def slow_products(queries, scores, factors, rows, pairs, curved):
    """The same, pair by pair."""
    k, weight = queries.n_groups, queries.item_weight
    weight = np.ones(queries.n_items) if weight is None else weight
    total = np.zeros((k, k, rows.shape[1]))
    for i in range(queries.n_items):
        for j in range(queries.n_items):
            apart = queries.query[i] != queries.query[j] or i == j
            if apart or (pairs == "preference" and queries.y[i] <= queries.y[j]):
                continue
            cell = queries.group[i], queries.group[j]
            if max(cell) < k:
                t = 1.0 / (1.0 + np.exp(np.clip(scores[i] - scores[j], -700, 700)))
                t = t * (1.0 - t) if curved else t
                factor = factors[(queries.query[i], *cell)] * weight[i] * weight[j]
                total[cell] += factor * t * (rows[i] - rows[j])
    return total


@given(
    lists=reference.ranked_lists(),
    seed=st.integers(0, 999),
    kind=st.sampled_from([("preference", False), ("preference", True), ("all", True)]),
    size=st.sampled_from([1.0, 300.0]),
)
@settings(max_examples=60, deadline=None)
def test_products_are_sums_over_pairs(lists, seed, kind, size):
    queries, scores = lists
    rng = np.random.default_rng(seed)
    k, (pairs, curved) = queries.n_groups, kind
    factors, rows = rng.uniform(size=(queries.n_queries, k, k)), rng.normal(size=(len(scores), 2))
    scores = size * np.clip(scores, -5.0, 5.0).astype(
        np.float64
    )  # also wider than the fast path allows
    fast = cell_products(queries, scores, factors, rows, pairs=pairs, curved=curved)
    slow = slow_products(queries, scores, factors, rows, pairs, curved)
    np.testing.assert_allclose(fast, slow, rtol=1e-9, atol=1e-9)


def made(n_items=400, n_queries=3):
    rng = np.random.default_rng(0)
    n = n_items * n_queries
    return Queries.from_arrays(
        rng.normal(size=(n, 3)), rng.integers(0, 3, n), qid=np.arange(n) // n_items,
        sensitive_features=rng.integers(0, 3, n),
    )  # fmt: skip


def test_of_long_lists_some_pairs_stand_for_all():
    queries = made()
    factors = np.ones((queries.n_queries, 3, 3))
    exact, chosen = (
        cell_products(queries, queries.X[:, 0], factors, queries.X, most=most) for most in (400, 40)
    )
    assert not np.array_equal(exact, chosen)
    np.testing.assert_allclose(chosen, exact, atol=0.05 * np.abs(exact).max())


@pytest.mark.parametrize("margin", [0.0, 1.0])
def test_a_table_with_one_weight_needs_no_groups(margin):
    """Equal weights are computed in one group; a hardly different weight is not."""
    queries = made(n_items=30)
    scores, table = queries.X[:, 0], np.full((3, 3), 0.7)
    one = pairwise_logistic(queries, scores, table, margin=margin)
    table[0, 0] += 1e-12
    several = pairwise_logistic(queries, scores, table, margin=margin)
    assert one.loss == pytest.approx(several.loss, rel=1e-9)
    np.testing.assert_allclose(one.gradient, several.gradient, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(one.hessian, several.hessian, rtol=1e-9, atol=1e-9)
    assert cell_counts(queries).shape[1:] == (3, 3)
