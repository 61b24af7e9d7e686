"""Timing, tables and data that the benchmarks share."""

import time

import numpy as np

from pairity import Queries

GRADES = np.array([0.55, 0.30, 0.13, 0.015, 0.005])  # as in MSLR-WEB10K


def best_seconds(function, repeats=5):
    """The fastest of several calls, after a warm-up call."""
    function()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    return min(times)


def best_in_turns(functions, repeats=5):
    """The fastest of several interleaved calls of each function, after a warm-up call.

    A pause precedes each call, because OpenMP's threads keep spinning after a call.
    """
    times = [[] for _ in functions]
    for repeat in range(repeats + 1):
        for function, taken in zip(functions, times, strict=True):
            time.sleep(0.02)
            began = time.perf_counter()
            function()
            if repeat:
                taken.append(time.perf_counter() - began)
    return [min(taken) for taken in times]


def markdown(header, rows):
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def lists(n_rows, n_items, n_groups, graded, seed=0):
    """Queries without features, scores, and a weight table."""
    rng = np.random.default_rng(seed)
    n = n_rows // n_items * n_items
    y = rng.choice(5, n, p=GRADES) if graded else rng.random(n) < 0.15
    queries = Queries.from_arrays(
        None, y, qid=np.arange(n) // n_items, sensitive_features=rng.integers(0, n_groups, n)
    )
    return queries, 3.0 * rng.normal(size=n), rng.uniform(0.5, 1.5, (n_groups, n_groups))


def biased_table(n_rows, n_features, n_items=120, n_groups=2, seed=0):
    """X, y, qid and groups with 15 % positive labels that favour the first group."""
    rng = np.random.default_rng(seed)
    n = n_rows // n_items * n_items
    group = rng.integers(0, n_groups, n)
    X = rng.normal(size=(n, n_features))
    X[:, 0] += 1.5 * (0.5 - group / max(1, n_groups - 1))
    X[:, 1:40] += 0.7 * X[:, 40:41] if n_features > 40 else 0.0
    coef = rng.normal(size=n_features) / np.sqrt(n_features)
    coef[0] = 0.1  # mostly informative of the group, a little of the merit
    latent = X @ coef
    latent += latent.std() * rng.normal(size=n)
    latent += 0.7 * latent.std() * (0.5 - group / max(1, n_groups - 1))
    y = latent > np.quantile(latent, 0.85)
    return X, y, np.arange(n) // n_items, group
