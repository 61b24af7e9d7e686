"""How a model was fitted, and how to reproduce its report."""

from __future__ import annotations

import platform
from contextlib import suppress
from importlib import metadata
from typing import Any

import numpy as np

from pairity.audits.estimates import Support
from pairity.data.queries import Queries
from pairity.reports.evidence import HELD_OUT, RecordedRound
from pairity.reweighting.fair_ranker import FairRanker


def describe_fit(model: FairRanker) -> dict[str, Any]:
    """The rounds of a fit, with the entries of λ that ever changed, and its outcome."""
    changed = np.any([round_.lambda_ != 0.0 for round_ in model.history_], axis=0)
    return {
        "rounds": tuple(
            RecordedRound(
                number=int(round_.number),
                lambda_=tuple(round_.lambda_[changed].tolist()),
                violation=float(round_.violation),
                auc=float(round_.auc),
            )
            for round_ in model.history_
        ),
        "lambda_cells": tuple(map(tuple, np.argwhere(changed).tolist())),
        "outcome": model.outcome_,
    }


def provenance(model: FairRanker, train: Queries, test: Queries) -> dict[str, str]:
    """Versions, settings and digests."""
    engine = type(model.ranker_).__module__.rpartition(".")[2]
    return {
        "trained on": _size(train),
        "training data, SHA-256": model.training_digest_,
        "measured on": _size(test),
        HELD_OUT: test.digest(),
        "model": " ".join(repr(model).split()),
        "versions": show_versions("pairity", "numpy", "scikit-learn", engine),
    }


def _size(queries: Queries) -> str:
    pairs = int(Support(queries).all_pairs().sum())
    return f"{queries.n_queries:,} queries, {queries.n_items:,} items, {pairs:,} preference pairs"


def show_versions(*libraries: str) -> str:
    """The versions of Python and of those libraries that are installed."""
    versions = [f"Python {platform.python_version()}"]
    for name in libraries:
        with suppress(metadata.PackageNotFoundError):
            versions.append(f"{name} {metadata.version(name)}")
    return ", ".join(versions)
