"""Losses: golden numbers, slow obvious versions, linearity in the table, threads, LightGBM."""

from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime

from pairity import InputError, Queries
from pairity.pairs.kernels import hinge as hinge_kernels
from pairity.pairs.losses import LOSSES, Hinge, LambdaRank, Logistic, Sampled, as_loss, two_hinges
from support import reference

EVERY = [
    Logistic(),
    Hinge(),
    Hinge(margin=0.3),
    Sampled(n_pairs=3, random_state=5),
    LambdaRank(),
    LambdaRank(k=3, sigma=0.7),
    LambdaRank(k=2, normalise=False, gains=[0, 1, 1, 4, 9]),
]
FIXED = [loss for loss in EVERY if not isinstance(loss, Sampled)]  # no draws, which belong to rows
named = pytest.mark.parametrize("loss", EVERY, ids=repr)


# --- slow, obvious versions --------------------------------------------------------------------


def weights(queries, table, i, j):
    w = queries.pad(table)[queries.group[i], queries.group[j]]
    return w * reference.pair_weight(queries, i, j) * queries.weight_of_query[queries.query[i]]


def gathered(queries, i, j, force, curve):
    """Each pair's force at its two items, with opposite signs, and its curve at both."""
    gradient, hessian = np.zeros(queries.n_items), np.zeros(queries.n_items)
    np.add.at(gradient, i, -force)
    np.add.at(gradient, j, force)
    np.add.at(hessian, i, curve)
    np.add.at(hessian, j, curve)
    return gradient, hessian


def slow_hinge(loss, scores, queries, table):
    i, j = reference.pairs_of(queries)
    d = scores[i] - scores[j]
    w = weights(queries, table, i, j) * (d < loss.margin)
    return (*gathered(queries, i, j, w, w / loss.margin), np.sum(w * (loss.margin - d)))


def close(actual, expected, *, rtol=1e-10, scale=None):
    scale = np.max(np.abs(expected), initial=0.0) if scale is None else scale
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=1e-13 * scale + 1e-300)


# --- data ----------------------------------------------------------------------------------------


def graded(queries, n_labels=5):
    """The same lists with labels 0 to 4."""
    return Queries.from_arrays(**{**queries, "y": queries.y % n_labels})


def signed_table(queries, seed):
    """Entries from -1 to 2, some of them zero."""
    rng = np.random.default_rng(seed)
    size = (queries.n_groups, queries.n_groups)
    return rng.uniform(-1.0, 2.0, size) * (rng.random(size) < 0.8)


def lists(n_queries, n_items, n_groups, n_labels, seed=0):
    rng = np.random.default_rng(seed)
    n = n_queries * n_items
    queries = Queries.from_arrays(
        None, rng.integers(0, n_labels, n), qid=np.repeat(np.arange(n_queries), n_items),
        sensitive_features=rng.integers(0, n_groups, n),
        sample_weight=rng.integers(0, 3, n).astype(float) if seed else None,
    )  # fmt: skip
    return queries, rng.normal(size=n) * 2, rng.uniform(0, 2, (n_groups, n_groups))


data = st.tuples(reference.ranked_lists(), st.integers(0, 999))


# --- against the slow versions -------------------------------------------------------------------


@given(data, st.sampled_from([1e-3, 0.5, 1.0, 7.0]), st.booleans())
@settings(max_examples=200, deadline=None)
def test_hinge_equals_the_slow_version(data, margin, swept):
    (queries, scores), seed = data
    loss, table = Hinge(margin=margin), signed_table(queries, seed)
    gradient, hessian, value = slow_hinge(loss, scores.astype(float), queries, table)
    with pytest.MonkeyPatch.context() as patch:
        if swept:
            patch.setattr(hinge_kernels, "SHORT", 0)
        ours = loss.derivatives(queries, scores, table)
        ours_value = loss.value(queries, scores, table)
    size = reference.pair_weight(queries, *reference.pairs_of(queries)).sum() * 3
    close(ours[0], gradient, scale=size)
    close(ours[1], hessian, scale=size / margin)
    largest = 1.0 + np.abs(scores).max()  # the loss is a difference of sums
    np.testing.assert_allclose(ours_value, value, rtol=1e-10, atol=1e-12 * size * largest)


@given(data, st.booleans())
@settings(max_examples=100, deadline=None)
def test_the_other_side_of_the_hinge_is_that_of_the_negated_scores(data, swept):
    """Labels turned around make the same pairs with the sides exchanged."""
    (queries, scores), seed = data
    table, other = np.abs(signed_table(queries, seed)), np.abs(signed_table(queries, seed + 1))
    other = queries.pad(other, fill=0.0)
    with pytest.MonkeyPatch.context() as patch:
        if swept:
            patch.setattr(hinge_kernels, "SHORT", 0)
        both = two_hinges(queries, scores, table, other, margin=0.5)
        plain = two_hinges(queries, scores, table, margin=0.5)
        turned = two_hinges(replace(queries, y=-queries.y), scores, other.T, margin=0.5)
    size = reference.pair_weight(queries, *reference.pairs_of(queries)).sum() * 6
    for ours, first, second in zip(both, plain, turned, strict=True):
        atol = 1e-12 * size * (1.0 + np.abs(scores).max())
        np.testing.assert_allclose(ours, first + second, rtol=1e-10, atol=atol)


@given(data, st.sampled_from([loss for loss in EVERY if isinstance(loss, LambdaRank)]))
@settings(max_examples=300, deadline=None)
def test_lambdarank_equals_the_slow_version(data, loss):
    (queries, scores), seed = data
    queries, table = graded(queries), signed_table(queries, seed)
    expected = reference.lambdarank(loss, scores.astype(float), queries, table)
    for ours, slow in zip(loss.derivatives(queries, scores, table), expected, strict=True):
        assert np.isfinite(ours).all()
        close(ours, slow)


@pytest.mark.parametrize("n_labels", [2, 5])
@pytest.mark.parametrize("n_items", [7, 31, 120, 300])
@pytest.mark.parametrize("loss", [LambdaRank(), LambdaRank(k=10, sigma=2.0)], ids=repr)
def test_lambdarank_on_longer_lists(loss, n_items, n_labels):
    for seed, wide, tied in product((0, 1), (1.0, 1e4), (False, True)):
        queries, scores, table = lists(2, n_items, 3, n_labels, seed)
        scores = wide * (np.round(2 * scores) if tied else scores)
        expected = reference.lambdarank(loss, scores, queries, table)
        for ours, slow in zip(loss.derivatives(queries, scores, table), expected, strict=True):
            close(ours, slow)


@pytest.mark.parametrize("k", range(1, 7))
@pytest.mark.parametrize("tied", ["aaaaaa", "aaabbb", "abbbbc", "aabbcc", "aaaabc", "abcccc"])
def test_ties_are_the_mean_over_all_orders_of_the_tied(tied, k):
    """Without the normalisation, whose factor is not linear: every order, one by one."""
    queries, _, table = lists(1, 6, 2, 4, seed=6)
    loss, scores = LambdaRank(k=k, normalise=False), -np.array([ord(c) for c in tied]) / 3.0
    one_by_one = []
    for order in permutations(range(6)):
        if (np.diff(scores[list(order)]) <= 0).all():
            places = [(order.index(i),) for i in range(6)]
            one_by_one.append(reference.lambdarank(loss, scores, queries, table, places))
    for ours, mean in zip(
        loss.derivatives(queries, scores, table), np.mean(one_by_one, axis=0), strict=True
    ):
        close(ours, mean)
        assert ours.any()


@pytest.mark.parametrize("n_items", [hinge_kernels.SHORT, hinge_kernels.SHORT + 1])
def test_hinge_on_both_sides_of_the_sweep(n_items):
    queries, scores, table = lists(1, n_items, 3, 4, seed=2)
    gradient, hessian, value = slow_hinge(Hinge(), scores, queries, table)
    ours = Hinge().derivatives(queries, scores, table)
    np.testing.assert_allclose(ours[0], gradient, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ours[1], hessian, rtol=1e-9)
    assert Hinge().value(queries, scores, table) == pytest.approx(value)


@given(data)
@settings(max_examples=50, deadline=None)
def test_logistic_and_enough_draws_are_the_logistic_loss(data):
    (queries, scores), seed = data
    table = signed_table(queries, seed)
    value, gradient, hessian, _ = reference.logistic(queries, scores.astype(float), table)
    size = reference.logistic(queries, scores.astype(float), np.abs(table))[2].max(initial=0.0)
    for loss in (Logistic(), Sampled(n_pairs=24)):  # every item takes all its lower ones
        ours = loss.derivatives(queries, scores, table, iteration=7)
        close(ours[0], gradient, scale=100 * queries.n_items)
        close(ours[1], hessian, scale=100 * size)
        if np.isfinite(value):
            np.testing.assert_allclose(
                loss.value(queries, scores, table), value,
                rtol=1e-9, atol=1e-11 * (1 + np.abs(scores).max()) * 100,
            )  # fmt: skip


def test_long_lists_take_little_time_and_memory():
    rng = np.random.default_rng(0)
    n = 200_000  # 4.2e9 pairs and more
    queries = Queries.from_arrays(
        None, rng.integers(0, 3, n), qid=np.zeros(n, int), sensitive_features=rng.integers(0, 2, n)
    )
    spread = rng.normal(size=n)
    few = np.round(3 * spread)  # some thousands of items share the ranks around k
    for loss, scores in product(
        (Hinge(), Sampled(n_pairs=3), LambdaRank()), (spread, few, np.zeros(n))
    ):
        gradient, hessian = loss.derivatives(queries, scores, [[1, 2], [0, 1]])
        assert np.isfinite(gradient).all()
        assert (hessian >= 0).all()
        assert abs(gradient.sum()) < 1e-9 * np.abs(gradient).sum()


# --- golden --------------------------------------------------------------------------------------


def golden(y, groups="fmmf"):
    return Queries.from_arrays(None, y, qid=[7] * len(y), sensitive_features=list(groups))


def test_golden_hinge():
    # labels f:2 m:1 m:0 f:1; scores 3, 2.5, 2, 0; table f>f 1, f>m 3, m>f 5, m>m 2
    queries, scores = golden([2, 1, 0, 1]), np.array([3.0, 2.5, 2.0, 0.0])
    table = np.array([[1.0, 3.0], [5.0, 2.0]])
    # f>m(1) is 0.5 apart: violated by 0.5; f>m(0) is exactly 1 apart and f>f 3 apart: nothing;
    # m>m is 0.5 apart: by 0.5; f(1)>m(0) is the wrong way by 2: violated by 3
    gradient, hessian = Hinge().derivatives(queries, scores, table)
    np.testing.assert_allclose(gradient, [-3, 3 - 2, 2 + 3, -3])
    np.testing.assert_allclose(hessian, [3, 3 + 2, 2 + 3, 3])
    assert Hinge().value(queries, scores, table) == pytest.approx(3 * 0.5 + 2 * 0.5 + 3 * 3)
    # a margin of 2 takes in f>m(0), 1 apart; the curvature is the pairs' weight over the margin
    gradient, hessian = Hinge(margin=2).derivatives(queries, scores, table)
    np.testing.assert_allclose(gradient, [-3 - 3, 3 - 2, 3 + 2 + 3, -3])
    np.testing.assert_allclose(hessian, np.array([3 + 3, 3 + 2, 3 + 2 + 3, 3]) / 2)


def test_golden_lambdarank():
    # ranks as in the list: m:0 (rank 0), f:2 (1), m:1 (2), f:0 (3); gains 0, 3, 1, 0
    queries = golden([0, 2, 1, 0], "mfmf")
    scores = np.log([8.0, 4.0, 2.0, 1.0])
    table = np.array([[1.0, 3.0], [5.0, 2.0]])
    d = 1 / np.log2([2, 3, 4, 5])
    ideal = 3 * d[0] + 1 * d[1]
    # pairs (1,0) f>m 3, (1,2) f>m 3, (1,3) f>f 1, (2,0) m>m 2, (2,3) m>f 5
    # p = 1 / (1 + e^(s_i - s_j)), where e^(s_i - s_j) is 1/2, 2, 4, 1/4, 2
    p10, p12, p13, p20, p23 = 2 / 3, 1 / 3, 1 / 5, 4 / 5, 1 / 3
    f10, f12 = 3 * (d[0] - d[1]) / ideal * p10, 2 * (d[1] - d[2]) / ideal * p12
    f13, f20 = 3 * (d[1] - d[3]) / ideal * p13, 1 * (d[0] - d[2]) / ideal * p20
    f23 = 1 * (d[2] - d[3]) / ideal * p23
    expected = [
        3 * f10 + 2 * f20,
        -3 * f10 - 3 * f12 - 1 * f13,
        3 * f12 - 2 * f20 - 5 * f23,
        1 * f13 + 5 * f23,
    ]
    curved = [
        3 * f10 * (1 - p10) + 2 * f20 * (1 - p20),
        3 * f10 * (1 - p10) + 3 * f12 * (1 - p12) + 1 * f13 * (1 - p13),
        3 * f12 * (1 - p12) + 2 * f20 * (1 - p20) + 5 * f23 * (1 - p23),
        1 * f13 * (1 - p13) + 5 * f23 * (1 - p23),
    ]
    gradient, hessian = LambdaRank(normalise=False).derivatives(queries, scores, table)
    np.testing.assert_allclose(gradient, expected)
    np.testing.assert_allclose(hessian, curved)
    # k = 1 keeps the pairs of the first item, (1,0) and (2,0); the best list's DCG@1 is 3
    gradient, _ = LambdaRank(k=1, normalise=False).derivatives(queries, scores, table)
    f10, f20 = 3 * (d[0] - d[1]) / 3 * p10, 1 * (d[0] - d[2]) / 3 * p20
    np.testing.assert_allclose(gradient, [3 * f10 + 2 * f20, -3 * f10, -2 * f20, 0])


def test_golden_lambdarank_normalised():
    # the wrong item first by log 3: p = 3/4, DCG changes by 1 - 1/log2(3), the best DCG is 1
    queries, scores = golden([0, 1], "fm"), np.log([3.0, 1.0])
    force = (1 - 1 / np.log2(3)) / (0.01 + np.log(3)) * 0.75
    factor = np.log2(1 + 2 * force) / (2 * force)  # without the table's 5
    gradient, hessian = LambdaRank().derivatives(queries, scores, [[1, 1], [5, 1]])
    np.testing.assert_allclose(gradient, np.array([5, -5]) * force * factor)
    np.testing.assert_allclose(hessian, np.array([5, 5]) * force * factor / 4)


def test_golden_lambdarank_of_ties():
    # scores 2 | 1 1 1 | 0: the last four share no rank with the first, and k = 2 cuts the three
    queries, scores = golden([0, 2, 1, 0, 1], "fffff"), np.array([2.0, 1.0, 1.0, 1.0, 0.0])
    d = 1 / np.log2([2, 3, 4, 5, 6])
    ideal = 3 * d[0] + 1 * d[1]
    high = d[0] - d[1:4].mean()  # the first and one of the three
    even = (d[1] - d[2] + d[1] - d[3]) / 3  # two of the three, if one of them comes second
    low = (d[1] - d[4]) / 3  # one of the three and the last, if that one comes second
    wrong, right = 1 / (1 + np.exp([-1, 1]))  # p of a pair a score of 1 apart, and of two it is
    far = 1 / (1 + np.exp(-2))
    f10, f20, f40 = 3 * high * wrong, 1 * high * wrong, 1 * (d[0] - d[4]) * far
    f12, f13, f14, f23 = 2 * even / 2, 3 * even / 2, 2 * low * right, 1 * even / 2
    f43 = 1 * low * wrong
    expected = [f10 + f20 + f40, -f10 - f12 - f13 - f14, f12 - f20 - f23, f13 + f23 + f43]
    expected.append(f14 - f40 - f43)
    gradient, _ = LambdaRank(k=2, normalise=False).derivatives(queries, scores, [[1]])
    np.testing.assert_allclose(gradient, np.array(expected) / ideal)


def test_golden_draws_stand_for_all_lower_items():
    # one preferred item above five: each of the two draws stands for 5/2 pairs, t = 1/2, h = 1/4
    queries = golden([1, 0, 0, 0, 0, 0], "fmmmmm")
    gradient, hessian = Sampled(n_pairs=2).derivatives(queries, np.zeros(6), [[1, 3], [1, 1]])
    assert gradient[0] == pytest.approx(-3 * 5 / 2)
    assert hessian[0] == pytest.approx(3 * 5 / 4)
    assert set(np.unique(gradient[1:])) <= {0.0, 3 * 2.5 / 2, 3 * 2.5}
    assert gradient[1:].sum() == pytest.approx(3 * 5 / 2)


# --- draws ---------------------------------------------------------------------------------------


def test_the_mean_of_many_draws_is_the_full_gradient():
    queries, scores, table = lists(3, 30, 3, 3, seed=4)
    full = Logistic().derivatives(queries, scores, table)
    n = 4000
    draws = np.array(
        [Sampled(2).derivatives(queries, scores, table, iteration=t) for t in range(n)]
    )
    error = draws.std(axis=0) / np.sqrt(n)
    z = (draws.mean(axis=0) - full)[error > 0] / error[error > 0]
    assert np.abs(z).max() < 4.5  # 180 numbers
    assert np.abs(np.mean(z**2) - 1) < 0.5
    np.testing.assert_allclose(draws.mean(axis=0)[error == 0], np.array(full)[error == 0])


def test_draws_follow_seed_and_iteration():
    queries, scores, table = lists(3, 30, 2, 2)

    def gradient(seed, iteration):
        return Sampled(2, seed).derivatives(queries, scores, table, iteration=iteration)[0]

    assert np.array_equal(gradient(1, 5), gradient(1, 5))
    seen = [gradient(seed, iteration) for seed in range(4) for iteration in range(4)]
    assert len({g.tobytes() for g in seen}) == 16  # no (seed, iteration) repeats another


# --- properties of every loss --------------------------------------------------------------------


def all_grouped(queries):
    """The same lists with a missing group as one group more, since its pairs' weight is fixed."""
    return Queries.from_arrays(**{**queries, "sensitive_features": queries.group.astype(str)})


@named
@given(data=data, c=st.sampled_from([0.25, 3.0, -1.0]))
@settings(max_examples=30, deadline=None)
def test_derivatives_are_the_sum_of_each_cell_times_its_weight(loss, data, c):
    (queries, scores), seed = data
    queries = all_grouped(graded(queries))
    table = signed_table(queries, seed)
    ours = np.array(loss.derivatives(queries, scores, table))
    cells = np.zeros((2, *table.shape, queries.n_items))
    for cell in np.ndindex(table.shape):
        alone = np.zeros(table.shape)
        alone[cell] = 1.0
        cells[(slice(None), *cell)] = loss.derivatives(queries, scores, alone)
    size = 10 * np.abs(cells).sum(axis=(1, 2)).max(initial=0.0)
    close(ours, np.einsum("dkli,kl->di", cells, table), scale=size)  # a zero drops its cell
    close(np.array(loss.derivatives(queries, scores, c * table)), c * ours, scale=size)
    whole = np.array(loss.derivatives(queries, scores, table + 2.0))
    plain = np.array(loss.derivatives(queries, scores, np.ones(table.shape)))
    close(whole, ours + plain + plain, scale=size)  # a whole weight adds pairs


@pytest.mark.parametrize("loss", FIXED, ids=repr)
@given(data=data)
@settings(max_examples=30, deadline=None)
def test_a_table_of_ones_is_no_table(loss, data):
    (queries, scores), _ = data
    queries = graded(queries)
    keys = [key for key in queries if key != "sensitive_features"]
    without = Queries.from_arrays(**{key: queries[key] for key in keys})
    ours = loss.derivatives(queries, scores, np.ones((queries.n_groups, queries.n_groups)))
    plain = loss.derivatives(without, scores, np.ones((0, 0)))
    close(np.array(ours), np.array(plain), scale=10 * np.abs(plain).max())


@pytest.mark.parametrize("loss", FIXED, ids=repr)
@given(data=data, level=st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_order_of_rows_does_not_matter(loss, data, level):
    (queries, scores), seed = data
    queries = graded(queries)
    scores = np.zeros(len(scores)) if level else scores  # as before the first tree
    rows = np.random.default_rng(seed).permutation(queries.n_items)
    shuffled = Queries.from_arrays(**{key: np.asarray(queries[key])[rows] for key in queries})
    table = signed_table(queries, seed)
    ours = np.array(loss.derivatives(queries, scores, table))
    theirs = np.array(loss.derivatives(shuffled.with_groups_of(queries), scores[rows], table))
    close(ours[:, rows], theirs, scale=100 * np.abs(ours).max())


@named
@given(data=data)
@settings(max_examples=30, deadline=None)
def test_the_gradient_of_a_list_adds_up_to_nothing(loss, data):
    (queries, scores), seed = data
    queries, table = graded(queries), signed_table(queries, seed)
    gradient, hessian = loss.derivatives(queries, scores, np.abs(table))
    sums = np.bincount(queries.query, gradient, queries.n_queries)
    assert np.abs(sums).max() <= 1e-12 * np.abs(gradient).sum() + 1e-300
    assert (hessian >= 0).all()
    alone = np.bincount(queries.query)[queries.query] == 1
    assert not gradient[alone].any()
    assert not hessian[alone].any()


def test_lists_without_a_pair_are_zero():
    queries = Queries.from_arrays(None, [1, 0, 0, 3, 3], qid=[0, 1, 1, 2, 2])
    for loss in EVERY:
        for part in loss.derivatives(queries, np.arange(5.0), np.ones((0, 0))):
            assert not part.any()


def test_gains_that_do_not_tell_labels_apart_give_no_force():
    queries = Queries.from_arrays(None, [0, 1, 1], qid=[0, 0, 0])
    for part in LambdaRank(gains=[0, 0]).derivatives(queries, np.arange(3.0), np.ones((0, 0))):
        assert not part.any()


@pytest.mark.parametrize("loss", [Logistic(), Hinge(), Hinge(margin=3.0)], ids=repr)
@given(data=data)
@settings(max_examples=30, deadline=None)
def test_gradient_equals_finite_differences(loss, data):
    (queries, scores), seed = data
    scores = scores.astype(float) / (1e-300 + np.abs(scores).max()) * 4
    i, j = reference.pairs_of(queries)
    if isinstance(loss, Hinge):  # away from the kinks
        assume(not (np.abs(scores[i] - scores[j] - loss.margin) < 1e-5).any())
    table = signed_table(queries, seed)
    numeric = approx_fprime(scores, lambda s: loss.value(queries, s, table), 1e-7)
    ours, _ = loss.derivatives(queries, scores, table)
    np.testing.assert_allclose(ours, numeric, atol=1e-5 * (1 + np.abs(ours).max()) * len(scores))


@named
@pytest.mark.parametrize("threads", ["2", "5"])
def test_threads_change_nothing(loss, threads, monkeypatch):
    queries, spread, table = lists(2500, 60, 3, 3)
    for scores in (spread, np.round(spread, 1), np.round(spread)):
        monkeypatch.setenv("PAIRITY_NUM_THREADS", "1")
        one = loss.derivatives(queries, scores, table, iteration=2)
        monkeypatch.setenv("PAIRITY_NUM_THREADS", threads)
        many = loss.derivatives(queries, scores, table, iteration=2)
        assert np.array_equal(one[0], many[0])
        assert np.array_equal(one[1], many[1])


# --- names and mistakes --------------------------------------------------------------------------


def test_losses_by_name():
    assert [as_loss(name) for name in LOSSES] == [Logistic(), Hinge(), Sampled(), LambdaRank()]
    assert list(LOSSES) == ["logistic", "hinge", "bpr", "lambdarank"]
    mine = Hinge(margin=2.0)
    assert as_loss(mine) is mine
    assert eval(repr(LambdaRank(gains=[0, 2]))) == LambdaRank(gains=(0.0, 2.0))  # noqa: S307
    assert [name for name in LOSSES if not hasattr(as_loss(name), "value")] == ["lambdarank"]


@pytest.mark.parametrize("wrong", ["squared", Hinge, 3, None])
def test_what_is_not_a_loss(wrong):
    with pytest.raises(InputError, match=r"'logistic', 'hinge', 'bpr', 'lambdarank'"):
        as_loss(wrong)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Hinge(margin=0.0), "margin.*above 0.*0.0"),
        (lambda: Hinge(margin=np.nan), "margin.*nan"),
        (lambda: Hinge(margin="1"), "margin.*'1'"),
        (lambda: Sampled(n_pairs=0), "n_pairs.*1 or greater.*got 0"),
        (lambda: Sampled(n_pairs=2.5), r"n_pairs.*got 2\.5"),
        (lambda: Sampled(random_state=None), "random_state.*0 or greater.*got None"),
        (lambda: Sampled(random_state=2**63), r"below 2\^63"),
        (lambda: LambdaRank(k=True), "k must.*got True"),
        (lambda: LambdaRank(sigma=-1), "sigma.*-1"),
        (lambda: LambdaRank(gains=[]), "gains.*shape"),
        (lambda: LambdaRank(gains="no"), "gains is 'no'"),
        (lambda: LambdaRank(gains=[1.0, 0.0]), "must not fall"),
        (lambda: LambdaRank(gains=[-1.0, 0.0]), "0 or greater"),
    ],
)
def test_settings_that_make_no_sense(make, says):
    with pytest.raises(InputError, match=says):
        make()


@pytest.mark.parametrize(
    ("labels", "gains", "says"),
    [
        ([0, 0.5], None, r"y is 0\.5 in row 1.*logistic.*grades"),
        ([-1, 1], None, "y is -1 in row 0"),
        ([0, 31], None, "up to 31.*labels up to 30.*gains"),
        ([0, 2], [0, 1], "up to 2.*2 entries"),
    ],
)
def test_lambdarank_needs_grades(labels, gains, says):
    queries = Queries.from_arrays(None, labels, qid=[0, 0])
    with pytest.raises(InputError, match=says):
        LambdaRank(gains=gains).derivatives(queries, np.zeros(2), np.ones((0, 0)))


# --- agreement with LightGBM and XGBoost ---------------------------------------------------------


def boosted_lists(seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 150, 60)
    X = rng.normal(size=(sizes.sum(), 6)).astype(np.float32)
    z = X[:, 0] + X[:, 1] * X[:, 2] + 0.7 * rng.normal(size=len(X))
    return X, np.clip(np.round(z + 1), 0, 4), sizes


@pytest.mark.parametrize(
    "loss",
    [
        LambdaRank(),
        LambdaRank(k=5, sigma=2.0),
        LambdaRank(k=500, normalise=False),
        LambdaRank(gains=[0, 1, 2, 5, 9]),
    ],
    ids=repr,
)
def test_one_tree_equals_lightgbm(loss):
    """Where no scores tie; else LightGBM ranks in the order of rows, and we take the mean."""
    lgb = pytest.importorskip("lightgbm", reason="lightgbm is not installed")
    X, y, sizes = boosted_lists(3)
    queries = Queries.from_arrays(None, y, qid=np.repeat(np.arange(len(sizes)), sizes))
    scores = np.random.default_rng(4).normal(size=len(y))

    def objective(predictions, _):
        return loss.derivatives(queries, predictions, np.ones((0, 0)))

    settings = {
        "num_leaves": 8, "learning_rate": 1.0, "num_threads": 1, "verbose": -1,
        "lambdarank_truncation_level": loss.k, "sigmoid": loss.sigma,
        "lambdarank_norm": loss.normalise,
        "label_gain": [2**grade - 1 for grade in range(5)] if loss.gains is None else loss.gains,
    }  # fmt: skip
    trees = []
    for chosen in ("lambdarank", objective):
        data = lgb.Dataset(X, y, group=sizes, init_score=scores)
        model = lgb.train({**settings, "objective": chosen}, data, num_boost_round=1)
        trees.append(model.predict(X, raw_score=True))
    np.testing.assert_allclose(trees[1], trees[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "loss", [LambdaRank(k=32), LambdaRank(k=5), LambdaRank(k=32, normalise=False)], ids=repr
)
def test_one_tree_equals_xgboost_with_steps_and_penalties_doubled(loss):
    """XGBoost doubles the Hessian: g / (2h + 2 λ), twice as fast, is ours. No scores tie."""
    xgb = pytest.importorskip("xgboost", reason="xgboost is not installed")
    X, y, sizes = boosted_lists(3)
    queries = Queries.from_arrays(None, y, qid=np.repeat(np.arange(len(sizes)), sizes))
    own = {
        "objective": "rank:ndcg", "lambdarank_num_pair_per_sample": loss.k,
        "lambdarank_normalization": loss.normalise,
        "lambdarank_score_normalization": loss.normalise,
    }  # fmt: skip

    def objective(predictions, _):
        return loss.derivatives(queries, predictions.astype(float), np.ones((0, 0)))

    trees = []
    for times, others, chosen in ((2.0, own, None), (1.0, {}, objective)):
        params = {
            **others, "learning_rate": 0.3 * times, "reg_lambda": times,
            "min_child_weight": times, "nthread": 1, "base_score": 0.0,
            "disable_default_eval_metric": True,
        }  # fmt: skip
        begin = np.random.default_rng(4).normal(size=len(y))
        data = xgb.DMatrix(X, y, group=sizes, base_margin=begin)
        model = xgb.train(params, data, 1, obj=chosen)
        level = xgb.DMatrix(X, base_margin=np.zeros(len(y)))
        trees.append(model.predict(level, output_margin=True))
    np.testing.assert_allclose(trees[1], trees[0], rtol=1e-4, atol=1e-6)
