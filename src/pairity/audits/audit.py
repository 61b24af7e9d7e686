"""Audits: what given scores do to the items, overall and by group, with intervals.

An audit needs scores, labels, queries and groups; no model. Every number in it is a `Figure`:
what is measured, for which groups, on how many queries, items and pairs, with an interval from
resampling whole queries.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from math import isfinite
from numbers import Integral, Real
from typing import Any

import numpy as np

from pairity._utils.html import notebook, tag
from pairity._utils.text import make_frame, short_names, shorten
from pairity._utils.typing import Array
from pairity.audits._distributed import audit_distributed
from pairity.audits.estimates import (
    Estimate,
    Support,
    means,
    resampled_weights,
    violation,
    with_intervals,
)
from pairity.audits.measures import measures_of
from pairity.audits.tables import MOST_GROUPS, estimates_to_html, render_estimates
from pairity.constraints import CATALOGUE, Constraint, as_constraint
from pairity.data.queries import Queries, require_groups, require_preferences
from pairity.data.sources import is_queries, open_queries, queries_type
from pairity.exceptions import InputError
from pairity.metrics.utility import GAINS, HIGHEST_EXPONENT


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """Utility and disparity of given scores; made by `audit`, prints as a compact table.

    Attributes
    ----------
    name : str
    groups : tuple of str
    n_queries, n_items, n_missing : int
        `n_missing` items have no group: they are ranked, but compared with nobody.
    n_pairs : int, the number of preference pairs, leaving out those of weight 0
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
    n_pairs: int
    group_sizes: tuple[int, ...]
    k: tuple[int, ...]
    confidence: float
    estimates: tuple[Estimate, ...]

    def estimate(
        self,
        measure: str,
        *,
        group: str | None = None,
        other: str | None = None,
        constraint: str | None = None,
    ) -> Estimate:
        """The figure of that measure, for those groups and that constraint."""
        wanted = (measure, group, other, constraint or None)
        if wanted not in self._index:
            raise InputError(
                f"The audit has no figure {measure!r} for group={group!r}, other={other!r}, "
                f"constraint={constraint!r}. {self._what_there_is(measure)}"
            )
        return self._index[wanted]

    @property
    def auc(self) -> float:
        """Share of preference pairs in the right order, per query, averaged over queries."""
        return self.estimate("auc").value

    @property
    def average_precision(self) -> float:
        """Average precision, averaged over queries."""
        return self.estimate("average_precision").value

    @property
    def awrf(self) -> float:
        """Attention-weighted rank fairness (1 is parity), averaged over queries."""
        return self.estimate("awrf").value

    @property
    def ndkl(self) -> float:
        """Normalised discounted KL divergence (0 is parity), averaged over queries."""
        return self.estimate("ndkl").value

    @property
    def ndcg(self) -> dict[int, float]:
        """NDCG at each k, averaged over queries."""
        return {k: self.estimate(f"ndcg@{k}").value for k in self.k}

    @property
    def violation(self) -> dict[str, float]:
        """The largest gap, by constraint."""
        return {str(f.constraint): f.value for f in self.estimates if f.measure == "violation"}

    @property
    def fairness(self) -> dict[str, float]:
        """1 less the violation, by constraint."""
        return {name: 1.0 - value for name, value in self.violation.items()}

    def table(self, measure: str = "preferred_above", what: str = "value") -> Array:
        """A K × K table: "preferred_above" (A_kl) or "above" (R_kl).

        `what` names the part of each `Figure`: its value, an end of its interval ("low", "high")
        or what it rests on ("n_queries", "n_items", "n_pairs", "small").
        """
        return np.array(
            [
                [getattr(self.estimate(measure, group=a, other=b), what) for b in self.groups]
                for a in self.groups
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python; None where a number is not defined."""
        head = {field.name: getattr(self, field.name) for field in fields(self)}
        lists = {key: list(value) for key, value in head.items() if isinstance(value, tuple)}
        return {**head, **lists, "estimates": [_plain(estimate) for estimate in self.estimates]}

    def to_json(self) -> str:
        """The same as JSON."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def to_frame(self, backend: str | None = None) -> Any:
        """One row per figure, in pandas, polars or pyarrow (the first that is installed)."""
        names = [*(field.name for field in fields(Estimate)), "small"]
        columns = {name: [getattr(estimate, name) for estimate in self.estimates] for name in names}
        return make_frame(columns, backend)

    def __repr__(self) -> str:
        return f"Audit(name={self.name!r}, n_queries={self.n_queries}, auc={self.auc:.4f})"

    def __str__(self) -> str:
        tables = render_estimates(self._index, self.groups, self.k, self.confidence)
        return f"{self._head()}\n\n{tables}"

    def _repr_html_(self) -> str:
        """The same tables, for notebooks."""
        tables = estimates_to_html(self._index, self.groups, self.k, self.confidence)
        head = (tag("p", tag("bdi", line)) for line in self._head().splitlines())
        return notebook(*head, tables)

    def _head(self) -> str:
        title = f"Audit of {shorten(self.name, 60)}" if self.name else "Audit"
        queries = "1 query" if self.n_queries == 1 else f"{self.n_queries:,} queries"
        pairs = "1 preference pair" if self.n_pairs == 1 else f"{self.n_pairs:,} preference pairs"
        sizes = list(zip(short_names(self.groups), self.group_sizes, strict=True))
        rest = sizes[MOST_GROUPS:]
        sizes = sizes[:MOST_GROUPS]
        if rest:
            sizes.append((f"{len(rest)} more groups", sum(size for _, size in rest)))
        if self.n_missing:
            sizes.append(("no group", self.n_missing))
        by_group = ", ".join(f"{name} ({size:,})" for name, size in sizes)
        return f"{title}: {queries}, {self.n_items:,} items, {pairs}\nItems by group: {by_group}"

    @cached_property
    def _index(self) -> dict[tuple[str, str | None, str | None, str | None], Estimate]:
        return {(f.measure, f.group, f.other, f.constraint): f for f in self.estimates}

    def _what_there_is(self, measure: str) -> str:
        there = [key[1:] for key in self._index if key[0] == measure]
        if not there:
            return f"Its measures are {', '.join(dict.fromkeys(key[0] for key in self._index))}."
        shown = "; ".join(
            f"group={group!r}, other={other!r}, constraint={constraint!r}"
            for group, other, constraint in there[:8]
        )
        return f"It has that measure for {shown}{'; and others' if len(there) > 8 else ''}."


def audit(
    y: Any,
    scores: Any,
    *,
    qid: Any = None,
    group: Any = None,
    sensitive_features: Any = None,
    sample_weight: Any = None,
    query_weight: Any = None,
    k: int | Sequence[int] = (5, 10),
    constraints: Any = tuple(CATALOGUE),
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
        With `Queries`, leave out qid, group, sensitive_features and the weights. Dask collections
        are audited where they are (`pairity.data.distributed`), by sums that workers send;
        intervals are then drawn with other random numbers than on one machine.
    scores : array of shape (n_items,)
        Finite; a higher score is ranked higher. Ties count as if broken at random.
    qid, group, sensitive_features, sample_weight, query_weight
        As in `Queries.from_arrays`. Weights of items act on pairs (AUC and constraints), weights
        of queries on every average over queries; a query of weight 0 is left out.
    k : int or sequence of int
        Cut-offs of NDCG and of the top's shares.
    constraints : str, Constraint or function, or a sequence of them
        Which violations to report; all four by default, averaged by query. A constraint is listed
        under its name; several of one name under what they print as, such as
        ``InterGroup(average='pair')``. One that is not pairwise has no interval.
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
                         preferred item is in the group and whose other has a group (A_k·)
    auc_within           the same inside a group (A_kk)
    ndcg@k               `pairity.metrics.ndcg`
    ndcg_within@k        the same on the list cut down to one group's items
    average_precision    `pairity.metrics.average_precision`, labels above 0 being relevant
    awrf                 `pairity.metrics.awrf` (TREC), 1 is parity
    ndkl                 `pairity.metrics.ndkl`, 0 is parity
    merit                mean label of the group's items
    exposure             `pairity.metrics.exposure`, discount 1/log2(1+rank) (Singh & Joachims)
    exposure_trec        the same, discount 1/log2(max(rank, 2)) (TREC Fair Ranking)
    exposure_to_merit    exposure over merit: its equality is "no disparate treatment"
    click_to_merit       clicks over merit: its equality is "no disparate impact"
    top_share@k          share of the first k positions
    population_share     share of the items
    preferred_above      A_kl, by preferred and other group
    above                R_kl, by group, whatever the labels
    violation            by constraint: the largest gap; `pairity.constraints.largest_gap`
    gap                  by constraint and two groups: Δ_kl less Δ_lk, or Δ of the first group less
                         Δ of the second; Δ_kl alone where no pair lies in the mirror cell
    gap_within           Δ_kk less Δ_ll, for your own constraint that compares both ways
    ==================== ========================================================================

    Violations average as their constraints do, by query or by pair.

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
    cuts, named = _cuts(k), name_constraints(constraints)
    require_sampling(confidence, n_resamples)
    columns = {
        "y": y, "qid": qid, "group": group, "sensitive_features": sensitive_features,
        "sample_weight": sample_weight, "query_weight": query_weight, "scores": scores,
    }  # fmt: skip
    if not is_queries(y):
        _require_columns(columns)
    if queries_type(columns).distributed:
        with open_queries(columns) as spread:
            require_groups(spread)
            require_preferences(spread)
            statistics, sums = audit_distributed(
                spread, named, cuts, choose_gain(gain, spread), n_resamples, random_state
            )
        n_queries, n_items, n_missing, n_pairs, *sizes = sums.sizes.tolist()
        drawn = [np.zeros(0)] if len(sums.resampled[0]) else []  # all at once, by the workers
        return Audit(
            name=str(name), groups=spread.groups, n_queries=n_queries, n_items=n_items,
            n_missing=n_missing, n_pairs=n_pairs, group_sizes=tuple(sizes), k=cuts,
            confidence=float(confidence),
            estimates=tuple(with_intervals(statistics, iter(drawn), float(confidence))),
        )  # fmt: skip
    with open_queries(columns) as queries:
        if not queries.weight_of_query.all():
            queries = queries.take(np.flatnonzero(queries.weight_of_query))
    numbers = np.ascontiguousarray(queries.X[:, 0])
    require_groups(queries)
    require_preferences(queries)
    support = Support(queries)
    measures = list(measures_of(queries, numbers, cuts, choose_gain(gain, queries), support))
    statistics = [means(measures, queries, support)] + [
        violation(constraint, label, queries, numbers, support)
        for label, constraint in named.items()
    ]
    draws = resampled_weights(queries.weight_of_query, n_resamples, random_state)
    return Audit(
        name=str(name),
        groups=queries.groups,
        n_queries=queries.n_queries,
        n_items=queries.n_items,
        n_missing=queries.n_missing,
        n_pairs=int(support.all_pairs().sum()),
        group_sizes=tuple(support.sizes[:, :-1].sum(axis=0).tolist()),
        k=cuts,
        confidence=float(confidence),
        estimates=tuple(with_intervals(statistics, draws, float(confidence))),
    )


# --- at the door ---------------------------------------------------------------------------------


def _require_columns(columns: dict[str, Any]) -> None:
    """Refuse an audit without query ids or without groups."""
    for key, also in (("qid", "group"), ("sensitive_features", "sensitive_features")):
        if columns[key] is None and columns[also] is None:
            raise InputError(
                f"{key} is missing. Pass audit(y, scores, qid=..., sensitive_features=...), or "
                "Queries in place of y."
            )


def _cuts(k: Any) -> tuple[int, ...]:
    given = list(k) if isinstance(k, (Sequence, np.ndarray)) and not isinstance(k, str) else [k]
    whole = all(isinstance(cut, Integral) and not isinstance(cut, bool) for cut in given)
    if not given or not whole or min(given) < 1:
        raise InputError(f"k is {k!r}; give one or more whole numbers of at least 1, such as 10.")
    return tuple(sorted({int(cut) for cut in given}))


def require_sampling(confidence: Any, n_resamples: Any) -> None:
    """Refuse what no interval can be made with."""
    if not isinstance(confidence, Real) or not 0.0 < float(confidence) < 1.0:
        raise InputError(
            f"confidence is {confidence!r}; give a number between 0 and 1, such as 0.95."
        )
    if not isinstance(n_resamples, Integral) or n_resamples < 0:
        raise InputError(
            f"n_resamples is {n_resamples!r}; give a whole number, such as 1000, or 0 for no "
            "intervals."
        )


def choose_gain(gain: str, queries: Any) -> str:
    """The name of the gain: for "auto", the exponential one where labels are small grades."""
    if gain not in ("auto", *GAINS):
        names = ", ".join(map(repr, ("auto", *GAINS)))
        raise InputError(f"gain is {gain!r}. Choose one of {names}.")
    if gain != "auto":
        return gain
    return "linear" if queries.total(_n_not_grades) else "exponential"


def _n_not_grades(queries: Queries) -> int:
    """How many labels are no grades that 2 can be raised to."""
    y = queries.y
    grades = (y == np.floor(y)) & (y >= 0) & (y <= HIGHEST_EXPONENT)
    return len(y) - int(np.count_nonzero(grades))


def name_constraints(constraints: Any) -> dict[str, Constraint]:
    """Constraints under their names; under their repr where several share a name."""
    if isinstance(constraints, str) or not isinstance(constraints, Sequence):
        constraints = [constraints]
    made = [as_constraint(constraint) for constraint in constraints]
    names = [_name_of(constraint) for constraint in made]
    labels = [
        repr(constraint) if names.count(name) > 1 and constraint.name else name
        for name, constraint in zip(names, made, strict=True)
    ]
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        raise InputError(
            f"constraints has {labels.count(twice)} entries known as {twice!r}, which would "
            "overwrite each other. Leave one out, or give your own functions different names."
        )
    return dict(zip(labels, made, strict=True))


def _name_of(constraint: Constraint) -> str:
    function = getattr(constraint, "function", None)
    return constraint.name or getattr(function, "__name__", type(constraint).__name__)


def _plain(estimate: Estimate) -> dict[str, Any]:
    entries = {**asdict(estimate), "small": estimate.small}
    return {
        key: None if isinstance(value, float) and not isfinite(value) else value
        for key, value in entries.items()
    }
