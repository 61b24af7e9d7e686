"""Rankers by their name on the command line, with settings as text."""

from __future__ import annotations

import ast
import warnings
from difflib import get_close_matches
from inspect import signature
from typing import Any

from pairity.exceptions import InputError, MissingExtraError, PairityWarning

ENGINES = {
    "linear": ("pairity", "LinearRanker"),
    "lightgbm": ("lightgbm", "LGBMRanker"),
    "xgboost": ("xgboost", "XGBRanker"),
    "catboost": ("catboost", "CatBoostRanker"),
}
TAKES_GAPS = ("lightgbm", "xgboost", "catboost")  # missing features, each in its own way
_SEEDED = {"lightgbm": "random_state", "xgboost": "random_state", "catboost": "random_seed"}
_SILENT: dict[str, dict[str, Any]] = {
    "lightgbm": {"verbose": -1},
    "catboost": {"verbose": False, "allow_writing_files": False},
}


def add_ranker(parser: Any) -> None:
    """Which ranker, and its settings."""
    parser.add_argument("--ranker", choices=tuple(ENGINES), default="linear")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE",
        help="a setting of the ranker, such as num_leaves=63; may be repeated",
    )  # fmt: skip


def make_ranker(name: str, settings: list[str], seed: int) -> Any:
    """The ranker with these settings, each NAME=VALUE; a value that is no literal is text."""
    from importlib import import_module

    module, kind = ENGINES[name]
    try:
        make = getattr(import_module(module), kind)
    except ImportError as error:
        raise MissingExtraError(
            f'--ranker {name} needs {module}. Install it with: pip install "pairity[{name}]"'
        ) from error
    chosen = {**_SILENT.get(name, {}), **_read(settings)}
    if name in _SEEDED:
        chosen = {_SEEDED[name]: seed, **chosen}
    try:
        ranker = make(**chosen)
    except TypeError as error:
        raise InputError(f"{kind} does not take these settings: {error}.") from error
    _warn_of_misspelt(make, _read(settings))
    return ranker


def _warn_of_misspelt(make: Any, settings: dict[str, Any]) -> None:
    """Say which settings look misspelt: some engines take any name, and look at few."""
    known = {**signature(make).parameters, **make().get_params()}
    for name in settings:
        close = get_close_matches(name, known, 1, 0.75)
        if name not in known and close:
            warnings.warn(
                f"{name} is no setting of {make.__name__}, though its engine may have one of that "
                f"name. Did you mean {close[0]}?",
                PairityWarning,
                stacklevel=3,
            )


def _read(settings: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise InputError(f"--set {text!r} is not NAME=VALUE, such as --set num_leaves=63.")
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            found[name] = {"true": True, "false": False}.get(value.lower(), value)
    return found
