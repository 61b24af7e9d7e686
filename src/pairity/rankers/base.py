"""Ranker: the protocol of procedures that train on weighted pairs and score items."""

from typing import Any, Protocol, Self, runtime_checkable

from pairity._utils.typing import Array
from pairity.data.queries import Queries


@runtime_checkable
class Ranker(Protocol):
    """Any object that minimises a weighted pairwise loss and returns scores.

    A ranker need not import pairity. It should follow scikit-learn's conventions for parameters
    (``get_params``), because it is cloned before every fit. If its attribute ``raw_features`` is
    true, it receives features as the caller passed them, with missing values and categories;
    otherwise it receives a finite float64 matrix. If its attribute ``streams`` is true, it also
    trains on features in files (`pairity.data.parquet_features.ParquetFeatures`), which it reads
    in blocks. If its attribute ``reversible`` is true, it also takes two weight tables. If its
    attribute ``memorises`` is true, `FairRanker` measures it on queries it did not train on.
    """

    def fit_pairs(
        self, queries: Queries, weights: Array, *, previous: Any = None, **fit_params: Any
    ) -> Self:
        """Fit on the preference pairs of `queries`; a pair in cell (k, l) has weights[k, l].

        Parameters
        ----------
        queries : Queries
            Pairs with an item of unknown group have weight 1. Weights of items and
            `Queries.training_weight` of their query multiply the weight of a pair.
        weights : array of shape (n_groups, n_groups), or (2, n_groups, n_groups)
            With two tables, a pair in cell (k, l) has weights[0, k, l] in its observed order and
            weights[1, k, l] in the mirrored order, in which the other item is the preferred one.
            Pairs with an item of unknown group have no mirrored weight.
        previous : a fitted ranker of the same kind, or None
            The last fit on the same queries with other weights, as a starting point and as a
            source of prepared data. It must not be changed.
        **fit_params
            Further arguments of ``FairRanker.fit``. A ranker without any may omit them from its
            signature.
        """
        ...

    def predict(self, X: Any) -> Array:
        """Return scores of shape (n_items,); no group is needed."""
        ...
