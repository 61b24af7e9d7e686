"""What all pair kernels share: constants, exponentials, and the walk over groups.

The public functions of a kernel module process the queries ``first`` to ``last`` of a
`pairity.data.layout.Layout` and write only what belongs to these queries, in the caller's row
order. Blocks of queries therefore run on separate threads (all functions release the GIL) and give
the same numbers for any choice of blocks. No kernel stores a pair; working memory grows with the
longest list.

Four habits make LLVM emit vector instructions: NumPy's error model (no test for a division by
zero), unsigned loop variables (no test for a negative index), ranges padded to full vectors
(`LANES` entries of weight 0 after the last item), and arrays of at least `APART` entries. LLVM
checks at run time that arrays lie a few vectors apart, and otherwise adds in another order; with
`APART` entries the last digit never depends on where in memory the arrays are.
"""

from __future__ import annotations

import numpy as np
from numba import njit

WIDEST = 340.0
LANES = 8
APART = 128  # minimum number of entries of a working array
FAST = {"reassoc", "contract", "nsz", "arcp"}

# Written into its callers: a call that hands over five arrays costs more than a short loop.
inlined = njit(inline="always")


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
    """Put ``exp(s - middle)`` into ``a``, for exponents within ±`WIDEST`; vectorised.

    exp(x) = 2^k · exp(r) with |r| ≤ ln 2 / 2 and a Taylor polynomial for exp(r), good to one unit
    in the last place. `scale` is a float view of `bits`, in which 2^k is put together.
    """
    for j in range(np.uintp(0), np.uintp(n)):
        x = s[j] - middle
        k = np.floor(x * 1.4426950408889634 + 0.5)
        r = (x - k * 0.6931471803691238) - k * 1.9082149292705877e-10
        p = 1.0 / 6227020800.0
        p = p * r + 1.0 / 479001600.0
        p = p * r + 1.0 / 39916800.0
        p = p * r + 1.0 / 3628800.0
        p = p * r + 1.0 / 362880.0
        p = p * r + 1.0 / 40320.0
        p = p * r + 1.0 / 5040.0
        p = p * r + 1.0 / 720.0
        p = p * r + 1.0 / 120.0
        p = p * r + 1.0 / 24.0
        p = p * r + 1.0 / 6.0
        p = p * r + 0.5
        p = p * r + 1.0
        p = p * r + 1.0
        a[j] = p
        bits[j] = (np.int64(k) + 1023) << 52
    for j in range(np.uintp(0), np.uintp(n)):
        a[j] *= scale[j]


@inlined
def group_end(head, n, code, by_group):
    """The end of the group that begins at `head` in the listing by group."""
    k = code[by_group[head]]
    end = head + 1
    while end < n and code[np.uintp(by_group[np.uintp(end)])] == k:
        end += 1
    return end


@inlined
def preferring(head, end, n, start, by_group):
    """The end of those of the group's items that are preferred to anything."""
    last = head
    while last < end and start[np.uintp(by_group[np.uintp(last)])] < n:
        last += 1
    return last
