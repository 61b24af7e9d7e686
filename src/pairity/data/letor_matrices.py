"""Feature matrices that grow by blocks of LETOR rows, dense or sparse.

Rows are collected in large chunks. The final matrix is filled chunk by chunk, and each chunk is
freed as soon as it is copied, so that the peak of memory is little more than the matrix.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pairity.data import letor_kernels as kernels
from pairity.data.columns import Column
from pairity.data.features import Features
from pairity.exceptions import InputError

_CHUNK = 2**26  # bytes; the allocator returns so large an array to the system when it is freed
_MAX_CELLS_PER_ENTRY = 200  # of a dense matrix above _LARGE bytes; a sparser one is refused
_LARGE = 2**26  # bytes


class _Chunks:
    """Rows in large arrays, each with the number of its rows that are in use."""

    def __init__(self, dtype: Any) -> None:
        self._dtype = np.dtype(dtype)
        self._chunks: list[NDArray[Any]] = []
        self._used: list[int] = []

    def reserve(self, n_rows: int, *shape: int) -> NDArray[Any]:
        """Return room for further rows of some shape, filled with zeros."""
        full = not self._chunks or len(self._chunks[-1]) - self._used[-1] < n_rows
        if full or self._chunks[-1].shape[1:] != shape:
            row_bytes = self._dtype.itemsize * int(np.prod(shape))
            room = max(n_rows, _CHUNK // row_bytes + 1)
            self._chunks.append(np.zeros((room, *shape), self._dtype))
            self._used.append(0)
        begin = self._used[-1]
        self._used[-1] += n_rows
        return self._chunks[-1][begin : begin + n_rows]

    def drain(self) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Yield the chunks with their rows, the last first; each is freed after its use."""
        end = sum(self._used)
        while self._chunks:
            used = self._used.pop()
            yield slice(end - used, end), self._chunks.pop()[:used]
            end -= used

    def column(self) -> Column:
        """Return all entries of a column."""
        column = np.empty(sum(self._used), self._dtype)
        for rows, chunk in self.drain():
            column[rows] = chunk
        return column


class DenseMatrix:
    """A dense matrix whose first feature has the index `lowest`."""

    def __init__(self, lowest: int) -> None:
        self._lowest, self._width = lowest, 1
        self._rows = _Chunks(np.float64)
        self._n_cells = self._n_entries = 0

    def add(self, part: Any) -> None:
        """Add the rows of a block."""
        self._width = width = max(part.highest - self._lowest + 1, self._width)
        n_rows = len(part.ends)
        self._n_entries += len(part.values)
        self._require_filled(n_rows * width)
        room = self._rows.reserve(n_rows, width)
        kernels.scatter(part.ends, part.indices, part.values, self._lowest, room)
        self._n_cells += n_rows * width

    def finish(self, n_rows: int, width: int, base: int) -> Features:
        """Return the matrix."""
        self._require_filled(n_rows * width - self._n_cells)
        X = np.zeros((n_rows, width))
        for rows, chunk in self._rows.drain():
            filled = chunk[:, base - self._lowest :]
            X[rows, : filled.shape[1]] = filled
        return X

    def _require_filled(self, n_further: int) -> None:
        n_cells = self._n_cells + n_further
        if n_cells > _LARGE // 8 and n_cells > _MAX_CELLS_PER_ENTRY * self._n_entries:
            raise InputError(
                f"X would be dense with {n_cells:.2g} cells for {self._n_entries:,} entries: the "
                "largest index is far above the number of entries. Read with sparse=True, or, if "
                "that index is a mistake, pass n_features to find it."
            )


class SparseMatrix:
    """A CSR matrix without zeros."""

    def __init__(self) -> None:
        self._indices, self._values = _Chunks(np.int32), _Chunks(np.float64)
        self._sizes: list[NDArray[np.int64]] = []

    def add(self, part: Any) -> None:
        """Add the rows of a block."""
        nonzero = part.values != 0.0
        until = np.concatenate([[0], np.cumsum(nonzero)])[part.ends]
        self._sizes.append(np.diff(until, prepend=0))
        for chunks, entries in ((self._indices, part.indices), (self._values, part.values)):
            chunks.reserve(int(nonzero.sum()))[:] = entries[nonzero]

    def finish(self, n_rows: int, width: int, base: int) -> Features:
        """Return the matrix."""
        bounds = np.concatenate([[0], np.cumsum(np.concatenate(self._sizes))])
        indices, values = self._indices.column(), self._values.column()
        indices -= np.int32(base)
        if bounds[-1] < 2**31:
            bounds = bounds.astype(np.int32)  # else SciPy converts the indices to 64 bits too
        return sp.csr_array((values, indices, bounds), shape=(n_rows, width))
