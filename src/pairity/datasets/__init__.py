"""Data sets: synthetic queries and the public data sets of the literature."""

from pairity.datasets.download import cache_folder
from pairity.datasets.engineering_students import load_engineering_students
from pairity.datasets.mslr import MslrChoices, load_mslr
from pairity.datasets.ranking_data import RankingData
from pairity.datasets.synthetic import BiasedRanking, BiasedWorld, make_biased_ranking
from pairity.datasets.trec_w3c import load_trec_w3c

__all__ = [
    "BiasedRanking",
    "BiasedWorld",
    "MslrChoices",
    "RankingData",
    "cache_folder",
    "load_engineering_students",
    "load_mslr",
    "load_trec_w3c",
    "make_biased_ranking",
]
