"""The digest of a data set: one text that changes with any of its values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pairity._utils.threads import run_all
from pairity._utils.typing import Array
from pairity.data.columns import missing, object_array
from pairity.data.parquet_features import ParquetFeatures

if TYPE_CHECKING:
    from pairity.data.queries import Queries

_BLOCK_ROWS = 8192  # part of the definition: other blocks give another digest
_COPIED_ROWS = 512  # at a time, if rows must be copied to be hashed: a small buffer


def digest(queries: Queries) -> str:
    """The SHA-256 of a table's content: features, labels, queries, groups and weights, in order.

    Call it as ``queries.digest()``.

    Notes
    -----
    Features are hashed in blocks of 8,192 rows, on all threads: the numbers of a block row by row
    as float64 (little-endian; a missing value is NaN), then each column of other values as a JSON
    list of texts; of a sparse matrix the number of entries in each row, their columns and their
    values. The digest is that of the blocks' digests, one after the other, followed by a JSON
    list of the numbers of rows and columns, group names and query ids (as text), and by labels
    (float64), query numbers (int64), group codes (int32) and the weights, if there are any
    (float64). Feature names are not hashed: a table and the matrix of its numbers agree.

    Queries on the workers of a cluster have the digest of their partitions (`digest_of_parts`).

    Examples
    --------
    >>> from pairity import Queries
    >>> queries = Queries.from_arrays([[0.5], [1.0]], [0, 1], qid=[7, 7])
    >>> changed = Queries.from_arrays([[0.5], [1.5]], [0, 1], qid=[7, 7])
    >>> queries.digest() == changed.digest()
    False
    """
    content = hashlib.sha256()
    for block in _block_digests(queries.X):
        content.update(block)
    header = [queries.n_items, queries.n_features, list(queries.groups), _texts(queries.query_ids)]
    content.update(json.dumps(header).encode())
    weights = [w for w in (queries.item_weight, queries.query_weight) if w is not None]
    arrays = [queries.y, queries.query, queries.group, *weights]
    for array, dtype in zip(arrays, ("<f8", "<i8", "<i4", "<f8", "<f8"), strict=False):
        content.update(np.ascontiguousarray(array, dtype=dtype).data)
    return content.hexdigest()


def digest_of_parts(parts: Sequence[str]) -> str:
    """The digest of data in parts: the SHA-256 of the parts' digests, as text, in order."""
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def _block_digests(X: Any) -> Iterable[bytes]:
    if isinstance(X, ParquetFeatures):
        cuts = [*range(0, len(X), _BLOCK_ROWS), len(X)]
        return (_dense_block(block, slice(None)) for _, block in X.blocks(cuts))
    if X is None:
        return ()
    starts = range(0, X.shape[0], _BLOCK_ROWS)
    blocks = [slice(start, min(start + _BLOCK_ROWS, X.shape[0])) for start in starts]
    if sp.issparse(X):
        hash_block = partial(_sparse_block, X)
    elif isinstance(X, np.ndarray) and X.dtype.kind in "biuf":
        hash_block = partial(_dense_block, X)
    else:
        hash_block = partial(_mixed_block, *_columns(X))
    return run_all([partial(hash_block, rows) for rows in blocks])


def _dense_block(X: NDArray[Any], rows: slice) -> bytes:
    block, numbers = hashlib.sha256(), X[rows]
    for row in range(0, len(numbers), _COPIED_ROWS):
        block.update(np.ascontiguousarray(numbers[row : row + _COPIED_ROWS], dtype="<f8").data)
    return block.digest()


def _sparse_block(X: Any, rows: slice) -> bytes:
    part = sp.csr_array(X[rows])
    part.sum_duplicates()
    block = hashlib.sha256(np.diff(part.indptr).astype("<i8").data)
    block.update(part.indices.astype("<i8").data)
    block.update(part.data.astype("<f8").data)
    return block.digest()


def _mixed_block(numbers: list[Array], texts: list[Any], rows: slice) -> bytes:
    block = hashlib.sha256()
    if numbers:
        matrix = np.column_stack([column[rows] for column in numbers])
        block.update(np.ascontiguousarray(matrix, dtype="<f8").data)
    for column in texts:
        block.update(json.dumps(_texts(column[rows])).encode())
    return block.digest()


def _columns(X: Any) -> tuple[list[Array], list[Any]]:
    """The columns of a table, or of a matrix of objects: numbers, and all others."""
    if isinstance(X, np.ndarray):
        return [], list(X.T)
    numbers, texts = [], []
    for series in nw.from_native(X, eager_only=True).iter_columns():
        if series.dtype.is_float() or series.dtype.is_integer() or series.dtype == nw.Boolean:
            with suppress(TypeError, ValueError):
                numbers.append(np.asarray(series.to_numpy(), dtype=np.float64))
                continue
        texts.append(object_array(series.to_list()))
    return numbers, texts


def _texts(values: Any) -> list[str | None]:
    pairs = zip(values.tolist(), missing(values).tolist(), strict=True)
    return [None if absent else str(value) for value, absent in pairs]
