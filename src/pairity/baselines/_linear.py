"""What baselines share: checks of settings, scaled features, linear scores, weights of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pairity._utils.typing import Array
from pairity.constraints import CATALOGUE, PairwiseConstraint, as_constraint
from pairity.data.checks import require_groups, require_preferences
from pairity.data.queries import Queries
from pairity.exceptions import ConstraintError, InputError
from pairity.pairs.cells import ratio
from pairity.rankers._linear_data import linear_data, row_weights
from pairity.rankers._products import one_blas_thread, times, transposed_times

_MAX_COPIED_BYTES = 2**28  # a larger table is not copied to have contiguous columns


def as_expressible(
    constraint: Any, method: str, names: Sequence[str], reason: str
) -> PairwiseConstraint:
    """Return a constraint of the catalogue that a method can express, or refuse it."""
    compared = as_constraint(constraint)
    if isinstance(compared, PairwiseConstraint) and type(compared) in [CATALOGUE[n] for n in names]:
        return compared
    raise ConstraintError(
        f"{method} cannot express {compared!r}, because {reason}. Choose from "
        f"{', '.join(map(repr, names))}."
    )


@dataclass(frozen=True, eq=False)
class StandardFeatures:
    """The features of training queries, divided by their standard deviations.

    They are not centred, because a common shift cancels in every pair. A constant feature is left
    out. Methods that read the features thousands of times do so column by column, which is faster,
    so a table of up to `_MAX_COPIED_BYTES` is copied to have contiguous columns.
    """

    X: Any
    scale: Array

    @classmethod
    def of(cls, queries: Queries) -> StandardFeatures:
        """Check that there are features, preferences and groups, and compute the scale."""
        data = linear_data(queries)
        require_preferences(queries)
        require_groups(queries)
        X = queries.X
        if isinstance(X, np.ndarray) and X.nbytes <= _MAX_COPIED_BYTES:
            X = np.asfortranarray(X)
        return cls(X, data.deviations())

    def scores(self, beta: Array) -> Array:
        """Return the scores of the items from coefficients of the scaled features."""
        return times(self.X, beta / self.scale)

    def of_scores(self, gradient: Array) -> Array:
        """Return the gradient in the coefficients from a gradient in the scores."""
        return transposed_times(self.X, gradient) / self.scale


@dataclass(frozen=True, eq=False)
class LinearScorer:
    """A linear score. Called with queries, it scores their items.

    Attributes
    ----------
    coef : float64 array of shape (n_features,), in the units of the features
    """

    coef: Array

    def decision_function(self, X: Any) -> Array:
        """Return scores of shape (n_items,)."""
        n_features = None if X is None else int(X.shape[1])
        if n_features != len(self.coef):
            raise InputError(
                f"X has {n_features or 'no'} features, but the model was trained on "
                f"{len(self.coef)}. Pass the same columns."
            )
        with one_blas_thread:
            return times(X, self.coef)

    def __call__(self, queries: Queries) -> Array:
        """Return scores of shape (n_items,) for the items of `queries`."""
        return self.decision_function(queries.X)


def item_weight_of(queries: Queries) -> Array | None:
    """Return the weight of each item times that of its query; None without weights."""
    unweighted = queries.item_weight is None and queries.query_weight is None
    return None if unweighted else row_weights(queries)


def share_weights(queries: Queries, counts: Array, average: str = "query") -> Queries:
    """Divide each query's weight by its number of pairs, unless pairs are averaged.

    Every query then counts once.
    """
    if average == "pair":
        return queries
    shared = ratio(queries.weight_of_query, counts, otherwise=0.0)
    return replace(queries, query_weight=shared, equal_queries=False)
