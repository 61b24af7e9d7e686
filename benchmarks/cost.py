"""The price of FairRanker(LinearRanker()), by number of groups, size and constraint."""

import time
import warnings

import numpy as np

from benchmarks.tools import biased_table, markdown
from pairity import FairRanker, LinearRanker
from pairity.exceptions import PairityWarning

TITLE = "Cost of a fair fit by number of groups"

SIZES = (  # rows, features, groups, and the most that a fair fit may cost, in plain fits
    (300_000, 136, 2, 2.0),
    (100_000, 20, 2, 3.0),
    (100_000, 20, 3, 4.0),
    (100_000, 20, 5, 5.0),
    (100_000, 20, 8, 6.0),
    (100_000, 20, 12, 8.0),
    (10_000, 20, 12, 15.0),
)
# Tolerances that cannot be reached: every weight is tried in vain.
UNREACHABLE = tuple(
    (n_rows, 20, n_groups, 15.0) for n_rows in (100_000, 10_000) for n_groups in (2, 5, 12)
)


def run():
    rows = []
    for size in SIZES:
        data = biased_table(*size[:2], n_groups=size[2])
        rows += [_row(constraint, size, data) for constraint in ("statistical", "inter")]
    for size in UNREACHABLE:
        X, *rest = data = biased_table(*size[:2], n_groups=size[2])
        hidden = (X[:, 1:], *rest)  # without the feature that reveals the group
        cases = (("hidden group, paper", hidden, {"weighting": "paper"}),)
        cases += (("tolerance 0", data, {"tolerance": 0.0}),)
        for constraint in ("statistical", "inter"):
            for name, table, options in cases:
                rows.append(_row(constraint, size, table, name, **options))
    header = [
        "constraint", "rows × features", "K", "plain s", "ratio", "bar", "retrainings",
        "violation", "AUC",
    ]  # fmt: skip
    note = "Best of three, alternating; violation and AUC on the training queries."
    return f"{markdown(header, rows)}\n\n{note} {_median(rows)}"


def _median(rows):
    retrainings = [int(row[6]) for row in rows]
    return f"Retrainings: median {np.median(retrainings):g}, at most {max(retrainings)}."


def _row(constraint, size, data, name="", **options):
    n_rows, _, n_groups, bar = size
    X, y, qid, group = data
    plain, fair = [], []
    for _ in range(3):  # alternating, so that both meet the same load
        began = time.perf_counter()
        LinearRanker().fit(X, y, qid=qid)
        plain.append(time.perf_counter() - began)
        began = time.perf_counter()
        ranker = FairRanker(LinearRanker(), constraint, **options)
        with warnings.catch_warnings(action="ignore", category=PairityWarning):
            ranker.fit(X, y, qid=qid, sensitive_features=group)
        fair.append(time.perf_counter() - began)
    first = ranker.history_[0]
    best = min(ranker.history_, key=lambda round_: (round_.auc < 0.5, round_.violation))
    return [
        f"{constraint}, {name}" if name else constraint, f"{n_rows:,} × {X.shape[1]}", n_groups,
        f"{min(plain):.3f}", f"{min(fair) / min(plain):.1f}", f"{bar:g}",
        len(ranker.history_) - 1, f"{first.violation:.3f} → {best.violation:.4f}",
        f"{first.auc:.4f} → {best.auc:.4f}",
    ]  # fmt: skip
