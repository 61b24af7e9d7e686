"""How the command behaves: terminals and pipes, Ctrl-C, outputs that cannot be written."""

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stdout

import numpy as np
import pytest

import pairity
from pairity.cli import main
from pairity.exceptions import PairityWarning
from support.command_files import commands_in, write_files

ROLES = ["--label", "hired", "--query", "search_id", "--group", "gender"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("manners")
    write_files(folder)
    options = ["--no-report", "--quiet", "--output", str(folder / "model")]
    assert main(["train", str(folder / "jobs.csv"), *ROLES, *options]) == 0
    return folder


@pytest.fixture(autouse=True)
def inside(place, monkeypatch):
    monkeypatch.chdir(place)


# --- terminals and pipes --------------------------------------------------------------------------


class Terminal(io.StringIO):
    """What somebody is looking at."""

    def isatty(self):
        return True


@pytest.fixture
def on_a_terminal(monkeypatch):
    """What the command prints where its output is a terminal."""

    def shown(*arguments, **environment):
        for name, value in {"TERM": "xterm", "COLUMNS": "100", **environment}.items():
            monkeypatch.setenv(name, value)
        with redirect_stdout(Terminal()) as screen:
            assert main(list(arguments)) == 0
        return screen.getvalue()

    return shown


def test_tables_are_drawn_on_a_terminal_and_plain_in_a_pipe(on_a_terminal, capsys):
    shown = on_a_terminal("weights", "model")
    assert "\x1b[1m" in shown  # bold
    assert "─" in shown
    assert "women" in shown
    main(["weights", "model"])
    plain = capsys.readouterr().out
    assert plain == f"{pairity.load('model').pair_weights_}\n"
    assert "\x1b" not in plain


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"NO_COLOR": "1"}])
def test_terminals_without_colours(on_a_terminal, environment):
    shown = on_a_terminal("weights", "model", **environment)
    assert "\x1b[3" not in shown
    assert "women" in shown


def test_group_names_are_not_markup(on_a_terminal, tmp_path):
    text = tmp_path / "x.csv"
    rows = [f"{q},{y},{g},{s}" for q in range(30) for y, g, s in ((1, "[red]a", 2), (0, "[/b]", 1))]
    text.write_text("\n".join(["q,y,g,s", *rows]))
    roles = ["--label", "y", "--query", "q", "--group", "g", "--score", "s", "--resamples", "0"]
    shown = on_a_terminal("audit", str(text), *roles)
    assert "[red]a" in shown
    assert "[/b]" in shown


@pytest.mark.skipif(os.name == "nt", reason="no such pipes")
def test_a_reader_that_goes_away():
    """As in ``pairity predict … | head -1``: no message, and the status of a closed pipe."""
    command = [sys.executable, "-m", "pairity", "predict", "model", "long.csv"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe) as done:
        done.stdout.close()
        assert done.stderr.read() == b""
        assert done.wait(60) == 141


@pytest.fixture(scope="module", autouse=True)
def long_table(place):
    lines = (place / "jobs.csv").read_text().splitlines()
    (place / "long.csv").write_text("\n".join([lines[0], *lines[1:] * 20]))


# --- Ctrl-C ---------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name == "nt", reason="no such signals")
def test_interrupted(place, tmp_path):
    """One line, status 130, nothing half-written, and what was done is kept."""
    out = tmp_path / "out"
    code = (
        "import os, signal, sys, threading;"
        "from pairity.cli import main; import pairity.comparisons.catalogue, pairity.data.tables;"
        "threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT)).start();"
        "sys.exit(main(sys.argv[1:]))"
    )
    options = ["sweep", "long.csv", *ROLES, "--output", str(out), "--seeds", "99"]
    done = subprocess.run(
        [sys.executable, "-c", code, *options],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    assert done.stderr.startswith("pairity: Interrupted.")
    assert "Traceback" not in done.stderr
    assert not [path for path in out.rglob("*") if "unfinished" in path.name]
    assert not (out / "frontier.json").exists()


def test_an_interrupted_fit_is_not_saved(place, tmp_path, monkeypatch, capsys):
    """FairRanker keeps the best round so far; the command does not pass it off as the result."""
    from pairity.reweighting.fair_ranker import FairRanker
    from pairity.reweighting.outcomes import FitOutcome, Outcome

    fit = FairRanker.fit

    def interrupted(self, *args, **kwargs):
        model = fit(self, *args, **kwargs)
        model.outcome_ = FitOutcome(Outcome.INTERRUPTED)
        return model

    monkeypatch.setattr(FairRanker, "fit", interrupted)
    out = tmp_path / "out"
    assert main(["train", "jobs.csv", *ROLES, "--output", str(out)]) == 130
    assert capsys.readouterr().err == "pairity: Interrupted.\n"
    assert not out.exists()


def test_a_sweep_goes_on_where_it_stopped(place, tmp_path, capsys, monkeypatch):
    from pairity.comparisons import jobs

    options = ["sweep", "jobs.csv", *ROLES, "--output", str(tmp_path / "out"), "--budget", "2"]
    options += ["--methods", "plain", "reweighted", "--format", "json"]
    assert main(options) == 0
    first = capsys.readouterr().out
    monkeypatch.setattr(jobs.Job, "run", None)  # nothing may be run again
    assert main(options) == 0
    assert capsys.readouterr().out == first
    printed = json.loads(first)
    assert len(printed["points"]) == 3
    assert printed["choice"]["epsilon"] == 0.05
    assert main([*options, "--epsilon", "0"]) == 1
    frontier = pairity.Frontier.from_json((tmp_path / "out" / "frontier.json").read_text())
    assert len(frontier.points) == 3


# --- outputs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["predict", "model", "new.csv", "--output", "nowhere/s.csv"], "'nowhere' is not a folder"),
        (["predict", "model", "new.csv", "--output", "model"], "'model' is a folder"),
        (["predict", "model", "nothing.csv"], "nothing.csv does not exist"),
        (["predict", "model", "model"], "model is a folder"),
        (["predict", "nothing", "new.csv"], "'nothing' does not exist"),
        (["predict", "new.csv", "new.csv"], "'new.csv' is a file"),
        (["train", "jobs.csv", *ROLES, "--output", "."], "is not a saved model of pairity"),
        (["train", "jobs.csv", *ROLES, "--output", "jobs.csv"], "is a file"),
        (["train", "jobs.csv", *ROLES, "--output", "a/b"], "is not a folder"),
        (["sweep", "jobs.csv", *ROLES, "--plot", "frontier.jpeg2"], "must end in .png, .svg"),
        (["sweep", "jobs.csv", *ROLES, "--methods", "ours"], "(got 'ours')"),
        (["sweep", "jobs.csv", *ROLES, "--output", "jobs.csv"], "jobs.csv"),
        (["weights", "model", "--pairs", "x.parquet"], "--pairs requires the training table"),
        (["weights", "model", "--pairs", "p.foo", "--table", "jobs.csv", *ROLES], "no format"),
        (["audit", "jobs.csv", *ROLES, "--score", "score", "--run", "run.txt"], "be combined"),
        (["audit", "--run", "run.txt"], "--run requires --qrels"),
        (["audit", "--qrels", "qrels.txt", "jobs.csv"], "--qrels requires --run"),
        (["audit", "jobs.csv", *ROLES, "--score", "score", "--quantile-groups", "age=3"],
         "does not name a --group column"),
        (["audit", "jobs.csv", *ROLES, "--score", "score", "--quantile-groups", "x"],
         "neither a number of groups"),
        (["audit", "jobs.csv", *ROLES, "--score", "score", "--group-file", "groups.txt.gz"],
         "groups.txt.gz does not exist"),
        (["datasets", "describe"], "needs a NAME"),
        (["datasets", "fetch", "mslr_web10k"], "may not be redistributed"),
        (["datasets", "describe", "trec"], "Did you mean trec_w3c"),
    ],
)  # fmt: skip
def test_one_line_and_status_2(arguments, message, capsys, place):
    before = sorted(path.name for path in place.rglob("*"))
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""
    assert sorted(path.name for path in place.rglob("*")) == before


@pytest.mark.parametrize("arguments", [["--seed", "x"], ["--seed", "-1"], ["--format", "xml"]])
def test_bad_usage(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["audit", "jobs.csv", *arguments])
    assert stopped.value.code == 2
    assert "usage: pairity audit" in capsys.readouterr().err


def test_a_misspelt_option(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["audit", "jobs.csv", "--lable", "hired"])
    assert stopped.value.code == 2
    assert "unrecognized arguments: --lable hired. Did you mean --label?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["audit", "jobs.csv"],
        ["audit", "semicolons.csv"],
        ["audit", "jobs.csv", *ROLES[:4], "--group", "age", "--score", "score"],
        ["train", "named.csv", *ROLES, "--output", "m", "--tolerance", "0.5", "--no-report"],
        ["sweep", "named.csv", "--budget", "1", "--methods", "plain", "reweighted"],
        ["weights", "model", "--table", "jobs.csv", "--pairs", "p.tsv"],
    ],
)
def test_what_is_offered_works(arguments, place, tmp_path, capsys, monkeypatch):
    """Whatever a command lacks, the commands that are offered lead to its end."""
    lines = (place / "jobs.csv").read_text().splitlines()
    for name in ("jobs.csv", "model"):
        (tmp_path / name).symlink_to(place / name)
    (tmp_path / "semicolons.csv").write_text("\n".join(lines).replace(",", ";"))
    named = [f"{line},{'full name' if at == 0 else f'Nr {at}'}" for at, line in enumerate(lines)]
    (tmp_path / "named.csv").write_text("\n".join(named))
    monkeypatch.chdir(tmp_path)
    for _ in range(4):
        status = main(arguments)
        printed = capsys.readouterr()
        if status == 0:
            return
        assert status == 2
        (offered,) = commands_in(printed.err)
        assert offered[1 : len(arguments) + 1] == arguments
        arguments = offered[1:]
    pytest.fail("it goes round and round")


def test_a_full_disk(capsys, monkeypatch, tmp_path):
    """What was there stays, and nothing half-written is left beside it."""
    out = tmp_path / "scores.csv"
    out.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pairity.cli.predict._write_csv", full)
    assert main(["predict", "model", "new.csv", "--output", str(out)]) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert out.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["scores.csv"]


def test_not_enough_memory(capsys, monkeypatch):
    def much(*_, **__):
        raise MemoryError

    monkeypatch.setattr("pairity.read_table", much)
    assert main(["predict", "model", "new.csv"]) == 2
    assert "not enough memory" in capsys.readouterr().err


def test_warnings_are_one_line(capsys, monkeypatch, recwarn):
    import warnings

    read = pairity.read_table

    def warn(*args, **kwargs):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("Take care.", PairityWarning, stacklevel=1)
        return read(*args, **kwargs)

    monkeypatch.setattr(pairity, "read_table", warn)
    assert main(["predict", "model", "new.csv", "--output", "s.csv"]) == 0
    assert "pairity: warning: Take care.\n" in capsys.readouterr().err
    assert main(["predict", "model", "new.csv", "--output", "s.csv", "--quiet"]) == 0
    assert capsys.readouterr().err == ""


# --- what the options mean ------------------------------------------------------------------------


def test_letor_from_training_to_scores(place, tmp_path, capsys):
    """The group is feature 3, cut in two; the ranker does not see it. A shorter file still fits."""
    out = str(tmp_path / "model")
    roles = ["--group", "3", "--quantile-groups", "2"]
    options = ["--tolerance", "0.5", "--quiet", "--no-report", "--output", out]
    assert main(["train", "web.svm", *roles, *options]) == 0
    assert list(pairity.load(out).feature_names_in_) == ["1", "2"]
    short = tmp_path / "short.svm"
    short.write_text("0 qid:1 1:0.5\n0 qid:1 1:1.5\n")
    assert main(["predict", out, str(short), "--format", "json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores == pairity.load(out).ranker_.predict(np.array([[0.5, 0], [1.5, 0]])).tolist()


def test_groups_from_a_side_file(place, tmp_path, capsys):
    from pairity.data.tables import read_table

    names = tmp_path / "names"
    names.write_text("\n".join(read_table("jobs.csv")["gender"].tolist()))
    options = ["--score", "score", "--resamples", "0", "--format", "json"]
    assert main(["audit", "jobs.csv", *ROLES, *options]) == 0
    want = json.loads(capsys.readouterr().out)
    assert main(["audit", "jobs.csv", *ROLES[:4], "--group-file", str(names), *options]) == 0
    assert json.loads(capsys.readouterr().out) == want
    names.write_text("men\nwomen\n")
    assert main(["audit", "jobs.csv", *ROLES[:4], "--group-file", str(names), *options]) == 2
    assert "has 2 entries but there are 960 rows" in capsys.readouterr().err


def test_a_trec_run_is_said_to_be_incomplete(capsys):
    options = ["audit", "--run", "run.txt.gz", "--qrels", "qrels.txt", "--group-file", "groups.txt"]
    assert main([*options, "--resamples", "0"]) == 0
    printed = capsys.readouterr()
    assert "documents have no judgement (irrelevant)" in printed.err
    assert "Audit of run.txt.gz: 60 queries, 932 items" in printed.out  # 960 less 28 in neither
    assert (
        main([*options, "--unjudged", "leave-out", "--not-retrieved", "leave-out", "--quiet"]) == 0
    )


def test_pairs_are_those_of_training(place, tmp_path, capsys):
    """Row numbers are the table's: winners are hired, losers are not, in the same search."""
    from pairity.data.tables import read_table

    path = tmp_path / "train.pairs"
    options = ["weights", "model", "--pairs", str(path), "--table", "jobs.csv"]
    assert main([*options, *ROLES, "--quiet"]) == 0
    table = read_table("jobs.csv")
    winner, loser, _ = np.loadtxt(path, unpack=True)
    winner, loser = winner.astype(int), loser.astype(int)
    assert (table["hired"][winner] > table["hired"][loser]).all()
    assert (table["search_id"][winner] == table["search_id"][loser]).all()
    assert len(np.unique(table["search_id"][winner])) <= 48  # a fifth of 60 was held out
    path.unlink()
    for wrong in (["--seed", "1"], ["--test", "0.3"]):
        assert main([*options, *ROLES, *wrong]) == 2
        assert "was not trained on jobs.csv with these roles" in capsys.readouterr().err
    assert not path.exists()


def test_starting_is_quick():
    """Help needs no NumPy."""
    code = (
        "import sys; from pairity.cli import make_parser; make_parser();"
        "print({'numpy', 'sklearn', 'rich'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
