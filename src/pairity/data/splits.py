"""Data handed in beside the training queries, and queries held out of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairity.data.queries import Queries
from pairity.exceptions import InputError

_NEEDED = ("X", "y", "qid", "sensitive_features")


def read_held_out(given: Any, queries: Queries, raw: bool) -> Queries:
    """Queries to measure on that were handed in, with the training queries' numbering of groups."""
    if not isinstance(given, Mapping):
        raise InputError(
            f"{type(given).__name__} is no validation data. Give a share of the queries such as "
            "0.2, Queries, or a mapping with X, y, qid and sensitive_features."
        )
    held = given
    if not isinstance(held, Queries):
        absent = [key for key in _NEEDED if key not in held]
        unknown = [key for key in held if key not in (*_NEEDED, "sample_weight", "query_weight")]
        if absent or unknown:
            wrong = f"{absent[0]!r} is missing" if absent else f"{unknown[0]!r} is not known"
            raise InputError(
                f"{wrong}. Give X, y, qid and sensitive_features, and sample_weight or "
                "query_weight where there are weights."
            )
        held = Queries.from_arrays(**held, raw=raw)
    if held.X is None:
        raise InputError("the queries have no features. Build them with X.")
    n_features = 0 if queries.X is None else queries.X.shape[1]
    if held.X.shape[1] != n_features:
        raise InputError(
            f"X has {held.X.shape[1]} features, but the training data has {n_features}. Give the "
            "same columns in both."
        )
    if None not in (held.feature_names, queries.feature_names):
        _require_same_names(held.feature_names or (), queries.feature_names or ())
    return held.with_groups_of(queries)


def _require_same_names(here: tuple[str, ...], training: tuple[str, ...]) -> None:
    for at, (name, wanted) in enumerate(zip(here, training, strict=True)):
        if name != wanted:
            raise InputError(
                f"column {at} of X is {name!r}, but {wanted!r} in the training data. Give the "
                "same columns in the same order."
            )


@contextmanager
def about(where: str) -> Iterator[None]:
    """Say of which data an error speaks."""
    try:
        yield
    except InputError as error:
        raise type(error)(f"In {where}: {error}") from error


def hold_out_again(queries: Queries, trained_on: Queries, share: float) -> tuple[Queries, Queries]:
    """Split queries as they were when a part of them was trained on."""
    kept = set(trained_on.query_ids.tolist())
    chosen = np.array([name in kept for name in queries.query_ids.tolist()])
    if chosen.all() or not chosen.any():
        raise InputError(
            f"The model was trained on {int(chosen.sum())} of these {queries.n_queries} "
            f"queries, and held out a share of {share}. Give path the data that fit "
            "was given."
        )
    return queries.take(chosen), queries.take(~chosen)


def without_features(train: Queries, queries: Queries) -> tuple[Queries, NDArray[np.int64] | None]:
    """The training queries, light enough to keep, and the rows they had where some were held."""
    rows = None
    if train is not queries:
        kept = set(train.query_ids.tolist())
        ids = queries.query_ids.tolist()
        rows = np.flatnonzero(np.fromiter((q in kept for q in ids), bool, len(ids))[queries.query])
    return replace(train, X=None), rows


def read_without_features(data: Any) -> Queries:
    """Queries whose features do not matter, from a mapping of what `fit` takes."""
    if isinstance(data, Queries):
        return data
    if not isinstance(data, Mapping) or not set(_NEEDED[1:]) <= set(data):
        raise InputError(
            f"data is {type(data).__name__}. Give Queries, or a mapping with y, qid and "
            "sensitive_features."
        )
    return Queries.from_arrays(**{**data, "X": None})
