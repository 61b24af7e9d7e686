"""Runs: one method with its settings, fitted with one seed, and its measurements.

A `Run` holds estimates and no model, and a `Point` the averages of runs over seeds.
`pairity.comparisons.frontiers` compares and plots points. If a method draws its order at random,
its estimates are expectations over the draw, and their confidence intervals still come from
resampling queries.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite, isnan, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from pairity._utils.json_codec import to_plain
from pairity._utils.typing import Array
from pairity.audits import estimates
from pairity.audits.audit import choose_gain
from pairity.audits.estimates import NAN, Estimate, Measure, Part, Support
from pairity.baselines.methods import Method, Rankings
from pairity.constraints import Constraint
from pairity.data.columns import as_numbers
from pairity.data.queries import Queries
from pairity.exceptions import InputError
from pairity.metrics import ndcg
from pairity.metrics.positions import sums
from pairity.pairs.cells import query_auc

UTILITIES = ("auc", "ndcg@10")
_DIGITS = 6  # of each resampled violation, of which a run has a thousand
_ROUNDING = 1e-6  # allowed deviation of a sum of probabilities from 1

Result = Array | Rankings


@dataclass(frozen=True, eq=False)
class Run:
    """One method with its settings and one seed, fitted and measured on held-out queries.

    Attributes
    ----------
    method : str
    settings : dict from str to a plain value; values that JSON does not have are their repr
    seed : int
    needs_group : bool, whether the method reads the groups of the queries that it orders
    seconds : float, the time of fitting
    test, validation : dict from str to Estimate
        Utility ("auc", "ndcg@10") and violations (under the constraint's name); empty without
        such queries.
    resampled : dict from the constraint's name to a tuple of float
        The violations on resampled validation queries, from which bounds are computed.
    notes : tuple of str, the warnings of the run, for example of a target that was not reached
    error : str or None, why the run failed; there are no estimates then
    """

    method: str
    settings: dict[str, Any]
    seed: int
    needs_group: bool = False
    seconds: float = NAN
    test: dict[str, Estimate] = field(default_factory=dict)
    validation: dict[str, Estimate] = field(default_factory=dict)
    resampled: dict[str, tuple[float, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    error: str | None = None

    @classmethod
    def of(cls, method: Method, seed: int) -> Run:
        """Return a run of the method that has not been done."""
        return cls(method.name, plain_settings(method.settings), seed, bool(method.needs_group))

    @property
    def label(self) -> str:
        """The method with its settings, such as ``lagrangian(slack=0.1)``."""
        return run_label(self.method, self.settings)

    @property
    def key(self) -> tuple[str, str]:
        """The method and its settings, which runs with other seeds share."""
        return self.method, json.dumps(self.settings, sort_keys=True)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain Python; None for a number that is not defined."""
        return dict(to_plain(self))


# --- averages over seeds -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Point:
    """One method with its settings: its runs, averaged over seeds.

    Attributes
    ----------
    method : str
    settings : dict from str to a plain value
    needs_group : bool, whether the method reads the groups of the queries that it orders
    runs : tuple of Run, one for each seed
    test, validation : dict from str to Estimate
        Means over seeds with intervals (see `Frontier`): "auc", "ndcg@10", and violations under
        the constraint's name. Empty if a run failed.
    """

    method: str
    settings: dict[str, Any]
    needs_group: bool
    runs: tuple[Run, ...]
    test: dict[str, Estimate]
    validation: dict[str, Estimate]

    @property
    def label(self) -> str:
        """The method with its settings, such as ``lagrangian(slack=0.1)``."""
        return self.runs[0].label

    @property
    def seconds(self) -> float:
        """The seconds of one fit, averaged over seeds; NaN if all failed."""
        known = [run.seconds for run in self.runs if not isnan(run.seconds)]
        return float(np.mean(known)) if known else NAN

    @property
    def errors(self) -> tuple[str, ...]:
        """Why runs failed."""
        return tuple(dict.fromkeys(run.error for run in self.runs if run.error is not None))

    @property
    def notes(self) -> tuple[str, ...]:
        """The warnings of the runs."""
        return tuple(dict.fromkeys(note for run in self.runs for note in run.notes))

    def __repr__(self) -> str:
        return self.label


def averages(
    runs: Sequence[dict[str, Estimate]], confidence: float, ratio: float | None
) -> dict[str, Estimate]:
    """Return the means over seeds of every estimate; none if a run has no estimates."""
    if not all(runs):
        return {}
    return {name: _average([run[name] for run in runs], confidence, ratio) for name in runs[0]}


def _average(by_seed: Sequence[Estimate], confidence: float, ratio: float | None) -> Estimate:
    n = len(by_seed)
    if n == 1:
        return by_seed[0]
    values, low, high = np.array([(e.value, e.low, e.high) for e in by_seed]).T
    mean, spread = float(values.mean()), float(values.std(ddof=1))
    t = float(stats.t.ppf(0.5 + confidence / 2, n - 1))
    below, above = (abs(mean - float(end.mean())) for end in (low, high))  # by query
    if ratio is None:
        across = t * spread / sqrt(n)
        below, above = float(np.hypot(below, across)), float(np.hypot(above, across))
    else:
        shrunk = sqrt(1 / n + ratio)
        below, above = (shrunk * float(np.fmax(side, t * spread)) for side in (below, above))
    weakest = min(by_seed, key=lambda estimate: estimate.n_queries)
    top = max(1.0, float(values.max()))
    return replace(weakest, value=mean, low=max(mean - below, 0.0), high=min(mean + above, top))


# --- measuring -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Measuring:
    """What is measured of every run.

    Attributes
    ----------
    constraints : dict from name to Constraint
    confidence : float, of the confidence intervals
    n_resamples : int
    """

    constraints: dict[str, Constraint]
    confidence: float = 0.95
    n_resamples: int = 1000

    def __call__(
        self, queries: Queries, result: Result
    ) -> tuple[dict[str, Estimate], dict[str, tuple[float, ...]]]:
        """Return the estimates of an order of the queries, and resampled violations by constraint.

        The estimates are those of `pairity.audit`. For `Rankings` each is the expectation over
        the draw, and a query is resampled with all its rankings.
        """
        copies, support = Copies.of(queries, result), Support(queries)
        utility, weight = list(_utility(queries, copies)), queries.weight_of_query
        means, *violations = estimates.parts_of(
            utility, self.constraints.values(), copies.queries, copies.scores, support
        )
        parts = [means, *map(copies.of_queries, violations)]
        draws = estimates.resampled_weights(weight, self.n_resamples, 0)
        totals, layout = estimates.sum_parts(parts, weight, draws), estimates.layout_of(utility)
        statistics = estimates.estimate_all(layout, self.constraints, queries.groups, totals)
        measured = {
            estimate.constraint or estimate.measure: estimate
            for estimate in estimates.with_intervals(statistics, self.confidence)
            if estimate.measure not in ("gap", "gap_within", "noise_floor")
        }
        return measured, {
            name: tuple(np.round(statistic.values[1:, 0], _DIGITS).tolist())
            for name, statistic in zip(self.constraints, statistics[1:], strict=True)
            if isfinite(measured[name].high)
        }


@dataclass(frozen=True, eq=False)
class Copies:
    """An order of queries as one score per item, with one copy of a query for each ranking.

    Attributes
    ----------
    queries : Queries, the copies
    scores : array of shape (n_items of the copies,)
    original : int array, the query of each copy
    share : array, the probability of each copy
    """

    queries: Queries
    scores: Array
    original: NDArray[np.int64]
    share: Array

    @classmethod
    def of(cls, queries: Queries, result: Any) -> Copies:
        """Return the copies of what a scorer returned, after checks."""
        rankings, n = as_rankings(queries, result), queries.n_queries
        if rankings.scores.shape[1] == 1:
            return cls(queries, rankings.scores[:, 0], np.arange(n), np.ones(n))
        copies, scores = rankings.expected(queries)
        query, ranking = np.nonzero(rankings.probability)
        return cls(copies, scores, query, rankings.probability[query, ranking])

    def of_queries(self, part: Part) -> Part:
        """Make a part of copies, whose totals depend on their weights, one of queries."""
        return replace(
            part, totals=lambda weight: part.totals(weight[..., self.original] * self.share)
        )


def as_rankings(queries: Queries, result: Any) -> Rankings:
    """Return what a scorer returned for these queries, after checks; scores are one ranking."""
    if not isinstance(result, Rankings):
        scores = as_numbers(result, "scores", queries.n_items)
        return Rankings(scores[:, None], np.ones((queries.n_queries, 1)))
    scores, probability = np.asarray(result.scores), np.asarray(result.probability)
    n = probability.shape[-1] if probability.ndim == 2 else -1
    if probability.shape != (queries.n_queries, n) or scores.shape != (queries.n_items, n):
        raise InputError(
            f"Rankings of {queries.n_queries} queries and {queries.n_items} items have scores of "
            f"shape {scores.shape} and probabilities of shape {probability.shape}. Both must have "
            "one column for each ranking."
        )
    if not np.isfinite(scores).all() or not np.isfinite(probability).all():
        raise InputError("Rankings contain NaN or infinity. Scores must be finite.")
    error = np.abs(probability.sum(axis=1) - 1.0)
    if probability.min(initial=0.0) < 0.0 or error.max(initial=0.0) > _ROUNDING:
        total = probability[int(error.argmax())].sum()
        raise InputError(
            f"The probabilities of a query's rankings add up to {total:g}, and the smallest is "
            f"{probability.min():g}. They must be 0 or greater, and each row must add up to 1."
        )
    return Rankings(scores, probability)


def _utility(queries: Queries, copies: Copies) -> Iterator[Measure]:
    repeated = copies.queries
    auc = query_auc(repeated, copies.scores)
    pairs = Support(queries).all_pairs()
    by_copy = ndcg(repeated, copies.scores, k=10, gain=choose_gain("auto", queries))
    for name, values, n_pairs in (("auc", auc, pairs), ("ndcg@10", by_copy, None)):
        expectation = sums(copies.original, copies.share * values, queries.n_queries)
        yield Measure(name, expectation, n_pairs)


# --- settings as plain values --------------------------------------------------------------------


def plain_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings that JSON can hold: numbers and texts, and the repr of other values."""
    return {str(name): _plain(value) for name, value in settings.items()}


def run_label(method: str, settings: Mapping[str, Any]) -> str:
    """Return a method with its settings, such as ``lagrangian(slack=0.1)``."""
    return f"{method}({show_settings(settings)})"


def show_settings(settings: Mapping[str, Any]) -> str:
    """Return settings on one line, such as ``slack=0.1``."""
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else repr(value)
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    name = getattr(value, "__qualname__", None)  # functions and classes, without their address
    if isinstance(name, str):
        return f"{value.__module__}.{name}"
    return " ".join(repr(value).split())
