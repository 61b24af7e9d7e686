"""Threads for blocks of queries: kernels release the GIL and write to separate places."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import partial
from itertools import pairwise
from threading import Lock
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pairity._utils.context import value_in_block

T = TypeVar("T")

_BLOCKS_PER_THREAD = 3  # so that a thread with cheap blocks can take more of them
_MIN_WORK = 400_000  # about a millisecond; less is not worth a thread

_limit: ContextVar[int | None] = ContextVar("pairity_thread_limit", default=None)
_assigned: ContextVar[int | None] = ContextVar("pairity_assigned_threads", default=None)


def limit_threads(n: int | None) -> AbstractContextManager[None]:
    """Limit the kernels to `n` threads inside the block; None changes nothing."""
    return value_in_block(_limit, n)


def assign_threads(n: int) -> AbstractContextManager[None]:
    """Let kernels use `n` threads inside the block, whatever ``OMP_NUM_THREADS`` says.

    Dask starts all worker processes with ``OMP_NUM_THREADS=1``, also those with many threads.
    """
    return value_in_block(_assigned, n)


def n_threads() -> int:
    """The number of threads that the kernels use.

    This is the environment variable ``PAIRITY_NUM_THREADS``, or the number of `assign_threads`, or
    ``OMP_NUM_THREADS`` (which joblib sets in its workers), or the number of processors available
    to this process; but at most the limit of `limit_threads`.
    """
    limit = _limit.get()
    return _available() if limit is None else min(limit, _available())


def _available() -> int:
    own, openmp = (os.environ.get(f"{name}_NUM_THREADS", "") for name in ("PAIRITY", "OMP"))
    for value in (own, str(_assigned.get() or openmp)):
        if value.isdigit() and int(value) > 0:
            return int(value)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_all(tasks: Sequence[Callable[[], T]]) -> list[T]:
    """Run the tasks on the shared threads and on this one, and return their results in order.

    All tasks have ended when this returns or raises, because they write into the caller's arrays.
    Tasks must not call this function: if every thread waited for a task, none would be run.
    """
    threads = min(n_threads(), len(tasks))
    if threads <= 1:
        return [task() for task in tasks]
    results: list[Any] = [None] * len(tasks)
    waiting = iter(list(enumerate(tasks)))  # next() on a list is atomic: no task is run twice

    def work() -> None:
        for index, task in waiting:
            results[index] = task()

    started = [_shared_pool().submit(work) for _ in range(threads - 1)]
    try:
        work()
    finally:
        wait(started)
    for future in started:
        future.result()
    return results


def _shared_pool() -> ThreadPoolExecutor:
    """The pool that all callers share; created on first use and after a fork."""
    global _pool
    with _lock:
        if _pool is None or _pool[0] != n_threads():
            _pool = (n_threads(), ThreadPoolExecutor(n_threads(), "pairity"))
        return _pool[1]


_pool: tuple[int, ThreadPoolExecutor] | None = None
_lock = Lock()


def _forget_pool() -> None:
    """Drop the pool in a forked child, which has none of its parent's threads."""
    global _pool, _lock
    _pool, _lock = None, Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


def run_blocks(kernel: Callable[..., None], bounds: NDArray[np.int64], *arguments: Any) -> None:
    """Call ``kernel(first, last, *arguments)`` for blocks of queries with equal work.

    `bounds` are the query boundaries. The work of a query is assumed to grow with its length to
    the power 1.5, between sorting and comparing all pairs. Small work stays on this thread.
    """
    n_queries = len(bounds) - 1
    sizes = bounds[1:] - bounds[:-1]
    work = np.cumsum(sizes * np.sqrt(sizes))
    if n_queries < 2 or work[-1] < _MIN_WORK or (threads := min(n_threads(), n_queries)) < 2:
        kernel(0, n_queries, *arguments)
        return
    targets = np.linspace(0.0, work[-1], threads * _BLOCKS_PER_THREAD + 1)[1:-1]
    cuts = np.unique(np.r_[0, np.searchsorted(work, targets), n_queries])
    run_all([partial(kernel, int(first), int(last), *arguments) for first, last in pairwise(cuts)])
