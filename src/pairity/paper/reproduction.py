"""reproduce: run all experiments of the paper, resumable, and write the results."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pairity._utils.files import atomic_write
from pairity._utils.json_codec import Entry as Document
from pairity._utils.json_codec import Place, parse_document, to_plain
from pairity._utils.progress import Show
from pairity._utils.text import to_csv
from pairity._utils.validation import require_choice, require_count
from pairity.comparisons.frontiers import Frontier
from pairity.data.queries import Queries
from pairity.datasets import load_engineering_students, load_mslr, load_trec_w3c
from pairity.datasets.download import places, present
from pairity.datasets.mslr import SAMPLE, MslrChoices
from pairity.exceptions import InputError
from pairity.paper import checks, pages, plots
from pairity.paper.claims import Claim, about_methods, about_shares
from pairity.paper.protocol import Entry, Setting, at_shares, by_setting, choose, run_setting

CLAIMS_FORMAT = "pairity claims 1"
SMALL = ("TREC", "Engineering Students")
DATA = (*SMALL, "MSLR")
_ATTRIBUTE = {"TREC": (True, False), "Engineering Students": (True, False), "MSLR": (False,)}
_N_SEEDS = {"TREC": 20, "Engineering Students": 20, "MSLR": 5}
_QUICK_SEEDS = 2
_CHOICES = {"with": (True,), "without": (False,), "both": (True, False)}


@dataclass(frozen=True)
class RunOptions:
    """How the experiments are run.

    Attributes
    ----------
    quick : bool, default=False
        Run two splits with fewer settings, and MSLR only if `data` names it. This takes minutes.
    bare : bool, default=False
        Run only the five methods: no plain update, no Adam, no shares of λ*, no further checks.
    n_jobs : int, optional
        The number of processes; -1 for all cores.
    progress : {"auto"} or bool
    command : str
        The command that was typed, which is written with the results.
    """

    quick: bool = False
    bare: bool = False
    n_jobs: int | None = -1
    progress: Show = "auto"
    command: str = ""


@dataclass(frozen=True, eq=False)
class Reproduction:
    """The results.

    Attributes
    ----------
    settings : tuple of Setting
    frontiers : dict from a setting's title to all its runs
    entries : list of Entry, the tuned methods
    shares : list of Entry, trained with x · λ*
    claims : list of Claim
    seconds : float
        The time of this call and of earlier complete calls for the same directory.
    command : str, the command that was typed
    """

    settings: tuple[Setting, ...]
    frontiers: dict[str, Frontier]
    entries: list[Entry]
    shares: list[Entry]
    claims: list[Claim]
    seconds: float
    command: str = ""


def reproduce(
    directory: str | os.PathLike[str],
    *,
    data_home: str | os.PathLike[str] | None = None,
    data: Sequence[str] = DATA,
    attribute: Literal["with", "without", "both"] = "both",
    n_seeds: int | None = None,
    **options: Any,
) -> Reproduction:
    """Run the paper's experiments, and write tables, plots and verdicts.

    Parameters
    ----------
    directory : path
        Where the results are written. Finished runs are kept in its folder ``runs``, from which
        an interrupted call resumes.
    data_home : path, optional
        The folder of the data sets; see `pairity.datasets.load_trec_w3c`.
    data : sequence of {"TREC", "Engineering Students", "MSLR"}
    attribute : {"with", "without", "both"}
        Whether the protected attribute is among the features. It never is for MSLR.
    n_seeds : int, optional
        The number of splits; by default 20, and 5 for MSLR.
    **options
        The fields of `RunOptions`: quick, bare, n_jobs, progress, command.

    Returns
    -------
    Reproduction
    """
    run_options = RunOptions(**options)
    for name in data:
        if name not in DATA:
            raise InputError(f"There is no data set {name!r}. Choose from {', '.join(DATA)}.")
    if n_seeds is not None:
        require_count(n_seeds, "n_seeds")
    require_choice("attribute", attribute, tuple(_CHOICES))
    if run_options.quick and tuple(data) == DATA:
        data = SMALL
    settings = [
        Setting(
            name,
            with_attribute,
            _load(name, with_attribute, data_home, run_options.progress),
            n_seeds or (_QUICK_SEEDS if run_options.quick else _N_SEEDS[name]),
        )
        for name in data
        for with_attribute in _ATTRIBUTE[name]
        if with_attribute in _CHOICES[attribute]
    ]
    if not settings:
        raise InputError("MSLR's groups are not among its features. Use attribute='without'.")
    return run_settings(settings, directory, run_options)


def run_settings(
    settings: Sequence[Setting], directory: str | os.PathLike[str], options: RunOptions
) -> Reproduction:
    """Compare the methods on any queries, judge the claims and write the results."""
    start = time.perf_counter()
    target = Path(directory)
    runs = target / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    result = Reproduction(tuple(settings), {}, [], [], [], 0.0, options.command)
    for setting in settings:
        frontier = run_setting(
            setting, extras=not options.bare, quick=options.quick, n_jobs=options.n_jobs,
            directory=runs / _file_name(setting.title, options.quick), progress=options.progress,
        )  # fmt: skip
        chosen, scaled = choose(frontier, setting), at_shares(frontier, setting)
        result.frontiers[setting.title] = frontier
        result.entries.extend(chosen)
        result.shares.extend(scaled)
        result.claims.extend(about_methods(setting.title, chosen))
        result.claims.extend(about_shares(setting.title, scaled))
    if not options.bare:
        result.claims.extend(_further_claims(settings, runs, options.quick))
    seconds = _add_seconds(runs / _file_name("seconds", options.quick), time.perf_counter() - start)
    result = replace(result, seconds=seconds)
    _write(target, result)
    return result


def _load(name: str, attribute: bool, home: Any, progress: Show) -> Queries:
    """Load a data set; of MSLR the largest version: WEB10K, the sample, or the excerpt."""
    options: dict[str, Any] = {"data_home": home, "progress": progress}
    if name != "MSLR":
        load = load_trec_w3c if name == "TREC" else load_engineering_students
        return load(group_as_feature=attribute, **options).queries()
    if any((folder / "MSLR-WEB10K").is_dir() for folder in places(home)):
        return load_mslr("web10k", MslrChoices(at_least=3), **options).queries()
    return load_mslr("sample" if present(SAMPLE, home) else "excerpt", **options).queries()


def _further_claims(settings: Sequence[Setting], runs: Path, quick: bool) -> list[Claim]:
    """Run the checks besides the comparison, or read the results of an earlier call."""
    n_worlds = 2 if quick else 10
    claims = _resume_claims(runs / f"theorem-{n_worlds}.json", partial(checks.theorem, n_worlds))
    for setting in settings:
        n_seeds = min(setting.n_seeds, 1 if quick else 10)
        if setting.data == "TREC" and setting.attribute:
            check = partial(checks.narrow_root, setting, n_seeds)
            claims += _resume_claims(runs / f"narrow-root-{n_seeds}.json", check)
        if setting.queries.n_groups > 2:
            name = f"many-groups-{_file_name(setting.title, quick)}.json"
            claims += _resume_claims(runs / name, partial(checks.many_groups, setting))
    return claims


def _resume_claims(path: Path, check: Callable[[], list[Claim]]) -> list[Claim]:
    if path.exists():
        place = Place(f"file {path}", "Delete it to run the check again.")
        stored = Document(parse_document(path.read_bytes(), CLAIMS_FORMAT, place), place)
        return list(stored.read("claims", tuple[Claim, ...]))
    claims = check()
    _write_text(path, json.dumps({"format": CLAIMS_FORMAT, "claims": to_plain(claims)}, indent=1))
    return claims


def _add_seconds(path: Path, seconds: float) -> float:
    """Add these seconds to those of earlier complete calls, whose runs this call has read."""
    earlier = float(path.read_text(encoding="utf-8")) if path.exists() else 0.0
    _write_text(path, repr(earlier + seconds))
    return earlier + seconds


def _write(target: Path, result: Reproduction) -> None:
    texts = {
        "results.csv": to_csv(map(pages.entry_row, result.entries)),
        "shares.csv": to_csv(map(pages.entry_row, result.shares)),
        "settings.csv": to_csv(by_setting(result.settings, result.frontiers)),
        "verdicts.csv": to_csv(map(pages.claim_row, result.claims)),
        "results.md": pages.results_page(result),
        "verdicts.md": pages.verdicts_page(result.claims),
    }
    for name, text in texts.items():
        if text:
            _write_text(target / name, text)
    plots.draw_all(target, result.settings, result.entries, result.shares)


def _write_text(path: Path, text: str) -> None:
    with atomic_write(path) as file:
        file.write(text.encode())


def _file_name(title: str, quick: bool) -> str:
    name = title.lower().replace(",", "").replace(" ", "-")
    return f"{name}-quick" if quick else name
