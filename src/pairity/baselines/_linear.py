"""What the linear baselines share: constraints they can express, scaled features, scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np

from pairity._utils.typing import Array
from pairity.constraints import CATALOGUE, PairwiseConstraint, as_constraint
from pairity.data.queries import Queries, require_groups, require_preferences
from pairity.exceptions import ConstraintError, InputError
from pairity.rankers._linear_data import linear_data
from pairity.rankers._products import one_blas_thread, times, transposed_times

_COPIED = 2**28


def as_expressible(
    constraint: Any, method: str, names: Sequence[str], reason: str
) -> PairwiseConstraint:
    """A constraint of the catalogue that a method can express, or an error that says which."""
    compared = as_constraint(constraint)
    if isinstance(compared, PairwiseConstraint) and type(compared) in [CATALOGUE[n] for n in names]:
        return compared
    raise ConstraintError(
        f"{method} cannot express {compared!r}: {reason}. Choose one of "
        f"{', '.join(map(repr, names))}."
    )


def require_number(value: Any, name: str, *, positive: bool = False) -> float:
    """Refuse what is not a finite number of at least 0, or above 0."""
    if isinstance(value, Real) and 0.0 <= float(value) < np.inf and (value or not positive):
        return float(value)
    wanted = "a number above 0" if positive else "a number, 0 or more"
    raise InputError(f"{name} is {value!r}; give {wanted}.")


@dataclass(frozen=True, eq=False)
class StandardFeatures:
    """The features of training queries, to be divided by their standard deviations.

    They are not centred, since pairs do not see a common shift. A constant feature is left out.
    Methods that go over them thousands of times do so column by column, which is faster: a table
    of up to `_COPIED` bytes is copied for that.
    """

    X: Any
    scale: Array

    @classmethod
    def of(cls, queries: Queries) -> StandardFeatures:
        """Check that there are features, preferences and groups, and find the scale."""
        data = linear_data(queries)
        require_preferences(queries)
        require_groups(queries)
        X = queries.X
        if isinstance(X, np.ndarray) and X.nbytes <= _COPIED:
            X = np.asfortranarray(X)
        return cls(X, data.deviations())

    def scores(self, beta: Array) -> Array:
        """Scores of the items from coefficients of the scaled features."""
        return times(self.X, beta / self.scale)

    def of_scores(self, gradient: Array) -> Array:
        """The gradient in the coefficients from a gradient in the scores."""
        return transposed_times(self.X, gradient) / self.scale


def score_linearly(coef: Array, queries: Queries) -> Array:
    """X @ coef, checked."""
    given = None if queries.X is None else int(queries.X.shape[1])
    if given != len(coef):
        raise InputError(
            f"The queries have {given or 'no'} features, but the method was fitted on "
            f"{len(coef)}. Give the same columns."
        )
    with one_blas_thread:
        return times(queries.X, coef)


def share_among_pairs(queries: Queries, counts: Array) -> Queries:
    """The queries with each one's weight shared by so many pairs, so that it counts once."""
    shared = np.zeros_like(counts)
    np.divide(queries.weight_of_query, counts, out=shared, where=counts > 0)
    return replace(queries, query_weight=shared)
