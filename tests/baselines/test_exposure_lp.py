"""Fair exposure: worked examples, the n² program as oracle, certificates, and the method."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from pairity import InterGroup, LinearRanker, Queries, audit
from pairity.baselines.exposure_lp import exposure_lp
from pairity.baselines.exposure_program import CONSTRAINTS, fair_exposure, fair_rankings
from pairity.baselines.methods import Method, Rankings, as_method
from pairity.datasets import make_biased_ranking
from pairity.exceptions import ConstraintError, InputError, TargetNotReachedWarning
from pairity.metrics import click_to_merit, exposure, exposure_to_merit

RATIOS = {"impact": click_to_merit, "treatment": exposure_to_merit, "parity": exposure}


def log2(n_items):
    return 1 / np.log2(np.arange(2, n_items + 2))


# --- worked examples ---------------------------------------------------------------------------


def test_parity_of_two_pairs():
    # u = 4, 3 | 2, 1 and attention 4, 2, 1, 1: by utility the groups have 6/2 and 2/2. Equal means
    # share 8 / 2 groups / 2 items = 2 each. Pushing the second group up by t, the orders are
    # 0 1 2 3, then 0 2 1 3 (t = 1): 5/2 and 3/2, then at t = 2 items 0, 2 tie and so do 1, 3:
    # 2 0 3 1 gives 3/2 and 5/2. Half and half of the last two; DCG (4·4+2·2+3+1 + 2·4+4·2+1+3)/2.
    fair = fair_exposure([4, 3, 2, 1], [0, 0, 1, 1], 2, constraint="parity", discount=[4, 2, 1, 1])
    np.testing.assert_allclose(fair.ratio, [2, 2])
    assert fair.objective == pytest.approx((24 + 20) / 2)
    assert fair.duals[1] - fair.duals[0] == pytest.approx(2 * 2)  # t is λ / |G|, and differs by 2
    assert fair.slack == 0.0


def test_treatment_of_three_items():
    # merits 2 and 1, attention 3, 2, 1: E_0 / 2 = E_1 / 1 asks for sums x_0 + x_1 = 6 with
    # x_0 / (1 item · 2) = x_1 / (2 items · 1), so x_0 = x_1 = 3: item 0 is always first.
    fair = fair_exposure([2, 1, 1], [0, 1, 1], 2, constraint="treatment", discount=[3, 2, 1])
    np.testing.assert_allclose(fair.exposure, [3, 1.5, 1.5])  # the others are alike
    np.testing.assert_allclose(fair.ratio, [1.5, 1.5])
    assert fair.rankings.tolist() == [[0, 1, 2]]


def test_impact_of_two_items():
    # with one item each the ratio is the item's own exposure: each is first half the time
    fair = fair_exposure([3, 1], [0, 1], 2, constraint="impact", discount=[2, 1])
    np.testing.assert_allclose(fair.exposure, [1.5, 1.5])
    np.testing.assert_allclose(fair.probability, [0.5, 0.5])
    assert fair.objective == pytest.approx((3 + 1) * 1.5)


def test_slack_is_a_part_of_the_smaller_ratio():
    # attention 2 and 1, so x + y = 3 and x = 1.25 y: y = 3 / 2.25
    fair = fair_exposure([3, 1], [0, 1], 2, constraint="parity", slack=0.25, discount=[2, 1])
    np.testing.assert_allclose(fair.exposure, [1.25 * 3 / 2.25, 3 / 2.25])
    free = fair_exposure([3, 1], [0, 1], 2, constraint="parity", slack=1.0, discount=[2, 1])
    assert free.rankings.tolist() == [[0, 1]]
    assert free.duals.tolist() == [0, 0]


def test_what_cannot_be_met_says_by_how_much():
    # merits 10 and 1, attention 2 and 1: at best item 0 is first, 2 / 10 against 1 / 1, a factor 5
    with pytest.raises(ConstraintError, match=r"group 1 has 5 times .* least slack is 4\."):
        fair_exposure([10, 1], [0, 1], 2, constraint="treatment", discount=[2, 1])
    fair = fair_exposure(
        [10, 1], [0, 1], 2, constraint="treatment", discount=[2, 1], raise_slack=0.3
    )
    assert fair.slack == pytest.approx(14 * 0.3)  # the first step at or above 4
    exact = fair_exposure([10, 1], [0, 1], 2, constraint="treatment", discount=[2, 1], slack=4)
    np.testing.assert_allclose(exact.ratio, [0.2, 1.0])
    queries = Queries.from_arrays(None, [0, 0], qid=["x", "x"], sensitive_features=["m", "f"])
    with pytest.raises(ConstraintError, match=r"query 'x': .* group 'f' has .* of the group 'm'"):
        fair_rankings(queries, [10, 1], constraint="treatment")


def test_groups_that_are_left_out():
    # group 2 has no merit, group 3 no item, and the last item no known group
    group, utility = [0, 1, 2, 2, 4], [2.0, 1.0, 0.0, 0.0, 3.0]
    fair = fair_exposure(utility, group, 4, constraint="impact")
    assert np.isnan(fair.ratio).tolist() == [False, False, True, True]
    assert fair.ratio[0] == pytest.approx(fair.ratio[1])
    assert fair.rankings[:, 0].tolist() == [4, 4]  # free of constraints and most useful
    assert fair.duals[2:].tolist() == [0, 0]
    parity = fair_exposure(utility, group, 4, constraint="parity")
    np.testing.assert_allclose(parity.ratio[:3], parity.ratio[0])


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_nothing_to_compare(constraint):
    for utility, group in (
        ([1.0], [0]),
        ([1.0, 2.0, 2.0], [1, 1, 1]),
        ([1.0, 2.0, 2.0], [2, 2, 2]),
    ):
        fair = fair_exposure(utility, group, 2, constraint=constraint)
        assert fair.rankings.tolist() == [np.argsort(-np.array(utility), kind="stable").tolist()]
        assert fair.probability.tolist() == [1.0]
    zero = fair_exposure([0.0, 0.0], [0, 1], 2, constraint=constraint)
    assert zero.objective == 0.0


# --- the n² program ----------------------------------------------------------------------------


def by_doubly_stochastic_matrix(utility, group, n_groups, constraint, slack, attention):
    """The optimum over doubly stochastic matrices by HiGHS; None where nothing is feasible."""
    n = len(utility)
    scale = utility.max() or 1.0
    ratios = []
    for k in range(n_groups):
        member = group == k
        total = utility[member].sum() / scale
        if member.any() and (constraint == "parity" or total > 0):
            share = {
                "parity": lambda: 1 / member.sum(),  # noqa: B023
                "treatment": lambda: 1 / total,  # noqa: B023
                "impact": lambda: utility / scale / total,  # noqa: B023
            }[constraint]()
            ratios.append(np.outer(member * share, attention).ravel())
    bounds = [one - (1 + slack) * two for one in ratios for two in ratios if one is not two]
    rows = np.vstack([np.kron(np.eye(n), np.ones(n)), np.kron(np.ones(n), np.eye(n))])
    solution = linprog(
        -np.outer(utility / scale, attention).ravel(),
        A_ub=np.array(bounds) if bounds else None, b_ub=np.zeros(len(bounds)) if bounds else None,
        A_eq=rows, b_eq=np.ones(2 * n),
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )  # fmt: skip
    assert solution.status in (0, 2)
    return -solution.fun * scale if solution.status == 0 else None


def bound(fair, utility, group, constraint, attention):
    """What the multipliers prove to be the most that any feasible distribution earns."""
    size = np.bincount(group, minlength=len(fair.ratio) + 1)[group]
    total = np.bincount(group, utility, len(fair.ratio) + 1)[group]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = {"parity": 1 / size, "treatment": 1 / total, "impact": utility / total}[constraint]
    price = np.append(fair.duals, 0.0)[group]
    value = utility + np.where(price == 0, 0.0, price * np.nan_to_num(share))
    return np.sort(value)[::-1] @ attention


def check(fair, utility, group, constraint, attention):
    n = len(utility)
    n_compared = max(1, np.isfinite(fair.ratio).sum())
    assert (np.sort(fair.rankings, axis=1) == np.arange(n)).all()
    assert 1 <= len(fair.rankings) <= n_compared
    assert len(np.unique(fair.rankings, axis=0)) == len(fair.rankings)
    assert (fair.probability > 0).all()
    assert fair.probability.sum() == pytest.approx(1, abs=1e-12)
    seen = np.zeros(n)
    for order, place, chance in zip(fair.rankings, fair.places, fair.probability, strict=True):
        assert (np.diff(place[order]) >= 0).all()
        for level in np.unique(place):  # those who share a place share the attention
            seen[place == level] += chance * attention[place[order] == level].mean()
    np.testing.assert_allclose(fair.exposure, seen, rtol=1e-12)
    assert fair.objective == pytest.approx(utility @ seen, rel=1e-12)
    known = fair.ratio[np.isfinite(fair.ratio)]
    if len(known):
        assert known.max() <= (1 + fair.slack) * known.min() * (1 + 1e-9)
    proven = bound(fair, utility, group, constraint, attention)
    assert proven - fair.objective <= 1e-9 * (np.sort(utility)[::-1] @ attention)


def utilities(rng, n):
    kind = rng.integers(4)
    if kind == 0:
        return rng.random(n)
    if kind == 1:
        return rng.integers(0, 3, n).astype(float)  # ties and zeros
    return rng.random(n) ** 2 * 10.0 ** rng.integers(-3, 4)


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("slack", [0.0, 0.1, 1.5])
def test_agrees_with_the_program_of_n_squared_variables(constraint, slack):
    rng = np.random.default_rng([3, int(10 * slack)])
    n_infeasible = 0
    for _ in range(60):
        n, n_groups = int(rng.integers(1, 9)), int(rng.integers(1, 5))
        group = rng.integers(0, n_groups + (rng.random() < 0.3), n)
        utility, attention = utilities(rng, n), log2(n)
        expected = by_doubly_stochastic_matrix(
            utility, group, n_groups, constraint, slack, attention
        )
        settings = dict(constraint=constraint, slack=slack)
        if expected is None:
            n_infeasible += 1
            with pytest.raises(ConstraintError, match="least slack is"):
                fair_exposure(utility, group, n_groups, **settings)
            fair = fair_exposure(utility, group, n_groups, **settings, raise_slack=0.1)
            steps = (fair.slack - slack) / 0.1
            assert steps == pytest.approx(round(steps), abs=1e-6)
            previous = by_doubly_stochastic_matrix(
                utility, group, n_groups, constraint, fair.slack - 0.1 - 1e-6, attention
            )
            assert previous is None  # a step less would not do
            expected = by_doubly_stochastic_matrix(
                utility, group, n_groups, constraint, fair.slack, attention
            )
        else:
            fair = fair_exposure(utility, group, n_groups, **settings)
            assert fair.slack == slack
        assert fair.objective == pytest.approx(expected, abs=1e-7 * utility.sum() or 1e-7)
        check(fair, utility, group, constraint, attention)
    assert (n_infeasible > 0) == (constraint == "treatment")


@given(seed=st.integers(0, 2**32 - 1))
def test_its_multipliers_prove_it_optimal(seed):
    rng = np.random.default_rng(seed)
    n, n_groups = int(rng.choice([2, 10, 60, 300])), int(rng.choice([2, 3, 7]))
    group = rng.integers(0, n_groups + 1, n)
    utility = utilities(rng, n)
    constraint, slack = rng.choice(list(CONSTRAINTS)), rng.choice([0.0, 1e-6, 0.2])
    attention = np.where(np.arange(n) < 10, log2(n), 0.0) if rng.random() < 0.2 else log2(n)
    settings = dict(constraint=constraint, slack=slack, raise_slack=0.1, discount=attention)
    fair = fair_exposure(utility, group, n_groups, **settings)
    check(fair, utility, group, constraint, attention)
    scaled = fair_exposure(utility * 64, group, n_groups, **settings | {"discount": attention * 8})
    assert scaled.slack == pytest.approx(fair.slack)
    assert scaled.objective == pytest.approx(fair.objective * 512)


def test_long_lists():
    rng = np.random.default_rng(0)
    for n, n_groups in ((10_000, 2), (10_000, 5), (500, 20)):
        utility, group = rng.random(n), rng.integers(0, n_groups, n)
        fair = fair_exposure(utility * (1 - group / 20), group, n_groups)
        check(fair, utility * (1 - group / 20), group, "impact", log2(n))


def test_the_same_every_time():
    rng = np.random.default_rng(1)
    utility, group = rng.integers(0, 4, 40).astype(float), rng.integers(0, 3, 40)
    one, two = (fair_exposure(utility, group, 3, slack=0.05) for _ in range(2))
    assert (one.rankings == two.rankings).all()
    assert (one.probability == two.probability).all()


def test_a_ranking_drawn():
    fair = fair_exposure([3, 1], [0, 1], 2, constraint="parity", slack=0.25, discount=[2, 1])
    share = (1.25 * 3 / 2.25) - 1  # exposure 2 p + 1 (1 - p)
    firsts = [fair.sample(seed)[0] == 0 for seed in range(400)]
    assert np.mean(firsts) == pytest.approx(share, abs=0.08)
    assert fair.sample(3).tolist() == fair.sample(3).tolist()


# --- many queries ------------------------------------------------------------------------------


def mixed_queries():
    rng = np.random.default_rng(5)
    qid = rng.permutation(np.repeat([0, 1, 2, 3, 4], [12, 7, 3, 2, 1]))
    group = rng.choice(
        np.array(["a", "b", "c", None], dtype=object), len(qid), p=[0.4, 0.3, 0.2, 0.1]
    )
    return Queries.from_arrays(
        None, rng.integers(0, 4, len(qid)), qid=qid, sensitive_features=group
    )


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_the_expectation_meets_the_constraint(constraint):
    queries = mixed_queries()
    rankings, slack = fair_rankings(queries, queries.y, constraint=constraint, raise_slack=0.1)
    np.testing.assert_allclose(rankings.probability.sum(axis=1), 1)
    repeated, scores = rankings.expected(queries)
    ratios = RATIOS[constraint](repeated, scores)
    source = np.nonzero(rankings.probability)[0]
    for query in range(queries.n_queries):
        own = source == query
        # labels are the utilities, so that the audit's ratios are those of the constraint
        expected = repeated.weight_of_query[own] @ ratios[own]
        known = expected[np.isfinite(expected)]
        if len(known):
            assert known.max() <= (1 + slack[query]) * known.min() * (1 + 1e-9)
    kinds = list(zip(queries.query, queries.y, queries.group, strict=True))
    for column in rankings.scores.T:  # each orders all items that can be told apart
        places = set(zip(kinds, column, strict=True))
        assert len(places) == len(set(kinds))


def test_every_query_is_solved_on_its_own():
    queries = mixed_queries()
    rankings, _ = fair_rankings(queries, queries.y, constraint="parity")
    for query in range(queries.n_queries):
        rows = np.flatnonzero(queries.query == query)
        fair = fair_exposure(queries.y[rows], queries.group[rows], 3, constraint="parity")
        kept = len(fair.probability)
        np.testing.assert_allclose(rankings.probability[query, :kept], fair.probability)
        assert (-rankings.scores[rows, 0]).tolist() == fair.places[0].tolist()


def test_draws_follow_the_probabilities():
    queries = mixed_queries()
    rankings, _ = fair_rankings(queries, queries.y, constraint="parity")
    row = int(np.argmax(queries.query == 0))
    draws = np.array([rankings.sample(queries, seed)[row] for seed in range(600)])
    expected = rankings.probability[0] @ rankings.scores[row]
    spread = np.sqrt(rankings.probability[0] @ (rankings.scores[row] - expected) ** 2)
    assert draws.mean() == pytest.approx(expected, abs=4 * spread / np.sqrt(600) + 1e-12)


def test_ties_go_by_the_scores_given():
    queries = Queries.from_arrays(None, [0] * 4, qid=[0] * 4, sensitive_features=list("aabb"))
    rankings, _ = fair_rankings(
        queries, [1, 1, 1, 1], constraint="parity", slack=9, ties=[1, 2, 4, 3]
    )
    assert np.argsort(-rankings.scores[:, 0]).tolist() == [2, 3, 1, 0]


@pytest.mark.parametrize("slack", [0.0, 9.0])
def test_rows_sorted_by_label_give_nothing_away(slack):
    # utilities know nothing of the labels: neither may the ranking, though the best come first
    label = np.tile(np.arange(10)[::-1], 6)
    queries = Queries.from_arrays(
        None, label, qid=np.repeat(np.arange(6), 10), sensitive_features=list("ab") * 30
    )
    utility = np.ones(60)
    rankings, _ = fair_rankings(queries, utility, constraint="parity", slack=slack)
    assert audit(*rankings.expected(queries)).auc == pytest.approx(0.5, abs=1e-12)
    firsts = {fair_exposure(utility[:10], [0, 1] * 5, 2).sample(seed)[0] for seed in range(60)}
    assert firsts == set(range(10))


# --- the method --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def halves():
    return make_biased_ranking(60, 20, random_state=0).queries().split(0.4, random_state=0)


def expected_gap(rankings, queries, measure=exposure):
    repeated, scores = rankings.expected(queries)
    values = measure(repeated, scores)
    gap = values[:, 0] - values[:, 1]
    kept = np.isfinite(gap)
    return abs(repeated.weight_of_query[kept] @ gap[kept]) / queries.n_queries


def test_the_method_equalises_exposure(halves):
    train, test = halves
    method = exposure_lp(constraint="parity")
    assert method.needs_group
    assert repr(method) == "exposure lp(constraint='parity', slack=0.0)"
    rankings = method(train, test)
    assert isinstance(rankings, Rankings)
    plain = as_method(LinearRanker())(train, test)
    before = exposure(test, plain)
    assert expected_gap(rankings, test) < 1e-9 < 0.05 < abs((before[:, 0] - before[:, 1]).mean())
    repeated, scores = rankings.expected(test)
    assert 0.5 < audit(repeated, scores, n_resamples=0).auc < 1
    again = method(train, test)
    assert (again.scores == rankings.scores).all()
    assert (again.probability == rankings.probability).all()


def test_any_ranker_gives_the_scores(halves):
    train, test = halves
    # with slack to spare, the order is the ranker's own
    free = exposure_lp(LinearRanker(), constraint="parity", slack=1e6)
    rankings = free(train, test)
    plain = as_method(LinearRanker())(train, test)
    assert rankings.probability.shape == (test.n_queries, 1)
    for query in range(test.n_queries):
        rows = test.query == query
        order = np.argsort(-rankings.scores[rows, 0])
        assert order.tolist() == np.argsort(-plain[rows], kind="stable").tolist()
    assert free.settings["ranker"] == "LinearRanker()"
    from_method = exposure_lp(as_method(LinearRanker()), constraint="parity")
    assert from_method.settings["ranker"] == "plain()"
    from_ranker = exposure_lp(LinearRanker(), constraint="parity")(train, test)
    assert (from_method(train, test).scores == from_ranker.scores).all()
    assert expected_gap(from_ranker, test) < 1e-9


def test_least_squares_counts_weights():
    rng = np.random.default_rng(0)
    X, y, group = rng.normal(size=(60, 2)), rng.integers(0, 2, 60), rng.integers(0, 2, 60)
    weight, qid = rng.integers(0, 3, 60), np.arange(60) // 6
    settings = dict(qid=qid, sensitive_features=group)
    weighted = Queries.from_arrays(X, y, sample_weight=weight, **settings)
    rows = np.repeat(np.arange(60), weight)
    repeated = Queries.from_arrays(X[rows], y[rows], qid=qid[rows], sensitive_features=group[rows])
    test = Queries.from_arrays(X, y, **settings)
    one, two = (exposure_lp(constraint="parity")(train, test) for train in (weighted, repeated))
    assert (one.scores == two.scores).all()


def test_a_raised_slack_is_reported(halves):
    train, test = (replace(part, y=part.y * (1 + 9 * (part.group == 0))) for part in halves)
    with pytest.warns(TargetNotReachedWarning, match=r"slack of 0 in \d+ of the 24 queries"):
        rankings = exposure_lp(constraint="treatment")(train, test)
    assert isinstance(rankings, Rankings)
    with pytest.raises(ConstraintError, match="In the query"):
        exposure_lp(constraint="treatment", raise_slack=None)(train, test)


# --- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(constraint="equal"), "'impact', 'treatment', 'parity'"),
        (dict(constraint=InterGroup()), r"cannot express InterGroup\(\).*'parity', or .* pairs"),
        (dict(slack=-0.1), r"slack must be .* \(got -0.1"),
        (dict(slack=np.nan), r"slack must be .* \(got nan"),
        (dict(slack="none"), r"slack must be .* \(got 'none'"),
        (dict(raise_slack=0.0), r"raise_slack .* must be a number above 0 \(got 0"),
        (dict(discount="linear"), "'log2', 'trec'"),
    ],
)
def test_bad_settings(change, message):
    with pytest.raises(InputError, match=message):
        fair_exposure([1, 2], [0, 1], 2, **change)
    with pytest.raises(InputError, match=message):
        exposure_lp(**change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(utility=[1, -2]), r"1 negative entries, the first in row 1 \(-2\)"),
        (dict(utility=[]), "nothing to rank"),
        (dict(utility=[1, np.inf]), "infinity"),
        (dict(group=[0, 3]), "group is 3 in row 1, .* 0 to 1, or 2"),
        (dict(group=[0, 0.5]), "whole number"),
        (dict(group=[0]), "group has 1 entries"),
        (dict(n_groups=1.5), r"n_groups must be .* \(got 1.5"),
        (dict(discount=[1, 2]), "must not increase"),
        (dict(discount=[0, 0]), "above 0"),
        (dict(discount=[1]), "discount has 1 entries"),
    ],
)
def test_bad_items(change, message):
    arguments = dict(utility=[1, 2], group=[0, 1], n_groups=2) | change
    with pytest.raises(InputError, match=message):
        fair_exposure(**arguments)


def test_methods_without_scores_or_groups(halves):
    train, test = halves
    random = Method("random", lambda *_: lambda queries: fair_rankings(queries, queries.y)[0], True)
    with pytest.raises(InputError, match="no scores to estimate"):
        exposure_lp(random)(train, test)
    bare = Queries.from_arrays(test.X, test.y, qid=test["qid"])
    with pytest.raises(InputError, match="has no group in"):
        exposure_lp()(train, bare)
