r"""The pairwise logistic loss of one long list in nearly linear time.

A list of n items has up to n(n-1)/2 pairs. For short lists it is quickest to visit them all; this
module is for lists of more than about a thousand items. Everything wanted is a sum over pairs of a
smooth function of the score difference :math:`d = s_i - s_j`, and such sums can be formed through a
few *moments* instead of pair by pair.

**Boxes.** The score axis is cut into boxes of width 2, on a grid through zero. An item is a box and
a place :math:`x \in [-1, 1]` in it. The moments of a box are :math:`M_m = \sum_i u_i x_i^m`, one
set for each group.

**One potential.** Let :math:`\ell(d) = \log(1 + e^{-d})`, so that :math:`t = -\ell'(d)` and
:math:`h = \ell''(d)`. What a source at score y adds at the score x is

.. math:: \ell(x - y) = \max(y - x, 0) + \log(1 + e^{-|x - y|}).

The first part is linear and summed exactly, by running sums over the boxes; y counts as above x if
its box is. Of the rest we keep, in each box, the derivative :math:`\psi` as a polynomial in x. It
is :math:`-t` for sources in the same box or below and :math:`1 - t` for sources above, so no large
number is cancelled to leave a small one, and tiny derivatives keep their relative accuracy. The
Hessian is :math:`\psi'` and the loss is :math:`\psi` integrated: one polynomial serves all three.
(The tables are built the other way about: h is interpolated at Chebyshev points and integrated,
since integrating a polynomial loses no accuracy and differentiating it does.)

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

With 18 terms single pairs are good to 5e-14 (t) and 7e-13 (h), relatively.
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
PRODUCT_TIME = 0.45  # the same for the product with a vector
WIDE_TIME = 2.5  # its own exponential, on top, when the scores spread too far for products
LOSS_TIME = 0.8  # its loss, on top
ITEM_TIME = 10.0  # an item in the sweeps, more than among visited pairs
NEAR_TIME = 900.0  # a box and group which a chunk uses, in both sweeps
FAR_TIME = 50.0  # any other box and group, in both sweeps


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
COLLECT_BELOW = _RISING.T.copy()  # from the moments of a box to the sums used above it
COLLECT_ABOVE = _FALLING.T.copy()
SPREAD_BELOW = _FALLING * _SERIES[:, None]  # from such sums to psi
SPREAD_ABOVE = -_RISING * _SERIES[:, None]
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
    """Return the first near box and one past the last, for each box, and decays between boxes.

    The decays are e^(-q distance) from the box before, to the first box above that is far, and to
    the first box below that is far.
    """
    n = where.size
    reach = WIDTH * (NEAR + 0.5)
    near_low, near_high = np.empty(n, np.int64), np.empty(n, np.int64)
    step, rise, fall = np.zeros((n, DECAYS)), np.zeros((n, DECAYS)), np.zeros((n, DECAYS))
    a = 0
    for b in range(n):
        if b > 0:
            _fill_powers(where[b] - where[b - 1], step[b])
        while where[b] - where[a] > reach:
            _fill_powers(where[b] - where[a], rise[a])
            a += 1
        near_low[b] = a
    a = n
    for b in range(n - 1, -1, -1):
        while where[a - 1] - where[b] > reach:
            a -= 1
            _fill_powers(where[a] - where[b], fall[a])
        near_high[b] = a
    return near_low, near_high, step, rise, fall


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
def _plan(start, box, where, n_groups, pair_time):
    """Decide what to do; return tasks (first, last, chunk size), no size for visiting all pairs.

    Each task is a range of the list. Where sweeps over its chunks pay, the chunks that hold
    several labels become tasks in their turn.
    """
    n = box.size
    if where[-1] - where[0] > PRODUCT_RANGE:
        pair_time += WIDE_TIME
    tasks = np.empty((n + 1, 3), np.int64)
    seen = np.zeros(where.size, np.int64)
    tasks[0, 0] = 0
    tasks[0, 1] = n
    n_tasks = 1
    done = 0
    while done < n_tasks:
        first, last = tasks[done, 0], tasks[done, 1]
        done += 1
        n_boxes = 0.0
        for i in range(first, last):
            if seen[box[i]] != done:
                seen[box[i]] = done
                n_boxes += 1.0
        # Such chunks that visiting their pairs takes as long as their part in the sweeps; a chunk
        # cannot use more boxes than it has items.
        n_near = min(n_boxes, 2.0 * NEAR_TIME * n_groups / pair_time)
        box_time = n_groups * (n_near * NEAR_TIME + n_boxes * FAR_TIME)
        most = max(int(math.sqrt(2.0 * box_time / pair_time)), 64)
        bounds = _cut(start, first, last, most)
        n_chunks = bounds.size - 1
        pairs = 0.0
        for c in range(n_chunks):
            pairs += float(bounds[c + 1] - bounds[c]) * float(last - bounds[c + 1])
        n_near = min(n_boxes * (n_chunks - 1.0), float(last - first))
        box_time = n_groups * (n_near * NEAR_TIME + (n_chunks - 1.0) * n_boxes * FAR_TIME)
        sweep_time = box_time + (last - first) * ITEM_TIME
        if pairs * pair_time < sweep_time or n_tasks + n_chunks > n:
            tasks[done - 1, 2] = 0
            continue
        tasks[done - 1, 2] = most
        for c in range(n_chunks):
            if start[bounds[c]] < bounds[c + 1]:
                tasks[n_tasks, 0] = bounds[c]
                tasks[n_tasks, 1] = bounds[c + 1]
                n_tasks += 1
    return tasks[:n_tasks]


@njit(cache=True, nogil=True)
def _own_boxes(first, last, box, where):
    """Return the boxes of a range of the list, numbered for it alone, and where they are."""
    if last - first == box.size:
        return box, where
    own = np.empty(box.size, np.int32)
    for i in range(first, last):
        own[i] = box[i]
    return own, _renumber(own[first:last], where)


@njit(cache=True, nogil=True)
def _begin_chunk(low, high, box, wanted, own, psi, base):
    """Mark the boxes which these items use, and clear what is computed for them."""
    for b in range(wanted.size):
        wanted[b] = False
    for i in range(low, high):
        wanted[box[i]] = True
    for k in range(own.shape[0]):
        for b in range(wanted.size):
            if wanted[b]:
                base[k, b] = 0.0
                for m in range(TERMS):
                    own[k, b, m] = 0.0
                    psi[k, b, m] = 0.0


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
def _add_near(moments, filled, wanted, where, layout, psi, base):
    """Add to psi, and to the loss at x = 0, what comes from the near boxes.

    Six moments at a time: the loop over the coefficients is then worth vector instructions.
    """
    near_low, near_high, _, _, _ = layout
    for b in range(wanted.size):
        if not wanted[b]:
            continue
        for a in range(near_low[b], near_high[b]):
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


@njit(cache=True, nogil=True, fastmath=FLAGS)
def _add_far(far_below, far_above, filled, wanted, layout, psi, base):
    """Add to psi, and to the loss at x = 0, what comes from the far boxes.

    First the boxes below, going up, then those above, going down.
    """
    near_low, near_high, step, _, _ = layout
    n = wanted.size
    running = np.empty(DECAYS)
    for k in range(psi.shape[0]):
        running[:] = 0.0
        a = 0
        for b in range(n):
            for q in range(DECAYS):
                running[q] *= step[b, q]
            while a < near_low[b]:
                if filled[a]:
                    for q in range(DECAYS):
                        running[q] += far_below[k, a, q]
                a += 1
            if wanted[b] and a > 0:
                base[k, b] += _spread(running, SPREAD_BELOW, psi[k, b])
        running[:] = 0.0
        a = n
        for b in range(n - 1, -1, -1):
            while a > near_high[b]:
                a -= 1
                if filled[a]:
                    for q in range(DECAYS):
                        running[q] += far_above[k, a, q]
            if wanted[b] and a < n:
                base[k, b] += _spread(running, SPREAD_ABOVE, psi[k, b])
            for q in range(DECAYS):
                running[q] *= step[b, q]


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
def _evaluate(low, high, box, place, codes, weight, psi, gradient, hessian):
    """Add each item's polynomial to its gradient, and the polynomial's slope to its Hessian."""
    for i in range(low, high):
        x = place[i]
        k, b = codes[i], box[i]
        value = psi[k, b, TERMS - 1]
        change = value
        for m in range(TERMS - 2, 0, -1):
            value = value * x + psi[k, b, m]
            change = change * x + value
        gradient[i] += weight[i] * (value * x + psi[k, b, 0])
        hessian[i] += weight[i] * change


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
    integral = np.empty(TERMS)  # moments for the integral of psi instead of psi
    for k in range(own.shape[0]):
        for b in range(wanted.size):
            if not wanted[b]:
                continue
            weight = own[k, b, 0]
            last = 0.0
            for m in range(TERMS):
                last += NEXT_POWER[m] * own[k, b, m]
            for m in range(TERMS - 1):
                integral[m] = own[k, b, m + 1] / (m + 1)
            integral[TERMS - 1] = last / TERMS
            for j in range(own.shape[0]):
                flat = 0.0
                curved = 0.0
                for m in range(TERMS):
                    flat += psi[j, b, m] * own[k, b, m]
                    curved += psi[j, b, m] * integral[m]
                cells[k, j] += count[j, b] * weight - flat
                if with_loss and weight != 0.0 and table[k, j] != 0.0:
                    straight = reach[j, b] * weight - count[j, b] * own[k, b, 1]
                    loss += table[k, j] * (straight + base[j, b] * weight + curved)
    return loss


@njit(cache=True, nogil=True, fastmath=FLAGS)
def _combine(up, psi, count, table, wanted):
    """Replace psi of each group of sources by their weighted sum for each group of receivers."""
    n_groups = table.shape[0]
    total = np.empty((n_groups, TERMS))
    for b in range(wanted.size):
        if not wanted[b]:
            continue
        total[:] = 0.0
        for k in range(n_groups):
            for j in range(n_groups):
                w = table[j, k] if up else table[k, j]
                total[k, 0] += w * count[j, b] if up else -w * count[j, b]
                for m in range(TERMS):
                    total[k, m] += w * psi[j, b, m]
        for k in range(n_groups):
            for m in range(TERMS):
                psi[k, b, m] = total[k, m]


@njit(cache=True, nogil=True, fastmath=FLAGS)
def _add_chunk(own, wanted, layout, moments, far_below, far_above, filled):
    """Add a chunk's moments to those of the chunks before, and what they are far away."""
    _, _, _, rise, fall = layout
    for b in range(wanted.size):
        if not wanted[b]:
            continue
        filled[b] = True
        for k in range(own.shape[0]):
            for m in range(TERMS):
                moments[k, b, m] += own[k, b, m]
            _collect(own[k, b], COLLECT_BELOW, rise[b], far_below[k, b])
            _collect(own[k, b], COLLECT_ABOVE, fall[b], far_above[k, b])


@njit(cache=True, nogil=True, fastmath=FLAGS)
def _collect(moments, matrix, factor, sums):
    """Add a box's moments to its sums of decaying exponentials."""
    for j in range(0, TERMS, 6):
        m0, m1, m2 = moments[j], moments[j + 1], moments[j + 2]
        m3, m4, m5 = moments[j + 3], moments[j + 4], moments[j + 5]
        for q in range(DECAYS):
            sums[q] += factor[q] * (
                matrix[j, q] * m0
                + matrix[j + 1, q] * m1
                + matrix[j + 2, q] * m2
                + matrix[j + 3, q] * m3
                + matrix[j + 4, q] * m4
                + matrix[j + 5, q] * m5
            )


@njit(cache=True, nogil=True)
def _sweep(
    first, last, most, start, box, place, where, codes, table, weight, with_loss, gradient,
    hessian, cells,
):  # fmt: skip
    """Add all pairs of items in different chunks; return their loss.

    Going down, from the last chunk on, each chunk meets all after it, the lower labels; going up,
    all before it.
    """
    box, where = _own_boxes(first, last, box, where)
    layout = _lay_out(where)
    bounds = _cut(start, first, last, most)
    n_groups, n_boxes, n_chunks = table.shape[0], where.size, bounds.size - 1
    moments = np.empty((n_groups, n_boxes, TERMS))
    far_below = np.empty((n_groups, n_boxes, DECAYS))
    far_above = np.empty((n_groups, n_boxes, DECAYS))
    filled = np.empty(n_boxes, np.bool_)
    own = np.empty((n_groups, n_boxes, TERMS))
    psi = np.empty((n_groups, n_boxes, TERMS))
    base = np.empty((n_groups, n_boxes))
    count = np.empty((n_groups, n_boxes))
    reach = np.empty((n_groups, n_boxes))
    wanted = np.empty(n_boxes, np.bool_)
    loss = 0.0
    for up in range(2):
        moments[:], far_below[:], far_above[:], filled[:] = 0.0, 0.0, 0.0, False
        for step in range(n_chunks):
            c = step if up else n_chunks - 1 - step
            low, high = bounds[c], bounds[c + 1]
            _begin_chunk(low, high, box, wanted, own, psi, base)
            if step < n_chunks - 1 or not up:
                _add_moments(low, high, box, place, codes, weight, own)
            if step > 0:
                _add_near(moments, filled, wanted, where, layout, psi, base)
                _add_far(far_below, far_above, filled, wanted, layout, psi, base)
                _sum_boxes(up, moments, where, count, reach)
                if not up:
                    loss += _meet(own, wanted, psi, base, count, reach, table, with_loss, cells)
                _combine(up, psi, count, table, wanted)
                _evaluate(low, high, box, place, codes, weight, psi, gradient, hessian)
            if step < n_chunks - 1:
                _add_chunk(own, wanted, layout, moments, far_below, far_above, filled)
    return loss


@njit(cache=True, nogil=True)
def _prepare(low, high, scores, codes, table, weight):
    """Return what visiting the pairs of [low, high) needs.

    Whether the scores spread too far for e^d to be had as a product; if not, its factors e^s and
    e^(-s), up to a shift of s; and for each group the weight of its pairs with each item.
    """
    n, n_groups = high - low, table.shape[0]
    least = most = scores[low]
    for i in range(low, high):
        least = min(least, scores[i])
        most = max(most, scores[i])
    wide = most - least > PRODUCT_RANGE
    middle = 0.5 * least + 0.5 * most
    grow, fall = np.empty(n), np.empty(n)
    heavy = np.zeros((n_groups, n))
    for j in range(n):
        grow[j] = 1.0 if wide else math.exp(scores[low + j] - middle)
        fall[j] = 1.0 / grow[j]
        for k in range(n_groups):
            heavy[k, j] = table[k, codes[low + j]] * weight[low + j]
    return wide, grow, fall, heavy


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def _fill_wide(score, scores, fall):
    """Write e^d for one item's pairs, where it cannot be had as a product.

    As (e^(d / 1024))^1024: a Taylor polynomial and ten squarings, which vector instructions can do.
    """
    for j in range(fall.size):
        x = min(max(score - scores[j], -700.0), 700.0) / 1024.0
        power = 1.0
        for m in range(16, 0, -1):
            power = power * x * (1.0 / m) + 1.0
        for _ in range(10):
            power *= power
        fall[j] = power


@njit(cache=True, nogil=True)
def _direct(low, high, scores, start, codes, table, weight, with_loss, gradient, hessian, cells):
    """Visit all pairs of the items in [low, high); return their loss."""
    n = high - low
    wide, grow, fall, heavy = _prepare(low, high, scores, codes, table, weight)
    column_t = np.zeros((table.shape[0], n))
    column_h = np.zeros(n)
    loss = 0.0
    for i in range(low, high):
        if start[i] >= high:
            break
        j, k = start[i] - low, codes[i]
        if wide:
            _fill_wide(scores[i], scores[low + j : high], fall[j:])
        t, h = _row(grow[i - low], weight[i], fall[j:], heavy[k, j:], column_t[k, j:], column_h[j:])
        gradient[i] -= weight[i] * t
        hessian[i] += weight[i] * h
        if with_loss:
            loss += weight[i] * _row_loss(
                grow[i - low], scores[i], fall[j:], heavy[k, j:], scores[low + j : high]
            )
    for j in range(n):
        hessian[low + j] += column_h[j]
        for k in range(table.shape[0]):
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
    r"""Sum the pairwise logistic loss of one list, its derivatives, and t over each cell.

    .. math:: L = \sum_{(i, j)} w_{ij} \log(1 + e^{-(s_i - s_j)}), \qquad
              w_{ij} = W_{g_i g_j} u_i u_j

    over the pairs of an item i and any item j with a lower label. With :math:`t = 1 / (1 + e^d)`,
    a pair adds :math:`-wt` to the gradient at i, :math:`wt` at j, and :math:`wt(1 - t)` to the
    diagonal of the Hessian at both.

    Parameters
    ----------
    scores : float64 array of shape (n_items,), finite; items by falling label
    start : int32 array of shape (n_items,)
        The first position whose label is lower than the item's, or n_items.
    codes : int32 array of shape (n_items,), the groups, from 0
    table : float64 array of shape (n_groups, n_groups), the weights W
    item_weight : float64 array of shape (n_items,), the weights u
    with_loss : whether to sum the loss too
    gradient, hessian : float64 arrays of shape (n_items,), overwritten
    cells : float64 array of shape (n_groups, n_groups), overwritten
        The sum of :math:`u_i u_j t`, without W, over the pairs of each cell.

    Returns
    -------
    The loss, 0.0 without `with_loss`.

    Notes
    -----
    Derivatives are accurate relative to the sum of their absolute terms, to about 1e-12, whatever
    the range of the scores. Derivatives below 1e-300 may be off by that much; nothing overflows but
    the loss itself, if it must. Time is O(n) for few labels and for any number of them when the
    scores spread over few boxes. Memory is O(n + n_groups * boxes in use), about 600 bytes for each
    box and group.

    Examples
    --------
    >>> scores = np.array([2.0, 0.0, 1.0])
    >>> start = np.array([1, 3, 3], np.int32)  # the first item is preferred to the two others
    >>> codes = np.zeros(3, np.int32)
    >>> gradient, hessian, cells = np.empty(3), np.empty(3), np.empty((1, 1))
    >>> loss = logistic_long(
    ...     scores, start, codes, np.ones((1, 1)), np.ones(3), True, gradient, hessian, cells
    ... )
    >>> round(loss, 3), gradient.round(3)
    (0.44, array([-0.388,  0.119,  0.269]))
    """
    gradient[:] = 0.0
    hessian[:] = 0.0
    cells[:] = 0.0
    loss = 0.0
    if scores.size == 0:
        return loss
    box, place, where = _place(scores)
    pair_time = PAIR_TIME + LOSS_TIME if with_loss else PAIR_TIME
    tasks = _plan(start, box, where, table.shape[0], pair_time)
    for task in range(tasks.shape[0]):
        low, high, most = tasks[task, 0], tasks[task, 1], tasks[task, 2]
        if most > 0:
            loss += _sweep(
                low, high, most, start, box, place, where, codes, table, item_weight, with_loss,
                gradient, hessian, cells,
            )  # fmt: skip
        else:
            loss += _direct(
                low, high, scores, start, codes, table, item_weight, with_loss, gradient, hessian,
                cells,
            )  # fmt: skip
    return loss


@njit(cache=True, nogil=True, fastmath=FLAGS)
def _evaluate_product(low, high, box, place, codes, weight, vector, psi, out):
    """Add each item's row of the Hessian times the vector."""
    n_groups = psi.shape[0] // 2
    for i in range(low, high):
        x = place[i]
        k, b = codes[i], box[i]
        total = 0.0
        mixed = 0.0
        for m in range(TERMS - 1, 0, -1):
            total = total * x + m * psi[k, b, m]
            mixed = mixed * x + m * psi[n_groups + k, b, m]
        out[i] += weight[i] * (vector[i] * total - mixed)


@njit(cache=True, nogil=True)
def _sweep_product(
    first, last, most, start, box, place, where, codes, table, weight, vector, mixed, out
):
    """Add to the product all pairs of items in different chunks."""
    box, where = _own_boxes(first, last, box, where)
    layout = _lay_out(where)
    bounds = _cut(start, first, last, most)
    n_groups, n_boxes, n_chunks = table.shape[0], where.size, bounds.size - 1
    n_columns = 2 * n_groups  # each group, with the items' weights and with these times the vector
    moments = np.empty((n_columns, n_boxes, TERMS))
    far_below = np.empty((n_columns, n_boxes, DECAYS))
    far_above = np.empty((n_columns, n_boxes, DECAYS))
    filled = np.empty(n_boxes, np.bool_)
    own = np.empty((n_columns, n_boxes, TERMS))
    psi = np.empty((n_columns, n_boxes, TERMS))
    base = np.empty((n_columns, n_boxes))
    count = np.zeros((n_groups, n_boxes))  # linear parts have no second derivative
    wanted = np.empty(n_boxes, np.bool_)
    for up in range(2):
        moments[:], far_below[:], far_above[:], filled[:] = 0.0, 0.0, 0.0, False
        for step in range(n_chunks):
            c = step if up else n_chunks - 1 - step
            low, high = bounds[c], bounds[c + 1]
            _begin_chunk(low, high, box, wanted, own, psi, base)
            if step > 0:
                _add_near(moments, filled, wanted, where, layout, psi, base)
                _add_far(far_below, far_above, filled, wanted, layout, psi, base)
                _combine(up, psi[:n_groups], count, table, wanted)
                _combine(up, psi[n_groups:], count, table, wanted)
                _evaluate_product(low, high, box, place, codes, weight, vector, psi, out)
            if step < n_chunks - 1:
                _add_moments(low, high, box, place, codes, weight, own[:n_groups])
                _add_moments(low, high, box, place, codes, mixed, own[n_groups:])
                _add_chunk(own, wanted, layout, moments, far_below, far_above, filled)


@njit(cache=True, nogil=True)
def _direct_product(low, high, scores, start, codes, table, weight, vector, out):
    """Add to the product all pairs of the items in [low, high)."""
    n = high - low
    wide, grow, fall, heavy = _prepare(low, high, scores, codes, table, weight)
    column = np.zeros(n)
    for i in range(low, high):
        if start[i] >= high:
            break
        j, k = start[i] - low, codes[i]
        if wide:
            _fill_wide(scores[i], scores[low + j : high], fall[j:])
        out[i] += weight[i] * _row_product(
            grow[i - low], weight[i], vector[i], fall[j:], heavy[k, j:], vector[low + j : high],
            column[j:],
        )  # fmt: skip
    for j in range(n):
        out[low + j] -= column[j]


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
def hessian_product_long(
    scores: NDArray[np.float64],
    start: NDArray[np.int32],
    codes: NDArray[np.int32],
    table: NDArray[np.float64],
    item_weight: NDArray[np.float64],
    vector: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None:
    r"""Multiply the Hessian of the loss, in the scores, by a vector.

    .. math:: (Hv)_i = \sum_j w_{ij} h_{ij} (v_i - v_j), \qquad h = t (1 - t)

    over all pairs which hold item i, in either role.

    Parameters
    ----------
    scores, start, codes, table, item_weight : as for `logistic_long`
    vector : float64 array of shape (n_items,), finite
    out : float64 array of shape (n_items,), overwritten with the product

    Notes
    -----
    The product does not change if a constant is added to the vector, so its middle is taken off
    first: a large constant costs no accuracy.
    """
    n = scores.size
    out[:] = 0.0
    if n == 0:
        return
    low = high = vector[0]
    for i in range(n):
        low = min(low, vector[i])
        high = max(high, vector[i])
    centred = np.empty(n)
    mixed = np.empty(n)
    for i in range(n):
        centred[i] = vector[i] - (0.5 * low + 0.5 * high)
        mixed[i] = item_weight[i] * centred[i]
    box, place, where = _place(scores)
    tasks = _plan(start, box, where, 2 * table.shape[0], PRODUCT_TIME)
    for task in range(tasks.shape[0]):
        first, last, most = tasks[task, 0], tasks[task, 1], tasks[task, 2]
        if most > 0:
            _sweep_product(
                first, last, most, start, box, place, where, codes, table, item_weight, centred,
                mixed, out,
            )  # fmt: skip
        else:
            _direct_product(first, last, scores, start, codes, table, item_weight, centred, out)
