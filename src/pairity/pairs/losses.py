r"""Losses on preference pairs, weighted by the K × K table, that a ranker minimises.

A loss turns scores into derivatives, one number per item, which is all that a booster or another
engine needs: ``gradient, hessian = loss.derivatives(queries, scores, table)``. Both are sums over
preference pairs (i, j), y_i > y_j, of the derivatives of the pair's loss, times

.. math:: w_{ij} = v_q\, u_i u_j\, W_{g_i g_j},

the weights of the query and of the two items, and the table's entry for their groups (1 if a group
is missing). Derivatives are linear in the table, whose entries may be zero or negative: twice the
table gives twice the derivatives, and a zero drops a cell.

A loss with the attribute ``reversible`` also takes two tables, of shape (2, n_groups, n_groups).
The second contains the weights of mirrored pairs, for which the other item should be ahead:
w_ij L(s_i - s_j) + w̄_ij L(s_j - s_i). Pairs with a missing group have no mirrored weight.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike

from pairity._utils.threads import run_blocks
from pairity._utils.typing import Array
from pairity._utils.validation import require_count, require_number, show
from pairity.data.queries import Queries
from pairity.exceptions import InputError
from pairity.pairs.kernels import hinge as hinge_kernels
from pairity.pairs.kernels import lambdarank as lambdarank_kernels
from pairity.pairs.kernels import sampled as sampled_kernels
from pairity.pairs.logistic import as_kernel_input, pairwise_logistic

_MOST_GRADES = 31  # without gains: 2^label - 1 up to 2^30 - 1, as in LightGBM


class Loss(Protocol):
    """The interface of a loss.

    A loss whose gradient is that of a function also has ``value(queries, scores, table)``, which a
    minimiser with a line search needs and a booster does not.
    """

    def derivatives(
        self, queries: Queries, scores: Array, table: ArrayLike, *, iteration: int = 0
    ) -> tuple[Array, Array]:
        """Gradient and Hessian diagonal in the scores, in the caller's row order."""


@dataclass(frozen=True)
class Logistic:
    r"""The logistic loss on every preference pair, as in RankNet; the default.

    .. math:: L = \sum_{(i,j):\, y_i > y_j} w_{ij} \log(1 + e^{-(s_i - s_j)})

    References
    ----------
    C. Burges et al. (2005). Learning to rank using gradient descent. ICML.

    Examples
    --------
    >>> import numpy as np
    >>> from pairity import Queries
    >>> from pairity.pairs.losses import Logistic
    >>> queries = Queries.from_arrays(
    ...     None, [1, 0, 0], qid=[0, 0, 0], sensitive_features=["f", "m", "f"]
    ... )
    >>> gradient, hessian = Logistic().derivatives(queries, np.zeros(3), [[1, 3], [1, 1]])
    >>> gradient
    array([-2. ,  1.5,  0.5])
    """

    reversible: ClassVar[bool] = True

    def derivatives(
        self, queries: Queries, scores: Array, table: ArrayLike, *, iteration: int = 0
    ) -> tuple[Array, Array]:
        """Gradient and Hessian diagonal in the scores.

        Parameters
        ----------
        queries : Queries
        scores : float64 array of shape (n_items,)
            Finite, of any size.
        table : array of shape (n_groups, n_groups), or two such tables
        iteration : int
            Ignored by this loss.

        Returns
        -------
        gradient, hessian : float64 arrays of shape (n_items,)
        """
        result = pairwise_logistic(queries, scores, table, with_loss=False)
        return result.gradient, result.hessian

    def value(self, queries: Queries, scores: Array, table: ArrayLike) -> float:
        """The loss itself, summed over pairs."""
        return pairwise_logistic(queries, scores, table).loss


@dataclass(frozen=True)
class Hinge:
    r"""The hinge loss on every preference pair, as in Ranking SVM.

    .. math:: L = \sum_{(i,j):\, y_i > y_j} w_{ij} \max(0,\, m - (s_i - s_j))

    Parameters
    ----------
    margin : float
        m, above 0: the difference of scores from which a pair costs nothing.

    Notes
    -----
    The gradient counts pairs: −1 for the preferred and +1 for the other item of each pair that is
    less than a margin apart, s_i − s_j < m, times its weight. A pair exactly a margin apart adds
    nothing.

    The second derivative is zero wherever it exists, and a Newton step cannot divide by zero.
    Instead, `derivatives` returns for each item the weight of its violated pairs divided by m. A
    Newton step is then at most one margin, whatever the scale of scores and margin.

    Short lists compare all pairs; longer lists take O(n log n) by sorting.

    References
    ----------
    T. Joachims (2002). Optimizing search engines using clickthrough data. KDD.

    Examples
    --------
    >>> import numpy as np
    >>> from pairity import Queries
    >>> from pairity.pairs.losses import Hinge
    >>> queries = Queries.from_arrays(None, [1, 0, 0], qid=[0, 0, 0])
    >>> scores = np.array([2.0, 1.5, 0.0])
    >>> Hinge().derivatives(queries, scores, np.ones((0, 0)))[0]
    array([-1.,  1.,  0.])
    >>> Hinge().value(queries, scores, np.ones((0, 0)))
    0.5
    """

    margin: float = 1.0

    reversible: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_number(self.margin, "margin", positive=True)

    def derivatives(
        self, queries: Queries, scores: Array, table: ArrayLike, *, iteration: int = 0
    ) -> tuple[Array, Array]:
        """Gradient, and the weight of each item's violated pairs divided by the margin.

        Parameters and result are those of `Logistic.derivatives`.
        """
        return self._terms(queries, scores, table)[1:]

    def value(self, queries: Queries, scores: Array, table: ArrayLike) -> float:
        """The loss itself, summed over pairs."""
        return self._terms(queries, scores, table)[0]

    def _terms(
        self, queries: Queries, scores: Array, table: ArrayLike
    ) -> tuple[float, Array, Array]:
        tables = np.asarray(table, dtype=np.float64)
        return two_hinges(
            queries, scores, *(tables if tables.ndim == 3 else (tables,)), margin=self.margin
        )


def two_hinges(
    queries: Queries,
    scores: Array,
    table: ArrayLike,
    mirrored: ArrayLike | None = None,
    *,
    margin: float = 1.0,
) -> tuple[float, Array, Array]:
    r"""Hinges on both sides of every preference pair: the loss, its gradient, and a Hessian.

    .. math:: L = \sum_{(i,j):\, y_i > y_j}
        w_{ij} \max(0,\, m - (s_i - s_j)) + \bar w_{ij} \max(0,\, m + (s_i - s_j))

    Parameters
    ----------
    queries : Queries
    scores : float64 array of shape (n_items,)
    table : array of shape (n_groups, n_groups)
        Weights w, as in all losses.
    mirrored : array of shape (n_groups, n_groups), optional
        Weights w̄, which favour the opposite order; 0 by default, and where a group is unknown.
    margin : float, m

    Returns
    -------
    loss : float
    gradient, hessian : float64 arrays of shape (n_items,), as in `Hinge`
    """
    padded, losses = queries.pad(table), np.empty(queries.n_queries)
    opposite = np.zeros_like(padded) if mirrored is None else queries.pad(mirrored, fill=0.0)
    gradient, hessian = _derivatives(
        hinge_kernels.hinge, queries, scores, hinge_kernels.SHORT, padded, opposite,
        queries.training_weight, float(margin), losses,
    )  # fmt: skip
    return float(losses.sum()), gradient, hessian


def _derivatives(
    kernel: Callable[..., None], queries: Queries, scores: Array, *arguments: Any
) -> tuple[Array, Array]:
    """Run a kernel over all queries; return the gradient and the Hessian that it writes."""
    gradient, hessian = np.empty(queries.n_items), np.empty(queries.n_items)
    layout, scores = queries.layout, as_kernel_input(scores)
    run_blocks(kernel, layout.bounds, layout, scores, *arguments, gradient, hessian)
    return gradient, hessian


@dataclass(frozen=True)
class Sampled:
    r"""The logistic loss on pairs drawn at random, as in BPR.

    Each preferred item is compared with `n_pairs` lower items of its query, drawn uniformly and
    with replacement. Each draw represents its share of the c_i lower items:

    .. math::
        \frac{c_i}{n} \sum_{d=1}^{n} w_{i j_d} \log(1 + e^{-(s_i - s_{j_d})}),
        \qquad j_d \sim \mathrm{uniform}\{j : y_j < y_i\}

    so that gradient and Hessian have the expectation of those of `Logistic`.

    Parameters
    ----------
    n_pairs : int
        n, the number of draws for each preferred item. An item with at most n lower items is
        compared with each of them once, which is exact.
    random_state : int
        The seed, 0 or greater.

    Notes
    -----
    Draws depend only on the seed, the iteration, the item's row and the number of the draw:
    another call gives the same numbers, and so does any number of threads. Pass another
    `iteration` for other pairs. The time is O(n_items · n_pairs). `Logistic` is also nearly linear
    in the length of a list, and has no sampling noise; use draws to reproduce BPR.

    References
    ----------
    S. Rendle, C. Freudenthaler, Z. Gantner, L. Schmidt-Thieme (2009). BPR: Bayesian personalized
    ranking from implicit feedback. UAI.

    Examples
    --------
    >>> import numpy as np
    >>> from pairity import Queries
    >>> from pairity.pairs.losses import Sampled
    >>> queries = Queries.from_arrays(None, [1] + 9 * [0], qid=10 * [0])
    >>> loss = Sampled(n_pairs=2, random_state=0)
    >>> gradient, hessian = loss.derivatives(queries, np.zeros(10), np.ones((0, 0)), iteration=3)
    >>> float(gradient[0]), int(np.count_nonzero(gradient[1:]))  # nine pairs' weight on two
    (-4.5, 2)
    """

    n_pairs: int = 10
    random_state: int = 0

    reversible: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_count(self.n_pairs, "n_pairs")
        if require_count(self.random_state, "random_state", least=0) >= 2**63:
            raise InputError(f"random_state must be below 2^63 (got {show(self.random_state)}).")

    def derivatives(
        self, queries: Queries, scores: Array, table: ArrayLike, *, iteration: int = 0
    ) -> tuple[Array, Array]:
        """Gradient and Hessian diagonal on the pairs that this iteration draws.

        Parameters and result are those of `Logistic.derivatives`; `iteration` is 0 or greater.
        """
        padded = queries.pad(table)

        def run(scores: Array, table: Array) -> tuple[Array, Array]:
            draws = int(self.n_pairs), int(self.random_state), int(iteration)
            weights = table, queries.training_weight
            return _derivatives(sampled_kernels.sampled, queries, scores, *weights, *draws)

        if padded.ndim == 2:
            return run(scores, padded)
        gradient, hessian = run(scores, padded.sum(axis=0))
        equal = np.zeros(queries.n_items)  # at equal scores every pair has the gradient -1/2
        return gradient - 2.0 * run(equal, padded[1])[0], hessian

    def value(self, queries: Queries, scores: Array, table: ArrayLike) -> float:
        """The loss of `Logistic` on all pairs, which the draws estimate."""
        return Logistic().value(queries, scores, table)


@dataclass(frozen=True)
class LambdaRank:
    r"""The logistic loss, each pair times the change in NDCG if its items were exchanged.

    With the ranks r (from 0) that the scores give the items of a query, gains G and discounts
    d(r) = 1 / log2(2 + r), a preference pair (i, j) with min(r_i, r_j) < k has

    .. math::
        \delta_{ij} = \frac{(G_i - G_j)\, |d(r_i) - d(r_j)|}{\mathrm{maxDCG@}k}
                      \cdot \frac{1}{0.01 + |s_i - s_j|},
        \qquad p_{ij} = \frac{1}{1 + e^{\sigma (s_i - s_j)}}

    and adds −w σ δ p to the gradient of i, +w σ δ p to that of j, and w σ² δ p (1 − p) to the
    Hessian of both. Per query, all are then multiplied by log2(1 + S) / S, S the sum of 2 σ δ p
    over its pairs.

    Parameters
    ----------
    k : int
        The cutoff of NDCG; a pair counts if one of its items is among the first k.
        LightGBM's ``lambdarank_truncation_level``.
    sigma : float
        σ, the steepness of the logistic loss, above 0. LightGBM's ``sigmoid``.
    normalise : bool
        Whether to divide by the distance of the scores (unless all scores of the query are equal)
        and to multiply by log2(1 + S) / S. LightGBM's ``lambdarank_norm``.
    gains : sequence of float, optional
        The gain of each label 0, 1, 2, ..., not negative and not falling; 2^label − 1 by default.
        LightGBM's ``label_gain``.

    Notes
    -----
    With W = 1, no weights and no ties these are LightGBM's numbers (up to its rounding to float32
    and its table of the logistic function). S is summed *without* the table and the weights, so
    that it depends only on the list and the derivatives stay linear in W.

    Where scores tie, |d(r_i) − d(r_j)|, 0 unless min(r_i, r_j) < k, is its exact expectation over
    all orders of the tied items. The order of rows therefore makes no difference, even before the
    first tree, when all scores tie. (LightGBM ranks tied items in the order of their rows.) An
    item of weight 0 still occupies its rank.

    There is no ``value``, because ranks change with the scores and the gradient is not that of a
    function of them. Measure NDCG to monitor the training.

    XGBoost's ``rank:ndcg`` doubles the Hessian, which `pairity.rankers.xgboost` does too.

    References
    ----------
    C. Burges (2010). From RankNet to LambdaRank to LambdaMART: an overview. Microsoft Research,
    MSR-TR-2010-82.

    Examples
    --------
    >>> import numpy as np
    >>> from pairity import Queries
    >>> from pairity.pairs.losses import LambdaRank
    >>> queries = Queries.from_arrays(None, [0, 1], qid=[0, 0])
    >>> gradient, hessian = LambdaRank(normalise=False).derivatives(
    ...     queries, np.zeros(2), np.ones((0, 0))
    ... )
    >>> gradient.round(4)  # half of 1 - 1 / log2(3)
    array([ 0.1845, -0.1845])
    """

    k: int = 30
    sigma: float = 1.0
    normalise: bool = True
    gains: Sequence[float] | None = None

    reversible: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_count(self.k, "k")
        require_number(self.sigma, "sigma", positive=True)
        if self.gains is not None:
            object.__setattr__(self, "gains", _as_gains(self.gains))

    def derivatives(
        self, queries: Queries, scores: Array, table: ArrayLike, *, iteration: int = 0
    ) -> tuple[Array, Array]:
        """Gradient and Hessian diagonal, as the class defines them.

        Parameters and result are those of `Logistic.derivatives`. Labels must be whole numbers, 0
        or greater, that have a gain.
        """
        padded, longest = queries.pad(table), queries.layout.longest
        gains = queries.cached("gains", self.gains, lambda: self._gains_for(queries))
        single = padded.ndim == 2
        return _derivatives(
            lambdarank_kernels.lambdarank, queries, scores, queries.y,
            padded if single else padded.sum(axis=0), None if single else padded[1],
            queries.training_weight, gains, 1.0 / np.log2(2.0 + np.arange(longest)),
            min(int(self.k), longest), float(self.sigma), bool(self.normalise),
        )  # fmt: skip

    def _gains_for(self, queries: Queries) -> Array:
        labels = queries.y
        not_grades = (labels < 0) | (labels != np.floor(labels))
        if not_grades.any():
            row = int(np.argmax(not_grades))
            raise InputError(
                f"y is {labels[row]:g} in row {row}, but LambdaRank needs a gain for each label, "
                'and labels 0, 1, 2, ... Use loss="logistic", which only compares labels, or map '
                "the labels to grades, 0 or greater."
            )
        known = _MOST_GRADES if self.gains is None else len(self.gains)
        if labels.max() >= known:
            reason = (
                f"2^label - 1 is supported for labels up to {_MOST_GRADES - 1}"
                if self.gains is None
                else f"gains has {known} entries, for labels up to {known - 1}"
            )
            raise InputError(
                f"y has labels up to {labels.max():g}, but {reason}. Pass gains for all labels, "
                'map the labels to fewer grades, or use loss="logistic".'
            )
        if self.gains is None:
            return np.exp2(np.arange(known, dtype=np.float64)) - 1.0
        return np.array(self.gains, dtype=np.float64)


LOSSES: dict[str, type] = {
    "logistic": Logistic,
    "hinge": Hinge,
    "bpr": Sampled,
    "lambdarank": LambdaRank,
}


def as_loss(loss: Any) -> Loss:
    """The loss with this name, or the loss itself.

    Examples
    --------
    >>> from pairity.pairs.losses import as_loss
    >>> as_loss("hinge")
    Hinge(margin=1.0)
    """
    choice = f"{', '.join(map(repr, LOSSES))}, or a loss object such as Hinge(margin=2.0)"
    if isinstance(loss, str):
        if loss in LOSSES:
            named: Loss = LOSSES[loss]()
            return named
        raise InputError(f"There is no loss named {loss!r}. Choose {choice}.")
    if isinstance(loss, type) or not hasattr(loss, "derivatives"):
        raise InputError(f"{loss!r} is not a loss. Pass {choice}.")
    return loss  # type: ignore[no-any-return]


def _as_gains(values: Any) -> tuple[float, ...]:
    try:
        gains = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"gains is {show(values)}. Pass one number per label.") from error
    if gains.ndim != 1 or len(gains) == 0:
        raise InputError(f"gains has the shape {gains.shape}. Pass one number per label.")
    if not np.isfinite(gains).all() or gains[0] < 0 or (np.diff(gains) < 0).any():
        raise InputError(
            f"gains is {show(gains.tolist())}, but gains must be finite, 0 or greater, and must "
            "not fall from one label to the next. Pass those of the labels 0, 1, 2, ... in order."
        )
    return tuple(gains.tolist())
