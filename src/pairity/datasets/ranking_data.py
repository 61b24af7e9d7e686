"""RankingData: a data set of the literature with all its labels and its usual folds."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairity._utils.typing import Array
from pairity._utils.validation import require_choice, show
from pairity.data.columns import Column, object_array
from pairity.data.queries import Queries
from pairity.exceptions import InputError


@dataclass(frozen=True, eq=False, repr=False)
class RankingData:
    """A data set: its queries, each of its labels, and the folds or parts it is published in.

    Attributes
    ----------
    name : str
    label : str
        The label that `queries` uses by default.
    labels : mapping from name to float64 array of shape (n_items,)
    cut : array of shape (n_queries,)
        The fold or part each query belongs to, in the order of ``queries().query_ids``.
    licence : str
        The licence of the files as stated by their publisher, not that of pairity.

    Examples
    --------
    ::

        data = load_trec_w3c()
        train, test = data.queries().split(0.2, random_state=0)
        train, test = data.fold(1)                  # topics 1 to 10 are the test queries
        unbiased = data.fold(1, label="expert")[1]  # the same, with another label
    """

    name: str
    label: str
    labels: Mapping[str, Array]
    cut: Column
    licence: str
    _queries: Queries

    def queries(self, label: str | None = None) -> Queries:
        """Return all queries, with the default label or with another one of `labels`."""
        if label is None or label == self.label:
            return self._queries
        require_choice("label", label, tuple(self.labels))
        return replace(self._queries, y=self.labels[label])

    def part(self, which: Any, label: str | None = None) -> Queries:
        """Return the queries of one fold or part, such as ``"train"`` of MSLR."""
        return self.queries(label).take(self._in(which))

    def fold(self, which: Any, label: str | None = None) -> tuple[Queries, Queries]:
        """Return the training queries, which are outside of a fold, and its test queries."""
        test = self._in(which)
        if test.all():
            raise InputError(f"All queries are in fold {show(which)}; none is left for training.")
        return self.queries(label).take(~test), self.queries(label).take(test)

    def _in(self, which: Any) -> NDArray[np.bool_]:
        inside = np.array([part == which for part in self.cut.tolist()], dtype=bool)
        if not inside.any():
            parts = ", ".join(map(repr, dict.fromkeys(self.cut.tolist())))
            raise InputError(f"{self.name} has no part {show(which)}. Choose from {parts}.")
        return inside

    def __repr__(self) -> str:
        return (
            f"RankingData({self.name!r}, {self._queries!r}, label={self.label!r}, "
            f"labels={tuple(self.labels)})"
        )


def ranking_data(
    name: str,
    X: Any,
    feature_names: tuple[str, ...],
    *,
    label: str,
    labels: Mapping[str, Any],
    cut: Mapping[int, Any],
    licence: str,
    **columns: Any,
) -> RankingData:
    """Build a data set from its columns, as `Queries.from_arrays` takes them.

    `cut` maps each query id to its fold or part.
    """
    arrays = {key: np.asarray(values, dtype=np.float64) for key, values in labels.items()}
    queries = Queries.from_arrays(X, arrays[label], **columns)
    for values in arrays.values():
        values.flags.writeable = False
    parts = object_array([cut[int(query)] for query in queries.query_ids])
    queries = replace(queries, feature_names=feature_names)
    return RankingData(name, label, MappingProxyType(arrays), parts, licence, queries)


def above_median(values: Array, within: NDArray[np.int64]) -> Array:
    """Return 1 for values above the median of their block of `within`, else 0."""
    result = np.zeros(len(values))
    for block in np.unique(within):
        rows = within == block
        result[rows] = values[rows] > np.median(values[rows])
    return result
