"""Method: anything that learns from training queries and then orders others; what is compared.

A method's `fit` takes training queries and a seed, and returns a scorer: a function from queries to
scores, or to `Rankings` where the order is drawn at random. A scorer that reads the groups of the
queries it scores says so by `needs_group`; all others are given queries without groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from pairity._utils.typing import Array
from pairity.data.queries import Queries
from pairity.exceptions import InputError
from pairity.rankers.adapters import as_ranker
from pairity.reweighting.algorithm import Outcome
from pairity.reweighting.fair_ranker import FairRanker


@dataclass(frozen=True, eq=False)
class Rankings:
    """For each query, a few rankings and how likely each is.

    Attributes
    ----------
    scores : float64 array of shape (n_items, n_rankings)
        Each column orders all items.
    probability : float64 array of shape (n_queries, n_rankings)
        Rows add up to one; a ranking a query does not have has probability 0.
    """

    scores: Array
    probability: Array

    def sample(self, queries: Queries, random_state: Any = None) -> Array:
        """Scores of shape (n_items,) of one ranking per query, drawn by its probability."""
        rng = check_random_state(random_state)
        edges = np.cumsum(self.probability, axis=1)
        chosen = (rng.random_sample(len(edges))[:, None] * edges[:, -1:] > edges).sum(axis=1)
        return np.asarray(self.scores[np.arange(queries.n_items), chosen[queries.query]])

    def expected(self, queries: Queries) -> tuple[Queries, Array]:
        """Every query once for each of its rankings, weighted by its probability, and the scores.

        Any mean over these queries is the expectation over the draw. They have no features.
        """
        query, ranking = np.nonzero(self.probability)
        number = np.full(self.probability.shape, -1)
        number[query, ranking] = np.arange(len(query))
        at = number[queries.query]
        rows, columns = np.nonzero(at >= 0)
        weight = queries.weight_of_query[query] * self.probability[query, ranking]
        item_weight = queries.item_weight
        repeated = replace(
            queries,
            X=None,
            y=queries.y[rows],
            query=at[rows, columns],
            query_ids=np.arange(len(query)),
            group=queries.group[rows],
            item_weight=None if item_weight is None else item_weight[rows],
            query_weight=weight,
        )
        return repeated, self.scores[rows, columns]


Scorer = Callable[[Queries], Array | Rankings]


@dataclass(frozen=True, eq=False)
class Method:
    """One way to rank, with its settings.

    Attributes
    ----------
    name : str
        What it is called in tables and figures; points of one name make one curve.
    fit : callable
        From training queries and a seed (int) to a scorer.
    needs_group : bool
        Whether the scorer reads the groups of the queries it scores.
    settings : mapping
        What tells it apart from others of the name, such as ``{"slack": 0.1}``.
    """

    name: str
    fit: Callable[[Queries, int], Scorer]
    needs_group: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        shown = ", ".join(f"{key}={value!r}" for key, value in self.settings.items())
        return f"{self.name}({shown})"

    def __call__(self, train: Queries, test: Queries, random_state: int = 0) -> Array | Rankings:
        """Fit on the training queries and order the test queries."""
        return self.score(self.fit(train, random_state), test)

    def score(self, scorer: Scorer, queries: Queries) -> Array | Rankings:
        """What the scorer makes of queries, which it sees without groups unless it needs them."""
        return scorer(queries if self.needs_group else without_groups(queries))


def without_groups(queries: Queries) -> Queries:
    """The same queries as if no group were known."""
    return replace(queries, group=np.zeros(queries.n_items, dtype=np.int32), groups=())


def as_method(model: Any, *, name: str | None = None, **settings: Any) -> Method:
    """A method from a `FairRanker`, or from any ranker or engine's model, trained plainly.

    Parameters
    ----------
    model : FairRanker, or whatever `pairity.rankers.adapters.as_ranker` takes
    name : str, optional
        "reweighted" for a `FairRanker`, "plain" for others.
    **settings
        Parameters to set on a copy of the model: ``as_method(FairRanker(), tolerance=0.05)``.
        Tables show them, and whatever else is not at its default.
    """
    if isinstance(model, Method):
        return model
    fair = isinstance(model, FairRanker)
    base = clone(model) if fair else clone(as_ranker(model), safe=False)
    shown = {**_changed(base), **settings}
    if settings:
        known = base.get_params()
        unknown = [key for key in settings if key not in known]
        if unknown:
            raise InputError(
                f"{type(base).__name__} has no parameter {unknown[0]!r}. Choose from "
                f"{', '.join(sorted(known))}."
            )
        base.set_params(**settings)

    def fit(train: Queries, random_state: int) -> Scorer:
        fresh = clone(base, safe=False)
        if fair and fresh.random_state is None:
            fresh.set_params(random_state=random_state)
        if fair:
            if fresh.progress == "auto":
                fresh.set_params(progress=False)  # a comparison shows its own
            fresh.fit(**train)
            if fresh.outcome_ is Outcome.INTERRUPTED:
                raise KeyboardInterrupt  # the best round so far is not what the settings say
        else:
            fresh.fit_pairs(train, np.ones((train.n_groups, train.n_groups)))
        return lambda queries: np.asarray(fresh.predict(queries.X), dtype=np.float64)

    return Method(name or ("reweighted" if fair else "plain"), fit, False, shown)


def _changed(model: Any) -> dict[str, Any]:
    """The parameters that are not at their defaults, but for what only the screen sees."""
    if not hasattr(model, "get_params"):
        return {}
    values = model.get_params(deep=False)
    return changed_from(type(model), {key: values[key] for key in values if key != "progress"})


def changed_from(function: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the arguments that are not what they are by default."""
    known = signature(function).parameters
    return {
        name: value
        for name, value in values.items()
        if name in known and repr(value) != repr(known[name].default)
    }
