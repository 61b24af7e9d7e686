"""RegressorRanker: any scikit-learn regressor that takes weights, boosted on weighted pairs."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, clone, is_regressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state
from sklearn.utils.validation import has_fit_parameter

from pairity._utils.json_codec import Entry, to_plain
from pairity._utils.typing import Array
from pairity._utils.validation import is_real, show
from pairity.data.queries import Queries
from pairity.exceptions import InputError, ModelFileError, TrainingError
from pairity.pairs.cells import total_weight
from pairity.pairs.losses import Loss, as_loss
from pairity.rankers._engines import import_engine, unreadable
from pairity.rankers._estimators import (
    PairRanker,
    remember_features,
    require_stored_size,
    require_trainable,
)
from pairity.rankers._objective import NO_WEIGHT, Objective

_LARGEST_STEP = 4.0  # of an item's score: beyond, the quadratic is no guide
_HALVINGS = 5
# What regressors of scikit-learn's own are made of and skops does not trust by itself: trees, and
# the check of numbers in front of a HistGradientBoostingRegressor that has categories.
_TRUSTED = (
    "functools.partial",
    "sklearn._loss.loss.HalfTweedieLossIdentity",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.tree._tree.Tree",
    "sklearn.utils.validation.check_array",
)


@dataclass(frozen=True, eq=False)
class AdditiveModel:
    """The weighted sum of fitted regressors.

    Attributes
    ----------
    estimators : list of fitted regressors
    weights : float64 array with the weight of each regressor's prediction
    """

    estimators: list[Any]
    weights: Array

    def predict(self, X: Any) -> Array:
        """Return scores of shape (n_items,)."""
        scores = np.zeros(X.shape[0])
        for weight, estimator in zip(self.weights, self.estimators, strict=True):
            scores += weight * np.asarray(estimator.predict(X), dtype=np.float64)
        return scores


class RegressorRanker(PairRanker):
    r"""A regressor, boosted by Newton's steps on the weighted pairwise loss.

    .. math:: s \leftarrow s + \eta f, \qquad
              f \text{ fitted to } -g_i / h_i \text{ with weight } h_i

    with g and h the first and second derivatives of the loss in the scores: whatever fits
    weighted least squares becomes a ranker.

    Parameters
    ----------
    estimator : scikit-learn regressor
        Its `fit` must take ``sample_weight``; or a `Pipeline` whose last step does.
    n_estimators : int, default=20
        The most steps; one copy of the regressor is fitted for each.
    learning_rate : float, default=0.3
        η. A step that would not lower the loss is halved, up to five times.
    loss : {"logistic", "lambdarank", "hinge", "bpr"} or Loss, default="logistic"
        The loss of a pair; see `pairity.pairs.losses`.
    tol : float, default=1e-4
        A step lowers the loss by too little if it is by less than this share of it.
    n_iter_no_change : int, default=3
        How many such steps in a row end the fit.

    Attributes
    ----------
    model_ : AdditiveModel
        The weighted sum of the fitted regressors, with `estimators`, `weights` and `predict(X)`.
    loss_curve_ : list of float
        The mean loss before the first step and after each; empty for a loss that has no value.
    n_features_in_, feature_names_in_ : as in scikit-learn

    Notes
    -----
    Weights are handed to the regressor with a mean of 1 over the items, so that a penalty such as
    Ridge's means what it means without weights. An item in no pair has weight 0. Where the
    regressor has a `random_state`, every step draws a seed from it; where that is None, one is
    drawn in the first round of `FairRanker` and kept for the later ones.

    A loss without a value (LambdaRank) takes every step in full.

    A flexible regressor soon orders its training pairs without a fault, and no group is then worse
    off than another *on them*. Measure the violation on other queries: give `FairRanker` a
    `validation` share.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeRegressor
    >>> from pairity.datasets import make_biased_ranking
    >>> from pairity.rankers.regressor import RegressorRanker
    >>> data = make_biased_ranking(20, 30, random_state=0)
    >>> ranker = RegressorRanker(DecisionTreeRegressor(max_depth=3, random_state=0))
    >>> ranker.fit(data.X, data.y, qid=data.qid).predict(data.X).shape
    (600,)
    """

    raw_features = True
    file_name = "ranker.skops"
    libraries = ("scikit-learn", "skops")

    def __init__(
        self,
        estimator: Any,
        *,
        n_estimators: int = 20,
        learning_rate: float = 0.3,
        loss: Any = "logistic",
        tol: float = 1e-4,
        n_iter_no_change: int = 3,
    ) -> None:
        self.estimator = estimator
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.loss = loss
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change

    def fit_pairs(  # type: ignore[override]
        self, queries: Queries, weights: Array, *, previous: Any = None
    ) -> Self:
        """Fit on weighted pairs; see `pairity.rankers.base.Ranker`."""
        self._check_parameters()
        weight_name = _weight_name(self.estimator)
        require_trainable(queries)
        remember_features(self, queries.X, queries.y)
        X = _to_fit_on(self.estimator, queries)
        loss = as_loss(self.loss)
        objective = Objective(queries, loss, lambda *_: weights)
        mean_loss = _MeanLoss(loss, queries, weights)
        self._seed = _draw_seed(self.estimator, getattr(previous, "_seed", None))
        rng = np.random.RandomState(self._seed)
        scores, now = np.zeros(queries.n_items), mean_loss(np.zeros(queries.n_items))
        estimators, sizes, curve, stale = [], [], [now], 0
        for _ in range(int(self.n_estimators)):
            target, weight = _least_squares(*objective(scores))
            if not weight.any():
                break
            estimator = _seeded(clone(self.estimator), rng)
            estimator.fit(X, target, **{weight_name: weight})
            move = np.asarray(estimator.predict(queries.X), dtype=np.float64)
            size, then = _line_search(mean_loss, scores, move, float(self.learning_rate), now)
            if size == 0.0:
                break
            scores = scores + size * move
            estimators.append(estimator)
            sizes.append(size)
            curve.append(then)
            stale = stale + 1 if now - then < self.tol * now else 0
            now = then
            if stale >= self.n_iter_no_change:
                break
        self.model_ = AdditiveModel(estimators, np.array(sizes))
        self.loss_curve_ = curve if mean_loss.known else []
        return self

    def _scores(self, features: Any) -> Array:
        return self.model_.predict(features)

    def _encode_settings(self) -> dict[str, Any]:
        return {**super()._encode_settings(), "estimator": None}  # it is in the file

    @classmethod
    def from_settings(cls, entry: Entry, files: Mapping[str, bytes], module: Any = None) -> Self:
        """The ranker, not fitted."""
        ranker = super().from_settings(entry, files, module)
        ranker.estimator = _read_skops(files[cls.file_name])["regressor"]
        return ranker

    def _to_native(self) -> tuple[dict[str, Any], bytes]:
        skops = import_engine("skops.io", "A saved scikit-learn regressor")
        content = {"regressor": clone(self.estimator), "estimators": self.model_.estimators}
        try:
            data: bytes = skops.dumps(content)
            unknown = _unknown_types(skops, data)
        except Exception as error:
            raise ModelFileError(
                f"skops cannot save {type(self.estimator).__name__} ({error}). Save its "
                "model_ by yourself."
            ) from error
        if unknown:
            raise ModelFileError(
                f"{type(self.estimator).__name__} holds {', '.join(unknown)}, which a file could "
                "only bring back by running code. Use scikit-learn's own parts, or save its "
                "model_ by yourself."
            )
        state = {
            "weights": to_plain(self.model_.weights),
            "loss_curve": to_plain(self.loss_curve_),
            "seed": int(self._seed),
        }
        return state, data

    def _from_native(self, state: Entry, data: bytes) -> None:
        estimators = _read_skops(data)["estimators"]
        self.model_ = AdditiveModel(estimators, state.array("weights", ((len(estimators),),)))
        self.loss_curve_ = state.array("loss_curve").tolist()
        self._seed = state.count("seed")

    def _check_parameters(self) -> None:
        for name in ("n_estimators", "n_iter_no_change"):
            count: Any = getattr(self, name)
            if isinstance(count, bool) or not isinstance(count, Integral) or int(count) < 1:
                raise InputError(f"{name} is {show(count)}; give a whole number of at least 1.")
        rate: Any = self.learning_rate
        if not is_real(rate) or not 0.0 < float(rate) <= 1.0:
            raise InputError(f"learning_rate is {show(rate)}; give a number above 0, up to 1.")
        tol: Any = self.tol
        if not is_real(tol) or not 0.0 <= float(tol) < 1.0:
            raise InputError(f"tol is {show(tol)}; give a number from 0 up to 1, such as 1e-4.")


def _is_own(made: Any) -> bool:
    return isinstance(made, BaseEstimator) and bool(is_regressor(made))


def _unknown_types(skops: Any, data: bytes) -> list[str]:
    """The types in a file that neither skops nor we know to be harmless."""
    return sorted(set(skops.get_untrusted_types(data=data)) - set(_TRUSTED))


def _read_skops(data: bytes) -> dict[str, Any]:
    """The regressors of a saved ranker; only scikit-learn's own types are made."""
    skops = import_engine("skops.io", "A saved scikit-learn regressor")
    try:
        require_stored_size(data)
        unknown = _unknown_types(skops, data)
        content = None if unknown else skops.loads(data, trusted=list(_TRUSTED))
    except Exception as error:
        raise unreadable(RegressorRanker.file_name, error) from error
    if unknown:
        raise ModelFileError(
            f"{RegressorRanker.file_name} holds {', '.join(map(show, unknown))}, and pairity makes "
            "nothing but NumPy's and scikit-learn's own types from a file. Load it only from "
            "whom you trust, with skops.io.load(file, trusted=[...])."
        )
    if (
        not isinstance(content, dict)
        or set(content) != {"regressor", "estimators"}
        or not isinstance(content["estimators"], list)
        or not all(map(_is_own, [content["regressor"], *content["estimators"]]))
    ):
        raise unreadable(RegressorRanker.file_name, "it holds no list of regressors")
    return content


class _MeanLoss:
    """The loss, as a mean over pair weights; NaN where it has no value."""

    def __init__(self, loss: Loss, queries: Queries, table: Array) -> None:
        self.value: Any = getattr(loss, "value", None)
        self.queries, self.table = queries, table
        self.whole = total_weight(queries, table)
        if not self.whole > 0.0:
            raise InputError(NO_WEIGHT)

    @property
    def known(self) -> bool:
        """Whether the loss has a value."""
        return self.value is not None

    def __call__(self, scores: Array) -> float:
        """The mean loss at these scores."""
        if not self.known:
            return float("nan")
        return float(self.value(self.queries, scores, self.table)) / self.whole


def _least_squares(gradient: Array, hessian: Array) -> tuple[Array, Array]:
    """Targets and weights, of mean 1, for the least squares that a Newton step is.

    Weight times target is -g whatever the second derivative: where that is so small that the
    target would be beyond `_LARGEST_STEP`, it is raised.
    """
    weight = np.maximum(hessian, np.abs(gradient) / _LARGEST_STEP)
    target = np.divide(-gradient, weight, out=np.zeros_like(gradient), where=weight > 0)
    mean = weight.mean()
    return target, weight / mean if mean > 0 else weight


def _line_search(
    mean_loss: _MeanLoss, scores: Array, move: Array, size: float, now: float
) -> tuple[float, float]:
    """How far to go, and the loss there; 0 where no step lowers it."""
    if not np.isfinite(move).all():
        raise TrainingError(
            f"The regressor predicted NaN or infinity for {int((~np.isfinite(move)).sum())} of "
            f"{len(move)} items. Scale the features, or regularise it more."
        )
    if not mean_loss.known:
        return size, now
    for _ in range(_HALVINGS + 1):
        then = mean_loss(scores + size * move)
        if then < now:
            return size, then
        size /= 2.0
    return 0.0, now


def _to_fit_on(regressor: Any, queries: Queries) -> Any:
    """The features, rounded to its bins for a `HistGradientBoostingRegressor`.

    Some versions of scikit-learn (1.8 and 1.9) search for every bin of every feature by sorting
    the weights anew, in every fit, which takes many times longer than the trees do. They need not
    where a feature has no more values than there are bins. Predictions are made on the features
    as they are.
    """
    X: Any = queries.X
    plain = isinstance(X, np.ndarray) and X.dtype.kind in "fiu"
    if not plain or not isinstance(regressor, HistGradientBoostingRegressor):
        return X
    n_bins: Any = regressor.max_bins
    if not isinstance(n_bins, Integral) or not 2 <= int(n_bins) <= 255:
        return X  # its own error says why

    def make() -> Array:
        rounded = np.array(X, dtype=np.float64)
        for column in rounded.T:
            _round_to_bins(column, int(n_bins))
        return rounded

    return queries.cached("newton", int(n_bins), make)


def _round_to_bins(column: Array, n_bins: int) -> None:
    """Replace the values of each bin, by quantiles, by their mean; NaN stays NaN."""
    there = ~np.isnan(column)
    values = column[there]
    if len(np.unique(values)) <= n_bins or not np.isfinite(values).all():
        return
    edges = np.unique(np.quantile(values, np.linspace(0, 1, n_bins + 1)[1:-1]))
    at = np.searchsorted(edges, values)
    counts = np.maximum(np.bincount(at), 1)
    column[there] = (np.bincount(at, values) / counts)[at]


def _weight_name(regressor: Any) -> str:
    """The name under which the regressor's fit takes the weights of the items."""
    last, prefix = regressor, ""
    while isinstance(last, Pipeline):
        prefix += f"{last.steps[-1][0]}__"
        last = last.steps[-1][1]
    if not has_fit_parameter(last, "sample_weight"):
        raise InputError(
            f"{type(last).__name__}.fit takes no sample_weight, which pairity needs to weigh the "
            "items by. Use a regressor that does, such as HistGradientBoostingRegressor()."
        )
    return f"{prefix}sample_weight"


def _seed_names(regressor: Any) -> list[str]:
    names = regressor.get_params(deep=True)
    return sorted(n for n in names if n == "random_state" or n.endswith("__random_state"))


def _draw_seed(regressor: Any, kept: int | None) -> int:
    """One seed for all steps: of the regressor's `random_state`, or the one kept from before."""
    params = regressor.get_params(deep=True)
    given = [params[name] for name in _seed_names(regressor) if params[name] is not None]
    if not given and kept is not None:
        return kept
    state = check_random_state(copy.deepcopy(given[0]) if given else None)
    return int(state.randint(np.iinfo(np.int32).max))


def _seeded(regressor: Any, rng: np.random.RandomState) -> Any:
    names = _seed_names(regressor)
    seeds = rng.randint(np.iinfo(np.int32).max, size=len(names))
    return regressor.set_params(**{n: int(s) for n, s in zip(names, seeds, strict=True)})
