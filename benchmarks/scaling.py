"""How cost grows with the number of queries."""

import os

import numpy as np

from benchmarks.tools import best_seconds, biased_table, lists, markdown
from pairity import InterGroup, LinearRanker, Queries
from pairity.pairs import pairwise_logistic

TITLE = "Cost against the number of rows (120 items a query, 20 features, one thread)"
SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)


def slope(seconds):
    return np.polyfit(np.log(SIZES), np.log(seconds), 1)[0]


def run():
    os.environ["PAIRITY_NUM_THREADS"] = "1"  # more would begin to help half-way
    columns = {"loss and gradient": [], "hard violation": [], "LinearRanker.fit": []}
    for size in SIZES:
        queries, scores, table = lists(size, 120, 2, False)
        repeats = max(15, 600_000 // size)
        columns["loss and gradient"].append(
            best_seconds(lambda: pairwise_logistic(scores, queries, table), repeats)  # noqa: B023
        )
        columns["hard violation"].append(
            best_seconds(lambda: InterGroup().violation(queries, scores), repeats)  # noqa: B023
        )
        X, y, qid, group = biased_table(size, 20)
        whole = Queries.from_arrays(X, y, qid=qid, sensitive_features=group)
        columns["LinearRanker.fit"].append(
            best_seconds(lambda: LinearRanker().fit_pairs(whole, np.ones((2, 2))), repeats)  # noqa: B023
        )
    del os.environ["PAIRITY_NUM_THREADS"]
    rows = [
        [name, *(f"{1e3 * value:.1f}" for value in seconds), f"{slope(seconds):.3f}"]
        for name, seconds in columns.items()
    ]
    return markdown(["ms for rows", *(f"{size:,}" for size in SIZES), "log-log slope"], rows)
