"""CatBoostPairRanker: CatBoost's own training, on weighted pairs, with all it can do."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from pairity import FairRanker, InputError, Queries, load
from pairity.datasets import make_biased_ranking
from pairity.exceptions import MissingExtraError, TrainingError
from pairity.pairs.enumeration import iter_pairs
from pairity.rankers.adapters import as_ranker
from pairity.rankers.catboost import CatBoostPairRanker

cb = pytest.importorskip("catboost", reason="catboost is not installed")

QUIET = {"allow_writing_files": False, "logging_level": "Silent"}
# Without chance in it, only the pairs and their weights decide what is learnt.
EXACT = {"bootstrap_type": "No", "random_strength": 0}


@pytest.fixture(autouse=True)
def no_files(tmp_path, monkeypatch):
    """Nothing is printed, nor written where the tests run."""
    monkeypatch.chdir(tmp_path)
    yield
    assert not list(tmp_path.glob("catboost_info"))


@pytest.fixture(scope="module")
def data():
    return make_biased_ranking(40, 15, n_labels=3, random_state=0)


@pytest.fixture(scope="module")
def queries(data):
    return data.queries()


def model(**params):
    return cb.CatBoostRanker(**{"iterations": 15, "thread_count": 1, "random_seed": 3, **params})


def ranker(**params):
    return CatBoostPairRanker(model(**params))


def all_pairs(queries):
    """Every preference pair, found the slow way."""
    better = (queries.query[:, None] == queries.query) & (queries.y[:, None] > queries.y)
    return np.argwhere(better)


def direct(queries, pairs, weight, **params):
    """CatBoost on its own."""
    pool = cb.Pool(
        queries.X, queries.y, group_id=queries.query, pairs=pairs, pairs_weight=np.asarray(weight)
    )
    return model(**{"loss_function": "PairLogit", **QUIET, **params}).fit(pool).predict(queries.X)


TABLE = np.array([[1.0, 1.75], [0.5, 1.25]])


# --- weights ------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["PairLogit", "PairLogitPairwise"])
def test_without_weights_it_is_catboost_itself(queries, loss):
    got = ranker(loss_function=loss).fit_pairs(queries, np.ones((2, 2))).predict(queries.X)
    pairs = np.concatenate([np.column_stack(block) for block in iter_pairs(queries)])
    want = direct(queries, pairs, np.ones(len(pairs)), loss_function=loss)
    assert np.array_equal(got, want)


@pytest.mark.parametrize("loss", ["PairLogit", "PairLogitPairwise"])
def test_catboost_would_make_the_same_pairs(queries, loss):
    options = dict(EXACT, loss_function=loss)  # it draws by the order of the pairs, else
    got = ranker(**options).fit_pairs(queries, np.ones((2, 2))).predict(queries.X)
    pool = cb.Pool(queries.X, queries.y, group_id=queries.query)
    own = model(**options, **QUIET).fit(pool)
    assert got == pytest.approx(own.predict(queries.X), abs=1e-9)


@pytest.mark.parametrize("loss", ["PairLogit", "PairLogitPairwise"])
def test_weights_by_cell(queries, loss):
    pairs = all_pairs(queries)
    weight = TABLE[queries.group[pairs[:, 0]], queries.group[pairs[:, 1]]]
    got = ranker(loss_function=loss, **EXACT).fit_pairs(queries, TABLE).predict(queries.X)
    want = direct(queries, pairs, weight / weight.mean(), loss_function=loss, **EXACT)
    assert got == pytest.approx(want, abs=1e-6)  # CatBoost keeps weights as float32
    assert np.abs(got - direct(queries, pairs, np.ones(len(pairs)), **EXACT)).max() > 0.01


def test_item_and_query_weights_and_missing_groups(data):
    rng = np.random.default_rng(1)
    n = len(data.y)
    item, by_query = rng.integers(0, 3, n).astype(float), rng.uniform(0.0, 2.0, 40)
    by_query[4] = 0.0
    groups = np.where(rng.random(n) < 0.2, None, data.sensitive_features)
    queries = Queries.from_arrays(
        data.X, data.y, qid=data.qid, sensitive_features=groups, sample_weight=item,
        query_weight=by_query[data.qid],
    )  # fmt: skip
    pairs = all_pairs(queries)
    first, second = pairs.T
    padded = np.pad(TABLE, (0, 1), constant_values=1.0)
    weight = padded[queries.group[first], queries.group[second]]
    weight = weight * item[first] * item[second] * by_query[data.qid[first]]
    kept = weight > 0
    assert 0 < kept.sum() < len(kept)
    got = ranker().fit_pairs(queries, TABLE).predict(queries.X)
    want = direct(queries, pairs[kept], weight[kept] / weight[kept].mean())
    assert got == pytest.approx(want, abs=1e-6)


def test_whole_weights_repeat_pairs(queries):
    table = np.array([[1.0, 3.0], [2.0, 1.0]])
    pairs = all_pairs(queries)
    times = table[queries.group[pairs[:, 0]], queries.group[pairs[:, 1]]].astype(int)
    repeated = np.repeat(pairs, times, axis=0)
    share = np.full(len(repeated), len(pairs) / len(repeated))  # the penalty sees as much weight
    got = ranker().fit_pairs(queries, table).predict(queries.X)
    assert got == pytest.approx(direct(queries, repeated, share), abs=1e-6)


@pytest.mark.parametrize("loss", ["PairLogit", "PairLogitPairwise"])
def test_zero_drops_pairs(queries, loss):
    table = np.array([[1.0, 0.0], [1.0, 1.0]])
    pairs = all_pairs(queries)
    kept = table[queries.group[pairs[:, 0]], queries.group[pairs[:, 1]]] > 0
    ordered = pairs[kept]
    got = ranker(loss_function=loss, **EXACT).fit_pairs(queries, table).predict(queries.X)
    want = direct(queries, ordered, np.ones(len(ordered)), loss_function=loss, **EXACT)
    assert got == pytest.approx(want, abs=1e-6)
    again = ranker(loss_function=loss, **EXACT).fit_pairs(queries, np.ones((2, 2)))
    assert np.abs(again.predict(queries.X) - got).max() > 0.001  # with all pairs again


def test_an_item_of_no_weight_is_as_good_as_gone(data):
    weight = np.ones(len(data.y))
    weight[::7] = 0.0
    kept = weight > 0
    options = dict(EXACT, feature_border_type="Uniform", border_count=4)
    X = np.clip(data.X, -1, 1)  # the same borders in both
    with_it = ranker(**options).fit(X, data.y, qid=data.qid, sample_weight=weight)
    without = ranker(**options).fit(X[kept], data.y[kept], qid=data.qid[kept])
    assert np.ptp(with_it.predict(X) - without.predict(X)) < 1e-6  # CatBoost centres all items


@pytest.mark.parametrize("factor", [4.0, 0.3, 1e-9, 1e12])
def test_scaling_all_weights_changes_nothing(queries, factor):
    once = ranker().fit_pairs(queries, TABLE).predict(queries.X)
    scaled = ranker().fit_pairs(queries, factor * TABLE).predict(queries.X)
    assert scaled == pytest.approx(once, abs=1e-6)


def test_no_weight_at_all(queries):
    with pytest.raises(InputError, match="pair weights"):
        ranker().fit_pairs(queries, np.zeros((2, 2)))


def test_rows_in_any_order(data):
    shuffled = np.random.default_rng(0).permutation(len(data.y))
    together = ranker(**EXACT).fit_pairs(data.queries(), TABLE).predict(data.X)
    mixed = Queries.from_arrays(
        data.X[shuffled], data.y[shuffled], qid=data.qid[shuffled],
        sensitive_features=data.sensitive_features[shuffled],
    )  # fmt: skip
    got = ranker(**EXACT).fit_pairs(mixed, TABLE).predict(data.X)
    assert got == pytest.approx(together, abs=1e-6)


def test_queries_that_stand_together_stay_where_they_are(data):
    names = np.array([f"q{40 - q}" for q in data.qid], dtype=object)  # sorted, they would turn
    turned = ranker().fit(data.X, data.y, qid=names).predict(data.X)
    assert np.array_equal(turned, ranker().fit(data.X, data.y, qid=data.qid).predict(data.X))


def test_seeds(queries):
    once, again, other = (
        ranker(random_seed=seed).fit_pairs(queries, TABLE).predict(queries.X) for seed in (1, 1, 2)
    )
    assert np.array_equal(once, again)
    assert not np.array_equal(once, other)


def test_the_pairs_are_built_once(data, monkeypatch):
    queries = data.queries()
    built = []

    class Pool(cb.Pool):
        def __init__(self, *args, **options):
            built.append(1)
            super().__init__(*args, **options)

    monkeypatch.setattr(cb, "Pool", Pool)
    fits = [ranker().fit_pairs(queries, table) for table in (np.ones((2, 2)), TABLE, 2 * TABLE)]
    assert len(built) == 1
    fresh = ranker().fit_pairs(data.queries(), TABLE)
    assert np.array_equal(fits[1].predict(data.X), fresh.predict(data.X))
    ranker(thread_count=2).fit_pairs(queries, TABLE)
    assert len(built) == 3


BINNINGS = [
    {"border_count": 7},
    {"max_bin": 9, "nan_mode": "Max"},
    {"feature_border_type": "Uniform"},
    {"ignored_features": [0]},
    {"per_float_feature_quantization": ["1:border_count=3"]},
    {"loss_function": "PairLogitPairwise", "border_count": 6},
    {"loss_function": "PairLogitPairwise", "max_bin": 6},
]


@pytest.mark.parametrize("params", BINNINGS, ids=str)
def test_features_are_binned_once_and_as_the_model_says(data, monkeypatch, params):
    X = np.where(np.random.default_rng(0).random(data.X.shape) < 0.1, np.nan, data.X)
    queries = Queries.from_arrays(
        X, data.y, qid=data.qid, sensitive_features=data.sensitive_features, raw=True
    )
    binned = []
    monkeypatch.setattr(
        cb.Pool,
        "quantize",
        lambda *args, _own=cb.Pool.quantize, **kw: binned.append(_own(*args, **kw)),
    )
    pairs = np.concatenate([np.column_stack(block) for block in iter_pairs(queries)])
    want = direct(queries, pairs, np.ones(len(pairs)), **params)
    assert not binned
    for _ in range(2):
        got = ranker(**params).fit_pairs(queries, np.ones((2, 2))).predict(X)
        assert np.array_equal(got, want)
    assert len(binned) == 1


# --- the caller's model -------------------------------------------------------------------------


def test_parameters_are_used_and_left_alone(queries):
    given = model(depth=2, iterations=7, learning_rate=0.3, monotone_constraints=[0, 0, 0, 0, 1])
    before = given.get_params()
    fitted = CatBoostPairRanker(given).fit_pairs(queries, TABLE)
    assert given.get_params() == before
    assert not given.is_fitted()
    used = fitted.model_.get_all_params()
    assert (used["depth"], used["iterations"]) == (2, 7)
    assert used["learning_rate"] == pytest.approx(0.3)
    assert used["loss_function"] == "PairLogit"
    assert fitted.model_.tree_count_ == 7
    assert fitted.n_features_in_ == 5
    assert fitted.best_iteration_ is None


def test_monotone_constraints_hold(queries):
    X = np.repeat(queries.X[:1], 50, axis=0)
    X[:, 4] = np.linspace(-3, 3, 50)
    free, held = (
        ranker(iterations=40, monotone_constraints=given).fit_pairs(queries, TABLE).predict(X)
        for given in (None, [0, 0, 0, 0, 1])
    )
    assert (np.diff(free) < 0).any()
    assert (np.diff(held) >= 0).all()


def test_categories_text_and_missing_values(data):
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    rng = np.random.default_rng(0)
    table = pd.DataFrame(data.X, columns=[f"x{k}" for k in range(5)])
    table["town"] = np.where(data.y > 1, "a", rng.choice(["a", "b", "c"], len(table)))
    table["kind"] = pd.Categorical(rng.choice(["u", "v"], len(table)))
    table.loc[::9, "x0"] = np.nan
    groups = data.sensitive_features
    cats = ["town", "kind"]
    for given, fit_params in (
        (model(cat_features=cats), {}),
        (model(), {"cat_features": cats}),
    ):
        fair = FairRanker(given, max_rounds=1, tolerance=1.0)
        fair.fit(table, data.y, qid=data.qid, sensitive_features=groups, **fit_params)
        pool = cb.Pool(table, data.y, group_id=data.qid, cat_features=cats)
        own = model(loss_function="PairLogit", **QUIET).fit(pool)
        assert fair.predict(table) == pytest.approx(own.predict(table), abs=1e-9)
        change = fair.ranker_.model_.get_feature_importance(type="PredictionValuesChange")
        assert change[5] > 1


def test_polars_and_pyarrow(data):
    pl = pytest.importorskip("polars", reason="polars is not installed")
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    table = pl.DataFrame(data.X, schema=[f"x{k}" for k in range(5)])
    table = table.with_columns(town=pl.Series(data.qid % 3).cast(pl.String))
    plain, *others = (
        ranker(cat_features=["town"]).fit(X, data.y, qid=data.qid).predict(X)
        for X in (
            table.to_pandas(),
            table,
            table.with_columns(pl.col("town").cast(pl.Categorical)),
            table.to_arrow(),
        )
    )
    for other in others:
        assert np.array_equal(plain, other)


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csr_matrix, sp.csc_array])
def test_sparse_features(data, kind):
    X = np.where(np.abs(data.X) > 1, data.X, 0.0)
    dense = ranker().fit(X, data.y, qid=data.qid).predict(X)
    sparse = kind(X)
    fitted = ranker().fit(sparse, data.y, qid=data.qid)
    assert fitted.predict(sp.csr_array(sparse)) == pytest.approx(dense, abs=1e-9)


def test_early_stopping_on_an_evaluation_set(data):
    chosen = data.qid < 25
    X, y, qid, groups = (
        part[chosen] for part in (data.X, data.y, data.qid, data.sensitive_features)
    )
    held = data.X[~chosen], data.y[~chosen]
    options = dict(iterations=200, learning_rate=0.2, early_stopping_rounds=5)
    pool = cb.Pool(*held, group_id=data.qid[~chosen])
    first = ranker(**options).fit(X, y, qid=qid, eval_set=held, eval_qid=data.qid[~chosen])
    assert 0 < first.best_iteration_ < 150
    assert first.model_.tree_count_ == first.best_iteration_ + 1
    again = ranker(**options).fit(X, y, qid=qid, eval_set=pool)
    assert again.best_iteration_ == first.best_iteration_
    assert set(first.model_.evals_result_["validation"]) == {"PairLogit"}
    stopped = FairRanker(model(iterations=30, eval_metric="NDCG"), max_rounds=1, tolerance=1.0)
    stopped.fit(
        X, y, qid=qid, sensitive_features=groups, eval_set=[held], eval_qid=[data.qid[~chosen]],
        early_stopping_rounds=3, use_best_model=False,
    )  # fmt: skip
    assert "NDCG:type=Base" in stopped.ranker_.model_.evals_result_["validation"]
    with pytest.raises(InputError, match="1 Pools and 1 pairs"):
        ranker().fit(X, y, qid=qid, eval_set=[pool, held])


@pytest.mark.parametrize(
    ("params", "options"),
    [
        ({"early_stopping_rounds": 3}, {}),
        ({"od_type": "Iter", "od_wait": 3}, {}),
        ({}, {"early_stopping_rounds": 3}),
        ({}, {"early_stopping_rounds": 3, "use_best_model": True}),
        ({"best_model_min_trees": 2}, {}),  # the best iteration, without stopping
    ],
)
def test_reweighted_rounds_train_as_many_trees_as_the_plain_one(queries, params, options, tmp_path):
    queries, held = queries.split(0.3, 0)
    options = {**options, "eval_set": (held.X, held.y), "eval_qid": held.query}
    # Pairs count for the wrong order, so that the metric falls from the first tree.
    turned = np.array([np.full((2, 2), 0.1), np.ones((2, 2))])
    params = {"n_estimators": 60, **EXACT, **params}
    make = lambda **params: CatBoostPairRanker(  # noqa: E731
        cb.CatBoostRanker(thread_count=1, random_seed=3, learning_rate=0.3, **params)
    )
    plain = make(**params).fit_pairs(queries, np.ones((2, 2)), **options)
    n_trees = plain.model_.tree_count_
    assert 3 < n_trees < 60
    assert make(**params).fit_pairs(queries, turned, **options).model_.tree_count_ < 3
    plain.save(tmp_path / "plain")
    expected = make(iterations=n_trees, **EXACT).fit_pairs(queries, turned)
    previous = load(tmp_path / "plain")  # as from a checkpoint
    for _ in range(2):
        previous = make(**params).fit_pairs(queries, turned, previous=previous, **options)
        assert previous.model_.tree_count_ == n_trees
        assert previous.predict(queries.X) == pytest.approx(expected.predict(queries.X), abs=1e-9)
        assert len(previous.model_.evals_result_["validation"]["PairLogit"]) == n_trees


def test_callbacks_and_output(data, capfd):
    seen = []

    class Watch:
        def after_iteration(self, info):
            seen.append(info.iteration)
            return info.iteration < 4

    fitted = ranker().fit(data.X, data.y, qid=data.qid, callbacks=[Watch()])
    assert seen == [1, 2, 3, 4]
    assert fitted.model_.tree_count_ == 4
    assert capfd.readouterr() == ("", "")
    ranker().fit(data.X, data.y, qid=data.qid, verbose=5)
    assert "remaining" in capfd.readouterr().out
    ranker(verbose=5).fit(data.X, data.y, qid=data.qid)
    assert "remaining" in capfd.readouterr().out
    ranker(silent=True).fit(data.X, data.y, qid=data.qid)
    assert capfd.readouterr() == ("", "")


def test_files_only_where_asked_for(data, tmp_path):
    ranker(train_dir=str(tmp_path / "log")).fit(data.X, data.y, qid=data.qid)
    assert (tmp_path / "log").is_dir()


def test_the_model_goes_alone(data, tmp_path):
    fitted = ranker().fit(data.X, data.y, qid=data.qid)
    scores = fitted.predict(data.X)
    assert scores.dtype == np.float64
    assert np.array_equal(fitted.model_.predict(data.X), scores)
    fitted.model_.save_model(str(tmp_path / "model.cbm"))
    read = cb.CatBoostRanker().load_model(str(tmp_path / "model.cbm"))
    assert np.array_equal(read.predict(data.X), scores)
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).predict(data.X), scores)  # noqa: S301
    assert fitted.predict(data.X[:1]).shape == (1,)


def test_cloning_keeps_lists():
    copy = clone(CatBoostPairRanker(model(cat_features=["a"], monotone_constraints={"b": 1})))
    assert copy.estimator.get_params()["cat_features"] == ["a"]
    assert copy.set_params(estimator__depth=3).estimator.get_params()["depth"] == 3
    assert clone(CatBoostPairRanker()).estimator is None
    assert "iterations=15" in repr(ranker())


def test_the_default_model(queries):
    class Stop:
        def after_iteration(self, info):
            return info.iteration < 2

    fitted = CatBoostPairRanker().fit_pairs(queries, TABLE, callbacks=[Stop()])
    assert fitted.model_.tree_count_ == 2


# --- refused ------------------------------------------------------------------------------------


class OwnLoss:
    def calc_ders_range(self, approxes, targets, weights):  # noqa: ARG002
        return [(0.0, 0.0)] * len(targets)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"loss_function": "QueryRMSE"}, "'QueryRMSE'.*no weights for pairs.*'PairLogit'"),
        ({"loss_function": "YetiRank:mode=NDCG"}, "no weights for pairs"),
        ({"loss_function": "YetiRankPairwise"}, "no weights for pairs"),
        ({"objective": "RMSE"}, "no weights for pairs"),
        ({"loss_function": OwnLoss()}, "custom loss.*loss_function='PairLogit'"),
        ({"loss_function": "PairLogit:max_pairs=10"}, "no effect on weighted pairs"),
        ({"save_snapshot": True}, "save_snapshot"),
    ],
)
def test_what_cannot_carry_the_weights_is_refused(queries, params, message):
    with pytest.raises(InputError, match=message):
        ranker(**params).fit_pairs(queries, TABLE)


def test_losses_that_are_let_through(queries):
    plain = ranker().fit_pairs(queries, TABLE).predict(queries.X)
    for params in (
        {"loss_function": "YetiRank"},
        {"objective": "PairLogit"},
        {"loss_function": "PairLogit:hints=skip_train~true"},
    ):
        assert np.array_equal(ranker(**params).fit_pairs(queries, TABLE).predict(queries.X), plain)


def test_other_models_and_parameters_are_refused(queries, data):
    with pytest.raises(InputError, match="trains CatBoostRanker, not"):
        CatBoostPairRanker(cb.CatBoostRegressor()).fit_pairs(queries, TABLE)
    with pytest.raises(InputError, match="cannot take 'baseline'"):
        ranker().fit_pairs(queries, TABLE, baseline=np.zeros(3))
    with pytest.raises(InputError, match="No query has two different labels"):
        ranker().fit(data.X, np.ones(len(data.y)), qid=data.qid)
    with pytest.raises(
        TrainingError, match=r"CatBoostPairRanker failed in round 0.*Cannot convert"
    ):
        FairRanker(model()).fit(
            np.full((len(data.y), 1), "text", dtype=object), data.y, qid=data.qid,
            sensitive_features=data.sensitive_features,
        )  # fmt: skip


def test_without_catboost(queries, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "catboost", None)
    with pytest.raises(MissingExtraError, match=r'pip install "pairity\[catboost\]"'):
        CatBoostPairRanker().fit_pairs(queries, TABLE)


# --- Algorithm 1 --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1])
def test_reweighting_lowers_the_violation(seed):
    data = make_biased_ranking(100, 30, strength=1.5, separation=2.0, random_state=seed)
    given = model(iterations=30, depth=4, learning_rate=0.2, leaf_estimation_iterations=1)
    fair = FairRanker(given, "inter", tolerance=0.01, max_rounds=12)
    fair.fit(data.X, data.y, qid=data.qid, sensitive_features=data.sensitive_features)
    assert fair.history_[0].violation > 0.15
    assert fair.violation_ <= 0.01
    assert isinstance(fair.ranker_, CatBoostPairRanker)
    assert np.array_equal(fair.ranker_.model_.predict(data.X), fair.predict(data.X))


def test_a_catboost_ranker_is_wrapped():
    assert isinstance(as_ranker(model()), CatBoostPairRanker)
    with pytest.raises(InputError, match="CatBoostRanker"):
        as_ranker(cb.CatBoostClassifier())
