"""Post-processing by fair exposure: random rankings in which groups are exposed alike.

The baseline of Singh & Joachims: `exposure_lp` makes a `Method` of `fair_rankings`. It reads the
groups of the queries that it orders.
"""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LinearRegression

from pairity._utils.typing import Array
from pairity.baselines._linear import item_weight_of
from pairity.baselines.exposure_program import Name, Settings, fair_rankings
from pairity.baselines.methods import Method, Rankings, Scorer, as_method
from pairity.data.checks import require_features
from pairity.data.queries import Queries
from pairity.exceptions import InputError, TargetNotReachedWarning
from pairity.metrics.positions import DISCOUNTS, choose


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
    Settings(constraint, slack, raise_slack)
    choose(DISCOUNTS, discount, "discount")
    base = _LEAST_SQUARES if ranker is None else as_method(ranker)

    def fit(train: Queries, random_state: int) -> Scorer:
        scorer, estimate = base.fit(train, random_state), np.asarray
        if ranker is not None:
            curve = IsotonicRegression(out_of_bounds="clip")
            curve.fit(_scores(base, scorer, train), train.y, sample_weight=item_weight_of(train))
            estimate = curve.predict

        def score(queries: Queries) -> Rankings:
            scores = _scores(base, scorer, queries)
            rankings, slacks = fair_rankings(
                queries, np.maximum(estimate(scores), 0.0), constraint=constraint, slack=slack,
                raise_slack=raise_slack, discount=discount, ties=scores,
            )  # fmt: skip
            _warn_of_raised(slacks, slack, constraint)
            return rankings

        return score

    settings: dict[str, Any] = {"constraint": constraint, "slack": slack}
    if ranker is not None:
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


def _fit_least_squares(train: Queries, random_state: int) -> Scorer:  # noqa: ARG001
    require_features(train)
    model = LinearRegression().fit(train.X, train.y, sample_weight=item_weight_of(train))
    return lambda queries: np.asarray(model.predict(queries.X), dtype=np.float64)


_LEAST_SQUARES = Method("least squares", _fit_least_squares)


def _scores(base: Method, scorer: Scorer, queries: Queries) -> Array:
    scores = base.score(scorer, queries)
    if isinstance(scores, Rankings):
        raise InputError(
            f"{base!r} draws its rankings at random, so it has no scores to estimate relevance "
            "from. Pass a ranker or a method that returns scores."
        )
    return scores
