"""Problem: what Algorithm 1 trains, on which queries, and one training with given multipliers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from pairity._utils.typing import Array
from pairity.constraints import Constraint, Contrasts, PairwiseConstraint, largest_gap
from pairity.data.queries import Queries
from pairity.exceptions import ConstraintError, InputError, PairityError, TrainingError
from pairity.pairs.cells import mean_auc
from pairity.rankers.base import Ranker
from pairity.reweighting.interleaving import DualAscent
from pairity.reweighting.weights import Weigher, make_weigher

# The response to λ is estimated on about this many items and entries of X, for speed.
_SAMPLE_ITEMS = 50_000
_FEW_ITEMS = 12_000  # where the constraint is measured once for each direction of the response
_SAMPLE_ENTRIES = 4_000_000


class Trained(NamedTuple):
    """A fitted ranker, the multipliers that it was trained with, and its measurements."""

    model: Any
    lambda_: Array
    delta: Array
    violation: float
    auc: float
    seconds: float  # for training and measuring


@dataclass(frozen=True, eq=False)
class Problem:
    """A ranker, the queries it trains on, and the constraint with the queries it is measured on.

    Parameters
    ----------
    queries : Queries
        The queries to train on.
    ranker : Ranker
        It is cloned for every training.
    constraint : Constraint
    measured_on : Queries, optional
        The queries on which delta and AUC are measured. The default is the training queries.
    enumeration : {"preference", "both"}
    weighting : {"reversible", "exponential", "paper", "closed-form"}
    fit_params : mapping
        Keyword arguments of every fit of the ranker, such as an engine's evaluation sets.
    """

    queries: Queries
    ranker: Ranker
    constraint: Constraint
    measured_on: Queries | None = None
    enumeration: str = "preference"
    weighting: str = "reversible"
    fit_params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def target(self) -> Queries:
        """The queries on which delta and AUC are measured."""
        return self.queries if self.measured_on is None else self.measured_on

    @cached_property
    def unranked(self) -> Array:
        """Delta of equal scores, whose NaN show which entries are not compared."""
        delta = self.constraint.delta(self.target, self.target.each(_equal_scores))
        if not len(Contrasts.of(delta).first):
            raise ConstraintError(
                f"{self.constraint!r} has nothing to compare in the {self.target.n_queries} "
                "queries it is measured on. Measure it on more queries, or choose other groups."
            )
        return delta

    @cached_property
    def sample(self) -> Any:
        """Some of the training queries, on which the response to λ is estimated."""
        most = _SAMPLE_ITEMS if isinstance(self.constraint, PairwiseConstraint) else _FEW_ITEMS
        most = max(1, min(most, _SAMPLE_ENTRIES // self.queries.n_features))
        return self.queries.thinned(-(-self.queries.n_items // most))

    @cached_property
    def weigher(self) -> Weigher:
        """From multipliers to the weight table W."""
        shape = self.unranked.shape
        return make_weigher(self.constraint, self.queries, shape, self.enumeration, self.weighting)

    def train(self, lambda_: Array, previous: Any, label: str) -> Trained:
        """Train a new ranker with the weights of λ, h = H(data, W), and measure it.

        Parameters
        ----------
        previous : a fitted ranker to start from, or None
        label : str
            Where this training belongs, for the message of a failure, such as "in round 3".
        """

        def fit(ranker: Any) -> Array:
            table = self.weigher.table(lambda_)
            ranker.fit_pairs(self.queries, table, previous=previous, **self.fit_params)
            return lambda_

        return self._train(fit, lambda_, label)

    def train_following(self, lambda_: Array, label: str) -> Trained:
        """As `train`, in one run during which λ moves, beginning at `lambda_`."""

        def fit(ranker: Any) -> Array:
            table, scale = self.weigher.table, self.weigher.scale
            ascent = DualAscent(self.constraint, self.target, table, lambda_, scale)
            measured_on = self.measured_on
            ranker.fit_following(self.queries, ascent, measured_on=measured_on, **self.fit_params)
            return ascent.lambda_

        return self._train(fit, lambda_, label)

    def _train(self, fit: Callable[[Any], Array], lambda_: Array, label: str) -> Trained:
        start = time.perf_counter()
        ranker = clone(self.ranker, safe=False)
        with _naming_failures(ranker, label, lambda_):
            final = fit(ranker)
            scores = self.scores(ranker)
        return Trained(ranker, final, *self.measure(scores), time.perf_counter() - start)

    def scores(self, model: Any) -> Array:
        """The scores of the queries that are measured on."""
        return self.target.each(partial(scores_of, model))

    def measure(self, scores: Array) -> tuple[Array, float, float]:
        """Delta, violation and AUC of scores of the queries that are measured on."""
        delta = self.constraint.delta(self.target, scores)
        if not np.isfinite(delta[np.isfinite(self.unranked)]).all():
            raise ConstraintError(
                f"{self.constraint!r} compares other entries for these scores than for equal "
                "scores. Return NaN only where the data have nothing to compare for any scores."
            )
        return delta, largest_gap(delta), mean_auc(self.target, scores)


def _equal_scores(queries: Queries) -> Array:
    return np.zeros(queries.n_items)


def scores_of(model: Any, queries: Queries) -> Array:
    """Return the predictions of a fitted ranker, checked, since a user may have written it."""
    scores = np.asarray(model.predict(queries.X), dtype=np.float64)
    name = type(model).__name__
    if scores.shape != (queries.n_items,):
        raise InputError(
            f"{name}.predict returned shape {scores.shape} for {queries.n_items} items. Return "
            "one score per item."
        )
    if not np.isfinite(scores).all():
        raise InputError(
            f"{name}.predict returned {int((~np.isfinite(scores)).sum())} scores that are NaN or "
            f"infinity, of {queries.n_items}. Scale the features, or regularise the ranker more."
        )
    return scores


@contextmanager
def _naming_failures(ranker: Any, label: str, lambda_: Array) -> Iterator[None]:
    """Report the failure of a ranker with its place and λ; pairity's own errors are unchanged."""
    try:
        yield
    except (PairityError, MemoryError):
        raise
    except Exception as error:
        multipliers = np.array2string(lambda_, precision=4, separator=", ").replace("\n", "")
        raise TrainingError(
            f"{type(ranker).__name__} failed {label}, with lambda = {multipliers}: "
            f"{type(error).__name__}: {error}"
        ) from error
