"""RegressorRanker: the minimum it comes to, with whatever regressor, and what weights mean."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor, ExtraTreeRegressor

from pairity import FairRanker, InputError, LinearRanker, Queries
from pairity.datasets import make_biased_ranking
from pairity.exceptions import TrainingError
from pairity.pairs.cells import mean_auc, total_weight
from pairity.pairs.logistic import pairwise_logistic
from pairity.rankers.adapters import as_ranker
from pairity.rankers.regressor import RegressorRanker

TABLE = np.array([[0.3, 1.6], [0.9, 1.2]])
TREE = DecisionTreeRegressor(max_depth=4, random_state=0)
SMALL_HGB = HistGradientBoostingRegressor(max_iter=5, max_leaf_nodes=8, random_state=0)


def make(n_queries=20, n_items=20, **options):
    return make_biased_ranking(n_queries, n_items, **{"random_state": 0, **options})


DATA = make()
QUERIES = DATA.queries()


def mean_loss(queries, scores, table):
    return pairwise_logistic(queries, scores, table).loss / total_weight(queries, table)


# --- the minimum ---------------------------------------------------------------------------------


@pytest.mark.parametrize("table", [np.ones((2, 2)), TABLE], ids=["plain", "weighted"])
@pytest.mark.parametrize("n_labels", [2, 5])
@pytest.mark.parametrize(
    "regressor",
    [Ridge(), make_pipeline(StandardScaler(), LinearRegression())],
    ids=["Ridge", "pipe"],
)
def test_a_linear_regressor_comes_to_the_linear_minimum(regressor, n_labels, table):
    data = make(60, 20, n_labels=n_labels)
    queries = data.queries()
    best = LinearRanker(alpha=0.0).fit_pairs(queries, table)
    least = mean_loss(queries, best.predict(data.X), table)
    actual = RegressorRanker(regressor).fit_pairs(queries, table)
    assert mean_loss(queries, actual.predict(data.X), table) == pytest.approx(least, rel=1e-3)
    assert actual.loss_curve_[-1] == pytest.approx(
        mean_loss(queries, actual.predict(data.X), table), rel=1e-9
    )


@pytest.mark.parametrize(
    "regressor",
    [Ridge(), TREE, SMALL_HGB, RandomForestRegressor(5, max_depth=4, random_state=0)],
    ids=lambda regressor: type(regressor).__name__,
)
def test_every_step_lowers_the_loss(regressor):
    ranker = RegressorRanker(regressor, n_estimators=6, learning_rate=1.0).fit_pairs(QUERIES, TABLE)
    assert ranker.loss_curve_[0] == pytest.approx(np.log(2.0))
    assert (np.diff(ranker.loss_curve_) < 0).all()
    assert (
        len(ranker.model_.estimators) == len(ranker.model_.weights) == len(ranker.loss_curve_) - 1
    )
    expected = sum(
        w * e.predict(DATA.X)
        for w, e in zip(ranker.model_.weights, ranker.model_.estimators, strict=True)
    )
    np.testing.assert_allclose(ranker.predict(DATA.X), expected)


def test_trees_come_lower_than_a_line():
    """A score that bends: a line cannot follow it."""
    X = np.random.default_rng(0).uniform(-1, 1, (600, 1))
    qid = np.arange(600) // 20
    queries = Queries.from_arrays(X, np.abs(X[:, 0]) > 0.6, qid=qid)
    one = np.ones((0, 0))
    line = RegressorRanker(Ridge()).fit_pairs(queries, one)
    tree = RegressorRanker(TREE).fit_pairs(queries, one)
    assert line.loss_curve_[-1] > 0.69
    assert tree.loss_curve_[-1] < 0.1


def test_steps_that_are_too_long_are_halved():
    class TooFar(Ridge):
        def predict(self, X):
            return 10.0 * super().predict(X)

    ranker = RegressorRanker(TooFar(), learning_rate=1.0).fit_pairs(QUERIES, TABLE)
    assert ranker.model_.weights.min() < 1.0
    assert (np.diff(ranker.loss_curve_) < 0).all()


def test_steps_that_lead_nowhere_end_it():
    class Backwards(Ridge):
        def predict(self, X):
            return -super().predict(X)

    ranker = RegressorRanker(Backwards()).fit_pairs(QUERIES, TABLE)
    assert ranker.model_.estimators == []
    np.testing.assert_array_equal(ranker.predict(DATA.X), np.zeros(len(DATA.y)))
    done = RegressorRanker(Ridge(), n_estimators=500).fit_pairs(QUERIES, TABLE)
    assert len(done.model_.estimators) < 60


def test_a_score_that_is_far_off_is_pulled_back():
    """Where the curvature vanishes, weight times target is still minus the gradient."""
    from pairity.rankers.regressor import _least_squares

    queries = Queries.from_arrays(None, [1, 0, 0], qid=[0, 0, 0])
    at = pairwise_logistic(queries, np.array([-800.0, 800.0, -800.0]), np.ones((0, 0)))
    target, weight = _least_squares(at.gradient, at.hessian)
    assert np.isfinite(target).all()
    assert np.abs(target).max() <= 4.0
    assert weight.mean() == pytest.approx(1.0)
    scale = (weight * target)[0] / -at.gradient[0]
    np.testing.assert_allclose(weight * target, -scale * at.gradient)


@pytest.mark.parametrize("loss", ["logistic", "hinge", "bpr", "lambdarank"])
def test_every_loss_learns_to_rank(loss):
    ranker = RegressorRanker(Ridge(), loss=loss).fit_pairs(QUERIES, TABLE)
    assert mean_auc(QUERIES, ranker.predict(DATA.X)) > 0.7
    assert (ranker.loss_curve_ == []) == (loss == "lambdarank")


# --- what weights mean, and what does not matter ------------------------------------------------


def assert_same(one, other, X=DATA.X):
    np.testing.assert_allclose(one.predict(X), other.predict(X), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("regressor", [Ridge(), TREE, SMALL_HGB], ids=lambda r: type(r).__name__)
def test_scaling_all_weights_changes_nothing(regressor):
    ranker = RegressorRanker(regressor, n_estimators=5)
    one = clone(ranker).fit_pairs(QUERIES, TABLE)
    assert_same(one, clone(ranker).fit_pairs(QUERIES, 64.0 * TABLE))


@pytest.mark.parametrize("regressor", [LinearRegression(), TREE], ids=lambda r: type(r).__name__)
def test_a_whole_query_weight_equals_repeating_and_zero_equals_dropping(regressor):
    times = np.arange(20) % 3
    weighted = Queries.from_arrays(**{**QUERIES, "query_weight": times[DATA.qid]})
    rows = np.concatenate(
        [np.flatnonzero(DATA.qid == q) for q in range(20) for _ in range(times[q])]
    )
    repeated = Queries.from_arrays(
        DATA.X[rows], DATA.y[rows], qid=np.repeat(np.arange(times.sum()), 20),
        sensitive_features=DATA.sensitive_features[rows],
    )  # fmt: skip
    ranker = RegressorRanker(regressor, n_estimators=3)
    one = clone(ranker).fit_pairs(weighted, TABLE)
    assert_same(one, clone(ranker).fit_pairs(repeated, TABLE))


def test_a_cell_of_weight_zero_is_not_trained_on():
    table = np.array([[1.0, 0.0], [1.0, 1.0]])
    group = DATA.sensitive_features.copy()
    first = np.flatnonzero(DATA.qid == 0)
    group[first] = np.where(DATA.y[first] > 0, "group 1", "group 2")
    both = Queries.from_arrays(DATA.X, DATA.y, qid=DATA.qid, sensitive_features=group)
    ranker = RegressorRanker(LinearRegression())
    one = clone(ranker).fit_pairs(both, table)
    assert_same(one, clone(ranker).fit_pairs(both.take(np.arange(1, 20)), table))


@pytest.mark.parametrize("regressor", [Ridge(), SMALL_HGB], ids=lambda r: type(r).__name__)
def test_the_order_of_rows_does_not_matter(regressor):
    order = np.random.default_rng(0).permutation(len(DATA.y))
    mixed = Queries.from_arrays(
        DATA.X[order], DATA.y[order], qid=DATA.qid[order],
        sensitive_features=DATA.sensitive_features[order],
    )  # fmt: skip
    ranker = RegressorRanker(regressor, n_estimators=3)
    assert_same(clone(ranker).fit_pairs(QUERIES, TABLE), clone(ranker).fit_pairs(mixed, TABLE))


# --- randomness ----------------------------------------------------------------------------------


def random_tree(seed):
    return RegressorRanker(ExtraTreeRegressor(max_depth=3, max_features=1, random_state=seed))


def test_the_same_seed_gives_the_same_model():
    one, same, other = (random_tree(s).fit_pairs(QUERIES, TABLE) for s in (0, 0, 1))
    np.testing.assert_array_equal(one.predict(DATA.X), same.predict(DATA.X))
    assert not np.array_equal(one.predict(DATA.X), other.predict(DATA.X))
    roots = {int(estimator.tree_.feature[0]) for estimator in one.model_.estimators}
    assert len(roots) > 1  # every step has a seed of its own
    assert one.estimator.random_state == 0


def test_without_a_seed_later_rounds_keep_the_first_ones():
    first = random_tree(None).fit_pairs(QUERIES, TABLE)
    again = random_tree(None).fit_pairs(QUERIES, TABLE, previous=first)
    np.testing.assert_array_equal(first.predict(DATA.X), again.predict(DATA.X))


def test_the_regressor_is_left_alone():
    regressor = Ridge()
    ranker = RegressorRanker(regressor).fit_pairs(QUERIES, TABLE)
    assert ranker.estimator is regressor
    assert not hasattr(regressor, "coef_")


# --- tables of all kinds -------------------------------------------------------------------------


def test_missing_values_and_categories_reach_the_regressor():
    frame = pd.DataFrame(DATA.X, columns=list("abcde"))
    frame.loc[frame.index % 7 == 0, "a"] = np.nan
    frame["kind"] = pd.Categorical(np.where(DATA.X[:, 0] > 0, "high", "low"))
    regressor = HistGradientBoostingRegressor(max_iter=5, categorical_features="from_dtype")
    ranker = RegressorRanker(regressor, n_estimators=3).fit(frame, DATA.y, qid=DATA.qid)
    assert mean_auc(QUERIES, ranker.predict(frame)) > 0.7
    assert list(ranker.feature_names_in_) == [*"abcde", "kind"]
    model = FairRanker(RegressorRanker(regressor, n_estimators=3), max_rounds=0)
    model.fit(frame, DATA.y, qid=DATA.qid, sensitive_features=DATA.sensitive_features)
    np.testing.assert_allclose(model.predict(frame), ranker.predict(frame))


def test_rounding_to_bins_changes_next_to_nothing():
    """A frame is not rounded, a matrix is; whole numbers, few values and NaN stay as they are."""
    from pairity.rankers.regressor import _round_to_bins

    rng = np.random.default_rng(0)
    data = make(60, 20)
    queries, frame = data.queries(), pd.DataFrame(data.X, columns=list("abcde"))
    ranker = RegressorRanker(SMALL_HGB, n_estimators=3)
    rounded = clone(ranker).fit_pairs(queries, TABLE)
    exact = clone(ranker).fit(frame, data.y, qid=data.qid)
    plain = clone(ranker).fit(data.X, data.y, qid=data.qid)
    assert mean_auc(queries, plain.predict(data.X)) == pytest.approx(
        mean_auc(queries, exact.predict(frame)), abs=0.01
    )
    assert rounded.loss_curve_[-1] == pytest.approx(
        mean_loss(queries, rounded.predict(data.X), TABLE), rel=1e-9
    )
    few = rng.integers(0, 9, 1000).astype(float)
    many = np.where(rng.random(1000) < 0.1, np.nan, rng.normal(size=1000))
    for column, n_values in ((few, 9), (many, 20)):
        made = column.copy()
        _round_to_bins(made, 20)
        assert len(np.unique(made[~np.isnan(made)])) == n_values
        np.testing.assert_array_equal(np.isnan(made), np.isnan(column))
        order = np.argsort(column)
        assert (np.diff(made[order][~np.isnan(made[order])]) >= 0).all()
    np.testing.assert_array_equal(few, np.round(few))


def test_sparse_equals_dense():
    X = np.where(np.abs(DATA.X) < 0.5, 0.0, DATA.X)
    known = {"y": DATA.y, "qid": DATA.qid}
    dense = RegressorRanker(Ridge()).fit(X, **known)
    sparse = RegressorRanker(Ridge(solver="sparse_cg", tol=1e-10)).fit(sp.csr_array(X), **known)
    np.testing.assert_allclose(sparse.predict(sp.csr_array(X)), dense.predict(X), atol=1e-3)


# --- in a FairRanker -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "regressor",
    [Ridge(), DecisionTreeRegressor(max_depth=3, random_state=0), SMALL_HGB],
    ids=lambda regressor: type(regressor).__name__,
)
def test_reweighting_lowers_the_violation(regressor):
    data = make(120, 20, strength=1.5)
    ranker = RegressorRanker(regressor, n_estimators=10)
    model = FairRanker(ranker, "inter", tolerance=0.01, max_rounds=10, validation=None)
    model.fit(data.X, data.y, qid=data.qid, sensitive_features=data.sensitive_features)
    assert model.history_[0].violation > 3 * model.tolerance
    assert model.violation_ <= model.tolerance


def test_a_flexible_regressor_is_measured_on_other_queries():
    """It memorises its training queries, so their violation is uninformative."""
    data = make(300, 20, strength=1.5)
    regressor = HistGradientBoostingRegressor(max_iter=10, random_state=0)
    model = FairRanker(regressor, "inter", tolerance=0.02, validation=0.3, random_state=0)
    model.fit(data.X, data.y, qid=data.qid, sensitive_features=data.sensitive_features)
    assert model.violation_ <= model.tolerance
    assert model.violation_ < 0.5 * model.history_[0].violation


def test_a_bare_regressor_is_a_ranker():
    assert isinstance(as_ranker(SMALL_HGB), RegressorRanker)
    model = FairRanker(Ridge(), max_rounds=1, tolerance=1.0).fit(
        DATA.X, DATA.y, qid=DATA.qid, sensitive_features=DATA.sensitive_features
    )
    assert model.predict(DATA.X).shape == DATA.y.shape


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimator": KNeighborsRegressor()}, "takes no sample_weight"),
        (
            {"estimator": make_pipeline(StandardScaler(), KNeighborsRegressor())},
            "KNeighborsRegressor",
        ),
        ({"n_estimators": 0}, "n_estimators must be .*got 0"),
        ({"n_iter_no_change": 0.5}, "n_iter_no_change must be .*got 0.5"),
        ({"learning_rate": 0.0}, "learning_rate must be .*got 0"),
        ({"learning_rate": 2}, "learning_rate must be .*got 2"),
        ({"tol": -1}, "tol must be .*got -1"),
        ({"loss": "huber"}, "no loss named 'huber'"),
    ],
    ids=str,
)
def test_bad_parameters(options, message):
    with pytest.raises(InputError, match=message):
        RegressorRanker(**{"estimator": Ridge(), **options}).fit_pairs(QUERIES, TABLE)


def test_bad_data():
    ranker = RegressorRanker(Ridge())
    with pytest.raises(InputError, match="add up to 0"):
        ranker.fit_pairs(QUERIES, np.zeros((2, 2)))
    with pytest.raises(InputError, match="no features"):
        ranker.fit_pairs(Queries.from_arrays(None, DATA.y, qid=DATA.qid), np.ones((0, 0)))
    with pytest.raises(InputError, match="two different labels"):
        ranker.fit(DATA.X, np.ones(len(DATA.y)), qid=DATA.qid)
    ranker.fit(DATA.X, DATA.y, qid=DATA.qid)
    with pytest.raises(InputError, match="4 features"):
        ranker.predict(DATA.X[:, :4])


def test_predictions_that_are_no_numbers_are_told():
    class Lost(Ridge):
        def predict(self, X):
            return np.full(len(X), np.nan)

    with pytest.raises(TrainingError, match="NaN or infinity for 400 of 400"):
        RegressorRanker(Lost()).fit_pairs(QUERIES, TABLE)
