"""Rankers: procedures that train on weighted pairs and score items.

Names are imported on first use, so that no engine is loaded before one of its adapters is needed.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from pairity._utils.lazy import lazy_exports as _lazy_exports

if _TYPE_CHECKING:
    from pairity.rankers.base import Ranker as Ranker
    from pairity.rankers.catboost import CatBoostPairRanker as CatBoostPairRanker
    from pairity.rankers.lightgbm import LightGBMRanker as LightGBMRanker
    from pairity.rankers.linear import LinearRanker as LinearRanker
    from pairity.rankers.regressor import RegressorRanker as RegressorRanker
    from pairity.rankers.torch import TorchRanker as TorchRanker
    from pairity.rankers.xgboost import XGBoostRanker as XGBoostRanker

__getattr__, __dir__, __all__ = _lazy_exports(
    __name__,
    {
        "base": "Ranker",
        "catboost": "CatBoostPairRanker",
        "lightgbm": "LightGBMRanker",
        "linear": "LinearRanker",
        "regressor": "RegressorRanker",
        "torch": "TorchRanker",
        "xgboost": "XGBoostRanker",
    },
)
