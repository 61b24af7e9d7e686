"""Utility and fairness measures: golden lists, ties, agreement with other implementations."""

from __future__ import annotations

from itertools import pairwise, permutations
from math import log, log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy
from sklearn.metrics import average_precision_score, ndcg_score

from pairity import metrics
from pairity.data.queries import Queries
from pairity.exceptions import InputError
from pairity.metrics import (
    Positions,
    average_precision,
    awrf,
    click_to_merit,
    exposure,
    exposure_to_merit,
    merit,
    ndcg,
    ndkl,
    population_share,
    top_share,
)

PER_QUERY = {
    "ndcg": ndcg,
    "ndcg@2": lambda q, s, **options: ndcg(q, s, k=2, **options),
    "ndcg linear": lambda q, s, **options: ndcg(q, s, gain="linear", **options),
    "average_precision": average_precision,
    "awrf": awrf,
    "awrf relevant": lambda q, s, **options: awrf(q, s, target="relevant", **options),
    "ndkl": ndkl,
    "ndkl relevant": lambda q, s, **options: ndkl(q, s, target="relevant", **options),
}
BY_GROUP = {
    "exposure": exposure,
    "exposure trec": lambda q, s, **options: exposure(q, s, discount="trec", **options),
    "exposure_to_merit": exposure_to_merit,
    "click_to_merit": click_to_merit,
    "top_share@2": lambda q, s, **options: top_share(q, s, k=2, **options),
}
MEASURES = {**PER_QUERY, **BY_GROUP}
every_measure = pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES)
slowly = settings(max_examples=80, deadline=None, derandomize=True)


def one_query(y, groups=None):
    return Queries.from_arrays(None, y, qid=[1] * len(y), sensitive_features=groups)


def random_table(seed, n_queries=40, n_scores=4):
    """Rows in no order, of queries with 1 to 9 items, whose scores are often tied."""
    rng = np.random.default_rng(seed)
    qid = rng.permutation(np.repeat(np.arange(n_queries), rng.integers(1, 10, n_queries)))
    y = rng.integers(0, 4, len(qid)) * rng.integers(0, 2, len(qid))
    groups = rng.choice(np.array(["a", "b", "c", None], dtype=object), len(qid))
    return y, qid, groups, rng.integers(0, n_scores, len(qid)).astype(float)


def random_queries(seed):
    y, qid, groups, scores = random_table(seed)
    return Queries.from_arrays(None, y, qid=qid, sensitive_features=groups), scores


# --- golden: five items, ranked b a a b a, with the labels 2 0 1 1 0 ---------------------------

SECOND, THIRD, FOURTH, FIFTH = 1 / log2(3), 1 / log2(4), 1 / log2(5), 1 / log2(6)
GOLDEN = one_query([2, 0, 1, 1, 0], list("baaba"))
FALLING = [0.9, 0.8, 0.7, 0.6, 0.5]


def test_ndcg_golden():
    exponential = (3 * 1 + 1 * THIRD + 1 * FOURTH) / (3 * 1 + 1 * SECOND + 1 * THIRD)
    linear = (2 * 1 + 1 * THIRD + 1 * FOURTH) / (2 * 1 + 1 * SECOND + 1 * THIRD)
    at_two = 3 * 1 / (3 * 1 + 1 * SECOND)
    assert ndcg(GOLDEN, FALLING) == pytest.approx([exponential])
    assert ndcg(GOLDEN, FALLING, gain="linear") == pytest.approx([linear])
    assert ndcg(GOLDEN, FALLING, k=2) == pytest.approx([at_two])
    assert ndcg(GOLDEN, FALLING, k=99) == pytest.approx([exponential])


def test_ndcg_shares_the_discount_of_ties():
    tied = [0.9, 0.7, 0.7, 0.6, 0.5]  # the label 1 has the second or the third position
    middle = (SECOND + THIRD) / 2
    best = 3 * 1 + 1 * SECOND + 1 * THIRD
    assert ndcg(GOLDEN, tied) == pytest.approx([(3 * 1 + 1 * middle + 1 * FOURTH) / best])
    assert ndcg(GOLDEN, tied, k=2) == pytest.approx([(3 + SECOND / 2) / (3 + SECOND)])


def test_average_precision_golden():
    assert average_precision(GOLDEN, FALLING) == pytest.approx([(1 / 1 + 2 / 3 + 3 / 4) / 3])
    assert average_precision(GOLDEN, FALLING, relevant_above=1) == pytest.approx([1 / 1])
    tied = [0.9, 0.7, 0.7, 0.6, 0.5]  # the second and third are one threshold
    assert average_precision(GOLDEN, tied) == pytest.approx([(1 / 1 + 2 / 3 + 3 / 4) / 3])
    tied = [0.9, 0.8, 0.7, 0.7, 0.7]
    assert average_precision(GOLDEN, tied) == pytest.approx([(1 / 1 + 3 / 5 + 3 / 5) / 3])


def test_exposure_golden():
    a, b = (SECOND + THIRD + FIFTH) / 3, (1 + FOURTH) / 2
    assert exposure(GOLDEN, FALLING) == pytest.approx(np.array([[a, b]]))
    trec_a, trec_b = (1 + 1 / log2(3) + 1 / log2(5)) / 3, (1 + 1 / log2(4)) / 2
    assert exposure(GOLDEN, FALLING, discount="trec") == pytest.approx(np.array([[trec_a, trec_b]]))


def test_merit_and_ratios_golden():
    merit_a, merit_b = (0 + 1 + 0) / 3, (2 + 1) / 2
    assert merit(GOLDEN) == pytest.approx(np.array([[merit_a, merit_b]]))
    seen = [(SECOND + THIRD + FIFTH) / 3 / merit_a, (1 + FOURTH) / 2 / merit_b]
    assert exposure_to_merit(GOLDEN, FALLING) == pytest.approx(np.array([seen]))
    clicked = [1 * THIRD / 3 / merit_a, (2 * 1 + 1 * FOURTH) / 2 / merit_b]
    assert click_to_merit(GOLDEN, FALLING) == pytest.approx(np.array([clicked]))


def test_shares_golden():
    assert population_share(GOLDEN) == pytest.approx(np.array([[3 / 5, 2 / 5]]))
    assert top_share(GOLDEN, FALLING, k=1) == pytest.approx(np.array([[0, 1]]))
    assert top_share(GOLDEN, FALLING, k=3) == pytest.approx(np.array([[2 / 3, 1 / 3]]))
    assert top_share(GOLDEN, FALLING, k=9) == pytest.approx(np.array([[3 / 5, 2 / 5]]))
    tied = [0.9, 0.8, 0.7, 0.7, 0.7]  # the third position: two in three for a
    assert top_share(GOLDEN, tied, k=3) == pytest.approx(
        np.array([[(1 + 2 / 3) / 3, (1 + 1 / 3) / 3]])
    )


def test_awrf_golden():
    # Ranked a a b, attention 1, 1, 1/log2(3) = 0.631: a gets 2 / 2.631, the target is 2/3.
    queries = one_query([1, 0, 1], list("aab"))
    a, b = 2 / (2 + SECOND), SECOND / (2 + SECOND)
    middle_a, middle_b = (a + 2 / 3) / 2, (b + 1 / 3) / 2
    ours = a * log2(a / middle_a) + b * log2(b / middle_b)
    theirs = 2 / 3 * log2(2 / 3 / middle_a) + 1 / 3 * log2(1 / 3 / middle_b)
    assert awrf(queries, [3, 2, 1]) == pytest.approx([1 - (ours + theirs) / 2])
    assert awrf(queries, [3, 2, 1], target=[a, b]) == pytest.approx([1.0])
    assert awrf(queries, [3, 2, 1], target="relevant") == pytest.approx(
        awrf(queries, [3, 2, 1], target=[1 / 2, 1 / 2])
    )


def test_awrf_is_zero_where_attention_and_target_have_nothing_in_common():
    queries = Queries.from_arrays(None, [1, 1], qid=[1, 2], sensitive_features=["a", "b"])
    assert awrf(queries, [0, 0], target=[1, 0]) == pytest.approx([1.0, 0.0])


def test_awrf_in_nats_is_what_trec_computes():
    queries, scores = random_queries(3)
    goal = np.array([0.5, 0.3, 0.2])
    sums = exposure(queries, scores, discount="trec") * population_share(queries)
    held = np.nan_to_num(sums)
    with np.errstate(invalid="ignore"):
        trec = [1 - jensenshannon(row, goal) ** 2 for row in held]
    ours = awrf(queries, scores, target=goal)
    np.testing.assert_allclose(1 - log(2) * (1 - ours), trec)


def test_ndkl_golden():
    # Ranked a a b b: prefixes {a}, {a}, {a: 2/3, b: 1/3}, {a: 1/2, b: 1/2}; the target is 1/2.
    queries = one_query([1, 1, 0, 0], list("aabb"))
    third = 2 / 3 * log(2 / 3 / (1 / 2)) + 1 / 3 * log(1 / 3 / (1 / 2))
    total = log(2) * 1 + log(2) * SECOND + third * THIRD + 0 * FOURTH
    norm = 1 + SECOND + THIRD + FOURTH
    assert ndkl(queries, [4, 3, 2, 1]) == pytest.approx([total / norm])
    last = 1 / 2 * log(1 / 2 / (3 / 4)) + 1 / 2 * log(1 / 2 / (1 / 4))
    third = 2 / 3 * log(2 / 3 / (3 / 4)) + 1 / 3 * log(1 / 3 / (1 / 4))
    total = log(4 / 3) * (1 + SECOND) + third * THIRD + last * FOURTH
    assert ndkl(queries, [4, 3, 2, 1], target=[3 / 4, 1 / 4]) == pytest.approx([total / norm])


def test_ndkl_of_one_tie_is_zero():
    assert ndkl(GOLDEN, np.zeros(5)).tolist() == pytest.approx([0.0], abs=1e-15)
    # A tie of a and b behind an a: expected counts 1, 1.5 : 0.5, 2 : 1, against 2/3 and 1/3.
    second = 3 / 4 * log(3 / 4 / (2 / 3)) + 1 / 4 * log(1 / 4 / (1 / 3))
    total = log(3 / 2) * 1 + second * SECOND + 0 * THIRD
    norm = 1 + SECOND + THIRD
    assert ndkl(one_query([0, 0, 0], list("aab")), [2, 1, 1]) == pytest.approx([total / norm])


# --- where measures are not defined, and what is refused ------------------------------------------


def test_queries_of_one_item():
    queries = Queries.from_arrays(None, [1, 0], qid=[1, 2], sensitive_features=["a", "b"])
    nan = np.nan
    np.testing.assert_array_equal(ndcg(queries, [0, 0]), [1, nan])
    np.testing.assert_array_equal(average_precision(queries, [0, 0]), [1, nan])
    np.testing.assert_array_equal(exposure(queries, [0, 0]), [[1, nan], [nan, 1]])
    np.testing.assert_array_equal(merit(queries), [[1, nan], [nan, 0]])
    np.testing.assert_array_equal(exposure_to_merit(queries, [0, 0]), [[1, nan], [nan, nan]])
    np.testing.assert_array_equal(click_to_merit(queries, [0, 0]), [[1, nan], [nan, nan]])
    np.testing.assert_array_equal(top_share(queries, [0, 0], k=5), [[1, 0], [0, 1]])
    np.testing.assert_array_equal(awrf(queries, [0, 0]), [1, 1])
    np.testing.assert_array_equal(awrf(queries, [0, 0], target="relevant"), [1, nan])
    np.testing.assert_array_equal(ndkl(queries, [0, 0]), [0, 0])


def test_a_missing_group_takes_a_position_but_no_share():
    queries = one_query([1, 1, 0, 1], [None, "a", "b", "a"])
    scores = [4, 3, 2, 1]
    seen = [(SECOND + FOURTH) / 2, THIRD]
    assert exposure(queries, scores) == pytest.approx(np.array([seen]))
    assert top_share(queries, scores, k=2) == pytest.approx(np.array([[1 / 2, 0]]))
    assert population_share(queries) == pytest.approx(np.array([[2 / 4, 1 / 4]]))
    best = 1 + SECOND + THIRD
    assert ndcg(queries, scores) == pytest.approx([(1 + SECOND + FOURTH) / best])
    # Prefixes {}, {a}, {a, b}, {a: 2/3, b: 1/3} against 2/3 and 1/3; the first is left out.
    half = 1 / 2 * log(1 / 2 / (2 / 3)) + 1 / 2 * log(1 / 2 / (1 / 3))
    total, norm = log(3 / 2) * SECOND + half * THIRD, SECOND + THIRD + FOURTH
    assert ndkl(queries, scores) == pytest.approx([total / norm])


@pytest.mark.parametrize("groups", [None, [None, None]])
def test_no_known_group_at_all(groups):
    queries = one_query([1, 0], groups)
    assert ndcg(queries, [2, 1]) == pytest.approx([1.0])
    assert exposure(queries, [2, 1]).shape == (1, 0)
    assert top_share(queries, [2, 1], k=1).shape == (1, 0)
    assert np.isnan(awrf(queries, [2, 1])).all()
    assert np.isnan(ndkl(queries, [2, 1])).all()


def test_a_query_without_known_group_among_others():
    queries = Queries.from_arrays(
        None, [1, 0, 1], qid=[1, 1, 2], sensitive_features=["a", "b", None]
    )
    for measure in (awrf, ndkl):
        np.testing.assert_array_equal(np.isnan(measure(queries, [2, 1, 1])), [False, True])
    assert np.isnan(exposure(queries, [2, 1, 1])[1]).all()


def test_a_query_with_one_group_is_at_parity_with_its_population():
    queries = one_query([1, 0, 1], ["a", "a", "a"])
    assert awrf(queries, [3, 2, 1]) == pytest.approx([1.0])
    assert ndkl(queries, [3, 2, 1]) == pytest.approx([0.0])


def test_negative_labels_leave_their_query_undefined():
    queries = Queries.from_arrays(
        None, [1, -1, 1, 0], qid=[1, 1, 2, 2], sensitive_features=list("abab")
    )
    for measure in (ndcg, exposure_to_merit, click_to_merit):
        assert np.isnan(measure(queries, [1, 2, 3, 4])[0]).all()
        assert not np.isnan(measure(queries, [1, 2, 3, 4])[1]).all()
    np.testing.assert_array_equal(merit(queries), [[np.nan, np.nan], [1, 0]])


def test_ndkl_is_undefined_where_a_group_has_no_relevant_item():
    queries = Queries.from_arrays(
        None, [1, 0, 1, 1], qid=[1, 1, 2, 2], sensitive_features=list("abab")
    )
    value = ndkl(queries, [2, 1, 2, 1], target="relevant")
    np.testing.assert_allclose(value, [np.nan, ndkl(queries, [2, 1, 2, 1])[1]])


def test_a_target_of_zero_is_refused_for_a_group_that_occurs():
    queries = Queries.from_arrays(None, [1, 0, 1], qid=[1, 1, 2], sensitive_features=list("aab"))
    with pytest.raises(InputError, match=r"'b' is 0, but it has 1 items"):
        ndkl(queries, [1, 2, 3], target=[1, 0])
    assert ndkl(queries.take([0]), [1, 2], target=[1, 0]) == pytest.approx([0.0])


@pytest.mark.parametrize("target", [[0.5, 0.6], [1.5, -0.5], [1.0], [[0.5, 0.5]], [np.nan, 1.0]])
@pytest.mark.parametrize("measure", [awrf, ndkl])
def test_targets_that_are_not_probabilities_are_refused(measure, target):
    with pytest.raises(InputError, match=r"\('a', 'b'\)"):
        measure(GOLDEN, FALLING, target=target)


def test_high_labels_need_the_linear_gain():
    queries = one_query([32, 0])
    with pytest.raises(InputError, match=r'32.*gain="linear"'):
        ndcg(queries, [2, 1])
    assert ndcg(queries, [1, 2], gain="linear") == pytest.approx([SECOND])
    assert ndcg(one_query([31, 0]), [1, 2]) == pytest.approx([SECOND])


@pytest.mark.parametrize(
    ("call", "fact"),
    [
        (lambda: ndcg(GOLDEN, FALLING, k=0), "got 0"),
        (lambda: top_share(GOLDEN, FALLING, k=2.5), "got 2.5"),
        (lambda: ndcg(GOLDEN, FALLING, gain="cubic"), "'cubic'.*'linear'"),
        (lambda: exposure(GOLDEN, FALLING, discount="none"), "'none'.*'trec'"),
        (lambda: awrf(GOLDEN, FALLING, target="equal"), "'equal'.*'population'"),
        (lambda: exposure(GOLDEN, [1, 2]), "2 entries"),
        (lambda: exposure(GOLDEN, [1, 2, 3, 4, np.nan]), "NaN"),
    ],
)
def test_mistakes_are_named(call, fact):
    with pytest.raises(InputError, match=fact):
        call()


# --- agreement with scikit-learn ---------------------------------------------------------------


@pytest.mark.parametrize("k", [None, 1, 3])
@pytest.mark.parametrize("n_scores", [3, 1000])
def test_ndcg_agrees_with_scikit_learn(k, n_scores):
    y, qid, _, scores = random_table(0, n_scores=n_scores)
    queries = Queries.from_arrays(None, y, qid=qid)
    linear = ndcg(queries, scores, k=k, gain="linear")
    exponential = ndcg(queries, scores, k=k)
    compared = 0
    for index, value in enumerate(queries.query_ids):
        rows = qid == value
        if not y[rows].any():
            assert np.isnan(linear[index])
            assert np.isnan(exponential[index])
        elif rows.sum() > 1:
            theirs = ndcg_score([y[rows].astype(float)], [scores[rows]], k=k)
            assert linear[index] == pytest.approx(theirs)
            theirs = ndcg_score([2.0 ** y[rows] - 1], [scores[rows]], k=k)
            assert exponential[index] == pytest.approx(theirs)
            compared += 1
    assert compared > 20


@pytest.mark.parametrize("n_scores", [3, 1000])
@pytest.mark.parametrize("relevant_above", [0, 1])
def test_average_precision_agrees_with_scikit_learn(n_scores, relevant_above):
    y, qid, _, scores = random_table(1, n_scores=n_scores)
    queries = Queries.from_arrays(None, y, qid=qid)
    ours = average_precision(queries, scores, relevant_above=relevant_above)
    for index, value in enumerate(queries.query_ids):
        rows = qid == value
        relevant = y[rows] > relevant_above
        if relevant.any():
            assert ours[index] == pytest.approx(average_precision_score(relevant, scores[rows]))
        else:
            assert np.isnan(ours[index])


# --- agreement with slow loops: every way to break the ties, averaged ----------------------------


@st.composite
def tables(draw):
    """Up to four queries of up to four items: labels, query ids, groups and scores."""
    item = st.tuples(st.integers(0, 2), st.sampled_from(["a", "b", "c", None]), st.integers(0, 2))
    lists = draw(st.lists(st.lists(item, min_size=1, max_size=4), min_size=1, max_size=4))
    rows = [(at, *row) for at, items in enumerate(lists) for row in items]
    qid, y, groups, scores = zip(*draw(st.permutations(rows)), strict=True)
    queries = Queries.from_arrays(None, list(y), qid=list(qid), sensitive_features=list(groups))
    return queries, np.array(scores, dtype=float)


def rankings(queries, scores, query):
    """All orders of a query's rows in which scores do not rise."""
    rows = np.flatnonzero(queries.query == query)
    for order in permutations(rows):
        if all(scores[i] >= scores[j] for i, j in pairwise(order)):
            yield np.array(order)


def expected(queries, scores, of_ranking):
    """The mean of a function of one ranking over all ways to break ties, query by query."""
    every = range(queries.n_queries)
    return np.array(
        [np.mean([of_ranking(o) for o in rankings(queries, scores, q)], axis=0) for q in every]
    ).reshape(queries.n_queries, -1)


def by_group(queries, order, values):
    return [values[queries.group[order] == k].sum() for k in range(queries.n_groups)]


DISCOUNT = {
    "log2": np.array([1 / log2(r + 1) for r in range(1, 5)]),
    "trec": np.array([1 / log2(max(r, 2)) for r in range(1, 5)]),
}


def slow_sizes(queries):
    sizes = expected(
        queries, np.zeros(queries.n_items), lambda o: by_group(queries, o, o * 0 + 1.0)
    )
    return np.where(sizes > 0, sizes, np.nan)


def slow_merit(queries):
    sums = expected(
        queries, np.zeros(queries.n_items), lambda o: by_group(queries, o, queries.y[o])
    )
    return sums / slow_sizes(queries)


@slowly
@given(tables(), st.sampled_from(["log2", "trec"]))
def test_exposure_agrees_with_slow_loops(table, discount):
    queries, scores = table
    seen = expected(
        queries, scores, lambda o: by_group(queries, o, DISCOUNT[discount][: len(o)])
    ) / slow_sizes(queries)
    clicked = expected(
        queries, scores, lambda o: by_group(queries, o, DISCOUNT[discount][: len(o)] * queries.y[o])
    ) / slow_sizes(queries)
    worth = slow_merit(queries)
    worth_or_nan = np.where(worth > 0, worth, np.nan)
    options = {"discount": discount}
    np.testing.assert_allclose(exposure(queries, scores, **options), seen)
    np.testing.assert_allclose(merit(queries), worth)
    ratio = exposure_to_merit(queries, scores, **options)
    np.testing.assert_allclose(ratio, seen / worth_or_nan)
    ratio = click_to_merit(queries, scores, **options)
    np.testing.assert_allclose(ratio, clicked / worth_or_nan)


@slowly
@given(tables(), st.integers(1, 5))
def test_top_share_agrees_with_slow_loops(table, k):
    queries, scores = table
    slow = expected(
        queries, scores, lambda o: by_group(queries, o[:k], np.full(len(o[:k]), 1 / len(o[:k])))
    )
    np.testing.assert_allclose(top_share(queries, scores, k=k), slow, atol=1e-15)


@slowly
@given(tables())
def test_ndcg_agrees_with_slow_loops(table):
    queries, scores = table
    gain = 2**queries.y - 1
    reached = expected(queries, scores, lambda o: [gain[o] @ DISCOUNT["log2"][: len(o)]])[:, 0]
    ideal = expected(queries, queries.y, lambda o: [gain[o] @ DISCOUNT["log2"][: len(o)]])[:, 0]
    np.testing.assert_allclose(ndcg(queries, scores), reached / np.where(ideal > 0, ideal, np.nan))


def slow_target(queries, query, target):
    if not isinstance(target, str):
        return np.array(target)
    rows = queries.query == query
    if target == "relevant":
        rows = rows & (queries.y > 0)
    counts = np.array([(queries.group[rows] == k).sum() for k in range(queries.n_groups)])
    return counts / counts.sum() if counts.sum() else None


def slow_awrf(queries, scores, query, target):
    goal = slow_target(queries, query, target)
    held = np.mean(
        [
            by_group(queries, order, DISCOUNT["trec"][: len(order)])
            for order in rankings(queries, scores, query)
        ],
        axis=0,
    )
    if not held.sum() or goal is None:
        return np.nan
    share = held / held.sum()
    middle = (share + goal) / 2
    return 1 - (entropy(share, middle, base=2) + entropy(goal, middle, base=2)) / 2


def slow_ndkl(queries, scores, query, target):
    goal = slow_target(queries, query, target)
    orders = list(rankings(queries, scores, query))
    total = norm = 0.0
    for i in range(1, len(orders[0]) + 1):
        counts = np.mean([by_group(queries, o[:i], np.ones(i)) for o in orders], axis=0)
        if counts.sum() > 0:
            if goal is None:
                return np.nan
            total += entropy(counts / counts.sum(), goal) / log2(i + 1)
            norm += 1 / log2(i + 1)
    return total / norm if norm and np.isfinite(total) else np.nan


@pytest.mark.parametrize("target", ["population", "relevant", "given"])
@pytest.mark.parametrize(("measure", "slow"), [(awrf, slow_awrf), (ndkl, slow_ndkl)])
@slowly
@given(table=tables())
def test_distances_to_a_target_agree_with_slow_loops(measure, slow, target, table):
    queries, scores = table
    if target == "given":
        share = np.arange(1.0, queries.n_groups + 1)
        target = share / share.sum() if queries.n_groups else "population"
    loop = [slow(queries, scores, query, target) for query in range(queries.n_queries)]
    np.testing.assert_allclose(measure(queries, scores, target=target), loop, atol=1e-12)


# --- properties --------------------------------------------------------------------------------


@every_measure
def test_shapes_ranges_and_positions(measure):
    queries, scores = random_queries(4)
    value = measure(queries, scores)
    by_query = measure in PER_QUERY.values()
    assert value.shape == ((queries.n_queries,) if by_query else (queries.n_queries, 3))
    assert np.isfinite(value).any()
    assert np.nanmin(value) >= 0
    given_positions = measure(queries, Positions.of(queries, scores))
    np.testing.assert_array_equal(value, given_positions)


@every_measure
def test_row_order_does_not_matter(measure):
    y, qid, groups, scores = random_table(5)
    shuffled = np.random.default_rng(6).permutation(len(y))
    values = [
        measure(
            Queries.from_arrays(None, y[rows], qid=qid[rows], sensitive_features=groups[rows]),
            scores[rows],
        )
        for rows in (np.arange(len(y)), shuffled)
    ]
    np.testing.assert_allclose(*values, atol=1e-14)


@every_measure
@pytest.mark.parametrize("increasing", [np.exp, lambda s: s**3 - 7, lambda s: 1e6 * s])
def test_increasing_maps_of_scores_change_nothing(measure, increasing):
    queries, scores = random_queries(7)
    np.testing.assert_array_equal(measure(queries, increasing(scores)), measure(queries, scores))


@every_measure
def test_queries_do_not_see_one_another(measure):
    queries, scores = random_queries(8)
    chosen = [3, 5, 11]
    kept = np.isin(queries.query, chosen)
    alone = measure(queries.take(chosen), scores[kept])
    np.testing.assert_allclose(alone, measure(queries, scores)[chosen], atol=1e-14)


@every_measure
def test_renamed_groups_permute_columns(measure):
    y, qid, groups, scores = random_table(9)
    renamed = np.array([{"a": "z", "b": "x", "c": "y"}.get(g) for g in groups], dtype=object)
    before = measure(Queries.from_arrays(None, y, qid=qid, sensitive_features=groups), scores)
    after = measure(Queries.from_arrays(None, y, qid=qid, sensitive_features=renamed), scores)
    np.testing.assert_allclose(after, before if before.ndim == 1 else before[:, [1, 2, 0]])


def test_positions_share_ties():
    queries = Queries.from_arrays(None, [0, 0, 0, 0, 0], qid=[2, 1, 2, 1, 2])
    places = Positions.of(queries, [5, 1, 5, 2, 9])
    assert places.order.tolist() == [3, 1, 4, 0, 2]
    assert places.rank.tolist() == [1, 2, 1, 2, 3]
    assert places.edges.tolist() == [0, 1, 2, 3, 5]
    assert places.block.tolist() == [0, 1, 2, 3, 3]
    assert places.share([10, 20, 30, 40, 50]).tolist() == [45, 20, 45, 10, 30]
    member = np.array([True, True, False, False, True])
    assert places.counts(member).tolist() == [0, 1, 1, 1.5, 2]


def test_names_are_sorted_and_there():
    assert metrics.__all__ == sorted(metrics.__all__)
    assert all(hasattr(metrics, name) for name in metrics.__all__)
