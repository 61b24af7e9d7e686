"""Warnings about the result of a fit: a missed tolerance, and memorised training data."""

from __future__ import annotations

import warnings

from pairity.exceptions import MemorisedWarning, TargetNotReachedWarning
from pairity.reweighting.algorithm import Outcome, Solution
from pairity.reweighting.problem import Problem
from pairity.reweighting.weights import PairWeights

# A ranker that orders at least this share of its training pairs correctly has memorised them.
_MEMORISED = 0.995


def warn_about(
    solution: Solution, problem: Problem, tolerance: float, weights: PairWeights
) -> None:
    """Warn, at the caller of the caller, about a violation above the tolerance or of no use."""
    best, last = solution.best, solution.rounds[-1]
    if solution.outcome not in (Outcome.WITHIN_TOLERANCE, Outcome.NO_ROUNDS):
        first = solution.rounds[0]
        plain = f"{first.violation:.5g} for the plain ranker, " if first.number == 0 else ""
        warnings.warn(
            f"{solution.outcome} Violation of {problem.constraint!r} on "
            f"{problem.target.n_queries} queries: {plain}{best.violation:.5g} in round "
            f"{best.number} of {last.number}. The tolerance is {tolerance:g}."
            f"{_describe_saturated(weights)}",
            TargetNotReachedWarning,
            stacklevel=3,
        )
    reweighted = solution.outcome is not Outcome.NO_ROUNDS
    if problem.measured_on is None and reweighted and best.auc >= _MEMORISED:
        warnings.warn(
            "The ranker has memorised the training data, so its training violation is "
            f"uninformative: {best.auc:.1%} of the training pairs are in the right order, with a "
            f"violation of {best.violation:.4f}. Measure the violation on held-out queries with "
            "validation=0.2, or use a ranker that fits less closely.",
            MemorisedWarning,
            stacklevel=3,
        )


def _describe_saturated(weights: PairWeights) -> str:
    cells = weights.saturated()
    if not cells:
        return ""
    named = [f"{a!r} preferred to {b!r} ({weights[a, b]:.2f})" for a, b in cells[:3]]
    more = f" and {len(cells) - 3} more" if len(cells) > 3 else ""
    return f" Weights at their limits, 0 and 2: {', '.join(named)}{more}."
