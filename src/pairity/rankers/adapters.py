"""as_ranker: other people's models as rankers that pairity can train.

Which adapter serves a model is told from its class, by name, so that no engine is imported before
one of its models is handed in.
"""

from __future__ import annotations

from importlib import import_module
from inspect import isfunction
from typing import Any

from sklearn.base import BaseEstimator, is_regressor
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter

from pairity import rankers
from pairity._utils.json_codec import Entry
from pairity._utils.validation import show
from pairity.exceptions import InputError
from pairity.rankers.base import Ranker
from pairity.rankers.linear import LinearRanker

# The library, its class, and the adapter of that class.
_ADAPTERS = {
    ("lightgbm", "LGBMRanker"): "LightGBMRanker",
    ("xgboost", "XGBRanker"): "XGBoostRanker",
    ("catboost", "CatBoostRanker"): "CatBoostPairRanker",
    ("torch", "Module"): "TorchRanker",
}
# Dask's ranking models, and those that each of their workers trains.
_SPREAD = {
    ("lightgbm", "DaskLGBMRanker"): "LGBMRanker",
    ("xgboost", "DaskXGBRanker"): "XGBRanker",
}
_REFUSED = {
    "lightgbm": "LGBMRanker",
    "xgboost": "XGBRanker",
    "catboost": "CatBoostRanker",
}
# The rankers that a model folder can contain.
_SAVED = [name for name in rankers.__all__ if name != "Ranker"]


def ranker_class(entry: Entry) -> Any:
    """The class of a saved ranker, from what the manifest says of it."""
    name = entry.read("class", str)
    if name not in _SAVED:
        raise entry.refuse("class", f"{show(name)}, which is none of {', '.join(_SAVED)}")
    return getattr(rankers, name)


def as_ranker(model: Any) -> Ranker:
    """A ranker from whatever the caller has.

    Parameters
    ----------
    model : None, Ranker, LGBMRanker, XGBRanker, CatBoostRanker, torch.nn.Module or regressor
        None stands for `LinearRanker()`. A ranker is handed back as it is; an engine's model is
        wrapped with the adapter's defaults. To set those, make the adapter yourself, for example
        ``LightGBMRanker(LGBMRanker(), loss="logistic")``. Dask's models stand for what each of
        their workers trains.
    """
    if model is None:
        return LinearRanker()
    if isinstance(model, type):
        raise InputError(
            f"ranker is the class {model.__name__}. Pass an instance: {model.__name__}()."
        )
    if hasattr(type(model), "fit_pairs") and hasattr(type(model), "predict"):
        ranker: Ranker = model
        return ranker
    _refuse_cross_validation(model)
    families = [(base.__module__.partition(".")[0], base.__name__) for base in type(model).__mro__]
    if families[0] in _SPREAD:
        settings = model.get_params()
        for name in ("client", "allow_group_split"):  # of Dask's alone
            settings.pop(name, None)
        kind = getattr(import_module(families[0][0]), _SPREAD[families[0]])
        return as_ranker(kind(**settings))
    for family in families:
        if family in _ADAPTERS:
            wrapped: Ranker = getattr(rankers, _ADAPTERS[family])(model)
            return wrapped
    name = type(model).__name__
    for library, _ in families:
        if library in _REFUSED:
            raise InputError(
                f"{name} is not a ranking model: it never sees which items share a query. Pass "
                f"{library}'s {_REFUSED[library]} with the same parameters."
            )
    if isinstance(model, BaseEstimator) and is_regressor(model):
        if not isinstance(model, Pipeline) and not has_fit_parameter(model, "sample_weight"):
            raise InputError(
                f"{name}.fit takes no sample_weight, which pairity needs to weigh the items by. "
                "Use a regressor that does, such as HistGradientBoostingRegressor()."
            )
        return rankers.RegressorRanker(model)
    raise InputError(
        f"{name} is not a ranker that pairity can train: it needs fit_pairs(queries, weights, "
        "previous=None) and predict(X). Use LinearRanker(), an engine's ranking model or a "
        "regressor, or see pairity.rankers.base.Ranker."
    )


def _refuse_cross_validation(model: Any) -> None:
    """Refuse what would split the training rows into folds by itself, and cut queries doing so."""
    kind = model if isfunction(model) else type(model)
    name = kind.__name__
    by_engine = kind.__module__.partition(".")[0] in _REFUSED and name in ("cv", "CVBooster")
    params = model.get_params(deep=True) if isinstance(model, BaseEstimator) else {}
    if by_engine or any(param.rpartition("__")[2] == "cv" for param in params):
        raise InputError(
            f"{name} splits the rows into folds without regard to queries, and a query that is cut "
            "loses its pairs. Put the search around the fair ranker instead: "
            "GridSearchCV(FairRanker(...), ..., cv=GroupKFold()) with groups=qid, or "
            "pairity.comparisons.tuning.tune, which splits by query."
        )
