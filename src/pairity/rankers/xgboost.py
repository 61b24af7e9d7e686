"""XGBoostRanker: XGBoost's own training, on weighted pairs through a custom objective."""

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
from pairity.rankers._boosting import Binned, BoosterRanker, Training
from pairity.rankers._engines import as_engine_matrix
from pairity.rankers._evaluation_sets import SET_PARAMETERS
from pairity.rankers._objective import Objective, TrackedScores
from pairity.rankers._streams import as_quantiles

_TRUNCATION = 32  # XGBoost's default for the top-k pairs of rank:ndcg
_LINEAR_GAINS = tuple(range(32))  # the gain is the label itself, for labels 0 to 31
_READING = ("missing", "feature_types", "enable_categorical", "nthread")
_CURVATURE = 2.0  # XGBoost's own ranking objectives multiply second derivatives by this


class XGBoostRanker(BoosterRanker):
    """An `XGBRanker`, trained by XGBoost on weighted pairs.

    Parameters
    ----------
    estimator : xgboost.XGBRanker
        Its parameters are XGBoost's own. Parameters that cannot be used are refused.
    loss : {"logistic", "lambdarank", "hinge", "bpr"} or Loss, optional
        The loss of a pair; see `pairity.pairs.losses`. The default is the estimator's objective:
        LambdaRank for "rank:ndcg" (XGBoost's default), the logistic loss on all pairs for
        "rank:pairwise".

    Attributes
    ----------
    model_ : xgboost.Booster
        The fitted model, which predicts and is saved without pairity. Trees after the best
        iteration are removed, except with categorical features, which XGBoost would lose by the
        removal: then predict with ``iteration_range=(0, best_iteration_ + 1)``, as `XGBRanker`
        does.
    best_iteration_ : int, the iteration that early stopping chose; the last one without it
    evals_result_ : dict, metrics on the evaluation sets by name

    Notes
    -----
    `fit` takes ``eval_set`` with ``eval_qid`` or ``eval_group``, and ``verbose``, as
    `XGBRanker.fit` does. Early stopping chooses the number of trees of the plain ranker, and
    reweighted rounds train as many.

    The binned data are built once for all rounds. Features in files with more than 2**28 entries
    are binned on disk; their bins are found from a sample of 2**24 entries (from all rows if there
    are ``feature_types``). Pair weights are divided by their mean, so that the L2 penalty does not
    depend on their scale. Second derivatives are doubled, as in XGBoost's own ranking objectives,
    so that learning rate, penalty and minimum child weight keep their meaning. The saved model
    names a squared error as its objective, because XGBoost has no name for a custom one. This does
    not affect its scores.
    """

    file_name = "ranker.ubj"
    engine = ("xgboost", "XGBRanker")
    libraries = ("xgboost",)
    fit_parameters = (*SET_PARAMETERS, "verbose")

    def __sklearn_clone__(self) -> Self:
        # XGBoost draws from a RandomState whenever its parameters are read: without a copy, every
        # clone, and so every round, would have another seed.
        estimator = copy.copy(self.estimator)
        if hasattr(estimator, "random_state"):
            estimator.random_state = copy.deepcopy(estimator.random_state)
        return type(self)(clone(estimator, safe=False), loss=clone(self.loss, safe=False))

    def _scores(self, features: Any) -> Array:
        """Return the scores of the trees up to the best iteration."""
        data = self._library().DMatrix(as_engine_matrix(features), **self._reading)
        return np.asarray(_predict(self.model_, data, self._trees), dtype=np.float64)

    def _to_native(self) -> tuple[dict[str, Any], bytes]:
        state = {
            **self._encode_evaluations(),
            "trees": [int(bound) for bound in self._trees],
            "reading": encode(self._reading, {}),
        }
        return state, bytes(self.model_.save_raw("ubj"))

    def _read_state(self, state: Entry) -> None:
        super()._read_state(state)
        self._reading = state.setting("reading")
        if not isinstance(self._reading, dict) or set(self._reading) != set(_READING):
            raise state.refuse("reading", show(self._reading))
        trees = state.array("trees", ((2,),))
        if not (np.isfinite(trees) & (trees >= 0) & (trees < 2**31)).all():
            raise state.refuse("trees", f"{trees}")
        self._trees = (int(trees[0]), int(trees[1]))

    def _read_model(self, data: bytes) -> tuple[Any, int]:
        if not data.startswith(b"{"):
            raise ValueError("it does not begin like UBJSON files")
        booster = self._library().Booster({"nthread": self._reading["nthread"] or 0})
        booster.load_model(bytearray(data))
        return booster, booster.num_features()

    def _engine_params(self) -> dict[str, Any]:
        # XGBoost draws a number from a RandomState whenever its parameters are read.
        copied = copy.copy(self.estimator)
        copied.random_state = None
        return {**copied.get_params(), "random_state": self.estimator.random_state}

    def _boosting(self) -> str:
        return str(getattr(self.estimator, "booster", None) or "gbtree")

    def _train(self, queries: Queries, training: Training) -> None:
        follow, fit_params, measured_on, previous = training
        xgb, estimator = self._library(), self._checked_estimator(fit_params)
        params, loss = self._parameters(estimator)
        self._reading = {
            name: getattr(estimator, "n_jobs" if name == "nthread" else name) for name in _READING
        }
        binned = self._binned(queries, estimator, params, fit_params)
        n_trees = estimator.get_num_boosting_rounds()
        stopping_rounds = estimator.early_stopping_rounds
        callbacks, tracked = [*(estimator.callbacks or ())], None
        if previous is not None:
            n_trees, stopping_rounds = previous.best_iteration_ + 1, None
            stopping = xgb.callback.EarlyStopping
            callbacks = [call for call in callbacks if not isinstance(call, stopping)]
        if measured_on is not None:
            tracked = _tracked_scores(xgb, measured_on, self._reading)
            callbacks.append(_watch(xgb, tracked))
        objective = Objective(
            binned.queries, loss, follow, n_total=n_trees, rows=binned.rows, measure=tracked
        )

        def derivatives(scores: NDArray[np.float32], _: Any) -> tuple[Array, Array]:
            gradient, hessian = objective(scores.astype(np.float64))
            return gradient, _CURVATURE * hessian

        n_threads = params.get("n_jobs", params.get("nthread"))
        if not n_threads and current_peers().n_threads:
            n_threads = params["nthread"] = current_peers().n_threads
        self.evals_result_ = {}
        with limit_threads(n_threads if n_threads and n_threads > 0 else None):
            booster = xgb.train(
                params,
                binned.data,
                num_boost_round=n_trees,
                evals=[(data, f"validation_{k}") for k, data in enumerate(binned.evaluation)],
                evals_result=self.evals_result_,
                obj=derivatives,
                early_stopping_rounds=stopping_rounds,
                verbose_eval=fit_params.get("verbose", False),
                callbacks=callbacks,
            )
        self._keep_best(booster)

    def _parameters(self, estimator: Any) -> tuple[dict[str, Any], Loss]:
        """Return the parameters of XGBoost's training call, and the loss."""
        params = {
            name: value for name, value in estimator.get_xgb_params().items() if value is not None
        }
        objective = estimator.objective or "rank:ndcg"
        self._require_objective(objective, "rank:ndcg", "rank:pairwise")
        params.pop("objective", None)
        metrics = estimator.eval_metric
        if any(map(callable, metrics if isinstance(metrics, (list, tuple)) else [metrics])):
            raise InputError(
                "XGBRanker takes no function as eval_metric. Pass a name such as 'ndcg@10'."
            )
        if self.loss == "lambdarank" or (self.loss is None and objective == "rank:ndcg"):
            loss: Loss = _lambdarank(params)
        else:
            loss = Logistic() if self.loss is None else as_loss(self.loss)
        unused = [name for name in params if name.startswith("lambdarank_")]
        self._refuse_unused(params, unused, loss)
        params.setdefault("base_score", 0.0)
        params.setdefault("eval_metric", "ndcg")
        return params, loss

    def _binned(self, queries: Queries, estimator: Any, params: Any, fit_params: Any) -> Binned:
        xgb, options = self._library(), dict(self._reading)
        histogram = (
            params.get("tree_method", "auto") in ("auto", "hist")
            and params.get("booster", "gbtree") != "gblinear"
        )
        if histogram:
            options["max_bin"] = params.get("max_bin")
        weights = estimator.feature_weights
        weights = None if weights is None else np.asarray(weights, dtype=np.float32)

        def make(ordered: Queries, reference: Any) -> Any:
            source = as_engine_matrix(ordered.X)
            labels = {"label": ordered.y, "group": np.bincount(ordered.query)}
            if isinstance(source, ParquetFeatures):
                if not histogram:
                    raise InputError(
                        "XGBoost trains on features in files only with histograms. Use "
                        "booster='gbtree' and tree_method='hist'."
                    )
                data = as_quantiles(xgb, source, reference, **options)
                data.set_info(**labels)
            elif histogram:
                data = xgb.QuantileDMatrix(source, ref=reference, **labels, **options)
            else:
                data = xgb.DMatrix(source, **labels, **options)
            if weights is not None:
                data.set_info(feature_weights=weights)
            return data

        # "approx" stores the bins of its first gradients in the data, which then suit one fit only.
        once = object() if params.get("tree_method") == "approx" else None
        settings = repr(options), None if weights is None else weights.tolist(), histogram, once
        return self._bin_once(queries, settings, fit_params, make)

    def _keep_best(self, booster: Any) -> None:
        """Set ``model_`` to the trees up to the best iteration."""
        self.best_iteration_ = booster.num_boosted_rounds() - 1
        self._trees = (0, 0)  # all trees
        if booster.attr("best_iteration") is not None and self._boosting() != "gblinear":
            self.best_iteration_ = booster.best_iteration
            self._trees = (0, self.best_iteration_ + 1)
            if "c" not in (booster.feature_types or ()):  # a slice would lose the categories
                booster = booster[: self.best_iteration_ + 1]
        self.model_ = booster


def _predict(booster: Any, data: Any, trees: tuple[int, int]) -> Any:
    return booster.predict(data, output_margin=True, iteration_range=trees, validate_features=False)


def _lambdarank(params: dict[str, Any]) -> LambdaRank:
    """Return LambdaRank with the settings in XGBoost's parameters."""
    if params.pop("lambdarank_pair_method", "topk") != "topk":
        raise InputError(
            "lambdarank_pair_method='mean' samples pairs inside XGBoost, where pair weights "
            "cannot reach them. Remove it, or choose the logistic loss on sampled pairs: "
            'XGBoostRanker(XGBRanker(...), loss="bpr").'
        )
    normalise = params.pop("lambdarank_normalization", True)
    if params.pop("lambdarank_score_normalization", True) != normalise:
        raise InputError(
            "lambdarank_normalization and lambdarank_score_normalization must have the same value, "
            f"as in LightGBM, but only one of them is {normalise}. Set both, or neither."
        )
    exponential = params.get("ndcg_exp_gain", True)  # not removed: the metric reads it too
    return LambdaRank(
        k=params.pop("lambdarank_num_pair_per_sample", _TRUNCATION),
        normalise=normalise,
        gains=None if exponential else _LINEAR_GAINS,
    )


def _tracked_scores(xgb: Any, queries: Queries, reading: dict[str, Any]) -> TrackedScores:
    """Return the scores of further queries, without the base score."""

    def read(X: Any) -> Any:
        return xgb.DMatrix(as_engine_matrix(X), base_margin=np.zeros(X.shape[0]), **reading)

    def predict(booster: Any, first: int, data: Any) -> Any:
        return _predict(booster, data, (first, booster.num_boosted_rounds()))

    return TrackedScores(queries, read, lambda booster: booster.num_boosted_rounds(), predict)


def _watch(xgb: Any, tracked: TrackedScores) -> Any:
    """Return a callback that passes the booster to `tracked` after every tree."""

    class Watch(xgb.callback.TrainingCallback):  # type: ignore[misc]
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:  # noqa: ARG002
            tracked.booster = model
            return False

    return Watch()
