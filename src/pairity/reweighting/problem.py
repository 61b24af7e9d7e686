"""Problem: what Algorithm 1 trains, on which queries, and one training with given multipliers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from pairity._utils.typing import Array
from pairity.constraints import (
    Constraint,
    Contrasts,
    Noise,
    PairwiseConstraint,
    largest_gap,
    noise_of,
)
from pairity.data.queries import Queries
from pairity.data.splits import query_folds
from pairity.exceptions import ConstraintError, InputError, PairityError, TrainingError
from pairity.metrics.utility import ndcg
from pairity.pairs.cells import mean_auc
from pairity.rankers._estimators import PairRanker
from pairity.rankers._products import one_blas_thread
from pairity.rankers.base import Ranker
from pairity.reweighting.interleaving import DualAscent, expected_optimism
from pairity.reweighting.weights import Weigher, make_weigher

# The response to λ is estimated on about this many items and entries of X, for speed.
_SAMPLE_ITEMS = 25_000
_FEW_ITEMS = 12_000  # where the constraint is measured once for each direction of the response
_SAMPLE_ENTRIES = 2_000_000


class Trained(NamedTuple):
    """A fitted ranker, the multipliers that it was trained with, and its measurements."""

    model: Any  # a ranker, or a tuple with one for each fold
    lambda_: Array
    measured: Measured
    seconds: float  # for training and measuring


class Measured(NamedTuple):
    """The measurements of scores; see `Round`."""

    delta: Array
    violation: float
    auc: float
    utility: float
    noise_floor: float
    error: float


class Fold(NamedTuple):
    """Queries to train on, and others on which the ranker is then measured.

    Attributes
    ----------
    train, held_out : Queries
    rows : int array or None
        The rows of the held-out items among all items that are measured on; None if they are all.
    """

    train: Any
    held_out: Any
    rows: NDArray[np.int64] | None = None


def make_folds(queries: Queries, n_folds: int, random_state: Any) -> tuple[Fold, ...]:
    """Folds by query: each holds out some queries, and every query is held out once."""
    numbers = query_folds(queries.n_queries, n_folds, random_state)
    parts = [queries.take(fold) for fold in numbers]
    if n_folds == 2:  # the second part is also what remains without the first
        others = parts[::-1]
    else:
        everything = np.arange(queries.n_queries)
        others = [queries.take(np.setdiff1d(everything, fold)) for fold in numbers]
    rows = [np.flatnonzero(np.isin(queries.query, fold)) for fold in numbers]
    return tuple(Fold(*fold) for fold in zip(others, parts, rows, strict=True))


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
    folds : tuple of Fold
        If there are any, each training trains one ranker per fold, and measures every held-out
        item by the ranker that did not train on it. `complete` then trains on all queries.
    utility : str
        The metric that `Round.utility` records: "auc", or "ndcg@k".
    """

    queries: Queries
    ranker: Ranker
    constraint: Constraint
    measured_on: Queries | None = None
    enumeration: str = "preference"
    weighting: str = "reversible"
    fit_params: Mapping[str, Any] = field(default_factory=dict)
    folds: tuple[Fold, ...] = ()
    utility: str = "auc"
    _noise: list[Noise] = field(default_factory=list, init=False)

    @property
    def target(self) -> Queries:
        """The queries on which delta and AUC are measured."""
        return self.queries if self.measured_on is None else self.measured_on

    @property
    def on_training(self) -> bool:
        """Whether rankers are measured on the queries that they were trained on."""
        return self.measured_on is None and not self.folds

    @property
    def where(self) -> str:
        """The queries that are measured on, in words."""
        n = self.target.n_queries
        noun = "query" if n == 1 else "queries"
        if self.on_training:
            return f"{n:,} training {noun}"
        if self.measured_on is None:
            return f"{n:,} {noun} out of fold"
        return f"{n:,} {'held-out' if self.folds else 'validation'} {noun}"

    def measured_elsewhere(self, queries: Queries) -> Problem:
        """The same training on all queries, measured on other queries."""
        return replace(self, measured_on=queries, folds=())

    @cached_property
    def unranked(self) -> Array:
        """Delta of equal scores, whose NaN show which entries are not compared."""
        equal_scores = self.target.each(lambda part: np.zeros(part.n_items))
        delta = self.constraint.delta(self.target, equal_scores)
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

    # --- training --------------------------------------------------------------------------------

    def train(self, lambda_: Array, previous: Any, label: str) -> Trained:
        """Train a new ranker with the weights of λ, h = H(data, W), and measure it.

        Parameters
        ----------
        previous : the model of another training to start from, or None
        label : str
            Where this training belongs, for the message of a failure, such as "in round 3".
        """
        start = time.perf_counter()
        if self.folds:
            before = previous if isinstance(previous, tuple) else [None] * len(self.folds)
            parts = [fold.train for fold in self.folds]
            model: Any = tuple(
                self._fit(part, lambda_, model, label)
                for part, model in zip(parts, before, strict=True)
            )
        else:
            model = self._fit(self.queries, lambda_, previous, label)
        return self._trained(model, lambda_, label, start)

    def complete(self, model: Any, lambda_: Array) -> Any:
        """Return the ranker of a training; with folds, train it on all queries."""
        if not isinstance(model, tuple):
            return model
        return self._fit(self.queries, lambda_, model[0], "on all queries, after the last round")

    def train_following(self, lambda_: Array, label: str) -> Trained:
        """As `train`, in one run during which λ moves, beginning at `lambda_`.

        With folds there is one run for each, and then a run on all queries, which corrects the
        delta of its training queries by the optimism of the folds. That run's ranker is the model.
        """
        start = time.perf_counter()
        if not self.folds:
            ascent = self._ascent(self.target, lambda_)
            model = self._follow(self.queries, ascent, self.measured_on, label)
            return self._trained(model, ascent.lambda_, label, start)
        ascents = [
            self._ascent(fold.held_out, lambda_, trained_on=fold.train) for fold in self.folds
        ]
        models = tuple(
            self._follow(fold.train, ascent, fold.held_out, label)
            for fold, ascent in zip(self.folds, ascents, strict=True)
        )
        trained = self._trained(models, lambda_, label, start)
        share = self.folds[0].train.n_queries / self.queries.n_queries
        correction = partial(expected_optimism, ascents, share)
        last = self._ascent(self.queries, lambda_, correction=correction)
        model = self._follow(self.queries, last, None, label)
        return trained._replace(model=model, lambda_=last.lambda_)

    def _ascent(self, queries: Any, lambda_: Array, **options: Any) -> DualAscent:
        return DualAscent(self.constraint, queries, self.weigher, lambda_, **options)

    def _fit(self, queries: Any, lambda_: Array, previous: Any, label: str) -> Any:
        ranker = clone(self.ranker, safe=False)
        with _naming_failures(ranker, label, lambda_):
            table = self.weigher.table(lambda_)
            ranker.fit_pairs(queries, table, previous=previous, **self.fit_params)
        return ranker

    def _follow(self, queries: Any, follow: Any, measured_on: Any, label: str) -> Any:
        ranker = clone(self.ranker, safe=False)
        with _naming_failures(ranker, label, None):
            ranker.fit_following(queries, follow, measured_on=measured_on, **self.fit_params)
        return ranker

    # --- measuring -------------------------------------------------------------------------------

    def _trained(self, model: Any, lambda_: Array, label: str, start: float) -> Trained:
        with _naming_failures(self.ranker, label, lambda_):
            scores = self.scores(model)
        return Trained(model, lambda_, self.measure(scores), time.perf_counter() - start)

    def scores(self, model: Any) -> Array:
        """The scores of the queries that are measured on."""
        if not isinstance(model, tuple):
            return self.target.each(partial(scores_of, model))
        scores = np.empty(0)
        for fold, ranker in zip(self.folds, model, strict=True):
            part: Array = fold.held_out.each(partial(scores_of, ranker))
            if fold.rows is None:
                return part
            scores = scores if len(scores) else np.empty(self.target.n_items)
            scores[fold.rows] = part
        return scores

    def measure(self, scores: Array) -> Measured:
        """Measure scores of the queries that are measured on.

        The noise is computed for the first scores only: it hardly depends on the ranker.
        """
        if self._noise:
            delta = self.constraint.delta(self.target, scores)
        else:
            with one_blas_thread:
                self._noise.append(noise_of(self.constraint, self.target, scores))
            delta = self._noise[0].delta
        if not np.isfinite(delta[np.isfinite(self.unranked)]).all():
            raise ConstraintError(
                f"{self.constraint!r} compares other entries for these scores than for equal "
                "scores. Return NaN only where the data have nothing to compare for any scores."
            )
        noise, auc = self._noise[0], mean_auc(self.target, scores)
        largest = int(np.argmax(np.abs(Contrasts.of(delta).gaps(delta))))
        error = float(np.sqrt(noise.covariance[largest, largest]))
        utility = auc if self.utility == "auc" else self._ndcg(scores)
        return Measured(delta, largest_gap(delta), auc, utility, noise.floor, error)

    def _ndcg(self, scores: Array) -> float:
        k = int(self.utility.removeprefix("ndcg@"))
        totals = self.target.total(partial(_ndcg_totals, k), scores)
        return float(totals[0] / totals[1]) if totals[1] else float("nan")


def _ndcg_totals(k: int, queries: Queries, scores: Array) -> Array:
    """The sum of NDCG@k over queries, and the number of queries that define it."""
    values = ndcg(queries, scores, k=k)
    return np.array([np.nansum(values), np.count_nonzero(~np.isnan(values))], dtype=np.float64)


def scores_of(model: Any, queries: Queries) -> Array:
    """Return the predictions of a fitted ranker, checked, since a user may have written it."""
    known = isinstance(model, PairRanker)  # it does not check features of queries again
    scores = np.asarray(model.predict(queries if known else queries.X), dtype=np.float64)
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
def _naming_failures(ranker: Any, label: str, lambda_: Array | None) -> Iterator[None]:
    """Report the failure of a ranker with its place and λ; pairity's own errors are unchanged."""
    try:
        yield
    except (PairityError, MemoryError):
        raise
    except Exception as error:
        multipliers = ""
        if lambda_ is not None:
            shown = np.array2string(lambda_, precision=4, separator=", ").replace("\n", "")
            multipliers = f", with lambda = {shown}"
        raise TrainingError(
            f"{type(ranker).__name__} failed {label}{multipliers}: {type(error).__name__}: {error}"
        ) from error
