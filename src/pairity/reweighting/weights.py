"""The pair weights: from multipliers to the K × K table, and the table labelled by group."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

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

# The weights 2σ(λ) lie between 0 and 2. This close to a limit, a further change of λ moves a weight
# by less than 0.01, which no longer changes a ranker noticeably.
_SATURATION = 0.01


@dataclass(frozen=True, eq=False, repr=False)
class PairWeights:
    r"""The weight of a pair, by the group of its preferred item and that of its other item.

    ``weights["f", "m"]`` multiplies the loss of every preference pair whose preferred item is in
    group f and whose other item is in group m. A weight of 1 is the unweighted problem.

    Attributes
    ----------
    table : read-only float64 array of shape (n_groups, n_groups)
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
                f"The table has shape {table.shape}, but there are {len(groups)} groups. Pass one "
                "row and one column per group."
            )
        if len(set(groups)) < len(groups):
            raise InputError(
                f"The groups {_quoted(groups)} are not all different. Pass different names."
            )
        wrong = np.argwhere(~(np.isfinite(table) & (table >= 0)))
        if len(wrong):
            preferred, other = wrong[0]
            raise InputError(
                f"The weight of {groups[preferred]!r} preferred to {groups[other]!r} is "
                f"{table[preferred, other]:g}. Weights must be finite and at least 0."
            )
        table.setflags(write=False)
        object.__setattr__(self, "table", table)
        object.__setattr__(self, "groups", groups)

    def __getitem__(self, cell: tuple[Any, Any]) -> float:
        """The weight of a cell, by the names of its groups; by position, use `table`."""
        if not isinstance(cell, tuple) or len(cell) != 2:
            raise InputError(f"{cell!r} is not a pair of groups, such as weights['f', 'm'].")
        for name in cell:
            if str(name) not in self.groups:
                raise InputError(
                    f"There is no group {str(name)!r}; the groups are {_quoted(self.groups)}."
                )
        return float(self.table[tuple(self.groups.index(str(name)) for name in cell)])

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Any:
        return np.array(self.table, dtype=dtype, copy=copy)

    def saturated(self) -> list[tuple[str, str]]:
        """The cells whose weight is at its limit, 0 or 2, so that λ can move it no further.

        Examples
        --------
        >>> from pairity import PairWeights
        >>> PairWeights([[1.0, 1.995], [0.3, 1.0]], ("f", "m")).saturated()
        [('f', 'm')]
        """
        inside = (self.table > _SATURATION) & (self.table < 2.0 - _SATURATION)
        return [(self.groups[k], self.groups[j]) for k, j in np.argwhere(~inside)]

    def to_dict(self) -> dict[str, dict[str, float]]:
        """``{preferred: {other: weight}}``."""
        return {
            name: dict(zip(self.groups, row, strict=True))
            for name, row in zip(self.groups, self.table.tolist(), strict=True)
        }

    def to_json(self) -> str:
        """What `to_dict` returns, as JSON."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_dict(cls, weights: Mapping[str, Mapping[str, float]]) -> Self:
        """Read ``{preferred: {other: weight}}``, as `to_dict` returns it."""
        if not isinstance(weights, Mapping):
            raise InputError(f"{show(weights)} is not a mapping {{preferred: {{other: weight}}}}.")
        groups = tuple(weights)
        for name, row in weights.items():
            named = isinstance(row, Mapping) and set(row) == set(groups)
            if not named or not all(map(is_real, row.values())):
                raise InputError(
                    f"The weights of {name!r} are {show(row)}. Pass one number for each of the "
                    f"groups {_quoted(groups)}."
                )
        rows = [[row[name] for name in groups] for row in weights.values()]
        try:
            return cls(np.array(rows, dtype=np.float64).reshape(len(groups), len(groups)), groups)
        except OverflowError as error:
            raise InputError(f"A weight in {show(rows)} is too large for float64.") from error

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read JSON, as `to_json` returns it; no code in it is run."""
        try:
            weights = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"The weights are not JSON: {error}. Pass what to_json() returned."
            ) from error
        return cls.from_dict(weights)

    def to_frame(self, backend: str | None = None) -> Any:
        """One row per cell: preferred, other, weight; in pandas, polars or pyarrow."""
        n = len(self.groups)
        columns: dict[str, list[Any]] = {
            "preferred": [name for name in self.groups for _ in range(n)],
            "other": list(self.groups) * n,
            "weight": self.table.ravel().tolist(),
        }
        return make_frame(columns, backend)

    def _rows(self, names: list[Any]) -> tuple[list[Any], list[list[Any]]]:
        """Header and rows of the table as it is printed."""
        rows = zip(names, self.table, strict=True)
        cells = [[name, *(f"{value:.3f}" for value in row)] for name, row in rows]
        return ["preferred \\ other", *names], cells

    def __str__(self) -> str:
        return render_table(*self._rows(short_names(self.groups)))

    def _repr_html_(self) -> str:
        names = [tag("bdi", name) for name in short_names(self.groups)]
        caption = "Weight of a training pair, by the groups of its preferred and its other item"
        return notebook(table(*self._rows(names), caption=caption))

    def __repr__(self) -> str:
        return f"PairWeights(groups={self.groups}, table={np.round(self.table, 3).tolist()})"


def _quoted(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names))


@dataclass(frozen=True, eq=False)
class Weigher:
    """The rule that turns multipliers λ into the weight table W.

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
    enumeration: str

    def table(self, lambda_: Array) -> Array:
        """The table W for these multipliers."""
        exponent = np.zeros(lambda_.shape)
        np.divide(lambda_, self.scale, out=exponent, where=self.scale > 0)
        if self.centred:
            exponent = exponent - lambda_.sum()
        return weight_table(spread(exponent), enumeration=self.enumeration)


def weight_table(exponent: Array, *, enumeration: str = "preference") -> Array:
    r"""The K × K weights of preference pairs, from one exponent e = Σ λ c per cell.

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
    """Check the two options against the constraint, and compute the scale of the closed form."""
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
        return Weigher(np.ones(shape), False, enumeration)
    if not isinstance(constraint, PairwiseConstraint):
        raise ConstraintError(
            f"weighting='closed-form' is defined only for the four pairwise constraints, not for "
            f"{constraint!r}. Use weighting='indicator'."
        )
    if constraint.average != "pair":
        raise ConstraintError(
            "weighting='closed-form' requires a constraint that pools pairs: if it averages over "
            f"queries, the weight of a pair depends on its query. Use {type(constraint).__name__}"
            "(average='pair'), or weighting='indicator'."
        )
    return Weigher(constraint.shares(queries), constraint.has_reference, enumeration)
