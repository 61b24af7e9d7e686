"""DaskQueries: queries that live on the workers of a cluster, one share on each.

The outer loop runs on the client and asks two things of its queries: a sum over all of them
(`total`), and a column to be kept where the items are (`each`). Sums are K × K, or as long as
there are features; columns never leave their workers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pairity._utils.threads import assign_threads
from pairity._utils.typing import Array
from pairity.data.distributed.clients import (
    Placed,
    is_dask,
    using_client,
    while_connected,
    workers_of,
)
from pairity.data.distributed.partitions import (
    Facts,
    Piece,
    as_pieces,
    common_digest,
    common_groups,
    cut_labels,
    describe,
    find_cut,
    find_drawn,
    id_hashes,
    ids_of,
    join,
    may_be_cut,
    part_of,
    piece_digest,
    read_piece,
    refuse_cut,
    require_alike,
    scored,
)
from pairity.data.queries import Queries, draw_queries
from pairity.exceptions import InputError

_LARGE = 100_000  # bytes of a function and what it carries, from which on it is sent once
_SPARE = 1.1  # how much fuller than the mean a worker may be before partitions move


@dataclass(eq=False)
class DaskQueries:
    """Queries spread over workers; made by `DaskQueries.from_collections`.

    ``model.fit(**queries)`` works as with `Queries`; nothing is read or checked again.

    Attributes
    ----------
    client : distributed.Client
    groups : tuple of str
    n_items, n_queries, n_missing, n_pairs, n_features : int, of all partitions
    feature_names : tuple of str, or None
    shares : list of futures, each the queries of one worker
    """

    client: Any
    groups: tuple[str, ...]
    facts: list[Facts]
    pieces: list[Any]  # delayed; from these, shares are made anew where a worker is lost
    feature_names: tuple[str, ...] | None
    digest: str  # which data these are, from the digests of the partitions in order
    shares: list[Any] = field(default_factory=list)
    spans: list[list[int]] = field(default_factory=list)  # the pieces of each share
    kept: dict[str, tuple[Any, Any]] = field(default_factory=dict)

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

        if isinstance(columns.get("query_weight"), dict):
            raise InputError(
                "query_weight is a mapping. Beside Dask collections, give it as a column."
            )
        with while_connected(client):
            delayed = [
                dask.delayed(partial(read_piece, number, raw), pure=True)(each)
                for number, each in enumerate(as_pieces(columns))
            ]
            read = client.compute(delayed)
            facts = client.gather(client.map(describe, read))
            require_alike(facts)
            found = common_groups(client.gather(client.map(_distinct_of, read)))
            _refuse_cut(client, read, facts)
            content = common_digest(client.gather(client.map(piece_digest, read)))
        there = [at for at, each in enumerate(facts) if each is not None]
        made = cls(
            client=client,
            groups=found if groups is None else groups,
            facts=[facts[at] for at in there],
            pieces=[delayed[at] for at in there],
            feature_names=facts[there[0]].names,
            digest=content,
        )
        made.place([read[at] for at in there])
        return made

    # --- sizes -----------------------------------------------------------------------------------

    @property
    def n_items(self) -> int:
        """Number of rows."""
        return sum(each.n_items for each in self.facts)

    @property
    def n_queries(self) -> int:
        """Number of lists."""
        return sum(each.n_queries for each in self.facts)

    @property
    def n_pairs(self) -> int:
        """Number of preference pairs, whatever they weigh."""
        return sum(each.n_pairs for each in self.facts)

    @property
    def n_missing(self) -> int:
        """Number of items whose group is missing."""
        return sum(each.n_missing for each in self.facts)

    @property
    def n_groups(self) -> int:
        """Number of groups, K."""
        return len(self.groups)

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.facts[0].n_features

    # --- what the outer loop asks for ------------------------------------------------------------

    def total(self, function: Callable[..., ArrayLike], *columns: Any) -> Array:
        """What a function of queries and columns returns, added up over the workers."""
        with while_connected(self.client):
            parts = self.client.gather(self._submit(function, columns))
        return np.asarray(np.sum(np.asarray(parts, dtype=np.float64), axis=0))

    def each(self, function: Callable[..., Any], *columns: Any) -> list[Any]:
        """What a function returns for the queries of each worker, kept there."""
        with while_connected(self.client):
            return self._submit(function, columns)

    def gather(self, function: Callable[..., Any], *columns: Any) -> list[Any]:
        """What a function returns for the queries of each worker, brought here."""
        with while_connected(self.client):
            found: list[Any] = self.client.gather(self._submit(function, columns))
        return found

    def cached(self, name: str, settings: Any, make: Callable[[], Any]) -> Any:
        """As `Queries.cached`, of what the client keeps."""
        if name not in self.kept or self.kept[name][0] != settings:
            self.kept[name] = (settings, make())
        return self.kept[name][1]

    def _submit(self, function: Callable[..., Any], columns: Sequence[Any]) -> list[Any]:
        import cloudpickle

        if len(cloudpickle.dumps(function)) > _LARGE:  # such as one that carries a model
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # of its size
                function = self.client.submit(_itself, function, pure=False)
        return [
            self.client.submit(_call, function, share, *own, pure=False)
            for share, *own in zip(self.shares, *columns, strict=True)
        ]

    def thinned(self, every: int) -> DaskQueries:
        """Every so many queries, numbered from partition to partition."""
        if every == 1:
            return self
        first = np.cumsum([0, *(each.n_queries for each in self.facts)])
        numbers = [
            np.concatenate([np.arange(first[at], first[at + 1]) for at in span])
            for span in self.spans
        ]
        return self._take([each % every == 0 for each in numbers], f"every {every}")

    def split(self, fraction: float, random_state: Any = None) -> tuple[DaskQueries, DaskQueries]:
        """As `Queries.split`, and the same queries: which, depends on the order of ids alone.

        The ids meet on one worker; to the client comes a bit for each query.
        """
        held = np.packbits(draw_queries(self.n_queries, fraction, random_state))
        with while_connected(self.client):
            ids = self._submit(ids_of, ())
            drawn = self.client.submit(find_drawn, held, ids, pure=False).result()
        rest, name = [~each for each in drawn], held.tobytes().hex()
        return self._take(rest, f"without {name}"), self._take(drawn, f"only {name}")

    def _take(self, chosen: Sequence[NDArray[np.bool_]], name: str) -> DaskQueries:
        """Some queries of each share, each on its worker; what is left of a share is a piece."""
        import dask

        shares, pieces = [], []
        for at, (mask, span, address) in enumerate(
            zip(chosen, self.spans, self.addresses(), strict=True)
        ):
            if mask.any():
                shares.append(
                    self.client.submit(
                        Queries.take, self.shares[at], mask, workers=[address],
                        allow_other_workers=True, pure=False,
                    )
                )  # fmt: skip
                held = [self.pieces[k] for k in span]
                pieces.append(dask.delayed(part_of)(self.groups, mask, held))
        with while_connected(self.client):
            facts = self.client.gather(self.client.map(_describe_queries, shares, pure=False))
        return replace(
            self, facts=facts, pieces=pieces, digest=common_digest([self.digest, name]),
            shares=shares, spans=[[at] for at in range(len(shares))], kept={},
        )  # fmt: skip

    def with_scores(self, scores: list[Any]) -> DaskQueries:
        """The same queries with scores, as `each` keeps them, as their one feature."""
        with while_connected(self.client):
            shares = self._submit(scored, (scores,))
        return replace(self, shares=shares, pieces=[], kept={})

    # --- the mapping that fit(**queries) unpacks -------------------------------------------------

    def keys(self) -> tuple[str, ...]:
        """What `fit` is given; weights come along."""
        return ("X", "y", "qid", "sensitive_features")

    def __getitem__(self, name: str) -> Placed:
        return Placed(self, name)

    # --- where they live -------------------------------------------------------------------------

    def place(self, read: list[Any] | None = None) -> None:
        """Give every worker its share.

        At first these are the partitions that it has, moved only to even them out. Where workers
        were lost and as many are there again, the shares are those of before, so that a round
        that is repeated adds up the same numbers in the same order.
        """
        client = self.client
        read = client.compute(self.pieces) if read is None else read
        _wait(client, read)
        workers = sorted(workers_of(client))
        if self.spans and len(self.spans) <= len(workers):
            spans = dict(zip(workers, self.spans, strict=False))
        else:
            spans = self._even_out(client.who_has(read), [each.key for each in read], workers)
        self.spans = list(spans.values())
        self.shares = [
            client.submit(
                join, self.groups, [read[at] for at in span], workers=[address],
                allow_other_workers=True, pure=False,
            )
            for address, span in spans.items()
        ]  # fmt: skip
        _wait(client, self.shares)

    def _even_out(
        self, holders: dict[str, Any], keys: list[str], workers: list[str]
    ) -> dict[str, list[int]]:
        """Which partitions each worker gets."""
        load = dict.fromkeys(workers, 0)
        most = _SPARE * self.n_items / max(1, len(load))
        spans: dict[str, list[int]] = {}
        for at, (key, fact) in enumerate(zip(keys, self.facts, strict=True)):
            here = [each for each in holders.get(key, ()) if each in load]
            least = min(load, key=lambda each: load[each])
            chosen = min(here, key=lambda each: load[each]) if here else least
            if load[chosen] and load[chosen] + fact.n_items > most:
                chosen = least
            load[chosen] += fact.n_items
            spans.setdefault(chosen, []).append(at)
        return spans

    def addresses(self) -> list[str]:
        """The worker of each share; shares are placed anew where two have come together."""
        with while_connected(self.client):
            for _ in range(3):
                holders = self.client.who_has(self.shares)
                found = [(holders.get(each.key) or [""])[0] for each in self.shares]
                if all(found) and len(set(found)) == len(found):
                    return found
                self.place()
        raise InputError("The workers of the cluster come and go. Fit when it is at rest.")


def _wait(client: Any, futures: Any) -> None:
    """Until all are there; of this client, which need not be the current one."""
    from distributed import wait

    with client.as_current():
        wait(futures)


@contextmanager
def opened(
    columns: dict[str, Any],
    *,
    raw: bool,
    client: Any = None,
    announce: bool = True,
    groups: tuple[str, ...] | None = None,
) -> Iterator[Any]:
    """Queries from columns: in memory, or on workers where some columns are Dask collections.

    Parameters
    ----------
    columns : dict, as `Queries.from_arrays` takes them
    client, announce : as in `using_client`
    groups : tuple of str, optional
        The numbering of groups of other data.
    """
    if isinstance(columns["X"], Placed):
        yield replace(columns["X"].queries)  # a copy, which may let go of what the caller keeps
        return
    if not any(map(is_dask, columns.values())):
        queries = Queries.from_arrays(**columns, raw=raw)
        yield queries if groups is None else queries.with_groups_of(groups)
        return
    with using_client(client, announce=announce) as current:
        yield DaskQueries.from_collections(current, raw=raw, groups=groups, **columns)


def _refuse_cut(client: Any, read: list[Any], facts: list[Facts | None]) -> None:
    if not may_be_cut(facts):
        return
    hashes = client.map(id_hashes, read)
    cut = client.submit(find_cut, hashes).result()
    if not len(cut):
        return
    there = [each for each in facts if each is not None]
    refuse_cut(
        len(cut),
        sum(each.n_queries for each in there) - len(cut),
        sum(each.n_pairs for each in there),
        client.gather(client.map(partial(cut_labels, cut), read)),
    )


def _call(function: Callable[..., Any], queries: Queries, *columns: Any) -> Any:
    """Run on a worker, with as many threads as it has."""
    with assign_threads(n_worker_threads()):
        return function(queries, *columns)


def n_worker_threads() -> int:
    """How many threads the worker has on which this runs."""
    from distributed import get_worker

    return int(get_worker().state.nthreads)


def _itself(value: Any) -> Any:
    return value


def _distinct_of(piece: Any) -> Any:
    return piece.distinct


def _describe_queries(queries: Queries) -> Facts:
    found = describe(Piece(queries, []))
    assert found is not None  # noqa: S101 - it is not empty
    return found
