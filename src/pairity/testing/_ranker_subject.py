"""The ranker that a check examines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
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
