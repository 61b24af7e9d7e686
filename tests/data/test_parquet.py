"""Features in Parquet files: what is trained, predicted and audited on them is as in memory."""

import gc
import json
import subprocess
import sys
import tempfile
import tracemalloc
import warnings
from itertools import pairwise

import numpy as np
import pytest
from sklearn.tree import DecisionTreeRegressor

from pairity import FairRanker, LinearRanker, Queries, audit
from pairity.data import parquet_features, read_parquet, tables
from pairity.datasets import BiasedWorld, make_biased_ranking
from pairity.exceptions import InputError, NotNumbersError, PairityWarning
from pairity.rankers import _linear_data, _streams
from pairity.rankers.adapters import as_ranker

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

COLUMNS = dict(y="label", qid="query", sensitive_features="group")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of some 40 rows, and no part so small that it is read into memory."""
    monkeypatch.setattr(parquet_features, "BLOCK_ENTRIES", 240)
    monkeypatch.setattr(_linear_data, "BLOCK_ENTRIES", 240)
    monkeypatch.setattr(parquet_features, "SMALL", 0)


def table(n_queries=60, n_items=15, seed=0, n_features=6, sort=True):
    """Columns of a table, and the queries in memory."""
    made = make_biased_ranking(
        n_queries,
        n_items,
        n_labels=3,
        strength=1.0,
        world=BiasedWorld(n_features=n_features),
        random_state=seed,
    )
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, n_items + 1, n_queries)  # of the first so many items of each
    keep = np.concatenate([q * n_items + np.arange(size) for q, size in enumerate(sizes)])
    names = np.array([f"q{k:03d}" for k in range(n_queries)])
    if not sort:
        rng.shuffle(names)
    columns = {f"f{k}": made.X[keep, k] * 10.0 ** (k - 2) + k for k in range(n_features)}
    columns |= {
        "label": made.y[keep],
        "query": names[np.repeat(np.arange(n_queries), sizes)],
        "group": np.array(made.sensitive_features, dtype=object)[keep],
    }
    X = np.column_stack([columns[f"f{k}"] for k in range(n_features)])
    queries = Queries.from_arrays(
        X, columns["label"], qid=columns["query"], sensitive_features=columns["group"]
    )
    return columns, queries


def write(folder, columns, n_files=3, row_group_size=37):
    """The table in files that cut queries, with row groups that cut them again."""
    n_rows = len(columns["label"])
    cuts = np.linspace(0, n_rows, n_files + 1).astype(int)
    for at, (low, high) in enumerate(pairwise(cuts)):
        part = pa.table({name: pa.array(column[low:high]) for name, column in columns.items()})
        pq.write_table(part, folder / f"part-{at}.parquet", row_group_size=row_group_size)
    return folder


@pytest.fixture(scope="module", params=["sorted ids", "ids in any order"])
def both(request, tmp_path_factory):
    columns, queries = table(sort=request.param == "sorted ids")
    folder = write(tmp_path_factory.mktemp("table"), columns)
    return read_parquet(folder, **COLUMNS), queries


def same(streamed, queries):
    """Equal but for the features, which are compared when they are read."""
    assert streamed.X.shape == queries.X.shape
    np.testing.assert_array_equal(streamed.X.load(), queries.X)
    return Queries.from_arrays(**{**streamed, "X": queries.X}) == queries


# --- reading -------------------------------------------------------------------------------------


def test_is_what_it_is_in_memory(both):
    streamed, queries = both
    assert same(streamed, queries)
    assert streamed.feature_names == ("f0", "f1", "f2", "f3", "f4", "f5")
    assert Queries.from_arrays(**streamed) == streamed


# --- LinearRanker --------------------------------------------------------------------------------


@pytest.mark.parametrize("margin", [0.0, 2.0])
def test_linear_fit_is_the_same(both, margin):
    streamed, queries = both
    weights = np.array([[1.0, 0.4], [1.6, 0.9]])
    ours = LinearRanker(margin=margin, tol=1e-8).fit_pairs(streamed, weights)
    theirs = LinearRanker(margin=margin, tol=1e-8).fit_pairs(queries, weights)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-9)
    assert ours.n_evaluations_ == theirs.n_evaluations_
    np.testing.assert_allclose(ours.predict(streamed.X), theirs.predict(queries.X), rtol=1e-9)


# --- FairRanker ----------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"validation": 0.3, "random_state": 1}])
def test_fair_fit_is_the_same(both, settings):
    streamed, queries = both
    settings = {"constraint": "statistical", "tolerance": 0.05, **settings}
    ours = FairRanker(LinearRanker(tol=1e-8), **settings).fit(**streamed)
    theirs = FairRanker(LinearRanker(tol=1e-8), **settings).fit(**queries)
    assert len(ours.history_) == len(theirs.history_) > 1
    np.testing.assert_allclose(ours.pair_weights_.table, theirs.pair_weights_.table, rtol=1e-8)
    np.testing.assert_allclose(ours.ranker_.coef_, theirs.ranker_.coef_, rtol=1e-8)
    assert ours.violation_ == pytest.approx(theirs.violation_, abs=1e-12)
    assert ours.training_digest_ == theirs.training_digest_
    assert list(ours.feature_names_in_) == list(streamed.feature_names)
    scores = ours.predict(streamed.X)
    np.testing.assert_allclose(scores, theirs.predict(queries.X), rtol=1e-8)
    assert audit(streamed, scores).auc == audit(queries, scores).auc


def test_parts_are_views(both):
    streamed, queries = both
    halves = zip(
        streamed.split(0.4, random_state=3), queries.split(0.4, random_state=3), strict=True
    )
    for ours, theirs in halves:
        assert isinstance(ours.X, parquet_features.ParquetFeatures)
        assert same(ours, theirs)


# --- boosters ------------------------------------------------------------------------------------


def booster(name, **settings):
    if name == "lightgbm":
        lightgbm = pytest.importorskip("lightgbm")
        return lightgbm.LGBMRanker(n_estimators=20, min_child_samples=5, n_jobs=1, **settings)
    xgboost = pytest.importorskip("xgboost")
    return xgboost.XGBRanker(n_estimators=20, max_depth=3, n_jobs=1, **settings)


@pytest.mark.parametrize("settings", [{}, {"validation": 0.3}, {"schedule": "retrain"}])
@pytest.mark.parametrize("name", ["lightgbm", "xgboost", "xgboost on disk"])
def test_boosters_are_the_same(both, name, settings, monkeypatch):
    if name == "xgboost on disk":
        monkeypatch.setattr(_streams, "_BINS_IN_MEMORY", 0)
    streamed, queries = both
    settings = {
        "constraint": "statistical", "tolerance": 0.1, "random_state": 0, "validation": None,
        **settings,
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PairityWarning)
        ours = FairRanker(booster(name), **settings).fit(**streamed)
        theirs = FairRanker(booster(name), **settings).fit(**queries)
    np.testing.assert_allclose(ours.predict(streamed.X), theirs.predict(queries.X), atol=1e-6)
    np.testing.assert_allclose(ours.pair_weights_.table, theirs.pair_weights_.table, atol=1e-9)


@pytest.mark.parametrize("model", ["catboost", "torch", "newton"])
def test_every_ranker_predicts_on_files(both, model):
    """Those that need features in memory to train say so, and predict on files all the same."""
    streamed, queries = both
    if model == "catboost":
        ranker = pytest.importorskip("catboost").CatBoostRanker(
            iterations=5, verbose=False, thread_count=1, allow_writing_files=False
        )
    elif model == "torch":
        pytest.importorskip("torch")
        ranker = as_ranker(pytest.importorskip("torch").nn.Linear(6, 1))
        ranker.set_params(epochs=2)
    else:
        ranker = DecisionTreeRegressor(max_depth=3, random_state=0)
    fair = FairRanker(ranker, max_rounds=0)
    with pytest.raises(InputError, match=r"needs its features in memory.*in_memory\(\)"):
        fair.fit(**streamed)
    assert not hasattr(fair, "ranker_")
    fair.fit(**streamed.in_memory())
    np.testing.assert_array_equal(fair.predict(streamed.X), fair.predict(queries.X))


def test_a_temporary_folder_of_bins_goes_with_the_data(both, monkeypatch, tmp_path):
    pytest.importorskip("xgboost")
    monkeypatch.setattr(_streams, "_BINS_IN_MEMORY", 0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    streamed = both[0].split(0.5, random_state=0)[0]
    model = as_ranker(booster("xgboost")).fit(streamed.X, streamed.y, qid=streamed["qid"])
    gc.collect()
    assert list(tmp_path.iterdir()) == []
    assert model.predict(streamed.X).shape == (streamed.n_items,)


def test_lightgbm_does_not_hold_the_sample_while_it_bins(both, monkeypatch):
    lgb = pytest.importorskip("lightgbm")
    streamed, _ = both
    init, samples = lgb.Dataset._init_from_sample, []

    def kept(self, values, rows, *rest):
        samples.append((values, rows, len(values)))
        return init(self, values, rows, *rest)

    monkeypatch.setattr(lgb.Dataset, "_init_from_sample", kept)
    _streams.as_dataset(lgb, streamed.X).construct()
    assert samples == [([], [], streamed.X.shape[1])]


def test_xgboost_finds_the_bins_of_many_rows_in_a_sample(tmp_path, monkeypatch):
    """What is learnt is nearly what all rows teach; few different values are all bins."""
    pytest.importorskip("xgboost")
    columns, _ = table(n_queries=200, n_items=60)
    columns["f0"] = np.round(columns["f0"], 2)  # some twenty values
    columns["f1"] = np.where(columns["f1"] > 1.3, np.nan, columns["f1"])
    columns["f2"] = np.full(len(columns["f2"]), np.nan)
    streamed = read_parquet(write(tmp_path, columns, row_group_size=900), **COLUMNS)
    own = as_ranker(booster("xgboost")).fit(streamed.X, streamed.y, qid=streamed["qid"])
    monkeypatch.setattr(_streams, "_BINS_IN_MEMORY", 0)
    monkeypatch.setattr(_streams, "_SAMPLE", 6 * 2000)
    streamed = read_parquet(tmp_path, **COLUMNS)
    ours = as_ranker(booster("xgboost")).fit(streamed.X, streamed.y, qid=streamed["qid"])
    near = np.corrcoef(ours.predict(streamed.X), own.predict(streamed.X))[0, 1]
    assert 0.97 < near < 1.0


# --- bad input -----------------------------------------------------------------------------------


def columns_of(**changed):
    given = {
        "f0": np.arange(6.0), "label": np.array([0, 1, 0, 1, 0, 1]),
        "query": np.array([7, 7, 7, 3, 3, 3]), "group": np.array(["a", "b"] * 3),
    }  # fmt: skip
    return {**given, **changed}


def test_kinds_of_columns(tmp_path):
    """Booleans, whole numbers, decimals, float32, categories of numbers; missing ones are NaN."""
    columns = columns_of(
        truth=pa.array([True, False, None, True, True, False]),
        whole=pa.array([1, 2, 3, None, 5, 6]),
        exact=pa.array(["1.5", "2.5", "3", "4", "5", "6"]).cast(pa.decimal128(5, 2)),
        single=pa.array([1, 2, 3, 4, 5, 6.5], pa.float32()),
        coded=pa.array([1, 1, 2, 2, 1, 1]).dictionary_encode(),
    )
    write(tmp_path, columns, n_files=2, row_group_size=2)
    queries = read_parquet(tmp_path, **COLUMNS)
    X = queries.X.load()
    assert queries.feature_names == ("f0", "truth", "whole", "exact", "single", "coded")
    np.testing.assert_array_equal(X[:, 1], [1, 0, np.nan, 1, 1, 0])
    np.testing.assert_array_equal(X[:, 2], [1, 2, 3, np.nan, 5, 6])
    np.testing.assert_array_equal(X[:, 3], [1.5, 2.5, 3, 4, 5, 6])
    np.testing.assert_array_equal(X[:, 5], [1, 1, 2, 2, 1, 1])
    assert queries.query_ids.tolist() == [3, 7]
    assert queries.query.tolist() == [1, 1, 1, 0, 0, 0]
    single = read_parquet(tmp_path, **COLUMNS, features=["single"]).X
    assert single.dtype == np.float32
    np.testing.assert_array_equal(single.load()[:, 0], [1, 2, 3, 4, 5, 6.5])


def test_categories_may_differ_between_row_groups_and_files(tmp_path):
    first = {**columns_of(), "group": pa.array(["b", "a", None] * 2).dictionary_encode()}
    second = {**columns_of(), "group": pa.array(["c", "a"] * 3), "query": np.repeat([1, 2], 3)}
    for at, columns in enumerate((first, second)):
        file = tmp_path / f"{at}.parquet"
        pq.write_table(pa.table(columns), file, row_group_size=2)
    queries = read_parquet(tmp_path, **COLUMNS)
    assert queries.groups == ("a", "b", "c")
    assert queries["sensitive_features"].tolist() == ["b", "a", None] * 2 + ["c", "a"] * 3


def test_weights_and_several_attributes(tmp_path):
    columns = columns_of(
        u=np.array([1, 2, 1, 1, 1, 0.5]), v=np.repeat([2.0, 3.0], 3), age=np.array([1, 2] * 3)
    )
    write(tmp_path, columns, n_files=1)
    queries = read_parquet(
        tmp_path, y="label", qid="query", sensitive_features=["group", "age"], sample_weight="u",
        query_weight="v",
    )  # fmt: skip
    assert queries.feature_names == ("f0",)
    assert queries.groups == ("a × 1", "b × 2")
    assert queries.query_ids.tolist() == [3, 7]
    assert queries.query_weight.tolist() == [3.0, 2.0]
    assert queries["sample_weight"].tolist() == columns["u"].tolist()
    assert read_parquet(tmp_path, y="label", qid="query", features=[]).X is None


def test_files_lists_and_patterns(tmp_path):
    columns, _ = table(10)
    write(tmp_path, columns)
    names = [tmp_path / f"part-{k}.parquet" for k in range(3)]
    (tmp_path / "_metadata.parquet").write_text("not looked at")
    pq.write_table(pa.table(columns).slice(0, 0), tmp_path / "part-1b.parquet")  # no rows
    whole = read_parquet(tmp_path, **COLUMNS)
    assert whole.n_items == len(columns["label"])
    for paths in (str(tmp_path / "part-*.parquet"), [str(name) for name in names], names):
        assert read_parquet(paths, **COLUMNS).n_items == whole.n_items
    assert read_parquet(names[0], **COLUMNS).n_items < whole.n_items


@pytest.mark.parametrize(
    ("changed", "options", "error", "said"),
    [
        ({}, {"y": "lable"}, InputError, r"no column 'lable'.*mean 'label'"),
        ({}, {"features": ["f9"]}, InputError, "no column 'f9'.*The columns are 'f0'"),
        (
            {},
            {"features": lambda name: name != "f0"},
            InputError,
            "No column of .* is left as a feature",
        ),
        ({}, {"features": ["label"]}, InputError, "'label' is named as a feature and"),
        ({}, {"features": "f0"}, InputError, "must be a list of names"),
        ({"f1": np.array(["x"] * 6)}, {}, NotNumbersError, r"'f1' of .* holds string.*features="),
        ({"f1": pa.array(["x"] * 6).dictionary_encode()}, {}, NotNumbersError, "holds categories"),
        ({"query": np.array([1, 1, 2, 2, 1, 1])}, {}, InputError, "query 1 continues in row 4"),
        ({"query": pa.array([1, 1, None, 2, 2, 2])}, {}, InputError, "'query' is missing in row 2"),
        ({"query": np.array([1, 1, 2, np.nan, 3, 3])}, {}, InputError, "is missing in row 3"),
        ({"label": pa.array([0, 1, 0, None, 1, 1])}, {}, InputError, "y has 1 entries.*row 3"),
        ({"label": np.array(["no"] * 6)}, {}, NotNumbersError, "y must be numbers, .*'no'"),
    ],
)
def test_bad_columns(tmp_path, changed, options, error, said):
    write(tmp_path, columns_of(**changed), n_files=1, row_group_size=2)
    with pytest.raises(error, match=f"(?s){said}"):
        read_parquet(tmp_path, **{**COLUMNS, **options})


@pytest.mark.parametrize(
    ("second", "error", "said"),
    [
        ({"f0": None}, InputError, r"1\.parquet lacks 1 columns.*'f0'"),
        ({"f0": np.array(["x"] * 6)}, NotNumbersError, r"'f0' of .*1\.parquet holds string"),
        ({"query": np.array(list("abcdef"))}, InputError, r"'query' of .* holds text, but numbers"),
        ({"group": np.arange(6)}, InputError, r"'group' of .*1\.parquet holds numbers, but text"),
        ({}, InputError, "query 7 continues in row 6"),
    ],
)
def test_files_that_do_not_fit_together(tmp_path, second, error, said):
    columns = {name: value for name, value in columns_of(**second).items() if value is not None}
    pq.write_table(pa.table(columns_of()), tmp_path / "0.parquet")
    pq.write_table(pa.table(columns), tmp_path / "1.parquet")
    with pytest.raises(error, match=f"(?s){said}"):
        read_parquet(tmp_path, **COLUMNS)


def test_bad_files(tmp_path):
    with pytest.raises(InputError, match="no Parquet file in"):
        read_parquet(tmp_path, **COLUMNS)
    with pytest.raises(InputError, match="does not exist"):
        read_parquet(tmp_path / "table.parquet", **COLUMNS)
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(InputError, match=r"broken\.parquet is not a readable Parquet file"):
        read_parquet(tmp_path, **COLUMNS)
    file = tmp_path / "broken.parquet"
    pq.write_table(pa.table(columns_of()).slice(0, 0), file)
    with pytest.raises(InputError, match="has no rows"):
        read_parquet(tmp_path, **COLUMNS)
    with pytest.raises(InputError, match="named 2 times"):
        read_parquet([file, file], **COLUMNS)


def test_a_file_that_changes_in_use_is_refused(tmp_path):
    write(tmp_path, columns_of(), n_files=1)
    queries = read_parquet(tmp_path, **COLUMNS)
    write(tmp_path, columns_of(f0=np.arange(6.0) + 100, label=np.arange(6)), n_files=1)
    with pytest.raises(InputError, match="has changed since it was first read"):
        queries.X.load()


@pytest.mark.parametrize("worst", [np.nan, np.inf])
def test_missing_features(tmp_path, worst):
    """Refused by row and column where numbers are needed, left to the boosters' own ways."""
    columns, _ = table(20)
    plain = write(tmp_path, columns, n_files=1)
    model = LinearRanker().fit(**only(read_parquet(plain, **COLUMNS)))
    columns["f3"][57] = worst
    streamed = read_parquet(write(tmp_path, columns, n_files=1), **COLUMNS)
    for act in (lambda: LinearRanker().fit(**only(streamed)), lambda: model.predict(streamed.X)):
        with pytest.raises(InputError, match=rf"row 57, column 'f3' \({worst}\)"):
            act()
    if np.isnan(worst):
        as_ranker(booster("lightgbm")).fit(**only(streamed))


def only(queries):
    return {key: queries[key] for key in ("X", "y", "qid")}


def test_other_columns_than_those_of_the_fit(tmp_path):
    columns, _ = table(20)
    write(tmp_path, columns)
    whole = read_parquet(tmp_path, **COLUMNS)
    model = FairRanker(max_rounds=0).fit(**whole)
    turned = read_parquet(tmp_path, **COLUMNS, features=["f1", "f0", "f2", "f3", "f4", "f5"])
    with pytest.raises(InputError, match="column 0 is 'f1' instead of 'f0'"):
        model.predict(turned.X)
    with pytest.raises(InputError, match="has 2 features, but the model was fitted on 6"):
        model.predict(read_parquet(tmp_path, **COLUMNS, features=["f0", "f1"]).X)
    unnamed = LinearRanker().fit(whole.X.load(), whole.y, qid=whole["qid"])
    with pytest.raises(InputError, match="X has 2 features"):
        unnamed.predict(read_parquet(tmp_path, **COLUMNS, features=["f0", "f1"]).X)


def test_rows_that_do_not_stand_together(tmp_path):
    write(tmp_path, columns_of(), n_files=1)
    X = read_parquet(tmp_path, **COLUMNS).X
    queries = Queries.from_arrays(X, [0, 1, 0, 1, 0, 1], qid=[2, 1, 2, 1, 2, 1])
    with pytest.raises(InputError, match="must be contiguous, but the query 2 continues in row 2"):
        LinearRanker().fit_pairs(queries, np.ones((0, 0)))
    with pytest.raises(InputError, match="increasing order"):
        X.take(np.array([3, 1]))


def test_xgboost_needs_histograms(both):
    pytest.importorskip("xgboost")
    with pytest.raises(InputError, match="only with histograms"):
        as_ranker(booster("xgboost", tree_method="approx")).fit(**only(both[0]))


# --- the command ---------------------------------------------------------------------------------


def run(*words):
    from pairity.cli import main

    return main([str(word) for word in words])


def test_the_command_is_the_same_on_files(tmp_path, capsys, monkeypatch):
    """Train, predict and audit on a folder read in blocks, and on one file in memory."""
    columns, _ = table(80)
    folder = tmp_path / "parts"
    folder.mkdir()
    write(folder, columns)
    pq.write_table(pa.table(columns), tmp_path / "whole.parquet")
    roles = ["--label", "label", "--query", "query", "--group", "group"]
    told = {}
    for name, words in {"folder": [folder, "--stream"], "whole": ["whole.parquet"]}.items():
        monkeypatch.chdir(tmp_path)
        model, scores = f"model of {name}", f"{name}.csv"
        train = ["train", *words, *roles, "--output", model, "--no-report"]
        assert run(*train, "--constraint", "statistical", "--format", "json") in (0, 1)
        told[name] = json.loads(capsys.readouterr().out)
        assert run("predict", model, *words, "--output", scores, "--quiet") == 0
        told[name]["scores"] = np.loadtxt(scores, skiprows=1)
    assert told["folder"]["audits"] == told["whole"]["audits"]
    assert told["folder"]["pair_weights"] == told["whole"]["pair_weights"]
    np.testing.assert_allclose(told["folder"]["scores"], told["whole"]["scores"], rtol=1e-6)
    columns["score"] = told["whole"]["scores"]
    write(folder, columns)
    pq.write_table(pa.table(columns), tmp_path / "whole.parquet")
    audits = []
    for words in ([folder, "--stream"], [folder], ["whole.parquet"]):
        assert run("audit", *words, *roles, "--score", "score", "--format", "json") == 0
        audits.append(json.loads(capsys.readouterr().out))
    assert audits[0] == audits[1] == audits[2]


def test_large_files_are_read_in_blocks_by_themselves(tmp_path, monkeypatch):
    columns, _ = table(20)
    write(tmp_path, columns, n_files=1)
    file = tmp_path / "part-0.parquet"
    assert isinstance(tables.read_table(file).features(["f0", "f1"], (), ())[0], np.ndarray)
    monkeypatch.setattr(tables, "_LARGE", 1e-15)
    for path in (file, tmp_path, tmp_path / "part-*.parquet"):
        read = tables.read_table(path)
        X, names = read.features(["f0", "f1"], (), ())
        assert isinstance(X, parquet_features.ParquetFeatures)
        assert (read.n_rows, names) == (len(columns["label"]), ("f0", "f1"))
        np.testing.assert_array_equal(read["label"], columns["label"])
        assert read["query"].tolist() == columns["query"].tolist()
    with pytest.raises(InputError, match=r"'query' in .* holds words"):
        read.features(["f0", "query"], (), ())
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="Only Parquet"):
        tables.read_table(tmp_path / "table.csv", stream=True)


@pytest.mark.parametrize("rows_at_once", ["row groups", "pages"])
def test_memory_is_that_of_some_row_groups(tmp_path, monkeypatch, rows_at_once):
    """A pass, a gradient and a prediction hold a few row groups, however many there are."""
    monkeypatch.setattr(parquet_features, "BLOCK_ENTRIES", 20_000)
    monkeypatch.setattr(_linear_data, "BLOCK_ENTRIES", 20_000)
    if rows_at_once == "pages":
        monkeypatch.setattr(parquet_features, "_GROUP_BYTES", 0)
    rng = np.random.default_rng(0)
    n_rows, n_features = 60_000, 20
    columns = {f"f{k}": rng.normal(size=n_rows) for k in range(n_features)}
    columns |= {"label": rng.integers(0, 2, n_rows), "query": np.arange(n_rows) // 30}
    write(tmp_path, columns, n_files=2, row_group_size=1000)
    queries = read_parquet(tmp_path, y="label", qid="query")
    data = _linear_data.Streamed(queries)
    row_group, per_row = 1000 * n_features * 8, 8 * n_rows
    for act, most in {
        lambda: sum(len(block) for _, block in queries.X.blocks()): 4 * row_group,
        lambda: data.loss_and_gradient(np.ones(n_features), np.ones((0, 0))): 6 * row_group,
        lambda: LinearRanker.predict(fitted(n_features), queries.X): 8 * row_group + per_row,
    }.items():
        act()  # which compiles
        tracemalloc.start()
        act()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < most < 0.2 * 8 * n_rows * n_features


def fitted(n_features):
    ranker = LinearRanker()
    ranker.coef_, ranker.n_features_in_ = np.ones(n_features), n_features
    return ranker


LITTLE = """
import resource, sys
import numpy as np
from pairity import LinearRanker
from pairity.data import read_parquet
from pairity.exceptions import NoMemoryError
from pairity.rankers.adapters import as_ranker

engine, folder, megabytes = sys.argv[1], sys.argv[2], int(sys.argv[3])
if engine == "xgboost":
    from xgboost import XGBRanker
    ranker = as_ranker(XGBRanker(n_estimators=1, n_jobs=1, max_depth=10, max_bin=4096))
else:
    ranker = LinearRanker()
queries = read_parquet(folder, y="label", qid="query")
X = queries.X.load() if engine == "xgboost" else queries.X
status = open("/proc/self/status").read()
now = 1024 * int(status.partition("VmData:")[2].split()[0])
resource.setrlimit(resource.RLIMIT_DATA, (now + megabytes * 2**20,) * 2)
try:
    ranker.fit(X, queries.y, qid=queries["qid"])
except NoMemoryError as error:
    print(error)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's limit on memory")
@pytest.mark.parametrize(
    ("engine", "megabytes", "said"),
    [
        (
            "linear",
            4,
            ["ran out in reading", "smaller row groups", "ARROW_DEFAULT_MEMORY_POOL=system"],
        ),
        ("xgboost", 20, ["ran out in training", "bad_alloc", "lower max_bin", "read_parquet"]),
    ],
)
def test_a_lack_of_memory_is_said(tmp_path, engine, megabytes, said):
    pytest.importorskip("xgboost")
    rng = np.random.default_rng(0)
    columns = {f"f{k}": rng.normal(size=4000) for k in range(200)}
    columns |= {"label": rng.integers(0, 2, 4000), "query": np.arange(4000) // 20}
    write(tmp_path, columns, row_group_size=4000)
    done = subprocess.run(
        [sys.executable, "-c", LITTLE, engine, str(tmp_path), str(megabytes)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for words in said:
        assert words in done.stdout
