"""PairWeights: the learnt K × K table, labelled by group."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import DTypeLike
from scipy.special import expit

from pairity._utils.html import notebook, table, tag
from pairity._utils.text import make_frame, render_table, short_names
from pairity._utils.typing import Array
from pairity._utils.validation import is_real, show
from pairity.constraints import Constraint, PairwiseConstraint, spread
from pairity.data.queries import Queries
from pairity.exceptions import ConstraintError, InputError

Enumeration = Literal["preference", "both"]


@dataclass(frozen=True, eq=False, repr=False)
class PairWeights:
    r"""What a pair weighs, by the group of its preferred item and that of its other item.

    ``weights["f", "m"]`` multiplies the loss of every preference pair whose preferred item is in
    the group f and whose other item is in m; 1 is the unweighted problem.

    Attributes
    ----------
    table : float64 array of shape (n_groups, n_groups), not to be written to
    groups : tuple of str

    Examples
    --------
    >>> from pairity import PairWeights
    >>> weights = PairWeights([[1.0, 1.5], [0.5, 1.0]], ("f", "m"))
    >>> weights["f", "m"]
    1.5
    >>> print(weights)
    preferred \ other      f      m
    -------------------------------
    f                  1.000  1.500
    m                  0.500  1.000
    """

    table: Array
    groups: tuple[str, ...]

    def __post_init__(self) -> None:
        table = np.array(self.table, dtype=np.float64)
        groups = tuple(str(name) for name in self.groups)
        if table.shape != (len(groups), len(groups)):
            raise InputError(
                f"The table has shape {table.shape}, but there are {len(groups)} groups. Give one "
                "row and one column per group."
            )
        if len(set(groups)) < len(groups):
            raise InputError(
                f"The groups {', '.join(map(repr, groups))} are not all different. Give each a "
                "name of its own."
            )
        wrong = np.argwhere(~(np.isfinite(table) & (table >= 0)))
        if len(wrong):
            above, below = wrong[0]
            raise InputError(
                f"The weight of {groups[above]!r} preferred to {groups[below]!r} is "
                f"{table[above, below]:g}. Give finite weights, 0 or more."
            )
        table.setflags(write=False)
        object.__setattr__(self, "table", table)
        object.__setattr__(self, "groups", groups)

    def __getitem__(self, cell: tuple[Any, Any]) -> float:
        """The weight of a cell, by the names of its groups; by position, use `table`."""
        if not isinstance(cell, tuple) or len(cell) != 2:
            raise InputError(f"{cell!r} is not a pair of groups, such as weights['f', 'm'].")
        preferred, other = (self._position(name) for name in cell)
        return float(self.table[preferred, other])

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Any:
        return np.array(self.table, dtype=dtype, copy=copy)

    def to_dict(self) -> dict[str, dict[str, float]]:
        """``{preferred: {other: weight}}``."""
        return {
            name: dict(zip(self.groups, row, strict=True))
            for name, row in zip(self.groups, self.table.tolist(), strict=True)
        }

    def to_json(self) -> str:
        """The table with its groups, as JSON."""
        return json.dumps({"groups": list(self.groups), "weights": self.table.tolist()})

    @classmethod
    def from_dict(cls, weights: Mapping[str, Mapping[str, float]]) -> Self:
        """From ``{preferred: {other: weight}}``, as `to_dict` gives it."""
        if not isinstance(weights, Mapping):
            raise InputError(f"{show(weights)} is not a mapping {{preferred: {{other: weight}}}}.")
        groups = tuple(weights)
        for name, row in weights.items():
            if not isinstance(row, Mapping) or set(row) != set(groups):
                raise InputError(
                    f"The weights of {name!r} are {show(row)}. Give one for each of the groups "
                    f"{', '.join(map(repr, groups))}."
                )
        return cls._checked([[row[name] for name in groups] for row in weights.values()], groups)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """From JSON, as `to_json` gives it; nothing in it is run."""
        try:
            read = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"The weights are no JSON: {error}. Give what to_json() wrote."
            ) from error
        if not isinstance(read, dict) or set(read) != {"groups", "weights"}:
            raise InputError(
                f'{show(read)} is not {{"groups": [...], "weights": [[...], ...]}}. Give what '
                "to_json() wrote."
            )
        return cls._checked(read["weights"], read["groups"])

    @classmethod
    def _checked(cls, table: Any, groups: Any) -> Self:
        """From parts that anybody may have written."""
        if not isinstance(groups, (list, tuple)) or not all(isinstance(g, str) for g in groups):
            raise InputError(f"The groups are {show(groups)}. Give a list of names.")
        n = len(groups)
        rows = table if isinstance(table, list) and len(table) == n else [None]
        for row in rows:
            if not isinstance(row, list) or len(row) != n or not all(map(is_real, row)):
                raise InputError(
                    f"The weights are {show(table)}. Give {n} rows of {n} numbers, one per group."
                )
        try:
            return cls(np.array(table, dtype=np.float64).reshape(n, n), tuple(groups))
        except OverflowError as error:
            raise InputError(f"The weights are {show(table)}, too large for float64.") from error

    def to_frame(self, backend: str | None = None) -> Any:
        """One row per cell: preferred, other, weight; in pandas, polars or pyarrow."""
        n = len(self.groups)
        return make_frame(
            {
                "preferred": [name for name in self.groups for _ in range(n)],
                "other": list(self.groups) * n,
                "weight": self.table.ravel().tolist(),
            },
            backend,
        )

    def __str__(self) -> str:
        names = short_names(self.groups)
        rows = [
            [name, *(f"{value:.3f}" for value in row)]
            for name, row in zip(names, self.table, strict=True)
        ]
        return render_table(["preferred \\ other", *names], rows)

    def _repr_html_(self) -> str:
        """The same table, for notebooks."""
        names = [tag("bdi", name) for name in short_names(self.groups)]
        rows = [
            [name, *(f"{value:.3f}" for value in row)]
            for name, row in zip(names, self.table, strict=True)
        ]
        caption = "What a training pair counts, by the groups of its preferred and its other item"
        return notebook(table(["preferred \\ other", *names], rows, caption=caption))

    def __repr__(self) -> str:
        return f"PairWeights(groups={self.groups}, table={np.round(self.table, 3).tolist()})"

    def _position(self, name: Any) -> int:
        if str(name) not in self.groups:
            raise InputError(
                f"There is no group {str(name)!r}; the groups are "
                f"{', '.join(map(repr, self.groups))}."
            )
        return self.groups.index(str(name))


@dataclass(frozen=True, eq=False)
class Weigher:
    """Turns λ into the weight table W.

    Parameters
    ----------
    scale : array of λ's shape
        The change of λ that moves the exponent by one: 1 for the indicator form, the share of
        pairs P of the entry for the closed form.
    centred : bool
        Whether the closed form subtracts Σλ, for constraints with a reference A.
    enumeration : {"preference", "both"}
    """

    scale: Array
    centred: bool
    enumeration: Enumeration

    def table(self, lambda_: Array) -> Array:
        """W for these multipliers."""
        exponent = np.zeros(lambda_.shape)
        np.divide(lambda_, self.scale, out=exponent, where=self.scale > 0)
        if self.centred:
            exponent = exponent - lambda_.sum()
        return weight_table(spread(exponent), enumeration=self.enumeration)


def weight_table(exponent: Array, *, enumeration: Enumeration = "preference") -> Array:
    r"""The K × K weights that an exponent Σ λ c per cell gives to the preference pairs.

    .. math:: W_{kl} = 2 \sigma(e_{kl}) \quad\text{or, with both orders,}\quad
              W_{kl} = \sigma(e_{kl}) + \sigma(-e_{lk})

    Examples
    --------
    >>> import numpy as np
    >>> weight_table(np.zeros((2, 2)))
    array([[1., 1.],
           [1., 1.]])
    """
    if enumeration == "both":
        return np.asarray(expit(exponent) + expit(-exponent.T))
    return np.asarray(2.0 * expit(exponent))


def make_weigher(
    constraint: Constraint,
    queries: Queries,
    shape: tuple[int, ...],
    enumeration: str,
    weighting: str,
) -> Weigher:
    """Check the two options against the constraint, and gather what the closed form needs."""
    if enumeration not in ("preference", "both"):
        raise ConstraintError(f"enumeration is {enumeration!r}; choose 'preference' or 'both'.")
    if weighting not in ("indicator", "closed-form"):
        raise ConstraintError(f"weighting is {weighting!r}; choose 'indicator' or 'closed-form'.")
    if enumeration == "both" and getattr(constraint, "name", "") == "intra":
        raise ConstraintError(
            "The intra-group constraint cannot be trained with enumeration='both': within a group, "
            "a pair and its mirror have the total weight σ(λ) + σ(-λ) = 1 for every λ, so no λ "
            "changes the ranker. Use enumeration='preference'."
        )
    if weighting == "indicator":
        return Weigher(np.ones(shape), False, enumeration)  # type: ignore[arg-type]
    if not isinstance(constraint, PairwiseConstraint):
        raise ConstraintError(
            "weighting='closed-form' is known for the four pairwise constraints only. Use "
            "weighting='indicator' with your own."
        )
    if constraint.average != "pair":
        raise ConstraintError(
            "weighting='closed-form' belongs to constraints that pool pairs: averaged by query, a "
            f"pair's weight would depend on its query. Use {type(constraint).__name__}"
            "(average='pair'), or weighting='indicator'."
        )
    return Weigher(constraint.shares(queries), constraint.has_reference, enumeration)  # type: ignore[arg-type]
