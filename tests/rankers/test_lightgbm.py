"""LightGBMRanker: every parameter that LightGBM has, and what only LightGBM does."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone

from pairity import FairRanker, InputError
from pairity.exceptions import TargetNotReachedWarning, TrainingError
from pairity.pairs.losses import Hinge, LambdaRank
from pairity.rankers import lightgbm as adapter
from pairity.rankers.lightgbm import LightGBMRanker
from pairity.reweighting.outcomes import Outcome
from support.boosters import NAMES, TABLE, slow_logistic

lgb = pytest.importorskip("lightgbm", reason="lightgbm is not installed")


def model(**params):
    return lgb.LGBMRanker(**{"n_estimators": 8, "num_leaves": 7, "n_jobs": 1, **params})


@pytest.fixture(scope="session")
def trained(ranking, queries):
    """A function: the scores of the adapter, with these parameters."""

    def scores(loss="logistic", **params):
        ranker = LightGBMRanker(model(**params), loss=loss)
        return ranker.fit_pairs(queries, TABLE).predict(ranking.X)

    return scores


@pytest.fixture(scope="session")
def direct(ranking, queries):
    """A function: the scores of LightGBM's own training call, on the slow objective."""
    slow = slow_logistic(queries, TABLE)

    def scores(n_trees=8, **params):
        params = {"num_leaves": 7, "num_threads": 1, "verbosity": -1, **params}
        data = lgb.Dataset(ranking.X, ranking.y, group=[15] * 40, params=params)
        return lgb.train({**params, "objective": slow}, data, n_trees).predict(ranking.X)

    return scores


@pytest.fixture(scope="session")
def fitted(ranking):
    """A function: the adapter, fitted without weights."""

    def fit(loss=None, params=None, **fit_params):
        ranker = LightGBMRanker(model(**params or {}), loss=loss)
        return ranker.fit(ranking.X, ranking.y, qid=ranking.qid, **fit_params)

    return fit


# --- every parameter is used ----------------------------------------------------------------------

BAGGING = {"subsample": 0.5, "subsample_freq": 1}
PARAMETERS = [
    {"learning_rate": 0.3},
    {"num_leaves": 4},
    {"max_depth": 2},
    {"min_child_samples": 60},
    {"min_child_weight": 300.0},
    {"min_split_gain": 100.0},
    {**BAGGING, "random_state": 3},
    {**BAGGING, "random_state": 4},
    {**BAGGING, "bagging_by_query": True},
    {"colsample_bytree": 0.5},
    {"feature_fraction_bynode": 0.5},
    {"reg_alpha": 20.0},
    {"reg_lambda": 50.0},
    {"max_bin": 7},
    {"min_data_in_bin": 50},
    {"subsample_for_bin": 50},
    {"linear_tree": True},
    {"monotone_constraints": [-1, 1, 0, -1, 1]},
    {"interaction_constraints": [[0, 1], [2, 3, 4]]},
    {"extra_trees": True},
    {"path_smooth": 50.0},
    {"max_delta_step": 0.1},
    {"boosting_type": "dart", "drop_rate": 0.9, "skip_drop": 0.0},
    {"boosting": "dart", "drop_rate": 0.9, "skip_drop": 0.0},
    {"boosting_type": "goss", "learning_rate": 0.5},
    {"data_sample_strategy": "goss", "learning_rate": 0.5},
    {"feature_contri": [0.1, 1, 1, 1, 1]},
]


@pytest.mark.parametrize("params", PARAMETERS, ids=str)
def test_it_is_lightgbm_with_these_parameters(trained, direct, params):
    found = trained(**params)
    assert found == pytest.approx(direct(**params), abs=1e-6)
    assert np.abs(found - trained()).max() > 1e-3  # it makes a difference


@pytest.mark.parametrize("name", adapter._N_TREES)
def test_the_number_of_trees_under_all_its_names(ranking, queries, direct, name):
    totals = set()

    def follow(_, n_total, __):
        totals.add(n_total)
        return TABLE

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ranker = LightGBMRanker(model(**{name: 3}), loss="logistic").fit_following(queries, follow)
    assert ranker.model_.num_trees() == 3
    assert totals == {3}
    assert ranker.predict(ranking.X) == pytest.approx(direct(3), abs=1e-6)


def test_all_names_are_known():
    """LightGBM may add some."""
    aliases = pytest.importorskip("lightgbm.basic")._ConfigAliases
    known = {
        "num_iterations": adapter._N_TREES, "objective": adapter._OBJECTIVE,
        "boosting": adapter._BOOSTING, "num_threads": adapter._THREADS, "seed": adapter._SEED,
        "metric": adapter._METRIC, "eval_at": adapter._EVAL_AT,
    }  # fmt: skip
    for name, names in known.items():
        assert set(names) == aliases.get(name)


@pytest.mark.parametrize("name", adapter._OBJECTIVE)
def test_the_objective_under_all_its_names(ranking, fitted, name):
    same = fitted(params={name: "lambdarank"})
    assert np.array_equal(same.predict(ranking.X), fitted().predict(ranking.X))
    for other in ("regression", "rank_xendcg"):
        with pytest.raises(InputError, match=f"objective='{other}'.*has no weights for pairs"):
            fitted(params={name: other})


@pytest.mark.parametrize("name", adapter._BOOSTING)
@pytest.mark.parametrize("value", ["rf", "random_forest"])
def test_random_forests_are_refused(fitted, name, value):
    with pytest.raises(InputError, match="random forests"):
        fitted(params={name: value, "subsample": 0.5, "subsample_freq": 1})


def test_class_weights_are_refused(fitted):
    with pytest.raises(InputError, match="no classes"):
        fitted(params={"class_weight": {0: 1.0}})


@pytest.mark.parametrize("name", adapter._THREADS)
def test_threads_under_all_their_names(ranking, queries, name, monkeypatch):
    ranker = LightGBMRanker(model(**{"n_jobs": 1, name: 2})).fit_pairs(queries, TABLE)
    seen = {}
    real = lgb.Booster.predict

    def predict(self, *args, **kwargs):
        seen.update(kwargs)
        return real(self, *args, **kwargs)

    monkeypatch.setattr(lgb.Booster, "predict", predict)
    ranker.predict(ranking.X)
    assert seen["num_threads"] == 2  # prediction keeps to it, too


# --- randomness -----------------------------------------------------------------------------------


def test_seeds(trained, direct):
    def drawn(random_state):
        return trained(**BAGGING, random_state=random_state)

    limit = np.iinfo(np.int32).max
    assert np.array_equal(drawn(3), drawn(np.int64(3)))
    seed = int(np.random.RandomState(3).randint(limit))
    assert np.array_equal(drawn(np.random.RandomState(3)), drawn(seed))
    seed = int(np.random.default_rng(3).integers(limit))
    assert np.array_equal(drawn(np.random.default_rng(3)), drawn(seed))
    assert np.array_equal(drawn(None), direct(**BAGGING))
    with pytest.raises(InputError, match=r"random_state must be .*got 'three'"):
        drawn("three")


def test_every_round_has_the_same_seed(data):
    state = np.random.RandomState(3)
    seeds = []

    def note(env):
        seeds.append(env.params["seed"])

    ranker = model(**BAGGING, random_state=state)
    with pytest.warns(TargetNotReachedWarning):
        FairRanker(ranker, max_rounds=2, tolerance=0.0, schedule="retrain", validation=None).fit(
            **data, callbacks=[note]
        )
    assert len(seeds) == 24
    assert len(set(seeds)) == 1


# --- LambdaRank as LightGBM has it ----------------------------------------------------------------

LAMBDARANK = [
    ({}, LambdaRank()),
    ({"sigmoid": 3.0}, LambdaRank(sigma=3.0)),
    ({"lambdarank_truncation_level": 2}, LambdaRank(k=2)),
    ({"lambdarank_norm": False}, LambdaRank(normalise=False)),
    ({"label_gain": [0, 1, 30]}, LambdaRank(gains=[0, 1, 30])),
    ({"label_gain": "0,1,30"}, LambdaRank(gains=[0, 1, 30])),
]


@pytest.mark.parametrize(("params", "same"), LAMBDARANK, ids=str)
def test_settings_of_lambdarank(ranking, fitted, params, same):
    """LightGBM's own ranks ties by row, which is a matter of the first trees only."""
    own = model(**params, n_estimators=40, verbose=-1).fit(ranking.X, ranking.y, group=[15] * 40)
    for loss in (None, "lambdarank"):
        actual = fitted(loss, params=params).predict(ranking.X)
        assert np.array_equal(actual, fitted(same).predict(ranking.X))
        longer = fitted(loss, params={**params, "n_estimators": 40}).predict(ranking.X)
        assert np.corrcoef(own.predict(ranking.X), longer)[0, 1] > 0.9
    if params:
        assert np.abs(actual - fitted().predict(ranking.X)).max() > 1e-3


@pytest.mark.parametrize("name", ["sigmoid", "lambdarank_truncation_level", "lambdarank_norm"])
@pytest.mark.parametrize("loss", ["logistic", Hinge(2.0), LambdaRank(k=3)])
def test_settings_of_another_loss_are_refused(fitted, name, loss):
    with pytest.raises(InputError, match=f"{name}=1 is a setting of LightGBM's own objective"):
        fitted(loss, params={name: 1})


def test_position_bias_is_refused(fitted):
    with pytest.raises(InputError, match="lambdarank_position_bias_regularization"):
        fitted(params={"lambdarank_position_bias_regularization": 0.1})


def test_label_gains_reach_the_metric(held_sets, fitted):
    short = {"params": {"n_estimators": 1, "label_gain": [0, 1, 30]}, "eval_at": [3], **held_sets}
    found = fitted("logistic", **short).evals_result_["valid_0"]["ndcg@3"]
    short["params"] = {"n_estimators": 1}
    assert found != fitted("logistic", **short).evals_result_["valid_0"]["ndcg@3"]


# --- metrics and evaluation sets ------------------------------------------------------------------


def two(y_true, y_pred):
    assert y_true.shape == y_pred.shape
    return "two", 2.0, True


def three(y_true, y_pred, weight):
    assert weight is None
    return "three", 3.0, True


def four(y_true, y_pred, weight, group):
    assert group.sum() == len(y_true)
    return "four", 4.0, True


NDCG = [f"ndcg@{k}" for k in (1, 2, 3, 4, 5)]
MAP = [f"map@{k}" for k in (1, 2, 3, 4, 5)]


@pytest.mark.parametrize(
    ("params", "fit_params", "names"),
    [
        ({}, {}, NDCG),
        ({}, {"eval_metric": "map"}, MAP + NDCG),
        ({"metric": "auc"}, {}, ["auc"]),
        ({"metrics": ["auc", "l2"]}, {}, ["auc", "l2"]),
        ({"metric": "auc,l2"}, {"eval_metric": ["l2", "l1"]}, ["auc", "l2", "l1"]),
        ({"metric": "None"}, {"eval_metric": "auc"}, ["auc"]),
        ({"metric": "None"}, {"eval_metric": two}, ["two"]),
        ({}, {"eval_metric": [two, three, four, "auc"]}, ["auc", "two", "three", "four", *NDCG]),
        ({}, {"eval_at": (3,)}, ["ndcg@3"]),
        ({"eval_at": [2, 4]}, {}, ["ndcg@2", "ndcg@4"]),
        ({"ndcg_at": [2, 4]}, {}, ["ndcg@2", "ndcg@4"]),
    ],
    ids=range(11),
)
def test_metrics(held_ranking, fitted, params, fit_params, names):
    labels = (held_ranking.y > 0).astype(float)
    ranker = fitted(
        "logistic",
        params=params,
        eval_set=(held_ranking.X, labels),
        eval_qid=held_ranking.qid,
        **fit_params,
    )
    assert set(ranker.evals_result_["valid_0"]) == set(names)


def test_names_of_evaluation_sets(held_sets, fitted):
    several = {"eval_set": 2 * held_sets["eval_set"], "eval_qid": 2 * held_sets["eval_qid"]}
    assert set(fitted(eval_names=["one", "two"], **several).evals_result_) == {"one", "two"}
    assert set(fitted(eval_names="one", **held_sets).evals_result_) == {"one"}
    with pytest.raises(InputError, match="1 names for 2 sets"):
        fitted(eval_names=["one"], **several)


def test_callbacks_see_every_round_and_start_afresh(data, held_sets):
    recorded, seen = {}, []
    callbacks = [
        lgb.early_stopping(2, verbose=False), lgb.record_evaluation(recorded),
        lambda env: seen.append(env.iteration),
    ]  # fmt: skip
    fair = FairRanker(
        model(n_estimators=40), max_rounds=2, tolerance=0.0, schedule="retrain", validation=None
    )
    with pytest.warns(TargetNotReachedWarning):
        fair.fit(**data, **held_sets, callbacks=callbacks)
    assert seen.count(0) == 3
    assert len(callbacks) == 3
    assert 0 < fair.ranker_.best_iteration_ < 40
    assert fair.ranker_.model_.num_trees() == fair.ranker_.best_iteration_


@pytest.mark.parametrize(
    "name", ["early_stopping_round", "early_stopping_rounds", "early_stopping", "n_iter_no_change"]
)
def test_early_stopping_under_all_its_names(held_ranking, fitted, name):
    shuffled = np.random.default_rng(0).permutation(held_ranking.y)
    sets = {"eval_set": (held_ranking.X, shuffled), "eval_qid": held_ranking.qid}
    ranker = fitted(params={"n_estimators": 100, name: 2}, **sets)
    assert 0 < ranker.best_iteration_ < 50


def test_a_schedule_of_learning_rates(ranking, fitted):
    rates = lgb.reset_parameter(learning_rate=lambda at: 0.3 if at == 0 else 0.0001)
    found = fitted(callbacks=[rates]).predict(ranking.X)
    one = fitted(params={"n_estimators": 1, "learning_rate": 0.3}).predict(ranking.X)
    assert found == pytest.approx(one, abs=0.02)


def test_an_interruption_in_a_callback(data):
    seen = []

    def callback(_):
        seen.append(0)
        if len(seen) == 20:  # in the third of the rounds of eight trees
            raise KeyboardInterrupt

    fair = FairRanker(model(), tolerance=0.0, schedule="retrain", validation=None)
    with pytest.warns(TargetNotReachedWarning, match="interrupted"):
        fair.fit(**data, callbacks=[callback])
    assert fair.outcome_.kind is Outcome.INTERRUPTED
    assert len(fair.history_) == 2


def test_it_is_quiet_unless_asked(data, held_sets, fitted, capfd):
    FairRanker(model(), max_rounds=1, tolerance=1.0).fit(**data, **held_sets)
    assert capfd.readouterr() == ("", "")
    for name in ("verbose", "verbosity"):
        fitted(params={name: 2})
        assert "[LightGBM]" in "".join(capfd.readouterr())


# --- tables ---------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def coded(categorical):
    """`categorical` with the numbers of the categories."""
    return categorical.assign(e=categorical["e"].cat.codes.astype(int))


@pytest.fixture(scope="session")
def fitted_on(ranking):
    """A function: the scores of the adapter that was fitted on this table."""

    def scores(X, **fit_params):
        ranker = LightGBMRanker(model(min_child_samples=5, cat_smooth=1.0, min_data_per_group=5))
        sets = {"eval_set": [(X[:120], ranking.y[:120])], "eval_qid": [ranking.qid[:120]]}
        return ranker.fit(X, ranking.y, qid=ranking.qid, **sets, **fit_params).predict(X)

    return scores


@pytest.mark.parametrize("schedule", ["retrain", "interleaved"])
def test_categories_of_pandas(ranking, labels, letters, categorical, coded, schedule):
    fair = FairRanker(
        model(min_child_samples=5), schedule=schedule, max_rounds=1, tolerance=1.0, validation=0.3,
        random_state=0,
    )  # fmt: skip
    known = clone(fair).fit(coded, **labels, categorical_feature=["e"])
    fair.fit(
        categorical,
        **labels,
        eval_set=[(categorical[:120], ranking.y[:120])],
        eval_qid=[ranking.qid[:120]],
    )
    assert np.array_equal(fair.predict(categorical), known.predict(coded))
    turned = categorical.assign(e=pd.Categorical(letters, categories=["z", "x", "y"]))
    assert np.array_equal(fair.predict(categorical), fair.predict(turned))
    unseen = categorical.assign(e=pd.Categorical(["w"] * 600, categories=["w", "x", "y", "z"]))
    missing = categorical.assign(e=pd.Categorical([None] * 600, categories=["x", "y", "z"]))
    assert np.array_equal(fair.predict(unseen), fair.predict(missing))


def test_categories_by_name_and_by_number(coded, fitted_on):
    by_name = fitted_on(coded, categorical_feature=["e"])
    by_number = fitted_on(coded, categorical_feature=[4])
    on_matrix = fitted_on(coded.to_numpy(), categorical_feature=[4])
    named = fitted_on(coded.to_numpy(), categorical_feature=["e"], feature_name=NAMES)
    for other in (by_number, on_matrix, named):
        assert np.array_equal(by_name, other)
    assert not np.array_equal(by_name, fitted_on(coded))


@pytest.mark.parametrize(
    "kind",
    [pl.Categorical, pl.String, pl.Enum(["x", "y", "z"])],
    ids=["categories", "text", "enum"],
)
@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_columns_that_would_end_the_process(ranking, labels, letters, kind, library):
    plain = pl.DataFrame(ranking.X, schema=NAMES)
    table = plain.with_columns(e=pl.Series(letters).cast(kind))
    if library == "pyarrow":
        table, plain = table.to_arrow(), plain.to_arrow()
    with pytest.raises(InputError, match=r"The column 'e' is of type .* pandas table"):
        FairRanker(model()).fit(table, **labels)
    with pytest.raises(InputError, match="The column 'e'"):
        FairRanker(model()).fit(plain, **labels, eval_set=(table, ranking.y), eval_qid=ranking.qid)
    fair = FairRanker(model(), max_rounds=0).fit(plain, **labels)
    with pytest.raises(InputError, match="The column 'e'"):
        fair.predict(table)


def test_nulls_in_arrow_tables(ranking, fitted_on):
    gaps = np.where(np.random.default_rng(2).random(ranking.X.shape) < 0.2, np.nan, ranking.X)
    known = fitted_on(gaps)
    polars = pl.DataFrame(gaps, schema=NAMES).fill_nan(None)
    assert np.array_equal(fitted_on(polars), known)
    arrow = pa.concat_tables([polars.to_arrow()[:250], polars.to_arrow()[250:]])  # in two chunks
    assert np.array_equal(fitted_on(arrow), known)


def test_text_in_pandas_is_lightgbms_to_refuse(labels, letters, categorical):
    with pytest.raises(TrainingError, match=r"round 0.*dtypes must be int, float") as caught:
        FairRanker(model(), schedule="retrain").fit(
            categorical.assign(e=letters.astype(object)), **labels
        )
    assert isinstance(caught.value.__cause__, ValueError)


def test_dask_models_are_refused(data):
    class Cluster(lgb.LGBMRanker):
        client = None

    with pytest.raises(InputError, match="trains LGBMRanker, not Cluster"):
        FairRanker(Cluster()).fit(**data)
