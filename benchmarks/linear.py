"""LinearRanker against scikit-learn's LogisticRegression on explicit difference vectors."""

import numpy as np
from sklearn.linear_model import LogisticRegression

from benchmarks.tools import best_seconds, biased_table, markdown
from pairity import LinearRanker, Queries
from pairity.pairs.enumeration import iter_pairs

TITLE = "LinearRanker against LogisticRegression on difference vectors"
ALPHA = 1e-4


def run():
    rows = []
    for n_rows, n_items in ((18_000, 120), (60_000, 120), (60_000, 60)):
        X, y, qid, _ = biased_table(n_rows, 40, n_items)
        queries = Queries.from_arrays(X, y, qid=qid)
        n_pairs = sum(len(i) for i, _ in iter_pairs(queries))
        scale = X.std(axis=0)

        def ours(tol=1e-7):
            return LinearRanker(alpha=ALPHA, tol=tol).fit(X, y, qid=qid).coef_ * scale  # noqa: B023

        def theirs():
            i, j = (np.concatenate(part) for part in zip(*iter_pairs(queries), strict=True))  # noqa: B023
            sign = np.where(np.arange(len(i)) % 2 == 0, 1.0, -1.0)  # it wants two classes
            differences = (X[i] - X[j]) / scale * sign[:, None]  # noqa: B023
            model = LogisticRegression(
                C=1.0 / (ALPHA * len(i)), fit_intercept=False, tol=1e-7, max_iter=1000
            )
            return model.fit(differences, sign).coef_[0]

        exact = ours(tol=1e-12)
        apart = [f"{np.abs(found() - exact).max():.0e}" for found in (ours, theirs)]
        fast, slow = best_seconds(ours, 9), best_seconds(theirs, 3)
        rows.append(
            [
                f"{len(X):,} × 40", n_items, f"{n_pairs:,}", f"{fast:.3f}", f"{slow / fast:.1f}",
                *apart,
            ]
        )  # fmt: skip
    header = [
        "rows × features", "items a query", "pairs", "LinearRanker s",
        "LogisticRegression ÷ ours", "ours from the minimum", "theirs",
    ]  # fmt: skip
    note = "Both from the table to the coefficients, at tol=1e-7; distance in standardised units."
    return markdown(header, rows) + "\n\n" + note
