"""Measures of utility and fairness, one value per query (and group)."""

from pairity.metrics.fairness import (
    awrf,
    click_to_merit,
    exposure,
    exposure_to_merit,
    merit,
    ndkl,
    population_share,
    top_share,
)
from pairity.metrics.positions import Positions
from pairity.metrics.utility import average_precision, ndcg

__all__ = [
    "Positions",
    "average_precision",
    "awrf",
    "click_to_merit",
    "exposure",
    "exposure_to_merit",
    "merit",
    "ndcg",
    "ndkl",
    "population_share",
    "top_share",
]
