"""What an estimator remembers of its features, and checks at prediction."""

from __future__ import annotations

from typing import Any

from sklearn.utils.validation import validate_data

from pairity.columns import Features, as_features
from pairity.exceptions import InputError


def remember_features(estimator: Any, X: Any) -> None:
    """Set ``n_features_in_`` and, for named columns, ``feature_names_in_``."""
    validate_data(estimator, X, reset=True, skip_check_array=True)


def read_features(estimator: Any, X: Any) -> Features:
    """A checked feature matrix with the columns the estimator was fitted on."""
    features, _ = as_features(X)
    try:
        validate_data(estimator, X, reset=False, skip_check_array=True)
    except ValueError as error:
        raise InputError(str(error)) from error
    return features
