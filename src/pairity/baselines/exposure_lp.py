"""Post-processing by fair exposure: random rankings in which groups are exposed alike.

The baseline of Singh & Joachims. `fair_rankings` solves `fair_exposure` for every query, and
`exposure_lp` makes a `Method` of it. Both read the groups of the queries that they order.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LinearRegression

from pairity._utils.typing import Array
from pairity._utils.validation import show
from pairity.baselines._linear import item_weight_of
from pairity.baselines.exposure_program import (
    Name,
    Settings,
    positions_attention,
    require_utility,
    solve_query,
)
from pairity.baselines.methods import Method, Rankings, Scorer, as_method
from pairity.data.checks import require_groups
from pairity.data.columns import as_numbers
from pairity.data.queries import Queries
from pairity.exceptions import ConstraintError, InputError, TargetNotReachedWarning
from pairity.metrics.positions import DISCOUNTS, choose


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
    settings = Settings.checked(constraint, slack, raise_slack)
    first = np.zeros(queries.n_items) if ties is None else as_numbers(ties, "ties", queries.n_items)
    rows = np.argsort(queries.query, kind="stable")
    bounds = np.searchsorted(queries.query[rows], np.arange(queries.n_queries + 1))
    group, names = queries.group.astype(np.int64), list(map(repr, queries.groups))
    attention = positions_attention(discount, int(np.diff(bounds).max()))
    solved = []
    for number in range(queries.n_queries):
        own = rows[bounds[number] : bounds[number + 1]]
        try:
            fair = solve_query(
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
        # Columns beyond a query's rankings repeat the last.
        scores[own] = -fair.places[np.minimum(np.arange(width), n_rankings - 1)].T
    return Rankings(scores, probability), np.array([fair.slack for _, fair in solved])


def exposure_lp(
    ranker: Any = None,
    *,
    constraint: Name = "impact",
    slack: float = 0.0,
    raise_slack: float | None = 0.1,
    discount: str = "log2",
) -> Method:
    """Estimate relevance from training queries, then order each query by `fair_exposure`.

    The method orders each query at random, and reads the groups of the queries that it orders.

    Parameters
    ----------
    ranker : None, Method, FairRanker, or whatever `pairity.rankers.adapters.as_ranker` takes
        The source of the scores. None fits ordinary least squares to the labels.
    constraint, slack, discount
        As in `pairity.baselines.exposure_program.fair_exposure`.
    raise_slack : float or None
        If a query cannot meet the slack, it is raised for that query in steps of this size, and a
        `TargetNotReachedWarning` states the number of queries. With None this is an error.

    Returns
    -------
    Method
        Named "exposure lp", with ``needs_group=True``. Its scorer returns `Rankings`, from which
        ``sample(queries, random_state)`` draws; audit ``expected(queries)``.

    Notes
    -----
    Utilities are estimated labels. Least squares predicts labels directly. The scores of any other
    ranker are mapped to labels by the isotonic regression of the training labels on the training
    scores, which never reverses the order; items that it makes equal keep the ranker's order.
    Estimates below 0 count as 0: such items have no merit. Both regressions use the weights of
    items and queries.

    The constraint holds exactly for the estimated utilities, in expectation over the draw. On the
    true labels it holds as well as they are estimated.

    References
    ----------
    Singh & Joachims (2018). Fairness of exposure in rankings. KDD.

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
    Settings.checked(constraint, slack, raise_slack)
    choose(DISCOUNTS, discount, "discount")
    base = None if ranker is None else as_method(ranker)

    def fit(train: Queries, random_state: int) -> Scorer:
        estimate = _least_squares(train) if base is None else _calibrated(base, train, random_state)

        def score(queries: Queries) -> Rankings:
            utility, scores = estimate(queries)
            rankings, slacks = fair_rankings(
                queries, utility, constraint=constraint, slack=slack, raise_slack=raise_slack,
                discount=discount, ties=scores,
            )  # fmt: skip
            _warn_of_raised(slacks, slack, constraint)
            return rankings

        return score

    settings: dict[str, Any] = {"constraint": constraint, "slack": slack}
    if base is not None:
        named = base if isinstance(ranker, Method) else replace(base, name=type(ranker).__name__)
        settings["ranker"] = repr(named)
    return Method("exposure lp", fit, needs_group=True, settings=settings)


def _warn_of_raised(slacks: Array, slack: float, constraint: str) -> None:
    raised = slacks[slacks > slack]
    if len(raised):
        warnings.warn(
            f"No ranking meets {constraint!r} with a slack of {slack:g} in {len(raised)} of the "
            f"{len(slacks)} queries. It was raised there to between {raised.min():.4g} and "
            f"{raised.max():.4g}.",
            TargetNotReachedWarning,
            stacklevel=2,
        )


# --- relevance from training -------------------------------------------------------------------

Estimate = Callable[[Queries], tuple[Array, Array]]  # utilities, and the scores behind them


def _least_squares(train: Queries) -> Estimate:
    if train.X is None:
        raise InputError(
            "The queries have no features (X is None), from which least squares learns. Build them "
            "with X."
        )
    model = LinearRegression().fit(train.X, train.y, sample_weight=item_weight_of(train))

    def estimate(queries: Queries) -> tuple[Array, Array]:
        scores = np.asarray(model.predict(queries.X), dtype=np.float64)
        return np.maximum(scores, 0.0), scores

    return estimate


def _calibrated(base: Method, train: Queries, random_state: int) -> Estimate:
    scorer = base.fit(train, random_state)
    curve = IsotonicRegression(out_of_bounds="clip")
    curve.fit(_scores(base, scorer, train), train.y, sample_weight=item_weight_of(train))

    def estimate(queries: Queries) -> tuple[Array, Array]:
        scores = _scores(base, scorer, queries)
        return np.maximum(np.asarray(curve.predict(scores), dtype=np.float64), 0.0), scores

    return estimate


def _scores(base: Method, scorer: Scorer, queries: Queries) -> Array:
    scores = base.score(scorer, queries)
    if isinstance(scores, Rankings):
        raise InputError(
            f"{base!r} draws its rankings at random, so it has no scores to estimate relevance "
            "from. Pass a ranker or a method that returns scores."
        )
    return scores
