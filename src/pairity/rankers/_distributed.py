"""One training run on all workers at once, each with its own share of the queries.

Every worker calls the engine's own training with the same settings, and the engines add up their
histograms among themselves, as `xgboost.dask` and `lightgbm.dask` have them do. Binned data stay
on the workers from round to round.

A worker that is lost ends the run. It is begun again, from the same λ, on the workers that are
left; those that hang in an engine that waits for the lost one are restarted, where nannies can.
"""

from __future__ import annotations

import copy
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
from pairity.rankers._estimators import remember_queries

ATTEMPTS = 4
MEETING = 120.0  # seconds for all workers to meet
GRACE = 15.0  # seconds for the others to end by themselves after one of them has failed
RETURN = 60.0  # seconds for workers to come back where none is left

_open: dict[tuple[str, int], socket.socket] = {}  # of the process: places taken for a meeting


@dataclass(frozen=True)
class Meeting:
    """Where the workers of a run meet.

    Attributes
    ----------
    token : str, of the run
    key : bytes, which proves that a worker belongs to it
    hosts : tuple of str, of each worker
    ports : tuple of int, the port that each holds for its engine
    door : int, the port on the first worker for sums
    tracker : dict, what XGBoost's workers are told
    """

    token: str
    key: bytes
    hosts: tuple[str, ...]
    ports: tuple[int, ...]
    door: int
    tracker: dict[str, Any]

    @property
    def size(self) -> int:
        """How many workers there are."""
        return len(self.hosts)


class _LostWorkerError(Exception):
    """A worker is gone; what it was doing can be done again."""


def train_on_workers(queries: DaskQueries, ranker: Any, follow: Any, fit_params: Any) -> None:
    """Train on all workers at once; begin again where some of them are lost.

    Parameters
    ----------
    ranker : BoosterRanker
        Has learnt, at the end, what the workers have.
    follow : callable, as in `BoosterRanker.fit_following`
        One with an attribute ``lambda_`` has it set to what the run ended with.
    """
    if fit_params.get("eval_set") is not None:
        raise InputError(
            "eval_set is not taken beside Dask collections. Leave it out, and audit the model on "
            "other queries."
        )
    if not queries.n_pairs:
        raise InputError(
            f"No query has two different labels: none of the {queries.n_queries} queries makes a "
            "preference pair, so there is nothing to rank by. Check y and qid."
        )
    lost: Exception | None = None
    there = workers_of(queries.client).values()
    come_back = len(queries.shares) if all(each.get("nanny") for each in there) else 1
    for _ in range(ATTEMPTS):
        try:
            with while_connected(queries.client):
                fitted, lambda_, counted = _run(queries, ranker, follow, fit_params)
            break
        except _LostWorkerError as error:
            lost = error
            before = len(queries.shares)
            _wait_for_workers(queries.client, come_back)
            queries.place()
            if len(queries.shares) < before and type(ranker).engine[0] == "lightgbm":
                _warn_of_fewer(before, len(queries.shares))
    else:
        raise TrainingError(
            f"Workers were lost in {ATTEMPTS} attempts at one round ({lost}). Look at their logs "
            "(memory, most often) and give them more; with FairRanker(checkpoint=DIR) the rounds "
            "that ended are not repeated."
        ) from lost
    if counted != queries.n_pairs:
        raise TrainingError(
            f"The workers trained on {counted:,} pairs, but the labels imply {queries.n_pairs:,}."
        )
    if hasattr(follow, "lambda_"):
        follow.lambda_ = lambda_
    own = set(ranker.get_params(deep=False))
    vars(ranker).update({name: value for name, value in vars(fitted).items() if name not in own})


# --- on the client -------------------------------------------------------------------------------


def _run(queries: DaskQueries, ranker: Any, follow: Any, fit_params: Any) -> Any:
    client, addresses = queries.client, queries.addresses()
    token, tasks = secrets.token_hex(8), []
    library = type(ranker).engine[0]
    follow = copy.copy(follow)
    if hasattr(follow, "measured_on"):
        follow.measured_on = None  # on a worker, its own share
    try:
        taken = [
            client.submit(_take_place, token, rank, workers=[address], pure=False)
            for rank, address in enumerate(addresses)
        ]
        places = _results(client, taken, addresses)
        door, tracker = 0, {}
        if len(addresses) > 1:
            opened = client.submit(
                _open_door, token, len(addresses), library, places[0][0], workers=[addresses[0]],
                pure=False,
            )  # fmt: skip
            ((door, tracker),) = _results(client, [opened], addresses[:1])
        meeting = Meeting(
            token, secrets.token_bytes(32), tuple(host for host, _ in places),
            tuple(port for _, port in places), door, tracker,
        )  # fmt: skip
        tasks = [
            client.submit(
                _train, meeting, rank, library, ranker, share, follow, fit_params,
                workers=[address], pure=False,
            )
            for rank, (address, share) in enumerate(zip(addresses, queries.shares, strict=True))
        ]  # fmt: skip
        results = _results(client, tasks, addresses)
    finally:
        for task in tasks:
            with suppress(Exception):
                task.cancel()
    return (*results[0][:2], sum(each[2] for each in results))


def _results(client: Any, tasks: list[Any], addresses: list[str]) -> list[Any]:
    """What all tasks return; a lost worker is noticed, and so is one that fails."""
    first_failure, failed_at, began = None, 0.0, time.monotonic()
    while True:
        if client.status != "running":
            raise lost_client(client)
        alive = workers_of(client)
        gone = [each for each in addresses if each not in alive]
        waiting = [
            address
            for task, address in zip(tasks, addresses, strict=True)
            if task.status == "pending" and address in alive
        ]
        failure = next((task for task in tasks if task.status in ("error", "lost")), None)
        if first_failure is None and (gone or failure is not None):
            first_failure, failed_at = (gone, failure), time.monotonic()
        if not waiting or (first_failure and time.monotonic() - failed_at > GRACE):
            break
        time.sleep(min(0.5, 0.02 + 0.05 * (time.monotonic() - began)))
    if first_failure is None:
        found: list[Any] = client.gather(tasks)
        return found
    _free(client, tasks, waiting, alive)
    time.sleep(0.5)  # for the scheduler to notice who is gone
    alive = workers_of(client)
    gone = [each for each in addresses if each not in alive]
    failures = [task.exception() for task in tasks if task.status == "error"]
    own = next((each for each in failures if not _is_of_peers(each)), None)
    if own is not None and not gone:
        raise own
    if gone:
        raise _LostWorkerError(f"{', '.join(gone)} gone")
    raise _LostWorkerError(str(failures[0]) if failures else "a worker")


def _is_of_peers(error: Any) -> bool:
    """Whether a worker failed because of another one."""
    if isinstance(error, TrainingError):
        return True
    if isinstance(error, PairityError):
        return False
    text = str(error).lower()
    return any(word in text for word in ("socket", "connection", "rabit", "allreduce", "tracker"))


def _free(client: Any, tasks: list[Any], hanging: list[str], alive: Any) -> None:
    """Restart workers that wait in an engine for one that is gone."""
    if not hanging:
        return
    without = [each for each in hanging if not alive[each].get("nanny")]
    if without:
        raise TrainingError(
            f"A worker was lost in the middle of a round, and {', '.join(without)} hang in the "
            "engine, waiting for it; without nannies they cannot be restarted from here. Restart "
            "the cluster and fit again; with FairRanker(checkpoint=DIR) the rounds that ended are "
            "not repeated."
        )
    for task in tasks:
        task.cancel()
    client.restart_workers(hanging, timeout=RETURN, raise_for_error=False)


def _warn_of_fewer(before: int, now: int) -> None:
    warnings.warn(
        f"A worker was lost: the round is begun again on {now} instead of {before}. LightGBM "
        "counts the items of a leaf otherwise on another number of machines, so that the model is "
        "not quite what it would have been (see min_child_samples in DISTRIBUTED.md).",
        PairityWarning,
        stacklevel=2,
    )


def _wait_for_workers(client: Any, wanted: int) -> None:
    """Until as many are there as before, where nannies bring them back; else until there is one."""
    try:
        with suppress(TimeoutError):
            client.wait_for_workers(wanted, timeout=RETURN)
        client.wait_for_workers(1, timeout=RETURN)
    except TimeoutError as error:
        raise TrainingError(
            f"All workers were lost, and none came back within {RETURN:g} s. Start workers and fit "
            "again; with FairRanker(checkpoint=DIR) the rounds that ended are not repeated."
        ) from error


# --- on a worker ---------------------------------------------------------------------------------


def _take_place(token: str, rank: int) -> tuple[str, int]:
    """The host of this worker, and a port that is kept for it."""
    from distributed import get_worker
    from distributed.comm import get_address_host

    address = get_worker().address
    host = "127.0.0.1" if address.startswith("inproc") else get_address_host(address)
    _open[token, rank] = held = socket.create_server((host, 0))
    return host, int(held.getsockname()[1])


def _open_door(token: str, size: int, library: str, host: str) -> tuple[int, dict[str, Any]]:
    """On the first worker: a port for sums, and XGBoost's tracker."""
    _open[token, -1] = door = socket.create_server((host, 0), backlog=size)
    tracker: dict[str, Any] = {}
    if library == "xgboost":
        from xgboost.tracker import RabitTracker

        started = RabitTracker(n_workers=size, host_ip=host, sortby="task", timeout=int(MEETING))
        started.start()
        _trackers[token] = started
        tracker = dict(started.worker_args())
    return int(door.getsockname()[1]), tracker


_trackers: dict[str, Any] = {}


def _train(
    meeting: Meeting, rank: int, library: str, ranker: Any, share: Queries, follow: Any,
    fit_params: Any,
) -> tuple[Any, Any, int]:  # fmt: skip
    """One worker's part of a run; the first hands back the model and λ."""
    try:
        with ExitStack() as entered:
            peers = _meet(meeting, rank)
            peers.n_threads = n_worker_threads()
            entered.enter_context(training_with(peers))
            entered.enter_context(assign_threads(peers.n_threads))
            if peers.size > 1 and library == "xgboost":
                from xgboost.collective import CommunicatorContext

                task = f"{rank:06d}"
                entered.enter_context(CommunicatorContext(**meeting.tracker, dmlc_task_id=task))
            elif peers.size > 1:
                peers.network = _network(meeting, rank)
            if hasattr(follow, "measured_on"):
                follow = copy.copy(follow)
                follow.measured_on = share
            remember_queries(ranker, share)
            ranker._train(share, follow, None, fit_params)
        if meeting.token in _trackers:
            _trackers[meeting.token].wait_for(timeout=int(MEETING))  # until all have left
        return (ranker, getattr(follow, "lambda_", None), share.n_pairs) if not rank else (
            None, None, share.n_pairs
        )  # fmt: skip
    except Exception as error:
        traceback.clear_frames(error.__traceback__)  # a booster that goes closes its network
        raise
    finally:
        if not rank:
            _trackers.pop(meeting.token, None)
        for held in (rank, *(() if rank else (-1,))):
            with suppress(KeyError):
                _open.pop((meeting.token, held)).close()


def _meet(meeting: Meeting, rank: int) -> Peers:
    if meeting.size == 1:
        return Peers()
    if not rank:
        door = _open[meeting.token, -1]
        return Peers.listen(door, meeting.key, meeting.size, MEETING)
    first = (meeting.hosts[0], meeting.door)
    return Peers.join(first, meeting.key, rank, meeting.size, MEETING)


def _network(meeting: Meeting, rank: int) -> dict[str, Any]:
    """How LightGBM connects the workers; the port is let go just before."""
    _open.pop((meeting.token, rank)).close()
    both = zip(meeting.hosts, meeting.ports, strict=True)
    return {
        "machines": ",".join(f"{host}:{port}" for host, port in both),
        "local_listen_port": meeting.ports[rank],
        "num_machines": meeting.size,
        "time_out": 120,
        "tree_learner": "data",
    }
