"""The part that all scikit-learn estimators of pairity share: features, score, saving."""

import io
import os
import platform
import warnings
import zipfile
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from inspect import signature
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from pairity._utils.json_codec import Entry, build, encode, require_stored
from pairity._utils.model_folder import write_model
from pairity._utils.typing import Array
from pairity._utils.validation import show
from pairity.data.checks import require_features, require_preferences
from pairity.data.features import as_features, as_raw_features, require_finite
from pairity.data.parquet_features import ParquetFeatures
from pairity.data.queries import Queries
from pairity.data.sources import is_dask, is_queries, open_queries, queries_type
from pairity.exceptions import InputError, ModelFileError
from pairity.pairs.cells import mean_auc
from pairity.pairs.losses import LOSSES

_LOSS_CLASSES = {kind.__name__: kind for kind in LOSSES.values()}


def remember_queries(estimator: Any, queries: Any, ready: bool = True) -> None:
    """Set ``n_features_in_`` and, for named columns, ``feature_names_in_``.

    `ready` says that the caller passed queries, whose matrix of features carries no names.
    """
    estimator._fitted_on_queries = ready
    estimator.n_features_in_ = queries.n_features
    vars(estimator).pop("feature_names_in_", None)
    if queries.feature_names is not None:
        estimator.feature_names_in_ = np.array(queries.feature_names, dtype=object)


def require_same_features(estimator: Any, names: tuple[str, ...] | None, n_features: int) -> None:
    """Refuse other features than those the estimator was fitted on."""
    expected = getattr(estimator, "feature_names_in_", None)
    if names is not None and expected is not None and names != tuple(expected):
        differences = (
            f"; column {column} is {show(name)} instead of {show(other)}"
            for column, (name, other) in enumerate(zip(names, expected, strict=False))
            if name != other
        )
        raise InputError(
            f"X has {len(names)} features, but the model was fitted on {len(expected)}"
            f"{next(differences, '')}. Pass the same columns in the same order; for files, "
            "read_parquet(features=[...])."
        )
    if n_features != estimator.n_features_in_:
        raise InputError(
            f"X has {n_features} features, but {type(estimator).__name__} is expecting "
            f"{estimator.n_features_in_} features as input."
        )


def read_features(estimator: Any, X: Any, *, raw: bool = False) -> Any:
    """Return a checked feature matrix, or table, with the columns of the fit."""
    if isinstance(X, Queries):
        require_same_features(estimator, X.feature_names, X.n_features)
        return X.X
    features, _ = as_raw_features(X) if raw else as_features(X)
    if isinstance(X, ParquetFeatures):
        require_same_features(estimator, X.names, X.shape[1])
        return X
    try:
        with warnings.catch_warnings():
            if getattr(estimator, "_fitted_on_queries", False):
                warnings.filterwarnings("ignore", "X does not have valid feature names")
            validate_data(estimator, X, reset=False, skip_check_array=True)
    except (TypeError, ValueError) as error:
        raise InputError(str(error)) from error
    return features


def require_streams(ranker: Any, X: Any) -> None:
    """Refuse features in files for a ranker that needs them in memory to train."""
    if isinstance(X, ParquetFeatures) and not getattr(ranker, "streams", False):
        raise InputError(
            f"{type(ranker).__name__} needs its features in memory to train, but they are in "
            "Parquet files. LinearRanker, LightGBM and XGBoost train on files. If memory "
            "suffices, read the features first: fit(**queries.in_memory())."
        )


def predict_in_blocks(
    predict: Callable[[Any], Array], features: ParquetFeatures, *, raw: bool
) -> Array:
    """Apply a function of features to files, block by block, and return the scores."""
    scores = np.empty(len(features))
    for rows, block in features.blocks():
        if not raw:
            require_finite(block, features.names, rows.start)
        scores[rows] = predict(np.ascontiguousarray(block, dtype=np.float64))
    return scores


def require_stored_size(data: bytes) -> None:
    """Refuse a ZIP file that would grow when it is unpacked; pairity's are not compressed."""
    with zipfile.ZipFile(io.BytesIO(data)) as parts:
        if sum(part.file_size for part in parts.infolist()) > len(data):
            raise ValueError("it would grow when it is unpacked")


@dataclass(frozen=True, eq=False)
class Stored:
    """A fitted estimator in the form in which it is saved.

    Attributes
    ----------
    content : dict, its part of the manifest
    files : dict from file name to bytes
    libraries : tuple of str, the distributions whose versions are recorded
    """

    content: dict[str, Any]
    files: dict[str, bytes]
    libraries: tuple[str, ...]


def describe_features(estimator: Any) -> dict[str, Any]:
    """Return the number and the names of the features of a fit, for the manifest."""
    names = getattr(estimator, "feature_names_in_", None)
    return {
        "number": int(estimator.n_features_in_),
        "names": None if names is None else [str(name) for name in names],
    }


def restore_features(estimator: Any, entry: Entry) -> None:
    """Set the attributes that `describe_features` wrote."""
    estimator.n_features_in_ = entry.count("number")
    if entry.get("names") is not None:
        names = entry.read("names", tuple[str, ...])
        if len(names) != estimator.n_features_in_:
            raise entry.refuse("names", f"{len(names)} names for {estimator.n_features_in_}")
        estimator.feature_names_in_ = np.array(names, dtype=object)


def require_spreads(ranker: Any) -> None:
    """Refuse a ranker that does not train on Dask collections."""
    if not getattr(ranker, "spreads", False):
        raise InputError(
            f"{type(ranker).__name__} does not train on Dask collections. LinearRanker, "
            "DaskLGBMRanker and DaskXGBRanker do."
        )


class RankingEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator that scores items. It takes sparse features, and its score is the AUC."""

    @abstractmethod
    def predict(self, X: Any) -> Array:
        """Return scores of shape (n_items,), in the order of the rows."""

    def score(
        self, X: Any, y: Any = None, *, qid: Any = None, group: Any = None,
        sample_weight: Any = None, query_weight: Any = None,
    ) -> float:  # fmt: skip
        """Return the AUC per query, averaged over queries; the arguments are those of `fit`."""
        scores = self.predict(X)
        columns = {
            "X": X, "y": y, "qid": qid, "group": group, "sample_weight": sample_weight,
            "query_weight": query_weight,
        }  # fmt: skip
        if queries_type(columns).distributed:
            raise InputError("score needs data in memory. Use pairity.audit on Dask collections.")
        with open_queries(columns, raw=True) as queries:
            require_preferences(queries)
            return mean_auc(queries, scores)

    @abstractmethod
    def to_files(self) -> Stored:
        """Return the fitted estimator as content of a manifest and files."""

    def save(
        self, path: str | os.PathLike[str], *, also: Mapping[str, bytes] | None = None
    ) -> None:
        """Save the fitted model as a folder for `pairity.load`. Nothing in it is pickled.

        Parameters
        ----------
        path : str or path
            A folder that does not exist, an empty folder, or a saved model, which is replaced.
            It is written completely or not at all.
        also : mapping from a file's name to its content, optional
            Further files to store with the model, such as a report.

        Notes
        -----
        The folder contains the engine's own file and ``manifest.json``; MODEL_FORMAT.md describes
        both. It contains the names of features and groups, but no features, labels or groups of
        training items.
        """
        stored = self.to_files()
        content = {"versions": _versions(stored.libraries), **stored.content}
        if also:
            content["also"] = sorted(also)
        write_model(path, content, {**(also or {}), **stored.files})

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        return tags


class PairRanker(RankingEstimator):
    """An estimator that trains on weighted pairs; `fit` is `fit_pairs` with equal weights."""

    raw_features = False
    learnt: ClassVar[str] = "model_"  # the attribute that a fit sets
    streams: ClassVar[bool] = False  # whether it trains on features in files
    spreads: ClassVar[bool] = False  # whether it trains on queries of several machines
    file_name: ClassVar[str] = ""  # name of the engine's own file; empty if it cannot be saved
    memorises: ClassVar[bool] = True  # whether it may order its training queries far too well
    needs_module: ClassVar[bool] = False  # whether `load` needs a PyTorch module
    libraries: ClassVar[tuple[str, ...]] = ()

    @property
    def reversible(self) -> bool:
        """Whether it trains on two weight tables, the second for mirrored pairs."""
        loss = getattr(self, "loss", None)
        return loss is None or isinstance(loss, str) or bool(getattr(loss, "reversible", False))

    @abstractmethod
    def fit_pairs(
        self, queries: Queries, weights: Array, *, previous: Any = None, **fit_params: Any
    ) -> Self:
        """Fit on weighted pairs; see `pairity.rankers.Ranker`."""

    def _begin_fit(self, queries: Any) -> None:
        """Refuse queries without features or preference pairs, and remember the features."""
        require_features(queries)
        require_preferences(queries)
        remember_queries(self, queries)

    def fit(
        self, X: Any, y: Any = None, *, qid: Any = None, group: Any = None,
        sample_weight: Any = None, query_weight: Any = None, **fit_params: Any,
    ) -> Self:  # fmt: skip
        """Fit with equal weights; arguments as in `Queries.from_arrays`, or Queries as X.

        With ``query_weight="equal"``, see `Queries.with_equal_queries`.
        """
        require_stored(self)
        columns = {
            "X": X, "y": y, "qid": qid, "group": group, "sample_weight": sample_weight,
            "query_weight": query_weight,
        }  # fmt: skip
        if queries_type(columns).distributed:
            require_spreads(self)
        with open_queries(columns, raw=self.raw_features) as queries:
            require_features(queries)
            require_streams(self, queries.X)
            self.fit_pairs(queries, np.ones((queries.n_groups, queries.n_groups)), **fit_params)
            remember_queries(self, queries, is_queries(X))
        return self

    def predict(self, X: Any) -> Array:
        """Return scores of shape (n_items,) in the order of the rows; lazy for Dask collections."""
        check_is_fitted(self, self.learnt)
        if is_dask(X):
            from pairity.data.distributed.queries import lazy_scores

            return lazy_scores(self, X)  # type: ignore[no-any-return]
        features = read_features(self, X, raw=self.raw_features)
        if isinstance(features, ParquetFeatures):
            return predict_in_blocks(self._scores, features, raw=self.raw_features)
        return self._scores(features)

    @abstractmethod
    def _scores(self, features: Any) -> Array:
        """Return the scores of checked features."""

    # --- saving and loading ----------------------------------------------------------------------

    def to_files(self) -> Stored:
        """Return the ranker in the form in which it is saved; see `save`."""
        check_is_fitted(self)
        if not self.file_name or not type(self).__module__.startswith("pairity."):
            raise ModelFileError(
                f"pairity cannot save the ranker {type(self).__name__}. Save it with its own "
                "methods, and the weights in pair_weights_."
            )
        state, data = self._to_native()
        content = {
            "class": type(self).__name__,
            "file": self.file_name,
            "settings": self._encode_settings(),
            "features": describe_features(self),
            "state": state,
        }
        return Stored({"ranker": content}, {self.file_name: data}, self.libraries)

    @classmethod
    def from_files(cls, entry: Entry, files: Mapping[str, bytes], module: Any = None) -> Self:
        """Return the fitted ranker from the result of `to_files`; `module` is for PyTorch."""
        if entry.get("file") != cls.file_name or set(files) != {cls.file_name}:
            raise entry.refuse("file", f"other than the one file of a {cls.__name__}")
        ranker = cls.from_settings(entry.entry("settings"), files, module)
        restore_features(ranker, entry.entry("features"))
        ranker._from_native(entry.entry("state"), files[cls.file_name])
        return ranker

    @classmethod
    def from_settings(
        cls,
        entry: Entry,
        files: Mapping[str, bytes],  # noqa: ARG003 - RegressorRanker reads a setting from it
        module: Any = None,  # noqa: ARG003 - TorchRanker reads it
    ) -> Self:
        """Return the ranker, not fitted."""
        return build(cls, cls._decode_settings(entry), entry.place)  # type: ignore[no-any-return]

    def _encode_settings(self) -> dict[str, Any]:
        params = self.get_params(deep=False)
        return {name: encode(value, _LOSS_CLASSES) for name, value in params.items()}

    @classmethod
    def _decode_settings(cls, entry: Entry) -> dict[str, Any]:
        return entry.settings(tuple(signature(cls).parameters), _LOSS_CLASSES)

    def _to_native(self) -> tuple[dict[str, Any], bytes]:
        """Return the fitted state for the manifest, and the engine's own file."""
        raise NotImplementedError

    def _from_native(self, state: Entry, data: bytes) -> None:
        """Set the state and the model that `_to_native` returned."""
        raise NotImplementedError


def _versions(libraries: tuple[str, ...]) -> dict[str, str]:
    """Return the versions of the libraries that trained and saved a model."""
    import pairity

    versions = {"pairity": pairity.__version__, "python": platform.python_version()}
    return {**versions, **{name: _version(name) for name in ("numpy", *libraries)}}


def _version(name: str) -> str:
    for distribution in (name, f"{name}-cpu"):  # xgboost-cpu also installs xgboost
        with suppress(metadata.PackageNotFoundError):
            return metadata.version(distribution)
    return "unknown"
