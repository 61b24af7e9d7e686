"""The small data that the checks train on."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairity._utils.typing import Array
from pairity.data.queries import Queries

TABLE = np.array([[1.0, 0.4, 2.5], [1.6, 0.8, 0.3], [0.5, 1.9, 1.2]])  # for `mixed_lists`
CELLS = (("a", "b"), ("b", "a"), ("a", "a"))


def mixed_lists() -> dict[str, Any]:
    """Thirty queries of twelve items with three labels and three unequally favoured groups."""
    rng = np.random.default_rng(20210)
    n_queries, n_items = 30, 12
    qid = np.repeat(np.arange(n_queries), n_items)
    group = rng.integers(0, 3, len(qid))
    X = rng.normal(size=(len(qid), 4))
    X[:, 3] += group - 1.0
    latent = X @ [1.0, -0.6, 0.3, 0.0] + 0.8 * (group - 1.0) + 0.7 * rng.normal(size=len(qid))
    rank = latent.reshape(n_queries, n_items).argsort(axis=1).argsort(axis=1).ravel()
    return {
        "X": X,
        "y": (rank // 4).astype(float),
        "qid": qid,
        "sensitive_features": np.array(["a", "b", "c"], dtype=object)[group],
    }


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
    return np.asarray(data["qid"] % len(CELLS) == cell)


def cell_table(queries: Queries, fill: float = 1.0, **weights: float) -> Array:
    """A weight table by names of groups: ``ab=3`` gives the cell (a, b) weight 3."""
    table = np.full((queries.n_groups, queries.n_groups), fill)
    for cell, weight in weights.items():
        preferred, other = (queries.groups.index(name) for name in cell)
        table[preferred, other] = weight
    return table
