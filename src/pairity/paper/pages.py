"""The tables that a reproduction writes, as CSV and Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from pairity.paper import protocol
from pairity.paper.claims import Claim, Mean, Verdict, count_verdicts, level_over_seeds
from pairity.paper.protocol import COMPARED, CONSTRAINTS, Entry
from pairity.reports.observations import show_versions

if TYPE_CHECKING:
    from pairity.paper.reproduction import Reproduction

_LIBRARIES = ("pairity", "numpy", "scipy", "scikit-learn", "numba", "torch")
READS_GROUPS = "exposure lp"


def entry_row(entry: Entry) -> dict[str, Any]:
    """Return an entry as columns of a table."""
    row = {**vars(entry), "settings": json.dumps(entry.settings, sort_keys=True)}
    seconds, fairness = row.pop("seconds"), row.pop("fairness")
    row |= {f"fairness_{name}": fairness[name] for name in CONSTRAINTS}
    return {**row, "seconds": seconds}


def claim_row(claim: Claim) -> dict[str, Any]:
    """Return a claim as columns of a table."""
    row = {**vars(claim), **vars(claim.estimate)}
    names = ["text", "data", "constraint", "measured", "value", "low", "high", "n", "verdict"]
    titles = {"text": "claim", "n": "seeds"}
    return {titles.get(name, name): row[name] for name in names}


def results_page(result: Reproduction) -> str:
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
    by_method: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.constraint == constraint:
            by_method.setdefault(entry.method, []).append(entry)
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


def verdicts_page(claims: Sequence[Claim]) -> str:
    """Return the paper's claims and what was measured, as Markdown."""
    counts = [[text, *map(str, n.values())] for text, n in count_verdicts(claims).items()]
    header = ["claim", "data", "constraint", "measured", "value", "verdict"]
    details = [list(map(str, vars(claim).values())) for claim in claims]
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
