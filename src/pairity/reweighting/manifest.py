"""What a fitted `FairRanker` is in a manifest, and the model from it (MODEL_FORMAT.md).

The ranker inside describes itself; see `pairity.rankers._estimators`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pairity._utils.json_codec import Entry, NotStored, build, encode, encode_array, encode_number
from pairity._utils.validation import show
from pairity.constraints import CATALOGUE, PairwiseConstraint, as_constraint
from pairity.exceptions import InputError, ModelFileError
from pairity.rankers._estimators import describe_features, restore_features
from pairity.reweighting.algorithm import Outcome
from pairity.reweighting.checkpoints import describe_round, read_round
from pairity.reweighting.solvers import DampedStep, PlainStep
from pairity.reweighting.weights import PairWeights

_NOT_SAVED = ("ranker", "checkpoint")  # among the settings; rankers are saved by themselves
_KNOWN = {kind.__name__: kind for kind in (*CATALOGUE.values(), PlainStep, DampedStep)}


def encode_settings(model: Any, leave_out: tuple[str, ...] = _NOT_SAVED) -> dict[str, Any]:
    """The settings as JSON, but for some."""
    names = [name for name in model._get_param_names() if name not in leave_out]
    return {name: encode(getattr(model, name), _KNOWN) for name in names}


def describe_model(model: Any) -> dict[str, Any]:
    """What the manifest says of a fitted model."""
    return {
        "class": "FairRanker",
        "settings": encode_settings(model),
        "ranker_given": _how_given(model.ranker, model.ranker_),
        "features": {**describe_features(model), "types": model._feature_types},
        "groups": list(model.groups_),
        "constraint": _describe_constraint(model.constraint),
        "lambda": encode_array(model.lambda_),
        "pair_weights": encode_array(model.pair_weights_.table),
        "violation": encode_number(model.violation_),
        "outcome": model.outcome_.name,
        "history": [describe_round(each) for each in model.history_],
        "training": {**model._training, "digest": model.training_digest_},
    }


def read_model(kind: Any, entry: Entry, rankers: Mapping[str, Any], fitted: Any) -> Any:
    """The model again.

    Parameters
    ----------
    kind : class, that of the model
    entry : Entry, what `describe_model` gave
    rankers : mapping, what `ranker` was, by how it was given: see `_how_given`
    fitted : the ranker that was fitted
    """
    given = entry.text("ranker_given")
    if given not in rankers:
        raise entry.refuse("ranker_given", show(given))
    names = tuple(name for name in kind._get_param_names() if name not in _NOT_SAVED)
    settings = _renamed_settings(entry.entry("settings")).settings(names, _KNOWN)
    model = build(kind, {"ranker": rankers[given], **settings}, "settings")
    features = entry.entry("features")
    restore_features(model, features)
    if model.n_features_in_ != fitted.n_features_in_:
        raise features.refuse("number", f"other than the ranker's {fitted.n_features_in_}")
    types = features.get("types")
    model._feature_types = types if isinstance(types, str) else [*features.texts("types")]
    model.groups_ = entry.texts("groups")
    k = len(model.groups_)
    try:
        table = PairWeights(entry.array("pair_weights", ((k, k),)), model.groups_)
    except ModelFileError:
        raise
    except InputError as error:
        raise entry.refuse("pair_weights", f"not usable: {error}") from error
    training = entry.entry("training")
    model.ranker_ = fitted
    model.pair_weights_ = table
    model.lambda_ = entry.array("lambda", ((k, k), (k,)))
    model.violation_ = entry.number("violation")
    model.outcome_ = _read_outcome(entry)
    model.history_ = tuple(read_round(each, k) for each in entry.entries("history"))
    model.training_digest_ = training.text("digest")
    model._training = {name: training.count(name) for name in ("items", "queries")}
    model._trained_on = None
    return model


def _renamed_settings(stored: Entry) -> Entry:
    """The settings under today's names: format 1 calls `enumeration` "pairs"."""
    renamed = {"pairs": "enumeration"}
    return Entry(
        {renamed.get(key, key): value for key, value in stored.values.items()}, stored.where
    )


def _how_given(given: Any, ranker: Any) -> str:
    """Whether a ranker was left out, made by the caller, or made around an engine's model."""
    if given is None:
        return "default"
    return "adapter" if isinstance(given, type(ranker)) else "wrapped"


def _describe_constraint(given: Any) -> dict[str, Any]:
    """A constraint in words, for whoever reads the manifest."""
    if isinstance(given, NotStored):
        return {"name": given.what}
    constraint = as_constraint(given)
    if not isinstance(constraint, PairwiseConstraint):
        return {"name": constraint.name or repr(constraint)[:200]}
    said = {name: getattr(constraint, name) for name in ("name", "average", "only", "target")}
    return {
        **{name: encode(value, {}) for name, value in said.items()},
        "soft": bool(constraint.soft),
        "pairs": constraint.pairs,
        "compares": constraint.cells,
    }


def _read_outcome(entry: Entry) -> Outcome:
    name = entry.text("outcome")
    if name not in Outcome.__members__:
        raise entry.refuse("outcome", show(name))
    return Outcome[name]
