"""Procedures H: rankers that fit on weighted pairs."""

from pairity.rankers.base import Ranker
from pairity.rankers.linear import LinearRanker

__all__ = ["LinearRanker", "Ranker"]
