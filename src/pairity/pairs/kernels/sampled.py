"""Compiled loop for the logistic loss on sampled pairs, as in BPR.

A hash of (seed, iteration, row, draw) selects the items that a preferred item is compared with, so
neither threads nor blocks change the draws. See `pairity.pairs.kernels.common` for what all kernels
have in common.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from pairity.pairs.kernels.common import APART, WIDEST, exponentials, span


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
    first, last, scores, order, bounds, start, code, weight, longest, table, query_weight,
    n_pairs, seed, iteration, gradient, hessian,
):  # fmt: skip
    """Derivatives of the logistic loss, each preferred item compared with `n_pairs` lower ones.

    Items are drawn uniformly and with replacement, and weigh as many times more as there are more
    to draw from; an item with no more than `n_pairs` lower ones is compared with them all.
    """
    room = max(longest, APART)
    s = np.empty(room)
    a = np.empty(room)
    g = np.empty(room)
    h = np.empty(room)
    bits = np.empty(room, dtype=np.int64)
    scale = bits.view(np.float64)
    stream = _mix(_mix(np.uint64(seed)) + np.uint64(iteration))
    for q in range(first, last):
        b = bounds[q]
        n = bounds[q + 1] - b
        for i in range(n):
            s[i] = scores[order[b + i]]
            g[i] = 0.0
            h[i] = 0.0
        lowest, highest = span(n, s)
        narrow = highest - lowest <= WIDEST
        if narrow and start[b] < n:
            exponentials(n, s, 0.5 * lowest + 0.5 * highest, a, bits, scale)
        for i in range(n):
            lower = n - start[b + i]
            if lower == 0:
                break  # nor is any item behind preferred to another
            every = lower <= n_pairs
            draws = lower if every else n_pairs
            u = weight[b + i] * (lower / draws)
            key = _mix(stream + np.uint64(order[b + i]))
            for draw in range(draws):
                j = start[b + i] + (draw if every else np.int64(_share(key, draw) * lower))
                if narrow:
                    r = 1.0 / (a[i] + a[j])
                    t = a[j] * r
                    c = t * (a[i] * r)
                else:
                    d = s[i] - s[j]
                    x = np.exp(-abs(d))
                    r = 1.0 / (1.0 + x)
                    t = x * r if d >= 0 else r
                    c = x * r * r
                w = table[code[b + i], code[b + j]] * u * weight[b + j]
                g[i] -= w * t
                g[j] += w * t
                h[i] += w * c
                h[j] += w * c
        v = query_weight[q]
        for i in range(n):
            gradient[order[b + i]] = v * g[i]
            hessian[order[b + i]] = v * h[i]
