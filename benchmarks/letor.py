"""Reading a large LETOR file on one core: ours, scikit-learn's, and a CSV reader made to."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.tools import GRADES, markdown

TITLE = "Reading LETOR files (136 features, one core)"
N_FEATURES = 136
PAIRITY = """
from pairity.data import read_letor_arrays
def read(path):
    arrays = read_letor_arrays(path)
    return arrays.X, arrays.y, arrays.qid
"""
SPARSE = """
from pairity.data import read_letor_arrays
def read(path):
    arrays = read_letor_arrays(path, sparse=True)
    return arrays.X, arrays.y, arrays.qid
"""
SKLEARN = """
from sklearn.datasets import load_svmlight_file
def read(path):
    return load_svmlight_file(path, query_id=True)
"""
ARROW = """
import pyarrow as pa
import pyarrow.csv
def read(path):
    with open(path, "rb") as file:
        text = file.read().replace(b":", b" ")
    names = ["y", "word", "qid"] + [f"{k}{n}" for n in range(136) for k in "ix"]
    columns = ["y", "qid"] + [f"x{n}" for n in range(136)]
    types = {**dict.fromkeys(columns, pa.float64()), "qid": pa.int64()}
    table = pa.csv.read_csv(
        pa.BufferReader(text),
        pa.csv.ReadOptions(column_names=names, use_threads=False),
        pa.csv.ParseOptions(delimiter=" "),
        pa.csv.ConvertOptions(include_columns=columns, column_types=types),
    )
    del text
    X = np.empty((len(table), 136))
    for n in range(136):
        X[:, n] = table[f"x{n}"]
    return X, table["y"].to_numpy(), table["qid"].to_numpy()
"""
CHILD = """
import json, os, sys, time
import numpy as np
{code}
def kilobytes(name):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(name))
os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})
read(sys.argv[1])  # compiles, imports
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # resets the peak
before = kilobytes("VmRSS")
began = time.process_time()
X, y, qid = read(sys.argv[2])
seconds = time.process_time() - began
peak = kilobytes("VmHWM") - before
total = float(X.sum()), float(y.sum()), int(qid.sum())
print(json.dumps([seconds, 1024 * peak, X.shape, total]))
"""


def lines(n_rows, exact):
    """Rows as in MSLR: counts, zeros and six decimals; or all digits of every double."""
    rng = np.random.default_rng(0)
    for row in range(n_rows):
        values = rng.lognormal(0.0, 2.0, N_FEATURES)
        if exact:
            words = [repr(value) for value in values.tolist()]
        else:
            kind = rng.integers(0, 4, N_FEATURES).tolist()
            words = [
                ("0", str(int(value)), f"{value:.6f}", f"{value / 100:.6f}")[k]
                for k, value in zip(kind, values.tolist(), strict=True)
            ]
        entries = " ".join(f"{k}:{word}" for k, word in enumerate(words, 1))
        yield f"{rng.choice(5, p=GRADES)} qid:{row // 120} {entries}\n"


def write(path, n_rows, exact):
    part = "".join(lines(10_000, exact)).encode()
    with path.open("wb") as file:
        for _ in range(n_rows // 10_000):
            file.write(part)


def measure(code, small, large):
    done = subprocess.run(
        [sys.executable, "-c", CHILD.format(code=code), str(small), str(large)],
        capture_output=True, text=True, check=True, env={**os.environ, "PAIRITY_NUM_THREADS": "1"},
    )  # fmt: skip
    return json.loads(done.stdout)


def run():
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder) / "small.txt", Path(folder) / "large.txt"
        write(small, 10_000, False)
        for name, exact in (("as in MSLR", False), ("all digits", True)):
            totals = []
            many = 100_000 if exact else 1_000_000
            for reader, code, n_rows in (
                ("`read_letor_arrays`", PAIRITY, many),
                ("`read_letor_arrays(sparse=True)`", SPARSE, many),
                ("pyarrow's CSV reader, “:” replaced by “ ”", ARROW, many),
                ("scikit-learn `load_svmlight_file`", SKLEARN, 100_000),
            ):
                if not large.exists() or not totals or totals[-1][0] != n_rows:
                    write(large, n_rows, exact)
                size = large.stat().st_size
                seconds, peak, shape, total = measure(code, small, large)
                assert shape == [n_rows, N_FEATURES]
                totals.append([n_rows, *(1e6 / n_rows * part for part in total)])
                per_million = 1e6 * seconds / n_rows
                if code is PAIRITY:
                    pairity = per_million
                rows.append(
                    [
                        reader, f"{n_rows:,}", f"{name}, {size / n_rows:,.0f} bytes a row",
                        f"{per_million:.1f}", f"{per_million / pairity:.1f}",
                        f"{size / 1e6 / seconds:.0f}", f"{peak / (8 * n_rows * N_FEATURES):.2f}",
                    ]
                )  # fmt: skip
            read = np.array(totals)[:, 1:]
            np.testing.assert_allclose(read, read[[0] * len(read)], rtol=1e-9)
    header = [
        "reader", "rows read", "numbers", "s a million rows", "÷ pairity", "MB/s",
        "peak memory ÷ dense X",
    ]  # fmt: skip
    note = (
        "Each reader runs in its own process, on one core, after reading a small file; "
        "seconds of processor time. pyarrow's way works on lines that leave out no feature only, "
        "does not look at the indices, and holds the whole text; scikit-learn's returns a sparse "
        "matrix."
    )
    return f"{markdown(header, rows)}\n\n{note}"
