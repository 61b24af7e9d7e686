"""fair_exposure against HiGHS on the program of n² variables, and alone on long lists."""

import time

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

from benchmarks.tools import best_seconds, markdown
from pairity.baselines.exposure_program import fair_exposure

TITLE = "Fair exposure against HiGHS on the program of n² variables"
SIZES = ((50, 2), (100, 2), (200, 2), (1_000, 2), (1_000, 5), (10_000, 2), (10_000, 5))


def items(n_items, n_groups, seed=0):
    """Utilities and groups, the later groups with less merit."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, n_groups, n_items)
    return rng.random(n_items) * (1.0 - 0.4 * group / n_groups), group


def n_squared(utility, group, method):
    """Equal impact on two groups, over doubly stochastic matrices; the optimum and the seconds."""
    n = len(utility)
    attention = 1.0 / np.log2(np.arange(2, n + 2))
    share = [np.where(group == k, utility, 0.0) / utility[group == k].sum() for k in (0, 1)]
    rows = sp.vstack(
        [
            sp.kron(sp.eye_array(n), np.ones((1, n))),
            sp.kron(np.ones((1, n)), sp.eye_array(n)),
            sp.csr_array(np.outer(share[0] - share[1], attention).reshape(1, -1)),
        ],
        format="csr",
    )
    right = np.r_[np.ones(2 * n), 0.0]
    began = time.perf_counter()
    solution = linprog(-np.outer(utility, attention).ravel(), A_eq=rows, b_eq=right, method=method)
    seconds = time.perf_counter() - began
    assert solution.status == 0, solution.message
    return -solution.fun, seconds


def run():
    rows = []
    for n, n_groups in SIZES:
        utility, group = items(n, n_groups)
        seconds = best_seconds(lambda: fair_exposure(utility, group, n_groups))  # noqa: B023
        fair = fair_exposure(utility, group, n_groups)
        spread = fair.ratio.max() / fair.ratio.min() - 1.0
        compared = [""] * 4
        if n <= 200:
            solved = [n_squared(utility, group, f"highs-{kind}") for kind in ("ds", "ipm")]
            optimum, least = min(solved, key=lambda pair: pair[1])
            compared = [f"{taken:.2f}" for _, taken in solved]
            compared += [f"{least / seconds:,.0f}", f"{abs(optimum / fair.objective - 1.0):.0e}"]
        rows.append(
            [
                f"{n:,}", n_groups, f"{seconds * 1e3:.1f}", len(fair.rankings), f"{spread:.0e}",
                *compared,
            ]
        )  # fmt: skip
    header = [
        "items", "groups", "fair_exposure ms", "rankings", "ratios apart", "HiGHS simplex s",
        "interior point s",
        "the faster ÷ fair_exposure", "objectives apart",
    ]  # fmt: skip
    note = "One query, equal impact, slack 0. Distances are relative; HiGHS at its defaults."
    return markdown(header, rows) + "\n\n" + note
