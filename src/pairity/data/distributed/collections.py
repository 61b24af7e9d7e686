"""Dask collections at the doors of estimators: what is remembered of them, and lazy scores."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from pairity._utils.typing import Array
from pairity.data.distributed.clients import Placed, is_dask
from pairity.data.distributed.queries import DaskQueries
from pairity.data.parquet_features import ParquetFeatures
from pairity.data.queries import Queries
from pairity.exceptions import InputError

_NEEDED = ("X", "y", "qid", "sensitive_features")


def remember_spread(estimator: Any, queries: DaskQueries) -> None:
    """Set ``n_features_in_`` and, for named columns, ``feature_names_in_``."""
    estimator.n_features_in_ = queries.n_features
    vars(estimator).pop("feature_names_in_", None)
    if queries.feature_names is not None:
        estimator.feature_names_in_ = np.array(queries.feature_names, dtype=object)


def dask_types(X: Any) -> str | list[str]:
    """What the columns hold; one text for an array."""
    kinds = getattr(X, "dtypes", None)
    return str(X.dtype) if kinds is None else [str(kind) for kind in kinds]


def read_alike(given: Any, queries: DaskQueries, raw: bool) -> DaskQueries:
    """Other queries on the same workers, with the same features and numbering of groups."""
    if not isinstance(given, Mapping) or not set(_NEEDED) <= set(given):
        raise InputError(
            f"{type(given).__name__} cannot be used beside Dask collections. Give a mapping with "
            "X, y, qid and sensitive_features as Dask collections."
        )
    if not is_dask(given["y"]):
        raise InputError("y is no Dask collection, but the training data are. Give both alike.")
    held = DaskQueries.from_collections(queries.client, raw=raw, groups=queries.groups, **given)
    if held.n_features != queries.n_features:
        raise InputError(
            f"X has {held.n_features} features, but the training data has {queries.n_features}."
        )
    return held


def spread_queries(queries: Queries, n_partitions: int, **columns: Any) -> dict[str, Any]:
    """Queries in memory as Dask collections of whole queries, for `fit` and `audit`.

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
            "Features that stay in Parquet files are not sent to workers, who read them themselves "
            "where groups are a column: write what --group-file and --quantile-groups say into one."
        )
    ordered, rows = queries.by_query()
    n_partitions = min(n_partitions, queries.n_queries)
    bounds = np.searchsorted(ordered.query, np.arange(queries.n_queries + 1))
    cuts = bounds[np.linspace(0, queries.n_queries, n_partitions + 1).astype(int)]
    parts = [slice(first, last) for first, last in pairwise(cuts.tolist())]

    def array(values: Any) -> Any:
        blocks = [values[part] for part in parts]
        made = [da.from_delayed(dask.delayed(b), b.shape, dtype=values.dtype) for b in blocks]
        return da.concatenate(made)

    names = pd.CategoricalDtype(list(queries.groups))
    codes = np.where(ordered.group < queries.n_groups, ordered.group, -1)
    groups = [pd.Series(pd.Categorical.from_codes(codes[part], dtype=names)) for part in parts]
    given = {
        "y": array(ordered.y),
        "qid": array(ordered.query),
        "sensitive_features": dd.from_delayed(
            [dask.delayed(group) for group in groups], meta=groups[0].iloc[:0]
        ),
        **{name: array(np.asarray(column)[rows]) for name, column in columns.items()},
    }
    if ordered.X is not None:
        given["X"] = array(ordered.X)
    if ordered.item_weight is not None:
        given["sample_weight"] = array(ordered.item_weight)
    if ordered.query_weight is not None:
        given["query_weight"] = array(ordered.query_weight[ordered.query])
    return given


def lazy_scores(model: Any, X: Any) -> Any:
    """The scores of a Dask collection, as a Dask array that is not computed yet.

    Of queries on workers, they are kept there, for `DaskQueries.with_scores`.
    """
    import dask

    if isinstance(X, Placed):
        return X.queries.each(partial(_scores_of_queries, model))
    carried = dask.delayed(model, pure=False)
    if hasattr(X, "map_partitions"):
        return X.map_partitions(_scores_of_frame, carried, meta=("score", "f8")).values
    whole = X.rechunk({1: -1}) if X.ndim == 2 else X
    return whole.map_blocks(_scores_of_block, carried, drop_axis=1, dtype=np.float64)


def _scores_of_frame(X: Any, model: Any) -> Any:
    import pandas as pd

    return pd.Series(_scores_of_block(X, model), index=X.index, name="score")


def _scores_of_queries(model: Any, queries: Queries) -> Array:
    return _scores_of_block(queries.X, model)


def _scores_of_block(X: Any, model: Any) -> Array:
    if not len(X):
        return np.empty(0)
    return np.asarray(model.predict(X), dtype=np.float64)
