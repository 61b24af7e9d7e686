"""The ranker under a check of its contract, and the data that it is checked on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from pairity._utils.typing import Array
from pairity.data.queries import Queries
from pairity.exceptions import ContractError

Plain = Callable[[Queries], Any]


@dataclass(frozen=True, eq=False)
class RankerSubject:
    """The ranker under one check."""

    name: str
    ranker: Any
    rtol: float
    plain: Plain | None

    def queries(self, data: dict[str, Any], **changed: Any) -> Queries:
        """Queries with arrays of their own, read as this ranker wants them."""
        raw = bool(getattr(self.ranker, "raw_features", False))
        given = {**data, **changed}
        return Queries.from_arrays(**{**given, "X": given["X"].copy()}, raw=raw)

    def fit(self, queries: Queries, table: Any = None, *, previous: Any = None) -> Any:
        """A copy, fitted; with a table of ones where none is given."""
        fresh = clone(self.ranker, safe=False)
        if table is None:
            table = np.ones((queries.n_groups, queries.n_groups))
        fresh.fit_pairs(queries, np.array(table, dtype=np.float64), previous=previous)
        return fresh

    def scores(self, queries: Queries, table: Any = None) -> Array:
        """What a fresh copy fitted on them gives these items."""
        return self.predict(self.fit(queries, table), queries.X)

    def predict(self, model: Any, X: Any) -> Array:
        """Scores that can be compared."""
        scores = np.asarray(model.predict(X), dtype=np.float64)
        if scores.shape != (len(X),) or not np.isfinite(scores).all():
            self.fail(
                f"predict returned shape {scores.shape}, {int((~np.isfinite(scores)).sum())} of "
                f"them NaN or infinity, for {len(X)} items. Return one finite score per row."
            )
        return scores

    def same(
        self, got: Array, want: Array, what: str, advice: str, *, shifted: bool = True
    ) -> None:
        """Require equal scores, up to a common constant where `shifted`."""
        apart = got - want
        if shifted:
            apart = apart - apart.mean()
        gap, spread = float(np.abs(apart).max()), float(np.ptp(want))
        if not gap <= self.rtol * spread:
            share = gap / spread if spread > 0 else np.inf
            self.fail(
                f"{what}: scores differ by up to {gap:.3g}, {share:.2g} of their spread "
                f"(rtol is {self.rtol:g}). {advice}"
            )

    def fail(self, message: str) -> None:
        """Say which property the ranker lacks, and why."""
        kind = type(self.ranker).__name__
        raise ContractError(f"{kind} fails {self.name!r}: {message}", (self.name,))


# --- data ---------------------------------------------------------------------------------------


TABLE = np.array([[1.0, 0.4, 2.5], [1.6, 0.8, 0.3], [0.5, 1.9, 1.2]])  # for the mixed lists
CELLS = (("a", "b"), ("b", "a"), ("a", "a"))


def in_cells(*, copies: bool = False) -> dict[str, Any]:
    """Thirty-six lists of twelve, the pairs of each in one cell, in turn: see `CELLS`.

    The lists of the first two cells hold the same items and mostly contrary preferences, so that no
    ranker can respect both. With `copies`, the lists of the first cell stand there twice, the
    second time in the groups c and d.
    """
    rng = np.random.default_rng(20211)
    n_queries, n_items = 36, 12
    cell = np.arange(n_queries) % len(CELLS)
    X = rng.normal(size=(n_queries, n_items, 4))
    X[cell == 1] = X[cell == 0]
    wanted = np.array([[1.5, 0.7, 0.0, 0.2], [-1.5, 0.7, 0.3, 0.0], [0.2, 0.7, 1.0, 0.0]])
    latent = np.einsum("qif,qf->qi", X, wanted[cell]) + 0.5 * rng.normal(size=X.shape[:2])
    n_preferred = rng.integers(4, 9, n_queries)
    preferred = latent.argsort(axis=1).argsort(axis=1) >= (n_items - n_preferred)[:, None]
    names = np.array(CELLS, dtype=object)[cell]
    group = np.where(preferred, names[:, :1], names[:, 1:])
    data = {
        "X": X.reshape(-1, 4),
        "y": preferred.ravel().astype(float),
        "qid": np.repeat(np.arange(n_queries), n_items),
        "sensitive_features": group.ravel(),
    }
    if not copies:
        return data
    again = rows_of_cell(data, 0)
    twin = {"a": "c", "b": "d"}
    added = {
        **{key: data[key][again] for key in ("X", "y")},
        "qid": data["qid"][again] + n_queries,
        "sensitive_features": np.array([twin[g] for g in group.ravel()[again]], dtype=object),
    }
    return {key: np.concatenate([data[key], added[key]]) for key in data}


def rows_of_cell(data: dict[str, Any], cell: int) -> NDArray[np.bool_]:
    """Which rows of `in_cells` are in lists of a cell, by its place among `CELLS`."""
    chosen: NDArray[np.bool_] = data["qid"] % len(CELLS) == cell
    return chosen


def cell_table(queries: Queries, fill: float = 1.0, **weights: float) -> Array:
    """A table by the names of the groups: ``ab=3`` weighs the cell (a, b)."""
    table = np.full((queries.n_groups, queries.n_groups), fill)
    for cell, weight in weights.items():
        preferred, other = (queries.groups.index(name) for name in cell)
        table[preferred, other] = weight
    return table
