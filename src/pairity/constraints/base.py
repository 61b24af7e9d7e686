"""What a constraint is, and how its delta becomes one number.

A constraint measures how far scores are from equal treatment. `Constraint.delta` returns one number
Δ per cell (k, l), or one per group; the aim is zero. The same object trains, audits and reports.

A **user-defined constraint** is a subclass with that one method, or a function of
``(queries, scores)``. An array of shape (K, K) is read as for the pairwise constraints: Δ_kl is
compared with its mirror Δ_lk, and the entries of the diagonal with each other. NaN leaves a cell
out, so use NaN, not 0, wherever nothing is compared (usually the diagonal). An array of shape (K,)
compares the groups. A positive Δ must mean that the cell or group is favoured, because training
then lowers its weight.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pairity._utils.typing import Array
from pairity.data.queries import Queries
from pairity.exceptions import ConstraintError


class Constraint(ABC):
    """What is compared between groups; `pairity.constraints.base` explains how to write one.

    Attributes
    ----------
    name : str
        The name in the catalogue, "" for a constraint that is not in it.
    title : str
        A short title, for tables and headings.
    description : str
        What is compared, as a clause that completes "Groups differ in ...".
    """

    name: ClassVar[str] = ""
    title: ClassVar[str] = ""
    description: ClassVar[str] = ""

    @abstractmethod
    def delta(self, queries: Queries, scores: Array) -> Array:
        """Δ of shape (n_groups, n_groups) or (n_groups,), NaN where nothing is compared."""

    def check(self, queries: Queries) -> None:  # noqa: B027 - by default there is nothing to check
        """Raise `ConstraintError` if the constraint cannot be measured on these queries."""


@dataclass(frozen=True, repr=False)
class FunctionConstraint(Constraint):
    """A function of ``(queries, scores)`` as a constraint; see `pairity.constraints.base`."""

    function: Callable[[Queries, Array], Array]

    def delta(self, queries: Queries, scores: Array) -> Array:
        """The function's result, after a check of its shape."""
        delta = np.asarray(self.function(queries, scores), dtype=np.float64)
        k = queries.n_groups
        if delta.shape not in ((k,), (k, k)):
            raise ConstraintError(
                f"The constraint's function returned an array of shape {delta.shape}, but the data "
                f"has {k} groups. Return shape ({k}, {k}) or ({k},)."
            )
        return delta

    def __repr__(self) -> str:
        return str(getattr(self.function, "__name__", repr(self.function)))


def largest_gap(delta: Array) -> float:
    """The violation: the largest gap between two entries of delta that are compared.

    Off the diagonal this is the maximum over k, l of Δ_kl - Δ_lk. On the diagonal, and for groups,
    it is the largest entry minus the smallest. Papers plot 1 minus this number as *fairness*. NaN
    if nothing is compared.
    """
    return float(largest_gaps(delta, delta.ndim))


def largest_gaps(delta: Array, n_axes: int) -> Array:
    """`largest_gap` of many deltas at once.

    Parameters
    ----------
    delta : array of shape (..., K, K) or (..., K)
    n_axes : {1, 2}
        How many of the last axes belong to one delta.

    Returns
    -------
    array of the shape of the other axes

    Notes
    -----
    An entry off the diagonal whose mirror is NaN is compared with zero.
    """
    delta = np.where(np.isfinite(delta), delta, np.nan)
    if n_axes == 1:
        apart = np.fmax.reduce(delta, axis=-1) - np.fmin.reduce(delta, axis=-1)
        return np.where((~np.isnan(delta)).sum(axis=-1) > 1, apart, np.nan)
    mirror = np.swapaxes(delta, -1, -2)
    nothing = (np.isnan(delta) & np.isnan(mirror)) | np.eye(delta.shape[-1], dtype=bool)
    gaps = np.where(nothing, np.nan, np.nan_to_num(delta) - np.nan_to_num(mirror))
    within = largest_gaps(np.diagonal(delta, axis1=-2, axis2=-1), 1)
    return np.fmax(np.fmax.reduce(gaps, axis=(-2, -1)), within)


@dataclass(frozen=True, eq=False)
class Contrasts:
    """Which entries of a delta are compared with each other.

    Attributes
    ----------
    shape : tuple of int
        The shape of delta, (K, K) or (K,).
    first, second : int arrays
        Flat indices into delta; a ``second`` of -1 stands for zero.
    """

    shape: tuple[int, ...]
    first: NDArray[np.int64]
    second: NDArray[np.int64]

    @classmethod
    def of(cls, delta: Array) -> Contrasts:
        """The contrasts between the entries that are not NaN."""
        known, n = np.isfinite(delta), len(delta)
        alike = np.arange(n) * (1 if delta.ndim == 1 else n + 1)  # groups, or the diagonal
        pairs = list(combinations(alike[known.ravel()[alike]].tolist(), 2))
        if delta.ndim == 2:
            for k, j in combinations(range(n), 2):
                cells = [cell for cell in (k * n + j, j * n + k) if known.flat[cell]]
                if cells:
                    pairs.append((cells[0], cells[1] if len(cells) == 2 else -1))
        index = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        return cls(delta.shape, index[:, 0], index[:, 1])

    def gaps(self, delta: Array) -> Array:
        """Δ of the first entry minus Δ of the second, for each contrast.

        Leading axes (resamples) of `delta` are kept.
        """
        flat = delta.reshape(*delta.shape[: -len(self.shape)], -1)
        second = np.where(self.second < 0, 0.0, flat[..., self.second])
        return np.asarray(flat[..., self.first] - second)

    def matrix(self) -> Array:
        """The matrix that maps a flat delta to its gaps."""
        matrix = np.zeros((len(self.first), int(np.prod(self.shape))))
        rows = np.arange(len(self.first))
        matrix[rows, self.first] = 1.0
        paired = self.second >= 0
        matrix[rows[paired], self.second[paired]] -= 1.0
        return matrix


def spread(lambda_: Array) -> Array:
    """Multipliers per cell or per group as a K × K table; a group's fills its row."""
    if lambda_.ndim == 2:
        return lambda_
    return np.repeat(lambda_[:, None], len(lambda_), axis=1)
