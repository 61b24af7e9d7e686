"""Data: synthetic queries, the data sets of the literature, and LETOR files."""

from pairity.datasets.letor import LetorArrays, read_letor, read_letor_arrays
from pairity.datasets.synthetic import BiasedRanking, make_biased_ranking

__all__ = [
    "BiasedRanking",
    "LetorArrays",
    "make_biased_ranking",
    "read_letor",
    "read_letor_arrays",
]
