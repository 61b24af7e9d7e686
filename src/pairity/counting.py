"""Compiled counting: how often the first item of a pair is above the other, by cell, by sorting.

As in `pairity.kernels`, functions walk the queries ``first`` to ``last`` of a layout, release the
GIL, and write what belongs to those queries.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def _add_lower(tree, upto, amount, row):
    """Add `amount` times what a Fenwick tree holds below the level `upto`, for every group."""
    at = upto
    while at > 0:
        for k in range(row.size):
            row[k] += amount * tree[at, k]
        at -= at & -at


@njit(cache=True, nogil=True)
def _insert(tree, level, n_levels, group, amount):
    at = level + 1
    while at <= n_levels:
        tree[at, group] += amount
        at += at & -at


@njit(cache=True, nogil=True)
def hard_sums(first, last, scores, order, bounds, level, code, weight, longest, all_pairs, sums):
    """Sums of 1[s_i > s_j], ties one half, over the pairs of each cell, by sorting.

    Scores are taken in rising order; a Fenwick tree over the labels counts, per group, the items
    already passed whose label is lower (any label with `all_pairs`). Ties are counted as the mean
    of before and after their block went in.
    """
    n_codes = sums.shape[1]
    tree = np.empty((longest + 1, n_codes))
    for q in range(first, last):
        b = bounds[q]
        e = bounds[q + 1]
        n = e - b
        sums[q] = 0.0
        n_levels = 1 if all_pairs else level[b] + 1
        if n < 2 or (n_levels == 1 and not all_pairs):
            continue
        tree[: n_levels + 1] = 0.0
        s = scores[order[b:e]]
        rising = np.argsort(s)
        head = 0
        while head < n:
            end = head + 1
            while end < n and s[rising[end]] == s[rising[head]]:
                end += 1
            tied = end - head > 1
            for r in range(head, end):
                i = b + rising[r]
                upto = 1 if all_pairs else level[i]
                amount = 0.5 * weight[i] if tied else weight[i]
                _add_lower(tree, upto, amount, sums[q, code[i]])
            for r in range(head, end):
                i = b + rising[r]
                _insert(tree, 0 if all_pairs else level[i], n_levels, code[i], weight[i])
            if tied:
                for r in range(head, end):
                    i = b + rising[r]
                    upto = 1 if all_pairs else level[i]
                    _add_lower(tree, upto, 0.5 * weight[i], sums[q, code[i]])
                    if all_pairs:  # an item makes no pair with itself
                        sums[q, code[i], code[i]] -= 0.5 * weight[i] * weight[i]
            head = end


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
