"""Queries to audit: three lists whose estimates can be computed by hand, and random ones."""

from __future__ import annotations

from math import log2

import numpy as np
import pytest
from hypothesis import settings

from pairity import Queries, audit
from pairity.constraints import CATALOGUE

NAN = float("nan")
approx = pytest.approx
slowly = settings(max_examples=40)


def by_pair():
    return [constraint(average="pair") for constraint in CATALOGUE.values()]


def random_queries(seed, n_queries=30, groups=("f", "m"), binary=False, **columns):
    """Queries of 3 to 12 items in random order, with ties and informative scores."""
    rng = np.random.default_rng(seed)
    qid = rng.permutation(np.repeat(np.arange(n_queries), rng.integers(3, 13, n_queries)))
    y = rng.integers(0, 2 if binary else 4, len(qid))
    names = rng.choice(np.array(groups, dtype=object), len(qid))
    scores = np.round(y + rng.normal(0, 1.5, len(qid)) + (names == groups[0]) * 0.4, 1)
    queries = Queries.from_arrays(None, y, qid=qid, sensitive_features=names, **columns)
    return queries, scores


def rebuild(queries, scores, times, **options):
    """An audit of queries that are repeated the given numbers of times."""
    rows, qid = [], []
    for q, n in enumerate(times):
        members = np.flatnonzero(queries.query == q)
        for again in range(int(n)):
            rows.extend(members)
            qid.extend([f"{q} {again}"] * len(members))
    names = queries["sensitive_features"]
    return audit(queries.y[rows], scores[rows], qid=qid, sensitive_features=names[rows], **options)


def numbers_of(result):
    """Everything that can be compared between two audits."""
    return {
        (f.measure, f.group, f.other, f.constraint): (f.value, f.n_queries, f.n_items, f.n_pairs)
        for f in result.estimates
    }


def assert_same_numbers(one, other):
    one, other = numbers_of(one), numbers_of(other)
    assert one.keys() == other.keys()
    for key, (value, *counts) in one.items():
        assert other[key][0] == approx(value, nan_ok=True, abs=1e-12), key
        assert list(other[key][1:]) == counts, key


# --- golden: three lists, from the top, as group, label and score --------------------------------

LISTS = {
    1: ["f 1 0.90", "m 1 0.85", "m 0 0.80", "f 0 0.60"],
    2: ["m 1 0.90", "m 0 0.40", "f 1 0.35", "f 0 0.35", "m 0 0.30"],  # two are tied
    3: ["f 0 0.20", "f 0 0.10"],  # prefers nothing
}
ROWS = [(q, *row.split()) for q, rows in LISTS.items() for row in rows]
QID = [row[0] for row in ROWS]
GROUP = [row[1] for row in ROWS]
Y = [int(row[2]) for row in ROWS]
SCORES = [float(row[3]) for row in ROWS]
SECOND, THIRD, FOURTH, FIFTH = 1 / log2(3), 1 / log2(4), 1 / log2(5), 1 / log2(6)


def golden(**options):
    columns = {"qid": QID, "sensitive_features": GROUP, "k": 2}
    return audit(Y, SCORES, **{**columns, **options})
