"""One long list: sweeps over its chunks, and visits to the pairs within chunks."""

from numba import njit

from pairity.pairs.kernels.common import span
from pairity.pairs.kernels.long_lists.boxes import place_items, plan
from pairity.pairs.kernels.long_lists.sweeps import sweep, sweep_product
from pairity.pairs.kernels.long_lists.visits import direct, direct_product

# Times in nanoseconds; see `boxes` for the others.
_PAIR_TIME = 0.7  # to visit a pair
_PRODUCT_TIME = 0.45  # the same for the product with a vector
_LOSS_TIME = 0.8  # additionally for its loss


@njit(cache=True, nogil=True)
def logistic_long(scores, start, codes, table, item_weight, with_loss, gradient, hessian, cells):
    r"""Sum the pairwise logistic loss of one list, its derivatives, and t over each cell.

    .. math:: L = \sum_{(i, j)} w_{ij} \log(1 + e^{-(s_i - s_j)}), \qquad
              w_{ij} = W_{g_i g_j} u_i u_j

    over the pairs of an item i and any item j with a lower label. With :math:`t = 1 / (1 + e^d)`,
    a pair adds :math:`-wt` to the gradient at i, :math:`wt` at j, and :math:`wt(1 - t)` to the
    diagonal of the Hessian at both.

    Parameters
    ----------
    scores : float64 array of shape (n_items,), finite; items by falling label
    start : int32 array of shape (n_items,)
        The first position whose label is lower than the item's, or n_items.
    codes : int32 array of shape (n_items,), the groups, from 0
    table : float64 array of shape (n_groups, n_groups), the weights W
    item_weight : float64 array of shape (n_items,), the weights u
    with_loss : whether to sum the loss too
    gradient, hessian : float64 arrays of shape (n_items,), overwritten
    cells : float64 array of shape (n_groups, n_groups), overwritten
        The sum of :math:`u_i u_j t`, without W, over the pairs of each cell.

    Returns
    -------
    The loss, 0.0 without `with_loss`.

    Notes
    -----
    Derivatives are accurate relative to the sum of their absolute terms, to about 1e-12, whatever
    the range of the scores. Derivatives below 1e-300 may be off by that much; nothing overflows but
    the loss itself, if it must. Time is O(n) for few labels and for any number of them when the
    scores spread over few boxes. Memory is O(n + n_groups * boxes in use), about 600 bytes for each
    box and group.

    Examples
    --------
    >>> import numpy as np
    >>> scores = np.array([2.0, 0.0, 1.0])
    >>> start = np.array([1, 3, 3], np.int32)  # the first item is preferred to the two others
    >>> codes = np.zeros(3, np.int32)
    >>> gradient, hessian, cells = np.empty(3), np.empty(3), np.empty((1, 1))
    >>> loss = logistic_long(
    ...     scores, start, codes, np.ones((1, 1)), np.ones(3), True, gradient, hessian, cells
    ... )
    >>> round(loss, 3), gradient.round(3)
    (0.44, array([-0.388,  0.119,  0.269]))
    """
    gradient[:] = 0.0
    hessian[:] = 0.0
    cells[:] = 0.0
    loss = 0.0
    if scores.size == 0:
        return loss
    box, place, where = place_items(scores)
    pair_time = _PAIR_TIME + _LOSS_TIME if with_loss else _PAIR_TIME
    tasks = plan(start, box, where, table.shape[0], pair_time)
    for low, high, most in tasks:
        if most > 0:
            loss += sweep(
                low, high, most, start, box, place, where, codes, table, item_weight, with_loss,
                gradient, hessian, cells,
            )  # fmt: skip
        else:
            loss += direct(
                low, high, scores, start, codes, table, item_weight, with_loss, gradient, hessian,
                cells,
            )  # fmt: skip
    return loss


@njit(cache=True, nogil=True)
def hessian_product_long(scores, start, codes, table, item_weight, vector, out):
    r"""Multiply the Hessian of the loss, in the scores, by a vector.

    .. math:: (Hv)_i = \sum_j w_{ij} h_{ij} (v_i - v_j), \qquad h = t (1 - t)

    over all pairs which hold item i, in either role.

    Parameters
    ----------
    scores, start, codes, table, item_weight : as for `logistic_long`
    vector : float64 array of shape (n_items,), finite
    out : float64 array of shape (n_items,), overwritten with the product

    Notes
    -----
    The product does not change if a constant is added to the vector, so its middle is taken off
    first: a large constant costs no accuracy.
    """
    out[:] = 0.0
    if scores.size == 0:
        return
    low, high = span(vector.size, vector)
    centred = vector - (0.5 * low + 0.5 * high)
    mixed = item_weight * centred
    box, place, where = place_items(scores)
    tasks = plan(start, box, where, 2 * table.shape[0], _PRODUCT_TIME)
    for first, last, most in tasks:
        if most > 0:
            sweep_product(
                first, last, most, start, box, place, where, codes, table, item_weight, centred,
                mixed, out,
            )  # fmt: skip
        else:
            direct_product(first, last, scores, start, codes, table, item_weight, centred, out)
