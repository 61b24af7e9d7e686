"""Competing methods, each a function that returns a `Method`."""

from pairity.baselines.correlation_penalty import correlation_penalty
from pairity.baselines.exposure_lp import exposure_lp
from pairity.baselines.item_weights import item_weights
from pairity.baselines.lagrangian import lagrangian

__all__ = ["correlation_penalty", "exposure_lp", "item_weights", "lagrangian"]
