"""PairWeights: the learnt K × K table, labelled by group."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pairity.text import make_frame, render_table


@dataclass(frozen=True, eq=False, repr=False)
class PairWeights:
    """What a pair weighs, by the group of its preferred item and that of its other item.

    ``weights[k, l]`` multiplies the loss of every preference pair whose preferred item is in
    ``groups[k]`` and whose other item is in ``groups[l]``; 1 is the unweighted problem.

    Attributes
    ----------
    table : float64 array of shape (n_groups, n_groups)
    groups : tuple of str
    """

    table: NDArray[np.float64]
    groups: tuple[str, ...]

    def __getitem__(self, cell: tuple[Any, Any]) -> float:
        """The weight of a cell, by names of groups or by position."""
        k, j = (name if isinstance(name, int) else self.groups.index(str(name)) for name in cell)
        return float(self.table[k, j])

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Any:
        return np.array(self.table, dtype=dtype, copy=bool(copy) or dtype is not None)

    def to_dict(self) -> dict[str, dict[str, float]]:
        """``{preferred: {other: weight}}``."""
        return {
            name: dict(zip(self.groups, map(float, row), strict=True))
            for name, row in zip(self.groups, self.table, strict=True)
        }

    def to_json(self) -> str:
        """The table with its groups, as JSON."""
        return json.dumps({"groups": list(self.groups), "weights": self.table.tolist()})

    def to_frame(self, backend: str | None = None) -> Any:
        """One row per cell: preferred, other, weight."""
        n = len(self.groups)
        return make_frame(
            {
                "preferred": [name for name in self.groups for _ in range(n)],
                "other": list(self.groups) * n,
                "weight": self.table.ravel().tolist(),
            },
            backend,
        )

    def __str__(self) -> str:
        rows = [
            [name, *(f"{value:.3f}" for value in row)]
            for name, row in zip(self.groups, self.table, strict=True)
        ]
        return render_table(["preferred \\ other", *self.groups], rows)

    def __repr__(self) -> str:
        return f"PairWeights(groups={self.groups}, table={np.round(self.table, 3).tolist()})"
