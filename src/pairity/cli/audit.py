"""``pairity audit``: how scores, or labels, treat the groups."""

from __future__ import annotations

import argparse
from typing import Any

from pairity.cli.distributed import SENT, add_cluster, cluster, on_workers, read_by_workers
from pairity.cli.options import (
    add_command,
    add_file,
    add_output,
    add_roles,
    add_seed,
    queries_of,
    read_given,
    require_roles,
    workers_read,
)
from pairity.cli.output import note, print_json, say
from pairity.exceptions import InputError

_EXAMPLES = """\
examples:
  pairity audit ranked.csv --label hired --query search_id --group gender --score score
  pairity audit ranked.parquet --label hired --query search_id --group gender --group age \\
      --quantile-groups age=3 --score score --format json
  pairity audit ranked.csv --label hired --query search_id --group gender --score hired
  pairity audit web.svm --group 3 --quantile-groups 0.4 --score 1
  pairity audit --run run.txt --qrels qrels.txt --group-file groups.txt
  pairity audit ranked.csv --label hired --query search_id --group gender --score score \\
      --constraint inter --fail-above 0.05 --quiet

The third asks how the label itself treats the groups. The last ends with status 1 where the
violation is above 0.05, for pipelines.

A TREC run has lines of `topic Q0 document rank score tag`, qrels `topic iteration document
judgement`, a group file `document group`. Documents that nobody judged count as irrelevant, as
trec_eval has it; judged ones that the run has not count as ranked behind all others. --unjudged and
--not-retrieved can leave them out instead. Topics that only one of the files has are left out.
"""


def add_to(commands: Any) -> None:
    """Say the arguments."""
    parser = add_command(
        commands, "audit",
        about="how do these scores treat the groups?",
        says="Utility and disparity of given scores, with intervals over queries.",
        examples=_EXAMPLES,
    )  # fmt: skip
    add_file(parser, nargs="?")
    add_roles(parser, score=True)
    trec = parser.add_argument_group("a TREC run instead of a table")
    trec.add_argument("--run", metavar="FILE", dest="trec_run")
    trec.add_argument("--qrels", metavar="FILE", help="its judgements")
    trec.add_argument(
        "--unjudged", choices=("irrelevant", "leave-out"), default="irrelevant",
        help="documents of the run without a judgement (default: irrelevant)",
    )  # fmt: skip
    trec.add_argument(
        "--not-retrieved", choices=("last", "leave-out"), default="last",
        help="judged documents that the run has not (default: last)",
    )  # fmt: skip
    parser.add_argument(
        "--constraint", action="append", metavar="NAME",
        help="statistical, inter, intra or marginal; may be repeated (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--fail-above", type=float, metavar="X", help="status 1 where a violation is above X"
    )
    parser.add_argument(
        "--resamples", type=int, default=1000, metavar="N",
        help="of queries, for intervals; 0 for none (default: 1000)",
    )  # fmt: skip
    add_seed(parser, "of the resamples")
    add_cluster(parser, SENT)
    add_output(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Audit, print, and compare with the limit."""
    from pairity.audits.audit import audit, name_constraints
    from pairity.constraints.pairwise import CATALOGUE

    if given.fail_above is not None and not given.fail_above >= 0.0:
        raise InputError(f"--fail-above {given.fail_above:g} is no limit. Give a number from 0 on.")
    constraints = given.constraint or tuple(CATALOGUE)
    name_constraints(constraints)  # a misspelt one is said before a long file is read
    read = _read_run if given.trec_run else _read_table
    table, queries, scores, name = read(given)
    with cluster(given) as client:
        data = {"y": queries, "scores": scores}
        if table is not None:
            data = read_by_workers(client, table, given, scores=given.score)
        elif client is not None:
            data = on_workers(client, queries, scores=scores)
        result = audit(
            **data,
            constraints=constraints,
            n_resamples=given.resamples,
            random_state=given.seed,
            name=name,
        )
    if given.format == "json":
        print_json(result.to_dict())
    elif not given.quiet:
        say(result)
    above = {
        name: value
        for name, value in result.violation.items()
        if given.fail_above is not None and not value <= given.fail_above
    }
    for name, value in above.items():
        note(f"the {name} violation, {value:.4f}, is above {given.fail_above:g}.")
    return 1 if above else 0


def _read_table(given: argparse.Namespace) -> tuple[Any, Any, Any, str]:
    """A table that workers are to read, or queries and scores; and what to call these."""
    if given.file is None:
        raise InputError("There is nothing to audit: give a FILE, or --run, --qrels, --group-file.")
    if given.qrels:
        raise InputError("--qrels goes with --run. Give both, or a FILE.")
    later = workers_read(given)
    table = read_given(given, later=later)
    require_roles(table, given, ("label", "query", "group", "score"))
    if later:
        return table, None, None, given.score
    return None, queries_of(table, given), table[given.score], given.score


def _read_run(given: argparse.Namespace) -> tuple[Any, Any, Any, str]:
    from pairity.data.trec import read_trec

    columns = [given.file, given.label, given.query, given.score, given.quantile_groups]
    if any(each is not None for each in (*columns, *given.group)):
        raise InputError("With --run there is no FILE and there are no columns to name.")
    if not given.qrels or not given.group_file:
        raise InputError("--run needs --qrels (the judgements) and --group-file (document group).")
    judged = read_trec(
        given.trec_run, given.qrels, given.group_file,
        unjudged=given.unjudged, not_retrieved=given.not_retrieved,
    )  # fmt: skip
    counts = (
        judged.n_unjudged, judged.n_not_retrieved, judged.n_only_run, judged.n_only_qrels,
    )  # fmt: skip
    if any(counts) and not given.quiet:
        note(
            f"{judged.n_unjudged:,} documents were not judged ({given.unjudged}), "
            f"{judged.n_not_retrieved:,} judged ones not retrieved ({given.not_retrieved}); "
            f"{judged.n_only_run:,} topics of the run and {judged.n_only_qrels:,} of the qrels "
            "are left out, being in one of them only."
        )
    return None, judged.queries, judged.scores, given.trec_run
