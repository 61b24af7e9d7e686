"""Sums over the pairs of each cell of differences between the items, for all cells at once."""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairity._utils.threads import run_all, run_blocks
from pairity._utils.typing import Array
from pairity.data.queries import Queries
from pairity.pairs.cells import PairKind, each_pair_once
from pairity.pairs.kernels.by_group import sums_by_group
from pairity.pairs.logistic import as_kernel_input

_MOST_PAIRS = 1500  # lower items that an item is compared with; of longer lists, some are chosen


def cell_products(
    queries: Queries,
    scores: Array,
    factors: Array,
    rows: Any,
    *,
    pairs: PairKind = "preference",
    curved: bool = False,
    most: int = _MOST_PAIRS,
) -> Array:
    r"""Sums over the pairs of each cell (k, l), for several quantities d of the items.

    .. math:: \sum_q f_{qkl} \sum_{(i,j)} u_i u_j \, t_{ij} \, (d_i - d_j), \quad
              t_{ij} = \sigma(s_j - s_i)

    One pass over the pairs gives, per item and group, the sums of t over the item's pairs with the
    group; the rest are products of matrices.

    Parameters
    ----------
    factors : array of shape (n_queries, n_groups, n_groups)
        f of each query and cell. Item weights are u; query weights are not applied.
    rows : array or sparse array of shape (n_items, n_quantities)
        d of each item, such as its features.
    pairs : {"preference", "all"}
        Pairs whose first item has the higher label, or all ordered pairs of two items.
    curved : bool
        Whether t (1 - t), the derivative of 1 - t in s_i, replaces t; needed for all pairs.
    most : int
        If an item has more lower items, about this many of them are chosen at equal distances, and
        count more.

    Returns
    -------
    array of shape (n_groups, n_groups, n_quantities)
    """
    k, both_orders = queries.n_groups, pairs == "all"
    layout = each_pair_once(queries) if both_orders else queries.layout
    sums = np.empty((queries.n_items, 2 * k))
    run_blocks(
        sums_by_group, layout.bounds, layout, as_kernel_input(scores), as_kernel_input(factors),
        (most, curved, both_orders), sums,
    )  # fmt: skip
    items = [np.flatnonzero(queries.group == group) for group in range(k)]
    products = np.array(run_all([partial(_product, rows, sums, chosen) for chosen in items]))
    return np.asarray(products[:, :k] - products[:, k:].transpose(1, 0, 2))


def _product(rows: Any, sums: Array, chosen: NDArray[np.int64]) -> Array:
    """Return sums.T @ rows of the chosen items."""
    return np.asarray((rows[chosen].T @ sums[chosen]).T)
