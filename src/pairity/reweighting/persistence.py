"""load: read a saved model from its folder."""

import os
from typing import Any

from pairity._utils.json_codec import Entry, build, to_plain
from pairity._utils.model_folder import read_model
from pairity.exceptions import InputError
from pairity.rankers._estimators import restore_features
from pairity.rankers.adapters import ranker_class
from pairity.reweighting.checkpoints import require_shapes
from pairity.reweighting.fair_ranker import FairRanker
from pairity.reweighting.manifest import KNOWN_OBJECTS, NOT_SETTINGS, SavedModel
from pairity.reweighting.outcomes import FitOutcome, Outcome
from pairity.reweighting.weights import PairWeights

# Names of format 1, and what they are called now. `load` translates them before it reads anything.
FORMAT_1_SETTINGS = {"pairs": "enumeration"}  # parameters of FairRanker
FORMAT_1_ROUND = {"violation": "delta", "worst": "violation"}  # keys of a round
_ABSENT = to_plain(FitOutcome(Outcome.NO_ROUNDS))  # what format 1 does not record of an outcome
FORMAT_1_RANKERS: dict[str, tuple[str, dict[str, str]]] = {  # rankers and their parameters
    "NewtonRanker": ("RegressorRanker", {"regressor": "estimator"}),
    "TorchRanker": ("TorchRanker", {"module": "estimator"}),
}


def load(path: str | os.PathLike[str], *, module: Any = None) -> Any:
    """Load a model that `save` wrote: a fitted `FairRanker`, or a ranker that was saved alone.

    Parameters
    ----------
    path : str or path
        The folder.
    module : torch.nn.Module, optional
        For a PyTorch model, the module as it was constructed for training: the files hold its
        parameters, not its code. It is copied. A later `fit` starts from the parameters that the
        passed module has.

    Returns
    -------
    FairRanker or ranker
        Its predictions are those of the saved model, bit for bit. `export_pairs` and `path` need
        the training data again, because the files do not hold it. Settings that a file cannot
        hold (a function as constraint, a random number generator, validation data) are missing:
        such a model predicts, and `fit` raises an error that names the setting.

    Raises
    ------
    ModelFileError
        If a file is missing, unknown, changed or truncated, or if this version of pairity cannot
        read the manifest.
    MissingExtraError
        If the model's engine is not installed.

    Notes
    -----
    Nothing is unpickled, and no code in a file is run. The digests detect accidents. They cannot
    detect somebody who changes a file together with its digest, and engines are not hardened
    against malicious files: load models only from sources that you trust.

    Examples
    --------
    >>> import tempfile
    >>> import pairity
    >>> from pairity.datasets import make_biased_ranking
    >>> train = make_biased_ranking(50, 20, random_state=0).queries()
    >>> model = pairity.FairRanker().fit(**train)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/model")
    ...     loaded = pairity.load(f"{folder}/model")
    >>> bool((loaded.predict(train.X) == model.predict(train.X)).all())
    True
    """
    manifest, files = read_model(path)
    if manifest.count("format_version") == 1:
        _translate_format_1(manifest)
    for name in manifest.read("also", tuple[str, ...]) if "also" in manifest.values else ():
        files.pop(name, None)  # files beside the model, such as a report
    entry = manifest.entry("ranker")
    kind = ranker_class(entry)
    if module is not None and not kind.needs_module:
        raise InputError(
            f"module is for PyTorch models, but {str(path)!r} contains a {kind.__name__}. Leave "
            "it out."
        )
    fitted = kind.from_files(entry, files, module)
    if "model" not in manifest.values:
        return fitted
    return _restore(manifest, kind.from_settings(entry.entry("settings"), files, module), fitted)


def _translate_format_1(manifest: Entry) -> None:
    """Give the entries of a manifest of format 1 the names that they have now."""
    ranker = manifest.entry("ranker")
    name = ranker.read("class", str)
    ranker.values["class"], parameters = FORMAT_1_RANKERS.get(name, (name, {}))
    ranker.values["settings"] = _rename(ranker.entry("settings").values, parameters)
    if "model" in manifest.values:
        model = manifest.entry("model")
        model.values["settings"] = _rename(model.entry("settings").values, FORMAT_1_SETTINGS)
        if model.values["settings"].get("weighting") == "indicator":
            model.values["settings"]["weighting"] = "paper"
        model.values["mirrored_weights"] = None
        model.values["settings"]["max_loss"] = None
        model.values["outcome"] = {
            **_ABSENT,
            "kind": model.values.get("outcome"),
            "violation": model.values.get("violation"),
            "tolerance": model.values["settings"].get("tolerance"),
        }
        rounds = model.read("history", tuple[dict[str, Any], ...])
        unknown = {"utility": None, "noise_floor": None, "error": None, "usable": True}
        model.values["history"] = [{**_rename(r, FORMAT_1_ROUND), **unknown} for r in rounds]


def _rename(values: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in values.items()}


def _restore(manifest: Entry, ranker: Any, fitted: Any) -> FairRanker:
    """Restore a `FairRanker` from its entry, the unfitted ranker and the fitted one."""
    entry = manifest.entry("model")
    entry.entry("training").values.setdefault("equal_queries", False)  # older files do not have it
    saved: SavedModel = manifest.read("model", SavedModel)
    if saved.ranker_given == "wrapped":
        if not hasattr(ranker, "estimator"):
            raise entry.refuse("ranker_given", f"'wrapped', but {type(fitted).__name__} wraps none")
        ranker = ranker.estimator
    elif saved.ranker_given == "default":
        ranker = None
    names = tuple(name for name in FairRanker().get_params(deep=False) if name not in NOT_SETTINGS)
    settings = entry.entry("settings").settings(names, KNOWN_OBJECTS)
    model: FairRanker = build(FairRanker, {"ranker": ranker, **settings}, entry.place)
    features = entry.entry("features")
    restore_features(model, features)
    if model.n_features_in_ != fitted.n_features_in_:
        raise features.refuse("number", f"not the ranker's {fitted.n_features_in_}")
    types = features.read("types", str | tuple[str, ...])
    model._feature_types = types if isinstance(types, str) else list(types)
    k = len(saved.groups)
    require_shapes(saved.history, k, entry.place.child("history"))
    table = {
        "table": saved.pair_weights, "groups": saved.groups, "mirrored": saved.mirrored_weights
    }  # fmt: skip
    model.pair_weights_ = build(PairWeights, table, entry.place.child("pair_weights"))
    model.lambda_ = entry.array("lambda", ((k, k), (k,)))
    model.ranker_, model.groups_, model.history_ = fitted, saved.groups, saved.history
    model.violation_, model.outcome_ = saved.violation, saved.outcome
    model.training_digest_ = saved.training.digest
    model._training = {
        "items": saved.training.items, "queries": saved.training.queries,
        "equal_queries": saved.training.equal_queries,
    }  # fmt: skip
    model._trained_on = None
    return model
