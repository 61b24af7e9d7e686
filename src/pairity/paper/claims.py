"""The paper's claims, each with what was measured, its interval over seeds and its verdict."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import product
from math import isnan, nan, sqrt

import numpy as np
from scipy import stats

from pairity.paper.protocol import BASELINES, COMPARED, CONSTRAINTS, OVERLAP, REWEIGHTED, Entry


@dataclass(frozen=True)
class Mean:
    """A mean over seeds with its 95 % confidence interval."""

    value: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


def mean_over_seeds(values: Iterable[float], *, overlap: float = OVERLAP) -> Mean:
    """Return the mean, with Student's interval for splits that share most of their queries.

    The variance is s²(1/n + n_test/n_train), the correction of Nadeau & Bengio (2003). `overlap`
    is that ratio; it is 0 for independent values.
    """
    known = np.array([value for value in values if not isnan(value)])
    n = len(known)
    mean, half = (float(known.mean()) if n else nan), nan
    if n > 1:
        half = float(stats.t.ppf(0.975, n - 1)) * float(known.std(ddof=1)) * sqrt(1 / n + overlap)
    return Mean(mean, mean - half, mean + half, n)


def level_over_seeds(values: Iterable[float]) -> Mean:
    """Return the same for values between 0 and 1, with the interval cut to that range."""
    mean = mean_over_seeds(values)
    return replace(mean, low=max(mean.low, 0.0), high=min(mean.high, 1.0))


_RESAMPLES = 2000  # of seeds, for the interval of a difference of standard deviations


class Verdict(Enum):
    """Whether a claim holds, by a 95 % interval over seeds."""

    HOLDS = "holds"
    FAILS = "does not hold"
    OPEN = "not decided"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and what was measured.

    Attributes
    ----------
    text : str, the claim
    data : str, the data set
    constraint : str
    measured : str, what the estimate measures
    estimate : Mean, which must be above zero for the claim to hold
    verdict : Verdict
    """

    text: str
    data: str
    constraint: str
    measured: str
    estimate: Mean
    verdict: Verdict


def judge(*estimates: Mean) -> Verdict:
    """Judge whether all estimates are above zero: all intervals are, one is below, or neither."""
    if all(estimate.low > 0.0 for estimate in estimates):
        return Verdict.HOLDS
    if any(estimate.high < 0.0 for estimate in estimates):
        return Verdict.FAILS
    return Verdict.OPEN


Judged = tuple[str, str, Mean, Verdict]


def about_methods(data: str, entries: Sequence[Entry]) -> list[Claim]:
    """Judge the claims that compare methods on one data set, for each constraint."""
    return [
        Claim(text, data, constraint, measured, estimate, verdict)
        for constraint in CONSTRAINTS
        for text, measured, estimate, verdict in _judge_methods(
            [entry for entry in entries if entry.constraint == constraint]
        )
    ]


def lead_over_seeds(entries: Sequence[Entry], others: Sequence[Entry], measure: str) -> Mean:
    """Return the mean of the first minus the second, in "AUC" or in the "fairness" tuned for."""
    attribute = "auc" if measure == "AUC" else "own_fairness"
    by_seed = {entry.seed: getattr(entry, attribute) for entry in others}
    return mean_over_seeds(
        getattr(e, attribute) - by_seed[e.seed] for e in entries if e.seed in by_seed
    )


def _judge_methods(entries: Sequence[Entry]) -> Iterator[Judged]:
    """Judge the claims from the entries for one data set and one constraint."""
    by_method = {method: [e for e in entries if e.method == method] for method in COMPARED}
    fairness, auc = (
        {b: lead_over_seeds(by_method[REWEIGHTED], by_method[b], measure) for b in BASELINES}
        for measure in ("fairness", "AUC")
    )
    closest = min(BASELINES, key=lambda baseline: fairness[baseline].value)
    cost = f"AUC {auc[closest].value:+.3f}"
    measured = f"fairness above that of {closest}, the best baseline ({cost})"
    verdict = judge(*fairness.values())
    yield "reweighted has the highest test fairness", measured, fairness[closest], verdict
    for baseline, estimate in fairness.items():
        poor = baseline == "item weights"
        text = "item weights are poor" if poor else f"reweighted is fairer than {baseline}"
        measured = f"reweighted fairness above its (reweighted AUC above its: {auc[baseline]})"
        yield text, measured, estimate, judge(estimate)
    yield _judge_pareto(fairness, auc)
    gap = spread_difference(
        *([e.own_fairness for e in by_method[name]] for name in ("lagrangian", REWEIGHTED))
    )
    measured = "standard deviation of its fairness over seeds above that of reweighted"
    yield "lagrangian is unstable", measured, gap, judge(gap)
    gap = lead_over_seeds(by_method["plain"], by_method["exposure lp"], "AUC")
    yield "exposure lp loses utility", "AUC of plain above its", gap, judge(gap)


def _judge_pareto(fairness: dict[str, Mean], auc: dict[str, Mean]) -> Judged:
    """Measure by how much the closest baseline fails to lead in fairness and in AUC."""
    leads = {b: max(fairness[b], auc[b], key=lambda mean: mean.value) for b in BASELINES}
    closest = min(leads, key=lambda baseline: leads[baseline].value)
    judged = [{judge(fairness[baseline]), judge(auc[baseline])} for baseline in BASELINES]
    fails, holds = {Verdict.FAILS} in judged, all(Verdict.HOLDS in both for both in judged)
    verdict = Verdict.FAILS if fails else Verdict.HOLDS if holds else Verdict.OPEN
    measured = f"the larger of its leads over {closest} in fairness and in AUC"
    return "reweighted is on the Pareto front", measured, leads[closest], verdict


def spread_difference(first: Sequence[float], second: Sequence[float]) -> Mean:
    """Subtract two standard deviations over seeds, with an interval from resampled seeds."""
    n = min(len(first), len(second))
    if n < 3:
        return Mean(nan, nan, nan, n)
    values = np.array([first[:n], second[:n]])
    rows = np.random.default_rng(0).integers(0, n, (_RESAMPLES, n))
    drawn = values[:, rows].std(axis=2, ddof=1)
    low, high = np.quantile(drawn[0] - drawn[1], [0.025, 0.975])
    spread = values.std(axis=1, ddof=1)
    return Mean(float(spread[0] - spread[1]), float(low), float(high), n)


# Each claim about training with x · λ*: the pairs of x whose first must lead, and in what.
_SHARE_CLAIMS: dict[str, list[tuple[float, float, str]]] = {
    "x = 1 is the fairest": [(1.0, 0.0, "fairness"), (1.0, 2.0, "fairness")],
    "x = 0 is the most useful": [(0.0, 1.0, "AUC"), (0.0, 2.0, "AUC")],
    "x = 2 is the worst": [(1.0, 2.0, "fairness"), (0.0, 2.0, "AUC"), (1.0, 2.0, "AUC")],
}


def about_shares(data: str, entries: Sequence[Entry]) -> Iterator[Claim]:
    """Judge the claims about training with x · λ*, for each constraint."""
    for constraint, (text, pairs) in product(CONSTRAINTS, _SHARE_CLAIMS.items()):
        by_share = {
            x: [e for e in entries if (e.constraint, float(e.settings["x"])) == (constraint, x)]
            for x in (0.0, 1.0, 2.0)
        }
        if all(by_share.values()):
            leads = [lead_over_seeds(by_share[x], by_share[z], measure) for x, z, measure in pairs]
            lowest = min(range(len(pairs)), key=lambda index: leads[index].value)
            x, z, measure = pairs[lowest]
            measured = f"{measure} at x = {x:g} above that at x = {z:g}"
            yield Claim(text, data, constraint, measured, leads[lowest], judge(*leads))


def count_verdicts(claims: Sequence[Claim]) -> dict[str, dict[Verdict, int]]:
    """Count for each claim's text how often it holds, does not hold, and is not decided."""
    counts: dict[str, dict[Verdict, int]] = {}
    for claim in claims:
        counts.setdefault(claim.text, dict.fromkeys(Verdict, 0))[claim.verdict] += 1
    return counts
