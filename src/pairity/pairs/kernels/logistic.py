"""Compiled loops for the pairwise logistic loss.

**The pair loop.** Items of a query are sorted by falling label, so the items that a preferred one
is compared with are one range. With ``a = exp(s - middle)``, the probability that a pair (i, j) is
ordered wrongly is ``t = a_j r``, ``r = 1 / (a_i + a_j)``, which needs no exponential per pair; and
``t (1 - t) = a_j a_i r²``. Preferred items are taken group by group, four at a time, so that the
weight of a pair depends on the other item alone (``w[j] = W[k, g_j] a_j``) and the inner loop has
neither branch nor look-up. Per group k it adds up, for every j, r and ``a_i r²`` over the preferred
items. Multiplied by w these sums give the gradient and the Hessian at j; multiplied by a_j they
give row k of the K × K sums. Two quotients share one division.

Where the scores of a query range over more than `WIDEST`, ``a`` would overflow, so each pair takes
an exponential. Lists longer than `LONGEST` are skipped here; `pairity.pairs.kernels.long_lists`
processes them. See `pairity.pairs.kernels.common` for what all kernels have in common.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pairity._utils.typing import Array
from pairity.pairs.kernels.common import (
    FAST,
    LANES,
    WIDEST,
    exponentials,
    gather,
    group_ends,
    inlined,
    items_of,
    padded,
    pair_terms,
    scatter,
    span,
)

LONGEST = 1500  # items; `long_lists` is faster beyond (benchmarks/long_list.py)
_NARROW = 100.0  # range of scores within which what `_ABOVE_ALL` adds is lost in rounding
_ABOVE_ALL = 1e150  # exp of a score far above all others
_ROOT_OF_HALF = 0x3FE6A09E667F3BCD  # the bits of √½
_LOG_ROOM = 690.0  # products of the loss stay below exp(690)


class Work(NamedTuple):
    """Working arrays for one list, with `LANES` entries more than items.

    ``a`` are the exponentials, ``wa`` the same times the item weights, ``w`` the weights of the
    pairs with the current group, ``miss`` and ``curve`` the sums of r and ``a_i r²`` over it.
    """

    a: Array
    codes: NDArray[np.int64]
    wa: Array
    w: Array
    miss: Array
    curve: Array
    gradient: Array
    hessian: Array


# --- one query: gradient, Hessian and sums -----------------------------------------------------


@inlined
def _rows_4(lo, hi, a, w, miss, curve, a0, a1, a2, a3):
    g0 = g1 = g2 = g3 = 0.0
    h0 = h1 = h2 = h3 = 0.0
    for j in range(np.uintp(lo), np.uintp(hi)):
        x = a[j]
        d0 = a0 + x
        d1 = a1 + x
        d2 = a2 + x
        d3 = a3 + x
        r01 = 1.0 / (d0 * d1)
        r23 = 1.0 / (d2 * d3)
        i0 = r01 * d1
        i1 = r01 * d0
        i2 = r23 * d3
        i3 = r23 * d2
        q0 = i0 * i0
        q1 = i1 * i1
        q2 = i2 * i2
        q3 = i3 * i3
        miss[j] += (i0 + i1) + (i2 + i3)
        curve[j] += (a0 * q0 + a1 * q1) + (a2 * q2 + a3 * q3)
        wj = w[j]
        g0 += wj * i0
        g1 += wj * i1
        g2 += wj * i2
        g3 += wj * i3
        h0 += wj * q0
        h1 += wj * q1
        h2 += wj * q2
        h3 += wj * q3
    return g0, g1, g2, g3, a0 * h0, a1 * h1, a2 * h2, a3 * h3


@inlined
def _rows_2(lo, hi, a, w, miss, curve, a0, a1):
    g0 = g1 = h0 = h1 = 0.0
    for j in range(np.uintp(lo), np.uintp(hi)):
        x = a[j]
        d0 = a0 + x
        d1 = a1 + x
        r01 = 1.0 / (d0 * d1)
        i0 = r01 * d1
        i1 = r01 * d0
        q0 = i0 * i0
        q1 = i1 * i1
        miss[j] += i0 + i1
        curve[j] += a0 * q0 + a1 * q1
        wj = w[j]
        g0 += wj * i0
        g1 += wj * i1
        h0 += wj * q0
        h1 += wj * q1
    return g0, g1, a0 * h0, a1 * h1


@inlined
def _row_1(lo, hi, a, w, miss, curve, a0, u0):
    g0 = h0 = 0.0
    for j in range(np.uintp(lo), np.uintp(hi)):
        i0 = 1.0 / (a0 + a[j])
        q0 = i0 * i0
        miss[j] += u0 * i0
        curve[j] += u0 * (a0 * q0)
        wj = w[j]
        g0 += wj * i0
        h0 += wj * q0
    return g0, a0 * h0


@inlined
def _copy_items(n, code, weight, uniform, a, codes, wa, w, miss, curve, gradient, hessian):
    """Copy groups and weighted exponentials; put full vectors of nothing after the last item."""
    for i in range(np.uintp(0), np.uintp(n)):
        codes[i] = code[i]
        wa[i] = a[i] if uniform else weight[i] * a[i]
    for i in range(np.uintp(n), np.uintp(n + LANES)):
        a[i] = 1.0
        codes[i] = 0
        wa[i] = w[i] = miss[i] = curve[i] = 0.0
        gradient[i] = hessian[i] = 0.0


@inlined
def _weigh_items(lo, hi, row, codes, wa, w):
    """Write the weights ``row[codes] * wa``.

    Vector instructions can choose among eight numbers, but cannot look one up.
    """
    r0, r1, r2, r3 = row[0], row[1], row[2], row[3]
    r4, r5, r6, r7 = row[4], row[5], row[6], row[7]
    for j in range(np.uintp(lo), np.uintp(hi)):
        c = codes[j]
        odd = c & 1 != 0
        second = c & 2 != 0
        low = (r3 if odd else r2) if second else (r1 if odd else r0)
        high = (r7 if odd else r6) if second else (r5 if odd else r4)
        w[j] = (high if c & 4 else low) * wa[j]
    if row.size > 8:
        for j in range(np.uintp(lo), np.uintp(hi)):
            w[j] = row[np.uintp(codes[j])] * wa[j]


@inlined
def _finish_items(lo, hi, codes, wa, w, miss, curve, gradient, hessian):
    """Add to gradient and Hessian of the lower items; return the sums of t of eight groups."""
    t0 = t1 = t2 = t3 = t4 = t5 = t6 = t7 = 0.0
    for j in range(np.uintp(lo), np.uintp(hi)):
        gradient[j] += w[j] * miss[j]
        hessian[j] += w[j] * curve[j]
        t = wa[j] * miss[j]
        c = codes[j]
        t0 += t if c == 0 else 0.0
        t1 += t if c == 1 else 0.0
        t2 += t if c == 2 else 0.0
        t3 += t if c == 3 else 0.0
        t4 += t if c == 4 else 0.0
        t5 += t if c == 5 else 0.0
        t6 += t if c == 6 else 0.0
        t7 += t if c == 7 else 0.0
    return t0, t1, t2, t3, t4, t5, t6, t7


@inlined
def _walk_rows(
    head, last, rows, n, start, a, weight, uniform, narrow, w, miss, curve, gradient, hessian
):
    """Compare the preferred items ``rows[head:last]`` (of one group) with all lower items.

    Items of one label have the same lower items and are taken four or two at a time. Three are
    taken as four if scores are `narrow`: the fourth, after the last item, is so far above all
    others that it adds nothing. Items with weights are taken one by one.
    """
    r = head
    while r < last:
        i0 = rows[r]
        begin = start[i0]
        end = padded(begin, n)
        four = uniform and r + 3 < last and start[rows[r + 3]] == begin
        if four or (narrow and r + 2 < last and start[rows[r + 2]] == begin):
            i1, i2, i3 = rows[r + 1], rows[r + 2], rows[r + 3] if four else n
            g0, g1, g2, g3, h0, h1, h2, h3 = _rows_4(
                begin, end, a, w, miss, curve, a[i0], a[i1], a[i2], a[i3] if four else _ABOVE_ALL
            )
            gradient[i0] -= g0
            gradient[i1] -= g1
            gradient[i2] -= g2
            gradient[i3] -= g3
            hessian[i0] += h0
            hessian[i1] += h1
            hessian[i2] += h2
            hessian[i3] += h3
            r += 4 if four else 3
        elif uniform and r + 1 < last and start[rows[r + 1]] == begin:
            i1 = rows[r + 1]
            g0, g1, h0, h1 = _rows_2(begin, end, a, w, miss, curve, a[i0], a[i1])
            gradient[i0] -= g0
            gradient[i1] -= g1
            hessian[i0] += h0
            hessian[i1] += h1
            r += 2
        else:
            u = 1.0 if uniform else weight[i0]
            g0, h0 = _row_1(begin, end, a, w, miss, curve, a[i0], u)
            gradient[i0] -= u * g0
            hessian[i0] += u * h0
            r += 1


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _logistic_direct(items, uniform, narrow, rows, work, cells):
    """One query whose scores lie within `WIDEST`; ``work.a`` holds their exponentials.

    `rows` are those of the table, with zeros behind them up to a multiple of eight.
    """
    _, start, _, code, by_group, weight = items
    a, codes, wa, w, miss, curve, gradient, hessian = work
    n = code.size
    _copy_items(n, code, weight, uniform, a, codes, wa, w, miss, curve, gradient, hessian)
    head = 0
    while head < n:
        k = codes[by_group[head]]
        end, last = group_ends(head, n, start, codes, by_group)
        if last > head:
            lo = start[by_group[head]]
            hi = padded(lo, n)
            _weigh_items(lo, hi, rows[k], codes, wa, w)
            for j in range(np.uintp(lo), np.uintp(hi)):
                miss[j] = 0.0
                curve[j] = 0.0
            _walk_rows(
                head, last, by_group, n, start, a, weight, uniform, narrow, w, miss, curve,
                gradient, hessian,
            )  # fmt: skip
            totals = _finish_items(lo, hi, codes, wa, w, miss, curve, gradient, hessian)
            for c in range(min(8, len(cells))):
                cells[k, c] = totals[c]
            if len(cells) > 8:
                for j in range(lo, n):
                    if codes[j] >= 8:
                        cells[k, codes[j]] += wa[j] * miss[j]
        head = end


@njit(cache=True, nogil=True, error_model="numpy")
def _logistic_wide(s, items, table, gradient, hessian, cells):
    """One query with scores of any size: an exponential for each pair."""
    start, code, weight = items.start, items.code, items.weight
    n = code.size
    for i in range(n):
        for j in range(start[i], n):
            t, curvature = pair_terms(s[i] - s[j])
            u = weight[i] * weight[j]
            w = table[code[i], code[j]] * u
            gradient[i] -= w * t
            gradient[j] += w * t
            hessian[i] += w * curvature
            hessian[j] += w * curvature
            cells[code[i], code[j]] += u * t


# --- one query: the loss -----------------------------------------------------------------------


@inlined
def _add_logarithms(lo, hi, x, bits, power, logs):
    """Add the logarithms of `x`, normal positive numbers, to `logs`, and set `x` to 1.

    log(2^k m) = k log 2 + log m with √½ ≤ m < √2, and log m = 2 artanh((m - 1) / (m + 1)) by its
    series. `bits` is an integer view of `x`; `power` holds k.
    """
    for j in range(np.uintp(lo), np.uintp(hi)):
        k = (bits[j] - _ROOT_OF_HALF) >> 52
        bits[j] -= k << 52
        power[j] = k
    for j in range(np.uintp(lo), np.uintp(hi)):
        r = (x[j] - 1.0) / (x[j] + 1.0)
        z = r * r
        p = 1.0 / 21.0
        for m in range(19, 0, -2):
            p = p * z + 1.0 / m
        logs[j] += power[j] * 0.6931471805599453 + 2.0 * r * p
        x[j] = 1.0


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _loss_products(s, middle, widest, items, rows, ones, work, product, bits):
    """The loss if all items have the weight 1: one logarithm for many pairs.

    -log σ(s_i - s_j) = log(a_i + a_j) - (s_i - middle). The factors a_i + a_j of one j and one
    group of i are multiplied as far as the range of exponents allows. `ones` has zeros after the
    last item, and `bits` is an integer view of `product`.
    """
    start, by_group = items.start, items.by_group
    a, codes, w, power, logs = work.a, work.codes, work.w, work.miss, work.curve
    room = int(_LOG_ROOM / (0.5 * widest + 0.7))
    n = start.size
    size = n + LANES
    loss = 0.0
    head = 0
    while head < n:
        end, last = group_ends(head, n, start, codes, by_group)
        lo = start[by_group[head]]
        if last == head:
            head = end
            continue
        _weigh_items(lo, size, rows[codes[by_group[head]]], codes, ones, w)
        for j in range(np.uintp(lo), np.uintp(size)):
            product[j] = 1.0
            logs[j] = 0.0
        used = 0
        begin = n
        below = 0.0
        r = head
        while r < last:
            i = by_group[r]
            if start[i] != begin:
                begin = start[i]
                below = 0.0
                for j in range(np.uintp(begin), np.uintp(n)):
                    below += w[j]
            hi = padded(begin, n)
            if used + 4 > room:
                _add_logarithms(lo, size, product, bits, power, logs)
                used = 0
            if r + 3 < last and start[by_group[r + 3]] == begin:
                i1, i2, i3 = by_group[r + 1], by_group[r + 2], by_group[r + 3]
                a0, a1, a2, a3 = a[i], a[i1], a[i2], a[i3]
                for j in range(np.uintp(begin), np.uintp(hi)):
                    x = a[j]
                    product[j] *= ((a0 + x) * (a1 + x)) * ((a2 + x) * (a3 + x))
                loss -= ((s[i] - middle) + (s[i1] - middle)) * below
                loss -= ((s[i2] - middle) + (s[i3] - middle)) * below
                taken = 4
            else:
                a0 = a[i]
                for j in range(np.uintp(begin), np.uintp(hi)):
                    product[j] *= a0 + a[j]
                loss -= (s[i] - middle) * below
                taken = 1
            r += taken
            used += taken
        _add_logarithms(lo, size, product, bits, power, logs)
        for j in range(np.uintp(lo), np.uintp(size)):
            loss += w[j] * logs[j]
        head = end
    return loss


@njit(cache=True, nogil=True, error_model="numpy")
def _loss_pairs(s, items, table):
    """The loss with item weights, or with scores of any size: a logarithm for each pair."""
    start, code, weight = items.start, items.code, items.weight
    loss = 0.0
    n = code.size
    for i in range(n):
        row = table[code[i]]
        for j in range(start[i], n):
            d = s[i] - s[j]
            value = np.log1p(np.exp(-abs(d)))
            if d < 0:
                value -= d
            loss += row[code[j]] * weight[i] * weight[j] * value
    return loss


# --- blocks of queries -------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def logistic(
    first, last, layout, scores, table, query_weight, with_loss, gradient, hessian, cells, losses
):
    """Weighted pairwise logistic loss, gradient and diagonal Hessian; soft sums per cell.

    Writes gradient and Hessian in the caller's row order, and for each query the loss and, in
    `cells`, the sums of t = σ(s_j - s_i) over the pairs of each cell (not weighted by the table).
    """
    size = min(layout.longest, LONGEST) + LANES
    s, ones = np.empty(size), np.empty(size)
    g, h = np.empty(size), np.empty(size)
    work = Work(
        np.empty(size), np.empty(size, dtype=np.int64), np.empty(size), np.empty(size),
        np.empty(size), np.empty(size), g, h,
    )  # fmt: skip
    rows = np.zeros((len(table), (len(table) + 7) // 8 * 8))
    rows[:, : len(table)] = table
    bits = np.empty(size, dtype=np.int64)
    scale = bits.view(np.float64)
    for q in range(first, last):
        items = items_of(layout, q)
        n = items.order.size
        if n > LONGEST:
            continue
        cells[q] = 0.0
        loss = 0.0
        gather(items.order, scores, s)
        g[:n] = 0.0
        h[:n] = 0.0
        if n > 0 and items.start[0] < n:
            lowest, highest = span(n, s)
            widest = highest - lowest
            direct = widest <= WIDEST
            if direct:
                middle = 0.5 * lowest + 0.5 * highest
                exponentials(n, s, middle, work.a, bits, scale)
                narrow = layout.uniform and widest <= _NARROW
                _logistic_direct(items, layout.uniform, narrow, rows, work, cells[q])
                if with_loss and layout.uniform:
                    ones[:n] = 1.0
                    ones[n : n + LANES] = 0.0
                    loss = _loss_products(s, middle, widest, items, rows, ones, work, scale, bits)
            else:
                _logistic_wide(s, items, table, g, h, cells[q])
            if with_loss and not (direct and layout.uniform):
                loss = _loss_pairs(s, items, table)
        losses[q] = query_weight[q] * loss
        scatter(items.order, g, query_weight[q], gradient)
        scatter(items.order, h, query_weight[q], hessian)


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _product_row(lo, hi, a, w, vector, back, a0, u0, v0):
    total = 0.0
    for j in range(np.uintp(lo), np.uintp(hi)):
        i0 = 1.0 / (a0 + a[j])
        m = ((a0 * i0) * (a[j] * i0)) * (v0 - vector[j])
        back[j] += u0 * m
        total += w[j] * m
    return total


@njit(cache=True, nogil=True)
def _product_direct(a, items, table, vector, w, back, out):
    start, code, by_group, weight = items.start, items.code, items.by_group, items.weight
    n = code.size
    head = 0
    while head < n:
        k = code[by_group[head]]
        end, last = group_ends(head, n, start, code, by_group)
        lowest = start[by_group[head]]
        for j in range(lowest, n):
            w[j] = table[k, code[j]] * weight[j]
            back[j] = 0.0
        for r in range(head, last):
            i = by_group[r]
            out[i] += weight[i] * _product_row(
                start[i], n, a, w, vector, back, a[i], weight[i], vector[i]
            )
        for j in range(lowest, n):
            out[j] -= w[j] * back[j]
        head = end


@njit(cache=True, nogil=True, error_model="numpy")
def _product_wide(s, items, table, vector, out):
    start, code, weight = items.start, items.code, items.weight
    n = code.size
    for i in range(n):
        for j in range(start[i], n):
            _, curvature = pair_terms(s[i] - s[j])
            w = table[code[i], code[j]] * weight[i] * weight[j]
            m = w * curvature * (vector[i] - vector[j])
            out[i] += m
            out[j] -= m


@njit(cache=True, nogil=True)
def hessian_product(first, last, layout, scores, table, query_weight, vector, out):
    """The Hessian of the loss in the scores, times a vector, in the caller's row order."""
    size = min(layout.longest, LONGEST) + LANES
    s, a, w, v = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    back, result = np.empty(size), np.empty(size)
    bits = np.empty(size, dtype=np.int64)
    scale = bits.view(np.float64)
    for q in range(first, last):
        items = items_of(layout, q)
        n = items.order.size
        if n > LONGEST:
            continue
        gather(items.order, scores, s)
        gather(items.order, vector, v)
        result[:n] = 0.0
        if n > 0 and items.start[0] < n:
            lowest, highest = span(n, s)
            if highest - lowest <= WIDEST:
                exponentials(n, s, 0.5 * lowest + 0.5 * highest, a, bits, scale)
                _product_direct(a, items, table, v, w, back, result)
            else:
                _product_wide(s, items, table, v, result)
        scatter(items.order, result, query_weight[q], out)
