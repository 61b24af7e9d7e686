"""The ranker that a check examines, and the data for checks of cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from pairity._utils.typing import Array
from pairity.data.queries import Queries
from pairity.rankers.adapters import as_ranker
from pairity.testing._contract import RTOL, Subject

Plain = Callable[[Queries], Any]


@dataclass(frozen=True, eq=False)
class RankerSubject(Subject):
    """A ranker under one check."""

    ranker: Any
    plain: Plain | None

    @classmethod
    def of(
        cls, name: str, ranker: Any, *, rtol: float = RTOL, plain: Plain | None = None
    ) -> RankerSubject:
        """The subject of the check of a property."""
        ranker = as_ranker(ranker)
        return cls(name, type(ranker).__name__, rtol, ranker, plain)

    def queries(self, data: dict[str, Any], **changed: Any) -> Queries:
        """Make queries with copied features, as this ranker reads them."""
        raw = bool(getattr(self.ranker, "raw_features", False))
        columns = {**data, **changed}
        return Queries.from_arrays(**{**columns, "X": columns["X"].copy()}, raw=raw)

    def copy(self) -> Any:
        """An unfitted copy of the ranker."""
        return clone(self.ranker, safe=False)

    def fit(self, queries: Queries, table: Any = None, *, previous: Any = None) -> Any:
        """Fit a copy, with a table of ones by default."""
        if table is None:
            table = np.ones((queries.n_groups, queries.n_groups))
        ranker = self.copy()
        ranker.fit_pairs(queries, np.array(table, dtype=np.float64), previous=previous)
        return ranker

    def scores(self, queries: Queries, table: Any = None) -> Array:
        """The scores of items by a copy that is fitted to them."""
        return self.predict(self.fit(queries, table), queries.X)

    def predict(self, model: Any, X: Any) -> Array:
        """Predict scores, and require one finite score per row."""
        scores = np.asarray(model.predict(X), dtype=np.float64)
        if scores.shape != (len(X),) or not np.isfinite(scores).all():
            self.fail(
                f"predict returned shape {scores.shape} for {len(X)} items, with "
                f"{int((~np.isfinite(scores)).sum())} scores that are NaN or infinite. Return one "
                "finite score per row."
            )
        return scores

    def same_order(self, got: Array, want: Array, what: str, advice: str) -> None:
        """Require equal scores up to a common constant, which no pair sees."""
        self.same(got - (got - want).mean(), want, what, advice)


TABLE = np.array([[1.0, 0.4, 2.5], [1.6, 0.8, 0.3], [0.5, 1.9, 1.2]])  # for `mixed_lists`
CELLS = (("a", "b"), ("b", "a"), ("a", "a"))


def lists_by_cell(*, copies: bool = False) -> dict[str, Any]:
    """Thirty-six queries of twelve items, the pairs of each in one cell, in turn: see `CELLS`.

    The queries of the first two cells have the same items and mostly contrary preferences, so that
    no ranker can respect both. With `copies`, the queries of the first cell occur twice, the
    second time in the groups c and d.
    """
    rng = np.random.default_rng(20211)
    n_queries, n_items = 36, 12
    cell = np.arange(n_queries) % len(CELLS)
    X = rng.normal(size=(n_queries, n_items, 4))
    X[cell == 1] = X[cell == 0]
    coef = np.array([[1.5, 0.7, 0.0, 0.2], [-1.5, 0.7, 0.3, 0.0], [0.2, 0.7, 1.0, 0.0]])
    latent = np.einsum("qif,qf->qi", X, coef[cell]) + 0.5 * rng.normal(size=X.shape[:2])
    n_preferred = rng.integers(4, 9, n_queries)
    preferred = latent.argsort(axis=1).argsort(axis=1) >= (n_items - n_preferred)[:, None]
    names = np.array(CELLS, dtype=object)[cell]
    data = {
        "X": X.reshape(-1, 4),
        "y": preferred.ravel().astype(float),
        "qid": np.repeat(np.arange(n_queries), n_items),
        "sensitive_features": np.where(preferred, names[:, :1], names[:, 1:]).ravel(),
    }
    if not copies:
        return data
    copied = {key: values[rows_of_cell(data, 0)] for key, values in data.items()}
    copied["qid"] = copied["qid"] + n_queries
    copied["sensitive_features"] = np.where(copied["sensitive_features"] == "a", "c", "d")
    return {key: np.concatenate([data[key], copied[key]]) for key in data}


def rows_of_cell(data: dict[str, Any], cell: int) -> NDArray[np.bool_]:
    """Which rows of `lists_by_cell` are in queries of a cell, by its position in `CELLS`."""
    chosen: NDArray[np.bool_] = data["qid"] % len(CELLS) == cell
    return chosen


def cell_table(queries: Queries, fill: float = 1.0, **weights: float) -> Array:
    """A weight table by names of groups: ``ab=3`` gives the cell (a, b) weight 3."""
    table = np.full((queries.n_groups, queries.n_groups), fill)
    for cell, weight in weights.items():
        preferred, other = (queries.groups.index(name) for name in cell)
        table[preferred, other] = weight
    return table
