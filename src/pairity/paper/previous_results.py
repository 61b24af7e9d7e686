"""The measurements of an independent earlier version, compared with pairity's.

Before pairity was written, a throwaway version measured the plain ranker and the paper's update on
five random splits by query. pairity's measurements use the same settings, without tuning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pairity.comparisons.frontiers import Frontier
from pairity.comparisons.runs import Run
from pairity.paper.protocol import PLAIN_UPDATE, Mean, Setting, level_over_seeds, name_for

_LOOPS = 30  # of the earlier version's update


@dataclass(frozen=True)
class Previous:
    """A measurement of the earlier version: test AUC and fairness, means of five splits."""

    data: str
    attribute: bool
    method: str
    constraint: str
    auc: float
    fairness: float


PREVIOUS = (
    Previous("Engineering Students", True, "plain", "statistical", 0.763, 0.477),
    Previous("Engineering Students", True, "plain", "inter", 0.763, 0.605),
    Previous("Engineering Students", True, "plain", "intra", 0.763, 0.976),
    Previous("Engineering Students", True, "plain", "marginal", 0.763, 0.797),
    Previous("TREC", False, "plain", "statistical", 0.567, 0.915),
    Previous("TREC", False, PLAIN_UPDATE, "statistical", 0.570, 0.917),
    Previous("TREC", True, "plain", "statistical", 0.633, 0.025),
    Previous("TREC", True, PLAIN_UPDATE, "statistical", 0.520, 0.104),
    Previous("TREC", True, "plain", "inter", 0.633, 0.030),
    Previous("TREC", True, PLAIN_UPDATE, "inter", 0.577, 0.130),
)


@dataclass(frozen=True)
class Comparison:
    """A measurement of the earlier version with pairity's, which has intervals over splits."""

    previous: Previous
    auc: Mean
    fairness: Mean

    @property
    def agrees(self) -> bool:
        """Whether both earlier values are in pairity's intervals."""
        return (
            self.auc.low <= self.previous.auc <= self.auc.high
            and self.fairness.low <= self.previous.fairness <= self.fairness.high
        )


def compare_with_previous(
    settings: Sequence[Setting], frontiers: Mapping[str, Frontier]
) -> list[Comparison]:
    """Return pairity's measurement for every earlier one whose data were run."""
    comparisons = []
    for setting in settings:
        comparable = [run for run in frontiers[setting.title].runs if _has_same_settings(run)]
        for previous in filter(setting.matches, PREVIOUS):
            name, constraint = name_for(previous.method, previous.constraint), previous.constraint
            runs = [run for run in comparable if run.method == name]
            if runs:
                auc = level_over_seeds(run.test["auc"].value for run in runs)
                fairness = level_over_seeds(1.0 - run.test[constraint].value for run in runs)
                comparisons.append(Comparison(previous, auc, fairness))
    return comparisons


def _has_same_settings(run: Run) -> bool:
    same = run.settings.get("max_rounds") == _LOOPS or not run.settings
    return same and run.error is None
