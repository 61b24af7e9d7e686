"""What an estimator remembers of its features, and checks at prediction."""

from __future__ import annotations

from typing import Any

from sklearn.utils.validation import validate_data

from pairity.columns import Features, as_features
from pairity.exceptions import InputError


def remember_features(estimator: Any, X: Any, y: Any) -> None:
    """Set ``n_features_in_`` and, for columns named by strings, ``feature_names_in_``."""
    try:
        validate_data(estimator, X, y, reset=True, skip_check_array=True)
    except (TypeError, ValueError) as error:
        raise InputError(str(error)) from error


def read_features(estimator: Any, X: Any) -> Features:
    """A checked feature matrix with the columns the estimator was fitted on."""
    features, _ = as_features(X)
    try:
        validate_data(estimator, X, reset=False, skip_check_array=True)
    except (TypeError, ValueError) as error:
        raise InputError(str(error)) from error
    return features
