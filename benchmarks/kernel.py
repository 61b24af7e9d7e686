"""The pair kernel: gradient, Hessian and K × K sums, one thread, against NumPy per query."""

import os
import subprocess
import sys

import numpy as np

from benchmarks.tools import best_seconds, lists, markdown
from pairity.pairs import _run_logistic, cell_counts

TITLE = "The pair kernel (gradient, Hessian diagonal, K × K sums; one thread)"
ROWS = 240_000


def numpy_per_query(scores, queries, table):
    """The same sums with one broadcast per query and label, as one would write it in NumPy."""
    layout = queries.layout
    gradient, hessian = np.empty(queries.n_items), np.empty(queries.n_items)
    cells = np.zeros((queries.n_queries, len(table), len(table)))
    one_hot = np.eye(len(table))
    for q in range(queries.n_queries):
        rows = layout.order[layout.bounds[q] : layout.bounds[q + 1]]
        s, code = scores[rows], queries.group[rows]
        start = layout.start[layout.bounds[q] : layout.bounds[q + 1]]
        g, h = np.zeros(len(rows)), np.zeros(len(rows))
        for begin in np.unique(start[start < len(rows)]):
            upper = np.flatnonzero(start == begin)
            t = 1.0 / (1.0 + np.exp(s[upper, None] - s[None, begin:]))
            wt = table[code[upper]][:, code[begin:]] * t
            wh = wt * (1.0 - t)
            g[upper] -= wt.sum(axis=1)
            h[upper] += wh.sum(axis=1)
            g[begin:] += wt.sum(axis=0)
            h[begin:] += wh.sum(axis=0)
            cells[q] += one_hot[code[upper]].T @ t @ one_hot[code[begin:]]
        gradient[rows], hessian[rows] = g, h
    return gradient, hessian, cells


def bytes_per_row(n_rows):
    """Growth of the peak memory of a process over one kernel call, per row."""
    code = (
        "import resource, numpy as np\n"
        "from benchmarks.tools import lists\n"
        "from pairity.pairs import _run_logistic\n"
        f"small = lists(12_000, 1200, 2, False)\n"
        "_run_logistic(small[1], small[0], small[2], False)\n"
        f"queries, scores, table = lists({n_rows}, 1200, 2, False)\n"
        "queries.layout\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "_run_logistic(scores, queries, table, False)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(done.stdout) * 1024 / n_rows


def run():
    os.environ["PAIRITY_NUM_THREADS"] = "1"
    rows = []
    for n_items in (120, 1200):
        for n_groups in (2, 5):
            for graded in (False, True):
                queries, scores, table = lists(ROWS, n_items, n_groups, graded)
                pairs = cell_counts(queries).sum()
                ours = best_seconds(lambda: _run_logistic(scores, queries, table, False), 9)  # noqa: B023
                theirs = best_seconds(lambda: numpy_per_query(scores, queries, table), 1)  # noqa: B023
                check = numpy_per_query(scores, queries, table)
                result = _run_logistic(scores, queries, table, False)
                for one, two in zip(check, result, strict=False):
                    np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-9)
                rows.append(
                    [
                        n_items,
                        n_groups,
                        "5 grades" if graded else "binary",
                        f"{pairs / 1e6:.1f}",
                        f"{pairs / ours / 1e6:,.0f}",
                        f"{theirs / ours:,.0f}",
                    ]
                )
    del os.environ["PAIRITY_NUM_THREADS"]
    header = ["items a query", "K", "labels", "million pairs", "million pairs/s", "× NumPy"]
    memory = bytes_per_row(4_800_000)
    note = (
        f"{ROWS:,} rows; 15 % positive, or grades as in MSLR. Memory of one call: "
        f"{memory:.0f} bytes per row at 4,800,000 rows ({memory / (0.1275 * 1200):.3f} per pair)."
    )
    return markdown(header, rows) + "\n\n" + note
