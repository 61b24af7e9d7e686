"""An independent version's figures on the same data, beside ours.

Before pairity was written, a throwaway version measured the plain ranker and the paper's update on
five random splits by query. Ours are of the same settings, without any tuning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pairity.comparisons.frontiers import Frontier
from pairity.comparisons.runs import Run
from pairity.paper.protocol import PLAIN, Mean, Setting, level_over_seeds, name_for

_LOOPS = 30
_PLAIN_RANKER = "unconstrained"


@dataclass(frozen=True)
class Earlier:
    """A figure of the earlier version: test AUC and fairness, means of five splits."""

    data: str
    attribute: bool
    method: str
    constraint: str
    auc: float
    fairness: float


EARLIER = (
    Earlier("Engineering Students", True, _PLAIN_RANKER, "statistical", 0.763, 0.477),
    Earlier("Engineering Students", True, _PLAIN_RANKER, "inter", 0.763, 0.605),
    Earlier("Engineering Students", True, _PLAIN_RANKER, "intra", 0.763, 0.976),
    Earlier("Engineering Students", True, _PLAIN_RANKER, "marginal", 0.763, 0.797),
    Earlier("TREC", False, _PLAIN_RANKER, "statistical", 0.567, 0.915),
    Earlier("TREC", False, PLAIN, "statistical", 0.570, 0.917),
    Earlier("TREC", True, _PLAIN_RANKER, "statistical", 0.633, 0.025),
    Earlier("TREC", True, PLAIN, "statistical", 0.520, 0.104),
    Earlier("TREC", True, _PLAIN_RANKER, "inter", 0.633, 0.030),
    Earlier("TREC", True, PLAIN, "inter", 0.577, 0.130),
)


@dataclass(frozen=True)
class Beside:
    """An earlier figure with ours, and whether ours' intervals over splits take it in."""

    earlier: Earlier
    auc: Mean
    fairness: Mean

    @property
    def agrees(self) -> bool:
        """Whether both of its figures lie in our intervals."""
        return (
            self.auc.low <= self.earlier.auc <= self.auc.high
            and self.fairness.low <= self.earlier.fairness <= self.fairness.high
        )


def beside(settings: Sequence[Setting], frontiers: Mapping[str, Frontier]) -> list[Beside]:
    """Ours for every earlier figure whose data were run."""
    found = []
    for setting in settings:
        runs = frontiers[setting.title].runs
        for earlier in EARLIER:
            if (earlier.data, earlier.attribute) != (setting.data, setting.attribute):
                continue
            name = name_for(earlier.method, earlier.constraint)
            same = [run for run in runs if run.method == name and _untuned(run)]
            if same:
                found.append(
                    Beside(
                        earlier,
                        level_over_seeds(run.test["auc"].value for run in same),
                        level_over_seeds(1.0 - run.test[earlier.constraint].value for run in same),
                    )
                )
    return found


def _untuned(run: Run) -> bool:
    if run.error is not None:
        return False
    return run.settings.get("max_rounds") == _LOOPS or not run.settings
