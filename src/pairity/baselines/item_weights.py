"""Re-weighting items before training: a pointwise logistic with one multiplier per group and rate.

After Jiang & Nachum. An item's weight follows from its label and from the groups it is in, and an
item may be in several. `reweight_items` is the loop, on a matrix of memberships; `item_weights`
makes a `Method` of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from numbers import Integral
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from pairity._utils.typing import Array
from pairity._utils.validation import is_real, show
from pairity.baselines.methods import Method, Scorer, changed_from
from pairity.constraints import largest_gaps
from pairity.data.columns import Features, as_features
from pairity.data.groups import JOIN
from pairity.data.queries import Queries, require_groups
from pairity.exceptions import ConstraintError, InputError, TargetNotReachedWarning
from pairity.rankers._products import one_blas_thread, times
from pairity.reweighting.algorithm import Outcome

Mask = NDArray[np.bool_]
Membership = Literal["groups", "parts"] | Callable[[Queries], ArrayLike]

RATES: dict[str, tuple[str, ...]] = {
    "demographic parity": ("all",),
    "equal opportunity": ("positive",),
    "equalised odds": ("positive", "negative"),
}
_MOST_GRADES = 20  # different labels, above which they are taken for real numbers
_MOST_SOLVED = 300  # dense features up to which Newton steps pay


@dataclass(frozen=True, eq=False)
class ItemRound:
    """One round: the multipliers in force, and what the model trained with them does.

    Attributes
    ----------
    number : int, 0 for the model without weights
    lambda_ : array of shape (n_rates, n_attributes)
    delta : array of the same shape, Δ; NaN for a group without items
    violation : float, the largest gap; see `largest_rate_gap`
    accuracy : float, of the predicted labels on the items measured
    """

    number: int
    lambda_: Array
    delta: Array
    violation: float
    accuracy: float


@dataclass(frozen=True, eq=False)
class ItemModel:
    """The best round's logistic model; called with queries, it scores their items.

    Attributes
    ----------
    coef, intercept : float64 array of shape (n_features,), float
        In the units of the features; a score is the log odds of a positive label.
    best : ItemRound
        The round whose weights it was trained with.
    rounds : tuple of ItemRound
    outcome : Outcome, how it ended; prints as a sentence
    """

    coef: Array
    intercept: float
    best: ItemRound
    rounds: tuple[ItemRound, ...]
    outcome: Outcome

    def decision_function(self, X: Any) -> Array:
        """Scores of shape (n_items,)."""
        features = as_features(X)[0]
        if features.shape[1] != len(self.coef):
            raise InputError(
                f"X has {features.shape[1]} features, but the model was trained on "
                f"{len(self.coef)}. Give the same columns."
            )
        with one_blas_thread:
            return times(features, self.coef) + self.intercept

    def __call__(self, queries: Queries) -> Array:
        """Scores of the items of `queries`, of shape (n_items,)."""
        if queries.X is None:
            raise InputError("The queries have no features. Build them with X.")
        return self.decision_function(queries.X)


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
    """Re-weighting of Jiang & Nachum: items are weighed by label and group, the loss is pointwise.

    Parameters
    ----------
    constraint : {"equal opportunity", "demographic parity", "equalised odds"}
        Which rate of positive predictions is evened out: that of positive items, that of all
        items, or those of positive and of negative items.
    eta : float, default=1.0
        The step of λ ← λ - η Δ.
    max_rounds : int, default=100
        The most retrainings; 0 gives the plain logistic regression.
    tolerance : float, default=0.01
        The violation on the training items at which to stop. It is this method's knob: a
        larger one gives a more useful and less even ranking.
    membership : {"groups", "parts"} or callable, default="groups"
        Which attributes an item has. "groups": its group is the only one. "parts": every part of
        its group's name, where groups are intersections, so that an item of
        ``female × over 50`` is in ``female`` and in ``over 50``. A function of the training
        queries gives a boolean matrix of shape (n_items, n_attributes).
    threshold : float, optional
        Labels above it are positive. By default the lowest label, or the median where there are
        more than 20 different labels.
    alpha : float, default=1e-4
        Strength of the L2 penalty, on standardised features and against a mean loss.

    Returns
    -------
    Method
        Its scorer is an `ItemModel`; a score is the log odds. It reads no group.

    Notes
    -----
    Items and queries are weighed by their own weights as well. Items of unknown group train with
    the weight ½, which is that of all items at λ = 0, and are not measured. Rounds that ran out
    before the tolerance was met are warned of, and the round least in violation is kept.

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
    >>> print(model.outcome)
    The violation came within the tolerance.
    """
    constraint = _known_constraint(constraint)
    _check_numbers(eta, max_rounds, tolerance, alpha)
    if membership not in ("groups", "parts") and not callable(membership):
        raise InputError(
            f"membership is {show(membership)}; choose 'groups', 'parts' or a function of the "
            "training queries. reweight_items takes a matrix."
        )
    if threshold is not None and not is_real(threshold):
        raise InputError(f"threshold is {show(threshold)}; give a number, or None.")

    def fit(train: Queries, random_state: int) -> Scorer:  # noqa: ARG001 - nothing is drawn
        members, names, known = _memberships(train, membership)
        weight = train.weight_of_query[train.query]
        if train.item_weight is not None:
            weight = weight * train.item_weight
        return reweight_items(
            train.X, _positive(train.y, threshold), members, constraint, sample_weight=weight,
            measured=known, names=names, eta=eta, max_rounds=max_rounds, tolerance=tolerance,
            alpha=alpha,
        )  # fmt: skip

    others = {
        "eta": eta, "max_rounds": max_rounds, "membership": membership, "threshold": threshold,
        "alpha": alpha,
    }  # fmt: skip
    settings = {"constraint": constraint, "tolerance": tolerance}
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
    eta: float = 1.0,
    max_rounds: int = 100,
    tolerance: float = 0.01,
    alpha: float = 1e-4,
) -> ItemModel:
    r"""The loop: train, measure, move λ, weigh the items, train again.

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
        The items on which Δ is measured; by default all. An item that has none of the attributes
        counts towards the rate of everybody.
    names : tuple of str, optional
        Of the attributes, for messages.
    eta, max_rounds, tolerance, alpha
        As in `item_weights`.

    Notes
    -----
    A round's model is trained with the weights of that round's λ, and the model kept is that of
    the round least in violation, the more accurate of two alike. Weights that lag one round
    behind, or a last round that is kept whatever it does, leave a λ that describes another model.
    """
    constraint = _known_constraint(constraint)
    _check_numbers(eta, max_rounds, tolerance, alpha)
    features = as_features(X)[0] if X is not None else None
    if features is None:
        raise InputError("There are no features to learn from. Give X, one row per item.")
    positive, members = _read_items(y, membership, int(features.shape[0]))
    n_items, n_attributes = members.shape
    weight = np.ones(n_items) if sample_weight is None else np.asarray(sample_weight, float)
    seen = np.ones(n_items, bool) if measured is None else np.asarray(measured, bool)
    if weight.shape != (n_items,) or seen.shape != (n_items,):
        raise InputError(
            f"sample_weight has shape {weight.shape} and measured {seen.shape}; give one entry for "
            f"each of the {n_items} items."
        )
    shown = names or tuple(f"attribute {at}" for at in range(n_attributes))
    measure = weight * seen
    _check_rates(positive, members, measure, constraint, shown)
    learner = _Logistic.of(features, positive, weight, alpha)
    lambda_ = np.zeros((len(RATES[constraint]), n_attributes))
    rounds: list[ItemRound] = []
    best: tuple[ItemRound, Array, float] | None = None
    outcome = Outcome.ROUNDS_EXHAUSTED if max_rounds else Outcome.NO_ROUNDS
    for number in range(max_rounds + 1):  # round 0 has equal weights
        coef, intercept = learner.fit(weigh_items(positive, members, lambda_))
        predicted = learner.predict()
        delta = rate_gaps(positive, predicted, members, constraint, sample_weight=measure)
        accuracy = float(np.average(predicted == positive, weights=measure))
        ended = ItemRound(number, lambda_, delta, largest_rate_gap(delta), accuracy)
        rounds.append(ended)
        if best is None or (ended.violation, -accuracy) < (best[0].violation, -best[0].accuracy):
            best = (ended, coef, intercept)
        if max_rounds and ended.violation <= tolerance:
            outcome = Outcome.WITHIN_TOLERANCE
            break
        lambda_ = lambda_ - eta * np.nan_to_num(delta)
    assert best is not None  # noqa: S101 - round 0 has ended
    model = ItemModel(best[1], best[2], best[0], tuple(rounds), outcome)
    if outcome is Outcome.ROUNDS_EXHAUSTED:
        warnings.warn(
            f"{outcome} Violation of {constraint} on {int(seen.sum())} items: "
            f"{rounds[0].violation:.5g} without weights, {best[0].violation:.5g} in round "
            f"{best[0].number} of {max_rounds}, against a tolerance of {tolerance:g}. A tolerance "
            f"of {best[0].violation:.3g} is met; else raise max_rounds.",
            TargetNotReachedWarning,
            stacklevel=2,
        )
    return model


def weigh_items(y: ArrayLike, membership: ArrayLike, lambda_: ArrayLike) -> Array:
    r"""The weight of each item, from its label and its attributes.

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
    r"""How much more often members of a group are predicted positive than everybody.

    .. math:: \Delta_{rk} = P(\hat y = 1 \mid r, G_k) - P(\hat y = 1 \mid r)

    with r all items (demographic parity), those labelled positive (equal opportunity), or first
    those labelled positive and then those labelled negative (equalised odds).

    Parameters
    ----------
    y, predicted : booleans of shape (n_items,)
    membership : booleans of shape (n_items, n_attributes)
    constraint : {"equal opportunity", "demographic parity", "equalised odds"}
    sample_weight : array of shape (n_items,), optional

    Returns
    -------
    array of shape (n_rates, n_attributes), NaN where there is no item
    """
    positive, members = np.asarray(y, bool), np.asarray(membership, float)
    weight = np.ones(len(positive)) if sample_weight is None else np.asarray(sample_weight, float)
    among = _conditions(positive, _known_constraint(constraint)) * weight
    chosen = among * np.asarray(predicted, bool)
    with np.errstate(invalid="ignore", divide="ignore"):
        everybody = chosen.sum(axis=1) / among.sum(axis=1)
        return np.asarray((chosen @ members) / (among @ members) - everybody[:, None])


def largest_rate_gap(delta: Array) -> float:
    """The violation: the largest gap between two groups, or between a group and all items.

    If the groups form a partition, some are above the rate of all items and some below, and this
    is the gap between the highest and the lowest. With equalised odds it is the larger of the two.
    """
    with_all_items = np.pad(np.nan_to_num(delta), ((0, 0), (0, 1)))  # whose delta is 0
    return float(largest_gaps(with_all_items, 1).max())


# --- training ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Logistic:
    """A weighted logistic regression on standardised features, each fit begun at the last."""

    features: Features
    positive: Mask
    weight: Array
    alpha: float
    scaler: StandardScaler
    model: LogisticRegression

    @classmethod
    def of(cls, X: Features, positive: Mask, weight: Array, alpha: float) -> _Logistic:
        scaler = StandardScaler(with_mean=not sp.issparse(X))
        features = scaler.fit_transform(X, sample_weight=weight)
        newton = not sp.issparse(X) and X.shape[1] <= _MOST_SOLVED
        model = LogisticRegression(
            solver="newton-cholesky" if newton else "lbfgs",
            tol=1e-7 if newton else 1e-6,
            max_iter=1000,
            warm_start=True,
        )
        return cls(features, positive, weight, alpha, scaler, model)

    def fit(self, item_weight: Array) -> tuple[Array, float]:
        """Coefficients and intercept in the units of the features."""
        weight = self.weight * item_weight
        self.model.set_params(C=1.0 / (self.alpha * weight.sum()))  # the loss is a mean
        with one_blas_thread:
            self.model.fit(self.features, self.positive, sample_weight=weight)
        coef = self.model.coef_[0] / self.scaler.scale_
        mean = self.scaler.mean_ if self.scaler.with_mean else np.zeros_like(coef)
        return coef, float(self.model.intercept_[0] - mean @ coef)

    def predict(self) -> Mask:
        """Which items it calls positive: those of a probability above one half."""
        with one_blas_thread:
            scores = times(self.features, self.model.coef_[0]) + self.model.intercept_[0]
        return np.asarray(scores > 0.0)


def _conditions(positive: Mask, constraint: str) -> Mask:
    """Which items each rate is of, of shape (n_rates, n_items)."""
    items = {"all": np.ones_like(positive), "positive": positive, "negative": ~positive}
    return np.stack([items[rate] for rate in RATES[constraint]])


# --- what is given -------------------------------------------------------------------------------


def _positive(y: Array, threshold: float | None) -> Mask:
    """Binary labels."""
    if threshold is None:
        different = np.unique(y)
        above = different[0] if len(different) <= _MOST_GRADES else np.median(y)
        return np.asarray(y > above)
    return np.asarray(y > threshold)


def _memberships(
    queries: Queries, membership: Membership
) -> tuple[Any, tuple[str, ...] | None, Mask | None]:
    """The matrix, the names of its columns, and the items to measure."""
    if callable(membership):
        return membership(queries), None, None
    require_groups(queries)
    known = queries.group < queries.n_groups
    if membership == "groups":
        return queries.group[:, None] == np.arange(queries.n_groups), queries.groups, known
    table, names = _parts(queries.groups)
    return np.vstack([table, np.zeros((1, len(names)), bool)])[queries.group], names, known


def _parts(groups: tuple[str, ...]) -> tuple[Mask, tuple[str, ...]]:
    """Which parts the names of the groups have: (n_groups, n_parts), and the parts' names.

    The same word in another place is another part, as in ``yes × no``.
    """
    split = [tuple(enumerate(name.split(JOIN))) for name in groups]
    if len({len(parts) for parts in split}) > 1:
        longest = max(split, key=len)
        raise InputError(
            f"membership='parts' splits the names of intersections at {JOIN!r}, but they have "
            f"different numbers of parts: {groups[0]!r}, {groups[split.index(longest)]!r}. Name "
            "the groups without it, or give a function as membership."
        )
    found = sorted({part for parts in split for part in parts})
    table = np.array([[part in parts for part in found] for parts in split])
    words = [word for _, word in found]
    names = tuple(w if words.count(w) == 1 else f"{w} (column {at})" for at, w in found)
    return table, names


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
    """Refuse labels that are all alike, and groups whose rate does not exist."""
    if positive.all() or not positive.any():
        raise InputError(
            f"All {len(positive)} items are {'positive' if positive.all() else 'negative'}: "
            "nothing to tell apart. Choose another threshold."
        )
    sizes = measure @ members.astype(float)
    if not (sizes > 0).any():
        raise ConstraintError(
            f"No item has any of the {members.shape[1]} attributes: nothing to compare."
        )
    among = (_conditions(positive, constraint) * measure) @ members.astype(float)
    for rate, row in zip(RATES[constraint], among, strict=True):
        empty = np.flatnonzero((row == 0) & (sizes > 0))
        if len(empty):
            raise ConstraintError(
                f"The group {names[empty[0]]!r} has items but no {rate} one, so {constraint} says "
                "nothing about it. Choose another threshold, or 'demographic parity', which needs "
                "no labels."
            )


def _known_constraint(constraint: Any) -> str:
    if isinstance(constraint, str):
        plain = constraint.lower().replace("_", " ").replace("-", " ").replace("ized", "ised")
        if plain in RATES:
            return plain
        close = get_close_matches(plain, RATES, 1, 0.7)
        meant = f" Did you mean {close[0]!r}?" if close else ""
    else:
        meant = ""
    raise ConstraintError(
        f"Item weights cannot express {show(constraint)}: they weigh single items, not pairs."
        f"{meant} They know {', '.join(map(repr, RATES))}; for constraints on pairs use FairRanker."
    )


def _check_numbers(eta: Any, max_rounds: Any, tolerance: Any, alpha: Any) -> None:
    for name, value in (("eta", eta), ("alpha", alpha)):
        if not is_real(value) or not 0.0 < value < np.inf:
            raise InputError(f"{name} is {show(value)}; give a number above 0.")
    if not is_real(tolerance) or not 0.0 <= tolerance < np.inf:
        raise InputError(f"tolerance is {show(tolerance)}; give a number from 0 up, such as 0.01.")
    if not is_real(max_rounds) or not isinstance(max_rounds, Integral) or max_rounds < 0:
        raise InputError(f"max_rounds is {show(max_rounds)}; give a whole number, 0 or more.")
