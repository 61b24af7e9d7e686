"""Points of a frontier: the runs of one method with its settings, averaged over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isnan, sqrt
from typing import Any

import numpy as np
from scipy import stats

from pairity.audits.estimates import NAN, Estimate
from pairity.comparisons.runs import Run


@dataclass(frozen=True, eq=False)
class Point:
    """One method with its settings: its runs, averaged over seeds.

    Attributes
    ----------
    method : str
    settings : dict from str to a plain value
    needs_group : bool, whether the method reads the groups of the queries that it orders
    runs : tuple of Run, one for each seed
    test, validation : dict from str to Estimate
        Means over seeds with intervals (see `Frontier`): "auc", "ndcg@10", and violations under
        the constraint's name. Empty if a run failed.
    """

    method: str
    settings: dict[str, Any]
    needs_group: bool
    runs: tuple[Run, ...]
    test: dict[str, Estimate]
    validation: dict[str, Estimate]

    @property
    def label(self) -> str:
        """The method with its settings, such as ``lagrangian(slack=0.1)``."""
        return self.runs[0].label

    @property
    def seconds(self) -> float:
        """The seconds of one fit, averaged over seeds; NaN if all failed."""
        known = [run.seconds for run in self.runs if not isnan(run.seconds)]
        return float(np.mean(known)) if known else NAN

    @property
    def errors(self) -> tuple[str, ...]:
        """Why runs failed."""
        return tuple(dict.fromkeys(run.error for run in self.runs if run.error is not None))

    @property
    def notes(self) -> tuple[str, ...]:
        """The warnings of the runs."""
        return tuple(dict.fromkeys(note for run in self.runs for note in run.notes))

    def __repr__(self) -> str:
        return self.label


def averages(
    runs: Sequence[dict[str, Estimate]], confidence: float, ratio: float | None
) -> dict[str, Estimate]:
    """Return the means over seeds of every estimate; none if a run has no estimates."""
    if not all(runs):
        return {}
    return {name: _average([run[name] for run in runs], confidence, ratio) for name in runs[0]}


def _average(estimates: Sequence[Estimate], confidence: float, ratio: float | None) -> Estimate:
    n = len(estimates)
    if n == 1:
        return estimates[0]
    values, low, high = np.array([(e.value, e.low, e.high) for e in estimates]).T
    mean, spread = float(values.mean()), float(values.std(ddof=1))
    t = float(stats.t.ppf(0.5 + confidence / 2, n - 1))
    below, above = (abs(mean - float(end.mean())) for end in (low, high))  # by query
    if ratio is None:
        across = t * spread / sqrt(n)
        below, above = float(np.hypot(below, across)), float(np.hypot(above, across))
    else:
        shrunk = sqrt(1 / n + ratio)
        below, above = (shrunk * float(np.fmax(side, t * spread)) for side in (below, above))
    weakest = min(estimates, key=lambda estimate: estimate.n_queries)
    top = max(1.0, float(values.max()))
    return replace(weakest, value=mean, low=max(mean - below, 0.0), high=min(mean + above, top))
