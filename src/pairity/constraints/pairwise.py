"""Constraints: which cells of the K × K table are compared, over which pairs, averaged how.

A constraint says how far given scores are from it, `Constraint.delta`: one number Δ per cell
(k, l), or one per group, zero being the aim. The same object trains, audits and reports.

**Your own** is a subclass with that one method, or just a function of ``(queries, scores)``. An
array of shape (K, K) is read like the pairwise constraints: Δ_kl against its mirror Δ_lk, and the
diagonal among itself; NaN leaves a cell out, so put NaN, not 0, wherever nothing is compared (on
the diagonal, most often). An array of shape (K,) compares the groups. A positive Δ must mean that
the cell (the group) is favoured, since its weight is then lowered.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from pairity._utils.typing import Array
from pairity.data.queries import Queries
from pairity.exceptions import ConstraintError
from pairity.pairs.cells import (
    Average,
    PairKind,
    cell_counts,
    cell_sums,
    mean_of_totals,
    totals_over_queries,
)

Cells = Literal["across", "within", "groups"]


class Constraint(ABC):
    """What is compared between groups; see the module's text for writing your own."""

    name: ClassVar[str] = ""

    @abstractmethod
    def delta(self, queries: Queries, scores: Array) -> Array:
        """Δ of shape (n_groups, n_groups) or (n_groups,); NaN where nothing is compared."""

    def check(self, queries: Queries) -> None:  # noqa: B027 - nothing to check is fine
        """Raise `ConstraintError` where these queries cannot carry the constraint."""


# --- from violations to one number ---------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Contrasts:
    """Which entries of a violation are set against each other.

    Attributes
    ----------
    shape : tuple of int
        The violation's own shape, (K, K) or (K,).
    first, second : int arrays
        Flat indices into the violation; a ``second`` of -1 stands for zero.
    """

    shape: tuple[int, ...]
    first: NDArray[np.int64]
    second: NDArray[np.int64]

    @classmethod
    def of(cls, violation: Array) -> Contrasts:
        """The contrasts among the entries that are not NaN."""
        there = np.isfinite(violation)
        if violation.ndim == 1:
            return cls._make(violation.shape, _all_pairs(np.flatnonzero(there)))
        n = len(violation)
        found = _all_pairs(np.flatnonzero(there.diagonal()) * (n + 1))
        for k in range(n):
            for j in range(k + 1, n):
                here, mirror = k * n + j, j * n + k
                if there[k, j] and there[j, k]:
                    found.append((here, mirror))
                elif there[k, j] or there[j, k]:
                    found.append((here if there[k, j] else mirror, -1))
        return cls._make(violation.shape, found)

    @classmethod
    def _make(cls, shape: tuple[int, ...], found: list[tuple[int, int]]) -> Contrasts:
        index = np.array(found, dtype=np.int64).reshape(-1, 2)
        return cls(shape, index[:, 0], index[:, 1])

    def gaps(self, violation: Array) -> Array:
        """Δ of the first entry less Δ of the second, for each contrast.

        Axes in front of the violation's own (resamples) are kept.
        """
        flat = violation.reshape(*violation.shape[: -len(self.shape)], -1)
        other = np.where(self.second < 0, 0.0, flat[..., self.second])
        return np.asarray(flat[..., self.first] - other)

    def matrix(self) -> Array:
        """The contrasts as a matrix that turns a flat violation into gaps."""
        matrix = np.zeros((len(self.first), int(np.prod(self.shape))))
        rows = np.arange(len(self.first))
        matrix[rows, self.first] = 1.0
        paired = self.second >= 0
        matrix[rows[paired], self.second[paired]] -= 1.0
        return matrix


def largest_gap(delta: Array) -> float:
    """The reported violation: the largest gap between two entries that are compared.

    Off the diagonal max over k, l of Δ_kl - Δ_lk; on it, and for groups, the largest entry less
    the smallest. 1 less this is the *fairness* that papers plot. NaN where nothing is compared.
    """
    gaps = Contrasts.of(delta).gaps(delta)
    return float(np.abs(gaps).max()) if len(gaps) else float("nan")


def spread(lambda_: Array) -> Array:
    """Multipliers per cell or per group as a K × K table: a group's goes to its whole row."""
    if lambda_.ndim == 2:
        return lambda_
    return np.repeat(lambda_[:, None], len(lambda_), axis=1)


def _all_pairs(entries: NDArray[np.int64]) -> list[tuple[int, int]]:
    return [(int(a), int(b)) for at, a in enumerate(entries) for b in entries[at + 1 :]]


# --- the catalogue -------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class PairwiseConstraint(Constraint):
    """Common to the four constraints of the catalogue: sums over pairs, by cell.

    Parameters
    ----------
    average : {"query", "pair"}
        Whether every query or every pair counts the same. A query with no pair of a cell is left
        out of that cell's average.
    only : sequence, optional
        What to compare, where it is not everything: pairs of groups, ``[("f", "m")]``, for
        statistical parity and inter-group; groups, ``["f", "m"]``, for intra-group and marginal.
    target : mapping, optional
        A violation to aim at other than zero, by pair of groups or by group, for example
        ``{("f", "m"): 0.05}``.
    soft : bool
        Whether to use σ(s_i - s_j) instead of 1[s_i > s_j]. Soft values shrink with the scale of
        the scores; they are here for literal reproductions.
    """

    average: Average = "query"
    only: Sequence[Any] | None = None
    target: Mapping[Any, float] | None = None
    soft: bool = False

    pairs: ClassVar[PairKind] = "preference"
    cells: ClassVar[Cells] = "across"
    has_reference: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.average not in ("query", "pair"):
            raise ConstraintError(f"average is {self.average!r}; choose 'query' or 'pair'.")

    def delta(self, queries: Queries, scores: Array) -> Array:
        """Δ of these scores; see the class."""
        return self.from_totals(queries.total(self.totals, scores), queries.groups)

    def totals(self, queries: Queries, scores: Array) -> Array:
        """What Δ is made of, as sums over queries: those of parts of the data add up."""
        name = f"{self.pairs} pairs by {self.cells}"
        counts = queries.cached(name, type(self), lambda: self.entries(self.counts(queries)))
        sums = self.entries(self.sums(queries, scores))
        return totals_over_queries(sums, counts, queries.weight_of_query, self.average)

    def sums(self, queries: Queries, scores: Array) -> Array:
        """Per query and cell of known groups, the sum of predicted pair labels."""
        known = slice(queries.n_groups)
        return cell_sums(queries, scores, pairs=self.pairs, soft=self.soft)[:, known, known]

    def counts(self, queries: Queries) -> Array:
        """Per query and cell of known groups, the weight of pairs."""
        known = slice(queries.n_groups)
        return cell_counts(queries, pairs=self.pairs)[:, known, known]

    def from_sums(
        self,
        sums: Array,
        counts: Array,
        weight: Array,
        groups: tuple[str, ...],
    ) -> Array:
        """Δ from sums and counts per query.

        `weight` of shape (n_resamples, n_queries) gives as many violations at once.
        """
        return self.from_totals(self.totals_of(sums, counts, weight), groups)

    def from_totals(self, totals: Array, groups: tuple[str, ...]) -> Array:
        """Δ from `totals`, of one part or added up over many."""
        means = mean_of_totals(totals)
        compared, targets = self._compared(groups), self._targets(groups)
        reference = means[..., -1:] if self.has_reference else 0.5
        delta = (means[..., :-1] - reference).reshape(*means.shape[:-1], *compared.shape) - targets
        delta[..., ~compared] = np.nan
        return delta

    def totals_of(self, sums: Array, counts: Array, weight: Array) -> Array:
        """`totals` from sums and counts per query.

        Of each cell (or row, for one entry per group), and behind them of all pairs together.
        """
        return totals_over_queries(self.entries(sums), self.entries(counts), weight, self.average)

    def entries(self, table: Array) -> Array:
        """Sums per query and cell as what is averaged: cells or groups, and all pairs together."""
        each = table.sum(axis=2) if self.by_group else table.reshape(len(table), -1)
        entries = np.empty((each.shape[0], each.shape[1] + 1))
        entries[:, :-1] = each
        entries[:, -1] = each.sum(axis=1)
        return entries

    @property
    def by_group(self) -> bool:
        """Whether there is one entry per group rather than per cell."""
        return self.cells == "groups"

    def _everything(self, n_groups: int) -> NDArray[np.bool_]:
        """The entries that the constraint compares where `only` says nothing."""
        if self.by_group:
            return np.ones(n_groups, dtype=bool)
        inside = np.eye(n_groups, dtype=bool)
        return inside if self.cells == "within" else ~inside

    def shares(self, queries: Queries) -> Array:
        """P: the share of all pairs that lies in each cell (row, for one λ per group)."""
        counts = queries.total(self.pair_weight)
        if self.by_group:
            counts = counts.sum(axis=1)
        return np.asarray(counts / counts.sum())

    def pair_weight(self, queries: Queries) -> Array:
        """Per cell of known groups, the weight of all pairs."""
        return np.asarray(np.tensordot(queries.weight_of_query, self.counts(queries), axes=1))

    def check(self, queries: Queries) -> None:
        """Refuse cells without a pair."""
        counts = queries.total(self.pair_weight)
        empty = self._compared(queries.groups)
        empty &= (counts.sum(axis=1) if self.by_group else counts) == 0
        if not empty.any():
            return
        names, at = queries.groups, [int(index) for index in np.argwhere(empty)[0]]
        first, second = names[at[0]], names[at[-1]]
        total = f"none of the {queries.n_queries} queries"
        if first == second:
            raise ConstraintError(
                f"No preference pair for the group {first!r}: {total} prefers one of its items "
                f"{'to another of them' if not self.by_group else 'to anything'}. Leave it out "
                f"with only=[...], or use StatisticalParity."
            )
        if not queries.total(_any_pairs)[at[0], at[1]]:
            raise ConstraintError(
                f"No pair joins the groups {first!r} and {second!r}: {total} holds both. Check "
                "sensitive_features and qid, limit the constraint with only=[(..., ...)], or "
                "choose a constraint within groups (IntraGroup)."
            )
        raise ConstraintError(
            f"No preference pair puts {first!r} above {second!r}: {total} prefers an item of the "
            "first to one of the second. Use StatisticalParity ('statistical'), which needs no "
            "preferences, merge small groups, or limit the constraint with only=[(..., ...)]."
        )

    # --- names of groups -------------------------------------------------------------------------

    def _compared(self, groups: tuple[str, ...]) -> NDArray[np.bool_]:
        if self.only is None:
            return self._everything(len(groups))
        chosen = np.zeros_like(self._everything(len(groups)))
        for entry in self.only:
            for index in self._cells_of(entry, groups):
                chosen[index] = True
        if self.pairs == "preference" and self.cells != "across" and chosen.sum() < 2:
            raise ConstraintError(
                f"only={list(self.only)!r} leaves {int(chosen.sum())} group; a comparison needs 2."
            )
        return chosen

    def _targets(self, groups: tuple[str, ...]) -> Array:
        targets = np.zeros(self._everything(len(groups)).shape)
        for entry, value in (self.target or {}).items():
            here = self._cells_of(entry, groups)
            targets[here[0]] = value
            if self.pairs == "all" and tuple(reversed(entry)) not in (self.target or {}):
                targets[here[1]] = -value  # R_lk = 1 - R_kl
        return targets

    def _cells_of(self, entry: Any, groups: tuple[str, ...]) -> list[tuple[int, ...]]:
        if self.cells == "across":
            if isinstance(entry, str) or len(entry) != 2 or str(entry[0]) == str(entry[1]):
                raise ConstraintError(
                    f"{entry!r} is not a pair of groups. {type(self).__name__} compares two "
                    "different groups, such as ('f', 'm')."
                )
            k, j = (_index(name, groups) for name in entry)
            return [(k, j), (j, k)]
        k = _index(entry, groups)
        return [(k,)] if self.by_group else [(k, k)]

    def __repr__(self) -> str:
        changed = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)
            if getattr(self, field.name) != field.default
        ]
        return f"{type(self).__name__}({', '.join(changed)})"


@dataclass(frozen=True, repr=False)
class StatisticalParity(PairwiseConstraint):
    r"""Each group is above the other equally often, whatever the labels say.

    .. math:: \Delta_{kl} = R_{kl} - \tfrac12, \quad k \ne l

    with R_kl the mean of the predicted pair label over *all* ordered pairs of an item in group k
    and one in group l. Parameters are those of `PairwiseConstraint`: average, only, target, soft.

    Examples
    --------
    >>> from pairity import StatisticalParity
    >>> StatisticalParity(average="pair", only=[("f", "m")])
    StatisticalParity(average='pair', only=[('f', 'm')])
    """

    name: ClassVar[str] = "statistical"
    pairs: ClassVar[PairKind] = "all"
    has_reference: ClassVar[bool] = False


@dataclass(frozen=True, repr=False)
class InterGroup(PairwiseConstraint):
    r"""Preferences across groups are respected equally often.

    .. math:: \Delta_{kl} = A_{kl} - A, \quad k \ne l

    with A_kl the share of preference pairs put in the right order among those whose preferred
    item is in group k and whose other item is in group l, and A that of all preference pairs.
    Parameters are those of `PairwiseConstraint`: average, only, target, soft.
    """

    name: ClassVar[str] = "inter"


@dataclass(frozen=True, repr=False)
class IntraGroup(PairwiseConstraint):
    r"""Preferences inside each group are respected equally often.

    .. math:: \Delta_{kk} = A_{kk} - A

    Parameters are those of `PairwiseConstraint`: average, only, target, soft.
    """

    name: ClassVar[str] = "intra"
    cells: ClassVar[Cells] = "within"


@dataclass(frozen=True, repr=False)
class Marginal(PairwiseConstraint):
    r"""Preferences for members of each group are respected equally often.

    .. math:: \Delta_k = A_{k\cdot} - A

    with A_k· the share put in the right order among preference pairs whose preferred item is in
    group k. One multiplier per group. Parameters are those of `PairwiseConstraint`: average, only,
    target, soft.
    """

    name: ClassVar[str] = "marginal"
    cells: ClassVar[Cells] = "groups"


@dataclass(frozen=True, repr=False)
class FunctionConstraint(Constraint):
    """A user's function of ``(queries, scores)`` as a constraint; see the module's text."""

    function: Callable[[Queries, Array], Array]

    def delta(self, queries: Queries, scores: Array) -> Array:
        """What the function returns, checked for its shape."""
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


CATALOGUE: dict[str, type[PairwiseConstraint]] = {
    constraint.name: constraint
    for constraint in (StatisticalParity, InterGroup, IntraGroup, Marginal)
}


def as_constraint(constraint: Any) -> Constraint:
    """A constraint from its name, from a function, or as it is."""
    if isinstance(constraint, Constraint):
        return constraint
    if isinstance(constraint, str):
        if constraint in CATALOGUE:
            return CATALOGUE[constraint]()
        close = get_close_matches(constraint.lower(), CATALOGUE, 1, 0.5)
        meant = f" Did you mean {close[0]!r}?" if close else ""
        raise ConstraintError(
            f"There is no constraint named {constraint!r}.{meant} Choose one of "
            f"{', '.join(map(repr, CATALOGUE))}, a Constraint, or a function."
        )
    if isinstance(constraint, type) and issubclass(constraint, Constraint):
        raise ConstraintError(f"Pass an instance, {constraint.__name__}(), not the class.")
    if callable(constraint):
        return FunctionConstraint(constraint)
    raise ConstraintError(
        f"{constraint!r} is not a constraint. Pass one of {', '.join(map(repr, CATALOGUE))}, a "
        "Constraint, or a function of (queries, scores)."
    )


def _any_pairs(queries: Queries) -> Array:
    """Per cell of known groups, in how many queries there is a pair, whatever the labels."""
    known = slice(queries.n_groups)
    there = cell_counts(queries, pairs="all")[:, known, known] > 0
    return np.asarray(there.sum(axis=0), dtype=np.float64)


def _index(name: Any, groups: tuple[str, ...]) -> int:
    if str(name) not in groups:
        raise ConstraintError(
            f"There is no group {str(name)!r}; the groups are {', '.join(map(repr, groups))}."
        )
    return groups.index(str(name))
