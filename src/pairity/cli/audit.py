r"""Measure how given scores order the groups.

Measure utility and disparity of given scores, with confidence intervals.

  pairity audit ranked.csv --label hired --query search_id --group gender --score score
  pairity audit ranked.parquet --label hired --query search_id --group gender --group age \
      --quantile-groups age=3 --score score --format json
  pairity audit ranked.csv --label hired --query search_id --group gender --score hired
  pairity audit web.svm --group 3 --quantile-groups 0.4 --score 1
  pairity audit --run run.txt --qrels qrels.txt --group-file groups.txt
  pairity audit ranked.csv --label hired --query search_id --group gender --score score \
      --constraint inter --fail-above 0.05 --quiet

The third command audits the label itself. The last one is for pipelines: its exit status is 1 if
the violation is above 0.05.

A TREC run has lines of `topic Q0 document rank score tag`, qrels have `topic iteration document
judgement`, and a group file has `document group`. Documents without a judgement count as
irrelevant, as in trec_eval, and judged documents that the run lacks count as ranked last. The
options --unjudged and --not-retrieved leave them out instead. Topics that only one of the files
contains are left out.
"""

import argparse
from collections.abc import Callable
from functools import partial
from math import isnan
from typing import Any

import pairity
from pairity.cli import options
from pairity.cli.distributed import SENT, add_cluster, cluster, on_workers, read_by_workers
from pairity.cli.output import note, show_or_json
from pairity.exceptions import InputError


def add_to(parser: Any) -> None:
    """Declare the options."""
    options.add_file(parser, nargs="?")
    options.add_roles(parser, score=True)
    group = parser.add_argument_group("a TREC run instead of a table")
    group.add_argument("--run", metavar="FILE", dest="trec_run")
    option, trec = partial(options.add, parser), partial(options.add, group)
    trec("--qrels FILE", "the judgements of its documents")
    for name, default, text in (
        ("--unjudged", "irrelevant", "documents of the run without a judgement"),
        ("--not-retrieved", "last", "judged documents that the run lacks"),
    ):
        trec(name, text, choices=(default, "leave-out"), default=default)
    constraints = f"{options.CONSTRAINTS}; may be repeated (default: all)"
    option("--constraint NAME", constraints, action="append")
    option("--fail-above X", "exit with status 1 if a violation is above X", type=float)
    resamples = "resamples of queries for confidence intervals; 0 for none"
    option("--resamples N", resamples, default=1000)
    options.add_seed(parser, "the seed of the resamples")
    add_cluster(parser, SENT)
    options.add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Audit, print, and compare with the limit."""
    from pairity.audits.audit import name_constraints
    from pairity.constraints import CATALOGUE

    if args.fail_above is not None and not args.fail_above >= 0.0:
        raise InputError(f"--fail-above must be 0 or greater (got {args.fail_above:g}).")
    constraints = args.constraint or tuple(CATALOGUE)
    name_constraints(constraints)  # report a misspelt name before a long file is read
    place = _read_run(args) if args.trec_run else _read_table(args)
    with cluster(args) as client:
        result = pairity.audit(
            **place(client=client), constraints=constraints, n_resamples=args.resamples,
            random_state=args.seed, name=args.trec_run or args.score,
        )  # fmt: skip
    show_or_json(args, result.to_dict(), result)
    limit = args.fail_above
    violations = {} if limit is None else result.violation
    above = {name: value for name, value in violations.items() if not value <= limit}
    for name, value in above.items():
        floor = result.noise_floor[name]
        beside = "" if isnan(floor) else f" (noise floor {floor:.4f})"
        note(f"the {name} violation, {value:.4f}{beside}, is above {limit:g}.")
    return 1 if above else 0


def _read_table(args: argparse.Namespace) -> Callable[..., dict[str, Any]]:
    """Return a function that lets workers read the table, or sends them queries and scores."""
    if args.file is None:
        raise InputError("There is nothing to audit. Name a FILE, or --run, --qrels, --group-file.")
    if args.qrels:
        raise InputError("--qrels requires --run. Use both, or a FILE.")
    lazy = options.workers_read(args)
    table = options.open_table(args, lazy=lazy)
    options.require_roles(table, args, ("label", "query", "group", "score"))
    if lazy:
        return partial(read_by_workers, table.path, args)
    return partial(on_workers, options.read_queries(table, args), scores=table[args.score])


def _read_run(args: argparse.Namespace) -> Callable[..., dict[str, Any]]:
    columns = [args.file, args.label, args.query, args.score, args.quantile_groups]
    if any(column is not None for column in (*columns, *args.group)):
        raise InputError("--run cannot be combined with a FILE or with column names.")
    if not args.qrels or not args.group_file:
        raise InputError("--run requires --qrels (the judgements) and --group-file (the groups).")
    judged = pairity.read_trec(
        args.trec_run, args.qrels, args.group_file,
        unjudged=args.unjudged, not_retrieved=args.not_retrieved,
    )  # fmt: skip
    counts = (judged.n_unjudged, judged.n_not_retrieved, judged.n_only_run, judged.n_only_qrels)
    if any(counts) and not args.quiet:
        note(
            f"{counts[0]:,} documents have no judgement ({args.unjudged}) and {counts[1]:,} judged "
            f"documents were not retrieved ({args.not_retrieved}). {counts[2]:,} topics of the run "
            f"and {counts[3]:,} topics of the qrels are left out because the other file lacks them."
        )
    return partial(on_workers, judged.queries, scores=judged.scores)
