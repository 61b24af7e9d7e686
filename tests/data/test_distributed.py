"""More than one machine: worker processes, the same results as on one, faults, bad input."""

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pairity import FairRanker, InterGroup, LinearRanker, audit, load
from pairity.datasets import make_biased_ranking
from pairity.exceptions import InputError, TargetNotReachedWarning, TrainingError

distributed = pytest.importorskip("distributed")
dd = pytest.importorskip("dask.dataframe")
dask = pytest.importorskip("dask")

pytestmark = pytest.mark.filterwarnings("ignore")  # of Dask and of the engines

MADE = make_biased_ranking(120, 20, n_labels=3, random_state=0)
FEATURES = [f"f{at}" for at in range(MADE.X.shape[1])]
TABLE = pd.DataFrame(np.round(2 * MADE.X), columns=FEATURES).assign(
    y=MADE.y, qid=MADE.qid, group=MADE.sensitive_features
)
OPTIONS = {"constraint": "inter", "tolerance": 0.005, "max_rounds": 4, "progress": False}


def columns(table):
    return {
        "X": table[FEATURES], "y": table["y"], "qid": table["qid"],
        "sensitive_features": table["group"],
    }  # fmt: skip


def in_partitions(parts, **options):
    delayed = [dask.delayed(part) for part in parts]
    return dd.from_delayed(delayed, meta=parts[0].iloc[:0], **options)


def by_query(n_parts, table=TABLE):
    ids = np.array_split(np.unique(table["qid"]), n_parts)
    return in_partitions([table[table["qid"].isin(own)] for own in ids])


@pytest.fixture(scope="module")
def environment():
    """As it was: Dask's nannies leave OMP_NUM_THREADS=1 in the process that starts them."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


class TwoWorkers:
    """A cluster, started anew where it has lost a worker for good."""

    def __init__(self):
        self._start()

    def _start(self):
        self._cluster = distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None,
            silence_logs=50,
        )  # fmt: skip
        self._client = distributed.Client(self._cluster)

    def client(self):
        try:
            self._client.wait_for_workers(2, timeout=20)
        except TimeoutError:  # on a busy machine a nanny can give up
            self.stop()
            self._start()
        return self._client

    def stop(self):
        self._client.close()
        self._cluster.close()


@pytest.fixture(scope="module")
def workers(environment):
    two = TwoWorkers()
    yield two
    two.stop()
    gc.collect()  # sockets that Dask leaves open, before other tests find them


@pytest.fixture
def client(workers):
    return workers.client()


@pytest.fixture(scope="module")
def spread():
    return by_query(4)


def engines(name):
    """The model for workers, and the same for one machine."""
    if name == "linear":
        return LinearRanker(), LinearRanker()
    if name == "xgboost":
        xgb = pytest.importorskip("xgboost")
        pytest.importorskip("xgboost.dask")
        settings = {"n_estimators": 15, "max_depth": 4, "objective": "rank:ndcg"}
        return xgb.dask.DaskXGBRanker(**settings), xgb.XGBRanker(**settings, n_jobs=1)
    lgb = pytest.importorskip("lightgbm")
    settings = {"n_estimators": 15, "num_leaves": 8, "min_child_samples": 0, "verbose": -1}
    return lgb.DaskLGBMRanker(**settings), lgb.LGBMRanker(**settings, n_jobs=1)


# --- the same as on one machine ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "schedule"),
    [("linear", "retrain"), ("xgboost", "retrain"), ("xgboost", "interleaved"),
     ("lightgbm", "retrain"), ("lightgbm", "interleaved")],
)  # fmt: skip
def test_the_model_is_that_of_one_machine(client, spread, name, schedule):
    many, one = engines(name)
    options = {**OPTIONS, "max_rounds": 1, "schedule": schedule}
    there = FairRanker(many, **options).fit(**columns(spread))
    here = FairRanker(one, **options).fit(**columns(TABLE))
    assert there.groups_ == here.groups_
    assert len(there.history_) == len(here.history_)
    for ours, theirs in zip(there.history_, here.history_, strict=True):
        np.testing.assert_allclose(ours.delta, theirs.delta, atol=1e-12)
        assert ours.auc == pytest.approx(theirs.auc, abs=1e-12)
    expected = here.predict(TABLE[FEATURES])
    np.testing.assert_allclose(there.predict(TABLE[FEATURES]), expected, atol=1e-6)
    lazy = there.predict(spread[FEATURES])
    assert isinstance(lazy, dask.array.Array)
    np.testing.assert_allclose(lazy.compute(), expected, atol=1e-6)


def test_what_comes_out_is_the_engines_own_and_is_saved_as_ever(client, spread, tmp_path):
    xgb = pytest.importorskip("xgboost")
    model = FairRanker(engines("xgboost")[0], **OPTIONS).fit(**columns(spread))
    assert isinstance(model.ranker_.model_, xgb.Booster)
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    scores = model.predict(TABLE[FEATURES])
    np.testing.assert_array_equal(loaded.predict(TABLE[FEATURES]), scores)


@pytest.mark.parametrize("name", ["xgboost", "lightgbm"])
def test_models_that_know_nothing_of_dask_train_there_alike(client, spread, name):
    _, one = engines(name)
    settings = {**OPTIONS, "max_rounds": 1, "schedule": "retrain"}
    there = FairRanker(one, **settings).fit(**columns(spread))
    here = FairRanker(one, **settings).fit(**columns(TABLE))
    assert type(there.ranker_.estimator) is type(one)
    np.testing.assert_allclose(
        there.predict(TABLE[FEATURES]), here.predict(TABLE[FEATURES]), atol=1e-6
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


@pytest.mark.parametrize("constraint", ["statistical", "inter", "intra", "marginal"])
@pytest.mark.parametrize("average", ["query", "pair"])
def test_sums_of_parts_add_up(constraint, average):
    from pairity.constraints import CATALOGUE
    from pairity.pairs.cells import mean_auc

    queries = MADE.queries()
    scores = np.random.default_rng(0).normal(size=queries.n_items)
    own = CATALOGUE[constraint](average=average)
    number = np.arange(queries.n_queries) % 3
    parts = [queries.take(number == at) for at in range(3)]
    held = [scores[np.isin(queries.query, np.flatnonzero(number == at))] for at in range(3)]
    totals = sum(own.totals(part, each) for part, each in zip(parts, held, strict=True))
    delta = own.from_totals(totals, queries.groups)
    np.testing.assert_allclose(delta, own.delta(queries, scores), atol=1e-13)
    assert mean_auc(queries, scores) == pytest.approx(
        sum(p.n_queries * mean_auc(p, s) for p, s in zip(parts, held, strict=True)) / 120
    )


def test_an_audit_on_workers_has_the_figures_of_one(client, spread):
    scores = np.random.default_rng(0).normal(size=len(TABLE)) + TABLE["y"]
    both = by_query(4, TABLE.assign(score=scores))
    there = audit(
        both["y"], both["score"], qid=both["qid"], sensitive_features=both["group"], name="x"
    )
    here = audit(TABLE["y"], scores, qid=TABLE["qid"], sensitive_features=TABLE["group"])
    for name in ("groups", "n_queries", "n_items", "n_pairs", "group_sizes", "n_missing"):
        assert getattr(there, name) == getattr(here, name)
    for ours, theirs in zip(there.estimates, here.estimates, strict=True):
        same = ("measure", "group", "other", "constraint", "n_queries", "n_items", "n_pairs")
        assert [getattr(ours, each) for each in same] == [getattr(theirs, each) for each in same]
        assert ours.value == pytest.approx(theirs.value, abs=1e-12, nan_ok=True)
        width = theirs.high - theirs.low
        assert ours.low == pytest.approx(theirs.low, abs=0.15 * width + 1e-9, nan_ok=True)
        assert ours.high == pytest.approx(theirs.high, abs=0.15 * width + 1e-9, nan_ok=True)
    assert "120 queries" in str(there)


@pytest.mark.parametrize(("n_queries", "n_resamples"), [(120, 0), (1, 10)])
def test_an_audit_on_workers_without_resamples(client, n_queries, n_resamples):
    some = TABLE[TABLE["qid"] < TABLE["qid"].min() + n_queries]
    given = [
        audit(
            data["y"], data["f0"], qid=data["qid"], sensitive_features=data["group"],
            n_resamples=n_resamples,
        )
        for data in (by_query(1, some), some)
    ]  # fmt: skip
    there, here = ([(e.value, e.low, e.high) for e in each.estimates] for each in given)
    np.testing.assert_allclose(there, here, atol=1e-12)


def test_arrays_weights_and_validation(client):
    table = TABLE.sort_values("qid", kind="stable")
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
    held = {name: given[name] for name in ("X", "y", "qid", "sensitive_features")}
    there = FairRanker(LinearRanker(), **OPTIONS, validation=held).fit(**given)
    local = {name: np.asarray(each) for name, each in given.items()}
    local_held = {name: local[name] for name in held}
    here = FairRanker(LinearRanker(), **OPTIONS, validation=local_held).fit(**local)
    assert there.violation_ == pytest.approx(here.violation_, abs=1e-12)
    np.testing.assert_allclose(there.ranker_.coef_, here.ranker_.coef_, atol=1e-8)
    lazy = there.predict(given["X"].rechunk(chunks))
    np.testing.assert_allclose(lazy.compute(), here.predict(local["X"]), atol=1e-7)


def test_a_share_held_out_is_that_of_one_machine(client, tmp_path):
    shuffled = TABLE.assign(qid=[f"q{(7 * q) % 120}" for q in TABLE["qid"]])
    ids = shuffled["qid"].unique()
    parts = [shuffled[shuffled["qid"].isin(ids[at::5])] for at in range(5)]
    settings = {**OPTIONS, "validation": 0.3, "random_state": 3}
    there = FairRanker(LinearRanker(), **settings, checkpoint=tmp_path)
    there.fit(**columns(in_partitions(parts)))
    here = FairRanker(LinearRanker(), **settings).fit(**columns(shuffled))
    assert [each.violation for each in there.history_] == pytest.approx(
        [each.violation for each in here.history_], abs=1e-12
    )
    np.testing.assert_allclose(there.ranker_.coef_, here.ranker_.coef_, atol=1e-8)
    other = FairRanker(LinearRanker(), **{**settings, "random_state": 4}, checkpoint=tmp_path)
    with pytest.raises(InputError, match="random_state"):
        other.fit(**columns(in_partitions(parts)))


@pytest.mark.parametrize("along", ["lambda", "tolerance"])
def test_a_path_is_that_of_one_machine(client, spread, along):
    values = {"lambda": [0.0, 0.5, 1.0], "tolerance": [0.1, 0.02]}[along]
    model = FairRanker(**OPTIONS, validation=0.3, random_state=1)
    there = model.fit(**columns(spread)).path(
        **columns(spread), along=along, values=values, test=columns(by_query(3))
    )
    other = FairRanker(**OPTIONS, validation=0.3, random_state=1)
    here = other.fit(**columns(TABLE)).path(
        **columns(TABLE), along=along, values=values, test=columns(TABLE)
    )
    assert "120 test queries" in str(there)
    for mine, theirs in zip(there.points, here.points, strict=True):
        assert (mine.x, mine.violation, mine.auc) == pytest.approx(
            (theirs.x, theirs.violation, theirs.auc), abs=1e-9
        )
    with pytest.raises(InputError, match=r"random_state is None.*Fit with a whole number"):
        FairRanker(**OPTIONS, validation=0.3).path(**columns(spread), values=[0.0])


def test_queries_that_are_split_survive_the_loss_of_a_worker(client, spread):
    from pairity.data.distributed.queries import DaskQueries

    queries = DaskQueries.from_collections(client, raw=False, **columns(spread))
    train, test = queries.split(0.25, 0)
    del queries
    assert (train.n_queries, test.n_queries) == (90, 30)
    assert train.digest() != test.digest()
    before = [InterGroup().delta(part, part.each(_first_feature)) for part in (train, test)]
    os.kill(sorted(client.run(os.getpid).values())[0], signal.SIGKILL)
    client.wait_for_workers(2, timeout=60)
    for part, violation in zip((train, test), before, strict=True):
        assert len(part.addresses()) == len(part.shares)
        part.place()  # from the pieces, as where a round is repeated
        now = InterGroup().delta(part, part.each(_first_feature))
        np.testing.assert_allclose(now, violation, atol=1e-12)


def test_rankers_fit_and_predict_by_themselves(client, spread):
    data = {name: columns(spread)[name] for name in ("X", "y", "qid")}
    there = LinearRanker().fit(**data)
    here = LinearRanker().fit(**{name: columns(TABLE)[name] for name in data})
    np.testing.assert_allclose(there.coef_, here.coef_, atol=1e-8)
    lazy = there.predict(spread[FEATURES])
    np.testing.assert_allclose(lazy.compute(), here.predict(TABLE[FEATURES]), atol=1e-7)


# --- the cluster is the user's -------------------------------------------------------------------


def test_without_a_client_a_cluster_of_its_own_is_used_and_closed(spread, monkeypatch):
    made = []

    class Recorded(distributed.LocalCluster):
        def __init__(self, **options):
            made.append(self)
            super().__init__(**options)

    def none_there():
        raise ValueError("No global client found")

    monkeypatch.setattr(distributed, "LocalCluster", Recorded)
    monkeypatch.setattr(distributed, "get_client", none_there)
    there = FairRanker(**OPTIONS).fit(**columns(spread))
    here = FairRanker(**OPTIONS).fit(**columns(TABLE))
    np.testing.assert_allclose(there.ranker_.coef_, here.ranker_.coef_, atol=1e-8)
    (cluster,) = made
    assert cluster.status.name == "closed"


def test_a_client_that_is_passed_need_not_be_the_current_one():
    pytest.importorskip("xgboost")
    code = """
import sys; sys.path.insert(0, sys.argv[1])
import distributed, test_distributed as td
from pairity import FairRanker
here = dict(n_workers=1, processes=False, dashboard_address=None, silence_logs=50)
with distributed.LocalCluster(**here) as cluster:
    with distributed.Client(cluster, set_as_default=False) as client:
        many = td.engines("xgboost")[0]
        many.client = client
        model = FairRanker(many, **td.OPTIONS).fit(**td.columns(td.by_query(4)))
        print(model.history_[-1].violation)
"""
    command = [sys.executable, "-c", code, str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    here = FairRanker(engines("xgboost")[1], **OPTIONS).fit(**columns(TABLE))
    assert float(done.stdout.split()[-1]) == pytest.approx(here.history_[-1].violation, abs=1e-9)


def test_the_dashboard_is_told_once(client, spread, capsys):
    from pairity.data.distributed import clients

    clients._announced.discard(client)
    settings = {**OPTIONS, "max_rounds": 0, "progress": "auto"}
    for _ in range(2):
        FairRanker(**settings).fit(**columns(spread))
    assert capsys.readouterr().err.count(f"Dask dashboard: {client.dashboard_link}") == 1


# --- faults --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["xgboost", "lightgbm"])
def test_a_worker_killed_in_a_round_changes_nothing(client, spread, name):
    many, _ = engines(name)
    many.set_params(n_estimators=150, **({"min_child_samples": 1} if name == "lightgbm" else {}))
    model = FairRanker(many, **{**OPTIONS, "max_rounds": 1, "tolerance": 0.0}, schedule="retrain")
    with pytest.warns(TargetNotReachedWarning):
        undisturbed = model.fit(**columns(spread))
    expected, rounds = undisturbed.predict(TABLE[FEATURES]), undisturbed.history_
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
    np.testing.assert_allclose(again.predict(TABLE[FEATURES]), expected, atol=1e-9)
    for ours, theirs in zip(again.history_, rounds, strict=True):
        assert ours.violation == pytest.approx(theirs.violation, abs=1e-12)


def test_sums_survive_the_loss_of_a_worker(client, spread):
    from pairity.data.distributed.queries import DaskQueries

    queries = DaskQueries.from_collections(client, raw=False, **columns(spread))
    scores = queries.each(_first_feature)
    before = InterGroup().delta(queries, scores)
    os.kill(sorted(client.run(os.getpid).values())[0], signal.SIGKILL)
    np.testing.assert_allclose(InterGroup().delta(queries, scores), before, atol=1e-12)


def _first_feature(queries):
    return np.array(queries.X[:, 0])


def test_a_fit_is_resumed_on_another_cluster(client, spread, tmp_path):
    pytest.importorskip("xgboost")
    settings = {**OPTIONS, "tolerance": 0.0, "schedule": "retrain"}
    few = FairRanker(engines("xgboost")[0], **{**settings, "max_rounds": 1}, checkpoint=tmp_path)
    with pytest.warns(TargetNotReachedWarning):
        few.fit(**columns(spread))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["round-0", "round-1", "rounds.json"]
    here = {"n_workers": 1, "processes": False, "dashboard_address": None, "silence_logs": 50}
    with distributed.LocalCluster(**here) as other, distributed.Client(other, set_as_default=False):
        another = engines("xgboost")[0]
        with distributed.Client(other, set_as_default=False) as connected:
            another.client = connected
            more = FairRanker(another, **{**settings, "max_rounds": 2}, checkpoint=tmp_path)
            more.fit(**columns(spread))
    whole = FairRanker(engines("xgboost")[0], **{**settings, "max_rounds": 2})
    whole.fit(**columns(spread))
    assert [each.seconds for each in more.history_][:2] == [e.seconds for e in few.history_]
    np.testing.assert_allclose(
        more.predict(TABLE[FEATURES]), whole.predict(TABLE[FEATURES]), atol=1e-6
    )


def test_a_lost_client_is_told(spread):
    here = {"n_workers": 1, "processes": False, "dashboard_address": None, "silence_logs": 50}
    with distributed.LocalCluster(**here) as other:
        connected = distributed.Client(other, set_as_default=False)
        connected.close()
        many = engines("xgboost")[0]
        many.client = connected
        with pytest.raises(InputError, match=r"client is 'closed', not running\. Connect a new"):
            FairRanker(many, **OPTIONS).fit(**columns(spread))


def test_a_scheduler_lost_in_the_middle_is_told(spread):
    here = {"n_workers": 1, "processes": False, "dashboard_address": None, "silence_logs": 50}
    other = distributed.LocalCluster(**here)
    connected = distributed.Client(other, set_as_default=False)
    many = engines("xgboost")[0].set_params(n_estimators=3000)
    many.client = connected
    threading.Timer(2.0, connected.close).start()
    try:
        with pytest.raises(TrainingError, match=r"connection to the Dask scheduler.*was lost"):
            FairRanker(many, **{**OPTIONS, "tolerance": 0.0}).fit(**columns(spread))
    finally:
        other.close()


# --- bad input -----------------------------------------------------------------------------------


def test_a_query_on_two_partitions_is_refused_and_repartitioned(client):
    from pairity.data.distributed import repartition_by_query

    table = TABLE.sample(frac=1.0, random_state=0)
    cut = in_partitions([table.iloc[:900], table.iloc[900:]])
    with pytest.raises(InputError, match=r"120 of 120 queries lie on more than one .*would be lo"):
        FairRanker(**OPTIONS).fit(**columns(cut))
    one = TABLE.sort_values("qid", kind="stable")
    one = in_partitions([one.iloc[:1010], one.iloc[1010:]])
    with pytest.raises(InputError, match=r"1 of 120 queries.*repartition_by_query") as caught:
        FairRanker(**OPTIONS).fit(**columns(one))
    implied, held = _pairs(TABLE), _pairs(one.partitions[0].compute())
    held += _pairs(one.partitions[1].compute())
    assert f"imply {implied:,} preference pairs, the partitions hold {held:,}" in str(caught.value)
    whole = repartition_by_query(cut, "qid", npartitions=3)
    there = FairRanker(**OPTIONS).fit(**columns(whole))
    here = FairRanker(**OPTIONS).fit(**columns(TABLE))
    assert there.history_[0].violation == pytest.approx(here.history_[0].violation, abs=1e-9)


def _pairs(table):
    return sum(
        int((own["y"].to_numpy()[:, None] > own["y"].to_numpy()).sum())
        for _, own in table.groupby("qid")
    )


@pytest.mark.parametrize("name", ["linear", "xgboost", "lightgbm"])
def test_partitions_without_rows_pairs_or_some_group(client, name):
    ids = np.unique(TABLE["qid"])
    flat = TABLE[TABLE["qid"].isin(ids[:30])].assign(y=1.0)
    rest = TABLE[TABLE["qid"].isin(ids[30:90])]
    lonely = TABLE[TABLE["qid"].isin(ids[90:])].assign(group="group 3")
    parts = [flat, TABLE.iloc[:0], rest, lonely, TABLE.iloc[:0]]
    whole = pd.concat(parts)
    many, one = engines(name)
    settings = {**OPTIONS, "constraint": InterGroup(only=[("group 1", "group 2")])}
    settings["schedule"] = "retrain"
    there = FairRanker(many, **settings).fit(**columns(in_partitions(parts)))
    here = FairRanker(one, **settings).fit(**columns(whole))
    assert there.groups_ == here.groups_ == ("group 1", "group 2", "group 3")
    assert there.history_[0].violation == pytest.approx(here.history_[0].violation, abs=1e-9)
    np.testing.assert_allclose(
        there.predict(whole[FEATURES]), here.predict(whole[FEATURES]), atol=1e-6
    )


def test_groups_whose_categories_differ_between_partitions_are_matched_by_name(client):
    ids = np.unique(TABLE["qid"])
    flat = TABLE[TABLE["qid"].isin(ids[:30])].assign(y=1.0, group=None)
    rest = TABLE[TABLE["qid"].isin(ids[30:90])]
    lonely = TABLE[TABLE["qid"].isin(ids[90:])].assign(group="a group of its own")
    parts = [flat, TABLE.iloc[:0], rest, lonely]
    whole = pd.concat([*parts[::2], lonely])
    named = in_partitions(
        [part.assign(group=pd.Categorical(part["group"])) for part in parts], verify_meta=False
    )
    there = audit(
        named["y"], named["f0"], qid=named["qid"], sensitive_features=named["group"], n_resamples=50
    )
    here = audit(
        whole["y"], whole["f0"], qid=whole["qid"], sensitive_features=whole["group"], n_resamples=50
    )
    assert there.groups == here.groups == ("a group of its own", "group 1", "group 2")
    assert (there.group_sizes, there.n_missing) == (here.group_sizes, here.n_missing)
    assert [each.value for each in there.estimates] == pytest.approx(
        [each.value for each in here.estimates], abs=1e-12, nan_ok=True
    )


def test_only_empty_partitions_and_no_pairs_at_all(client):
    empty = in_partitions([TABLE.iloc[:0], TABLE.iloc[:0]])
    with pytest.raises(InputError, match="All partitions are empty"):
        FairRanker(**OPTIONS).fit(**columns(empty))
    with pytest.raises(InputError, match="No query has two different labels"):
        FairRanker(**OPTIONS).fit(**columns(by_query(2, TABLE.assign(y=1.0))))


def test_categories_that_differ_between_partitions_are_refused(client):
    ids = np.unique(TABLE["qid"])
    parts = [TABLE[TABLE["qid"].isin(own)] for own in (ids[:60], ids[60:])]
    parts = [
        part.assign(f0=pd.Categorical(names, categories=sorted(set(names))))
        for part, names in zip(
            parts, (["a", "b"] * 600, ["b", "c"] * 600), strict=True
        )
    ]  # fmt: skip
    pytest.importorskip("lightgbm")
    with pytest.raises(InputError, match=r"categories of the feature 'f0' differ.*categorize"):
        FairRanker(engines("lightgbm")[0], **OPTIONS).fit(
            **columns(in_partitions(parts, verify_meta=False))
        )


def test_boosters_measure_on_validation_queries_by_retraining(client, spread):
    pytest.importorskip("xgboost")
    ids = np.unique(TABLE["qid"])
    held = by_query(2, TABLE[TABLE["qid"].isin(ids[:40])])
    many, one = engines("xgboost")
    options = {**OPTIONS, "max_rounds": 1}
    there = FairRanker(many, **options, validation=columns(held)).fit(**columns(spread))
    local = columns(TABLE[TABLE["qid"].isin(ids[:40])])
    here = FairRanker(one, **options, validation=local, schedule="retrain").fit(**columns(TABLE))
    assert there.history_[0].violation == pytest.approx(here.history_[0].violation, abs=1e-12)
    np.testing.assert_allclose(
        there.predict(TABLE[FEATURES]), here.predict(TABLE[FEATURES]), atol=1e-6
    )
    asked = FairRanker(many, **options, validation=columns(held), schedule="interleaved")
    with pytest.raises(InputError, match="Use schedule='retrain'"):
        asked.fit(**columns(spread))


def test_what_does_not_go_with_dask_is_refused(client, spread):
    from sklearn.linear_model import Ridge

    def own(queries, scores):
        return np.zeros((2, 2))

    with pytest.raises(InputError, match="RegressorRanker does not train on Dask"):
        FairRanker(Ridge(), **OPTIONS).fit(**columns(spread))
    with pytest.raises(InputError, match="own is a function of all queries at once"):
        FairRanker(LinearRanker(), own).fit(**columns(spread))
    with pytest.raises(InputError, match="y is ndarray, but other columns are Dask"):
        FairRanker().fit(**{**columns(spread), "y": TABLE["y"].to_numpy()})
    with pytest.raises(InputError, match="different numbers of partitions"):
        FairRanker().fit(**{**columns(spread), "y": by_query(3)["y"]})
    with pytest.raises(InputError, match=r"share to hold out is 1\.5; it must lie between 0 and 1"):
        FairRanker(validation=1.5).fit(**columns(spread))
    pytest.importorskip("xgboost")
    with pytest.raises(InputError, match="DaskXGBRanker trains on Dask collections"):
        FairRanker(engines("xgboost")[0]).fit(**columns(TABLE))
    with pytest.raises(InputError, match=r"In partition \d: y has"):
        FairRanker().fit(**columns(by_query(2, TABLE.assign(y=np.nan))))


# --- Parquet -------------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path):
    """Files whose row groups cut queries, the queries in no order."""
    parquet = pytest.importorskip("pyarrow.parquet")
    arrow = pytest.importorskip("pyarrow")
    named = TABLE.assign(qid=[f"q{q}" for q in TABLE["qid"]], group=pd.Categorical(TABLE["group"]))
    order = np.random.default_rng(0).permutation(named["qid"].unique())
    table = named.set_index("qid").loc[order].reset_index()
    (tmp_path / "log").mkdir()
    for at, (first, last, size) in enumerate([(0, 707, 13), (707, 1810, 500), (1810, 2400, 600)]):
        rows = arrow.Table.from_pandas(table.iloc[first:last], preserve_index=False)
        parquet.write_table(rows, tmp_path / "log" / f"{at}.parquet", row_group_size=size)
    return tmp_path / "log", table


@pytest.mark.parametrize("wanted", [7, 150])
def test_partitions_of_files_hold_whole_queries(client, log, wanted):
    from pairity.data.distributed.parquet import read_frame

    folder, table = log
    frame = read_frame([folder / f"{at}.parquet" for at in range(3)], "qid", npartitions=wanted)
    parts = client.gather(client.compute(frame.to_delayed()))
    assert frame.npartitions == {7: 7, 150: 120}[wanted]
    assert sum(part["qid"].nunique() for part in parts) == 120
    read = pd.concat(parts, ignore_index=True)
    for name in table:
        assert read[name].tolist() == table[name].tolist()
    some = read_frame(folder, "qid", columns=["f0"], npartitions=wanted)
    assert list(some.columns) == ["qid", "f0"]


def test_workers_read_files_for_the_commands(client, log, tmp_path, capsys, monkeypatch):
    from pairity.cli import main
    from pairity.data.parquet import ParquetColumns

    folder, table = log
    roles = ["--label", "y", "--query", "qid", "--group", "group", "--format", "json", "--quiet"]
    told = {}
    for name, where in {"here": [], "there": ["--scheduler", client.scheduler.address]}.items():
        if where:  # no column comes to the client
            monkeypatch.setattr(ParquetColumns, "__getitem__", None)
        model = ["--output", str(tmp_path / name), "--validation", "0.25"]
        main(["train", str(folder), *roles, *model, *where])
        trained = json.loads(capsys.readouterr().out)
        main(["audit", str(folder), *roles, "--score", "f0", *where])
        audited = json.loads(capsys.readouterr().out)
        told[name] = trained, [*trained["audits"].values(), audited]
    (here, ours), (there, theirs) = told.values()
    assert here["training_violation"] == pytest.approx(there["training_violation"], abs=1e-9)
    for mine, other in zip(ours, theirs, strict=True):
        for one, another in zip(mine["estimates"], other["estimates"], strict=True):
            assert one["value"] == pytest.approx(another["value"], abs=1e-9)
    scores = [load(tmp_path / name).predict(table[FEATURES]) for name in told]
    np.testing.assert_allclose(*scores, atol=1e-7)
    assert "reweighted" in (tmp_path / "there" / "report.html").read_text()


def test_files_that_a_worker_does_not_see_or_sees_otherwise_are_told(client, log, tmp_path):
    from pairity.data.distributed.parquet import read_frame

    folder, table = log
    lost, other = (read_frame(folder / name, "qid") for name in ("0.parquet", "1.parquet"))
    (folder / "0.parquet").unlink()
    with pytest.raises(
        InputError, match=r"worker at tcp.* does not see .*0\.parquet.*all machines"
    ):
        FairRanker(**OPTIONS).fit(**columns(lost))
    table.to_parquet(folder / "1.parquet")
    with pytest.raises(InputError, match=r"1\.parquet is another file than on the client"):
        FairRanker(**OPTIONS).fit(**columns(other))
    with pytest.raises(InputError, match="has no column 'qidd'"):
        read_frame(folder, "qidd")
    pd.concat([table, table]).to_parquet(tmp_path / "again.parquet")
    again = read_frame(tmp_path / "again.parquet", "qid", npartitions=2)
    with pytest.raises(InputError, match=r"120 of 120 queries .* sort files by query before"):
        FairRanker(**OPTIONS).fit(**columns(again))


# --- the command line ----------------------------------------------------------------------------


def test_commands_on_a_scheduler_say_what_they_say_without(client, tmp_path, capsys):
    from pairity.cli import main

    TABLE.assign(score=TABLE["f0"]).to_csv(tmp_path / "table.csv", index=False)
    roles = ["--label", "y", "--query", "qid", "--group", "group", "--format", "json"]
    told = {}
    for name, where in {"here": [], "there": ["--scheduler", client.scheduler.address]}.items():
        model = ["--output", str(tmp_path / name), "--exclude", "score", "--no-report", "--quiet"]
        main(["train", str(tmp_path / "table.csv"), *roles, *model, *where])
        trained = json.loads(capsys.readouterr().out)
        main(["audit", str(tmp_path / "table.csv"), *roles, "--score", "score", "--quiet", *where])
        told[name] = trained["training_violation"], json.loads(capsys.readouterr().out)
    assert told["here"][0] == pytest.approx(told["there"][0], abs=1e-9)
    for here, there in zip(
        told["here"][1]["estimates"], told["there"][1]["estimates"], strict=True
    ):  # fmt: skip
        assert here["value"] == pytest.approx(there["value"], abs=1e-12)
    here, there = (load(tmp_path / name).predict(TABLE[FEATURES]) for name in told)
    np.testing.assert_allclose(here, there, atol=1e-7)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_sweep_runs_on_the_workers(client, tmp_path, capsys, kind, monkeypatch):
    from pairity.cli import main

    path = str(tmp_path / f"table.{kind}")
    TABLE.to_csv(path, index=False) if kind == "csv" else TABLE.to_parquet(path)
    told = {}
    for name, where in {"here": [], "there": ["--scheduler", client.scheduler.address]}.items():
        words = [path, "--label", "y", "--query", "qid", "--group", "group", "--format", "json"]
        words += ["--methods", "plain", "reweighted", "--budget", "2", "--quiet"]
        if where:
            monkeypatch.setattr("pairity.comparisons.runs.Job.run", None)  # of this process
        main(["sweep", *words, "--output", str(tmp_path / name), *where])
        told[name] = json.loads(capsys.readouterr().out)
        for point in told[name]["points"]:
            point.pop("seconds")
        assert len(list((tmp_path / name / "runs").iterdir())) >= 3
    assert told["here"] == told["there"]


def test_workers_of_our_own_leave_stdout_and_the_environment_alone(tmp_path, capfd):
    pytest.importorskip("xgboost")
    from pairity.cli import main

    TABLE.to_csv(tmp_path / "table.csv", index=False)
    before = dict(os.environ)
    words = ["--label", "y", "--query", "qid", "--group", "group", "--format", "json", "--quiet"]
    words += ["--ranker", "xgboost", "--set", "n_estimators=3", "--no-report", "--workers", "2"]
    main(["train", str(tmp_path / "table.csv"), "--output", str(tmp_path / "model"), *words])
    assert set(json.loads(capfd.readouterr().out)["audits"]) == {"plain", "reweighted"}
    assert dict(os.environ) == before


def test_a_cluster_that_is_not_there_is_told(tmp_path, capsys):
    from pairity.cli import main

    TABLE.assign(score=TABLE["f0"]).to_csv(tmp_path / "table.csv", index=False)
    roles = ["--label", "y", "--query", "qid", "--group", "group", "--score", "score"]
    for wrong, fact in {
        ("--workers", "0"): "no number of workers",
        ("--workers", "2", "--scheduler", "tcp://x:1"): "two clusters",
    }.items():
        assert main(["audit", str(tmp_path / "table.csv"), *roles, *wrong]) == 2
        assert fact in capsys.readouterr().err
