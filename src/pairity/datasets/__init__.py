"""Data: synthetic queries, the data sets of the literature, LETOR and Parquet files."""

from pairity.data.letor import LetorArrays, read_letor, read_letor_arrays
from pairity.data.parquet import read_parquet
from pairity.datasets.download import cache_folder
from pairity.datasets.engineering_students import load_engineering_students
from pairity.datasets.mslr import load_mslr
from pairity.datasets.ranking_data import RankingData
from pairity.datasets.synthetic import BiasedRanking, make_biased_ranking
from pairity.datasets.trec_w3c import load_trec_w3c

__all__ = [
    "BiasedRanking",
    "LetorArrays",
    "RankingData",
    "cache_folder",
    "load_engineering_students",
    "load_mslr",
    "load_trec_w3c",
    "make_biased_ranking",
    "read_letor",
    "read_letor_arrays",
    "read_parquet",
]
