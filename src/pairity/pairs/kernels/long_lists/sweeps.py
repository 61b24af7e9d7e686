"""Sums over the pairs of different chunks, computed from moments."""

import numpy as np
from numba import njit

from pairity.pairs.kernels.long_lists.boxes import cut, lay_out, renumber
from pairity.pairs.kernels.long_lists.tables import (
    COLLECT_ABOVE,
    COLLECT_BELOW,
    DECAYS,
    FAR_LOSS,
    FLAGS,
    NEAR,
    NEAR_LOSS,
    NEAR_PSI,
    NEXT_POWER,
    SPREAD_ABOVE,
    SPREAD_BELOW,
    TERMS,
    WIDTH,
)


@njit(cache=True, nogil=True)
def _own_boxes(first, last, box, where):
    """Return the boxes of a range of the list, numbered for it alone, and where they are."""
    if last - first == box.size:
        return box, where
    own = box.copy()
    return own, renumber(own[first:last], where)


@njit(cache=True, nogil=True)
def _begin_chunk(low, high, box, wanted, own, psi, base):
    """Mark the boxes which these items use, and clear what is computed for them."""
    wanted[:] = False
    for i in range(low, high):
        wanted[box[i]] = True
    for k in range(own.shape[0]):
        for b in range(wanted.size):
            if wanted[b]:
                base[k, b] = 0.0
                own[k, b] = 0.0
                psi[k, b] = 0.0


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
def _empty(n_columns, n_boxes):
    """Return the working arrays of a sweep: moments, far below and above, whether filled, ..."""
    moments = np.empty((n_columns, n_boxes, TERMS))
    far_below = np.empty((n_columns, n_boxes, DECAYS))
    filled, base = np.empty(n_boxes, np.bool_), np.empty((n_columns, n_boxes))
    own, psi = np.empty_like(moments), np.empty_like(moments)
    far_above, wanted = np.empty_like(far_below), np.empty_like(filled)
    return moments, far_below, far_above, filled, own, psi, base, wanted


@njit(cache=True, nogil=True, fastmath=FLAGS)
def _evaluate_product(low, high, box, place, codes, weight, psi, vector, out):
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
def sweep(
    first, last, most, start, box, place, where, codes, table, weight, with_loss, gradient,
    hessian, cells, vector=None, mixed=None,
):  # fmt: skip
    """Add all pairs of items in different chunks; return their loss.

    Going down, from the last chunk on, each chunk meets all after it, the lower labels; going up,
    all before it. For `sweep_product`, `hessian` and `cells` are None: the function is compiled
    for each case.
    """
    box, where = _own_boxes(first, last, box, where)
    layout = lay_out(where)
    bounds = cut(start, first, last, most)
    k, n_chunks = table.shape[0], bounds.size - 1
    n_columns = k if mixed is None else 2 * k  # each group, with the weights and with `mixed`
    moments, far_below, far_above, filled, own, psi, base, wanted = _empty(n_columns, where.size)
    count, reach = np.zeros((k, where.size)), np.empty((k, where.size))
    loss = 0.0
    for up in range(2):
        moments[:], far_below[:], far_above[:], filled[:] = 0.0, 0.0, 0.0, False
        for step in range(n_chunks):
            c = step if up else n_chunks - 1 - step
            low, high = bounds[c], bounds[c + 1]
            _begin_chunk(low, high, box, wanted, own, psi, base)
            if step < n_chunks - 1 or (cells is not None and not up):
                _add_moments(low, high, box, place, codes, weight, own[:k])
                if mixed is not None:
                    _add_moments(low, high, box, place, codes, mixed, own[k:])
            if step > 0:
                _add_near(moments, filled, wanted, where, layout, psi, base)
                _add_far(far_below, far_above, filled, wanted, layout, psi, base)
                if cells is not None:  # linear parts have no second derivative
                    _sum_boxes(up, moments, where, count, reach)
                    if not up:
                        loss += _meet(own, wanted, psi, base, count, reach, table, with_loss, cells)
                _combine(up, psi[:k], count, table, wanted)
                if hessian is not None:
                    _evaluate(low, high, box, place, codes, weight, psi, gradient, hessian)
                if vector is not None:
                    _combine(up, psi[k:], count, table, wanted)
                    _evaluate_product(low, high, box, place, codes, weight, psi, vector, gradient)
            if step < n_chunks - 1:
                _add_chunk(own, wanted, layout, moments, far_below, far_above, filled)
    return loss


@njit(cache=True, nogil=True)
def sweep_product(
    first, last, most, start, box, place, where, codes, table, weight, vector, mixed, out
):
    """Add to the product all pairs of items in different chunks; `mixed` is weight times vector."""
    sweep(
        first, last, most, start, box, place, where, codes, table, weight, False, out, None, None,
        vector, mixed,
    )  # fmt: skip
