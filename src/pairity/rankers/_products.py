"""Products of a feature matrix and a vector, in blocks of rows or columns on pairity's threads.

BLAS threads spin between calls and compete with the kernels' threads: on two cores they made a fit
several times slower. Inside `one_blas_thread`, each block is computed by one thread. The blocks do
not depend on the number of threads, so neither does the result. The products use `np.dot`, which
releases the GIL; ``vector @ X`` does not, and blocks would wait for one another.
"""

from functools import partial
from threading import Lock
from typing import Any

import numpy as np
import scipy.sparse as sp
from threadpoolctl import ThreadpoolController

from pairity._utils.threads import run_all
from pairity._utils.typing import Array
from pairity.data.features import Features, require_finite
from pairity.data.parquet_features import ParquetFeatures

_BLOCK_ENTRIES = 1_000_000  # 8 MB: large enough that starting a task costs little


class _OneBlasThread:
    """Limit BLAS to one thread from the first entry to the last exit.

    The limit applies to the whole process, so overlapping fits on several threads must share it.
    If each restored the limit that it found, the limit would stay in place.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside = 0
        self._controller: Any = None
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                if self._controller is None:  # finding the loaded libraries takes milliseconds
                    self._controller = ThreadpoolController()
                self._limit = self._controller.limit(limits=1, user_api="blas")

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limit.restore_original_limits()


one_blas_thread = _OneBlasThread()


def times(X: Features | ParquetFeatures, vector: Array) -> Array:
    """Return X @ vector; vector may be a matrix."""
    if isinstance(X, ParquetFeatures):
        result = np.empty((X.shape[0], *vector.shape[1:]))
        for rows, block in X.blocks():
            require_finite(block, X.names, rows.start)
            result[rows] = block @ vector
        return result
    if sp.issparse(X) or X.size <= _BLOCK_ENTRIES:
        return np.asarray(X @ vector)
    # If columns are contiguous, a slice of rows would be copied.
    by_columns = X.flags.f_contiguous and vector.ndim == 1
    return _over_rows(X.T, vector) if by_columns else _by_rows(X, vector)


def transposed_times(X: Features | ParquetFeatures, vector: Array) -> Array:
    """Return X.T @ vector."""
    if isinstance(X, ParquetFeatures):
        total = np.zeros(X.shape[1])
        for rows, block in X.blocks():
            total += vector[rows] @ block
        return total
    if sp.issparse(X) or X.size <= _BLOCK_ENTRIES:
        return np.asarray(X.T @ vector)
    return _by_rows(X.T, vector) if X.flags.f_contiguous else _over_rows(X, vector)


def _by_rows(X: Array, vector: Array) -> Array:
    """Return X @ vector, computed in blocks of rows."""
    parts = [partial(np.dot, X[rows], vector) for rows in row_blocks(X, _BLOCK_ENTRIES)]
    return np.concatenate(run_all(parts))


def _over_rows(X: Array, vector: Array) -> Array:
    """Return X.T @ vector, summed over blocks of rows."""
    parts = [partial(np.dot, vector[rows], X[rows]) for rows in row_blocks(X, _BLOCK_ENTRIES)]
    return np.asarray(np.sum(run_all(parts), axis=0))


def row_blocks(X: Features, n_entries: int) -> list[slice]:
    """Return slices of rows with at most `n_entries` entries of X each, or one row."""
    size = max(1, n_entries // X.shape[1])
    return [slice(start, start + size) for start in range(0, X.shape[0], size)]
