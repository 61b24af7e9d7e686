"""Compiled loops that count how often the first item of a pair is above the other, by cell.

Lists of up to `SHORT` items compare all pairs, four items with a row of others at a time; longer
ones are sorted. See `pairity.pairs.kernels.common` for what all kernels have in common.
"""

import numpy as np
from numba import njit

from pairity.pairs.kernels.common import APART, LANES, gather, group_ends, items_of, padded

SHORT = 500  # items; comparing all pairs of such lists is faster than sorting them
_FAST = {"reassoc", "contract", "nsz"}


@njit(cache=True, nogil=True)
def add_lower(tree, upto, amount, row):
    """Add `amount` times the sums of a Fenwick tree below the level `upto`, for each group."""
    node = upto
    while node > 0:
        for k in range(row.size):
            row[k] += amount * tree[node, k]
        node -= node & -node


@njit(cache=True, nogil=True)
def insert(tree, level, n_levels, group, amount):
    """Add an item of a label and a group to a Fenwick tree."""
    node = level + 1
    while node <= n_levels:
        tree[node, group] += amount
        node += node & -node


@njit(cache=True, nogil=True, fastmath=_FAST)
def _passed_4(lo, hi, s, passed, s0, s1, s2, s3, u0, u1, u2, u3):
    """Add to each item half the weight of each of four others if above it, half if not below."""
    for j in range(np.uintp(lo), np.uintp(hi)):
        x = s[j]
        a0 = (u0 if s0 > x else 0.0) + (u0 if s0 >= x else 0.0)
        a1 = (u1 if s1 > x else 0.0) + (u1 if s1 >= x else 0.0)
        a2 = (u2 if s2 > x else 0.0) + (u2 if s2 >= x else 0.0)
        a3 = (u3 if s3 > x else 0.0) + (u3 if s3 >= x else 0.0)
        passed[j] += (a0 + a1) + (a2 + a3)


@njit(cache=True, nogil=True, fastmath=_FAST)
def _passed_1(lo, hi, s, passed, s0, u0):
    for j in range(np.uintp(lo), np.uintp(hi)):
        passed[j] += (u0 if s0 > s[j] else 0.0) + (u0 if s0 >= s[j] else 0.0)


@njit(cache=True, nogil=True)
def _compare(s, items, all_pairs, half, passed, sums):
    """One list, all pairs compared: group by group, which items theirs are above.

    Rows end with full vectors, behind the last item.
    """
    start, code, by_group, weight = items.start, items.code, items.by_group, items.weight
    n = code.size
    for i in range(n):
        half[i] = 0.5 * weight[i]
    for j in range(n, n + LANES):
        s[j] = 0.0
        passed[j] = 0.0
    head = 0
    while head < n:
        k = code[by_group[head]]
        end, last = group_ends(head, n, start, code, by_group)
        if all_pairs:
            last = end
        lowest = 0 if all_pairs else start[by_group[head]]
        for j in range(lowest, n):
            passed[j] = 0.0
        r = head
        while r < last:
            i = by_group[r]
            lo = 0 if all_pairs else start[i]
            hi = padded(lo, n)
            if r + 4 <= last and (all_pairs or start[by_group[r + 3]] == lo):
                i1, i2, i3 = by_group[r + 1], by_group[r + 2], by_group[r + 3]
                _passed_4(
                    lo, hi, s, passed, s[i], s[i1], s[i2], s[i3],
                    half[i], half[i1], half[i2], half[i3],
                )  # fmt: skip
                r += 4
            else:
                _passed_1(lo, hi, s, passed, s[i], half[i])
                r += 1
        for j in range(lowest, n):
            sums[k, code[j]] += weight[j] * passed[j]
        if all_pairs:  # an item forms no pair with itself
            for r in range(head, end):
                sums[k, k] -= half[by_group[r]] * weight[by_group[r]]
        head = end


@njit(cache=True, nogil=True)
def _sweep(s, items, all_pairs, tree, sums):
    """One list, by sorting.

    Scores are taken in rising order. A Fenwick tree over the labels counts, per group, the items
    already passed whose label is lower (any label with `all_pairs`). Ties count as the mean of
    before and after the insertion of their block.
    """
    level, code, weight = items.level, items.code, items.weight
    n = code.size
    n_levels = 1 if all_pairs else level[0] + 1
    tree[: n_levels + 1] = 0.0
    rising = np.argsort(s)
    head = 0
    while head < n:
        end = head + 1
        while end < n and s[rising[end]] == s[rising[head]]:
            end += 1
        tied = end - head > 1
        for r in range(head, end):
            i = rising[r]
            amount = 0.5 * weight[i] if tied else weight[i]
            add_lower(tree, 1 if all_pairs else level[i], amount, sums[code[i]])
        for r in range(head, end):
            i = rising[r]
            insert(tree, 0 if all_pairs else level[i], n_levels, code[i], weight[i])
        for r in range(head, end if tied else head):
            i = rising[r]
            add_lower(tree, 1 if all_pairs else level[i], 0.5 * weight[i], sums[code[i]])
            if all_pairs:  # an item forms no pair with itself
                sums[code[i], code[i]] -= 0.5 * weight[i] * weight[i]
        head = end


@njit(cache=True, nogil=True)
def hard_sums(first, last, layout, scores, short, all_pairs, sums):
    """Sums of 1[s_i > s_j], ties one half, over the pairs of each cell.

    Lists longer than `short` are sorted.
    """
    room = max(layout.longest + LANES, APART)
    s, half, passed = np.empty(room), np.empty(room), np.empty(room)
    tree = np.empty((layout.longest + 1 if layout.longest > short else 1, sums.shape[1]))
    for q in range(first, last):
        items = items_of(layout, q)
        n = items.order.size
        sums[q] = 0.0
        if n < 2 or (items.level[0] == 0 and not all_pairs):
            continue
        gather(items.order, scores, s)
        if n <= short:
            _compare(s, items, all_pairs, half, passed, sums[q])
        else:
            _sweep(s[:n], items, all_pairs, tree, sums[q])


@njit(cache=True, nogil=True)
def pair_counts(first, last, layout, all_pairs, counts):
    """The weight of the pairs in each cell: preference pairs, or all ordered pairs."""
    n_codes = counts.shape[1]
    lower = np.empty(n_codes)
    for q in range(first, last):
        items = items_of(layout, q)
        start, code, weight = items.start, items.code, items.weight
        passed = code.size
        counts[q] = 0.0
        lower[:] = 0.0
        for i in range(code.size - 1, -1, -1):
            while passed > (0 if all_pairs else start[i]):
                passed -= 1
                lower[code[passed]] += weight[passed]
            for j in range(n_codes):
                counts[q, code[i], j] += weight[i] * lower[j]
            if all_pairs:  # an item forms no pair with itself
                counts[q, code[i], code[i]] -= weight[i] * weight[i]
