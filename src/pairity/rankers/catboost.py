"""CatBoostPairRanker: CatBoost's own pairwise loss, on a list of weighted pairs."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import narwhals as nw
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pairity._utils.json_codec import Entry, Place, build
from pairity._utils.typing import Array
from pairity._utils.validation import show
from pairity.data.queries import Queries, require_preferences
from pairity.exceptions import InputError
from pairity.pairs.enumeration import iter_weighted_pairs, n_weighted_pairs
from pairity.rankers._boosting import (
    EngineRanker,
    import_engine,
    read_evaluation_sets,
    refuse_unknown,
    unreadable,
)
from pairity.rankers._estimators import remember_features

_DATA_PARAMETERS = ("cat_features", "text_features", "embedding_features")
_BINNING_PARAMETERS = (
    "border_count", "max_bin", "feature_border_type", "nan_mode", "input_borders",
    "per_float_feature_quantization", "ignored_features", "sparse_features_conflict_fraction",
    "dev_max_subset_size_for_build_borders", "used_ram_limit",
)  # fmt: skip
_TRAINING_PARAMETERS = (
    "early_stopping_rounds", "use_best_model", "callbacks", "verbose", "verbose_eval",
    "logging_level", "silent", "metric_period",
)  # fmt: skip
_FIT_PARAMETERS = (
    "eval_set", "eval_qid", "eval_group", *_DATA_PARAMETERS, *_TRAINING_PARAMETERS,
)  # fmt: skip
_OUTPUT = ("verbose", "verbose_eval", "logging_level", "silent")
_LOSSES = ("PairLogit", "PairLogitPairwise")
_DEFAULT_LOSS = "YetiRank"


class CatBoostPairRanker(EngineRanker):
    """A `CatBoostRanker`, trained by CatBoost on weighted pairs.

    Parameters
    ----------
    estimator : catboost.CatBoostRanker
        Its parameters are CatBoost's own and all are used. ``loss_function`` may be "PairLogit"
        or "PairLogitPairwise"; CatBoost's default, YetiRank, draws pairs of its own, which have
        no weights, and cannot be told from a YetiRank that was asked for: PairLogit stands in for
        both. Nothing is printed, nor written to files, unless the estimator says so.

    Attributes
    ----------
    model_ : catboost.CatBoostRanker
        The fitted model, which predicts and is saved by itself.
    best_iteration_ : int, the best on the evaluation set, from 0; None without one
    n_features_in_ : int

    Notes
    -----
    A pair weighs W times its items' weights and its query's, relative to the mean over pairs, so
    that an L2 penalty means the same whatever their scale. Pairs that weigh nothing are left out.

    CatBoost takes its pairs as a list. Building it took 1.6 to 3 s per million pairs and about
    0.1 GB of memory (measured up to 24.5 million); it is built once for all rounds, and later ones
    only set the weights. LightGBM and XGBoost need no such list. With many pairs,
    ``leaf_estimation_iterations=1`` makes a tree several times cheaper.

    Numerical features are binned once too, for all rounds. Up to 200,000 rows the model is then
    CatBoost's own to the last bit; of more rows CatBoost draws 200,000 to choose the bins by, and
    draws others than it would without this. Categorical, text and embedding features are prepared
    in every round, since a Pool that holds them binned trains another model, or none.
    """

    file_name = "ranker.cbm"
    engine = ("catboost", "CatBoostRanker")
    libraries = ("catboost",)

    def __init__(self, estimator: Any = None) -> None:
        self.estimator = estimator

    def __sklearn_clone__(self) -> Self:
        # CatBoost hands out copies of its parameters, which sklearn.base.clone takes for changes.
        given = self.estimator
        copied = type(given)().set_params(**given.get_params()) if _has_params(given) else given
        return type(self)(copied)

    def fit_pairs(
        self,
        queries: Queries,
        weights: Array,
        *,
        previous: Any = None,  # noqa: ARG002 - the pairs are kept with the queries
        **fit_params: Any,
    ) -> Self:
        """Train on weighted pairs; see `pairity.rankers.base.Ranker`.

        `fit_params` are those of `CatBoostRanker.fit`: categorical, text and embedding features,
        early stopping, output, callbacks, and ``eval_set``: a Pool or (X, y), or a list of such,
        (X, y) with ``eval_qid``. On an evaluation set every pair weighs 1.
        """
        cb = import_engine("catboost", "CatBoostPairRanker")
        if queries.X is None:
            raise InputError("The queries have no features. Build them with X.")
        require_preferences(queries)
        remember_features(self, queries.X, queries.y)
        refuse_unknown(fit_params, _FIT_PARAMETERS, "CatBoostRanker")
        model = _prepare(cb, self.estimator, fit_params)
        pools = _pools(cb, queries, weights, model, fit_params)
        pools.train.set_pairs_weight(_weights(queries, weights, pools.train.num_pairs()))
        options = {name: fit_params[name] for name in _TRAINING_PARAMETERS if name in fit_params}
        model.fit(pools.train, eval_set=pools.evaluation or None, **options)
        self.model_ = model
        self.best_iteration_ = model.get_best_iteration()
        return self

    def _scores(self, features: Any) -> Array:
        """Scores by the trees up to the best iteration."""
        threads = self.model_.get_param("thread_count") or -1
        scores = self.model_.predict(_readable(features), thread_count=threads)
        return np.asarray(scores, dtype=np.float64)

    def _to_native(self) -> tuple[dict[str, Any], bytes]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, self.file_name)
            self.model_.save_model(str(path), format="cbm")
            data = path.read_bytes()
        best = self.best_iteration_
        state = {
            "best_iteration": None if best is None else int(best),
            "n_threads": self.model_.get_param("thread_count"),
        }
        return state, data

    def _from_native(self, state: Entry, data: bytes) -> None:
        threads = state.setting("n_threads")
        if threads is not None and type(threads) is not int:
            raise state.refuse("n_threads", show(threads))
        model = self._engine_class()(**({} if threads is None else {"thread_count": threads}))
        try:
            if not _is_cbm(data):
                raise ValueError("it does not begin as CatBoost's files do")
            model.load_model(blob=data)
            n_features = len(model.feature_names_)
        except Exception as error:
            raise unreadable(self.file_name, error) from error
        if n_features != self.n_features_in_:
            raise unreadable(self.file_name, f"{n_features} features, not {self.n_features_in_}")
        self.model_ = model
        best = state.get("best_iteration")
        self.best_iteration_ = None if best is None else state.count("best_iteration")

    @classmethod
    def _make_estimator(cls, params: dict[str, Any], place: Place) -> Any:
        def rebuilt(**settings: Any) -> Any:
            return cls._engine_class()().set_params(**settings)

        rebuilt.__name__ = cls.engine[1]
        return build(rebuilt, params, place)


def _is_cbm(data: bytes) -> bool:
    """Whether it begins with CatBoost's mark and the length of what follows, as its files do."""
    return data[:4] == b"CBM1" and int.from_bytes(data[4:8], "little") <= len(data) - 8


def _prepare(cb: Any, given: Any, fit_params: dict[str, Any]) -> Any:
    """A fresh CatBoostRanker with the caller's parameters, and a loss that has pair weights."""
    if given is None:
        given = cb.CatBoostRanker()
    if not isinstance(given, cb.CatBoostRanker):
        raise InputError(
            f"CatBoostPairRanker trains a CatBoostRanker, not {show(given)}. Pass "
            "CatBoostRanker(...) with the same parameters."
        )
    params = given.get_params()
    chosen = params.get("loss_function", _DEFAULT_LOSS)
    params["loss_function"] = _pair_loss(params.pop("objective", chosen))
    if params.get("save_snapshot"):
        raise InputError(
            "save_snapshot would have every round of reweighting go on from the last one's trees, "
            "not from none. Leave it out."
        )
    if "train_dir" not in params:
        params.setdefault("allow_writing_files", False)
    if not any(name in params or fit_params.get(name) is not None for name in _OUTPUT):
        params["logging_level"] = "Silent"
    return type(given)().set_params(**params)


def _pair_loss(chosen: Any) -> str:
    if not isinstance(chosen, str):
        raise InputError(
            f"The CatBoostRanker has a loss of its own ({show(chosen)}), but CatBoost shows such a "
            "loss a few items at a time, never a pair with its weight. Leave it out, or use "
            "loss_function='PairLogit'."
        )
    name, _, options = chosen.partition(":")
    if chosen == _DEFAULT_LOSS:
        return "PairLogit"
    if name not in _LOSSES:
        raise InputError(
            f"CatBoostRanker(loss_function={chosen!r}) has no weights for pairs. Leave the loss "
            "out, or use 'PairLogit' or 'PairLogitPairwise'."
        )
    if "max_pairs" in options:
        raise InputError(
            f"loss_function={chosen!r} limits the pairs that CatBoost draws by itself; it has no "
            f"effect on the weighted pairs it is given. Use {name!r}, with fewer or shorter "
            "queries, or another engine's ranker, which needs no list of pairs."
        )
    return chosen


@dataclass(frozen=True, eq=False)
class _Pools:
    """CatBoost's data: with pairs to train on, and to evaluate on."""

    train: Any
    evaluation: list[Any]
    held: Any  # what the cache tells evaluation sets apart by must not be freed and reused


def _pools(
    cb: Any, queries: Queries, table: Array, model: Any, fit_params: dict[str, Any]
) -> _Pools:
    """The data of these queries with their list of pairs, built once and kept with them."""
    weighs = queries.pad(table) > 0
    options = {
        name: given
        for name in _DATA_PARAMETERS
        if (given := fit_params.get(name, model.get_param(name))) is not None
    }
    binning = None if any(options.values()) else _binning(model)
    options["thread_count"] = model.get_param("thread_count") or -1
    sets = {name: fit_params.get(name) for name in ("eval_set", "eval_qid", "eval_group")}

    def make() -> _Pools:
        ordered, place = _together(queries)
        train = _pool(cb, ordered, options, pairs=_pairs(queries, weighs, place))
        if binning is not None:
            train.quantize(**binning)
        return _Pools(train, _evaluation(cb, sets, options), sets)

    settings = (
        repr(options),
        repr(binning),
        weighs.tolist(),
        [id(given) for given in sets.values()],
    )
    return queries.cached("catboost", settings, make)


def _binning(model: Any) -> dict[str, Any] | None:
    """How the model would have its features binned; None on a GPU, where we have not tried it."""
    params = model.get_params()
    if params.get("task_type") == "GPU":
        return None
    binning = {name: params[name] for name in _BINNING_PARAMETERS if name in params}
    binning["random_seed"] = params.get("random_seed", params.get("random_state"))
    if params["loss_function"].startswith("PairLogitPairwise") and "max_bin" not in params:
        binning.setdefault("border_count", 32)  # CatBoost's default for this loss; else it is 254
    return binning


def _pool(cb: Any, queries: Queries, options: dict[str, Any], **more: Any) -> Any:
    return cb.Pool(_readable(queries.X), queries.y, group_id=queries.query, **options, **more)


def _evaluation(cb: Any, sets: dict[str, Any], options: dict[str, Any]) -> list[Any]:
    """Evaluation sets as CatBoost takes them; it makes the pairs there itself, each weighing 1."""
    given = sets["eval_set"]
    listed = given if isinstance(given, list) else [given]
    ready = [isinstance(one, cb.Pool) for one in listed]
    if all(ready):
        return listed
    if any(ready):
        raise InputError(
            f"eval_set has {sum(ready)} Pools and {len(ready) - sum(ready)} pairs (X, y). Give all "
            "in one form."
        )
    return [_pool(cb, held, options) for held in read_evaluation_sets(**sets)]


def _together(queries: Queries) -> tuple[Queries, NDArray[np.int64] | None]:
    """The queries with the rows of each together, and where each row went, if any was moved."""
    if np.count_nonzero(np.diff(queries.query)) == queries.n_queries - 1:
        return queries, None
    ordered, rows = queries.by_query()
    place = np.empty_like(rows)
    place[rows] = np.arange(len(rows))
    return ordered, place


def _pairs(
    queries: Queries, weighs: NDArray[np.bool_], place: NDArray[np.int64] | None
) -> NDArray[np.int64]:
    """The pairs that weigh something, as CatBoost's rows (winner, loser)."""
    pairs = np.empty((n_weighted_pairs(queries, weighs), 2), dtype=np.int64)
    at = 0
    for preferred, other, _ in iter_weighted_pairs(queries, weighs):
        part = pairs[at : at + len(preferred)]
        part[:, 0] = preferred if place is None else place[preferred]
        part[:, 1] = other if place is None else place[other]
        at += len(preferred)
    return pairs


def _weights(queries: Queries, table: Array, n_pairs: int) -> Array:
    """What the pairs weigh, in the same order."""
    weights, at = np.empty(n_pairs), 0
    for _, _, weight in iter_weighted_pairs(queries, table):
        weights[at : at + len(weight)] = weight
        at += len(weight)
    return weights


def _readable(X: Any) -> Any:
    """Matrices and tables as CatBoost knows them."""
    if isinstance(X, sp.csr_array):
        return sp.csr_matrix(X)
    table = nw.from_native(X, eager_only=True, pass_through=True)
    if not isinstance(table, nw.DataFrame) or table.implementation.is_pandas():
        return X
    if not table.implementation.is_polars():
        return table.to_pandas()
    categorical = [name for name, dtype in table.schema.items() if dtype == nw.Categorical]
    if categorical:  # CatBoost 1.2 asks polars 2 for what it no longer has
        table = table.with_columns(nw.col(*categorical).cast(nw.String))
    return table.to_native()


def _has_params(given: Any) -> bool:
    return hasattr(given, "get_params") and not isinstance(given, type)
