"""LightGBMRanker: LightGBM's own training, on weighted pairs through its custom objective."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from numbers import Integral
from typing import Any

import narwhals as nw
import numpy as np
from joblib import effective_n_jobs

from pairity._utils.allreduce import current_peers
from pairity._utils.json_codec import Entry, encode
from pairity._utils.threads import limit_threads
from pairity._utils.typing import Array
from pairity.data.parquet_features import ParquetFeatures
from pairity.data.queries import Queries
from pairity.exceptions import InputError
from pairity.pairs.losses import LambdaRank, Loss, as_loss
from pairity.rankers._boosting import (
    Binned,
    BoosterRanker,
    Follow,
    Measured,
    Objective,
    build_once,
    import_engine,
    own_estimator,
    plain_dict,
    query_sizes,
    readable,
    refuse_idle,
    refuse_objective,
    refuse_unknown,
    unreadable,
)
from pairity.rankers._estimators import predict_in_blocks
from pairity.rankers._streams import as_dataset

_FIT_PARAMETERS = (
    "eval_set", "eval_qid", "eval_group", "eval_names", "eval_metric", "eval_at", "callbacks",
    "categorical_feature", "feature_name",
)  # fmt: skip
# All names of what we need to know; LightGBM lets the others win over LGBMRanker's own, the first.
_OBJECTIVE = ("objective", "objective_type", "app", "application", "loss")
_BOOSTING = ("boosting_type", "boost", "boosting")
_N_TREES = (
    "n_estimators", "num_iteration", "n_iter", "num_tree", "num_trees", "num_round", "num_rounds",
    "nrounds", "num_boost_round", "max_iter", "num_iterations",
)  # fmt: skip
_THREADS = ("n_jobs", "num_thread", "nthread", "nthreads", "num_threads")
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
        Its parameters are LightGBM's own, under any of their names; what cannot be carried over
        is refused.
    loss : {"logistic", "lambdarank", "hinge", "bpr"} or Loss, optional
        The loss of a pair; see `pairity.pairs.losses`. By default what the estimator's objective
        says:
        LambdaRank, with the truncation level, sigmoid, norm and label gains it has there.

    Attributes
    ----------
    model_ : lightgbm.Booster
        The fitted model, which predicts and is saved by itself.
    best_iteration_ : int, where early stopping ended; 0 without it
    evals_result_ : dict, what the metrics were on the evaluation sets, by name

    Notes
    -----
    `fit` takes what `LGBMRanker.fit` takes: evaluation sets (with ``eval_qid``, or ``eval_group``
    as LightGBM has it), their names and metrics, callbacks, categorical features.

    The binned data are built once for all rounds. Pair weights are relative to their mean, so that
    an L2 penalty means the same whatever their scale. Without ``n_jobs``, OpenMP decides how many
    threads there are. Nothing is printed unless ``verbose`` says so.
    """

    file_name = "ranker.txt"
    engine = ("lightgbm", "LGBMRanker")
    libraries = ("lightgbm",)

    def _scores(self, features: Any) -> Array:
        """Scores by the trees up to the best iteration."""
        scores = self.model_.predict(_readable(features), num_threads=self._n_threads)
        return np.asarray(scores, dtype=np.float64)

    def _to_native(self) -> tuple[dict[str, Any], bytes]:
        state = {
            "best_iteration": int(self.best_iteration_),
            "n_threads": int(self._n_threads),
            "evals_result": encode(plain_dict(self.evals_result_), {}),
        }
        return state, self.model_.model_to_string().encode()

    def _from_native(self, state: Entry, data: bytes) -> None:
        lgb = import_engine("lightgbm", "LightGBMRanker")
        try:
            if not data.startswith(b"tree\n"):
                raise ValueError("it does not begin as LightGBM's text files do")
            self.model_ = lgb.Booster(model_str=data.decode())
            n_features = self.model_.num_feature()
        except Exception as error:
            raise unreadable(self.file_name, error) from error
        if n_features != self.n_features_in_:
            raise unreadable(self.file_name, f"{n_features} features, not {self.n_features_in_}")
        self.best_iteration_ = state.count("best_iteration")
        self._n_threads = state.count("n_threads")
        self._read_evaluations(state)

    def _boosting(self) -> str:
        return str(_take(_given(self.estimator), _BOOSTING, "gbdt"))

    def _train(
        self, queries: Queries, follow: Follow, measured_on: Queries | None, fit_params: Any
    ) -> None:
        lgb = import_engine("lightgbm", "LightGBMRanker")
        refuse_unknown(fit_params, _FIT_PARAMETERS, "LGBMRanker")
        estimator = own_estimator(self.estimator, lgb.LGBMRanker, "LightGBMRanker")
        params, n_trees, loss = _parameters(estimator, self.loss)
        params.update(_metrics(params, fit_params))
        self._n_threads = params["num_threads"]
        params["num_threads"] = params["num_threads"] or current_peers().n_threads
        binned = _binned(lgb, queries, params, fit_params)
        callbacks = [*(fit_params.get("callbacks") or ())]
        measured = None
        if measured_on is not None:
            measured = _measured(measured_on, params["num_threads"])
            callbacks.append(lambda env: setattr(measured, "booster", env.model))
        objective = Objective(
            binned.queries, loss, follow, n_trees=n_trees, rows=binned.rows, measure=measured
        )

        def call(scores: Array, _data: Any) -> tuple[Any, Any]:
            return objective(scores)

        self.evals_result_: dict[str, Any] = {}
        if binned.evaluation:
            callbacks.append(lgb.record_evaluation(self.evals_result_))
        with limit_threads(params["num_threads"] or None):
            self.model_ = lgb.train(
                {**current_peers().network, **params, "objective": call},
                binned.data,
                num_boost_round=n_trees,
                valid_sets=binned.evaluation,
                valid_names=_names(fit_params.get("eval_names"), len(binned.evaluation)),
                feval=_feval(fit_params.get("eval_metric")),
                callbacks=callbacks,
            )
        if current_peers().network:
            self.model_.free_network()
        self.best_iteration_ = max(self.model_.best_iteration, 0)


def _given(estimator: Any) -> dict[str, Any]:
    """What an estimator sets."""
    params = {} if estimator is None else estimator.get_params()
    return {name: value for name, value in params.items() if value is not None}


def _take(params: dict[str, Any], names: tuple[str, ...], default: Any = None) -> Any:
    """Remove a parameter under all its names; the last that is there decides."""
    return [default, *(params.pop(name) for name in names if name in params)][-1]


def _parameters(estimator: Any, loss: Any) -> tuple[dict[str, Any], int, Loss]:
    """LightGBM's parameters as its training call takes them, the number of trees, the loss."""
    params = _given(estimator)
    objective = _take(params, _OBJECTIVE, "lambdarank")
    refuse_objective(objective, ("lambdarank",), "LightGBMRanker", "LGBMRanker")
    params["boosting"] = _take(params, _BOOSTING, "gbdt")
    if params["boosting"] in ("rf", "random_forest"):
        raise InputError(
            "LightGBM grows random forests (boosting='rf') with its own objectives only, so pair "
            "weights cannot reach them. Use boosting_type='gbdt', 'dart' or 'goss'."
        )
    if params.pop("class_weight", None) is not None:
        raise InputError("A ranker has no classes to weigh: leave class_weight out.")
    params.pop("importance_type", None)
    params["num_threads"] = _n_threads(_take(params, _THREADS, 0))
    params["verbosity"] = _take(params, ("verbose", "verbosity"), -1)
    seed = _seed(_take(params, _SEED))
    if seed is not None:
        params["seed"] = seed
    n_trees = int(_take(params, _N_TREES))
    return params, n_trees, _loss(params, loss)


def _loss(params: dict[str, Any], loss: Any) -> Loss:
    """The loss that was chosen, or LambdaRank as the parameters describe it."""
    own: Loss
    if loss is None or loss == "lambdarank":
        gains = params.get("label_gain")  # stays where it is: the metric reads it too
        if isinstance(gains, str):
            gains = [float(gain) for gain in gains.split(",")]
        settings = {ours: params.pop(name) for name, ours in _LAMBDARANK.items() if name in params}
        own = LambdaRank(gains=None if gains is None else tuple(gains), **settings)
    else:
        own = as_loss(loss)
    refuse_idle(params, (*_LAMBDARANK, _POSITION_BIAS), own, "LightGBM")
    return own


def _n_threads(n_jobs: Any) -> int:
    """As LightGBM counts: 0 leaves it to OpenMP, and -1 is for all."""
    return effective_n_jobs(n_jobs) if n_jobs < 0 else int(n_jobs)


def _seed(random_state: Any) -> int | None:
    limit = np.iinfo(np.int32).max
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(limit))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(limit))
    if random_state is None or isinstance(random_state, Integral):
        return random_state if random_state is None else int(random_state)
    raise InputError(
        f"random_state is {random_state!r}; give a whole number, a NumPy RandomState or None."
    )


def _metrics(params: dict[str, Any], fit_params: dict[str, Any]) -> dict[str, Any]:
    """Which metrics LightGBM computes on the evaluation sets: those asked for and its own."""
    own = _take(params, _METRIC, "ndcg")
    own = own.split(",") if isinstance(own, str) else [*own]
    own = [name for name in own if str(name).lower() not in _NO_METRIC]
    named = [metric for metric in _listed(fit_params.get("eval_metric")) if not callable(metric)]
    metrics = [*named, *(name for name in own if name not in named)]
    has_sets = fit_params.get("eval_set") is not None
    found: dict[str, Any] = {"metric": metrics if metrics and has_sets else "None"}
    eval_at = fit_params.get("eval_at", _take(params, _EVAL_AT))
    if eval_at is not None:
        found["eval_at"] = eval_at if isinstance(eval_at, (str, int)) else [*eval_at]
    return found


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return [value] if isinstance(value, str) or callable(value) else [*value]


def _names(names: Any, n_sets: int) -> list[str] | None:
    listed = _listed(names)
    if listed and len(listed) != n_sets:
        raise InputError(
            f"eval_names has {len(listed)} names for {n_sets} sets. Give one for each."
        )
    return listed or None


def _binned(
    lgb: Any, queries: Queries, params: dict[str, Any], fit_params: dict[str, Any]
) -> Binned:
    options = {
        name: fit_params[name] for name in ("categorical_feature", "feature_name")
        if name in fit_params
    }  # fmt: skip

    def make(ordered: Queries, reference: Any) -> Any:
        source, build = _readable(ordered.X), lgb.Dataset
        if isinstance(source, ParquetFeatures):
            options.setdefault("feature_name", list(source.names))
            build = partial(as_dataset, lgb)
        data = build(
            source, ordered.y, group=query_sizes(ordered), reference=reference,
            params=params, **options,
        )  # fmt: skip
        connected = current_peers().network  # the booster must connect the peers first
        return data if connected else data.construct()

    settings = repr(sorted(params.items())), repr(options)
    return build_once("lightgbm", queries, settings, fit_params, make)


def _measured(measured_on: Queries, n_threads: int) -> Measured:
    """The scores of other items as training goes on."""
    features = _readable(measured_on.X)

    def predict(booster: Any, first: int) -> Any:
        options = {"start_iteration": first, "num_iteration": -1, "num_threads": n_threads}
        if isinstance(features, ParquetFeatures):
            return predict_in_blocks(partial(booster.predict, **options), features, raw=True)
        return booster.predict(features, **options)

    return Measured(measured_on.n_items, lambda booster: booster.current_iteration(), predict)


def _feval(eval_metric: Any) -> list[Callable[[Any, Any], Any]] | None:
    """Metrics given as functions of (y_true, y_pred[, weight[, group]]), as LightGBM calls them."""
    functions = [_as_feval(metric) for metric in _listed(eval_metric) if callable(metric)]
    return functions or None


def _as_feval(metric: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    n_arguments = len(inspect.signature(metric).parameters)

    def call(scores: Any, data: Any) -> Any:
        rest = (data.get_weight(), data.get_group())
        return metric(data.get_label(), scores, *rest[: n_arguments - 2])

    return call


def _readable(X: Any) -> Any:
    """Features as LightGBM knows them; what it would end the whole process for is refused."""
    if type(X).__module__.partition(".")[0] in ("polars", "pyarrow"):
        for name, kind in nw.from_native(X, eager_only=True).schema.items():
            if kind not in _ARROW:
                raise InputError(
                    f"The column {name!r} is of type {kind}, which LightGBM cannot read from an "
                    "Arrow table. Give numbers or booleans; categories from a pandas table, or as "
                    "whole numbers named in categorical_feature."
                )
    return readable(X)
