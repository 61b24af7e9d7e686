"""reproduce: run all experiments of the paper, resumable, and write the results."""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pairity._utils.files import write_file
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
from pairity.paper import checks, claims, plots, protocol
from pairity.paper.claims import Claim, Mean, Verdict, level_over_seeds
from pairity.paper.protocol import COMPARED, CONSTRAINTS, READS_GROUPS, Entry, Setting
from pairity.reports.observations import show_versions

CLAIMS_FORMAT = "pairity claims 1"
SMALL = ("TREC", "Engineering Students")
DATA = (*SMALL, "MSLR")
_ATTRIBUTE = {"TREC": (True, False), "Engineering Students": (True, False), "MSLR": (False,)}
_N_SEEDS = {"TREC": 20, "Engineering Students": 20, "MSLR": 5}
_QUICK_SEEDS = 2
_LIBRARIES = ("pairity", "numpy", "scipy", "scikit-learn", "numba", "torch")
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
        frontier = protocol.run_setting(
            setting, extras=not options.bare, quick=options.quick, n_jobs=options.n_jobs,
            directory=runs / _file_name(setting.title, options.quick), progress=options.progress,
        )  # fmt: skip
        chosen = protocol.choose(frontier, setting)
        scaled = protocol.at_shares(frontier, setting)
        result.frontiers[setting.title] = frontier
        result.entries.extend(chosen)
        result.shares.extend(scaled)
        result.claims.extend(claims.about_methods(setting.title, chosen))
        result.claims.extend(claims.about_shares(setting.title, scaled))
    if not options.bare:
        result.claims.extend(_further_claims(settings, runs, options.quick))
    timing = runs / _file_name("seconds", options.quick)
    earlier = float(timing.read_text(encoding="utf-8")) if timing.exists() else 0.0
    result = replace(result, seconds=earlier + time.perf_counter() - start)
    write_file(timing, repr(result.seconds).encode())
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
    further = _resume_claims(runs / f"theorem-{n_worlds}.json", partial(checks.theorem, n_worlds))
    for setting in settings:
        n_seeds = min(setting.n_seeds, 1 if quick else 10)
        if setting.data == "TREC" and setting.attribute:
            check = partial(checks.narrow_root, setting, n_seeds)
            further += _resume_claims(runs / f"narrow-root-{n_seeds}.json", check)
        if setting.queries.n_groups > 2:
            name = f"many-groups-{_file_name(setting.title, quick)}.json"
            further += _resume_claims(runs / name, partial(checks.many_groups, setting))
    return further


def _resume_claims(path: Path, check: Callable[[], list[Claim]]) -> list[Claim]:
    if path.exists():
        place = Place(f"file {path}", "Delete it to run the check again.")
        stored = Document(parse_document(path.read_bytes(), CLAIMS_FORMAT, place), place)
        return list(stored.read("claims", tuple[Claim, ...]))
    measured = check()
    content = {"format": CLAIMS_FORMAT, "claims": to_plain(measured)}
    write_file(path, json.dumps(content, indent=1).encode())
    return measured


def _write(target: Path, result: Reproduction) -> None:
    texts = {
        "results.csv": to_csv(map(_entry_row, result.entries)),
        "shares.csv": to_csv(map(_entry_row, result.shares)),
        "settings.csv": to_csv(protocol.by_setting(result.settings, result.frontiers)),
        "verdicts.csv": to_csv(map(_claim_row, result.claims)),
        "results.md": _results_page(result),
        "verdicts.md": _verdicts_page(result.claims),
    }
    for name, text in texts.items():
        if text:
            write_file(target / name, text.encode())
    plots.draw_all(target, result.settings, result.entries, result.shares)


def _file_name(title: str, quick: bool) -> str:
    name = title.lower().replace(",", "").replace(" ", "-")
    return f"{name}-quick" if quick else name


# --- tables as CSV and Markdown ------------------------------------------------------------------


def _entry_row(entry: Entry) -> dict[str, Any]:
    """Return an entry as columns of a table."""
    row = {**vars(entry), "settings": json.dumps(entry.settings, sort_keys=True)}
    seconds, fairness = row.pop("seconds"), row.pop("fairness")
    row |= {f"fairness_{name}": fairness[name] for name in CONSTRAINTS}
    return {**row, "seconds": seconds}


def _claim_row(claim: Claim) -> dict[str, Any]:
    """Return a claim as columns of a table."""
    row = {**vars(claim), **vars(claim.estimate)}
    names = ["text", "data", "constraint", "measured", "value", "low", "high", "n", "verdict"]
    titles = {"text": "claim", "n": "seeds"}
    return {titles.get(name, name): row[name] for name in names}


def _results_page(result: Reproduction) -> str:
    """Return the means over seeds of every method on every data set, as Markdown."""
    command = f"`{result.command}`: " if result.command else ""
    blocks = [
        "# Results",
        "Test AUC and fairness (1 − violation), averaged over queries, then over seeds, with 95 % "
        "intervals over seeds. Each seed splits the queries anew and in turn: five seeds test on "
        "all queries, and five queries have twenty splits, all of which twenty seeds use. Each "
        f"method was fitted with up to {protocol.BUDGET} settings. For each seed, the most "
        "accurate setting on the validation queries was chosen among those whose violation is "
        f"within {protocol.CLOSE} of the lowest; settings.csv has the means of each setting. "
        "*Front*: whether none of the other four methods has both means at least as high. † reads "
        "the groups of the items it ranks.",
        f"{command}{result.seconds / 60:.0f} min, {show_versions(*_LIBRARIES)}.",
    ]
    for setting in result.settings:
        queries = setting.queries
        blocks += [
            f"## {setting.title}",
            f"{queries.n_queries} queries, {queries.n_items:,} items, {queries.n_groups} groups, "
            f"{setting.n_seeds} seeds.",
        ]
        entries = [entry for entry in result.entries if setting.matches(entry)]
        for constraint in CONSTRAINTS:
            blocks += [f"### {constraint}", _result_table(entries, constraint)]
    return _page(*blocks, *_comparison_with_previous(result))


def _result_table(entries: Sequence[Entry], constraint: str) -> str:
    others = [name for name in CONSTRAINTS if name != constraint]
    rows = [["method", "AUC", "fairness", "front", *others, "seconds"]]
    own = [entry for entry in entries if entry.constraint == constraint]
    by_method = {name: [e for e in own if e.method == name] for name in (e.method for e in own)}
    means = {
        method: (level_over_seeds(e.auc for e in matching), _mean_fairness(matching, constraint))
        for method, matching in by_method.items()
    }
    for method, matching in by_method.items():
        auc, fairness = means[method]
        dominated = any(
            means[other][0].value >= auc.value and means[other][1].value >= fairness.value
            for other in (means.keys() & COMPARED) - {method}
        )
        title = f"{method} †" if method == READS_GROUPS else method
        front = ("no" if dominated else "yes") if method in COMPARED else ""
        beside = [f"{_mean_fairness(matching, name).value:.3f}" for name in others]
        seconds = f"{sum(e.seconds for e in matching) / len(matching):.2f}"
        rows.append([title, str(auc), str(fairness), front, *beside, seconds])
    return _markdown(rows)


def _mean_fairness(entries: Sequence[Entry], constraint: str) -> Mean:
    return level_over_seeds(entry.fairness[constraint] for entry in entries)


def _comparison_with_previous(result: Reproduction) -> list[str]:
    rows = list(compare_with_previous(result))
    if not rows:
        return []
    header = [
        "data", "method", "constraint", "earlier AUC", "pairity", "earlier fairness", "pairity",
        "within",
    ]  # fmt: skip
    return [
        "## Comparison with an earlier version",
        "A throwaway version, written before this one, measured the plain ranker and 30 loops of "
        "the paper's update on five splits. The table has its means, pairity's means of the same "
        "settings without tuning, and whether pairity's intervals over splits contain both. The "
        "earlier version kept the last round. pairity keeps the round with the lowest violation, "
        "which helps where the update overshoots.",
        _markdown([header, *rows]),
    ]


def _verdicts_page(judged: Sequence[Claim]) -> str:
    """Return the paper's claims and what was measured, as Markdown."""
    counts = [[text, *map(str, n.values())] for text, n in claims.count_verdicts(judged).items()]
    header = ["claim", "data", "constraint", "measured", "value", "verdict"]
    details = [list(map(str, vars(claim).values())) for claim in judged]
    return _page(
        "# Verdicts",
        "A claim *holds* if the 95 % interval of its estimate over seeds is above zero, *does not "
        "hold* if the interval is below zero, and is *not decided* otherwise. A claim that "
        "compares with several others holds if all intervals are above zero, and does not hold if "
        "one is below.",
        _markdown([["claim", *map(str, Verdict)], *counts]),
        _markdown([header, *details]),
    )


def _page(*blocks: str) -> str:
    return "\n\n".join(blocks) + "\n"


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    header, *body = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *body))


# --- results of an earlier version ---------------------------------------------------------------

# A throwaway version, written before pairity, measured the plain ranker and the paper's update on
# five random splits by query. pairity's measurements use the same settings, without tuning.
_LOOPS = 30  # of the earlier version's update


class Previous(NamedTuple):
    """A measurement of the earlier version: test AUC and fairness, means of five splits."""

    data: str
    attribute: bool
    method: str
    constraint: str
    auc: float
    fairness: float


PREVIOUS = (
    Previous("Engineering Students", True, "plain", "statistical", 0.763, 0.477),
    Previous("Engineering Students", True, "plain", "inter", 0.763, 0.605),
    Previous("Engineering Students", True, "plain", "intra", 0.763, 0.976),
    Previous("Engineering Students", True, "plain", "marginal", 0.763, 0.797),
    Previous("TREC", False, "plain", "statistical", 0.567, 0.915),
    Previous("TREC", False, protocol.PLAIN_UPDATE, "statistical", 0.570, 0.917),
    Previous("TREC", True, "plain", "statistical", 0.633, 0.025),
    Previous("TREC", True, protocol.PLAIN_UPDATE, "statistical", 0.520, 0.104),
    Previous("TREC", True, "plain", "inter", 0.633, 0.030),
    Previous("TREC", True, protocol.PLAIN_UPDATE, "inter", 0.577, 0.130),
)


def compare_with_previous(result: Reproduction) -> Iterator[list[str]]:
    """Yield a row of a table for every earlier measurement whose data were run."""
    for setting, previous in product(result.settings, PREVIOUS):
        if not setting.matches(previous):
            continue
        method, constraint = previous.method, previous.constraint
        runs = protocol.runs_of(result.frontiers[setting.title], method, constraint)
        runs = [r for r in runs if not r.settings or r.settings.get("max_rounds") == _LOOPS]
        if runs:
            data = f"{previous.data}, {'with' if previous.attribute else 'without'}"
            auc = level_over_seeds(run.test["auc"].value for run in runs)
            fairness = level_over_seeds(1.0 - run.test[constraint].value for run in runs)
            within = previous.auc in auc and previous.fairness in fairness
            measured = [f"{previous.auc:.3f}", str(auc), f"{previous.fairness:.3f}", str(fairness)]
            yield [data, method, constraint, *measured, "yes" if within else "no"]
