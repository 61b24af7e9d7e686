"""Every command that --help shows is run, on small files made for the purpose."""

import argparse
import hashlib
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest

from pairity.baselines import lagrangian
from pairity.cli import main, make_parser, options
from pairity.comparisons import catalogue as methods
from pairity.datasets import catalogue
from pairity.datasets import download as files
from pairity.paper import reproduction
from support.command_files import commands_in, write_files

CONTENT = b"1,2,3\n"


def subparsers():
    parser = make_parser()
    actions = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    return actions[0].choices


COMMANDS = subparsers()
EXAMPLES = [words for parser in COMMANDS.values() for words in commands_in(parser.epilog)]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples")
    write_files(folder)
    roles = ["--label", "hired", "--query", "search_id", "--group", "gender", "--quiet"]
    for name in ("model", "other-model"):
        options = [*roles, "--output", str(folder / name)]
        assert main(["train", str(folder / "jobs.csv"), *options]) in (0, 1)
    return folder


@pytest.fixture
def no_network(tmp_path, monkeypatch):
    """The data set's file is published on this machine; the paper is not run."""
    path = tmp_path / "owner" / "repo" / "1" / "a.csv"
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT)
    made = files.DataFile(
        "set", "a.csv", hashlib.sha256(CONTENT).hexdigest(), "owner/repo", "1", "a.csv", "none"
    )
    entry = replace(catalogue.CATALOGUE["trec_w3c"], files=(made,))
    monkeypatch.setitem(catalogue.CATALOGUE, "trec_w3c", entry)
    monkeypatch.setattr(files, "BASE_URL", tmp_path.as_uri())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def stand_in(output, **options):
        assert options["command"].startswith("pairity reproduce")
        (tmp_path.__class__(output)).mkdir(exist_ok=True)
        return SimpleNamespace(claims=[])

    monkeypatch.setattr(reproduction, "reproduce", stand_in)


@pytest.fixture
def few_steps(monkeypatch):
    """The Lagrangian's thousands of steps are its own tests' concern; trees grow on one thread."""
    one_thread = options.ENGINES["lightgbm"]._replace(quiet={"verbose": -1, "n_jobs": 1})
    monkeypatch.setitem(options.ENGINES, "lightgbm", one_thread)
    monkeypatch.setattr(methods, "lagrangian", partial(lagrangian, n_steps=30))


def test_every_subcommand_has_examples():
    assert set(COMMANDS) >= {
        "demo", "audit", "train", "predict", "sweep", "weights", "datasets", "reproduce"
    }  # fmt: skip
    for name, parser in COMMANDS.items():
        assert any(words[1] == name for words in commands_in(parser.epilog)), name


@pytest.mark.parametrize("words", EXAMPLES, ids=" ".join)
def test_example(words, place, no_network, few_steps, monkeypatch, capsys):
    monkeypatch.chdir(place)
    for needed in ("lightgbm", "pyarrow" if any(".parquet" in w for w in words) else "numpy"):
        if needed in words or needed == "pyarrow":
            pytest.importorskip(needed, reason=f"{needed} is not installed")
    if "--plot" in words:
        pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    to = words[words.index(">") + 1] if ">" in words else None
    said = words[1 : words.index(">")] if to else words[1:]
    before = {path.name for path in place.iterdir()}
    if to is None:
        status = main(said)
    else:
        with open(to, "w") as file, redirect_stdout(file):
            status = main(said)
        assert (place / to).stat().st_size > 0
    targets = {"--fail-above", "--epsilon", "--tolerance"} & set(words) or words[1] == "train"
    assert status in ((0, 1) if targets else (0,)), capsys.readouterr().err
    assert not [name for name in {p.name for p in place.iterdir()} - before if "unfinished" in name]


def test_the_first_page_of_help(capsys, place, monkeypatch):
    monkeypatch.chdir(place)
    shown = list(commands_in(make_parser().epilog))
    assert ["pairity", "audit", "ranked.csv"] in shown
    assert main(["audit", "ranked.csv"]) == 2
    options = capsys.readouterr().err
    (offered,) = commands_in(options)
    assert offered == [
        "pairity", "audit", "ranked.csv", "--label", "hired", "--query", "search_id", "--group",
        "gender", "--score", "score",
    ]  # fmt: skip
    assert main(offered[1:]) == 0
