"""RegressorRanker: any scikit-learn regressor with sample weights, boosted on weighted pairs."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, clone, is_regressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state
from sklearn.utils.validation import has_fit_parameter

from pairity._utils.extras import import_extra
from pairity._utils.json_codec import Entry, to_plain
from pairity._utils.typing import Array
from pairity._utils.validation import require_count, require_number, show
from pairity.data.queries import Queries
from pairity.exceptions import InputError, ModelFileError, TrainingError
from pairity.pairs.cells import total_weight
from pairity.pairs.enumeration import NO_WEIGHT
from pairity.pairs.losses import Loss, as_loss
from pairity.rankers._engines import unreadable
from pairity.rankers._estimators import PairRanker, require_stored_size
from pairity.rankers._objective import Objective

_MeanLoss = Callable[[Array], float]  # receives scores
_LARGEST_STEP = 4.0  # of an item's score; the quadratic approximation is poor beyond it
_HALVINGS = 5  # of a step that does not lower the loss: down to 3 % of it
# Types in scikit-learn's regressors that skops does not trust by default: trees, and the check of
# numbers before a HistGradientBoostingRegressor with categories. test_persistence.py saves and
# loads one regressor of each kind, and fails if scikit-learn renames a type.
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

    with g and h the first and second derivatives of the loss in the scores. Any regressor that
    fits weighted least squares can be used.

    Parameters
    ----------
    estimator : scikit-learn regressor
        Its `fit` must take ``sample_weight``, or the `fit` of the last step of a `Pipeline`.
    n_estimators : int, default=20
        The maximum number of steps. Each fits one copy of the regressor.
    learning_rate : float, default=0.3
        η. A step that does not lower the loss is halved, up to five times.
    loss : {"logistic", "lambdarank", "hinge", "bpr"} or Loss, default="logistic"
        The loss of a pair; see `pairity.pairs.losses`.
    tol : float, default=1e-4
        A step is too small if it lowers the loss by less than this share of it.
    n_iter_no_change : int, default=3
        The fit ends after this many consecutive steps that are too small.

    Attributes
    ----------
    model_ : AdditiveModel
        The weighted sum of the fitted regressors, with `estimators`, `weights` and `predict(X)`.
    loss_curve_ : list of float
        The mean loss before the first step and after each one; empty for a loss without a value.
    n_features_in_, feature_names_in_ : as in scikit-learn

    Notes
    -----
    The weights that the regressor receives have mean 1 over the items, so that a penalty such as
    Ridge's keeps its meaning. An item in no pair has weight 0. If the regressor has a
    `random_state`, every step draws a seed from it. If that is None, a seed is drawn in the first
    round of `FairRanker` and used in the later ones.

    With a loss that has no value (LambdaRank), every step is taken in full.

    A flexible regressor soon orders all its training pairs correctly, so that its training
    violation is uninformative. Measure the violation on held-out queries: pass a `validation`
    share to `FairRanker`.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeRegressor
    >>> from pairity.datasets import make_biased_ranking
    >>> from pairity.rankers import RegressorRanker
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
        """Fit on weighted pairs; see `pairity.rankers.Ranker`."""
        require_count(self.n_estimators, "n_estimators")
        require_count(self.n_iter_no_change, "n_iter_no_change")
        require_number(self.learning_rate, "learning_rate", positive=True, most=1.0)
        require_number(self.tol, "tol", most=1.0)
        weight_parameter = weight_name(self.estimator)
        self._begin_fit(queries)
        X = _training_features(self.estimator, queries)
        loss = as_loss(self.loss)
        objective = Objective(queries, loss, lambda *_: weights)
        mean_loss = _mean_loss(loss, queries, weights)
        self._seed = _draw_seed(self.estimator, getattr(previous, "_seed", None))
        rng = np.random.RandomState(self._seed)
        scores = np.zeros(queries.n_items)
        estimators: list[Any] = []
        sizes, curve, n_small = [], [mean_loss(scores)], 0
        while len(estimators) < self.n_estimators and n_small < self.n_iter_no_change:
            target, weight = _least_squares(*objective(scores))
            if not weight.any():
                break
            estimator = _seeded(clone(self.estimator), rng)
            estimator.fit(X, target, **{weight_parameter: weight})
            direction = np.asarray(estimator.predict(queries.X), dtype=np.float64)
            size, value = _line_search(
                mean_loss, scores, direction, float(self.learning_rate), curve[-1]
            )
            if size == 0.0:
                break
            scores = scores + size * direction
            estimators.append(estimator)
            sizes.append(size)
            n_small = n_small + 1 if curve[-1] - value < self.tol * curve[-1] else 0
            curve.append(value)
        self.model_ = AdditiveModel(estimators, np.array(sizes))
        self.loss_curve_ = [] if np.isnan(curve[0]) else curve
        return self

    def _scores(self, features: Any) -> Array:
        return self.model_.predict(features)

    def _encode_settings(self) -> dict[str, Any]:
        return {**super()._encode_settings(), "estimator": None}  # it is stored in the file

    @classmethod
    def from_settings(cls, entry: Entry, files: Mapping[str, bytes], module: Any = None) -> Self:
        """Return the ranker, not fitted."""
        ranker = super().from_settings(entry, files, module)
        ranker.estimator = _read_skops(files[cls.file_name])["regressor"]
        return ranker

    def _to_native(self) -> tuple[dict[str, Any], bytes]:
        skops = import_extra("skops.io", "A saved scikit-learn regressor", "skops")
        content = {"regressor": clone(self.estimator), "estimators": self.model_.estimators}
        try:
            data: bytes = skops.dumps(content)
            unknown = _unknown_types(skops, data)
        except Exception as error:
            raise ModelFileError(
                f"skops cannot save {type(self.estimator).__name__} ({error}). Save model_ "
                "yourself."
            ) from error
        if unknown:
            raise ModelFileError(
                f"{type(self.estimator).__name__} contains {', '.join(unknown)}, which can be "
                "loaded only by running code from the file. Use scikit-learn's own parts, or save "
                "model_ yourself."
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


def _unknown_types(skops: Any, data: bytes) -> list[str]:
    """Return the types in a file that neither skops nor pairity trusts."""
    return sorted(set(skops.get_untrusted_types(data=data)) - set(_TRUSTED))


def _read_skops(data: bytes) -> dict[str, Any]:
    """Return the regressors of a saved ranker. Only scikit-learn's own types are loaded."""
    skops = import_extra("skops.io", "A saved scikit-learn regressor", "skops")
    try:
        require_stored_size(data)
        unknown = _unknown_types(skops, data)
        content = None if unknown else skops.loads(data, trusted=list(_TRUSTED))
    except Exception as error:
        raise unreadable(RegressorRanker.file_name, error) from error
    if unknown:
        raise ModelFileError(
            f"{RegressorRanker.file_name} contains {', '.join(map(show, unknown))}, but pairity "
            "loads only NumPy's and scikit-learn's own types from a file. If you trust its "
            "source, load it with skops.io.load(file, trusted=[...])."
        )
    if (
        not isinstance(content, dict)
        or set(content) != {"regressor", "estimators"}
        or not isinstance(content["estimators"], list)
        or not all(
            isinstance(regressor, BaseEstimator) and is_regressor(regressor)
            for regressor in [content["regressor"], *content["estimators"]]
        )
    ):
        raise unreadable(RegressorRanker.file_name, "it contains no list of regressors")
    return content


def _mean_loss(loss: Loss, queries: Queries, weights: Array) -> _MeanLoss:
    """Return the mean loss over pair weights as a function of scores; NaN if it has no value."""
    value: Any = getattr(loss, "value", lambda *_: np.nan)
    total = total_weight(queries, weights)
    if not total > 0.0:
        raise InputError(NO_WEIGHT)
    return lambda scores: float(value(queries, scores, weights)) / total


def _least_squares(gradient: Array, hessian: Array) -> tuple[Array, Array]:
    """Return targets and weights, of mean 1, of the least squares problem of a Newton step.

    Weight times target is -g for any second derivative. If this is so small that the target would
    exceed `_LARGEST_STEP`, it is raised.
    """
    weight = np.maximum(hessian, np.abs(gradient) / _LARGEST_STEP)
    target = np.divide(-gradient, weight, out=np.zeros_like(gradient), where=weight > 0)
    mean = weight.mean()
    return target, weight / mean if mean > 0 else weight


def _line_search(
    mean_loss: _MeanLoss, scores: Array, direction: Array, size: float, current: float
) -> tuple[float, float]:
    """Return the size of the step and the loss after it; a size of 0 if no step lowers the loss."""
    n_bad = int((~np.isfinite(direction)).sum())
    if n_bad:
        raise TrainingError(
            f"The regressor predicted NaN or infinity for {n_bad} of {len(direction)} items. Scale "
            "the features, or regularise it more."
        )
    if np.isnan(current):  # the loss has no value
        return size, current
    for _ in range(_HALVINGS + 1):
        value = mean_loss(scores + size * direction)
        if value < current:
            return size, value
        size /= 2.0
    return 0.0, current


def _training_features(regressor: Any, queries: Queries) -> Any:
    """Return the features, rounded to bins for a `HistGradientBoostingRegressor`.

    In every fit, scikit-learn 1.8 and 1.9 sort the weights again for every bin of every feature,
    which takes many times longer than growing the trees. This is not needed for a feature with no
    more values than bins. Predictions use the original features.
    """
    X: Any = queries.X
    plain = isinstance(X, np.ndarray) and X.dtype.kind in "fiu"
    if not plain or not isinstance(regressor, HistGradientBoostingRegressor):
        return X
    n_bins: Any = regressor.max_bins
    if not isinstance(n_bins, Integral) or not 2 <= int(n_bins) <= 255:
        return X  # scikit-learn raises an error about max_bins

    def make() -> Array:
        rounded = np.array(X, dtype=np.float64)
        for column in rounded.T:
            _round_to_bins(column, int(n_bins))
        return rounded

    return queries.cached("newton", int(n_bins), make)


def _round_to_bins(column: Array, n_bins: int) -> None:
    """Replace the values of each quantile bin by their mean; NaN stays NaN."""
    present = ~np.isnan(column)
    values = column[present]
    if len(np.unique(values)) <= n_bins or not np.isfinite(values).all():
        return
    edges = np.unique(np.quantile(values, np.linspace(0, 1, n_bins + 1)[1:-1]))
    bins = np.searchsorted(edges, values)
    counts = np.maximum(np.bincount(bins), 1)
    column[present] = (np.bincount(bins, values) / counts)[bins]


def weight_name(regressor: Any) -> str:
    """Return the name of the regressor's fit parameter for weights, or refuse the regressor."""
    last, prefix = regressor, ""
    while isinstance(last, Pipeline):
        prefix += f"{last.steps[-1][0]}__"
        last = last.steps[-1][1]
    if not has_fit_parameter(last, "sample_weight"):
        raise InputError(
            f"{type(last).__name__}.fit takes no sample_weight, but pairity passes weights of "
            "items. Use a regressor that takes it, such as HistGradientBoostingRegressor()."
        )
    return f"{prefix}sample_weight"


def _seed_names(regressor: Any) -> list[str]:
    names = regressor.get_params(deep=True)
    return sorted(n for n in names if n == "random_state" or n.endswith("__random_state"))


def _draw_seed(regressor: Any, previous: int | None) -> int:
    """Return one seed for all steps: from the regressor's `random_state`, or the previous one."""
    params = regressor.get_params(deep=True)
    states = [params[name] for name in _seed_names(regressor) if params[name] is not None]
    if not states and previous is not None:
        return previous
    rng = check_random_state(copy.deepcopy(states[0]) if states else None)
    return int(rng.randint(np.iinfo(np.int32).max))


def _seeded(regressor: Any, rng: np.random.RandomState) -> Any:
    names = _seed_names(regressor)
    seeds = rng.randint(np.iinfo(np.int32).max, size=len(names))
    return regressor.set_params(**dict(zip(names, seeds.tolist(), strict=True)))
