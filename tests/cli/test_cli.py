"""The command: a table in, a model and figures out; one clear error for whatever is wrong."""

import csv
import json
import re

import numpy as np
import pandas as pd
import pytest

import pairity
from pairity import FairRanker
from pairity.cli import main
from pairity.cli.options import CONSTRAINTS
from pairity.constraints import CATALOGUE
from pairity.data.tables import read_table
from pairity.datasets import make_biased_ranking

ROLES = ["--label", "hired", "--query", "search", "--group", "gender"]


@pytest.fixture(scope="module")
def made():
    return make_biased_ranking(60, 20, strength=2, separation=2, random_state=0)


@pytest.fixture(scope="module")
def jobs(made, tmp_path_factory):
    """The table as a user has it, with a column of words that is no feature."""
    path = tmp_path_factory.mktemp("tables") / "jobs.csv"
    names = [f"x{k}" for k in range(5)]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["search", "name", *names, "gender", "hired"])
        for row in range(len(made.y)):
            person = f"person, number {row}"
            group = made.sensitive_features[row]
            writer.writerow(
                [f"q{made.qid[row]}", person, *map(repr, made.X[row].tolist()), group, made.y[row]]
            )
    return path


@pytest.fixture(scope="module")
def trained(jobs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "model"
    options = ["--exclude", "name", "--constraint", "statistical", "--tolerance", "0.02", "--quiet"]
    assert main(["train", str(jobs), *ROLES, *options, "--output", str(folder)]) == 0
    return folder


def test_training_is_that_of_the_library(trained, made, jobs):
    queries = made.queries()
    train, _ = read_and_split(jobs)
    model = FairRanker(constraint="statistical", tolerance=0.02, random_state=0, progress=False)
    model.fit(**train)
    loaded = pairity.load(trained)
    assert np.array_equal(
        loaded.ranker_.predict(queries.X), np.asarray(model.ranker_.predict(queries.X))
    )
    assert list(loaded.feature_names_in_) == [f"x{k}" for k in range(5)]


def read_and_split(jobs):
    table = read_table(jobs)
    X, _ = table.features(None, ["name"], ["hired", "search", "gender"])
    queries = pairity.Queries.from_arrays(
        X, table["hired"], qid=table["search"], sensitive_features=table["gender"]
    )
    return queries.split(0.2, 0)


def test_training_says_what_came_of_it(jobs, tmp_path, capsys):
    out = tmp_path / "model"
    options = [*ROLES, "--exclude", "name", "--output", str(out)]
    assert main(["train", str(jobs), *options]) == 0
    printed = capsys.readouterr().out
    for words in ("plain", "reweighted", "Pair weights", f"Saved in {out}."):
        assert words in printed
    assert main(["train", str(jobs), *options, "--format", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["reached"]
    assert printed["training_violation"] <= 0.01
    assert set(printed["audits"]) == {"plain", "reweighted"}


def test_a_tolerance_out_of_reach_is_status_1(jobs, tmp_path, capsys):
    options = [*ROLES, "--exclude", "name", "--output", str(tmp_path / "model"), "--quiet"]
    assert main(["train", str(jobs), *options, "--tolerance", "0", "--constraint", "intra"]) == 1
    assert (tmp_path / "model").is_dir()


def test_engines_and_their_settings(jobs, tmp_path):
    pytest.importorskip("lightgbm", reason="lightgbm is not installed")
    options = [*ROLES, "--exclude", "name", "--ranker", "lightgbm", "--set", "n_estimators=7"]
    options += ["--set", "verbose=-1", "--tolerance", "0.3", "--output", str(tmp_path / "m")]
    assert main(["train", str(jobs), *options, "--quiet"]) == 0
    assert pairity.load(tmp_path / "m").ranker_.model_.num_trees() == 7


@pytest.mark.filterwarnings("default:LGBMRanker has no setting")
def test_gaps_are_for_engines_that_take_them(jobs, tmp_path, capsys):
    gappy = tmp_path / "gappy.csv"
    header, *rows = csv.reader(jobs.read_text().splitlines())
    at = header.index("x3")
    for row in rows[4::10]:
        row[at] = ""
    with gappy.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    options = [*ROLES, "--exclude", "name", "--tolerance", "0.3", "--output", str(tmp_path / "m")]
    assert main(["train", str(gappy), *options]) == 2
    assert "first in row 4, column 'x3'" in capsys.readouterr().err
    pytest.importorskip("lightgbm", reason="lightgbm is not installed")
    options += ["--ranker", "lightgbm", "--set", "n_estimators=7", "--set", "num_leafs=3"]
    assert main(["train", str(gappy), *options]) == 0
    printed = capsys.readouterr().err
    assert printed.count("LGBMRanker has no setting num_leafs") == 1
    assert "Did you mean num_leaves?" in printed
    assert "n_estimators" not in printed
    assert main(["predict", str(tmp_path / "m"), str(gappy)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(rows) + 1
    pairs = [str(tmp_path / "train.pairs"), "--table", str(gappy), *ROLES]
    assert main(["weights", str(tmp_path / "m"), "--pairs", *pairs, "--quiet"]) == 0


def test_a_model_wants_numbers_of_new_rows_too(trained, jobs, tmp_path, capsys):
    words = tmp_path / "words.csv"
    words.write_text(jobs.read_text().replace("x0", "x9", 1).replace("name", "x0", 1))
    assert main(["predict", str(trained), str(words)]) == 2
    printed = capsys.readouterr().err
    assert "'x0'" in printed
    assert "holds words" in printed
    assert "--exclude" not in printed  # which `predict` does not have


def test_without_a_command_there_is_help(capsys):
    assert main([]) == 2
    assert "pairity demo" in capsys.readouterr().err


def test_predictions_are_in_the_order_of_the_rows(trained, jobs, made, tmp_path, capsys):
    scores = pairity.load(trained).ranker_.predict(made.X)
    assert main(["predict", str(trained), str(jobs)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "score"
    assert np.array_equal([float(line) for line in lines[1:]], scores)
    out = tmp_path / "scores.csv"
    assert main(["predict", str(trained), str(jobs), "--output", str(out)]) == 0
    assert out.read_text().splitlines() == lines
    assert main(["predict", str(trained), str(jobs), "--format", "json"]) == 0
    assert np.array_equal(json.loads(capsys.readouterr().out), scores)


def test_columns_of_another_order_are_found_by_name(trained, jobs, tmp_path, capsys):
    table = read_table(jobs)
    other = tmp_path / "other.tsv"
    names = ["x4", "hired", "x0", "x3", "x2", "x1"]
    rows = zip(*(table[name].tolist() for name in names), strict=True)
    other.write_text("\n".join("\t".join(map(repr, row)) for row in [*rows]))
    other.write_text("\t".join(names) + "\n" + other.read_text())
    main(["predict", str(trained), str(jobs)])
    want = capsys.readouterr().out
    assert main(["predict", str(trained), str(other)]) == 0
    assert capsys.readouterr().out == want
    other.write_text("x0\tx1\n1\t2\n")
    assert main(["predict", str(trained), str(other)]) == 2
    assert "lacks 3 of the 5 columns" in capsys.readouterr().err
    other.write_text("x4\tx0\tx3\tx2\tx1\n1\t1\tnan\t1\t1\n")
    assert main(["predict", str(trained), str(other)]) == 2
    assert "'x3'" in capsys.readouterr().err


def test_weights(trained, capsys):
    assert main(["weights", str(trained)]) == 0
    assert "group 1" in capsys.readouterr().out
    assert main(["weights", str(trained), "--format", "json"]) == 0
    assert isinstance(json.loads(capsys.readouterr().out), dict)


def test_auditing(jobs, capsys):
    options = ["audit", str(jobs), *ROLES, "--score", "x0", "--resamples", "50"]
    assert main(options) == 0
    assert "violation" in capsys.readouterr().out
    assert main([*options, "--format", "json"]) == 0
    json.loads(capsys.readouterr().out)
    assert main([*options, "--constraint", "inter", "--fail-above", "1", "--quiet"]) == 0
    assert main([*options, "--constraint", "inter", "--fail-above", "0", "--quiet"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.search(r"inter violation, 0\.\d+ \(noise floor 0\.\d+\), is above 0", printed.err)
    for limit in ("nan", "-0.1"):
        assert main([*options, "--fail-above", limit]) == 2
        assert f"--fail-above must be 0 or greater (got {limit})" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--query", "search"], r"--label \(.*\), --group .*, --score .* are missing"),
        (["--label", "hired"], r"pairity audit \S+ --label hired --query search --group gender "),
        ([*ROLES], r"--score \(.*\) is missing.*The columns of .*: search, name, x0"),
        ([*ROLES], r"a column's name for each COLUMN \(score\):\n  pairity audit .*--score COLUMN"),
        (["--label", "hird", "--query", "search"], "no column 'hird'.*Did you mean 'hired'?"),
        ([*ROLES, "--score", "name"], "scores"),
    ],
)
def test_roles_are_asked_for(jobs, capsys, arguments, message):
    assert main(["audit", str(jobs), *arguments]) == 2
    import re

    assert re.search(message, capsys.readouterr().err, re.DOTALL)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "'name' in .* holds words.*--exclude name"),
        (["--exclude", "name", "--set", "alpha"], "must have the form NAME=VALUE"),
        (
            ["--exclude", "name", "--set", "nonsense=1"],
            "LinearRanker does not accept these settings",
        ),
        (["--exclude", "nam"], r"no column 'nam' \(--exclude\)"),
        (["--exclude", "name", "--constraint", "intr"], "There is no constraint named 'intr'"),
    ],
)
def test_what_cannot_be_trained(jobs, tmp_path, capsys, arguments, message):
    import re

    out = tmp_path / "model"
    assert main(["train", str(jobs), *ROLES, *arguments, "--output", str(out)]) == 2
    assert re.search(message, capsys.readouterr().err, re.DOTALL)
    assert not out.exists()


def test_help(capsys):
    for command in ("audit", "train", "predict", "weights", "reproduce"):
        with pytest.raises(SystemExit) as stopped:
            main([command, "--help"])
        assert stopped.value.code == 0
        assert "examples:" in capsys.readouterr().out


def test_help_names_every_constraint():
    *first, last = CATALOGUE
    assert f"{', '.join(first)} or {last}" == CONSTRAINTS


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("weight", ["equal", "times"])
@pytest.mark.parametrize("called", ["times", "equal"])
def test_weights_of_queries(made, tmp_path, capsys, weight, called, kind):
    """The word `equal`, or a column; a column called equal is used as a column."""
    names = [f"x{k}" for k in range(5)]
    kept = made.qid % 17 + 3 > np.tile(np.arange(20), 60)
    table = pd.DataFrame(made.X, columns=names).assign(
        hired=made.y, search=made.qid, gender=made.sensitive_features
    )
    table[called] = 1.0 + made.qid % 3
    table = table[kept].reset_index(drop=True)
    path = str(tmp_path / f"table.{kind}")
    table.to_csv(path, index=False) if kind == "csv" else table.to_parquet(path)
    words = [*ROLES, "--quiet", "--no-report", "--tolerance", "0.03", "--query-weight", weight]
    status = main(["train", path, *words, "--output", str(tmp_path / "model")])
    if weight == "times" and called == "equal":
        assert status == 2
        assert "no column 'times' (--query-weight)" in capsys.readouterr().err
        return
    assert status == 0
    loaded = pairity.load(tmp_path / "model")
    by_column = weight == called
    assert list(loaded.feature_names_in_) == (names if by_column else [*names, called])
    queries = pairity.Queries.from_arrays(
        table[list(loaded.feature_names_in_)].to_numpy(), table["hired"], qid=table["search"],
        sensitive_features=table["gender"], query_weight=table[called] if by_column else "equal",
    )  # fmt: skip
    train, _ = queries.split(0.2, 0)
    model = FairRanker(tolerance=0.03, progress=False).fit(train)
    assert loaded.ranker_.coef_ == pytest.approx(model.ranker_.coef_, rel=1e-9)
    words = ["--table", path, *ROLES, "--query-weight", weight, "--quiet"]
    assert main(["weights", str(tmp_path / "model"), "--pairs", f"{tmp_path}/a.tsv", *words]) == 0
    model.export_pairs(tmp_path / "b.tsv")
    weights = [np.loadtxt(tmp_path / name)[:, 2] for name in ("a.tsv", "b.tsv")]
    assert weights[0] == pytest.approx(weights[1], rel=1e-9)
