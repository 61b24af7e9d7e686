"""Frontiers: utility against violation over many methods, settings and seeds.

`pairity.comparisons.sweeps.sweep` makes a `Frontier`: a table that prints, becomes a data frame,
is drawn as
the paper draws it, says which points are Pareto-optimal, and picks one by a stated rule.
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
from pairity.audits.audit import require_sampling
from pairity.audits.estimates import Estimate
from pairity.comparisons.points import Point, averages
from pairity.comparisons.runs import UTILITIES, Run, run_key, show_settings
from pairity.comparisons.selection import RULES as RULES
from pairity.comparisons.selection import Choice, choose, require_choice
from pairity.comparisons.selection import Verdict as Verdict
from pairity.constraints import Constraint
from pairity.exceptions import InputError

FORMAT = "pairity frontier 1"
Part = Literal["test", "validation"]
_PARTS: tuple[Part, ...] = ("test", "validation")


@dataclass(frozen=True, eq=False, repr=False)
class Frontier:
    """Utility and violations of many methods and settings; made by `sweep`, prints as a table.

    Attributes
    ----------
    runs : tuple of Run, one for each method, settings and seed
    constraints : tuple of str
    confidence : float, of all intervals
    test_ratio, validation_ratio : float or None
        How many held-out queries there are for each training query, where every seed draws them
        anew; None where they are the same for all seeds.
    definitions : tuple of str
        What the constraints print as, such as ``InterGroup(average='pair')``.
    points : tuple of Point, the runs of each method and settings, averaged over seeds

    Notes
    -----
    *Averages over seeds.* A point's figures are plain means over its seeds. With one seed its
    interval is that of the run, from resampling queries. With several seeds and the same held-out
    queries, the mean of these intervals is widened by a t interval over the seeds, the two
    half-widths added in quadrature: queries and seeds are two sources of noise. Where every seed
    has a split of its own, the interval is t over the seeds with variance s²(1/n + ratio), the
    correction of Nadeau & Bengio (2003) for training sets that overlap; as few seeds may agree by
    chance, t · s is taken to be no less than the half-width from resampling queries. With two or
    three seeds it is wide. A point of which some seed failed has no averages: it would be
    compared on other splits.

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
            grouped.setdefault(run_key(run), []).append(run)
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
        """The runs that failed; `error` says why."""
        return tuple(run for run in self.runs if run.error is not None)

    # --- comparing ---------------------------------------------------------------------------

    def front(
        self, constraint: Any, utility: str = "auc", *, on: Part | None = None
    ) -> tuple[Point, ...]:
        """The Pareto-optimal points, from most useful to fairest.

        A point is Pareto-optimal where no other is at least as useful and at least as fair, and
        better in one of the two. Means over seeds are compared; intervals play no part.

        Parameters
        ----------
        constraint : str or Constraint, one of those measured
        utility : {"auc", "ndcg@10"}
        on : {"test", "validation"}, optional
            By default the test queries, where there are any.
        """
        name, part = self._constraint(constraint), self._part(on)
        known = [
            (point, estimates[as_utility(utility)].value, estimates[name].value)
            for point in self.points
            if (estimates := getattr(point, part))
        ]
        known = [each for each in known if isfinite(each[1]) and isfinite(each[2])]
        best = [
            (violation, point)
            for point, useful, violation in known
            if not any(
                u >= useful and v <= violation and (u > useful or v < violation)
                for _, u, v in known
            )
        ]
        return tuple(point for _, point in sorted(best, key=lambda each: -each[0]))

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
        """Choose a point by its figures on the validation queries.

        Parameters
        ----------
        constraint : str or Constraint, one of those measured
        epsilon : float
            The violation to stay within.
        confidence : float or None, default=0.95
            A point qualifies where a one-sided upper confidence bound on its violation is at most
            epsilon, so that "≤ ε" is said of queries like these, not of these alone. None
            compares the violation itself.
        rule : {"most accurate", "fairest"}
            Which of those to take: the one with the highest utility, or with the lowest bound.
            Ties are broken by the other, and then by order.
        utility : {"auc", "ndcg@10"}
        simultaneous : bool
            Whether the bounds are to hold for all points at once, as they should where a claim
            is made of the one that was chosen among many. They are then wider.

        Returns
        -------
        Choice
            Where no point qualifies, it has no point, and names the closest and its bound.

        Notes
        -----
        The bound is the percentile of the violation over resampled validation queries, at a level
        raised for few queries to what Student's t asks for (the expanded percentile interval of
        Hesterberg, 2015). With several seeds, the bounds of the seeds are averaged, which is
        at least the bound of the average. Simultaneous bounds add to each violation the
        percentile of the largest excess over all points in one resample.

        Noise can only raise a violation, so bounds err on the safe side on few queries. Each holds
        for its own point; the most accurate of many that qualify has been selected, and the more
        independent their errors, the more often selection finds one that qualified by luck.
        """
        name = self._constraint(constraint)
        utility = as_utility(utility)
        require_choice(epsilon, confidence, rule)
        candidates = [
            point
            for point in self.points
            if point.validation and isfinite(point.validation[name].value)
        ]
        if not candidates:
            raise InputError(f"There is no point to pick from: {self._why_none(name)}")
        return choose(
            candidates, name, epsilon,
            confidence=confidence, rule=rule, utility=utility, simultaneous=simultaneous,
        )  # fmt: skip

    def _why_none(self, name: str) -> str:
        if not self.runs:
            return "the frontier is empty."
        if not any(run.validation for run in self.runs):
            if len(self.failures) == len(self.runs):
                return f"all {len(self.runs)} runs failed, the first with {self.failures[0].error}"
            return "no run was measured on validation queries. Sweep with validation=0.2."
        return f"no point has a violation of {name} on validation queries for all its seeds."

    # --- as a table, as JSON, as a figure ----------------------------------------------------

    def rows(self, *, each_seed: bool = False) -> list[dict[str, Any]]:
        """The table as plain dicts, one for each point, or for each run.

        Columns: method, settings, needs_group, n_seeds (or seed), seconds; "auc", "ndcg@10" and
        "violation_<constraint>" on the test queries, each with "_low" and "_high"; the same with
        "validation_" in front; "front_<constraint>", whether the point is Pareto-optimal by AUC
        (see `front`); notes and error, as text.
        """
        fronts = {name: {id(point) for point in self.front(name)} for name in self.constraints}
        rows = []
        for point in self.points:
            on_front = {f"front_{name}": id(point) in fronts[name] for name in self.constraints}
            for source in point.runs if each_seed else (point,):
                row: dict[str, Any] = {
                    "method": point.method,
                    "settings": show_settings(point.settings),
                    "needs_group": point.needs_group,
                }
                if isinstance(source, Run):
                    row["seed"] = source.seed
                    errors = [source.error] if source.error else []
                else:
                    row["n_seeds"] = len(point.runs)
                    errors = list(source.errors)
                row["seconds"] = source.seconds
                for part in self._parts:
                    row.update(self._columns(getattr(source, part), part))
                row.update(on_front, notes="; ".join(source.notes), error="; ".join(errors))
                rows.append(row)
        return rows

    def to_frame(self, backend: str | None = None, *, each_seed: bool = False) -> Any:
        """`rows` in pandas, polars or pyarrow (the first that is installed)."""
        rows = self.rows(each_seed=each_seed)
        names = rows[0] if rows else ()
        return make_frame({name: [row[name] for row in rows] for name in names}, backend)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python; None where a number is not defined."""
        return {"format": FORMAT, **to_plain(self)}

    def to_json(self) -> str:
        """The same as JSON."""
        return json.dumps(self.to_dict(), allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Frontier:
        """From JSON, as `to_json` gives it; nothing in it is run."""
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
        """Draw utility against fairness (1 less the violation): the upper right is best.

        Every method has a colour and a marker, every point its intervals; the line is the Pareto
        front, and what lies below and left of it is worse than some point on it.

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
        Matplotlib Figure
        """
        from pairity.comparisons.plots import plot_panels

        part, utility = self._part(on), as_utility(utility)
        if constraint is not None:
            names: tuple[str, ...] = (self._constraint(constraint),)
        elif ax is not None and len(self.constraints) > 1:
            raise InputError(
                f"ax takes one constraint, and there are {len(self.constraints)}. Say which."
            )
        else:
            names = self.constraints
        panels = {}
        for name in names:
            front = {id(point) for point in self.front(name, utility, on=part)}
            panels[name] = [
                (
                    point.method,
                    point.needs_group,
                    estimates[name],
                    estimates[utility],
                    id(point) in front,
                )
                for point in self.points
                if (estimates := getattr(point, part)) and isfinite(estimates[name].value)
            ]
        return plot_panels(panels, utility=utility, ax=ax)

    def __repr__(self) -> str:
        n_points, n_runs = len(self.points), len(self.runs)
        return f"Frontier(methods={self.methods}, n_points={n_points}, n_runs={n_runs})"

    def __str__(self) -> str:
        if not self.points:
            return "Frontier: no points"
        rendered = render_table(*self._table(), left=(0, 1))
        return f"{self._head()}\n\n{rendered}\n\n{self._foot()}"

    def _repr_html_(self) -> str:
        """The same table, for notebooks."""
        if not self.points:
            return tag("p", str(self))
        header, rows = self._table()
        cells = [[tag("bdi", cell) for cell in row] for row in rows]
        notes = (tag("p", line) for line in self._foot().splitlines())
        return notebook(table(header, cells, caption=self._head()), *notes)

    # --- inside ------------------------------------------------------------------------------

    @property
    def _parts(self) -> tuple[Part, ...]:
        """The held-out queries there are figures of."""
        found = tuple(part for part in _PARTS if any(getattr(run, part) for run in self.runs))
        return found or ("test",)

    def _part(self, on: Any) -> Part:
        if on is None:
            return self._parts[0]
        if on not in _PARTS:
            raise InputError(f"on is {on!r}; choose 'test' or 'validation'.")
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
            f"The constraint {constraint!r} was not measured. Choose among "
            f"{', '.join(map(repr, self.constraints))}, measured as "
            f"{', '.join(self.definitions or self.constraints)}."
        )

    def _columns(self, estimates: Mapping[str, Estimate], part: Part) -> dict[str, float]:
        front = "" if part == "test" else "validation_"
        columns = {}
        for name in (*UTILITIES, *self.constraints):
            estimate = estimates.get(name, Estimate(name))
            column = front + (name if name in UTILITIES else f"violation_{name}")
            columns[column] = estimate.value
            columns[f"{column}_low"], columns[f"{column}_high"] = estimate.low, estimate.high
        return columns

    def _head(self) -> str:
        n_seeds = max(len(point.runs) for point in self.points)
        seeds = "1 seed" if n_seeds == 1 else f"{n_seeds} seeds"
        queries = max(
            (f["auc"].n_queries for p in self.points if (f := getattr(p, self._parts[0]))),
            default=0,
        )
        return (
            f"Frontier: {len(self.methods)} methods, {len(self.points)} points, {seeds}; measured "
            f"on {queries:,} {self._parts[0]} queries, {100 * self.confidence:g} % intervals"
        )

    def _table(self) -> tuple[list[str], list[list[str]]]:
        part = self._parts[0]
        fronts = {name: {id(point) for point in self.front(name)} for name in self.constraints}
        header = ["method", "settings", "AUC", "NDCG@10"]
        header += [shorten(name, 24) for name in self.constraints] + ["seconds"]
        rows = []
        for point in self.points:
            estimates = getattr(point, part)
            group = " †" if point.needs_group else ""
            cells = [
                shorten(point.method, 24) + group,
                shorten(self.telling(point) or "-", 40),
            ]
            cells += [_cell(estimates.get(name)) for name in UTILITIES]
            cells += [
                _cell(estimates.get(name)) + ("*" if id(point) in fronts[name] else " ")
                for name in self.constraints
            ]
            rows.append([*cells, "-" if isnan(point.seconds) else f"{point.seconds:.2f}"])
        return header, rows

    def telling(self, point: Point) -> str:
        """The settings that tell a point from others of its method; all of a lone point's."""
        others = [other.settings for other in self.points if other.method == point.method]
        telling = {
            name: value
            for name, value in point.settings.items()
            if any(other.get(name) != value for other in others)
        }
        return show_settings(telling if len(others) > 1 else point.settings)

    def _foot(self) -> str:
        lines = ["* Pareto-optimal in AUC and that violation; violations, 0 is parity."]
        if any(point.needs_group for point in self.points):
            lines.append("† reads the groups of the items it ranks.")
        if self.failures:
            first = self.failures[0]
            lines.append(
                f"{len(self.failures)} of {len(self.runs)} runs failed, the first, {first.label} "
                f"with seed {first.seed}, with {shorten(str(first.error), 120)}"
            )
        return "\n".join(lines)


def _cell(estimate: Estimate | None) -> str:
    if estimate is None or isnan(estimate.value):
        return "-"
    if isnan(estimate.low):
        return f"{estimate.value:.3f}"
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def as_utility(name: Any) -> str:
    """The name of a utility, checked."""
    if name not in UTILITIES:
        raise InputError(f"utility is {name!r}; choose one of {', '.join(map(repr, UTILITIES))}.")
    return str(name)
