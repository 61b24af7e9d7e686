"""PairWeights: the learnt K × K table, labelled by group."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pairity.exceptions import InputError
from pairity.text import make_frame, render_table, short_names


@dataclass(frozen=True, eq=False, repr=False)
class PairWeights:
    r"""What a pair weighs, by the group of its preferred item and that of its other item.

    ``weights["f", "m"]`` multiplies the loss of every preference pair whose preferred item is in
    the group f and whose other item is in m; 1 is the unweighted problem.

    Attributes
    ----------
    table : float64 array of shape (n_groups, n_groups), not to be written to
    groups : tuple of str

    Examples
    --------
    >>> from pairity import PairWeights
    >>> weights = PairWeights([[1.0, 1.5], [0.5, 1.0]], ("f", "m"))
    >>> weights["f", "m"]
    1.5
    >>> print(weights)
    preferred \ other      f      m
    -------------------------------
    f                  1.000  1.500
    m                  0.500  1.000
    """

    table: NDArray[np.float64]
    groups: tuple[str, ...]

    def __post_init__(self) -> None:
        table = np.array(self.table, dtype=np.float64)
        groups = tuple(str(name) for name in self.groups)
        if table.shape != (len(groups), len(groups)):
            raise InputError(
                f"The table has shape {table.shape}, but there are {len(groups)} groups. Give one "
                "row and one column per group."
            )
        table.setflags(write=False)
        object.__setattr__(self, "table", table)
        object.__setattr__(self, "groups", groups)

    def __getitem__(self, cell: tuple[Any, Any]) -> float:
        """The weight of a cell, by the names of its groups; by position, use `table`."""
        if not isinstance(cell, tuple) or len(cell) != 2:
            raise InputError(f"{cell!r} is not a pair of groups, such as weights['f', 'm'].")
        preferred, other = (self._position(name) for name in cell)
        return float(self.table[preferred, other])

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Any:
        return np.array(self.table, dtype=dtype, copy=copy)

    def to_dict(self) -> dict[str, dict[str, float]]:
        """``{preferred: {other: weight}}``."""
        return {
            name: dict(zip(self.groups, row, strict=True))
            for name, row in zip(self.groups, self.table.tolist(), strict=True)
        }

    def to_json(self) -> str:
        """The table with its groups, as JSON."""
        return json.dumps({"groups": list(self.groups), "weights": self.table.tolist()})

    def to_frame(self, backend: str | None = None) -> Any:
        """One row per cell: preferred, other, weight; in pandas, polars or pyarrow."""
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
        names = short_names(self.groups)
        rows = [
            [name, *(f"{value:.3f}" for value in row)]
            for name, row in zip(names, self.table, strict=True)
        ]
        return render_table(["preferred \\ other", *names], rows)

    def __repr__(self) -> str:
        return f"PairWeights(groups={self.groups}, table={np.round(self.table, 3).tolist()})"

    def _position(self, name: Any) -> int:
        if str(name) not in self.groups:
            raise InputError(
                f"There is no group {str(name)!r}; the groups are "
                f"{', '.join(map(repr, self.groups))}."
            )
        return self.groups.index(str(name))
