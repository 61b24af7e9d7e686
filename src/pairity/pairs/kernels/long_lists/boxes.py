"""Where the items lie: boxes on the score axis, and chunks of the list."""

import math

import numpy as np
from numba import njit

from pairity.pairs.kernels.common import span
from pairity.pairs.kernels.long_lists.tables import DECAYS, NEAR, PRODUCT_RANGE, WIDTH

# Times in nanoseconds, measured on one machine. Only their ratios matter, and only roughly.
# Those of a pair are in `lists`.
_WIDE_TIME = 2.5  # the exponential of a pair, if scores spread too far for products
_ITEM_TIME = 10.0  # an item in the sweeps, beyond its time among visited pairs
_NEAR_TIME = 900.0  # a box and group that a chunk uses, in both sweeps
_FAR_TIME = 50.0  # any other box and group, in both sweeps


@njit(cache=True, nogil=True)
def place_items(scores):
    """Return every item's box, its place there, and where the boxes are."""
    cell = np.floor(scores / WIDTH)
    place = (scores - WIDTH * cell) - 0.5 * WIDTH
    low, high = span(cell.size, cell)
    if high - low >= 4.0 * scores.size + 4096.0:  # too far apart to enumerate all boxes
        where = WIDTH * np.unique(cell)
        return np.searchsorted(where, WIDTH * cell).astype(np.int32), place, where
    box = (cell - low).astype(np.int32)
    return box, place, renumber(box, WIDTH * (low + np.arange(int(high - low) + 1)))


@njit(cache=True, nogil=True)
def renumber(box, where):
    """Number only the boxes in use, in the same order; return where they are."""
    used = np.zeros(where.size, np.bool_)
    for i in range(box.size):
        used[box[i]] = True
    number = np.cumsum(used) - 1
    for i in range(box.size):
        box[i] = number[box[i]]
    return where[used]


@njit(cache=True, nogil=True)
def lay_out(where):
    """Return the first near box and one past the last, for each box, and decays between boxes.

    The decays are e^(-q distance) from the box before, to the first box above that is far, and to
    the first box below that is far.
    """
    n = where.size
    reach = WIDTH * (NEAR + 0.5)
    near_low, near_high = np.empty(n, np.int64), np.empty(n, np.int64)
    step, rise, fall = np.zeros((n, DECAYS)), np.zeros((n, DECAYS)), np.zeros((n, DECAYS))
    a = 0
    for b in range(n):
        if b > 0:
            _fill_powers(where[b] - where[b - 1], step[b])
        while where[b] - where[a] > reach:
            _fill_powers(where[b] - where[a], rise[a])
            a += 1
        near_low[b] = a
    a = n
    for b in range(n - 1, -1, -1):
        while where[a - 1] - where[b] > reach:
            a -= 1
            _fill_powers(where[a] - where[b], fall[a])
        near_high[b] = a
    return near_low, near_high, step, rise, fall


@njit(cache=True, nogil=True)
def _fill_powers(distance, out):
    """Write e^(-q distance) for q = 1, 2, ..."""
    factor = math.exp(-distance)
    power = 1.0
    for q in range(DECAYS):
        power *= factor
        out[q] = power


@njit(cache=True, nogil=True)
def cut(start, low, high, most):
    """Cut [low, high) into chunks of one label or of at most `most` items; return the bounds."""
    bounds = np.empty(2 * ((high - low) // most) + 3, np.int64)
    bounds[0] = low
    n = 0
    end = low
    while end < high:
        end = start[end]
        while end < high and start[end] - bounds[n] <= most:
            end = start[end]
        n += 1
        bounds[n] = end
    return bounds[: n + 1]


@njit(cache=True, nogil=True)
def plan(start, box, where, n_groups, pair_time):
    """Plan the work; return tasks (first, last, chunk size), where size 0 visits all pairs.

    Each task is a range of the list. If sweeps over its chunks are faster, the chunks with several
    labels become further tasks.
    """
    n = box.size
    if where[-1] - where[0] > PRODUCT_RANGE:
        pair_time += _WIDE_TIME
    tasks = np.empty((n + 1, 3), np.int64)
    seen = np.zeros(where.size, np.int64)
    tasks[0, 0] = 0
    tasks[0, 1] = n
    n_tasks = 1
    done = 0
    while done < n_tasks:
        first, last = tasks[done, 0], tasks[done, 1]
        done += 1
        n_boxes = 0.0
        for i in range(first, last):
            if seen[box[i]] != done:
                seen[box[i]] = done
                n_boxes += 1.0
        # Visiting the pairs of a chunk should take as long as its part in the sweeps. A chunk
        # cannot use more boxes than it has items.
        n_near = min(n_boxes, 2.0 * _NEAR_TIME * n_groups / pair_time)
        box_time = n_groups * (n_near * _NEAR_TIME + n_boxes * _FAR_TIME)
        most = max(int(math.sqrt(2.0 * box_time / pair_time)), 64)
        bounds = cut(start, first, last, most)
        n_chunks = bounds.size - 1
        pairs = 0.0
        for c in range(n_chunks):
            pairs += float(bounds[c + 1] - bounds[c]) * float(last - bounds[c + 1])
        n_near = min(n_boxes * (n_chunks - 1.0), float(last - first))
        box_time = n_groups * (n_near * _NEAR_TIME + (n_chunks - 1.0) * n_boxes * _FAR_TIME)
        sweep_time = box_time + (last - first) * _ITEM_TIME
        if pairs * pair_time < sweep_time or n_tasks + n_chunks > n:
            tasks[done - 1, 2] = 0
            continue
        tasks[done - 1, 2] = most
        for c in range(n_chunks):
            if start[bounds[c]] < bounds[c + 1]:
                tasks[n_tasks, 0] = bounds[c]
                tasks[n_tasks, 1] = bounds[c + 1]
                n_tasks += 1
    return tasks[:n_tasks]
