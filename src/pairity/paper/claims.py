"""The paper's claims, each with what was measured, its interval, and whether it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

import numpy as np

from pairity.paper.protocol import (
    CONSTRAINTS,
    OURS,
    RIVALS,
    Entry,
    Mean,
    differences,
    mean_over_seeds,
)

_RESAMPLES = 2000


class Verdict(Enum):
    """Whether a claim holds, by a 95 % interval over seeds."""

    HOLDS = "holds"
    FAILS = "does not hold"
    OPEN = "not decided"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Claim:
    """Something the paper says, and what was measured.

    Attributes
    ----------
    text : str, what is claimed
    data : str, on which data
    constraint : str, for which constraint; "" where it is for none in particular
    measured : str, what the figure is
    figure : Mean, which should be above zero
    verdict : Verdict
    """

    text: str
    data: str
    constraint: str
    measured: str
    estimate: Mean
    verdict: Verdict

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python."""
        return {**asdict(self), "verdict": str(self.verdict)}

    @classmethod
    def from_dict(cls, entries: dict[str, Any]) -> Claim:
        """From what `to_dict` gave."""
        return cls(
            **{
                **entries,
                "figure": Mean(**entries["figure"]),
                "verdict": Verdict(entries["verdict"]),
            }
        )


def judge(*estimates: Mean) -> Verdict:
    """Whether all figures are above zero: all intervals are, some is below, or neither."""
    if all(estimate.low > 0.0 for estimate in estimates):
        return Verdict.HOLDS
    if any(estimate.high < 0.0 for estimate in estimates):
        return Verdict.FAILS
    return Verdict.OPEN


def about_methods(data: str, entries: Sequence[Entry]) -> list[Claim]:
    """The claims that compare methods on one data set, for each constraint."""
    claims: list[Claim] = []
    for constraint in CONSTRAINTS:
        of = {
            method: [e for e in entries if e.constraint == constraint and e.method == method]
            for method in (*RIVALS, OURS)
        }
        made = [_fairest(of), *(_fairer(of, rival) for rival in RIVALS), _pareto(of)]
        made += [_unstable(of), _loses_utility(of)]
        for text, measured, estimate, verdict in made:
            claims.append(Claim(text, data, constraint, measured, estimate, verdict))
    return claims


Made = tuple[str, str, Mean, Verdict]


def _fairest(of: dict[str, list[Entry]]) -> Made:
    gaps = {rival: mean_over_seeds(differences(of[OURS], of[rival])) for rival in RIVALS}
    closest = min(gaps, key=lambda rival: gaps[rival].value)
    cost = mean_over_seeds(differences(of[OURS], of[closest], "auc"))
    measured = f"fairness above {closest}'s, the best rival (AUC {cost.value:+.3f})"
    return "ours has the highest test fairness", measured, gaps[closest], judge(*gaps.values())


def _fairer(of: dict[str, list[Entry]], rival: str) -> Made:
    """By how much ours is fairer than one rival, and at what utility."""
    gap = mean_over_seeds(differences(of[OURS], of[rival]))
    cost = mean_over_seeds(differences(of[OURS], of[rival], "auc"))
    text = f"ours is fairer than {rival}"
    if rival == "re-weighting":
        text = "re-weighting of items is poor"
    return text, f"our fairness above its (our AUC above its: {cost})", gap, judge(gap)


def _pareto(of: dict[str, list[Entry]]) -> Made:
    """By how much the rival closest to dominating us fails to."""
    room: dict[str, Mean] = {}
    decided = []
    for rival in RIVALS:
        fairness = mean_over_seeds(differences(of[OURS], of[rival]))
        auc = mean_over_seeds(differences(of[OURS], of[rival], "auc"))
        room[rival] = max(fairness, auc, key=lambda mean: mean.value)
        clear = fairness.low > 0.0 or auc.low > 0.0
        beaten = fairness.high < 0.0 and auc.high < 0.0
        decided.append(Verdict.HOLDS if clear else Verdict.FAILS if beaten else Verdict.OPEN)
    closest = min(room, key=lambda rival: room[rival].value)
    verdict = Verdict.OPEN
    if Verdict.FAILS in decided:
        verdict = Verdict.FAILS
    elif set(decided) == {Verdict.HOLDS}:
        verdict = Verdict.HOLDS
    measured = f"the better of our leads over {closest} in fairness and in AUC"
    return "ours is on the Pareto front", measured, room[closest], verdict


def _unstable(of: dict[str, list[Entry]]) -> Made:
    gap = spread_difference(
        [entry.own_fairness for entry in of["in-processing"]],
        [entry.own_fairness for entry in of[OURS]],
    )
    measured = "its fairness' standard deviation over seeds above ours"
    return "in-processing is unstable", measured, gap, judge(gap)


def _loses_utility(of: dict[str, list[Entry]]) -> Made:
    gap = mean_over_seeds(differences(of["unconstrained"], of["post-processing"], "auc"))
    return "post-processing loses utility", "unconstrained AUC above its", gap, judge(gap)


def spread_difference(theirs: Sequence[float], ours: Sequence[float]) -> Mean:
    """Standard deviations over seeds, theirs less ours, with an interval from resampled seeds."""
    one, two = np.asarray(theirs), np.asarray(ours)
    n = min(len(one), len(two))
    if n < 3:
        return Mean(float("nan"), float("nan"), float("nan"), n)
    one, two = one[:n], two[:n]
    rows = np.random.default_rng(0).integers(0, n, (_RESAMPLES, n))
    drawn = one[rows].std(axis=1, ddof=1) - two[rows].std(axis=1, ddof=1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Mean(float(one.std(ddof=1) - two.std(ddof=1)), float(low), float(high), n)


def about_shares(data: str, entries: Sequence[Entry]) -> list[Claim]:
    """The claims about training with x · λ*, for each constraint."""
    claims = []
    for constraint in CONSTRAINTS:
        at: dict[float, list[Entry]] = {}
        for entry in entries:
            if entry.constraint == constraint:
                at.setdefault(float(entry.settings["x"]), []).append(entry)
        if not {0.0, 1.0, 2.0} <= set(at):
            continue

        def lead(high: float, low: float, what: str, at: Any = at) -> Mean:
            return mean_over_seeds(differences(at[high], at[low], what))

        for text, pairs in _SHARE_CLAIMS.items():
            leads = [lead(*pair) for pair in pairs]
            least = min(range(len(leads)), key=lambda k: leads[k].value)
            high, low, what = pairs[least]
            what = "AUC" if what == "auc" else what
            claims.append(
                Claim(
                    text,
                    data,
                    constraint,
                    f"{what} at x = {high:g} above that at x = {low:g}",
                    leads[least],
                    judge(*leads),
                )
            )
    return claims


_SHARE_CLAIMS: dict[str, list[tuple[float, float, str]]] = {
    "x = 1 is the fairest": [(1.0, 0.0, "fairness"), (1.0, 2.0, "fairness")],
    "x = 0 is the most useful": [(0.0, 1.0, "auc"), (0.0, 2.0, "auc")],
    "x = 2 is the worst": [(1.0, 2.0, "fairness"), (0.0, 2.0, "auc"), (1.0, 2.0, "auc")],
}


def independent_mean(values: Iterable[float]) -> Mean:
    """A mean over independent data sets, with Student's interval."""
    return mean_over_seeds(values, overlap=0.0)


def count_verdicts(claims: Sequence[Claim]) -> dict[str, dict[Verdict, int]]:
    """For each claim's text, how often it holds, does not, and is not decided."""
    counts: dict[str, dict[Verdict, int]] = {}
    for claim in claims:
        held = counts.setdefault(claim.text, dict.fromkeys(Verdict, 0))
        held[claim.verdict] += 1
    return counts


Check = Callable[[], list[Claim]]
