"""Runs: one method with its settings, fitted with one seed and measured; many of them, resumable.

A `Run` holds figures, no model: what `pairity.comparisons.frontiers` compares, averages and
draws. Where a
method draws its order at random, its figures are expectations over the draw, and their intervals
still come from resampling whole queries.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairity._utils.files import atomic_write
from pairity._utils.json_codec import Entry, Place, from_plain, parse_document, to_plain
from pairity._utils.progress import Progress, Show
from pairity._utils.typing import Array
from pairity.audits.audit import choose_gain
from pairity.audits.estimates import (
    Estimate,
    Measure,
    Statistics,
    Support,
    means,
    resampled_weights,
    violation,
    with_intervals,
)
from pairity.baselines.methods import Method, Rankings
from pairity.constraints import Constraint
from pairity.data.columns import as_numbers
from pairity.data.queries import Queries
from pairity.exceptions import InputError, PairityWarning
from pairity.metrics import ndcg
from pairity.metrics.positions import ratio
from pairity.pairs.cells import cell_counts, cell_sums

FORMAT = "pairity run 1"
UTILITIES = ("auc", "ndcg@10")
_DIGITS = 6  # of resampled violations, which are many

Result = Array | Rankings


@dataclass(frozen=True, eq=False)
class Run:
    """One method with its settings and one seed: fitted, and measured on held-out queries.

    Attributes
    ----------
    method : str
    settings : dict from str to a plain value; what is not plain stands as its repr
    seed : int
    needs_group : bool, whether groups are read where it is applied
    seconds : float, of fitting
    test, validation : dict from str to Figure
        Utility ("auc", "ndcg@10") and violations (under the constraint's name); empty where there
        were no such queries.
    resampled : dict from the constraint's name to a tuple of float
        The violation on the validation queries, resampled; what bounds are made of.
    notes : tuple of str, what was warned of, for example a target that was not reached
    error : str or None, why it failed; all other figures are then missing
    """

    method: str
    settings: dict[str, Any]
    seed: int
    needs_group: bool = False
    seconds: float = float("nan")
    test: dict[str, Estimate] = field(default_factory=dict)
    validation: dict[str, Estimate] = field(default_factory=dict)
    resampled: dict[str, tuple[float, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    error: str | None = None

    @property
    def label(self) -> str:
        """The method with its settings, such as ``lagrangian(slack=0.1)``."""
        return run_label(self.method, self.settings)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python; None where a number is not defined."""
        plain: dict[str, Any] = to_plain(self)
        return plain

    @classmethod
    def from_dict(cls, entries: Any) -> Run:
        """From what `to_dict` gave, checked; nothing in it is run."""
        run: Run = from_plain(cls, entries, Place("run", "Pass what to_dict() returned."))
        return run


# --- measuring -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Measuring:
    """What is measured of every run alike.

    Attributes
    ----------
    constraints : dict from name to Constraint
    confidence : float, of the intervals
    n_resamples : int
    """

    constraints: dict[str, Constraint]
    confidence: float = 0.95
    n_resamples: int = 1000

    def __call__(
        self, queries: Queries, result: Result
    ) -> tuple[dict[str, Estimate], dict[str, tuple[float, ...]]]:
        """Figures of an order of these queries, and the resampled violations by constraint.

        The figures are those of `pairity.audit`. For `Rankings` each is the expectation over the
        draw; a query is resampled with all its rankings.
        """
        copies = Copies.of(queries, result)
        support = Support(queries)
        measures = list(_utility(queries, copies))
        statistics = [means(measures, queries, support)]
        kept: dict[str, list[Array]] = {}
        for name, constraint in self.constraints.items():
            statistic = violation(constraint, name, copies.queries, copies.scores, support)
            kept[name] = []
            statistics.append(_resampled_by_query(statistic, copies, kept[name]))
        draws = resampled_weights(queries.weight_of_query, self.n_resamples, 0)
        estimates = [
            estimate
            for estimate in with_intervals(statistics, draws, self.confidence)
            if estimate.measure not in ("gap", "gap_within")
        ]
        named = {estimate.constraint or estimate.measure: estimate for estimate in estimates}
        resampled = {
            name: tuple(np.round(np.concatenate(parts), _DIGITS).tolist())
            for name, parts in kept.items()
            if parts and isfinite(named[name].high)
        }
        return named, resampled


@dataclass(frozen=True, eq=False)
class Copies:
    """An order of queries as one score per item, a query being there once for each ranking.

    Attributes
    ----------
    queries : Queries, the copies
    scores : array of shape (n_items of the copies,)
    original : int array, the query that each copy is of
    share : array, the probability of each copy
    """

    queries: Queries
    scores: Array
    original: NDArray[np.int64]
    share: Array

    @classmethod
    def of(cls, queries: Queries, result: Any) -> Copies:
        """From what a scorer returned, checked."""
        if not isinstance(result, Rankings):
            scores = as_numbers(result, "scores", queries.n_items)
            n = queries.n_queries
            return cls(queries, scores, np.arange(n), np.ones(n))
        _require_rankings(queries, result)
        copies, scores = result.expected(queries)
        query, ranking = np.nonzero(result.probability)
        return cls(copies, scores, query, result.probability[query, ranking])

    def expectation(self, values: Array, n_queries: int) -> Array:
        """The mean over each query's copies of a value per copy; NaN where one is."""
        sums = np.bincount(self.original, self.share * values, minlength=n_queries)
        return np.asarray(sums, dtype=np.float64)


def _require_rankings(queries: Queries, result: Rankings) -> None:
    scores, probability = np.asarray(result.scores), np.asarray(result.probability)
    n = probability.shape[-1] if probability.ndim == 2 else -1
    if probability.shape != (queries.n_queries, n) or scores.shape != (queries.n_items, n):
        raise InputError(
            f"Rankings of {queries.n_queries} queries and {queries.n_items} items have scores of "
            f"shape {scores.shape} and probabilities of shape {probability.shape}. Give one column "
            "for each ranking in both."
        )
    if not np.isfinite(scores).all() or not np.isfinite(probability).all():
        raise InputError("Rankings hold NaN or infinity. Give finite scores and probabilities.")
    off = np.abs(probability.sum(axis=1) - 1.0)
    if probability.min(initial=0.0) < 0.0 or off.max(initial=0.0) > 1e-6:
        at = int(off.argmax())
        raise InputError(
            f"The probabilities of a query's rankings add up to {probability[at].sum():g}, the "
            f"least being {probability.min():g}. Give none below 0, and make each row add up to 1."
        )


def _utility(queries: Queries, copies: Copies) -> Iterator[Measure]:
    held, scores = copies.queries, copies.scores
    sums = cell_sums(held, scores).sum(axis=(1, 2))
    pairs = Support(queries).all_pairs()
    by_copy = ratio(sums, cell_counts(held).sum(axis=(1, 2)))
    yield Measure("auc", copies.expectation(by_copy, queries.n_queries), pairs)
    by_copy = ndcg(held, scores, k=10, gain=choose_gain("auto", queries))
    yield Measure("ndcg@10", copies.expectation(by_copy, queries.n_queries))


def _resampled_by_query(statistic: Statistics, copies: Copies, kept: list[Array]) -> Statistics:
    """The estimate as a function of the weights of queries, not copies; keeps the violations."""
    again = statistic.resample
    if again is None:
        return statistic

    def resample(query_weight: Array) -> Array:
        values = again(query_weight[:, copies.original] * copies.share)
        kept.append(values[:, 0])
        return values

    return replace(statistic, resample=resample)


# --- running -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Job:
    """A run to be done.

    Attributes
    ----------
    method : Method
    seed : int
    train : Queries
    test, validation : Queries or None
    folds : sequence of int arrays, optional
        Numbers of training queries. Instead of one fit, there is one for each fold, on all other
        training queries; together they order all training queries, which are the validation.
    """

    method: Method
    seed: int
    train: Queries
    test: Queries | None = None
    validation: Queries | None = None
    folds: Sequence[NDArray[np.int64]] = ()

    def run(self, measuring: Measuring) -> Run:
        """Fit, score and measure; an exception becomes the run's error."""
        run = new_run(self.method, self.seed)
        with _noted() as notes:
            try:
                run = self._folds(run, measuring) if self.folds else self._once(run, measuring)
            except Exception as error:  # one method's failure must not lose the others
                told = str(error).partition("\n")[0]
                run = replace(run, error=f"{type(error).__name__}: {told}".removesuffix(": "))
        return replace(run, notes=tuple(notes))

    def _once(self, run: Run, measuring: Measuring) -> Run:
        began = time.perf_counter()
        scorer = self.method.fit(self.train, self.seed)
        seconds = time.perf_counter() - began
        test: dict[str, Estimate] = {}
        validation, resampled = dict(test), dict[str, tuple[float, ...]]()
        if self.validation is not None:
            result = self.method.score(scorer, self.validation)
            validation, resampled = measuring(self.validation, result)
        if self.test is not None:
            test, _ = measuring(self.test, self.method.score(scorer, self.test))
        return replace(run, seconds=seconds, test=test, validation=validation, resampled=resampled)

    def _folds(self, run: Run, measuring: Measuring) -> Run:
        results, seconds = [], 0.0
        for fold in self.folds:
            others = np.setdiff1d(np.arange(self.train.n_queries), fold)
            train, held = self.train.take(others), self.train.take(fold)
            began = time.perf_counter()
            scorer = self.method.fit(train, self.seed)
            seconds += time.perf_counter() - began
            results.append(self.method.score(scorer, held))
        pooled = _pooled(self.train, self.folds, results)
        validation, resampled = measuring(self.train, pooled)
        return replace(run, seconds=seconds, validation=validation, resampled=resampled)


def new_run(method: Method, seed: int) -> Run:
    """A run of the method that has not been done."""
    return Run(method.name, plain_settings(method.settings), seed, bool(method.needs_group))


def run_all(
    jobs: Iterable[Job],
    total: int,
    measuring: Measuring,
    *,
    n_jobs: int | None = None,
    progress: Show = "auto",
    store: Store | None = None,
    description: str = "Sweep",
) -> list[Run]:
    """Do the jobs that are not in the store, and put each there as soon as it is done.

    Runs come back in the order of the jobs. An interruption comes out of it, with a note that
    says what is kept.
    """
    runs: dict[int, Run] = {}
    with Progress(total, description, progress) as bar:

        def finish(at: int, run: Run, *, new: bool = True) -> None:
            runs[at] = run
            if new and store is not None and run.error is None:
                store.write(run)
            bar.advance(len(runs), run.label)

        def missing() -> Iterator[tuple[int, Job]]:
            for at, job in enumerate(jobs):
                known = None if store is None else store.read(new_run(job.method, job.seed))
                if known is None:
                    yield at, job
                else:
                    finish(at, known, new=False)

        try:
            if n_jobs in (None, 1):
                for at, job in missing():
                    finish(at, job.run(measuring))
            else:
                for at, run in _in_parallel(missing(), measuring, n_jobs):
                    finish(at, run)
        except KeyboardInterrupt as interruption:
            kept = "are lost; give a directory to keep them"
            if store is not None:
                kept = f"are kept in {store.directory}; run the same again to go on from there"
            interruption.add_note(f"{len(runs)} of {total} runs were done and {kept}.")
            raise
    return [runs[at] for at in sorted(runs)]


def _in_parallel(
    jobs: Iterator[tuple[int, Job]], measuring: Measuring, n_jobs: Any
) -> Iterator[tuple[int, Run]]:
    from joblib import Parallel, delayed

    work = Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=1)
    with warnings.catch_warnings():  # joblib replaces workers that have grown; no run is lost
        warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
        yield from work(delayed(_numbered)(at, job, measuring) for at, job in jobs)


def _numbered(at: int, job: Job, measuring: Measuring) -> tuple[int, Run]:
    return at, job.run(measuring)


def _pooled(
    queries: Queries, folds: Sequence[NDArray[np.int64]], results: Sequence[Result]
) -> Result:
    """What the folds' scorers made of their parts, as one order of all queries."""
    n_rankings = max(r.scores.shape[1] if isinstance(r, Rankings) else 1 for r in results)
    scores = np.zeros((queries.n_items, n_rankings))
    probability = np.zeros((queries.n_queries, n_rankings))
    for fold, result in zip(folds, results, strict=True):
        held = np.sort(fold)
        rows = np.flatnonzero(np.isin(queries.query, held))
        if isinstance(result, Rankings):
            _require_rankings(queries.take(held), result)
            scores[rows, : result.scores.shape[1]] = result.scores
            probability[held, : result.probability.shape[1]] = result.probability
        else:
            scores[rows, 0] = as_numbers(result, "scores", len(rows))
            probability[held, 0] = 1.0
    if any(isinstance(result, Rankings) for result in results):
        return Rankings(scores, probability)
    return np.ascontiguousarray(scores[:, 0])


@contextmanager
def _noted() -> Iterator[list[str]]:
    """Takes down what pairity warns of inside a block; other warnings go their way."""
    notes: dict[str, None] = {}
    told: list[str] = []
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", PairityWarning)
        yield told
    for each in seen:
        if issubclass(each.category, PairityWarning):
            notes[str(each.message).partition("\n")[0]] = None
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    told.extend(notes)


# --- on disk -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Store:
    """Finished runs in a directory, one JSON file for each, written whole or not at all.

    Attributes
    ----------
    directory : Path
    about : dict of plain values
        What all runs share: the data's fingerprint and how they are measured. Runs about
        something else are not found.
    """

    directory: Path
    about: dict[str, Any]

    @classmethod
    def at(cls, directory: str | os.PathLike[str], about: dict[str, Any]) -> Store:
        """In this directory, which is made where it is not there."""
        path = Path(directory)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise InputError(f"{path} is a file. Give a directory for the runs.") from error
        return cls(path, about)

    def path(self, run: Run) -> Path:
        """Where the run belongs, done or not."""
        text = json.dumps(self._key(run), sort_keys=True)
        return self.directory / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"

    def read(self, run: Run) -> Run | None:
        """The run, done, where it is here; a file that is not one of ours is warned of."""
        path = self.path(run)
        try:
            return self._read(path, self._key(run))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            told = str(error).partition("\n")[0]
            warnings.warn(
                f"{path} should hold the run {run.label}, seed {run.seed}, but cannot be read: "
                f"{told} It is done again, and the file overwritten.",
                PairityWarning,
                stacklevel=2,
            )
            return None

    def _read(self, path: Path, key: dict[str, Any]) -> Run:
        place = Place(f"file {path}", "")
        stored = Entry(parse_document(path.read_bytes(), FORMAT, place), place)
        if stored.get("key") != key:
            raise InputError("it is about another run.")
        run: Run = stored.read("run", Run)
        return run

    def write(self, run: Run) -> None:
        """Put a finished run here."""
        held = {"format": FORMAT, "key": self._key(run), "run": run.to_dict()}
        with atomic_write(self.path(run)) as file:
            file.write(json.dumps(held, allow_nan=False).encode())

    def _key(self, run: Run) -> dict[str, Any]:
        return {
            **self.about, "method": run.method, "settings": run.settings, "seed": run.seed,
            "needs_group": run.needs_group,
        }  # fmt: skip


def fingerprint(queries: Queries) -> str:
    """A digest of all that queries hold: features, labels, ids, groups and weights."""
    from joblib import hash as digest

    held = (
        queries.X, queries.y, queries.query, queries.query_ids.tolist(), queries.group,
        list(queries.groups), queries.item_weight, queries.query_weight,
    )  # fmt: skip
    return str(digest(held, hash_name="sha1"))


# --- settings as plain values ---------------------------------------------------------------------


def plain_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that JSON can hold: numbers, texts and the like, and the repr of all else."""
    return {str(name): _plain(value) for name, value in settings.items()}


def run_label(method: str, settings: Mapping[str, Any]) -> str:
    """A method with its settings, such as ``lagrangian(slack=0.1)``."""
    return f"{method}({show_settings(settings)})"


def show_settings(settings: Mapping[str, Any]) -> str:
    """Settings on one line, such as ``slack=0.1``."""
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def run_key(run: Run) -> tuple[str, str]:
    """What runs with other seeds share."""
    return run.method, json.dumps(run.settings, sort_keys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else repr(value)
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    named = getattr(value, "__qualname__", None)  # functions and classes, without their address
    return (
        f"{value.__module__}.{named}" if isinstance(named, str) else " ".join(repr(value).split())
    )
