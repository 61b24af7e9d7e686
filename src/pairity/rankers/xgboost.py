"""XGBoostRanker: XGBoost's own training, on weighted pairs through its custom objective."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from pairity._utils.allreduce import current_peers
from pairity._utils.json_codec import Entry, encode
from pairity._utils.threads import limit_threads
from pairity._utils.typing import Array
from pairity._utils.validation import show
from pairity.data.parquet_features import ParquetFeatures
from pairity.data.queries import Queries
from pairity.exceptions import InputError
from pairity.pairs.losses import LambdaRank, Logistic, Loss, as_loss
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
from pairity.rankers._streams import as_quantiles

_FIT_PARAMETERS = ("eval_set", "eval_qid", "eval_group", "verbose")
_TRUNCATION = 32  # XGBoost's own, for the top-k pairs of rank:ndcg
_LINEAR_GAINS = tuple(range(32))
_READING = ("missing", "feature_types", "enable_categorical", "nthread")
_CURVATURE = 2.0  # by which XGBoost's ranking objectives multiply second derivatives


class XGBoostRanker(BoosterRanker):
    """An `XGBRanker`, trained by XGBoost on weighted pairs.

    Parameters
    ----------
    estimator : xgboost.XGBRanker
        Its parameters are XGBoost's own; what cannot be carried over is refused.
    loss : {"logistic", "lambdarank", "hinge", "bpr"} or Loss, optional
        The loss of a pair; see `pairity.pairs.losses`. By default what the estimator's objective
        says:
        LambdaRank for "rank:ndcg" (XGBoost's default), the logistic loss on all pairs for
        "rank:pairwise".

    Attributes
    ----------
    model_ : xgboost.Booster
        The fitted model, which predicts and is saved by itself. Trees behind the best iteration
        are cut off, unless there are categories, which XGBoost forgets in doing so: then predict
        with ``iteration_range=(0, best_iteration_ + 1)``, as `XGBRanker` does.
    best_iteration_ : int, where early stopping ended; the last iteration without it
    evals_result_ : dict, what the metrics were on the evaluation sets, by name

    Notes
    -----
    `fit` takes ``eval_set`` with ``eval_qid`` or ``eval_group``, and ``verbose``, as
    `XGBRanker.fit` does.

    The binned data are built once for all rounds. Features in files with more than 2**28 entries
    are binned on disk, by bins that are found from a sample of 2**24 entries (of all rows where
    there are ``feature_types``). Pair weights are relative to their mean, so that the L2 penalty
    means the same whatever their scale. Second derivatives are doubled, as XGBoost's own ranking
    objectives do, so that learning rate, penalty and least child weight mean what they mean there.
    The saved model names a squared error as its objective: XGBoost has no name for a custom one.
    Its scores are not touched by that.
    """

    file_name = "ranker.ubj"
    engine = ("xgboost", "XGBRanker")
    libraries = ("xgboost",)

    def __sklearn_clone__(self) -> Self:
        # XGBoost draws from a RandomState whenever it is asked for its parameters: without a copy
        # every clone, and so every round, would have another seed.
        given = copy.copy(self.estimator)
        if hasattr(given, "random_state"):
            given.random_state = copy.deepcopy(given.random_state)
        return type(self)(clone(given, safe=False), loss=clone(self.loss, safe=False))

    def _scores(self, features: Any) -> Array:
        """Scores by the trees up to the best iteration."""
        xgb = import_engine("xgboost", "XGBoostRanker")
        data = xgb.DMatrix(readable(features), **self._reading)
        scores = self.model_.predict(
            data, output_margin=True, iteration_range=self._trees, validate_features=False
        )
        return np.asarray(scores, dtype=np.float64)

    def _to_native(self) -> tuple[dict[str, Any], bytes]:
        state = {
            "best_iteration": int(self.best_iteration_),
            "trees": [int(each) for each in self._trees],
            "reading": encode(self._reading, {}),
            "evals_result": encode(plain_dict(self.evals_result_), {}),
        }
        return state, bytes(self.model_.save_raw("ubj"))

    def _from_native(self, state: Entry, data: bytes) -> None:
        xgb = import_engine("xgboost", "XGBoostRanker")
        reading = state.setting("reading")
        if not isinstance(reading, dict) or set(reading) != set(_READING):
            raise state.refuse("reading", show(reading))
        trees = state.array("trees", ((2,),))
        if not (np.isfinite(trees) & (trees >= 0) & (trees < 2**31)).all():
            raise state.refuse("trees", f"{trees}")
        try:
            if not data.startswith(b"{"):
                raise ValueError("it does not begin as UBJSON files do")
            self.model_ = xgb.Booster({"nthread": reading["nthread"] or 0})
            self.model_.load_model(bytearray(data))
            n_features = self.model_.num_features()
        except Exception as error:
            raise unreadable(self.file_name, error) from error
        if n_features != self.n_features_in_:
            raise unreadable(self.file_name, f"{n_features} features, not {self.n_features_in_}")
        self._reading, self._trees = reading, (int(trees[0]), int(trees[1]))
        self.best_iteration_ = state.count("best_iteration")
        self._read_evaluations(state)

    def _engine_params(self) -> dict[str, Any]:
        # XGBoost draws a number from a RandomState whenever it is asked for its parameters.
        copied = copy.copy(self.estimator)
        copied.random_state = None
        return {**copied.get_params(), "random_state": self.estimator.random_state}

    def _boosting(self) -> str:
        return str(getattr(self.estimator, "booster", None) or "gbtree")

    def _train(
        self, queries: Queries, follow: Follow, measured_on: Queries | None, fit_params: Any
    ) -> None:
        xgb = import_engine("xgboost", "XGBoostRanker")
        refuse_unknown(fit_params, _FIT_PARAMETERS, "XGBRanker")
        estimator = own_estimator(self.estimator, xgb.XGBRanker, "XGBoostRanker")
        params, loss = _parameters(estimator, self.loss)
        binned = _binned(xgb, queries, estimator, params, fit_params)
        self._reading = _reading(estimator)
        n_trees = estimator.get_num_boosting_rounds()
        callbacks = [*(estimator.callbacks or ())]
        measured = None
        if measured_on is not None:
            measured = _measured(xgb, measured_on, self._reading)
            callbacks.append(_watch(xgb, measured))
        objective = Objective(
            binned.queries, loss, follow, n_trees=n_trees, rows=binned.rows, measure=measured
        )

        def call(scores: NDArray[np.float32], _data: Any) -> tuple[Any, Any]:
            gradient, hessian = objective(scores.astype(np.float64))
            hessian *= _CURVATURE
            return gradient, hessian

        n_threads = params.get("n_jobs", params.get("nthread"))
        if not n_threads and current_peers().n_threads:
            n_threads = params["nthread"] = current_peers().n_threads
        self.evals_result_: dict[str, Any] = {}
        with limit_threads(n_threads if n_threads and n_threads > 0 else None):
            booster = xgb.train(
                params,
                binned.data,
                num_boost_round=n_trees,
                evals=[(data, f"validation_{k}") for k, data in enumerate(binned.evaluation)],
                evals_result=self.evals_result_,
                obj=call,
                early_stopping_rounds=estimator.early_stopping_rounds,
                verbose_eval=fit_params.get("verbose", False),
                callbacks=callbacks,
            )
        self.best_iteration_ = booster.num_boosted_rounds() - 1
        self._trees = (0, 0)  # all there are
        if booster.attr("best_iteration") is not None and self._boosting() != "gblinear":
            self.best_iteration_ = booster.best_iteration
            self._trees = (0, self.best_iteration_ + 1)
            if "c" not in (booster.feature_types or ()):  # cut, it would forget the categories
                booster = booster[: self.best_iteration_ + 1]
        self.model_ = booster


def _parameters(estimator: Any, loss: Any) -> tuple[dict[str, Any], Loss]:
    """XGBoost's parameters as its training call takes them, and the loss."""
    params = {
        name: value for name, value in estimator.get_xgb_params().items() if value is not None
    }
    objective = estimator.objective or "rank:ndcg"
    refuse_objective(objective, ("rank:ndcg", "rank:pairwise"), "XGBoostRanker", "XGBRanker")
    params.pop("objective", None)
    metrics = estimator.eval_metric
    if any(map(callable, metrics if isinstance(metrics, (list, tuple)) else [metrics])):
        raise InputError(
            "XGBRanker takes no function as eval_metric. Give a name such as 'ndcg@10'."
        )
    if loss is not None and loss != "lambdarank":
        own = as_loss(loss)
    elif objective == "rank:ndcg" or loss is not None:
        own = _lambdarank(params)
    else:
        own = Logistic()
    idle = [name for name in params if name.startswith("lambdarank_")]
    refuse_idle(params, idle, own, "XGBoost")
    params.setdefault("base_score", 0.0)
    params.setdefault("eval_metric", "ndcg")
    return params, own


def _lambdarank(params: dict[str, Any]) -> LambdaRank:
    """LambdaRank as the parameters of XGBoost's own describe it."""
    if params.pop("lambdarank_pair_method", "topk") != "topk":
        raise InputError(
            "lambdarank_pair_method='mean' samples pairs inside XGBoost, where pair weights "
            "cannot reach them. Leave it out, or choose the logistic loss on sampled pairs: "
            'XGBoostRanker(XGBRanker(...), loss="bpr").'
        )
    normalise = params.pop("lambdarank_normalization", True)
    if params.pop("lambdarank_score_normalization", True) != normalise:
        raise InputError(
            "lambdarank_normalization and lambdarank_score_normalization come together here, as "
            f"LightGBM has them, but only one of them is {normalise}. Set both, or neither."
        )
    exponential = params.get("ndcg_exp_gain", True)  # stays where it is: the metric reads it too
    return LambdaRank(
        k=params.pop("lambdarank_num_pair_per_sample", _TRUNCATION),
        normalise=normalise,
        gains=None if exponential else _LINEAR_GAINS,
    )


def _reading(estimator: Any) -> dict[str, Any]:
    """How the estimator wants tables to be read."""
    values = (
        estimator.missing, estimator.feature_types, estimator.enable_categorical, estimator.n_jobs,
    )  # fmt: skip
    return dict(zip(_READING, values, strict=True))


def _binned(
    xgb: Any,
    queries: Queries,
    estimator: Any,
    params: dict[str, Any],
    fit_params: dict[str, Any],
) -> Binned:
    options = _reading(estimator)
    histogram = (
        params.get("tree_method", "auto") in ("auto", "hist")
        and params.get("booster", "gbtree") != "gblinear"
    )
    if histogram:
        options["max_bin"] = params.get("max_bin")
    weights = estimator.feature_weights
    weights = None if weights is None else np.asarray(weights, dtype=np.float32)

    def make(ordered: Queries, reference: Any) -> Any:
        source, given = readable(ordered.X), {"label": ordered.y, "group": query_sizes(ordered)}
        if isinstance(source, ParquetFeatures):
            if not histogram:
                raise InputError(
                    "XGBoost trains on features in files by histograms only. Use booster='gbtree' "
                    "and tree_method='hist'."
                )
            data = as_quantiles(xgb, source, reference, **options)
            data.set_info(**given)
        elif histogram:
            data = xgb.QuantileDMatrix(source, ref=reference, **given, **options)
        else:
            data = xgb.DMatrix(source, **given, **options)
        if weights is not None:
            data.set_info(feature_weights=weights)
        return data

    # "approx" leaves the bins of its first gradients in the data: they serve one fit only.
    once = object() if params.get("tree_method") == "approx" else None
    settings = repr(options), None if weights is None else weights.tolist(), histogram, once
    return build_once("xgboost", queries, settings, fit_params, make)


def _measured(xgb: Any, measured_on: Queries, reading: dict[str, Any]) -> Measured:
    """The scores of other items as training goes on, without the base score."""
    features = readable(measured_on.X)

    def read(X: Any) -> Any:
        return xgb.DMatrix(X, base_margin=np.zeros(X.shape[0]), **reading)

    data = None if isinstance(features, ParquetFeatures) else read(features)

    def count(booster: Any) -> int:
        return int(booster.num_boosted_rounds())

    def predict(booster: Any, first: int) -> Any:
        trees = (first, count(booster))

        def score(data: Any) -> Any:
            return booster.predict(
                data, output_margin=True, iteration_range=trees, validate_features=False
            )

        if data is None:
            return predict_in_blocks(lambda block: score(read(block)), features, raw=True)
        return score(data)

    return Measured(measured_on.n_items, count, predict)


def _watch(xgb: Any, measured: Measured) -> Any:
    """A callback that shows `measured` the trees."""

    class Watch(xgb.callback.TrainingCallback):  # type: ignore[misc]
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:  # noqa: ARG002
            measured.booster = model
            return False

    return Watch()
