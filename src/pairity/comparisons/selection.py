"""Choices: a point picked from many by a stated rule, on validation queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import sqrt
from typing import Any

import numpy as np
from scipy import stats

from pairity._utils.validation import is_real
from pairity.audits.audit import require_sampling
from pairity.comparisons.points import Point
from pairity.exceptions import InputError


class Verdict(Enum):
    """How picking a point ended."""

    CHOSEN = "A point's violation is within the limit."
    NONE = "No point's violation is within the limit."

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, eq=False)
class Choice:
    """What `Frontier.pick` chose, and why; prints as a sentence.

    Attributes
    ----------
    verdict : Verdict
    point : Point or None, the one chosen; None where none qualifies
    closest : Point, the one with the lowest bound
    bound : float
        The upper bound on the violation of the chosen point, or of the closest where there is none.
    bounds : tuple of (Point, float), of all points that could be chosen from, lowest first
    constraint, utility, rule : str
    epsilon : float
    confidence : float or None
    """

    verdict: Verdict
    point: Point | None
    closest: Point
    bound: float
    bounds: tuple[tuple[Point, float], ...]
    constraint: str
    utility: str
    rule: str
    epsilon: float
    confidence: float | None

    def __str__(self) -> str:
        shown = self.closest if self.point is None else self.point
        estimate = shown.validation[self.constraint]
        of = "" if self.confidence is None else f", at {100 * self.confidence:g} % confidence"
        bound = f"{self.bound:.4f}{of}, on {estimate.n_queries} validation queries"
        few = " That is few: take the bound with caution." if estimate.small else ""
        if self.point is None:
            return (
                f"No point has a violation ({self.constraint}) of at most {self.epsilon:g}. The "
                f"closest of {len(self.bounds)} is {shown.label}: at most {bound}.{few}"
            )
        value = shown.validation[self.utility].value
        return (
            f"{shown.label} is the {self.rule} of {self._n_within()} points out of "
            f"{len(self.bounds)} with a violation ({self.constraint}) of at most {self.epsilon:g}: "
            f"{self.utility} {value:.4f}, violation at most {bound}.{few}"
        )

    def _n_within(self) -> int:
        return sum(bound <= self.epsilon for _, bound in self.bounds)


RULES: dict[str, str] = {
    "most accurate": "the highest utility on validation queries",
    "fairest": "the lowest bound on the violation",
}
"""How to choose among the points within the limit."""


def choose(
    points: Sequence[Point],
    name: str,
    epsilon: float,
    *,
    confidence: float | None,
    rule: str,
    utility: str,
    simultaneous: bool,
) -> Choice:
    """Choose among points that have the violation `name`; see `Frontier.pick`."""
    found = _bounds(points, name, confidence, simultaneous)
    ordered = sorted(found, key=lambda each: each[1])  # stable: ties stay in order
    if not ordered:
        raise InputError(
            f"The violation of {name} has no interval on the validation queries, so there is "
            "no bound. Sweep with n_resamples=1000 and several validation queries, use a "
            "pairwise constraint, or give confidence=None to compare the violation itself."
        )
    within = [each for each in ordered if each[1] <= epsilon]
    chosen = None
    if within and rule == "fairest":
        least = within[0][1]
        level = [each for each in within if each[1] == least]
        chosen = max(level, key=lambda each: each[0].validation[utility].value)
    elif within:
        chosen = max(within, key=lambda each: each[0].validation[utility].value)
    return Choice(
        verdict=Verdict.NONE if chosen is None else Verdict.CHOSEN,
        point=None if chosen is None else chosen[0],
        closest=ordered[0][0],
        bound=(chosen or ordered[0])[1],
        bounds=tuple(ordered),
        constraint=name,
        utility=utility,
        rule=rule,
        epsilon=float(epsilon),
        confidence=confidence,
    )


def _bounds(
    points: Sequence[Point], name: str, confidence: float | None, simultaneous: bool
) -> list[tuple[Point, float]]:
    """An upper bound on the violation of each point that has one."""
    if confidence is None:
        return [(point, point.validation[name].value) for point in points]
    points = [point for point in points if all(name in run.resampled for run in point.runs)]
    excess = {
        (at, run.seed): np.array(run.resampled[name]) - run.validation[name].value
        for at, point in enumerate(points)
        for run in point.runs
    }
    if simultaneous:
        for seed in {seed for _, seed in excess}:
            of_seed = [key for key in excess if key[1] == seed]
            largest = np.fmax.reduce(np.array([excess[key] for key in of_seed]))
            excess.update((key, largest) for key in of_seed)
    bounds = []
    for at, point in enumerate(points):
        level = _expanded(confidence, point.validation[name].n_queries)
        above = [
            run.validation[name].value + float(np.nanquantile(excess[at, run.seed], level))
            for run in point.runs
        ]
        bounds.append((point, float(np.mean(above))))
    return bounds


def _expanded(confidence: float, n_queries: int) -> float:
    """The percentile that covers with this confidence where n queries are resampled."""
    n = max(n_queries, 2)
    return float(stats.norm.cdf(sqrt(n / (n - 1)) * stats.t.ppf(confidence, n - 1)))


def require_choice(epsilon: Any, confidence: Any, rule: Any) -> None:
    """Refuse what `Frontier.pick` cannot choose by."""
    if not is_real(epsilon) or not 0.0 <= epsilon < np.inf:
        raise InputError(f"epsilon is {epsilon!r}; give a violation from 0 up, such as 0.05.")
    if confidence is not None:
        require_sampling(confidence, 0)
    if rule not in RULES:
        raise InputError(f"rule is {rule!r}; choose one of {', '.join(map(repr, RULES))}.")
