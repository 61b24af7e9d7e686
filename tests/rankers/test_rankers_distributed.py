"""Rankers on worker processes: the models of one machine, even if a worker is killed."""

import os
import signal
import threading
import time

import numpy as np
import pytest

from pairity import FairRanker, LinearRanker, load
from pairity.exceptions import TargetNotReachedWarning
from support import clusters
from support.clusters import FEATURES, columns, dask, engines

pytestmark = pytest.mark.filterwarnings("ignore")  # of Dask and of the engines
OPTIONS = {**clusters.OPTIONS, "validation": None}  # as on workers by default


@pytest.mark.parametrize(
    ("name", "schedule"),
    [("linear", "retrain"), ("xgboost", "retrain"), ("xgboost", "interleaved"),
     ("lightgbm", "retrain"), ("lightgbm", "interleaved")],
)  # fmt: skip
def test_the_model_is_that_of_one_machine(client, spread, name, schedule, table):
    many, local_model = engines(name)
    options = {**OPTIONS, "max_rounds": 1, "schedule": schedule}
    remote = FairRanker(many, **options).fit(**columns(spread))
    single = FairRanker(local_model, **options).fit(**columns(table))
    assert remote.groups_ == single.groups_
    assert len(remote.history_) == len(single.history_)
    for remote_round, expected in zip(remote.history_, single.history_, strict=True):
        np.testing.assert_allclose(remote_round.delta, expected.delta, atol=1e-12)
        assert remote_round.auc == pytest.approx(expected.auc, abs=1e-12)
    expected = single.predict(table[FEATURES])
    np.testing.assert_allclose(remote.predict(table[FEATURES]), expected, atol=1e-6)
    lazy = remote.predict(spread[FEATURES])
    assert isinstance(lazy, dask.array.Array)
    np.testing.assert_allclose(lazy.compute(), expected, atol=1e-6)


def test_models_are_those_of_the_engine_and_are_saved_as_usual(client, spread, tmp_path, table):
    xgb = pytest.importorskip("xgboost")
    model = FairRanker(engines("xgboost")[0], **OPTIONS).fit(**columns(spread))
    assert isinstance(model.ranker_.model_, xgb.Booster)
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    scores = model.predict(table[FEATURES])
    np.testing.assert_array_equal(loaded.predict(table[FEATURES]), scores)


@pytest.mark.parametrize("name", ["xgboost", "lightgbm"])
def test_estimators_without_dask_train_on_workers_too(client, spread, name, table):
    _, local_model = engines(name)
    settings = {**OPTIONS, "max_rounds": 1, "schedule": "retrain"}
    remote = FairRanker(local_model, **settings).fit(**columns(spread))
    single = FairRanker(local_model, **settings).fit(**columns(table))
    assert type(remote.ranker_.estimator) is type(local_model)
    np.testing.assert_allclose(
        remote.predict(table[FEATURES]), single.predict(table[FEATURES]), atol=1e-6
    )


def test_kernels_use_the_threads_of_a_worker(monkeypatch):
    from pairity._utils.threads import assign_threads, limit_threads, n_threads

    monkeypatch.delenv("PAIRITY_NUM_THREADS", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as Dask's nannies set it
    with assign_threads(3):
        assert n_threads() == 3
        with limit_threads(2):
            assert n_threads() == 2
    assert n_threads() == 1


def test_binned_data_are_made_once(client, spread):
    pytest.importorskip("xgboost")
    client.run(_count_matrices)
    FairRanker(engines("xgboost")[0], **{**OPTIONS, "tolerance": 0.0}, schedule="retrain").fit(
        **columns(spread)
    )
    assert set(client.run(_matrices_counted).values()) == {1}


def _count_matrices():
    import xgboost

    import pairity

    made = xgboost.QuantileDMatrix
    pairity.matrices = 0

    class Counted(made):
        def __init__(self, *arguments, **options):
            pairity.matrices += 1
            super().__init__(*arguments, **options)

    xgboost.QuantileDMatrix = Counted


def _matrices_counted():
    import pairity

    return pairity.matrices


def test_rankers_fit_and_predict_by_themselves(client, spread, table):
    data = {name: columns(spread)[name] for name in ("X", "y", "qid")}
    remote = LinearRanker().fit(**data)
    single = LinearRanker().fit(**{name: columns(table)[name] for name in data})
    np.testing.assert_allclose(remote.coef_, single.coef_, atol=1e-8)
    lazy = remote.predict(spread[FEATURES])
    np.testing.assert_allclose(lazy.compute(), single.predict(table[FEATURES]), atol=1e-7)


@pytest.mark.parametrize("name", ["xgboost", "lightgbm"])
def test_a_worker_killed_in_a_round_changes_nothing(client, spread, name, table):
    many, _ = engines(name)
    leaves = {"min_child_samples": 1} if name == "lightgbm" else {}
    # Small steps, since splits on what is left of the labels after large ones are nearly tied.
    many.set_params(n_estimators=150, learning_rate=0.01, **leaves)
    # The other worker sums in another order. With large weights, rounding may decide between two
    # splits that are almost equally good, so this compares trees under the paper's small weights.
    options = {**OPTIONS, "max_rounds": 1, "tolerance": 0.0, "weighting": "paper"}
    model = FairRanker(many, **options, schedule="retrain")
    with pytest.warns(TargetNotReachedWarning):
        undisturbed = model.fit(**columns(spread))
    expected, rounds = undisturbed.predict(table[FEATURES]), undisturbed.history_
    pids = set(client.run(os.getpid).values())
    killed = []

    def kill():
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            training = {
                address
                for address, keys in client.processing().items()
                if any(str(key).startswith("_train") for key in keys)
            }
            if len(training) == 2:
                time.sleep(0.15)
                victim = client.run(os.getpid, workers=[sorted(training)[0]])
                killed.extend(victim.values())
                os.kill(killed[0], signal.SIGKILL)
                return
            time.sleep(0.005)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.warns(TargetNotReachedWarning):
        again = model.fit(**columns(spread))
    killer.join()
    assert killed
    assert set(client.run(os.getpid).values()) != pids
    np.testing.assert_allclose(again.predict(table[FEATURES]), expected, atol=1e-9)
    for remote_round, expected in zip(again.history_, rounds, strict=True):
        assert remote_round.violation == pytest.approx(expected.violation, abs=1e-12)


def test_a_result_lost_with_its_worker_is_a_lost_worker(monkeypatch):
    """The task has ended, but its worker is killed before the result arrives."""
    from pairity.rankers import _distributed

    class Ended:
        status = "finished"

        def result(self, **_):
            alive.pop("second", None)
            raise TimeoutError

    alive = {"first": {}, "second": {}}
    client = type("Client", (), {"status": "running"})()
    monkeypatch.setattr(_distributed, "workers_of", lambda _: dict(alive))
    with pytest.raises(_distributed._LostWorkerError, match="second gone"):
        _distributed._results(client, [Ended(), Ended()], ["first", "second"])
