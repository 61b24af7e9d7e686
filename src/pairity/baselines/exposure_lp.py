"""Fair exposure after training: the most useful random ranking of a query that treats groups alike.

After Singh & Joachims. `fair_exposure` solves one query, `fair_rankings` all of them, and
`exposure_lp` makes a `Method` of it. All of them read the groups of the queries they order.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LinearRegression
from sklearn.utils import check_random_state

from pairity._utils.typing import Array
from pairity._utils.validation import show
from pairity.baselines.methods import Method, Rankings, Scorer, as_method
from pairity.baselines.permutations import Items, Program, Vertex, solve
from pairity.data.columns import as_numbers
from pairity.data.queries import Queries, require_groups
from pairity.exceptions import ConstraintError, InputError, TargetNotReachedWarning
from pairity.metrics.positions import DISCOUNTS, choose, ratio, sums

Integers = NDArray[np.int64]
Name = Literal["impact", "treatment", "parity"]

_NO_MERIT = 1e-9  # of the largest mean utility among the groups of the query


@dataclass(frozen=True, eq=False)
class _Members:
    """Items that are compared: their utility, and the size and total utility of their groups."""

    utility: Array
    size: Array
    total: Array


@dataclass(frozen=True)
class _Constraint:
    """What is to be equal: the shares of attention that a group's ratio adds up, and in words."""

    shares: Callable[[_Members], Array]
    by_merit: bool
    what: str


CONSTRAINTS: Mapping[str, _Constraint] = {
    "impact": _Constraint(lambda of: of.utility / of.total, True, "clicks per unit of merit"),
    "treatment": _Constraint(lambda of: 1.0 / of.total, True, "exposure per unit of merit"),
    "parity": _Constraint(lambda of: 1.0 / of.size, False, "exposure"),
}


@dataclass(frozen=True, eq=False)
class FairExposure:
    """The optimal distribution over the rankings of one query.

    Attributes
    ----------
    rankings : int64 array of shape (n_rankings, n_items)
        Each row lists the items from the top; the likeliest ranking comes first. At most as many
        as there are groups to compare, and one at least.
    places : int64 array of shape (n_rankings, n_items)
        The place of each item in each ranking, from 0 at the top. Items that share one are listed
        in the order in which they were given; to show a ranking, shuffle them, as `sample` does.
    probability : float64 array of shape (n_rankings,)
    exposure : float64 array of shape (n_items,)
        The expected exposure of each item, over the rankings and the shuffling of shared places.
    ratio : float64 array of shape (n_groups,)
        What the constraint compares; NaN for a group that is left out.
    objective : float
        The expected DCG, with the utilities as gains.
    slack : float
        The slack that holds; above the one asked for where it had to be raised.
    duals : float64 array of shape (n_groups,)
        The multipliers λ: each ranking sorts by the utility plus the multiplier of the item's
        group times the item's coefficient in the group's ratio. 0 for a group that is left out.
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
        """One ranking, drawn by its probability: the items from the top, shared places shuffled."""
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
    r"""The most useful random ranking of one query whose groups are exposed alike.

    .. math:: \max_e \sum_i u_i e_i \quad\text{subject to}\quad
        R_k(e) \le (1 + s)\, R_l(e) \ \text{for all groups } k, l

    where :math:`e_i` is the expected exposure of item i under some distribution over rankings, and

    .. math:: R_k = \frac{1}{|G_k|} \sum_{i \in G_k} e_i \ \text{(parity)}, \quad
        \frac{\sum_{i \in G_k} e_i}{\sum_{i \in G_k} u_i} \ \text{(treatment)}, \quad
        \frac{\sum_{i \in G_k} u_i e_i}{\sum_{i \in G_k} u_i} \ \text{(impact)}.

    Parameters
    ----------
    utility : array of shape (n_items,)
        Estimated relevance, 0 or more; the merit of a group is the mean over its items.
    group : whole numbers of shape (n_items,)
        From 0 to n_groups - 1, or n_groups where the group is not known.
    n_groups : int
    constraint : {"impact", "treatment", "parity"}
        Which of the ratios is to be the same for all groups.
    slack : float
        By how much the largest ratio may exceed the smallest, as a part of the smallest: 0 asks
        for equality, 0.1 allows 10 % more. It does not depend on the scale of the utilities or of
        the discount.
    raise_slack : float, optional
        Where no ranking meets the slack, it is raised in steps of this size until one does. Left
        out, that is a `ConstraintError` which says what the least slack is.
    discount : {"log2", "trec"} or array of shape (n_items,)
        The exposure that each position gives, as in `pairity.metrics.exposure`, or its values
        from the top, which never rise.

    Returns
    -------
    FairExposure

    Notes
    -----
    Singh & Joachims solve a linear program in the n² entries of a doubly stochastic matrix. Utility
    and ratios depend on that matrix only through e, which lies in the permutahedron of the
    discounts. There the best vertex for given multipliers is found by sorting, so this solves the
    same program by column generation: same optimum, a few sorts.

    Showing every item equally often meets parity and impact, so these can always be met; treatment
    cannot where merits differ by more than positions do. The least slack is then itself computed
    by a linear program, and a raised one is the first step at or above it.

    A group without an item in the query is not compared with others. Nor is one whose merit is zero
    (at most 1e-9 times the largest merit), under treatment and impact: no exposure is in proportion
    to it, and its items have no clicks. Items of such groups and of unknown group occupy positions
    and count in the objective. With fewer than two groups left, the ranking by utility is returned.

    Ties: items that the program cannot tell apart, of one utility and one group, share a place.
    Where the ranking by utility meets the constraint by itself, so do all items of one utility.
    The order in which items are given says nothing, which matters where tables are sorted by label.

    References
    ----------
    Singh & Joachims (2018). Fairness of exposure in rankings. KDD.

    Examples
    --------
    >>> from pairity.baselines.exposure_lp import fair_exposure
    >>> fair = fair_exposure([0.9, 0.6], [0, 1], 2, constraint="parity")
    >>> fair.rankings.tolist(), fair.probability.round(3).tolist()  # each is first half the time
    ([[0, 1], [1, 0]], [0.5, 0.5])
    >>> fair.exposure.round(3)  # (1 + 1/log2(3)) / 2
    array([0.815, 0.815])
    """
    values = as_numbers(utility, "utility")
    _require_utility(values)
    code = _group_codes(group, n_groups, len(values))
    settings = _Settings.checked(constraint, slack, raise_slack)
    names = [str(number) for number in range(n_groups)]
    attention, first = _attention(discount, len(values)), np.zeros(len(values))
    return _fair_exposure(values, code, names, settings, attention, first)


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
    """`fair_exposure` for every query, from its items' utilities and groups.

    Parameters
    ----------
    queries : Queries
        Their labels are not looked at.
    utility : array of shape (n_items,)
        Estimated relevance, 0 or more.
    constraint, slack, raise_slack, discount
        As in `fair_exposure`; the slack is raised query by query.
    ties : array of shape (n_items,), optional
        Scores by which items of equal utility are ordered, falling. Items that are equal in both
        and in their group share a place, and so do all of them where left out.

    Returns
    -------
    rankings : Rankings
        To sample from, and to audit in expectation. Scores are equal where places are shared.
    slack : float64 array of shape (n_queries,)
        The slack that holds in each query.
    """
    require_groups(queries)
    values = as_numbers(utility, "utility", queries.n_items)
    _require_utility(values)
    settings = _Settings.checked(constraint, slack, raise_slack)
    first = np.zeros(queries.n_items) if ties is None else as_numbers(ties, "ties", queries.n_items)
    rows = np.argsort(queries.query, kind="stable")
    bounds = np.searchsorted(queries.query[rows], np.arange(queries.n_queries + 1))
    group, names = queries.group.astype(np.int64), [repr(name) for name in queries.groups]
    attention = _attention(discount, int(np.diff(bounds).max()))
    solved = []
    for number in range(queries.n_queries):
        own = rows[bounds[number] : bounds[number + 1]]
        try:
            fair = _fair_exposure(
                values[own], group[own], names, settings, attention[: len(own)], first[own]
            )
        except ConstraintError as error:
            name = show(queries.query_ids[number])
            raise ConstraintError(f"In the query {name}: {error}") from error
        solved.append((own, fair))
    width = max(len(fair.probability) for _, fair in solved)
    scores = np.empty((queries.n_items, width))
    probability = np.zeros((queries.n_queries, width))
    for number, (own, fair) in enumerate(solved):
        n_rankings = len(fair.probability)
        probability[number, :n_rankings] = fair.probability
        for column in range(width):  # a ranking the query does not have repeats its last
            scores[own, column] = -fair.places[min(column, n_rankings - 1)]
    return Rankings(scores, probability), np.array([fair.slack for _, fair in solved])


def exposure_lp(
    ranker: Any = None,
    *,
    constraint: Name = "impact",
    slack: float = 0.0,
    raise_slack: float | None = 0.1,
    discount: str = "log2",
) -> Method:
    """Post-processing by fair exposure: relevance estimated from training, then `fair_exposure`.

    It orders each query at random, and needs the groups of the queries it orders.

    Parameters
    ----------
    ranker : None, Method, FairRanker, or whatever `pairity.rankers.adapters.as_ranker` takes
        Where the scores come from. None stands for ordinary least squares on the labels.
    constraint, slack, discount
        As in `fair_exposure`.
    raise_slack : float or None
        Where a query cannot meet the slack, it is raised there in steps of this size, and a
        `TargetNotReachedWarning` says in how many queries; None makes that an error.

    Returns
    -------
    Method
        Named "exposure lp", with ``needs_group=True``. Its scorer returns `Rankings`: draw from
        them with ``sample(queries, random_state)``, audit ``expected(queries)``.

    Notes
    -----
    Utilities are estimated labels. Least squares predicts labels as it is. The scores of any other
    ranker have no such scale, so they are mapped to labels by the isotonic regression of the
    training labels on the training scores, which never turns the order around; items that it makes
    equal keep the ranker's order. Estimates below 0 count as 0: such items have no merit. Item and
    query weights count in both regressions.

    The constraint holds exactly for the estimated utilities, in expectation over the draw. On the
    true labels it holds as well as they are estimated.

    References
    ----------
    Singh & Joachims (2018), as in `fair_exposure`.

    Examples
    --------
    >>> from pairity.baselines.exposure_lp import exposure_lp
    >>> from pairity.datasets import make_biased_ranking
    >>> from pairity.metrics import exposure
    >>> queries = make_biased_ranking(20, 10, random_state=0).queries()
    >>> train, test = queries.split(0.3, random_state=0)
    >>> rankings = exposure_lp(constraint="parity")(train, test)
    >>> drawn = rankings.sample(test, random_state=0)  # scores of one ranking per query
    >>> repeated, scores = rankings.expected(test)
    >>> seen = exposure(repeated, scores)  # of each group, in each ranking of each query
    >>> (repeated.weight_of_query @ (seen[:, 0] - seen[:, 1])).round(9) + 0.0
    np.float64(0.0)
    """
    _Settings.checked(constraint, slack, raise_slack)
    choose(DISCOUNTS, discount, "discount")
    base = None if ranker is None else as_method(ranker)

    def fit(train: Queries, random_state: int) -> Scorer:
        estimate = _least_squares(train) if base is None else _calibrated(base, train, random_state)

        def score(queries: Queries) -> Rankings:
            utility, scores = estimate(queries)
            rankings, held = fair_rankings(
                queries, utility, constraint=constraint, slack=slack, raise_slack=raise_slack,
                discount=discount, ties=scores,
            )  # fmt: skip
            _warn_of_raised(held, slack, constraint)
            return rankings

        return score

    settings: dict[str, Any] = {"constraint": constraint, "slack": slack}
    if base is not None:
        named = base if isinstance(ranker, Method) else replace(base, name=type(ranker).__name__)
        settings["ranker"] = repr(named)
    return Method("exposure lp", fit, needs_group=True, settings=settings)


# --- one query ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Settings:
    constraint: _Constraint
    name: str
    slack: float
    raise_slack: float | None

    @classmethod
    def checked(cls, constraint: Any, slack: Any, raise_slack: Any) -> _Settings:
        if not isinstance(constraint, str) or constraint not in CONSTRAINTS:
            raise ConstraintError(
                f"Exposure cannot express {show(constraint)}: it is about positions, not pairs. "
                f"Choose one of {', '.join(map(repr, CONSTRAINTS))}; for constraints on pairs use "
                "FairRanker or lagrangian."
            )
        if not isinstance(slack, Real) or not 0.0 <= float(slack) < math.inf:
            raise InputError(
                f"slack is {show(slack)}, but must be a number of 0 or more: the part by which one "
                "group's ratio may exceed another's."
            )
        if raise_slack is not None and (
            not isinstance(raise_slack, Real) or not 0.0 < float(raise_slack) < math.inf
        ):
            raise InputError(
                f"raise_slack is {show(raise_slack)}, but must be a number above 0, or None."
            )
        step = None if raise_slack is None else float(raise_slack)
        return cls(CONSTRAINTS[constraint], constraint, float(slack), step)


def _fair_exposure(
    utility: Array,
    group: Integers,
    names: Sequence[str],
    settings: _Settings,
    attention: Array,
    ties: Array,
) -> FairExposure:
    n_groups = len(names)
    falling = np.lexsort((group, -ties, -utility))
    utility, group, ties = utility[falling], group[falling], ties[falling]
    best = float(utility @ attention) or 1.0
    size = sums(group, np.ones(len(group)), n_groups + 1)[:-1]
    total = sums(group, utility, n_groups + 1)[:-1]
    compared = size > 0
    if settings.constraint.by_merit:
        merit = np.nan_to_num(ratio(total, size))
        compared &= merit > _NO_MERIT * merit.max(initial=0.0)
    chosen = np.flatnonzero(compared)
    number = np.full(n_groups + 1, len(chosen))
    number[chosen] = np.arange(len(chosen))
    code = number[group]
    inside = code < len(chosen)
    share = np.zeros(len(group))
    known = group[inside]
    share[inside] = settings.constraint.shares(_Members(utility[inside], size[known], total[known]))
    # Ratios are put on a common scale: 1 is what a group gets where all items are seen equally.
    even = sums(code, share, len(chosen) + 1) * attention.mean()
    even[-1] = 1.0
    items = Items(utility / best, share / even[code], code, attention, len(chosen))
    equal = _runs(utility, ties)
    vertex, slack = _solve(items, equal, even[:-1], settings, [names[k] for k in chosen.tolist()])
    alike = equal if vertex is None else _runs(utility, ties, group)  # who may share a place
    vertex = vertex or Vertex([np.arange(len(group))], np.ones(1), 0.0, np.zeros(len(chosen)))
    earned = np.array([items.received(order)[1] for order in vertex.orders])
    likeliest = np.lexsort((-earned, -vertex.weight.round(9)))  # the more useful of two as likely
    probability = vertex.weight[likeliest] / vertex.weight.sum()
    rankings = np.array([falling[vertex.orders[at]] for at in likeliest])
    places = np.empty_like(rankings)
    seen = np.zeros(len(group))
    for row, at in enumerate(likeliest):
        place = _runs(alike[vertex.orders[at]])  # stable sorts keep those who are alike together
        places[row, rankings[row]] = place
        seen[rankings[row]] += probability[row] * _shared(attention, place)
    ratios, duals = np.full(n_groups, np.nan), np.zeros(n_groups)
    ratios[chosen] = sums(code, share * seen[falling], len(chosen) + 1)[:-1]
    duals[chosen] = vertex.price * best / even[:-1]
    return FairExposure(
        rankings, places, probability, seen, ratios, float(utility @ seen[falling]), slack, duals
    )


def _runs(*values: NDArray[Any]) -> Integers:
    """Number the runs of entries that are the same in all values, from 0."""
    new = np.zeros(len(values[0]), dtype=np.int64)
    for one in values:
        new[1:] |= one[1:] != one[:-1]
    return np.cumsum(new)


def _shared(attention: Array, place: Integers) -> Array:
    """The attention of each position, from the top, where those of one place share theirs."""
    return (np.bincount(place, attention) / np.bincount(place))[place]


def _solve(
    items: Items, equal: Integers, even: Array, settings: _Settings, names: Sequence[str]
) -> tuple[Vertex | None, float]:
    """The optimal vertex, None where the ranking by utility will do, and the slack it needed."""
    slack, by_utility = settings.slack, replace(items, attention=_shared(items.attention, equal))
    ratios = by_utility.received(np.arange(len(equal)))[0] * even
    if len(even) < 2 or ratios.max() <= (1.0 + slack) * ratios.min():
        return None, slack
    vertex = solve(items, _program(even, slack))
    if vertex is not None:
        return vertex, slack
    least, lowest, highest = _least_slack(items, even)
    if settings.raise_slack is None:
        raise ConstraintError(
            f"No ranking of these {len(items.code)} items meets {settings.name!r} with a slack of "
            f"{slack:g}: at best the group {names[highest]} has {1.0 + least:.4g} times the "
            f"{settings.constraint.what} that the group {names[lowest]} has. The least slack is "
            f"{least:.6g}; give at least that, or raise_slack=0.1 to raise it by as much as needed."
        )
    steps = math.ceil((least - slack) / settings.raise_slack - 1e-9)
    slack = max(slack + steps * settings.raise_slack, least)
    vertex = solve(items, _program(even, slack))
    while vertex is None:  # by rounding: the least slack is known to about ten digits
        slack += 1e-9 * (1.0 + slack)
        vertex = solve(items, _program(even, slack))
    return vertex, slack


def _program(even: Array, slack: float) -> Program:
    """The ratios within the slack of each other, as rows near 1.

    Without slack all ratios equal that of the group whose ratio is smallest when all items are
    seen equally. With slack, a variable m is the lower end: m <= R <= (1 + slack) m.
    """
    k, lowest = len(even), int(even.argmin())
    low, eye = even[lowest] / even, np.eye(len(even))
    if slack == 0.0:
        others = np.arange(k) != lowest
        equal = eye.copy()
        equal[:, lowest] -= low
        rows = np.vstack([equal[others], np.zeros((1, k))])
        last = np.eye(k)[-1]
        return Program(1.0, rows, last, np.empty((k, 0)), np.empty(0), last)
    high = (1.0 + slack) * low
    scale = np.maximum(high, 1.0)
    zero = np.zeros((k, k))
    columns = np.vstack(
        [
            np.column_stack([-low, -eye, zero]),
            np.column_stack([high / scale, zero, -eye]),
            np.zeros((1, 2 * k + 1)),
        ]
    )
    rows = np.vstack([eye, -eye / scale[:, None], np.zeros((1, k))])
    last = np.eye(2 * k + 1)[-1]
    return Program(1.0, rows, last, columns, np.zeros(2 * k + 1), last)


def _least_slack(items: Items, even: Array) -> tuple[float, int, int]:
    """The least slack that any ranking meets, and which groups are then lowest and highest.

    The least largest ratio where the smallest is held at one unit, over multiples of
    distributions: the quotient becomes linear.
    """
    k = len(even)
    eye, zero = np.eye(k), np.zeros((k, k))
    columns = np.vstack(
        [np.column_stack([np.zeros(k), -eye, zero]), np.column_stack([np.ones(k), zero, -eye])]
    )
    program = Program(
        0.0,
        np.vstack([eye, -np.diag(even / even.max())]),
        np.zeros(2 * k),
        columns,
        -np.eye(2 * k + 1)[0],
        np.r_[even.min() / even, np.zeros(k)],
    )
    vertex = solve(items, program)
    if vertex is None:  # every group can be given something, and all multiples are allowed
        raise AssertionError("a program that can always be met was not")
    received = np.array([items.received(order)[0] for order in vertex.orders])
    ratios = vertex.weight @ received * even
    least = -vertex.value * even.max() / even.min() - 1.0
    return least, int(ratios.argmin()), int(ratios.argmax())


# --- at the door -------------------------------------------------------------------------------


def _require_utility(values: Array) -> None:
    if not len(values):
        raise InputError("utility has 0 entries: there is nothing to rank. Give at least one item.")
    if (values < 0).any():
        row = int(np.argmax(values < 0))
        raise InputError(
            f"utility has {int((values < 0).sum())} negative entries, the first in row {row} "
            f"({values[row]:g}). Utilities are estimated relevances, and groups' means of them are "
            "merits: clip them at 0, or add a constant."
        )


def _group_codes(group: ArrayLike, n_groups: Any, n_items: int) -> Integers:
    if not isinstance(n_groups, Integral) or n_groups < 0:
        raise InputError(f"n_groups is {show(n_groups)}, but must be a whole number of 0 or more.")
    codes = as_numbers(group, "group", n_items)
    wrong = (codes < 0) | (codes > n_groups) | (codes % 1 != 0)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(
            f"group is {codes[row]:g} in row {row}, but must be a whole number from 0 to "
            f"{n_groups - 1}, or {n_groups} where the group is not known."
        )
    return codes.astype(np.int64)


def _attention(discount: str | ArrayLike, n_items: int) -> Array:
    if isinstance(discount, str):
        return choose(DISCOUNTS, discount, "discount")(np.arange(1, n_items + 1))
    values = as_numbers(discount, "discount", n_items)
    if values[0] <= 0 or values[-1] < 0 or (np.diff(values) > 0).any():
        raise InputError(
            f"discount goes from {values[0]:g} to {values[-1]:g}; it must start above 0, never "
            "rise from one position to the next, and not go below 0."
        )
    return values


def _warn_of_raised(held: Array, slack: float, constraint: str) -> None:
    raised = held[held > slack]
    if len(raised):
        warnings.warn(
            f"No ranking meets {constraint!r} with a slack of {slack:g} in {len(raised)} of the "
            f"{len(held)} queries. It was raised there to between {raised.min():.4g} and "
            f"{raised.max():.4g}.",
            TargetNotReachedWarning,
            stacklevel=2,
        )


# --- relevance from training -------------------------------------------------------------------

Estimate = Callable[[Queries], tuple[Array, Array]]  # utilities, and the scores behind them


def _least_squares(train: Queries) -> Estimate:
    if train.X is None:
        raise InputError(
            "X is None, but least squares learns from features. Give one row per item."
        )
    model = LinearRegression().fit(train.X, train.y, sample_weight=_weights(train))

    def estimate(queries: Queries) -> tuple[Array, Array]:
        scores = np.asarray(model.predict(queries.X), dtype=np.float64)
        return np.maximum(scores, 0.0), scores

    return estimate


def _calibrated(base: Method, train: Queries, random_state: int) -> Estimate:
    scorer = base.fit(train, random_state)
    curve = IsotonicRegression(out_of_bounds="clip")
    curve.fit(_scores(base, scorer, train), train.y, sample_weight=_weights(train))

    def estimate(queries: Queries) -> tuple[Array, Array]:
        scores = _scores(base, scorer, queries)
        return np.maximum(np.asarray(curve.predict(scores), dtype=np.float64), 0.0), scores

    return estimate


def _scores(base: Method, scorer: Scorer, queries: Queries) -> Array:
    scores = base.score(scorer, queries)
    if isinstance(scores, Rankings):
        raise InputError(
            f"{base!r} draws its rankings at random, so that it has no scores to estimate "
            "relevance from. Give a ranker or method that returns scores."
        )
    return scores


def _weights(queries: Queries) -> Array | None:
    if queries.item_weight is None and queries.query_weight is None:
        return None
    weight = queries.weight_of_query[queries.query]
    return weight if queries.item_weight is None else weight * queries.item_weight
