"""The README says what happens: its example runs and prints what it shows; its commands exist."""

import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from pairity.baselines import lagrangian
from pairity.cli import main
from pairity.comparisons import catalogue
from support.command_files import commands_in, write_files

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def block(kind, number=0):
    return re.findall(rf"^```{kind}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)[number]


def test_the_example_prints_what_the_readme_shows():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block("python")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == block("text")
    assert done.stderr == ""


def test_the_saved_model_of_the_readme(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block("python") + block("python", 1)],
        capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.stdout.endswith("True The violation came within the tolerance.\n")
    assert (tmp_path / "model" / "manifest.json").exists()


def test_the_commands_of_the_readme_are_targets():
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make (\w+)", README, flags=re.MULTILINE)) <= targets
    assert "make test" in (ROOT / ".ci" / "run").read_text()


def test_the_tables_of_the_readme_are_those_the_benchmarks_printed():
    printed = (ROOT / "benchmarks" / "RESULTS.md").read_text()
    tables = re.search(r"## How fast\n(.*?)\n## ", README, flags=re.DOTALL).group(1)
    lines = [line for line in tables.splitlines() if line.startswith("|")]
    assert len(lines) > 15
    assert all(line in printed for line in lines)


def test_links_lead_somewhere():
    pages = (
        "README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md", "DISTRIBUTED.md",
    )  # fmt: skip
    for page in pages:
        for link in re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text()):
            assert link.startswith("https://") or (ROOT / link).exists(), f"{page}: {link}"


def test_the_commands_run(tmp_path, monkeypatch, capsys):
    """Every command of the README, on small files with the names and columns it has."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    pytest.importorskip("bokeh", reason="bokeh is not installed")
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(catalogue, "lagrangian", partial(lagrangian, n_steps=30))
    commands = [words for at in range(2) for words in commands_in(block("sh", at))]
    assert len(commands) == 12
    shown = re.search(
        r"^```\n(on \d+ queries, .*?)\n…\n```", README, re.MULTILINE | re.DOTALL
    ).group(1)
    table = ""
    for words in commands:
        said = " ".join(words)
        asks = said == "pairity train jobs.csv --output model"
        expected = {2} if asks else {0, 1} if "--fail-above" in said else {0}
        assert main(words[1:]) in expected, said
        printed = capsys.readouterr()
        if said.startswith("pairity train") and not asks:
            table = printed.out
        if asks:
            assert list(commands_in(printed.err)) == [
                [*words, *["--label", "hired", "--query", "search_id", "--group", "gender"]]
            ]
    assert all(line in table.splitlines() for line in shown.splitlines())
    for name in ("scores.csv", "model/report.html", "hiring.html", "frontier.png", "train.pairs"):
        assert (tmp_path / name).stat().st_size
    rows = (tmp_path / "jobs.csv").read_text().splitlines()
    assert len((tmp_path / "scores.csv").read_text().splitlines()) == len(rows)
    assert block("csv").splitlines()[0].split(",") == [
        n for n in rows[0].split(",") if n != "score"
    ]


def test_the_demo_runs(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "pairity", "demo"],
        capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    for words in ("plain", "reweighted", "preferred \\ other", "AUC on the unbiased labels"):
        assert words in done.stdout
    assert done.stderr == ""
    named = re.search(r"The report is (.*)\.\n$", done.stdout).group(1)
    assert "<!doctype html>" in (tmp_path / named).read_text()
    assert "pairity demo" in (ROOT / "Makefile").read_text()
