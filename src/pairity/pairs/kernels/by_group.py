"""Compiled loops for sums over the pairs of each item, by the group of the other item.

See `pairity.pairs.kernels.common` for what all kernels have in common.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from pairity.pairs.kernels.common import WIDEST, exponentials, gather, items_of, span


@njit(cache=True, nogil=True, error_model="numpy")
def _pairs_direct(items, a, most, curved, above, below):
    """One query whose scores lie within `WIDEST`; `a` holds their exponentials."""
    _, start, _, code, _, weight = items
    n = code.size
    for i in range(n):
        stride = -(-(n - start[i]) // most) if start[i] < n else 1
        k, u, x = code[i], weight[i] * stride, a[i]
        own = above[i]
        for j in range(start[i] + i % stride, n, stride):
            r = 1.0 / (x + a[j])
            t = a[j] * r
            if curved:
                t *= x * r
            t *= u
            own[code[j]] += weight[j] * t
            below[j, k] += weight[j] * t


@njit(cache=True, nogil=True, error_model="numpy")
def _pairs_wide(items, s, most, curved, above, below):
    """One query with scores of any size: an exponential for each pair."""
    _, start, _, code, _, weight = items
    n = code.size
    for i in range(n):
        stride = -(-(n - start[i]) // most) if start[i] < n else 1
        for j in range(start[i] + i % stride, n, stride):
            d = s[i] - s[j]
            e = np.exp(-abs(d))
            p = 1.0 / (1.0 + e)
            t = e * p * p if curved else (e * p if d >= 0 else p)
            t *= weight[i] * weight[j] * stride
            above[i, code[j]] += t
            below[j, code[i]] += t


@njit(cache=True, nogil=True)
def sums_by_group(first, last, layout, scores, most, curved, above, below):
    """Sums of t = σ(s_j - s_i), or of t (1 - t), over the pairs of each item, in row order.

    ``above[i, l]`` is over the lower items of group l, ``below[j, k]`` over the preferred items of
    group k. Of the lower items of an item, about `most` are visited, at equal distances.
    """
    n_codes = above.shape[1]
    s, a = np.empty(layout.longest), np.empty(layout.longest)
    bits = np.empty(layout.longest, dtype=np.int64)
    scale = bits.view(np.float64)
    up, down = np.empty((layout.longest, n_codes)), np.empty((layout.longest, n_codes))
    for q in range(first, last):
        items = items_of(layout, q)
        n = items.order.size
        gather(items.order, scores, s)
        up[:n] = 0.0
        down[:n] = 0.0
        if n > 0 and items.start[0] < n:
            lowest, highest = span(n, s)
            if highest - lowest <= WIDEST:
                exponentials(n, s, 0.5 * lowest + 0.5 * highest, a, bits, scale)
                _pairs_direct(items, a, most, curved, up, down)
            else:
                _pairs_wide(items, s, most, curved, up, down)
        for i in range(n):
            row = items.order[i]
            for c in range(n_codes):
                above[row, c] = up[i, c]
                below[row, c] = down[i, c]
