r"""The pairwise logistic loss of one long list in nearly linear time.

A list of n items has up to n(n-1)/2 pairs. For short lists it is quickest to visit them all; this
module is for lists of more than about a thousand items. Everything wanted is a sum over pairs of a
smooth function of the score difference :math:`d = s_i - s_j`, and such sums can be formed through a
few *moments* instead of pair by pair.

**Boxes.** The score axis is cut into boxes of width 2, on a grid through zero. An item is a box and
a place :math:`x \in [-1, 1]` in it. The moments of a box are :math:`M_m = \sum_i u_i x_i^m`, one
set for each group.

**One potential.** Let :math:`\ell(d) = \log(1 + e^{-d})`, so that :math:`t = -\ell'(d)` and
:math:`h = \ell''(d)`. What a source at score y adds at the place x of the axis is

.. math:: \ell(x - y) = \max(y - x, 0) + \log(1 + e^{-|x - y|}).

The first part is linear and summed exactly, by running sums over the boxes. Of the second part we
keep, in each box, its derivative :math:`\psi` as a polynomial in x: it is :math:`-t` from sources in
the same box or below and :math:`1 - t` from sources above. No large number is cancelled to leave a
small one, so tiny derivatives keep their relative accuracy. The Hessian is :math:`\psi'` and the
loss is :math:`\psi` integrated, so one polynomial serves all three. (The tables are built the other
way about: h is interpolated at Chebyshev points and then integrated, since integrating a polynomial
loses no accuracy and differentiating it does.)

**Near and far.** Sources at most two boxes away act through a small matrix which depends only on
the offset of the boxes. Beyond that :math:`|d| \ge 4` and a few terms of

.. math:: t = e^{-d} - e^{-2d} + e^{-3d} - \cdots

are enough. Each term is a running sum that decays by a factor from box to box. Only boxes that hold
items are visited, so neither the cost nor the accuracy depends on how far the scores spread.

**Labels.** The list, sorted by label, is cut into chunks that hold either one label or few items.
One sweep, from the last chunk to the first, adds up moments, so that each chunk meets all items
with lower labels at once; a second, from the first to the last, meets those with higher labels.
Pairs within a chunk are visited one by one. Chunks are made as long as balances the two kinds of
work. Where boxes are nearly as many as items, a chunk may be cut again by the same rule.
"""

import math

import numpy as np
from numba import njit
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

__all__ = ["hessian_product_long", "logistic_long"]

WIDTH = 2.0  # of a box; a power of two, so that places in a box are exact
TERMS = 18  # coefficients of a polynomial in a box
NEAR = 2  # boxes at most this far apart meet through a matrix
DECAYS = 8  # exponentials for the boxes beyond

FLAGS = {"reassoc", "contract", "nsz"}  # sums may be reordered; infinities are respected
PRODUCT_RANGE = 1300.0  # exp(s_i - c) * exp(c - s_j) can be formed up to here
HUGE = 1e300  # e^d is cut here, so that it stays finite

# What takes how long, in nanoseconds on one machine; only the ratios matter, and them not much.
PAIR_TIME = 0.7  # a pair, visited
WIDE_TIME = 8.0  # the same when the scores spread so far that it needs its own exponential
LOSS_TIME = 0.8  # its loss, on top
ITEM_TIME = 20.0  # an item in a sweep
NEAR_TIME = 700.0  # a box and group in both sweeps, near boxes
FAR_TIME = 300.0  # the same, far boxes


def _to_coefficients(n: int) -> NDArray[np.float64]:
    """Matrix from values at n Chebyshev points to Chebyshev coefficients."""
    matrix = chebyshev.chebvander(chebyshev.chebpts1(n), n - 1).T * (2.0 / n)
    matrix[0] /= 2.0
    return np.asarray(matrix)


def _to_powers(n: int) -> NDArray[np.float64]:
    """Matrix from n Chebyshev coefficients to those of 1, x, x^2, ..."""
    matrix = np.zeros((n, n))
    for k in range(n):
        matrix[: k + 1, k] = chebyshev.cheb2poly(np.eye(n)[k])[: k + 1]
    return matrix


def _expand(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Power coefficients, along the last axis, of functions given at Chebyshev points."""
    n = values.shape[-1]
    return np.asarray((values @ _to_coefficients(n).T) @ _to_powers(n).T)


def _translations() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Matrices from a box's moments to psi nearby, and rows from them to the loss at x = 0."""
    distance = WIDTH * np.arange(NEAR + 1)[:, None]  # of the source, which lies below
    y = chebyshev.chebpts1(TERMS)
    x = chebyshev.chebpts1(TERMS - 1)
    curvature = 0.5 / (1.0 + np.cosh(distance[:, :, None] - y[:, None] + x))
    curvature = _to_coefficients(TERMS) @ curvature @ _to_coefficients(TERMS - 1).T
    sign = (-1.0) ** np.arange(TERMS)
    psi = np.empty((2 * NEAR + 1, TERMS, TERMS))
    below = psi[NEAR::-1]
    below[:, :, 0] = _expand(-1.0 / (1.0 + np.exp(distance - y)))
    below[:, :, 1:] = _to_powers(TERMS) @ curvature @ _to_powers(TERMS - 1).T / np.arange(1, TERMS)
    psi[NEAR + 1 :] = -below[1:] * sign[:, None] * sign
    loss = np.empty((2 * NEAR + 1, TERMS))
    loss[NEAR::-1] = _expand(np.log1p(np.exp(y - distance)))
    loss[NEAR + 1 :] = loss[NEAR - 1 :: -1] * sign
    return psi, loss


def _exponentials() -> NDArray[np.float64]:
    """Power coefficients of e^(-q x) for q = 1, 2, ..."""
    q = np.arange(1.0, DECAYS + 1.0)[:, None]
    return _expand(np.exp(-q * chebyshev.chebpts1(TERMS)))


def _next_power() -> NDArray[np.float64]:
    """Coefficients of the polynomial with TERMS terms that is closest to x^TERMS on [-1, 1]."""
    last = chebyshev.cheb2poly(np.eye(TERMS + 1)[TERMS])
    return np.asarray(-last[:TERMS] / last[TERMS])


def _log_series() -> NDArray[np.float64]:
    """Coefficients in v^2 of log(1 + z) / v, where v = z / (2 + z) and 0 <= z <= 1."""
    points = chebyshev.chebpts1(10)
    v = np.sqrt((points + 1.0) / 18.0)
    fit = np.polynomial.Polynomial(_expand(2.0 * np.arctanh(v) / v))
    return np.asarray(fit(np.polynomial.Polynomial([-1.0, 18.0])).coef)


_ALTERNATE = (-1.0) ** np.arange(TERMS)
_SERIES = (-1.0) ** np.arange(1, DECAYS + 1)  # factors of e^(-q d) in -t
_FALLING = _exponentials()
_RISING = _FALLING * _ALTERNATE

NEAR_PSI, NEAR_LOSS = _translations()  # (offset, moment, coefficient), (offset, moment)
FAR_PSI = np.stack([_FALLING * _SERIES[:, None], -_RISING * _SERIES[:, None]])  # from below, above
FAR_SUM = np.stack([_RISING.T, _FALLING.T]).copy()  # moments to sums, for boxes above, below
FAR_LOSS = -_SERIES / np.arange(1.0, DECAYS + 1.0)
NEXT_POWER = _next_power()
LOG_SERIES = _log_series()
LOG_TERMS = LOG_SERIES.size


@njit(cache=True, nogil=True)
def _place(scores):
    """Return every item's box, its place there, and where the boxes are."""
    n = scores.size
    box = np.empty(n, np.int32)
    place = np.empty(n)
    low = high = np.floor(scores[0] / WIDTH)
    for i in range(n):
        cell = np.floor(scores[i] / WIDTH)
        low = min(low, cell)
        high = max(high, cell)
        place[i] = (scores[i] - WIDTH * cell) - 0.5 * WIDTH
    if high - low >= 4.0 * n + 4096.0:
        return box, place, _number_sorted(scores, box)
    where = np.empty(int(high - low) + 1)
    for b in range(where.size):
        where[b] = WIDTH * (low + b)
    for i in range(n):
        box[i] = int(np.floor(scores[i] / WIDTH) - low)
    return box, place, _renumber(box, where)


@njit(cache=True, nogil=True)
def _renumber(box, where):
    """Number only the boxes in use, in the same order; return where they are."""
    number = np.zeros(where.size, np.int32)
    for i in range(box.size):
        number[box[i]] = 1
    used = np.empty(where.size)
    n_used = 0
    for b in range(where.size):
        if number[b] > 0:
            number[b] = n_used
            used[n_used] = where[b]
            n_used += 1
    for i in range(box.size):
        box[i] = number[box[i]]
    return used[:n_used]


@njit(cache=True, nogil=True)
def _number_sorted(scores, box):
    """Number the boxes by merge sort, when they lie too far apart to be counted through."""
    n = scores.size
    order = np.empty(n, np.int64)
    other = np.empty(n, np.int64)
    for i in range(n):
        order[i] = i
    width = 1
    while width < n:
        for low in range(0, n, 2 * width):
            middle = min(low + width, n)
            high = min(middle + width, n)
            i, j = low, middle
            for k in range(low, high):
                if j >= high or (i < middle and scores[order[i]] <= scores[order[j]]):
                    other[k] = order[i]
                    i += 1
                else:
                    other[k] = order[j]
                    j += 1
        order, other = other, order
        width *= 2
    where = np.empty(n)
    n_used = 0
    for k in range(n):
        cell = WIDTH * np.floor(scores[order[k]] / WIDTH)
        if n_used == 0 or cell != where[n_used - 1]:
            where[n_used] = cell
            n_used += 1
        box[order[k]] = n_used - 1
    return where[:n_used]


@njit(cache=True, nogil=True)
def _lay_out(where):
    """Return each box's range of near boxes, and the decays between boxes.

    The decays are, for each box: from the box before it, to the first box above which is far, and
    to the first box below which is far.
    """
    n = where.size
    reach = WIDTH * (NEAR + 0.5)
    near = np.zeros((n, 2), np.int64)
    decay = np.zeros((3, n, DECAYS))
    for b in range(1, n):
        _fill_powers(where[b] - where[b - 1], decay[0, b])
        a = near[b - 1, 0]
        while where[b] - where[a] > reach:
            _fill_powers(where[b] - where[a], decay[1, a])
            a += 1
        near[b, 0] = a
    near[n - 1, 1] = n
    for b in range(n - 2, -1, -1):
        a = near[b + 1, 1]
        while where[a - 1] - where[b] > reach:
            a -= 1
            _fill_powers(where[a] - where[b], decay[2, a])
        near[b, 1] = a
    return near, decay


@njit(cache=True, nogil=True)
def _fill_powers(distance, out):
    """Write e^(-q distance) for q = 1, 2, ..."""
    factor = math.exp(-distance)
    power = 1.0
    for q in range(DECAYS):
        power *= factor
        out[q] = power


@njit(cache=True, nogil=True)
def _cut(start, low, high, most):
    """Cut [low, high) into chunks of one label or of at most `most` items; return the bounds."""
    bounds = np.empty(2 * ((high - low) // most) + 3, np.int64)
    bounds[0] = low
    n = 0
    end = low
    while end < high:
        end = start[end]
        while end < high and start[end] - bounds[n] <= most:
            end = start[end]
        n += 1
        bounds[n] = end
    return bounds[: n + 1]


@njit(cache=True, nogil=True)
def _mark(low, high, box, marked):
    """Mark the boxes which these items use."""
    for b in range(marked.size):
        marked[b] = False
    for i in range(low, high):
        marked[box[i]] = True


@njit(cache=True, nogil=True, fastmath=FLAGS)
def _add_moments(low, high, box, place, codes, weight, moments):
    """Add these items to the moments of their groups and boxes."""
    for i in range(low, high):
        x = place[i]
        power = weight[i]
        k, b = codes[i], box[i]
        for m in range(TERMS):
            moments[k, b, m] += power
            power *= x


@njit(cache=True, nogil=True, fastmath=FLAGS, error_model="numpy")
def _add_near(moments, filled, wanted, where, near, psi, base):
    """Add to psi, and to the loss at x = 0, what comes from the near boxes.

    Six moments at a time: the loop over the coefficients is then worth vector instructions.
    """
    for b in range(wanted.size):
        if not wanted[b]:
            continue
        for a in range(near[b, 0], near[b, 1]):
            if not filled[a]:
                continue
            o = int((where[a] - where[b]) / WIDTH) + NEAR
            for k in range(moments.shape[0]):
                for j in range(0, TERMS, 6):
                    m0, m1, m2 = moments[k, a, j], moments[k, a, j + 1], moments[k, a, j + 2]
                    m3, m4, m5 = moments[k, a, j + 3], moments[k, a, j + 4], moments[k, a, j + 5]
                    base[k, b] += (
                        NEAR_LOSS[o, j] * m0
                        + NEAR_LOSS[o, j + 1] * m1
                        + NEAR_LOSS[o, j + 2] * m2
                        + NEAR_LOSS[o, j + 3] * m3
                        + NEAR_LOSS[o, j + 4] * m4
                        + NEAR_LOSS[o, j + 5] * m5
                    )
                    for c in range(TERMS):
                        psi[k, b, c] += (
                            NEAR_PSI[o, j, c] * m0
                            + NEAR_PSI[o, j + 1, c] * m1
                            + NEAR_PSI[o, j + 2, c] * m2
                            + NEAR_PSI[o, j + 3, c] * m3
                            + NEAR_PSI[o, j + 4, c] * m4
                            + NEAR_PSI[o, j + 5, c] * m5
                        )


@njit(cache=True, nogil=True, fastmath=FLAGS, error_model="numpy")
def _add_far(moments, filled, wanted, near, decay, psi, base):
    """Add to psi, and to the loss at x = 0, what comes from the far boxes.

    First the boxes below, going up, then those above, going down.
    """
    n = wanted.size
    running = np.empty(DECAYS)
    for k in range(moments.shape[0]):
        for above in range(2):
            running[:] = 0.0
            live = False
            done = n if above else 0
            for step in range(n):
                b = n - 1 - step if above else step
                if live:
                    for q in range(DECAYS):
                        running[q] *= decay[0, b + above, q]
                while done != near[b, above]:
                    a = done - above
                    done += 1 - 2 * above
                    if filled[a]:
                        live = True
                        _collect(moments[k, a], FAR_SUM[above], decay[1 + above, a], running)
                if live and wanted[b]:
                    base[k, b] += _spread(running, FAR_PSI[above], psi[k, b])


@njit(cache=True, nogil=True, fastmath=FLAGS)
def _collect(moments, matrix, factor, running):
    """Add a box's moments to the running sums."""
    for j in range(0, TERMS, 6):
        m0, m1, m2 = moments[j], moments[j + 1], moments[j + 2]
        m3, m4, m5 = moments[j + 3], moments[j + 4], moments[j + 5]
        for q in range(DECAYS):
            running[q] += factor[q] * (
                matrix[j, q] * m0
                + matrix[j + 1, q] * m1
                + matrix[j + 2, q] * m2
                + matrix[j + 3, q] * m3
                + matrix[j + 4, q] * m4
                + matrix[j + 5, q] * m5
            )


@njit(cache=True, nogil=True, fastmath=FLAGS)
def _spread(running, matrix, psi):
    """Add the running sums to psi; return the loss at x = 0."""
    r0, r1, r2, r3 = running[0], running[1], running[2], running[3]
    r4, r5, r6, r7 = running[4], running[5], running[6], running[7]
    for c in range(TERMS):
        psi[c] += (
            matrix[0, c] * r0
            + matrix[1, c] * r1
            + matrix[2, c] * r2
            + matrix[3, c] * r3
            + matrix[4, c] * r4
            + matrix[5, c] * r5
            + matrix[6, c] * r6
            + matrix[7, c] * r7
        )
    loss = 0.0
    for q in range(DECAYS):
        loss += FAR_LOSS[q] * running[q]
    return loss


@njit(cache=True, nogil=True, fastmath=FLAGS)
def _evaluate(low, high, box, place, codes, weight, slope, gradient, hessian):
    """Add each item's polynomial to its gradient, and the polynomial's slope to its Hessian."""
    for i in range(low, high):
        x = place[i]
        k, b = codes[i], box[i]
        value = slope[k, b, TERMS - 1]
        change = value
        for m in range(TERMS - 2, 0, -1):
            value = value * x + slope[k, b, m]
            change = change * x + value
        gradient[i] += weight[i] * (value * x + slope[k, b, 0])
        hessian[i] += weight[i] * change


@njit(cache=True, nogil=True, fastmath=FLAGS)
def _evaluate_product(low, high, box, place, codes, weight, vector, slope, out):
    """Add each item's row of the Hessian times the vector."""
    n_groups = slope.shape[0] // 2
    for i in range(low, high):
        x = place[i]
        k, b = codes[i], box[i]
        total = 0.0
        mixed = 0.0
        for m in range(TERMS - 1, 0, -1):
            total = total * x + m * slope[k, b, m]
            mixed = mixed * x + m * slope[n_groups + k, b, m]
        out[i] += weight[i] * (vector[i] * total - mixed)


@njit(cache=True, nogil=True)
def _sum_boxes(up, moments, where, count, reach):
    """Write each group's weight in a box and below; or else above, and that times its distance."""
    n = where.size
    for k in range(moments.shape[0]):
        total = 0.0
        moment = 0.0
        for step in range(n):
            b = step if up else n - 1 - step
            if not up:
                if step > 0:
                    moment += total * (where[b + 1] - where[b])
                reach[k, b] = moment
                moment += moments[k, b, 1]
                count[k, b] = total
            total += moments[k, b, 0]
            if up:
                count[k, b] = total


@njit(cache=True, nogil=True, fastmath=FLAGS, error_model="numpy")
def _meet(own, wanted, psi, base, count, reach, table, with_loss, cells):
    """Add the pairs of a chunk with all lower labels to the cells; return their loss."""
    loss = 0.0
    integral = np.empty(TERMS)
    for k in range(own.shape[0]):
        for b in range(wanted.size):
            weight = own[k, b, 0]
            if not wanted[b] or weight == 0.0:
                continue
            total = 0.0
            for m in range(TERMS):
                total += NEXT_POWER[m] * own[k, b, m]
            integral[TERMS - 1] = total / TERMS
            for m in range(TERMS - 1):
                integral[m] = own[k, b, m + 1] / (m + 1)
            for l in range(own.shape[0]):
                flat = 0.0
                curved = base[l, b] * weight
                for m in range(TERMS):
                    flat += psi[l, b, m] * own[k, b, m]
                    curved += psi[l, b, m] * integral[m]
                cells[k, l] += count[l, b] * weight - flat
                if with_loss and table[k, l] != 0.0:
                    straight = reach[l, b] * weight - count[l, b] * own[k, b, 1]
                    loss += table[k, l] * (straight + curved)
    return loss


@njit(cache=True, nogil=True, fastmath=FLAGS)
def _combine(up, psi, count, table, wanted, slope):
    """Write the weighted sum over the sources' groups, for each group of receivers."""
    n_groups = table.shape[0]
    for column in range(psi.shape[0]):
        k = column % n_groups
        for b in range(wanted.size):
            if not wanted[b]:
                continue
            for m in range(TERMS):
                slope[column, b, m] = 0.0
            for l in range(n_groups):
                w = table[l, k] if up else table[k, l]
                source = column - k + l
                slope[column, b, 0] += w * count[source, b] if up else -w * count[source, b]
                for m in range(TERMS):
                    slope[column, b, m] += w * psi[source, b, m]


@njit(cache=True, nogil=True)
def _sweep(
    up, first, bounds, box, place, where, near, decay, codes, table, weight, vector, extra, with_loss,
    gradient, hessian, cells,
):  # fmt: skip
    """Let each chunk meet all those after it, from the last on; or, up, all those before it."""
    product = vector.size > 0
    n_groups, n_boxes, n_chunks = table.shape[0], where.size, bounds.size - 1
    n_columns = 2 * n_groups if product else n_groups
    work = np.zeros((4, n_columns, n_boxes, TERMS))
    moments, own, psi, slope = work[0], work[1], work[2], work[3]
    sums = np.zeros((3, n_columns, n_boxes))
    base, count, reach = sums[0], sums[1], sums[2]
    marks = np.zeros((2, n_boxes), np.bool_)
    filled, wanted = marks[0], marks[1]
    loss = 0.0
    for step in range(n_chunks):
        c = step if up else n_chunks - 1 - step
        low, high = bounds[c] - first, bounds[c + 1] - first
        _mark(low, high, box, wanted)
        own[:] = 0.0
        if step < n_chunks - 1 or not (up or product):
            _add_moments(low, high, box, place, codes, weight, own)
            if product:
                _add_moments(low, high, box, place, codes, extra, own[n_groups:])
        if step > 0:
            psi[:] = 0.0
            base[:] = 0.0
            _add_near(moments, filled, wanted, where, near, psi, base)
            _add_far(moments, filled, wanted, near, decay, psi, base)
            _sum_boxes(up, moments, where, count, reach)
            _combine(up, psi, count, table, wanted, slope)
            if product:
                _evaluate_product(low, high, box, place, codes, weight, vector, slope, gradient)
            else:
                _evaluate(low, high, box, place, codes, weight, slope, gradient, hessian)
                if not up:
                    loss += _meet(own, wanted, psi, base, count, reach, table, with_loss, cells)
        for b in range(n_boxes):
            if wanted[b]:
                filled[b] = True
                for k in range(n_columns):
                    for m in range(TERMS):
                        moments[k, b, m] += own[k, b, m]
    return loss


@njit(cache=True, nogil=True, fastmath=FLAGS, error_model="numpy")
def _direct(
    low, high, scores, start, codes, table, weight, vector, with_loss, gradient, hessian, cells
):
    """Visit all pairs of the items in [low, high); return their loss."""
    n = high - low
    n_groups = table.shape[0]
    product = vector.size > 0
    least = most = scores[low]
    for i in range(low, high):
        least = min(least, scores[i])
        most = max(most, scores[i])
    wide = most - least > PRODUCT_RANGE
    middle = 0.5 * least + 0.5 * most
    rows = np.zeros((3 + 2 * n_groups, n))
    grow, fall, column_h = rows[0], rows[1], rows[2]
    heavy, column_t = rows[3 : 3 + n_groups], rows[3 + n_groups :]
    for j in range(n):
        grow[j] = 1.0 if wide else math.exp(scores[low + j] - middle)
        fall[j] = 1.0 / grow[j]
        for k in range(n_groups):
            heavy[k, j] = table[k, codes[low + j]] * weight[low + j]
    loss = 0.0
    for i in range(n):
        j = start[low + i] - low
        if j >= n:
            break
        k = codes[low + i]
        score, u = scores[low + i], weight[low + i]
        if wide:
            for a in range(j, n):
                fall[a] = math.exp(min(max(score - scores[low + a], -700.0), 700.0))
        if product:
            gradient[low + i] += u * _row_product(
                grow[i], u, vector[low + i], fall[j:], heavy[k, j:], vector[low + j : high],
                column_h[j:],
            )  # fmt: skip
            continue
        t, h = _row(grow[i], u, fall[j:], heavy[k, j:], column_t[k, j:], column_h[j:])
        gradient[low + i] -= u * t
        hessian[low + i] += u * h
        if with_loss:
            loss += u * _row_loss(grow[i], score, fall[j:], heavy[k, j:], scores[low + j : high])
    for j in range(n):
        if product:
            gradient[low + j] -= column_h[j]
            continue
        hessian[low + j] += column_h[j]
        for k in range(n_groups):
            gradient[low + j] += heavy[k, j] * column_t[k, j]
            cells[k, codes[low + j]] += weight[low + j] * column_t[k, j]
    return loss


@njit(cache=True, nogil=True, fastmath=FLAGS, error_model="numpy")
def _row(grow, weight, fall, heavy, column_t, column_h):
    """Add one item's pairs to the columns of its partners; return the sums over its row."""
    sum_t = 0.0
    sum_h = 0.0
    for j in range(fall.size):
        q = min(grow * fall[j], HUGE)
        t = 1.0 / (1.0 + q)
        h = q * t * t * heavy[j]
        sum_t += heavy[j] * t
        sum_h += h
        column_t[j] += weight * t
        column_h[j] += weight * h
    return sum_t, sum_h


@njit(cache=True, nogil=True, fastmath=FLAGS, error_model="numpy")
def _row_loss(grow, score, fall, heavy, scores):
    """Return the weighted loss of one item's pairs."""
    total = 0.0
    for j in range(fall.size):
        q = min(grow * fall[j], HUGE)
        less = min(q, 1.0)
        v = less / (2.0 * max(q, 1.0) + less)
        square = v * v
        value = 0.0
        for m in range(LOG_TERMS - 1, -1, -1):
            value = value * square + LOG_SERIES[m]
        total += heavy[j] * (value * v + max(scores[j] - score, 0.0))
    return total


@njit(cache=True, nogil=True, fastmath=FLAGS, error_model="numpy")
def _row_product(grow, weight, value, fall, heavy, vector, column):
    """Add one item's pairs to its partners' products; return the sum over its row."""
    total = 0.0
    for j in range(fall.size):
        q = min(grow * fall[j], HUGE)
        t = 1.0 / (1.0 + q)
        part = q * t * t * heavy[j] * (value - vector[j])
        total += part
        column[j] += weight * part
    return total


@njit(cache=True, nogil=True)
def _chunk_size(n_boxes, n_groups, pair_time):
    """Return how many items a chunk should hold, for both kinds of work to take equal time."""
    n_near = min(float(n_boxes), 2.0 * NEAR_TIME * n_groups / pair_time)
    time = n_groups * (n_near * NEAR_TIME + n_boxes * FAR_TIME)
    return max(int(math.sqrt(2.0 * time / pair_time)), 64)


@njit(cache=True, nogil=True)
def _sweeps_pay(bounds, n_boxes, n_groups, pair_time):
    """Say whether to sweep over these chunks is quicker than to visit their pairs."""
    n_chunks = bounds.size - 1
    pairs = 0.0
    for c in range(n_chunks):
        pairs += float(bounds[c + 1] - bounds[c]) * float(bounds[n_chunks] - bounds[c + 1])
    boxes_time = (n_chunks - 1.0) * n_boxes * n_groups * (NEAR_TIME + FAR_TIME)
    return pairs * pair_time > boxes_time + (bounds[n_chunks] - bounds[0]) * ITEM_TIME


@njit(cache=True, nogil=True)
def _run(scores, start, codes, table, weight, vector, with_loss, gradient, hessian, cells):
    """Add everything up; with a vector, its product with the Hessian instead, into gradient."""
    n, n_groups = scores.size, table.shape[0]
    extra = np.empty(vector.size)
    for i in range(vector.size):
        extra[i] = weight[i] * vector[i]
    box, place, where = _place(scores)
    wide = where[-1] - where[0] > PRODUCT_RANGE
    pair_time = (WIDE_TIME if wide else PAIR_TIME) + (LOSS_TIME if with_loss else 0.0)
    stack = np.empty((2, n // 64 + 2), np.int64)
    stack[0, 0] = 0
    stack[1, 0] = n
    depth = 1
    loss = 0.0
    while depth > 0:
        depth -= 1
        first, last = stack[0, depth], stack[1, depth]
        box_here, where_here = box, where
        if last - first < n:
            box_here = box[first:last].copy()
            where_here = _renumber(box_here, where)
        most = _chunk_size(where_here.size, n_groups, pair_time)
        bounds = _cut(start, first, last, most)
        if _sweeps_pay(bounds, where_here.size, n_groups, pair_time):
            near, decay = _lay_out(where_here)
            for up in range(2):
                loss += _sweep(
                    up == 1, first, bounds, box_here, place[first:last], where_here, near, decay,
                    codes[first:last], table, weight[first:last], vector[first:last],
                    extra[first:last], with_loss, gradient[first:last], hessian[first:last], cells,
                )  # fmt: skip
        else:
            bounds[1] = last
            bounds = bounds[:2]
        for c in range(bounds.size - 1):
            low, high = bounds[c], bounds[c + 1]
            if start[low] >= high:
                continue
            again = _chunk_size(min(high - low, where_here.size), n_groups, pair_time)
            if bounds.size > 2 and high - low > 1.5 * again:
                stack[0, depth] = low
                stack[1, depth] = high
                depth += 1
            else:
                loss += _direct(
                    low, high, scores, start, codes, table, weight, vector, with_loss, gradient,
                    hessian, cells,
                )  # fmt: skip
    return loss


@njit(cache=True, nogil=True)
def logistic_long(
    scores: NDArray[np.float64],
    start: NDArray[np.int32],
    codes: NDArray[np.int32],
    table: NDArray[np.float64],
    item_weight: NDArray[np.float64],
    with_loss: bool,
    gradient: NDArray[np.float64],
    hessian: NDArray[np.float64],
    cells: NDArray[np.float64],
) -> float:
    gradient[:] = 0.0
    hessian[:] = 0.0
    cells[:] = 0.0
    if scores.size == 0:
        return 0.0
    return _run(
        scores, start, codes, table, item_weight, np.empty(0), with_loss, gradient, hessian, cells
    )


@njit(cache=True, nogil=True)
def hessian_product_long(
    scores: NDArray[np.float64],
    start: NDArray[np.int32],
    codes: NDArray[np.int32],
    table: NDArray[np.float64],
    item_weight: NDArray[np.float64],
    vector: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None:
    out[:] = 0.0
    if scores.size == 0:
        return
    low = high = vector[0]
    for i in range(vector.size):
        low = min(low, vector[i])
        high = max(high, vector[i])
    middle = 0.5 * low + 0.5 * high
    centred = np.empty(vector.size)
    for i in range(vector.size):
        centred[i] = vector[i] - middle
    with_loss = np.bool_(False)
    nothing = np.empty((0, 0))
    _run(
        scores, start, codes, table, item_weight, centred, with_loss, out, nothing.ravel(), nothing
    )
