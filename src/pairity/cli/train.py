"""``pairity train``: the plain and the fair ranker, audited on held-out queries, and saved."""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairity.cli.distributed import SENT, add_cluster, cluster, on_workers, read_by_workers
from pairity.cli.engines import TAKES_GAPS, add_ranker, make_ranker
from pairity.cli.options import (
    add_command,
    add_constraint,
    add_file,
    add_output,
    add_roles,
    add_seed,
    add_share,
    features_of,
    has_workers,
    queries_of,
    read_given,
    require_roles,
    shows_progress,
    whole,
    workers_read,
)
from pairity.cli.output import note, print_json, say
from pairity.exceptions import MissingExtraError, TargetNotReachedWarning

if TYPE_CHECKING:
    from pairity.audits.audit import Audit
    from pairity.data.queries import Queries
    from pairity.data.tables import Table
    from pairity.reports.evidence import Evidence
    from pairity.reweighting.fair_ranker import FairRanker

PAGE = "report.html"

_EXAMPLES = """\
examples:
  pairity train jobs.csv --label hired --query search_id --group gender --output model
  pairity train jobs.csv --label hired --query search_id --group gender --output model \\
      --ranker lightgbm --set n_estimators=100 --set num_leaves=15 \\
      --constraint inter --tolerance 0.02 --validation 0.2

A share of the queries is held out (--test); both rankers are audited on it. The model is saved in
the folder, which `pairity predict` reads, with report.html, the page about it. Status 1: the
tolerance was not reached.
"""


def add_to(commands: Any) -> None:
    """Say the arguments."""
    parser = add_command(
        commands, "train",
        about="train a ranker with a lower violation, and compare it with the plain one",
        says="Train the plain and the reweighted ranker; audit both on held-out queries.",
        examples=_EXAMPLES,
    )  # fmt: skip
    add_file(parser)
    add_roles(parser, features=True)
    parser.add_argument(
        "--output", metavar="DIR", required=True,
        help="where the model goes; a model that is there is replaced",
    )  # fmt: skip
    add_ranker(parser)
    add_constraint(parser)
    parser.add_argument(
        "--tolerance", type=float, default=0.01, metavar="X",
        help="the violation to come within, on training queries (default: 0.01)",
    )  # fmt: skip
    parser.add_argument(
        "--validation", type=float, metavar="SHARE",
        help="of training queries to measure that violation on instead: for rankers that know "
        "their training queries by heart, such as boosted trees",
    )  # fmt: skip
    add_share(parser, "--test", "of queries held out")
    parser.add_argument(
        "--points", type=whole, default=3, metavar="N",
        help="rankers between the two that the report shows, one training each (default: 3)",
    )  # fmt: skip
    parser.add_argument(
        "--no-report", action="store_true",
        help="save the model alone: a report names the labels and groups of some held-out rows",
    )  # fmt: skip
    add_seed(parser, "of the split and of the ranker")
    add_cluster(parser, f"{SENT}; a report then shows audits alone")
    add_output(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Train, audit, save, and say what came of it."""
    import numpy as np

    from pairity._utils.model_folder import require_output_folder
    from pairity.audits.audit import audit
    from pairity.audits.comparison import compare
    from pairity.constraints.pairwise import as_constraint
    from pairity.reports.collect import collect_audits
    from pairity.reweighting.algorithm import Outcome
    from pairity.reweighting.fair_ranker import FairRanker

    as_constraint(given.constraint)  # what is wrong is said before a long file is read
    require_output_folder(given.output)
    plain, ranker = (make_ranker(given.ranker, given.set, given.seed) for _ in range(2))
    later = workers_read(given)
    table = read_given(given, later=later)
    if later:
        require_roles(table, given, ("label", "query", "group"))
    else:
        queries_of(table, given)  # roles are wrong more often than features: their errors first
    gaps = given.ranker in TAKES_GAPS
    X, names = features_of(table, given, gaps=gaps)
    queries: Any = None if later else queries_of(table, given, X, gaps=gaps)
    fair = FairRanker(
        ranker, given.constraint, tolerance=given.tolerance,
        validation=given.validation, random_state=given.seed, progress=shows_progress(given),
    )  # fmt: skip
    with cluster(given) as client, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TargetNotReachedWarning)
        before = FairRanker(plain, given.constraint, max_rounds=0, schedule="retrain",
                            random_state=given.seed, progress=False)  # fmt: skip
        if later:
            queries = _placed(client, table, given, names, gaps=gaps)
        train, test = queries.split(given.test, given.seed)
        sent = train if client is None or later else on_workers(client, train)
        before.fit(**sent)
        fair.fit(**sent)
        if fair.outcome_ is Outcome.INTERRUPTED:
            raise KeyboardInterrupt  # nothing is saved that was not asked for
        audits = {
            name: audit(test, model.predict(test["X"]), name=name, random_state=given.seed)
            for name, model in (("plain", before), ("reweighted", fair))
        }
    for each in caught:
        if not issubclass(each.category, TargetNotReachedWarning):
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    also = {}
    if not given.no_report:
        evidence = (
            collect_audits(audits.values(), constraint=given.constraint, tolerance=given.tolerance)
            if later
            else _evidence(given, before, fair, queries, train, test, audits)
        )
        also = _files(given, evidence)
    fair.set_params(validation=given.validation)
    fair.feature_names_in_ = np.array(names, dtype=object)  # `pairity predict` looks for these
    fair.save(given.output, also=also)
    reached = not any(issubclass(w.category, TargetNotReachedWarning) for w in caught)
    if given.format == "json":
        print_json(
            {
                "output": given.output,
                "report": str(Path(given.output, PAGE)) if PAGE in also else None,
                "outcome": str(fair.outcome_),
                "reached": reached,
                "training_violation": float(fair.violation_),
                "pair_weights": json.loads(fair.pair_weights_.to_json()),
                "audits": {name: held.to_dict() for name, held in audits.items()},
            }
        )
    elif not given.quiet:
        say(
            lambda: f"{compare(audits)}\n",
            lambda: f"Pair weights\n{fair.pair_weights_}\n",
            f"{fair.outcome_}\nSaved in {given.output}.",
        )
        if PAGE in also:
            print(f"The report is {Path(given.output, PAGE)}.")
    return 0 if reached else 1


def _placed(
    client: Any, table: Table, given: argparse.Namespace, names: tuple[str, ...], *, gaps: bool
) -> Any:
    """Queries that the workers have read; `gaps` allows missing features."""
    from pairity.data.distributed.clients import using_client
    from pairity.data.distributed.queries import DaskQueries

    with using_client(client):
        columns = read_by_workers(client, table, given, X=list(names))
        return DaskQueries.from_collections(client, raw=gaps, **columns)


def _evidence(
    given: argparse.Namespace, before: FairRanker, fair: FairRanker, queries: Queries,
    train: Queries, test: Queries, audits: dict[str, Audit],
) -> Evidence:  # fmt: skip
    """What is measured for the page that goes with the model."""
    import numpy as np

    from pairity.reports.collect import collect_training

    if has_workers(given) and given.validation is not None:  # who held out the same queries
        train, validation = train.split(given.validation, given.seed)
        fair.set_params(validation=validation)
    held = set(test.query_ids.tolist())
    rows = np.flatnonzero(np.array([q in held for q in queries.query_ids.tolist()])[queries.query])
    return collect_training(
        before,
        fair,
        train,
        test,
        shares=[(at + 1) / (given.points + 1) for at in range(given.points)],
        audits=audits,
        items=[f"row {row + 1}" for row in rows.tolist()],
        attributes=[*given.group, *given.group_file],
        provenance={"command": given.command, "file": given.file, "seed": given.seed},
        random_state=given.seed,
    )


def _files(given: argparse.Namespace, evidence: Evidence) -> dict[str, bytes]:
    """The evidence and the page."""
    from pairity.reports.evidence import FILE
    from pairity.reports.report import Report

    files = {FILE: evidence.to_json().encode()}
    try:
        files[PAGE] = Report(evidence).to_html().encode()
    except MissingExtraError as error:
        note(f"{error} Then: pairity report {given.output}")
    return files
