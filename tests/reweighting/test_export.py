"""Exported pairs: the content of the files, and training from them in another tool."""

import os
import pickle
import sys

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from pairity import FairRanker, InputError, LinearRanker, PairWeights, Queries
from pairity.datasets import make_biased_ranking
from pairity.exceptions import MissingExtraError
from pairity.reweighting import export as module
from pairity.reweighting.export import export_pairs

WEIGHTS = PairWeights([[1.0, 3.0], [0.5, 2.0]], ("f", "m"))


def small(**more):
    """Query "b" has the pairs (1, 0), (1, 2); "a" has (4, 3); "c" none."""
    return Queries.from_arrays(
        None,
        [0, 1, 0, 0, 1, 1],
        qid=["b", "b", "b", "a", "a", "c"],
        sensitive_features=["m", "f", None, "m", "m", "f"],
        **more,
    )


@pytest.fixture
def read_parquet():
    """Reads a Parquet file; what needs it skips without pyarrow."""
    return pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed").read_table


def read_pairs(path):
    columns = np.loadtxt(path, delimiter="\t", ndmin=2)
    return columns[:, :2].astype(int), columns[:, 2]


def by_pair(path):
    pairs, weight = read_pairs(path)
    return {tuple(pair): value for pair, value in zip(pairs.tolist(), weight.tolist(), strict=True)}


# --- what is written ----------------------------------------------------------------------------


def test_parquet(read_parquet, tmp_path):
    path = tmp_path / "pairs.parquet"
    export_pairs(small(), WEIGHTS, path)
    table = read_parquet(path)
    rows = sorted(table.to_pylist(), key=lambda row: (row["winner"], row["loser"]))
    mean = (3.0 + 1.0 + 2.0) / 3
    assert [row.pop("weight") for row in rows] == pytest.approx([3 / mean, 1 / mean, 2 / mean])
    assert rows == [
        {"query": "b", "winner": 1, "loser": 0, "winner_group": "f", "loser_group": "m"},
        {"query": "b", "winner": 1, "loser": 2, "winner_group": "f", "loser_group": None},
        {"query": "a", "winner": 4, "loser": 3, "winner_group": "m", "loser_group": "m"},
    ]
    stored = PairWeights.from_json(table.schema.metadata[b"pairity.pair_weights"])
    assert np.array_equal(stored, WEIGHTS)
    assert os.listdir(tmp_path) == ["pairs.parquet"]


def test_catboost_format(tmp_path):
    path = tmp_path / "train.pairs"
    export_pairs(small(), WEIGHTS, path)
    assert sorted(path.read_text().splitlines()) == ["1\t0\t1.5", "1\t2\t0.5", "4\t3\t1.0"]
    export_pairs(small(), WEIGHTS, str(tmp_path / "any.txt"), format="catboost")
    assert (tmp_path / "any.txt").read_bytes() == path.read_bytes()


def test_item_and_query_weights(tmp_path):
    path = tmp_path / "train.tsv"
    queries = small(
        sample_weight=[2.0, 1.0, 0.0, 1.0, 1.0, 1.0], query_weight={"a": 3.0, "b": 0.5, "c": 1.0}
    )
    export_pairs(queries, WEIGHTS, path)
    mean = (3.0 * 2.0 * 0.5 + 2.0 * 3.0) / 2  # (1, 2) weighs nothing and is left out
    assert by_pair(path) == pytest.approx({(1, 0): 3.0 / mean, (4, 3): 6.0 / mean})


def test_weights_lose_no_digit(read_parquet, tmp_path):
    rng = np.random.default_rng(0)
    path, table = tmp_path / "train.pairs", rng.uniform(0, 2, (2, 2))
    data = make_biased_ranking(5, 8, random_state=0)
    export_pairs(data.queries(), PairWeights(table, ("group 1", "group 2")), path)
    parquet = tmp_path / "pairs.parquet"
    export_pairs(data.queries(), PairWeights(table, ("group 1", "group 2")), parquet)
    read = read_parquet(parquet)
    assert read["weight"].to_numpy().tolist() == read_pairs(path)[1].tolist()
    assert read["weight"].to_numpy().mean() == pytest.approx(1.0)


@pytest.mark.parametrize("suffix", ["pairs", "parquet"])
def test_blocks_do_not_matter(tmp_path, suffix):
    pq = pytest.importorskip("pyarrow.parquet") if suffix == "parquet" else None
    queries = make_biased_ranking(6, 9, n_labels=3, random_state=0).queries()
    weights = PairWeights([[1.0, 0.4], [1.6, 1.0]], queries.groups)
    whole, parts = tmp_path / f"whole.{suffix}", tmp_path / f"parts.{suffix}"
    export_pairs(queries, weights, whole)
    export_pairs(queries, weights, parts, block=7)
    if pq is None:
        assert whole.read_bytes() == parts.read_bytes()
    else:
        assert pq.read_table(whole).equals(pq.read_table(parts))
        assert pq.ParquetFile(parts).num_row_groups > 5


@pytest.mark.parametrize(
    ("qid", "want"),
    [
        ([7, 7, 9, 9], [7, 9]),
        ([0.5, 0.5, 1.5, 1.5], [0.5, 1.5]),
        ([("a", 1), ("a", 1), ("b", 2), ("b", 2)], ["('a', 1)", "('b', 2)"]),
        (["x", "x", 1, 1], ["1", "x"]),
        ([2**70, 2**70, 1, 1], ["1", str(2**70)]),
    ],
)
def test_query_ids_of_any_kind(read_parquet, tmp_path, qid, want):
    path = tmp_path / "pairs.parquet"
    queries = Queries.from_arrays(None, [1, 0, 1, 0], qid=qid, sensitive_features=list("fmfm"))
    export_pairs(queries, WEIGHTS, path)
    assert sorted(read_parquet(path)["query"].to_pylist()) == sorted(want)


def test_groups_are_matched_by_name(tmp_path):
    turned = PairWeights([[2.0, 0.5], [3.0, 1.0]], ("m", "f"))
    first, second = tmp_path / "a.pairs", tmp_path / "b.pairs"
    export_pairs(small(), WEIGHTS, first)
    export_pairs(small(), turned, second)
    assert first.read_bytes() == second.read_bytes()


def test_row_numbers_of_another_table(tmp_path):
    path = tmp_path / "train.pairs"
    export_pairs(small(), WEIGHTS, path, rows=np.arange(6) * 10)
    assert set(by_pair(path)) == {(10, 0), (10, 20), (40, 30)}


# --- whole or not at all --------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["pairs", "parquet"])
def test_an_interrupted_export_leaves_the_existing_file(tmp_path, monkeypatch, suffix):
    if suffix == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    path = tmp_path / f"train.{suffix}"
    path.write_text("before")
    real = module.iter_weighted_pairs

    def interrupted(*args, **options):
        yield next(real(*args, **options))
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "iter_weighted_pairs", interrupted)
    with pytest.raises(KeyboardInterrupt):
        export_pairs(small(), WEIGHTS, path, block=1)
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == [path.name]
    monkeypatch.undo()
    export_pairs(small(), WEIGHTS, path)
    assert path.read_bytes() != b"before"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("train.csv", {}, "names no format.*format='parquet'"),
        ("train.csv", {"format": "csv"}, "format is 'csv'"),
        ("train.pairs", {"block": 0}, "block must be a whole number.*got 0"),
        ("train.pairs", {"block": 1.5}, "block must be a whole number.*got 1.5"),
        ("train.pairs", {"rows": np.arange(3)}, "shape .3,.*6 items"),
        (".", {}, "is a folder"),
        ("nowhere/train.pairs", {}, "nowhere' is not a folder"),
    ],
)
def test_refused(tmp_path, name, options, message):
    with pytest.raises(InputError, match=message):
        export_pairs(small(), WEIGHTS, tmp_path / name, **options)
    assert not os.listdir(tmp_path)


def test_unknown_groups_and_no_weight(tmp_path):
    path = tmp_path / "train.pairs"
    with pytest.raises(InputError, match="group 'm', but the weights have only the groups 'f'"):
        export_pairs(small(), PairWeights([[1.0]], ("f",)), path)
    queries = Queries.from_arrays(None, [1, 0], qid=[0, 0], sensitive_features=["f", "m"])
    with pytest.raises(InputError, match="The pair weights add up to 0"):
        export_pairs(queries, PairWeights([[1.0, 0.0], [0.0, 1.0]], ("f", "m")), path)
    assert not os.listdir(tmp_path)


def test_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r'pip install "pairity\[parquet\]"'):
        export_pairs(small(), WEIGHTS, tmp_path / "pairs.parquet")
    assert not os.listdir(tmp_path)


# --- from a fitted model --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data():
    return make_biased_ranking(30, 12, strength=1.5, separation=2.0, n_labels=3, random_state=0)


def fit(data, ranker=None, **options):
    fair = FairRanker(ranker or LinearRanker(), tolerance=0.03, random_state=0, **options)
    return fair.fit(data.X, data.y, qid=data.qid, sensitive_features=data.sensitive_features)


def test_a_fitted_model_writes_its_pairs(tmp_path, data):
    fair = fit(data)
    path = tmp_path / "train.pairs"
    fair.export_pairs(path)
    export_pairs(data.queries(), fair.pair_weights_, tmp_path / "own.pairs")
    assert path.read_bytes() == (tmp_path / "own.pairs").read_bytes()
    pickle.loads(pickle.dumps(fair)).export_pairs(tmp_path / "later.pairs")  # noqa: S301
    assert path.read_bytes() == (tmp_path / "later.pairs").read_bytes()
    assert fair._trained_on[0].X is None
    with pytest.raises(NotFittedError):
        FairRanker().export_pairs(path)


def test_held_out_queries_are_written(tmp_path, data):
    names = np.array([f"q{q}" for q in data.qid], dtype=object)
    fair = FairRanker(LinearRanker(), tolerance=0.05, validation=0.3, random_state=0)
    fair.fit(data.X, data.y, qid=names, sensitive_features=data.sensitive_features)
    path = tmp_path / "train.pairs"
    fair.export_pairs(path)
    pairs, _ = read_pairs(path)
    assert len(np.unique(names[pairs])) == 30  # the final ranker is trained on all queries
    assert (names[pairs[:, 0]] == names[pairs[:, 1]]).all()
    assert (data.y[pairs[:, 0]] > data.y[pairs[:, 1]]).all()


def test_held_out_queries_are_in_parquet_too(read_parquet, tmp_path, data):
    fair = fit(data, validation=0.3)
    fair.export_pairs(tmp_path / "pairs.parquet")
    table = read_parquet(tmp_path / "pairs.parquet")
    winner = table["winner"].to_numpy()
    assert len(np.unique(data.qid[winner])) == 30
    assert table["query"].to_pylist() == data.qid[winner].tolist()
    assert table["winner_group"].to_pylist() == data.sensitive_features[winner].tolist()


def test_other_data(tmp_path, data):
    fair = fit(data)
    first, second = tmp_path / "a.pairs", tmp_path / "b.pairs"
    part = data.qid < 5
    given = dict(
        y=data.y[part], qid=data.qid[part], sensitive_features=data.sensitive_features[part]
    )
    fair.export_pairs(first, given)
    fair.export_pairs(second, Queries.from_arrays(None, **given))
    assert first.read_bytes() == second.read_bytes()
    with pytest.raises(InputError, match="mapping with y, qid and sensitive_features"):
        fair.export_pairs(first, {"y": data.y})


# --- trained from the files alone -----------------------------------------------------------------


CATBOOST = {"iterations": 25, "depth": 4, "thread_count": 1, "random_seed": 5}


@pytest.fixture(scope="module")
def fair(data):
    cb = pytest.importorskip("catboost", reason="catboost is not installed")
    made = fit(data, cb.CatBoostRanker(**CATBOOST, learning_rate=0.2), max_rounds=6)
    assert not np.allclose(made.pair_weights_, 1.0)
    return made


def alone(pool):
    import catboost as cb

    own = cb.CatBoostRanker(
        **CATBOOST, learning_rate=0.2, loss_function="PairLogit", allow_writing_files=False,
        logging_level="Silent",
    )  # fmt: skip
    return own.fit(pool)


def test_catboost_learns_the_same_from_its_own_files(tmp_path, data, fair):
    import catboost as cb

    table, columns, pairs = (tmp_path / name for name in ("data.tsv", "data.cd", "data.pairs"))
    lines = zip(data.y.tolist(), data.qid.tolist(), data.X.tolist(), strict=True)
    table.write_text("".join("\t".join(map(repr, (y, q, *x))) + "\n" for y, q, x in lines))
    columns.write_text("0\tLabel\n1\tGroupId\n")
    fair.export_pairs(pairs)
    pool = cb.Pool(str(table), column_description=str(columns), pairs=str(pairs), thread_count=1)
    assert alone(pool).predict(data.X) == pytest.approx(fair.predict(data.X), abs=1e-6)


def test_catboost_learns_the_same_from_parquet(read_parquet, tmp_path, data, fair):
    import catboost as cb

    path = tmp_path / "pairs.parquet"
    fair.export_pairs(path)
    read = read_parquet(path)
    pairs, weight = np.column_stack([read["winner"], read["loser"]]), np.array(read["weight"])
    pool = cb.Pool(data.X, data.y, group_id=data.qid, pairs=pairs, pairs_weight=weight)
    assert np.array_equal(alone(pool).predict(data.X), fair.predict(data.X))


# --- the weight table as JSON ---------------------------------------------------------------------


def test_weights_round_trip(data):
    weights = fit(data).pair_weights_
    for back in (
        PairWeights.from_json(weights.to_json()),
        PairWeights.from_json(weights.to_json().encode()),
        PairWeights.from_dict(weights.to_dict()),
    ):
        assert back.groups == weights.groups
        assert np.array_equal(back.tables, weights.tables)
    other_way = {"m": {"f": 2, "m": 1}, "f": {"m": 0.5, "f": 1}}
    assert PairWeights.from_dict({"observed": other_way})["m", "f"] == 2.0
    assert PairWeights.from_json('{"observed": {}}').table.shape == (0, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not json", "not JSON"),
        (None, "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1, 2]", "is not a mapping"),
        ("{}", "is not a mapping"),
        ('{"observed": {"f": {"f": 1}}, "mirrored": {}}', "no row for each of the groups 'f'"),
        ('{"observed": {"f": {"f": 1}}, "mirrored": 2}', "weights of 'all groups' are 2"),
        ('{"observed": {"f": 1}}', "weights of 'f' are 1"),
        ('{"observed": {"f": [1]}}', "one number for each of the groups 'f'"),
        ('{"observed": {"f": {"m": 1}}}', "one number for each of the groups 'f'"),
        ('{"observed": {"f": {"f": 1, "m": 1}}}', "one number for each of the groups 'f'"),
        ('{"observed": {"f": {"f": 1, "m": 1}, "m": {"m": 1}}}', "weights of 'm' are {'m': 1}"),
        ('{"observed": {"f": {"f": "1"}}}', "one number for each"),
        ('{"observed": {"f": {"f": true}}}', "one number for each"),
        ('{"observed": {"f": {"f": NaN}}}', "'f' preferred to 'f' is nan"),
        ('{"observed": {"f": {"f": -1}}}', "'f' preferred to 'f' is -1"),
        ('{"observed": {"f": {"f": 1e999}}}', "is inf"),
        ('{"observed": {"f": {"f": 1%s}}}' % ("0" * 400), "too large"),
    ],
)
def test_invalid_json_weights(text, message):
    with pytest.raises(InputError, match=message):
        PairWeights.from_json(text)


def test_invalid_dictionaries_of_weights():
    for wrong in ([1], {"f": 1.0}, {"f": {"m": 1.0}}, {"f": {"f": 1.0, "m": 1.0}}):
        with pytest.raises(InputError):
            PairWeights.from_dict(wrong)
