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

        def fit_pairity(tol=1e-7):
            return LinearRanker(alpha=ALPHA, tol=tol).fit(X, y, qid=qid).coef_ * scale  # noqa: B023

        def fit_sklearn():
            i, j = (np.concatenate(part) for part in zip(*iter_pairs(queries), strict=True))  # noqa: B023
            sign = np.where(np.arange(len(i)) % 2 == 0, 1.0, -1.0)  # it needs two classes
            differences = (X[i] - X[j]) / scale * sign[:, None]  # noqa: B023
            model = LogisticRegression(
                C=1.0 / (ALPHA * len(i)), fit_intercept=False, tol=1e-7, max_iter=1000
            )
            return model.fit(differences, sign).coef_[0]

        exact = fit_pairity(tol=1e-12)
        errors = [f"{np.abs(fit() - exact).max():.0e}" for fit in (fit_pairity, fit_sklearn)]
        fast, slow = best_seconds(fit_pairity, 9), best_seconds(fit_sklearn, 3)
        rows.append(
            [
                f"{len(X):,} × 40", n_items, f"{n_pairs:,}", f"{fast:.3f}", f"{slow / fast:.1f}",
                *errors,
            ]
        )  # fmt: skip
    header = [
        "rows × features", "items per query", "pairs", "LinearRanker s",
        "LogisticRegression ÷ LinearRanker", "LinearRanker from the minimum",
        "LogisticRegression from the minimum",
    ]  # fmt: skip
    note = "Both from the table to the coefficients, at tol=1e-7; distance in standardised units."
    return markdown(header, rows) + "\n\n" + note
