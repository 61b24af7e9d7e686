"""Synthetic queries whose unbiased labels are known."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.utils import check_random_state

from pairity._utils.typing import Array
from pairity._utils.validation import require_choice, require_count
from pairity.data.queries import Queries
from pairity.exceptions import InputError


@dataclass(frozen=True, eq=False)
class BiasedRanking:
    """Items with a biased label `y` and the unbiased label `y_unbiased` that it is derived from.

    Attributes
    ----------
    X : float64 array of shape (n_items, n_features)
    y, y_unbiased : float64 arrays of shape (n_items,)
    qid : int64 array of shape (n_items,)
    sensitive_features : object array of shape (n_items,), 'group 1' to 'group K'
    query_weight : float64 array of shape (n_items,), or None
        The probability of each observation, if labels are not drawn but expected.
    query_weight_unbiased : the same for `y_unbiased`, or None
    coef : float64 array of shape (n_features,), of the unbiased score
    lambda_ : float64 array of shape (n_groups, n_groups)
        The antisymmetric multipliers that undo a bias of pairs.
    """

    X: Array
    y: Array
    y_unbiased: Array
    qid: NDArray[np.int64]
    sensitive_features: NDArray[np.object_]
    coef: Array
    lambda_: Array
    query_weight: Array | None = None
    query_weight_unbiased: Array | None = None

    def queries(self) -> Queries:
        """Return the queries with the biased labels, as a user would observe them."""
        return self._queries(self.y, self.query_weight)

    def unbiased(self) -> Queries:
        """Return the same items with the unbiased labels."""
        return self._queries(self.y_unbiased, self.query_weight_unbiased)

    def _queries(self, y: Any, query_weight: Any) -> Queries:
        return Queries.from_arrays(
            self.X, y, qid=self.qid, sensitive_features=self.sensitive_features,
            query_weight=query_weight,
        )  # fmt: skip


@dataclass(frozen=True)
class BiasedWorld:
    r"""How items, scores and labels arise in `make_biased_ranking`, beside its plain arguments.

    Attributes
    ----------
    n_features : int
    merit_gap : float
        The difference between the mean unbiased scores of the first and the last group.
    noise : float
        Standard deviation of ε in units of the score's ("scores" only).
    share : array of shape (n_groups,), optional
        Probability of each group; equal by default.
    bias : {"scores", "pairs"}
        "scores": the label orders items by :math:`s + \varepsilon + b_g`, the unbiased label by
        :math:`s + \varepsilon`.
        "pairs": item i beats item j with probability σ(s_i - s_j - λ_kl); for the unbiased label,
        with probability σ(s_i - s_j). This is the distribution of Proposition 1: among those with
        the bias, the closest to the unbiased one in KL divergence. Weights W_kl = 2σ(λ_kl) undo it.
    favoured : array of shape (n_groups,), optional
        Direction of the bias: how much each group is favoured. By default it decreases evenly from
        the first group (+½) to the last (-½).
    expected : bool
        With ``bias="pairs"``: whether both outcomes of every comparison are included, weighted by
        their probability, rather than one drawn at random. Theorem 1 then holds without sampling
        error.
    """

    n_features: int = 5
    merit_gap: float = 0.0
    noise: float = 1.0
    share: ArrayLike | None = None
    bias: Literal["scores", "pairs"] = "scores"
    favoured: ArrayLike | None = None
    expected: bool = False

    def __post_init__(self) -> None:
        require_choice("bias", self.bias, ("scores", "pairs"))
        require_count(self.n_features, "n_features")
        if self.expected and self.bias != "pairs":
            raise InputError("expected=True requires bias='pairs', because scores are drawn.")


_USUAL = BiasedWorld()


def make_biased_ranking(
    n_queries: int = 200,
    n_items: int = 60,
    *,
    n_groups: int = 2,
    n_labels: int = 2,
    strength: float = 1.0,
    separation: float = 1.0,
    world: BiasedWorld = _USUAL,
    random_state: Any = None,
) -> BiasedRanking:
    r"""Generate ranking data with a known bias against some groups.

    Items have Gaussian features and an unbiased score :math:`s = \beta^\top x`. The features of the
    groups are shifted apart in a direction orthogonal to the score, so that they carry information
    about the group and a ranker can learn the bias. The unbiased scores of all groups have the same
    distribution unless ``world.merit_gap`` is set.

    Parameters
    ----------
    n_queries, n_items : int
        Number of lists, and items in each. If the world has ``bias="pairs"``, every query is one
        comparison of two items, and `n_items` is the number of comparisons drawn from each list.
    n_groups : int
    n_labels : int
        Number of label grades (for a bias of scores); every list is split into equal shares.
    strength : float
        The difference between the biases of the most and the least favoured group: b (in units of
        the standard deviation of the score), or λ. 0 means no bias.
    separation : float
        The distance between the features of the first and the last group, orthogonal to the score.
        With 0 the features carry no information about the group.
    world : BiasedWorld
        The number of features, and how scores and labels arise.
    random_state : int, RandomState instance or None

    Returns
    -------
    BiasedRanking

    Examples
    --------
    >>> from pairity.datasets import BiasedWorld, make_biased_ranking
    >>> data = make_biased_ranking(20, 30, strength=1.0, random_state=0)
    >>> data.queries()
    Queries(n_queries=20, n_items=600, n_features=5, groups=('group 1', 'group 2'), n_missing=0)
    >>> pairs = make_biased_ranking(20, 30, world=BiasedWorld(bias="pairs"), random_state=0)
    >>> pairs.queries().n_queries
    600
    """
    require_count(n_queries, "n_queries")
    require_count(n_items, "n_items", least=2)
    require_count(n_groups, "n_groups")
    require_count(n_labels, "n_labels", least=2)
    rng = check_random_state(random_state)
    even = np.linspace(0.5, -0.5, n_groups)
    favour = even if world.favoured is None else np.asarray(world.favoured, float)
    if favour.shape != (n_groups,):
        raise InputError(f"favoured has shape {favour.shape}. Pass {n_groups}, one per group.")
    coef = rng.normal(size=world.n_features)
    coef /= np.linalg.norm(coef)
    across = rng.normal(size=world.n_features)
    across -= (across @ coef) * coef
    length = np.linalg.norm(across)
    across *= separation / length if world.n_features > 1 and length > 0 else 0.0
    n_drawn = n_items if world.bias == "scores" else 2 * n_items
    group = rng.choice(n_groups, size=n_queries * n_drawn, p=world.share)
    X = rng.normal(size=(len(group), world.n_features))
    X += np.outer(even[group], across + world.merit_gap * coef)
    scores, bias = X @ coef, strength * favour
    if world.bias == "pairs":
        rows, labels = _biased_pairs(rng, scores, group, bias, world.expected)
        X, group = X[rows], group[rows]
    else:
        shape = (n_queries, n_items)
        labels = _biased_scores(rng, scores, bias[group], shape, world.noise, n_labels)
        labels["lambda_"] = np.zeros((n_groups, n_groups))
    return BiasedRanking(X=X, sensitive_features=_names(group, n_groups), coef=coef, **labels)


def _biased_scores(
    rng: Any, scores: Array, bias: Array, shape: tuple[int, int], noise: float, n_labels: int
) -> dict[str, Any]:
    """The labels of items with these scores and biases, and their queries."""
    size = scores.std()
    latent = scores + noise * size * rng.normal(size=len(scores))

    def grades(values: Array) -> Array:
        rank = values.reshape(shape).argsort(axis=1).argsort(axis=1)
        return (rank * n_labels // shape[1]).astype(float).ravel()

    qid = np.repeat(np.arange(shape[0]), shape[1])
    return {"y": grades(latent + size * bias), "y_unbiased": grades(latent), "qid": qid}


def _biased_pairs(
    rng: Any, scores: Array, group: NDArray[np.int64], bias: Array, expected: bool
) -> tuple[NDArray[np.int64], dict[str, Any]]:
    """The items of comparisons, and their labels, queries and weights."""
    rows = np.arange(len(scores))
    pair = group.reshape(-1, 2)
    lambda_ = bias[None, :] - bias[:, None]  # pairs won by a favoured group get a lower weight
    lead = scores[::2] - scores[1::2]
    wins, seen = expit(lead), expit(lead - lambda_[pair[:, 0], pair[:, 1]])

    def both_sides(first: Array) -> Array:
        return np.stack([first, 1.0 - first], axis=1).ravel()

    if expected:
        rows = np.tile(rows.reshape(-1, 2), 2).ravel()
        y = y_unbiased = np.tile([1.0, 0.0, 0.0, 1.0], len(pair))
        weights = {
            "query_weight": np.repeat(both_sides(seen), 2),
            "query_weight_unbiased": np.repeat(both_sides(wins), 2),
        }
    else:
        draw, weights = rng.random(len(pair)), {}
        y, y_unbiased = (both_sides((draw < share).astype(float)) for share in (seen, wins))
    qid = np.repeat(np.arange(len(rows) // 2), 2)
    return rows, {"y": y, "y_unbiased": y_unbiased, "qid": qid, "lambda_": lambda_, **weights}


def _names(group: NDArray[np.int64], n_groups: int) -> NDArray[np.object_]:
    """Return names that sort in the order of the groups."""
    names = [f"group {k:0{len(str(n_groups))}d}" for k in range(1, n_groups + 1)]
    return np.array(names, dtype=object)[group]
