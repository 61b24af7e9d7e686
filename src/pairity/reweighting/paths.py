"""Paths: utility and violation along x · λ*, and along falling tolerances.

λ* is the result of Algorithm 1. The rankers between the plain one (x = 0) and the reweighted one
(x = 1) trade utility for a lower violation. A few warm-started trainings give them all.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from pairity._utils.extras import import_extra
from pairity._utils.text import make_frame, render_table, shorten
from pairity._utils.typing import Array
from pairity._utils.validation import is_real, show
from pairity.data.queries import Queries
from pairity.exceptions import InputError
from pairity.reweighting.problem import Problem
from pairity.reweighting.weights import PairWeights

Along = Literal["lambda", "tolerance"]

# A violation this share of the tolerance below it, or less, is close enough to end the search.
_CLOSE = 0.05
_COLUMNS = {"lambda": "x", "tolerance": "tolerance"}


@dataclass(frozen=True, eq=False)
class PathPoint:
    """One ranker on a path.

    Attributes
    ----------
    value : float
        The requested value: x, or a tolerance.
    x : float
        The share of λ* that the ranker was trained with.
    lambda_ : array of shape (n_groups, n_groups) or (n_groups,), x · λ*
    pair_weights : PairWeights, the weights of λ
    violation : float
        The largest gap, on the queries that the path reports on.
    auc : float, on the same queries
    seconds : float, for training and measuring
    reached : bool
        Along tolerances, whether the violation came within the tolerance on the queries that λ*
        was found for; True along λ.
    model : the fitted ranker, or None if models are not kept
    """

    value: float
    x: float
    lambda_: Array
    pair_weights: PairWeights
    violation: float
    auc: float
    seconds: float
    reached: bool = True
    model: Any = None

    @property
    def fairness(self) -> float:
        """1 minus the violation, as in the paper's figures."""
        return 1.0 - self.violation


@dataclass(frozen=True, eq=False, repr=False)
class Path:
    """Rankers between the plain one and the reweighted one, and beyond; it prints as a table.

    Attributes
    ----------
    along : {"lambda", "tolerance"}
    points : tuple of PathPoint, in the order of the requested values
    constraint : str
    measured_on : str
        The queries that violation and AUC are measured on, such as "40 test queries".
    groups : tuple of str
    """

    along: Along
    points: tuple[PathPoint, ...]
    constraint: str
    measured_on: str
    groups: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> PathPoint:
        return self.points[index]

    def to_dict(self) -> dict[str, list[Any]]:
        """The columns of `to_frame`."""
        columns: dict[str, list[Any]] = {
            _COLUMNS[self.along]: [point.value for point in self.points]
        }
        names = ["x", "reached"] if self.along == "tolerance" else []
        for name in (*names, "auc", "fairness", "violation", "seconds"):
            columns[name] = [getattr(point, name) for point in self.points]
        for cell in np.ndindex(*self.points[0].lambda_.shape):
            label = ", ".join(self.groups[group] for group in cell)
            columns[f"lambda[{label}]"] = [float(point.lambda_[cell]) for point in self.points]
        return columns

    def to_frame(self, backend: str | None = None) -> Any:
        """One row per point, in pandas, polars or pyarrow."""
        return make_frame(self.to_dict(), backend)

    def plot(self, ax: Any = None) -> Any:
        """Draw utility and fairness against x or against the tolerance.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            The default is the Axes of a new figure.

        Returns
        -------
        matplotlib.axes.Axes
        """
        if ax is None:
            _, ax = import_extra("matplotlib.pyplot", "Path.plot", "plot").subplots()
        points = sorted(self.points, key=lambda point: point.value)
        values = [point.value for point in points]
        ax.plot(values, [point.auc for point in points], "o-", label="utility (AUC)")
        label = f"fairness (1 − violation of {self.constraint})"
        ax.plot(values, [point.fairness for point in points], "s--", label=label)
        if self.along == "tolerance":
            ax.set_xlabel("tolerance")
            ax.invert_xaxis()  # the violation falls to the right, as along λ
        else:
            ax.set_xlabel("x, the share of λ* used in training")
        ax.set_ylabel(f"on {self.measured_on}")
        ax.legend()
        return ax

    def __str__(self) -> str:
        header = [_COLUMNS[self.along], "AUC", "fairness", "violation", "seconds"]
        rows = [
            [f"{point.value:.4g}", f"{point.auc:.4f}", f"{point.fairness:.4f}",
             f"{point.violation:.4f}", f"{point.seconds:.2f}"]
            for point in self.points
        ]  # fmt: skip
        if self.along == "tolerance":
            header += ["x", ""]
            for row, point in zip(rows, self.points, strict=True):
                row += [f"{point.x:.3f}", "" if point.reached else "not reached"]
        caption = f"{shorten(self.constraint, 60)} on {self.measured_on}"
        return f"{caption}\n{render_table(header, rows, left=())}"

    def __repr__(self) -> str:
        values = ", ".join(f"{point.value:.4g}" for point in self.points)
        return f"Path(along={self.along!r}, constraint={self.constraint}, values=[{values}])"


def lambda_path(
    problem: Problem,
    lambda_: Array,
    values: Iterable[float],
    *,
    test: Queries | None = None,
    keep_models: bool = False,
    previous: Any = None,
) -> Path:
    """Train with the weights W(x · λ*) for each x, starting each fit from its neighbour.

    Parameters
    ----------
    problem : Problem
        What is trained. Unless there are test queries, the path reports on the queries that the
        problem is measured on.
    lambda_ : array of shape (n_groups, n_groups) or (n_groups,)
        λ*, the result of Algorithm 1.
    values : numbers
        The x, in any order; they are visited from the lowest to the highest.
    test : Queries, optional
        Queries to report on, with the same group codes.
    keep_models : bool
        Whether every point keeps its fitted ranker.
    previous : fitted ranker, optional
        The ranker near x = 1 from which the first fit starts.

    References
    ----------
    R. Sonoda, *A Pre-processing Method for Fairness in Ranking*, 2021, second figure.
    """
    numbers = read_values(values, "lambda")
    reported = problem if test is None else problem.measured_elsewhere(test)
    trainer = _Trainer(reported, lambda_, previous)
    points = {x: _kept(problem, trainer.point(x), keep_models) for x in sorted(set(numbers))}
    return _path("lambda", [points[x] for x in numbers], problem, test)


def tolerance_path(
    problem: Problem,
    lambda_: Array,
    values: Iterable[float] | None = None,
    *,
    smallest: float = 0.01,
    test: Queries | None = None,
    keep_models: bool = False,
    previous: Any = None,
    max_searches: int = 4,
) -> Path:
    """Find, for each tolerance, the ranker within it that has the smallest share of λ*.

    The solvers of Algorithm 1 aim at a violation of zero and overshoot a wide tolerance. Here the
    share x of λ* is searched between 0 and 1 instead, by interpolating between the shares trained
    so far. All tolerances use the same trainings.

    Parameters
    ----------
    problem : Problem
        The violation on the queries it is measured on must come within the tolerance.
    lambda_ : array of shape (n_groups, n_groups) or (n_groups,)
        λ*, the result of Algorithm 1 at the smallest tolerance or below.
    values : numbers, optional
        The tolerances, in any order; by default six from the violation at x = 0 down to
        `smallest`.
    test, keep_models, previous
        As in `lambda_path`.
    max_searches : int
        The largest number of trainings for one tolerance, besides x = 0 and x = 1.

    Notes
    -----
    If no trained share of λ* is within a tolerance, its point is the one with the smallest
    violation, and `PathPoint.reached` is False. On test queries the violation may be above the
    tolerance.
    """
    tolerances = None if values is None else read_values(values, "tolerance")
    trainer = _Trainer(problem, lambda_, previous)
    trainer.point(1.0)
    plain = trainer.violation(0.0)
    if tolerances is None:
        tolerances = np.linspace(max(plain, smallest), smallest, 6).tolist()
    for tolerance in sorted(set(tolerances), reverse=True):
        trainer.search(tolerance, max_searches)
    points = []
    for tolerance in tolerances:
        within = [x for x in trainer.points if trainer.violation(x) <= tolerance]
        x = min(within) if within else min(trainer.points, key=trainer.violation)
        point = replace(trainer.points[x], value=tolerance, reached=bool(within))
        if test is not None:
            point = replace(point, model=problem.complete(point.model, point.lambda_))
            reported = problem.measured_elsewhere(test)
            measured = reported.measure(reported.scores(point.model))
            point = replace(point, violation=measured.violation, auc=measured.auc)
        points.append(_kept(problem, point, keep_models))
    return _path("tolerance", points, problem, test)


@dataclass(eq=False)
class _Trainer:
    """Trains at shares x of λ*, each time starting from the model of the nearest share."""

    problem: Problem
    lambda_: Array
    previous: Any  # a fitted ranker near x = 1, or None
    points: dict[float, PathPoint] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lambda_ = np.asarray(self.lambda_, dtype=np.float64)
        shape = self.problem.unranked.shape
        if self.lambda_.shape != shape:
            raise InputError(
                f"λ* has shape {self.lambda_.shape}, but {self.problem.constraint!r} has entries "
                f"of shape {shape} for these groups. Use the groups for which λ* was found."
            )

    def point(self, x: float) -> PathPoint:
        """The point at a share, trained if it is new."""
        if x not in self.points:
            models = {} if self.previous is None else {1.0: self.previous}
            models |= {share: point.model for share, point in self.points.items()}
            nearest = min(models, key=lambda share: abs(share - x), default=None)
            trained = self.problem.train(
                x * self.lambda_ + 0.0,  # without negative zeros
                None if nearest is None else models[nearest],
                f"with the weights of x = {x:g} times λ*",
            )
            table = self.problem.weigher.table(trained.lambda_)
            weights = PairWeights.of(table, self.problem.queries.groups)
            self.points[x] = PathPoint(
                x, x, trained.lambda_, weights, trained.measured.violation, trained.measured.auc,
                trained.seconds, model=trained.model,
            )  # fmt: skip
        return self.points[x]

    def violation(self, x: float) -> float:
        """The violation at a share."""
        return self.point(x).violation

    def search(self, tolerance: float, max_searches: int) -> None:
        """Train at shares that close in on the smallest one within the tolerance.

        Interpolation and halving alternate, since a hard violation has steps.
        """
        violation = self.violation
        for attempt in range(max_searches):
            high = min((x for x in self.points if violation(x) <= tolerance), default=0.0)
            if high == 0.0 or violation(high) >= (1.0 - _CLOSE) * tolerance:
                return
            low = max(x for x in self.points if x < high)
            aim = (1.0 - 0.5 * _CLOSE) * tolerance
            share = (violation(low) - aim) / (violation(low) - violation(high))
            violation(low + (0.5 if attempt % 2 else share) * (high - low))


def _kept(problem: Problem, point: PathPoint, keep_models: bool) -> PathPoint:
    model = problem.complete(point.model, point.lambda_) if keep_models else None
    return replace(point, model=model)


def _path(along: Along, points: list[PathPoint], problem: Problem, test: Queries | None) -> Path:
    measured_on = problem.where
    if test is not None:
        measured_on = f"{test.n_queries:,} test {'query' if test.n_queries == 1 else 'queries'}"
    return Path(along, tuple(points), repr(problem.constraint), measured_on, problem.target.groups)


def read_values(values: Any, along: str) -> list[float]:
    """Check the values of a path: finite numbers, and tolerances of at least 0."""
    try:
        numbers = list(values)
    except TypeError as error:
        raise InputError(f"values is {show(values)}; it must be a list of numbers.") from error
    if not numbers:
        raise InputError("values is empty. Pass at least one number.")
    for value in numbers:
        if not is_real(value) or not math.isfinite(value):
            raise InputError(f"values contains {show(value)}; all must be finite numbers.")
        if along == "tolerance" and value < 0:
            raise InputError(f"values contains {value:g}; a tolerance must be at least 0.")
    return [float(value) for value in numbers]
