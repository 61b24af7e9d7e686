"""Compiled loops for LambdaRank.

LLVM vectorises a loop only if it has to tell few arrays apart, so a row of pairs is three short
loops, each over at most five arrays.

A pair counts if one of its items is among the first ``k``. Items stay sorted by falling label;
those among the first ``k`` are also copied to a separate list, in the same order. A preferred item
among the first ``k`` is compared with all lower items, any other with the lower items of that list.
Both are one range, so a query costs O(n k).

Where scores tie, |ΔNDCG| is its expectation over the orders of the tied items. Tied items share a
block of positions. A pair depends only on this block and on the score, so items of one score, label
and group are merged into one.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from pairity.pairs.kernels.common import (
    APART,
    FAST,
    LANES,
    WIDEST,
    exponentials,
    group_end,
    inlined,
    preferring,
    span,
)

_FEW = 200  # items; ranks of such lists are found by counting
_RUN = 12  # items; sorted by insertion before runs are merged
_FAR = 1e200  # a score whose pairs come to nothing, behind the last item


# --- sorting -----------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _sort_falling(n, scores, keys, index, more_keys, more_index):
    """Sort positions by falling score: the result is in ``index[:n]``, the scores in `keys`."""
    for lo in range(0, n, _RUN):
        for r in range(lo, min(lo + _RUN, n)):
            at = r
            while at > lo and scores[r] > keys[at - 1]:
                keys[at] = keys[at - 1]
                index[at] = index[at - 1]
                at -= 1
            keys[at] = scores[r]
            index[at] = r
    width = _RUN
    while width < n:
        for lo in range(0, n, 2 * width):
            middle = min(lo + width, n)
            high = min(lo + 2 * width, n)
            left = lo
            right = middle
            for at in range(lo, high):
                if right == high or (left < middle and keys[left] >= keys[right]):
                    more_keys[at] = keys[left]
                    more_index[at] = index[left]
                    left += 1
                else:
                    more_keys[at] = keys[right]
                    more_index[at] = index[right]
                    right += 1
        for at in range(n):
            keys[at] = more_keys[at]
            index[at] = more_index[at]
        width *= 2


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _count_above(n, s, rank):
    """How many items have a higher score, for each, in n² comparisons without a branch."""
    total = 0
    for i in range(n):
        x = s[i]
        above = 0.0
        for j in range(np.uintp(0), np.uintp(n)):
            above += 1.0 if s[j] > x else 0.0
        rank[i] = np.int64(above)
        total += rank[i]
    return total


# --- pairs ---------------------------------------------------------------------------------------


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _swap_gains(lo, hi, gain, discount, delta, gain0, discount0):
    """What exchanging the item with each lower one would change in DCG."""
    for j in range(np.uintp(lo), np.uintp(hi)):
        delta[j] = (gain0 - gain[j]) * abs(discount0 - discount[j])


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _swap_gains_tied(
    lo, hi, s, gain, discount, delta, s0, gain0, discount0, reach, share, level, even
):  # fmt: skip
    """The same where scores tie, in expectation; `even` for the items whose score is `level`."""
    for j in range(np.uintp(lo), np.uintp(hi)):
        x = s[j]
        y = discount[j]
        change = reach - share * y
        change = y - discount0 if x > s0 else change
        change = even if x == level else change
        delta[j] = (gain0 - gain[j]) * change


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _dot(lo, hi, x, y):
    total = 0.0
    for j in range(np.uintp(lo), np.uintp(hi)):
        total += x[j] * y[j]
    return total


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _pair_rates(lo, hi, a, z, delta, force, curve, a0, z0, near):
    """Replace a pair's change in DCG by its force δ p / distance and its curve δ p (1 - p) / ..."""
    total = 0.0
    for j in range(np.uintp(lo), np.uintp(hi)):
        both = a0 + a[j]
        distance = near + abs(z0 - z[j])
        r = 1.0 / (both * distance)
        x = delta[j] * (a[j] * r)
        force[j] = x
        curve[j] = x * (a0 * (r * distance))
        total += x
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _pair_rates_wide(lo, hi, s, z, delta, force, curve, s0, z0, near, sigma):
    """The same with an exponential for each pair, for scores of any size."""
    total = 0.0
    for j in range(lo, hi):
        d = sigma * (s0 - s[j])
        e = np.exp(-abs(d))
        p = 1.0 / (1.0 + e)
        x = delta[j] * (e * p if d >= 0 else p) / (near + abs(z0 - z[j]))
        force[j] = x
        curve[j] = x * (p if d >= 0 else e * p)
        total += x
    return total


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _gather(lo, hi, w, force, curve, g, h, u0):
    total = 0.0
    bend = 0.0
    for j in range(np.uintp(lo), np.uintp(hi)):
        x = w[j] * force[j]
        y = w[j] * curve[j]
        total += x
        bend += y
        g[j] += u0 * x
        h[j] += u0 * y
    return total, bend


@inlined
def _row(
    lo, hi, s, a, z, gain, discount, w, delta, force, curve, g, h,
    s0, a0, z0, gain0, discount0, u0, narrow, near, sigma,
):  # fmt: skip
    """One preferred item against the range of lower ones: the sums that belong to it."""
    if narrow:
        hi = lo + (hi - lo + LANES - 1) // LANES * LANES
        _swap_gains(lo, hi, gain, discount, delta, gain0, discount0)
        plain = _pair_rates(lo, hi, a, z, delta, force, curve, a0, z0, near)
    else:
        _swap_gains(lo, hi, gain, discount, delta, gain0, discount0)
        plain = _pair_rates_wide(lo, hi, s, z, delta, force, curve, s0, z0, near, sigma)
    total, bend = _gather(lo, hi, w, force, curve, g, h, u0)
    return plain, total, bend


@inlined
def _tied_row(
    lo, hi, s, a, z, gain, discount, count, w, delta, force, curve, g, h,
    s0, a0, z0, gain0, discount0, u0, reach, share, level, even, narrow, near, sigma,
):  # fmt: skip
    """The same where scores tie, of merged items."""
    if narrow:
        hi = lo + (hi - lo + LANES - 1) // LANES * LANES
    _swap_gains_tied(
        lo, hi, s, gain, discount, delta, s0, gain0, discount0, reach, share, level, even
    )
    if narrow:
        _pair_rates(lo, hi, a, z, delta, force, curve, a0, z0, near)
    else:
        _pair_rates_wide(lo, hi, s, z, delta, force, curve, s0, z0, near, sigma)
    plain = _dot(lo, hi, count, force)
    total, bend = _gather(lo, hi, w, force, curve, g, h, u0)
    return plain, total, bend


@njit(cache=True, nogil=True)
def _lambda_list(
    n, n_top, k, s, a, z, gain, discount, w, g, h, top_s, top_a, top_z, top_gain, top_discount,
    top_w, top_g, top_h, top, passed, delta, force, curve, rank, start, code, by_group, weight,
    table, narrow, near, sigma, count, top_count, even, edge, edge_score, reach, share,
):  # fmt: skip
    """One list; returns the unweighted sum of forces. `top` are the first `k` in label order.

    Where no scores tie, `count` is None: it is compiled for each case.
    """
    plain = 0.0
    head = 0
    while head < n:
        group = code[by_group[head]]
        end = group_end(head, n, code, by_group)
        last = preferring(head, end, n, start, by_group)
        if last > head:
            for j in range(start[by_group[head]], n):
                w[j] = table[group, code[j]] * weight[j]
            for t in range(passed[start[by_group[head]]], n_top):
                top_w[t] = w[top[t]]
            for j in range(LANES):
                w[n + j] = 0.0
                top_w[n_top + j] = 0.0
            for r in range(head, last):
                i = by_group[r]
                u = weight[i]
                if count is None:
                    if rank[i] < k:
                        added, total, bend = _row(
                            start[i], n, s, a, z, gain, discount, w, delta, force, curve, g, h,
                            s[i], a[i], z[i], gain[i], discount[i], u, narrow, near, sigma,
                        )  # fmt: skip
                    else:
                        added, total, bend = _row(
                            passed[start[i]], n_top, top_s, top_a, top_z, top_gain, top_discount,
                            top_w, delta, force, curve, top_g, top_h,
                            s[i], a[i], z[i], gain[i], discount[i], u, narrow, near, sigma,
                        )  # fmt: skip
                    plain += added
                else:
                    if rank[i] < k:
                        whole = rank[i] != edge  # of the item's block is among the first k
                        added, total, bend = _tied_row(
                            start[i], n, s, a, z, gain, discount, count, w, delta, force, curve,
                            g, h, s[i], a[i], z[i], gain[i], discount[i], u,
                            discount[i] if whole else reach, 1.0 if whole else share,
                            s[i], even[i], narrow, near, sigma,
                        )  # fmt: skip
                    else:  # all of that list are above the item
                        added, total, bend = _tied_row(
                            passed[start[i]], n_top, top_s, top_a, top_z, top_gain, top_discount,
                            top_count, top_w, delta, force, curve, top_g, top_h,
                            s[i], a[i], z[i], gain[i], discount[i], u,
                            0.0, 0.0, edge_score, reach - share * discount[i], narrow, near, sigma,
                        )  # fmt: skip
                    plain += count[i] * added
                g[i] -= u * total
                h[i] += u * bend
        head = end
    for t in range(n_top):
        g[top[t]] += top_g[t]
        h[top[t]] += top_h[t]
    return plain


@njit(cache=True, nogil=True)
def _share_positions(n, k, rank, discounts, size, mean, even):
    """The blocks of positions that items of equal score share, each at its first position.

    `rank` is the first position of an item's block. For a block A, `mean` is the mean of its
    discounts and `even` what exchanging two of its items changes: the mean of D_a - D_b over its
    positions a < b, 0 where a is not among the first k. Returned for the block that k cuts: its
    first position, the sum of D_a over its positions among the first k and their number, both
    divided by that of all. An item of A and one of a block B below then change, in expectation,
    reach - share · mean_B; for blocks not cut, that is mean_A - mean_B.
    """
    edge, reach, share = -1, 0.0, 0.0
    for i in range(n):
        size[i] = 0
    for i in range(n):
        size[rank[i]] += 1
    lo = 0
    while lo < n:
        hi = lo + size[lo]
        if hi == lo + 1:
            mean[lo] = discounts[lo]
            even[lo] = 0.0
            lo = hi
            continue
        total = 0.0
        gaps = 0.0  # of the discount at a position less those behind it, summed
        swaps = 0.0
        for a in range(hi - 1, lo - 1, -1):
            total += discounts[a]
            if a < hi - 1:
                gaps += (hi - 1 - a) * (discounts[a] - discounts[a + 1])
            if a < k:
                swaps += gaps
        mean[lo] = total / size[lo]
        even[lo] = swaps / (0.5 * size[lo] * (size[lo] - 1.0))
        if lo < k < hi:
            edge = lo
            share = (k - lo) / size[lo]
            for a in range(lo, k):
                reach += discounts[a] / size[lo]
        lo = hi
    return edge, reach, share


@njit(cache=True, nogil=True)
def _merge_tied(
    n, s, gain, rank, start, code, by_group, weight, latest, created, one, count,
    merged_start, merged_code, merged_by_group, merged_weight,
):  # fmt: skip
    """Merge items of one score, label and group; returns how many items are left.

    Scores, gains and ranks are merged in place, and `one` is where each item went.
    """
    for i in range(n):
        latest[i] = -1
    m = 0
    run = 0  # the first merged item of the items with this label and group
    for i in range(n):
        if i > 0 and (start[i] != start[i - 1] or code[i] != code[i - 1]):
            run = m
        created[i] = m
        at = latest[rank[i]]
        if at < run:
            at = latest[rank[i]] = m
            s[m] = s[i]
            gain[m] = gain[i]
            rank[m] = rank[i]
            count[m] = 0.0
            merged_start[m] = start[i]
            merged_code[m] = code[i]
            merged_weight[m] = 0.0
            m += 1
        one[i] = at
        count[at] += 1.0
        merged_weight[at] += weight[i]
    created[n] = m
    for at in range(m):
        merged_start[at] = created[merged_start[at]]
        latest[at] = -1
    listed = 0
    for r in range(n):
        at = one[by_group[r]]
        if latest[at] < 0:
            latest[at] = 0
            merged_by_group[listed] = at
            listed += 1
    return m


@njit(cache=True, nogil=True)
def lambdarank(
    first, last, scores, labels, order, bounds, start, code, by_group, weight, longest, table,
    query_weight, gains, discounts, k, sigma, normalise, gradient, hessian,
):  # fmt: skip
    """Gradient and Hessian of LambdaRank, as `pairity.pairs.losses.LambdaRank` defines them."""
    size = max(longest + LANES, APART)
    s, a, z, gain, discount = (
        np.empty(size), np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    )  # fmt: skip
    w, g, h = np.empty(size), np.empty(size), np.empty(size)
    delta, force, curve = np.empty(size), np.empty(size), np.empty(size)
    top_s, top_a, top_z, top_gain, top_discount = (
        np.empty(size), np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    )  # fmt: skip
    top_w, top_g, top_h = np.empty(size), np.empty(size), np.empty(size)
    top = np.empty(size, dtype=np.int64)
    rank = np.empty(size, dtype=np.int64)
    passed = np.empty(size, dtype=np.int64)
    bits = np.empty(size, dtype=np.int64)
    scale = bits.view(np.float64)
    buffer = longest if longest > _FEW else 1
    keys, more_keys = np.empty(buffer), np.empty(buffer)
    index, more_index = np.empty(buffer, dtype=np.int64), np.empty(buffer, dtype=np.int64)
    count, top_count, mean, block_even, even = (
        np.empty(size), np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    )  # fmt: skip
    one = np.empty(size, dtype=np.int64)
    merged_start, merged_code, merged_by_group = (
        np.empty(size, dtype=np.int32), np.empty(size, dtype=np.int32),
        np.empty(size, dtype=np.int32),
    )  # fmt: skip
    merged_weight = np.empty(size)
    for q in range(first, last):
        b = bounds[q]
        e = bounds[q + 1]
        n = e - b
        for i in range(n):
            s[i] = scores[order[b + i]]
            g[i] = 0.0
            h[i] = 0.0
        lowest, highest = span(n, s)
        force_scale = 0.0
        tied = False
        m = n
        if start[b] < n:
            if n <= _FEW:
                tied = 2 * _count_above(n, s, rank) < n * (n - 1)
            else:
                _sort_falling(n, s, keys, index, more_keys, more_index)
                for r in range(n):
                    same = r > 0 and keys[r] == keys[r - 1]
                    rank[index[r]] = rank[index[r - 1]] if same else r
                    tied |= same
            best = 0.0
            for i in range(n):
                gain[i] = gains[np.int64(labels[order[b + i]])]
                discount[i] = discounts[rank[i]]
                if i < k:
                    best += gain[i] * discounts[i]
            edge, reach, share, edge_score = -1, 0.0, 0.0, np.inf
            if tied:
                edge, reach, share = _share_positions(
                    n, k, rank, discounts, one, mean, block_even
                )  # fmt: skip
                m = _merge_tied(
                    n, s, gain, rank, start[b:e], code[b:e], by_group[b:e], weight[b:e], top,
                    passed, one, count, merged_start, merged_code, merged_by_group, merged_weight,
                )  # fmt: skip
                for i in range(m):
                    discount[i] = mean[rank[i]]
                    even[i] = block_even[rank[i]]
                    if rank[i] == edge:
                        edge_score = s[i]
            distances = normalise and lowest != highest
            near = 0.01 if distances else 1.0
            middle = 0.5 * lowest + 0.5 * highest
            narrow = sigma * (highest - lowest) <= WIDEST
            for i in range(m):
                a[i] = sigma * (s[i] - middle) if narrow else 0.0
                z[i] = s[i] if distances else 0.0
            if narrow:
                exponentials(m, a, 0.0, a, bits, scale)
            n_top = 0
            for i in range(m):
                passed[i] = n_top
                if rank[i] < k:
                    top[n_top] = i
                    top_s[n_top] = s[i]
                    top_a[n_top] = a[i]
                    top_z[n_top] = z[i]
                    top_gain[n_top] = gain[i]
                    top_discount[n_top] = discount[i]
                    n_top += 1
            for j in range(LANES):
                a[m + j] = top_a[n_top + j] = 1.0
                z[m + j] = top_z[n_top + j] = _FAR
                gain[m + j] = top_gain[n_top + j] = 0.0
                discount[m + j] = top_discount[n_top + j] = 0.0
                g[m + j] = h[m + j] = 0.0
            for t in range(n_top + LANES):
                top_g[t] = 0.0
                top_h[t] = 0.0
            if tied:
                for i in range(n_top):
                    top_count[i] = count[top[i]]
                for j in range(LANES):
                    s[m + j] = top_s[n_top + j] = 0.0
                    count[m + j] = top_count[n_top + j] = 0.0
                plain = _lambda_list(
                    m, n_top, k, s, a, z, gain, discount, w, g, h, top_s, top_a, top_z, top_gain,
                    top_discount, top_w, top_g, top_h, top, passed, delta, force, curve, rank,
                    merged_start, merged_code, merged_by_group, merged_weight, table, narrow, near,
                    sigma, count, top_count, even, edge, edge_score, reach, share,
                )  # fmt: skip
            else:
                plain = _lambda_list(
                    n, n_top, k, s, a, z, gain, discount, w, g, h, top_s, top_a, top_z, top_gain,
                    top_discount, top_w, top_g, top_h, top, passed, delta, force, curve, rank,
                    start[b:e], code[b:e], by_group[b:e], weight[b:e], table, narrow, near, sigma,
                    None, None, None, -1, np.inf, 0.0, 0.0,
                )  # fmt: skip
            if best > 0.0:
                force_scale = sigma / best
            if normalise and plain > 0.0 and best > 0.0:
                total = 2.0 * (force_scale * plain)
                force_scale *= np.log1p(total) / (total * 0.6931471805599453)
        v = query_weight[q] * force_scale
        if tied:
            for at in range(m):  # what an item of weight 1 has of it
                share = 1.0 / merged_weight[at] if merged_weight[at] > 0.0 else 0.0
                g[at] *= share
                h[at] *= share
            for i in range(n):
                gradient[order[b + i]] = v * weight[b + i] * g[one[i]]
                hessian[order[b + i]] = sigma * v * weight[b + i] * h[one[i]]
        else:
            for i in range(n):
                gradient[order[b + i]] = v * g[i]
                hessian[order[b + i]] = sigma * v * h[i]
