"""Tuning: every method alike, with the same budget and by the same rule.

A comparison in which only one method is tuned is worth nothing. `tune` tries settings of one method
on held-out queries and chooses by the rule of `Frontier.pick`; `tune_all` does so for several with
one budget; `tuned` makes a method of it, which tunes itself on whatever it is trained on, so that a
`sweep` over several splits tunes every method on every split.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from numbers import Integral
from typing import Any
from warnings import warn

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import ParameterGrid, ParameterSampler
from sklearn.utils import check_random_state

from pairity._utils.progress import Show
from pairity._utils.validation import show
from pairity.baselines.methods import Method, Scorer
from pairity.comparisons.catalogue import METHODS
from pairity.comparisons.frontiers import Frontier, as_utility
from pairity.comparisons.runs import (
    Job,
    Store,
    fingerprint,
    new_run,
    plain_settings,
    run_all,
    run_key,
)
from pairity.comparisons.selection import Choice, require_choice
from pairity.comparisons.sweeps import (
    about_measuring,
    as_held_out,
    as_measuring,
    as_queries,
    fingerprint_of,
    warn_of_failures,
    without_weightless,
)
from pairity.data.queries import Queries, require_groups, require_preferences
from pairity.exceptions import InputError, TargetNotReachedWarning

Make = Callable[..., Method]
Space = Mapping[str, Any] | Sequence[Mapping[str, Any]]

_log = logging.getLogger(__name__)
_DRAWS_PER_TRIAL = 20  # before giving up on finding settings that were not tried


@dataclass(frozen=True, eq=False)
class Tuned:
    """What tuning chose, and all it tried.

    Attributes
    ----------
    method : Method
        With the chosen settings, not fitted. Where no trial came within the limit, the closest.
    settings : dict, the chosen ones, as they were handed to `make`
    choice : Choice, by which rule, with which bound
    trials : Frontier, every trial, with its figures on the validation queries
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
    rule: str = "most accurate",
    confidence: float | None = 0.95,
    utility: str = "auc",
    simultaneous: bool = False,
    search: str = "grid",
    budget: int = 20,
    cv: Any = 0.2,
    random_state: int = 0,
    n_jobs: int | None = None,
    directory: str | os.PathLike[str] | None = None,
    progress: Show = "auto",
    n_resamples: int = 1000,
) -> Tuned:
    """Try settings of a method on held-out queries, and choose among them by a stated rule.

    Parameters
    ----------
    make : callable
        Given settings as keywords, a Method: ``partial(lagrangian, parity)``, or
        ``partial(as_method, FairRanker(constraint="inter"))``.
    space : mapping from setting to a list of values or a scipy.stats distribution; or a list of
        such mappings; or a name in `pairity.comparisons.catalogue.METHODS`; or None
        None takes the paper's range of the method that `make` makes, looked up by its name.
    train : Queries
        What to tune on; it is split by query.
    constraint : str, Constraint or function
    epsilon : float
        The violation to stay within.
    rule, confidence, utility, simultaneous
        As in `Frontier.pick`.
    search : {"grid", "random"}
        All combinations of the listed values, or so many drawn at random, none twice.
    budget : int, default=20
        The most trials. A grid may not have more; a space that has fewer is tried out in full.
    cv : float, int or Queries, default=0.2
        A share of the queries to validate on, or the number of folds of a cross-validation, or
        the validation queries themselves.
    random_state : int
        Splits, draws settings, and is every trial's seed.
    n_jobs, directory, progress, n_resamples
        As in `pairity.comparisons.sweeps.sweep`.

    Returns
    -------
    Tuned

    Notes
    -----
    In cross-validation every query is ordered by the fit that did not see it, and the figures of
    a trial are those of all queries so ordered: one violation over all queries, with a bound from
    resampling them, rather than a mean of the violations of small folds, which noise would raise.

    Where no trial comes within the limit, that is warned of, and the closest is the one to use.

    Examples
    --------
    >>> from functools import partial
    >>> from pairity import FairRanker
    >>> from pairity.datasets import make_biased_ranking
    >>> from pairity.baselines.methods import as_method
    >>> from pairity.comparisons.tuning import tune
    >>> train = make_biased_ranking(100, 20, strength=2, separation=2, random_state=0).queries()
    >>> tuned = tune(
    ...     partial(as_method, FairRanker()), {"tolerance": [0.01, 0.1, 0.2]}, train,
    ...     constraint="inter", epsilon=0.15, cv=3,
    ... )
    >>> tuned.method
    reweighted(tolerance=0.1)
    """
    if not callable(make):
        raise InputError(f"make is {show(make)}; give a function from settings to a Method.")
    as_utility(utility)
    require_choice(epsilon, confidence, rule)
    level = 0.95 if confidence is None else float(confidence)
    measuring = as_measuring(constraint, level, n_resamples)
    if len(measuring.constraints) != 1:
        raise InputError(f"constraint is {show(constraint)}; give one to tune by.")
    found: dict[tuple[str, str], tuple[dict[str, Any], Method]] = {}
    for settings in draw_settings(_space(make, space), search, budget, random_state):
        method = _made(make, settings)
        found.setdefault(run_key(new_run(method, 0)), (settings, method))
    trials = list(found.values())
    methods = [method for _, method in trials]
    queries = as_queries(train, "train")
    jobs, data = _jobs(methods, queries, cv, int(random_state))
    store = None
    if directory is not None:
        store = Store.at(
            directory, {"train": fingerprint(queries), **data, **about_measuring(measuring)}
        )
    runs = run_all(
        jobs, len(methods), measuring,
        n_jobs=n_jobs, progress=progress, store=store, description="Tuning",
    )  # fmt: skip
    said = tuple(map(repr, measuring.constraints.values()))
    frontier = Frontier(tuple(runs), tuple(measuring.constraints), level, definitions=said)
    warn_of_failures(frontier)
    choice = frontier.pick(
        next(iter(measuring.constraints)), epsilon,
        rule=rule, confidence=confidence, utility=utility, simultaneous=simultaneous,
    )  # fmt: skip
    if choice.point is None:
        warn(str(choice), TargetNotReachedWarning, stacklevel=2)
    at = frontier.points.index(choice.point or choice.closest)
    settings, method = trials[at]
    return Tuned(method, settings, choice, frontier)


def tune_all(
    makers: Mapping[str, Make | tuple[Make, Space | str | None]], train: Any, **options: Any
) -> dict[str, Tuned]:
    """Tune several methods with one budget, one split and one rule.

    Parameters
    ----------
    makers : mapping from name to a function that makes the method, or to it and its space
        The names are given to the methods.
    train : Queries
    **options
        Those of `tune`, for all alike.

    Returns
    -------
    dict from name to Tuned

    Examples
    --------
    ::

        best = tune_all({"reweighted": ours, "lagrangian": theirs}, train,
                        constraint="inter", epsilon=0.05, budget=10)
        sweep([tuned.method for tuned in best.values()], train, test)
    """
    if not isinstance(makers, Mapping) or not makers:
        raise InputError("makers has no methods. Give a mapping from name to function.")
    done = {}
    for name, given in makers.items():
        make, space = given if isinstance(given, tuple) else (given, None)
        if space is None:
            space = _space(make, None)
        done[name] = tune(_Named(make, name), space, train, **options)
    return done


def tuned(make: Make, space: Space | str | None = None, **options: Any) -> Method:
    """A method that tunes itself on the queries it is trained on, and then trains on all of them.

    Parameters
    ----------
    make, space
        As in `tune`.
    **options
        Those of `tune`; the seed of the fit is the `random_state`.

    Returns
    -------
    Method
        Its settings are the rule, the budget and the space. What a fit chose is logged.

    Examples
    --------
    ::

        rule = {"constraint": "inter", "epsilon": 0.05, "budget": 10}
        sweep([tuned(ours, **rule), tuned(theirs, **rule)], queries, 0.2, seeds=range(5))
    """
    wanted = _space(make, space)
    first = draw_settings(wanted, options.get("search", "grid"), options.get("budget", 20), 0)[0]
    example = _made(make, first)
    if "random_state" in options:
        raise InputError("The seed of the fit is the random_state. Leave it out.")

    def fit(train: Queries, random_state: int) -> Scorer:
        best = tune(
            make, wanted, train, **{"progress": False, **options, "random_state": random_state}
        )
        _log.info("%s", best.choice)
        return best.method.fit(train, random_state)

    quiet = ("progress", "n_jobs", "directory")
    shown = {name: value for name, value in options.items() if name not in quiet}
    shown["space"] = json.dumps(_plain_space(wanted))
    return Method(example.name, fit, example.needs_group, shown)


@dataclass(frozen=True, eq=False)
class _Named:
    """Makes methods of another name."""

    make: Make
    name: str

    def __call__(self, **settings: Any) -> Method:
        return replace(self.make(**settings), name=self.name)


# --- settings to try -----------------------------------------------------------------------------


def draw_settings(
    space: Space, search: str, budget: int, random_state: Any
) -> list[dict[str, Any]]:
    """The settings that a search tries.

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
    if not _is_whole(budget) or budget < 1:
        raise InputError(f"budget is {budget!r}; give the number of trials, such as 20.")
    if search not in ("grid", "random"):
        raise InputError(f"search is {search!r}; choose 'grid' or 'random'.")
    drawn = next((key for part in parts for key, v in part.items() if hasattr(v, "rvs")), None)
    if search == "grid" and drawn is not None:
        raise InputError(f"A grid needs lists, but {drawn!r} is a distribution. Search at random.")
    if drawn is None:
        grid = _unlike(ParameterGrid(parts))
        if len(grid) <= budget:
            return grid
        if search == "grid":
            raise InputError(
                f"The grid has {len(grid)} settings, but the budget is {budget} trials. Raise the "
                "budget (for every method), list fewer values, or search at random."
            )
        order = check_random_state(random_state).permutation(len(grid))
        return [grid[at] for at in order[:budget]]
    sampler = ParameterSampler(parts, int(budget) * _DRAWS_PER_TRIAL, random_state=random_state)
    return _unlike(sampler, int(budget))


def _unlike(settings: Iterable[dict[str, Any]], most: int | None = None) -> list[dict[str, Any]]:
    """Settings without those that came before."""
    found: dict[str, dict[str, Any]] = {}
    unlike = (
        found.setdefault(key, each)
        for each in settings
        if (key := json.dumps(plain_settings(each), sort_keys=True)) not in found
    )
    return list(islice(unlike, most))


def _space(make: Make, space: Space | str | None) -> Space:
    if space is not None and not isinstance(space, str):
        return space
    name = space
    if name is None:
        try:
            name = make().name
        except TypeError as error:
            raise InputError(
                f"What to try is not known: {error}. Give a space, such as {{'slack': [0, 0.1]}}."
            ) from error
    if name not in METHODS:
        raise InputError(
            f"There is no space for {name!r}. Give one, such as {{'slack': [0, 0.1]}}, or the name "
            f"of one of {', '.join(map(repr, METHODS))}."
        )
    return METHODS[name].paper_range


def _checked_space(space: Any) -> list[dict[str, Any]]:
    parts = [space] if isinstance(space, Mapping) else space
    if not isinstance(parts, Sequence) or isinstance(parts, str) or not parts:
        raise InputError(f"The space is {show(space)}; give a mapping from settings to lists.")
    checked = []
    for part in parts:
        if not isinstance(part, Mapping) or not all(isinstance(key, str) for key in part):
            raise InputError(f"{show(part)} is not a mapping from names of settings to lists.")
        for key, values in part.items():
            listed = isinstance(values, (Sequence, np.ndarray)) and not isinstance(values, str)
            if not hasattr(values, "rvs") and not (listed and len(values)):
                raise InputError(
                    f"The values of {key!r} are {show(values)}. Give a list of at least one, or a "
                    "distribution of scipy.stats."
                )
        checked.append({key: v if hasattr(v, "rvs") else list(v) for key, v in part.items()})
    return checked


def _plain_space(space: Space) -> list[dict[str, Any]]:
    return [
        plain_settings({key: _frozen(v) if hasattr(v, "rvs") else v for key, v in part.items()})
        for part in _checked_space(space)
    ]


def _frozen(distribution: Any) -> str:
    """A distribution of scipy.stats with its parameters, such as ``loguniform(0.01, 1)``."""
    kind = getattr(getattr(distribution, "dist", distribution), "name", type(distribution).__name__)
    given = [*map(str, getattr(distribution, "args", ()))]
    given += [f"{key}={value}" for key, value in getattr(distribution, "kwds", {}).items()]
    return f"{kind}({', '.join(given)})"


def _made(make: Make, settings: dict[str, Any]) -> Method:
    """The method with these settings, which it then names."""
    try:
        method = make(**settings)
    except TypeError as error:
        raise InputError(f"make does not take {show(settings)}: {error}.") from error
    if not isinstance(method, Method):
        raise InputError(f"make returned {show(method)}; it must return a Method.")
    return replace(method, settings={**method.settings, **settings})


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


# --- held-out queries ----------------------------------------------------------------------------


def _jobs(
    methods: Sequence[Method], queries: Queries, cv: Any, seed: int
) -> tuple[list[Job], dict[str, Any]]:
    """What to do, and what a directory must know of it."""
    if _is_whole(cv):
        require_groups(queries)
        require_preferences(queries)
        queries = without_weightless(queries)
        folds = query_folds(queries.n_queries, int(cv), seed)
        jobs = [Job(method, seed, queries, folds=folds) for method in methods]
        return jobs, {"folds": int(cv), "split": seed}
    held = as_held_out(cv, queries, "cv")
    if isinstance(held, Queries):
        rest, about = queries, {"validation": fingerprint_of(held)}
    else:
        about = {"validation": held, "split": seed}
        rest, held = queries.split(held, seed)
    held = without_weightless(held)
    return [Job(method, seed, rest, validation=held) for method in methods], about


def query_folds(n_queries: int, n_folds: int, random_state: Any) -> list[NDArray[np.int64]]:
    """The numbers of the queries in each fold, drawn at random, as even as can be."""
    if not 2 <= n_folds <= n_queries:
        raise InputError(
            f"{n_folds} folds of {n_queries} queries: give from 2 folds up to one for each query."
        )
    order = check_random_state(random_state).permutation(n_queries)
    return [np.sort(fold) for fold in np.array_split(order, n_folds)]
