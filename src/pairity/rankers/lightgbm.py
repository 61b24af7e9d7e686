"""LightGBMRanker: LightGBM's own training, on weighted pairs through a custom objective."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import narwhals as nw
import numpy as np
from joblib import effective_n_jobs

from pairity._utils.allreduce import current_peers
from pairity._utils.json_codec import Entry
from pairity._utils.threads import limit_threads
from pairity._utils.typing import Array
from pairity.data.parquet_features import ParquetFeatures
from pairity.data.queries import Queries
from pairity.exceptions import InputError
from pairity.pairs.losses import LambdaRank, Loss, as_loss
from pairity.rankers._boosting import Binned, BoosterRanker, Training
from pairity.rankers._engines import as_engine_matrix, draw_seed
from pairity.rankers._evaluation_sets import SET_PARAMETERS
from pairity.rankers._objective import Objective, TrackedScores
from pairity.rankers._streams import as_dataset

# All names of the parameters that pairity reads. The first of each tuple is LGBMRanker's own, and
# LightGBM prefers the others to it.
_OBJECTIVE = ("objective", "objective_type", "app", "application", "loss")
_BOOSTING = ("boosting_type", "boost", "boosting")
_N_TREES = (
    "n_estimators", "num_iteration", "n_iter", "num_tree", "num_trees", "num_round", "num_rounds",
    "nrounds", "num_boost_round", "max_iter", "num_iterations",
)  # fmt: skip
_THREADS = ("n_jobs", "num_thread", "nthread", "nthreads", "num_threads")
_STOPPING = (
    "early_stopping_round", "early_stopping_rounds", "early_stopping", "n_iter_no_change"
)  # fmt: skip
_SEED = ("random_state", "random_seed", "seed")
_METRIC = ("metrics", "metric_types", "metric")
_EVAL_AT = ("ndcg_eval_at", "ndcg_at", "map_eval_at", "map_at", "eval_at")
_NO_METRIC = ("", "none", "null", "na", "custom")
_POSITION_BIAS = "lambdarank_position_bias_regularization"
_LAMBDARANK = {
    "lambdarank_truncation_level": "k",
    "sigmoid": "sigma",
    "lambdarank_norm": "normalise",
}
_ARROW = (
    nw.Int8, nw.Int16, nw.Int32, nw.Int64, nw.UInt8, nw.UInt16, nw.UInt32, nw.UInt64, nw.Float32,
    nw.Float64, nw.Boolean,
)  # fmt: skip


class LightGBMRanker(BoosterRanker):
    """An `LGBMRanker`, trained by LightGBM on weighted pairs.

    Parameters
    ----------
    estimator : lightgbm.LGBMRanker
        Its parameters are LightGBM's own, under any of their names. Parameters that cannot be used
        are refused.
    loss : {"logistic", "lambdarank", "hinge", "bpr"} or Loss, optional
        The loss of a pair; see `pairity.pairs.losses`. The default is the estimator's objective:
        LambdaRank, with its truncation level, sigmoid, norm and label gains.

    Attributes
    ----------
    model_ : lightgbm.Booster
        The fitted model, which predicts and is saved without pairity.
    best_iteration_ : int, the iteration that early stopping chose; 0 without early stopping
    evals_result_ : dict, metrics on the evaluation sets by name

    Notes
    -----
    `fit` takes the parameters of `LGBMRanker.fit`: evaluation sets (with ``eval_qid``, or with
    LightGBM's ``eval_group``), their names and metrics, callbacks, categorical features. Early
    stopping chooses the number of trees of the plain ranker, and reweighted rounds train as many.

    The binned data are built once for all rounds. Pair weights are divided by their mean, so that
    an L2 penalty does not depend on their scale. Without ``n_jobs``, OpenMP chooses the number of
    threads. Nothing is printed unless ``verbose`` is set.
    """

    file_name = "ranker.txt"
    engine = ("lightgbm", "LGBMRanker")
    libraries = ("lightgbm",)
    fit_parameters = (
        *SET_PARAMETERS, "eval_names", "eval_metric", "eval_at", "callbacks",
        "categorical_feature", "feature_name",
    )  # fmt: skip

    def _scores(self, features: Any) -> Array:
        """Return the scores of the trees up to the best iteration."""
        scores = self.model_.predict(_readable(features), num_threads=self._n_threads)
        return np.asarray(scores, dtype=np.float64)

    def _to_native(self) -> tuple[dict[str, Any], bytes]:
        state = {**self._encode_evaluations(), "n_threads": int(self._n_threads)}
        return state, self.model_.model_to_string().encode()

    def _read_state(self, state: Entry) -> None:
        super()._read_state(state)
        self._n_threads = state.count("n_threads")

    def _read_model(self, data: bytes) -> tuple[Any, int]:
        if not data.startswith(b"tree\n"):
            raise ValueError("it does not begin like LightGBM's text files")
        booster = self._library().Booster(model_str=data.decode())
        return booster, booster.num_feature()

    def _boosting(self) -> str:
        return str(_take(_set_params(self.estimator), _BOOSTING, "gbdt"))

    def _train(self, queries: Queries, training: Training) -> None:
        follow, fit_params, measured_on, previous = training
        lgb, peers = self._library(), current_peers()
        params, n_trees, loss = self._parameters(self._checked_estimator(fit_params))
        requested = _listed(fit_params.get("eval_metric"))
        params.update(_metrics(params, requested, fit_params))
        self._n_threads = params["num_threads"]
        params["num_threads"] = params["num_threads"] or peers.n_threads
        binned = self._binned(queries, params, fit_params)
        callbacks, tracked = [*(fit_params.get("callbacks") or ())], None
        n_kept = 0 if previous is None else previous.best_iteration_
        if n_kept:
            n_trees = n_kept
            _take(params, _STOPPING)
            stopping = type(lgb.early_stopping(1, verbose=False))
            callbacks = [call for call in callbacks if not isinstance(call, stopping)]
        if measured_on is not None:
            tracked = _tracked_scores(measured_on, params["num_threads"])
            callbacks.append(lambda env: setattr(tracked, "booster", env.model))
        objective = Objective(
            binned.queries, loss, follow, n_total=n_trees, rows=binned.rows, measure=tracked
        )
        self.evals_result_ = {}
        if binned.evaluation:
            callbacks.append(lgb.record_evaluation(self.evals_result_))
        # LightGBM copies its parameters deeply, which leaves functions as they are.
        settings = {**peers.network, **params, "objective": lambda scores, _: objective(scores)}
        with limit_threads(params["num_threads"] or None):
            self.model_ = lgb.train(
                settings,
                binned.data,
                num_boost_round=n_trees,
                valid_sets=binned.evaluation,
                valid_names=_names(fit_params.get("eval_names"), len(binned.evaluation)),
                feval=[_as_feval(metric) for metric in requested if callable(metric)] or None,
                callbacks=callbacks,
            )
        if peers.network:
            self.model_.free_network()
        self.best_iteration_ = n_kept or max(self.model_.best_iteration, 0)

    def _parameters(self, estimator: Any) -> tuple[dict[str, Any], int, Loss]:
        """Return the parameters of LightGBM's training call, the number of trees and the loss."""
        params = _set_params(estimator)
        self._require_objective(_take(params, _OBJECTIVE, "lambdarank"), "lambdarank")
        params["boosting"] = _take(params, _BOOSTING, "gbdt")
        if params["boosting"] in ("rf", "random_forest"):
            raise InputError(
                "LightGBM grows random forests (boosting='rf') only with its own objectives, and "
                "these have no pair weights. Use boosting_type='gbdt', 'dart' or 'goss'."
            )
        if params.pop("class_weight", None) is not None:
            raise InputError(
                "class_weight has no effect, because a ranker has no classes. Remove it."
            )
        params.pop("importance_type", None)
        n_jobs = _take(params, _THREADS, 0)  # 0 leaves the choice to OpenMP, -1 means all cores
        params["num_threads"] = effective_n_jobs(n_jobs) if n_jobs < 0 else int(n_jobs)
        params["verbosity"] = _take(params, ("verbose", "verbosity"), -1)
        random_state = _take(params, _SEED)
        if random_state is not None:
            params["seed"] = draw_seed(random_state)
        n_trees = int(_take(params, _N_TREES))
        loss = _loss(params, self.loss)
        self._refuse_unused(params, (*_LAMBDARANK, _POSITION_BIAS), loss)
        return params, n_trees, loss

    def _binned(self, queries: Queries, params: Any, fit_params: Any) -> Binned:
        lgb, names = self._library(), ("categorical_feature", "feature_name")
        options = {name: fit_params[name] for name in names if name in fit_params}

        def make(ordered: Queries, reference: Any) -> Any:
            source, build = _readable(ordered.X), lgb.Dataset
            if isinstance(source, ParquetFeatures):
                options.setdefault("feature_name", list(source.names))
                build = partial(as_dataset, lgb)
            data = build(
                source, ordered.y, group=np.bincount(ordered.query), reference=reference,
                params=params, **options,
            )  # fmt: skip
            # In a cluster the booster must connect the peers first, and then constructs the data.
            return data if current_peers().network else data.construct()

        settings = repr(sorted(params.items())), repr(options)
        return self._bin_once(queries, settings, fit_params, make)


def _set_params(estimator: Any) -> dict[str, Any]:
    """Return the parameters that an estimator sets."""
    params = {} if estimator is None else estimator.get_params()
    return {name: value for name, value in params.items() if value is not None}


def _take(params: dict[str, Any], names: tuple[str, ...], default: Any = None) -> Any:
    """Remove a parameter under all its names, and return the value of the last name present."""
    return [default, *(params.pop(name) for name in names if name in params)][-1]


def _loss(params: dict[str, Any], loss: Any) -> Loss:
    """Return the chosen loss, or LambdaRank with the settings in the parameters."""
    if loss is None or loss == "lambdarank":
        gains = params.get("label_gain")  # not removed: the metric reads it too
        if isinstance(gains, str):
            gains = [float(gain) for gain in gains.split(",")]
        settings = {
            setting: params.pop(name) for name, setting in _LAMBDARANK.items() if name in params
        }
        return LambdaRank(gains=None if gains is None else tuple(gains), **settings)
    return as_loss(loss)


def _metrics(params: Any, requested: list[Any], fit_params: Any) -> dict[str, Any]:
    """Return the metrics on the evaluation sets: the requested ones and the parameters' own."""
    own = _take(params, _METRIC, "ndcg")
    own = own.split(",") if isinstance(own, str) else [*own]
    own = [name for name in own if str(name).lower() not in _NO_METRIC]
    named = [metric for metric in requested if not callable(metric)]
    metrics = [*named, *(name for name in own if name not in named)]
    has_sets = fit_params.get("eval_set") is not None
    chosen: dict[str, Any] = {"metric": metrics if metrics and has_sets else "None"}
    eval_at = fit_params.get("eval_at", _take(params, _EVAL_AT))
    if eval_at is not None:
        chosen["eval_at"] = eval_at if isinstance(eval_at, (str, int)) else [*eval_at]
    return chosen


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return [value] if isinstance(value, str) or callable(value) else [*value]


def _names(names: Any, n_sets: int) -> list[str] | None:
    listed = _listed(names)
    if listed and len(listed) != n_sets:
        raise InputError(
            f"eval_names has {len(listed)} names for {n_sets} sets. Pass one name per set."
        )
    return listed or None


def _tracked_scores(queries: Queries, n_threads: int) -> TrackedScores:
    def predict(booster: Any, first: int, X: Any) -> Any:
        return booster.predict(X, start_iteration=first, num_iteration=-1, num_threads=n_threads)

    return TrackedScores(queries, _readable, lambda booster: booster.current_iteration(), predict)


def _as_feval(metric: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """Convert a metric (y_true, y_pred[, weight[, group]]) to the form that LightGBM calls."""
    n_arguments = len(inspect.signature(metric).parameters)

    def call(scores: Any, data: Any) -> Any:
        rest = (data.get_weight(), data.get_group())
        return metric(data.get_label(), scores, *rest[: n_arguments - 2])

    return call


def _readable(X: Any) -> Any:
    """Return features as LightGBM reads them. Refuse columns that would end the whole process."""
    if type(X).__module__.partition(".")[0] in ("polars", "pyarrow"):
        for name, kind in nw.from_native(X, eager_only=True).schema.items():
            if kind not in _ARROW:
                raise InputError(
                    f"The column {name!r} is of type {kind}, which LightGBM cannot read from an "
                    "Arrow table. Pass numbers or booleans. Pass categories in a pandas table, or "
                    "as integers in a column that categorical_feature names."
                )
    return as_engine_matrix(X)
