r"""In-processing: a fixed penalty on the correlation of pairs' margins with groups.

Beutel et al. regard preference pairs (i, j), y_i > y_j, as draws. The margin A = s_i − s_j is how
much the model prefers the preferred item, and B_k = 1[g_i = k] is whether that item is in group k.
The penalty is the absolute correlation of the two. Pairs are never stored: every moment is a sum
over items. Let w_ij be the weight of a pair, and

.. math::

    a_i = \sum_{j:\, y_j < y_i} w_{ij}, \qquad b_i = \sum_{j:\, y_j > y_i} w_{ji}, \qquad
    w = \sum_i a_i,

the weights of an item's pairs as the preferred and as the other item, and of all pairs. The moments
of the margin are

.. math::

    \mathrm{E}[A] = \tfrac1w \sum_i (a_i - b_i)\, s_i, \qquad
    \mathrm{E}[A^2] = \tfrac1w\, s^\top L s, \qquad
    (Ls)_i = \sum_{j} (w_{ij} + w_{ji})(s_i - s_j),

and, if a^k and b^k are the same sums over the pairs whose preferred item is in group k,

.. math::

    P_k = \mathrm{E}[B_k] = \tfrac1w \sum_i a^k_i, \qquad
    \mathrm{E}[A B_k] = \tfrac1w \sum_i (a^k_i - b^k_i)\, s_i.

The hinge kernel counts a and b at equal scores, where it counts every pair. L is four times the
Hessian of the pairwise logistic loss at equal scores, so its product with s is one call of that
kernel. The correlation and its gradient follow exactly:

.. math::

    \rho_k = \frac{\mathrm{E}[A B_k] - P_k \mathrm{E}[A]}
        {\sqrt{\mathrm{E}[A^2] - \mathrm{E}[A]^2}\, \sqrt{P_k (1 - P_k)}}.
"""

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from pairity._utils.typing import Array
from pairity._utils.validation import require_count, require_number
from pairity.baselines._linear import LinearScorer, StandardFeatures, as_expressible, share_weights
from pairity.baselines.methods import Method, changed_from
from pairity.constraints import CATALOGUE, PairwiseConstraint
from pairity.data.queries import Queries
from pairity.exceptions import ConstraintError, ConvergenceWarning
from pairity.pairs.cells import cell_counts, total_weight
from pairity.pairs.logistic import pairwise_hessian_product, pairwise_logistic
from pairity.pairs.losses import Hinge
from pairity.rankers._products import one_blas_thread
from pairity.rankers.linear import LinearRanker

_EXPRESSED = tuple(name for name, kind in CATALOGUE.items() if kind.pairs == "preference")
_SMOOTHINGS = (1e-2, 1e-3, 1e-4)  # successive widths of the rounded corner of |x|
_TOLERANCE = 1e-6  # of the largest entry of the gradient
_LEAST_DEVIATION = 1e-12  # a group's share of preferred items below this does not vary


def correlation_penalty(
    constraint: Any = "marginal", *, strength: float = 1.0, alpha: float = 1e-4, max_iter: int = 500
) -> Method:
    r"""Train a linear ranker with a fixed penalty on the correlation of margins with groups.

    .. math::

        \min_\beta \; \frac{\sum_{(i,j)} w_{ij} \log(1 + e^{-(s_i - s_j)})}{\sum_{(i,j)} w_{ij}}
        + \frac{\alpha}{2} \lVert \beta \rVert^2
        + \frac{c}{K} \sum_k |\rho_k|

    over the preference pairs, where ρ_k is the correlation between the margin s_i − s_j and
    whether the preferred item is in group k, and β is in units of standardised features.

    Parameters
    ----------
    constraint : {"marginal", "inter", "intra"} or such a Constraint, default="marginal"
        The preference pairs of ρ: all, as in the paper; those across groups; or those within
        groups. Its `average` decides whether every pair or every query has the same weight; in
        the loss, queries also do if they count equally (`Queries.with_equal_queries`).
    strength : float, default=1.0
        c. It has no target: choose it by its effect on utility and violation.
    alpha : float, default=1e-4
        The L2 penalty, as in `LinearRanker`.
    max_iter : int, default=500

    Returns
    -------
    Method
        Named "correlation penalty". Its scorer is a `CorrelationScorer`, which does not read
        groups.

    Notes
    -----
    With two groups both correlations have the same size, and the penalty is the authors'. Pairs
    with an item of unknown group count in the loss only. A group that has the preferred item in
    all pairs, or in none, has no correlation and is left out.

    |ρ| is rounded at zero, √(ρ² + ε²) − ε, with ε falling to 1e-4, and L-BFGS minimises from the
    unpenalised minimum. ρ does not depend on the scale of the scores, so the problem is not
    convex, and the result is a local minimum near that start. Nothing is drawn at random.

    References
    ----------
    A. Beutel, J. Chen, T. Doshi, H. Qian, L. Wei, Y. Wu, L. Heldt, Z. Zhao, L. Hong, E. H. Chi,
    C. Goodrow (2019). Fairness in recommendation ranking through pairwise comparisons. KDD.

    Examples
    --------
    >>> from pairity.baselines.correlation_penalty import correlation_penalty
    >>> from pairity.datasets import make_biased_ranking
    >>> queries = make_biased_ranking(n_queries=40, random_state=0).queries()
    >>> loose, tight = (correlation_penalty(strength=c).fit(queries, 0) for c in (0.0, 1.0))
    >>> bool(abs(tight.correlations).max() < 0.1 * abs(loose.correlations).max())
    True
    """
    reason = "its penalty is on preference pairs"
    compared = as_expressible(constraint, "correlation_penalty", _EXPRESSED, reason)
    if compared.only is not None or compared.target or compared.soft:
        raise ConstraintError(
            f"correlation_penalty cannot express {compared!r}, because its penalty has no only, "
            f"target or soft. Use {type(compared).__name__}(average={compared.average!r})."
        )
    strength, alpha = require_number(strength, "strength"), require_number(alpha, "alpha")
    max_iter = require_count(max_iter, "max_iter")

    def fit(train: Queries, random_state: int) -> CorrelationScorer:  # noqa: ARG001
        return _fit(train, compared, strength, alpha, max_iter)

    others = changed_from(correlation_penalty, {"alpha": alpha, "max_iter": max_iter})
    settings = {"constraint": compared, "strength": strength} | others
    return Method("correlation penalty", fit, False, settings)


@dataclass(frozen=True, eq=False)
class CorrelationScorer(LinearScorer):
    """A linear score, and the correlations that remain.

    Attributes
    ----------
    coef : float64 array of shape (n_features,)
    correlations : float64 array of shape (n_groups,)
        ρ_k on the training queries, NaN for a group without a correlation.
    """

    correlations: Array


class _Correlation:
    """ρ of each group over the pairs of a constraint, and its gradient in the scores."""

    def __init__(self, queries: Queries, constraint: PairwiseConstraint) -> None:
        constraint.check(queries)
        n_groups = queries.n_groups
        inside = np.eye(n_groups)
        cells = {"groups": np.ones_like(inside), "within": inside, "across": 1.0 - inside}
        self.table = queries.pad(cells[constraint.cells], fill=0.0)
        counts = (cell_counts(queries) * self.table).sum(axis=(1, 2))
        self.lists = share_weights(queries, counts, constraint.average)
        self.total = total_weight(self.lists, self.table)
        above, below = self._sides(self.table)
        self.mean = (above - below) / self.total  # E[A] is its product with the scores
        self.covariance = np.zeros((n_groups, queries.n_items))
        self.defined = np.zeros(n_groups, dtype=bool)
        for k in range(n_groups):
            row = np.zeros_like(self.table)
            row[k] = self.table[k]
            above, below = self._sides(row)
            share = float(above.sum()) / self.total
            deviation = np.sqrt(max(share * (1.0 - share), 0.0))
            if deviation > _LEAST_DEVIATION:
                self.defined[k] = True
                moment = (above - below) / self.total
                self.covariance[k] = (moment - share * self.mean) / deviation
        if not self.defined.any():
            raise ConstraintError(
                f"In every pair of {constraint!r} the preferred item is in the same group, so "
                "there is no correlation to penalise. Check sensitive_features."
            )

    def _sides(self, table: Array) -> tuple[Array, Array]:
        """Return the weights of each item's pairs as the preferred and as the other item."""
        gradient, both = Hinge().derivatives(self.lists, np.zeros(self.lists.n_items), table)
        return 0.5 * (both - gradient), 0.5 * (both + gradient)

    def _spread(self, scores: Array) -> tuple[float, Array]:
        """Return the variance of the margin, and half its gradient."""
        moved = pairwise_hessian_product(self.lists, np.zeros_like(scores), self.table, scores)
        moved *= 4.0 / self.total
        mean = float(self.mean @ scores)
        return max(float(scores @ moved) - mean * mean, 0.0), moved - mean * self.mean

    def values(self, scores: Array) -> Array:
        """Return ρ of shape (n_groups,), NaN for a group without a correlation."""
        variance, _ = self._spread(scores)
        rho = self.covariance @ scores / np.sqrt(variance or 1.0)  # equal scores have ρ = 0
        return np.where(self.defined, rho, np.nan)

    def penalty(self, scores: Array, width: float) -> tuple[float, Array]:
        """Return the mean of √(ρ² + width²) − width over the groups, and its gradient."""
        variance, half = self._spread(scores)
        if variance == 0.0:
            return 0.0, np.zeros_like(scores)
        deviation = np.sqrt(variance)
        rho = self.covariance @ scores / deviation
        size = np.sqrt(rho**2 + width**2)
        slope = rho / size
        gradient = slope @ self.covariance / deviation - float(slope @ rho) / variance * half
        n = int(self.defined.sum())
        return float((size - width)[self.defined].sum()) / n, gradient / n


def _fit(
    queries: Queries, constraint: PairwiseConstraint, strength: float, alpha: float, max_iter: int
) -> CorrelationScorer:
    features = StandardFeatures.of(queries)
    correlation = _Correlation(replace(queries, equal_queries=False), constraint)
    plain = np.ones((queries.n_groups, queries.n_groups))
    average = "query" if queries.equal_queries else constraint.average
    lists = share_weights(queries, cell_counts(queries).sum(axis=(1, 2)), average)
    total = total_weight(lists, plain)

    def objective(beta: Array, width: float) -> tuple[float, Array]:
        scores = features.scores(beta)
        loss = pairwise_logistic(lists, scores, plain)
        penalty, slope = correlation.penalty(scores, width)
        gradient = features.of_scores(loss.gradient / total + strength * slope) + alpha * beta
        value = loss.loss / total + 0.5 * alpha * float(beta @ beta) + strength * penalty
        return value, gradient

    start = LinearRanker(alpha=alpha).fit_pairs(lists, plain)
    beta = start.coef_ * np.where(np.isfinite(features.scale), features.scale, 0.0)
    with one_blas_thread:
        for width in _SMOOTHINGS if strength > 0.0 else ():
            result = minimize(
                objective, beta, args=(width,), jac=True, method="L-BFGS-B",
                options={"maxiter": max_iter, "gtol": _TOLERANCE, "ftol": 1e-12, "maxcor": 20},
            )  # fmt: skip
            beta = result.x
            if result.nit >= max_iter:
                warnings.warn(
                    f"correlation_penalty stopped after {max_iter} iterations with a largest "
                    f"gradient of {np.abs(result.jac).max():.1e}. Raise max_iter, or lower "
                    f"strength ({strength:g}).",
                    ConvergenceWarning,
                    stacklevel=3,
                )
        correlations = correlation.values(features.scores(beta))
    return CorrelationScorer(beta / features.scale, correlations)
