r"""Show the pair weights that a saved model learned, by group.

Show the table of pair weights by the groups of the two items, or write the weighted pairs.

  pairity weights model
  pairity weights model --format json > weights.json
  pairity weights model --pairs pairs.parquet --table jobs.csv \
      --label hired --query search_id --group gender
  pairity weights model --pairs train.pairs --table jobs.csv \
      --label hired --query search_id --group gender

The last two commands write every training pair with its weight: the first for any tool that trains
on pairs, the second in CatBoost's own format. A model does not contain its training data, so name
the table, the roles, and --test and --seed if `pairity train` was run with them. A table that the
model was not trained on is rejected.
"""

from __future__ import annotations

import argparse
from typing import Any

import pairity
from pairity.cli import options
from pairity.cli.output import note, show_or_json
from pairity.exceptions import InputError


def add_to(parser: Any) -> None:
    """Declare the options."""
    options.add_model(parser)
    pairs = (
        "write the weighted pairs to this file and replace it: .parquet, or .pairs and .tsv for "
        "CatBoost"
    )
    options.add(parser, "--pairs FILE", pairs)
    table = parser.add_argument_group("for --pairs, the table that the model was trained on")
    table.add_argument("--table", metavar="FILE", dest="file")
    options.add_format(table)
    options.add_roles(table)
    options.add(table, "--query-weight COLUMN", "the column of query weights, if there was one")
    options.add_share(table, "--test", "the share of queries held out in training")
    options.add_seed(table, "the seed of that split")
    options.add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Print the table, or write the pairs."""
    from pairity.reweighting.export import export_pairs

    model = pairity.load(args.model)
    weights = getattr(model, "pair_weights_", None)
    if weights is None:
        raise InputError(f"The model in {args.model} is a plain ranker, which has no pair weights.")
    if args.pairs is not None:
        queries, rows = _training_queries(model, args)
        export_pairs(queries, weights, args.pairs, rows=rows)
        if not args.quiet:
            note(f"the weighted pairs of {queries.n_queries:,} queries are in {args.pairs}.")
    show_or_json(args, weights.to_dict(), weights)
    return 0


def _training_queries(model: Any, args: argparse.Namespace) -> tuple[pairity.Queries, Any]:
    """Return the queries that the model was trained on, and the table's row of each item."""
    import numpy as np

    if args.file is None:
        raise InputError("--pairs requires the training table: add --table FILE and its roles.")
    table = options.open_table(args)
    X, _ = table.features(options.feature_names(model, args.model), (), ())
    queries = options.read_queries(table, args)
    if model._training["equal_queries"]:
        queries = queries.with_equal_queries()
    elif args.query_weight is not None:
        queries = options.with_query_weights(queries, table, args.query_weight)
    queries = queries.with_features(X, raw=True)
    if queries.digest() == model.training_digest_:
        return queries, np.arange(queries.n_items)
    train, _ = queries.split(args.test, args.seed)
    if train.digest() == model.training_digest_:
        return train, queries.rows_of(train)
    raise InputError(
        f"The model in {args.model} was not trained on {args.file} with these roles and this "
        f"split (--test {args.test:g} --seed {args.seed}): the digest of its training data is "
        f"{model.training_digest_[:12]}…, which differs. Use the unchanged table, and the options "
        "that `pairity train` was run with."
    )
