r"""Compare methods on one table, and show what a lower violation costs.

Run pairity's method and the baselines with several settings; print the frontier.

  pairity sweep jobs.csv --label hired --query search_id --group gender --output runs
  pairity sweep jobs.csv --label hired --query search_id --group gender --output runs \
      --constraint statistical --epsilon 0.1 --seeds 3 --plot frontier.png --report sweep.html
  pairity sweep jobs.csv --label hired --query search_id --group gender \
      --methods plain reweighted lagrangian --budget 2 --format csv > frontier.csv

Queries are split into training, validation and test queries for each seed, in turn: with
--test 0.2, the seeds 0 to 4 test on all queries. The table shows the test queries; * marks the
Pareto front. The point is picked on the validation queries: the most accurate one whose violation
is at most EPSILON at 95 % confidence. If --epsilon is given and no point qualifies, the exit status
is 1. With --output, finished runs are kept, and the same command resumes where it stopped.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pairity
from pairity._utils.files import require_output_file, write_file
from pairity.cli import options
from pairity.cli.distributed import add_cluster, cluster
from pairity.cli.output import note, print_json, show
from pairity.exceptions import InputError

if TYPE_CHECKING:
    from pairity.comparisons.selection import Choice

_PLOTS = (".png", ".svg", ".pdf")
_EPSILON = 0.05


def add_to(parser: Any) -> None:
    """Declare the options."""
    options.add_file(parser)
    options.add_roles(parser, features=True)
    option, number = partial(options.add, parser), options.whole_number(1)
    methods = (
        "plain, reweighted, 'item weights', 'exposure lp', lagrangian, 'correlation penalty' "
        "(default: all)"
    )
    option("--methods NAME", methods, nargs="+")
    options.add_constraint(parser)
    measure = "another constraint to measure; may be repeated"
    option("--measure NAME", measure, action="append", default=[])
    epsilon = f"the largest violation of the picked point (default: {_EPSILON})"
    option("--epsilon X", epsilon, type=float)
    option("--budget N", "the largest number of settings per method", type=number, default=6)
    options.add_ranker(parser)
    options.add_share(parser, "--test", "the share of queries to report on")
    options.add_share(parser, "--validation", "the share of the other queries to pick the point on")
    option("--seeds N", "the number of splits", type=number, default=1)
    options.add_seed(parser, "the first seed")
    option("--jobs N", "runs at the same time; -1 for all cores", default=1)
    add_cluster(parser, "Each run is one task")
    option("--output DIR", "keep the runs in this folder, and write frontier.json")
    option("--plot FILE", "plot the frontier as .png, .svg or .pdf, replacing the file")
    option("--report FILE", "write the page about the sweep, with the best points fitted again")
    options.add_output(parser, "csv")


def run(args: argparse.Namespace) -> int:
    """Sweep, keep, plot, pick and print."""
    from joblib import parallel_config

    from pairity.audits.audit import name_constraints
    from pairity.comparisons.catalogue import make_methods
    from pairity.comparisons.plots import save_plot

    measured = tuple(dict.fromkeys([args.constraint, *args.measure]))
    name_constraints(measured)  # report mistakes before a long file is read
    _require_outputs(args)
    default = args.ranker == "linear" and not args.set
    ranker = None if default else options.make_ranker(args.ranker, args.set, args.seed)
    methods = make_methods(args.constraint, args.methods, ranker=ranker, budget=args.budget)
    queries = options.read_training_queries(options.open_table(args), args)
    with cluster(args) as client, parallel_config(**{} if client is None else {"backend": "dask"}):
        frontier = pairity.sweep(
            methods,
            queries,
            args.test,
            validation=args.validation,
            constraints=measured,
            seeds=range(args.seed, args.seed + args.seeds),
            n_jobs=-1 if client is not None else None if args.jobs == 1 else args.jobs,
            directory=None if args.output is None else Path(args.output, "runs"),
            progress=options.progress_setting(args),
        )
    choice = frontier.pick(args.constraint, _EPSILON if args.epsilon is None else args.epsilon)
    if args.output is not None:
        write_file(Path(args.output, "frontier.json"), frontier.to_json().encode())
    if args.plot is not None:
        save_plot(frontier.plot(), Path(args.plot))
    if args.report is not None:
        _write_report(frontier, choice, methods, queries, args)
    _print(frontier, choice, args)
    return 1 if choice.point is None and args.epsilon is not None else 0


def _require_outputs(args: argparse.Namespace) -> None:
    """Check before the sweep that the plot and the report can be written."""
    if args.plot is not None:
        from pairity.comparisons.plots import import_matplotlib

        if Path(args.plot).suffix.lower() not in _PLOTS:
            raise InputError(f"--plot must end in {', '.join(_PLOTS)} (got {args.plot!r}).")
        require_output_file(Path(args.plot))
        import_matplotlib("pyplot")
    if args.report is not None:
        from pairity.reports.charts import library

        require_output_file(Path(args.report))
        library()  # raises an error that says what to install


def _write_report(
    frontier: pairity.Frontier, choice: Choice, methods: list[pairity.Method],
    queries: pairity.Queries, args: argparse.Namespace,
) -> None:  # fmt: skip
    """Write the page for the split of the first seed."""
    from pairity.comparisons.sweeps import split_in_turn
    from pairity.reports.collect import collect_sweep

    train, test, _ = split_in_turn(args.seed, queries, args.test, args.validation)
    evidence = collect_sweep(
        frontier, methods, train, test, constraint=args.constraint,
        after=choice.point or choice.closest, random_state=args.seed, tolerance=choice.epsilon,
        attributes=[*args.group, *args.group_file],
        provenance={"command": args.command, "file": args.file, "seed": args.seed},
    )  # fmt: skip
    pairity.Report(evidence).save(args.report)


def _print(frontier: pairity.Frontier, choice: Choice, args: argparse.Namespace) -> None:
    if args.format == "json":
        points = json.loads(json.dumps(frontier.rows()), parse_constant=lambda _: None)
        print_json({"points": points, "choice": _describe(choice)})
    elif args.format == "csv":
        from pairity._utils.text import to_csv

        print(to_csv(frontier.rows()), end="")
    elif not args.quiet:
        show(frontier, f"\n{choice}")
    if not args.quiet:
        for path in (args.output and f"{args.output}/frontier.json", args.plot, args.report):
            if path:
                note(f"written: {path}")


def _describe(choice: Choice) -> dict[str, Any]:
    point = None if choice.point is None else choice.point.label
    names = ("bound", "constraint", "epsilon", "confidence", "rule")
    rest = {name: getattr(choice, name) for name in names}
    return {"point": point, "closest": choice.closest.label, **rest, "sentence": str(choice)}
