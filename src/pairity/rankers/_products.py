"""A feature matrix times a vector, in blocks of rows on threads of our own.

BLAS threads spin between calls and fight with the kernels' threads: on two cores they made a fit
several times slower. Inside `one_blas_thread`, every block is one thread's; the blocks do not
depend on the number of threads, so neither does the result.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from pairity.columns import Features
from pairity.threads import pool

_BLOCK_ENTRIES = 1_000_000


def one_blas_thread() -> Any:
    """A context in which BLAS uses the calling thread only."""
    return _controller().limit(limits=1, user_api="blas")


@cache
def _controller() -> Any:
    """What threadpoolctl found loaded; looking takes milliseconds, so it looks once."""
    return ThreadpoolController()


def times(X: Features, vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """X @ vector."""
    blocks = _blocks(X)
    if len(blocks) == 1:
        return np.asarray(X @ vector)
    result = np.empty(X.shape[0])

    def fill(rows: slice) -> None:
        result[rows] = X[rows] @ vector

    list(pool().map(fill, blocks))
    return result


def transposed_times(X: Features, vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """X.T @ vector."""
    blocks = _blocks(X)
    if len(blocks) == 1:
        return np.asarray(X.T @ vector)
    parts = list(pool().map(lambda rows: vector[rows] @ X[rows], blocks))
    return np.asarray(np.sum(parts, axis=0))


def _blocks(X: Features) -> list[slice]:
    if sp.issparse(X):
        return [slice(None)]
    size = max(1, _BLOCK_ENTRIES // X.shape[1])
    return [slice(at, at + size) for at in range(0, X.shape[0], size)]
