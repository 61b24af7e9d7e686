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

A pair that also counts in the mirrored order, with the weight b, adds a linear term to the
gradient: a p δ - b (1 - p) δ = (a + b) p δ - b δ.

See `pairity.pairs.kernels.common` for what all kernels have in common.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pairity._utils.typing import Array
from pairity.pairs.kernels.common import (
    APART,
    FAST,
    LANES,
    WIDEST,
    Items,
    exponentials,
    gather,
    group_ends,
    inlined,
    items_of,
    padded,
    scatter,
    span,
)

_FEW = 200  # items; ranks of such lists are found by counting
_FAR = 1e200  # a score after the last item, whose pairs add nothing
_LOG_2 = 0.6931471805599453


class Ranked(NamedTuple):
    """Items in label order, all of a list or those among the first k, with `LANES` entries more.

    ``s`` are scores, ``a`` their exponentials, ``z`` the scores that distances are taken of, ``w``
    the weights of the pairs with the current group, ``v`` those of the mirrored pairs, ``g`` and
    ``h`` gradient and Hessian, and ``n_merged`` the number of merged items where scores tie.
    """

    s: Array
    a: Array
    z: Array
    gain: Array
    discount: Array
    w: Array
    v: Array
    g: Array
    h: Array
    n_merged: Array


class Top(NamedTuple):
    """The items among the first k: their places, and how many of them precede each item."""

    places: NDArray[np.int64]
    passed: NDArray[np.int64]
    ranked: Ranked


class Rates(NamedTuple):
    """What a row of pairs has: changes in DCG, forces, curves; and how they are computed."""

    delta: Array
    force: Array
    curve: Array
    narrow: bool
    near: float
    sigma: float


class Ties(NamedTuple):
    """Expected changes where scores tie; see `_share_positions`."""

    even: Array
    edge: int
    edge_score: float
    reach: float
    share: float


# --- ranks -------------------------------------------------------------------------------------


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
    """Compute a pair's force δ p / distance and its curve δ p (1 - p) / distance from δ."""
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
def _add_row(lo, hi, w, force, curve, g, h, u0):
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


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _add_mirrored(lo, hi, v, z, delta, g, u0, z0, near):
    total = 0.0
    for j in range(np.uintp(lo), np.uintp(hi)):
        x = v[j] * delta[j] / (near + abs(z0 - z[j]))
        total += x
        g[j] -= u0 * x
    return total


@inlined
def _row(
    lo, hi, s, a, z, gain, discount, count, w, delta, force, curve, g, h,
    s0, a0, z0, gain0, discount0, u0, tied, reach, share, level, even, narrow, near, sigma,
):  # fmt: skip
    """One preferred item against the range of lower ones: the sums that belong to it."""
    if narrow:
        hi = padded(lo, hi)
    if tied:
        _swap_gains_tied(
            lo, hi, s, gain, discount, delta, s0, gain0, discount0, reach, share, level, even
        )
    else:
        _swap_gains(lo, hi, gain, discount, delta, gain0, discount0)
    if narrow:
        plain = _pair_rates(lo, hi, a, z, delta, force, curve, a0, z0, near)
    else:
        plain = _pair_rates_wide(lo, hi, s, z, delta, force, curve, s0, z0, near, sigma)
    if tied:
        plain = _dot(lo, hi, count, force)
    total, bend = _add_row(lo, hi, w, force, curve, g, h, u0)
    return plain, total, bend


@njit(cache=True, nogil=True)
def _weigh_row(lo, n, top_lo, n_top, row, items, index, w, top_w):
    """The weights of a group's pairs with the items from `lo`, and with the first k of them."""
    for j in range(lo, n):
        w[j] = row[items.code[j]] * items.weight[j]
    for t in range(top_lo, n_top):
        top_w[t] = w[index[t]]
    for j in range(LANES):
        w[n + j] = 0.0
        top_w[n_top + j] = 0.0


@njit(cache=True, nogil=True)
def _lambda_list(k, n_top, items, rank, ranked, top, table, mirrored, rates, ties):
    """One list; returns the unweighted sum of forces.

    Without ties or mirrored pairs, `ties` or `mirrored` is None: each case is compiled separately.
    """
    _, start, _, code, by_group, weight = items
    s, a, z, gain, discount, w, v, g, h, count = ranked
    index, passed, top_ranked = top
    top_s, top_a, top_z, top_gain, top_discount, top_w, top_v, top_g, top_h, top_count = top_ranked
    delta, force, curve, narrow, near, sigma = rates
    tied = ties is not None
    all_even, edge, edge_score, edge_reach, edge_share = s, -1, 0.0, 0.0, 0.0
    if ties is not None:
        all_even, edge, edge_score, edge_reach, edge_share = ties
    n = code.size
    plain = 0.0
    turned = False  # whether some pairs of the current group count in the mirrored order too
    head = 0
    while head < n:
        group = code[by_group[head]]
        end, last = group_ends(head, n, start, code, by_group)
        if last > head:
            lowest = start[by_group[head]]
            _weigh_row(lowest, n, passed[lowest], n_top, table[group], items, index, w, top_w)
            if mirrored is not None:
                row = mirrored[group]
                turned = row.max() > 0.0
                if turned:
                    _weigh_row(lowest, n, passed[lowest], n_top, row, items, index, v, top_v)
        for r in range(head, last):
            i = by_group[r]
            u = weight[i]
            if rank[i] < k:
                inside = rank[i] != edge  # the item's block lies entirely among the first k
                added, total, bend = _row(
                    start[i], n, s, a, z, gain, discount, count, w, delta, force, curve, g, h,
                    s[i], a[i], z[i], gain[i], discount[i], u, tied,
                    discount[i] if inside else edge_reach, 1.0 if inside else edge_share,
                    s[i], all_even[i], narrow, near, sigma,
                )  # fmt: skip
                if mirrored is not None and turned:
                    total -= _add_mirrored(start[i], n, v, z, delta, g, u, z[i], near)
            else:  # all items of the list of the first k are above the item
                added, total, bend = _row(
                    passed[start[i]], n_top, top_s, top_a, top_z, top_gain, top_discount,
                    top_count, top_w, delta, force, curve, top_g, top_h,
                    s[i], a[i], z[i], gain[i], discount[i], u, tied, 0.0, 0.0, edge_score,
                    edge_reach - edge_share * discount[i], narrow, near, sigma,
                )  # fmt: skip
                if mirrored is not None and turned:
                    total -= _add_mirrored(
                        passed[start[i]], n_top, top_v, top_z, delta, top_g, u, z[i], near
                    )
            plain += count[i] * added if tied else added
            g[i] -= u * total
            h[i] += u * bend
        head = end
    for t in range(n_top):
        g[index[t]] += top_g[t]
        h[index[t]] += top_h[t]
    return plain


# --- ties ----------------------------------------------------------------------------------------


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
    size[:n] = 0
    for i in range(n):
        size[rank[i]] += 1
    lo = 0
    while lo < n:
        hi = lo + size[lo]
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
        even[lo] = swaps / max(0.5 * size[lo] * (size[lo] - 1.0), 1.0)
        if lo < k < hi:
            edge = lo
            share = (k - lo) / size[lo]
            for a in range(lo, k):
                reach += discounts[a] / size[lo]
        lo = hi
    return edge, reach, share


@njit(cache=True, nogil=True)
def _merge_tied(items, s, gain, rank, latest, created, target, count, merged):
    """Merge items of one score, label and group; returns how many items remain.

    Scores, gains and ranks are merged in place, `merged` are the items that remain, and `target`
    is where each item went.
    """
    start, code, by_group, weight = items.start, items.code, items.by_group, items.weight
    n = code.size
    latest[:n] = -1
    m = 0
    run = 0  # the first merged item of the items with this label and group
    for i in range(n):
        if i > 0 and (start[i] != start[i - 1] or code[i] != code[i - 1]):
            run = m
        created[i] = m
        place = latest[rank[i]]
        if place < run:
            place = latest[rank[i]] = m
            s[m] = s[i]
            gain[m] = gain[i]
            rank[m] = rank[i]
            count[m] = 0.0
            merged.start[m] = start[i]
            merged.code[m] = code[i]
            merged.weight[m] = 0.0
            m += 1
        target[i] = place
        count[place] += 1.0
        merged.weight[place] += weight[i]
    created[n] = m
    for place in range(m):
        merged.start[place] = created[merged.start[place]]
        latest[place] = -1
    listed = 0
    for r in range(n):
        place = target[by_group[r]]
        if latest[place] < 0:
            latest[place] = 0
            merged.by_group[listed] = place
            listed += 1
    return m


@njit(cache=True, nogil=True)
def _scatter_merged(items, merged_weight, target, values, factor, out):
    """Write each item's share, by weight, of the values of merged items to its row of `out`."""
    for i in range(items.order.size):
        weight = merged_weight[target[i]]
        share = items.weight[i] / weight if weight > 0.0 else 0.0
        out[items.order[i]] = factor * (share * values[target[i]])


# --- lists and blocks of queries ---------------------------------------------------------------


@njit(cache=True, nogil=True)
def _rank(n, s, rank):
    """Write the number of items above each item; returns whether scores tie."""
    if n <= _FEW:
        return 2 * _count_above(n, s, rank) < n * (n - 1)
    falling = np.argsort(-s[:n])
    tied = False
    for r in range(n):
        same = r > 0 and s[falling[r]] == s[falling[r - 1]]
        rank[falling[r]] = rank[falling[r - 1]] if same else r
        tied |= same
    return tied


@njit(cache=True, nogil=True)
def _select_top(n, k, rank, ranked, top):
    """Copy the items among the first k, and put full vectors of nothing after the last ones."""
    s, a, z, gain, discount, _, _, g, h, count = ranked
    index, passed, top_ranked = top
    top_s, top_a, top_z, top_gain, top_discount, _, _, top_g, top_h, top_count = top_ranked
    n_top = 0
    for i in range(n):
        passed[i] = n_top
        if rank[i] < k:
            index[n_top] = i
            top_s[n_top] = s[i]
            top_a[n_top] = a[i]
            top_z[n_top] = z[i]
            top_gain[n_top] = gain[i]
            top_discount[n_top] = discount[i]
            top_count[n_top] = count[i]
            n_top += 1
    for t in range(n_top + LANES):
        top_g[t] = top_h[t] = 0.0
    for j in range(LANES):
        s[n + j] = top_s[n_top + j] = 0.0
        a[n + j] = top_a[n_top + j] = 1.0
        z[n + j] = top_z[n_top + j] = _FAR
        gain[n + j] = top_gain[n_top + j] = 0.0
        discount[n + j] = top_discount[n_top + j] = 0.0
        count[n + j] = top_count[n_top + j] = 0.0
        g[n + j] = h[n + j] = 0.0
    return n_top


@njit(cache=True, nogil=True)
def _empty_ranked(size):
    return Ranked(
        np.empty(size), np.empty(size), np.empty(size), np.empty(size), np.empty(size),
        np.empty(size), np.empty(size), np.empty(size), np.empty(size), np.empty(size),
    )  # fmt: skip


@njit(cache=True, nogil=True)
def lambdarank(
    first, last, layout, scores, labels, table, mirrored, query_weight, gains, discounts, k, sigma,
    normalise, gradient, hessian,
):  # fmt: skip
    """Gradient and Hessian of LambdaRank, as `pairity.pairs.losses.LambdaRank` defines them.

    `table` has the sum of a pair's two weights, `mirrored` that of the mirrored order, or is None.
    """
    size = max(layout.longest + LANES, APART)
    ranked = _empty_ranked(size)
    s, a, z, gain, discount, _, _, g, h, count = ranked
    places, passed = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    top = Top(places, passed, _empty_ranked(size))
    delta, force, curve = np.empty(size), np.empty(size), np.empty(size)
    rank, target = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    bits = np.empty(size, dtype=np.int64)
    scale = bits.view(np.float64)
    mean, block_even, even = np.empty(size), np.empty(size), np.empty(size)
    merged = Items(
        layout.order, np.empty(size, dtype=np.int32), layout.level,
        np.empty(size, dtype=np.int32), np.empty(size, dtype=np.int32), np.empty(size),
    )  # fmt: skip
    for q in range(first, last):
        items = items_of(layout, q)
        n = items.order.size
        gather(items.order, scores, s)
        g[:n] = 0.0
        h[:n] = 0.0
        if n == 0 or items.start[0] == n:
            scatter(items.order, g, 0.0, gradient)
            scatter(items.order, h, 0.0, hessian)
            continue
        lowest, highest = span(n, s)
        tied = _rank(n, s, rank)
        best = 0.0
        for i in range(n):
            gain[i] = gains[np.int64(labels[items.order[i]])]
            discount[i] = discounts[rank[i]]
            if i < k:
                best += gain[i] * discounts[i]
        m = n
        edge, reach, share, edge_score = -1, 0.0, 0.0, np.inf
        if tied:
            edge, reach, share = _share_positions(n, k, rank, discounts, target, mean, block_even)
            m = _merge_tied(items, s, gain, rank, places, passed, target, count, merged)
            for i in range(m):
                discount[i] = mean[rank[i]]
                even[i] = block_even[rank[i]]
                if rank[i] == edge:
                    edge_score = s[i]
        distances = normalise and lowest != highest
        middle = 0.5 * lowest + 0.5 * highest
        narrow = sigma * (highest - lowest) <= WIDEST
        for i in range(m):
            a[i] = sigma * (s[i] - middle) if narrow else 0.0
            z[i] = s[i] if distances else 0.0
        if narrow:
            exponentials(m, a, 0.0, a, bits, scale)
        n_top = _select_top(m, k, rank, ranked, top)
        rates = Rates(delta, force, curve, narrow, 0.01 if distances else 1.0, sigma)
        if tied:
            remaining = Items(
                items.order, merged.start[:m], items.level, merged.code[:m], merged.by_group[:m],
                merged.weight[:m],
            )  # fmt: skip
            ties = Ties(even, edge, edge_score, reach, share)
            plain = _lambda_list(
                k, n_top, remaining, rank, ranked, top, table, mirrored, rates, ties
            )
        else:
            plain = _lambda_list(k, n_top, items, rank, ranked, top, table, mirrored, rates, None)
        factor = sigma / best if best > 0.0 else 0.0
        if normalise and factor * plain > 0.0:
            total = 2.0 * (factor * plain)
            factor *= np.log1p(total) / (total * _LOG_2)
        v = query_weight[q] * factor
        if tied:
            _scatter_merged(items, merged.weight, target, g, v, gradient)
            _scatter_merged(items, merged.weight, target, h, sigma * v, hessian)
        else:
            scatter(items.order, g, v, gradient)
            scatter(items.order, h, sigma * v, hessian)
