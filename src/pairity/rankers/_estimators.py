"""What our scikit-learn estimators share: their score, and what they remember of features."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from pairity.columns import as_features, as_raw_features
from pairity.exceptions import InputError
from pairity.pairs import mean_auc
from pairity.queries import Queries, require_preferences


def remember_features(estimator: Any, X: Any, y: Any) -> None:
    """Set ``n_features_in_`` and, for columns named by strings, ``feature_names_in_``."""
    try:
        validate_data(estimator, X, y, reset=True, skip_check_array=True)
    except (TypeError, ValueError) as error:
        raise InputError(str(error)) from error


def read_features(estimator: Any, X: Any, *, raw: bool = False) -> Any:
    """A checked feature matrix, or table, with the columns the estimator was fitted on."""
    features, _ = as_raw_features(X) if raw else as_features(X)
    try:
        validate_data(estimator, X, reset=False, skip_check_array=True)
    except (TypeError, ValueError) as error:
        raise InputError(str(error)) from error
    return features


class RankingEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator that scores items: sparse features welcome, labels needed, AUC as score."""

    @abstractmethod
    def predict(self, X: Any) -> NDArray[np.float64]:
        """Scores of shape (n_items,), in the order of the rows."""

    def score(
        self, X: Any, y: Any, *, qid: Any, sample_weight: Any = None, query_weight: Any = None
    ) -> float:
        """The AUC per query, averaged over queries; weights as in `fit`."""
        scores = self.predict(X)
        queries = Queries.from_arrays(
            X, y, qid=qid, sample_weight=sample_weight, query_weight=query_weight, raw=True
        )
        require_preferences(queries)
        return mean_auc(scores, queries)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        return tags


class PairRanker(RankingEstimator):
    """An estimator that trains on weighted pairs: `fit` is `fit_pairs` with all of equal weight."""

    raw_features = False

    @abstractmethod
    def fit_pairs(
        self,
        queries: Queries,
        table: NDArray[np.float64],
        *,
        previous: Any = None,
        **fit_params: Any,
    ) -> Self:
        """Fit on weighted pairs; see `pairity.rankers.base.Ranker`."""

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        qid: Any,
        sample_weight: Any = None,
        query_weight: Any = None,
        **fit_params: Any,
    ) -> Self:
        """Fit with every pair weighing the same; arguments as in `Queries.from_arrays`."""
        remember_features(self, X, y)
        queries = Queries.from_arrays(
            X, y, qid=qid, sample_weight=sample_weight, query_weight=query_weight,
            raw=self.raw_features,
        )  # fmt: skip
        return self.fit_pairs(queries, np.ones((0, 0)), **fit_params)
