"""Which disparity is measured and reduced; one object serves training, audit and report."""

from pairity.constraints.pairwise import (
    CATALOGUE,
    Constraint,
    InterGroup,
    IntraGroup,
    Marginal,
    PairwiseConstraint,
    StatisticalParity,
)

__all__ = [
    "CATALOGUE",
    "Constraint",
    "InterGroup",
    "IntraGroup",
    "Marginal",
    "PairwiseConstraint",
    "StatisticalParity",
]
