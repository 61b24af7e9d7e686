"""Commands on a cluster print what they print without."""

import json
import os

import numpy as np
import pytest

from pairity import load
from support.clusters import FEATURES

pytestmark = pytest.mark.filterwarnings("ignore")  # of Dask and of the engines


def test_commands_on_a_scheduler_print_the_same(client, tmp_path, capsys, table):
    from pairity.cli import main

    table.assign(score=table["f0"]).to_csv(tmp_path / "table.csv", index=False)
    roles = ["--label", "y", "--query", "qid", "--group", "group", "--format", "json"]
    printed = {}
    for name, where in {"single": [], "remote": ["--scheduler", client.scheduler.address]}.items():
        model = ["--output", str(tmp_path / name), "--exclude", "score", "--no-report", "--quiet"]
        main(["train", str(tmp_path / "table.csv"), *roles, *model, *where])
        trained = json.loads(capsys.readouterr().out)
        main(["audit", str(tmp_path / "table.csv"), *roles, "--score", "score", "--quiet", *where])
        printed[name] = trained["training_violation"], json.loads(capsys.readouterr().out)
    assert printed["single"][0] == pytest.approx(printed["remote"][0], abs=1e-9)
    for single, remote in zip(
        printed["single"][1]["estimates"], printed["remote"][1]["estimates"], strict=True
    ):  # fmt: skip
        rel = 0.15 if single["measure"] == "noise_floor" else 1e-12  # other resamples
        assert single["value"] == pytest.approx(remote["value"], abs=1e-12, rel=rel)
    single, remote = (load(tmp_path / name).predict(table[FEATURES]) for name in printed)
    np.testing.assert_allclose(single, remote, atol=1e-7)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_sweep_runs_on_the_workers(client, tmp_path, capsys, kind, monkeypatch, table):
    from pairity.cli import main

    path = str(tmp_path / f"table.{kind}")
    table.to_csv(path, index=False) if kind == "csv" else table.to_parquet(path)
    printed = {}
    for name, where in {"single": [], "remote": ["--scheduler", client.scheduler.address]}.items():
        words = [path, "--label", "y", "--query", "qid", "--group", "group", "--format", "json"]
        words += ["--methods", "plain", "reweighted", "--budget", "2", "--quiet"]
        if where:
            monkeypatch.setattr("pairity.comparisons.jobs.Job.run", None)  # of this process
        main(["sweep", *words, "--output", str(tmp_path / name), *where])
        printed[name] = json.loads(capsys.readouterr().out)
        for point in printed[name]["points"]:
            point.pop("seconds")
        assert len(list((tmp_path / name / "runs").iterdir())) >= 3
    assert printed["single"] == printed["remote"]


def test_local_workers_leave_stdout_and_the_environment_alone(tmp_path, capfd, table):
    pytest.importorskip("xgboost")
    from pairity.cli import main

    table.to_csv(tmp_path / "table.csv", index=False)
    before = dict(os.environ)
    words = ["--label", "y", "--query", "qid", "--group", "group", "--format", "json", "--quiet"]
    words += ["--ranker", "xgboost", "--set", "n_estimators=3", "--no-report", "--workers", "2"]
    main(["train", str(tmp_path / "table.csv"), "--output", str(tmp_path / "model"), *words])
    assert set(json.loads(capfd.readouterr().out)["audits"]) == {"plain", "reweighted"}
    assert dict(os.environ) == before


def test_a_cluster_that_cannot_be_used_is_refused(tmp_path, capsys, table):
    from pairity.cli import main

    table.assign(score=table["f0"]).to_csv(tmp_path / "table.csv", index=False)
    roles = ["--label", "y", "--query", "qid", "--group", "group", "--score", "score"]
    for wrong, fact in {
        ("--workers", "0"): "--workers must be 1 or greater (got 0)",
        ("--workers", "2", "--scheduler", "tcp://x:1"): "two clusters",
    }.items():
        assert main(["audit", str(tmp_path / "table.csv"), *roles, *wrong]) == 2
        assert fact in capsys.readouterr().err
