"""Jobs: the runs of a sweep, executed in one process or several, stored and resumed."""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairity._utils.files import atomic_write
from pairity._utils.json_codec import Entry, Place, parse_document
from pairity._utils.progress import Progress, Show
from pairity.baselines.methods import Method, Rankings
from pairity.comparisons.runs import Measuring, Result, Run, require_rankings
from pairity.data.columns import as_numbers
from pairity.data.queries import Queries
from pairity.exceptions import InputError, PairityWarning

FORMAT = "pairity run 1"


@dataclass(frozen=True)
class RunOptions:
    """How the runs of a sweep are executed and measured.

    Attributes
    ----------
    n_jobs : int, optional
        The number of runs at a time, each in its own process (joblib); -1 for all cores. By
        default one run follows the other, because most fits use several threads themselves.
    directory : path, optional
        Where every finished run is stored. An interrupted sweep that is started again resumes from
        there: runs of the same method, settings, seed, data and measures are read, not repeated.
    progress : {"auto"} or bool
    confidence : float, of the confidence intervals
    n_resamples : int
        Bootstrap samples of queries; 0 for no intervals.
    """

    n_jobs: int | None = None
    directory: str | os.PathLike[str] | None = None
    progress: Show = "auto"
    confidence: float = 0.95
    n_resamples: int = 1000


@dataclass(frozen=True, eq=False)
class Job:
    """A run that is to be done.

    Attributes
    ----------
    method : Method
    seed : int
    train : Queries
    test, validation : Queries or None
    folds : sequence of int arrays, optional
        Numbers of training queries. Instead of one fit, there is one fit for each fold, on all
        other training queries. The fits order all training queries, which are the validation.
    """

    method: Method
    seed: int
    train: Queries
    test: Queries | None = None
    validation: Queries | None = None
    folds: Sequence[NDArray[np.int64]] = ()

    def run(self, measuring: Measuring) -> Run:
        """Fit, score and measure; an exception becomes the error of the run."""
        run = Run.of(self.method, self.seed)
        with _recorded_warnings() as notes:
            try:
                run = self._folds(run, measuring) if self.folds else self._once(run, measuring)
            except Exception as error:  # a failure of one method must not lose the others
                message = f"{type(error).__name__}: {_first_line(error)}"
                run = replace(run, error=message.removesuffix(": "))
        return replace(run, notes=tuple(notes))

    def _once(self, run: Run, measuring: Measuring) -> Run:
        start = time.perf_counter()
        scorer = self.method.fit(self.train, self.seed)
        run = replace(run, seconds=time.perf_counter() - start)
        if self.validation is not None:
            result = self.method.score(scorer, self.validation)
            validation, resampled = measuring(self.validation, result)
            run = replace(run, validation=validation, resampled=resampled)
        if self.test is not None:
            test, _ = measuring(self.test, self.method.score(scorer, self.test))
            run = replace(run, test=test)
        return run

    def _folds(self, run: Run, measuring: Measuring) -> Run:
        results, seconds = [], 0.0
        for fold in self.folds:
            others = np.setdiff1d(np.arange(self.train.n_queries), fold)
            train, held_out = self.train.take(others), self.train.take(fold)
            start = time.perf_counter()
            scorer = self.method.fit(train, self.seed)
            seconds += time.perf_counter() - start
            results.append(self.method.score(scorer, held_out))
        pooled = _pool(self.train, self.folds, results)
        validation, resampled = measuring(self.train, pooled)
        return replace(run, seconds=seconds, validation=validation, resampled=resampled)


def _pool(
    queries: Queries, folds: Sequence[NDArray[np.int64]], results: Sequence[Result]
) -> Result:
    """Join the orders of the folds to one order of all queries."""
    n_rankings = max(r.scores.shape[1] if isinstance(r, Rankings) else 1 for r in results)
    scores = np.zeros((queries.n_items, n_rankings))
    probability = np.zeros((queries.n_queries, n_rankings))
    for fold, result in zip(map(np.sort, folds), results, strict=True):
        rows = np.isin(queries.query, fold)
        if isinstance(result, Rankings):
            require_rankings(queries.take(fold), result)
            scores[rows, : result.scores.shape[1]] = result.scores
            probability[fold, : result.probability.shape[1]] = result.probability
        else:
            scores[rows, 0] = as_numbers(result, "scores", int(rows.sum()))
            probability[fold, 0] = 1.0
    if any(isinstance(result, Rankings) for result in results):
        return Rankings(scores, probability)
    return np.ascontiguousarray(scores[:, 0])


@contextmanager
def _recorded_warnings() -> Iterator[list[str]]:
    """Record pairity's warnings inside a block, and issue all other warnings again after it."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always", PairityWarning)
        yield notes
    for entry in recorded:
        if not issubclass(entry.category, PairityWarning):
            warnings.warn_explicit(entry.message, entry.category, entry.filename, entry.lineno)
        elif (note := _first_line(entry.message)) not in notes:
            notes.append(note)


def _first_line(message: Warning | Exception | str) -> str:
    return str(message).partition("\n")[0]


# --- executing -----------------------------------------------------------------------------------


def run_jobs(
    jobs: Iterable[Job],
    n_jobs_total: int,
    measuring: Measuring,
    data: Mapping[str, Any],
    options: RunOptions,
    description: str = "Sweep",
) -> list[Run]:
    """Do the jobs that are not stored, and store each as soon as it is done.

    Runs are returned in the order of the jobs. An interruption is raised, with a note that says
    what is stored. `data` names the queries and shares that tell stored runs apart.
    """
    runs: dict[int, Run] = {}
    directory = options.directory
    store = None if directory is None else Store.create(directory, data, measuring)
    with Progress(n_jobs_total, description, options.progress) as bar:

        def finish(number: int, run: Run, *, new: bool = True) -> None:
            runs[number] = run
            if new and store is not None and run.error is None:
                store.write(run)
            bar.advance(len(runs), run.label)

        def missing() -> Iterator[tuple[int, Job]]:
            for number, job in enumerate(jobs):
                known = None if store is None else store.read(Run.of(job.method, job.seed))
                if known is None:
                    yield number, job
                else:
                    finish(number, known, new=False)

        try:
            for number, run in _execute(missing(), measuring, options.n_jobs):
                finish(number, run)
        except KeyboardInterrupt as interruption:
            state = "are lost. Pass a directory to store them"
            if store is not None:
                state = f"are stored in {store.directory}. Run the same again to resume"
            interruption.add_note(f"{len(runs)} of {n_jobs_total} runs were done and {state}.")
            raise
    return [runs[number] for number in sorted(runs)]


def _execute(
    jobs: Iterator[tuple[int, Job]], measuring: Measuring, n_jobs: int | None
) -> Iterator[tuple[int, Run]]:
    if n_jobs in (None, 1):
        for number, job in jobs:
            yield number, job.run(measuring)
        return
    from joblib import Parallel, delayed

    work = Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=1)
    with warnings.catch_warnings():  # joblib replaces workers that have grown; no run is lost
        warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
        yield from work(delayed(_run_numbered)(number, job, measuring) for number, job in jobs)


def _run_numbered(number: int, job: Job, measuring: Measuring) -> tuple[int, Run]:
    return number, job.run(measuring)


# --- storing -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Store:
    """Finished runs in a directory, one JSON file for each, written completely or not at all.

    Attributes
    ----------
    directory : Path
    about : dict of plain values
        What all runs share: the digests of the data and how they are measured. Runs about other
        data or measures are not found.
    """

    directory: Path
    about: dict[str, Any]

    @classmethod
    def create(
        cls, directory: str | os.PathLike[str], data: Mapping[str, Any], measuring: Measuring
    ) -> Store:
        """Return the store of runs on these data, and make its directory."""
        path = Path(directory)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise InputError(f"{path} is a file. Pass a directory for the runs.") from error
        about = {
            name: value.digest() if isinstance(value, Queries) else value
            for name, value in data.items()
        }
        about |= {
            "constraints": {name: repr(c) for name, c in measuring.constraints.items()},
            "confidence": measuring.confidence,
            "n_resamples": measuring.n_resamples,
        }
        return cls(path, about)

    def path(self, run: Run) -> Path:
        """Return the file of the run, whether it is stored or not."""
        text = json.dumps(self._key(run), sort_keys=True)
        return self.directory / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"

    def read(self, run: Run) -> Run | None:
        """Return the stored run, or None; a file that cannot be read is warned of."""
        path = self.path(run)
        place = Place(f"file {path}", "")
        try:
            stored = Entry(parse_document(path.read_bytes(), FORMAT, place), place)
            if stored.get("key") != self._key(run):
                raise InputError("It is about another run.")
            known: Run = stored.read("run", Run)
            return known
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            warnings.warn(
                f"{path} should hold the run {run.label}, seed {run.seed}, but cannot be read: "
                f"{_first_line(error)} The run is repeated, and the file overwritten.",
                PairityWarning,
                stacklevel=2,
            )
            return None

    def write(self, run: Run) -> None:
        """Store a finished run."""
        content = {"format": FORMAT, "key": self._key(run), "run": run.to_dict()}
        with atomic_write(self.path(run)) as file:
            file.write(json.dumps(content, allow_nan=False).encode())

    def _key(self, run: Run) -> dict[str, Any]:
        return {
            **self.about, "method": run.method, "settings": run.settings, "seed": run.seed,
            "needs_group": run.needs_group,
        }  # fmt: skip
