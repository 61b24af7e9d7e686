"""Blocks of queries on threads: the kernels release the GIL and write to places of their own."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import pairwise
from threading import Lock
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")

_BLOCKS_PER_THREAD = 3
_SMALLEST_WORK = 400_000  # about a millisecond: less is not worth a thread


_limit: ContextVar[int | None] = ContextVar("pairity_threads", default=None)
_own: ContextVar[int | None] = ContextVar("pairity_own_threads", default=None)


@contextmanager
def limit_threads(n: int | None) -> Iterator[None]:
    """Hold the kernels to `n` threads inside the block; None leaves them as they are."""
    token = _limit.set(n)
    try:
        yield
    finally:
        _limit.reset(token)


@contextmanager
def assign_threads(n: int) -> Iterator[None]:
    """Inside the block this thread may use `n`, whatever the environment says of OpenMP's.

    Dask starts worker processes with ``OMP_NUM_THREADS=1``, also those that it counts on for many.
    """
    token = _own.set(n)
    try:
        yield
    finally:
        _own.reset(token)


def n_threads() -> int:
    """How many threads the kernels use.

    The environment variable ``PAIRITY_NUM_THREADS`` decides, else `assign_threads`, else
    ``OMP_NUM_THREADS`` (which joblib sets in its workers), else the number of processors this
    process may use; never more than `limit_threads` allows.
    """
    limit = _limit.get()
    return _available() if limit is None else min(limit, _available())


def _available() -> int:
    for name, own in (("PAIRITY_NUM_THREADS", None), ("OMP_NUM_THREADS", _own.get())):
        value = os.environ.get(name, "") if own is None else str(own)
        if value.isdigit() and int(value) > 0:
            return int(value)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_all(tasks: Sequence[Callable[[], T]]) -> list[T]:
    """Run the tasks on the shared threads and on this one; return what they return, in order.

    All have ended when this returns or raises, since they write into the caller's arrays. Tasks
    must not call this themselves: with every thread waiting for a task, none would be done.
    """
    threads = min(n_threads(), len(tasks))
    if threads <= 1:
        return [task() for task in tasks]
    results: list[Any] = [None] * len(tasks)
    waiting = deque(enumerate(tasks))

    def work() -> None:
        while True:
            try:
                at, task = waiting.popleft()
            except IndexError:
                return
            results[at] = task()

    shared = _shared_pool()
    started = [shared.submit(work) for _ in range(threads - 1)]
    try:
        work()
    finally:
        wait(started)
    for future in started:
        future.result()
    return results


def _shared_pool() -> ThreadPoolExecutor:
    """The threads that all share; made when first needed, anew after a fork."""
    global _pool
    with _lock:
        if _pool is None or _pool[0] != n_threads():
            _pool = (n_threads(), ThreadPoolExecutor(n_threads(), "pairity"))
        return _pool[1]


_pool: tuple[int, ThreadPoolExecutor] | None = None
_lock = Lock()


def _forget_pool() -> None:
    """A forked child has none of its parent's threads."""
    global _pool, _lock
    _pool, _lock = None, Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


def run_blocks(kernel: Callable[..., None], bounds: NDArray[np.int64], *arguments: Any) -> None:
    """Call ``kernel(first, last, *arguments)`` over all queries, cut into blocks of equal work.

    `bounds` are the query boundaries; the work of a query is taken to grow with its length to the
    power 1.5, between sorting and comparing all pairs. Small work stays on the calling thread.
    """
    n_queries = len(bounds) - 1
    sizes = bounds[1:] - bounds[:-1]
    work = np.cumsum(sizes * np.sqrt(sizes))
    if n_queries < 2 or work[-1] < _SMALLEST_WORK or (threads := min(n_threads(), n_queries)) < 2:
        kernel(0, n_queries, *arguments)
        return
    marks = np.linspace(0.0, work[-1], threads * _BLOCKS_PER_THREAD + 1)[1:-1]
    cuts = np.unique(np.r_[0, np.searchsorted(work, marks), n_queries])
    run_all([partial(kernel, int(first), int(last), *arguments) for first, last in pairwise(cuts)])
