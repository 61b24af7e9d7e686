"""Objective: gradients of the weighted pairwise loss for engines; TrackedScores: other scores."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairity._utils.typing import Array
from pairity.data.parquet_features import ParquetFeatures
from pairity.data.queries import Queries
from pairity.pairs.enumeration import relative_weights
from pairity.pairs.losses import Loss
from pairity.rankers._estimators import predict_in_blocks

# Receives the number of trees so far, the final number of trees, and a function that returns the
# current scores; returns the pair weights for the next tree. See `BoosterRanker.fit_following`.
Follow = Callable[[int, int, Callable[..., Array]], Array]


# The largest Newton step of an item in pairs whose order is turned round: that of equal scores.
# When scores are already far apart, the loss is nearly a straight line, and a Newton step has no
# bounds. On memorised queries three trees could then turn the order of two groups round.
_LONGEST_STEP = 2.0


@dataclass(eq=False)
class Objective:
    """Derivatives of a weighted pairwise loss, for one training run.

    Weights are divided by their mean, so that quantities an engine compares with fixed numbers (an
    L2 penalty, the minimum weight of a leaf) do not depend on the scale of W.

    Parameters
    ----------
    queries : Queries
        The rows of each query must be contiguous.
    loss : Loss
    follow : Follow
        Scores are passed to it in the caller's row order.
    n_total : int, final number of trees; ``n_trees`` counts those so far
    rows : int array of shape (n_items,), optional
        The caller's row of each item, if the order differs.
    measure : callable, optional
        Returns the scores that `follow` may ask for. By default these are the scores of `queries`.
    """

    queries: Queries
    loss: Loss
    follow: Follow
    n_total: int = 0
    rows: NDArray[np.int64] | None = None
    measure: Callable[[], Array] | None = None
    n_trees: int = field(default=0, init=False)
    _relative: tuple[Array, Array] | None = field(default=None, init=False)

    def __call__(self, scores: Array) -> tuple[Array, Array]:
        """Return the gradient and the diagonal of the Hessian at the current scores."""
        weights = self.follow(self.n_trees, self.n_total, partial(self._measured, scores))
        derivatives = self.loss.derivatives(
            self.queries, scores, self._as_relative(weights), iteration=self.n_trees
        )
        self.n_trees += 1
        if np.ndim(weights) == 3:  # with mirrored pairs
            gradient, hessian = derivatives
            return gradient, np.maximum(hessian, np.abs(gradient) / _LONGEST_STEP)
        return derivatives

    def _as_relative(self, weights: Array) -> Array:
        """Divide the weights by their mean; see `relative_weights`."""
        if self._relative is None or not np.array_equal(weights, self._relative[0]):
            self._relative = weights, relative_weights(self.queries, weights)
        return self._relative[1]

    def _measured(self, scores: Array, *, training: bool = False) -> Array:
        if self.measure is not None and not training:
            return self.measure()
        if self.rows is None:
            return scores
        in_callers_order = np.empty(len(scores))
        in_callers_order[self.rows] = scores
        return in_callers_order


class TrackedScores:
    """Scores of further queries during training, for an objective that follows them.

    Parameters
    ----------
    queries : Queries
    read : callable
        Converts features to the engine's data.
    count : callable
        Returns the number of trees of a booster.
    predict : callable
        Receives a booster, the number of a first tree, and data; returns what that tree and all
        later ones add to the scores.

    Attributes
    ----------
    booster : the current booster, set by the engine's callback after every tree
    """

    def __init__(
        self,
        queries: Queries,
        read: Callable[[Any], Any],
        count: Callable[[Any], int],
        predict: Callable[[Any, int, Any], Any],
    ) -> None:
        self.X, self.read, self.count, self.predict = queries.X, read, count, predict
        self.data = None if isinstance(self.X, ParquetFeatures) else read(self.X)
        self.scores, self.n_trees, self.booster = np.zeros(queries.n_items), 0, None

    def __call__(self) -> Array:
        """Return the scores of all trees so far. Each tree is predicted once."""
        n_trees = 0 if self.booster is None else self.count(self.booster)
        if n_trees > self.n_trees:
            predict = partial(self.predict, self.booster, self.n_trees)
            if self.data is None:
                added = predict_in_blocks(lambda X: predict(self.read(X)), self.X, raw=True)
            else:
                added = predict(self.data)
            self.scores, self.n_trees = self.scores + added, n_trees
        return self.scores
