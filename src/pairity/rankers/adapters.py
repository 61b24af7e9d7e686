"""as_ranker: models of other libraries as rankers that pairity can train.

The adapter of a model is found by the name of its class, so that no engine is imported before one
of its models is passed.
"""

from importlib import import_module
from inspect import isfunction
from typing import Any, cast

from sklearn.base import BaseEstimator, is_regressor

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
# Dask's ranking models, and the models that their workers train.
_DASK = {("lightgbm", "DaskLGBMRanker"): "LGBMRanker", ("xgboost", "DaskXGBRanker"): "XGBRanker"}
_RANKING_MODELS = {library: name for library, name in _ADAPTERS if library != "torch"}
# The rankers that a model folder can contain.
_SAVED = [name for name in rankers.__all__ if name != "Ranker"]


def ranker_class(entry: Entry) -> Any:
    """Return the class of a saved ranker, from its entry in the manifest."""
    name = entry.read("class", str)
    if name not in _SAVED:
        raise entry.refuse("class", f"{show(name)}, which is none of {', '.join(_SAVED)}")
    return getattr(rankers, name)


def as_ranker(model: Any) -> Ranker:
    """Return a ranker for a model of any supported kind.

    Parameters
    ----------
    model : None, Ranker, LGBMRanker, XGBRanker, CatBoostRanker, torch.nn.Module or regressor
        None means `LinearRanker()`. A ranker is returned unchanged. An engine's model is wrapped
        with the adapter's defaults; to set these, construct the adapter yourself, for example
        ``LightGBMRanker(LGBMRanker(), loss="logistic")``. Dask's models are replaced by the models
        that their workers train.
    """
    if model is None:
        return LinearRanker()
    if isinstance(model, type):
        raise InputError(
            f"ranker is the class {model.__name__}. Pass an instance: {model.__name__}()."
        )
    if hasattr(type(model), "fit_pairs") and hasattr(type(model), "predict"):
        return cast(Ranker, model)
    _refuse_cross_validation(model)
    families = [(base.__module__.partition(".")[0], base.__name__) for base in type(model).__mro__]
    if families[0] in _DASK:
        settings = model.get_params()
        for name in ("client", "allow_group_split"):  # only Dask's models have these
            settings.pop(name, None)
        return as_ranker(getattr(import_module(families[0][0]), _DASK[families[0]])(**settings))
    for family in families:
        if family in _ADAPTERS:
            return cast(Ranker, getattr(rankers, _ADAPTERS[family])(model))
    name = type(model).__name__
    for library, _ in families:
        if library in _RANKING_MODELS:
            raise InputError(
                f"{name} is not a ranking model, because it does not know which items share a "
                f"query. Pass {library}'s {_RANKING_MODELS[library]} with the same parameters."
            )
    if isinstance(model, BaseEstimator) and is_regressor(model):
        from pairity.rankers.regressor import weight_name  # which imports much of scikit-learn

        weight_name(model)  # refuses a regressor without sample weights
        return rankers.RegressorRanker(model)
    raise InputError(
        f"{name} is not a ranker that pairity can train. It needs fit_pairs(queries, weights, "
        "previous=None) and predict(X). Use LinearRanker(), an engine's ranking model or a "
        "regressor, or see pairity.rankers.Ranker."
    )


def _refuse_cross_validation(model: Any) -> None:
    """Refuse models that split the training rows into folds and so would cut queries."""
    kind = model if isfunction(model) else type(model)
    name = kind.__name__
    by_engine = kind.__module__.partition(".")[0] in _RANKING_MODELS and name in ("cv", "CVBooster")
    params = model.get_params(deep=True) if isinstance(model, BaseEstimator) else {}
    if by_engine or any(param.rpartition("__")[2] == "cv" for param in params):
        raise InputError(
            f"{name} splits the rows into folds without regard to queries, and a query that is cut "
            "loses its pairs. Search over the fair ranker instead: "
            "GridSearchCV(FairRanker(...), ..., cv=GroupKFold()) with groups=qid, or "
            "pairity.tune, which splits by query."
        )
