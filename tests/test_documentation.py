"""The README says what happens: its example runs and prints what it shows; its commands exist."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from pairity.cli import main
from pairity.datasets import make_biased_ranking

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
    pages = ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md")
    for page in pages:
        for link in re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text()):
            assert link.startswith("https://") or (ROOT / link).exists(), f"{page}: {link}"


def test_the_commands_run(tmp_path, monkeypatch, capsys):
    """On a table whose columns are named as the README names them."""
    data = make_biased_ranking(60, 20, strength=2, separation=2, random_state=0)
    names = ["search_id", "experience", "grades", "score", "gender", "hired"]
    rows = zip(data.qid, *data.X.T[:3], data.sensitive_features, data.y, strict=True)
    table = "\n".join(",".join(map(str, row)) for row in [names, *rows])
    for name in ("jobs.csv", "new.csv", "ranked.csv"):
        (tmp_path / name).write_text(table)
    monkeypatch.chdir(tmp_path)
    commands = [line for line in block("sh").splitlines() if line.startswith("pairity ")]
    assert len(commands) == 4
    for command in commands:
        status = main(shlex.split(command)[1:])
        assert status in ((0, 1) if "--fail-above" in command else (0,)), command
    assert len((tmp_path / "scores.csv").read_text().splitlines()) == len(data.y) + 1
    assert capsys.readouterr().out


def test_the_demo_runs():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "pairity.cli", "demo"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    for words in ("plain", "reweighted", "preferred \\ other", "AUC on the unbiased labels"):
        assert words in done.stdout
    assert done.stderr == ""
    assert "pairity demo" in (ROOT / "Makefile").read_text()
