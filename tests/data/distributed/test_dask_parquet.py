"""Parquet files that workers read: partitions cut no query, files must be the same everywhere."""

import json

import numpy as np
import pandas as pd
import pytest

from pairity import FairRanker, audit, load, read_parquet
from pairity.data.distributed.queries import DaskQueries
from pairity.exceptions import InputError
from support.clusters import FEATURES, OPTIONS, columns

pytestmark = pytest.mark.filterwarnings("ignore")  # of Dask and of the engines


@pytest.fixture
def log(tmp_path, table):
    """Files whose row groups cut queries, the queries in no order."""
    parquet = pytest.importorskip("pyarrow.parquet")
    arrow = pytest.importorskip("pyarrow")
    named = table.assign(qid=[f"q{q}" for q in table["qid"]], group=pd.Categorical(table["group"]))
    order = np.random.default_rng(0).permutation(named["qid"].unique())
    table = named.set_index("qid").loc[order].reset_index()
    (tmp_path / "log").mkdir()
    for number, (first, last, size) in enumerate(
        [(0, 707, 13), (707, 1810, 500), (1810, 2400, 600)]
    ):
        rows = arrow.Table.from_pandas(table.iloc[first:last], preserve_index=False)
        parquet.write_table(rows, tmp_path / "log" / f"{number}.parquet", row_group_size=size)
    return tmp_path / "log", table


@pytest.mark.parametrize("wanted", [7, 150])
def test_partitions_of_files_hold_whole_queries(client, log, wanted):
    from pairity.data.distributed.parquet import read_frame

    folder, table = log
    frame = read_frame(
        [folder / f"{number}.parquet" for number in range(3)], "qid", npartitions=wanted
    )
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
    printed = {}
    for name, where in {"single": [], "remote": ["--scheduler", client.scheduler.address]}.items():
        if where:  # no column comes to the client
            monkeypatch.setattr(ParquetColumns, "__getitem__", None)
        model = ["--output", str(tmp_path / name), "--validation", "0.25"]
        main(["train", str(folder), *roles, *model, *where])
        trained = json.loads(capsys.readouterr().out)
        main(["audit", str(folder), *roles, "--score", "f0", *where])
        audited = json.loads(capsys.readouterr().out)
        printed[name] = trained, [*trained["audits"].values(), audited]
    (single, audits), (remote, remote_audits) = printed.values()
    assert single["training_violation"] == pytest.approx(remote["training_violation"], abs=1e-9)
    for audit_, remote_audit in zip(audits, remote_audits, strict=True):
        for estimate, expected in zip(audit_["estimates"], remote_audit["estimates"], strict=True):
            rel = 0.15 if estimate["measure"] == "noise_floor" else 1e-9  # other resamples
            assert estimate["value"] == pytest.approx(expected["value"], abs=1e-9, rel=rel)
    scores = [load(tmp_path / name).predict(table[FEATURES]) for name in printed]
    np.testing.assert_allclose(*scores, atol=1e-7)
    assert "reweighted" in (tmp_path / "remote" / "report.html").read_text()


def test_files_that_a_worker_does_not_see_or_that_differ_are_refused(client, log, tmp_path):
    from pairity.data.distributed.parquet import read_frame

    folder, table = log
    lost, changed = (read_frame(folder / name, "qid") for name in ("0.parquet", "1.parquet"))
    (folder / "0.parquet").unlink()
    with pytest.raises(
        InputError, match=r"worker at tcp.* does not see .*0\.parquet.*all machines"
    ):
        FairRanker(**OPTIONS).fit(**columns(lost))
    table.to_parquet(folder / "1.parquet")
    with pytest.raises(InputError, match=r"1\.parquet differs from the file that the client saw"):
        FairRanker(**OPTIONS).fit(**columns(changed))
    with pytest.raises(InputError, match="has no column 'qidd'"):
        read_frame(folder, "qidd")
    pd.concat([table, table]).to_parquet(tmp_path / "again.parquet")
    again = read_frame(tmp_path / "again.parquet", "qid", npartitions=2)
    with pytest.raises(InputError, match=r"120 of 120 queries .* sort files by query before"):
        FairRanker(**OPTIONS).fit(**columns(again))


def test_workers_read_queries_with_the_methods_of_one_machine(client, log):
    folder, _ = log
    names = {"y": "y", "qid": "qid", "sensitive_features": "group"}
    read = read_parquet(folder, **names, client=client)
    local = read_parquet(folder, **names).in_memory()
    for name in ("n_items", "n_queries", "n_pairs", "n_features", "n_missing", "groups"):
        assert getattr(read, name) == getattr(local, name)
    assert read.feature_names == local.feature_names
    models = [FairRanker(max_rounds=0).fit(queries) for queries in (read, local)]
    assert models[0].violation_ == pytest.approx(models[1].violation_, abs=1e-12)
    np.testing.assert_allclose(  # the solver starts on every n-th query, in another order
        models[0].ranker_.coef_, models[1].ranker_.coef_, atol=1e-5
    )
    (train, test), (_, local_test) = read.split(0.25, 0), local.split(0.25, 0)
    assert len({read.digest(), train.digest(), test.digest()}) == 3
    audits = [
        audit(queries, models[0].predict(queries.X), n_resamples=0)
        for queries in (test, local_test)
    ]
    assert audits[0].auc == pytest.approx(audits[1].auc, abs=1e-9)
    with pytest.raises(InputError, match=r"the queries are on 2 workers\. Pass model\.predict"):
        audit(test, np.zeros(test.n_items))
    with pytest.raises(InputError, match=r"training data are DaskQueries, .* would be Queries\."):
        FairRanker(validation=local, **OPTIONS).fit(read)
    with pytest.raises(InputError, match="group is not supported with Dask"):
        DaskQueries.from_collections(client, raw=False, group=[20] * 120)
