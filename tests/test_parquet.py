"""Features in Parquet files: what is trained, predicted and audited on them is as in memory."""

import warnings
from itertools import pairwise

import numpy as np
import pytest

from pairity import FairRanker, LinearRanker, Queries, audit, parquet_features
from pairity.datasets import make_biased_ranking, read_parquet
from pairity.exceptions import PairityWarning
from pairity.rankers import _linear_data, _streams

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

COLUMNS = dict(label="label", query="query", group="group")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of some 40 rows, and no part so small that it is read into memory."""
    monkeypatch.setattr(parquet_features, "BLOCK_ENTRIES", 240)
    monkeypatch.setattr(_linear_data, "BLOCK_ENTRIES", 240)
    monkeypatch.setattr(parquet_features, "SMALL", 0)


def table(n_queries=60, n_items=15, seed=0, n_features=6, sort=True):
    """Columns of a table, and the queries in memory."""
    made = make_biased_ranking(
        n_queries, n_items, n_features=n_features, n_labels=3, strength=1.0, random_state=seed
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
    settings = {"constraint": "statistical", "tolerance": 0.1, "random_state": 0, **settings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PairityWarning)
        ours = FairRanker(booster(name), **settings).fit(**streamed)
        theirs = FairRanker(booster(name), **settings).fit(**queries)
    np.testing.assert_allclose(ours.predict(streamed.X), theirs.predict(queries.X), atol=1e-6)
    np.testing.assert_allclose(ours.pair_weights_.table, theirs.pair_weights_.table, atol=1e-9)
