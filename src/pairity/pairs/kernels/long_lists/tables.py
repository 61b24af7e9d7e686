"""Constants and matrices of the expansions, computed once, at import, with NumPy."""

import numpy as np
from numpy.polynomial import chebyshev

from pairity._utils.typing import Array

WIDTH = 2.0  # of a box; a power of two, so that places in a box are exact
TERMS = 18  # coefficients of a polynomial in a box
NEAR = 2  # boxes at most this far apart meet through a matrix
DECAYS = 8  # exponentials for the boxes beyond

FLAGS = {"reassoc", "contract", "nsz"}  # sums may be reordered; infinities are respected
PRODUCT_RANGE = 1300.0  # exp(s_i - c) * exp(c - s_j) can be formed up to here


def _to_coefficients(n: int) -> Array:
    """Matrix from values at n Chebyshev points to Chebyshev coefficients."""
    matrix = chebyshev.chebvander(chebyshev.chebpts1(n), n - 1).T * (2.0 / n)
    matrix[0] /= 2.0
    return np.asarray(matrix)


def _to_powers(n: int) -> Array:
    """Matrix from n Chebyshev coefficients to those of 1, x, x^2, ..."""
    matrix = np.zeros((n, n))
    for k in range(n):
        matrix[: k + 1, k] = chebyshev.cheb2poly(np.eye(n)[k])[: k + 1]
    return matrix


def _expand(values: Array) -> Array:
    """Power coefficients, along the last axis, of functions given at Chebyshev points."""
    n = values.shape[-1]
    return np.asarray((values @ _to_coefficients(n).T) @ _to_powers(n).T)


def _translations() -> tuple[Array, Array]:
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


def _log_series() -> Array:
    """Coefficients in v^2 of log(1 + z) / v, where v = z / (2 + z) and 0 <= z <= 1."""
    points = chebyshev.chebpts1(10)
    v = np.sqrt((points + 1.0) / 18.0)
    fit = np.polynomial.Polynomial(_expand(2.0 * np.arctanh(v) / v))
    return np.asarray(fit(np.polynomial.Polynomial([-1.0, 18.0])).coef)


_Q = np.arange(1.0, DECAYS + 1.0)
_SERIES = (-1.0) ** _Q  # factors of e^(-q d) in -t
_FALLING = _expand(np.exp(-_Q[:, None] * chebyshev.chebpts1(TERMS)))  # coefficients of e^(-q x)
_RISING = _FALLING * (-1.0) ** np.arange(TERMS)
_LAST = chebyshev.cheb2poly(np.eye(TERMS + 1)[TERMS])

NEAR_PSI, NEAR_LOSS = _translations()  # (offset, moment, coefficient), (offset, moment)
COLLECT_BELOW = _RISING.T.copy()  # from the moments of a box to the sums used above it
COLLECT_ABOVE = _FALLING.T.copy()
SPREAD_BELOW = _FALLING * _SERIES[:, None]  # from such sums to psi
SPREAD_ABOVE = -_RISING * _SERIES[:, None]
FAR_LOSS = -_SERIES / _Q
NEXT_POWER = -_LAST[:TERMS] / _LAST[TERMS]  # of the polynomial closest to x^TERMS on [-1, 1]
LOG_SERIES = _log_series()
LOG_TERMS = LOG_SERIES.size
