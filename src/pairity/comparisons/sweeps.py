"""sweep: methods × settings × seeds, run, measured on held-out queries, resumable."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import ceil
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairity._utils.progress import Show
from pairity._utils.validation import is_real, show
from pairity.audits.audit import name_constraints, require_sampling
from pairity.baselines.methods import Method, as_method
from pairity.comparisons.frontiers import Frontier
from pairity.comparisons.runs import (
    UTILITIES,
    Job,
    Measuring,
    Store,
    fingerprint,
    new_run,
    run_all,
    run_key,
)
from pairity.constraints import CATALOGUE
from pairity.data.queries import Queries, require_groups, require_preferences
from pairity.data.splits import draw_queries, share_size
from pairity.exceptions import InputError, PairityWarning


def sweep(
    methods: Any,
    train: Any,
    test: Any = 0.2,
    *,
    validation: Any = None,
    constraints: Any = tuple(CATALOGUE),
    seeds: Iterable[int] = (0,),
    n_jobs: int | None = None,
    directory: str | os.PathLike[str] | None = None,
    progress: Show = "auto",
    confidence: float = 0.95,
    n_resamples: int = 1000,
) -> Frontier:
    """Run methods × settings × seeds, and measure what each makes of held-out queries.

    Parameters
    ----------
    methods : mapping from name to Method, model or list of them; or a list of them; or one
        Models are whatever `pairity.baselines.methods.as_method` takes. Two of one name need
        different
        settings.
    train : Queries
        The training queries, or all queries where others are split off.
    test : Queries or float, default=0.2
        The queries to measure on, or a share of `train` to split off, by query, another for each
        seed.
    validation : Queries or float, optional
        Further queries to measure on, which `Frontier.pick` needs; a share is that of what is left
        of `train` once the test queries are split off.
    constraints : str, Constraint or function, or a sequence of them
        Which violations to measure; all four by default, averaged by query.
    seeds : sequence of int
        Each seed is handed to every method, and splits where there is a share to split: shares
        are held out in turn, as in repeated cross-validation. With a share of 0.2, the seeds 0 to
        4 hold out all queries, 5 to 9 once more in another order (a few are held out twice where
        shares do not divide them); the share for validation moves on when all have been.
    n_jobs : int, optional
        How many runs at a time, each in a process of its own (joblib); -1 for all cores. By
        default one after the other, since most fits use several threads themselves.
    directory : path, optional
        Where to keep every finished run. An interrupted sweep that is started again goes on from
        there: runs of the same method, settings, seed, data and measures are read, not done.
    progress : {"auto"} or bool
    confidence : float, of the intervals
    n_resamples : int, bootstrap samples of whole queries; 0 for no intervals

    Returns
    -------
    Frontier

    Notes
    -----
    A run that fails is reported by a warning, and its error stands in the table; other runs go
    on. What pairity warns of during a run stands in its notes. With a directory, failed runs are
    done again the next time.

    Settings are all that a directory knows of a method: after a change to the code of a method or
    constraint of your own, choose another directory.

    Queries of weight 0 are not measured on.

    References
    ----------
    C. Nadeau and Y. Bengio, *Inference for the Generalization Error*, Machine Learning 52, 2003.
    R. R. Bouckaert and E. Frank, *Evaluating the Replicability of Significance Tests for Comparing
    Learning Algorithms*, PAKDD 2004, for intervals over repeated cross-validations.
    T. Hesterberg, *What Teachers Should Know About the Bootstrap*, The American Statistician 69,
    2015.

    Examples
    --------
    >>> from pairity import FairRanker, LinearRanker
    >>> from pairity.datasets import make_biased_ranking
    >>> from pairity.comparisons.sweeps import sweep
    >>> queries = make_biased_ranking(120, 20, strength=2, separation=2, random_state=0).queries()
    >>> frontier = sweep(
    ...     {
    ...         "plain": LinearRanker(),
    ...         "reweighted": [FairRanker(tolerance=t) for t in (0.01, 0.1)],
    ...     },
    ...     queries, validation=0.25, constraints="inter",
    ... )
    >>> [point.label for point in frontier.front("inter")]
    ['plain()', 'reweighted(tolerance=0.1)', 'reweighted()']
    >>> choice = frontier.pick("inter", epsilon=0.3)
    >>> choice.point
    reweighted(tolerance=0.1)
    """
    chosen = as_methods(methods)
    numbers = _seeds(seeds)
    measuring = as_measuring(constraints, confidence, n_resamples)
    queries = as_queries(train, "train")
    fixed_test = as_held_out(test, queries, "test")
    fixed_validation = (
        None if validation is None else as_held_out(validation, queries, "validation")
    )
    store = None
    if directory is not None:
        data = {
            "train": fingerprint(queries),
            "test": fingerprint_of(fixed_test),
            "validation": fingerprint_of(fixed_validation),
            "shares": "in turn",
        }
        store = Store.at(directory, {**data, **about_measuring(measuring)})

    def jobs() -> Iterator[Job]:
        for seed in numbers:
            rest, held, checked = split_for(seed, queries, fixed_test, fixed_validation)
            held = without_weightless(held)
            checked = None if checked is None else without_weightless(checked)
            for method in chosen:
                yield Job(method, seed, rest, held, checked)

    runs = run_all(
        jobs(), len(chosen) * len(numbers), measuring,
        n_jobs=n_jobs, progress=progress, store=store,
    )  # fmt: skip
    by_method = {run_key(new_run(method, 0)): at for at, method in enumerate(chosen)}
    runs.sort(key=lambda run: by_method[run_key(run)])  # stable: seeds stay in order
    frontier = Frontier(
        tuple(runs), tuple(measuring.constraints), measuring.confidence,
        *_ratios(fixed_test, fixed_validation), tuple(map(repr, measuring.constraints.values())),
    )  # fmt: skip
    warn_of_failures(frontier)
    return frontier


def as_methods(methods: Any) -> list[Method]:
    """A list of methods from whatever `sweep` takes, no two of them alike."""
    listed: list[Method] = []
    if isinstance(methods, Mapping) and not isinstance(methods, Queries):
        for name, held in methods.items():
            if not isinstance(name, str) or not name.strip():
                raise InputError(f"{name!r} is not a name for a method.")
            for each in _listed(held):
                made = as_method(each, name=name)
                listed.append(replace(made, name=name))
    else:
        listed = [as_method(each) for each in _listed(methods)]
    if not listed:
        raise InputError("There are no methods. Give at least one.")
    seen: set[tuple[str, str]] = set()
    for method in listed:
        run = new_run(method, 0)
        if run_key(run) in seen:
            raise InputError(
                f"Two methods are both known as {run.label}. Give them different names, or "
                "settings that tell them apart."
            )
        seen.add(run_key(run))
    return listed


def _listed(held: Any) -> list[Any]:
    return list(held) if isinstance(held, (list, tuple)) else [held]


def as_measuring(constraints: Any, confidence: float, n_resamples: int) -> Measuring:
    """What to measure, checked."""
    require_sampling(confidence, n_resamples)
    named = name_constraints(constraints)
    clash = next((name for name in named if name in UTILITIES), None)
    if clash is not None:
        raise InputError(f"A constraint is known as {clash!r}, which is a utility. Rename it.")
    return Measuring(named, float(confidence), int(n_resamples))


def warn_of_failures(frontier: Frontier) -> None:
    """Say how many runs failed, and why the first did."""
    failures = frontier.failures
    if not failures:
        return
    first = failures[0]
    warnings.warn(
        f"{len(failures)} of {len(frontier.runs)} runs failed. The first, {first.label} with seed "
        f"{first.seed}: {first.error} See `failures` for all.",
        PairityWarning,
        stacklevel=3,
    )


def about_measuring(measuring: Measuring) -> dict[str, Any]:
    """How runs are measured, as plain values."""
    return {
        "constraints": {name: repr(each) for name, each in measuring.constraints.items()},
        "confidence": measuring.confidence,
        "n_resamples": measuring.n_resamples,
    }


def fingerprint_of(held: Queries | float | None) -> str | float | None:
    """The digest of queries; a share as it is."""
    return fingerprint(held) if isinstance(held, Queries) else held


def split_for(
    seed: int, queries: Queries, test: Queries | float, validation: Queries | float | None = None
) -> tuple[Queries, Queries, Queries | None]:
    """The queries that a sweep trains on with this seed, those it tests on, and validates on."""
    number, shift = seed, 0
    if not isinstance(test, Queries):
        held, number = _in_turn(queries.n_queries, test, number)
        shift = int(held.argmax())  # so that seeds which test on others validate on others too
        queries, test = queries.take(~held), queries.take(held)
    if validation is not None and not isinstance(validation, Queries):
        held, _ = _in_turn(queries.n_queries, validation, number, shift)
        queries, validation = queries.take(~held), queries.take(held)
    return queries, test, validation


def _in_turn(
    n_queries: int, share: float, number: int, shift: int = 0
) -> tuple[NDArray[np.bool_], int]:
    """Which queries are held out at this number, and how often all have been before.

    Consecutive numbers hold out one share after the other of a random order, beginning `shift`
    shares later, as the folds of a cross-validation do, and then those of another order.
    """
    n_turns = ceil(n_queries / share_size(n_queries, share))
    n_before, turn = divmod(number, n_turns)
    return draw_queries(n_queries, share, n_before, turn=(turn + shift) % n_turns), n_before


def _ratios(
    test: Queries | float, validation: Queries | float | None
) -> tuple[float | None, float | None]:
    """Held-out queries for each training query, where they are split off."""
    of_test = None if isinstance(test, Queries) else test
    of_rest = None if validation is None or isinstance(validation, Queries) else validation
    left = 1.0 - (of_test or 0.0)
    train = left * (1.0 - (of_rest or 0.0))
    return (
        None if of_test is None else of_test / train,
        None if of_rest is None else left * of_rest / train,
    )


def _seeds(seeds: Any) -> tuple[int, ...]:
    try:
        given = tuple(seeds)
    except TypeError:
        raise InputError(f"seeds is {seeds!r}; give a sequence, such as range(5).") from None
    whole = all(isinstance(seed, Integral) and not isinstance(seed, bool) for seed in given)
    if not given or not whole or min(given) < 0 or len(set(given)) < len(given):
        raise InputError(
            f"seeds is {show(seeds)}; give different whole numbers from 0 up, such as range(5)."
        )
    return tuple(int(seed) for seed in given)


def as_queries(given: Any, name: str) -> Queries:
    """Queries, also from a mapping of their arrays."""
    if isinstance(given, Queries):
        return given
    if isinstance(given, Mapping):
        return Queries.from_arrays(**given)
    raise InputError(f"{name} is {show(given)}. Give Queries, as Queries.from_arrays makes them.")


def as_held_out(given: Any, train: Queries, name: str) -> Queries | float:
    """Queries to measure on, or the share to split off."""
    if is_real(given):
        if not 0.0 < given < 1.0:
            raise InputError(f"{name} is {given!r}; give Queries, or a share between 0 and 1.")
        require_groups(train)
        return float(given)
    queries = as_queries(given, name)
    require_groups(queries)
    require_preferences(queries)
    if queries.groups != train.groups and set(queries.groups) <= set(train.groups):
        return queries.with_groups_of(train)  # for scorers that read groups
    return queries


def without_weightless(queries: Queries) -> Queries:
    """The queries whose weight is not 0."""
    weight = queries.weight_of_query
    return queries if weight.all() else queries.take(np.flatnonzero(weight))
