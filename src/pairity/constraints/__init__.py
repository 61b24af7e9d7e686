"""Which disparity is measured and reduced; one object serves training, audit and report."""

from pairity.constraints.base import (
    Constraint,
    Contrasts,
    FunctionConstraint,
    largest_gap,
    largest_gaps,
    spread,
)
from pairity.constraints.catalogue import CATALOGUE, as_constraint
from pairity.constraints.noise import Noise, noise_of
from pairity.constraints.pairwise import (
    InterGroup,
    IntraGroup,
    Marginal,
    PairwiseConstraint,
    StatisticalParity,
)

__all__ = [
    "CATALOGUE",
    "Constraint",
    "Contrasts",
    "FunctionConstraint",
    "InterGroup",
    "IntraGroup",
    "Marginal",
    "Noise",
    "PairwiseConstraint",
    "StatisticalParity",
    "as_constraint",
    "largest_gap",
    "largest_gaps",
    "noise_of",
    "spread",
]
