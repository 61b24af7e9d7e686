"""XGBoostRanker: every parameter that XGBoost has, and what only XGBoost does."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from pairity import FairRanker, InputError
from pairity.exceptions import TargetNotReachedWarning, TrainingError
from pairity.pairs.losses import Hinge, LambdaRank
from pairity.rankers.xgboost import XGBoostRanker
from support.boosters import NAMES, TABLE, slow_logistic

xgb = pytest.importorskip("xgboost", reason="xgboost is not installed")


def model(**params):
    return xgb.XGBRanker(**{"n_estimators": 8, "max_depth": 3, "n_jobs": 1, **params})


@pytest.fixture(scope="session")
def noise(held_ranking, held_sets):
    """An evaluation set with nothing to learn."""
    shuffled = np.random.default_rng(0).permutation(held_ranking.y)
    return {**held_sets, "eval_set": [(held_ranking.X, shuffled)]}


@pytest.fixture(scope="session")
def trained(ranking, queries):
    """A function: the scores of the adapter, with these parameters."""

    def scores(loss="logistic", **params):
        ranker = XGBoostRanker(model(**params), loss=loss)
        return ranker.fit_pairs(queries, TABLE).predict(ranking.X)

    return scores


@pytest.fixture(scope="session")
def direct(ranking, queries):
    """A function: the scores of XGBoost's own training call, on the slow objective."""
    slow = slow_logistic(queries, TABLE, curvature=2.0)

    def scores(n_trees=8, **params):
        data = xgb.DMatrix(ranking.X, ranking.y, group=[15] * 40)
        params = {"max_depth": 3, "nthread": 1, "base_score": 0.0, **params}
        params = {name: value for name, value in params.items() if value is not None}
        return xgb.train(params, data, n_trees, obj=slow).predict(data, output_margin=True)

    return scores


@pytest.fixture(scope="session")
def fitted(ranking):
    """A function: the adapter, fitted without weights."""

    def fit(loss=None, params=None, X=ranking.X, **fit_params):
        ranker = XGBoostRanker(model(**params or {}), loss=loss)
        return ranker.fit(X, ranking.y, qid=ranking.qid, **fit_params)

    return fit


# --- every parameter is used ----------------------------------------------------------------------

PARAMETERS = [
    {"learning_rate": 0.1},
    {"eta": 0.1},
    {"max_depth": 2},
    {"grow_policy": "lossguide", "max_leaves": 3, "max_depth": 0},
    {"min_child_weight": 300.0},
    {"gamma": 30.0},
    {"subsample": 0.5, "random_state": 3},
    {"subsample": 0.5, "seed": 3},
    {"subsample": 0.5, "random_state": 4},
    {"colsample_bytree": 0.5},
    {"colsample_bylevel": 0.5},
    {"colsample_bynode": 0.5},
    {"reg_alpha": 20.0},
    {"reg_lambda": 50.0},
    {"max_bin": 7},
    {"max_delta_step": 0.1},
    {"tree_method": "approx"},
    {"tree_method": "approx", "max_bin": 7},
    {"tree_method": "exact"},
    {"booster": "dart", "rate_drop": 0.9, "one_drop": 1},
    {"booster": "gblinear", "updater": "coord_descent", "max_depth": None},
    {"num_parallel_tree": 3, "subsample": 0.5},
    {"base_score": 2.5},
    {"monotone_constraints": (-1, 1, 0, -1, 1)},
    {"interaction_constraints": "[[0, 1], [2, 3, 4]]"},
]
SAME = [
    {"tree_method": "hist"},
    {"device": "cpu"},
    {"booster": "gbtree"},
    {"validate_parameters": 1},
]


@pytest.mark.parametrize("params", PARAMETERS, ids=str)
def test_it_is_xgboost_with_these_parameters(trained, direct, params):
    found = trained(**params)
    assert found == pytest.approx(direct(**params), abs=1e-4)
    assert np.abs(found - trained()).max() > 1e-3  # it makes a difference


@pytest.mark.parametrize("params", SAME, ids=str)
def test_parameters_that_say_what_is_so_anyway(trained, params):
    assert np.array_equal(trained(**params), trained())


def test_the_number_of_trees(ranking, trained, direct):
    assert trained(n_estimators=3) == pytest.approx(direct(3), abs=1e-4)
    default = XGBoostRanker(xgb.XGBRanker(max_depth=1)).fit(ranking.X, ranking.y, qid=ranking.qid)
    assert default.model_.num_boosted_rounds() == 100


def test_weights_of_features(held_sets, fitted):
    weights = np.array([0.0, 1.0, 1.0, 0.0, 1.0])
    ranker = fitted(params={"feature_weights": weights, "colsample_bynode": 0.5}, **held_sets)
    assert set(ranker.model_.get_score()) <= {"f1", "f2", "f4"}


def test_an_unknown_parameter_is_xgboosts_to_report(fitted):
    with pytest.warns(UserWarning, match='"no_such" } are not used'):
        fitted(params={"no_such": 1})


# --- randomness -----------------------------------------------------------------------------------


def test_seeds(trained):
    def drawn(random_state):
        return trained(subsample=0.5, random_state=random_state)

    limit = np.iinfo(np.int32).max
    assert np.array_equal(drawn(3), drawn(np.int64(3)))
    assert np.array_equal(drawn(None), drawn(0))
    seed = int(np.random.RandomState(3).randint(limit))
    assert np.array_equal(drawn(np.random.RandomState(3)), drawn(seed))


@pytest.mark.parametrize("make", [np.random.RandomState, np.random.default_rng])
def test_every_round_has_the_same_seed(ranking, data, make):
    """XGBoost draws one whenever it is asked for its parameters, and so does sklearn's clone."""
    ranker = XGBoostRanker(model(subsample=0.5, random_state=make(3)))
    first, second = clone(ranker), clone(ranker)
    assert first.estimator.random_state == second.estimator.random_state
    fair = FairRanker(ranker, max_rounds=0).fit(**data)
    again = FairRanker(ranker, max_rounds=0).fit(**data)
    assert np.array_equal(fair.predict(ranking.X), again.predict(ranking.X))
    assert clone(XGBoostRanker(loss=Hinge(2.0))).loss == Hinge(2.0)


# --- the objective --------------------------------------------------------------------------------


def test_losses_of_the_objectives(ranking, fitted):
    lambdarank = fitted(LambdaRank(k=32)).predict(ranking.X)
    assert np.array_equal(fitted().predict(ranking.X), lambdarank)
    assert np.array_equal(fitted(params={"objective": "rank:ndcg"}).predict(ranking.X), lambdarank)
    pairwise = fitted(params={"objective": "rank:pairwise"}).predict(ranking.X)
    assert np.array_equal(pairwise, fitted("logistic").predict(ranking.X))
    both = fitted("lambdarank", params={"objective": "rank:pairwise"}).predict(ranking.X)
    assert np.array_equal(both, lambdarank)


@pytest.mark.parametrize(
    ("params", "loss"),
    [
        ({"lambdarank_pair_method": "topk"}, LambdaRank(k=32)),
        ({"lambdarank_num_pair_per_sample": 2}, LambdaRank(k=2)),
        (
            {"lambdarank_normalization": False, "lambdarank_score_normalization": False},
            LambdaRank(k=32, normalise=False),
        ),
        ({"ndcg_exp_gain": False}, LambdaRank(k=32, gains=(0.0, 1.0, 2.0))),
    ],
    ids=str,
)
def test_settings_of_rank_ndcg(ranking, fitted, params, loss):
    for name in (None, "lambdarank"):
        found = fitted(name, params=params).predict(ranking.X)
        assert np.array_equal(found, fitted(loss).predict(ranking.X))


@pytest.mark.parametrize(
    ("params", "loss", "message"),
    [
        ({"objective": "rank:map"}, None, "'rank:map'.*no weights for pairs"),
        ({"objective": "rank:map"}, "logistic", "no weights for pairs"),
        ({"lambdarank_pair_method": "mean"}, None, "samples pairs inside XGBoost"),
        ({"lambdarank_pair_method": "mean"}, "logistic", "lambdarank_pair_method='mean' is a"),
        ({"lambdarank_unbiased": True}, None, "lambdarank_unbiased=True is a setting"),
        ({"lambdarank_bias_norm": 1.0}, None, "lambdarank_bias_norm"),
        ({"lambdarank_num_pair_per_sample": 3}, Hinge(), "replaces by Hinge"),
        (
            {"lambdarank_num_pair_per_sample": 3, "objective": "rank:pairwise"}, None, "Logistic",
        ),
        ({"lambdarank_normalization": False}, None, "must have the same value"),
    ],
    ids=str,
)  # fmt: skip
def test_settings_that_cannot_be_carried_over(data, params, loss, message):
    with pytest.raises(InputError, match=message):
        FairRanker(XGBoostRanker(model(**params), loss=loss)).fit(**data)


def test_gains_reach_the_metric(held_sets, fitted):
    one = fitted("logistic", params={"n_estimators": 1}, **held_sets).evals_result_
    other = fitted("logistic", params={"n_estimators": 1, "ndcg_exp_gain": False}, **held_sets)
    assert one["validation_0"]["ndcg"] != other.evals_result_["validation_0"]["ndcg"]


# --- metrics, evaluation sets and callbacks -------------------------------------------------------


def test_metrics(held_ranking, held_sets, fitted):
    assert list(fitted(**held_sets).evals_result_["validation_0"]) == ["ndcg"]
    labels = np.minimum(held_ranking.y, 1)
    sets = {"eval_set": 2 * [(held_ranking.X, labels)], "eval_qid": 2 * [held_ranking.qid]}
    several = fitted(params={"eval_metric": ["ndcg@3", "pre@2-", "rmse"]}, **sets)
    assert list(several.evals_result_) == ["validation_0", "validation_1"]
    assert list(several.evals_result_["validation_1"]) == ["ndcg@3", "pre@2-", "rmse"]


@pytest.mark.parametrize("listed", [False, True])
def test_functions_as_metrics_are_refused(held_sets, fitted, listed):
    def metric(y_true, y_pred):
        return 0.0

    with pytest.raises(InputError, match="takes no function as eval_metric"):
        fitted(params={"eval_metric": [metric] if listed else metric}, **held_sets)


@pytest.mark.parametrize("booster", ["gbtree", "dart", "gblinear"])
def test_early_stopping_of_every_booster(noise, fitted, booster):
    params = {"n_estimators": 100, "early_stopping_rounds": 3, "booster": booster}
    ranker = fitted(params={**params, "max_depth": None}, **noise)
    length = len(ranker.evals_result_["validation_0"]["ndcg"])
    assert length < 100
    # A linear model cannot be cut back; XGBRanker predicts with its last step, too.
    best = length - 1 if booster == "gblinear" else ranker.best_iteration_
    assert ranker.model_.num_boosted_rounds() == best + 1
    assert ranker.best_iteration_ == best


@pytest.mark.parametrize("save_best", [False, True])
def test_callbacks_start_afresh_in_every_round(data, noise, save_best):
    stop = xgb.callback.EarlyStopping(rounds=3, save_best=save_best)
    fair = FairRanker(
        model(n_estimators=100, callbacks=[stop]),
        max_rounds=2,
        tolerance=0.0,
        schedule="retrain",
        validation=None,
    )
    with pytest.warns(TargetNotReachedWarning):
        fair.fit(**data, **noise)
    assert stop.stopping_history == {}  # the caller's own is not used up
    ranker = fair.ranker_
    values = ranker.evals_result_["validation_0"]["ndcg"]
    assert ranker.best_iteration_ == int(np.argmax(values))
    assert len(values) == ranker.best_iteration_ + 4
    assert ranker.model_.num_boosted_rounds() == ranker.best_iteration_ + 1


def test_a_schedule_of_learning_rates(ranking, fitted):
    rates = xgb.callback.LearningRateScheduler(lambda at: 0.3 if at == 0 else 0.0001)
    found = fitted(params={"callbacks": [rates]}).predict(ranking.X)
    two = fitted(params={"n_estimators": 2}).predict(ranking.X)  # it acts on the tree that follows
    assert found == pytest.approx(two, abs=0.02)


def test_it_is_quiet_unless_asked(data, held_sets, fitted, capfd):
    FairRanker(model(), max_rounds=1, tolerance=1.0).fit(**data, **held_sets)
    assert capfd.readouterr() == ("", "")
    fitted(verbose=True, **held_sets)
    assert "validation_0-ndcg" in capfd.readouterr().out


# --- tables ---------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def coded(categorical):
    """`categorical` as a matrix, with the numbers of the categories."""
    return categorical.assign(e=categorical["e"].cat.codes).to_numpy()


@pytest.mark.parametrize("schedule", ["retrain", "interleaved"])
@pytest.mark.parametrize("stop", [None, 3])
def test_categories(ranking, labels, letters, categorical, coded, schedule, stop):
    options = {
        "schedule": schedule, "max_rounds": 1, "tolerance": 1.0, "validation": 0.3,
        "random_state": 0,
    }  # fmt: skip
    params = {"enable_categorical": True, "early_stopping_rounds": stop}
    fair, known = (FairRanker(model(**params), **options) for _ in range(2))
    known.set_params(ranker__feature_types=["q"] * 4 + ["c"])
    rows = slice(0, 120)
    sets = {"eval_qid": [ranking.qid[rows]]}
    known.fit(coded, **labels, **sets, eval_set=[(coded[rows], ranking.y[rows])])
    fair.fit(categorical, **labels, **sets, eval_set=[(categorical[rows], ranking.y[rows])])
    assert np.array_equal(fair.predict(categorical), known.predict(coded))
    turned = categorical.assign(e=pd.Categorical(letters, categories=["z", "x", "y"]))
    assert np.array_equal(fair.predict(categorical), fair.predict(turned))
    unseen = categorical.assign(e=pd.Categorical(["w"] * 600, categories=["w", "x", "y", "z"]))
    data, ranker = xgb.DMatrix(unseen, enable_categorical=True), fair.ranker_
    trees = (0, ranker.best_iteration_ + 1)  # XGBoost has a say on this
    assert np.array_equal(
        fair.predict(unseen), ranker.model_.predict(data, iteration_range=trees).astype(float)
    )


def test_categories_of_polars(ranking, letters, categorical, fitted):
    table = pl.DataFrame(ranking.X, schema=NAMES).with_columns(
        e=pl.Series(letters).cast(pl.Enum(["x", "y", "z"]))
    )
    found = fitted(params={"enable_categorical": True}, X=table).predict(table)
    known = fitted(params={"enable_categorical": True}, X=categorical).predict(categorical)
    assert np.array_equal(found, known)


def test_categories_not_enabled_are_xgboosts_to_refuse(labels, categorical):
    with pytest.raises(TrainingError, match=r"round 0.*enable_categorical") as caught:
        FairRanker(model(enable_categorical=False), schedule="retrain").fit(categorical, **labels)
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("tree_method", ["hist", "approx", "exact"])
def test_a_number_that_stands_for_missing(ranking, fitted, tree_method):
    gaps = np.random.default_rng(2).random(ranking.X.shape) < 0.2
    missing, filled = np.where(gaps, np.nan, ranking.X), np.where(gaps, -999.0, ranking.X)
    params = {"tree_method": tree_method}
    known = fitted(params=params, X=missing).predict(missing)
    found = fitted(params={**params, "missing": -999.0}, X=filled).predict(filled)
    assert np.array_equal(found, known)


def test_what_a_sparse_matrix_leaves_out_is_missing(ranking, fitted):
    zeros = np.where(ranking.X > 0.3, ranking.X, 0.0)
    known = np.where(zeros == 0, np.nan, zeros)
    found = fitted(X=sp.csr_array(zeros)).predict(sp.csr_array(zeros))
    assert np.array_equal(found, fitted(X=known).predict(known))
