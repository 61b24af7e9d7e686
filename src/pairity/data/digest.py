"""digest: which data a model was trained on, as one number that changes with any of its values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import partial
from typing import Any

import narwhals as nw
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pairity._utils.threads import run_all
from pairity._utils.typing import Array
from pairity.data.columns import missing, object_array
from pairity.data.parquet_features import ParquetFeatures
from pairity.data.queries import Queries

_BLOCK_ROWS = 8192  # part of the definition: other blocks give another digest
_COPIED_ROWS = 512  # at once, where rows are not as they are hashed


def digest(queries: Queries) -> str:
    """The SHA-256 of a table's content: features, labels, queries, groups and weights, in order.

    Notes
    -----
    Features are hashed in blocks of 8,192 rows, on all threads: the numbers of a block row by row
    as float64 (little-endian; a missing one is NaN), then each column of anything else as a JSON
    list of texts; of a sparse matrix the number of entries in each row, their columns and their
    values. The digest is that of the blocks' digests, one after the other, followed by a JSON
    list of the numbers of rows and columns, group names and query ids (as text), and by labels
    (float64), query numbers (int64), group numbers (int32) and the weights that were given
    (float64). Names of features play no part: a table and the matrix of its numbers agree.

    Examples
    --------
    >>> from pairity import Queries
    >>> from pairity.data.digest import digest
    >>> one = Queries.from_arrays([[0.5], [1.0]], [0, 1], qid=[7, 7])
    >>> two = Queries.from_arrays([[0.5], [1.5]], [0, 1], qid=[7, 7])
    >>> digest(one) == digest(two)
    False
    """
    whole = hashlib.sha256()
    for part in _of_blocks(queries.X):
        whole.update(part)
    n_columns = 0 if queries.X is None else int(queries.X.shape[1])
    said = [queries.n_items, n_columns, list(queries.groups), _texts(queries.query_ids)]
    whole.update(json.dumps(said).encode())
    for array, kind in (
        (queries.y, "<f8"), (queries.query, "<i8"), (queries.group, "<i4"),
        (queries.item_weight, "<f8"), (queries.query_weight, "<f8"),
    ):  # fmt: skip
        if array is not None:
            whole.update(np.ascontiguousarray(array, dtype=kind).data)
    return whole.hexdigest()


def _of_blocks(X: Any) -> Iterable[bytes]:
    """The digest of each block."""
    if not isinstance(X, ParquetFeatures):
        return run_all(_blocks(X))
    cuts = [*range(0, len(X), _BLOCK_ROWS), len(X)]
    return (_dense_block(block, slice(None)) for _, block in X.blocks(cuts))


def _blocks(X: Any) -> list[partial[bytes]]:
    """What computes the digest of each block."""
    if X is None:
        return [partial(bytes)]
    starts = range(0, X.shape[0], _BLOCK_ROWS)
    rows = [slice(at, min(at + _BLOCK_ROWS, X.shape[0])) for at in starts]
    if sp.issparse(X):
        return [partial(_sparse_block, X, each) for each in rows]
    if isinstance(X, np.ndarray) and X.dtype.kind in "biuf":
        return [partial(_dense_block, X, each) for each in rows]
    numbers, texts = _columns(X)
    return [partial(_mixed_block, numbers, texts, each) for each in rows]


def _dense_block(X: NDArray[Any], rows: slice) -> bytes:
    block, numbers = hashlib.sha256(), X[rows]
    for at in range(0, len(numbers), _COPIED_ROWS):
        block.update(np.ascontiguousarray(numbers[at : at + _COPIED_ROWS], dtype="<f8").data)
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
        both = np.column_stack([column[rows] for column in numbers])
        block.update(np.ascontiguousarray(both, dtype="<f8").data)
    for column in texts:
        block.update(json.dumps(_texts(column[rows])).encode())
    return block.digest()


def _columns(X: Any) -> tuple[list[Array], list[Any]]:
    """The columns of a table, or of a matrix of objects: numbers, and whatever else there is."""
    if isinstance(X, np.ndarray):
        return [], list(X.T)
    numbers, texts = [], []
    for series in nw.from_native(X, eager_only=True).iter_columns():
        column = _as_numbers(series)
        if column is None:
            texts.append(object_array(series.to_list()))
        else:
            numbers.append(column)
    return numbers, texts


def _as_numbers(series: Any) -> Array | None:
    if not (series.dtype.is_float() or series.dtype.is_integer() or series.dtype == nw.Boolean):
        return None
    try:
        return np.asarray(series.to_numpy(), dtype=np.float64)
    except (TypeError, ValueError):
        return None


def _texts(values: Any) -> list[str | None]:
    absent = missing(values)
    listed = zip(values.tolist(), absent.tolist(), strict=True)
    return [None if gone else str(value) for value, gone in listed]
