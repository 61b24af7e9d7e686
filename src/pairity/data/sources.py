"""Queries from the arguments of `fit`, `path` and `audit`: columns, queries, Dask collections.

This is the one place that looks at where the data are. `open_queries` returns `Queries` for data
in memory and `DaskQueries` for data on workers; both have the same methods.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pairity.data.cache import Cache
from pairity.data.checks import require_features
from pairity.data.queries import Queries
from pairity.data.query_columns import asks_for_equal_queries
from pairity.exceptions import InputError

_COLUMNS = ("X", "y", "qid", "sensitive_features")
_OPTIONAL = ("group", "sample_weight", "query_weight")


def is_dask(value: Any) -> bool:
    """Whether a value is a Dask collection, or a column of `DaskQueries`; imports no Dask."""
    library = type(value).__module__.partition(".")[0]
    if library in ("dask", "dask_expr"):
        return hasattr(value, "__dask_graph__")
    return hasattr(value, "queries_on_workers")


def client_of(model: Any) -> Any:
    """The client that one of Dask's estimators has, or None."""
    try:
        return getattr(model, "client", None) if type(model).__name__.startswith("Dask") else None
    except ValueError:  # XGBoost looks for the current client, and there is none
        return None


def is_queries(value: Any) -> bool:
    """Whether a value is `Queries` or `DaskQueries`."""
    return isinstance(value, Cache)  # the class that both inherit from; imports no Dask


def queries_type(columns: Mapping[str, Any]) -> Any:
    """The class that `open_queries` returns for these columns: `Queries` or `DaskQueries`."""
    ready = next(filter(is_queries, columns.values()), None)
    if ready is not None:
        return type(ready)
    if not any(map(is_dask, columns.values())):
        return Queries
    from pairity.data.distributed.queries import DaskQueries

    return DaskQueries


@contextmanager
def open_queries(
    columns: Mapping[str, Any],
    *,
    raw: bool = False,
    client: Any = None,
    announce: bool = True,
    groups: tuple[str, ...] | None = None,
) -> Iterator[Any]:
    """The queries that some arguments describe: `Queries`, or `DaskQueries` for Dask collections.

    Parameters
    ----------
    columns : dict from the name of an argument to its value
        The arguments of `Queries.from_arrays`; None for those that were not passed. The first
        argument of a function, such as X or y, may be `Queries` or `DaskQueries` that are ready;
        the other arguments must then be None, except ``query_weight="equal"``. Scores, if there
        are any, become the one feature.
    raw : bool
        Whether features may stay as they are, see `Queries.from_arrays`. Queries that are ready
        and were made with ``raw=True`` are validated here if it is False.
    client : distributed.Client, optional
        For Dask collections; by default the current one, or a local cluster that is closed at the
        end of the block.
    announce : bool
        Whether to write the address of the client's dashboard to stderr, once.
    groups : tuple of str, optional
        Numbers the groups as in other data, by name.

    Examples
    --------
    >>> from pairity.data.sources import open_queries
    >>> with open_queries({"X": [[0.1], [0.9]], "y": [0, 1], "group": [2]}) as queries:
    ...     print(queries.n_queries, queries.n_items)
    1 2
    """
    passed = {name: column for name, column in columns.items() if column is not None}
    scores = passed.pop("scores", None)
    queries = _ready(passed)
    if queries is None and queries_type(columns) is Queries:
        queries = Queries.from_arrays(**{"X": None, "y": None, **passed}, raw=raw)
    if queries is not None:
        if groups is not None:
            queries = queries.with_groups_of(groups)
        if scores is not None:
            queries = queries.with_scores(scores)
        yield queries if raw else queries.validated()
        return
    from pairity.data.distributed.clients import using_client
    from pairity.data.distributed.queries import DaskQueries

    if scores is not None:
        passed["scores"] = scores
    with using_client(client, announce=announce) as connected:
        yield DaskQueries.from_collections(connected, raw=raw, groups=groups, **passed)


def _ready(given: Mapping[str, Any]) -> Any:
    """The queries that were passed in place of columns, or None."""
    equal = asks_for_equal_queries(given.get("query_weight"))
    name = next((name for name, value in given.items() if is_queries(value)), "X")
    queries = given.get(name)
    if not is_queries(queries):
        queries = getattr(queries, "queries_on_workers", None)
    elif others := sorted(set(given) - {name, "query_weight" if equal else name}):
        raise InputError(
            f"{name} is {type(queries).__name__}, which contains labels, query ids, groups "
            f"and weights, but {' and '.join(others)} was passed too. Leave it out, or "
            f"pass {name} as an array."
        )
    return queries.with_equal_queries() if equal and queries is not None else queries


def read_alike(data: Any, queries: Any, *, raw: bool) -> Any:
    """Further queries with the features and group codes of `queries`, in the same place.

    Parameters
    ----------
    data : Queries, or mapping with X, y, qid and sensitive_features
        Dask collections, if the queries are on workers.
    queries : Queries or DaskQueries
    raw : bool, as in `open_queries`
    """
    if not is_queries(data) and not isinstance(data, Mapping):
        raise InputError(
            f"{type(data).__name__} is not validation data. Pass a share of the queries such as "
            "0.2, Queries, or a mapping with X, y, qid and sensitive_features."
        )
    columns = {"X": data} if is_queries(data) else data
    if columns is data:
        needed = {*_COLUMNS} - ({"qid"} if "group" in data else set())
        absent = [key for key in _COLUMNS if key in needed - {*data}]
        unknown = [key for key in data if key not in _COLUMNS + _OPTIONAL]
        if absent or unknown:
            fact = f"{absent[0]!r} is missing" if absent else f"{unknown[0]!r} is not known"
            raise InputError(
                f"{fact}. Pass X, y, qid and sensitive_features, and sample_weight or query_weight "
                "if there are weights."
            )
    if queries_type(columns) is not type(queries):
        raise InputError(
            f"The training data are {type(queries).__name__}, but these would be "
            f"{queries_type(columns).__name__}. Pass Dask collections in both, or in neither."
        )
    with open_queries(columns, raw=raw, client=queries.client, groups=queries.groups) as other:
        require_features_of(queries, other)
        return other


def require_features_of(queries: Any, other: Any) -> None:
    """Refuse other queries whose columns differ from those of the training queries."""
    require_features(other)
    if other.n_features != queries.n_features:
        raise InputError(
            f"X has {other.n_features} features, but the training data has {queries.n_features}. "
            "Pass the same columns in both."
        )
    both = zip(other.feature_names or (), queries.feature_names or (), strict=False)
    for column, (name, expected) in enumerate(both):
        if name != expected:
            raise InputError(
                f"column {column} of X is {name!r}, but {expected!r} in the training data. Pass "
                "the same columns in the same order."
            )


def read_without_features(data: Any) -> Queries:
    """Queries in memory whose features do not matter, from a mapping of what `fit` takes."""
    if not isinstance(data, Mapping) or not set(_COLUMNS[1:]) <= set(data):
        raise InputError(
            f"data is {type(data).__name__}. Pass Queries, or a mapping with y, qid and "
            "sensitive_features."
        )
    return data if isinstance(data, Queries) else Queries.from_arrays(**{**data, "X": None})


@contextmanager
def errors_about(name: str) -> Iterator[None]:
    """Put the name of the data in front of errors about them."""
    try:
        yield
    except InputError as error:
        raise type(error)(f"In {name}: {error}") from error
