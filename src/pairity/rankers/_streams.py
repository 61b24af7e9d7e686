"""Features in files for the boosters: read in blocks, binned once, in memory or on disk."""

import tempfile
import weakref
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from pairity._utils.allreduce import current_peers
from pairity._utils.typing import Array
from pairity.data.parquet_features import BLOCK_ENTRIES, ParquetFeatures

# Entries of X. With more, XGBoost keeps its bins in a temporary folder (2**28 bins are 256 MB) and
# finds them from a sample of this many entries (64 MB as float32).
_BINS_IN_MEMORY = 2**28
_SAMPLE = 2**24
_BINS = 256  # XGBoost's default max_bin


class Forward:
    """Rows of files, requested in increasing order; a step back starts again at the first row.

    After the last row, nothing is kept in memory.
    """

    def __init__(self, X: ParquetFeatures) -> None:
        self.X = X
        self._start_at(0)

    def _start_at(self, start: int) -> None:
        self._start, self._block = start, np.empty((0, self.X.shape[1]))
        self._blocks = self.X.blocks()

    def rows(self, first: int, last: int) -> Array:
        """Return rows `first` to `last` - 1 as float64."""
        if first < self._start:
            self._start_at(0)
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
        """Release the memory until rows are requested again."""
        self._start_at(len(self.X))


def as_dataset(lgb: Any, X: ParquetFeatures, *arguments: Any, **options: Any) -> Any:
    """Return features as LightGBM's `Dataset`, in two passes: one finds bins, one fills them."""
    reader = Forward(X)

    class Rows(lgb.Sequence):  # type: ignore[misc]
        batch_size = max(1, BLOCK_ENTRIES // X.shape[1])

        def __getitem__(self, index: Any) -> Array:
            if isinstance(index, slice):
                return reader.rows(index.start, index.stop)
            return np.asarray(reader.rows(int(index), int(index) + 1)[0])

        def __len__(self) -> int:
            return len(X)

    return _frugal_dataset(lgb, reader)(Rows(), *arguments, **options)


def _frugal_dataset(lgb: Any, reader: Forward) -> Any:
    """Return a `Dataset` class that frees its sample of rows as soon as it has found the bins.

    LightGBM keeps the sample until all rows are binned, and has no public way to release it. This
    is the only place that uses a private name of LightGBM. If a later version does not call the
    method, data are still read, with more memory, and
    ``test_lightgbm_does_not_hold_the_sample_while_it_bins`` fails.
    """

    class Dataset(lgb.Dataset):  # type: ignore[misc]
        def _init_from_sample(self, values: Any, rows: Any, *rest: Any) -> Any:
            reader.close()
            dataset = super()._init_from_sample(values, rows, *rest)
            values.clear()
            rows.clear()
            return dataset

    return Dataset


def as_quantiles(
    xgb: Any, X: ParquetFeatures, reference: Any, *, feature_types: Any = None, **options: Any
) -> Any:
    """Return features as XGBoost's `QuantileDMatrix`, with its bins on disk if there are many.

    The temporary folder is removed with the data. Many bins are also found from a sample of rows,
    as in LightGBM: finding them from all rows takes XGBoost some kilobytes per bin.
    """
    on_disk = X.shape[0] * X.shape[1] > _BINS_IN_MEMORY
    kind = xgb.ExtMemQuantileDMatrix if on_disk else xgb.QuantileDMatrix
    cache: str | None = None

    class Blocks(xgb.DataIter):  # type: ignore[misc]
        def __init__(self) -> None:
            self._blocks = X.blocks()
            super().__init__(cache)

        def reset(self) -> None:
            self._blocks = X.blocks()

        def next(self, input_data: Any) -> bool:
            for _, block in self._blocks:
                data = np.ascontiguousarray(block)
                input_data(data=data, feature_names=list(X.names), feature_types=feature_types)
                return True
            return False

    with ExitStack() as cleanup:
        if on_disk:
            temporary = tempfile.TemporaryDirectory(prefix="pairity-", ignore_cleanup_errors=True)
            cache = str(Path(cleanup.enter_context(temporary), "bins"))
        alone = current_peers().size == 1  # peers would find different bins
        numeric = feature_types is None  # a sample may lack some categories
        if on_disk and reference is None and alone and numeric and len(X) > _sample_size(X):
            reference = _bins_from_sample(xgb, X, options)
        data = kind(Blocks(), ref=reference, **options)
        weakref.finalize(data, cleanup.pop_all().close)
    return data


def _sample_size(X: ParquetFeatures) -> int:
    return max(1, _SAMPLE // X.shape[1])


def _bins_from_sample(xgb: Any, X: ParquetFeatures, options: dict[str, Any]) -> Any:
    """Return data with one row per bin. XGBoost uses so few distinct values as its bins."""
    n_bins = options.get("max_bin") or _BINS
    rows = np.sort(np.random.default_rng(0).choice(len(X), _sample_size(X), replace=False))
    sample = np.empty((X.shape[1], len(rows)), dtype=np.float32)
    for part, block in X.blocks():
        first, last = np.searchsorted(rows, [part.start, part.stop])
        sample[:, first:last] = block[rows[first:last] - part.start].T
    bins = np.full((n_bins, X.shape[1]), np.nan, dtype=np.float32)
    for feature, column in enumerate(sample):
        values = column[np.isfinite(column) & (column != options.get("missing", np.nan))]
        distinct = np.unique(values)
        if len(distinct) > n_bins:
            distinct = np.unique(np.quantile(values, np.linspace(0, 1, n_bins), method="nearest"))
        bins[: len(distinct), feature] = distinct
    return xgb.QuantileDMatrix(bins, feature_names=list(X.names), **options)
