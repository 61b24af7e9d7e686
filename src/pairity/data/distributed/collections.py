"""Dask collections from queries in memory, and lazy scores of Dask collections."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from pairity._utils.typing import Array
from pairity.data.distributed.queries import DaskColumn
from pairity.data.parquet_features import ParquetFeatures
from pairity.data.queries import Queries
from pairity.exceptions import InputError


def spread_queries(queries: Queries, n_partitions: int, **columns: Any) -> dict[str, Any]:
    """Queries in memory as Dask collections, for `fit` and `audit`; no query is cut.

    Parameters
    ----------
    columns : further columns of shape (n_items,), such as scores
    """
    import dask
    import dask.array as da
    import dask.dataframe as dd
    import pandas as pd

    if isinstance(queries.X, ParquetFeatures):
        raise InputError(
            "Features in Parquet files are not sent to workers, which read them themselves if the "
            "groups are a column: write the result of --group-file and --quantile-groups into one."
        )
    ordered, rows = queries.by_query()
    bounds = np.searchsorted(ordered.query, np.arange(queries.n_queries + 1))
    n_partitions = min(n_partitions, queries.n_queries)
    cuts = bounds[np.linspace(0, queries.n_queries, n_partitions + 1).astype(int)]
    parts = [slice(first, last) for first, last in pairwise(cuts.tolist())]

    def array(values: Any) -> Any:
        blocks = [values[part] for part in parts]
        delayed = [da.from_delayed(dask.delayed(b), b.shape, dtype=values.dtype) for b in blocks]
        return da.concatenate(delayed)

    names = pd.CategoricalDtype(list(queries.groups))
    codes = np.where(ordered.group < queries.n_groups, ordered.group, -1)
    groups = [pd.Series(pd.Categorical.from_codes(codes[part], dtype=names)) for part in parts]
    weight = ordered.query_weight
    values = {
        "X": ordered.X,
        "y": ordered.y,
        "qid": ordered.query,
        "sample_weight": ordered.item_weight,
        "query_weight": None if weight is None else weight[ordered.query],
        **{name: np.asarray(column)[rows] for name, column in columns.items()},
    }
    return {
        "sensitive_features": dd.from_delayed(
            [dask.delayed(group) for group in groups], meta=groups[0].iloc[:0]
        ),
        **{name: array(column) for name, column in values.items() if column is not None},
        **({"query_weight": "equal"} if queries.equal_queries else {}),
    }


def lazy_scores(model: Any, X: Any) -> Any:
    """The scores of a Dask collection, as a Dask array that is not computed yet.

    The scores of `DaskQueries.X` are a list of futures, for `DaskQueries.with_scores`.
    """
    import dask

    if isinstance(X, DaskColumn):
        return X.queries_on_workers.each(partial(_scores_of_queries, model))
    delayed = dask.delayed(model, pure=False)
    if hasattr(X, "map_partitions"):
        return X.map_partitions(_scores_of_frame, delayed, meta=("score", "f8")).values
    rows = X.rechunk({1: -1}) if X.ndim == 2 else X
    return rows.map_blocks(_scores_of_block, delayed, drop_axis=1, dtype=np.float64)


def _scores_of_frame(X: Any, model: Any) -> Any:
    import pandas as pd

    return pd.Series(_scores_of_block(X, model), index=X.index, name="score")


def _scores_of_queries(model: Any, queries: Queries) -> Array:
    raw = getattr(model, "raw_features", False)
    return _scores_of_block((queries if raw else queries.validated()).X, model)


def _scores_of_block(X: Any, model: Any) -> Array:
    return np.asarray(model.predict(X), dtype=np.float64) if len(X) else np.empty(0)
