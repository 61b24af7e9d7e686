"""Evaluation sets as engines take them (``eval_set``, ``eval_qid``, ``eval_group``), as queries."""

from typing import Any

import numpy as np

from pairity.data.queries import Queries
from pairity.data.sources import errors_about, require_features_of
from pairity.exceptions import InputError

SET_PARAMETERS = ("eval_set", "eval_qid", "eval_group")


def read_evaluation_sets(
    eval_set: Any, eval_qid: Any = None, eval_group: Any = None, *, train: Queries | None = None
) -> list[Queries]:
    """Return an engine's ``eval_set`` as queries with contiguous rows.

    Parameters
    ----------
    eval_set : sequence of (X, y), or one such pair
    eval_qid : sequence of query ids, one column per set
    eval_group : sequence of query sizes, one list per set, if ids are not given
    train : Queries, optional
        Training data that must have the same columns. Not every engine checks this.
    """
    if eval_set is None:
        if eval_qid is not None or eval_group is not None:
            raise InputError("eval_qid and eval_group require eval_set. Pass it as well.")
        return []
    if (eval_qid is None) == (eval_group is None):
        raise InputError(
            "eval_set needs either eval_qid (one column of query ids per set) or eval_group (one "
            "list of query sizes per set). Pass exactly one of them."
        )
    column, groupings = ("qid", eval_qid) if eval_group is None else ("group", eval_group)
    if _is_pair(eval_set) and not all(map(_is_pair, eval_set)):
        eval_set = [eval_set]
        is_list_of_one = len(groupings) == 1 and np.ndim(groupings[0]) == 1
        groupings = groupings if is_list_of_one else [groupings]
    if not isinstance(eval_set, (list, tuple)) or not all(map(_is_pair, eval_set)):
        raise InputError("eval_set must be a list of pairs (X, y), one for each set.")
    if len(groupings) != len(eval_set):
        raise InputError(
            f"eval_set has {len(eval_set)} sets, but queries are given for {len(groupings)}. Pass "
            "a list with one entry per set."
        )
    sets = []
    for number, ((X, y), grouping) in enumerate(zip(eval_set, groupings, strict=True)):
        with errors_about(f"set {number} of eval_set"):
            sets.append(Queries.from_arrays(X, y, **{column: grouping}, raw=True).by_query()[0])
            if train is not None:
                require_features_of(train, sets[-1])
    return sets


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2
