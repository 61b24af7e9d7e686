"""Other ways to rank more evenly, each a function that returns a `Method`."""

from pairity.baselines.exposure import exposure_lp
from pairity.baselines.item_weighting import item_weights
from pairity.baselines.proxy_lagrangian import lagrangian
from pairity.baselines.regulariser import regularised

__all__ = ["exposure_lp", "item_weights", "lagrangian", "regularised"]
