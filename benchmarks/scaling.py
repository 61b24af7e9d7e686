"""How cost grows with the number of queries."""

import os

import numpy as np

from benchmarks.tools import best_seconds, biased_table, lists, markdown
from pairity import InterGroup, LinearRanker, Queries
from pairity.pairs.logistic import pairwise_logistic

TITLE = "Cost against the number of rows (120 items a query, 20 features, one thread)"
SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)


ROUNDS = 4
WORK = {
    "loss and gradient": lambda queries, scores, table, _: pairwise_logistic(
        queries, scores, table
    ),
    "hard violation": lambda queries, scores, *_: InterGroup().delta(queries, scores),
    "LinearRanker.fit": lambda *arguments: LinearRanker().fit_pairs(arguments[-1], np.ones((2, 2))),
}


def slope(seconds):
    return np.polyfit(np.log(SIZES), np.log(seconds), 1)[0]


def run():
    os.environ["PAIRITY_NUM_THREADS"] = "1"  # more threads would help only the larger sizes
    columns = {name: [np.inf] * len(SIZES) for name in WORK}
    for _ in range(ROUNDS):  # so that other work on the machine does not affect only one size
        for column, size in enumerate(SIZES):
            queries, scores, table = lists(size, 120, 2, False)
            X, y, qid, group = biased_table(size, 20)
            table_queries = Queries.from_arrays(X, y, qid=qid, sensitive_features=group)
            for name, work in WORK.items():
                seconds = best_seconds(
                    lambda: work(queries, scores, table, table_queries),  # noqa: B023
                    max(5, 200_000 // size),
                )
                columns[name][column] = min(columns[name][column], seconds)
    del os.environ["PAIRITY_NUM_THREADS"]
    rows = [
        [name, *(f"{1e3 * value:.1f}" for value in seconds), f"{slope(seconds):.3f}"]
        for name, seconds in columns.items()
    ]
    return markdown(["ms for rows", *(f"{size:,}" for size in SIZES), "log-log slope"], rows)
