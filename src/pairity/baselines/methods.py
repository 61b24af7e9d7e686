"""Method: anything that learns from training queries and then orders other queries.

The `fit` of a method takes training queries and a seed, and returns a scorer: a function from
queries to scores, or to `Rankings` if the order is drawn at random. A scorer that reads the groups
of the queries it scores declares this by `needs_group`; all others receive queries without groups.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from pairity._utils.typing import Array
from pairity._utils.validation import require_choice
from pairity.data.queries import Queries
from pairity.rankers.adapters import as_ranker
from pairity.reweighting.fair_ranker import FairRanker
from pairity.reweighting.outcomes import Outcome


@dataclass(frozen=True, eq=False)
class Rankings:
    """A few rankings of each query, and the probability of each.

    Attributes
    ----------
    scores : float64 array of shape (n_items, n_rankings)
        Each column is one order of all items.
    probability : float64 array of shape (n_queries, n_rankings)
        Rows add up to one. A ranking that a query does not have has probability 0.
    """

    scores: Array
    probability: Array

    def sample(self, queries: Queries, random_state: Any = None) -> Array:
        """Draw one ranking per query by its probability; return scores of shape (n_items,)."""
        rng = check_random_state(random_state)
        edges = np.cumsum(self.probability, axis=1)
        chosen = (rng.random_sample(len(edges))[:, None] * edges[:, -1:] > edges).sum(axis=1)
        return np.asarray(self.scores[np.arange(queries.n_items), chosen[queries.query]])

    def expected(self, queries: Queries) -> tuple[Queries, Array]:
        """Repeat each query for each of its rankings, weighted by its probability.

        Any mean over the repeated queries, which have no features, is the expectation over the
        draw. Returns them and their scores.
        """
        query, ranking = np.nonzero(self.probability)
        number = np.full(self.probability.shape, -1)
        number[query, ranking] = np.arange(len(query))
        copy = number[queries.query]
        rows, columns = np.nonzero(copy >= 0)
        weight = queries.weight_of_query[query] * self.probability[query, ranking]
        items = replace(queries, X=None)._rows(rows)
        repeated = replace(
            items, query=copy[rows, columns], query_ids=np.arange(len(query)), query_weight=weight
        )
        return repeated, self.scores[rows, columns]


Scorer = Callable[[Queries], Array | Rankings]


@dataclass(frozen=True, eq=False)
class Method:
    """A way to rank, with its settings: it learns from training queries and orders others.

    Attributes
    ----------
    name : str
        Its name in tables and plots; points of the same name make one curve.
    fit : callable
        From training queries and a seed (int) to a scorer.
    needs_group : bool
        Whether the scorer reads the groups of the queries it scores.
    settings : mapping
        What distinguishes it from others of this name, such as ``{"slack": 0.1}``.
    """

    name: str
    fit: Callable[[Queries, int], Scorer]
    needs_group: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        settings = ", ".join(f"{key}={value!r}" for key, value in self.settings.items())
        return f"{self.name}({settings})"

    def __call__(self, train: Queries, test: Queries, random_state: int = 0) -> Array | Rankings:
        """Fit on the training queries and order the test queries."""
        return self.score(self.fit(train, random_state), test)

    def score(self, scorer: Scorer, queries: Queries) -> Array | Rankings:
        """Order queries with the scorer, which reads their groups only if it needs them."""
        if not self.needs_group:
            queries = replace(queries, group=np.zeros(queries.n_items, dtype=np.int32), groups=())
        return scorer(queries)


def as_method(model: Any, *, name: str | None = None, **settings: Any) -> Method:
    """Make a method from a `FairRanker`, or from any ranker or engine's model without weights.

    Parameters
    ----------
    model : FairRanker, or whatever `pairity.rankers.adapters.as_ranker` takes
    name : str, optional
        "reweighted" for a `FairRanker`, "plain" for others.
    **settings
        Parameters to set on a copy of the model: ``as_method(FairRanker(), tolerance=0.05)``.
        Tables show them, and all other parameters that are not at their defaults.
    """
    if isinstance(model, Method):
        return model
    fair = isinstance(model, FairRanker)
    base = clone(model) if fair else clone(as_ranker(model), safe=False)
    values = dict(base.get_params(deep=False)) if hasattr(base, "get_params") else {}
    values.pop("progress", None)  # it is about the display
    shown = changed_from(type(base), values) | settings
    if settings:
        known = tuple(sorted(base.get_params()))
        for key in settings:
            require_choice(f"A setting of {type(base).__name__}", key, known)
        base.set_params(**settings)

    def fit(train: Queries, random_state: int) -> Scorer:
        fresh = clone(base, safe=False)
        if fair:
            if fresh.random_state is None:
                fresh.set_params(random_state=random_state)
            if fresh.progress == "auto":
                fresh.set_params(progress=False)  # a comparison has its own progress bar
            present = [name for code, name in enumerate(train.groups) if code in train.group]
            fresh.fit(train.with_groups_of(tuple(present)))  # a split may have lost a rare group
            if fresh.outcome_.kind is Outcome.INTERRUPTED:
                raise KeyboardInterrupt  # the best round so far is not the result of the settings
        else:
            fresh.fit_pairs(train, np.ones((train.n_groups, train.n_groups)))
        return lambda queries: np.asarray(fresh.predict(queries.X), dtype=np.float64)

    return Method(name or ("reweighted" if fair else "plain"), fit, False, shown)


def changed_from(function: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that are not at their defaults."""
    known = signature(function).parameters
    passed = {name: value for name, value in values.items() if name in known}
    return {key: value for key, value in passed.items() if repr(value) != repr(known[key].default)}
