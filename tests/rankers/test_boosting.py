"""What the adapters of LightGBM and XGBoost have in common, each tried on both."""

import pickle
import subprocess
import sys
import weakref
from types import SimpleNamespace

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.metrics import ndcg_score
from sklearn.model_selection import GridSearchCV, GroupKFold

from pairity import FairRanker, InputError, LinearRanker, Queries, StatisticalParity, load
from pairity._utils.threads import n_threads
from pairity.datasets import BiasedWorld, make_biased_ranking
from pairity.exceptions import MissingExtraError, TargetNotReachedWarning, TrainingError
from pairity.pairs.losses import Logistic
from pairity.rankers._evaluation_sets import read_evaluation_sets
from pairity.rankers.adapters import as_ranker
from pairity.rankers.lightgbm import LightGBMRanker
from pairity.rankers.xgboost import XGBoostRanker
from pairity.reweighting.outcomes import Outcome
from support.boosters import NAMES, ONES, TABLE, eval_sets, slow_logistic


@pytest.fixture(params=["lightgbm", "xgboost"])
def engine(request):
    library = pytest.importorskip(request.param, reason=f"{request.param} is not installed")
    if request.param == "lightgbm":
        return SimpleNamespace(
            library=library, name="lightgbm", adapter=LightGBMRanker, data="Dataset",
            model=lambda **params: library.LGBMRanker(
                **{"n_estimators": 8, "num_leaves": 7, "n_jobs": 1, **params}
            ),
            load="lightgbm.Booster(model_file=path).predict(X)", leaves="num_leaves",
        )  # fmt: skip
    return SimpleNamespace(
        library=library, name="xgboost", adapter=XGBoostRanker, data="QuantileDMatrix",
        model=lambda **params: library.XGBRanker(
            **{"n_estimators": 8, "max_depth": 3, "n_jobs": 1, **params}
        ),
        load="xgboost.Booster(model_file=path).predict(xgboost.DMatrix(X), output_margin=True)",
        leaves="max_depth",
    )  # fmt: skip


def fair(engine, constraint="inter", *, loss=None, params=None, **options):
    defaults = {"tolerance": 0.03, "max_rounds": 10, "schedule": "retrain", "validation": None}
    options = {**defaults, **options}
    return FairRanker(
        engine.adapter(engine.model(**params or {}), loss=loss), constraint, **options
    )


def stopping(engine, n):
    """Early stopping as each engine has it: parameters of the model."""
    name = "early_stopping_round" if engine.name == "lightgbm" else "early_stopping_rounds"
    return {name: n}


# --- reweighting ----------------------------------------------------------------------------------


@pytest.mark.parametrize("validation", [None, 0.3])
@pytest.mark.parametrize("schedule", ["retrain", "interleaved"])
@pytest.mark.parametrize("constraint", ["inter", "statistical"])
def test_the_violation_comes_within_the_tolerance(engine, constraint, schedule, validation):
    made = make_biased_ranking(
        100, 16, strength=1.5, separation=3.0, world=BiasedWorld(noise=0.5), random_state=0
    )
    model = FairRanker(
        engine.model(n_estimators=60), constraint, tolerance=0.04, schedule=schedule,
        validation=validation, random_state=0,
    )  # fmt: skip
    model.fit(made.X, made.y, qid=made.qid, sensitive_features=made.sensitive_features)
    plain = clone(model).set_params(max_rounds=0, schedule="retrain")
    plain.fit(made.X, made.y, qid=made.qid, sensitive_features=made.sensitive_features)
    assert model.outcome_.kind is Outcome.WITHIN_TOLERANCE
    assert model.violation_ <= 0.04 < 0.1 < plain.violation_
    assert isinstance(model.ranker_, engine.adapter)
    assert model.score(made.X, made.y_unbiased, qid=made.qid) > 0.8


def test_the_order_of_queries_makes_no_difference(ranking, data, engine):
    order = np.argsort(np.random.default_rng(0).permutation(40)[ranking.qid], kind="stable")
    one = fair(engine).fit(**data)
    other = fair(engine).fit(**{name: column[order] for name, column in data.items()})
    assert np.array_equal(one.predict(ranking.X), other.predict(ranking.X))


@pytest.mark.parametrize("loss", ["logistic", "lambdarank"])
@pytest.mark.parametrize("schedule", ["retrain", "interleaved"])
def test_the_order_of_rows_makes_no_difference(ranking, data, engine, schedule, loss):
    order = np.random.default_rng(0).permutation(len(ranking.y))
    model = fair(engine, loss=loss, schedule=schedule, tolerance=0.05)
    one = clone(model).fit(**data)
    other = clone(model).fit(**{name: column[order] for name, column in data.items()})
    assert one.predict(ranking.X) == pytest.approx(other.predict(ranking.X), abs=1e-5)
    assert one.lambda_ == pytest.approx(other.lambda_, abs=1e-5)


def test_without_rounds_ndcg_is_that_of_the_engines_own_training(engine):
    def mean_ndcg(model, made):
        shape = (-1, 20)
        return ndcg_score(made.y.reshape(shape), model.predict(made.X).reshape(shape), k=10)

    gaps = []
    for seed in range(3):
        made = make_biased_ranking(
            160, 20, n_labels=4, world=BiasedWorld(noise=0.8), random_state=seed
        )
        train, test = made.qid < 80, made.qid >= 80
        held = SimpleNamespace(X=made.X[test], y=made.y[test])
        own = engine.model(n_estimators=30)
        actual = FairRanker(engine.model(n_estimators=30), max_rounds=0)
        groups = {"group": [20] * 80} if engine.name == "lightgbm" else {"qid": made.qid[train]}
        if engine.name == "lightgbm":
            own.set_params(verbose=-1)
        own.fit(made.X[train], made.y[train], **groups)
        actual.fit(
            made.X[train], made.y[train], qid=made.qid[train],
            sensitive_features=made.sensitive_features[train],
        )  # fmt: skip
        gaps.append(mean_ndcg(actual, held) - mean_ndcg(own, held))
    assert np.mean(gaps) > -0.01
    assert np.max(np.abs(gaps)) < 0.03


# --- the engine's model by itself, and among scikit-learn's tools ---------------------------------


def test_the_booster_predicts_without_pairity(data, held_ranking, engine, tmp_path):
    model = fair(engine, max_rounds=2, tolerance=0.0)
    with pytest.warns(TargetNotReachedWarning):
        model.fit(**data)
    ending = "txt" if engine.name == "lightgbm" else "json"
    path = tmp_path / f"model.{ending}"
    model.ranker_.model_.save_model(str(path))
    np.save(tmp_path / "X.npy", held_ranking.X)
    code = f"""
import sys
sys.modules["pairity"] = None  # importing it fails
import numpy, {engine.name}
path, X = sys.argv[1], numpy.load(sys.argv[2])
numpy.save(sys.argv[3], {engine.load})
"""
    found = tmp_path / "scores.npy"
    command = [sys.executable, "-c", code, str(path), str(tmp_path / "X.npy"), str(found)]
    subprocess.run(command, check=True)
    assert np.array_equal(np.load(found).astype(float), model.predict(held_ranking.X))


def test_pickled_and_dumped_it_predicts_the_same(ranking, data, held_ranking, engine, tmp_path):
    model = fair(engine).fit(**data, **eval_sets(held_ranking))
    joblib.dump(model, tmp_path / "model.joblib")
    pickled = pickle.dumps(model)
    assert len(pickled) < ranking.X.nbytes + 60_000  # neither the data nor the bins are in it
    for back in (pickle.loads(pickled), joblib.load(tmp_path / "model.joblib")):  # noqa: S301
        assert np.array_equal(back.predict(held_ranking.X), model.predict(held_ranking.X))
        assert back.ranker_.evals_result_ == model.ranker_.evals_result_


def test_parameters_go_through(ranking, data, engine):
    model = FairRanker(engine.model(), max_rounds=0)
    assert f"ranker__{engine.leaves}" in model.get_params()
    copied = clone(model.set_params(**{f"ranker__{engine.leaves}": 2, "ranker__n_estimators": 3}))
    assert copied.ranker is not model.ranker
    copied.fit(**data)
    direct = engine.adapter(engine.model(**{engine.leaves: 2, "n_estimators": 3}))
    direct.fit(ranking.X, ranking.y, qid=ranking.qid)
    assert np.array_equal(copied.predict(ranking.X), direct.predict(ranking.X))


def test_grid_search_by_query(ranking, data, engine):
    with sklearn.config_context(enable_metadata_routing=True):
        model = FairRanker(engine.model(), max_rounds=1, tolerance=0.5)
        model.set_fit_request(qid=True, sensitive_features=True).set_score_request(qid=True)
        search = GridSearchCV(
            model, {"ranker__n_estimators": [1, 30]}, cv=GroupKFold(3), error_score="raise"
        )
        search.fit(**data, groups=ranking.qid)
    assert search.best_params_ == {"ranker__n_estimators": 30}
    assert np.diff(search.cv_results_["mean_test_score"]) > 0.03


# --- weights --------------------------------------------------------------------------------------


def direct(engine, queries, table, n_trees=8, **params):
    """The engine's own training call, on the slow objective."""
    curvature = 2.0 if engine.name == "xgboost" else 1.0
    objective, sizes = slow_logistic(queries, table, curvature), np.bincount(queries.query)
    if engine.name == "lightgbm":
        params = {"num_leaves": 7, "num_threads": 1, "verbosity": -1, **params}
        data = engine.library.Dataset(queries.X, queries.y, group=sizes, params=params)
        booster = engine.library.train({**params, "objective": objective}, data, n_trees)
        return booster.predict(queries.X)
    params = {"max_depth": 3, "nthread": 1, "base_score": 0.0, **params}
    data = engine.library.DMatrix(queries.X, queries.y, group=sizes)
    booster = engine.library.train(params, data, n_trees, obj=objective)
    return booster.predict(data, output_margin=True)


def some_unknown(ranking):
    return np.where(np.arange(len(ranking.y)) % 7 == 0, None, ranking.sensitive_features)


def item_weight(ranking):
    return np.random.default_rng(5).integers(0, 3, len(ranking.y)).astype(float)


def query_weight(ranking):
    return (ranking.qid % 4 + 0.5) * (ranking.qid != 3)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"sample_weight": item_weight},
        {"query_weight": query_weight},
        {"sample_weight": lambda ranking: 0.1 + item_weight(ranking), "query_weight": query_weight},
        {"sensitive_features": some_unknown},
    ],
    ids=lambda more: "+".join(more) or "none",
)
def test_all_weights_reach_the_gradients(ranking, data, engine, more):
    changed = {name: column(ranking) for name, column in more.items()}
    queries = Queries.from_arrays(**{**data, **changed})
    found = engine.adapter(engine.model(), loss="logistic").fit_pairs(queries, TABLE)
    assert found.predict(ranking.X) == pytest.approx(direct(engine, queries, TABLE), abs=1e-4)


def test_only_ratios_of_weights_count(ranking, data, engine):
    more = {
        "sample_weight": 0.01 * (1 + item_weight(ranking)),
        "query_weight": 100 * query_weight(ranking),
    }
    queries = Queries.from_arrays(**data, **more)
    one = engine.adapter(engine.model(), loss="logistic").fit_pairs(queries, TABLE)
    other = engine.adapter(engine.model(), loss="logistic").fit_pairs(queries, 7 * TABLE)
    assert one.predict(ranking.X) == pytest.approx(other.predict(ranking.X), abs=1e-4)


def test_weights_that_add_up_to_nothing(ranking, engine):
    with pytest.raises(InputError, match="add up to 0"):
        engine.adapter(engine.model()).fit_pairs(ranking.queries(), 0 * ONES)


# --- data -----------------------------------------------------------------------------------------


@pytest.fixture
def built(engine, monkeypatch):
    """What the engine's data are built from, each time."""
    seen, kind = [], getattr(engine.library, engine.data)

    class Counted(kind):
        def __init__(self, data, *args, **kwargs):
            seen.append(data)
            super().__init__(data, *args, **kwargs)

    monkeypatch.setattr(engine.library, engine.data, Counted)
    return seen


def test_data_are_binned_once_for_all_rounds(ranking, data, held_ranking, engine, built):
    model = fair(engine, max_rounds=4, tolerance=0.0)
    with pytest.warns(TargetNotReachedWarning):
        model.fit(**data, **eval_sets(held_ranking, ranking))
    assert len(model.history_) > 2
    assert len(built) == 3  # and one each for the evaluation sets
    assert built[0] is data["X"]  # not copied
    assert built[1] is held_ranking.X


@pytest.mark.parametrize("more", [{}, {"dart": True}, {"subsample": 0.5}], ids=str)
def test_a_round_is_what_training_afresh_gives(ranking, data, held_ranking, engine, more):
    """Nothing of a round stays behind in the data that the next one uses."""
    params = {"subsample_freq": 1, **more} if engine.name == "lightgbm" else dict(more)
    if params.pop("dart", False):
        params["boosting" if engine.name == "lightgbm" else "booster"] = "dart"
    model = fair(engine, params=params, max_rounds=3, tolerance=0.0)
    with pytest.warns(TargetNotReachedWarning):
        model.fit(**data, **eval_sets(held_ranking))
    assert model.history_[-1].number > 1
    weights = model.pair_weights_.table
    afresh = engine.adapter(engine.model(**params)).fit_pairs(ranking.queries(), weights)
    assert np.array_equal(afresh.predict(ranking.X), model.predict(ranking.X))


def test_rows_are_sorted_only_where_they_stand_apart(ranking, data, engine, built):
    order = np.random.default_rng(0).permutation(len(ranking.y))
    shuffled = {name: column[order] for name, column in data.items()}
    fair(engine, max_rounds=0).fit(**shuffled)
    assert np.array_equal(built[0], ranking.X[order][np.argsort(ranking.qid[order], kind="stable")])


def test_float32_stays_float32(ranking, data, engine, built):
    model = fair(engine, max_rounds=0).fit(**{**data, "X": ranking.X.astype(np.float32)})
    assert built[0].dtype == np.float32
    again = fair(engine, max_rounds=0).fit(**data)
    assert model.predict(ranking.X) == pytest.approx(again.predict(ranking.X), abs=0.2)


def test_binned_data_live_as_long_as_the_queries(ranking, engine, built):
    queries, ranker = ranking.queries(), engine.adapter(engine.model())
    ranker.fit_pairs(queries, ONES)
    ranker.fit_pairs(queries, TABLE)
    assert len(built) == 1
    kept = weakref.ref(queries._cache[engine.name][1].data)
    assert kept() is not None
    assert "_cache" not in pickle.loads(pickle.dumps(queries)).__dict__  # noqa: S301
    clone(ranker).set_params(estimator__max_bin=9).fit_pairs(queries, ONES)
    assert len(built) == 2
    assert kept() is None
    kept = weakref.ref(queries._cache[engine.name][1].data)
    del queries
    assert kept() is None


def frame(X, **columns):
    return pd.DataFrame(X, columns=NAMES).assign(**columns)


def with_gaps(X):
    return np.where(np.random.default_rng(2).random(X.shape) < 0.2, np.nan, X)


def whole(X):
    return np.round(2 * X)


TABLES = {  # a table of these features, and the matrix of its numbers
    "missing values": lambda X: (with_gaps(X), with_gaps(X)),
    "pandas": lambda X: (frame(X), X),
    "pandas with gaps": lambda X: (frame(with_gaps(X)), with_gaps(X)),
    "booleans and whole numbers": lambda X: (
        frame(X, a=X[:, 0] > 0, b=whole(X)[:, 1].astype(np.int32)),
        np.column_stack([X[:, 0] > 0, whole(X)[:, 1], X[:, 2:]]),
    ),
    "whole array": lambda X: (whole(X).astype(np.int64), whole(X)),
    "boolean array": lambda X: (X > 0, (X > 0).astype(float)),
    "polars": lambda X: (pl.DataFrame(X, schema=NAMES), X),
    "pyarrow": lambda X: (pa.table(dict(zip(NAMES, X.T, strict=True))), X),
    "list": lambda X: (X.tolist(), X),
    "fortran": lambda X: (np.asfortranarray(X), X),
}


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize(
    "qid", [np.repeat(np.arange(40), 15), np.tile(np.arange(40), 15)], ids=["together", "apart"]
)
def test_tables(ranking, labels, engine, kind, qid):
    """Whatever it comes in, the model is that of the matrix of numbers."""
    table, numbers = TABLES[kind](ranking.X)
    labels = {**labels, "qid": qid}
    model = fair(engine, max_rounds=1, tolerance=1.0).fit(table, **labels)
    plain = fair(engine, max_rounds=1, tolerance=1.0).fit(numbers, **labels)
    assert np.array_equal(model.predict(table), plain.predict(numbers))


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csr_array, sp.coo_array])
def test_sparse_features(ranking, labels, held_ranking, engine, kind):
    dense = np.where(ranking.X > 0.3, ranking.X, 0.0)
    model = fair(engine, max_rounds=0).fit(kind(dense), **labels, **eval_sets(held_ranking))
    assert model.score(kind(dense), ranking.y, qid=ranking.qid) > 0.75
    assert len(set(model.predict(kind(dense)))) > 10


@pytest.mark.parametrize("direct_use", [False, True])
def test_columns_in_another_order_are_refused(ranking, labels, engine, direct_use):
    if direct_use:
        model = engine.adapter(engine.model()).fit(frame(ranking.X), ranking.y, qid=ranking.qid)
    else:
        model = fair(engine, max_rounds=0).fit(frame(ranking.X), **labels)
        assert list(model.ranker_.feature_names_in_) == NAMES
    for wrong in (
        frame(ranking.X)[NAMES[::-1]],
        frame(ranking.X)[NAMES[1:]],
        frame(ranking.X, z=1.0),
    ):
        with pytest.raises(InputError, match=r"feature names|5 features"):
            model.predict(wrong)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(ranking.X)


# --- evaluation sets ------------------------------------------------------------------------------

SIZES = [12] * 10
BACK = np.arange(120).reshape(10, 12)[::-1].ravel()  # the last query first
FORMS = {  # functions of the held-out and the training data, and how many sets they return
    "one tuple": (lambda held, _: {"eval_set": (held.X, held.y), "eval_qid": held.qid}, 1),
    "one tuple, ids in a list": (
        lambda held, _: {"eval_set": (held.X, held.y), "eval_qid": [held.qid]}, 1,
    ),
    "one tuple, sizes": (lambda held, _: {"eval_set": (held.X, held.y), "eval_group": SIZES}, 1),
    "one tuple, sizes in a list": (
        lambda held, _: {"eval_set": (held.X, held.y), "eval_group": [SIZES]}, 1,
    ),
    "a list": (lambda held, _: eval_sets(held), 1),
    "a list, sizes": (
        lambda held, _: {"eval_set": [(held.X, held.y)], "eval_group": [np.array(SIZES)]}, 1,
    ),
    "several": (eval_sets, 2),
    "a tuple of tuples": (
        lambda held, _: {"eval_set": 2 * ((held.X, held.y),), "eval_qid": 2 * (held.qid,)}, 2,
    ),
    "queries in another order": (
        lambda held, _: {
            "eval_set": [(held.X[BACK], held.y[BACK])], "eval_qid": [held.qid[BACK]],
        }, 1,
    ),
    "scattered": (
        lambda held, _: {
            "eval_set": [tuple(v.reshape(10, 12, -1).swapaxes(0, 1).reshape(120, -1).squeeze()
                               for v in (held.X, held.y))],
            "eval_qid": [np.tile(np.arange(10), 12)],
        }, 1,
    ),
    "pandas": (
        lambda held, _: {
            "eval_set": [(pd.DataFrame(held.X, columns=NAMES, index=range(200, 320)),
                          pd.Series(held.y, index=range(200, 320)))],
            "eval_qid": [pd.Series(held.qid, index=range(200, 320)).astype(str)],
        }, 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_evaluation_sets(ranking, held_ranking, engine, form):
    make_sets, n_sets = FORMS[form]
    X = frame(ranking.X) if form == "pandas" else ranking.X
    ranker = engine.adapter(engine.model())
    ranker.fit(X, ranking.y, qid=ranking.qid, **make_sets(held_ranking, ranking))
    assert len(ranker.evals_result_) == n_sets
    first = next(iter(ranker.evals_result_.values()))
    known = engine.adapter(engine.model()).fit(
        ranking.X, ranking.y, qid=ranking.qid, **eval_sets(held_ranking)
    )
    for metric, values in next(iter(known.evals_result_.values())).items():
        assert first[metric] == pytest.approx(values)
        assert len(values) == 8


UNREADABLE = [
    (lambda X, y, qid: {"eval_set": [(X, y)]}, "either eval_qid .* or eval_group"),
    (
        lambda X, y, qid: {"eval_set": [(X, y)], "eval_qid": [qid], "eval_group": [SIZES]},
        "exactly one",
    ),
    (lambda X, y, qid: {"eval_qid": [qid]}, "require eval_set"),
    (
        lambda X, y, qid: {"eval_set": [(X, y), (X, y)], "eval_qid": [qid]},
        "2 sets, but queries are given for 1",
    ),
    (lambda X, y, qid: {"eval_set": [(X, y)], "eval_qid": [qid[1:]]}, "set 0 of eval_set: qid"),
    (lambda X, y, qid: {"eval_set": [(X, y[1:])], "eval_qid": [qid]}, "set 0 of eval_set: y"),
    (
        lambda X, y, qid: {"eval_set": [(X, y)], "eval_group": [[12] * 9]},
        "108 rows, but there are 120",
    ),
    (lambda X, y, qid: {"eval_set": [(X, y)], "eval_group": [[0.5] * 240]}, "whole numbers"),
    (lambda X, y, qid: {"eval_set": [X], "eval_qid": [qid]}, "list of pairs"),
    (lambda X, y, qid: {"eval_set": X, "eval_qid": qid}, "list of pairs"),
    (lambda X, y, qid: {"eval_set": [(X, y, qid)], "eval_qid": [qid]}, "list of pairs"),
]


@pytest.mark.parametrize(
    ("wrong", "message"),
    UNREADABLE,
    ids=[f"wrong{number}-{message}" for number, (_, message) in enumerate(UNREADABLE)],
)
def test_evaluation_sets_that_cannot_be_read(data, held_ranking, engine, wrong, message):
    with pytest.raises(InputError, match=message):
        fair(engine, max_rounds=0).fit(
            **data, **wrong(held_ranking.X, held_ranking.y, held_ranking.qid)
        )


def test_evaluation_sets_of_other_width(ranking, data, labels, held_ranking, engine):
    """LightGBM would not notice."""
    wrong = {"eval_set": [(held_ranking.X[:, 1:], held_ranking.y)], "eval_qid": [held_ranking.qid]}
    with pytest.raises(InputError, match="eval_set: X has 4 features, but the training data has 5"):
        fair(engine, max_rounds=0).fit(**data, **wrong)
    wrong["eval_set"] = [(pd.DataFrame(held_ranking.X, columns=NAMES[::-1]), held_ranking.y)]
    with pytest.raises(InputError, match="eval_set: column 0 of X is 'e', but 'a' in the training"):
        fair(engine, max_rounds=0).fit(frame(ranking.X), **labels, **wrong)


@pytest.mark.parametrize("schedule", ["retrain", "interleaved"])
def test_early_stopping(data, held_ranking, engine, schedule):
    noise = np.random.default_rng(0)
    labels = noise.permutation(held_ranking.y)  # nothing to learn: it stops at once
    sets = {"eval_set": [(held_ranking.X, labels)], "eval_qid": [held_ranking.qid]}
    model = fair(
        engine, params={"n_estimators": 200, **stopping(engine, 3)}, schedule=schedule,
        max_rounds=1, tolerance=1.0,
    ).fit(**data, **sets)  # fmt: skip
    ranker = model.ranker_
    (by_metric,) = ranker.evals_result_.values()
    length = {len(values) for values in by_metric.values()}.pop()
    assert length < 100
    best = ranker.best_iteration_ + (engine.name == "xgboost")  # it counts from 0
    assert best < length
    booster = ranker.model_
    n_trees = booster.num_trees() if engine.name == "lightgbm" else booster.num_boosted_rounds()
    assert n_trees == best
    if schedule == "retrain":
        short = fair(engine, params={"n_estimators": best}, max_rounds=0).fit(**data)
        assert np.array_equal(short.predict(held_ranking.X), model.predict(held_ranking.X))


def n_trees_of(engine, ranker):
    booster = ranker.model_
    return booster.num_trees() if engine.name == "lightgbm" else booster.num_boosted_rounds()


# Pairs count for the wrong order, so that the metric of an evaluation set falls at once.
TURNED = np.array([0.1 * ONES, ONES])


@pytest.mark.parametrize("how", ["parameter", "callback"])
def test_reweighted_rounds_train_as_many_trees_as_the_plain_one(ranking, engine, how, tmp_path):
    train, held = ranking.queries().split(0.3, 0)
    sets = {"eval_set": [(held.X, held.y)], "eval_qid": [held.query]}
    params = {"n_estimators": 60}
    if how == "parameter":
        params |= stopping(engine, 3)
    elif engine.name == "lightgbm":
        sets["callbacks"] = [engine.library.early_stopping(3, verbose=False)]
    else:
        params["callbacks"] = [engine.library.callback.EarlyStopping(rounds=3)]
    make = lambda **params: engine.adapter(engine.model(**params), loss="logistic")  # noqa: E731
    plain = make(**params).fit_pairs(train, ONES, **sets)
    n_trees = n_trees_of(engine, plain)
    assert 3 < n_trees < 60
    alone = make(**params).fit_pairs(train, TURNED, **sets)
    assert n_trees_of(engine, alone) < 3  # what reweighted rounds would be without the rule
    plain.save(tmp_path / "plain")
    expected = make(n_estimators=n_trees).fit_pairs(train, TURNED)
    previous = load(tmp_path / "plain")  # as from a checkpoint
    for _ in range(2):
        previous = make(**params).fit_pairs(train, TURNED, previous=previous, **sets)
        assert n_trees_of(engine, previous) == n_trees
        assert np.array_equal(previous.predict(ranking.X), expected.predict(ranking.X))
        (by_metric,) = previous.evals_result_.values()
        assert {len(values) for values in by_metric.values()} == {n_trees}
        assert previous.best_iteration_ == plain.best_iteration_


def test_rounds_of_a_fair_ranker_keep_the_number_of_trees(data, held_ranking, engine):
    seen = []

    class Kept(engine.adapter):
        def fit_pairs(self, *arguments, **options):
            super().fit_pairs(*arguments, **options)
            seen.append(n_trees_of(engine, self))
            return self

    ranker = Kept(engine.model(n_estimators=60, **stopping(engine, 3)))
    model = FairRanker(
        ranker, "statistical", tolerance=0.0, max_rounds=3, progress=False, validation=None
    )
    with pytest.warns(TargetNotReachedWarning):
        model.fit(**data, **eval_sets(held_ranking))
    assert len(seen) > 1
    assert len(set(seen)) == 1


def test_without_early_stopping_all_trees_stay(ranking, held_ranking, engine):
    ranker = engine.adapter(engine.model()).fit(
        ranking.X, ranking.y, qid=ranking.qid, **eval_sets(held_ranking)
    )
    assert ranker.best_iteration_ == (0 if engine.name == "lightgbm" else 7)


def test_early_stopping_without_an_evaluation_set(data, engine):
    with pytest.raises(TrainingError, match=r"(?i)at least (one|1)") as caught:
        fair(engine, params=stopping(engine, 3), max_rounds=0).fit(**data)
    assert isinstance(caught.value.__cause__, ValueError)


# --- threads, failures, interruptions -------------------------------------------------------------


class Watched(Logistic):
    """A loss that tells a function of each call."""

    def __init__(self, on_iteration):
        object.__setattr__(self, "on_iteration", on_iteration)

    def derivatives(self, queries, scores, table, *, iteration=0):
        self.on_iteration(iteration)
        return super().derivatives(queries, scores, table)

    def __deepcopy__(self, memo):
        return self  # the rounds share it


@pytest.mark.parametrize("n_jobs", [1, 2, 3])
def test_kernels_keep_to_n_jobs(data, engine, n_jobs, monkeypatch):
    monkeypatch.setenv("PAIRITY_NUM_THREADS", "8")
    seen = set()
    loss = Watched(lambda _: seen.add(n_threads()))
    fair(engine, loss=loss, params={"n_jobs": n_jobs}, max_rounds=0).fit(**data)
    assert seen == {n_jobs}


@pytest.mark.parametrize("n_jobs", [-1, 0, None])
def test_all_threads(ranking, data, engine, n_jobs, monkeypatch):
    monkeypatch.setenv("PAIRITY_NUM_THREADS", "3")
    seen = set()
    loss = Watched(lambda _: seen.add(n_threads()))
    model = fair(engine, loss=loss, params={"n_jobs": n_jobs}, max_rounds=0).fit(**data)
    known = fair(engine, loss="logistic", max_rounds=0).fit(**data)
    assert len(seen) == 1
    assert min(seen) >= 1
    assert n_threads() == 3
    assert model.predict(ranking.X) == pytest.approx(known.predict(ranking.X), abs=1e-5)


def raise_in_round(number, error, n_trees=8):
    calls = []

    def on_iteration(_iteration):
        calls.append(0)
        if len(calls) == number * n_trees + 4:
            raise error

    return Watched(on_iteration)


def test_failures_say_where(data, engine):
    inner = ZeroDivisionError("too steep")
    model = fair(engine, loss=raise_in_round(2, inner), max_rounds=5, tolerance=0.0)
    with pytest.raises(
        TrainingError, match=r"round 2 of at most 5.*lambda = \[\[.*steep"
    ) as caught:
        model.fit(**data)
    assert caught.value.__cause__ is inner


def test_the_engines_own_failures(data, engine):
    params = {"monotone_constraints": (1,) * 9}
    with pytest.raises(TrainingError, match=r"round 0.*lambda") as caught:
        fair(engine, params=params).fit(**data)
    assert type(caught.value.__cause__).__module__.startswith(engine.name)


def test_our_own_errors_stay_as_they_are(ranking, data, engine):
    with pytest.raises(InputError, match='loss="logistic"') as caught:
        fair(engine).fit(**{**data, "y": ranking.y / 2})
    assert caught.value.__notes__ == ["In round 0 of at most 10; 0 is the plain ranker."]
    fair(engine, loss="logistic", max_rounds=0).fit(**{**data, "y": ranking.y / 2 - 3})


def test_an_interruption_keeps_the_best_model(ranking, data, engine):
    loss = raise_in_round(2, KeyboardInterrupt())
    model = fair(engine, loss=loss, max_rounds=5, tolerance=0.0)
    with pytest.warns(TargetNotReachedWarning, match="interrupted"):
        model.fit(**data)
    assert model.outcome_.kind is Outcome.INTERRUPTED
    assert len(model.history_) == 2
    assert model.predict(ranking.X).shape == ranking.y.shape


def test_an_interruption_before_any_model(data, engine):
    with pytest.raises(KeyboardInterrupt):
        fair(engine, loss=raise_in_round(0, KeyboardInterrupt())).fit(**data)


# --- what is refused ------------------------------------------------------------------------------


def test_the_wrong_model(ranking, engine):
    for wrong in (Ridge(), "ranker", LinearRanker()):
        with pytest.raises(InputError, match=r"trains (LGBM|XGB)Ranker, not"):
            engine.adapter(wrong).fit(ranking.X, ranking.y, qid=ranking.qid)
    kind = "LGBMRegressor" if engine.name == "lightgbm" else "XGBRegressor"
    with pytest.raises(InputError, match=rf"{kind} is not a ranking model.*Ranker"):
        as_ranker(getattr(engine.library, kind)())


def test_without_an_estimator_it_is_the_engines_default(ranking, engine):
    ranker = engine.adapter().fit(ranking.X[:150], ranking.y[:150], qid=ranking.qid[:150])
    kind = engine.library.LGBMRanker if engine.name == "lightgbm" else engine.library.XGBRanker
    known = engine.adapter(kind(n_jobs=1)).fit(
        ranking.X[:150], ranking.y[:150], qid=ranking.qid[:150]
    )
    assert ranker.predict(ranking.X) == pytest.approx(known.predict(ranking.X), abs=1e-5)


@pytest.mark.parametrize("name", ["init_score", "base_margin", "init_model", "xgb_model"])
def test_unknown_arguments_of_fit(data, engine, name):
    with pytest.raises(InputError, match=f"cannot take '{name}'.*eval_set"):
        fair(engine).fit(**data, **{name: 1})


def test_a_missing_engine(data, engine, monkeypatch):
    monkeypatch.setitem(sys.modules, engine.name, None)
    with pytest.raises(MissingExtraError, match=rf'pip install "pairity\[{engine.name}\]"'):
        fair(engine).fit(**data)


def test_an_objective_of_the_users_own(ranking, data, engine):
    model = engine.model()
    model.objective = lambda y, scores: (scores, scores)
    with pytest.raises(InputError, match="custom objective"):
        engine.adapter(model).fit(ranking.X, ranking.y, qid=ranking.qid)
    model.objective = "regression" if engine.name == "lightgbm" else "rank:map"
    for ranker in (model, engine.adapter(model, loss="logistic")):
        with pytest.raises(InputError, match="has no weights for pairs"):
            FairRanker(ranker).fit(**data)


def test_queries_without_a_preference(ranking, engine):
    with pytest.raises(InputError, match="No query has two different labels"):
        engine.adapter(engine.model()).fit(ranking.X, np.ones(len(ranking.y)), qid=ranking.qid)


def test_queries_without_features(ranking, engine):
    queries = Queries.from_arrays(None, ranking.y, qid=ranking.qid)
    with pytest.raises(InputError, match="no features"):
        engine.adapter(engine.model()).fit_pairs(queries, np.ones((0, 0)))


def test_no_evaluation_sets():
    assert read_evaluation_sets(None) == []


def test_statistical_parity_object(data, engine):
    model = fair(engine, StatisticalParity(average="pair"), tolerance=0.05).fit(**data)
    assert model.violation_ <= 0.05
