"""Lists longer than 1,500 items: the O(n p) route, against sorting and against all pairs."""

import numpy as np

from benchmarks.tools import best_seconds, lists, markdown
from pairity.pairs.kernels import logistic as kernels
from pairity.pairs.kernels.common import Items
from pairity.pairs.logistic import run_logistic

TITLE = "One long list (gradient, Hessian diagonal, K × K sums; one thread)"


def direct(queries, scores, table):
    """The direct kernel on a list of any length."""
    layout = queries.layout
    n, k = queries.n_items, len(table)
    out = [np.zeros(n), np.zeros(n), np.zeros((1, k, k)), np.zeros(1)]
    size = n + kernels.LANES
    a = np.empty(size)
    a[:n] = np.exp(scores[layout.order] - scores.mean())
    rows = np.zeros((k, 8))
    rows[:, :k] = table
    gradient, hessian = np.zeros(size), np.zeros(size)
    codes, rest = np.empty(size, dtype=np.int64), (np.empty(size) for _ in range(4))
    items = Items(**{field: getattr(layout, field) for field in Items._fields})
    work = kernels.Work(a, codes, *rest, gradient, hessian)
    kernels._logistic_direct(items, True, True, rows, work, out[2][0])
    out[0][layout.order], out[1][layout.order] = gradient[:n], hessian[:n]
    return out[:3]


def run():
    rows = []
    for n in (2_000, 10_000, 100_000, 1_000_000):
        for n_groups, graded in ((2, False), (5, True)):
            queries, scores, table = lists(n, n, n_groups, graded)
            seconds = best_seconds(lambda: run_logistic(queries, scores, table, False), 3)  # noqa: B023
            sorting = best_seconds(lambda: np.sort(scores), 5)  # noqa: B023
            faster, error = "–", "–"
            if n <= 20_000:
                slow = best_seconds(lambda: direct(queries, scores, table), 2)  # noqa: B023
                faster = f"{slow / seconds:.1f}"
                exact = direct(queries, scores, table)
                fast = run_logistic(queries, scores, table, False)
                apart = [np.abs(f / e - 1)[e != 0].max() for e, f in zip(exact, fast, strict=False)]
                error = f"{max(apart):.0e}"
            rows.append(
                [
                    f"{n:,}", n_groups, "5 grades" if graded else "binary", f"{1e3 * seconds:.1f}",
                    f"{seconds / sorting:.1f}", faster, error,
                ]
            )  # fmt: skip
    header = [
        "items",
        "K",
        "labels",
        "ms",
        "÷ np.sort",
        "direct ÷ pairity",
        "largest relative error",
    ]
    return markdown(header, rows)
