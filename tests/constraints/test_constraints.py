"""Constraints: golden values, properties, choices of groups, targets, and one's own."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairity import (
    Constraint,
    FairRanker,
    InterGroup,
    IntraGroup,
    LinearRanker,
    Marginal,
    Queries,
    StatisticalParity,
)
from pairity.constraints import CATALOGUE, Contrasts, as_constraint, largest_gap, largest_gaps
from pairity.datasets import make_biased_ranking
from pairity.exceptions import ConstraintError
from pairity.metrics import exposure
from support import reference

ALL = [StatisticalParity, InterGroup, IntraGroup, Marginal]


def two_queries():
    """Query a: f1 > m0, m1 > f0 (all cells but f>f, m>m too); query b: f1 > m0 and f1 > f0."""
    return Queries.from_arrays(
        None,
        [1, 1, 0, 0, 1, 0, 0],
        qid=["a", "a", "a", "a", "b", "b", "b"],
        sensitive_features=["f", "m", "f", "m", "f", "m", "f"],
    )


#                 f1   m1   f0   m0 |  f1   m0   f0
SCORES = np.array([0.4, 0.9, 0.5, 0.3, 0.2, 0.7, 0.1])
# preference pairs, right or wrong: query a: f1>m0 right, f1>f0 wrong, m1>f0 right, m1>m0 right
#                                   query b: f1>m0 wrong, f1>f0 right
A_QUERY = (3 / 4 + 1 / 2) / 2
A_PAIR = 4 / 6


def test_golden_inter():
    by_query = InterGroup().delta(two_queries(), SCORES)
    np.testing.assert_allclose(by_query[0, 1], (1 + 0) / 2 - A_QUERY)  # f>m, in both queries
    np.testing.assert_allclose(by_query[1, 0], 1 - A_QUERY)  # m>f, in query a only
    assert np.isnan(by_query.diagonal()).all()
    assert largest_gap(by_query) == pytest.approx(1 / 2)
    by_pair = InterGroup(average="pair").delta(two_queries(), SCORES)
    np.testing.assert_allclose([by_pair[0, 1], by_pair[1, 0]], [1 / 2 - A_PAIR, 1 - A_PAIR])


def test_golden_intra():
    by_query = IntraGroup().delta(two_queries(), SCORES)
    np.testing.assert_allclose(by_query.diagonal(), [(0 + 1) / 2 - A_QUERY, 1 - A_QUERY])
    assert np.isnan(by_query[0, 1])
    assert largest_gap(by_query) == pytest.approx(1 - 1 / 2)


def test_golden_marginal():
    by_query = Marginal().delta(two_queries(), SCORES)
    # f: query a 1 of 2, query b 1 of 2; m: query a 2 of 2
    np.testing.assert_allclose(by_query, [1 / 2 - A_QUERY, 1 - A_QUERY])
    by_pair = Marginal(average="pair").delta(two_queries(), SCORES)
    np.testing.assert_allclose(by_pair, [2 / 4 - A_PAIR, 2 / 2 - A_PAIR])
    assert largest_gap(by_pair) == pytest.approx(1 / 2)


def test_golden_statistical():
    # f above m: query a: 0.4 and 0.5 against 0.9 and 0.3: 2 of 4; query b: 0.2, 0.1 below 0.7: 0
    by_query = StatisticalParity().delta(two_queries(), SCORES)
    np.testing.assert_allclose([by_query[0, 1], by_query[1, 0]], [-1 / 4, 1 / 4])
    assert largest_gap(by_query) == pytest.approx(1 / 2)
    by_pair = StatisticalParity(average="pair").delta(two_queries(), SCORES)
    np.testing.assert_allclose(by_pair[0, 1], 2 / 6 - 1 / 2)


def test_golden_soft():
    queries = Queries.from_arrays(None, [1, 0], qid=[0, 0], sensitive_features=["f", "m"])
    soft = StatisticalParity(soft=True).delta(queries, np.array([1.0, 0.0]))
    assert soft[0, 1] == pytest.approx(1 / (1 + np.exp(-1.0)) - 1 / 2)


def test_golden_contrasts():
    violation = np.array([[0.1, 0.5, np.nan], [0.2, -0.3, 0.4], [np.nan, np.nan, np.nan]])
    contrasts = Contrasts.of(violation)
    # the diagonal among itself; 0-1 against 1-0; 1-2 has no mirror, so against zero
    assert sorted(contrasts.gaps(violation)) == pytest.approx([0.5 - 0.2, 0.4, 0.1 + 0.3])
    np.testing.assert_allclose(
        contrasts.matrix() @ np.nan_to_num(violation).ravel(), contrasts.gaps(violation)
    )
    assert largest_gap(np.array([0.1, -0.2, np.nan, 0.0])) == pytest.approx(0.3)
    assert np.isnan(largest_gap(np.full((2, 2), np.nan)))


@pytest.mark.parametrize("shape", [(1,), (4,), (1, 1), (2, 2), (4, 4)])
def test_the_largest_gap_is_that_of_the_contrasts(shape):
    rng = np.random.default_rng(0)
    for share in (0.0, 0.3, 0.8):
        delta = rng.normal(size=(50, *shape))
        delta[rng.random(delta.shape) < share] = np.nan
        gaps = [Contrasts.of(table).gaps(table) for table in delta]
        expected = [np.abs(values).max() if values.size else np.nan for values in gaps]
        np.testing.assert_array_equal(largest_gaps(delta, len(shape)), expected)
        np.testing.assert_array_equal([largest_gap(table) for table in delta], expected)


def test_every_constraint_has_a_title_and_a_description():
    for name, constraint in CATALOGUE.items():
        assert constraint.name == name
        assert constraint.title
        assert constraint.description.startswith("how often")


# --- properties -----------------------------------------------------------------------------------


@pytest.mark.parametrize("constraint", ALL)
@pytest.mark.parametrize("average", ["query", "pair"])
@given(data=reference.ranked_lists(), seed=st.integers(0, 999))
@settings(max_examples=25)
def test_properties_of_violations(constraint, average, data, seed):
    queries, scores = data
    scores = scores.astype(np.float64)
    measure = constraint(average=average)
    delta = measure.delta(queries, scores)
    # increasing maps of the scores change no hard value
    ranks = np.unique(scores, return_inverse=True)[1].astype(float)
    np.testing.assert_allclose(measure.delta(queries, ranks**3), delta, atol=1e-12)
    # the order of the rows does not matter
    rng = np.random.default_rng(seed)
    rows = rng.permutation(queries.n_items)
    table = {key: None if queries[key] is None else queries[key][rows] for key in queries}
    shuffled = Queries.from_arrays(**table)
    np.testing.assert_allclose(measure.delta(shuffled, scores[rows]), delta, atol=1e-12)
    # renamed groups permute the table
    renamed = rng.permutation(queries.n_groups)
    relabelled = Queries(
        queries.X, queries.y, queries.query, queries.query_ids,
        np.r_[renamed, queries.n_groups][queries.group].astype(np.int32),
        queries.groups, queries.item_weight, queries.query_weight,
    )  # fmt: skip
    permuted = measure.delta(relabelled, scores)
    cells = np.ix_(*([renamed] * delta.ndim))
    np.testing.assert_allclose(permuted[cells], delta, atol=1e-12)


@given(reference.ranked_lists(weights=False))
def test_both_orders_of_statistical_parity_add_up(data):
    queries, scores = data
    violation = StatisticalParity().delta(queries, scores)
    np.testing.assert_allclose(violation + violation.T, 0.0 * violation, atol=1e-12)


@given(reference.ranked_lists())
def test_negated_scores_mirror_the_violation(data):
    queries, scores = data
    for constraint in ALL:
        forward = constraint().delta(queries, scores.astype(float))
        backward = constraint().delta(queries, -scores.astype(float))
        np.testing.assert_allclose(backward, -forward, atol=1e-12)


# --- names, choices, targets ----------------------------------------------------------------------


def test_names_reach_the_catalogue():
    assert {name: type(as_constraint(name)) for name in CATALOGUE} == {
        "statistical": StatisticalParity,
        "inter": InterGroup,
        "intra": IntraGroup,
        "marginal": Marginal,
    }
    assert repr(InterGroup()) == "InterGroup()"
    assert repr(InterGroup(average="pair")) == "InterGroup(average='pair')"


@pytest.mark.parametrize(
    ("bad", "facts"),
    [
        ("parity", ["'parity'", "'inter'"]),
        ("Inter-Group", ["Did you mean 'inter'?"]),
        (InterGroup, ["InterGroup()", "instance"]),
        (3, ["3", "'inter'"]),
    ],
)
def test_unknown_constraints(bad, facts):
    with pytest.raises(ConstraintError) as caught:
        as_constraint(bad)
    assert all(fact in str(caught.value) for fact in facts)


def three_groups():
    data = make_biased_ranking(30, 20, n_groups=3, random_state=0)
    return data.queries(), data.X @ data.coef


def test_limited_to_chosen_pairs_of_groups():
    queries, scores = three_groups()
    whole = InterGroup().delta(queries, scores)
    part = InterGroup(only=[("group 1", "group 3")]).delta(queries, scores)
    assert np.isfinite(part).sum() == 2
    np.testing.assert_allclose(part[[0, 2], [2, 0]], whole[[0, 2], [2, 0]])
    assert largest_gap(part) == pytest.approx(abs(whole[0, 2] - whole[2, 0]))
    groups = Marginal(only=["group 2", "group 3"]).delta(queries, scores)
    assert np.isnan(groups[0])
    assert np.isfinite(groups[1:]).all()


@pytest.mark.parametrize(
    ("constraint", "facts"),
    [
        (InterGroup(only=[("group 1", "nobody")]), ["'nobody'", "'group 1'", "'group 3'"]),
        (InterGroup(only=["group 1"]), ["pair of groups"]),
        (InterGroup(only=[("group 1", "group 1")]), ["pair of groups"]),
        (IntraGroup(only=["group 1"]), ["1 group", "2"]),
        (Marginal(target={"nobody": 0.1}), ["'nobody'"]),
    ],
)
def test_choices_that_make_no_sense(constraint, facts):
    queries, scores = three_groups()
    with pytest.raises(ConstraintError) as caught:
        constraint.delta(queries, scores)
    assert all(fact in str(caught.value) for fact in facts)


def test_targets_other_than_zero():
    queries, scores = three_groups()
    plain = StatisticalParity().delta(queries, scores)
    aimed = StatisticalParity(target={("group 1", "group 2"): 0.05}).delta(queries, scores)
    # R_12 is to be 0.55, so R_21 is to be 0.45
    np.testing.assert_allclose(aimed[0, 1], plain[0, 1] - 0.05)
    np.testing.assert_allclose(aimed[1, 0], plain[1, 0] + 0.05)
    np.testing.assert_allclose(aimed[0, 2], plain[0, 2])
    marginal = Marginal(target={"group 1": -0.02})
    np.testing.assert_allclose(
        marginal.delta(queries, scores)[0], Marginal().delta(queries, scores)[0] + 0.02
    )


def test_training_reaches_a_target_other_than_zero():
    data = make_biased_ranking(80, 30, random_state=0)
    constraint = StatisticalParity(target={("group 1", "group 2"): 0.10})
    model = FairRanker(LinearRanker(), constraint).fit(**data.queries())
    reached = StatisticalParity().delta(data.queries(), model.predict(data.X))
    assert reached[0, 1] == pytest.approx(0.10, abs=0.005)


def test_groups_that_never_meet():
    queries = Queries.from_arrays(
        None, [1, 0, 1, 0], qid=[0, 0, 1, 1], sensitive_features=["young", "young", "old", "old"]
    )
    for constraint in (StatisticalParity(), InterGroup()):
        with pytest.raises(ConstraintError) as caught:
            constraint.check(queries)
        assert all(fact in str(caught.value) for fact in ("'young'", "'old'", "2 queries"))
    IntraGroup().check(queries)
    Marginal().check(queries)


def test_preferences_that_never_occur():
    queries = Queries.from_arrays(
        None, [1, 0, 1, 0], qid=[0, 0, 1, 1], sensitive_features=["m", "f", "m", "f"]
    )
    with pytest.raises(ConstraintError, match="'f' above 'm'"):
        InterGroup().check(queries)
    with pytest.raises(ConstraintError, match="'f'"):
        IntraGroup().check(queries)
    with pytest.raises(ConstraintError, match="'f'"):
        Marginal().check(queries)
    StatisticalParity().check(queries)


# --- one's own ------------------------------------------------------------------------------------


def exposure_gap(queries, scores):
    """How far each group's mean exposure is above that of all groups: shape (n_groups,)."""
    mean_exposure = np.nanmean(exposure(queries, scores), axis=0)
    return mean_exposure - mean_exposure.mean()


def test_a_function_of_scores_and_groups_is_a_constraint():
    data = make_biased_ranking(60, 20, strength=1.5, separation=2.0, random_state=1)
    model = FairRanker(LinearRanker(), exposure_gap, tolerance=0.002).fit(**data.queries())
    before = model.history_[0].violation
    after = largest_gap(exposure_gap(data.queries(), model.predict(data.X)))
    assert before > 0.03
    assert after == pytest.approx(model.violation_)
    assert after <= 0.002


class TopOfTheList(Constraint):
    """Of the items of each two groups, whose best one comes first: a K × K violation."""

    def delta(self, queries, scores):
        k = queries.n_groups
        best = np.full((queries.n_queries, k), -np.inf)
        np.maximum.at(best, (queries.query, queries.group), scores)
        first = (best[:, :, None] > best[:, None, :]).mean(axis=0)
        delta = first - 0.5
        delta[np.eye(k, dtype=bool)] = np.nan
        return delta


def test_a_class_with_a_table_of_its_own_is_a_constraint():
    data = make_biased_ranking(150, 20, strength=1.5, separation=2.0, random_state=1)
    constraint = TopOfTheList()
    model = FairRanker(LinearRanker(), constraint, tolerance=0.05).fit(**data.queries())
    assert model.history_[0].violation > 0.2
    assert largest_gap(constraint.delta(data.queries(), model.predict(data.X))) <= 0.05


def test_a_function_that_returns_the_wrong_shape():
    data = make_biased_ranking(10, 10, random_state=0)
    with pytest.raises(ConstraintError, match=r"\(3,\).*2 groups"):
        FairRanker(constraint=lambda queries, scores: np.zeros(3)).fit(**data.queries())
