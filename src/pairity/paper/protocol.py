"""The protocol: which methods with which settings, tuned how, measured on what.

Queries are split 4:1 into training and test and the training part 4:1 again for validation, anew
for each seed, in turn (`pairity.comparisons.sweeps.split_for`): five seeds test on all queries.
Of five
queries there are twenty such splits, and twenty seeds are all of them.

Every method is fitted with each of at most `BUDGET` settings. For each seed and constraint, of
those whose violation on the validation queries is within `CLOSE` of the lowest, the one with the
highest AUC there is chosen, and its figures on the test queries are what counts. One fit is
measured by all four constraints, so that methods which know nothing of a constraint are fitted
once for all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import isnan, sqrt
from typing import Any

import numpy as np
from scipy import stats

from pairity._utils.progress import Show
from pairity.baselines.exposure_lp import exposure_lp
from pairity.baselines.item_weights import item_weights
from pairity.baselines.lagrangian import lagrangian
from pairity.baselines.methods import Method, Scorer, as_method
from pairity.comparisons.frontiers import Frontier
from pairity.comparisons.runs import Run
from pairity.comparisons.sweeps import sweep
from pairity.constraints.pairwise import CATALOGUE
from pairity.data.queries import Queries
from pairity.rankers.base import Ranker
from pairity.rankers.linear import LinearRanker
from pairity.reweighting.fair_ranker import FairRanker
from pairity.reweighting.solvers import PlainStep

CONSTRAINTS = tuple(CATALOGUE)
RIVALS = ("unconstrained", "re-weighting", "post-processing", "in-processing")
OURS = "ours"
PLAIN = "ours, plain update"
ADAM = ("unconstrained, Adam", "ours, Adam")
SHARE = "ours at x"
SHARES = tuple(step / 4 for step in range(9))
BUDGET = 6
CLOSE = 0.01  # settings whose violations differ by no more in validation are taken as equals
HINGED = LinearRanker(0.01, margin=4.0)  # nearly the hinge loss, which in-processing trains with
TEST, VALIDATION = 0.2, 0.2
OVERLAP = TEST / ((1.0 - TEST) * (1.0 - VALIDATION))

_KNOWS_CONSTRAINT = ("in-processing", OURS, PLAIN, "ours, Adam", SHARE)


@dataclass(frozen=True, eq=False)
class Setting:
    """A data set, in one of the ways the paper may have meant.

    Attributes
    ----------
    data : str
        The data set's name.
    attribute : bool
        Whether the protected attribute is among the features.
    queries : Queries
    n_seeds : int
    """

    data: str
    attribute: bool
    queries: Queries
    n_seeds: int

    @property
    def title(self) -> str:
        """The data set, and whether the ranker sees the attribute."""
        return f"{self.data}, {'with' if self.attribute else 'without'} the attribute"


@dataclass(frozen=True, eq=False)
class Entry:
    """A method, tuned for a constraint with one seed, on the test queries.

    Attributes
    ----------
    data, attribute : as in `Setting`
    constraint : str, the one that it was tuned for
    method : str
    seed : int
    settings : dict, the chosen ones
    auc : float
    fairness : dict from a constraint's name to 1 less its violation
    seconds : float, of the chosen fit
    """

    data: str
    attribute: bool
    constraint: str
    method: str
    seed: int
    settings: dict[str, Any]
    auc: float
    fairness: dict[str, float]
    seconds: float

    @property
    def own_fairness(self) -> float:
        """That of the constraint that it was tuned for."""
        return self.fairness[self.constraint]


# --- methods -------------------------------------------------------------------------------------


def candidates(constraint: str, n_features: int, *, extras: bool, quick: bool) -> list[Method]:
    """All methods with all the settings that they are tuned over, for one constraint.

    Parameters
    ----------
    constraint : str
    n_features : int
    extras : bool
        Whether to add what the paper does not compare: the plain update, a ranker trained by
        Adam (where PyTorch is installed), and training with shares of λ*.
    quick : bool
        Fewer settings and fewer steps.
    """
    n_settings = 2 if quick else BUDGET
    loops = [50, 10, 20, 30, 40][:n_settings]
    tolerances = [0.01, 0.1, 0.05, 0.2, 0.3, 0.5][:n_settings]
    slacks = [0.0, *tolerances[1:]]
    linear = [(1e-4, 0.0), (0.01, 4.0), (1e-4, 4.0), (0.01, 0.0), (0.1, 4.0), (0.1, 0.0)]
    ours = [(alpha, tol) for tol in (0.01, 0.05) for alpha in (0.01, 0.001, 0.1)]
    n_steps = 500 if quick else 2500
    found = [
        *(
            as_method(LinearRanker(alpha, margin=margin), name="unconstrained")
            for alpha, margin in linear[:n_settings]
        ),
        *(
            replace(item_weights("equal opportunity", tolerance=tol), name="re-weighting")
            for tol in tolerances
        ),
        *(replace(exposure_lp(slack=2.0 * slack), name="post-processing") for slack in slacks),
        *(
            _for(constraint, lagrangian(constraint, slack=slack, n_steps=n_steps), "in-processing")
            for slack in slacks
        ),
        *(
            _ours(constraint, OURS, LinearRanker(alpha, margin=HINGED.margin), tolerance=tol)
            for alpha, tol in ours[:n_settings]
        ),
    ]
    if extras:
        found += [
            _ours(constraint, PLAIN, LinearRanker(), max_rounds=n, solver=PlainStep(eta=1.0))
            for n in loops
        ]
        found += [_at_share(constraint, x) for x in SHARES]
    if extras and not quick:
        found += _adam(constraint, n_features)
    return found


def name_for(method: str, constraint: str) -> str:
    """What a method's runs are called; those of one that knows the constraint say which."""
    return f"{method} ({constraint})" if method in _KNOWS_CONSTRAINT else method


def _for(constraint: str, method: Method, name: str) -> Method:
    return replace(method, name=name_for(name, constraint))


def _ours(constraint: str, name: str, ranker: Ranker, **settings: Any) -> Method:
    model = FairRanker(ranker, constraint, schedule="retrain")
    return as_method(model, name=name_for(name, constraint), **settings)


def _adam(constraint: str, n_features: int) -> list[Method]:
    """The same linear model trained as the paper has it: Adam, epochs, mini-batches of queries."""
    try:
        import torch
    except ImportError:
        return []
    from pairity.rankers.torch import TorchRanker

    module = torch.nn.Linear(n_features, 1)
    torch.nn.init.zeros_(module.weight)
    torch.nn.init.zeros_(module.bias)
    ranker = TorchRanker(
        module, learning_rate=0.05, batch_queries=8, warm_start=True, random_state=0
    )
    plain, ours = ADAM
    return [
        replace(as_method(ranker, name=plain), settings={}),
        replace(_ours(constraint, ours, ranker, max_rounds=15), settings={}),
    ]


def _at_share(constraint: str, x: float) -> Method:
    """Training with x · λ*."""

    def fit(train: Queries, random_state: int) -> Scorer:
        model = FairRanker(
            LinearRanker(), constraint, random_state=random_state, progress=False
        ).fit(**train)
        path = model.path(**train, values=[x], keep_models=True)
        ranker = path[0].model
        return lambda queries: np.asarray(ranker.predict(queries.X), dtype=np.float64)

    return Method(name_for(SHARE, constraint), fit, False, {"x": x})


# --- running and choosing ------------------------------------------------------------------------


def run_setting(
    setting: Setting,
    *,
    extras: bool,
    quick: bool,
    n_jobs: int | None = None,
    directory: str | os.PathLike[str] | None = None,
    progress: Show = "auto",
) -> Frontier:
    """Fit all methods with all settings and seeds; measure them on validation and test queries."""
    unlike: dict[str, Method] = {}
    for constraint in CONSTRAINTS:
        n_features = int(setting.queries.X.shape[1])
        for method in candidates(constraint, n_features, extras=extras, quick=quick):
            unlike.setdefault(f"{method!r}", method)
    return sweep(
        list(unlike.values()), setting.queries, TEST, validation=VALIDATION,
        constraints=CONSTRAINTS, seeds=range(setting.n_seeds), n_jobs=n_jobs, directory=directory,
        progress=progress, n_resamples=0,
    )  # fmt: skip


def choose(frontier: Frontier, setting: Setting) -> list[Entry]:
    """For each seed, constraint and method, the settings that validation speaks for."""
    by_name: dict[tuple[str, int], list[Run]] = {}
    for run in frontier.runs:
        if run.error is None:
            by_name.setdefault((run.method, run.seed), []).append(run)
    entries = []
    for constraint in CONSTRAINTS:
        for method in (*RIVALS, OURS, PLAIN, *ADAM):
            for seed in range(setting.n_seeds):
                runs = by_name.get((name_for(method, constraint), seed), [])
                if runs:
                    entries.append(_entry(_chosen(runs, constraint), setting, constraint, method))
    return entries


def _chosen(runs: Sequence[Run], constraint: str) -> Run:
    """Of those close to the lowest violation in validation the most accurate, then the first."""
    violations = [_validated(run, constraint) for run in runs]
    close = min(violations) + CLOSE
    near = [run for run, found in zip(runs, violations, strict=True) if found <= close]
    return max(near, key=lambda run: run.validation["auc"].value)


def by_setting(frontier: Frontier, setting: Setting) -> list[dict[str, Any]]:
    """Every method with each of its settings, untuned: means over seeds, for each constraint."""
    rows = []
    for constraint in CONSTRAINTS:
        for method in (*RIVALS, OURS, PLAIN, *ADAM):
            kept: dict[str, list[Run]] = {}
            for run in frontier.runs:
                if run.error is None and run.method == name_for(method, constraint):
                    kept.setdefault(json.dumps(run.settings, default=str), []).append(run)
            for settings, runs in kept.items():
                rows.append(
                    {
                        "data": setting.data,
                        "attribute": setting.attribute,
                        "constraint": constraint,
                        "method": method,
                        "settings": settings,
                        "seeds": len(runs),
                        "validation_auc": _mean_of(runs, "validation", "auc"),
                        "validation_fairness": 1.0 - _mean_of(runs, "validation", constraint),
                        "auc": _mean_of(runs, "test", "auc"),
                        "fairness": 1.0 - _mean_of(runs, "test", constraint),
                    }
                )
    return rows


def _mean_of(runs: Sequence[Run], where: str, what: str) -> float:
    return float(np.nanmean([getattr(run, where)[what].value for run in runs]))


def at_shares(frontier: Frontier, setting: Setting) -> list[Entry]:
    """The runs with shares of λ*; the share is among an entry's settings."""
    return [
        _entry(run, setting, constraint, SHARE)
        for constraint in CONSTRAINTS
        for run in frontier.runs
        if run.method == name_for(SHARE, constraint) and run.error is None
    ]


def _validated(run: Run, constraint: str) -> float:
    violation = run.validation[constraint].value
    return 2.0 if isnan(violation) else violation


def _entry(run: Run, setting: Setting, constraint: str, method: str) -> Entry:
    return Entry(
        setting.data,
        setting.attribute,
        constraint,
        method,
        run.seed,
        run.settings,
        run.test["auc"].value,
        {name: 1.0 - run.test[name].value for name in CONSTRAINTS},
        run.seconds,
    )


# --- means over seeds ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Mean:
    """A mean over seeds with its 95 % interval."""

    value: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def mean_over_seeds(values: Iterable[float], *, overlap: float = OVERLAP) -> Mean:
    """The mean, and Student's interval for splits that share most of their queries.

    The variance is s²(1/n + n_test/n_train), as Nadeau & Bengio (2003) correct it; `overlap` is
    that ratio, 0 for values that are independent.
    """
    known = np.array([value for value in values if not isnan(value)])
    n = len(known)
    if n == 0:
        return Mean(float("nan"), float("nan"), float("nan"), 0)
    mean = float(known.mean())
    if n == 1:
        return Mean(mean, float("nan"), float("nan"), 1)
    half = float(stats.t.ppf(0.975, n - 1)) * float(known.std(ddof=1)) * sqrt(1.0 / n + overlap)
    return Mean(mean, mean - half, mean + half, n)


def level_over_seeds(values: Iterable[float]) -> Mean:
    """The same for what lies between 0 and 1, and so does its interval."""
    mean = mean_over_seeds(values)
    return replace(mean, low=max(mean.low, 0.0), high=min(mean.high, 1.0))


def differences(
    ours: Sequence[Entry], theirs: Sequence[Entry], what: str = "fairness"
) -> list[float]:
    """Ours less theirs, seed by seed, in "auc" or in the fairness tuned for."""
    attribute = "auc" if what == "auc" else "own_fairness"
    by_seed = {entry.seed: getattr(entry, attribute) for entry in theirs}
    return [
        getattr(entry, attribute) - by_seed[entry.seed] for entry in ours if entry.seed in by_seed
    ]
