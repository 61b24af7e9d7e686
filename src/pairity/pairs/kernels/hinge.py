"""Compiled loops for the hinge loss: which pairs are not a margin apart.

As in `pairity.pairs.kernels.logistic`, `hinge` walks the queries ``first`` to ``last`` of a
layout, releases the
GIL, writes what belongs to those queries in the caller's row order, and stores no pair. The
gradient counts pairs that are not a margin apart. Lists of up to `SHORT` items compare all pairs,
which is faster there than sorting; longer ones are sorted and swept, with a Fenwick tree over the
labels that counts, per group, the items within reach.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from pairity.pairs.kernels.common import APART, FAST, LANES, group_end, preferring
from pairity.pairs.kernels.counting import add_lower, insert

SHORT = 2000  # items; comparing all pairs of such lists is faster than sorting them


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _hinge_row(lo, hi, s, w, below, s0, u0, margin):
    total = 0.0
    for j in range(np.uintp(lo), np.uintp(hi)):
        amount = w[j] if s0 - s[j] < margin else 0.0
        total += amount
        below[j] += u0 * amount
    return total


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _hinge_rows_4(lo, hi, s, w, below, s0, s1, s2, s3, u0, u1, u2, u3, margin):
    """Four preferred items at a time: the lower ones are read and written once for all."""
    t0 = t1 = t2 = t3 = 0.0
    for j in range(np.uintp(lo), np.uintp(hi)):
        a0 = w[j] if s0 - s[j] < margin else 0.0
        a1 = w[j] if s1 - s[j] < margin else 0.0
        a2 = w[j] if s2 - s[j] < margin else 0.0
        a3 = w[j] if s3 - s[j] < margin else 0.0
        t0 += a0
        t1 += a1
        t2 += a2
        t3 += a3
        below[j] += (u0 * a0 + u1 * a1) + (u2 * a2 + u3 * a3)
    return t0, t1, t2, t3


@njit(cache=True, nogil=True)
def _hinge_pairs(n, s, start, code, by_group, weight, table, margin, w, above, below):
    """One list, all pairs compared; `above` and `below` gather an item's pairs by its side.

    Rows end with whole vectors: what lies behind the last item weighs nothing.
    """
    for j in range(n, n + LANES):
        s[j] = 0.0
        w[j] = 0.0
        below[j] = 0.0
    head = 0
    while head < n:
        k = code[by_group[head]]
        end = group_end(head, n, code, by_group)
        last = preferring(head, end, n, start, by_group) if table[k].any() else head
        if last > head:
            for j in range(start[by_group[head]], n):
                w[j] = table[k, code[j]] * weight[j]
        r = head
        while r < last:
            i = by_group[r]
            lo = start[i]
            hi = lo + (n - lo + LANES - 1) // LANES * LANES
            if r + 4 <= last and start[by_group[r + 3]] == lo:
                i1, i2, i3 = by_group[r + 1], by_group[r + 2], by_group[r + 3]
                t0, t1, t2, t3 = _hinge_rows_4(
                    lo, hi, s, w, below, s[i], s[i1], s[i2], s[i3],
                    weight[i], weight[i1], weight[i2], weight[i3], margin,
                )  # fmt: skip
                above[i] += weight[i] * t0
                above[i1] += weight[i1] * t1
                above[i2] += weight[i2] * t2
                above[i3] += weight[i3] * t3
                r += 4
            else:
                total = _hinge_row(lo, hi, s, w, below, s[i], weight[i], margin)
                above[i] += weight[i] * total
                r += 1
        head = end


@njit(cache=True, nogil=True)
def _hinge_sorted(n, s, level, code, weight, table, margin, falling, tree, row, above, below):
    """One list, swept twice: the items within reach of a score are a growing set."""
    n_levels = level[0] + 1
    top = n_levels - 1
    tree[: n_levels + 1] = 0.0
    passed = 0
    for r in range(n):  # as the preferred item: lower labels, scores above s_i - margin
        i = falling[r]
        while passed < n and s[i] - s[falling[passed]] < margin:
            j = falling[passed]
            insert(tree, level[j], n_levels, code[j], weight[j])
            passed += 1
        row[:] = 0.0
        add_lower(tree, level[i], weight[i], row)
        for k in range(row.size):
            above[i] += table[code[i], k] * row[k]
    tree[: n_levels + 1] = 0.0
    passed = n - 1
    for r in range(n - 1, -1, -1):  # as the other item: higher labels, scores below s_j + margin
        j = falling[r]
        while passed >= 0 and s[falling[passed]] - s[j] < margin:
            i = falling[passed]
            insert(tree, top - level[i], n_levels, code[i], weight[i])
            passed -= 1
        row[:] = 0.0
        add_lower(tree, top - level[j], weight[j], row)
        for k in range(row.size):
            below[j] += table[k, code[j]] * row[k]


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def hinge(
    first, last, scores, order, bounds, start, level, code, by_group, weight, longest, short,
    table, mirrored, query_weight, margin, gradient, hessian, losses,
):  # fmt: skip
    """Weighted hinge loss of each query, its gradient, and the weight of violated pairs / margin.

    A pair costs `table` times max(0, margin - d) and `mirrored` times max(0, margin + d), d by how
    much the preferred item is ahead: the second is the first with scores and sides exchanged.
    Lists longer than `short` are swept.
    """
    room = max(longest + LANES, APART)
    s = np.empty(room)
    w = np.empty(room)
    above = np.empty(room)
    below = np.empty(room)
    row = np.empty(table.shape[0])
    tree = np.empty((longest + 1 if longest > short else 1, table.shape[0]))
    for q in range(first, last):
        b = bounds[q]
        e = bounds[q + 1]
        n = e - b
        for i in range(n):
            s[i] = scores[order[b + i]]
            above[i] = 0.0
            below[i] = 0.0
        for side in range(2 if start[b] < n else 0):
            weights = mirrored if side else table
            if not weights.any():
                continue
            higher = below if side else above
            lower = above if side else below
            if side:
                for i in range(n):
                    s[i] = -s[i]
            if n <= short:
                _hinge_pairs(
                    n, s, start[b:e], code[b:e], by_group[b:e], weight[b:e], weights, margin, w,
                    higher, lower,
                )  # fmt: skip
            else:
                falling = np.argsort(s[:n])[::-1]
                _hinge_sorted(
                    n, s, level[b:e], code[b:e], weight[b:e], weights, margin, falling, tree, row,
                    higher, lower,
                )  # fmt: skip
        v = query_weight[q]
        centre = scores[order[b]] if n else 0.0
        loss = 0.0
        for i in range(n):  # each violated pair's distance from its margin, at its two items
            at = order[b + i]
            x = scores[at] - centre
            loss += below[i] * x - above[i] * (x - margin)
            gradient[at] = v * (below[i] - above[i])
            hessian[at] = v / margin * (below[i] + above[i])
        losses[q] = v * loss
