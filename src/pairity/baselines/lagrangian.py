r"""In-processing: Lagrange multipliers on hinge-relaxed pairwise constraints.

The baseline of Narasimhan et al. It minimises the share of preference pairs in the wrong order,
subject to

.. math:: |\Delta_a - \Delta_b| \le \epsilon

for all entries a, b that a constraint compares. It is a game of two players. The first moves the
model down a differentiable proxy of the Lagrangian. The second moves the multipliers up the *true*
violations, those of hard comparisons, so that the reported violation is the one that is reduced.

The proxy is a sum of hinges. Every Δ is linear in the predicted pair labels, 1[s_i > s_j], so the
multipliers of all constraints add up to one signed number T_kl per cell: the value of a pair of
that cell in the right order. The hinge bounds both signs from above,

.. math::

    T\,(1 - 1[d > 0]) \le T \max(0, 1 - d) \;\text{ for } T \ge 0, \qquad
    |T|\,1[d > 0] \le |T| \max(0, 1 + d) \;\text{ for } T < 0,

where d = s_i − s_j. The second bound is the first with negated scores. The positive part of the
K × K table and the base loss go to one side of the hinge kernel, and the negative part to the
other. For fixed multipliers the problem is convex in a linear model. A negative weight on the plain
hinge would instead have an unbounded gain from pairs in the wrong order.
"""

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import rankdata

from pairity._utils.typing import Array
from pairity._utils.validation import require_count, require_number
from pairity.baselines._hinged_lists import HingedLists, hinged_lists
from pairity.baselines._linear import LinearScorer, StandardFeatures, as_expressible, share_weights
from pairity.baselines.methods import Method, changed_from
from pairity.constraints import CATALOGUE, Contrasts, PairwiseConstraint
from pairity.data.queries import Queries
from pairity.exceptions import ConstraintError, TargetNotReachedWarning
from pairity.pairs.cells import cell_counts, mean_shares
from pairity.rankers._products import one_blas_thread

_DECAY = 100.0  # steps after which the step sizes begin to fall
_CHANCE = 0.5  # the error of random scores
_NOT_MET = 0.01  # allowed excess over the slack, because hard violations move in steps


def lagrangian(
    constraint: Any = "inter",
    *,
    slack: float = 0.0,
    n_steps: int = 2500,
    learning_rate: float = 0.1,
    multiplier_rate: float = 0.03,
    rank_objective: bool = False,
    raise_slack: float = 0.05,
) -> Method:
    r"""Train a linear ranker under pairwise constraints by a proxy Lagrangian.

    .. math::

        \min_\beta \; \frac1N \sum_{(i,j)} [s_i < s_j]
        \quad \text{s.t.} \quad \pm(\Delta_a - \Delta_b) \le \epsilon

    Parameters
    ----------
    constraint : str or Constraint, default="inter"
        One of the four pairwise constraints; its `average`, `only` and `target` are used.
    slack : float, default=0.0
        ε, the largest allowed gap between two compared entries.
    n_steps : int, default=2500
        Steps of both players, each over all pairs.
    learning_rate : float, default=0.1
        Adam's step size, in coefficients of standardised features.
    multiplier_rate : float, default=0.03
        Step size of the multipliers. Both fall with the step t as 1 / √(1 + t / 100).
    rank_objective : bool, default=False
        How the best iterate is chosen; see the notes.
    raise_slack : float, default=0.05
        By how much the slack is raised if training ends no better than chance; 0 never raises it.

    Returns
    -------
    Method
        Named "lagrangian". Its scorer is a `LagrangianScorer`, which does not read groups.

    Notes
    -----
    *Players.* The model starts at zero and takes Adam's steps down the gradient described in
    `pairity.baselines.lagrangian`. The multipliers, two for each pair of compared entries,
    start at zero and take projected steps up: λ ← max(0, λ ± η (Δ_a − Δ_b) − η ε), with the Δ of
    the constraint itself. Nothing is drawn at random, so the seed has no effect.

    *Best iterate.* The players may never settle, so every iterate is a candidate. Candidates are
    ranked by the excess of their largest violation over the slack (all that meet it come first),
    ties by their error, the share of pairs in the wrong order, and the first is taken. The
    authors' published experiments do the same. With `rank_objective`, candidates are also ranked
    by their error, each has the worse of its two ranks, and the lowest of these is taken. This is
    the default of the authors' library, which trades some violation for utility.

    *Not met.* If the best iterate is more than 0.01 above the slack, a warning names the slack that
    it meets. Training that ends no better than chance is repeated with a slack raised by
    `raise_slack`.

    *Averages.* With ``average="pair"`` the hinge and the constraint give pairs the same weights,
    unless the training queries count equally (`Queries.with_equal_queries`).
    With ``average="query"`` the error is a mean over queries, and so are the cells: pairs of a
    cell have weight 1 / n_qkl, which is a product of item weights if a query has two labels (and
    for statistical parity). With more labels it is not, and the hinge gives all pairs of a query
    the weight 1 / n_q instead. The multipliers always follow the exact violation.

    *Statistical parity* compares items regardless of their labels. Its hinges are taken over each
    pair of items of two groups once, as preference pairs of queries labelled by group.

    *Missing groups.* Pairs with an item of unknown group count in the error only.

    References
    ----------
    H. Narasimhan, A. Cotter, M. Gupta, S. Wang (2020). Pairwise fairness for ranking and
    regression. AAAI.

    A. Cotter, H. Jiang, K. Sridharan (2019). Two-player games for efficient non-convex constrained
    optimization. ALT.

    Examples
    --------
    >>> from pairity.baselines.lagrangian import lagrangian
    >>> from pairity.datasets import make_biased_ranking
    >>> queries = make_biased_ranking(n_queries=40, random_state=0).queries()
    >>> method = lagrangian("inter", slack=0.05, n_steps=500)
    >>> method
    lagrangian(constraint=InterGroup(), slack=0.05, n_steps=500)
    >>> scorer = method.fit(queries, 0)
    >>> scorer.violation <= 0.05
    True
    """
    compared = as_expressible(
        constraint, "lagrangian", list(CATALOGUE), "only means over pairs can be relaxed to hinges"
    )
    settings = _Settings(
        compared, slack, n_steps, learning_rate, multiplier_rate, rank_objective, raise_slack
    )
    shown = {"constraint": compared, "slack": slack} | changed_from(lagrangian, vars(settings))
    return Method("lagrangian", lambda train, _: _fit(train, settings), False, shown)


@dataclass(frozen=True, eq=False)
class LagrangianScorer(LinearScorer):
    """A linear score, and the result of its training.

    Attributes
    ----------
    coef : float64 array of shape (n_features,)
    violation : float
        The largest gap between two compared entries on the training queries.
    error : float
        The share of training pairs in the wrong order; a tie counts one half.
    slack : float
        The slack that it was trained with, after any raise.
    multipliers : float64 array of shape (2, n_contrasts)
        The multipliers that the chosen iterate was trained with.
    step : int, the step of the chosen iterate
    errors, violations : float64 arrays of shape (n_steps,), of all candidates
    """

    violation: float
    error: float
    slack: float
    multipliers: Array
    step: int
    errors: Array
    violations: Array


@dataclass(frozen=True)
class _Settings:
    constraint: PairwiseConstraint
    slack: float
    n_steps: int
    learning_rate: float
    multiplier_rate: float
    rank_objective: bool
    raise_slack: float

    def __post_init__(self) -> None:
        for name in ("slack", "raise_slack"):
            require_number(getattr(self, name), name)
        for name in ("learning_rate", "multiplier_rate"):
            require_number(getattr(self, name), name, positive=True)
        require_count(self.n_steps, "n_steps")


# --- the proxy -----------------------------------------------------------------------------------


class _Proxy:
    """The hinge-relaxed Lagrangian of some queries, and their true error and gaps."""

    def __init__(self, queries: Queries, constraint: PairwiseConstraint) -> None:
        constraint.check(queries)
        self.base, self.base_weight = _weigh_error(queries, constraint)
        if queries.equal_queries:  # which concerns the error only
            queries = replace(queries, equal_queries=False)
        self.queries, self.constraint = queries, constraint
        self.contrasts = Contrasts.of(constraint.delta(queries, np.zeros(queries.n_items)))
        if not len(self.contrasts.first):
            raise ConstraintError(
                f"{constraint!r} compares nothing in these queries. Check sensitive_features."
            )
        self.lists = _weigh_cells(queries, constraint)
        self.by_label = hinged_lists(queries)
        self.by_cell = self.by_label
        if constraint.pairs == "all":
            by_group = replace(queries, y=self.lists.y)
            self.by_cell = hinged_lists(by_group)
            every, first = cell_counts(queries, pairs="all"), cell_counts(by_group)
            # The pairs of (l, k) in the other order, and half of the pairs within a group.
            self.in_all = first.transpose(0, 2, 1) + np.eye(every.shape[1]) * every / 2
        self._scores: Array | None = None
        self.tables = self._worth()
        average, weight = constraint.average, queries.weight_of_query
        counts = cell_counts(queries).sum(axis=(1, 2))[:, None]
        self.of_error = mean_shares(counts, weight, average).ravel()
        self.of_means = mean_shares(constraint.entries(constraint.counts(queries)), weight, average)
        none = np.zeros(self.of_means.shape[1])
        self.at_none = self._gaps(none)
        self.slopes = np.array([self._gaps(unit) - self.at_none for unit in np.eye(len(none))])

    def _worth(self) -> Array:
        """Return what a pair in the right order adds to each gap, (n_contrasts, K, K)."""
        n_groups, signs = self.queries.n_groups, self.contrasts.matrix()
        counts = np.tensordot(self.lists.weight_of_query, cell_counts(self.lists), axes=1)
        counts = counts[:n_groups, :n_groups]
        if self.constraint.by_group:
            counts = counts.sum(axis=1, keepdims=True)
            signs = np.repeat(signs[:, :, None], n_groups, axis=2)
        else:
            signs = signs.reshape(-1, n_groups, n_groups)
        if self.constraint.pairs == "all":  # (k, l) with k < l stands for both orders
            signs = np.triu(signs - signs.transpose(0, 2, 1), 1)
        return np.divide(signs, counts, out=np.zeros_like(signs), where=signs != 0)

    def signed_table(self, multipliers: Array) -> Array:
        """Return T, the value of a pair in the right order to the constraints, by cell."""
        net, shape = multipliers[1] - multipliers[0], self.tables.shape
        return np.asarray(net @ self.tables.reshape(shape[0], -1)).reshape(shape[1:])

    def terms(self, multipliers: Array) -> list[tuple[HingedLists, Queries, Array, Array]]:
        """Return base loss and relaxed constraints: weighted lists, and a table for each side."""
        signed = self.lists.pad(self.signed_table(multipliers), fill=0.0)
        raised, lowered = np.maximum(signed, 0.0), np.maximum(-signed, 0.0)
        if self.base is self.lists:
            return [(self.by_label, self.base, raised + self.base_weight, lowered)]
        base = np.full_like(signed, self.base_weight)
        terms = [(self.by_label, self.base, base, np.zeros_like(signed))]
        return [*terms, (self.by_cell, self.lists, raised, lowered)] if signed.any() else terms

    def gradient(self, scores: Array, multipliers: Array) -> Array:
        """Return the derivative of base loss and hinges in the scores."""
        self._sort(scores)
        first, *others = (
            lists.gradient(queries, table, mirrored)
            for lists, queries, table, mirrored in self.terms(multipliers)
        )
        return sum(others, first)

    def measure(self, scores: Array) -> tuple[float, Array]:
        """Return the true error (a tie counts one half) and the true gap of each contrast."""
        self._sort(scores)
        sums = self.by_label.sums()
        right = float((self.of_error @ sums.reshape(len(sums), -1)).sum())
        known = slice(self.queries.n_groups)
        if self.constraint.soft:
            sums = self.constraint.sums(self.queries, scores)
        elif self.constraint.pairs == "all":
            upper = self.by_cell.sums()
            sums = upper + self.in_all - upper.transpose(0, 2, 1)
        entries = self.constraint.entries(sums[:, known, known])
        means = np.einsum("qe,qe->e", self.of_means, entries)
        return 1.0 - right, self.at_none + means @ self.slopes

    def _sort(self, scores: Array) -> None:
        """Sort and merge the lists, unless they were last sorted by these scores."""
        if scores is not self._scores:
            self.by_label.sort(scores)
            if self.by_cell is not self.by_label:
                self.by_cell.sort(scores)
            self._scores = scores

    def _gaps(self, means: Array) -> Array:
        """Return the gaps of the entries' means, in which they are linear."""
        totals = np.stack([means, self.of_means.any(axis=0).astype(np.float64)])
        return self.contrasts.gaps(self.constraint.from_totals(totals, self.queries.groups))


def _weigh_error(queries: Queries, constraint: PairwiseConstraint) -> tuple[Queries, float]:
    """Return lists and a weight per pair, with which a sum over pairs is the mean."""
    counts = cell_counts(queries).sum(axis=(1, 2))
    weight = queries.weight_of_query
    if constraint.average == "pair" and not queries.equal_queries:
        return queries, 1.0 / float(weight @ counts)
    return share_weights(queries, counts), 1.0 / float(weight[counts > 0].sum())


def _weigh_cells(queries: Queries, constraint: PairwiseConstraint) -> Queries:
    """Return lists whose preference pairs are the constraint's, with its weights."""
    if constraint.pairs == "all":
        queries = replace(queries, y=-queries.group.astype(np.float64))
    if constraint.average == "pair":
        return queries
    if constraint.pairs == "preference" and queries.layout.level.max() > 1:
        return share_weights(queries, constraint.counts(queries).sum(axis=(1, 2)))
    # Two labels: n_qkl is the number of upper items of group k times lower items of group l.
    level = np.empty(queries.n_items, dtype=np.int64)
    level[queries.layout.order] = queries.layout.level
    group = queries.group.astype(np.int64)
    if constraint.pairs == "all":
        level[:] = 0  # the group is the label
    if constraint.by_group:  # lower items of known groups are one group
        group = np.where((level > 0) | (group >= queries.n_groups), group, 0)
    cell = (queries.query * 2 + level) * queries.n_codes + group
    weight = np.ones(queries.n_items) if queries.item_weight is None else queries.item_weight
    total = np.bincount(cell, weight)[cell]
    share = np.divide(weight, total, out=np.zeros_like(weight), where=weight > 0)
    return replace(queries, item_weight=share)


# --- the game ------------------------------------------------------------------------------------


def _fit(queries: Queries, settings: _Settings) -> LagrangianScorer:
    features = StandardFeatures.of(queries)
    proxy = _Proxy(queries, settings.constraint)
    slack = float(settings.slack)
    while True:
        with one_blas_thread:
            scorer = _play(features, proxy, settings, slack)
        if scorer.error < _CHANCE or slack >= 1.0 or not settings.raise_slack:
            break
        slack += float(settings.raise_slack)
    if slack > settings.slack:
        message = (
            f"With a slack of {settings.slack:g} the lagrangian baseline ended no better than "
            f"chance. The slack was raised to {slack:g}: violation {scorer.violation:.3f}, error "
            f"{scorer.error:.3f}."
        )
    elif scorer.violation > slack + _NOT_MET:
        message = (
            f"None of {len(scorer.errors)} steps met {settings.constraint!r} with a slack of "
            f"{slack:g}: the best exceeds it by {scorer.violation - slack:.3g}, with an error of "
            f"{scorer.error:.3f}. Raise the slack to {scorer.violation:.3g}, which is met, raise "
            "n_steps, or add features."
        )
    else:
        return scorer
    warnings.warn(message, TargetNotReachedWarning, stacklevel=3)
    return scorer


def _play(
    features: StandardFeatures, proxy: _Proxy, settings: _Settings, slack: float
) -> LagrangianScorer:
    """Take steps of both players from zero, and return the best iterate."""
    n_steps, n_features = int(settings.n_steps), len(features.scale)
    multipliers = np.zeros((2, len(proxy.contrasts.first)))
    trace = np.empty((n_steps, *multipliers.shape))
    betas, (errors, violations) = np.empty((n_steps, n_features)), np.empty((2, n_steps))
    beta, mean, square = np.zeros((3, n_features))
    scores = features.scores(beta)
    for t in range(n_steps):
        fall = np.sqrt(1.0 + t / _DECAY)
        gradient = features.of_scores(proxy.gradient(scores, multipliers))
        mean += 0.1 * (gradient - mean)  # Adam (Kingma and Ba, 2015) with its usual constants
        square += 0.001 * (gradient**2 - square)
        step = settings.learning_rate / fall * (mean / (1.0 - 0.9 ** (t + 1)))
        beta = beta - step / (np.sqrt(square / (1.0 - 0.999 ** (t + 1))) + 1e-8)
        betas[t], trace[t] = beta, multipliers
        scores = features.scores(beta)
        errors[t], gaps = proxy.measure(scores)
        violations[t] = np.abs(gaps).max()
        excess = np.stack([gaps, -gaps]) - slack
        multipliers = np.maximum(0.0, multipliers + settings.multiplier_rate / fall * excess)
    best = best_candidate(errors, violations - slack, rank_objective=settings.rank_objective)
    return LagrangianScorer(
        betas[best] / features.scale, float(violations[best]), float(errors[best]), slack,
        trace[best], best, errors, violations,
    )  # fmt: skip


def best_candidate(objective: Array, excess: Array, *, rank_objective: bool = False) -> int:
    """Return the best iterate by the authors' rule.

    Parameters
    ----------
    objective : array of shape (n_candidates,), which is minimised
    excess : array of shape (n_candidates,)
        By how much the worst constraint is exceeded; values below zero count as zero.
    rank_objective : bool
        Whether a candidate's rank is the worse of its ranks by excess and by objective, instead
        of its rank by excess.

    Returns
    -------
    int, the candidate with the lowest rank; ties by the lowest objective, then the last
    """
    rank = rankdata(np.maximum(excess, 0.0), method="min")
    if rank_objective:
        rank = np.maximum(rank, rankdata(objective, method="min"))
    return int(np.lexsort((-np.arange(len(rank)), objective, rank))[0])
