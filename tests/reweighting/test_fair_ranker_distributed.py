"""FairRanker on worker processes: validation, paths and checkpoints as on one machine."""

import numpy as np
import pytest

from pairity import FairRanker, LinearRanker
from pairity.exceptions import InputError, TargetNotReachedWarning
from support.clusters import (
    FEATURES,
    IN_PROCESS,
    OPTIONS,
    by_query,
    columns,
    dask,
    distributed,
    engines,
    in_partitions,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # of Dask and of the engines


def test_arrays_weights_and_validation(client, table):
    table = table.sort_values("qid", kind="stable")
    rng = np.random.default_rng(1)
    weight = rng.uniform(0.5, 2.0, len(table))
    chunks = {0: 600}
    given = {
        "X": dask.array.from_array(table[FEATURES].to_numpy(float), chunks=(600, 2)),
        "y": dask.array.from_array(table["y"].to_numpy(), chunks=600),
        "qid": dask.array.from_array(table["qid"].to_numpy(), chunks=600),
        "sensitive_features": dask.array.from_array(table["group"].to_numpy(str), chunks=600),
        "sample_weight": dask.array.from_array(weight, chunks=600),
    }
    validation = {name: given[name] for name in ("X", "y", "qid", "sensitive_features")}
    remote = FairRanker(LinearRanker(), **OPTIONS, validation=validation).fit(**given)
    local = {name: np.asarray(column) for name, column in given.items()}
    local_validation = {name: local[name] for name in validation}
    single = FairRanker(LinearRanker(), **OPTIONS, validation=local_validation).fit(**local)
    assert remote.violation_ == pytest.approx(single.violation_, abs=1e-12)
    np.testing.assert_allclose(remote.ranker_.coef_, single.ranker_.coef_, atol=1e-8)
    lazy = remote.predict(given["X"].rechunk(chunks))
    np.testing.assert_allclose(lazy.compute(), single.predict(local["X"]), atol=1e-7)


def test_a_share_held_out_is_that_of_one_machine(client, tmp_path, table):
    shuffled = table.assign(qid=[f"q{(7 * q) % 120}" for q in table["qid"]])
    ids = shuffled["qid"].unique()
    parts = [shuffled[shuffled["qid"].isin(ids[at::5])] for at in range(5)]
    settings = {**OPTIONS, "validation": 0.3, "random_state": 3}
    remote = FairRanker(LinearRanker(tol=1e-10), **settings, checkpoint=tmp_path)
    remote.fit(**columns(in_partitions(parts)))
    single = FairRanker(LinearRanker(tol=1e-10), **settings).fit(**columns(shuffled))
    assert [round_.violation for round_ in remote.history_] == pytest.approx(
        [round_.violation for round_ in single.history_], abs=1e-12
    )
    np.testing.assert_allclose(remote.ranker_.coef_, single.ranker_.coef_, atol=1e-8)
    changed = {**settings, "random_state": 4}
    other = FairRanker(LinearRanker(tol=1e-10), **changed, checkpoint=tmp_path)
    with pytest.raises(InputError, match="random_state"):
        other.fit(**columns(in_partitions(parts)))


@pytest.mark.parametrize("along", ["lambda", "tolerance"])
def test_a_path_is_that_of_one_machine(client, spread, along, table):
    values = {"lambda": [0.0, 0.5, 1.0], "tolerance": [0.1, 0.02]}[along]
    model = FairRanker(**OPTIONS, validation=0.3, random_state=1)
    remote = model.fit(**columns(spread)).path(
        **columns(spread), along=along, values=values, test=columns(by_query(table, 3))
    )
    other = FairRanker(**OPTIONS, validation=0.3, random_state=1)
    single = other.fit(**columns(table)).path(
        **columns(table), along=along, values=values, test=columns(table)
    )
    assert "120 test queries" in str(remote)
    for point, expected in zip(remote.points, single.points, strict=True):
        assert (point.x, point.violation, point.auc) == pytest.approx(
            (expected.x, expected.violation, expected.auc), abs=1e-9
        )
    with pytest.raises(InputError, match=r"validation=3 asks for folds.*Pass a share"):
        FairRanker(**OPTIONS, validation=3).fit(**columns(spread))


def test_a_fit_is_resumed_on_another_cluster(client, spread, tmp_path, table):
    pytest.importorskip("xgboost")
    settings = {**OPTIONS, "tolerance": 0.0, "schedule": "retrain"}
    few = FairRanker(engines("xgboost")[0], **{**settings, "max_rounds": 1}, checkpoint=tmp_path)
    with pytest.warns(TargetNotReachedWarning):
        few.fit(**columns(spread))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["round-0", "round-1", "rounds.json"]
    with (
        distributed.LocalCluster(**IN_PROCESS) as other,
        distributed.Client(other, set_as_default=False),
    ):
        another = engines("xgboost")[0]
        with distributed.Client(other, set_as_default=False) as connected:
            another.client = connected
            more = FairRanker(another, **{**settings, "max_rounds": 2}, checkpoint=tmp_path)
            more.fit(**columns(spread))
    whole = FairRanker(engines("xgboost")[0], **{**settings, "max_rounds": 2})
    whole.fit(**columns(spread))
    assert [round_.seconds for round_ in more.history_][:2] == [e.seconds for e in few.history_]
    np.testing.assert_allclose(
        more.predict(table[FEATURES]), whole.predict(table[FEATURES]), atol=1e-6
    )


def test_boosters_measure_on_validation_queries_by_retraining(client, spread, table):
    pytest.importorskip("xgboost")
    ids = np.unique(table["qid"])
    validation = by_query(table[table["qid"].isin(ids[:40])], 2)
    many, one = engines("xgboost")
    options = {**OPTIONS, "max_rounds": 1}
    remote = FairRanker(many, **options, validation=columns(validation)).fit(**columns(spread))
    local = columns(table[table["qid"].isin(ids[:40])])
    single = FairRanker(one, **options, validation=local, schedule="retrain").fit(**columns(table))
    assert remote.history_[0].violation == pytest.approx(single.history_[0].violation, abs=1e-12)
    np.testing.assert_allclose(
        remote.predict(table[FEATURES]), single.predict(table[FEATURES]), atol=1e-6
    )
    asked = FairRanker(many, **options, validation=columns(validation), schedule="interleaved")
    with pytest.raises(InputError, match="Use schedule='retrain'"):
        asked.fit(**columns(spread))


def test_settings_that_dask_does_not_support_are_refused(client, spread, table):
    from sklearn.linear_model import Ridge

    def own(queries, scores):
        return np.zeros((2, 2))

    with pytest.raises(InputError, match="RegressorRanker does not train on Dask"):
        FairRanker(Ridge(), **OPTIONS).fit(**columns(spread))
    with pytest.raises(InputError, match="own is a function of all queries at once"):
        FairRanker(LinearRanker(), own).fit(**columns(spread))
    with pytest.raises(InputError, match="y is ndarray, but other columns are Dask"):
        FairRanker().fit(**{**columns(spread), "y": table["y"].to_numpy()})
    with pytest.raises(InputError, match="different numbers of partitions"):
        FairRanker().fit(**{**columns(spread), "y": by_query(table, 3)["y"]})
    with pytest.raises(InputError, match=r"share to hold out is 1\.5; it must lie between 0 and 1"):
        FairRanker(validation=1.5).fit(**columns(spread))
    pytest.importorskip("xgboost")
    with pytest.raises(InputError, match="DaskXGBRanker trains on Dask collections"):
        FairRanker(engines("xgboost")[0]).fit(**columns(table))
    with pytest.raises(InputError, match=r"In partition \d: y has"):
        FairRanker().fit(**columns(by_query(table.assign(y=np.nan), 2)))


@pytest.mark.parametrize(
    ("name", "schedule"), [("linear", "auto"), ("xgboost", "interleaved"), ("lightgbm", "retrain")]
)
def test_queries_that_count_equally(client, table, name, schedule):
    kept = table[table.groupby("qid").cumcount() < 4 + table["qid"] % 17].reset_index(drop=True)
    many, local_model = engines(name)
    options = {**OPTIONS, "max_rounds": 2, "schedule": schedule, "validation": None}
    remote = FairRanker(many, **options).fit(**columns(by_query(kept, 4)), query_weight="equal")
    single = FairRanker(local_model, **options).fit(**columns(kept), query_weight="equal")
    plain = FairRanker(local_model, **options).fit(**columns(kept))
    assert [round_.violation for round_ in remote.history_] == pytest.approx(
        [round_.violation for round_ in single.history_], abs=1e-9
    )
    expected = single.predict(kept[FEATURES])
    np.testing.assert_allclose(remote.predict(kept[FEATURES]), expected, atol=1e-5)
    assert np.abs(plain.predict(kept[FEATURES]) - expected).max() > 1e-3
