"""Pairs that also count in the mirrored order: losses, pairs as rows, gradients by cell."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime

from pairity import Queries
from pairity.pairs.cells import total_weight
from pairity.pairs.enumeration import iter_weighted_pairs, n_weighted_pairs
from pairity.pairs.logistic import pairwise_hessian_product, pairwise_logistic
from pairity.pairs.losses import Hinge, LambdaRank, Logistic, Sampled
from pairity.rankers._linear_data import linear_data
from support import reference

data = st.tuples(reference.ranked_lists(), st.integers(0, 999))


def all_grouped(queries):
    """The same lists with a missing group as one group more."""
    return Queries.from_arrays(**{**queries, "sensitive_features": queries.group.astype(str)})


def two_tables(queries, seed):
    rng = np.random.default_rng(seed)
    return rng.uniform(0.0, 2.0, (2, queries.n_groups, queries.n_groups))


def lists(seed=0, n_items=12, n_groups=3):
    rng = np.random.default_rng(seed)
    n = 4 * n_items
    return Queries.from_arrays(
        rng.normal(size=(n, 3)), rng.integers(0, 3, n), qid=np.repeat(np.arange(4), n_items),
        sensitive_features=rng.choice([*"abc"[:n_groups], None], n),
        sample_weight=rng.integers(1, 3, n).astype(float),
    )  # fmt: skip


@pytest.mark.parametrize("loss", [Logistic(), Hinge(), Hinge(margin=0.3)], ids=repr)
@given(data=data)
@settings(max_examples=60, deadline=None)
def test_mirrored_pairs_are_the_pairs_of_negated_labels(loss, data):
    (queries, scores), seed = data
    queries = all_grouped(queries)
    observed, mirrored = two_tables(queries, seed)
    both = loss.derivatives(queries, scores, np.stack([observed, mirrored]))
    forward = loss.derivatives(queries, scores, observed)
    backward = loss.derivatives(replace(queries, y=-queries.y), scores, mirrored.T)
    size = 10 * total_weight(queries, observed + mirrored)
    for ours, first, second in zip(both, forward, backward, strict=True):
        np.testing.assert_allclose(ours, first + second, rtol=1e-9, atol=1e-12 * size)


@given(data=data)
@settings(max_examples=30, deadline=None)
def test_enough_draws_are_the_logistic_loss(data):
    (queries, scores), seed = data
    queries = all_grouped(queries)
    tables = two_tables(queries, seed)
    expected = Logistic().derivatives(queries, scores, tables)
    drawn = Sampled(n_pairs=1000).derivatives(queries, scores, tables)
    size = total_weight(queries, tables)
    for ours, exact in zip(drawn, expected, strict=True):
        np.testing.assert_allclose(ours, exact, rtol=1e-9, atol=1e-12 * size)


@pytest.mark.parametrize("wide", [1.0, 1e4])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("loss", [LambdaRank(), LambdaRank(k=4, normalise=False)], ids=repr)
def test_a_mirrored_pair_of_lambdarank_has_the_opposite_force(loss, tied, wide):
    """With p the probability of the wrong order, the force is -δ p, and δ (1 - p) if mirrored."""
    rng = np.random.default_rng(3)
    y = np.array([2, 2, 1, 1, 0, 0, 0, 0])
    scores = wide * (rng.integers(0, 3, 8) if tied else rng.normal(size=8))
    for better, worse in ((0, 2), (1, 5), (2, 7), (3, 4)):
        weight = np.zeros(8)
        weight[[better, worse]] = 1.0  # the other items keep their ranks, but have no force
        queries = Queries.from_arrays(
            None, y, qid=np.zeros(8), sensitive_features=["a"] * 8, sample_weight=weight
        )
        observed = loss.derivatives(queries, scores, [[1.0]])
        mirrored = loss.derivatives(queries, scores, [[[0.0]], [[1.0]]])
        with np.errstate(over="ignore"):
            p = 1.0 / (1.0 + np.exp(loss.sigma * (scores[better] - scores[worse])))
        scale = np.abs(observed[0]).max() + np.abs(mirrored[0]).max()
        np.testing.assert_allclose(
            (1.0 - p) * observed[0], -p * mirrored[0], rtol=1e-8, atol=1e-12 * scale
        )
        np.testing.assert_allclose(mirrored[1], observed[1])
        both = loss.derivatives(queries, scores, [[[0.7]], [[0.2]]])
        np.testing.assert_allclose(both[0], 0.7 * observed[0] + 0.2 * mirrored[0], atol=1e-12)


@pytest.mark.parametrize("loss", [Logistic(), Hinge(), Sampled(n_pairs=5), LambdaRank()], ids=repr)
def test_pairs_with_a_missing_group_are_not_mirrored(loss):
    queries = lists()
    unknown = replace(queries, group=np.full(queries.n_items, queries.n_groups))
    scores, ones = np.arange(queries.n_items, dtype=float), np.ones((3, 3))
    plain = loss.derivatives(unknown, scores, ones)
    both = loss.derivatives(unknown, scores, np.stack([ones, 5.0 * ones]))
    np.testing.assert_array_equal(both, plain)


@pytest.mark.parametrize("margin", [0.0, 1.5])
def test_the_loss_with_a_margin_is_that_of_explicit_pairs(margin):
    queries = lists()
    tables, rng = two_tables(queries, 1), np.random.default_rng(2)
    scores = rng.normal(size=queries.n_items)
    i, j = reference.pairs_of(queries)
    a, b = queries.pad(tables)[:, queries.group[i], queries.group[j]]
    weight = reference.pair_weight(queries, i, j)
    steps = queries.y[i] - queries.y[j]  # all labels occur in every list

    def slow(scores):
        d = scores[i] - scores[j]
        terms = a * np.logaddexp(0, margin * steps - d) + b * np.logaddexp(0, margin * steps + d)
        return float(np.sum(weight * terms))

    def gradient(scores):
        return pairwise_logistic(queries, scores, tables, margin=margin).gradient

    terms = pairwise_logistic(queries, scores, tables, margin=margin)
    assert terms.loss == pytest.approx(slow(scores))
    np.testing.assert_allclose(terms.gradient, approx_fprime(scores, slow), atol=1e-4)
    vector = rng.normal(size=queries.n_items)
    product = pairwise_hessian_product(queries, scores, tables, vector, margin=margin)
    numeric = (gradient(scores + 1e-6 * vector) - gradient(scores - 1e-6 * vector)) / 2e-6
    np.testing.assert_allclose(product, numeric, atol=1e-6)


def test_pairs_are_listed_in_both_orders():
    queries = Queries.from_arrays(
        None, [1, 0, 0], qid=[0, 0, 0], sensitive_features=["f", "m", "f"]
    )
    tables = np.array([[[1.0, 3.0], [1.0, 1.0]], [[0.0, 2.0], [0.0, 0.0]]])
    assert n_weighted_pairs(queries, tables) == 3
    listed = [
        pair
        for block in iter_weighted_pairs(queries, tables)
        for pair in zip(*map(list, block), strict=True)
    ]
    # Two pairs of total weight 1 and 3 + 2: divided by their mean, 3.
    assert sorted(listed) == [(0, 1, 1.0), (0, 2, 1 / 3), (1, 0, 2 / 3)]


@pytest.mark.parametrize("margin", [0.0, 1.5])
def test_gradients_by_cell_are_those_of_tables_with_one_entry(margin):
    queries = lists()
    local, coef = linear_data(queries, margin), np.array([0.5, -1.0, 0.2])
    gradients = local.cell_gradients(coef)
    for cell in np.ndindex(2, 3, 3):
        tables = np.zeros((2, 3, 3))
        tables[cell] = 1.0
        padded = queries.pad(tables, fill=0.0)
        scores = queries.X @ coef
        one = pairwise_logistic(queries, scores, padded, margin=margin).gradient
        np.testing.assert_allclose(gradients[cell], queries.X.T @ one, atol=1e-10)
