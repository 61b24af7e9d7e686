"""Lists that are merged: the same hinges and counts as by comparing pairs, wherever scores go."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairity import Queries
from pairity.baselines._hinged_lists import ComparedLists, MergedLists, hinged_lists


def lists(rng, n_labels=2):
    """Long and short queries in any row order; some have no pair, some items no group."""
    sizes = rng.choice([1, 2, 7, 40, 150], 8)
    qid = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    groups = np.array(["a", "b", "c", None], dtype=object)[: rng.integers(2, 5)]
    weighted = rng.random() < 0.5
    return Queries.from_arrays(
        None, rng.integers(0, n_labels, len(qid)), qid=qid,
        sensitive_features=rng.choice(groups, len(qid)),
        sample_weight=rng.integers(0, 3, len(qid)) if weighted else None,
        query_weight=rng.random(len(sizes))[qid] if weighted else None,
    )  # fmt: skip


def weighed_anew(queries, rng):
    """The same lists, with a factor on the weights of each query, label and group."""
    factor = rng.choice([0.0, 0.5, 3.0], (queries.n_queries, 2, queries.n_codes))
    own = np.ones(queries.n_items) if queries.item_weight is None else queries.item_weight
    return replace(
        queries,
        item_weight=own * factor[queries.query, (queries.y > 0).astype(int), queries.group],
        query_weight=rng.random(queries.n_queries),
    )


@given(seed=st.integers(0, 2**32 - 1))
def test_merged_and_compared_lists_agree(seed):
    rng = np.random.default_rng(seed)
    queries = lists(rng)
    others = weighed_anew(queries, rng)
    merged, compared = MergedLists(queries), ComparedLists(queries)
    scores = rng.normal(size=queries.n_items) * rng.choice([0.1, 1.0, 10.0])
    for step in (0.0, 0.01, 0.5, 100.0):  # nearly sorted still, and not at all
        scores = scores + step * rng.normal(size=queries.n_items)
        if rng.random() < 0.5:
            scores = np.round(scores, 1)  # ties, and pairs a margin apart
        if rng.random() < 0.1:
            scores = np.zeros(queries.n_items)
        for one in (merged, compared):
            one.sort(scores)
        np.testing.assert_allclose(merged.sums(), compared.sums(), atol=1e-9)
        table, mirrored = rng.random((2, queries.n_codes, queries.n_codes))
        mirrored *= rng.random() < 0.7
        for weighted in (queries, others):
            np.testing.assert_allclose(
                merged.gradient(weighted, table, mirrored),
                compared.gradient(weighted, table, mirrored),
                atol=1e-9,
            )


@pytest.mark.parametrize(("n_labels", "kind"), [(2, MergedLists), (3, ComparedLists)])
def test_lists_of_two_labels_are_merged(n_labels, kind):
    assert isinstance(hinged_lists(lists(np.random.default_rng(0), n_labels)), kind)
