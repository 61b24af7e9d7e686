"""Rankers by their command-line name, with settings given as text."""

from __future__ import annotations

import ast
import warnings
from difflib import get_close_matches
from inspect import signature
from typing import Any, NamedTuple

from pairity._utils.extras import import_extra
from pairity.cli.options import add
from pairity.exceptions import InputError, PairityWarning


class Engine(NamedTuple):
    """Where a ranker's class is, the name of its seed, and settings that keep it quiet."""

    module: str
    name: str
    seed: str | None = "random_state"
    quiet: dict[str, Any] = {}  # noqa: RUF012 - never written to
    takes_missing: bool = True


_SILENT_CATBOOST = {"verbose": False, "allow_writing_files": False}
ENGINES = {
    "linear": Engine("pairity", "LinearRanker", seed=None, takes_missing=False),
    "lightgbm": Engine("lightgbm", "LGBMRanker", quiet={"verbose": -1}),
    "xgboost": Engine("xgboost", "XGBRanker"),
    "catboost": Engine("catboost", "CatBoostRanker", "random_seed", _SILENT_CATBOOST),
}


def add_ranker(parser: Any) -> None:
    """Add the options that choose a ranker and its settings."""
    parser.add_argument("--ranker", choices=tuple(ENGINES), default="linear")
    text = "a setting of the ranker, such as num_leaves=63; may be repeated"
    add(parser, "--set NAME=VALUE", text, action="append", default=[])


def make_ranker(name: str, settings: list[str], seed: int) -> Any:
    """Make the ranker with these settings, each NAME=VALUE.

    A value that is not a Python literal is taken as text.
    """
    engine = ENGINES[name]
    make = getattr(import_extra(engine.module, f"--ranker {name}", name), engine.name)
    chosen = _parse(settings)
    defaults = {**engine.quiet, **({engine.seed: seed} if engine.seed else {})}
    try:
        ranker = make(**{**defaults, **chosen})
    except TypeError as error:
        raise InputError(f"{engine.name} does not accept these settings: {error}.") from error
    _warn_about_spelling(make, chosen)
    return ranker


def _warn_about_spelling(make: Any, settings: dict[str, Any]) -> None:
    """Warn about settings that look misspelt: some engines accept any name and ignore it."""
    known = {**signature(make).parameters, **make().get_params()}
    for name in settings:
        close = get_close_matches(name, known, 1, 0.75)
        if name not in known and close:
            warnings.warn(
                f"{make.__name__} has no setting {name}, although its engine may accept it. "
                f"Did you mean {close[0]}?",
                PairityWarning,
                stacklevel=3,
            )


def _parse(settings: list[str]) -> dict[str, Any]:
    parsed: dict[str, Any] = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise InputError(f"--set {text!r} must have the form NAME=VALUE, as in num_leaves=63.")
        try:
            parsed[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            parsed[name] = {"true": True, "false": False}.get(value.lower(), value)
    return parsed
