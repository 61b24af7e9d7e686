r"""Train a ranker with a lower violation, and compare it with the plain ranker.

Train the plain and the reweighted ranker; audit both on held-out queries.

  pairity train jobs.csv --label hired --query search_id --group gender --output model
  pairity train jobs.csv --label hired --query search_id --group gender --output model \
      --ranker lightgbm --set n_estimators=100 --set num_leaves=15 \
      --constraint inter --tolerance 0.02 --max-loss 0.03

A share of the queries is held out (--test), and both rankers are audited on it. The folder holds
the model, which `pairity predict` reads, and report.html, the page about it. The exit status is 1
if the tolerance was not reached.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pairity
from pairity.cli import options
from pairity.cli.distributed import SENT, add_cluster, cluster, on_workers
from pairity.cli.output import note, show_or_json
from pairity.exceptions import MissingExtraError, TargetNotReachedWarning

if TYPE_CHECKING:
    from pairity.data.tables import Table
    from pairity.reports.evidence import Evidence

PAGE = "report.html"


def add_to(parser: Any) -> None:
    """Declare the options."""
    options.add_file(parser)
    options.add_roles(parser, features=True)
    option = partial(options.add, parser)
    option("--output DIR", "the folder of the model; a model in it is replaced", required=True)
    options.add_ranker(parser)
    options.add_constraint(parser)
    tolerance = "the largest violation to accept; 'auto' is the noise floor of the queries"
    option("--tolerance X", tolerance, type=_number_or("auto"), default=0.01)
    validation = (
        "where that violation is measured: on this share of the training queries, held out; out of "
        "fold, with this number of folds; on the training queries ('none'); or 'auto', two folds "
        "for rankers that can memorise, such as boosted trees, and otherwise the training queries. "
        "The model that is saved is trained on all of them"
    )
    option("--validation SHARE|FOLDS", validation, type=_number_or("auto", "none"), default="auto")
    loss = "the largest loss of AUC (or of 'ndcg@10', as ndcg@10=0.02) to accept in training"
    option("--max-loss X", loss, type=_read_loss)
    weight = (
        "a column with the weight of each query, or `equal`: the training pairs of every query "
        "have the same total weight, so that long lists do not dominate (if a column is called "
        "equal, it is used)"
    )
    option("--query-weight COLUMN", weight)
    options.add_share(parser, "--test", "the share of queries held out")
    points = "rankers between the two that the report shows, one training each"
    option("--points N", points, type=options.whole_number(0), default=3)
    no_report = "save the model only: a report shows labels and groups of some held-out rows"
    option("--no-report", no_report, action="store_true")
    remedies = "if the tolerance is not reached, do not try for the report what may reach further"
    option("--no-remedies", remedies, action="store_true")
    options.add_seed(parser, "the seed of the split and of the ranker")
    add_cluster(parser, f"{SENT}. The report then shows audits only")
    options.add_output(parser)


def _number_or(*words: str) -> Callable[[str], Any]:
    """Make a function that reads one of some words, a whole number or a number; none is None."""

    def read(text: str) -> Any:
        if text in words:
            return None if text == "none" else text
        try:
            return int(text) if text.isascii() and text.isdigit() else float(text)
        except ValueError as error:
            others = "".join(f" or {word!r}" for word in words)
            raise argparse.ArgumentTypeError(f"{text!r} is not a number{others}") from error

    return read


def _read_loss(text: str) -> Any:
    metric, _, loss = text.rpartition("=")
    value = _number_or()(loss)
    return {metric: value} if metric else value


class _Result(NamedTuple):
    """Both models, the queries, and the scores and audits of the held-out queries."""

    plain: pairity.FairRanker
    fair: pairity.FairRanker
    queries: Any
    train: Any
    test: Any
    scores: dict[str, Any]
    audits: dict[str, pairity.Audit]


def run(args: argparse.Namespace) -> int:
    """Train, audit, save and print."""
    from pairity._utils.model_folder import require_output_folder
    from pairity.constraints import as_constraint
    from pairity.reports.evidence import FILE

    as_constraint(args.constraint)  # report mistakes before a long file is read
    require_output_folder(args.output)
    lazy = options.workers_read(args)
    result = _train(args, lazy)
    files, report = {}, None
    if not args.no_report:
        aim = {"constraint": args.constraint, "tolerance": result.fair.outcome_.tolerance}
        audits = list(result.audits.values())
        report = pairity.Report(audits, **aim) if lazy else _make_report(result, args)
        files[FILE] = report.evidence.to_json().encode()
        try:
            files[PAGE] = report.to_html().encode()
        except MissingExtraError as error:
            note(f"{error} Then run: pairity report {args.output}")
    result.fair.save(args.output, also=files)
    _print(result, report, PAGE in files, args)
    return 0 if result.fair.outcome_.reached else 1


def _train(args: argparse.Namespace, lazy: bool) -> _Result:
    """Train the plain and the reweighted ranker, and audit both on held-out queries."""
    import numpy as np

    rankers = [options.make_ranker(args.ranker, args.set, args.seed) for _ in range(2)]
    make = partial(pairity.FairRanker, constraint=args.constraint, random_state=args.seed)
    plain = make(rankers[0], max_rounds=0, schedule="retrain", progress=False)
    stop = {
        "tolerance": args.tolerance, "validation": args.validation, "max_loss": args.max_loss,
    }  # fmt: skip
    fair = make(rankers[1], progress=options.progress_setting(args), **stop)
    table = options.open_table(args, lazy=lazy)
    with cluster(args) as client, warnings.catch_warnings():
        warnings.simplefilter("ignore", TargetNotReachedWarning)  # the outcome is printed
        queries = _read(table, args, client if lazy else None)
        train, test = queries.split(args.test, args.seed)
        sent = None if client is None or lazy else on_workers(train, client)
        for model in (plain, fair):
            if sent is None:
                model.fit(train)
            else:
                model.fit(**sent)
                model.feature_names_in_ = np.array(queries.feature_names, dtype=object)
        if fair.outcome_.kind is pairity.Outcome.INTERRUPTED:
            raise KeyboardInterrupt  # a partial result is not saved
        scores = {"plain": plain.predict(test), "reweighted": fair.predict(test)}
        audits = {
            name: pairity.audit(test, values, name=name, random_state=args.seed)
            for name, values in scores.items()
        }
    return _Result(plain, fair, queries, train, test, scores, audits)


def _read(table: Table, args: argparse.Namespace, client: Any) -> Any:
    """Return the queries: in memory, or read by the workers of a client."""
    missing, weight = options.ENGINES[args.ranker].takes_missing, args.query_weight
    equal = weight == "equal" and weight not in table.columns
    column = None if equal else weight
    if column is not None:
        table.column_for("query weight", column, "--query-weight")
        args.exclude = [*args.exclude, column]
    if client is None:
        queries = options.read_training_queries(table, args, missing=missing)
        if column is not None:
            queries = options.with_query_weights(queries, table, column)
    else:
        options.require_roles(table, args, ("label", "query", "group"))
        _, names = options.read_features(table, args, missing=missing)
        queries = pairity.read_parquet(
            table.path, y=args.label, qid=args.query, sensitive_features=args.group,
            features=names, query_weight=column, client=client,
        )  # fmt: skip
    return queries.with_equal_queries() if equal else queries


def _make_report(result: _Result, args: argparse.Namespace) -> pairity.Report:
    """Measure what the page shows."""
    rows = result.queries.rows_of(result.test)
    return pairity.Report.of(
        result.plain,
        result.fair,
        result.train,
        result.test,
        shares=[(point + 1) / (args.points + 1) for point in range(args.points)],
        scores=result.scores,
        audits=result.audits,
        remedies=not args.no_remedies,
        items=[f"row {row + 1}" for row in rows.tolist()],
        attributes=[*args.group, *args.group_file],
        provenance={"command": args.command, "file": args.file, "seed": args.seed},
        random_state=args.seed,
    )


def _remedies(evidence: Evidence) -> list[dict[str, Any]]:
    """What was tried because the fit missed its tolerance, with its held-out estimates."""
    return [
        {
            "name": candidate.name,
            "violation": candidate.estimate("violation", evidence.constraint).value,
            "auc": candidate.estimate("auc").value,
            "needs_group": candidate.needs_group,
            "note": candidate.note,
        }
        for candidate in (evidence.candidates[index] for index in evidence.remedies)
    ]


def _show_remedies(remedies: list[dict[str, Any]]) -> str:
    from pairity._utils.text import render_table

    rows = [
        [
            row["name"], f"{row['violation']:.3f}", f"{row['auc']:.3f}",
            "yes" if row["needs_group"] else "no", row["note"],
        ]
        for row in remedies
    ]  # fmt: skip
    header = ["what may help", "violation", "AUC", "reads groups", "what it is"]
    table = render_table(header, rows, left=(0, 3, 4))
    return (
        f"{table}\nTried without tuning and measured on the same held-out queries. Choosing "
        "one by these\nestimates is optimistic: confirm it on other queries.\n"
    )


def _print(
    result: _Result, report: pairity.Report | None, has_page: bool, args: argparse.Namespace
) -> None:
    from pairity._utils.json_codec import to_plain

    fair, audits = result.fair, result.audits
    remedies = _remedies(report.evidence) if report else []
    page = str(Path(args.output, PAGE)) if has_page else None
    show_or_json(
        args,
        {
            "output": args.output,
            "report": page,
            "outcome": str(fair.outcome_),
            "reached": fair.outcome_.reached,
            "limits": list(fair.outcome_.limits),
            "remedies": to_plain(remedies),
            "training_violation": float(fair.violation_),
            "pair_weights": fair.pair_weights_.to_dict(),
            "audits": {name: audit.to_dict() for name, audit in audits.items()},
        },
        lambda: f"{pairity.compare(audits)}\n",
        lambda: f"Pair weights\n{fair.pair_weights_}\n",
        "\n- ".join((fair.outcome_.summary, *fair.outcome_.limits)) + "\n",
        *([partial(_show_remedies, remedies)] if remedies else []),
        f"Saved in {args.output}.",
        *([f"The report is {page}."] if page else []),
    )
