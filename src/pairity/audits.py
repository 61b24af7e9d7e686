"""Audits: what given scores do to the items, overall and by group, with intervals.

An audit needs scores, labels, queries and groups; no model. Every number in it is a `Figure`:
what is measured, for which groups, on how many queries and pairs, with an interval from
resampling whole queries.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from pairity.columns import as_numbers
from pairity.constraints import (
    CATALOGUE,
    Constraint,
    Contrasts,
    PairwiseConstraint,
    as_constraint,
    worst_gap,
)
from pairity.exceptions import InputError
from pairity.metrics import (
    Positions,
    average_precision,
    awrf,
    click_to_merit,
    exposure,
    exposure_to_merit,
    merit,
    ndcg,
    ndkl,
    population_share,
    top_share,
)
from pairity.pairs import cell_counts, cell_sums, mean_over_queries
from pairity.queries import Queries, require_groups, require_preferences
from pairity.text import make_frame, render_table

FEW_QUERIES = 10
FEW_PAIRS = 100
_RESAMPLED_AT_ONCE = 4_000_000  # entries of a block of resampling weights

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Figure:
    """One number of an audit.

    Attributes
    ----------
    measure : str
        What is measured; see `audit` for the list.
    value, low, high : float
        The estimate and its interval; NaN where it is not defined.
    group, other : str
        The groups it is about; empty where it is about all items.
    constraint : str
        The constraint a violation or gap belongs to; empty otherwise.
    n_queries : int
        On how many queries it rests.
    n_pairs : float
        On how many pairs (their weight, where items have weights); NaN where pairs play no part.
    small : bool
        Whether it rests on fewer than 10 queries or 100 pairs: too few to trust.
    """

    measure: str
    value: float
    low: float
    high: float
    group: str = ""
    other: str = ""
    constraint: str = ""
    n_queries: int = 0
    n_pairs: float = float("nan")
    small: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """Utility and disparity of given scores; made by `audit`, prints as a compact table.

    Attributes
    ----------
    name : str
    groups : tuple of str
    n_queries, n_items, n_missing : int
        `n_missing` items have no group: they are ranked, but compared with nobody.
    n_pairs : float, preference pairs (their weight, where items have weights)
    group_sizes : tuple of int
    k : tuple of int, the cut-offs of NDCG and of the top's shares
    confidence : float
    figures : tuple of Figure, every number
    auc, average_precision, awrf, ndkl : float
    ndcg : dict from k to float
    violation, fairness : dict from the constraint's name to float
    """

    name: str
    groups: tuple[str, ...]
    n_queries: int
    n_items: int
    n_missing: int
    n_pairs: float
    group_sizes: tuple[int, ...]
    k: tuple[int, ...]
    confidence: float
    figures: tuple[Figure, ...]

    def figure(
        self, measure: str, *, group: str = "", other: str = "", constraint: str = ""
    ) -> Figure:
        """The figure of that measure, for those groups and that constraint."""
        wanted = (measure, group, other, constraint)
        for figure in self.figures:
            if (figure.measure, figure.group, figure.other, figure.constraint) == wanted:
                return figure
        known = ", ".join(dict.fromkeys(figure.measure for figure in self.figures))
        raise InputError(
            f"The audit has no figure {measure!r} for group={group!r}, other={other!r}, "
            f"constraint={constraint!r}. Its measures are {known}."
        )

    @property
    def auc(self) -> float:
        """Share of preference pairs in the right order, per query, averaged over queries."""
        return self.figure("auc").value

    @property
    def average_precision(self) -> float:
        """Average precision, averaged over queries."""
        return self.figure("average_precision").value

    @property
    def awrf(self) -> float:
        """Attention-weighted rank fairness (1 is parity), averaged over queries."""
        return self.figure("awrf").value

    @property
    def ndkl(self) -> float:
        """Normalised discounted KL divergence (0 is parity), averaged over queries."""
        return self.figure("ndkl").value

    @property
    def ndcg(self) -> dict[int, float]:
        """NDCG at each k, averaged over queries."""
        return {k: self.figure(f"ndcg@{k}").value for k in self.k}

    @property
    def violation(self) -> dict[str, float]:
        """The largest gap, by constraint."""
        return {f.constraint: f.value for f in self.figures if f.measure == "violation"}

    @property
    def fairness(self) -> dict[str, float]:
        """1 less the violation, by constraint."""
        return {name: 1.0 - value for name, value in self.violation.items()}

    def table(self, measure: str = "preferred_above") -> Array:
        """A K × K table: "preferred_above" (A_kl) or "above" (R_kl)."""
        return np.array(
            [
                [self.figure(measure, group=a, other=b).value for b in self.groups]
                for a in self.groups
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python; None where a number is not defined."""
        top = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name != "figures"
        }
        figures = [
            {key: _plain(value) for key, value in asdict(figure).items()} for figure in self.figures
        ]
        return {
            **{
                key: list(value) if isinstance(value, tuple) else value
                for key, value in top.items()
            },
            "figures": figures,
        }

    def to_json(self) -> str:
        """The same as JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def to_frame(self, backend: str | None = None) -> Any:
        """One row per figure, in pandas, polars or pyarrow (the first that is installed)."""
        return make_frame(
            {
                field.name: [getattr(figure, field.name) for figure in self.figures]
                for field in fields(Figure)
            },
            backend,
        )

    def __repr__(self) -> str:
        return f"Audit(name={self.name!r}, n_queries={self.n_queries}, auc={self.auc:.4f})"

    def __str__(self) -> str:
        return "\n\n".join([self._summary(), self._by_group(), *self._tables(), self._notes()])

    # --- as text ----------------------------------------------------------------------------------

    def _summary(self) -> str:
        sizes = ", ".join(
            f"{name} ({size:,})" for name, size in zip(self.groups, self.group_sizes, strict=True)
        )
        missing = f", no group ({self.n_missing:,})" if self.n_missing else ""
        title = f"Audit of {self.name}" if self.name else "Audit"
        head = (
            f"{title}: {self.n_queries:,} queries, {self.n_items:,} items, "
            f"{self.n_pairs:,.0f} preference pairs\nItems by group: {sizes}{missing}"
        )
        overall = [f for f in self.figures if not f.group and f.measure != "violation"]
        violations = [f for f in self.figures if f.measure == "violation"]
        rows = [
            [_label(f.measure), f"{f.value:.3f}", _interval(f), f"{f.n_queries:,}"] for f in overall
        ]
        rows += [
            [f"violation: {f.constraint}", f"{f.value:.3f}", _interval(f), f"{f.n_queries:,}"]
            for f in violations
        ]
        percent = f"{100 * self.confidence:g} % interval"
        return head + "\n" + render_table(["measure", "value", percent, "queries"], rows)

    def _by_group(self) -> str:
        last = self.k[-1]
        measures = [
            "auc", "auc_within", f"ndcg_within@{last}", "merit", "exposure", "exposure_to_merit",
            f"top_share@{last}", "population_share",
        ]  # fmt: skip
        rows = [
            [name, *(_starred(self.figure(measure, group=name)) for measure in measures)]
            for name in self.groups
        ]
        return render_table(["by group", *(_label(measure) for measure in measures)], rows)

    def _tables(self) -> list[str]:
        titles = {
            "preferred_above": "how often an item of the row, preferred, is above the column's",
            "above": "how often an item of the row is above the column's, whatever the labels",
        }
        return [
            render_table(
                [title, *self.groups],
                [
                    [a, *(_starred(self.figure(measure, group=a, other=b)) for b in self.groups)]
                    for a in self.groups
                ],
            )
            for measure, title in titles.items()
        ]

    def _notes(self) -> str:
        notes = [
            "violation: the largest gap between two groups that the constraint compares; "
            "fairness = 1 - violation."
        ]
        if any(figure.small for figure in self.figures):
            notes.append(
                f"* fewer than {FEW_QUERIES} queries or {FEW_PAIRS} pairs: too few to trust."
            )
        return "\n".join(notes)


def audit(
    y: Any,
    scores: Any,
    *,
    qid: Any = None,
    sensitive_features: Any = None,
    sample_weight: Any = None,
    query_weight: Any = None,
    k: int | Sequence[int] = (5, 10),
    constraints: Sequence[Any] = tuple(CATALOGUE),
    gain: str = "auto",
    confidence: float = 0.95,
    n_resamples: int = 1000,
    random_state: Any = 0,
    name: str = "",
) -> Audit:
    """Measure what scores do to the items, overall and by group.

    Parameters
    ----------
    y : labels of shape (n_items,), or Queries
        With `Queries`, leave out qid, sensitive_features and the weights.
    scores : array of shape (n_items,)
        Finite; a higher score is ranked higher. Ties count as if broken at random.
    qid, sensitive_features, sample_weight, query_weight
        As in `Queries.from_arrays`. Weights of items act on pairs (AUC and constraints), weights
        of queries on every average over queries.
    k : int or sequence of int
        Cut-offs of NDCG and of the top's shares.
    constraints : sequence of str or Constraint
        Which violations to report; all four by default, averaged by query. Constraints that are
        compared in one audit need different names; one that is not pairwise has no interval.
    gain : {"auto", "exponential", "linear"}
        Gain of NDCG. "auto": exponential where labels are whole numbers from 0 to 31, else linear.
    confidence : float
        Of the intervals.
    n_resamples : int
        Bootstrap samples of whole queries; 0 for no intervals.
    random_state : int, RandomState instance or None
    name : str
        For the title.

    Returns
    -------
    Audit

    Notes
    -----
    The measures, each averaged over the queries where it is defined:

    ==================== ========================================================================
    auc                  share of preference pairs in the right order; by group, of those whose
                         preferred item is in the group (A_k·)
    auc_within           the same inside a group (A_kk)
    ndcg@k               `pairity.metrics.ndcg`
    ndcg_within@k        the same on the list cut down to one group's items
    average_precision    `pairity.metrics.average_precision`, labels above 0 being relevant
    violation            by constraint: the largest gap; `pairity.constraints.worst_gap`
    gap                  by constraint and pair of groups: Δ of the first less Δ of the second
    preferred_above      A_kl, by preferred and other group
    above                R_kl, by group, whatever the labels
    merit                mean label of the group's items
    exposure             `pairity.metrics.exposure`, discount 1/log2(1+rank) (Singh & Joachims)
    exposure_trec        the same, discount 1/log2(max(rank, 2)) (TREC Fair Ranking)
    exposure_to_merit    exposure over merit: its equality is "no disparate treatment"
    click_to_merit       clicks over merit: its equality is "no disparate impact"
    top_share@k          share of the first k positions
    population_share     share of the items
    awrf                 `pairity.metrics.awrf` (TREC), 1 is parity
    ndkl                 `pairity.metrics.ndkl`, 0 is parity
    ==================== ========================================================================

    Intervals are percentiles over resampled queries. A violation is a largest absolute gap: noise
    can only raise it, so its interval does not reach below zero, and on few queries it
    overstates. The signed gaps have no such bent.

    Examples
    --------
    >>> from pairity import audit
    >>> result = audit([1, 0, 1, 0], [0.9, 0.2, 0.1, 0.4], qid=[1, 1, 2, 2],
    ...                sensitive_features=["f", "m", "m", "f"], k=2)
    >>> result.auc, result.violation["statistical"]
    (0.5, 1.0)
    """
    queries = _as_queries(y, qid, sensitive_features, sample_weight, query_weight)
    numbers = as_numbers(scores, "scores", queries.n_items)
    require_groups(queries)
    require_preferences(queries)
    cuts = tuple(sorted({int(cut) for cut in np.atleast_1d(np.asarray(k))}))
    if not cuts or cuts[0] < 1:
        raise InputError(f"k is {k!r}; give one or more whole numbers of at least 1.")
    if not 0.0 < confidence < 1.0:
        raise InputError(f"confidence is {confidence}; give a number between 0 and 1.")
    if n_resamples < 0:
        raise InputError(f"n_resamples is {n_resamples}; give 0 or more.")
    columns = [
        *_overall(queries, numbers, cuts, _gain(gain, queries)),
        *_cells(queries, numbers),
        *_groups(queries, numbers, cuts, _gain(gain, queries)),
    ]
    resampling = _Resampling(queries, n_resamples, confidence, random_state)
    figures = resampling.figures(columns)
    for constraint in _named(constraints):
        figures.extend(resampling.violation(constraint, numbers))
    return Audit(
        name=name,
        groups=queries.groups,
        n_queries=queries.n_queries,
        n_items=queries.n_items,
        n_missing=queries.n_missing,
        n_pairs=float(cell_counts(queries).sum()),
        group_sizes=tuple(
            int(n)
            for n in np.bincount(queries.group, minlength=queries.n_groups)[: queries.n_groups]
        ),
        k=cuts,
        confidence=confidence,
        figures=tuple(figures),
    )


# --- what is measured, per query --------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Column:
    """A measure per query, as a sum and a count: its mean over queries is Σ sum / Σ count."""

    measure: str
    sums: Array
    counts: Array
    group: str = ""
    other: str = ""
    pairs: Array | None = None

    @classmethod
    def of(cls, measure: str, values: Array, group: str = "") -> _Column:
        """From one value per query, NaN where the query does not count."""
        return cls(measure, np.nan_to_num(values), (~np.isnan(values)).astype(float), group)

    @classmethod
    def of_pairs(
        cls, measure: str, sums: Array, pairs: Array, group: str = "", other: str = ""
    ) -> _Column:
        """From sums over the pairs of each query: every query with a pair counts the same."""
        there = pairs > 0
        means = np.divide(sums, pairs, out=np.zeros_like(sums), where=there)
        return cls(measure, means, there.astype(float), group, other, pairs)


def _overall(
    queries: Queries, scores: Array, cuts: tuple[int, ...], gain: str
) -> Iterator[_Column]:
    places = Positions.of(queries, scores)
    sums, counts = cell_sums(scores, queries), cell_counts(queries)
    yield _Column.of_pairs("auc", sums.sum(axis=(1, 2)), counts.sum(axis=(1, 2)))
    for k in cuts:
        yield _Column.of(f"ndcg@{k}", ndcg(queries, scores, k=k, gain=gain, positions=places))
    yield _Column.of("average_precision", average_precision(queries, scores, positions=places))
    yield _Column.of("awrf", awrf(queries, scores, positions=places))
    yield _Column.of("ndkl", ndkl(queries, scores, positions=places))


def _cells(queries: Queries, scores: Array) -> Iterator[_Column]:
    kinds = {"preferred_above": "preference", "above": "all"}
    for measure, kind in kinds.items():
        sums = cell_sums(scores, queries, pairs=kind)  # type: ignore[arg-type]
        counts = cell_counts(queries, pairs=kind)  # type: ignore[arg-type]
        for k, group in enumerate(queries.groups):
            for j, other in enumerate(queries.groups):
                yield _Column.of_pairs(measure, sums[:, k, j], counts[:, k, j], group, other)


def _groups(queries: Queries, scores: Array, cuts: tuple[int, ...], gain: str) -> Iterator[_Column]:
    places = Positions.of(queries, scores)
    known = slice(queries.n_groups)
    sums, counts = cell_sums(scores, queries), cell_counts(queries)
    rows, row_counts = sums[:, known, known].sum(axis=2), counts[:, known, known].sum(axis=2)
    by_group = {
        "merit": merit(queries),
        "exposure": exposure(queries, scores, positions=places),
        "exposure_trec": exposure(queries, scores, discount="trec", positions=places),
        "exposure_to_merit": exposure_to_merit(queries, scores, positions=places),
        "click_to_merit": click_to_merit(queries, scores, positions=places),
        **{f"top_share@{k}": top_share(queries, scores, k=k, positions=places) for k in cuts},
        "population_share": population_share(queries),
    }
    for k, group in enumerate(queries.groups):
        yield _Column.of_pairs("auc", rows[:, k], row_counts[:, k], group)
        yield _Column.of_pairs("auc_within", sums[:, k, k], counts[:, k, k], group)
        member = np.flatnonzero(queries.group == k)
        inside = Queries(
            None, queries.y[member], queries.query[member], queries.query_ids,
            queries.group[member], queries.groups,
        )  # fmt: skip
        for cut in cuts:
            values = ndcg(inside, scores[member], k=cut, gain=gain)
            yield _Column.of(f"ndcg_within@{cut}", values, group)
        for measure, table in by_group.items():
            yield _Column.of(measure, table[:, k], group)


# --- from queries to figures -------------------------------------------------------------------


class _Resampling:
    """Means over queries, and their intervals from drawing whole queries again."""

    def __init__(
        self, queries: Queries, n_resamples: int, confidence: float, random_state: Any
    ) -> None:
        self.queries = queries
        self.n_resamples = n_resamples if queries.n_queries > 1 else 0
        self.tails = [50.0 * (1.0 - confidence), 50.0 * (1.0 + confidence)]
        self.seed = check_random_state(random_state).randint(np.iinfo(np.int32).max)

    def weights(self) -> Iterator[Array]:
        """Blocks of (resamples, queries): how often each query was drawn, times its weight.

        Every call draws the same samples.
        """
        rng = np.random.default_rng(self.seed)
        n = self.queries.n_queries
        block = max(1, _RESAMPLED_AT_ONCE // n)
        for begin in range(0, self.n_resamples, block):
            size = min(block, self.n_resamples - begin)
            drawn = rng.multinomial(n, np.full(n, 1.0 / n), size=size)
            yield drawn * self.queries.weight_of_query

    def interval(self, resampled: list[Array], n_columns: int) -> Array:
        """Percentiles of shape (2, n_columns), NaN where nothing could be computed."""
        if not resampled:
            return np.full((2, n_columns), np.nan)
        values = np.concatenate(resampled)
        result = np.full((2, n_columns), np.nan)
        there = ~np.isnan(values).all(axis=0)
        result[:, there] = np.nanpercentile(values[:, there], self.tails, axis=0)
        return result

    def figures(self, columns: list[_Column]) -> list[Figure]:
        sums = np.stack([column.sums for column in columns], axis=1)
        counts = np.stack([column.counts for column in columns], axis=1)
        weight = self.queries.weight_of_query
        values = mean_over_queries(sums, counts, weight, "pair")
        low, high = self.interval(
            [mean_over_queries(sums, counts, drawn, "pair") for drawn in self.weights()],
            len(columns),
        )
        found = []
        for at, column in enumerate(columns):
            n_queries = int(np.count_nonzero(column.counts))
            n_pairs = float("nan") if column.pairs is None else float(column.pairs.sum())
            found.append(
                Figure(
                    column.measure, float(values[at]), float(low[at]), float(high[at]),
                    column.group, column.other, "", n_queries, n_pairs,
                    n_queries < FEW_QUERIES or n_pairs < FEW_PAIRS,
                )
            )  # fmt: skip
        return found

    def violation(self, constraint: Constraint, scores: Array) -> list[Figure]:
        """The violation of a constraint and the gaps behind it."""
        queries = self.queries
        name = _name_of(constraint)
        if not isinstance(constraint, PairwiseConstraint):
            value = worst_gap(constraint.violation(queries, scores))
            return [Figure("violation", value, np.nan, np.nan, "", "", name, queries.n_queries)]
        sums, counts = constraint.sums(queries, scores), constraint.counts(queries)
        delta = constraint.from_sums(sums, counts, queries.weight_of_query, queries.groups)
        contrasts = Contrasts.of(delta)
        gaps = contrasts.gaps(delta)
        resampled = [
            contrasts.gaps(constraint.from_sums(sums, counts, drawn, queries.groups))
            for drawn in self.weights()
        ]
        low, high = self.interval(resampled, len(gaps))
        entry_pairs = counts.sum(axis=2) if constraint.by_group else counts.reshape(len(counts), -1)
        found = []
        for at, (first, second) in enumerate(zip(contrasts.first, contrasts.second, strict=True)):
            ends = entry_pairs[:, [first, second] if second >= 0 else [first]]
            n_queries = int(np.count_nonzero(ends > 0, axis=0).min())
            n_pairs = float(ends.sum(axis=0).min())
            group, other = _pair_names(int(first), int(second), delta.shape, queries.groups)
            found.append(
                Figure(
                    "gap", float(gaps[at]), float(low[at]), float(high[at]), group, other, name,
                    n_queries, n_pairs, n_queries < FEW_QUERIES or n_pairs < FEW_PAIRS,
                )
            )  # fmt: skip
        if not found:
            return [Figure("violation", np.nan, np.nan, np.nan, "", "", name)]
        worst = found[int(np.argmax(np.abs(gaps)))]
        with np.errstate(all="ignore"):
            tops = [np.abs(block).max(axis=1, keepdims=True) for block in resampled]
        (low_top,), (high_top,) = self.interval(tops, 1)
        violation = Figure(
            "violation", abs(worst.value), float(low_top), float(high_top), "", "", name,
            worst.n_queries, worst.n_pairs, worst.small,
        )  # fmt: skip
        return [violation, *found]


def _as_queries(y: Any, qid: Any, groups: Any, item_weight: Any, query_weight: Any) -> Queries:
    if isinstance(y, Queries):
        if any(given is not None for given in (qid, groups, item_weight, query_weight)):
            raise InputError("Queries hold qid, groups and weights already; leave those out.")
        return y
    if qid is None or groups is None:
        missing = "qid" if qid is None else "sensitive_features"
        raise InputError(
            f"{missing} is missing. Give audit(y, scores, qid=…, sensitive_features=…)."
        )
    return Queries.from_arrays(
        None, y, qid=qid, sensitive_features=groups,
        sample_weight=item_weight, query_weight=query_weight,
    )  # fmt: skip


def _gain(gain: str, queries: Queries) -> str:
    if gain != "auto":
        return gain
    y = queries.y
    grades = bool(np.all((y == np.floor(y)) & (y >= 0) & (y <= 31)))
    return "exponential" if grades else "linear"


def _named(constraints: Sequence[Any]) -> list[Constraint]:
    if isinstance(constraints, str) or not isinstance(constraints, Sequence):
        constraints = [constraints]
    made = [as_constraint(constraint) for constraint in constraints]
    names = [_name_of(constraint) for constraint in made]
    if len(set(names)) < len(names):
        raise InputError(
            f"constraints has {', '.join(names)}: two of one name would overwrite each other. "
            "Audit them separately."
        )
    return made


def _name_of(constraint: Constraint) -> str:
    function = getattr(constraint, "function", None)
    return constraint.name or getattr(function, "__name__", type(constraint).__name__)


def _pair_names(
    first: int, second: int, shape: tuple[int, ...], groups: tuple[str, ...]
) -> tuple[str, str]:
    """The two groups that a contrast sets against each other."""
    if len(shape) == 1:
        return groups[first], groups[second]
    k, j = divmod(first, shape[0])
    if k == j:
        return groups[k], groups[second // shape[0]]
    return groups[k], groups[j]


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and np.isnan(value) else value


def _label(measure: str) -> str:
    names = {
        "auc": "AUC", "auc_within": "AUC within", "average_precision": "average precision",
        "awrf": "AWRF (1 is parity)", "ndkl": "NDKL (0 is parity)", "merit": "mean label",
        "exposure_to_merit": "exposure/merit", "population_share": "share of items",
    }  # fmt: skip
    if measure in names:
        return names[measure]
    what, _, k = measure.partition("@")
    shown = {"ndcg": "NDCG@", "ndcg_within": "NDCG within@", "top_share": "share of top "}
    return f"{shown[what]}{k}" if what in shown else measure


def _interval(figure: Figure) -> str:
    if np.isnan(figure.low):
        return "–"
    return f"{figure.low:.3f} to {figure.high:.3f}"


def _starred(figure: Figure) -> str:
    if np.isnan(figure.value):
        return "–"
    return f"{figure.value:.3f}{'*' if figure.small else ''}"
