"""The pairwise constraints: which cells of the K × K table are compared, over which pairs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from pairity._utils.typing import Array
from pairity.constraints.base import Constraint
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


@dataclass(frozen=True, repr=False)
class PairwiseConstraint(Constraint):
    """The base of the four pairwise constraints: sums over pairs, by cell.

    Parameters
    ----------
    average : {"query", "pair"}
        Whether every query or every pair counts the same. A query without a pair in a cell is left
        out of that cell's average.
    only : sequence, optional
        What to compare; everything by default. Pairs of groups, ``[("f", "m")]``, for statistical
        parity and inter-group; groups, ``["f", "m"]``, for intra-group and marginal.
    target : mapping, optional
        A delta to aim at instead of zero, by pair of groups or by group, for example
        ``{("f", "m"): 0.05}``.
    soft : bool
        Whether to use σ(s_i - s_j) instead of 1[s_i > s_j]. Soft values shrink with the scale of
        the scores; the option exists for literal reproductions of published results.

    Attributes
    ----------
    pairs : {"preference", "all"}
        Which pairs are averaged.
    cells : {"across", "within", "groups"}
        Whether cells of two groups, cells of one group, or groups are compared.
    has_reference : bool
        Whether delta is relative to the mean over all pairs rather than to 1/2.
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
            raise ConstraintError(f"average must be 'query' or 'pair' (got {self.average!r}).")

    @property
    def by_group(self) -> bool:
        """Whether delta has one entry per group rather than per cell."""
        return self.cells == "groups"

    # --- sums over pairs -------------------------------------------------------------------------

    def delta(self, queries: Queries, scores: Array) -> Array:
        """Δ of these scores, as the class defines it."""
        return self.from_totals(queries.total(self.totals, scores), queries.groups)

    def totals(self, queries: Queries, scores: Array) -> Array:
        """The sums over queries that Δ is computed from; those of parts of the data add up."""
        sums, counts = self.sums(queries, scores), self.counts(queries)
        return self.totals_of(sums, counts, queries.weight_of_query)

    def sums(self, queries: Queries, scores: Array) -> Array:
        """Per query and cell of known groups, the sum of predicted pair labels."""
        known = slice(queries.n_groups)
        return cell_sums(queries, scores, pairs=self.pairs, soft=self.soft)[:, known, known]

    def counts(self, queries: Queries) -> Array:
        """Per query and cell of known groups, the weight of pairs."""
        known = slice(queries.n_groups)
        return cell_counts(queries, pairs=self.pairs)[:, known, known]

    def totals_of(self, sums: Array, counts: Array, weight: Array) -> Array:
        """`totals` from sums and counts per query.

        `weight` of shape (n_resamples, n_queries) gives the totals of all resamples at once.
        """
        return totals_over_queries(self.entries(sums), self.entries(counts), weight, self.average)

    def entries(self, table: Array) -> Array:
        """Sums per query and cell as the entries that are averaged: cells or groups, then all."""
        entries = table.sum(axis=2) if self.by_group else table.reshape(len(table), -1)
        return np.column_stack([entries, entries.sum(axis=1)])

    def from_totals(self, totals: Array, groups: tuple[str, ...]) -> Array:
        """Δ from `totals`, of one part of the data or summed over many."""
        means = mean_of_totals(totals)
        compared, targets = self._compared(groups), self._targets(groups)
        reference = means[..., -1:] if self.has_reference else 0.5
        delta = (means[..., :-1] - reference).reshape(*means.shape[:-1], *compared.shape) - targets
        delta[..., ~compared] = np.nan
        return delta

    def shares(self, queries: Queries) -> Array:
        """P: the share of all pairs that lies in each cell (in each row, with one λ per group)."""
        counts = queries.total(self._pair_weight)
        return np.asarray(counts / counts.sum())

    def _pair_weight(self, queries: Queries) -> Array:
        """Per cell of known groups (or per group), the weight of all pairs."""
        counts = np.tensordot(queries.weight_of_query, self.counts(queries), axes=1)
        return np.asarray(counts.sum(axis=1) if self.by_group else counts)

    def check(self, queries: Queries) -> None:
        """Raise `ConstraintError` if a compared cell has no pair."""
        empty = self._compared(queries.groups) & (queries.total(self._pair_weight) == 0)
        if not empty.any():
            return
        cell = np.argwhere(empty)[0]
        k, j = int(cell[0]), int(cell[-1])
        first, second = queries.groups[k], queries.groups[j]
        none = f"None of the {queries.n_queries} queries"
        if k == j:
            lower = "any other item" if self.by_group else "another item of it"
            raise ConstraintError(
                f"{none} prefers an item of the group {first!r} to {lower}, so the group has no "
                "preference pair. Leave it out with only=[...], or use StatisticalParity."
            )
        if not queries.total(_n_queries_with_pairs)[k, j]:
            raise ConstraintError(
                f"{none} contains both {first!r} and {second!r}, so no pair compares them. Check "
                "sensitive_features and qid, limit the constraint with only=[(..., ...)], or use "
                "a constraint within groups (IntraGroup)."
            )
        raise ConstraintError(
            f"{none} prefers an item of {first!r} to an item of {second!r}, so no preference pair "
            f"puts {first!r} above {second!r}. Use StatisticalParity ('statistical'), which needs "
            "no preferences, merge small groups, or limit the constraint with only=[(..., ...)]."
        )

    # --- names of groups -------------------------------------------------------------------------

    def _everything(self, n_groups: int) -> NDArray[np.bool_]:
        """The entries that the constraint compares without `only`."""
        if self.by_group:
            return np.ones(n_groups, dtype=bool)
        within = np.eye(n_groups, dtype=bool)
        return within if self.cells == "within" else ~within

    def _compared(self, groups: tuple[str, ...]) -> NDArray[np.bool_]:
        compared = self._everything(len(groups))
        if self.only is None:
            return compared
        compared[...] = False
        for entry in self.only:
            for index in self._cells_of(entry, groups):
                compared[index] = True
        if self.cells != "across" and compared.sum() < 2:
            raise ConstraintError(
                f"only={list(self.only)!r} leaves {int(compared.sum())} group, but a comparison "
                "needs 2. Add a group."
            )
        return compared

    def _targets(self, groups: tuple[str, ...]) -> Array:
        targets = np.zeros(self._everything(len(groups)).shape)
        for entry, value in (self.target or {}).items():
            cells = self._cells_of(entry, groups)
            targets[cells[0]] = value
            if self.pairs == "all" and tuple(reversed(entry)) not in (self.target or {}):
                targets[cells[1]] = -value  # R_lk = 1 - R_kl
        return targets

    def _cells_of(self, entry: Any, groups: tuple[str, ...]) -> list[tuple[int, ...]]:
        if self.cells != "across":
            k = _index(entry, groups)
            return [(k,) if self.by_group else (k, k)]
        if isinstance(entry, str) or len(entry) != 2 or str(entry[0]) == str(entry[1]):
            raise ConstraintError(
                f"{entry!r} is not a pair of groups. {type(self).__name__} compares two different "
                "groups, such as ('f', 'm')."
            )
        k, j = (_index(name, groups) for name in entry)
        return [(k, j), (j, k)]

    def __repr__(self) -> str:
        changed = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)
            if getattr(self, field.name) != field.default
        ]
        return f"{type(self).__name__}({', '.join(changed)})"


@dataclass(frozen=True, repr=False)
class StatisticalParity(PairwiseConstraint):
    r"""Items of each group are ranked above items of another equally often, whatever their labels.

    .. math:: \Delta_{kl} = R_{kl} - \tfrac12, \quad k \ne l

    R_kl is the mean of the predicted pair label over *all* ordered pairs of an item in group k and
    an item in group l. Parameters are those of `PairwiseConstraint`: average, only, target, soft.

    Examples
    --------
    >>> from pairity import StatisticalParity
    >>> StatisticalParity(average="pair", only=[("f", "m")])
    StatisticalParity(average='pair', only=[('f', 'm')])
    """

    name: ClassVar[str] = "statistical"
    title: ClassVar[str] = "statistical parity"
    description: ClassVar[str] = (
        "how often items of one group are ranked above items of another, whatever their labels"
    )
    pairs: ClassVar[PairKind] = "all"
    has_reference: ClassVar[bool] = False


@dataclass(frozen=True, repr=False)
class InterGroup(PairwiseConstraint):
    r"""Preferences across groups are respected equally often.

    .. math:: \Delta_{kl} = A_{kl} - A, \quad k \ne l

    A_kl is the share of correctly ordered pairs among the preference pairs whose preferred item is
    in group k and whose other item is in group l, and A that among all preference pairs.
    Parameters are those of `PairwiseConstraint`: average, only, target, soft.
    """

    name: ClassVar[str] = "inter"
    title: ClassVar[str] = "inter-group preferences"
    description: ClassVar[str] = (
        "how often the ranker agrees with labels that prefer an item of one group to an item of "
        "another"
    )


@dataclass(frozen=True, repr=False)
class IntraGroup(PairwiseConstraint):
    r"""Preferences within each group are respected equally often.

    .. math:: \Delta_{kk} = A_{kk} - A

    Parameters are those of `PairwiseConstraint`: average, only, target, soft.
    """

    name: ClassVar[str] = "intra"
    title: ClassVar[str] = "intra-group preferences"
    description: ClassVar[str] = "how often the ranker agrees with the labels within a group"
    cells: ClassVar[Cells] = "within"


@dataclass(frozen=True, repr=False)
class Marginal(PairwiseConstraint):
    r"""Preferences for the items of each group are respected equally often.

    .. math:: \Delta_k = A_{k\cdot} - A

    A_k· is the share of correctly ordered pairs among the preference pairs whose preferred item is
    in group k. There is one multiplier per group. Parameters are those of `PairwiseConstraint`:
    average, only, target, soft.
    """

    name: ClassVar[str] = "marginal"
    title: ClassVar[str] = "marginal preferences"
    description: ClassVar[str] = (
        "how often the ranker agrees with labels that prefer an item of a group"
    )
    cells: ClassVar[Cells] = "groups"


def _n_queries_with_pairs(queries: Queries) -> Array:
    """Per cell of known groups, how many queries have a pair of any labels in it."""
    known = slice(queries.n_groups)
    present = cell_counts(queries, pairs="all")[:, known, known] > 0
    return np.asarray(present.sum(axis=0), dtype=np.float64)


def _index(name: Any, groups: tuple[str, ...]) -> int:
    if str(name) not in groups:
        raise ConstraintError(
            f"There is no group {str(name)!r}. The groups are {', '.join(map(repr, groups))}."
        )
    return groups.index(str(name))
