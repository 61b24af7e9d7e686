"""Which attributes items have: their group, the parts of its name, or what a function returns."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pairity.data.checks import require_groups
from pairity.data.groups import JOIN
from pairity.data.queries import Queries
from pairity.exceptions import InputError

Mask = NDArray[np.bool_]
Membership = Literal["groups", "parts"] | Callable[[Queries], ArrayLike]


def read_memberships(
    queries: Queries, membership: Membership
) -> tuple[Any, tuple[str, ...] | None, Mask | None]:
    """Return the matrix, the names of its columns, and the items to measure."""
    if callable(membership):
        return membership(queries), None, None
    require_groups(queries)
    known = queries.group < queries.n_groups
    if membership == "groups":
        return queries.group[:, None] == np.arange(queries.n_groups), queries.groups, known
    table, names = _split_names(queries.groups)
    return np.vstack([table, np.zeros((1, len(names)), bool)])[queries.group], names, known


def _split_names(groups: tuple[str, ...]) -> tuple[Mask, tuple[str, ...]]:
    """Return which parts the names of the groups have, (n_groups, n_parts), and the parts' names.

    The same word at another position is another part, as in ``yes × no``.
    """
    split = [tuple(enumerate(name.split(JOIN))) for name in groups]
    if len({len(parts) for parts in split}) > 1:
        longest = max(split, key=len)
        raise InputError(
            f"membership='parts' splits the names of intersections at {JOIN!r}, but they have "
            f"different numbers of parts: {groups[0]!r}, {groups[split.index(longest)]!r}. Name "
            "the groups without it, or pass a function as membership."
        )
    all_parts = sorted({part for parts in split for part in parts})
    table = np.array([[part in parts for part in all_parts] for parts in split])
    words = [word for _, word in all_parts]
    names = tuple(
        word if words.count(word) == 1 else f"{word} (column {position})"
        for position, word in all_parts
    )
    return table, names
