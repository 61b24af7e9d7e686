"""Tuning: every method with the same budget and by the same rule.

A comparison in which only one method is tuned is uninformative. `tune` tries settings of a method
on held-out queries and chooses by the rule of `Frontier.pick`. `tune_all` does so for several
methods with the same budget. `tuned` makes a method that tunes itself on the queries it is trained
on, so that a `sweep` over several splits tunes every method on every split.
"""

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from typing import Any
from warnings import warn

import numpy as np
from sklearn.model_selection import ParameterGrid, ParameterSampler
from sklearn.utils import check_random_state

from pairity._utils.validation import is_real, require_choice, require_count, show
from pairity.baselines.methods import Method, Scorer
from pairity.comparisons import sweeps
from pairity.comparisons.catalogue import METHODS
from pairity.comparisons.frontiers import Frontier
from pairity.comparisons.jobs import Job, RunOptions, cross_fitted, run_jobs
from pairity.comparisons.runs import Run, plain_settings
from pairity.comparisons.selection import Choice, Rule
from pairity.data.checks import require_groups, require_preferences
from pairity.data.queries import Queries
from pairity.data.splits import query_folds
from pairity.exceptions import InputError, TargetNotReachedWarning

Make = Callable[..., Method]
Space = Mapping[str, Any] | Sequence[Mapping[str, Any]]

_log = logging.getLogger(__name__)
_DRAWS_PER_TRIAL = 20  # draws from distributions before the search for new settings ends
_NOT_SHOWN = ("progress", "n_jobs", "directory")  # options that do not change a result


@dataclass(frozen=True)
class TuneOptions(RunOptions):
    """How settings are searched, compared and chosen; the other fields are in `RunOptions`.

    Attributes
    ----------
    search : {"grid", "random"}
        Try all combinations of the listed values, or draw `budget` of them at random.
    budget : int, default=20
        The largest number of trials. A grid must not have more.
    rule, utility, simultaneous
        As in `Frontier.pick`, and so is `confidence`.
    """

    search: str = "grid"
    budget: int = 20
    rule: str = "most accurate"
    utility: str = "auc"
    simultaneous: bool = False


@dataclass(frozen=True, eq=False)
class Tuned:
    """The choice of a tuning, and all trials.

    Attributes
    ----------
    method : Method
        With the chosen settings, not fitted. If no trial is within the limit, the closest.
    settings : dict, the chosen settings, as they were passed to `make`
    choice : Choice, with its rule and bound
    trials : Frontier, every trial, measured on the validation queries
    """

    method: Method
    settings: dict[str, Any]
    choice: Choice
    trials: Frontier

    def __str__(self) -> str:
        return f"{self.trials}\n\n{self.choice}"


def tune(
    make: Make,
    space: Space | str | None,
    train: Any,
    *,
    constraint: Any,
    epsilon: float,
    cv: Any = 0.2,
    random_state: int = 0,
    **options: Any,
) -> Tuned:
    """Try settings of a method on held-out queries, and choose among them by a stated rule.

    Parameters
    ----------
    make : callable
        Returns a Method for settings passed by keyword: ``partial(lagrangian, parity)``, or
        ``partial(as_method, FairRanker(constraint="inter"))``.
    space : mapping from setting to a list of values or a scipy.stats distribution; or a list of
        such mappings; or a name in `pairity.comparisons.catalogue.METHODS`; or None
        A name stands for the paper's range of that method, and None for that of the method that
        `make` returns.
    train : Queries
        The queries to tune on, which are split by query.
    constraint : str, Constraint or function
    epsilon : float
        The limit on the violation.
    cv : float, int or Queries, default=0.2
        A share of the queries to validate on, the number of folds of a cross-validation, or the
        validation queries.
    random_state : int
        Splits the queries, draws settings, and is the seed of every trial.
    **options
        The fields of `TuneOptions`:

        search : {"grid", "random"}
            Try all combinations of the listed values, or draw `budget` different ones at random.
        budget : int, default=20
            The largest number of trials. A grid must not have more; a smaller space is tried
            completely.
        rule, confidence, utility, simultaneous
            As in `Frontier.pick`.
        n_jobs, directory, progress, n_resamples
            As in `pairity.sweep`.

    Returns
    -------
    Tuned

    Notes
    -----
    In cross-validation every query is ordered by the fit that was not trained on it, and a trial is
    measured on all queries at once. This gives one violation over all queries with a bound from
    resampling them, instead of a mean of violations of small folds, which noise would raise.

    If no trial is within the limit, a warning says so, and the closest trial is returned.

    Examples
    --------
    >>> from functools import partial
    >>> from pairity import FairRanker, as_method, tune
    >>> from pairity.datasets import make_biased_ranking
    >>> train = make_biased_ranking(100, 20, strength=2, separation=2, random_state=0).queries()
    >>> tuned = tune(
    ...     partial(as_method, FairRanker()), {"tolerance": [0.01, 0.1, 0.2]}, train,
    ...     constraint="inter", epsilon=0.15, cv=3,
    ... )
    >>> tuned.method
    reweighted(tolerance=0.1)
    """
    if not callable(make):
        raise InputError(f"make must be a function from settings to a Method (got {show(make)}).")
    settled = TuneOptions(**options)
    confidence = settled.confidence
    rule = Rule(epsilon, confidence, settled.rule, settled.utility, settled.simultaneous)
    level = 0.95 if confidence is None else confidence
    measuring = sweeps.as_measuring(constraint, level, settled.n_resamples)
    if len(measuring.constraints) != 1:
        raise InputError(f"constraint is {show(constraint)}. Pass one to tune by.")
    trials: dict[tuple[str, str], tuple[dict[str, Any], Method]] = {}
    tried = _find_space(make, space)
    for settings in draw_settings(tried, settled.search, settled.budget, random_state):
        method = _make(make, settings)
        trials.setdefault(Run.of(method, 0).key, (settings, method))
    queries = sweeps.as_queries(train, "train")
    jobs, data = _jobs([method for _, method in trials.values()], queries, cv, int(random_state))
    runs = run_jobs(jobs, len(jobs), measuring, {"train": queries, **data}, settled, "Tuning")
    frontier = sweeps.make_frontier(runs, measuring)
    choice = frontier.choose(frontier.constraints[0], rule)
    if choice.point is None:
        warn(str(choice), TargetNotReachedWarning, stacklevel=2)
    settings, method = list(trials.values())[frontier.points.index(choice.point or choice.closest)]
    return Tuned(method, settings, choice, frontier)


def tune_all(
    makers: Mapping[str, Make | tuple[Make, Space | str | None]], train: Any, **options: Any
) -> dict[str, Tuned]:
    """Tune several methods with the same budget, split and rule.

    Parameters
    ----------
    makers : mapping from name to a function that makes the method, or to it and its space
        The methods get these names.
    train : Queries
    **options
        Those of `tune`, for all methods.

    Returns
    -------
    dict from name to Tuned

    Examples
    --------
    ::

        best = tune_all({"reweighted": make_fair, "lagrangian": make_lagrangian}, train,
                        constraint="inter", epsilon=0.05, budget=10)
        sweep([tuned.method for tuned in best.values()], train, test)
    """
    if not isinstance(makers, Mapping) or not makers:
        raise InputError("makers has no methods. Pass a mapping from name to function.")
    results = {}
    for name, value in makers.items():
        make, space = value if isinstance(value, tuple) else (value, None)
        named = partial(_make_named, make, name)
        results[name] = tune(named, _find_space(make, space), train, **options)
    return results


def tuned(make: Make, space: Space | str | None = None, **options: Any) -> Method:
    """Make a method that tunes itself on its training queries, and then trains on all of them.

    Parameters
    ----------
    make, space
        As in `tune`.
    **options
        Those of `tune`, except `random_state`, which is the seed of the fit.

    Returns
    -------
    Method
        Its settings are the rule, the budget and the space. The choice of a fit is logged.

    Examples
    --------
    ::

        rule = {"constraint": "inter", "epsilon": 0.05, "budget": 10}
        sweep([tuned(make_fair, **rule), tuned(make_lagrangian, **rule)], queries, seeds=range(5))
    """
    if "random_state" in options:
        raise InputError("The seed of the fit is the random_state. Omit it.")
    tried = _find_space(make, space)
    first = draw_settings(tried, options.get("search", "grid"), options.get("budget", 20), 0)[0]
    example = _make(make, first)

    def fit(train: Queries, random_state: int) -> Scorer:
        settled = {"progress": False, **options, "random_state": random_state}
        best = tune(make, tried, train, **settled)
        _log.info("%s", best.choice)
        return best.method.fit(train, random_state)

    settings = {name: value for name, value in options.items() if name not in _NOT_SHOWN}
    settings["space"] = json.dumps(_plain_space(tried))
    return Method(example.name, fit, example.needs_group, settings)


def _make_named(make: Make, name: str, /, **settings: Any) -> Method:
    return replace(make(**settings), name=name)


# --- settings to try -----------------------------------------------------------------------------


def draw_settings(
    space: Space, search: str, budget: int, random_state: Any
) -> list[dict[str, Any]]:
    """Return the settings that a search tries.

    Parameters
    ----------
    space : mapping, or list of mappings
    search : {"grid", "random"}
    budget : int
    random_state : int, RandomState instance or None

    Examples
    --------
    >>> from pairity.comparisons.tuning import draw_settings
    >>> draw_settings({"slack": [0.0, 0.1], "rounds": [5]}, "grid", 10, 0)
    [{'rounds': 5, 'slack': 0.0}, {'rounds': 5, 'slack': 0.1}]
    """
    parts = _checked_space(space)
    budget = require_count(budget, "budget")
    require_choice("search", search, ("grid", "random"))
    drawn = [name for part in parts for name, values in part.items() if hasattr(values, "rvs")]
    if search == "grid" and drawn:
        raise InputError(
            f"A grid needs lists, but {drawn[0]!r} is a distribution. Pass search='random'."
        )
    if not drawn:
        grid = _distinct(ParameterGrid(parts))
        if len(grid) <= budget:
            return grid
        if search == "grid":
            raise InputError(
                f"The grid has {len(grid)} settings, but the budget is {budget} trials. Raise the "
                "budget (for every method), list fewer values, or pass search='random'."
            )
        order = check_random_state(random_state).permutation(len(grid))
        return [grid[index] for index in order[:budget]]
    sampler = ParameterSampler(parts, budget * _DRAWS_PER_TRIAL, random_state=random_state)
    return _distinct(sampler, budget)


def _distinct(
    candidates: Iterable[dict[str, Any]], most: int | None = None
) -> list[dict[str, Any]]:
    """Return settings without repetitions, at most `most` of them."""
    distinct: dict[str, dict[str, Any]] = {}
    for settings in candidates:
        distinct.setdefault(json.dumps(plain_settings(settings), sort_keys=True), settings)
        if len(distinct) == most:
            break
    return list(distinct.values())


def _find_space(make: Make, space: Space | str | None) -> Space:
    if space is not None and not isinstance(space, str):
        return space
    try:
        name = make().name if space is None else space
    except TypeError as error:
        raise InputError(
            f"The settings to try are unknown ({error}). Pass a space, such as "
            "{'slack': [0, 0.1]}."
        ) from error
    if name not in METHODS:
        raise InputError(
            f"There is no space for {name!r}. Pass one, such as {{'slack': [0, 0.1]}}, or one of "
            f"the names {', '.join(map(repr, METHODS))}."
        )
    return METHODS[name].paper_range


def _checked_space(space: Any) -> list[dict[str, Any]]:
    parts = [space] if isinstance(space, Mapping) else space
    if not isinstance(parts, Sequence) or isinstance(parts, str) or not parts:
        raise InputError(f"The space is {show(space)}. Pass a mapping from settings to lists.")
    checked = []
    for part in parts:
        if not isinstance(part, Mapping) or not all(isinstance(key, str) for key in part):
            raise InputError(f"{show(part)} is not a mapping from names of settings to lists.")
        for key, values in part.items():
            listed = isinstance(values, (Sequence, np.ndarray)) and not isinstance(values, str)
            if not hasattr(values, "rvs") and not (listed and len(values)):
                raise InputError(
                    f"The values of {key!r} are {show(values)}. Pass a list of at least one value, "
                    "or a distribution of scipy.stats."
                )
        checked.append({key: v if hasattr(v, "rvs") else list(v) for key, v in part.items()})
    return checked


def _plain_space(space: Space) -> list[dict[str, Any]]:
    return [
        plain_settings(
            {key: _show_distribution(v) if hasattr(v, "rvs") else v for key, v in part.items()}
        )
        for part in _checked_space(space)
    ]


def _show_distribution(distribution: Any) -> str:
    """Return a distribution of scipy.stats with its parameters, such as ``loguniform(0.01, 1)``."""
    kind = getattr(getattr(distribution, "dist", distribution), "name", type(distribution).__name__)
    arguments = [*map(str, getattr(distribution, "args", ()))]
    arguments += [f"{key}={value}" for key, value in getattr(distribution, "kwds", {}).items()]
    return f"{kind}({', '.join(arguments)})"


def _make(make: Make, settings: dict[str, Any]) -> Method:
    """Return the method with these settings, which it then shows."""
    try:
        method = make(**settings)
    except TypeError as error:
        raise InputError(f"make does not take {show(settings)}: {error}.") from error
    if not isinstance(method, Method):
        raise InputError(f"make must return a Method (got {show(method)}).")
    return replace(method, settings={**method.settings, **settings})


# --- held-out queries ----------------------------------------------------------------------------


def _jobs(
    methods: Sequence[Method], queries: Queries, cv: Any, seed: int
) -> tuple[list[Job], dict[str, Any]]:
    """Return the jobs, and what tells them apart in a directory."""
    if is_real(cv) and isinstance(cv, Integral):
        require_groups(queries)
        require_preferences(queries)
        validation: Any = sweeps.without_weightless(queries)
        queries, folds = validation, query_folds(validation.n_queries, int(cv), seed)
        methods = [cross_fitted(method, folds) for method in methods]
        data: dict[str, Any] = {"folds": int(cv), "split": seed}
    else:
        validation = sweeps.as_held_out(cv, queries, "cv")
        data = {"validation": validation}
        if not isinstance(validation, Queries):
            data["split"] = seed
            queries, validation = queries.split(validation, seed)
        validation = sweeps.without_weightless(validation)
    return [Job(method, seed, queries, validation=validation) for method in methods], data
