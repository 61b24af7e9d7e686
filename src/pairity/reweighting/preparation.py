"""Setup: the parameters of a `FairRanker`, checked, and applied to the data of one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sklearn.utils import check_random_state

from pairity._utils.json_codec import require_stored
from pairity._utils.validation import is_real, require_count, require_number
from pairity.constraints import Constraint, as_constraint
from pairity.data.checks import require_features, require_groups, require_preferences
from pairity.data.sources import client_of, errors_about, open_queries, queries_type, read_alike
from pairity.exceptions import InputError
from pairity.rankers._estimators import require_spreads, require_streams
from pairity.rankers.adapters import as_ranker
from pairity.reweighting.algorithm import Solution, Trace, interleave, retrain
from pairity.reweighting.checkpoints import Checkpoint
from pairity.reweighting.interleaving import as_schedule
from pairity.reweighting.manifest import encode_settings
from pairity.reweighting.problem import Problem
from pairity.reweighting.solvers import Solver, as_solver
from pairity.reweighting.weights import as_weighting

# Parameters on which a single round does not depend, or that a checkpoint records in another form.
_NOT_IN_CHECKPOINTS = ("ranker", "checkpoint", "max_rounds", "progress", "validation")


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
        if distributed and model.validation is not None and model.schedule == "auto":
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

    def problem(self, queries: Any, split: Callable[..., tuple[Any, Any]]) -> Problem:
        """The problem that `fit` solves on these queries.

        Parameters
        ----------
        split : callable, from a share and a random state to training and held-out queries
        """
        require_groups(queries)
        train, measured_on, validation = queries, None, self.model.validation
        if is_real(validation):
            train, measured_on = split(float(validation), self.model.random_state)
            queries.release()  # workers need not keep the rows twice
        elif validation is not None:
            with errors_about("validation"):
                measured_on = read_alike(validation, queries, raw=self.raw)
        self.check(train)
        if measured_on is not None:
            with errors_about("the validation queries"):
                self.check(measured_on)
        return Problem(
            train, self.ranker, self.constraint, measured_on,
            self.model.enumeration, self.weighting, self.fit_params,
        )  # fmt: skip

    def check(self, queries: Any) -> None:
        """Refuse queries without a preference, or that the constraint cannot be measured on."""
        require_preferences(queries)
        self.constraint.check(queries)

    def checkpoint(self, problem: Problem, digest: str) -> Checkpoint | None:
        """The folder in which rounds are stored, together with all that they depend on."""
        if self.model.checkpoint is None:
            return None
        validation = problem.measured_on
        settings = {
            "data": digest,
            "equal_queries": problem.queries.equal_queries,
            "ranker": [type(self.ranker).__name__, self.ranker._encode_settings()],
            **encode_settings(self.model, _NOT_IN_CHECKPOINTS),
            "schedule": self.schedule,
            "validation": None if validation is None else validation.digest(),
        }
        return Checkpoint(self.model.checkpoint, settings, problem.queries.n_groups, self.ranker)

    def solve(self, problem: Problem, trace: Trace) -> Solution:
        """Run Algorithm 1 by the schedule."""
        if self.schedule == "interleaved" and trace.max_rounds:
            return interleave(problem, trace)
        return retrain(problem, self.solver, trace)


def _check_parameters(model: Any) -> None:
    require_stored(model)
    require_number(model.tolerance, "tolerance")
    require_count(model.max_rounds, "max_rounds", least=0)
    try:
        check_random_state(model.random_state)
    except ValueError as error:
        raise InputError(
            "random_state must be a whole number, a NumPy RandomState or None "
            f"(got {model.random_state!r})."
        ) from error


def _require_totals(constraint: Constraint) -> None:
    if not hasattr(constraint, "totals"):
        raise InputError(
            f"The constraint {constraint!r} is a function of all queries at once, but Dask keeps "
            "them on several workers. Use a constraint of the catalogue, or a class with "
            "totals(queries, scores), which are added over partitions, and from_totals(totals, "
            "groups)."
        )
