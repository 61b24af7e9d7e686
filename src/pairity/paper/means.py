"""Means over seeds, with confidence intervals for splits that share most of their queries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import isnan, nan, sqrt

import numpy as np
from scipy import stats

TEST, VALIDATION = 0.2, 0.2  # the paper's 4:1
OVERLAP = TEST / ((1.0 - TEST) * (1.0 - VALIDATION))  # test queries per training query


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
