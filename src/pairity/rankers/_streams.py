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

from pairity._utils.allreduce import current_peers
from pairity._utils.typing import Array
from pairity.data.parquet_features import BLOCK_ENTRIES, ParquetFeatures

_BINS_IN_MEMORY = 2**28  # entries; XGBoost keeps the bins of more in a temporary folder
_SAMPLE = 2**24  # entries that the bins of more are found from: 64 MB as float32
_BINS = 256  # XGBoost's own number of them


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

    def rows(self, first: int, last: int) -> Array:
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
            self.close()
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def close(self) -> None:
        """Hold nothing any more, until rows are asked for again."""
        self._begin_at(len(self.X))

    def _begin_at(self, start: int) -> None:
        self._start, self._block = start, np.empty((0, self.X.shape[1]))
        self._blocks = self.X.blocks()


def as_dataset(lgb: Any, X: ParquetFeatures, *given: Any, **options: Any) -> Any:
    """Features as LightGBM's `Dataset`; gone through twice: to find bins, and to fill them."""
    reader = Forward(X)

    class Rows(lgb.Sequence):  # type: ignore[misc]
        batch_size = max(1, BLOCK_ENTRIES // X.shape[1])

        def __getitem__(self, at: Any) -> Array:
            if isinstance(at, slice):
                return reader.rows(at.start, at.stop)
            row: Array = reader.rows(int(at), int(at) + 1)[0]
            return row

        def __len__(self) -> int:
            return len(X)

    class Dataset(lgb.Dataset):  # type: ignore[misc]
        # LightGBM makes place for the bins here. It would hold the rows they were found from
        # until all others are binned, beside what we read ahead of the last of them.
        def _init_from_sample(self, values: Any, rows: Any, *rest: Any) -> Any:
            reader.close()
            made = super()._init_from_sample(values, rows, *rest)
            values.clear()
            rows.clear()
            return made

    return Dataset(Rows(), *given, **options)


def as_quantiles(
    xgb: Any, X: ParquetFeatures, reference: Any, *, feature_types: Any = None, **options: Any
) -> Any:
    """Features as XGBoost's `QuantileDMatrix`, whose bins lie on disk where there are many.

    The temporary folder goes when the data go. Where there are many, bins are also found from a
    sample of rows, as LightGBM does: from all, it takes XGBoost some kilobytes for each bin.
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
        alone = current_peers().size == 1  # others would find other bins
        numbers = feature_types is None  # of categories, a sample may lack some
        if on_disk and reference is None and alone and numbers and len(X) > _sample_size(X):
            reference = _found_in_sample(xgb, X, options)
        data = kind(Blocks(), ref=reference, **options)
    except BaseException:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    if folder is not None:
        weakref.finalize(data, shutil.rmtree, folder, ignore_errors=True)
    return data


def _sample_size(X: ParquetFeatures) -> int:
    return max(1, _SAMPLE // X.shape[1])


def _found_in_sample(xgb: Any, X: ParquetFeatures, options: dict[str, Any]) -> Any:
    """Data with a row for each bin: XGBoost takes so few different values as its bins."""
    n_bins = options.get("max_bin") or _BINS
    rows = np.sort(np.random.default_rng(0).choice(len(X), _sample_size(X), replace=False))
    sample = np.empty((X.shape[1], len(rows)), dtype=np.float32)
    for part, block in X.blocks():
        first, last = np.searchsorted(rows, [part.start, part.stop])
        sample[:, first:last] = block[rows[first:last] - part.start].T
    bins = np.full((n_bins, X.shape[1]), np.nan, dtype=np.float32)
    for k, column in enumerate(sample):
        values = column[np.isfinite(column) & (column != options.get("missing", np.nan))]
        found = np.unique(values)
        if len(found) > n_bins:
            found = np.unique(np.quantile(values, np.linspace(0, 1, n_bins), method="nearest"))
        bins[: len(found), k] = found
    return xgb.QuantileDMatrix(bins, feature_names=list(X.names), **options)
