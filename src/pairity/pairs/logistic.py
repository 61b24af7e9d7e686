"""The weighted pairwise logistic loss and its derivatives, over pairs that are never stored.

**Two tables.** A pair that was observed as "i preferred to j" may also count as its mirror image,
"j preferred to i". Weights are then two K × K tables, of the observed order and of its mirror. With
L(d) = log(1 + e^-d) and L(-d) = L(d) + d,

.. math:: a L(d) + b L(-d) = (a + b) L(d) + b d

so the mirrored pairs need no loop of their own: they add their weight to that of the observed
pairs, and a term that is linear in the scores. At equal scores the logistic loss has the gradient
-1/2 for every pair, so the coefficients of the linear term are -2 times its gradient at 0.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pairity._utils.threads import run_blocks
from pairity._utils.typing import Array
from pairity.data.layout import Layout
from pairity.data.queries import Queries
from pairity.pairs.kernels import logistic as kernels
from pairity.pairs.kernels import long_lists


@dataclass(frozen=True, eq=False)
class PairwiseLoss:
    """The weighted pairwise logistic loss of scores, and its derivatives in them.

    Attributes
    ----------
    loss : float
        The sum over pairs, or 0 if `with_loss` was False.
    gradient, hessian : float64 arrays of shape (n_items,)
        The first derivative, and the diagonal of the second, in the caller's row order.
    """

    loss: float
    gradient: Array
    hessian: Array


def pairwise_logistic(
    queries: Queries,
    scores: Array,
    table: ArrayLike,
    *,
    margin: float = 0.0,
    with_loss: bool = True,
) -> PairwiseLoss:
    r"""Weighted pairwise logistic loss, gradient and diagonal Hessian, in one pass.

    .. math:: L = \sum_{(i,j):\, y_i > y_j} v_q\, u_i u_j\, W_{g_i g_j} \log(1 + e^{-(s_i - s_j)})

    Parameters
    ----------
    queries : Queries
        Its item weights are u, the training weights of its queries v.
    scores : float64 array of shape (n_items,)
        Finite, of any size.
    table : array of shape (n_groups, n_groups), or two such tables
        W. Pairs with an item of unknown group have the weight 1. A second table contains the
        weights of mirrored pairs, whose loss is log(1 + exp(s_i - s_j)).
    margin : float
        The amount by which a pair should be won for each step between its labels; see
        `subtract_margin`.
    with_loss : bool
        Whether to compute the loss itself; boosting needs only the derivatives.
    """
    padded = queries.pad(table)
    observed, mirrored = (padded, None) if padded.ndim == 2 else padded
    if mirrored is not None and margin == 0.0:
        observed = observed + mirrored
    shifted = subtract_margin(queries, scores, margin)
    layout = None
    if np.ptp(observed) == 0.0:  # without groups the kernel is faster
        layout = queries.cached("one group", None, lambda: _in_one_group(queries.layout))
        observed = observed[:1, :1].copy()
    gradient, hessian, _, losses = run_logistic(queries, shifted, observed, with_loss, layout)
    loss = float(losses.sum())
    if mirrored is not None and margin == 0.0:
        linear = linear_term(queries, mirrored)
        loss, gradient = loss + float(linear @ scores), gradient + linear
    elif mirrored is not None:
        shifted = subtract_margin(queries, -scores, margin)
        backward, curvature, _, losses = run_logistic(queries, shifted, mirrored, with_loss)
        loss, gradient = loss + float(losses.sum()), gradient - backward
        hessian = hessian + curvature
    return PairwiseLoss(loss, gradient, hessian)


def _in_one_group(layout: Layout) -> Layout:
    """The same pairs, with all items in one group."""
    sizes = np.diff(layout.bounds)
    positions = np.arange(len(layout.order)) - np.repeat(layout.bounds[:-1], sizes)
    return layout._replace(
        code=np.zeros_like(layout.code), by_group=positions.astype(layout.by_group.dtype)
    )


def linear_term(queries: Queries, mirrored: Array) -> Array:
    """The gradient of the sum of w (s_i - s_j) over all pairs, for a padded table of w."""

    def make() -> Array:
        return -2.0 * run_logistic(queries, np.zeros(queries.n_items), mirrored, False)[0]

    return queries.cached("linear term", mirrored.tobytes(), make)


def subtract_margin(queries: Queries, scores: Array, margin: float) -> Array:
    """Scores minus a margin for each step of the label.

    The logistic loss of these scores is log(1 + exp(margin - d)), where d = s_i - s_j and the
    labels are one step apart. With a wide margin it is a smooth hinge.
    """
    if margin == 0.0:
        return scores
    steps = queries.cached("label steps", None, lambda: _label_steps(queries))
    return np.asarray(scores - margin * steps)


def _label_steps(queries: Queries) -> Array:
    """Per item, the number of distinct lower labels in its query."""
    steps = np.empty(queries.n_items)
    steps[queries.layout.order] = queries.layout.level
    return steps


def pairwise_hessian_product(
    queries: Queries, scores: Array, table: ArrayLike, vector: Array, *, margin: float = 0.0
) -> Array:
    """The full Hessian of `pairwise_logistic` in the scores, times a vector over the items."""
    padded = queries.pad(table)
    if padded.ndim == 3 and margin == 0.0:
        padded = padded.sum(axis=0)
    elif padded.ndim == 3:
        observed, mirrored = padded
        forward = pairwise_hessian_product(queries, scores, observed, vector, margin=margin)
        return forward + pairwise_hessian_product(queries, -scores, mirrored, vector, margin=margin)
    layout = queries.layout
    scores = as_kernel_input(subtract_margin(queries, scores, margin))
    vector = as_kernel_input(vector)
    out = np.empty(queries.n_items)
    run_blocks(
        kernels.hessian_product, layout.bounds, layout, scores, padded, queries.training_weight,
        vector, out,
    )  # fmt: skip
    for q, rows, items in _long_lists(layout, scores, padded):
        product = np.empty(len(rows))
        long_lists.hessian_product_long(*items, vector[rows], product)
        out[rows] = queries.training_weight[q] * product
    return out


def run_logistic(
    queries: Queries, scores: Array, padded: Array, with_loss: bool, layout: Layout | None = None
) -> tuple[Array, Array, Array, Array]:
    """Gradient, Hessian diagonal, soft sums per query and cell, and loss per query.

    `layout` replaces that of the queries, and with it the pairs that are compared.
    """
    layout = layout or queries.layout
    scores = as_kernel_input(scores)
    gradient, hessian = np.empty(queries.n_items), np.empty(queries.n_items)
    cells = np.empty((queries.n_queries, *padded.shape))
    losses = np.empty(queries.n_queries)
    run_blocks(
        kernels.logistic, layout.bounds, layout, scores, padded, queries.training_weight,
        with_loss, gradient, hessian, cells, losses,
    )  # fmt: skip
    for q, rows, items in _long_lists(layout, scores, padded):
        first, second = np.empty((2, len(rows)))
        loss = long_lists.logistic_long(*items, with_loss, first, second, cells[q])
        weight = queries.training_weight[q]
        losses[q], gradient[rows], hessian[rows] = weight * loss, weight * first, weight * second
    return gradient, hessian, cells, losses


def _long_lists(
    layout: Layout, scores: Array, padded: Array
) -> Iterator[tuple[int, NDArray[np.int64], tuple[Array, Any, Any, Array, Array]]]:
    """Yield number, rows and items of each list that is too long for the kernels.

    The items are the first arguments of the functions in `long_lists`.
    `pairity.pairs.kernels.long_lists` takes long to compile, and is only called (and compiled) for
    such lists.
    """
    bounds = layout.bounds
    for q in np.flatnonzero(np.diff(bounds) > kernels.LONGEST).tolist():
        part = slice(bounds[q], bounds[q + 1])
        rows = layout.order[part]
        start, code, weight = layout.start[part], layout.code[part], layout.weight[part]
        yield q, rows, (scores[rows], start, code, padded, weight)


def as_kernel_input(values: Array) -> Array:
    """The values as a contiguous, writeable float64 array; kernels are compiled for this type."""
    return np.require(values, np.float64, ["C", "W"])
