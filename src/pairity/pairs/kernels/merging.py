"""Compiled merging of lists with two labels: which items are above, or within a margin.

`merge` sorts the preferred and the other items of each list. For each item it stores how many items
of the opposite side precede it: above it, within a margin below, within a margin above. From these
numbers, counts and the hinges of any weights (`reaching`) need only cumulative sums over a side,
which are stored by group: O(n K) per list.

Lists are sorted by insertion from their last order. Scores that a small step has changed are still
nearly sorted; if they are not, the list is sorted again from scratch.

The merge has no branch: each step writes both places and advances one of the two sides; values that
are written too early are overwritten. See `pairity.pairs.kernels.common` for what all kernels have
in common.
"""

import numpy as np
from numba import njit

from pairity.pairs.kernels.common import inlined

_MOVES = 12  # per item, on average; beyond that, sorting from scratch is faster


@njit(cache=True, nogil=True)
def _sort_again(b, head, end, scores, order, rising, keys):
    """Sort the items of one side by rising score, from their last order; infinity ends the keys."""
    n = end - head
    left = _MOVES * n
    highest = -np.inf
    for r in range(np.uintp(0), np.uintp(n)):
        item = rising[np.uintp(head) + r]
        x = scores[order[np.uintp(b) + np.uintp(item)]]
        if x >= highest:  # where it was
            keys[r] = x
            highest = x
            continue
        place = np.uintp(r)
        while place > 0 and keys[place - np.uintp(1)] > x:
            keys[place] = keys[place - np.uintp(1)]
            rising[np.uintp(head) + place] = rising[np.uintp(head) + place - np.uintp(1)]
            place -= np.uintp(1)
            left -= 1
        keys[place] = x
        rising[np.uintp(head) + place] = item
        if left < 0:
            break
    if left < 0:
        items = rising[head:end].copy()
        keys[:n] = scores[order[b + items]]
        places = np.argsort(keys[:n])
        rising[head:end] = items[places]
        keys[:n] = keys[:n][places]
    keys[n] = np.inf


@inlined
def _merge(u, v, upper, lower, margin, above, near, far, up_near, up_far):
    """The place of each item among those of the opposite side; both sides end with infinity.

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


@inlined
def _add_up(b, head, n, rising, code, weight, begin, sums):
    """Cumulative weights of the items of a side, for each code, from ``sums[k, begin] = 0``.

    Two codes are summed at a time: each sum depends on the previous item's, but not on the other.
    """
    last = len(sums) - 1
    for k in range(0, last + 1, 2):
        more = min(k + 1, last)
        first = second = 0.0
        sums[k, begin] = 0.0
        sums[more, begin] = 0.0
        for r in range(np.uintp(0), np.uintp(n)):
            item = np.uintp(b) + np.uintp(rising[np.uintp(head) + r])
            first += weight[item] if code[item] == k else 0.0
            second += weight[item] if code[item] == more else 0.0
            sums[k, np.uintp(begin + 1) + r] = first
            sums[more, np.uintp(begin + 1) + r] = second


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _weigh(b, head, end, weight, passed):
    """The sum over the items of a group of what they passed, times their weights."""
    total = 0.0
    for i in range(np.uintp(head), np.uintp(end)):
        total += weight[np.uintp(b) + i] * passed[i]
    return total


@njit(cache=True, nogil=True)
def merge(first, last, layout, scores, margin, rising, near, far, sums, cells):
    """Sort both sides of each list and merge them.

    ``rising[b:e]`` lists the items of a query, from 0 in the order of the layout: the preferred
    ones by rising score, then the others. `near` and `far` are those of `_merge` for these places,
    and `sums` their cumulative weights for each code: of the preferred ones from ``b + 2q`` on,
    then of the others. `cells` are sums of 1[s_i > s_j], ties one half, over the
    pairs of each cell.
    """
    order, bounds, start = layout.order, layout.bounds, layout.start
    code, weight, longest = layout.code, layout.weight, layout.longest
    n_codes = len(sums)
    upper, lower = np.empty((2, longest + 1))
    passed = np.empty(longest)
    above, level, u_near, u_far, l_near, l_far = np.empty((6, longest + 1), dtype=np.uint32)
    for q in range(first, last):
        b = bounds[q]
        n = bounds[q + 1] - b
        u = start[b] if n else 0
        v = n - u
        cells[q] = 0.0
        if v == 0:
            continue
        _sort_again(b, b, b + u, scores, order, rising, upper)
        _sort_again(b, b + u, b + n, scores, order, rising, lower)
        _merge(u, v, upper, lower, margin, above, u_near, u_far, l_near, l_far)
        near[b : b + u], near[b + u : b + n] = u_near[:u], l_near[:v]
        far[b : b + u], far[b + u : b + n] = u_far[:u], l_far[:v]
        of_upper = b + 2 * q
        of_lower = of_upper + u + 1
        _add_up(b, b, u, rising, code, weight, of_upper, sums)
        _add_up(b, b + u, v, rising, code, weight, of_lower, sums)
        tied = False
        for i in range(u):
            tied |= lower[above[i]] == upper[i]
            level[i] = above[i]
        if tied:
            passed_level = np.uint32(0)
            for i in range(u):
                passed_level = max(passed_level, above[i])
                while lower[passed_level] == upper[i]:
                    passed_level += np.uint32(1)
                level[i] = passed_level
        for k in range(n_codes):
            for r in range(np.uintp(0), np.uintp(u)):
                below = sums[k, np.uintp(of_lower) + np.uintp(above[r])]
                level_or_below = sums[k, np.uintp(of_lower) + np.uintp(level[r])]
                passed[np.uintp(rising[np.uintp(b) + r])] = 0.5 * (below + level_or_below)
            head = 0
            while head < u:  # items of one label are listed group by group
                group = code[b + head]
                end = head + 1
                while end < u and code[b + end] == group:
                    end += 1
                cells[q, group, k] = _weigh(b, head, end, weight, passed)
                head = end


@inlined
def _mix(n, begin, sums, table, share, mixed):
    """Write ``mixed[k]``: the sum over c of ``table[k, c]``, the share of c and its sums."""
    for k in range(len(table)):
        factor = table[k, 0] * share[0]
        for r in range(np.uintp(0), np.uintp(n + 1)):
            mixed[k, r] = factor * sums[0, np.uintp(begin) + r]
        for c in range(1, len(table)):
            factor = table[k, c] * share[c]
            for r in range(np.uintp(0), np.uintp(n + 1)):
                mixed[k, r] += factor * sums[c, np.uintp(begin) + r]


@njit(cache=True, nogil=True, fastmath={"contract", "nsz"})
def reaching(
    first, last, layout, rising, near, far, sums, table, mirrored, share, query_weight, gradient
):
    """The gradient of the weighted hinges on both sides of all pairs, as in `losses.two_hinges`.

    ``share[q, side, k]`` multiplies the weights of the items of group k: of the preferred ones
    where the side is 0, of the others where it is 1. Queries without a pair are left out.
    """
    order, bounds, start, code, weight = (
        layout.order, layout.bounds, layout.start, layout.code, layout.weight
    )  # fmt: skip
    within, beyond = np.empty((2, len(table), layout.longest + 1))
    columns, mirrored_columns = np.ascontiguousarray(table.T), np.ascontiguousarray(mirrored.T)
    for q in range(first, last):
        b = bounds[q]
        n = bounds[q + 1] - b
        u = start[b] if n else 0
        v = n - u
        if v == 0:
            continue
        for side in range(2):
            begin, end = (b + u, b + n) if side else (b, b + u)
            of_others, n_others = (b + 2 * q, u) if side else (b + 2 * q + u + 1, v)
            own, others = share[q, side], share[q, 1 - side]
            _mix(n_others, of_others, sums, columns if side else table, others, within)
            _mix(n_others, of_others, sums, mirrored_columns if side else mirrored, others, beyond)
            total = beyond if side else within
            for r in range(np.uintp(begin), np.uintp(end)):
                item = np.uintp(b) + np.uintp(rising[r])
                k = np.uintp(code[item])
                slope = beyond[k, far[r]] + within[k, near[r]] - total[k, np.uintp(n_others)]
                gradient[np.uintp(order[item])] = query_weight[q] * own[k] * weight[item] * slope
