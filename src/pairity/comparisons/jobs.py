"""Jobs: the runs of a sweep, executed in one process or several, stored and resumed."""

import hashlib
import json
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairity._utils.files import FilePath, write_file
from pairity._utils.json_codec import Entry, Place, parse_document
from pairity._utils.progress import Progress, Show
from pairity.baselines.methods import Method, Rankings, Scorer
from pairity.comparisons.runs import Measuring, Result, Run, as_rankings
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
    directory: FilePath | None = None
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
    """

    method: Method
    seed: int
    train: Queries
    test: Queries | None = None
    validation: Queries | None = None

    def run(self, measuring: Measuring) -> Run:
        """Fit, score and measure; an exception becomes the error of the run."""
        run = Run.of(self.method, self.seed)
        with warnings.catch_warnings(record=True) as recorded:
            warnings.simplefilter("always", PairityWarning)
            try:
                run = self._measured(run, measuring)
            except Exception as error:  # a failure of one method must not lose the others
                message = f"{type(error).__name__}: {_first_line(error)}"
                run = replace(run, error=message.removesuffix(": "))
        return replace(run, notes=_notes(recorded))

    def _measured(self, run: Run, measuring: Measuring) -> Run:
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


def cross_fitted(method: Method, folds: Sequence[NDArray[np.int64]]) -> Method:
    """Return the method that orders each fold of its training queries by a fit on all others.

    `folds` are numbers of training queries.
    """

    def fit(train: Queries, random_state: int) -> Scorer:
        others = [np.setdiff1d(np.arange(train.n_queries), fold) for fold in folds]
        scorers = [method.fit(train.take(queries), random_state) for queries in others]
        return lambda queries: _pool(queries, folds, scorers)

    return replace(method, fit=fit)


def _pool(
    queries: Queries, folds: Sequence[NDArray[np.int64]], scorers: Sequence[Scorer]
) -> Result:
    """Order each fold by its scorer, and join the orders to one order of all queries."""
    held_out = [queries.take(fold) for fold in folds]
    parts = [as_rankings(own, scorer(own)) for own, scorer in zip(held_out, scorers, strict=True)]
    width = max(part.scores.shape[1] for part in parts)
    scores, probability = np.zeros((queries.n_items, width)), np.zeros((queries.n_queries, width))
    for fold, part in zip(map(np.sort, folds), parts, strict=True):
        own = slice(part.scores.shape[1])
        scores[np.isin(queries.query, fold), own] = part.scores
        probability[fold, own] = part.probability
    return Rankings(scores, probability) if width > 1 else scores[:, 0]


def _notes(recorded: Iterable[warnings.WarningMessage]) -> tuple[str, ...]:
    """Return the first lines of pairity's warnings, each once; issue other warnings again."""
    notes: dict[str, None] = {}
    for entry in recorded:
        if issubclass(entry.category, PairityWarning):
            notes[_first_line(entry.message)] = None
        else:
            warnings.warn_explicit(entry.message, entry.category, entry.filename, entry.lineno)
    return tuple(notes)


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
    order: list[tuple[Any, int]] = []
    runs: dict[tuple[Any, int], Run] = {}
    directory = options.directory
    store = None if directory is None else Store(directory, data, measuring)
    with Progress(n_jobs_total, description, options.progress) as bar:

        def finish(run: Run) -> None:
            runs[run.key, run.seed] = run
            bar.advance(len(runs), run.label)

        def missing() -> Iterator[Job]:
            for job in jobs:
                run = Run.of(job.method, job.seed)
                order.append((run.key, run.seed))
                known = None if store is None else store.read(run)
                if known is None:
                    yield job
                else:
                    finish(known)

        try:
            for run in _execute(missing(), measuring, options.n_jobs):
                if store is not None and run.error is None:
                    store.write(run)
                finish(run)
        except KeyboardInterrupt as interruption:
            state = "are lost. Pass a directory to store them"
            if store is not None:
                state = f"are stored in {store.directory}. Run the same again to resume"
            interruption.add_note(f"{len(runs)} of {n_jobs_total} runs were done and {state}.")
            raise
    return [runs[key] for key in order]


def _execute(jobs: Iterator[Job], measuring: Measuring, n_jobs: int | None) -> Iterator[Run]:
    if n_jobs in (None, 1):
        for job in jobs:
            yield job.run(measuring)
        return
    from joblib import Parallel, delayed

    work = Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=1)
    with warnings.catch_warnings():  # joblib replaces workers that have grown; no run is lost
        warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
        yield from work(delayed(methodcaller("run", measuring))(job) for job in jobs)


# --- storing -------------------------------------------------------------------------------------


class Store:
    """Finished runs in a directory, one JSON file for each, written completely or not at all.

    Runs about other data or measures are not found.

    Attributes
    ----------
    directory : Path, which is made
    about : dict of plain values
        What all runs share: the digests of the data and how they are measured.
    """

    def __init__(self, directory: FilePath, data: Mapping[str, Any], measuring: Measuring) -> None:
        self.directory = Path(directory)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            message = f"{self.directory} is a file. Pass a directory for the runs."
            raise InputError(message) from error
        digests = {name: v.digest() for name, v in data.items() if isinstance(v, Queries)}
        constraints = {name: repr(c) for name, c in measuring.constraints.items()}
        self.about = {**data, **digests, **vars(measuring), "constraints": constraints}

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
        write_file(self.path(run), json.dumps(content, allow_nan=False).encode())

    def _key(self, run: Run) -> dict[str, Any]:
        return {
            **self.about, "method": run.method, "settings": run.settings, "seed": run.seed,
            "needs_group": run.needs_group,
        }  # fmt: skip
