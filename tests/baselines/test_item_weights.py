"""Re-weighting of items: weights, rates, the loop, overlapping groups, and what is refused."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import expit

from pairity import FairRanker, InputError, InterGroup, Queries, audit
from pairity.baselines.item_weights import (
    RATES,
    item_weights,
    largest_rate_gap,
    rate_gaps,
    reweight_items,
    weigh_items,
)
from pairity.datasets import BiasedWorld, make_biased_ranking
from pairity.exceptions import ConstraintError, TargetNotReachedWarning
from pairity.pairs.cells import mean_auc
from pairity.reweighting.outcomes import Outcome

MADE = make_biased_ranking(
    100, 40, separation=3.0, strength=2.0, world=BiasedWorld(n_features=10), random_state=0
)  # 4,000 items
BIASED = MADE.queries()
SMALL = make_biased_ranking(20, 30, separation=2.0, random_state=1).queries()

Y = np.array([1, 1, 0, 1, 0, 0], bool)
PREDICTED = np.array([1, 0, 1, 1, 0, 0], bool)
APART = np.array([[1, 0]] * 3 + [[0, 1]] * 3, bool)


# --- golden --------------------------------------------------------------------------------------


def test_weights_of_one_multiplier_per_group():
    lambda_ = [[math.log(3), -math.log(4)]]  # w̃ = 3 in the first group, 1/4 in the second
    expected = [3 / 4, 3 / 4, 1 / 4, (1 / 4) / (5 / 4), 1 / (5 / 4), 1 / (5 / 4)]
    np.testing.assert_allclose(weigh_items(Y, APART, lambda_), expected)


def test_weights_of_equalised_odds_have_a_multiplier_for_each_label():
    lambda_ = [[math.log(3), 0.0], [math.log(9), math.log(2)]]
    expected = [3 / 4, 3 / 4, 1 / 10, 1 / 2, 1 / 3, 1 / 3]
    np.testing.assert_allclose(weigh_items(Y, APART, lambda_), expected)


def test_weights_of_overlapping_groups_multiply():
    both = [[1, 1], [1, 0], [0, 1], [0, 0]]
    lambda_ = [[math.log(2), math.log(3)]]  # w̃ = 6, 2, 3 and 1
    np.testing.assert_allclose(weigh_items([1] * 4, both, lambda_), [6 / 7, 2 / 3, 3 / 4, 1 / 2])
    np.testing.assert_allclose(weigh_items([0] * 4, both, lambda_), [1 / 7, 1 / 3, 1 / 4, 1 / 2])


def test_no_multipliers_no_weights():
    assert (weigh_items(Y, APART, np.zeros((1, 2))) == 0.5).all()


def test_rates_by_hand():
    def gaps(constraint):
        return rate_gaps(Y, PREDICTED, APART, constraint)

    # predicted positive: 2 of 3 and 1 of 3, of 3 in 6; of positive items: 1 of 2 and 1 of 1, of
    # 2 in 3; of negative items: 1 of 1 and 0 of 2, of 1 in 3
    np.testing.assert_allclose(gaps("demographic parity"), [[2 / 3 - 1 / 2, 1 / 3 - 1 / 2]])
    np.testing.assert_allclose(gaps("equal opportunity"), [[1 / 2 - 2 / 3, 1 - 2 / 3]])
    odds = [[1 / 2 - 2 / 3, 1 - 2 / 3], [1 - 1 / 3, 0 - 1 / 3]]
    np.testing.assert_allclose(gaps("equalised odds"), odds)
    assert largest_rate_gap(gaps("demographic parity")) == pytest.approx(1 / 3)
    assert largest_rate_gap(gaps("equal opportunity")) == pytest.approx(1 / 2)
    assert largest_rate_gap(gaps("equalised odds")) == pytest.approx(
        1
    )  # the larger, of negative items


def test_rates_with_weights_are_those_of_repeated_items():
    weight = np.array([2, 1, 1, 3, 0, 1])
    rows = np.repeat(np.arange(6), weight)
    for constraint in RATES:
        np.testing.assert_allclose(
            rate_gaps(Y, PREDICTED, APART, constraint, sample_weight=weight),
            rate_gaps(Y[rows], PREDICTED[rows], APART[rows], constraint),
        )


def test_a_single_group_is_set_against_everybody():
    only = APART[:, :1]
    gaps = rate_gaps(Y, PREDICTED, only, "equal opportunity")
    assert largest_rate_gap(gaps) == pytest.approx(abs(1 / 2 - 2 / 3))
    assert largest_rate_gap(np.array([[0.3, np.nan]])) == 0.3


# --- the loop ------------------------------------------------------------------------------------


@pytest.mark.parametrize("constraint", RATES)
def test_the_violation_falls_below_two_hundredths(constraint):
    model = item_weights(constraint, tolerance=0.015).fit(BIASED, 0)
    assert model.outcome is Outcome.WITHIN_TOLERANCE
    assert model.rounds[0].violation > 0.3
    assert model.best.violation < 0.02
    assert model.best.number <= 100
    predicted = model(BIASED) > 0
    members = BIASED.group[:, None] == np.arange(2)
    again = rate_gaps(BIASED.y, predicted, members, constraint)
    np.testing.assert_allclose(again, model.best.delta, atol=1e-12)


def test_demographic_parity_comes_closer_to_the_unbiased_labels():
    plain = item_weights("demographic parity", max_rounds=0)(BIASED, BIASED)
    fair = item_weights("demographic parity")(BIASED, BIASED)
    assert mean_auc(MADE.unbiased(), fair) > mean_auc(MADE.unbiased(), plain) + 0.02
    assert mean_auc(BIASED, fair) < mean_auc(BIASED, plain)


@pytest.mark.filterwarnings("ignore::pairity.exceptions.TargetNotReachedWarning")
@pytest.mark.parametrize("constraint", RATES)
def test_the_model_was_trained_with_the_weights_of_its_own_lambda(constraint):
    alpha = 1e-3
    model = item_weights(constraint, alpha=alpha, tolerance=0.02).fit(SMALL, 0)
    assert model.best.number > 1
    members = SMALL.group[:, None] == np.arange(2)
    weight = weigh_items(SMALL.y, members, model.best.lambda_)
    deviation, sign = SMALL.X.std(axis=0), 2 * SMALL.y - 1

    def objective(parameters):
        beta, intercept = parameters[:-1], parameters[-1]
        margin = sign * (SMALL.X @ (beta / deviation) + intercept)
        pull = -sign * expit(-margin) * weight / weight.sum()
        loss = np.average(np.logaddexp(0, -margin), weights=weight) + alpha / 2 * beta @ beta
        return loss, np.r_[SMALL.X.T @ pull / deviation + alpha * beta, pull.sum()]

    cold = minimize(objective, np.zeros(6), jac=True, method="BFGS", options={"gtol": 1e-9})
    np.testing.assert_allclose(model.coef, cold.x[:-1] / deviation, atol=2e-5)
    assert model.intercept == pytest.approx(cold.x[-1], abs=2e-5)


@pytest.mark.filterwarnings("ignore::pairity.exceptions.TargetNotReachedWarning")
def test_lambda_follows_the_violation_without_a_lag():
    model = item_weights("equalised odds", eta=0.7, tolerance=0.02).fit(SMALL, 0)
    assert (model.rounds[0].lambda_ == 0).all()
    for before, after in zip(model.rounds, model.rounds[1:], strict=False):
        np.testing.assert_allclose(after.lambda_, before.lambda_ - 0.7 * before.delta)


def test_the_best_round_is_kept():
    with pytest.warns(TargetNotReachedWarning, match=r"equal opportunity on 600 items.*of 12"):
        model = item_weights(eta=30.0, max_rounds=12, tolerance=0.0).fit(SMALL, 0)
    worst = [ended.violation for ended in model.rounds]
    assert len(worst) == 13
    assert model.best.violation == min(worst) < worst[-1]
    assert model.outcome is Outcome.ROUNDS_EXHAUSTED
    members = SMALL.group[:, None] == np.arange(2)
    delta = rate_gaps(SMALL.y, model(SMALL) > 0, members)
    assert largest_rate_gap(delta) == pytest.approx(model.best.violation)
    alike = [ended for ended in model.rounds if ended.violation == model.best.violation]
    assert model.best.accuracy == max(ended.accuracy for ended in alike)


def test_tolerance_is_the_knob():
    loose, tight = (
        item_weights("demographic parity", tolerance=t).fit(BIASED, 0) for t in (0.2, 0.02)
    )
    assert 0.02 < loose.best.violation <= 0.2
    assert tight.best.violation <= 0.02
    assert loose.best.number < tight.best.number
    assert mean_auc(BIASED, loose(BIASED)) > mean_auc(BIASED, tight(BIASED))


def test_no_rounds_is_the_plain_logistic():
    model = item_weights(max_rounds=0).fit(SMALL, 0)
    assert model.outcome is Outcome.NO_ROUNDS
    assert len(model.rounds) == 1
    other = item_weights("demographic parity", max_rounds=0).fit(SMALL, 0)
    assert (model.coef == other.coef).all()


def test_the_same_every_time():
    method = item_weights(tolerance=0.02)
    one, two = method(SMALL, SMALL, 0), method(SMALL, SMALL, 1)
    assert (one == two).all()


def test_no_group_is_read_to_predict():
    method = item_weights()
    assert not method.needs_group
    assert repr(method) == "item weights(constraint='equal opportunity', tolerance=0.01)"
    train, test = BIASED.split(0.3, random_state=0)
    blind = Queries.from_arrays(test.X, test.y, qid=test["qid"])
    assert (method(train, test) == method(train, blind)).all()
    assert 0.5 < audit(test, method(train, test), n_resamples=0).auc < 1


def test_sparse_features_and_many_of_them():
    dense = item_weights(tolerance=0.02).fit(SMALL, 0)
    data = {**SMALL, "X": sp.csr_array(SMALL.X)}
    sparse = item_weights(tolerance=0.02).fit(Queries.from_arrays(**data), 0)
    np.testing.assert_allclose(sparse.coef, dense.coef, atol=1e-3)
    empty = np.zeros((SMALL.n_items, 400))
    wide = item_weights(tolerance=0.02).fit(
        Queries.from_arrays(**{**SMALL, "X": np.hstack([SMALL.X, empty])}), 0
    )
    np.testing.assert_allclose(wide.coef[:5], dense.coef, atol=1e-3)
    assert (wide.coef[5:] == 0).all()


def test_item_and_query_weights_are_those_of_repeated_rows():
    rng = np.random.default_rng(0)
    item = rng.integers(1, 3, SMALL.n_items)
    query = rng.integers(1, 3, SMALL.n_queries)[SMALL.query]
    rows = np.repeat(np.arange(SMALL.n_items), item * query)
    weighed = Queries.from_arrays(**SMALL, sample_weight=item, query_weight=query)
    repeated = Queries.from_arrays(**{key: SMALL[key][rows] for key in SMALL})
    one, two = (item_weights(tolerance=0.03).fit(data, 0) for data in (weighed, repeated))
    np.testing.assert_allclose(one.best.lambda_, two.best.lambda_, atol=1e-9)
    np.testing.assert_allclose(one.coef, two.coef, atol=1e-5)


# --- groups --------------------------------------------------------------------------------------


def overlapping():
    """4,000 items of two attributes each, both of which the labels are biased against."""
    rng = np.random.default_rng(3)
    members = rng.random((4000, 2)) < [0.4, 0.5]
    X = np.hstack([rng.normal(size=(4000, 3)), members + 0.3 * rng.normal(size=(4000, 2))])
    latent = X[:, :3].sum(axis=1) - members @ [2.0, 1.5] + 2 * rng.normal(size=4000)
    return X, latent > np.median(latent), members


@pytest.mark.parametrize("constraint", RATES)
def test_overlapping_groups(constraint):
    X, y, members = overlapping()
    model = reweight_items(X, y, members, constraint, tolerance=0.019)
    assert model.best.lambda_.shape == (len(RATES[constraint]), 2)
    assert model.rounds[0].violation > 0.05
    assert model.best.violation < 0.02
    gaps = rate_gaps(y, model.decision_function(X) > 0, members, constraint)
    assert np.abs(gaps).max() < 0.02


def test_parts_of_intersections_overlap():
    X, y, members = overlapping()
    names = np.array([["man", "young"], ["woman", "old"]], dtype=object)
    columns = np.column_stack(
        [names[members[:, 0].astype(int), 0], names[members[:, 1].astype(int), 1]]
    )
    queries = Queries.from_arrays(X, y, qid=np.arange(4000) // 40, sensitive_features=columns)
    assert queries.n_groups == 4
    parts = item_weights(membership="parts", tolerance=0.02).fit(queries, 0)
    assert parts.best.lambda_.shape == (1, 4)  # man, woman, old, young
    matrix = np.column_stack([~members[:, 0], members[:, 0], members[:, 1], ~members[:, 1]])
    direct = reweight_items(X, y, matrix, tolerance=0.02)
    np.testing.assert_array_equal(parts.best.lambda_, direct.best.lambda_)
    own = item_weights(membership=lambda train: matrix, tolerance=0.02).fit(queries, 0)
    np.testing.assert_array_equal(own.coef, direct.coef)


def test_the_same_word_in_two_columns_is_two_parts():
    columns = np.array([["yes", "no"], ["no", "yes"], ["yes", "yes"], ["no", "no"]] * 10)
    rng = np.random.default_rng(0)
    queries = Queries.from_arrays(
        rng.normal(size=(40, 2)), np.arange(40) // 4 % 2, qid=np.arange(40) // 8,
        sensitive_features=columns,
    )  # fmt: skip
    model = item_weights(membership="parts", tolerance=1.0).fit(queries, 0)
    assert model.best.delta.shape == (1, 4)
    mixed = Queries.from_arrays(
        queries.X, queries.y, qid=queries["qid"], sensitive_features=["a × b", "c"] * 20
    )
    with pytest.raises(InputError, match="different numbers of parts: 'a × b'"):
        item_weights(membership="parts").fit(mixed, 0)


def test_items_of_unknown_group_are_in_none():
    group = SMALL["sensitive_features"].astype(object)
    unknown = np.arange(SMALL.n_items) % 3 == 0
    group[unknown] = None
    queries = Queries.from_arrays(**{**SMALL, "sensitive_features": group})
    model = item_weights(tolerance=0.02).fit(queries, 0)
    members = queries.group[:, None] == np.arange(2)
    assert not members[unknown].any()
    assert (weigh_items(queries.y, members, model.best.lambda_)[unknown] == 0.5).all()
    known = ~unknown
    expected = rate_gaps(SMALL.y[known], model(SMALL)[known] > 0, members[known])
    np.testing.assert_allclose(model.best.delta, expected)


def test_graded_labels_and_real_ones():
    graded = make_biased_ranking(40, 30, n_labels=5, separation=2.0, random_state=0).queries()

    def coef(y, **options):
        data = Queries.from_arrays(**{**graded, "y": y})
        return item_weights(max_rounds=0, **options).fit(data, 0).coef

    np.testing.assert_array_equal(coef(graded.y), coef(graded.y > 0))
    np.testing.assert_array_equal(coef(graded.y, threshold=2), coef(graded.y > 2))
    real = graded.y + np.random.default_rng(0).random(graded.n_items)
    np.testing.assert_array_equal(coef(real), coef(real > np.median(real)))
    np.testing.assert_array_equal(coef(2 * (graded.y > 1) - 1.0), coef(graded.y > 1))


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("constraint", ["inter", InterGroup(), "equal oportunity", None, 3])
def test_a_constraint_it_cannot_express(constraint):
    with pytest.raises(ConstraintError) as caught:
        item_weights(constraint)
    for name in RATES:
        assert repr(name) in str(caught.value)
    assert ("Did you mean 'equal opportunity'" in str(caught.value)) == (
        constraint == "equal oportunity"
    )


def test_other_spellings():
    for name in ("equalized odds", "equalised_odds", "Equalized-Odds"):
        assert item_weights(name).settings["constraint"] == "equalised odds"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eta": 0}, r"eta must be a number above 0 \(got 0\)"),
        ({"eta": "one"}, r"eta must be .* \(got 'one'\)"),
        ({"alpha": -1.0}, r"alpha must be .* \(got -1"),
        ({"max_rounds": 2.5}, r"max_rounds must be a whole number, 0 or greater \(got 2.5"),
        ({"max_rounds": True}, r"max_rounds must be .* \(got True"),
        ({"tolerance": float("nan")}, r"tolerance must be .* \(got nan"),
        ({"membership": "all"}, "membership is 'all'"),
        ({"threshold": "high"}, r"threshold must be .* \(got 'high'"),
    ],
)
def test_settings_that_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        item_weights(**options)


def test_data_that_is_refused():
    with pytest.raises(InputError, match="All 600 items are positive"):
        item_weights(threshold=-1).fit(SMALL, 0)
    with pytest.raises(InputError, match="no features"):
        item_weights().fit(Queries.from_arrays(**{**SMALL, "X": None}), 0)
    with pytest.raises(InputError, match="groups"):
        item_weights().fit(Queries.from_arrays(SMALL.X, SMALL.y, qid=SMALL["qid"]), 0)
    labels = SMALL.y * (SMALL.group == 0)
    with pytest.raises(ConstraintError, match="'group 2' has items but no positive one"):
        item_weights().fit(Queries.from_arrays(**{**SMALL, "y": labels}), 0)
    model = item_weights(tolerance=1.0).fit(SMALL, 0)
    with pytest.raises(InputError, match="X has 2 features, but the model was trained on 5"):
        model.decision_function(SMALL.X[:, :2])
    X, y = SMALL.X[:6], Y
    for options, message in [
        (dict(membership=APART[:4]), "one row for each of the 6 items"),
        (dict(membership=APART * 2), "matrix of booleans"),
        (dict(membership=np.zeros((6, 2))), "No item has any of the 2 attributes"),
        (
            dict(membership=APART, sample_weight=np.ones(3)),
            "Pass one entry of sample_weight per row",
        ),
    ]:
        with pytest.raises(InputError, match=message):
            reweight_items(X, y, **options)
    with pytest.raises(InputError, match="one 0 or 1 for each of the 6 rows"):
        reweight_items(X, [0, 1, 2, 0, 1, 2], APART)


def test_a_group_without_items_is_left_out():
    three = SMALL.with_groups_of(
        Queries.from_arrays(
            None, [0, 1, 0], qid=[0] * 3, sensitive_features=["group 1", "group 2", "group 3"]
        )
    )
    model = item_weights(tolerance=0.02).fit(three, 0)
    assert np.isnan(model.best.delta[0, 2])
    assert model.best.lambda_[0, 2] == 0
    two = item_weights(tolerance=0.02).fit(SMALL, 0)
    np.testing.assert_array_equal(model.coef, two.coef)


@pytest.mark.filterwarnings("ignore::pairity.exceptions.TargetNotReachedWarning")
def test_it_narrows_the_gap_as_reweighting_does():
    train, test = BIASED.split(0.3, random_state=0)
    members = test.group[:, None] == np.arange(2)

    def gap(scores):
        upper = scores > np.median(scores)
        return largest_rate_gap(rate_gaps(test.y, upper, members, "demographic parity"))

    plain = gap(item_weights(max_rounds=0)(train, test))
    assert gap(item_weights("demographic parity")(train, test)) < plain / 3
    assert gap(FairRanker(constraint="statistical").fit(**train).predict(test.X)) < plain / 3
