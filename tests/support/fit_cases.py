"""Small data to fit on, fits that may miss their target, and a minimal ranker."""

import warnings
from contextlib import contextmanager

import numpy as np

from pairity import FairRanker, LinearRanker
from pairity.datasets import make_biased_ranking
from pairity.exceptions import TargetNotReachedWarning

NAMES = [f"f{column}" for column in range(5)]
SHARP = LinearRanker(tol=1e-11)  # so that only the data can make a difference


def make(n_queries=12, n_items=20, **options):
    """The arguments of `fit`."""
    data = make_biased_ranking(n_queries, n_items, **{"random_state": 0, **options})
    return {
        "X": data.X,
        "y": data.y,
        "qid": data.qid,
        "sensitive_features": data.sensitive_features,
    }


@contextmanager
def target_may_be_missed():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TargetNotReachedWarning)
        yield


def fit(data, constraint="statistical", **parameters):
    parameters = {"ranker": SHARP, "max_rounds": 4, "tolerance": 0.0, **parameters}
    with target_may_be_missed():
        return FairRanker(constraint=constraint, **parameters).fit(**data)


class MinimalRanker:
    """A ranker without scikit-learn or pairity, whose `fit_pairs` returns None.

    Its direction is the weighted sum of preferred minus other items. `act` is called with
    the number of the fit before it begins.
    """

    def __init__(self, act=lambda _: None):
        self.act = act

    def fit_pairs(self, queries, table, previous=None):
        self.number = 0 if previous is None else previous.number + 1
        self.act(self.number)
        self.direction = np.zeros(queries.X.shape[1])
        for query in range(queries.n_queries):
            row = np.flatnonzero(queries.query == query)
            y, group = queries.y[row], queries.group[row]
            weight = table[group[:, None], group] * (y[:, None] > y)
            self.direction += (weight.sum(axis=1) - weight.sum(axis=0)) @ queries.X[row]

    def predict(self, X):
        return X @ self.direction
