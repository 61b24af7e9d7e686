"""A Dask cluster for a command: a scheduler that runs elsewhere, or worker processes here."""

import argparse
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from pairity._utils.extras import import_extra
from pairity.cli.options import add, has_workers
from pairity.exceptions import InputError

SENT = (
    "Workers read Parquet files themselves, from storage that all machines can see. Other tables, "
    "and tables with --group-file or --quantile-groups, are read by this process and sent to them"
)


def add_cluster(parser: Any, text: str) -> None:
    """Add the options that name a cluster."""
    group = parser.add_argument_group("more than one machine (Dask)", text)
    add(group, "--scheduler ADDRESS", "a running scheduler, such as tcp://host:8786")
    add(group, "--workers N", "start N worker processes on this machine", type=int)


@contextmanager
def cluster(args: argparse.Namespace) -> Iterator[Any]:
    """Yield the client of the cluster that was asked for, or None."""
    if not has_workers(args):
        yield None
        return
    if args.scheduler is not None and args.workers is not None:
        raise InputError("--scheduler and --workers name two clusters. Use one of them.")
    if args.workers is not None and args.workers < 1:
        raise InputError(f"--workers must be 1 or greater (got {args.workers}).")
    distributed = import_extra("distributed", "--scheduler or --workers", "dask")
    with ExitStack() as stack:
        if args.scheduler is not None:
            try:
                client = stack.enter_context(distributed.Client(args.scheduler, timeout="10s"))
            except (OSError, ValueError) as error:
                raise InputError(
                    f"There is no Dask scheduler at {args.scheduler!r} ({error}). Start one with: "
                    "dask scheduler"
                ) from error
        else:
            stack.enter_context(_same_environment())
            options = {"threads_per_worker": 1, "processes": True, "silence_logs": 50}
            own = distributed.LocalCluster(args.workers, dashboard_address=":0", **options)
            client = stack.enter_context(distributed.Client(stack.enter_context(own)))
            _keep_stdout_clean(client, distributed.WorkerPlugin)
        if args.quiet:
            from pairity.data.distributed.clients import silence

            silence(client)  # its dashboard is not announced
        yield client


@contextmanager
def _same_environment() -> Iterator[None]:
    """Restore the environment, in which Dask limits the threads of the workers it starts."""
    before = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _keep_stdout_clean(client: Any, plugin: Any) -> None:
    """Send what engines print in workers to stderr, because stdout may be a JSON document."""

    class ToStderr(plugin):  # type: ignore[misc]
        def setup(self, worker: Any) -> None:  # noqa: ARG002 - Dask's signature
            os.dup2(2, 1)

    client.register_plugin(ToStderr(), name="pairity-stdout")


def on_workers(queries: Any, client: Any, **columns: Any) -> dict[str, Any]:
    """Send queries and columns to the workers, one partition each, if there is a client."""
    if client is None:
        return {"y": queries, **columns}
    from pairity.data.distributed.clients import n_workers
    from pairity.data.distributed.queries import spread_queries

    return spread_queries(queries, n_workers(client), **columns)


def read_by_workers(path: str, args: argparse.Namespace, client: Any) -> dict[str, Any]:
    """Return columns of Parquet files as Dask collections, one partition or more per worker."""
    from pairity.data.distributed.clients import n_workers
    from pairity.data.distributed.parquet import read_columns

    groups = args.group if len(args.group) > 1 else args.group[0]
    names = {"y": args.label, "qid": args.query, "sensitive_features": groups, "scores": args.score}
    return read_columns(path, names, n_workers(client))
