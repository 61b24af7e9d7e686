"""One training run on all workers of a Dask cluster, each with its own share of the queries.

Every worker calls the engine's own training with the same settings, and the engines add up their
histograms, as in `xgboost.dask` and `lightgbm.dask`. Binned data stay on the workers between
rounds.

If a worker is lost, the run starts again from the same λ on the remaining workers. Workers that
hang in an engine waiting for the lost one are restarted, if they have nannies.
"""

import copy
import math
import secrets
import socket
import time
import traceback
import warnings
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from pairity._utils.allreduce import Peers, training_with
from pairity._utils.threads import assign_threads
from pairity.data.distributed.clients import lost_client, while_connected, workers_of
from pairity.data.distributed.queries import DaskQueries, n_worker_threads
from pairity.data.queries import Queries
from pairity.exceptions import InputError, PairityError, PairityWarning, TrainingError
from pairity.rankers._boosting import Training
from pairity.rankers._estimators import remember_queries

ATTEMPTS = 4  # at one run, before lost workers are an error
MEETING = 120.0  # seconds for all workers to connect
GRACE = 15.0  # seconds for the other workers to end after one of them has failed
RETURN = 60.0  # seconds for workers to come back

# Sockets of this process that reserve ports: by token of the run and rank, -1 for the port of sums.
_open: dict[tuple[str, int], socket.socket] = {}
_trackers: dict[str, Any] = {}  # XGBoost's trackers of this process, by token of the run


@dataclass(frozen=True)
class Meeting:
    """The addresses at which the workers of a run connect.

    Attributes
    ----------
    token : str, identifies the run
    key : bytes, proves that a worker belongs to the run
    hosts : tuple of str, one per worker
    ports : tuple of int, the port that each worker reserves for its engine
    door : int, the port for sums on the first worker
    tracker : dict, the arguments of XGBoost's communicator
    """

    token: str
    key: bytes
    hosts: tuple[str, ...]
    ports: tuple[int, ...]
    door: int
    tracker: dict[str, Any]

    @property
    def size(self) -> int:
        """Number of workers."""
        return len(self.hosts)


class _LostWorkerError(Exception):
    """A worker was lost; the run can be repeated."""


def train_on_workers(queries: DaskQueries, ranker: Any, training: Training) -> None:
    """Train on all workers at once, and repeat the run if some of them are lost.

    Parameters
    ----------
    queries : DaskQueries
    ranker : BoosterRanker
        It receives the fitted attributes of the workers' model.
    training : Training
        The attribute ``lambda_`` of ``follow``, if any, is set to the last value of the run.
    """
    if training.fit_params.get("eval_set") is not None:
        raise InputError(
            "eval_set cannot be used with Dask collections. Remove it, and audit the model on "
            "held-out queries."
        )
    if not queries.n_pairs:
        raise InputError(
            f"No query has two different labels: none of the {queries.n_queries} queries has a "
            "preference pair. Check y and qid."
        )
    lost: Exception | None = None
    workers = workers_of(queries.client).values()
    n_returning = len(queries.shares) if all(worker.get("nanny") for worker in workers) else 1
    for _ in range(ATTEMPTS):
        try:
            with while_connected(queries.client):
                fitted, lambda_, counted = _run(queries, ranker, training)
            break
        except _LostWorkerError as error:
            lost, before = error, len(queries.shares)
            _wait_for_workers(queries.client, n_returning)
            queries.place()
            if len(queries.shares) < before and type(ranker).engine[0] == "lightgbm":
                warnings.warn(
                    f"A worker was lost: the round starts again on {len(queries.shares)} workers "
                    f"instead of {before}. LightGBM estimates the number of items in a leaf "
                    "differently on another number of machines, so the model differs slightly (see "
                    "min_child_samples in DISTRIBUTED.md).",
                    PairityWarning,
                    stacklevel=2,
                )
    else:
        raise TrainingError(
            f"Workers were lost in {ATTEMPTS} attempts at one round ({lost}). The most frequent "
            "cause is memory: check the workers' logs and give them more. With "
            "FairRanker(checkpoint=DIR), completed rounds are not repeated."
        ) from lost
    if counted != queries.n_pairs:
        raise TrainingError(
            f"The workers trained on {counted:,} pairs, but the labels imply {queries.n_pairs:,}."
        )
    if hasattr(training.follow, "lambda_"):
        training.follow.lambda_ = lambda_
    own = set(ranker.get_params(deep=False))
    vars(ranker).update({name: value for name, value in vars(fitted).items() if name not in own})


# --- on the client -------------------------------------------------------------------------------


def _run(queries: DaskQueries, ranker: Any, training: Training) -> Any:
    client, addresses = queries.client, queries.addresses()
    token, tasks = secrets.token_hex(8), []
    library, size = type(ranker).engine[0], len(addresses)
    follow: Any = copy.copy(training.follow)
    if hasattr(follow, "measured_on"):
        follow.measured_on = None  # each worker measures on its own share
    training = Training(follow, training.fit_params)
    try:
        reserved = [
            client.submit(_reserve, token, rank, size, library, workers=[address], pure=False)
            for rank, address in enumerate(addresses)
        ]
        hosts, ports, doors, trackers = zip(*_results(client, reserved, addresses), strict=True)
        meeting = Meeting(token, secrets.token_bytes(32), hosts, ports, doors[0], trackers[0])
        tasks = [
            client.submit(
                _train, meeting, rank, ranker, share, training, workers=[address], pure=False
            )
            for rank, (address, share) in enumerate(zip(addresses, queries.shares, strict=True))
        ]
        results = _results(client, tasks, addresses)
    finally:
        for task in tasks:
            with suppress(Exception):
                task.cancel()
    return (*results[0][:2], sum(n_pairs for *_, n_pairs in results))


def _results(client: Any, tasks: list[Any], addresses: list[str]) -> list[Any]:
    """Return the results of all tasks; raise an error if a worker is lost or fails."""
    started, deadline = time.monotonic(), math.inf
    while True:
        if client.status != "running":
            raise lost_client(client)
        alive = workers_of(client)
        lost = any(address not in alive for address in addresses)
        waiting = [
            address
            for task, address in zip(tasks, addresses, strict=True)
            if task.status == "pending" and address in alive
        ]
        if lost or any(task.status in ("error", "lost") for task in tasks):
            deadline = min(deadline, time.monotonic() + GRACE)
        if not waiting and deadline == math.inf:
            with suppress(TimeoutError):  # a result is lost if its worker is, and never arrives
                return [task.result(timeout=GRACE) for task in tasks]
        elif not waiting or time.monotonic() > deadline:
            break
        time.sleep(min(0.5, 0.02 + 0.05 * (time.monotonic() - started)))
    _free(client, tasks, waiting, alive)
    time.sleep(0.5)  # the scheduler notices lost workers with a delay
    alive = workers_of(client)
    gone = [address for address in addresses if address not in alive]
    failures = [task.exception() for task in tasks if task.status == "error"]
    own = next((failure for failure in failures if not _is_of_peers(failure)), None)
    if own is not None and not gone:
        raise own
    if gone:
        raise _LostWorkerError(f"{', '.join(gone)} gone")
    raise _LostWorkerError(str(failures[0]) if failures else "a worker")


def _is_of_peers(error: Any) -> bool:
    """Whether a worker failed because of another worker."""
    if isinstance(error, PairityError):
        return isinstance(error, TrainingError)
    text = str(error).lower()
    return any(word in text for word in ("socket", "connection", "rabit", "allreduce", "tracker"))


def _free(client: Any, tasks: list[Any], hanging: list[str], alive: Any) -> None:
    """Restart workers that wait in an engine for a lost one."""
    if not hanging:
        return
    without_nanny = [address for address in hanging if not alive[address].get("nanny")]
    if without_nanny:
        raise TrainingError(
            f"A worker was lost during a round, and {', '.join(without_nanny)} hang in the engine, "
            "waiting for it. Workers without nannies cannot be restarted from here. Restart the "
            "cluster and fit again. With FairRanker(checkpoint=DIR), completed rounds are not "
            "repeated."
        )
    for task in tasks:
        task.cancel()
    client.restart_workers(hanging, timeout=RETURN, raise_for_error=False)


def _wait_for_workers(client: Any, wanted: int) -> None:
    """Wait for the wanted number of workers, and then for at least one."""
    try:
        with suppress(TimeoutError):
            client.wait_for_workers(wanted, timeout=RETURN)
        client.wait_for_workers(1, timeout=RETURN)
    except TimeoutError as error:
        raise TrainingError(
            f"All workers were lost, and none came back within {RETURN:g} s. Start workers and fit "
            "again. With FairRanker(checkpoint=DIR), completed rounds are not repeated."
        ) from error


# --- on a worker ---------------------------------------------------------------------------------


def _reserve(
    token: str, rank: int, size: int, library: str
) -> tuple[str, int, int, dict[str, Any]]:
    """Return the host of this worker and a port that is reserved for it.

    The first worker also opens a port for sums, and starts XGBoost's tracker.
    """
    from distributed import get_worker
    from distributed.comm import get_address_host

    address = get_worker().address
    host = "127.0.0.1" if address.startswith("inproc") else get_address_host(address)
    _open[token, rank] = reserved = socket.create_server((host, 0))
    port, door, tracker = int(reserved.getsockname()[1]), 0, {}
    if rank == 0 and size > 1:
        _open[token, -1] = opened = socket.create_server((host, 0), backlog=size)
        door = int(opened.getsockname()[1])
    if door and library == "xgboost":
        from xgboost.tracker import RabitTracker

        started = RabitTracker(n_workers=size, host_ip=host, sortby="task", timeout=int(MEETING))
        started.start()
        _trackers[token] = started
        tracker = dict(started.worker_args())
    return host, port, door, tracker


def _train(
    meeting: Meeting, rank: int, ranker: Any, share: Queries, training: Training
) -> tuple[Any, Any, int]:
    """Run one worker's part; the first worker returns the model and λ."""
    follow: Any = training.follow
    try:
        with ExitStack() as entered:
            peers = _meet(meeting, rank)
            peers.n_threads = n_worker_threads()
            entered.enter_context(training_with(peers))
            entered.enter_context(assign_threads(peers.n_threads))
            if peers.size > 1 and type(ranker).engine[0] == "xgboost":
                from xgboost.collective import CommunicatorContext

                task = f"{rank:06d}"
                entered.enter_context(CommunicatorContext(**meeting.tracker, dmlc_task_id=task))
            elif peers.size > 1:
                peers.network = _network(meeting, rank)
            if hasattr(follow, "measured_on"):
                follow = copy.copy(follow)
                follow.measured_on = share
            remember_queries(ranker, share)
            ranker._train(share, training._replace(follow=follow))
        if meeting.token in _trackers:
            _trackers[meeting.token].wait_for(timeout=int(MEETING))  # until all workers have left
        if rank:
            return None, None, share.n_pairs
        return ranker, getattr(follow, "lambda_", None), share.n_pairs
    except Exception as error:
        traceback.clear_frames(error.__traceback__)  # frees the booster, which closes its network
        raise
    finally:
        if not rank:
            _trackers.pop(meeting.token, None)
        for number in (rank,) if rank else (0, -1):
            with suppress(KeyError):
                _open.pop((meeting.token, number)).close()


def _meet(meeting: Meeting, rank: int) -> Peers:
    if meeting.size == 1:
        return Peers()
    if not rank:
        return Peers.listen(_open[meeting.token, -1], meeting.key, meeting.size, MEETING)
    return Peers.join((meeting.hosts[0], meeting.door), meeting.key, rank, meeting.size, MEETING)


def _network(meeting: Meeting, rank: int) -> dict[str, Any]:
    """Return LightGBM's network parameters, and free the reserved port for it."""
    _open.pop((meeting.token, rank)).close()
    return {
        "machines": ",".join(map("{}:{}".format, meeting.hosts, meeting.ports)),
        "local_listen_port": meeting.ports[rank],
        "num_machines": meeting.size,
        "time_out": 120,
        "tree_learner": "data",
    }
