"""sweep: run methods × settings × seeds, and measure each on held-out queries."""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pairity._utils.validation import is_real, require_count, show
from pairity.audits.audit import name_constraints, require_sampling
from pairity.baselines.methods import Method, as_method
from pairity.comparisons.frontiers import Frontier
from pairity.comparisons.jobs import Job, RunOptions, run_jobs
from pairity.comparisons.runs import UTILITIES, Measuring, Run
from pairity.constraints import CATALOGUE
from pairity.data.checks import require_groups, require_preferences
from pairity.data.queries import Queries
from pairity.data.splits import draw_in_turn
from pairity.exceptions import InputError, PairityWarning

Ratios = tuple[float | None, float | None]  # held-out queries per training query


def sweep(
    methods: Any,
    train: Any,
    test: Any = 0.2,
    *,
    validation: Any = None,
    constraints: Any = tuple(CATALOGUE),
    seeds: Iterable[int] = (0,),
    **options: Any,
) -> Frontier:
    """Run methods × settings × seeds, and measure each on held-out queries.

    Parameters
    ----------
    methods : mapping from name to Method, model or list of them; or a list of them; or one
        Models are those of `pairity.as_method`. Two methods of the same name need different
        settings.
    train : Queries
        The training queries, or all queries if others are split off.
    test : Queries or float, default=0.2
        The queries to measure on, or a share of `train` that each seed splits off by query.
    validation : Queries or float, optional
        Further queries to measure on, which `Frontier.pick` needs. A share is taken of the rest
        of `train` after the test queries are split off.
    constraints : str, Constraint or function, or a sequence of them
        The violations to measure; by default all four, averaged by query.
    seeds : sequence of int
        Each seed is passed to every method, and splits the queries if there is a share. Shares
        are held out in turn, as in repeated cross-validation. With a share of 0.2, the seeds 0 to
        4 hold out all queries, and 5 to 9 once more in another order (a few queries twice if
        shares do not divide them). The validation share moves on when all have been held out.
    **options
        The fields of `pairity.comparisons.jobs.RunOptions`:

        n_jobs : int, optional
            The number of runs at a time, each in its own process (joblib); -1 for all cores. By
            default 1, because most fits use several threads themselves.
        directory : path, optional
            Where every finished run is stored. An interrupted sweep resumes from there: runs of
            the same method, settings, seed, data and measures are read, not repeated.
        progress : {"auto"} or bool
        confidence : float, default=0.95, of the confidence intervals
        n_resamples : int, default=1000
            Bootstrap samples of queries; 0 for no intervals.

    Returns
    -------
    Frontier

    Notes
    -----
    A run that fails is reported by a warning, and the table has its error; the other runs
    continue. The notes of a run contain pairity's warnings during the run. With a directory, failed
    runs are repeated the next time.

    A directory identifies a method by its settings only. After a change to the code of your own
    method or constraint, choose another directory.

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
    >>> from pairity import FairRanker, LinearRanker, sweep
    >>> from pairity.datasets import make_biased_ranking
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
    run_options = RunOptions(**options)
    listed, numbers = as_methods(methods), _seeds(seeds)
    measuring = as_measuring(constraints, run_options.confidence, run_options.n_resamples)
    queries = as_queries(train, "train")
    test = as_held_out(test, queries, "test")
    if validation is not None:
        validation = as_held_out(validation, queries, "validation")

    def jobs() -> Iterator[Job]:
        for seed in numbers:
            rest, tested, validated = split_in_turn(seed, queries, test, validation)
            tested = without_weightless(tested)
            validated = None if validated is None else without_weightless(validated)
            for method in listed:
                yield Job(method, seed, rest, tested, validated)

    data = {"train": queries, "test": test, "validation": validation, "shares": "in turn"}
    runs = run_jobs(jobs(), len(listed) * len(numbers), measuring, data, run_options)
    position = {Run.of(method, 0).key: index for index, method in enumerate(listed)}
    runs.sort(key=lambda run: position[run.key])  # stable: seeds stay in order
    return make_frontier(runs, measuring, _ratios(test, validation))


def split_in_turn(
    seed: int, queries: Queries, test: Queries | float, validation: Queries | float | None = None
) -> tuple[Queries, Queries, Queries | None]:
    """Return the training, test and validation queries of a seed; see `sweep`."""
    number, shift = seed, 0
    if not isinstance(test, Queries):
        held_out, number = draw_in_turn(queries.n_queries, test, number)
        shift = int(held_out.argmax())  # so that seeds with other test queries validate on others
        queries, test = queries.take(~held_out), queries.take(held_out)
    if validation is not None and not isinstance(validation, Queries):
        held_out, _ = draw_in_turn(queries.n_queries, validation, number, shift)
        queries, validation = queries.take(~held_out), queries.take(held_out)
    return queries, test, validation


def make_frontier(
    runs: Iterable[Run], measuring: Measuring, ratios: Ratios = (None, None)
) -> Frontier:
    """Make the frontier of these runs, and warn of failed ones."""
    names, definitions = measuring.constraints, map(repr, measuring.constraints.values())
    confidence = measuring.confidence
    frontier = Frontier(tuple(runs), tuple(names), confidence, *ratios, tuple(definitions))
    if frontier.failures:
        message = f"{frontier.describe_failures()} See `failures` for all."
        warnings.warn(message, PairityWarning, stacklevel=3)
    return frontier


def as_methods(methods: Any) -> list[Method]:
    """Return a list of distinct methods from all that `sweep` accepts."""
    if isinstance(methods, Mapping) and not isinstance(methods, Queries):
        listed: list[Method] = []
        for name, models in methods.items():
            if not isinstance(name, str) or not name.strip():
                raise InputError(f"{name!r} is not a name for a method. Pass a text.")
            listed += [replace(as_method(model), name=name) for model in _as_list(models)]
    else:
        listed = [as_method(model) for model in _as_list(methods)]
    if not listed:
        raise InputError("There are no methods. Pass at least one.")
    keys: set[tuple[str, str]] = set()
    for run in (Run.of(method, 0) for method in listed):
        if run.key in keys:
            raise InputError(
                f"Two methods are both known as {run.label}. Give them different names or settings."
            )
        keys.add(run.key)
    return listed


def _as_list(models: Any) -> list[Any]:
    return list(models) if isinstance(models, (list, tuple)) else [models]


def as_measuring(constraints: Any, confidence: float, n_resamples: int) -> Measuring:
    """Return what to measure, after checks."""
    require_sampling(confidence, n_resamples)
    named = name_constraints(constraints)
    for name in named:
        if name in UTILITIES:
            raise InputError(f"A constraint is named {name!r}, which is a utility. Rename it.")
    return Measuring(named, float(confidence), int(n_resamples))


def _ratios(test: Queries | float, validation: Queries | float | None) -> Ratios:
    """Return the held-out queries per training query, None for queries that are not split off."""
    of_test = None if isinstance(test, Queries) else test
    of_rest = None if isinstance(validation, Queries) else validation
    rest = 1.0 - (of_test or 0.0)
    train = rest * (1.0 - (of_rest or 0.0))
    return of_test and of_test / train, of_rest and rest * of_rest / train


def _seeds(seeds: Any) -> tuple[int, ...]:
    try:
        listed = tuple(seeds)
    except TypeError:
        raise InputError(f"seeds must be a sequence, such as range(5) (got {seeds!r}).") from None
    numbers = tuple(require_count(seed, "each of the seeds", least=0) for seed in listed)
    if not 0 < len(numbers) == len(set(numbers)):
        raise InputError(f"seeds must be different, such as range(5) (got {show(seeds)}).")
    return numbers


def as_queries(value: Any, name: str) -> Queries:
    """Return queries, also from a mapping of their arrays."""
    if isinstance(value, Queries):
        return value
    if isinstance(value, Mapping):
        return Queries.from_arrays(**value)
    raise InputError(f"{name} is {show(value)}. Pass Queries, as Queries.from_arrays makes them.")


def as_held_out(value: Any, train: Queries, name: str) -> Queries | float:
    """Return the queries to measure on, or the share to split off."""
    if is_real(value):
        if not 0.0 < value < 1.0:
            raise InputError(f"{name} must be Queries or a share between 0 and 1 (got {value!r}).")
        require_groups(train)
        return float(value)
    queries = as_queries(value, name)
    require_groups(queries)
    require_preferences(queries)
    if queries.groups != train.groups and set(queries.groups) <= set(train.groups):
        return queries.with_groups_of(train)  # for scorers that read groups
    return queries


def without_weightless(queries: Queries) -> Queries:
    """Return the queries whose weight is not 0."""
    weight = queries.weight_of_query
    return queries if weight.all() else queries.take(np.flatnonzero(weight))
