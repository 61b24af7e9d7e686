"""Selection: choose one point of a frontier by a stated rule, on validation queries."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import sqrt

import numpy as np
from scipy import stats

from pairity._utils.typing import Array
from pairity._utils.validation import require_choice, require_number
from pairity.audits.audit import require_sampling
from pairity.comparisons.runs import UTILITIES, Point
from pairity.exceptions import InputError

RULES = ("most accurate", "fairest")
"""How to choose among the points within the limit: by utility, or by the lowest bound."""


class Verdict(Enum):
    """How the choice of a point ended."""

    CHOSEN = "A point's violation is within the limit."
    NONE = "No point's violation is within the limit."

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Rule:
    """The limit on the violation, and how to choose among the points within it.

    See `Frontier.pick` for the fields.
    """

    epsilon: float
    confidence: float | None = 0.95
    rule: str = "most accurate"
    utility: str = "auc"
    simultaneous: bool = False

    def __post_init__(self) -> None:
        require_number(self.epsilon, "epsilon")
        if self.confidence is not None:
            require_sampling(self.confidence, 0)
        require_choice("rule", self.rule, RULES)
        require_choice("utility", self.utility, UTILITIES)


@dataclass(frozen=True, eq=False)
class Choice:
    """What `Frontier.pick` chose, and why; prints as a sentence.

    Attributes
    ----------
    verdict : Verdict
    point : Point or None, the chosen point; None if no point qualifies
    closest : Point, the point with the lowest bound
    bound : float
        The upper bound on the violation of the chosen point, or of the closest if there is none.
    bounds : tuple of (Point, float), of all points that could be chosen, lowest first
    constraint, utility, rule : str
    epsilon : float
    confidence : float or None
    simultaneous : bool
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
    simultaneous: bool

    def __str__(self) -> str:
        point = self.point or self.closest
        estimate = point.validation[self.constraint]
        level = "" if self.confidence is None else f", at {100 * self.confidence:g} % confidence"
        few = " These are few queries, so the bound is uncertain." if estimate.small else ""
        bound = f"{self.bound:.4f}{level}, on {estimate.n_queries} validation queries.{few}"
        limit = f"a violation ({self.constraint}) of at most {self.epsilon:g}"
        if self.point is None:
            return (
                f"No point has {limit}. The closest of {len(self.bounds)} is {point.label}: at "
                f"most {bound}"
            )
        n_within = sum(bound <= self.epsilon for _, bound in self.bounds)
        return (
            f"{point.label} is the {self.rule} of {n_within} points out of {len(self.bounds)} with "
            f"{limit}: {self.utility} {point.validation[self.utility].value:.4f}, violation at "
            f"most {bound}"
        )


def choose(points: Sequence[Point], constraint: str, rule: Rule) -> Choice:
    """Choose among points that have a violation of the constraint; see `Frontier.pick`."""
    bounds = _bounds(points, constraint, rule)
    bounds.sort(key=lambda item: item[1])  # stable: ties stay in order
    if not bounds:
        raise InputError(
            f"The violation of {constraint} has no interval on the validation queries, so there is "
            "no bound. Sweep with n_resamples=1000 and several validation queries, use a "
            "pairwise constraint, or pass confidence=None to compare the violation itself."
        )
    within = [item for item in bounds if item[1] <= rule.epsilon]
    if rule.rule == "fairest":
        within = [item for item in within if item[1] == within[0][1]]
    chosen = max(within, key=lambda item: item[0].validation[rule.utility].value, default=None)
    verdict = Verdict.NONE if chosen is None else Verdict.CHOSEN
    point, bound = chosen or (None, bounds[0][1])
    return Choice(verdict, point, bounds[0][0], bound, tuple(bounds), constraint, **vars(rule))


def _bounds(points: Sequence[Point], constraint: str, rule: Rule) -> list[tuple[Point, float]]:
    """Return an upper bound on the violation of each point that has one."""
    if rule.confidence is None:
        return [(point, point.validation[constraint].value) for point in points]
    points = [point for point in points if all(constraint in run.resampled for run in point.runs)]
    excess = {
        id(run): np.array(run.resampled[constraint]) - run.validation[constraint].value
        for point in points
        for run in point.runs
    }
    if rule.simultaneous:
        for seed in {run.seed for point in points for run in point.runs}:
            keys = [id(run) for point in points for run in point.runs if run.seed == seed]
            largest: Array = np.fmax.reduce(np.array([excess[key] for key in keys]))
            excess |= dict.fromkeys(keys, largest)
    bounds = []
    for point in points:
        # The percentile that covers with this confidence if n queries are resampled.
        n = max(point.validation[constraint].n_queries, 2)
        level = float(stats.norm.cdf(sqrt(n / (n - 1)) * stats.t.ppf(rule.confidence, n - 1)))
        of_runs = [
            run.validation[constraint].value + float(np.nanquantile(excess[id(run)], level))
            for run in point.runs
        ]
        bounds.append((point, float(np.mean(of_runs))))
    return bounds
