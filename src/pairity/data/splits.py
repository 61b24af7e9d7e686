"""Which queries are drawn, chosen or held out: masks over queries, in the order of their ids."""

from math import ceil
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pairity._utils.validation import is_real, show
from pairity.data.columns import Column, explain_errors
from pairity.exceptions import InputError


def draw_queries(
    n_queries: int, fraction: float, random_state: Any, *, turn: int = 0
) -> NDArray[np.bool_]:
    """A mask of a share of the queries, drawn at random.

    The shares of one random state at consecutive turns follow each other, so that every query is
    in one of them.
    """
    from sklearn.utils import check_random_state

    size = share_size(n_queries, fraction)
    remedy = "Pass a whole number of at least 0, a numpy.random.RandomState, or None."
    with explain_errors(f"random_state is {show(random_state)}", remedy):
        shuffled = check_random_state(random_state).permutation(n_queries)
    drawn = np.zeros(n_queries, dtype=bool)
    drawn[shuffled[(turn * size + np.arange(size)) % n_queries]] = True
    return drawn


def share_size(n_queries: int, fraction: float) -> int:
    """The number of queries in a share; at least one query must be left on either side."""
    if not is_real(fraction) or not 0.0 < float(fraction) < 1.0:
        raise InputError(f"The share to hold out is {show(fraction)}; it must lie between 0 and 1.")
    size = round(n_queries * fraction)
    if size == 0 or size == n_queries:
        raise InputError(
            f"Holding out {fraction:g} of {n_queries} queries leaves {size} and "
            f"{n_queries - size}. Pass more queries, or another share."
        )
    return size


def draw_in_turn(
    n_queries: int, fraction: float, number: int, shift: int = 0
) -> tuple[NDArray[np.bool_], int]:
    """The mask of the share at this number, and how often all queries were drawn before.

    Consecutive numbers draw one share after the other of a random order, starting `shift` shares
    later, as the folds of a cross-validation do, and then those of another order.
    """
    n_turns = ceil(n_queries / share_size(n_queries, fraction))
    n_before, turn = divmod(number, n_turns)
    return draw_queries(n_queries, fraction, n_before, turn=(turn + shift) % n_turns), n_before


def query_folds(n_queries: int, n_folds: int, random_state: Any) -> list[NDArray[np.int64]]:
    """The numbers of the queries in each fold, drawn at random, of nearly equal size."""
    from sklearn.utils import check_random_state

    if not 2 <= n_folds <= n_queries:
        raise InputError(
            f"{n_folds} folds of {n_queries} queries are not possible. Pass from 2 folds up to one "
            "for each query."
        )
    order = check_random_state(random_state).permutation(n_queries)
    return [np.sort(fold) for fold in np.array_split(order, n_folds)]


def as_mask(queries: ArrayLike, n_queries: int) -> NDArray[np.bool_]:
    """A choice of queries, by number or as a mask, as one boolean per query."""
    mask = np.zeros(n_queries, dtype=bool)
    fact = f"The choice {show(queries)} is not among the {n_queries} queries"
    remedy = f"Pass whole numbers from 0 to {n_queries - 1}, or a mask of {n_queries} booleans."
    with explain_errors(fact, remedy):
        numbers = np.asarray(queries)
        if numbers.size:
            mask[numbers] = True
    n_chosen = np.count_nonzero(mask)
    if not n_chosen:
        raise InputError(f"None of the {n_queries} queries is chosen. Choose at least one.")
    if numbers.dtype.kind != "b" and numbers.size != n_chosen:
        raise InputError(
            f"The choice has {numbers.size} entries but only {n_chosen} different queries. Choose "
            "each once; to repeat a query, give it a query_weight."
        )
    return mask


def is_among(ids: Column, others: Column) -> NDArray[np.bool_]:
    """Which of some query ids are among others."""
    known = set(others.tolist())
    return np.fromiter((query in known for query in ids.tolist()), bool, len(ids))
