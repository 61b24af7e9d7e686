"""Paths: utility and fairness along x · λ*, and along falling tolerances.

λ* is where Algorithm 1 ended. Between the plain ranker (x = 0) and the reweighted one (x = 1) lie
rankers that trade some of the one's utility for some of the other's evenness; a few warm-started
trainings give them all.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any, Literal

import numpy as np
from sklearn.base import clone

from pairity._utils.text import make_frame, render_table, shorten
from pairity._utils.typing import Array
from pairity._utils.validation import show
from pairity.constraints import Constraint, largest_gap
from pairity.data.queries import Queries
from pairity.exceptions import InputError, MissingExtraError, PairityError, TrainingError
from pairity.pairs.cells import mean_auc
from pairity.rankers.base import Ranker
from pairity.reweighting.algorithm import all_equal, scores_of
from pairity.reweighting.weights import make_weigher

Along = Literal["lambda", "tolerance"]

_CLOSE = 0.05  # of a tolerance: a violation within it and no further below is near enough
_COLUMNS = {"lambda": "x", "tolerance": "tolerance"}


@dataclass(frozen=True, eq=False)
class PathPoint:
    """One ranker on a path.

    Attributes
    ----------
    value : float
        What was asked for: x, or a tolerance.
    x : float
        The share of λ* it was trained with.
    lambda_ : array of shape (n_groups, n_groups) or (n_groups,), x · λ*
    violation : float
        The largest gap, on the queries that the path is reported on.
    auc : float, on the same queries
    seconds : float, for training and measuring
    reached : bool
        Whether the violation came within the tolerance, where tolerances are followed, on the
        queries that λ was found for; True along λ.
    model : the fitted ranker, or None where models were not kept
    """

    value: float
    x: float
    lambda_: Array
    violation: float
    auc: float
    seconds: float
    reached: bool = True
    model: Any = None

    @property
    def fairness(self) -> float:
        """1 less the violation."""
        return 1.0 - self.violation


@dataclass(frozen=True, eq=False, repr=False)
class Path:
    """Rankers between the plain one and the reweighted one, and beyond; prints as a table.

    Attributes
    ----------
    along : {"lambda", "tolerance"}
    points : tuple of PathPoint, in the order of the values asked for
    constraint : str
        What the violation is of.
    measured_on : str
        The queries that the figures rest on, such as "40 test queries".
    groups : tuple of str
    """

    along: Along
    points: tuple[PathPoint, ...]
    constraint: str
    measured_on: str
    groups: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, at: int) -> PathPoint:
        return self.points[at]

    def to_dict(self) -> dict[str, list[Any]]:
        """The columns of `to_frame`."""
        follows = _COLUMNS[self.along]
        columns: dict[str, list[Any]] = {follows: [point.value for point in self.points]}
        if self.along == "tolerance":
            columns["x"] = [point.x for point in self.points]
            columns["reached"] = [point.reached for point in self.points]
        for name in ("auc", "fairness", "violation", "seconds"):
            columns[name] = [getattr(point, name) for point in self.points]
        shape = self.points[0].lambda_.shape
        for cell in np.ndindex(*shape):
            label = ", ".join(self.groups[at] for at in cell)
            columns[f"lambda[{label}]"] = [float(point.lambda_[cell]) for point in self.points]
        return columns

    def to_frame(self, backend: str | None = None) -> Any:
        """One row per point, in pandas, polars or pyarrow."""
        return make_frame(self.to_dict(), backend)

    def plot(self, ax: Any = None) -> Any:
        """Draw utility and fairness against x, or against the tolerance, on Matplotlib axes.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            By default those of a new figure.

        Returns
        -------
        matplotlib.axes.Axes
        """
        try:
            from matplotlib import pyplot as plt
        except ImportError as error:
            raise MissingExtraError(
                'plot needs Matplotlib. Install it with: pip install "pairity[plot]"'
            ) from error
        if ax is None:
            _, ax = plt.subplots()
        order = sorted(self.points, key=lambda point: point.value)
        values = [point.value for point in order]
        ax.plot(values, [p.auc for p in order], marker="o", label="utility (AUC)")
        ax.plot(
            values, [p.fairness for p in order], marker="s", linestyle="--",
            label=f"fairness (1 − violation of {self.constraint})",
        )  # fmt: skip
        if self.along == "tolerance":
            ax.set_xlabel("tolerance")
            ax.invert_xaxis()  # towards more even rankings, as along λ
        else:
            ax.set_xlabel("x, the share of λ* trained with")
        ax.set_ylabel(f"on {self.measured_on}")
        ax.legend()
        return ax

    def __str__(self) -> str:
        header = [_COLUMNS[self.along], "AUC", "fairness", "violation", "seconds"]
        rows = []
        for point in self.points:
            estimates = [f"{v:.4f}" for v in (point.auc, point.fairness, point.violation)]
            rows.append([f"{point.value:.4g}", *estimates, f"{point.seconds:.2f}"])
        if self.along == "tolerance":
            header = [*header, "x", ""]
            for row, point in zip(rows, self.points, strict=True):
                row += [f"{point.x:.3f}", "" if point.reached else "not reached"]
        caption = f"{shorten(self.constraint, 60)} on {self.measured_on}"
        return f"{caption}\n{render_table(header, rows, left=())}"

    def __repr__(self) -> str:
        values = ", ".join(f"{point.value:.4g}" for point in self.points)
        return f"Path(along={self.along!r}, constraint={self.constraint}, values=[{values}])"


def lambda_path(
    queries: Queries,
    ranker: Ranker,
    constraint: Constraint,
    lambda_: Array,
    values: Iterable[float],
    *,
    test: Queries | None = None,
    kind: str | None = None,
    keep_models: bool = False,
    previous: Any = None,
    enumeration: str = "preference",
    weighting: str = "indicator",
    fit_params: Mapping[str, Any] | None = None,
) -> Path:
    """Train with the weights W(x · λ*) for each x, each fit begun at its neighbour.

    Parameters
    ----------
    queries : Queries
        To train on.
    lambda_ : array of shape (n_groups, n_groups) or (n_groups,)
        λ*, as Algorithm 1 left it.
    values : numbers
        The x, in any order; they are visited from the lowest to the highest.
    test : Queries, optional
        Queries to report on, with the same numbering of groups; the training queries by default.
    kind : str, optional
        What to call them: "training", "test" or "validation".
    keep_models : bool
        Whether every point keeps its fitted ranker.
    previous : fitted ranker, optional
        Where the first fit begins.
    enumeration, weighting, fit_params
        As in `pairity.reweighting.algorithm.reweight`.

    References
    ----------
    R. Sonoda, *A Pre-processing Method for Fairness in Ranking*, 2021, second figure.
    """
    asked = read_values(values, "lambda")
    train = _Trainer.of(
        queries, ranker, constraint, lambda_, previous,
        enumeration=enumeration, weighting=weighting, fit_params=fit_params,
    )  # fmt: skip
    target, default = (queries, "training") if test is None else (test, "test")
    points: dict[float, PathPoint] = {}
    for x in sorted(set(asked)):
        points[x] = train.point(x, target, keep_models)
    return _path("lambda", [points[x] for x in asked], constraint, target, kind or default)


def tolerance_path(
    queries: Queries,
    ranker: Ranker,
    constraint: Constraint,
    lambda_: Array,
    values: Iterable[float] | None = None,
    *,
    smallest: float = 0.01,
    measured_on: Queries | None = None,
    test: Queries | None = None,
    kind: str | None = None,
    keep_models: bool = False,
    previous: Any = None,
    max_searches: int = 4,
    enumeration: str = "preference",
    weighting: str = "indicator",
    fit_params: Mapping[str, Any] | None = None,
) -> Path:
    """For each tolerance, the ranker that comes within it with the smallest share of λ*.

    The solvers of Algorithm 1 head for a violation of zero and overshoot a tolerance that is
    generous. Between 0 and 1 the share x of λ* is searched instead, by interpolating between
    the shares trained so far; all tolerances draw on the same trainings.

    Parameters
    ----------
    lambda_ : array of shape (n_groups, n_groups) or (n_groups,)
        λ*, as Algorithm 1 left it at the smallest tolerance or below.
    values : numbers, optional
        The tolerances, in any order; by default six from the violation at x = 0 down to
        `smallest`.
    measured_on : Queries, optional
        Where the violation must come within the tolerance; the training queries by default.
    test : Queries, optional
        Queries to report on; those of `measured_on` by default.
    max_searches : int
        The most trainings for one tolerance, besides x = 0 and x = 1.
    kind, keep_models, previous, enumeration, weighting, fit_params
        As in `lambda_path`.

    Notes
    -----
    A tolerance that no share of λ* trained came within has the point least in violation, and
    says so (`PathPoint.reached`). On test queries the violation may lie above the tolerance.
    """
    given = None if values is None else read_values(values, "tolerance")
    train = _Trainer.of(
        queries, ranker, constraint, lambda_, previous,
        enumeration=enumeration, weighting=weighting, fit_params=fit_params,
    )  # fmt: skip
    aim = queries if measured_on is None else measured_on
    found: dict[float, PathPoint] = {}

    def violation(x: float) -> float:
        if x not in found:
            found[x] = train.point(x, aim, True)
        return found[x].violation

    violation(1.0)
    plain = violation(0.0)
    asked = given or np.linspace(max(plain, smallest), smallest, 6).tolist()
    for tolerance in sorted(set(asked), reverse=True):
        _search(found, violation, tolerance, max_searches)
    report, default = (aim, "training") if test is None else (test, "test")
    points = []
    for tolerance in asked:
        within = [x for x in found if violation(x) <= tolerance]
        at = found[min(within) if within else min(found, key=violation)]
        estimates = (
            (at.violation, at.auc) if test is None else _estimates(at.model, constraint, test)
        )
        points.append(
            replace(
                at,
                value=tolerance,
                violation=estimates[0],
                auc=estimates[1],
                reached=bool(within),
                model=at.model if keep_models else None,
            )
        )
    return _path("tolerance", points, constraint, report, kind or default)


def _search(
    found: Mapping[float, PathPoint],
    violation: Callable[[float], float],
    tolerance: float,
    max_searches: int,
) -> None:
    """Train at shares that close in on the smallest one within the tolerance.

    In turns by interpolation and by halving, since a hard violation has steps.
    """
    for attempt in range(max_searches):
        high = min((x for x in found if violation(x) <= tolerance), default=0.0)
        if high == 0.0 or violation(high) >= (1.0 - _CLOSE) * tolerance:
            return
        low = max(x for x in found if x < high)
        aim = (1.0 - 0.5 * _CLOSE) * tolerance
        share = (violation(low) - aim) / (violation(low) - violation(high))
        violation(low + (0.5 if attempt % 2 else share) * (high - low))


@dataclass(eq=False)
class _Trainer:
    """Trains at shares of λ*, each time from the model of the nearest share."""

    queries: Queries
    ranker: Ranker
    constraint: Constraint
    lambda_: Array
    table: Callable[[Array], Array]
    fit_params: Mapping[str, Any]
    models: dict[float, Any]

    @classmethod
    def of(
        cls, queries: Queries, ranker: Ranker, constraint: Constraint, lambda_: Array,
        previous: Any, *, enumeration: str, weighting: str, fit_params: Mapping[str, Any] | None,
    ) -> _Trainer:  # fmt: skip
        shape = constraint.delta(queries, queries.each(all_equal)).shape
        lambda_ = np.asarray(lambda_, dtype=np.float64)
        if lambda_.shape != shape:
            raise InputError(
                f"λ* has shape {lambda_.shape}, but {constraint!r} has one entry for each of "
                f"{shape} here. Use the groups that it was found for."
            )
        weigher = make_weigher(constraint, queries, shape, enumeration, weighting)
        models = {} if previous is None else {1.0: previous}
        return cls(
            queries, ranker, constraint, lambda_, weigher.table, dict(fit_params or {}), models
        )

    def point(self, x: float, target: Queries, keep: bool) -> PathPoint:
        began = time.perf_counter()
        nearest = min(self.models, key=lambda other: abs(other - x), default=None)
        previous = None if nearest is None else self.models[nearest]
        fresh = clone(self.ranker, safe=False)
        lambda_ = x * self.lambda_ + 0.0  # no minus zero
        try:
            fresh.fit_pairs(self.queries, self.table(lambda_), previous=previous, **self.fit_params)
        except (PairityError, MemoryError):
            raise
        except Exception as error:
            raise TrainingError(
                f"{type(fresh).__name__} failed with the weights of x = {x:g} times λ*: "
                f"{type(error).__name__}: {error}"
            ) from error
        violation, auc = _estimates(fresh, self.constraint, target)
        self.models[x] = fresh
        seconds = time.perf_counter() - began
        kept = fresh if keep else None
        return PathPoint(x, x, lambda_, violation, auc, seconds, model=kept)


def _estimates(model: Any, constraint: Constraint, queries: Queries) -> tuple[float, float]:
    """Violation and AUC."""
    scores = queries.each(partial(scores_of, model))
    return largest_gap(constraint.delta(queries, scores)), mean_auc(queries, scores)


def _path(
    along: Along, points: list[PathPoint], constraint: Constraint, target: Queries, kind: str
) -> Path:
    queries = "query" if target.n_queries == 1 else "queries"
    measured_on = f"{target.n_queries} {kind} {queries}"
    return Path(along, tuple(points), repr(constraint), measured_on, target.groups)


def read_values(values: Any, along: str) -> list[float]:
    """The values to follow, as finite numbers; tolerances from 0 up."""
    try:
        numbers = list(values)
    except TypeError as error:
        raise InputError(f"values is {show(values)}; give a list of numbers.") from error
    if not numbers:
        raise InputError("values is empty. Give at least one number.")
    for value in numbers:
        if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
            raise InputError(f"values holds {show(value)}; give finite numbers.")
        if along == "tolerance" and value < 0:
            raise InputError(f"values holds {value:g}; a tolerance is 0 or more.")
    return [float(value) for value in numbers]
