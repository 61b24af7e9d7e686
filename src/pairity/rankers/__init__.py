"""Rankers: procedures that train on weighted pairs and score items.

Names are imported on first use, so that no engine is loaded before one of its adapters is needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pairity.rankers.base import Ranker as Ranker
    from pairity.rankers.catboost import CatBoostPairRanker as CatBoostPairRanker
    from pairity.rankers.lightgbm import LightGBMRanker as LightGBMRanker
    from pairity.rankers.linear import LinearRanker as LinearRanker
    from pairity.rankers.regressor import RegressorRanker as RegressorRanker
    from pairity.rankers.torch import TorchRanker as TorchRanker
    from pairity.rankers.xgboost import XGBoostRanker as XGBoostRanker

_MODULES = {
    "CatBoostPairRanker": "catboost",
    "LightGBMRanker": "lightgbm",
    "LinearRanker": "linear",
    "Ranker": "base",
    "RegressorRanker": "regressor",
    "TorchRanker": "torch",
    "XGBoostRanker": "xgboost",
}

__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
