"""The linear program of fair exposure: the most useful random ranking of a query.

After Singh & Joachims: the program maximises expected utility under equal exposure of the groups.
`fair_exposure` solves it for one query, and `fair_rankings` for every query.
`pairity.baselines.permutations` solves it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from pairity._utils.typing import Array
from pairity._utils.validation import require_count, require_number, show
from pairity.baselines.methods import Rankings
from pairity.baselines.permutations import Items, Program, Vertex, solve
from pairity.data.checks import require_groups
from pairity.data.columns import as_numbers
from pairity.data.queries import Queries
from pairity.exceptions import ConstraintError, InputError
from pairity.metrics.positions import DISCOUNTS, choose, ratio, sums

Integers = NDArray[np.int64]
Name = Literal["impact", "treatment", "parity"]

_NO_MERIT = 1e-9  # a mean utility below this times the largest of the query's groups counts as zero


@dataclass(frozen=True)
class _Constraint:
    """A ratio that must be equal: each item's share of attention in it, and its description.

    The share is a function of the utility of items, and the size and total utility of their groups.
    """

    share: Callable[[Array, Array, Array], Array]
    by_merit: bool
    description: str


CONSTRAINTS: Mapping[str, _Constraint] = {
    "impact": _Constraint(lambda u, _, total: u / total, True, "clicks per unit of merit"),
    "treatment": _Constraint(lambda _u, _, total: 1 / total, True, "exposure per unit of merit"),
    "parity": _Constraint(lambda _u, size, _: 1 / size, False, "exposure"),
}


@dataclass(frozen=True, eq=False)
class FairExposure:
    """The optimal distribution over the rankings of one query.

    Attributes
    ----------
    rankings : int64 array of shape (n_rankings, n_items)
        Each row lists the items from the top, and the likeliest ranking is first. There is at
        least one, and at most one for each compared group.
    places : int64 array of shape (n_rankings, n_items)
        The place of each item in each ranking, from 0 at the top. Items that share a place are
        listed in their input order; shuffle them before a ranking is shown, as `sample` does.
    probability : float64 array of shape (n_rankings,)
    exposure : float64 array of shape (n_items,)
        The expected exposure of each item, over the rankings and the shuffling of shared places.
    ratio : float64 array of shape (n_groups,)
        What the constraint compares; NaN for a group that is not compared.
    objective : float
        The expected DCG, with the utilities as gains.
    slack : float
        The slack that is met, which exceeds the requested slack if it was raised.
    duals : float64 array of shape (n_groups,)
        The multipliers λ: each ranking sorts by the utility plus the multiplier of the item's
        group times the item's coefficient in the group's ratio. 0 for a group not compared.
    """

    rankings: Integers
    places: Integers
    probability: Array
    exposure: Array
    ratio: Array
    objective: float
    slack: float
    duals: Array

    def sample(self, random_state: Any = None) -> Integers:
        """Draw one ranking by its probability: the items from the top, shared places shuffled."""
        rng = check_random_state(random_state)
        edges = np.cumsum(self.probability)
        places = self.places[int((rng.random_sample() * edges[-1] > edges).sum())]
        shuffled: Integers = rng.permutation(len(places))
        return shuffled[np.argsort(places[shuffled], kind="stable")]


def fair_exposure(
    utility: ArrayLike,
    group: ArrayLike,
    n_groups: int,
    *,
    constraint: Name = "impact",
    slack: float = 0.0,
    raise_slack: float | None = None,
    discount: str | ArrayLike = "log2",
) -> FairExposure:
    r"""Return the most useful random ranking of one query in which groups are exposed alike.

    .. math:: \max_e \sum_i u_i e_i \quad\text{subject to}\quad
        R_k(e) \le (1 + s)\, R_l(e) \ \text{for all groups } k, l

    where :math:`e_i` is the expected exposure of item i under a distribution over rankings, and

    .. math:: R_k = \frac{1}{|G_k|} \sum_{i \in G_k} e_i \ \text{(parity)}, \quad
        \frac{\sum_{i \in G_k} e_i}{\sum_{i \in G_k} u_i} \ \text{(treatment)}, \quad
        \frac{\sum_{i \in G_k} u_i e_i}{\sum_{i \in G_k} u_i} \ \text{(impact)}.

    Parameters
    ----------
    utility : array of shape (n_items,)
        Estimated relevance, 0 or more. The merit of a group is the mean over its items.
    group : whole numbers of shape (n_items,)
        From 0 to n_groups - 1, or n_groups if the group is unknown.
    n_groups : int
    constraint : {"impact", "treatment", "parity"}
        The ratio that must be the same for all groups.
    slack : float
        By how much the largest ratio may exceed the smallest, relative to the smallest: 0 requires
        equality, 0.1 allows 10 % more. It does not depend on the scale of the utilities or of the
        discount.
    raise_slack : float, optional
        If no ranking meets the slack, it is raised in steps of this size until one does. Without
        it, a `ConstraintError` states the least slack.
    discount : {"log2", "trec"} or array of shape (n_items,)
        The exposure of each position, as in `pairity.metrics.exposure`, or its values from the
        top, which must not increase.

    Returns
    -------
    FairExposure

    Notes
    -----
    Singh & Joachims solve a linear program in the n² entries of a doubly stochastic matrix. Utility
    and ratios depend on that matrix only through e, which lies in the permutahedron of the
    discounts. There, sorting finds the best vertex for given multipliers, so column generation
    solves the same program with the same optimum in a few sorts.

    Parity and impact can always be met, by showing every item equally often. Treatment cannot be
    met if merits differ by more than positions do. The least slack is then computed by another
    linear program, and a raised slack is the first step at or above it.

    A group without items in the query is not compared. Under treatment and impact, a group without
    merit (at most 1e-9 times the largest merit) is not compared either, because no exposure is in
    proportion to it, and its items have no clicks. Items of such groups and of unknown group occupy
    positions and count in the objective. If fewer than two groups remain, the ranking by utility is
    returned.

    Ties: items of equal utility and group share a place, because the program cannot distinguish
    them. If the ranking by utility already meets the constraint, all items of equal utility share a
    place. The input order of items has no effect, which matters if tables are sorted by label.

    References
    ----------
    Singh & Joachims (2018). Fairness of exposure in rankings. KDD.

    Examples
    --------
    >>> from pairity.baselines.exposure_program import fair_exposure
    >>> fair = fair_exposure([0.9, 0.6], [0, 1], 2, constraint="parity")
    >>> fair.rankings.tolist(), fair.probability.round(3).tolist()  # each is first half the time
    ([[0, 1], [1, 0]], [0.5, 0.5])
    >>> fair.exposure.round(3)  # (1 + 1/log2(3)) / 2
    array([0.815, 0.815])
    """
    values = as_numbers(utility, "utility")
    require_utility(values)
    code = _group_codes(group, n_groups, len(values))
    settings = Settings(constraint, slack, raise_slack)
    names = [str(number) for number in range(n_groups)]
    attention, first = positions_attention(discount, len(values)), np.zeros(len(values))
    return solve_query(values, code, names, settings, attention, first)


def fair_rankings(
    queries: Queries,
    utility: ArrayLike,
    *,
    constraint: Name = "impact",
    slack: float = 0.0,
    raise_slack: float | None = None,
    discount: str = "log2",
    ties: ArrayLike | None = None,
) -> tuple[Rankings, Array]:
    """Solve `fair_exposure` for every query, from the utilities and groups of its items.

    Parameters
    ----------
    queries : Queries
        Their labels are not used.
    utility : array of shape (n_items,)
        Estimated relevance, 0 or more.
    constraint, slack, raise_slack, discount
        As in `pairity.baselines.exposure_program.fair_exposure`; the slack is raised by query.
    ties : array of shape (n_items,), optional
        Scores that order items of equal utility, falling. Items of equal utility, score and
        group share a place. By default all scores are equal.

    Returns
    -------
    rankings : Rankings
        To sample from, and to audit in expectation. Items that share a place have equal scores.
    slack : float64 array of shape (n_queries,)
        The slack that is met in each query.
    """
    require_groups(queries)
    values = as_numbers(utility, "utility", queries.n_items)
    require_utility(values)
    settings = Settings(constraint, slack, raise_slack)
    first = np.zeros(queries.n_items) if ties is None else as_numbers(ties, "ties", queries.n_items)
    rows = np.argsort(queries.query, kind="stable")
    lists = np.split(rows, np.cumsum(np.bincount(queries.query))[:-1])
    group, names = queries.group.astype(np.int64), list(map(repr, queries.groups))
    attention = positions_attention(discount, max(map(len, lists)))
    solved = []
    for number, own in enumerate(lists):
        items = (values[own], group[own], names, settings, attention[: len(own)], first[own])
        try:
            solved.append(solve_query(*items))
        except ConstraintError as error:
            name = show(queries.query_ids[number])
            raise ConstraintError(f"In the query {name}: {error}") from error
    width = max(len(fair.probability) for fair in solved)
    scores, probability = np.empty((queries.n_items, width)), np.zeros((queries.n_queries, width))
    for number, (own, fair) in enumerate(zip(lists, solved, strict=True)):
        n_rankings = len(fair.probability)
        probability[number, :n_rankings] = fair.probability
        # Columns beyond a query's rankings repeat the last.
        scores[own] = -fair.places[np.minimum(np.arange(width), n_rankings - 1)].T
    return Rankings(scores, probability), np.array([fair.slack for fair in solved])


@dataclass(frozen=True)
class Settings:
    """The constraint and its slack, checked; see `fair_exposure`."""

    name: str
    slack: float
    raise_slack: float | None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or self.name not in CONSTRAINTS:
            raise ConstraintError(
                f"exposure_lp cannot express {show(self.name)}, because it compares positions, "
                f"not pairs. Choose from {', '.join(map(repr, CONSTRAINTS))}, or use FairRanker or "
                "lagrangian for constraints on pairs."
            )
        require_number(self.slack, "slack")
        if self.raise_slack is not None:
            require_number(self.raise_slack, "raise_slack (if not None)", positive=True)


def solve_query(
    utility: Array,
    group: Integers,
    names: Sequence[str],
    settings: Settings,
    attention: Array,
    ties: Array,
) -> FairExposure:
    """Solve one query, of checked arrays; `ties` orders items of equal utility, falling."""
    falling = np.lexsort((group, -ties, -utility))
    utility, group, ties = utility[falling], group[falling], ties[falling]
    problem = _Problem.of(utility, group, len(names), CONSTRAINTS[settings.name], attention)
    equal = _number_runs(utility, ties)
    vertex, slack = _solve(problem, equal, settings, [names[k] for k in problem.compared])
    same = equal if vertex is None else _number_runs(utility, ties, group)  # may share a place
    n_compared = len(problem.compared)
    vertex = vertex or Vertex([np.arange(len(group))], np.ones(1), 0.0, np.zeros(n_compared))
    useful = np.array([problem.items.received(order)[1] for order in vertex.orders])
    likeliest = np.lexsort((-useful, -vertex.weight.round(9)))  # ties by utility
    probability = vertex.weight[likeliest] / vertex.weight.sum()
    rankings = np.array([falling[vertex.orders[index]] for index in likeliest])
    places = np.empty_like(rankings)
    exposure = np.zeros(len(group))
    for row, index in enumerate(likeliest):
        place = _number_runs(same[vertex.orders[index]])  # stable sorts keep equal items adjacent
        places[row, rankings[row]] = place
        exposure[rankings[row]] += probability[row] * _share_places(attention, place)
    received = sums(problem.items.code, problem.share * exposure[falling], n_compared + 1)
    ratios, duals = np.full(len(names), np.nan), np.zeros(len(names))
    ratios[problem.compared] = received[:-1]
    duals[problem.compared] = vertex.price * problem.best / problem.even
    objective = float(utility @ exposure[falling])
    return FairExposure(rankings, places, probability, exposure, ratios, objective, slack, duals)


@dataclass(frozen=True, eq=False)
class _Problem:
    """The items of one query, sorted by falling utility, on the scale of the program.

    Attributes
    ----------
    items : Items, with utilities relative to `best` and shares relative to `even`
    share : array of shape (n_items,), what the item's group gets per unit of its attention
    compared : int array, the groups that are compared
    even : array of shape (n_compared,), the ratios if all items were exposed equally
    best : float, the DCG of the ranking by utility
    """

    items: Items
    share: Array
    compared: Integers
    even: Array
    best: float

    @classmethod
    def of(
        cls, utility: Array, group: Integers, n_groups: int, constraint: _Constraint,
        attention: Array,
    ) -> _Problem:  # fmt: skip
        best = float(utility @ attention) or 1.0
        size = sums(group, np.ones(len(group)), n_groups + 1)[:-1]
        total = sums(group, utility, n_groups + 1)[:-1]
        is_compared = size > 0
        if constraint.by_merit:
            merit = np.nan_to_num(ratio(total, size))
            is_compared &= merit > _NO_MERIT * merit.max(initial=0.0)
        compared = np.flatnonzero(is_compared)
        n_compared = len(compared)
        number = np.full(n_groups + 1, n_compared)
        number[compared] = np.arange(n_compared)
        code = number[group]
        inside = code < n_compared
        known, share = group[inside], np.zeros(len(group))
        share[inside] = constraint.share(utility[inside], size[known], total[known])
        even = sums(code, share, n_compared + 1) * attention.mean()
        even[-1] = 1.0
        items = Items(utility / best, share / even[code], code, attention, n_compared)
        return cls(items, share, compared, even[:-1], best)


def _number_runs(*columns: NDArray[Any]) -> Integers:
    """Number the runs of rows that are equal in all columns, from 0."""
    new = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    return np.cumsum(new)


def _share_places(attention: Array, place: Integers) -> Array:
    """Return the attention of each position, averaged over the positions of one place."""
    return (np.bincount(place, attention) / np.bincount(place))[place]


def _solve(
    problem: _Problem, equal: Integers, settings: Settings, names: Sequence[str]
) -> tuple[Vertex | None, float]:
    """Return the optimal vertex, None if the ranking by utility is optimal, and the slack met."""
    items, even, slack = problem.items, problem.even, settings.slack
    by_utility = replace(items, attention=_share_places(items.attention, equal))
    ratios = by_utility.received(np.arange(len(equal)))[0] * even
    if len(even) < 2 or ratios.max() <= (1.0 + slack) * ratios.min():
        return None, slack
    if vertex := solve(items, _program(even, slack)):
        return vertex, slack
    least, lowest, highest = _least_slack(items, even)
    if settings.raise_slack is None:
        raise ConstraintError(
            f"No ranking of these {len(items.code)} items meets {settings.name!r} with a slack of "
            f"{slack:g}: at best the group {names[highest]} has {1.0 + least:.4g} times the "
            f"{CONSTRAINTS[settings.name].description} of the group {names[lowest]}. The least "
            f"slack is {least:.6g}. Pass at least that, or raise_slack=0.1 to raise it as far as "
            "needed."
        )
    steps = math.ceil((least - slack) / settings.raise_slack - 1e-9)
    slack = max(slack + steps * settings.raise_slack, least)
    while (vertex := solve(items, _program(even, slack))) is None:
        slack += 1e-9 * (1.0 + slack)  # rounding: the least slack is known to about ten digits
    return vertex, slack


def _program(even: Array, slack: float) -> Program:
    """Return the program that keeps the ratios within the slack, in rows near 1.

    Without slack, all ratios equal that of the group whose ratio is smallest if all items are
    exposed equally. With slack, a variable m is the lower end: m <= R <= (1 + slack) m.
    """
    k, lowest = len(even), int(even.argmin())
    low, eye = even[lowest] / even, np.eye(len(even))
    if slack == 0.0:
        equal = eye - np.outer(low, eye[lowest])
        rows = np.vstack([np.delete(equal, lowest, axis=0), np.zeros((1, k))])
        last = eye[-1]
        return Program(1.0, rows, last, np.empty((k, 0)), np.empty(0), last)
    high = (1.0 + slack) * low
    scale, zero = np.maximum(high, 1.0), np.zeros((k, k))
    limits = np.block([[-low[:, None], -eye, zero], [(high / scale)[:, None], zero, -eye]])
    columns = np.pad(limits, ((0, 1), (0, 0)))
    rows = np.vstack([eye, -eye / scale[:, None], np.zeros((1, k))])
    last = np.eye(2 * k + 1)[-1]
    return Program(1.0, rows, last, columns, np.zeros(2 * k + 1), last)


def _least_slack(items: Items, even: Array) -> tuple[float, int, int]:
    """Return the least slack that a ranking meets, and its groups of lowest and highest ratio.

    The program minimises the largest ratio with the smallest fixed at one unit, over multiples of
    distributions, which makes the quotient linear.
    """
    k = len(even)
    eye, zero = np.eye(k), np.zeros((k, k))
    columns = np.block([[np.zeros((k, 1)), -eye, zero], [np.ones((k, 1)), zero, -eye]])
    rows = np.vstack([eye, -np.diag(even / even.max())])
    target = np.r_[even.min() / even, np.zeros(k)]
    program = Program(0.0, rows, np.zeros(2 * k), columns, -np.eye(2 * k + 1)[0], target)
    vertex = solve(items, program)
    if vertex is None:  # every group can receive attention, and all multiples are allowed
        raise AssertionError("The program of the least slack must be feasible, but was not.")
    received = np.array([items.received(order)[0] for order in vertex.orders])
    ratios = vertex.weight @ received * even
    least = -vertex.value * even.max() / even.min() - 1.0
    return least, int(ratios.argmin()), int(ratios.argmax())


# --- checks ------------------------------------------------------------------------------------


def require_utility(values: Array) -> None:
    """Refuse utilities that are negative, or none."""
    if not len(values):
        raise InputError("utility has 0 entries, so there is nothing to rank. Pass at least one.")
    if (values < 0).any():
        row = int(np.argmax(values < 0))
        raise InputError(
            f"utility has {int((values < 0).sum())} negative entries, the first in row {row} "
            f"({values[row]:g}). Utilities are estimated relevances, and their group means are "
            "merits. Clip them at 0, or add a constant."
        )


def _group_codes(group: ArrayLike, n_groups: Any, n_items: int) -> Integers:
    require_count(n_groups, "n_groups", least=0)
    codes = as_numbers(group, "group", n_items)
    wrong = (codes < 0) | (codes > n_groups) | (codes % 1 != 0)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(
            f"group is {codes[row]:g} in row {row}, but must be a whole number from 0 to "
            f"{n_groups - 1}, or {n_groups} if the group is unknown."
        )
    return codes.astype(np.int64)


def positions_attention(discount: str | ArrayLike, n_items: int) -> Array:
    """Return the exposure of each position from the top."""
    if isinstance(discount, str):
        return choose(DISCOUNTS, discount, "discount")(np.arange(1, n_items + 1))
    values = as_numbers(discount, "discount", n_items)
    if values[0] <= 0 or values[-1] < 0 or (np.diff(values) > 0).any():
        raise InputError(
            f"discount goes from {values[0]:g} to {values[-1]:g}. It must start above 0, must not "
            "increase, and must not go below 0."
        )
    return values
