"""Compiled counting: how often the first item of a pair is above the other, by cell.

As in `pairity.pairs.kernels.logistic`, functions walk the queries ``first`` to ``last`` of a
layout, release the
GIL, and write what belongs to those queries. Lists of up to `SHORT` items compare all pairs, four
items with a row of others at a time; longer ones are sorted.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from pairity.pairs.kernels.common import APART, LANES, group_end, preferring

SHORT = 500  # items; comparing all pairs of such lists is faster than sorting them
_FAST = {"reassoc", "contract", "nsz"}


@njit(cache=True, nogil=True)
def add_lower(tree, upto, amount, row):
    """Add `amount` times what a Fenwick tree holds below the level `upto`, for every group."""
    at = upto
    while at > 0:
        for k in range(row.size):
            row[k] += amount * tree[at, k]
        at -= at & -at


@njit(cache=True, nogil=True)
def insert(tree, level, n_levels, group, amount):
    """Add an item of a label and a group to a Fenwick tree."""
    at = level + 1
    while at <= n_levels:
        tree[at, group] += amount
        at += at & -at


@njit(cache=True, nogil=True, fastmath=_FAST)
def _passed_4(lo, hi, s, passed, s0, s1, s2, s3, u0, u1, u2, u3):
    """Add to each item the half weights of those of four others above it, and of those level."""
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
def _compare(n, s, start, code, by_group, weight, all_pairs, half, passed, sums):
    """One list, all pairs compared: for the items of one group after the other, whom they pass.

    Rows end with whole vectors, behind the last item.
    """
    for i in range(n):
        half[i] = 0.5 * weight[i]
    for j in range(n, n + LANES):
        s[j] = 0.0
        passed[j] = 0.0
    head = 0
    while head < n:
        k = code[by_group[head]]
        end = group_end(head, n, code, by_group)
        last = end if all_pairs else preferring(head, end, n, start, by_group)
        lowest = 0 if all_pairs else (start[by_group[head]] if last > head else n)
        for j in range(lowest, n):
            passed[j] = 0.0
        r = head
        while r < last:
            i = by_group[r]
            lo = 0 if all_pairs else start[i]
            hi = lo + (n - lo + LANES - 1) // LANES * LANES
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
        if all_pairs:  # an item makes no pair with itself
            for r in range(head, end):
                sums[k, k] -= half[by_group[r]] * weight[by_group[r]]
        head = end


@njit(cache=True, nogil=True)
def _sweep(n, s, level, code, weight, all_pairs, tree, sums):
    """One list, by sorting.

    Scores are taken in rising order; a Fenwick tree over the labels counts, per group, the items
    already passed whose label is lower (any label with `all_pairs`). Ties are counted as the mean
    of before and after their block went in.
    """
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
            upto = 1 if all_pairs else level[i]
            amount = 0.5 * weight[i] if tied else weight[i]
            add_lower(tree, upto, amount, sums[code[i]])
        for r in range(head, end):
            i = rising[r]
            insert(tree, 0 if all_pairs else level[i], n_levels, code[i], weight[i])
        if tied:
            for r in range(head, end):
                i = rising[r]
                upto = 1 if all_pairs else level[i]
                add_lower(tree, upto, 0.5 * weight[i], sums[code[i]])
                if all_pairs:  # an item makes no pair with itself
                    sums[code[i], code[i]] -= 0.5 * weight[i] * weight[i]
        head = end


@njit(cache=True, nogil=True)
def hard_sums(
    first, last, scores, order, bounds, start, level, code, by_group, weight, longest, short,
    all_pairs, sums,
):  # fmt: skip
    """Sums of 1[s_i > s_j], ties one half, over the pairs of each cell.

    Lists longer than `short` are sorted.
    """
    room = max(longest + LANES, APART)
    s = np.empty(room)
    half = np.empty(room)
    passed = np.empty(room)
    tree = np.empty((longest + 1 if longest > short else 1, sums.shape[1]))
    for q in range(first, last):
        b = bounds[q]
        e = bounds[q + 1]
        n = e - b
        sums[q] = 0.0
        if n < 2 or (level[b] == 0 and not all_pairs):
            continue
        for i in range(n):
            s[i] = scores[order[b + i]]
        if n <= short:
            _compare(
                n, s, start[b:e], code[b:e], by_group[b:e], weight[b:e], all_pairs, half, passed,
                sums[q],
            )  # fmt: skip
        else:
            _sweep(n, s[:n], level[b:e], code[b:e], weight[b:e], all_pairs, tree, sums[q])


@njit(cache=True, nogil=True)
def pair_counts(first, last, bounds, start, code, weight, all_pairs, counts):
    """The weight of the pairs in each cell: preference pairs, or all ordered pairs."""
    n_codes = counts.shape[1]
    lower = np.empty(n_codes)
    for q in range(first, last):
        b = bounds[q]
        e = bounds[q + 1]
        counts[q] = 0.0
        lower[:] = 0.0
        if all_pairs:
            for i in range(b, e):
                lower[code[i]] += weight[i]
            for i in range(b, e):
                for j in range(n_codes):
                    counts[q, code[i], j] += weight[i] * lower[j]
                counts[q, code[i], code[i]] -= weight[i] * weight[i]
        else:
            passed = e
            for i in range(e - 1, b - 1, -1):
                while passed > b + start[i]:
                    passed -= 1
                    lower[code[passed]] += weight[passed]
                for j in range(n_codes):
                    counts[q, code[i], j] += weight[i] * lower[j]
