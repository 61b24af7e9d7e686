"""A Dask cluster from the command line: somebody's scheduler, or workers of our own."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pairity.exceptions import InputError, MissingExtraError

if TYPE_CHECKING:
    from pairity.data.tables import Table

SENT = (
    "workers read Parquet themselves (from storage that all machines see); other tables, and "
    "those with --group-file or --quantile-groups, are read here and sent to them"
)


def add_cluster(parser: Any, does: str) -> None:
    """Where to find workers."""
    group = parser.add_argument_group("more than one machine (Dask)", does)
    group.add_argument(
        "--scheduler", metavar="ADDRESS", help="of a running scheduler, such as tcp://host:8786"
    )
    group.add_argument(
        "--workers", type=int, metavar="N", help="start so many worker processes on this machine"
    )


@contextmanager
def cluster(given: argparse.Namespace) -> Iterator[Any]:
    """The client of the cluster that was asked for, the current one inside; None for none."""
    if given.scheduler is None and given.workers is None:
        yield None
        return
    if given.scheduler is not None and given.workers is not None:
        raise InputError("--scheduler and --workers are two clusters. Give one of them.")
    if given.workers is not None and given.workers < 1:
        raise InputError(f"--workers {given.workers} is no number of workers. Give 1 or more.")
    try:
        import distributed
    except ImportError as error:
        raise MissingExtraError(
            '--scheduler and --workers need Dask. Install it with: pip install "pairity[dask]"'
        ) from error
    if given.scheduler is not None:
        try:
            client = distributed.Client(given.scheduler, timeout="10s")
        except (OSError, ValueError) as error:
            raise InputError(
                f"There is no Dask scheduler at {given.scheduler!r} ({error}). Start one with: "
                "dask scheduler"
            ) from error
        with client:
            yield _quiet(client, given)
        return
    options = {"threads_per_worker": 1, "processes": True, "silence_logs": 50}
    with (
        _same_environment(),
        distributed.LocalCluster(n_workers=given.workers, dashboard_address=":0", **options) as own,
        distributed.Client(own) as client,
    ):
        _keep_stdout_clean(client, distributed.WorkerPlugin)
        yield _quiet(client, given)


@contextmanager
def _same_environment() -> Iterator[None]:
    """Dask starts workers with few threads by changing the environment of this process."""
    before = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _keep_stdout_clean(client: Any, plugin: Any) -> None:
    """What engines print in worker processes goes to stderr; stdout may be a document."""

    class ToStderr(plugin):  # type: ignore[misc]
        def setup(self, worker: Any) -> None:  # noqa: ARG002 - as Dask calls it
            os.dup2(2, 1)

    client.register_plugin(ToStderr(), name="pairity-stdout")


def _quiet(client: Any, given: argparse.Namespace) -> Any:
    """A client whose dashboard is not announced where nothing is to be printed."""
    if given.quiet:
        client._pairity_announced = True
    return client


def on_workers(client: Any, queries: Any, **columns: Any) -> dict[str, Any]:
    """Queries and columns, sent to the workers: one partition for each."""
    from pairity.data.distributed.collections import spread_queries

    return spread_queries(queries, _n_workers(client), **columns)


def read_by_workers(
    client: Any, table: Table, given: argparse.Namespace, **columns: Any
) -> dict[str, Any]:
    """Columns of Parquet files as Dask collections, at least one partition for each worker.

    Parameters
    ----------
    table : whose file it is; its columns are not read
    columns : the names of further columns, or one name, under what they are to be called
    """
    from pairity.data.distributed.parquet import read_parquet

    groups = given.group if len(given.group) > 1 else given.group[0]
    named = {"y": given.label, "qid": given.query, "sensitive_features": groups, **columns}
    wanted = [
        name for each in named.values() for name in ([each] if isinstance(each, str) else each)
    ]
    frame = read_parquet(table.path, given.query, columns=wanted, npartitions=_n_workers(client))
    return {role: frame[name] for role, name in named.items()}


def _n_workers(client: Any) -> int:
    from pairity.data.distributed.clients import workers_of

    return max(1, len(workers_of(client)))
