"""Frontiers: utility against violation of many methods, settings and seeds.

`pairity.sweep` makes a `Frontier`, a table of points. It prints, converts to a data frame, plots as
the paper does, finds the Pareto-optimal points, and picks one point by a stated rule.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isfinite, isnan
from typing import Any, Literal, cast

import numpy as np

from pairity._utils.html import notebook, table, tag
from pairity._utils.json_codec import Place, from_plain, parse_document, to_plain
from pairity._utils.text import make_frame, render_table, shorten
from pairity._utils.validation import require_choice
from pairity.audits.audit import require_sampling
from pairity.audits.estimates import Estimate
from pairity.comparisons.runs import UTILITIES, Point, Run, averages, show_settings
from pairity.comparisons.selection import Choice, Rule, choose
from pairity.constraints import Constraint
from pairity.exceptions import InputError

FORMAT = "pairity frontier 1"
Part = Literal["test", "validation"]
_PARTS: tuple[Part, ...] = ("test", "validation")


@dataclass(frozen=True, eq=False, repr=False)
class Frontier:
    """Utility and violations of many methods and settings; `sweep` makes it; prints as a table.

    Attributes
    ----------
    runs : tuple of Run, one for each method, settings and seed
    constraints : tuple of str
    confidence : float, of all confidence intervals
    test_ratio, validation_ratio : float or None
        The number of held-out queries per training query if every seed draws them anew; None if
        they are the same for all seeds.
    definitions : tuple of str
        The repr of each constraint, such as ``InterGroup(average='pair')``.
    points : tuple of Point, the runs of each method and settings, averaged over seeds

    Notes
    -----
    *Averages over seeds.* The estimates of a point are means over its seeds. With one seed the
    interval is that of the run, from resampling queries. With several seeds and the same held-out
    queries, the mean of these intervals is widened by a t interval over the seeds; the two
    half-widths are added in quadrature, because queries and seeds are two sources of noise. If
    every seed has its own split, the interval is t over the seeds with variance s²(1/n + ratio),
    the correction of Nadeau & Bengio (2003) for overlapping training sets. Few seeds may agree by
    chance, so t · s is at least the half-width from resampling queries. With two or three seeds
    the interval is wide. A point with a failed seed has no averages, because they would be from
    other splits than those of other points.

    *Violations* are largest absolute gaps; see `pairity.audit`.
    """

    runs: tuple[Run, ...]
    constraints: tuple[str, ...]
    confidence: float = 0.95
    test_ratio: float | None = None
    validation_ratio: float | None = None
    definitions: tuple[str, ...] = ()

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """The runs of each method and settings, averaged over seeds."""
        grouped: dict[tuple[str, str], list[Run]] = {}
        for run in self.runs:
            grouped.setdefault(run.key, []).append(run)
        return tuple(
            Point(
                runs[0].method,
                runs[0].settings,
                runs[0].needs_group,
                tuple(runs),
                averages([run.test for run in runs], self.confidence, self.test_ratio),
                averages([run.validation for run in runs], self.confidence, self.validation_ratio),
            )
            for runs in grouped.values()
        )

    @property
    def methods(self) -> tuple[str, ...]:
        """The names of the methods, in order."""
        return tuple(dict.fromkeys(run.method for run in self.runs))

    @property
    def failures(self) -> tuple[Run, ...]:
        """The failed runs; see their `error`."""
        return tuple(run for run in self.runs if run.error is not None)

    # --- comparing ---------------------------------------------------------------------------

    def front(
        self, constraint: Any, utility: str = "auc", *, on: Part | None = None
    ) -> tuple[Point, ...]:
        """Return the Pareto-optimal points, from the most useful to the fairest.

        A point is Pareto-optimal if no other point is at least as useful and at least as fair, and
        better in one of the two. Means over seeds are compared, without their intervals.

        Parameters
        ----------
        constraint : str or Constraint, one of those measured
        utility : {"auc", "ndcg@10"}
        on : {"test", "validation"}, optional
            By default the test queries, if there are any.
        """
        require_choice("utility", utility, UTILITIES)
        name, part = self._constraint(constraint), self._part(on)
        known = {
            point: (estimates[utility].value, -estimates[name].value)
            for point in self.points
            if (estimates := getattr(point, part))
            and isfinite(estimates[utility].value + estimates[name].value)
        }
        best = [
            point
            for point, own in known.items()
            if not any(u >= own[0] and f >= own[1] and (u, f) != own for u, f in known.values())
        ]
        return tuple(sorted(best, key=lambda point: known[point][1]))

    def pick(
        self,
        constraint: Any,
        epsilon: float,
        *,
        confidence: float | None = 0.95,
        rule: str = "most accurate",
        utility: str = "auc",
        simultaneous: bool = False,
    ) -> Choice:
        """Choose a point by its estimates on the validation queries.

        Parameters
        ----------
        constraint : str or Constraint, one of those measured
        epsilon : float
            The limit on the violation.
        confidence : float or None, default=0.95
            A point qualifies if a one-sided upper confidence bound on its violation is at most
            epsilon, so that the limit holds for queries like these. None compares the violation
            itself.
        rule : {"most accurate", "fairest"}
            Take the qualifying point with the highest utility, or with the lowest bound. Ties are
            broken by the other, and then by order.
        utility : {"auc", "ndcg@10"}
        simultaneous : bool
            Whether the bounds hold for all points at once, as a claim about a point that was
            chosen among many requires. They are then wider.

        Returns
        -------
        Choice
            If no point qualifies, it has no point, and names the closest and its bound.

        Notes
        -----
        The bound is the percentile of the violation over resampled validation queries, at a level
        raised for few queries to that of Student's t (the expanded percentile interval of
        Hesterberg, 2015). With several seeds, the bounds of the seeds are averaged, which is
        at least the bound of the average. Simultaneous bounds add to each violation the
        percentile of the largest excess over all points in one resample.

        Noise can only raise a violation, so bounds are conservative on few queries. Each bound
        holds for its own point. The most accurate of many qualifying points is selected, and the
        more independent their errors are, the more often it qualified by chance.
        """
        name = self._constraint(constraint)
        return self.choose(name, Rule(epsilon, confidence, rule, utility, simultaneous))

    def choose(self, name: str, rule: Rule) -> Choice:
        """Choose a point by a rule; see `pick`."""
        measured = [point for point in self.points if point.validation]
        candidates = [point for point in measured if isfinite(point.validation[name].value)]
        if not candidates:
            raise InputError(f"There is no point to pick from: {self._why_none(name)}")
        return choose(candidates, name, rule)

    def _why_none(self, name: str) -> str:
        if not self.runs:
            return "the frontier is empty."
        if len(self.failures) == len(self.runs):
            return f"all {len(self.runs)} runs failed, the first with {self.failures[0].error}"
        if not any(run.validation for run in self.runs):
            return "no run was measured on validation queries. Sweep with validation=0.2."
        return f"no point has a violation of {name} on validation queries for all its seeds."

    # --- as a table, as JSON, as a plot ------------------------------------------------------

    def rows(self, *, each_seed: bool = False) -> list[dict[str, Any]]:
        """Return the table as plain dicts, one for each point, or for each run.

        Columns: method, settings, needs_group, n_seeds (or seed), seconds; "auc", "ndcg@10" and
        "violation_<constraint>" on the test queries, each with "_low" and "_high"; the same with
        the prefix "validation_"; "front_<constraint>", whether the point is Pareto-optimal by AUC
        (see `front`); notes and error, as text.
        """
        rows = []
        for point in self.points:
            sources: tuple[Any, ...] = point.runs if each_seed else (point,)
            for source in sources:
                row: dict[str, Any] = {
                    "method": point.method,
                    "settings": show_settings(point.settings),
                    "needs_group": point.needs_group,
                }
                row |= {"seed": source.seed} if each_seed else {"n_seeds": len(point.runs)}
                row["seconds"] = source.seconds
                for part in self._parts:
                    row |= self._columns(getattr(source, part), part)
                row |= {f"front_{name}": point in self._fronts[name] for name in self.constraints}
                errors = (source.error or "",) if each_seed else source.errors
                row |= {"notes": "; ".join(source.notes), "error": "; ".join(errors)}
                rows.append(row)
        return rows

    def to_frame(self, backend: str | None = None, *, each_seed: bool = False) -> Any:
        """Return `rows` in pandas, polars or pyarrow (the first that is installed)."""
        rows = self.rows(each_seed=each_seed)
        names = rows[0] if rows else ()
        return make_frame({name: [row[name] for row in rows] for name in names}, backend)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain Python; None for a number that is not defined."""
        return {"format": FORMAT, **to_plain(self)}

    def to_json(self) -> str:
        """Return `to_dict` as JSON."""
        return json.dumps(self.to_dict(), allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Frontier:
        """Return the frontier that `to_json` described. Nothing in it is executed."""
        place = Place("frontier", "Pass what to_json() returned.")
        frontier: Frontier = from_plain(cls, parse_document(text, FORMAT, place), place)
        require_sampling(frontier.confidence, 0)
        for name in ("test_ratio", "validation_ratio"):
            ratio = getattr(frontier, name)
            if ratio is not None and not 0.0 < ratio < np.inf:
                raise place.child(name).refuse(f"{ratio}, not a positive number or null")
        needed = {*UTILITIES, *frontier.constraints}
        for index, run in enumerate(frontier.runs):
            for estimates in (run.test, run.validation):
                if estimates and not needed <= set(estimates):
                    missing = ", ".join(sorted(needed - set(estimates)))
                    raise place.child("runs").child(index).refuse(f"without {missing}")
        return frontier

    def plot(
        self,
        constraint: Any = None,
        *,
        utility: str = "auc",
        on: Part | None = None,
        ax: Any = None,
    ) -> Any:
        """Draw utility against fairness (1 − violation): the upper right is best.

        Every method has a colour and a marker, and every point its intervals. The line is the
        Pareto front; points below and left of it are worse than a point on it.

        Parameters
        ----------
        constraint : str or Constraint, optional
            By default all that were measured, side by side.
        utility : {"auc", "ndcg@10"}
        on : {"test", "validation"}, optional
        ax : Matplotlib Axes, optional
            Where to draw one constraint.

        Returns
        -------
        Matplotlib Axes, or an array of Axes if there are several constraints
        """
        from pairity.comparisons.plots import plot_panels

        part = self._part(on)
        names = self.constraints if constraint is None else (self._constraint(constraint),)
        if ax is not None and len(names) > 1:
            raise InputError(f"ax takes one constraint, but there are {len(names)}. Name one.")
        panels = {}
        for name in names:
            front = self.front(name, utility, on=part)
            panels[name] = [
                (point.method, point.needs_group, values[name], values[utility], point in front)
                for point in self.points
                if (values := getattr(point, part)) and isfinite(values[name].value)
            ]
        axes = plot_panels(panels, utility=utility, ax=ax)
        return axes if len(names) > 1 else axes[0]

    def __repr__(self) -> str:
        n_points, n_runs = len(self.points), len(self.runs)
        return f"Frontier(methods={self.methods}, n_points={n_points}, n_runs={n_runs})"

    def __str__(self) -> str:
        if not self.points:
            return "Frontier: no points"
        rendered = render_table(*self._table(), left=(0, 1))
        return f"{self._head()}\n\n{rendered}\n\n{self._foot()}"

    def _repr_html_(self) -> str:
        """Return the same table for notebooks."""
        if not self.points:
            return tag("p", str(self))
        header, rows = self._table()
        cells = [[tag("bdi", cell) for cell in row] for row in rows]
        notes = (tag("p", line) for line in self._foot().splitlines())
        return notebook(table(header, cells, caption=self._head()), *notes)

    # --- details -----------------------------------------------------------------------------

    @cached_property
    def _fronts(self) -> dict[str, tuple[Point, ...]]:
        return {name: self.front(name) for name in self.constraints}

    @property
    def _parts(self) -> tuple[Part, ...]:
        """The kinds of held-out queries that were measured."""
        parts = tuple(part for part in _PARTS if any(getattr(run, part) for run in self.runs))
        return parts or ("test",)

    def _part(self, on: Any) -> Part:
        if on is None:
            return self._parts[0]
        require_choice("on", on, _PARTS)
        if on not in self._parts:
            raise InputError(f"No run was measured on {on} queries. Sweep with {on}=0.2.")
        return cast(Part, on)

    def _constraint(self, constraint: Any) -> str:
        if isinstance(constraint, str) and constraint in self.constraints:
            return constraint
        known = dict(zip(self.definitions, self.constraints, strict=False))
        if isinstance(constraint, Constraint) and repr(constraint) in known:
            return known[repr(constraint)]
        raise InputError(
            f"The constraint {constraint!r} was not measured. Choose from "
            f"{', '.join(map(repr, self.constraints))}, measured as "
            f"{', '.join(self.definitions or self.constraints)}."
        )

    def _columns(self, estimates: Mapping[str, Estimate], part: Part) -> dict[str, float]:
        prefix = "" if part == "test" else "validation_"
        columns = {}
        for name in (*UTILITIES, *self.constraints):
            estimate = estimates.get(name, Estimate(name))
            column = prefix + (name if name in UTILITIES else f"violation_{name}")
            columns[column] = estimate.value
            columns[f"{column}_low"], columns[f"{column}_high"] = estimate.low, estimate.high
        return columns

    def _head(self) -> str:
        n_seeds = max(len(point.runs) for point in self.points)
        seeds = "1 seed" if n_seeds == 1 else f"{n_seeds} seeds"
        part = self._parts[0]
        measured = [estimates for p in self.points if (estimates := getattr(p, part))]
        n_queries = max((estimates["auc"].n_queries for estimates in measured), default=0)
        return (
            f"Frontier: {len(self.methods)} methods, {len(self.points)} points, {seeds}; measured "
            f"on {n_queries:,} {part} queries, {100 * self.confidence:g} % intervals"
        )

    def _table(self) -> tuple[list[str], list[list[str]]]:
        header = ["method", "settings", "AUC", "NDCG@10"]
        header += [shorten(name, 24) for name in self.constraints] + ["seconds"]
        rows = []
        for point in self.points:
            estimates = getattr(point, self._parts[0])
            rows.append(
                [
                    shorten(point.method, 24) + (" †" if point.needs_group else ""),
                    shorten(self.distinct_settings(point) or "-", 40),
                    *(_cell(estimates.get(name)) for name in UTILITIES),
                    *(
                        _cell(estimates.get(name)) + ("*" if point in self._fronts[name] else " ")
                        for name in self.constraints
                    ),
                    "-" if isnan(point.seconds) else f"{point.seconds:.2f}",
                ]
            )
        return header, rows

    def distinct_settings(self, point: Point) -> str:
        """Return the settings that distinguish a point from others of its method, or all."""
        others = [other.settings for other in self.points if other.method == point.method]
        distinct = {
            name: value
            for name, value in point.settings.items()
            if any(other.get(name) != value for other in others)
        }
        return show_settings(distinct if len(others) > 1 else point.settings)

    def _foot(self) -> str:
        lines = ["* Pareto-optimal in AUC and that violation. A violation of 0 is parity."]
        if any(point.needs_group for point in self.points):
            lines.append("† reads the groups of the items it ranks.")
        return "\n".join(lines + ([self.describe_failures()] if self.failures else []))

    def describe_failures(self) -> str:
        """Return how many runs failed, and the error of the first."""
        first = self.failures[0]
        return (
            f"{len(self.failures)} of {len(self.runs)} runs failed. The first is {first.label} "
            f"with seed {first.seed}: {shorten(str(first.error), 120)}"
        )


def _cell(estimate: Estimate | None) -> str:
    if estimate is None or isnan(estimate.value):
        return "-"
    if isnan(estimate.low):
        return f"{estimate.value:.3f}"
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"
