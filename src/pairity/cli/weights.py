"""``pairity weights``: the pair weights that a saved model learnt, and its weighted pairs."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from pairity.cli.options import (
    add_command,
    add_format,
    add_model,
    add_output,
    add_roles,
    add_seed,
    add_share,
    feature_names,
    queries_of,
    read_given,
)
from pairity.cli.output import note, print_json, say
from pairity.exceptions import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pairity.data.queries import Queries

_EXAMPLES = """\
examples:
  pairity weights model
  pairity weights model --format json > weights.json
  pairity weights model --pairs pairs.parquet --table jobs.csv \\
      --label hired --query search_id --group gender
  pairity weights model --pairs train.pairs --table jobs.csv \\
      --label hired --query search_id --group gender

The last two write every training pair with its weight, the first for any tool that trains on
pairs, the second in CatBoost's own format. A model does not hold its training data: name the table,
the roles, and --test and --seed where `pairity train` was given them. A table that the model was
not trained on is refused.
"""


def add_to(commands: Any) -> None:
    """Say the arguments."""
    parser = add_command(
        commands, "weights",
        about="what a saved model learnt: the weights of pairs, by group",
        says="The table of pair weights, by the groups of the two items; and the weighted pairs.",
        examples=_EXAMPLES,
    )  # fmt: skip
    add_model(parser)
    parser.add_argument(
        "--pairs", metavar="FILE",
        help="write the weighted pairs: .parquet, or .pairs and .tsv for CatBoost; replaces a file",
    )  # fmt: skip
    table = parser.add_argument_group("for --pairs, the table that the model was trained on")
    table.add_argument("--table", metavar="FILE", dest="file")
    add_format(table)
    add_roles(table)
    add_share(table, "--test", "of queries held out in training")
    add_seed(table, "of that split")
    add_output(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Print the table, or write the pairs."""
    from pairity.reweighting.export import export_pairs
    from pairity.reweighting.persistence import load

    model = load(given.model)
    weights = getattr(model, "pair_weights_", None)
    if weights is None:
        raise InputError(f"The model in {given.model} is a plain ranker: it learnt no weights.")
    if given.pairs is not None:
        queries, rows = _trained_on(model, given)
        export_pairs(queries, weights, given.pairs, rows=rows)
        if not given.quiet:
            note(f"the weighted pairs of {queries.n_queries:,} queries are in {given.pairs}.")
    if given.format == "json":
        print_json(json.loads(weights.to_json()))
    elif not given.quiet:
        say(weights)
    return 0


def _trained_on(model: Any, given: argparse.Namespace) -> tuple[Queries, NDArray[np.int64]]:
    """The queries that the model was trained on, and the table's row of each item."""
    import numpy as np

    from pairity.data.digest import digest

    if given.file is None:
        raise InputError("--pairs needs the training table again: --table FILE, and its roles.")
    table = read_given(given)
    rows = np.arange(table.n_rows)
    X, _ = table.features(feature_names(model, given.model), (), ())
    queries = queries_of(table, given, X, gaps=True)
    if digest(queries) == model.training_digest_:
        return queries, rows
    train, _ = queries.split(given.test, given.seed)
    if digest(train) == model.training_digest_:
        numbered, _ = queries_of(table, given, rows[:, None]).split(given.test, given.seed)
        return train, np.asarray(numbered.X[:, 0], dtype=np.int64)
    raise InputError(
        f"The model in {given.model} was not trained on {given.file} with these roles and this "
        f"split (--test {given.test:g} --seed {given.seed}): the digest of its training data, "
        f"{model.training_digest_[:12]}…, is another. Give the table as it was, and the options "
        "that `pairity train` was given."
    )
