"""Pairs within a chunk, visited one by one."""

import numpy as np
from numba import njit

from pairity.pairs.kernels.common import span
from pairity.pairs.kernels.long_lists.tables import FLAGS, LOG_SERIES, LOG_TERMS, PRODUCT_RANGE

_HUGE = 1e300  # e^d is cut here, so that it stays finite


@njit(cache=True, nogil=True)
def _prepare(low, high, scores, codes, table, weight):
    """Return the arrays that visiting the pairs of [low, high) needs.

    These are whether the scores spread too far to compute e^d as a product; otherwise its factors
    e^s and e^(-s), up to a shift of s; and for each group the weight of its pairs with each item.
    """
    own = scores[low:high]
    least, most = span(own.size, own)
    wide = most - least > PRODUCT_RANGE
    grow = np.ones(own.size) if wide else np.exp(own - (0.5 * least + 0.5 * most))
    heavy = np.empty((table.shape[0], own.size))
    for j in range(own.size):
        for k in range(table.shape[0]):
            heavy[k, j] = table[k, codes[low + j]] * weight[low + j]
    return wide, grow, 1.0 / grow, heavy


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def _fill_wide(score, scores, fall):
    """Write e^d for one item's pairs, if it cannot be computed as a product.

    It is (e^(d / 1024))^1024: a Taylor polynomial and ten squarings, which vectorise.
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
def direct(low, high, scores, start, codes, table, weight, with_loss, gradient, hessian, cells):
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
        q = min(grow * fall[j], _HUGE)
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
        q = min(grow * fall[j], _HUGE)
        less = min(q, 1.0)
        v = less / (2.0 * max(q, 1.0) + less)
        square = v * v
        value = 0.0
        for m in range(LOG_TERMS - 1, -1, -1):
            value = value * square + LOG_SERIES[m]
        total += heavy[j] * (value * v + max(scores[j] - score, 0.0))
    return total


@njit(cache=True, nogil=True)
def direct_product(low, high, scores, start, codes, table, weight, vector, out):
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
        q = min(grow * fall[j], _HUGE)
        t = 1.0 / (1.0 + q)
        part = q * t * t * heavy[j] * (value - vector[j])
        total += part
        column[j] += weight * part
    return total
