"""Ranker: the protocol of procedure H, which fits on weighted pairs and scores items."""

from __future__ import annotations

from typing import Any, Protocol, Self, runtime_checkable

from pairity._utils.typing import Array
from pairity.data.queries import Queries


@runtime_checkable
class Ranker(Protocol):
    """Anything that minimises a weighted pairwise loss and gives scores.

    A ranker need not import pairity. It should follow scikit-learn's conventions for parameters
    (``get_params``), since it is cloned before every fit. One whose attribute ``raw_features`` is
    true gets features as the caller gave them, with missing values and categories; others get a
    finite float64 matrix. One whose attribute ``streams`` is true trains on features in files as
    well (`pairity.data.parquet_features.ParquetFeatures`), which it goes through in blocks.
    """

    def fit_pairs(
        self,
        queries: Queries,
        weights: Array,
        *,
        previous: Any = None,
        **fit_params: Any,
    ) -> Self:
        """Fit on the preference pairs of `queries`, a pair in cell (k, l) weighing weights[k, l].

        Parameters
        ----------
        queries : Queries
            Pairs with an item of unknown group weigh 1; item and query weights multiply.
        weights : array of shape (n_groups, n_groups)
        previous : a fitted ranker of the same kind, or None
            The last fit on the same queries with another table: a place to start from, and to
            take prepared data from. It must not be changed.
        **fit_params
            What else the caller gave to ``FairRanker.fit``; a ranker that takes nothing more may
            leave them out of its signature.
        """
        ...

    def predict(self, X: Any) -> Array:
        """Scores of shape (n_items,); no group is needed."""
        ...
