"""One small model of every engine that can be saved, for the tests of model files."""

import importlib.util

import numpy as np
import pytest

from pairity import FairRanker, LinearRanker
from pairity.datasets import make_biased_ranking

OPTIONS = {"tolerance": 0.05, "max_rounds": 3}
ENGINES = {
    "linear": (),
    "lightgbm": ("lightgbm",),
    "xgboost": ("xgboost",),
    "catboost": ("catboost",),
    "torch": ("torch", "safetensors"),
    "newton": ("skops",),
}


def make_ranking():
    """The data that the models are trained on."""
    return make_biased_ranking(30, 12, n_labels=3, random_state=0)


def labels_of(ranking):
    """The arguments of `fit` besides the features."""
    return {name: getattr(ranking, name) for name in ("y", "qid", "sensitive_features")}


def make_new_items():
    """Features of items that no model was trained on."""
    return make_biased_ranking(10, 12, random_state=1).X


def need(engine):
    """Skip if the engine is not installed."""
    for library in ENGINES[engine]:
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed")


def make_module(width=4):
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(5, width), torch.nn.ReLU(), torch.nn.Linear(width, 1)
    )


def make_model(engine, **more):
    """An unfitted model, as a user would write it."""
    need(engine)
    if engine == "linear":
        ranker = LinearRanker(alpha=1e-3)
    elif engine == "lightgbm":
        from lightgbm import LGBMRanker

        ranker = LGBMRanker(n_estimators=8, num_leaves=4, min_child_samples=5, n_jobs=1)
    elif engine == "xgboost":
        from xgboost import XGBRanker

        ranker = XGBRanker(n_estimators=8, max_depth=2, n_jobs=1, random_state=3)
    elif engine == "catboost":
        from catboost import CatBoostRanker

        ranker = CatBoostRanker(iterations=8, depth=2, thread_count=1, random_seed=3)
    elif engine == "torch":
        from pairity.rankers.torch import TorchRanker

        ranker = TorchRanker(make_module(), epochs=2, random_state=0)
    else:
        from sklearn.linear_model import Ridge

        from pairity.rankers.regressor import RegressorRanker

        ranker = RegressorRanker(Ridge(alpha=0.5), n_estimators=4)
    return FairRanker(ranker, **{**OPTIONS, **more})


def load_arguments(engine):
    """The arguments of `load` besides the folder."""
    return {"module": make_module()} if engine == "torch" else {}


def same_bits(a, b):
    return np.array_equal(np.asarray(a).view(np.int64), np.asarray(b).view(np.int64))
