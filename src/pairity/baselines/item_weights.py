"""Item weights before training: a pointwise logistic loss with one multiplier per group and rate.

The baseline of Jiang & Nachum. The weight of an item depends on its label and on its groups, of
which it may have several. `reweight_items` is the loop on a matrix of memberships; `item_weights`
makes a `Method` of it.
"""

import warnings
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from pairity._utils.typing import Array
from pairity._utils.validation import is_real, require_count, require_number, show
from pairity.baselines._linear import LinearScorer, item_weight_of
from pairity.baselines._memberships import Mask, Membership, read_memberships
from pairity.baselines.methods import Method, Scorer, changed_from
from pairity.constraints import largest_gaps
from pairity.data.columns import as_numbers
from pairity.data.features import Features, as_features
from pairity.data.queries import Queries
from pairity.exceptions import ConstraintError, InputError, TargetNotReachedWarning
from pairity.rankers._products import one_blas_thread, times
from pairity.reweighting.outcomes import Outcome

RATES: dict[str, tuple[str, ...]] = {
    "demographic parity": ("all",),
    "equal opportunity": ("positive",),
    "equalised odds": ("positive", "negative"),
}
_MAX_GRADES = 20  # more different labels than this are taken for real numbers
_MAX_NEWTON_FEATURES = 300  # dense features up to which Newton steps are faster than L-BFGS


@dataclass(frozen=True, eq=False)
class ItemRound:
    """One round: the multipliers, and what the model trained with them does.

    Attributes
    ----------
    number : int, 0 for the model without weights
    lambda_ : array of shape (n_rates, n_attributes)
    delta : array of the same shape, Δ; NaN for a group without items
    violation : float, the largest gap; see `largest_rate_gap`
    accuracy : float, that of the predicted labels on the measured items
    """

    number: int
    lambda_: Array
    delta: Array
    violation: float
    accuracy: float


@dataclass(frozen=True, eq=False)
class ItemModel(LinearScorer):
    """The logistic model of the best round. Called with queries, it scores their items.

    Attributes
    ----------
    coef, intercept : float64 array of shape (n_features,), float
        In the units of the features. A score is the log odds of a positive label.
    best : ItemRound
        The round whose weights the model was trained with.
    rounds : tuple of ItemRound
    outcome : Outcome, how the loop ended; prints as a sentence
    """

    intercept: float
    best: ItemRound
    rounds: tuple[ItemRound, ...]
    outcome: Outcome

    def decision_function(self, X: Any) -> Array:
        """Return scores of shape (n_items,)."""
        return super().decision_function(None if X is None else as_features(X)[0]) + self.intercept


@dataclass(frozen=True)
class Steps:
    """How the loop moves λ and when it stops; see `item_weights`."""

    eta: float = 1.0
    max_rounds: int = 100
    tolerance: float = 0.01
    alpha: float = 1e-4

    def __post_init__(self) -> None:
        require_number(self.eta, "eta", positive=True)
        require_number(self.alpha, "alpha", positive=True)
        require_number(self.tolerance, "tolerance")
        require_count(self.max_rounds, "max_rounds", least=0)


def item_weights(
    constraint: str = "equal opportunity",
    *,
    eta: float = 1.0,
    max_rounds: int = 100,
    tolerance: float = 0.01,
    membership: Membership = "groups",
    threshold: float | None = None,
    alpha: float = 1e-4,
) -> Method:
    """Weight items by label and group in a pointwise logistic loss (Jiang & Nachum).

    Parameters
    ----------
    constraint : {"equal opportunity", "demographic parity", "equalised odds"}
        The rate of positive predictions that is equalised between groups: that of positive items,
        that of all items, or those of positive and of negative items.
    eta : float, default=1.0
        The step size in λ ← λ - η Δ.
    max_rounds : int, default=100
        The largest number of retrainings; 0 gives the plain logistic regression.
    tolerance : float, default=0.01
        The violation on the training items at which the loop stops. It is the trade-off of this
        method: a larger tolerance gives a more accurate ranking with a larger violation.
    membership : {"groups", "parts"} or callable, default="groups"
        Which attributes an item has. "groups": only its group. "parts": every part of its group's
        name, where groups are intersections, so that an item of ``female × over 50`` is in
        ``female`` and in ``over 50``. A function of the training queries returns a boolean matrix
        of shape (n_items, n_attributes).
    threshold : float, optional
        Labels above it are positive. By default it is the lowest label, or the median if there
        are more than 20 different labels.
    alpha : float, default=1e-4
        Strength of the L2 penalty, on standardised features and relative to a mean loss.

    Returns
    -------
    Method
        Its scorer is an `ItemModel`, whose scores are log odds. It does not read groups.

    Notes
    -----
    The weights of items and queries multiply those of the method. Items of unknown group train
    with weight ½, which all items have at λ = 0, and are not measured. If the rounds run out
    before the tolerance is met, a warning says so, and the round with the lowest violation is kept.

    References
    ----------
    H. Jiang and O. Nachum, *Identifying and Correcting Label Bias in Machine Learning*, AISTATS
    2020.

    Examples
    --------
    >>> from pairity.baselines.item_weights import item_weights
    >>> from pairity.datasets import make_biased_ranking
    >>> train = make_biased_ranking(50, 40, random_state=0).queries()
    >>> method = item_weights("equal opportunity", tolerance=0.02)
    >>> method
    item weights(constraint='equal opportunity', tolerance=0.02)
    >>> model = method.fit(train, 0)
    >>> model.outcome.name
    'WITHIN_TOLERANCE'
    """
    constraint = _known_constraint(constraint)
    steps = vars(Steps(eta, max_rounds, tolerance, alpha))
    if membership not in ("groups", "parts") and not callable(membership):
        raise InputError(
            f"membership is {show(membership)}. Choose 'groups', 'parts' or a function of the "
            "training queries. reweight_items takes a matrix."
        )
    if threshold is not None and not is_real(threshold):
        raise InputError(f"threshold must be a number or None (got {show(threshold)}).")

    def fit(train: Queries, random_state: int) -> Scorer:  # noqa: ARG001 - nothing is drawn
        members, names, known = read_memberships(train, membership)
        return reweight_items(
            train.X, _positive(train.y, threshold), members, constraint,
            sample_weight=item_weight_of(train), measured=known, names=names, **steps,
        )  # fmt: skip

    settings = {"constraint": constraint, "tolerance": tolerance}
    others = steps | {"membership": membership, "threshold": threshold}
    return Method("item weights", fit, False, settings | changed_from(item_weights, others))


def reweight_items(
    X: Any,
    y: ArrayLike,
    membership: ArrayLike,
    constraint: str = "equal opportunity",
    *,
    sample_weight: ArrayLike | None = None,
    measured: ArrayLike | None = None,
    names: tuple[str, ...] | None = None,
    **steps: Any,
) -> ItemModel:
    r"""Train, measure, move λ, weight the items, and train again.

    .. math:: \lambda_{rk} \leftarrow \lambda_{rk} - \eta \Delta_{rk}

    from λ = 0, with Δ as in `rate_gaps` and weights as in `weigh_items`.

    Parameters
    ----------
    X : table or matrix of shape (n_items, n_features)
    y : booleans of shape (n_items,), or 0 and 1
    membership : booleans of shape (n_items, n_attributes)
        Which attributes an item has: one, several or none.
    constraint : {"equal opportunity", "demographic parity", "equalised odds"}
    sample_weight : array of shape (n_items,), optional
    measured : booleans of shape (n_items,), optional
        The items on which Δ is measured; by default all. An item without attributes counts
        towards the rate of all items.
    names : tuple of str, optional
        The names of the attributes, for messages.
    **steps
        eta, max_rounds, tolerance and alpha, as in `item_weights`.

    Notes
    -----
    The model of a round is trained with the weights of that round's λ. The model of the round with
    the lowest violation is kept, and of the more accurate round if two are equal. With weights
    that lag one round behind, or with the last round kept in any case, λ would describe another
    model.
    """
    constraint, loop = _known_constraint(constraint), Steps(**steps)
    if X is None:
        raise InputError("There are no features to learn from. Pass X with one row per item.")
    features = as_features(X)[0]
    positive, members = _read_items(y, membership, int(features.shape[0]))
    n_items, n_attributes = members.shape
    weight, counted = (
        np.ones(n_items) if values is None else as_numbers(values, name, n_items)
        for values, name in ((sample_weight, "sample_weight"), (measured, "measured"))
    )
    measure = weight * counted
    labels = names or tuple(f"attribute {number}" for number in range(n_attributes))
    _check_rates(positive, members, measure, constraint, labels)
    learner = _Logistic(features, positive, weight, loop.alpha)
    lambda_ = np.zeros((len(RATES[constraint]), n_attributes))
    rounds: list[ItemRound] = []
    models: list[tuple[Array, float]] = []
    outcome = Outcome.ROUNDS_EXHAUSTED if loop.max_rounds else Outcome.NO_ROUNDS
    for number in range(loop.max_rounds + 1):  # round 0 has equal weights
        models.append(learner.fit(weigh_items(positive, members, lambda_)))
        predicted = learner.predict()
        delta = rate_gaps(positive, predicted, members, constraint, sample_weight=measure)
        accuracy = float(np.average(predicted == positive, weights=measure))
        rounds.append(ItemRound(number, lambda_, delta, largest_rate_gap(delta), accuracy))
        if loop.max_rounds and rounds[-1].violation <= loop.tolerance:
            outcome = Outcome.WITHIN_TOLERANCE
            break
        lambda_ = lambda_ - loop.eta * np.nan_to_num(delta)
    best = min(rounds, key=lambda ended: (ended.violation, -ended.accuracy))
    if outcome is Outcome.ROUNDS_EXHAUSTED:
        warnings.warn(
            f"{outcome} Violation of {constraint} on {int(counted.sum())} items: "
            f"{rounds[0].violation:.5g} without weights, {best.violation:.5g} in round "
            f"{best.number} of {loop.max_rounds}, with a tolerance of {loop.tolerance:g}. Raise "
            f"the tolerance to {best.violation:.3g}, which is met, or raise max_rounds.",
            TargetNotReachedWarning,
            stacklevel=2,
        )
    return ItemModel(*models[best.number], best, tuple(rounds), outcome)


def weigh_items(y: ArrayLike, membership: ArrayLike, lambda_: ArrayLike) -> Array:
    r"""Return the weight of each item, from its label and its attributes.

    .. math::

        \tilde w_i = \exp \sum_k \lambda_k 1[i \in G_k], \qquad
        w_i = \frac{\tilde w_i}{1 + \tilde w_i} \text{ if } y_i = 1, \quad
        w_i = \frac{1}{1 + \tilde w_i} \text{ if } y_i = 0

    Equalised odds has two rows of λ, one for positive items and one for negative ones.

    Parameters
    ----------
    y : booleans of shape (n_items,)
    membership : booleans of shape (n_items, n_attributes)
    lambda_ : array of shape (1, n_attributes) or (2, n_attributes)

    Examples
    --------
    >>> import numpy as np
    >>> from pairity.baselines.item_weights import weigh_items
    >>> weigh_items([1, 0, 1, 0], [[1, 0], [1, 0], [0, 1], [0, 1]], [[np.log(3), 0]])
    array([0.75, 0.25, 0.5 , 0.5 ])
    """
    exponent = np.asarray(lambda_, float) @ np.asarray(membership, float).T
    return np.asarray(np.where(np.asarray(y, bool), expit(exponent[0]), expit(-exponent[-1])))


def rate_gaps(
    y: ArrayLike,
    predicted: ArrayLike,
    membership: ArrayLike,
    constraint: str = "equal opportunity",
    *,
    sample_weight: ArrayLike | None = None,
) -> Array:
    r"""Return how much more often members of a group are predicted positive than all items.

    .. math:: \Delta_{rk} = P(\hat y = 1 \mid r, G_k) - P(\hat y = 1 \mid r)

    where r selects all items (demographic parity), the items labelled positive (equal
    opportunity), or first these and then the items labelled negative (equalised odds).

    Parameters
    ----------
    y, predicted : booleans of shape (n_items,)
    membership : booleans of shape (n_items, n_attributes)
    constraint : {"equal opportunity", "demographic parity", "equalised odds"}
    sample_weight : array of shape (n_items,), optional

    Returns
    -------
    array of shape (n_rates, n_attributes), NaN for a group without such an item
    """
    positive, members = np.asarray(y, bool), np.asarray(membership, float)
    weight = np.ones(len(positive)) if sample_weight is None else np.asarray(sample_weight, float)
    selected = _conditions(positive, _known_constraint(constraint)) * weight
    chosen = selected * np.asarray(predicted, bool)
    with np.errstate(invalid="ignore", divide="ignore"):
        overall = chosen.sum(axis=1) / selected.sum(axis=1)
        return np.asarray((chosen @ members) / (selected @ members) - overall[:, None])


def largest_rate_gap(delta: Array) -> float:
    """Return the largest gap of any rate: between two groups, or a group and all items (Δ = 0).

    If the groups are a partition, some are above all items and some below, so this is the gap
    between the highest and the lowest group.
    """
    return float(largest_gaps(np.pad(np.nan_to_num(delta), ((0, 0), (0, 1))), 1).max())


# --- training ------------------------------------------------------------------------------------


class _Logistic:
    """A weighted logistic regression on standardised features; each fit starts at the last."""

    def __init__(self, X: Features, positive: Mask, weight: Array, alpha: float) -> None:
        self.positive, self.weight, self.alpha = positive, weight, alpha
        dense = not sp.issparse(X)
        self.scaler = StandardScaler(with_mean=dense)
        self.features = self.scaler.fit_transform(X, sample_weight=weight)
        newton = dense and X.shape[1] <= _MAX_NEWTON_FEATURES
        solver, tol = ("newton-cholesky", 1e-7) if newton else ("lbfgs", 1e-6)
        self.model = LogisticRegression(solver=solver, tol=tol, max_iter=1000, warm_start=True)

    def fit(self, item_weight: Array) -> tuple[Array, float]:
        """Return coefficients and intercept in the units of the features."""
        weight = self.weight * item_weight
        self.model.set_params(C=1.0 / (self.alpha * weight.sum()))  # the loss is a mean
        with one_blas_thread:
            self.model.fit(self.features, self.positive, sample_weight=weight)
        coef = self.model.coef_[0] / self.scaler.scale_
        mean = self.scaler.mean_ if self.scaler.with_mean else np.zeros_like(coef)
        return coef, float(self.model.intercept_[0] - mean @ coef)

    def predict(self) -> Mask:
        """Return which items have a predicted probability above one half."""
        with one_blas_thread:
            scores = times(self.features, self.model.coef_[0]) + self.model.intercept_[0]
        return np.asarray(scores > 0.0)


def _conditions(positive: Mask, constraint: str) -> Mask:
    """Return which items each rate is measured on, of shape (n_rates, n_items)."""
    items = {"all": np.ones_like(positive), "positive": positive, "negative": ~positive}
    return np.stack([items[rate] for rate in RATES[constraint]])


# --- checks and preparation ----------------------------------------------------------------------


def _positive(y: Array, threshold: float | None) -> Mask:
    """Return binary labels."""
    if threshold is None:
        different = np.unique(y)
        threshold = float(different[0] if len(different) <= _MAX_GRADES else np.median(y))
    return np.asarray(y > threshold)


def _read_items(y: ArrayLike, membership: ArrayLike, n_items: int) -> tuple[Mask, Mask]:
    labels, members = np.asarray(y), np.asarray(membership)
    if labels.shape != (n_items,) or not np.isin(labels, (0, 1)).all():
        raise InputError(
            f"y of shape {labels.shape} is not one 0 or 1 for each of the {n_items} rows of X. "
            "Compare labels with a threshold first."
        )
    if members.ndim != 2 or len(members) != n_items or not np.isin(members, (0, 1)).all():
        raise InputError(
            f"membership of shape {members.shape} is not a matrix of booleans with one row for "
            f"each of the {n_items} items and one column for each attribute."
        )
    return labels.astype(bool), members.astype(bool)


def _check_rates(
    positive: Mask, members: Mask, measure: Array, constraint: str, names: tuple[str, ...]
) -> None:
    """Refuse labels that are all equal, and groups whose rate is not defined."""
    if positive.all() or not positive.any():
        raise InputError(
            f"All {len(positive)} items are {'positive' if positive.all() else 'negative'}, so "
            "there is nothing to learn. Choose another threshold."
        )
    sizes = measure @ members.astype(float)
    if not (sizes > 0).any():
        raise ConstraintError(
            f"No item has any of the {members.shape[1]} attributes, so nothing is compared. Check "
            "membership."
        )
    among = (_conditions(positive, constraint) * measure) @ members.astype(float)
    for rate, row in zip(RATES[constraint], among, strict=True):
        empty = np.flatnonzero((row == 0) & (sizes > 0))
        if len(empty):
            raise ConstraintError(
                f"The group {names[empty[0]]!r} has items but no {rate} one, so {constraint} is "
                "not defined for it. Choose another threshold, or 'demographic parity', which "
                "needs no labels."
            )


def _known_constraint(constraint: Any) -> str:
    text = constraint.lower() if isinstance(constraint, str) else ""
    name = text.replace("_", " ").replace("-", " ").replace("ized", "ised")
    if name in RATES:
        return name
    close = get_close_matches(name, RATES, 1, 0.7)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ConstraintError(
        f"item_weights cannot express {show(constraint)}, because it weights single items, not "
        f"pairs.{hint} Choose from {', '.join(map(repr, RATES))}, or use FairRanker for "
        "constraints on pairs."
    )
