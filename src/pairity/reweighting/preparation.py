"""Setup: the parameters of a `FairRanker`, checked, and applied to the data of one call."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sklearn.utils import check_random_state

from pairity._utils.json_codec import require_stored
from pairity._utils.validation import is_real, require_choice, require_count, require_number, show
from pairity.constraints import Constraint, as_constraint
from pairity.data.checks import (
    has_preferences,
    require_features,
    require_groups,
    require_preferences,
)
from pairity.data.parquet_features import ParquetFeatures
from pairity.data.sources import client_of, errors_about, open_queries, queries_type, read_alike
from pairity.exceptions import InputError
from pairity.rankers._estimators import require_spreads, require_streams
from pairity.rankers.adapters import as_ranker
from pairity.reweighting.algorithm import Solution, Trace, interleave, retrain
from pairity.reweighting.checkpoints import Checkpoint
from pairity.reweighting.interleaving import as_schedule
from pairity.reweighting.manifest import encode_settings
from pairity.reweighting.problem import Fold, Problem, make_folds
from pairity.reweighting.solvers import Solver, as_solver
from pairity.reweighting.weights import as_weighting

# Parameters on which a single round does not depend, or that a checkpoint records in another form.
_NOT_IN_CHECKPOINTS = ("ranker", "checkpoint", "max_rounds", "progress", "validation")


# For folds by default. In folds of fewer long lists a ranker that memorises shows so little of what
# it does on new ones that λ goes too far: with LightGBM, 3 or 5 synthetic queries of 480 items and
# the group as a feature, the violation on new queries was 0.11 to 0.26 (plain: 0.27 and 0.37).
# Measured in training with the paper's weights, which cannot go far, it was 0.02 to 0.06.
_FEWEST_QUERIES = 8


@dataclass(frozen=True, eq=False)
class Setup:
    """A `FairRanker` with its ranker, constraint, solver and schedule as objects.

    Attributes
    ----------
    model : FairRanker
    columns : dict from the name of an argument of `fit` to its value
    fit_params : keyword arguments of every fit of the ranker
    ranker : Ranker, not fitted
    constraint : Constraint
    solver : Solver
    schedule : {"retrain", "interleaved"}
    weighting : {"reversible", "exponential", "paper", "closed-form"}
    """

    model: Any
    columns: Mapping[str, Any]
    fit_params: Mapping[str, Any]
    ranker: Any
    constraint: Constraint
    solver: Solver
    schedule: str
    weighting: str

    @classmethod
    def of(cls, model: Any, columns: Mapping[str, Any], fit_params: Mapping[str, Any]) -> Setup:
        """Check the parameters, against each other and against the kind of data."""
        _check_parameters(model)
        ranker: Any = as_ranker(model.ranker)
        constraint = as_constraint(model.constraint)
        schedule = as_schedule(model.schedule, ranker, model.solver, fit_params)
        distributed = queries_type(columns).distributed
        apart = model.validation is not None and not isinstance(model.validation, str)
        if distributed and apart and model.schedule == "auto":
            schedule = "retrain"  # a worker knows the scores of its own training queries only
        if distributed:
            require_spreads(ranker)
            _require_totals(constraint)
        elif type(model.ranker).__name__.startswith("Dask"):
            raise InputError(
                f"{type(model.ranker).__name__} trains on Dask collections only, but these data "
                f"are in memory. Pass Dask collections, or use {type(ranker.estimator).__name__} "
                "with the same parameters."
            )
        solver = as_solver(model.solver)
        weighting = as_weighting(model.weighting, model.enumeration, ranker)
        return cls(model, columns, fit_params, ranker, constraint, solver, schedule, weighting)

    @property
    def utility(self) -> str:
        """The metric that `max_loss` limits."""
        return read_max_loss(self.model.max_loss)[0]

    @property
    def raw(self) -> bool:
        """Whether the ranker takes features as they are, with missing values and categories."""
        return bool(getattr(self.ranker, "raw_features", False))

    @contextmanager
    def open(self, groups: tuple[str, ...] | None = None) -> Iterator[Any]:
        """The queries that the arguments describe, with these group codes if there are any."""
        with open_queries(
            self.columns,
            raw=self.raw,
            client=client_of(self.model.ranker),
            announce=self.model.progress is not False,
            groups=groups,
        ) as queries:
            require_features(queries)
            require_streams(self.ranker, queries.X)
            yield queries

    def problem(self, queries: Any) -> Problem:
        """The problem that `fit` solves on these queries."""
        require_groups(queries)
        self.check(queries)
        measured_on, folds = self._held_out(queries)
        if measured_on is not None:
            with errors_about("the validation queries"):
                self.check(measured_on)
        weighting = self.weighting
        if self.model.weighting == "auto" and self._few(queries):
            weighting = "paper"
        return Problem(
            queries, self.ranker, self.constraint, measured_on, self.model.enumeration,
            weighting, self.fit_params, folds, self.utility,
        )  # fmt: skip

    def _held_out(self, queries: Any) -> tuple[Any, tuple[Fold, ...]]:
        """The queries to measure on, None for all, and the folds to train on instead of all."""
        validation, seed = self.model.validation, copy.deepcopy(self.model.random_state)
        seed = 0 if seed is None else seed
        if isinstance(validation, str):  # "auto"
            return None, self._automatic_folds(queries, seed)
        if validation is None:
            return None, ()
        if not is_real(validation):
            with errors_about("validation"):
                return read_alike(validation, queries, raw=self.raw), ()
        if not validation >= 2:  # a share, or NaN
            train, held_out = queries.split(float(validation), seed)
            with errors_about("the queries that are not held out"):
                require_preferences(train)
            return held_out, (Fold(train, held_out),)
        if queries.distributed:
            raise InputError(
                f"validation={validation!r} asks for folds, which Dask collections do not have. "
                "Pass a share of the queries, such as 0.2."
            )
        folds = make_folds(queries, require_count(validation, "validation", least=2), seed)
        for fold in folds:
            with errors_about(f"the training queries of one of {len(folds)} folds"):
                require_preferences(fold.train)
        return None, folds

    def _automatic_folds(self, queries: Any, seed: Any) -> tuple[Fold, ...]:
        """Two folds if the ranker may memorise and the data allow it, and otherwise none."""
        too_large = queries.distributed or isinstance(queries.X, ParquetFeatures)
        able = getattr(self.ranker, "memorises", False) and self.model.max_rounds > 0
        if not able or too_large or self._few(queries):
            return ()
        folds = make_folds(queries, 2, seed)
        return folds if all(has_preferences(fold.train) for fold in folds) else ()

    def _few(self, queries: Any) -> bool:
        """Whether the ranker may memorise, and the queries are too few to show what it learned."""
        return getattr(self.ranker, "memorises", False) and queries.n_queries < _FEWEST_QUERIES

    def check(self, queries: Any) -> None:
        """Refuse queries without a preference, or that the constraint cannot be measured on."""
        require_preferences(queries)
        self.constraint.check(queries)

    def checkpoint(self, problem: Problem, digest: str) -> Checkpoint | None:
        """The folder in which rounds are stored, together with all that they depend on."""
        if self.model.checkpoint is None:
            return None
        held_out = problem.folds or ([] if problem.measured_on is None else [problem.target])
        digests = [part.held_out if isinstance(part, Fold) else part for part in held_out]
        settings = {
            "data": digest,
            "equal_queries": problem.queries.equal_queries,
            "ranker": [type(self.ranker).__name__, self.ranker._encode_settings()],
            **encode_settings(self.model, _NOT_IN_CHECKPOINTS),
            "schedule": self.schedule,
            "validation": [part.digest() for part in digests],
        }
        n_groups, n_folds = problem.queries.n_groups, len(problem.folds)
        return Checkpoint(self.model.checkpoint, settings, n_groups, self.ranker, n_folds)

    def solve(self, problem: Problem, trace: Trace) -> Solution:
        """Run Algorithm 1 by the schedule."""
        if self.schedule == "interleaved" and trace.max_rounds:
            return interleave(problem, trace)
        return retrain(problem, self.solver, trace)


def _check_parameters(model: Any) -> None:
    require_stored(model)
    if isinstance(model.tolerance, str):
        require_choice("tolerance", model.tolerance, ("auto",))
    else:
        require_number(model.tolerance, "tolerance")
    require_count(model.max_rounds, "max_rounds", least=0)
    if isinstance(model.validation, str):
        require_choice("validation", model.validation, ("auto",))
    read_max_loss(model.max_loss)
    try:
        check_random_state(model.random_state)
    except ValueError as error:
        raise InputError(
            "random_state must be a whole number, a NumPy RandomState or None "
            f"(got {model.random_state!r})."
        ) from error


def read_max_loss(max_loss: Any) -> tuple[str, float | None]:
    """Check `max_loss`; return the metric that it limits, and by how much that may fall."""
    if max_loss is None:
        return "auc", None
    metric, loss = "auc", max_loss
    if isinstance(max_loss, Mapping) and len(max_loss) == 1:
        ((metric, loss),) = max_loss.items()
    name, _, k = str(metric).partition("@")
    known = metric == "auc" or (name == "ndcg" and k.isdecimal() and int(k) > 0)
    if not known or not is_real(loss) or not 0.0 <= loss < 1.0:
        raise InputError(
            f"max_loss is {show(max_loss)}. Pass how much AUC may be lost, such as 0.02, or a "
            "metric with its loss, such as {'ndcg@10': 0.02}; losses are from 0 up to below 1."
        )
    return str(metric), float(loss)


def _require_totals(constraint: Constraint) -> None:
    if not hasattr(constraint, "totals"):
        raise InputError(
            f"The constraint {constraint!r} is a function of all queries at once, but Dask keeps "
            "them on several workers. Use a constraint of the catalogue, or a class with "
            "totals(queries, scores), which are added over partitions, and from_totals(totals, "
            "groups)."
        )
