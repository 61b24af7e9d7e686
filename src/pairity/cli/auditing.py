"""``pairity audit``: how scores, or labels, treat the groups."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from pairity.cli.inputs import add_output, add_table, print_json, queries_of, read_given

_EXAMPLES = """\
examples:
  pairity audit ranked.csv --label clicked --query search_id --group gender --score model_score
  pairity audit ranked.parquet --label y --query q --group gender --group age --score s \\
      --format json
  pairity audit ranked.csv --label y --query q --group sex --score s \\
      --constraint inter --fail-above 0.05

The last ends with status 1 where the violation is above 0.05, for pipelines.
"""


def add_to(commands: Any) -> None:
    """Say the arguments."""
    parser = commands.add_parser(
        "audit",
        help="how do these scores treat the groups?",
        description="Utility and disparity of given scores, with intervals over queries.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_table(parser, score=True)
    parser.add_argument(
        "--constraint", action="append", metavar="NAME",
        help="statistical, inter, intra or marginal; may be repeated (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--fail-above", type=float, metavar="X", help="status 1 where a violation is above X"
    )
    parser.add_argument("--resamples", type=int, default=1000, metavar="N", help="for intervals")
    parser.add_argument("--seed", type=int, default=0)
    add_output(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Audit, print, and compare with the limit."""
    from pairity.audits import audit
    from pairity.constraints import CATALOGUE

    table = read_given(given)
    queries = queries_of(table, given)
    score = table.column_for("score", given.score)
    result = audit(
        queries,
        table[score],
        constraints=given.constraint or tuple(CATALOGUE),
        n_resamples=given.resamples,
        random_state=given.seed,
        name=score,
    )
    if given.format == "json":
        print_json(result.to_dict())
    elif not given.quiet:
        print(result)
    above = {
        name: value
        for name, value in result.violation.items()
        if given.fail_above is not None and value > given.fail_above
    }
    for name, value in above.items():
        print(
            f"pairity: {name} violation {value:.4f} is above {given.fail_above:g}", file=sys.stderr
        )
    return 1 if above else 0
