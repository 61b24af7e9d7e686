"""The client of a cluster: which one is used, and errors if it is lost."""

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from pairity import FairRanker
from pairity.exceptions import InputError, TrainingError
from support.clusters import IN_PROCESS, OPTIONS, columns, distributed, engines

pytestmark = pytest.mark.filterwarnings("ignore")  # of Dask and of the engines


def test_without_a_client_a_local_cluster_is_used_and_closed(spread, monkeypatch, table):
    made = []

    class Recorded(distributed.LocalCluster):
        def __init__(self, **options):
            made.append(self)
            super().__init__(**options)

    def none_there():
        raise ValueError("No global client found")

    monkeypatch.setattr(distributed, "LocalCluster", Recorded)
    monkeypatch.setattr(distributed, "get_client", none_there)
    remote = FairRanker(**OPTIONS).fit(**columns(spread))
    single = FairRanker(**OPTIONS).fit(**columns(table))
    np.testing.assert_allclose(remote.ranker_.coef_, single.ranker_.coef_, atol=1e-8)
    (cluster,) = made
    assert cluster.status.name == "closed"


def test_a_client_that_is_passed_need_not_be_the_current_one(table):
    pytest.importorskip("xgboost")
    code = """
import sys; sys.path.insert(0, sys.argv[1])
import distributed
from support import clusters
from pairity import FairRanker
data = clusters.columns(clusters.by_query(clusters.make_table(), 4))
with distributed.LocalCluster(**clusters.IN_PROCESS) as cluster:
    with distributed.Client(cluster, set_as_default=False) as client:
        many = clusters.engines("xgboost")[0]
        many.client = client
        model = FairRanker(many, **clusters.OPTIONS).fit(**data)
        print(model.history_[-1].violation)
"""
    command = [sys.executable, "-c", code, str(Path(__file__).parents[2])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    options = {**OPTIONS, "validation": None}
    single = FairRanker(engines("xgboost")[1], **options).fit(**columns(table))
    assert float(done.stdout.split()[-1]) == pytest.approx(single.history_[-1].violation, abs=1e-9)


def test_the_dashboard_is_announced_once(client, spread, capsys):
    from pairity.data.distributed import clients

    clients._announced.discard(client)
    settings = {**OPTIONS, "max_rounds": 0, "progress": "auto"}
    for _ in range(2):
        FairRanker(**settings).fit(**columns(spread))
    assert capsys.readouterr().err.count(f"Dask dashboard: {client.dashboard_link}") == 1


def test_a_closed_client_is_refused(spread):
    with distributed.LocalCluster(**IN_PROCESS) as other:
        connected = distributed.Client(other, set_as_default=False)
        connected.close()
        many = engines("xgboost")[0]
        many.client = connected
        with pytest.raises(InputError, match=r"client is 'closed', not running\. Connect a new"):
            FairRanker(many, **OPTIONS).fit(**columns(spread))


def test_a_scheduler_lost_during_training_is_reported(spread):
    other = distributed.LocalCluster(**IN_PROCESS)
    connected = distributed.Client(other, set_as_default=False)
    many = engines("xgboost")[0].set_params(n_estimators=3000)
    many.client = connected
    threading.Timer(2.0, connected.close).start()
    try:
        with pytest.raises(TrainingError, match=r"connection to the Dask scheduler.*was lost"):
            FairRanker(many, **{**OPTIONS, "tolerance": 0.0}).fit(**columns(spread))
    finally:
        other.close()
