"""The paper's protocol: the methods, their settings, the splits, the tuning rule and the means.

Each seed splits the queries 4:1 into training and test, and the training part 4:1 again for
validation. Seeds hold out queries in turn (`pairity.sweep`), so five seeds
test on all queries. Five queries have twenty such splits, and twenty seeds use all of them.

Every method is fitted with each of at most `BUDGET` settings from the catalogue. For each seed and
constraint, the candidates are the settings whose validation violation is within `CLOSE` of the
lowest. The candidate with the highest validation AUC is chosen, and its test values are reported.
Each fit is measured by all four constraints, so a method that ignores the constraint is fitted
only once.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from pairity.baselines.methods import Method, Scorer, as_method
from pairity.comparisons.catalogue import MARGIN, METHODS
from pairity.comparisons.frontiers import Frontier
from pairity.comparisons.runs import Run
from pairity.comparisons.sweeps import sweep
from pairity.constraints import CATALOGUE
from pairity.data.queries import Queries
from pairity.rankers.linear import LinearRanker
from pairity.reweighting.fair_ranker import FairRanker
from pairity.reweighting.solvers import PlainStep

TEST, VALIDATION = 0.2, 0.2  # the paper's 4:1
OVERLAP = TEST / ((1.0 - TEST) * (1.0 - VALIDATION))  # test queries per training query
CONSTRAINTS = tuple(CATALOGUE)
BASELINES = ("plain", "item weights", "exposure lp", "lagrangian")
REWEIGHTED = "reweighted"
COMPARED = (*BASELINES, REWEIGHTED)  # the five methods of the paper
READS_GROUPS = "exposure lp"
PLAIN_UPDATE = "reweighted, plain update"
ADAM = ("plain, Adam", "reweighted, Adam")
TUNED = (*COMPARED, PLAIN_UPDATE, *ADAM)
SHARE = "reweighted at x"
SHARES = tuple(step / 4 for step in range(9))
BUDGET = 6  # settings per method
CLOSE = 0.01  # validation violations that differ by no more than this count as equal
HINGED = LinearRanker(0.01, margin=MARGIN)

_TAKES_CONSTRAINT = ("lagrangian", REWEIGHTED, PLAIN_UPDATE, "reweighted, Adam", SHARE)
_ANY_CONSTRAINT = "inter"  # passed to the methods that are fitted once for all constraints
_QUICK_STEPS = 500  # of the Lagrangian baseline, instead of the paper's 2,500


@dataclass(frozen=True, eq=False)
class Setting:
    """A data set, with or without the protected attribute among its features.

    Attributes
    ----------
    data : str
        The name of the data set.
    attribute : bool
        Whether the protected attribute is among the features. The paper does not say.
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

    def matches(self, result: Any) -> bool:
        """Whether something with `data` and `attribute` is about this setting."""
        return bool((result.data, result.attribute) == (self.data, self.attribute))


@dataclass(frozen=True, eq=False)
class Entry:
    """A method, tuned for one constraint with one seed, and measured on the test queries.

    Attributes
    ----------
    data, attribute : as in `Setting`
    constraint : str, the constraint that it was tuned for
    method : str
    seed : int
    settings : dict, the chosen settings
    auc : float
    fairness : dict from a constraint's name to 1 − violation
    seconds : float, the time of the chosen fit
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
        """The fairness by the constraint that it was tuned for."""
        return self.fairness[self.constraint]


# --- methods -------------------------------------------------------------------------------------


def candidates(constraint: str, n_features: int, *, extras: bool, quick: bool) -> list[Method]:
    """Make all methods with all settings that they are tuned over, for one constraint.

    Parameters
    ----------
    constraint : str
    n_features : int
    extras : bool
        Whether to add what the paper does not compare: the plain update, a ranker trained by
        Adam (if PyTorch is installed), and training with shares of λ*.
    quick : bool
        Whether to use fewer settings and fewer steps.
    """
    n_settings = 2 if quick else BUDGET
    paper = {"schedule": "retrain", "weighting": "paper"}
    fixed: dict[str, dict[str, Any]] = {REWEIGHTED: paper}
    if quick:
        fixed["lagrangian"] = {"n_steps": _QUICK_STEPS}
    methods = [
        _make(name, name, constraint, **settings, **fixed.get(name, {}))
        for name in COMPARED
        for settings in METHODS[name].reproduction[:n_settings]
    ]
    if extras:
        *fewer, most = METHODS[REWEIGHTED].paper_range["max_rounds"]
        methods += [
            _make(
                PLAIN_UPDATE, REWEIGHTED, constraint, ranker=LinearRanker(), **paper,
                max_rounds=max_rounds, solver=PlainStep(eta=1.0),
            )
            for max_rounds in [most, *fewer][:n_settings]
        ]  # fmt: skip
        methods += [_at_share(constraint, x) for x in SHARES]
    if extras and not quick:
        methods += _adam(constraint, n_features)
    return methods


def name_for(method: str, constraint: str) -> str:
    """Return the name of a method's runs, which includes the constraint if the method uses it."""
    return f"{method} ({constraint})" if method in _TAKES_CONSTRAINT else method


def _make(name: str, entry: str, constraint: str, **settings: Any) -> Method:
    """Make a method of the catalogue under the name of its runs."""
    used = constraint if name in _TAKES_CONSTRAINT else _ANY_CONSTRAINT
    return replace(METHODS[entry].make(used, **settings), name=name_for(name, constraint))


def _adam(constraint: str, n_features: int) -> list[Method]:
    """Train the same linear model as the paper does: Adam, epochs, mini-batches of queries."""
    try:
        import torch
    except ImportError:
        return []
    from pairity.rankers.torch import TorchRanker

    module = torch.nn.Linear(n_features, 1)
    for parameter in module.parameters():
        torch.nn.init.zeros_(parameter)
    ranker = TorchRanker(
        module, learning_rate=0.05, batch_queries=8, warm_start=True, random_state=0
    )
    fair = FairRanker(ranker, constraint, schedule="retrain", weighting="paper", max_rounds=15)
    return [
        replace(as_method(ranker, name=ADAM[0]), settings={}),
        replace(as_method(fair, name=name_for(ADAM[1], constraint)), settings={}),
    ]


def _at_share(constraint: str, x: float) -> Method:
    """Train with x · λ*."""

    def fit(train: Queries, random_state: int) -> Scorer:
        fair = FairRanker(
            LinearRanker(), constraint, weighting="paper", random_state=random_state, progress=False
        )
        ranker = fair.fit(train).path(train, values=[x], keep_models=True)[0].model
        return lambda queries: np.asarray(ranker.predict(queries.X), dtype=np.float64)

    return Method(name_for(SHARE, constraint), fit, False, {"x": x})


# --- running and choosing ------------------------------------------------------------------------


def run_setting(setting: Setting, *, extras: bool, quick: bool, **options: Any) -> Frontier:
    """Fit all methods with all settings and seeds, and measure them on held-out queries.

    `options` are those of `pairity.sweep`: n_jobs, directory, progress.
    """
    n_features = int(setting.queries.X.shape[1])
    methods = {
        repr(method): method
        for constraint in CONSTRAINTS
        for method in candidates(constraint, n_features, extras=extras, quick=quick)
    }
    return sweep(
        list(methods.values()), setting.queries, TEST, validation=VALIDATION,
        constraints=CONSTRAINTS, seeds=range(setting.n_seeds), n_resamples=0, **options,
    )  # fmt: skip


def choose(frontier: Frontier, setting: Setting) -> list[Entry]:
    """For each constraint, method and seed, choose the settings by validation."""
    return [
        _entry(_chosen(runs, constraint), setting, constraint, method)
        for constraint in CONSTRAINTS
        for method in TUNED
        for seed in range(setting.n_seeds)
        if (runs := [r for r in runs_of(frontier, method, constraint) if r.seed == seed])
    ]


def runs_of(frontier: Frontier, method: str, constraint: str) -> list[Run]:
    """Return the runs of a method for a constraint that did not fail."""
    name = name_for(method, constraint)
    return [run for run in frontier.runs if run.method == name and run.error is None]


def _chosen(runs: Sequence[Run], constraint: str) -> Run:
    """Choose the most accurate run that is close to the lowest validation violation."""
    violations = [float(np.nan_to_num(run.validation[constraint].value, nan=2.0)) for run in runs]
    limit = min(violations) + CLOSE
    close = [run for run, value in zip(runs, violations, strict=True) if value <= limit]
    return max(close, key=lambda run: run.validation["auc"].value)


def by_setting(
    settings: Sequence[Setting], frontiers: Mapping[str, Frontier]
) -> Iterator[dict[str, Any]]:
    """Yield each method with each of its settings, untuned: means over seeds by constraint."""
    for setting, constraint, method in product(settings, CONSTRAINTS, TUNED):
        for point in frontiers[setting.title].points:
            runs = [run for run in point.runs if run.error is None]
            if runs and point.method == name_for(method, constraint):
                yield {
                    "data": setting.data,
                    "attribute": setting.attribute,
                    "constraint": constraint,
                    "method": method,
                    "settings": json.dumps(point.settings),
                    "seeds": len(runs),
                    "validation_auc": _mean_of(runs, "validation", "auc"),
                    "validation_fairness": 1.0 - _mean_of(runs, "validation", constraint),
                    "auc": _mean_of(runs, "test", "auc"),
                    "fairness": 1.0 - _mean_of(runs, "test", constraint),
                }


def _mean_of(runs: Sequence[Run], part: str, measure: str) -> float:
    return float(np.nanmean([getattr(run, part)[measure].value for run in runs]))


def at_shares(frontier: Frontier, setting: Setting) -> list[Entry]:
    """Return the runs with shares of λ*; an entry's settings contain the share."""
    return [
        _entry(run, setting, constraint, SHARE)
        for constraint in CONSTRAINTS
        for run in runs_of(frontier, SHARE, constraint)
    ]


def _entry(run: Run, setting: Setting, constraint: str, method: str) -> Entry:
    fairness = {name: 1.0 - run.test[name].value for name in CONSTRAINTS}
    return Entry(
        setting.data, setting.attribute, constraint, method, run.seed, run.settings,
        run.test["auc"].value, fairness, run.seconds,
    )  # fmt: skip
