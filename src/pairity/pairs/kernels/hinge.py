"""Compiled loops for the hinge loss: which pairs are less than a margin apart.

Lists of up to `SHORT` items compare all pairs, which is faster there than sorting; longer ones are
sorted and swept, with a Fenwick tree over the labels that counts, per group, the items within
reach. See `pairity.pairs.kernels.common` for what all kernels have in common.
"""

import numpy as np
from numba import njit

from pairity.pairs.kernels.common import APART, FAST, LANES, gather, group_ends, items_of, padded
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
def _hinge_pairs(s, items, table, margin, w, above, below):
    """One list, all pairs compared.

    `above` and `below` sum an item's pairs as the preferred and as the other item. Rows end with
    full vectors: what lies behind the last item has no weight.
    """
    start, code, by_group, weight = items.start, items.code, items.by_group, items.weight
    n = code.size
    for j in range(n, n + LANES):
        s[j] = 0.0
        w[j] = 0.0
        below[j] = 0.0
    head = 0
    while head < n:
        k = code[by_group[head]]
        end, last = group_ends(head, n, start, code, by_group)
        if not table[k].any():
            last = head
        if last > head:
            for j in range(start[by_group[head]], n):
                w[j] = table[k, code[j]] * weight[j]
        r = head
        while r < last:
            i = by_group[r]
            lo = start[i]
            hi = padded(lo, n)
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
def _sweep_side(s, order, level, items, table, margin, tree, row, sums):
    """Add up each item's pairs with the items of lower level within reach.

    `order` lists the items by falling score, so that the items within reach are a growing set.
    """
    code, weight = items.code, items.weight
    n = code.size
    n_levels = max(level[0], level[n - 1]) + 1
    tree[: n_levels + 1] = 0.0
    passed = 0
    for r in range(n):
        i = order[r]
        while passed < n and s[i] - s[order[passed]] < margin:
            j = order[passed]
            insert(tree, level[j], n_levels, code[j], weight[j])
            passed += 1
        row[:] = 0.0
        add_lower(tree, level[i], weight[i], row)
        for k in range(row.size):
            sums[i] += table[code[i], k] * row[k]


@njit(cache=True, nogil=True)
def _hinge_sorted(s, items, table, margin, tree, row, above, below):
    """One list, swept twice: each item as the preferred one, and as the other."""
    falling = np.argsort(s)[::-1]
    _sweep_side(s, falling, items.level, items, table, margin, tree, row, above)
    upside_down = items.level[0] - items.level  # higher labels, scores below s_j + margin
    columns = np.ascontiguousarray(table.T)
    _sweep_side(-s, falling[::-1], upside_down, items, columns, margin, tree, row, below)


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def hinge(
    first, last, layout, scores, short, table, mirrored, query_weight, margin, losses, gradient,
    hessian,
):  # fmt: skip
    """Weighted hinge loss of each query, its gradient, and the weight of violated pairs / margin.

    A pair costs `table` times max(0, margin - d) and `mirrored` times max(0, margin + d), where d
    is the preferred item's score minus the other's. The second term is the first with scores and
    sides exchanged. Lists longer than `short` are swept.
    """
    room = max(layout.longest + LANES, APART)
    s, w, above, below = np.empty(room), np.empty(room), np.empty(room), np.empty(room)
    row = np.empty(table.shape[0])
    tree = np.empty((layout.longest + 1 if layout.longest > short else 1, table.shape[0]))
    for q in range(first, last):
        items = items_of(layout, q)
        order = items.order
        n = order.size
        gather(order, scores, s)
        above[:n] = 0.0
        below[:n] = 0.0
        for side in range(2 if n > 0 and items.start[0] < n else 0):
            weights = mirrored if side else table
            if not weights.any():
                continue
            higher = below if side else above
            lower = above if side else below
            if side:
                for i in range(n):
                    s[i] = -s[i]
            if n <= short:
                _hinge_pairs(s, items, weights, margin, w, higher, lower)
            else:
                _hinge_sorted(s[:n], items, weights, margin, tree, row, higher, lower)
        v = query_weight[q]
        centre = scores[order[0]] if n else 0.0
        loss = 0.0
        for i in range(n):  # the distance of each violated pair from its margin, at its two items
            x = scores[order[i]] - centre
            loss += below[i] * x - above[i] * (x - margin)
            gradient[order[i]] = v * (below[i] - above[i])
            hessian[order[i]] = v / margin * (below[i] + above[i])
        losses[q] = v * loss
