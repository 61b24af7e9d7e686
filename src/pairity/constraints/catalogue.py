"""The constraints that have a name."""

from difflib import get_close_matches
from typing import Any

from pairity.constraints.base import Constraint, FunctionConstraint
from pairity.constraints.pairwise import (
    InterGroup,
    IntraGroup,
    Marginal,
    PairwiseConstraint,
    StatisticalParity,
)
from pairity.exceptions import ConstraintError

CATALOGUE: dict[str, type[PairwiseConstraint]] = {
    constraint.name: constraint
    for constraint in (StatisticalParity, InterGroup, IntraGroup, Marginal)
}


def as_constraint(constraint: Any) -> Constraint:
    """The constraint itself, or the one that a name or a function stands for."""
    if isinstance(constraint, Constraint):
        return constraint
    if isinstance(constraint, type) and issubclass(constraint, Constraint):
        raise ConstraintError(f"Pass an instance, {constraint.__name__}(), not the class.")
    if isinstance(constraint, str) and constraint in CATALOGUE:
        return CATALOGUE[constraint]()
    if callable(constraint):
        return FunctionConstraint(constraint)
    choice = f"{', '.join(map(repr, CATALOGUE))}, a Constraint, or a function of (queries, scores)"
    if not isinstance(constraint, str):
        raise ConstraintError(f"{constraint!r} is not a constraint. Pass one of {choice}.")
    close = get_close_matches(constraint.lower(), CATALOGUE, 1, 0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ConstraintError(
        f"There is no constraint named {constraint!r}.{hint} Choose one of {choice}."
    )
