"""Evidence of two fitted rankers with any names of groups, for tests of reports."""

import warnings
from functools import cache

import numpy as np

from pairity import FairRanker, LinearRanker, Queries
from pairity.datasets import make_biased_ranking
from pairity.reports.collect import collect_training

HOSTILE = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>'`&amp;\u2028",
    "ا" * 40 + "\u202eevil",
    "long " * 2000,
)


@cache
def trained(names=("men", "women"), n_queries=60, seed=3):
    """Training queries, test queries, and the plain and reweighted rankers."""
    data = make_biased_ranking(
        n_queries, 16, n_groups=len(names), strength=2, separation=2, random_state=seed
    )
    known = sorted(set(data.sensitive_features))
    groups = np.array([names[known.index(g)] for g in data.sensitive_features], dtype=object)
    queries = Queries.from_arrays(data.X, data.y, qid=data.qid, sensitive_features=groups)
    train, test = queries.split(0.4, random_state=seed)
    plain = FairRanker(LinearRanker(), max_rounds=0, progress=False).fit(**train)
    fair = FairRanker(
        LinearRanker(), constraint="inter", tolerance=0.05, max_rounds=3, progress=False
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fair.fit(**train)
    return train, test, plain, fair


@cache
def make_evidence(names=("men", "women"), shares=(0.5,), title=""):
    """The evidence of these rankers and of one between them."""
    train, test, plain, fair = trained(names)
    return collect_training(
        plain, fair, train, test, shares=shares, n_resamples=100, attributes=["gender"],
        provenance={"command": "pairity train <jobs>.csv", "seed": 3}, title=title,
    )  # fmt: skip
