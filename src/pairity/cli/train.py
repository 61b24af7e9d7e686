"""``pairity train``: the plain and the reweighted ranker, audited on held-out queries and saved."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairity.cli import options
from pairity.cli.distributed import SENT, add_cluster, cluster, on_workers
from pairity.cli.engines import ENGINES, add_ranker, make_ranker
from pairity.cli.output import note, print_json, show
from pairity.exceptions import MissingExtraError, TargetNotReachedWarning

if TYPE_CHECKING:
    from pairity.audits.audit import Audit
    from pairity.data.queries import Queries
    from pairity.reports.evidence import Evidence
    from pairity.reweighting.fair_ranker import FairRanker

PAGE = "report.html"

_EXAMPLES = """\
examples:
  pairity train jobs.csv --label hired --query search_id --group gender --output model
  pairity train jobs.csv --label hired --query search_id --group gender --output model \\
      --ranker lightgbm --set n_estimators=100 --set num_leaves=15 \\
      --constraint inter --tolerance 0.02 --validation 0.2

A share of the queries is held out (--test), and both rankers are audited on it. The folder holds
the model, which `pairity predict` reads, and report.html, the page about it. The exit status is 1
if the tolerance was not reached.
"""


def add_to(commands: Any) -> None:
    """Declare the options."""
    parser = options.add_command(
        commands, "train", run,
        help="train a ranker with a lower violation, and compare it with the plain ranker",
        description="Train the plain and the reweighted ranker; audit both on held-out queries.",
        epilog=_EXAMPLES,
    )  # fmt: skip
    options.add_file(parser)
    options.add_roles(parser, features=True)
    parser.add_argument(
        "--output", metavar="DIR", required=True,
        help="the folder of the model; a model in it is replaced",
    )  # fmt: skip
    add_ranker(parser)
    options.add_constraint(parser)
    parser.add_argument(
        "--tolerance", type=float, default=0.01, metavar="X",
        help="the largest violation to accept on training queries (default: 0.01)",
    )  # fmt: skip
    parser.add_argument(
        "--validation", type=float, metavar="SHARE",
        help="measure that violation on this share of the training queries instead, and train on "
        "the rest: for rankers that can memorise, such as boosted trees",
    )  # fmt: skip
    options.add_share(parser, "--test", "the share of queries held out")
    parser.add_argument(
        "--points", type=options.natural_number, default=3, metavar="N",
        help="rankers between the two that the report shows, one training each (default: 3)",
    )  # fmt: skip
    parser.add_argument(
        "--no-report", action="store_true",
        help="save the model only: a report shows labels and groups of some held-out rows",
    )  # fmt: skip
    options.add_seed(parser, "the seed of the split and of the ranker")
    add_cluster(parser, f"{SENT}. The report then shows audits only")
    options.add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Train, audit, save and print."""
    from pairity._utils.model_folder import require_output_folder
    from pairity.constraints import as_constraint
    from pairity.reports.collect import collect_audits
    from pairity.reweighting.algorithm import Outcome
    from pairity.reweighting.fair_ranker import FairRanker

    as_constraint(args.constraint)  # report mistakes before a long file is read
    require_output_folder(args.output)
    settings = {"constraint": args.constraint, "random_state": args.seed}
    plain = FairRanker(_ranker(args), max_rounds=0, schedule="retrain", progress=False, **settings)
    fair = FairRanker(
        _ranker(args), tolerance=args.tolerance, validation=args.validation,
        progress=options.progress_setting(args), **settings,
    )  # fmt: skip
    lazy = options.workers_read(args)
    with cluster(args) as client, warnings.catch_warnings():
        warnings.simplefilter("ignore", TargetNotReachedWarning)  # the outcome is printed
        queries, names = _read(args, client, lazy)
        train, test = queries.split(args.test, args.seed)
        data = train if client is None or lazy else on_workers(client, train)
        for model in (plain, fair):
            model.fit(**data)
        if fair.outcome_ is Outcome.INTERRUPTED:
            raise KeyboardInterrupt  # a partial result is not saved
        audits = _audit({"plain": plain, "reweighted": fair}, test, args.seed)
    files = {}
    if not args.no_report:
        evidence = (
            collect_audits(audits.values(), constraint=args.constraint, tolerance=args.tolerance)
            if lazy
            else _collect(args, plain, fair, queries, train, test, audits)
        )
        files = _report_files(args, evidence)
    _save(fair, names, files, args)
    _print(fair, audits, PAGE in files, args)
    return 0 if fair.outcome_ is Outcome.WITHIN_TOLERANCE else 1


def _ranker(args: argparse.Namespace) -> Any:
    return make_ranker(args.ranker, args.set, args.seed)


def _read(args: argparse.Namespace, client: Any, lazy: bool) -> tuple[Any, tuple[str, ...]]:
    """Return the queries, in memory or read by the workers, and the names of the features."""
    missing = ENGINES[args.ranker].takes_missing
    table = options.open_table(args, lazy=lazy)
    if not lazy:
        queries = options.read_training_queries(table, args, missing=missing)
        return queries, queries.feature_names or ()
    from pairity.data.parquet import read_parquet

    options.require_roles(table, args, ("label", "query", "group"))
    _, names = options.read_features(table, args, missing=missing)
    queries = read_parquet(
        table.path, y=args.label, qid=args.query, sensitive_features=args.group, features=names,
        client=client,
    )  # fmt: skip
    return queries, names


def _audit(models: dict[str, FairRanker], test: Any, seed: int) -> dict[str, Audit]:
    from pairity.audits.audit import audit

    return {
        name: audit(test, model.predict(test["X"]), name=name, random_state=seed)
        for name, model in models.items()
    }


def _collect(
    args: argparse.Namespace, plain: FairRanker, fair: FairRanker, queries: Queries,
    train: Queries, test: Queries, audits: dict[str, Audit],
) -> Evidence:  # fmt: skip
    """Measure what the page shows."""
    import numpy as np

    from pairity.reports.collect import collect_training

    if (
        options.has_workers(args) and args.validation is not None
    ):  # the workers held out the same queries
        train, validation = train.split(args.validation, args.seed)
        fair.set_params(validation=validation)
    is_test = np.isin(queries.query_ids, test.query_ids)[queries.query]
    return collect_training(
        plain,
        fair,
        train,
        test,
        shares=[(point + 1) / (args.points + 1) for point in range(args.points)],
        audits=audits,
        items=[f"row {row + 1}" for row in np.flatnonzero(is_test).tolist()],
        attributes=[*args.group, *args.group_file],
        provenance={"command": args.command, "file": args.file, "seed": args.seed},
        random_state=args.seed,
    )


def _report_files(args: argparse.Namespace, evidence: Evidence) -> dict[str, bytes]:
    """Return the evidence and the page, by file name."""
    from pairity.reports.evidence import FILE
    from pairity.reports.report import Report

    files = {FILE: evidence.to_json().encode()}
    try:
        files[PAGE] = Report(evidence).to_html().encode()
    except MissingExtraError as error:
        note(f"{error} Then run: pairity report {args.output}")
    return files


def _save(
    fair: FairRanker, names: tuple[str, ...], files: dict[str, bytes], args: argparse.Namespace
) -> None:
    import numpy as np

    fair.set_params(validation=args.validation)
    fair.feature_names_in_ = np.array(
        names, dtype=object
    )  # `pairity predict` finds columns by name
    fair.save(args.output, also=files)


def _print(
    fair: FairRanker, audits: dict[str, Audit], has_page: bool, args: argparse.Namespace
) -> None:
    from pairity.audits.comparison import compare
    from pairity.reweighting.algorithm import Outcome

    page = str(Path(args.output, PAGE)) if has_page else None
    if args.format == "json":
        print_json(
            {
                "output": args.output,
                "report": page,
                "outcome": str(fair.outcome_),
                "reached": fair.outcome_ is Outcome.WITHIN_TOLERANCE,
                "training_violation": float(fair.violation_),
                "pair_weights": fair.pair_weights_.to_dict(),
                "audits": {name: audit.to_dict() for name, audit in audits.items()},
            }
        )
    elif not args.quiet:
        show(
            lambda: f"{compare(audits)}\n",
            lambda: f"Pair weights\n{fair.pair_weights_}\n",
            f"{fair.outcome_}\nSaved in {args.output}.",
            *([f"The report is {page}."] if page else []),
        )
