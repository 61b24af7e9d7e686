"""Compiled loops for sums over the pairs of each item, by the group of the other item.

See `pairity.pairs.kernels.common` for what all kernels have in common.
"""

import numpy as np
from numba import njit

from pairity.pairs.kernels.common import WIDEST, exponentials, gather, items_of, pair_terms, span


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
            miss, curvature = pair_terms(s[i] - s[j])
            t = curvature if curved else miss
            t *= weight[i] * weight[j] * stride
            above[i, code[j]] += t
            below[j, code[i]] += t


@njit(cache=True, nogil=True)
def sums_by_group(first, last, layout, scores, factors, options, sums):
    """Sums of t = σ(s_j - s_i), or of t (1 - t), over the pairs of each item, in row order.

    ``sums[i, l]`` is over the lower items j of group l, times ``factors[q, k, l]`` with the group k
    of the item; ``sums[j, K + k]`` is over the preferred items of group k. Of the lower items of
    an item, about `most` are visited, at equal distances.
    """
    most, curved, both_orders = options
    n_groups = factors.shape[1]
    s, a = np.empty(layout.longest), np.empty(layout.longest)
    bits = np.empty(layout.longest, dtype=np.int64)
    scale = bits.view(np.float64)
    above = np.empty((layout.longest, n_groups + 1))  # the last column is the missing group
    below = np.empty((layout.longest, n_groups + 1))
    for q in range(first, last):
        items = items_of(layout, q)
        n = items.order.size
        gather(items.order, scores, s)
        above[:n] = 0.0
        below[:n] = 0.0
        if n > 0 and items.start[0] < n:
            lowest, highest = span(n, s)
            if highest - lowest <= WIDEST:
                exponentials(n, s, 0.5 * lowest + 0.5 * highest, a, bits, scale)
                _pairs_direct(items, a, most, curved, above, below)
            else:
                _pairs_wide(items, s, most, curved, above, below)
        for i in range(n):
            own, row = items.code[i], items.order[i]
            for k in range(n_groups):
                first_sum, second_sum = above[i, k], below[i, k]
                if both_orders:
                    first_sum = second_sum = first_sum + second_sum
                known = own < n_groups
                sums[row, k] = first_sum * factors[q, own, k] if known else 0.0
                sums[row, n_groups + k] = second_sum * factors[q, k, own] if known else 0.0
