"""Kernels against slow, obvious versions, finite differences, and across threads."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime

from pairity import Queries
from pairity.pairs.cells import (
    cell_counts,
    cell_means,
    cell_sums,
    mean_over_queries,
    mean_shares,
    query_auc,
    total_weight,
)
from pairity.pairs.enumeration import iter_pairs
from pairity.pairs.kernels import counting
from pairity.pairs.logistic import pairwise_hessian_product, pairwise_logistic
from support import reference


def tables(draw_seed, queries):
    rng = np.random.default_rng(draw_seed)
    return rng.uniform(0.0, 2.0, (queries.n_groups, queries.n_groups))


def close(actual, expected):
    scale = np.max(np.abs(expected), initial=0.0)
    np.testing.assert_allclose(actual, expected, rtol=1e-11, atol=1e-13 * scale + 1e-300)


@given(reference.ranked_lists(), st.integers(0, 999))
@settings(max_examples=200, deadline=None)
def test_loss_and_derivatives_equal_the_slow_version(data, seed):
    queries, scores = data
    table = tables(seed, queries)
    exact = scores.astype(np.float64)
    loss, gradient, hessian, full = reference.logistic(queries, exact, table)
    ours = pairwise_logistic(queries, scores, table)
    close(ours.gradient, gradient)
    close(ours.hessian, hessian)
    if np.isfinite(loss):
        np.testing.assert_allclose(ours.loss, loss, rtol=1e-10, atol=1e-12)
    vector = np.random.default_rng(seed).normal(size=len(scores))
    product = pairwise_hessian_product(queries, scores, table, vector)
    np.testing.assert_allclose(product, full @ vector, rtol=1e-9, atol=1e-12 + 1e-13 * full.max())


@pytest.mark.parametrize("kind", ["preference", "all"])
@pytest.mark.parametrize("soft", [False, True])
@given(data=reference.ranked_lists(), sorted_=st.booleans())
@settings(max_examples=100, deadline=None)
def test_cell_sums_equal_the_slow_version(kind, soft, data, sorted_):
    queries, scores = data
    sums, counts = reference.cell_sums(queries, scores.astype(float), kind=kind, soft=soft)
    np.testing.assert_allclose(cell_counts(queries, pairs=kind), counts, atol=1e-12)
    with pytest.MonkeyPatch.context() as patch:
        if sorted_:
            patch.setattr(counting, "SHORT", 0)
        ours = cell_sums(queries, scores, pairs=kind, soft=soft)
    np.testing.assert_allclose(ours, sums, rtol=1e-12, atol=1e-11)


@given(reference.ranked_lists(), st.integers(0, 999))
@settings(max_examples=50, deadline=None)
def test_gradient_equals_finite_differences(data, seed):
    queries, scores = data
    if np.abs(scores).max() > 1000:
        scores = scores / np.abs(scores).max() * 50
    scores = scores.astype(np.float64)
    table = tables(seed, queries)
    numeric = approx_fprime(scores, lambda s: pairwise_logistic(queries, s, table).loss, 1e-6)
    ours = pairwise_logistic(queries, scores, table).gradient
    np.testing.assert_allclose(ours, numeric, rtol=1e-3, atol=1e-4 * (1 + np.abs(ours).max()))


def lists(n_queries, n_items, n_groups, n_labels, seed=0):
    rng = np.random.default_rng(seed)
    n = n_queries * n_items
    queries = Queries.from_arrays(
        None, rng.integers(0, n_labels, n), qid=np.repeat(np.arange(n_queries), n_items),
        sensitive_features=rng.integers(0, n_groups, n),
    )  # fmt: skip
    return queries, rng.normal(size=n) * 3, rng.uniform(0, 2, (n_groups, n_groups))


@pytest.mark.parametrize("n_labels", [2, 5])
@pytest.mark.parametrize("n_items", [7, 120, 400])
def test_longer_lists_equal_the_slow_version(n_items, n_labels):
    queries, scores, table = lists(2, n_items, 5, n_labels)
    loss, gradient, hessian, _ = reference.logistic(queries, scores, table)
    ours = pairwise_logistic(queries, scores, table)
    np.testing.assert_allclose(ours.gradient, gradient, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(ours.hessian, hessian, rtol=1e-11)
    np.testing.assert_allclose(ours.loss, loss, rtol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_groups", [1, 2, 7, 8, 9, 20])
def test_many_groups_and_lists_of_all_lengths_equal_the_slow_version(n_groups, weighted):
    rng = np.random.default_rng(n_groups)
    qid = np.repeat(np.arange(60), rng.permutation(np.arange(60) % 40 + 1))
    n = len(qid)
    queries = Queries.from_arrays(
        None, rng.integers(0, 4, n), qid=qid,
        sensitive_features=np.r_[np.arange(n_groups), rng.integers(0, n_groups, n - n_groups)],
        sample_weight=rng.integers(0, 3, n) if weighted else None,
    )  # fmt: skip
    scores, table = 3 * rng.normal(size=n), rng.uniform(0, 2, (n_groups, n_groups))
    _, gradient, hessian, _ = reference.logistic(queries, scores, table)
    ours = pairwise_logistic(queries, scores, table)
    close(ours.gradient, gradient)
    close(ours.hessian, hessian)
    sums, _ = reference.cell_sums(queries, scores, soft=True)
    np.testing.assert_allclose(cell_sums(queries, scores, soft=True), sums, atol=1e-12)


@pytest.mark.parametrize(("n_items", "n_labels"), [(1490, 2), (1510, 2), (1510, 5)])
def test_the_route_for_long_lists_continues_the_direct_one(n_items, n_labels, monkeypatch):
    queries, scores, table = lists(2, n_items, 3, n_labels)
    ours = pairwise_logistic(queries, scores, table)
    i, j = (np.concatenate(part) for part in zip(*iter_pairs(queries), strict=True))
    d = scores[i] - scores[j]
    w = table[queries.group[i], queries.group[j]]
    t = 1 / (1 + np.exp(d))
    gradient = np.bincount(j, w * t, len(scores)) - np.bincount(i, w * t, len(scores))
    np.testing.assert_allclose(ours.gradient, gradient, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(ours.loss, np.sum(w * np.logaddexp(0, -d)), rtol=1e-10)


@pytest.mark.parametrize("threads", ["2", "3", "7"])
def test_threads_change_nothing(threads, monkeypatch):
    queries, scores, table = lists(3000, 60, 3, 3)
    monkeypatch.setenv("PAIRITY_NUM_THREADS", "1")
    one = pairwise_logistic(queries, scores, table)
    sums, counts = cell_sums(queries, scores), cell_counts(queries)
    monkeypatch.setenv("PAIRITY_NUM_THREADS", threads)
    many = pairwise_logistic(queries, scores, table)
    assert one.loss == many.loss
    assert np.array_equal(one.gradient, many.gradient)
    assert np.array_equal(one.hessian, many.hessian)
    assert np.array_equal(sums, cell_sums(queries, scores))
    assert np.array_equal(counts, cell_counts(queries))


def test_iter_pairs_lists_every_pair_once_in_blocks():
    queries, _, _ = lists(5, 30, 2, 3)
    blocks = list(iter_pairs(queries, block=100))
    assert len(blocks) > 5
    assert all(len(i) < 100 + 30 for i, _ in blocks)
    listed = {(a, b) for i, j in blocks for a, b in zip(i, j, strict=True)}
    assert listed == set(zip(*reference.pairs_of(queries), strict=True))
    assert sum(len(i) for i, _ in blocks) == len(listed)


# --- golden: four items, arithmetic a reader can redo -----------------------------------------


def golden():
    """One list: f preferred to m1, m2 and f2 preferred to nobody but m2."""
    return Queries.from_arrays(
        None, [2, 1, 0, 1], qid=[7, 7, 7, 7], sensitive_features=["f", "m", "m", "f"]
    )


def test_golden_cell_means():
    # labels f:2 m:1 m:0 f:1; pairs f>m(1) f>m(0) f>f(1) m(1)>m(0) f(1)>m(0)
    scores = np.array([0.5, 0.9, 0.1, 0.5])
    means = cell_means(golden(), scores)
    # f>m: 0.5<0.9 wrong, 0.5>0.1 right, 0.5>0.1 right; f>f: a tie; m>m: right; m>f: no pair
    np.testing.assert_allclose(means, [[1 / 2, 2 / 3], [np.nan, 1.0]])
    assert query_auc(golden(), scores) == pytest.approx((0.5 + 2 + 1) / 5)


def test_golden_loss_and_gradient():
    scores = np.array([0.0, 0.0, 0.0, 0.0])
    table = np.array([[1.0, 3.0], [1.0, 2.0]])
    ours = pairwise_logistic(golden(), scores, table)
    # all t are 1/2 and all h are 1/4: f>m twice for f0, once for f3 (3 each), f>f 1, m>m 2
    assert ours.loss == pytest.approx((3 + 3 + 3 + 1 + 2) * np.log(2))
    np.testing.assert_allclose(
        ours.gradient, [-(3 + 3 + 1) / 2, (3 - 2) / 2, (3 + 2 + 3) / 2, (1 - 3) / 2]
    )
    np.testing.assert_allclose(
        ours.hessian, [(3 + 3 + 1) / 4, (3 + 2) / 4, (3 + 2 + 3) / 4, (1 + 3) / 4]
    )
    assert total_weight(golden(), table) == 12


def test_golden_statistical_sums():
    scores = np.array([0.5, 0.9, 0.1, 0.5])
    means = cell_means(golden(), scores, pairs="all")
    # f above m: each f is below 0.9 and above 0.1; f above f: the tie, in both orders
    np.testing.assert_allclose(means, [[1 / 2, 1 / 2], [1 / 2, 1 / 2]])


@pytest.mark.parametrize("average", ["query", "pair"])
def test_shares_of_a_mean_add_up_to_it(average):
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 4, (20, 3)).astype(np.float64)
    counts[:, 2] = 0.0  # a cell without pairs
    sums, weight = counts * rng.random((20, 3)), rng.random(20)
    weight[3] = 0.0
    mean = mean_over_queries(sums, counts, weight, average)
    shares = mean_shares(counts, weight, average)
    np.testing.assert_allclose((shares * sums).sum(axis=0), np.nan_to_num(mean), rtol=1e-12)
    assert np.isnan(mean[2])
