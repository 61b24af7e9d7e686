"""Import, and the first fit of a second process."""

import subprocess
import sys

from benchmarks.tools import markdown

TITLE = "Start-up"

IMPORT = "import pairity"
NAMES = "from pairity import FairRanker, LinearRanker, audit"
FIT = """
import time
import numpy as np
from pairity import FairRanker
rng = np.random.default_rng(0)
X, qid, group = rng.normal(size=(400, 3)), np.arange(400) // 20, rng.integers(0, 2, 400)
y = X[:, 0] + group > 0.5
began = time.perf_counter()
FairRanker(tolerance=0.2).fit(X, y, qid=qid, sensitive_features=group)
print(time.perf_counter() - began)
"""
BASE = "import sys; sys.modules['pandas'] = None; "  # scikit-learn imports it where it is there
CLOCK = "import time; t = time.perf_counter(); {}; print(time.perf_counter() - t)"


def seconds(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)


def fastest(code):
    return min(seconds(code) for _ in range(5))


def run():
    seconds(FIT)  # fills the cache
    rows = [
        ["`import pairity`", f"{fastest(CLOCK.format(IMPORT)):.3f}"],
        ["importing FairRanker, LinearRanker, audit", f"{fastest(CLOCK.format(NAMES)):.2f}"],
        ["of which scikit-learn's base", f"{fastest(CLOCK.format('import sklearn.base')):.2f}"],
        ["importing the three without pandas", f"{fastest(BASE + CLOCK.format(NAMES)):.2f}"],
        ["first fit in a new process, kernels cached", f"{fastest(FIT):.2f}"],
    ]
    return markdown(["step", "seconds"], rows)
