"""The user's Dask client: which one to use, and errors if its cluster is lost."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any
from weakref import WeakSet

from pairity._utils.extras import import_extra
from pairity.exceptions import InputError, PairityError, TrainingError

_announced: WeakSet[Any] = WeakSet()  # clients whose dashboard is not to be announced (again)


def worker_address() -> str:
    """The worker on which this runs, for errors."""
    from distributed import get_worker

    try:
        return f"at {get_worker().address}"
    except ValueError:
        return "of this process"


def silence(client: Any) -> None:
    """Do not announce the dashboard of this client."""
    _announced.add(client)


@contextmanager
def using_client(client: Any = None, *, announce: bool = True) -> Iterator[Any]:
    """The client that is passed, the current one, or one of a local cluster that is closed again.

    Parameters
    ----------
    client : distributed.Client, optional
    announce : bool
        Whether to write the address of the dashboard to stderr, once for each client.
    """
    distributed = import_extra("distributed", "A Dask cluster", "dask")
    with ExitStack() as stack:
        if client is None:
            try:
                client = distributed.get_client()
            except ValueError:
                cluster = distributed.LocalCluster(
                    n_workers=1, processes=False, dashboard_address=None, silence_logs=50
                )
                stack.callback(cluster.close)
                client = stack.enter_context(closing(distributed.Client(cluster)))
        status = getattr(client, "status", "of an unknown kind")
        if status != "running":
            raise InputError(
                f"The Dask client is {status!r}, not running. Connect a new one: "
                "client = distributed.Client(address)."
            )
        if announce and sys.stderr is not None and client.dashboard_link:
            if client not in _announced:
                sys.stderr.write(f"Dask dashboard: {client.dashboard_link}\n")
            silence(client)
        yield client


@contextmanager
def while_connected(client: Any) -> Iterator[None]:
    """Report every failure of a closed client as one TrainingError."""
    from distributed import CancelledError  # not an Exception in all versions

    try:
        yield
    except (Exception, CancelledError) as error:
        if client.status == "running" or isinstance(error, PairityError):
            raise
        raise lost_client(client) from error


def workers_of(client: Any) -> dict[str, Any]:
    """What the scheduler knows of each worker, by address."""
    with while_connected(client):
        # client.scheduler_info(n_workers=-1) may return what its own timer has fetched: no worker.
        info = client.sync(client.scheduler.identity, n_workers=-1)
    if "workers" not in info:  # the client has just been closed
        raise lost_client(client)
    return dict(info["workers"])


def n_workers(client: Any) -> int:
    """The number of workers, at least 1."""
    return max(1, len(workers_of(client)))


def lost_client(client: Any) -> TrainingError:
    """The error to raise if the scheduler is gone."""
    address = getattr(getattr(client, "scheduler", None), "address", None)
    return TrainingError(
        f"The connection to the Dask scheduler{f' at {address}' if address else ''} was lost "
        f"(the client is {client.status!r}). Restart the cluster, connect a new client and fit "
        "again; with FairRanker(checkpoint=DIR), completed rounds are not repeated."
    )
