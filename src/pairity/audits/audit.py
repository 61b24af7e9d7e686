"""Audits: utility and disparity of scores, overall and by group, with confidence intervals.

An audit needs scores, labels, queries and groups, but no model. Every number in it is an
`Estimate`: a value with an interval from resampled queries and its numbers of queries, items and
pairs.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from numbers import Integral, Real
from typing import Any

import numpy as np

from pairity._utils.html import notebook, tag
from pairity._utils.json_codec import to_plain
from pairity._utils.text import make_frame, short_names, shorten
from pairity._utils.typing import Array
from pairity._utils.validation import is_real
from pairity.audits.estimates import Estimate, estimate_all, resampled_weights, with_intervals
from pairity.audits.measures import Settings, measure
from pairity.audits.tables import MOST_GROUPS, to_html, to_text
from pairity.constraints import CATALOGUE, Constraint, as_constraint
from pairity.data.checks import require_groups, require_preferences
from pairity.data.queries import Queries
from pairity.data.sources import is_queries, open_queries
from pairity.exceptions import InputError
from pairity.metrics.positions import choose
from pairity.metrics.utility import GAINS, HIGHEST_EXPONENT

_LISTED = 8  # the most alternatives that an error names


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """Utility and disparity of scores; `audit` returns it, and it prints as compact tables.

    Attributes
    ----------
    name : str
    groups : tuple of str
    n_queries, n_items, n_missing : int
        `n_missing` items have no group: they are ranked, but not compared.
    n_pairs : int, the number of preference pairs with positive weight
    group_sizes : tuple of int
    k : tuple of int, the cut-offs of NDCG and of shares of the top
    confidence : float
    estimates : tuple of Estimate, every number
    auc, average_precision, awrf, ndkl : float
    ndcg : dict from k to float
    violation, noise_floor, fairness : dict from the constraint's name to float
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
        """The estimate of a measure, for the given groups and constraint."""
        key = (measure, group, other, constraint or None)
        if key not in self._index:
            raise InputError(
                f"The audit has no estimate {measure!r} for group={group!r}, other={other!r}, "
                f"constraint={constraint!r}. {self._alternatives(measure)}"
            )
        return self._index[key]

    @property
    def auc(self) -> float:
        """Share of preference pairs in the right order, averaged over queries."""
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
        return self._by_constraint("violation")

    @property
    def noise_floor(self) -> dict[str, float]:
        """The violation that variation between queries alone produces, by constraint.

        A smaller violation cannot be told from none on these queries. NaN where unknown.
        """
        return self._by_constraint("noise_floor")

    @property
    def fairness(self) -> dict[str, float]:
        """1 - violation, by constraint."""
        return {name: 1.0 - value for name, value in self.violation.items()}

    def table(self, measure: str = "preferred_above", what: str = "value") -> Array:
        """A K × K table of "preferred_above" (A_kl) or "above" (R_kl).

        `what` names the attribute of `Estimate`: "value", "low", "high", "n_queries", "n_items",
        "n_pairs" or "small".
        """
        cells = [self.estimate(measure, group=k, other=j) for k in self.groups for j in self.groups]
        return np.array([getattr(cell, what) for cell in cells]).reshape((len(self.groups),) * 2)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python; None for numbers that are undefined."""
        plain: dict[str, Any] = to_plain(self)
        for estimate, entry in zip(self.estimates, plain["estimates"], strict=True):
            entry["small"] = estimate.small
        return plain

    def to_json(self) -> str:
        """What `to_dict` returns, as JSON."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def to_frame(self, backend: str | None = None) -> Any:
        """One row per estimate, in pandas, polars or pyarrow (the first that is installed)."""
        names = [*(field.name for field in fields(Estimate)), "small"]
        columns = {name: [getattr(estimate, name) for estimate in self.estimates] for name in names}
        return make_frame(columns, backend)

    def __repr__(self) -> str:
        return f"Audit(name={self.name!r}, n_queries={self.n_queries}, auc={self.auc:.4f})"

    def __str__(self) -> str:
        return f"{self._head()}\n\n{to_text(self)}"

    def _repr_html_(self) -> str:
        """The same tables, for notebooks."""
        head = (tag("p", tag("bdi", line)) for line in self._head().splitlines())
        return notebook(*head, to_html(self))

    def _head(self) -> str:
        title = f"Audit of {shorten(self.name, 60)}" if self.name else "Audit"
        queries = "1 query" if self.n_queries == 1 else f"{self.n_queries:,} queries"
        pairs = "1 preference pair" if self.n_pairs == 1 else f"{self.n_pairs:,} preference pairs"
        sizes = list(zip(short_names(self.groups), self.group_sizes, strict=True))[:MOST_GROUPS]
        rest = self.group_sizes[MOST_GROUPS:]
        if rest:
            sizes.append((f"{len(rest)} more groups", sum(rest)))
        if self.n_missing:
            sizes.append(("no group", self.n_missing))
        by_group = ", ".join(f"{name} ({size:,})" for name, size in sizes)
        return f"{title}: {queries}, {self.n_items:,} items, {pairs}\nItems by group: {by_group}"

    def _by_constraint(self, measure: str) -> dict[str, float]:
        return {str(e.constraint): e.value for e in self.estimates if e.measure == measure}

    @cached_property
    def _index(self) -> dict[tuple[str, str | None, str | None, str | None], Estimate]:
        return {(e.measure, e.group, e.other, e.constraint): e for e in self.estimates}

    def _alternatives(self, measure: str) -> str:
        keys = [key[1:] for key in self._index if key[0] == measure]
        if not keys:
            return f"Its measures are {', '.join(dict.fromkeys(key[0] for key in self._index))}."
        listed = "; ".join(
            f"group={group!r}, other={other!r}, constraint={constraint!r}"
            for group, other, constraint in keys[:_LISTED]
        )
        more = "; and others" if len(keys) > _LISTED else ""
        return f"It has that measure for {listed}{more}."


def audit(
    y: Any,
    scores: Any,
    *,
    qid: Any = None,
    sensitive_features: Any = None,
    k: int | Sequence[int] = (5, 10),
    constraints: Any = tuple(CATALOGUE),
    name: str = "",
    **options: Any,
) -> Audit:
    """Measure utility and disparity of scores, overall and by group.

    Parameters
    ----------
    y : labels of shape (n_items,), or Queries
        With `Queries`, qid, group, sensitive_features and weights must be left out. Queries on
        Dask workers are audited there; the workers send sums. Their intervals are drawn with
        other random numbers than on one machine.
    scores : array of shape (n_items,)
        Finite numbers; a higher score is ranked higher. Ties count as if broken at random.
    qid, sensitive_features : columns, as in `Queries.from_arrays`
    k : int or sequence of int
        Cut-offs of NDCG and of shares of the top.
    constraints : str, Constraint or function, or a sequence of them
        Which violations to report; by default all four, averaged by query. A constraint is listed
        by its name; several with one name are listed by their representation, such as
        ``InterGroup(average='pair')``. A constraint that is not pairwise has no interval and no
        noise floor.
    name : str
        For the title.
    group, sample_weight, query_weight : optional keywords, as in `Queries.from_arrays`
        Weights of items affect pairs (AUC and constraints), weights of queries affect every
        average over queries; a query of weight 0 is left out.
    gain : {"auto", "exponential", "linear"}, keyword
        Gain of NDCG. "auto" is exponential if labels are whole numbers from 0 to 31, else linear.
    confidence : float, keyword, default 0.95
        Level of the intervals.
    n_resamples : int, keyword, default 1000
        Number of bootstrap resamples of queries; 0 for no intervals and no noise floors.
    random_state : int, RandomState instance or None, keyword, default 0

    Returns
    -------
    Audit

    Notes
    -----
    The measures, each averaged over the queries on which it is defined:

    ==================== ========================================================================
    auc                  share of preference pairs in the right order; by group, of the pairs whose
                         preferred item is in the group and whose other item has a group (A_k·)
    auc_within           the same inside a group (A_kk)
    ndcg@k               `pairity.metrics.ndcg`
    ndcg_within@k        the same on the list of one group's items
    average_precision    `pairity.metrics.average_precision`; labels above 0 are relevant
    awrf                 `pairity.metrics.awrf` (TREC), 1 is parity
    ndkl                 `pairity.metrics.ndkl`, 0 is parity
    merit                mean label of the group's items
    exposure             `pairity.metrics.exposure`, discount 1/log2(1+rank) (Singh & Joachims)
    exposure_trec        the same, discount 1/log2(max(rank, 2)) (TREC Fair Ranking)
    exposure_to_merit    exposure over merit: equality is "no disparate treatment"
    click_to_merit       clicks over merit: equality is "no disparate impact"
    top_share@k          share of the first k positions
    population_share     share of the items
    preferred_above      A_kl, by preferred and other group
    above                R_kl, by group, for any labels
    violation            by constraint: the largest gap; `pairity.constraints.largest_gap`
    noise_floor          by constraint: the mean violation that variation between queries alone
                         produces; a smaller violation cannot be told from none
    gap                  by constraint and two groups: Δ_kl - Δ_lk, or Δ of the first group minus
                         Δ of the second; Δ_kl alone if the mirror cell has no pair
    gap_within           Δ_kk - Δ_ll, for user-defined constraints that compare both ways
    ==================== ========================================================================

    Violations are averaged as their constraints are, by query or by pair.

    Intervals are percentiles over resampled queries. A violation is a largest absolute gap: noise
    can only raise it, so its interval does not reach below zero, and with few queries it
    overestimates. The signed gaps have no such bias. The noise floor says how much this is: it is
    the mean over resamples of the largest absolute difference between a gap of the resample and
    the same gap of the data. Gaps with an entry that only one query measures are left out.

    Examples
    --------
    >>> from pairity import audit
    >>> result = audit([1, 0, 1, 0], [0.9, 0.2, 0.1, 0.4], qid=[1, 1, 2, 2],
    ...                sensitive_features=["f", "m", "m", "f"], k=2)
    >>> result.auc, result.violation["statistical"]
    (0.5, 1.0)
    """
    weights = {key: options.pop(key, None) for key in ("group", "sample_weight", "query_weight")}
    columns = {"y": y, "qid": qid, "sensitive_features": sensitive_features, **weights}
    settings = Settings(name_constraints(constraints), _cuts(k), **options)
    require_sampling(settings.confidence, settings.n_resamples)
    for key, alternative in (("qid", "group"), ("sensitive_features", "sensitive_features")):
        if columns[key] is None and columns[alternative] is None and not is_queries(y):
            raise InputError(
                f"{key} is missing. Pass audit(y, scores, qid=..., sensitive_features=...), or "
                "Queries in place of y."
            )
    with open_queries({**columns, "scores": scores}) as queries:
        require_groups(queries)
        require_preferences(queries)
        settings = replace(settings, gain=choose_gain(settings.gain, queries))
        if queries.distributed:
            from pairity.audits._distributed import measure_on_workers

            measured = measure_on_workers(queries, settings)
        else:
            weight, n_resamples = queries.weight_of_query, settings.n_resamples
            draws = resampled_weights(weight[weight > 0], n_resamples, settings.random_state)
            measured = measure(queries, settings, draws)
        n_queries, n_items, n_missing, n_pairs, *group_sizes = measured.sizes.tolist()
        layout, sums = measured.layout, measured.sums
        statistics = estimate_all(layout, settings.constraints, queries.groups, sums)
        return Audit(
            name=str(name),
            groups=queries.groups,
            n_queries=n_queries,
            n_items=n_items,
            n_missing=n_missing,
            n_pairs=n_pairs,
            group_sizes=tuple(group_sizes),
            k=settings.cuts,
            confidence=float(settings.confidence),
            estimates=tuple(with_intervals(statistics, float(settings.confidence))),
        )


# --- validation ----------------------------------------------------------------------------------


def _cuts(k: Any) -> tuple[int, ...]:
    cuts = list(k) if isinstance(k, (Sequence, np.ndarray)) and not isinstance(k, str) else [k]
    integers = all(is_real(cut) and isinstance(cut, Integral) for cut in cuts)
    if not cuts or not integers or min(cuts) < 1:
        raise InputError(f"k must be one or more whole numbers of at least 1 (got {k!r}).")
    return tuple(sorted({int(cut) for cut in cuts}))


def require_sampling(confidence: Any, n_resamples: Any) -> None:
    """Reject settings with which no interval can be computed."""
    if not isinstance(confidence, Real) or not 0.0 < float(confidence) < 1.0:
        raise InputError(
            f"confidence must be a number between 0 and 1, such as 0.95 (got {confidence!r})."
        )
    if not isinstance(n_resamples, Integral) or n_resamples < 0:
        raise InputError(
            "n_resamples must be a whole number, such as 1000, or 0 for no intervals "
            f"(got {n_resamples!r})."
        )


def choose_gain(gain: str, queries: Any) -> str:
    """The name of the gain; "auto" is exponential if the labels are small grades."""
    choose({"auto": None, **GAINS}, gain, "gain")
    if gain != "auto":
        return gain
    return "linear" if queries.total(_n_not_grades) else "exponential"


def _n_not_grades(queries: Queries) -> int:
    """The number of labels that are not whole numbers from 0 to the highest exponent."""
    y = queries.y
    return int(np.count_nonzero((y != np.floor(y)) | (y < 0) | (y > HIGHEST_EXPONENT)))


def name_constraints(constraints: Any) -> dict[str, Constraint]:
    """Constraints by their names, or by their representations if several share a name."""
    if isinstance(constraints, str) or not isinstance(constraints, Sequence):
        constraints = [constraints]
    converted = [as_constraint(constraint) for constraint in constraints]
    names = [_name_of(constraint) for constraint in converted]
    labels = [
        repr(constraint) if names.count(name) > 1 and constraint.name else name
        for name, constraint in zip(names, converted, strict=True)
    ]
    repeated = next((label for label in labels if labels.count(label) > 1), None)
    if repeated is not None:
        raise InputError(
            f"constraints has {labels.count(repeated)} entries with the name {repeated!r}. Leave "
            "one out, or give your own functions different names."
        )
    return dict(zip(labels, converted, strict=True))


def _name_of(constraint: Constraint) -> str:
    function = getattr(constraint, "function", None)
    return constraint.name or getattr(function, "__name__", type(constraint).__name__)
