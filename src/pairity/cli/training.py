"""``pairity train``: the plain and the fair ranker, audited on held-out queries, and saved."""

from __future__ import annotations

import argparse
import ast
import json
import warnings
from typing import Any

import numpy as np

from pairity.cli.inputs import add_output, add_table, print_json, queries_of, read_given
from pairity.exceptions import InputError, MissingExtraError, TargetNotReachedWarning

_ENGINES = {
    "linear": ("pairity", "LinearRanker"),
    "lightgbm": ("lightgbm", "LGBMRanker"),
    "xgboost": ("xgboost", "XGBRanker"),
    "catboost": ("catboost", "CatBoostRanker"),
}
_SEEDED = {"lightgbm": "random_state", "xgboost": "random_state", "catboost": "random_seed"}
_EXAMPLES = """\
examples:
  pairity train jobs.csv --label hired --query search_id --group gender --output model
  pairity train jobs.csv --label hired --query search_id --group gender --output model \\
      --ranker lightgbm --set n_estimators=300 --set num_leaves=63 \\
      --constraint inter --tolerance 0.02

A share of the queries is held out (--test); both rankers are audited on it. The model is saved in
the folder, which `pairity predict` reads. Status 1: the tolerance was not reached.
"""


def add_to(commands: Any) -> None:
    """Say the arguments."""
    parser = commands.add_parser(
        "train",
        help="train a ranker with a lower violation, and compare it with the plain one",
        description="Train the plain and the reweighted ranker; audit both on held-out queries.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_table(parser, features=True)
    parser.add_argument("--output", metavar="DIR", required=True, help="where the model goes")
    parser.add_argument("--ranker", choices=tuple(_ENGINES), default="linear")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the engine"
    )
    parser.add_argument("--constraint", default="inter", metavar="NAME",
                        help="statistical, inter, intra or marginal (default: inter)")  # fmt: skip
    parser.add_argument("--tolerance", type=float, default=0.01, metavar="X")
    parser.add_argument(
        "--test",
        type=float,
        default=0.2,
        metavar="SHARE",
        help="of queries held out (default: 0.2)",
    )
    parser.add_argument("--seed", type=int, default=0)
    add_output(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Train, audit, save, and say what came of it."""
    from pairity.audits import audit
    from pairity.comparisons import compare
    from pairity.fair_ranker import FairRanker

    table = read_given(given)
    taken = [given.label, given.query, *(given.group or [])]
    queries_of(table, given)  # roles are wrong more often than features: their errors come first
    X, names = table.features(given.features, given.exclude, taken)
    queries = queries_of(table, given, X)
    train, test = queries.split(given.test, given.seed)
    settings = _settings(given.set)
    fair = FairRanker(
        _engine(given.ranker, settings, given.seed), given.constraint, tolerance=given.tolerance,
        random_state=given.seed, progress=False if given.quiet else "auto",
    )  # fmt: skip
    plain = _engine(given.ranker, settings, given.seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TargetNotReachedWarning)
        before = FairRanker(plain, given.constraint, max_rounds=0, schedule="retrain",
                            random_state=given.seed, progress=False).fit(**train)  # fmt: skip
        fair.fit(**train)
    audits = {
        name: audit(test, np.asarray(model.predict(test.X)), name=name, random_state=given.seed)
        for name, model in (("plain", before), ("reweighted", fair))
    }
    fair.feature_names_in_ = np.array(names, dtype=object)  # `pairity predict` looks for these
    fair.save(given.output)
    reached = not any(issubclass(w.category, TargetNotReachedWarning) for w in caught)
    if given.format == "json":
        print_json(
            {
                "output": given.output,
                "outcome": str(fair.outcome_),
                "reached": reached,
                "training_violation": float(fair.violation_),
                "pair_weights": json.loads(fair.pair_weights_.to_json()),
                "audits": {name: held.to_dict() for name, held in audits.items()},
            }
        )
    elif not given.quiet:
        print(f"{compare(audits)}\n")
        print(f"Pair weights\n{fair.pair_weights_}\n")
        print(f"{fair.outcome_}\nSaved in {given.output}.")
    return 0 if reached else 1


def _settings(given: list[str]) -> dict[str, Any]:
    """Settings of the engine, from NAME=VALUE; a value that is no literal is text."""
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise InputError(f"--set {text!r} is not NAME=VALUE, such as --set num_leaves=63.")
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = value
    return found


def _engine(name: str, settings: dict[str, Any], seed: int) -> Any:
    from importlib import import_module

    module, kind = _ENGINES[name]
    try:
        make = getattr(import_module(module), kind)
    except ImportError as error:
        raise MissingExtraError(
            f'--ranker {name} needs {module}. Install it with: pip install "pairity[{name}]"'
        ) from error
    if name in _SEEDED:
        settings = {_SEEDED[name]: seed, **settings}
    try:
        return make(**settings)
    except TypeError as error:
        raise InputError(f"{kind} does not take these settings: {error}.") from error
