"""Slow, obvious versions of what the kernels do: every pair written out."""

from functools import cache

import numpy as np
from hypothesis import strategies as st
from scipy.special import expit

from pairity import Queries


def pairs_of(queries, *, kind="preference"):
    """(preferred, other) rows of all pairs."""
    rows = [
        (i, j)
        for i in range(queries.n_items)
        for j in range(queries.n_items)
        if i != j
        and queries.query[i] == queries.query[j]
        and (kind == "all" or queries.y[i] > queries.y[j])
    ]
    return np.array(rows, dtype=int).reshape(-1, 2).T


def pair_weight(queries, i, j):
    u = np.ones(queries.n_items) if queries.item_weight is None else queries.item_weight
    return u[i] * u[j]


def logistic(queries, scores, table):
    """Loss, gradient, diagonal Hessian and full Hessian."""
    i, j = pairs_of(queries)
    padded = queries.pad(table)
    w = padded[queries.group[i], queries.group[j]] * pair_weight(queries, i, j)
    w = w * queries.weight_of_query[queries.query[i]]
    with np.errstate(over="ignore"):
        d = scores[i] - scores[j]
        loss = np.sum(w * np.logaddexp(0.0, -d))
    t, h = expit(-d), expit(d) * expit(-d)
    gradient, full = np.zeros(len(scores)), np.zeros((len(scores), len(scores)))
    np.add.at(gradient, i, -w * t)
    np.add.at(gradient, j, w * t)
    for a, b, sign in ((i, i, 1), (j, j, 1), (i, j, -1), (j, i, -1)):
        np.add.at(full, (a, b), sign * w * h)
    return loss, gradient, np.diag(full).copy(), full


def cell_sums(queries, scores, *, kind="preference", soft=False):
    i, j = pairs_of(queries, kind=kind)
    with np.errstate(over="ignore"):
        d = scores[i] - scores[j]
    label = expit(d) if soft else np.where(d > 0, 1.0, np.where(d == 0, 0.5, 0.0))
    sums = np.zeros((queries.n_queries, queries.n_codes, queries.n_codes))
    counts = np.zeros_like(sums)
    where = (queries.query[i], queries.group[i], queries.group[j])
    np.add.at(sums, where, label * pair_weight(queries, i, j))
    np.add.at(counts, where, pair_weight(queries, i, j))
    return sums, counts


@cache
def expected_swap(places, others, k):
    """The mean of |D_a - D_b|, 0 unless a or b is below k, over where two items may stand."""
    a, b = np.meshgrid(places, others, indexing="ij")
    change = np.abs(1 / np.log2(2.0 + a) - 1 / np.log2(2.0 + b)) * (np.minimum(a, b) < k)
    return change[a != b].mean()


def lambdarank(loss, scores, queries, table, places=None):
    """Gradient and Hessian; `places` are the positions an item may have, those of its ties."""
    i, j = pairs_of(queries)
    gains = 2.0 ** np.arange(31) - 1 if loss.gains is None else np.array(loss.gains)
    gain = gains[queries.y.astype(int)]
    same = queries.query[:, None] == queries.query
    if places is None:
        above = (same & (scores > scores[:, None])).sum(axis=1)
        level = (same & (scores == scores[:, None])).sum(axis=1)
        places = [range(lo, lo + n) for lo, n in zip(above, level, strict=True)]
    swap = [
        expected_swap(places[first], places[second], loss.k)
        for first, second in zip(i, j, strict=True)
    ]
    delta, d = (gain[i] - gain[j]) * np.array(swap, dtype=float), scores[i] - scores[j]
    ideal, spread = np.zeros(queries.n_queries), np.zeros(queries.n_queries)
    for q in range(queries.n_queries):
        rows = queries.query == q
        first = np.sort(gain[rows])[::-1][: loss.k]
        ideal[q] = np.sum(first / np.log2(2 + np.arange(len(first))))
        spread[q] = np.ptp(scores[rows])
    q = queries.query[i]
    delta = np.divide(delta, ideal[q], out=np.zeros(len(i)), where=ideal[q] > 0)
    if loss.normalise:
        delta = np.where(spread[q] > 0, delta / (0.01 + np.abs(d)), delta)
    with np.errstate(over="ignore"):
        p = expit(-loss.sigma * d)
    force = loss.sigma * delta * p
    curve = loss.sigma * force * expit(loss.sigma * d)
    if loss.normalise:
        total = np.bincount(q, 2 * force, queries.n_queries)
        total[total == 0] = 1.0
        factor = (np.log1p(total) / np.log(2) / total)[q]
        force, curve = force * factor, curve * factor
    w = queries.pad(table)[queries.group[i], queries.group[j]] * pair_weight(queries, i, j)
    w = w * queries.weight_of_query[q]
    gradient, hessian = np.zeros(queries.n_items), np.zeros(queries.n_items)
    for rows, sign in ((i, -1), (j, 1)):
        np.add.at(gradient, rows, sign * w * force)
        np.add.at(hessian, rows, w * curve)
    return gradient, hessian


SIZES = {
    "small": 3.0,
    "wide": 200.0,
    "too wide for exp": 2000.0,
    "huge": 1e300,
}


@st.composite
def ranked_lists(draw, *, max_groups=6, max_items=24, weights=True, min_queries=1):
    """Queries with ties, graded labels, one-item queries, missing groups, weights; and scores."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(2, max_items))
    n_groups = draw(st.integers(1, max_groups))
    n_labels = draw(st.sampled_from([2, 3, 5, 1000]))
    qid = rng.integers(0, draw(st.integers(min_queries, 4)), n)
    group = rng.integers(0, n_groups, n).astype(object)
    if draw(st.booleans()):
        group[rng.random(n) < 0.2] = None
    if all(g is None for g in group):
        group[0] = 0
    item_weight = rng.integers(0, 3, n).astype(float) if weights and draw(st.booleans()) else None
    if item_weight is not None and not item_weight.any():
        item_weight[:] = 1.0
    query_weight = None
    if weights and draw(st.booleans()):
        query_weight = {q: float(rng.integers(1, 4)) for q in np.unique(qid)}
    queries = Queries.from_arrays(
        rng.normal(size=(n, 2)), rng.integers(0, n_labels, n), qid=qid, sensitive_features=group,
        sample_weight=item_weight, query_weight=query_weight,
    )  # fmt: skip
    size = SIZES[draw(st.sampled_from(sorted(SIZES)))]
    scores = rng.uniform(-1.0, 1.0, n) * size
    if draw(st.booleans()):  # ties
        scores = rng.choice(scores, n)
    if draw(st.booleans()) and size < 1e30:
        scores = scores.astype(np.float32)
    return queries, scores


def small(n_groups=2, n_labels=2, seed=0, *, missing=False, weighted=False):
    """Three queries of twelve items with three features, groups and labels at random."""
    rng = np.random.default_rng(seed)
    n = 36
    group = np.array([f"g{k}" for k in rng.integers(0, n_groups, n)], dtype=object)
    if missing:
        group[rng.random(n) < 0.2] = None
    return Queries.from_arrays(
        rng.normal(size=(n, 3)), rng.integers(0, n_labels, n), qid=np.repeat([0, 1, 2], 12),
        sensitive_features=group, sample_weight=rng.uniform(0.5, 2, n) if weighted else None,
        query_weight=dict(enumerate([1.0, 0.5, 2.0])) if weighted else None,
    )  # fmt: skip
