"""DaskQueries: queries on the workers of a cluster, one share on each.

The outer loop runs on the client and asks for sums over all queries (`total`) and for columns that
stay with their items (`each`). Sums are K × K, or have one entry per feature; columns never leave
their workers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pairity._utils.threads import assign_threads
from pairity._utils.typing import Array
from pairity.data.cache import Cache
from pairity.data.digest import digest_of_parts
from pairity.data.distributed import partitions
from pairity.data.distributed.clients import while_connected, workers_of
from pairity.data.distributed.partitions import Piece, Summary
from pairity.data.parquet_features import ParquetFeatures
from pairity.data.queries import Queries
from pairity.data.query_columns import asks_for_equal_queries
from pairity.data.splits import draw_queries
from pairity.exceptions import InputError

_LARGE = 100_000  # bytes: a larger function, such as one with a model, is sent to workers once
_BALANCE = 1.1  # a worker may have this many times the mean number of rows before partitions move
_ATTEMPTS = 3  # to place shares on distinct workers, while workers come and go


@dataclass(frozen=True, eq=False)
class DaskColumn:
    """A column of queries on workers, in the place of a Dask collection."""

    queries_on_workers: DaskQueries
    name: str


@dataclass(eq=False)
class DaskQueries(Cache):
    """Queries spread over workers, with the methods of `pairity.Queries`.

    Create one with `DaskQueries.from_collections` or `pairity.read_parquet`, and pass it to
    ``model.fit(queries)``, ``model.path(queries)`` and
    ``audit(queries, model.predict(queries.X))``; nothing is read or checked again.

    Attributes
    ----------
    client : distributed.Client
    groups : tuple of str
    summaries : list of Summary, one per partition
    pieces : list of delayed Piece, from which shares are made again if a worker is lost
    n_items, n_queries, n_missing, n_pairs, n_features : int, over all partitions
    feature_names, feature_types, raw, equal_queries : as in `Queries`
    shares : list of futures, each the queries of one worker
    spans : list of list of int, the pieces of each share
    """

    client: Any
    groups: tuple[str, ...]
    summaries: list[Summary]
    pieces: list[Any]
    content: str  # the digest
    feature_types: str | list[str] | None
    raw: bool
    equal_queries: bool = False
    shares: list[Any] = field(default_factory=list)
    spans: list[list[int]] = field(default_factory=list)
    n_items: int = field(init=False)
    n_queries: int = field(init=False)
    n_pairs: int = field(init=False)  # preference pairs, whatever their weight
    n_missing: int = field(init=False)  # items whose group is missing
    n_features: int = field(init=False)
    feature_names: tuple[str, ...] | None = field(init=False)

    distributed: ClassVar[bool] = True

    @classmethod
    def from_collections(
        cls, client: Any, *, raw: bool, groups: tuple[str, ...] | None = None, **columns: Any
    ) -> DaskQueries:
        """Read and check Dask collections; see `Queries.from_arrays` for the columns.

        Parameters
        ----------
        groups : tuple of str, optional
            The numbering of groups of other data.
        """
        import dask

        if isinstance(columns.get("query_weight"), Mapping):
            raise InputError("query_weight is a mapping. Pass a column with Dask collections.")
        equal = asks_for_equal_queries(columns.get("query_weight"))
        if equal:
            columns["query_weight"] = None
        if columns.get("group") is not None:
            raise InputError("group is not supported with Dask collections. Pass qid as a column.")
        with while_connected(client):
            delayed = [
                dask.delayed(partial(partitions.read_piece, number, raw), pure=True)(piece)
                for number, piece in enumerate(partitions.as_pieces(columns))
            ]
            read = client.compute(delayed)
            summaries = client.gather(client.map(partitions.summarize, read))
            partitions.require_alike(summaries)
            distinct = client.gather(client.map(attrgetter("distinct"), read))
            common = partitions.common_groups(distinct)
            present = [number for number, summary in enumerate(summaries) if summary is not None]
            known = [summaries[number] for number in present]
            if partitions.may_be_cut(known):  # queries whose rows are on several partitions
                hashes = client.map(partitions.id_hashes, read)
                cut = client.submit(partitions.repeated, hashes).result()
                if len(cut):
                    labels = client.gather(client.map(partial(partitions.labels_of_cut, cut), read))
                    partitions.refuse_cut(len(cut), known, labels)
            content = digest_of_parts(client.gather(client.map(partitions.piece_digest, read)))
        queries = cls(
            client=client,
            groups=common if groups is None else groups,
            summaries=known,
            pieces=[delayed[number] for number in present],
            content=content,
            feature_types=_feature_types(columns.get("X")),
            raw=raw,
        )
        queries.place([read[number] for number in present])
        return queries.with_equal_queries() if equal else queries

    # --- sizes -----------------------------------------------------------------------------------

    def __post_init__(self) -> None:
        for name in ("n_items", "n_queries", "n_pairs", "n_missing"):
            setattr(self, name, sum(getattr(summary, name) for summary in self.summaries))
        first = self.summaries[0]
        self.n_features, self.feature_names = first.n_features, first.feature_names

    @property
    def n_groups(self) -> int:
        """Number of groups, K."""
        return len(self.groups)

    # --- what the outer loop asks for ------------------------------------------------------------

    def digest(self) -> str:
        """The digest of the partitions in order, as 64 hexadecimal digits."""
        return self.content

    def total(self, function: Callable[..., ArrayLike], *columns: Any) -> Array:
        """The sum of ``function(queries, *columns)`` over the workers."""
        return np.asarray(np.asarray(self.gather(function, *columns), dtype=np.float64).sum(axis=0))

    def each(self, function: Callable[..., Any], *columns: Any) -> list[Any]:
        """The results of a function for the queries of each worker, which stay there."""
        import cloudpickle

        with while_connected(self.client):
            if len(cloudpickle.dumps(function)) > _LARGE:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)  # Dask warns of its size
                    function = self.client.submit(lambda value: value, function, pure=False)
            return [
                self.client.submit(_call, function, share, *values, pure=False)
                for share, *values in zip(self.shares, *columns, strict=True)
            ]

    def gather(self, function: Callable[..., Any], *columns: Any) -> list[Any]:
        """The results of a function for the queries of each worker, on the client."""
        with while_connected(self.client):
            return list(self.client.gather(self.each(function, *columns)))

    # --- subsets and other versions --------------------------------------------------------------

    def thinned(self, every: int) -> DaskQueries:
        """Every `every`-th query, numbered from partition to partition."""
        if every == 1:
            return self
        ends = np.cumsum([summary.n_queries for summary in self.summaries])
        chosen = np.split(np.arange(self.n_queries) % every == 0, ends[:-1])
        masks = [np.concatenate([chosen[piece] for piece in span]) for span in self.spans]
        return self._take(masks, f"every {every}")

    def split(self, fraction: float, random_state: Any = None) -> tuple[DaskQueries, DaskQueries]:
        """The split of `Queries.split`, with the same queries: it depends on the order of ids only.

        One worker collects the ids; the client receives one bit per query.
        """
        drawn = np.packbits(draw_queries(self.n_queries, fraction, random_state))
        with while_connected(self.client):
            ids = self.each(partitions.ids_of)
            masks = self.client.submit(partitions.chosen_ids, drawn, ids, pure=False).result()
        name = drawn.tobytes().hex()
        rest = self._take([~mask for mask in masks], f"without {name}")
        return rest, self._take(masks, f"only {name}")

    def training_record(self, source: Any) -> None:
        """Nothing: a fitted model does not keep training queries of workers."""

    def validated(self) -> DaskQueries:
        """The same queries with features that are finite numbers, for engines that need them."""
        if not self.raw:
            return self
        return replace(self._mapped(Queries.validated), raw=False)

    def with_equal_queries(self) -> DaskQueries:
        """The same queries, whose pairs have the same total weight in every query in training."""
        return replace(self._mapped(Queries.with_equal_queries), equal_queries=True)

    def _mapped(self, function: Callable[[Queries], Queries]) -> DaskQueries:
        """The same queries after a function, which workers also apply when they read them again."""
        import dask

        pieces = [dask.delayed(partitions.mapped)(function, piece) for piece in self.pieces]
        return replace(self, shares=self.each(function), pieces=pieces)

    def with_scores(self, scores: Any) -> DaskQueries:
        """The same queries with scores, as `predict(queries.X)` returns them, as one feature."""
        if not isinstance(scores, list) or len(scores) != len(self.shares):
            raise InputError(
                f"scores is {type(scores).__name__}, but the queries are on {len(self.shares)} "
                "workers. Pass model.predict(queries.X)."
            )
        return replace(self, shares=self.each(Queries.with_scores, scores), pieces=[])

    def with_groups_of(self, other: Any) -> DaskQueries:
        """The same queries with the group codes of `other`, matched by name."""
        groups = other if isinstance(other, tuple) else other.groups
        if groups == self.groups:
            return self
        shares = self.each(Queries.with_groups_of, [groups] * len(self.shares))
        return replace(self, groups=groups, shares=shares)

    def _take(self, masks: Sequence[NDArray[np.bool_]], name: str) -> DaskQueries:
        """Some queries of each share, which stay on its worker; each result is one piece."""
        import dask

        shares, pieces = [], []
        placed = zip(self.shares, masks, self.spans, self.addresses(), strict=True)
        for share, mask, span, address in placed:
            if mask.any():
                shares.append(_submit_to(self.client, address, Queries.take, share, mask))
                span_pieces = [self.pieces[number] for number in span]
                pieces.append(dask.delayed(partitions.part_of)(self.groups, mask, span_pieces))
        with while_connected(self.client):
            summaries = self.client.gather(self.client.map(_summarize_share, shares, pure=False))
        return replace(
            self,
            summaries=summaries,
            pieces=pieces,
            content=digest_of_parts([self.content, name]),
            shares=shares,
            spans=[[number] for number in range(len(shares))],
        )

    # --- the mapping that fit(**queries) unpacks -------------------------------------------------

    def keys(self) -> tuple[str, ...]:
        """The arguments of `fit`; the weights are included in the queries."""
        return ("X", "y", "qid", "sensitive_features")

    def __getitem__(self, name: str) -> DaskColumn:
        return DaskColumn(self, name)

    @property
    def X(self) -> DaskColumn:  # noqa: N802 - as in `Queries`
        """The features, for ``model.predict(queries.X)``."""
        return DaskColumn(self, "X")

    # --- where they are --------------------------------------------------------------------------

    def place(self, read: list[Any] | None = None) -> None:
        """Give every worker its share.

        At first a share has the partitions that are on the worker, moved only to balance the
        load. If workers were lost and the same number is back, shares stay the same, so that a
        repeated round adds up the same numbers in the same order.
        """
        client = self.client
        read = client.compute(self.pieces) if read is None else read
        _wait(client, read)
        workers = sorted(workers_of(client))
        if self.spans and len(self.spans) <= len(workers):
            spans = dict(zip(workers, self.spans, strict=False))
        else:
            spans = self._balance(client.who_has(read), [piece.key for piece in read], workers)
        self.spans = list(spans.values())
        self.shares = [
            _submit_to(client, address, partitions.join, self.groups, [read[k] for k in span])
            for address, span in spans.items()
        ]
        _wait(client, self.shares)

    def _balance(
        self, holders: dict[str, Any], keys: list[str], workers: list[str]
    ) -> dict[str, list[int]]:
        """The partitions that each worker gets."""
        load = dict.fromkeys(workers, 0)
        most = _BALANCE * self.n_items / max(1, len(load))
        spans: dict[str, list[int]] = {}
        for number, (key, summary) in enumerate(zip(keys, self.summaries, strict=True)):
            holding = [worker for worker in holders.get(key, ()) if worker in load]
            least = min(load, key=load.__getitem__)
            chosen = min(holding, key=load.__getitem__) if holding else least
            if load[chosen] and load[chosen] + summary.n_items > most:
                chosen = least
            load[chosen] += summary.n_items
            spans.setdefault(chosen, []).append(number)
        return spans

    def addresses(self) -> list[str]:
        """The worker of each share; shares are placed again if two are on one worker."""
        with while_connected(self.client):
            for _ in range(_ATTEMPTS):
                holders = self.client.who_has(self.shares)
                addresses = [(holders.get(share.key) or [""])[0] for share in self.shares]
                if all(addresses) and len(set(addresses)) == len(addresses):
                    return addresses
                self.place()
        raise InputError(
            f"Workers joined or left the cluster during {_ATTEMPTS} attempts to place the data. "
            "Fit when the cluster is stable."
        )


def _submit_to(client: Any, address: str, function: Callable[..., Any], *arguments: Any) -> Any:
    return client.submit(
        function, *arguments, workers=[address], allow_other_workers=True, pure=False
    )


def _wait(client: Any, futures: Any) -> None:
    """Wait for futures of this client, which may not be the current one."""
    from distributed import wait

    with client.as_current():
        wait(futures)


def _feature_types(X: Any) -> str | list[str] | None:
    if X is None:
        return None
    types = getattr(X, "dtypes", None)
    return str(X.dtype) if types is None else [str(dtype) for dtype in types]


def _call(function: Callable[..., Any], queries: Queries, *columns: Any) -> Any:
    """Run on a worker, with as many threads as it has."""
    with assign_threads(n_worker_threads()):
        return function(queries, *columns)


def n_worker_threads() -> int:
    """The number of threads of the worker on which this runs."""
    from distributed import get_worker

    return int(get_worker().state.nthreads)


def _summarize_share(queries: Queries) -> Summary | None:
    return partitions.summarize(Piece(queries, []))


# --- Dask collections ----------------------------------------------------------------------------


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

    def collection(values: Any) -> Any:
        if isinstance(values, str):  # query_weight="equal"
            return values
        blocks = [values[part] for part in parts]
        delayed = [da.from_delayed(dask.delayed(b), b.shape, dtype=values.dtype) for b in blocks]
        return da.concatenate(delayed)

    further = {name: np.asarray(column)[rows] for name, column in columns.items()}
    values = {**ordered, "qid": ordered.query, **further}
    names, kind = values.pop("sensitive_features"), pd.CategoricalDtype(list(queries.groups))
    groups = [dask.delayed(pd.Series(names[part], dtype=kind)) for part in parts]
    return {
        "sensitive_features": dd.from_delayed(groups, meta=pd.Series([], dtype=kind)),
        **{name: collection(column) for name, column in values.items() if column is not None},
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
