"""Linear programs over distributions on permutations, solved exactly by column generation.

A distribution over the orders of n items enters such a program only through what it gives to K
groups and through its utility. Both are linear in the items' expected attention, so one sort finds
the most useful of the n! columns. The simplex method solves the program on its few rows, and stores
at most as many permutations as rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pairity._utils.typing import Array
from pairity.exceptions import TrainingError
from pairity.metrics.positions import sums

Order = NDArray[np.int64]

# Tolerances for a program whose values are near 1, a few digits above the precision of doubles.
_LEAST_GAIN = 1e-11  # a column must gain more than this to enter
_INFEASIBLE = 1e-10  # rows may be missed by this much
_LEAST_PIVOT = 1e-10
_MAX_STEPS = 50_000  # real programs take less than a hundred; only rounding could make a cycle


@dataclass(frozen=True, eq=False)
class Items:
    """What a permutation of n items gives to K groups.

    Attributes
    ----------
    utility : float64 array of shape (n_items,)
        A permutation earns the sum of utility times attention.
    share : float64 array of shape (n_items,)
        What the item's group gets per unit of the item's attention.
    code : int64 array of shape (n_items,)
        Groups 0 to K - 1, or K for an item of no group.
    attention : float64 array of shape (n_items,)
        The attention of each position, from the top, which never increases.
    n_groups : int
    """

    utility: Array
    share: Array
    code: NDArray[np.int64]
    attention: Array
    n_groups: int

    def sort(self, factor: float, price: Array) -> Order:
        """Return the order of largest value: falling ``factor * utility + price[code] * share``.

        Ties keep the input order.
        """
        value = np.append(price, 0.0)[self.code] * self.share
        if factor:
            value += factor * self.utility
        return np.argsort(-value, kind="stable")

    def received(self, order: Order) -> tuple[Array, float]:
        """Return what each group gets from an order, and the utility of the order."""
        attention = np.empty(len(order))
        attention[order] = self.attention
        by_group = sums(self.code, self.share * attention, self.n_groups + 1)
        return by_group[: self.n_groups], float(self.utility @ attention)


@dataclass(frozen=True, eq=False)
class Program:
    r"""Maximise :math:`f \sum_\sigma w_\sigma u_\sigma + c^T z` over :math:`w, z \ge 0`.

    Subject to :math:`\sum_\sigma w_\sigma (M r_\sigma + h) + A z = b`, where :math:`r_\sigma` is
    what the permutation gives to the groups and :math:`u_\sigma` its utility.

    Attributes
    ----------
    factor : float, f
    rows : float64 array of shape (n_rows, n_groups), M
    offset : float64 array of shape (n_rows,), h
    columns : float64 array of shape (n_rows, n_columns), A
    gain : float64 array of shape (n_columns,), c
    target : float64 array of shape (n_rows,), b, not negative
    """

    factor: float
    rows: Array
    offset: Array
    columns: Array
    gain: Array
    target: Array


@dataclass(frozen=True, eq=False)
class Vertex:
    """An optimal vertex.

    Attributes
    ----------
    orders : list of int64 arrays of shape (n_items,), the permutations of positive weight
    weight : float64 array of shape (n_orders,)
    value : float, the maximum
    price : float64 array of shape (n_groups,)
        Each order sorts the items by ``factor * utility + price[code] * share``.
    """

    orders: list[Order]
    weight: Array
    value: float
    price: Array


@dataclass(eq=False)
class _Basis:
    """One column per row: permutations, columns of the program, and artificial columns."""

    matrix: Array
    gain: Array
    column: NDArray[np.int64]  # the number of the program's column, or -1
    order: list[Order | None]
    artificial: NDArray[np.bool_]

    def replace(self, row: int, entering: _Column) -> None:
        self.matrix[:, row], self.gain[row] = entering.entries, entering.gain
        self.column[row], self.order[row] = entering.number, entering.order
        self.artificial[row] = False


@dataclass(frozen=True, eq=False)
class _Column:
    entries: Array
    gain: float
    number: int = -1
    order: Order | None = None


def solve(items: Items, program: Program) -> Vertex | None:
    """Return an optimal vertex of a bounded program, or None if the program is infeasible.

    This is the two-phase simplex method. Sorting prices the permutations. Ties in the ratio test
    are broken lexicographically, so it terminates. The basis is factorised again in every step, so
    errors do not accumulate.
    """
    n = len(program.target)
    basis = _Basis(np.eye(n), np.zeros(n), np.full(n, -1), [None] * n, np.ones(n, dtype=bool))
    missing, _ = _improve(items, program, basis, first=True)
    if missing > _INFEASIBLE:
        return None
    _, prices = _improve(items, program, basis, first=False)
    level = _solution(basis.matrix, program.target)
    weights, orders = [], []
    for weight, order in zip(level, basis.order, strict=True):
        if order is not None and weight > _INFEASIBLE / 100:
            weights.append(weight)
            orders.append(order)
    return Vertex(orders, np.array(weights), float(basis.gain @ level), -(prices @ program.rows))


def _improve(items: Items, program: Program, basis: _Basis, *, first: bool) -> tuple[float, Array]:
    """Exchange columns while that gains; return the level of artificial columns, and the duals.

    The first phase only removes the artificial columns.
    """
    for _ in range(_MAX_STEPS):
        gain = -basis.artificial.astype(np.float64) if first else basis.gain
        prices = _solution(basis.matrix.T, gain)
        entering = _best_column(items, program, basis, prices, first=first)
        right = [program.target] if entering is None else [program.target, entering.entries]
        solved = _solution(basis.matrix, np.column_stack(right))
        missing = float(solved[basis.artificial, 0].sum())
        if entering is None or (first and missing <= _INFEASIBLE / 1000):
            return missing, prices
        basis.replace(_leaving_row(basis, solved[:, 0], solved[:, 1], first=first), entering)
    raise TrainingError(
        f"The linear program of {len(items.utility)} items and {items.n_groups} groups was not "
        f"solved in {_MAX_STEPS} steps, which only rounding can cause. Pass utilities of a "
        "similar size, or a larger slack."
    )


def _best_column(
    items: Items, program: Program, basis: _Basis, prices: Array, *, first: bool
) -> _Column | None:
    """Return the column of largest gain, first of the program's own; None at the optimum."""
    if len(program.gain):
        gains = (0.0 if first else program.gain) - prices @ program.columns
        gains[basis.column[basis.column >= 0]] = 0.0
        best = int(gains.argmax())
        if gains[best] > _LEAST_GAIN:
            return _Column(program.columns[:, best], float(program.gain[best]), best)
    factor = 0.0 if first else program.factor
    order = items.sort(factor, -(prices @ program.rows))
    received, utility = items.received(order)
    entries = program.rows @ received + program.offset
    if factor * utility - prices @ entries <= _LEAST_GAIN:
        return None
    return _Column(entries, program.factor * utility, order=order)


def _leaving_row(basis: _Basis, level: Array, change: Array, *, first: bool) -> int:
    """Return the row of the basic column that reaches zero first as the entering one grows."""
    if not first:  # artificial columns are at zero by now, and must not grow again
        artificial = np.flatnonzero(basis.artificial & (np.abs(change) > _LEAST_PIVOT))
        if len(artificial):
            return int(artificial[0])
    rows = np.flatnonzero(change > _LEAST_PIVOT)
    if not len(rows):
        rows = np.array([int(change.argmax())])
    steps = np.maximum(level[rows], 0.0) / change[rows]
    rows = rows[steps <= steps.min() + 1e-14]
    if len(rows) > 1:
        rows = rows[np.lexsort((np.linalg.inv(basis.matrix)[rows] / change[rows, None]).T[::-1])]
    return int(rows[0])


def _solution(matrix: Array, right: Array) -> Array:
    return np.asarray(np.linalg.solve(matrix, right), dtype=np.float64)
