"""Dask clusters and collections for tests; the fixtures that use them are in tests/conftest.py."""

import numpy as np
import pandas as pd
import pytest

from pairity import LinearRanker
from pairity.datasets import make_biased_ranking

distributed = pytest.importorskip("distributed")  # skips the test modules that import this one
dask = pytest.importorskip("dask")
frames = pytest.importorskip("dask.dataframe")
pytest.importorskip("dask.array")

FEATURES = [f"f{number}" for number in range(5)]
OPTIONS = {"constraint": "inter", "tolerance": 0.005, "max_rounds": 4, "progress": False}
IN_PROCESS = {"n_workers": 1, "processes": False, "dashboard_address": None, "silence_logs": 50}


def make_table():
    """120 queries of 20 items; features are few whole numbers, so that bins are exact."""
    data = make_biased_ranking(120, 20, n_labels=3, random_state=0)
    return pd.DataFrame(np.round(2 * data.X), columns=FEATURES).assign(
        y=data.y, qid=data.qid, group=data.sensitive_features
    )


def columns(table):
    """The arguments of `fit`, from a pandas or Dask table."""
    return {
        "X": table[FEATURES], "y": table["y"], "qid": table["qid"],
        "sensitive_features": table["group"],
    }  # fmt: skip


def in_partitions(parts, **options):
    """A Dask DataFrame with these pandas tables as partitions."""
    delayed = [dask.delayed(part) for part in parts]
    return frames.from_delayed(delayed, meta=parts[0].iloc[:0], **options)


def by_query(table, n_parts):
    """A Dask DataFrame whose partitions cut no query."""
    ids = np.array_split(np.unique(table["qid"]), n_parts)
    return in_partitions([table[table["qid"].isin(part)] for part in ids])


def engines(name):
    """The model for workers, and the same model for one machine."""
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


def first_feature(queries):
    """Scores that workers can compute."""
    return np.array(queries.X[:, 0])


class TwoWorkers:
    """A cluster of two worker processes, started again if it has lost a worker for good."""

    def __init__(self):
        self._start()

    def _start(self):
        self._cluster = distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None,
            silence_logs=50,
        )  # fmt: skip
        self._client = distributed.Client(self._cluster)

    def client(self):
        """The client, when both workers are there."""
        try:
            self._client.wait_for_workers(2, timeout=20)
        except TimeoutError:  # on a busy machine a nanny can give up
            self.stop()
            self._start()
        return self._client

    def stop(self):
        """Close the cluster."""
        self._client.close()
        self._cluster.close()
