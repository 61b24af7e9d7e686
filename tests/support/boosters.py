"""Settings and a slow objective, for the tests of the adapters of boosters."""

import numpy as np

NAMES = list("abcde")
TABLE = np.array([[1.0, 1.75], [0.5, 1.25]])
ONES = np.ones((2, 2))


def eval_sets(*sets):
    return {"eval_set": [(held.X, held.y) for held in sets], "eval_qid": [h.qid for h in sets]}


def slow_logistic(queries, table, curvature=1.0):
    """The weighted logistic loss as an engine's objective, from the matrix of all pairs.

    XGBoost's own ranking objectives have a `curvature` of 2.
    """
    better = (queries.query[:, None] == queries.query) & (queries.y[:, None] > queries.y)
    weight = queries.pad(table)[queries.group[:, None], queries.group] * better
    if queries.item_weight is not None:
        weight = weight * np.outer(queries.item_weight, queries.item_weight)
    weight = weight * queries.weight_of_query[queries.query][:, None]
    weight = weight * np.count_nonzero(weight) / weight.sum()

    def derivatives(scores, _data):
        scores = scores.astype(np.float64)
        p = 1 / (1 + np.exp(scores[:, None] - scores))
        gradient, hessian = weight * p, weight * p * (1 - p)
        return gradient.sum(0) - gradient.sum(1), curvature * (hessian.sum(0) + hessian.sum(1))

    return derivatives
