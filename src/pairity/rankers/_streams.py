"""Features in files as the boosters read them: in blocks, binned once, in memory or on disk."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairity.parquet_features import BLOCK_ENTRIES, ParquetFeatures

_BINS_IN_MEMORY = 2**28  # entries; XGBoost keeps the bins of more in a temporary folder


class Forward:
    """Rows of a file, asked for in rising order; going back begins anew.

    Behind the last row nothing is held any more.
    """

    _start: int
    _block: NDArray[Any]
    _blocks: Iterator[tuple[slice, NDArray[Any]]]

    def __init__(self, X: ParquetFeatures) -> None:
        self.X = X
        self._begin_at(0)

    def rows(self, first: int, last: int) -> NDArray[np.float64]:
        """Rows from `first` to `last` - 1, as float64."""
        if first < self._start:
            self._begin_at(0)
        parts = []
        while first < last:
            while first >= self._start + len(self._block):
                rows, self._block = next(self._blocks)
                self._start = rows.start
            part = self._block[first - self._start : last - self._start]
            parts.append(np.array(part, dtype=np.float64, order="C"))
            first += len(part)
        if last == len(self.X):
            self._begin_at(last)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _begin_at(self, start: int) -> None:
        self._start, self._block = start, np.empty((0, self.X.shape[1]))
        self._blocks = self.X.blocks()


def as_sequence(lgb: Any, X: ParquetFeatures) -> Any:
    """Features as LightGBM's `Sequence`, gone through twice: to find bins, and to fill them."""
    reader = Forward(X)

    class Rows(lgb.Sequence):  # type: ignore[misc]
        batch_size = max(1, BLOCK_ENTRIES // X.shape[1])

        def __getitem__(self, at: Any) -> NDArray[np.float64]:
            if isinstance(at, slice):
                return reader.rows(at.start, at.stop)
            row: NDArray[np.float64] = reader.rows(int(at), int(at) + 1)[0]
            return row

        def __len__(self) -> int:
            return len(X)

    return Rows()


def as_quantiles(
    xgb: Any, X: ParquetFeatures, reference: Any, *, feature_types: Any = None, **options: Any
) -> Any:
    """Features as XGBoost's `QuantileDMatrix`, whose bins lie on disk where there are many.

    The temporary folder goes when the data go.
    """
    on_disk = X.shape[0] * X.shape[1] > _BINS_IN_MEMORY
    kind = xgb.ExtMemQuantileDMatrix if on_disk else xgb.QuantileDMatrix
    folder = tempfile.mkdtemp(prefix="pairity-") if on_disk else None

    class Blocks(xgb.DataIter):  # type: ignore[misc]
        def __init__(self) -> None:
            self._blocks = X.blocks()
            super().__init__(None if folder is None else str(Path(folder, "bins")))

        def reset(self) -> None:
            self._blocks = X.blocks()

        def next(self, input_data: Any) -> bool:
            found = next(self._blocks, None)
            if found is None:
                return False
            input_data(
                data=np.ascontiguousarray(found[1]),
                feature_names=list(X.names),
                feature_types=feature_types,
            )
            return True

    try:
        data = kind(Blocks(), ref=reference, **options)
    except BaseException:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    if folder is not None:
        weakref.finalize(data, shutil.rmtree, folder, ignore_errors=True)
    return data
