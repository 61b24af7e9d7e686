"""Run the main job on built-in data.

Train a plain and a reweighted ranker on built-in data, compare them, and write a report.

  pairity demo
  pairity demo --seed 3 --output demo.html --format json

The labels are biased towards one of two groups by a known amount. The plain ranker learns that
bias; the reweighted ranker is trained on the same labels. Both are audited on held-out queries,
against the biased labels and against the unbiased labels, which neither has seen.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path
from typing import Any

import pairity
from pairity._utils.files import require_output_file
from pairity.cli import options
from pairity.cli.output import note, show_or_json
from pairity.exceptions import MissingExtraError


def add_to(parser: Any) -> None:
    """Declare the options."""
    output = "the report to write or replace"
    options.add(parser, "--output FILE", output, default="pairity-demo.html")
    options.add_seed(parser, "the seed of the data")
    options.add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Train, audit, print, and write the report."""
    from pairity.datasets import make_biased_ranking

    require_output_file(Path(args.output))
    start = time.perf_counter()
    data = make_biased_ranking(300, 60, strength=1.0, separation=2.0, random_state=args.seed)
    train, test = data.queries().split(0.3, random_state=args.seed)
    _, unbiased = data.unbiased().split(0.3, random_state=args.seed)
    make = partial(pairity.FairRanker, constraint="statistical")
    plain = make(max_rounds=0, progress=False).fit(train)
    fair = make(progress=options.progress_setting(args)).fit(train)
    models = {"plain": plain, "reweighted": fair}
    audits = {name: _audit(model, test, f"the {name} ranker") for name, model in models.items()}
    true_auc = {name: _audit(model, unbiased).estimate("auc") for name, model in models.items()}
    page = pairity.Report.of(
        plain, fair, train, test, audits=audits,
        provenance={"command": args.command, "data": "built-in, synthetic", "seed": args.seed},
        title="Synthetic data whose labels favour one group",
    )  # fmt: skip
    report = args.output
    try:
        page.save(report)
    except MissingExtraError as error:
        note(str(error))
        report = None
    done = f"Done in {time.perf_counter() - start:.1f} s."
    show_or_json(
        args,
        {
            "seed": args.seed,
            "outcome": str(fair.outcome_),
            "pair_weights": fair.pair_weights_.to_dict(),
            "unbiased_auc": {name: estimate.value for name, estimate in true_auc.items()},
            "audits": {name: audit.to_dict() for name, audit in audits.items()},
            "report": report,
        },
        f"Synthetic data, seed {args.seed}: {train.n_queries} training queries and "
        f"{test.n_queries} test queries of 60 items.\nThe labels favour {train.groups[0]!r} by "
        "one standard deviation; the unbiased labels are known.\n",
        lambda: pairity.compare(audits, {"AUC on the unbiased labels": [*true_auc.values()]}),
        f"\nOutcome after {len(fair.history_) - 1} retrainings: {fair.outcome_}\n",
        "Learned pair weights, by the groups of the preferred and the other item",
        fair.pair_weights_,
        "\nThe full audit of the reweighted ranker:\n",
        audits["reweighted"],
        f"\n{done}" if report is None else f"\n{done} The report is {report}.",
    )
    return 0


def _audit(model: Any, queries: pairity.Queries, name: str = "") -> pairity.Audit:
    return pairity.audit(queries, model.predict(queries.X), name=name)
