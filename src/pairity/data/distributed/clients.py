"""The cluster is the user's: which client to use, and what to say where it is lost."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from pairity.exceptions import InputError, MissingExtraError, PairityError, TrainingError


@dataclass(frozen=True, eq=False)
class Placed:
    """A column of queries that are on workers already, where a Dask collection might stand."""

    queries: Any  # DaskQueries
    name: str
    dtype: ClassVar[str] = "float64"  # of features


def is_dask(value: Any) -> bool:
    """Whether it is a Dask collection; asks nothing of Dask where that is not loaded."""
    if isinstance(value, Placed):
        return True
    return type(value).__module__.partition(".")[0] in ("dask", "dask_expr") and hasattr(
        value, "__dask_graph__"
    )


def client_of(model: Any) -> Any:
    """The client that one of Dask's models was given, or None."""
    own = getattr(model, "__dict__", {})
    return own.get("_client") or own.get("client")


def worker_address() -> str:
    """The worker on which this runs, for errors."""
    from distributed import get_worker

    try:
        return f"at {get_worker().address}"
    except ValueError:
        return "of this process"


@contextmanager
def using_client(given: Any = None, *, announce: bool = True) -> Iterator[Any]:
    """The client given, or the current one, or one of a cluster in this process, closed again.

    Parameters
    ----------
    given : distributed.Client, optional
    announce : bool
        Whether to write the address of the dashboard to stderr, once for each client.
    """
    try:
        import distributed
    except ImportError as error:
        raise MissingExtraError(
            'Dask collections need Dask. Install it with: pip install "pairity[dask]"'
        ) from error
    client, own = given, None
    if client is None:
        try:
            client = distributed.get_client()
        except ValueError:
            own = distributed.LocalCluster(
                n_workers=1, processes=False, dashboard_address=None, silence_logs=50
            )
            client = distributed.Client(own)
    try:
        if getattr(client, "status", "") != "running":
            raise InputError(
                f"The Dask client is {getattr(client, 'status', 'of an unknown kind')!r}, not "
                "running. Connect anew: client = distributed.Client(address)."
            )
        announce = announce and sys.stderr is not None and bool(client.dashboard_link)
        if announce and not hasattr(client, "_pairity_announced"):
            client._pairity_announced = True
            sys.stderr.write(f"Dask dashboard: {client.dashboard_link}\n")
        yield client
    finally:
        if own is not None:
            client.close()
            own.close()


@contextmanager
def while_connected(client: Any) -> Iterator[None]:
    """Say what happened where the connection to the scheduler is lost inside the block."""
    from distributed import CancelledError  # not an Exception in all versions

    try:
        yield
    except (Exception, CancelledError) as error:  # a closed client fails in many ways
        if client.status == "running" or isinstance(error, PairityError):
            raise
        raise lost_client(client) from error


def workers_of(client: Any) -> dict[str, Any]:
    """What the scheduler knows of each worker, by address."""
    with while_connected(client):
        told = client.scheduler_info(n_workers=-1)
    if "workers" not in told:  # of a client that has just been closed
        raise lost_client(client)
    workers: dict[str, Any] = told["workers"]
    return workers


def lost_client(client: Any) -> TrainingError:
    """What to say and do where the scheduler is gone."""
    address = getattr(getattr(client, "scheduler", None), "address", None)
    return TrainingError(
        f"The connection to the Dask scheduler{f' at {address}' if address else ''} was lost "
        f"(the client is {client.status!r}). Start the cluster again, connect a new client and fit "
        "again; with FairRanker(checkpoint=DIR) the rounds that ended are not repeated."
    )
