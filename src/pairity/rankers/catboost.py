"""CatBoostPairRanker: CatBoost's own pairwise loss on a list of weighted pairs."""

import tempfile
from pathlib import Path
from typing import Any, Self

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from pairity._utils.json_codec import Entry, Place, build, to_plain
from pairity._utils.typing import Array
from pairity._utils.validation import show
from pairity.data.queries import Queries
from pairity.exceptions import InputError
from pairity.pairs.enumeration import iter_weighted_pairs
from pairity.rankers._engines import EngineRanker, as_engine_matrix
from pairity.rankers._evaluation_sets import SET_PARAMETERS, read_evaluation_sets

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
_N_TREES = ("iterations", "num_boost_round", "n_estimators", "num_trees")
_STOPPING = (
    "early_stopping_rounds", "od_type", "od_wait", "od_pval", "use_best_model",
    "best_model_min_trees",
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
        or "PairLogitPairwise". CatBoost's default, YetiRank, draws its pairs itself and gives them
        no weights. The default cannot be distinguished from an explicit YetiRank, so PairLogit
        replaces both. Nothing is printed or written to files unless the estimator asks for it.

    Attributes
    ----------
    model_ : catboost.CatBoostRanker
        The fitted model, which predicts and is saved without pairity.
    best_iteration_ : int, the best iteration on the evaluation set, from 0; None without a set
    n_features_in_ : int

    Notes
    -----
    The weight of a pair is W times the weights of its items and its query, divided by the mean
    over pairs, so that an L2 penalty does not depend on the scale. Pairs of weight 0 are left out.

    With an evaluation set, CatBoost chooses the number of trees of the plain ranker by early
    stopping or as the best iteration, and reweighted rounds train as many.

    CatBoost takes its pairs as a list. Building the list took 1.6 to 3 s and about 0.1 GB of memory
    per million pairs (measured up to 24.5 million). It is built once for all rounds, and later
    rounds only set the weights. LightGBM and XGBoost need no such list. With many pairs,
    ``leaf_estimation_iterations=1`` makes a tree several times cheaper.

    Numerical features are also binned once for all rounds. With up to 200,000 rows, the model is
    CatBoost's own to the last bit. With more rows, CatBoost draws 200,000 to choose the bins from,
    and here it draws others than in its own `fit`. Categorical, text and embedding features are
    prepared in every round, because CatBoost trains a different model, or none, on a Pool that
    contains them binned.
    """

    file_name = "ranker.cbm"
    engine = ("catboost", "CatBoostRanker")
    libraries = ("catboost",)
    fit_parameters = (*SET_PARAMETERS, *_DATA_PARAMETERS, *_TRAINING_PARAMETERS)

    def __init__(self, estimator: Any = None) -> None:
        self.estimator = estimator

    def __sklearn_clone__(self) -> Self:
        # CatBoost returns copies of its parameters, which sklearn.base.clone mistakes for changes.
        estimator = self.estimator
        if hasattr(estimator, "get_params") and not isinstance(estimator, type):
            estimator = type(estimator)().set_params(**estimator.get_params())
        return type(self)(estimator)

    def fit_pairs(
        self, queries: Queries, weights: Array, *, previous: Any = None, **fit_params: Any
    ) -> Self:
        """Train on weighted pairs; see `pairity.rankers.Ranker`.

        `fit_params` are those of `CatBoostRanker.fit`: categorical, text and embedding features,
        early stopping, output, callbacks, and ``eval_set``: a Pool or (X, y), or a list of them,
        (X, y) with ``eval_qid``. All pairs of an evaluation set have weight 1. With an evaluation
        set, this trains as many trees as `previous` kept, and does not stop early: the metric may
        fall because the weights moved.
        """
        self._begin_fit(queries)
        estimator = self._checked_estimator(fit_params)
        params = estimator.get_params()
        if isinstance(previous, type(self)) and fit_params.get("eval_set") is not None:
            params = {name: params[name] for name in params if name not in (*_N_TREES, *_STOPPING)}
            params["iterations"] = max(1, previous.model_.tree_count_)
            fit_params = {**fit_params, "early_stopping_rounds": None, "use_best_model": False}
        model = type(estimator)().set_params(**_checked_params(params, fit_params))
        train, evaluation, _ = _pools(self._library(), queries, weights, model, fit_params)
        blocks = [weight for *_, weight in iter_weighted_pairs(queries, weights)]
        train.set_pairs_weight(np.concatenate(blocks))
        options = {name: fit_params[name] for name in _TRAINING_PARAMETERS if name in fit_params}
        model.fit(train, eval_set=evaluation or None, **options)
        self.model_ = model
        self.best_iteration_ = model.get_best_iteration()
        return self

    def _scores(self, features: Any) -> Array:
        """Return the scores of the trees up to the best iteration."""
        threads = self.model_.get_param("thread_count") or -1
        scores = self.model_.predict(_readable(features), thread_count=threads)
        return np.asarray(scores, dtype=np.float64)

    def _to_native(self) -> tuple[dict[str, Any], bytes]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, self.file_name)
            self.model_.save_model(str(path), format="cbm")
            data = path.read_bytes()
        n_threads = self.model_.get_param("thread_count")
        return {"best_iteration": to_plain(self.best_iteration_), "n_threads": n_threads}, data

    def _read_state(self, state: Entry) -> None:
        best = state.get("best_iteration")
        self.best_iteration_ = None if best is None else state.count("best_iteration")
        self._n_threads = state.read("n_threads", int | None)

    def _read_model(self, data: bytes) -> tuple[Any, int]:
        # CatBoost's files begin with its mark and the length of the rest.
        if data[:4] != b"CBM1" or int.from_bytes(data[4:8], "little") > len(data) - 8:
            raise ValueError("it does not begin like CatBoost's files")
        options = {} if self._n_threads is None else {"thread_count": self._n_threads}
        model = self._engine_class()(**options)
        model.load_model(blob=data)
        return model, len(model.feature_names_)

    @classmethod
    def _make_estimator(cls, params: dict[str, Any], place: Place) -> Any:
        def rebuilt(**settings: Any) -> Any:
            return cls._engine_class()().set_params(**settings)

        rebuilt.__name__ = cls.engine[1]
        return build(rebuilt, params, place)


def _checked_params(params: dict[str, Any], fit_params: dict[str, Any]) -> dict[str, Any]:
    """Return the caller's parameters, with a loss that has pair weights."""
    chosen = params.get("loss_function", _DEFAULT_LOSS)
    params["loss_function"] = _pair_loss(params.pop("objective", chosen))
    if params.get("save_snapshot"):
        raise InputError(
            "save_snapshot would make every round of reweighting continue from the trees of the "
            "round before. Remove it."
        )
    if "train_dir" not in params:
        params.setdefault("allow_writing_files", False)
    if not any(name in params or fit_params.get(name) is not None for name in _OUTPUT):
        params["logging_level"] = "Silent"
    return params


def _pair_loss(chosen: Any) -> str:
    if not isinstance(chosen, str):
        raise InputError(
            f"The CatBoostRanker has a custom loss ({show(chosen)}), but CatBoost passes a custom "
            "loss a few items at a time, never a pair with its weight. Remove it, or use "
            "loss_function='PairLogit'."
        )
    name, _, options = chosen.partition(":")
    if chosen == _DEFAULT_LOSS:
        return "PairLogit"
    if name not in _LOSSES:
        raise InputError(
            f"CatBoostRanker(loss_function={chosen!r}) has no weights for pairs. Remove the loss, "
            "or use 'PairLogit' or 'PairLogitPairwise'."
        )
    if "max_pairs" in options:
        raise InputError(
            f"loss_function={chosen!r} limits the pairs that CatBoost draws itself, and has no "
            f"effect on weighted pairs. Use {name!r} with fewer or shorter queries, or another "
            "engine's ranker, which needs no list of pairs."
        )
    return chosen


def _pools(
    cb: Any, queries: Queries, weights: Array, model: Any, fit_params: dict[str, Any]
) -> tuple[Any, list[Any], Any]:
    """Return the Pool of these queries and their pairs, and the Pools of the evaluation sets.

    They are built once and cached with the queries. The third value keeps alive the objects whose
    ids are in the key of the cache.
    """
    positive = queries.pad(weights) > 0
    options = {
        name: columns
        for name in _DATA_PARAMETERS
        if (columns := fit_params.get(name, model.get_param(name))) is not None
    }
    binning = None if any(options.values()) else _binning(model)
    options["thread_count"] = model.get_param("thread_count") or -1
    sets = {name: fit_params.get(name) for name in SET_PARAMETERS}

    def make() -> tuple[Any, list[Any], Any]:
        contiguous = np.count_nonzero(np.diff(queries.query)) == queries.n_queries - 1
        ordered = queries if contiguous else queries.by_query()[0]
        train = _pool(cb, ordered, options, pairs=_pairs(ordered, positive))
        if binning is not None:
            train.quantize(**binning)
        return train, _evaluation(cb, sets, options), sets

    settings = repr(options), repr(binning), positive.tolist(), list(map(id, sets.values()))
    return queries.cached("catboost", settings, make)


def _binning(model: Any) -> dict[str, Any] | None:
    """Return the model's options for binning; None on a GPU, where this is untested."""
    params = model.get_params()
    if params.get("task_type") == "GPU":
        return None
    binning = {name: params[name] for name in _BINNING_PARAMETERS if name in params}
    binning["random_seed"] = params.get("random_seed", params.get("random_state"))
    if params["loss_function"].startswith("PairLogitPairwise") and "max_bin" not in params:
        binning.setdefault("border_count", 32)  # CatBoost's default for this loss; otherwise 254
    return binning


def _pool(cb: Any, queries: Queries, options: dict[str, Any], **more: Any) -> Any:
    return cb.Pool(_readable(queries.X), queries.y, group_id=queries.query, **options, **more)


def _evaluation(cb: Any, sets: dict[str, Any], options: dict[str, Any]) -> list[Any]:
    """Return evaluation sets as CatBoost takes them; it forms their pairs itself, of weight 1."""
    eval_set = sets["eval_set"]
    listed = eval_set if isinstance(eval_set, list) else [eval_set]
    is_pool = [isinstance(candidate, cb.Pool) for candidate in listed]
    if all(is_pool):
        return listed
    if any(is_pool):
        raise InputError(
            f"eval_set has {sum(is_pool)} Pools and {len(is_pool) - sum(is_pool)} pairs (X, y). "
            "Pass all sets in one form."
        )
    return [_pool(cb, held_out, options) for held_out in read_evaluation_sets(**sets)]


def _pairs(queries: Queries, positive: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the pairs of positive weight, as CatBoost's rows (winner, loser).

    Their order does not depend on the order of the queries' rows.
    """
    blocks = iter_weighted_pairs(queries, positive)
    return np.concatenate([np.column_stack(rows) for *rows, _ in blocks])


def _readable(X: Any) -> Any:
    """Return matrices and tables as CatBoost reads them."""
    table = nw.from_native(X, eager_only=True, pass_through=True)
    if not isinstance(table, nw.DataFrame) or table.implementation.is_pandas():
        return as_engine_matrix(X)
    if not table.implementation.is_polars():
        return table.to_pandas()
    categorical = [name for name, dtype in table.schema.items() if dtype == nw.Categorical]
    if categorical:  # CatBoost 1.2 uses an interface that polars 2 removed
        table = table.with_columns(nw.col(*categorical).cast(nw.String))
    return table.to_native()
