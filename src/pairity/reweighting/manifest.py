"""The entries of a fitted `FairRanker` in the manifest of a saved model (MODEL_FORMAT.md).

Rankers describe themselves; see `pairity.rankers._estimators`. `pairity.reweighting.persistence`
reads both.
"""

from dataclasses import dataclass
from typing import Any, Literal

from pairity._utils.json_codec import NotStored, encode, to_plain
from pairity._utils.typing import Array
from pairity.constraints import CATALOGUE, PairwiseConstraint, as_constraint
from pairity.rankers._estimators import describe_features
from pairity.reweighting.algorithm import Round
from pairity.reweighting.outcomes import FitOutcome
from pairity.reweighting.solvers import DampedStep, PlainStep

NOT_SETTINGS = ("ranker", "checkpoint")  # parameters that are not saved as settings
KNOWN_OBJECTS = {kind.__name__: kind for kind in (*CATALOGUE.values(), PlainStep, DampedStep)}


@dataclass(frozen=True, eq=False)
class TrainingData:
    """The size and the digest of the training data, and whether queries counted equally."""

    items: int
    queries: int
    equal_queries: bool
    digest: str


@dataclass(frozen=True, eq=False)
class SavedModel:
    """The manifest's entries about a `FairRanker`.

    Attributes
    ----------
    settings, constraint, features : dict from name to JSON
    ranker_given : str
        Whether `ranker` was None, an adapter, or an engine's model that was wrapped in one.
    """

    class_: Literal["FairRanker"]
    settings: dict[str, Any]
    ranker_given: Literal["default", "adapter", "wrapped"]
    features: dict[str, Any]
    groups: tuple[str, ...]
    constraint: dict[str, Any]
    lambda_: Array
    pair_weights: Array
    mirrored_weights: Array | None
    violation: float
    outcome: FitOutcome
    history: tuple[Round, ...]
    training: TrainingData


def encode_settings(model: Any, leave_out: tuple[str, ...] = NOT_SETTINGS) -> dict[str, Any]:
    """Encode the constructor's settings as JSON, except some."""
    settings = model.get_params(deep=False)
    return {
        name: encode(value, KNOWN_OBJECTS)
        for name, value in settings.items()
        if name not in leave_out
    }


def describe_model(model: Any) -> dict[str, Any]:
    """Describe a fitted model for its manifest."""
    kind = "adapter" if isinstance(model.ranker, type(model.ranker_)) else "wrapped"
    described: dict[str, Any] = to_plain(
        SavedModel(
            class_="FairRanker",
            settings=encode_settings(model),
            ranker_given="default" if model.ranker is None else kind,  # type: ignore[arg-type]
            features={**describe_features(model), "types": model._feature_types},
            groups=model.groups_,
            constraint=_describe_constraint(model.constraint),
            lambda_=model.lambda_,
            pair_weights=model.pair_weights_.table,
            mirrored_weights=model.pair_weights_.mirrored,
            violation=float(model.violation_),
            outcome=model.outcome_,
            history=model.history_,
            training=TrainingData(**model._training, digest=model.training_digest_),
        )
    )
    return described


def _describe_constraint(setting: Any) -> dict[str, Any]:
    """Describe a constraint for readers of the manifest; loading uses the settings."""
    if isinstance(setting, NotStored):
        return {"name": setting.what}
    constraint = as_constraint(setting)
    if not isinstance(constraint, PairwiseConstraint):
        return {"name": constraint.name or repr(constraint)[:200]}
    names = ("name", "average", "only", "target", "soft", "pairs")
    described = {name: encode(getattr(constraint, name), {}) for name in names}
    return {**described, "compares": constraint.cells}
