"""Compiled merging of lists with two labels: who is above whom, and who within a margin.

As in `pairity.kernels`, functions walk the queries ``first`` to ``last`` of a layout, release the
GIL, and write what belongs to those queries. `merge` sorts the preferred and the other items of
each list and notes, for each item, how many of the other side come before it: above it, within a
margin below, within a margin above. With these numbers, counts and the hinges of any weights,
`reaching`, need only sums over the first few items of a side: O(n K) a list.

Lists are sorted by insertion from where they were when last looked at. Scores that a small step
has changed are nearly sorted still, and where they are not, the list is sorted anew.

The merge has no branch: each step writes both places and moves on by one on either side; what is
written too early is written again.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_MOVES = 12  # an item, on average: beyond that, sorting anew is faster


@njit(cache=True, nogil=True)
def _sort_again(b, head, end, scores, order, rising, keys):
    """Sort the items of one side by rising score, from their last order."""
    n = end - head
    left = _MOVES * n
    for r in range(n):
        at = r
        item = rising[head + r]
        x = scores[order[b + item]]
        while at > 0 and keys[at - 1] > x:
            keys[at] = keys[at - 1]
            rising[head + at] = rising[head + at - 1]
            at -= 1
        keys[at] = x
        rising[head + at] = item
        left -= r - at
        if left < 0:
            break
    if left < 0:
        for r in range(n):
            keys[r] = scores[order[b + rising[head + r]]]
        places = np.argsort(keys[:n])
        items = rising[head:end].copy()
        sorted_keys = keys[:n][places]
        for r in range(n):
            rising[head + r] = items[places[r]]
            keys[r] = sorted_keys[r]
    keys[n] = np.inf


@njit(cache=True, nogil=True)
def _merge(u, v, upper, lower, margin, above, near, far, up_near, up_far):
    """Where each item of a side stands among those of the other; both end with infinity.

    For the preferred item i, by rising score: `above`, others below it; `near`, others it is at
    least a margin above; `far`, others less than a margin above it, and all below. For the other
    item j: `up_near`, preferred items less than a margin above it, and all below; `up_far`,
    preferred items that it is at least a margin above.
    """
    i0 = i1 = i2 = np.uintp(0)
    j0 = j1 = j2 = np.uintp(0)
    one = np.uintp(1)
    for _ in range(u + v):
        above[i0] = j0
        step = np.uintp(lower[j0] < upper[i0])
        j0 += step
        i0 += one - step
        near[i1] = j1
        up_near[j1] = i1
        step = np.uintp(upper[i1] - lower[j1] < margin)
        i1 += step
        j1 += one - step
        far[i2] = j2
        up_far[j2] = i2
        step = np.uintp(lower[j2] - upper[i2] < margin)
        j2 += step
        i2 += one - step


@njit(cache=True, nogil=True)
def _gather(b, head, end, rising, code, weight, codes, weights):
    """Groups and weights of the items of one side, by rising score."""
    for r in range(end - head):
        item = b + rising[head + r]
        codes[r] = code[item]
        weights[r] = weight[item]


@njit(cache=True, nogil=True)
def _add_up(n, codes, weights, table, sums):
    """``table[k, code] * weight`` of the first items of a side added up, for each code k.

    Two codes at a time: the sums of one item wait for those of the last, but not for each other.
    """
    last = len(table) - 1
    for k in range(0, last + 1, 2):
        more = min(k + 1, last)
        one = two = 0.0
        sums[k, 0] = 0.0
        sums[more, 0] = 0.0
        for r in range(n):
            one += table[k, codes[r]] * weights[r]
            two += table[more, codes[r]] * weights[r]
            sums[k, r + 1] = one
            sums[more, r + 1] = two


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _passed_by(b, head, end, weight, passed, k, below):
    """What some of the preferred items have of group k below them, times their weights."""
    total = 0.0
    for i in range(np.uintp(head), np.uintp(end)):
        total += weight[np.uintp(b) + i] * passed[k, below[i]]
    return total


@njit(cache=True, nogil=True)
def merge(
    first, last, scores, order, bounds, start, code, weight, longest, margin, rising, near, far,
    sums,
):  # fmt: skip
    """Sort both sides of each list and merge them.

    ``rising[b:e]`` lists the items of a query, from 0 in the order of the layout: the preferred
    ones by rising score, then the others. `near` and `far` are those of `_merge` for these places.
    `sums` are of 1[s_i > s_j], ties one half, over the preference pairs of each cell.
    """
    n_codes = sums.shape[1]
    upper = np.empty(longest + 1)
    lower = np.empty(longest + 1)
    codes = np.empty(longest, dtype=np.uint32)
    weights = np.empty(longest)
    each = np.eye(n_codes)
    passed = np.empty((n_codes, longest + 1))
    below, level = np.empty((2, longest), dtype=np.uint32)
    above, u_near, u_far, l_near, l_far = np.empty((5, longest + 1), dtype=np.uint32)
    for q in range(first, last):
        b = bounds[q]
        n = bounds[q + 1] - b
        u = start[b] if n else 0
        v = n - u
        for k in range(n_codes):
            for c in range(n_codes):
                sums[q, k, c] = 0.0
        if v == 0:
            continue
        _sort_again(b, b, b + u, scores, order, rising, upper)
        _sort_again(b, b + u, b + n, scores, order, rising, lower)
        _merge(u, v, upper, lower, margin, above, u_near, u_far, l_near, l_far)
        for i in range(u):
            near[b + i] = u_near[i]
            far[b + i] = u_far[i]
        for j in range(v):
            near[b + u + j] = l_near[j]
            far[b + u + j] = l_far[j]
        _gather(b, b + u, b + n, rising, code, weight, codes, weights)
        _add_up(v, codes, weights, each, passed)
        tied = False
        for i in range(u):
            tied |= lower[above[i]] == upper[i]
            below[rising[b + i]] = above[i]
        if tied:
            at = np.uint32(0)
            for i in range(u):
                at = max(at, above[i])
                while lower[at] == upper[i]:
                    at += np.uint32(1)
                level[rising[b + i]] = at
        head = 0
        while head < u:  # items of one label are listed group by group
            group = code[b + head]
            end = head + 1
            while end < u and code[b + end] == group:
                end += 1
            for k in range(n_codes):
                total = _passed_by(b, head, end, weight, passed, k, below)
                if tied:
                    total = 0.5 * (total + _passed_by(b, head, end, weight, passed, k, level))
                sums[q, group, k] = total
            head = end


@njit(cache=True, nogil=True)
def reaching(
    first, last, order, bounds, start, code, weight, longest, rising, near, far, table, mirrored,
    query_weight, gradient,
):  # fmt: skip
    """The gradient of the weighted hinges on either side of all pairs, as in `losses.two_hinges`.

    Queries without a pair are left out.
    """
    shape = (len(table), longest + 1)
    within = np.empty(shape)
    beyond = np.zeros(shape)
    u_codes, l_codes = np.empty((2, longest), dtype=np.uint32)
    u_weights, l_weights = np.empty((2, longest))
    columns = np.ascontiguousarray(table.T)
    mirrored_columns = np.ascontiguousarray(mirrored.T)
    both = mirrored.any()
    for q in range(first, last):
        b = bounds[q]
        n = bounds[q + 1] - b
        u = start[b] if n else 0
        v = n - u
        if v == 0:
            continue
        _gather(b, b, b + u, rising, code, weight, u_codes, u_weights)
        _gather(b, b + u, b + n, rising, code, weight, l_codes, l_weights)
        _add_up(v, l_codes, l_weights, table, within)
        if both:
            _add_up(v, l_codes, l_weights, mirrored, beyond)
        for r in range(u):
            k = u_codes[r]
            slope = beyond[k, far[b + r]] - (within[k, v] - within[k, near[b + r]])
            gradient[order[b + rising[b + r]]] = query_weight[q] * u_weights[r] * slope
        _add_up(u, u_codes, u_weights, columns, within)
        if both:
            _add_up(u, u_codes, u_weights, mirrored_columns, beyond)
        for r in range(v):
            k = l_codes[r]
            slope = within[k, near[b + u + r]] - (beyond[k, u] - beyond[k, far[b + u + r]])
            gradient[order[b + rising[b + u + r]]] = query_weight[q] * l_weights[r] * slope
