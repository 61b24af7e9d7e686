"""What all pair kernels share: the items of a query, exponentials, and the walk over groups.

The public functions of a kernel module process the queries ``first`` to ``last`` of a
`pairity.data.layout.Layout` and write only what belongs to these queries, in the caller's row
order. Blocks of queries therefore run on separate threads (all functions release the GIL) and give
the same numbers for any choice of blocks. No kernel stores a pair; working memory grows with the
longest list.

Arguments that belong together are NamedTuples. Functions unpack them once, and innermost loops and
inlined functions take arrays: Numba counts references at each access to a field, which costs about
as much as comparing a pair and can prevent vector instructions.

Four habits make LLVM emit vector instructions: NumPy's error model (no test for a division by
zero), unsigned loop variables (no test for a negative index), ranges padded to full vectors
(`LANES` entries of weight 0 after the last item), and arrays of at least `APART` entries. LLVM
checks at run time that arrays lie a few vectors apart, and otherwise adds in another order; with
`APART` entries the last digit never depends on where in memory the arrays are.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pairity._utils.typing import Array

WIDEST = 340.0  # range of scores up to which exp(s - middle) and its products cannot overflow
LANES = 8  # doubles in the widest vector register
APART = 128  # minimum number of entries of a working array
FAST = {"reassoc", "contract", "nsz", "arcp"}
_TAYLOR = np.array([1.0 / math.factorial(m) for m in range(14)])  # of exp

# Inlined functions are compiled into their callers: passing five arrays to a call costs more than a
# short loop.
inlined = njit(inline="always")


class Items(NamedTuple):
    """The items of one query: slices of the arrays of a layout."""

    order: NDArray[np.int64]
    start: NDArray[np.int32]
    level: NDArray[np.int32]
    code: NDArray[np.int32]
    by_group: NDArray[np.int32]
    weight: Array


@inlined
def items_of(layout, q):
    """The items of query `q`."""
    b, e = layout.bounds[q], layout.bounds[q + 1]
    return Items(
        layout.order[b:e], layout.start[b:e], layout.level[b:e], layout.code[b:e],
        layout.by_group[b:e], layout.weight[b:e],
    )  # fmt: skip


@njit(cache=True, nogil=True)
def gather(order, values, out):
    """Copy the values of the rows `order` to the beginning of `out`."""
    for i in range(order.size):
        out[i] = values[order[i]]


@njit(cache=True, nogil=True)
def scatter(order, values, factor, out):
    """Write the first values, times a factor, to the rows `order` of `out`."""
    for i in range(order.size):
        out[order[i]] = factor * values[i]


@inlined
def padded(lo, hi):
    """The end of the range from `lo` to `hi`, extended to full vectors."""
    return lo + (hi - lo + LANES - 1) // LANES * LANES


@njit(cache=True, nogil=True, fastmath={"nnan", "nsz"})
def span(n, s):
    """The lowest and the highest score."""
    lowest = np.inf
    highest = -np.inf
    for i in range(np.uintp(0), np.uintp(n)):
        lowest = min(lowest, s[i])
        highest = max(highest, s[i])
    return lowest, highest


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def exponentials(n, s, middle, a, bits, scale):
    """Write ``exp(s - middle)`` to ``a``, for exponents within ±`WIDEST`, with vector instructions.

    exp(x) = 2^k · exp(r) with |r| ≤ ln 2 / 2 and a Taylor polynomial for exp(r), accurate to one
    unit in the last place. `scale` is a float view of `bits`, in which 2^k is assembled.
    """
    for j in range(np.uintp(0), np.uintp(n)):
        x = s[j] - middle
        k = np.floor(x * 1.4426950408889634 + 0.5)
        r = (x - k * 0.6931471803691238) - k * 1.9082149292705877e-10
        p = _TAYLOR[13]
        for m in range(12, -1, -1):
            p = p * r + _TAYLOR[m]
        a[j] = p
        bits[j] = (np.int64(k) + 1023) << 52
    for j in range(np.uintp(0), np.uintp(n)):
        a[j] *= scale[j]


@inlined
def pair_terms(difference):
    """The miss t = 1 / (1 + exp(d)) of a pair and its curvature t (1 - t), for any difference d."""
    e = np.exp(-abs(difference))
    p = 1.0 / (1.0 + e)
    return e * p if difference >= 0 else p, e * p * p


@inlined
def group_ends(head, n, start, code, by_group):
    """The group that begins at `head` in the listing by group.

    Returns its end, and the end of those of its items that are preferred to any other.
    """
    k = code[by_group[head]]
    end = head + 1
    while end < n and code[np.uintp(by_group[np.uintp(end)])] == k:
        end += 1
    last = head
    while last < end and start[np.uintp(by_group[np.uintp(last)])] < n:
        last += 1
    return end, last
