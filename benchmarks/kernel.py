"""The pair kernel: gradient, Hessian and K × K sums, one thread, against NumPy per query."""

import os
import subprocess
import sys

import numpy as np
from scipy.special import expit

from benchmarks.tools import best_seconds, lists, markdown
from pairity.pairs.cells import cell_counts
from pairity.pairs.logistic import run_logistic

TITLE = "The pair kernel (gradient, Hessian diagonal, K × K sums)"
ROWS = {120: 960_000, 1200: 240_000}


def numpy_broadcast(queries, scores, table):
    """The same sums with one n × n broadcast per query, the straightforward NumPy version."""
    gradient, hessian = np.empty(queries.n_items), np.empty(queries.n_items)
    k = len(table)
    cells = np.zeros((queries.n_queries, k, k))
    order, bounds = queries.layout.order, queries.layout.bounds
    for q in range(queries.n_queries):
        rows = order[bounds[q] : bounds[q + 1]]
        s, y, code = scores[rows], queries.y[rows], queries.group[rows]
        t = np.where(y[:, None] > y, expit(s - s[:, None]), 0.0)
        wt = table[code[:, None], code] * t
        wh = wt * (1.0 - t)
        gradient[rows] = wt.sum(axis=0) - wt.sum(axis=1)
        hessian[rows] = wh.sum(axis=0) + wh.sum(axis=1)
        cell = code[:, None] * k + code
        cells[q] = np.bincount(cell.ravel(), t.ravel(), k * k).reshape(k, k)
    return gradient, hessian, cells


def numpy_bare(queries, scores, table):
    """The same n × n broadcast with a bare exponential and products with one-hot groups."""
    gradient, hessian = np.empty(queries.n_items), np.empty(queries.n_items)
    one_hot = np.eye(len(table))
    cells = np.zeros((queries.n_queries, *table.shape))
    order, bounds = queries.layout.order, queries.layout.bounds
    for q in range(queries.n_queries):
        rows = order[bounds[q] : bounds[q + 1]]
        s, y, code = scores[rows], queries.y[rows], queries.group[rows]
        t = (y[:, None] > y) / (1.0 + np.exp(s[:, None] - s))
        wt = table[code][:, code] * t
        wh = wt * (1.0 - t)
        gradient[rows] = wt.sum(axis=0) - wt.sum(axis=1)
        hessian[rows] = wh.sum(axis=0) + wh.sum(axis=1)
        groups = one_hot[code]
        cells[q] = groups.T @ t @ groups
    return gradient, hessian, cells


def numpy_blocks(queries, scores, table):
    """The same, tuned: items sorted by label beforehand, one broadcast per label's real pairs."""
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


MEMORY = """
from benchmarks.tools import lists
from pairity.pairs.logistic import run_logistic
small = lists(12_000, 1200, 2, False)
run_logistic(*small, False)
queries, scores, table = lists({n_rows}, 1200, 2, False)
queries.layout
open("/proc/self/clear_refs", "w").write("5")  # resets the peak
before = int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
run_logistic(queries, scores, table, False)
print(int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) - before)
"""


def bytes_per_row(n_rows):
    """Growth of the peak memory of a process over one kernel call, per row (Linux)."""
    code = MEMORY.format(n_rows=n_rows)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(done.stdout) * 1024 / n_rows


def kernel_seconds(queries, scores, table, threads):
    os.environ["PAIRITY_NUM_THREADS"] = threads
    seconds = best_seconds(lambda: run_logistic(queries, scores, table, False), 15)
    del os.environ["PAIRITY_NUM_THREADS"]
    return seconds


def run():
    rows = []
    for n_items in (120, 1200):
        for n_groups in (2, 5):
            for graded in (False, True):
                queries, scores, table = lists(ROWS[n_items], n_items, n_groups, graded)
                pairs = cell_counts(queries).sum()
                result = run_logistic(queries, scores, table, False)
                slow, fast = [], {"1": [], "2": []}
                for baseline in (numpy_broadcast, numpy_bare, numpy_blocks):
                    for threads, taken in fast.items():
                        taken.append(kernel_seconds(queries, scores, table, threads))
                    for expected, actual in zip(
                        baseline(queries, scores, table), result, strict=False
                    ):
                        np.testing.assert_allclose(expected, actual, rtol=1e-9, atol=1e-9)
                    slow.append(best_seconds(lambda: baseline(queries, scores, table), 1))  # noqa: B023
                single, threaded = min(fast["1"]), min(fast["2"])
                ratios = [f"{numpy / single:,.0f} ({numpy / threaded:,.0f})" for numpy in slow]
                rows.append(
                    [
                        n_items,
                        n_groups,
                        "5 grades" if graded else "binary",
                        f"{pairs / 1e6:.1f}",
                        f"{pairs / single / 1e6:,.0f}",
                        *ratios,
                    ]
                )
    header = [
        "items a query", "K", "labels", "million pairs", "million pairs/s, one thread",
        "× NumPy, n × n", "× NumPy, n × n, bare", "× NumPy, by label",
    ]  # fmt: skip
    memory = bytes_per_row(4_800_000)
    note = (
        "960,000 and 240,000 rows; 15 % positive, or grades as in MSLR. NumPy runs on one thread; "
        "pairity on one and, in brackets, on two. “n × n” is the straightforward version: one "
        "broadcast per query, a mask, SciPy's overflow-safe sigmoid, bincount. “Bare” is the same "
        "with an exponential that may overflow and products with one-hot groups. “By label” is "
        "tuned further: sorted beforehand, real pairs only. Memory of one call: "
        f"{memory:.0f} bytes per row at 4,800,000 rows; a list of its pairs would take "
        f"{16 * 0.1275 * 1200:,.0f}."
    )
    return markdown(header, rows) + "\n\n" + note
