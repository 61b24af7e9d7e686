"""Every example runs as a user would run it, and lowers the violation it names."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
ENGINES = {"sklearn_regressor": "sklearn"}


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_example(path, tmp_path):
    engine = ENGINES.get(path.stem, path.stem.partition("_")[0])
    if importlib.util.find_spec(engine) is None:
        pytest.skip(f"{engine} is not installed")
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", str(path)],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = dict(re.findall(r"^(\w+): inter-group violation ([\d.]+)", done.stdout, re.MULTILINE))
    assert float(found["reweighted"]) < 0.5 * float(found["plain"]), done.stdout
