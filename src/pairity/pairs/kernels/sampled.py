"""Compiled loop for the logistic loss on sampled pairs, as in BPR.

A hash of (seed, iteration, row, draw) selects the items that a preferred item is compared with, so
neither threads nor blocks change the draws. See `pairity.pairs.kernels.common` for what all kernels
have in common.
"""

import numpy as np
from numba import njit

from pairity.pairs.kernels.common import (
    APART,
    WIDEST,
    exponentials,
    gather,
    items_of,
    pair_terms,
    scatter,
    span,
)


@njit(cache=True, nogil=True)
def _mix(x):
    """The finaliser of splitmix64: every bit of 64 depends on every bit."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(cache=True, nogil=True)
def _share(key, draw):
    """A number from 0 up to, not including, 1."""
    x = _mix(key + np.uint64(draw + 1) * np.uint64(0x9E3779B97F4A7C15))
    return (x >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@njit(cache=True, nogil=True, error_model="numpy")
def sampled(
    first, last, layout, scores, table, query_weight, n_pairs, seed, iteration, gradient, hessian
):
    """Derivatives of the logistic loss, each preferred item compared with `n_pairs` lower ones.

    Items are drawn uniformly and with replacement, and their weights are raised by the ratio of
    lower items to draws. An item with at most `n_pairs` lower ones is compared with all of them.
    """
    room = max(layout.longest, APART)
    s, a, g, h = np.empty(room), np.empty(room), np.empty(room), np.empty(room)
    bits = np.empty(room, dtype=np.int64)
    scale = bits.view(np.float64)
    stream = _mix(_mix(np.uint64(seed)) + np.uint64(iteration))
    for q in range(first, last):
        items = items_of(layout, q)
        order, start, code, weight = items.order, items.start, items.code, items.weight
        n = order.size
        gather(order, scores, s)
        g[:n] = 0.0
        h[:n] = 0.0
        lowest, highest = span(n, s)
        narrow = highest - lowest <= WIDEST
        if narrow and n > 0 and start[0] < n:
            exponentials(n, s, 0.5 * lowest + 0.5 * highest, a, bits, scale)
        for i in range(n):
            lower = n - start[i]
            if lower == 0:
                break  # no later item is preferred to another either
            exhaustive = lower <= n_pairs
            draws = lower if exhaustive else n_pairs
            u = weight[i] * (lower / draws)
            key = _mix(stream + np.uint64(order[i]))
            for draw in range(draws):
                j = start[i] + (draw if exhaustive else np.int64(_share(key, draw) * lower))
                if narrow:
                    r = 1.0 / (a[i] + a[j])
                    t = a[j] * r
                    c = t * (a[i] * r)
                else:
                    t, c = pair_terms(s[i] - s[j])
                w = table[code[i], code[j]] * u * weight[j]
                g[i] -= w * t
                g[j] += w * t
                h[i] += w * c
                h[j] += w * c
        scatter(order, g, query_weight[q], gradient)
        scatter(order, h, query_weight[q], hessian)
