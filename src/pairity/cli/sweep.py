"""``pairity sweep``: all methods on one table, and the frontier they make."""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairity.cli.distributed import add_cluster, cluster
from pairity.cli.engines import add_ranker, make_ranker
from pairity.cli.options import (
    add_command,
    add_constraint,
    add_file,
    add_output,
    add_roles,
    add_seed,
    add_share,
    count,
    features_of,
    queries_of,
    read_given,
    shows_progress,
)
from pairity.cli.output import note, print_json, say
from pairity.exceptions import InputError

if TYPE_CHECKING:
    from pairity.baselines.methods import Method
    from pairity.comparisons.frontiers import Frontier
    from pairity.comparisons.selection import Choice
    from pairity.data.queries import Queries

_PLOTS = (".png", ".svg", ".pdf")
_EPSILON = 0.05
_EXAMPLES = """\
examples:
  pairity sweep jobs.csv --label hired --query search_id --group gender --output runs
  pairity sweep jobs.csv --label hired --query search_id --group gender --output runs \\
      --constraint statistical --epsilon 0.1 --seeds 3 --plot frontier.png --report sweep.html
  pairity sweep jobs.csv --label hired --query search_id --group gender \\
      --methods plain reweighted lagrangian --budget 2 --format csv > frontier.csv

Queries are split into training, validation and test queries, anew for each seed and in turn: with
--test 0.2, the seeds 0 to 4 test on all queries. The table shows the test queries; * marks
the Pareto front. The point is picked on the validation queries: the most accurate whose violation
is at most EPSILON at 95 % confidence. Where --epsilon is given and no point is, the status is 1.
With --output, finished runs are kept: started again, the same command goes on where it stopped.
"""


def add_to(commands: Any) -> None:
    """Say the arguments."""
    parser = add_command(
        commands, "sweep",
        about="all methods on one table: what does evenness cost?",
        says="Run pairity's method and the baselines with several settings; print the frontier.",
        examples=_EXAMPLES,
    )  # fmt: skip
    add_file(parser)
    add_roles(parser, features=True)
    parser.add_argument(
        "--methods", nargs="+", metavar="NAME",
        help="plain, reweighted, 'item weights', 'exposure lp', lagrangian, 'correlation penalty' "
        "(default: all)",
    )  # fmt: skip
    add_constraint(parser)
    parser.add_argument(
        "--measure", action="append", default=[], metavar="NAME",
        help="another violation to measure; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--epsilon", type=float, metavar="X",
        help=f"the violation that the picked point stays within (default: {_EPSILON})",
    )  # fmt: skip
    parser.add_argument(
        "--budget", type=count, default=6, metavar="N",
        help="the most settings of a method (default: 6)",
    )  # fmt: skip
    add_ranker(parser)
    add_share(parser, "--test", "of queries to report on")
    add_share(parser, "--validation", "of the others, to pick by")
    parser.add_argument(
        "--seeds", type=count, default=1, metavar="N", help="number of splits (default: 1)"
    )
    add_seed(parser, "the first of them")
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N",
        help="runs at a time; -1 for all cores (default: 1)",
    )  # fmt: skip
    add_cluster(parser, "each run is one task")
    parser.add_argument(
        "--output", metavar="DIR", help="where runs are kept, and frontier.json is written"
    )
    parser.add_argument(
        "--plot", metavar="FILE", help="draw the frontier: .png, .svg or .pdf; replaces a file"
    )
    parser.add_argument(
        "--report", metavar="FILE",
        help="draw the page about it, the best points fitted once more; replaces a file",
    )  # fmt: skip
    add_output(parser, "csv")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Sweep, print, keep, draw, pick."""
    from pairity.audits.audit import name_constraints
    from pairity.comparisons.catalogue import make_methods
    from pairity.comparisons.sweeps import sweep

    measured = tuple(dict.fromkeys([given.constraint, *given.measure]))
    name_constraints(measured)  # what is wrong is said before a long file is read
    _require_plot(given.plot)
    _require_report(given.report)
    ranker = None
    if given.ranker != "linear" or given.set:
        ranker = make_ranker(given.ranker, given.set, given.seed)
    methods = make_methods(given.constraint, given.methods, ranker=ranker, budget=given.budget)
    table = read_given(given)
    queries_of(table, given)  # roles are wrong more often than features: their errors come first
    X, _ = features_of(table, given)
    queries = queries_of(table, given, X)
    with cluster(given) as client, _runs_on(client):
        frontier = sweep(
            methods,
            queries,
            given.test,
            validation=given.validation,
            constraints=measured,
            seeds=range(given.seed, given.seed + given.seeds),
            n_jobs=-1 if client is not None else None if given.jobs == 1 else given.jobs,
            directory=None if given.output is None else Path(given.output, "runs"),
            progress=shows_progress(given),
        )
    epsilon = _EPSILON if given.epsilon is None else given.epsilon
    choice = frontier.pick(given.constraint, epsilon)
    _write(frontier, given)
    if given.report is not None:
        _report(frontier, choice, methods, queries, given)
    _print(frontier, choice, given)
    return 1 if choice.point is None and given.epsilon is not None else 0


def _runs_on(client: Any) -> Any:
    """Where joblib runs what it runs: on the workers, where there are any."""
    from contextlib import nullcontext

    from joblib import parallel_config

    return nullcontext() if client is None else parallel_config(backend="dask")


def _require_plot(plot: str | None) -> None:
    from pairity._utils.files import require_output_file
    from pairity.comparisons.plots import import_matplotlib

    if plot is None:
        return
    if Path(plot).suffix.lower() not in _PLOTS:
        raise InputError(f"--plot {plot!r} ends in none of {', '.join(_PLOTS)}.")
    require_output_file(Path(plot))
    import_matplotlib("pyplot")


def _require_report(report: str | None) -> None:
    from pairity._utils.files import require_output_file

    if report is not None:
        from pairity.reports.charts import library

        require_output_file(Path(report))
        library()  # says what to install


def _write(frontier: Frontier, given: argparse.Namespace) -> None:
    from pairity._utils.files import atomic_write
    from pairity.comparisons.plots import save_figure

    if given.output is not None:
        with atomic_write(Path(given.output, "frontier.json")) as file:
            file.write(frontier.to_json().encode())
    if given.plot is not None:
        save_figure(frontier.plot(), Path(given.plot))


def _report(
    frontier: Frontier, choice: Choice, methods: list[Method], queries: Queries,
    given: argparse.Namespace,
) -> None:  # fmt: skip
    """The page, with the split of the first seed."""
    from pairity.comparisons.sweeps import split_for
    from pairity.reports.collect import collect_sweep
    from pairity.reports.report import Report

    train, test, _ = split_for(given.seed, queries, given.test, given.validation)
    evidence = collect_sweep(
        frontier, methods, train, test, constraint=given.constraint,
        after=choice.point or choice.closest, random_state=given.seed, tolerance=choice.epsilon,
        attributes=[*given.group, *given.group_file],
        provenance={"command": given.command, "file": given.file, "seed": given.seed},
    )  # fmt: skip
    Report(evidence).save(given.report)


def _print(frontier: Frontier, choice: Choice, given: argparse.Namespace) -> None:
    if given.format == "json":
        print_json({"points": _plain(frontier), "choice": _told(choice)})
    elif given.format == "csv":
        rows = frontier.rows()
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        sys.stdout.write(text.getvalue())
    elif not given.quiet:
        say(frontier, f"\n{choice}")
    if not given.quiet:
        for path in (
            given.output and f"{given.output}/frontier.json", given.plot, given.report,
        ):  # fmt: skip
            if path:
                note(f"written: {path}")


def _plain(frontier: Frontier) -> list[dict[str, Any]]:
    """The rows of the table, None where a number is not defined."""
    text = json.dumps(frontier.rows())
    return list(json.loads(text, parse_constant=lambda _: None))


def _told(choice: Choice) -> dict[str, Any]:
    return {
        "point": None if choice.point is None else choice.point.label,
        "closest": choice.closest.label,
        "bound": choice.bound,
        "constraint": choice.constraint,
        "epsilon": choice.epsilon,
        "confidence": choice.confidence,
        "rule": choice.rule,
        "said": str(choice),
    }
