"""Sums over the pairs of each item, by the group of the other item, and products with directions.

One pass over the pairs gives the derivatives of all cells at once: a sum over the pairs of cell
(k, l) changes with the scores of the items of group k by what they have above items of group l, and
with those of group l by what they have below items of group k.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from pairity._utils.threads import run_all, run_blocks
from pairity._utils.typing import Array
from pairity.data.queries import Queries
from pairity.pairs.cells import PairKind, each_pair_once
from pairity.pairs.kernels import by_group as kernels
from pairity.pairs.logistic import as_kernel_input

_MOST_PAIRS = 1500  # lower items that an item is compared with; of longer lists, some are chosen


def sums_by_group(
    queries: Queries,
    scores: Array,
    *,
    pairs: PairKind = "preference",
    curved: bool = False,
    most: int = _MOST_PAIRS,
) -> tuple[Array, Array]:
    """Per item and group, the sum of t = σ(s_j - s_i) over the item's pairs with the group.

    Parameters
    ----------
    pairs : {"preference", "all"}
        Preference pairs, or all pairs of two items, each in one order.
    curved : bool
        Whether to add up t (1 - t), the derivative of -t in the score difference, instead.
    most : int
        If an item has more lower items, about this many of them are chosen at equal distances, and
        count more.

    Returns
    -------
    above, below : arrays of shape (n_items, n_codes)
        Sums over the pairs in which the item is the preferred one, and the other one. A pair
        counts with the product of its items' weights; query weights are not applied.
    """
    layout = queries.layout if pairs == "preference" else each_pair_once(queries)
    above, below = np.empty((2, queries.n_items, queries.n_codes))
    run_blocks(
        kernels.sums_by_group, layout.bounds, layout, as_kernel_input(scores), most, curved,
        above, below,
    )  # fmt: skip
    return above, below


def cell_products(queries: Queries, above: Array, below: Array, rows: Any) -> Array:
    """Sums over the pairs of each cell of w (d_i - d_j), for several quantities d of the items.

    Parameters
    ----------
    above, below : arrays of shape (n_items, n_codes)
        Per item, the sums of w over its pairs with each group, as `sums_by_group` returns them.
    rows : array or sparse array of shape (n_items, n_quantities)
        d of each item, such as its features.

    Returns
    -------
    array of shape (n_groups, n_groups, n_quantities)
    """
    k = queries.n_groups
    both = np.column_stack([above[:, :k], -below[:, :k]])
    tasks = [partial(_product, rows, both, queries.group == group) for group in range(k)]
    ahead, behind = np.split(np.array(run_all(tasks)), 2, axis=1)
    return np.asarray(ahead + behind.transpose(1, 0, 2))


def _product(rows: Any, sums: Array, chosen: Array) -> Array:
    """Return sums.T @ rows of the chosen items."""
    index = np.flatnonzero(chosen)
    return np.asarray((rows[index].T @ sums[index]).T)
