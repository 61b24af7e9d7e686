"""Warnings about the result of a fit: a missed tolerance, and memorised training data."""

import warnings

from pairity.exceptions import MemorisedWarning, TargetNotReachedWarning
from pairity.reweighting.algorithm import Solution
from pairity.reweighting.outcomes import Outcome
from pairity.reweighting.problem import Problem

# A ranker that orders at least this share of its training pairs correctly has memorised them.
_MEMORISED = 0.995


def warn_about(solution: Solution, problem: Problem) -> None:
    """Warn, at the caller of the caller, about a violation above the tolerance or of no use."""
    best, outcome = solution.best, solution.outcome
    if outcome.kind not in (Outcome.WITHIN_TOLERANCE, Outcome.NO_ROUNDS):
        warnings.warn(
            f"{outcome} The constraint is {problem.constraint!r}; round {best.number} of "
            f"{solution.rounds[-1].number} was kept.",
            TargetNotReachedWarning,
            stacklevel=3,
        )
    reweighted = outcome.kind is not Outcome.NO_ROUNDS
    if problem.on_training and reweighted and best.auc >= _MEMORISED:
        warnings.warn(
            "The ranker has memorised the training data, so its training violation is "
            f"uninformative: {best.auc:.1%} of the training pairs are in the right order, with a "
            f"violation of {best.violation:.4f}. Measure the violation on held-out queries with "
            "validation=0.2, or use a ranker that fits less closely.",
            MemorisedWarning,
            stacklevel=3,
        )
