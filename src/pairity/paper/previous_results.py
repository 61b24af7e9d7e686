"""The measurements of an independent earlier version, compared with pairity's.

Before pairity was written, a throwaway version measured the plain ranker and the paper's update on
five random splits by query. pairity's measurements use the same settings, without tuning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from pairity.comparisons.frontiers import Frontier
from pairity.paper.means import level_over_seeds
from pairity.paper.protocol import PLAIN_UPDATE, Setting, runs_of

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


def compare_with_previous(
    settings: Sequence[Setting], frontiers: Mapping[str, Frontier]
) -> list[list[str]]:
    """Return a row of a table for every earlier measurement whose data were run."""
    rows = []
    for setting, previous in product(settings, PREVIOUS):
        if not setting.matches(previous):
            continue
        tests = [
            run.test
            for run in runs_of(frontiers[setting.title], previous.method, previous.constraint)
            if not run.settings or run.settings.get("max_rounds") == _LOOPS
        ]
        if tests:
            data = f"{previous.data}, {'with' if previous.attribute else 'without'}"
            auc = level_over_seeds(test["auc"].value for test in tests)
            fairness = level_over_seeds(1.0 - test[previous.constraint].value for test in tests)
            within = previous.auc in auc and previous.fairness in fairness
            row = [data, previous.method, previous.constraint, f"{previous.auc:.3f}", str(auc)]
            rows.append(
                [*row, f"{previous.fairness:.3f}", str(fairness), "yes" if within else "no"]
            )
    return rows
