"""The pair weights: from multipliers to the K × K table, and the table labelled by group."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.special import expit

from pairity._utils.html import notebook, table, tag
from pairity._utils.text import make_frame, render_table, short_names
from pairity._utils.typing import Array
from pairity._utils.validation import is_real, require_choice, show
from pairity.constraints import Constraint, PairwiseConstraint
from pairity.data.queries import Queries
from pairity.exceptions import ConstraintError, InputError
from pairity.pairs.cells import pairs_by_cell, total_weight

WEIGHTINGS = ("reversible", "exponential", "paper", "closed-form")

# The reversible form is the paper's up to |e| = START, where the pairs of a cell have 0.1 or 1.9 of
# their weight and the paper's weights hardly change any more. Beyond, weights grow (GROWTH) and
# preferences are turned round (REVERSAL, ε). No pair counts more than 12 times as much as an
# unweighted one, which e = MOST is: beyond that, a booster orders all other pairs worse for little
# (out of fold on `star`, at a quarter of the plain violation: AUC 0.715 to 0.718 with limits from
# e^2 to e^3, and 0.676 without), and a linear ranker gains nothing. Four choices of START, GROWTH
# and REVERSAL were alike within their standard errors on training queries of star, MathAchieve and
# the generator, split again. This one stays close to the paper where the paper's weights suffice.
START = 3.0
GROWTH = 2.0
REVERSAL = 0.05
MOST = 4.8

FARTHEST = 8.0  # largest exponent: exp(8) is a weight ratio of 3,000, beyond it nothing changes
_DECIMALS = 9  # of an exponent; digits from the twelfth on depend on the order of summation


@dataclass(frozen=True, eq=False, repr=False)
class PairWeights:
    r"""The weight of a pair, by the group of its preferred item and that of its other item.

    ``weights["f", "m"]`` multiplies the loss of every preference pair whose preferred item is in
    group f and whose other item is in group m. A weight of 1 is the unweighted problem. If the
    pairs of a cell have a mirrored weight, they also count in the opposite order: the cell of
    (f, m) then asks with the weight ``mirrored`` that the item of group m is ranked above.

    Attributes
    ----------
    table : read-only float64 array of shape (n_groups, n_groups)
    groups : tuple of str
    mirrored : read-only float64 array of shape (n_groups, n_groups), zero without mirrored pairs

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
    mirrored: Any = None

    def __post_init__(self) -> None:
        groups = tuple(str(name) for name in self.groups)
        if len(set(groups)) < len(groups):
            raise InputError(
                f"The groups {_quoted(groups)} are not all different. Pass different names."
            )
        object.__setattr__(self, "groups", groups)
        mirrored = np.zeros(np.shape(self.table)) if self.mirrored is None else self.mirrored
        for name, values in (("table", self.table), ("mirrored", mirrored)):
            table = np.array(values, dtype=np.float64)
            if table.shape != (len(groups), len(groups)):
                raise InputError(
                    f"The table has shape {table.shape}, but there are {len(groups)} groups. Pass "
                    "one row and one column per group."
                )
            wrong = np.argwhere(~(np.isfinite(table) & (table >= 0)))
            if len(wrong):
                preferred, other = wrong[0]
                raise InputError(
                    f"The weight of {groups[preferred]!r} preferred to {groups[other]!r} is "
                    f"{table[preferred, other]:g}. Weights must be finite and at least 0."
                )
            table.setflags(write=False)
            object.__setattr__(self, name, table)

    @classmethod
    def of(cls, tables: Array, groups: tuple[str, ...]) -> Self:
        """The weights of one table, or of a table and its mirrored one."""
        return cls(tables, groups) if tables.ndim == 2 else cls(tables[0], groups, tables[1])

    @property
    def tables(self) -> Array:
        """The table, or both tables if some mirrored pair has a weight, as rankers take them."""
        return np.stack([self.table, self.mirrored]) if self.mirrored.any() else self.table

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

    def extreme(self, factor: float = 100.0) -> list[tuple[str, str]]:
        """The cells whose pairs count `factor` times as much as an unweighted pair, or as little.

        Examples
        --------
        >>> from pairity import PairWeights
        >>> PairWeights([[1.0, 120.0], [0.3, 1.0]], ("f", "m")).extreme()
        [('f', 'm')]
        """
        total = self.table + self.mirrored
        cells = np.argwhere((total > factor) | (total < 1.0 / factor))
        return [(self.groups[k], self.groups[j]) for k, j in cells]

    def reversed(self) -> list[tuple[str, str]]:
        """The cells whose pairs count more in the mirrored order than in the observed one.

        Examples
        --------
        >>> from pairity import PairWeights
        >>> PairWeights([[1, 1], [0.2, 1]], ("f", "m"), [[0, 0], [0.4, 0]]).reversed()
        [('m', 'f')]
        """
        cells = np.argwhere(self.mirrored > self.table)
        return [(self.groups[k], self.groups[j]) for k, j in cells]

    def to_dict(self) -> dict[str, dict[str, dict[str, float]]]:
        """``{"observed": {preferred: {other: weight}}, "mirrored": the same}``."""
        return {
            key: {
                name: dict(zip(self.groups, row, strict=True))
                for name, row in zip(self.groups, table.tolist(), strict=True)
            }
            for key, table in (("observed", self.table), ("mirrored", self.mirrored))
        }

    def to_json(self) -> str:
        """What `to_dict` returns, as JSON."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_dict(cls, weights: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Self:
        """Read what `to_dict` returns; "mirrored" may be left out."""
        if not isinstance(weights, Mapping) or not isinstance(weights.get("observed"), Mapping):
            raise InputError(
                f"{show(weights)} is not a mapping "
                "{'observed': {preferred: {other: weight}}}. "
                "Pass what to_dict() returned."
            )
        groups = tuple(weights["observed"])
        tables = [
            _read_table(weights[key], groups) for key in ("observed", "mirrored") if key in weights
        ]
        return cls(tables[0], groups, *tables[1:])

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
        """One row per cell: preferred, other and both weights; in pandas, polars or pyarrow."""
        n = len(self.groups)
        columns: dict[str, list[Any]] = {
            "preferred": [name for name in self.groups for _ in range(n)],
            "other": list(self.groups) * n,
            "weight": self.table.ravel().tolist(),
            "mirrored_weight": self.mirrored.ravel().tolist(),
        }
        return make_frame(columns, backend)

    def _rows(self, names: list[Any]) -> tuple[list[Any], list[list[Any]]]:
        """Header and rows of the table as it is printed."""
        rows = zip(names, self.table, self.mirrored, strict=True)
        cells = [
            [name, *(_cell(*both) for both in zip(row, mirrored, strict=True))]
            for name, row, mirrored in rows
        ]
        return ["preferred \\ other", *names], cells

    def __str__(self) -> str:
        return render_table(*self._rows(short_names(self.groups)))

    def _repr_html_(self) -> str:
        names = [tag("bdi", name) for name in short_names(self.groups)]
        caption = "Weight of a training pair, by the groups of its preferred and its other item"
        return notebook(table(*self._rows(names), caption=caption))

    def __repr__(self) -> str:
        mirrored = (
            f", mirrored={np.round(self.mirrored, 3).tolist()}" if self.mirrored.any() else ""
        )
        table = np.round(self.table, 3).tolist()
        return f"PairWeights(groups={self.groups}, table={table}{mirrored})"


def _cell(weight: float, mirrored: float) -> str:
    return f"{weight:.3f} / {mirrored:.3f}" if mirrored else f"{weight:.3f}"


def _read_table(weights: Any, groups: tuple[str, ...]) -> Array:
    """Read ``{preferred: {other: weight}}`` with these groups."""
    rows = weights.items() if isinstance(weights, Mapping) else [("all groups", weights)]
    for name, row in rows:
        named = isinstance(row, Mapping) and set(row) == set(groups)
        if not named or not all(map(is_real, row.values())):
            raise InputError(
                f"The weights of {name!r} are {show(row)}. Pass one number for each of the groups "
                f"{_quoted(groups)}."
            )
    if tuple(sorted(weights)) != tuple(sorted(groups)):
        raise InputError(f"The weights have no row for each of the groups {_quoted(groups)}.")
    table = [[weights[name][other] for other in groups] for name in groups]
    try:
        return np.array(table, dtype=np.float64).reshape(len(groups), len(groups))
    except OverflowError as error:
        raise InputError(f"A weight in {show(table)} is too large for float64.") from error


def _quoted(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names))


@dataclass(frozen=True, eq=False)
class Weigher:
    r"""The rule that turns multipliers λ into pair weights.

    A pair of cell (k, l) with the exponent e = λ_kl (in the closed form, λ times the scale of the
    constraint) has the weight a in its observed order and b in the mirrored order.

    ============== ======================================= ==================================
    form           a                                       b
    ============== ======================================= ==================================
    "paper"        :math:`2\sigma(e)`                      0
    "exponential"  :math:`e^e`                             0
    "reversible"   :math:`2\sigma(e) + 2 (e^{e-3} - 1)_+`  :math:`\epsilon\,(e^{-e-3} - 1)_+`
    ============== ======================================= ==================================

    Only the ratios of weights matter: rankers divide them by the mean weight of a training pair. A
    pair with an item of unknown group has the weight 1, as if its λ were 0.

    **Why Theorem 1 still holds.** The theorem asks that the weights of the two labels of a pair are
    in proportion to the true probabilities of the labels, given the observed one:
    :math:`w(x, 1) : w(x, 0) = l_{true} : (1 - l_{true})`. Multiplying both by a positive function
    of the pair only changes how often the pair is drawn, so the sum of the two weights is free.
    The paper chooses it to be 1, which bounds every weight by 2 (with W = 1 at λ = 0); the
    exponential form drops this bound, and the reversible form does so for e > 3, where the paper's
    weights are nearly at it. In the first two, an observed label counts as certain, and remains so
    for every λ. The reversible form lets an observed preference of cell (k, l) be wrong with
    probability b / (a + b), which is 0 for e ≥ -3, where the pairs of the cell hardly count any
    more, and tends to 1 for e → -∞. At λ = 0 all three forms are the unweighted problem.

    Parameters
    ----------
    form : {"paper", "exponential", "reversible"}
    scale : array of λ's shape
        The change of λ that moves the exponent by one: 1 for the indicator form, the share of
        pairs P of the entry for the closed form.
    counts : array of shape (n_groups, n_groups)
        The weight of the training pairs in each cell.
    ungrouped : float
        The weight of the training pairs with an item of unknown group.
    centred : bool
        Whether the closed form subtracts Σλ, for constraints with a reference A.
    enumeration : {"preference", "both"}
        Whether pairs are enumerated once, or in both orders, which only the paper's form can be.
    """

    form: str
    scale: Array
    counts: Array
    ungrouped: float = 0.0
    centred: bool = False
    enumeration: str = "preference"

    def tables(self, lambda_: Array) -> Array:
        """The weights a and b, of shape (..., 2, n_groups, n_groups).

        λ may have further axes before its own.
        """
        exponent = np.zeros(lambda_.shape)
        np.divide(lambda_, self.scale, out=exponent, where=self.scale > 0)
        own = tuple(range(-self.scale.ndim, 0))
        if self.centred:
            exponent = exponent - lambda_.sum(axis=own, keepdims=True)
        if self.scale.ndim == 1:
            exponent = np.repeat(exponent[..., None], len(self.scale), axis=-1)
        exponent = np.minimum(exponent, self.highest)
        if self.form == "exponential":
            observed = np.exp(exponent)
        else:
            observed = weight_table(exponent, enumeration=self.enumeration)
        mirrored = np.zeros(observed.shape)
        if self.form == "reversible":
            beyond, below = np.exp(np.maximum(np.stack([exponent, -exponent]) - START, 0.0)) - 1.0
            observed, mirrored = observed + GROWTH * beyond, REVERSAL * below
        return np.stack([observed, mirrored], axis=-3)

    @property
    def highest(self) -> float:
        """The exponent beyond which the weight of a pair grows no more."""
        return MOST if self.form == "reversible" else FARTHEST

    def settle(self, lambda_: Array) -> Array:
        """Limit λ to where the weights change, and round it.

        When violations are added up on several machines, those of equal scores differ by rounding.
        The exponents are rounded so that the weights, and with them the trees of a booster, do not.
        """
        exponent = np.divide(lambda_, self.scale, out=np.zeros(lambda_.shape), where=self.scale > 0)
        limited = np.clip(exponent, -FARTHEST, self.highest)
        return np.asarray(limited.round(_DECIMALS) * self.scale)

    @property
    def separable(self) -> bool:
        """Whether the weight of a cell depends on its own λ only."""
        return self.enumeration == "preference" and not self.centred

    @property
    def shares(self) -> Array:
        """The share of the training pairs in each entry of `weights`."""
        pairs = np.array([*self.counts.flat, *self.counts.flat, self.ungrouped])
        return np.asarray(pairs / max(float(self.counts.sum()) + self.ungrouped, 1e-300))

    def weights(self, lambda_: Array) -> Array:
        """Both tables as one axis, and the weight of pairs with an item of unknown group, 1."""
        tables = self.tables(lambda_)
        flat = tables.reshape(*tables.shape[:-3], -1)
        return np.concatenate([flat, np.ones((*flat.shape[:-1], 1))], axis=-1)

    def saturated(self, lambda_: Array) -> NDArray[np.bool_]:
        """Whether each entry of λ is so large that a further change moves no weight noticeably.

        The paper's weights are then within 0.01 of 0 or 2, the reversible ones at their largest.
        """
        exponent = np.divide(lambda_, self.scale, out=np.zeros(lambda_.shape), where=self.scale > 0)
        limit = 5.3 if self.form == "paper" else FARTHEST
        return np.asarray((exponent <= -limit) | (exponent >= min(limit, self.highest)))

    def table(self, lambda_: Array) -> Array:
        """The table of these multipliers, or both tables if some mirrored pair has a weight."""
        tables = self.tables(lambda_)
        return np.asarray(tables if tables[1].any() else tables[0])


def weight_table(exponent: Array, *, enumeration: str = "preference") -> Array:
    r"""The paper's K × K weights of preference pairs, from one exponent e = Σ λ c per cell.

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
        return np.asarray(expit(exponent) + expit(-np.swapaxes(exponent, -1, -2)))
    return np.asarray(2.0 * expit(exponent))


def make_weigher(
    constraint: Constraint,
    queries: Queries,
    shape: tuple[int, ...],
    enumeration: str,
    weighting: str,
) -> Weigher:
    """Check the options against the constraint, and compute what the weights depend on."""
    if enumeration == "both" and getattr(constraint, "name", "") == "intra":
        raise ConstraintError(
            "The intra-group constraint cannot be trained with enumeration='both': within a group, "
            "a pair and its mirror have the total weight σ(λ) + σ(-λ) = 1 for every λ, so no λ "
            "changes the ranker. Use enumeration='preference'."
        )
    counts = queries.total(pairs_by_cell)
    ungrouped = max(0.0, total_weight(queries, np.ones(counts.shape)) - float(counts.sum()))
    if weighting != "closed-form":
        return Weigher(weighting, np.ones(shape), counts, ungrouped, enumeration=enumeration)
    if not isinstance(constraint, PairwiseConstraint):
        raise ConstraintError(
            f"weighting='closed-form' is defined only for the four pairwise constraints, not for "
            f"{constraint!r}. Use weighting='paper'."
        )
    if constraint.average != "pair":
        raise ConstraintError(
            "weighting='closed-form' requires a constraint that pools pairs: if it averages over "
            f"queries, the weight of a pair depends on its query. Use {type(constraint).__name__}"
            "(average='pair'), or weighting='paper'."
        )
    scale = constraint.shares(queries)
    return Weigher("paper", scale, counts, ungrouped, constraint.has_reference, enumeration)


def as_weighting(weighting: Any, enumeration: Any, ranker: Any) -> str:
    """Check both options; "auto" selects the widest form that the ranker can be trained with."""
    require_choice("enumeration", enumeration, ("preference", "both"))
    require_choice("weighting", weighting, ("auto", *WEIGHTINGS))
    reversible = bool(getattr(ranker, "reversible", False))
    if enumeration == "both" and weighting not in ("auto", "paper", "closed-form"):
        raise ConstraintError(
            f"enumeration='both' is a reading of the paper and has no {weighting} weights. Use "
            "weighting='paper' or 'closed-form', or enumeration='preference'."
        )
    if weighting == "reversible" and not reversible:
        raise InputError(
            f"{type(ranker).__name__} cannot train on mirrored pairs, which weighting='reversible' "
            "requires. Use weighting='exponential', or a loss and a ranker that are reversible."
        )
    if weighting != "auto":
        return str(weighting)
    if enumeration == "both":
        return "paper"
    return "reversible" if reversible else "exponential"
