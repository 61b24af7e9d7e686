"""How a sweep splits queries: whole, in turn, the same wherever a split is asked for again."""

from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairity import InputError, Queries
from pairity.baselines.methods import Method
from pairity.comparisons.sweeps import split_in_turn, sweep


def make(n_queries):
    """Four items a query, with both labels and both groups."""
    qid = np.repeat(np.arange(n_queries), 4)
    X = np.random.default_rng(0).normal(size=(len(qid), 2))
    return Queries.from_arrays(
        X, np.tile([0, 0, 1, 1], n_queries), qid=qid,
        sensitive_features=np.tile(["a", "b"], 2 * n_queries),
    )  # fmt: skip


def ids(queries):
    return set(queries.query_ids.tolist())


@given(st.integers(3, 40), st.floats(0.05, 0.6), st.integers(0, 6))
def test_consecutive_seeds_hold_out_every_query(n_queries, share, round_):
    size = round(n_queries * share)
    if not 0 < size < n_queries:
        return
    queries, n_turns = make(n_queries), ceil(n_queries / size)
    tested = []
    for seed in range(n_turns * round_, n_turns * (round_ + 1)):
        train, test, validation = split_in_turn(seed, queries, share)
        assert validation is None
        assert test.n_queries == size
        assert not ids(train) & ids(test)
        assert ids(train) | ids(test) == ids(queries)
        tested.extend(test.query_ids.tolist())
    assert set(tested) == ids(queries)
    assert np.bincount(tested).max() <= 2  # the last share begins anew where the order ends
    if n_queries % size == 0:
        assert len(tested) == n_queries


def test_all_splits_of_five_queries():
    queries, seen = make(5), set()
    for seed in range(20):
        train, test, validation = split_in_turn(seed, queries, 0.2, 0.2)
        sides = [ids(part) for part in (train, test, validation)]
        assert list(map(len, sides)) == [3, 1, 1]
        assert set.union(*sides) == ids(queries)
        seen.add((*sides[1], *sides[2]))
    assert len(seen) == 5 * 4


def test_the_first_split_is_the_one_that_queries_make():
    queries = make(20)
    assert split_in_turn(0, queries, 0.2)[:2] == queries.split(0.2, 0)


@pytest.mark.parametrize("n_queries", [20, 60, 200])
def test_five_seeds_validate_on_as_many_queries_as_random_splits_do(n_queries):
    queries = make(n_queries)
    counts = {"in turn": [], "random": []}
    for begin in range(0, 100, 5):
        seen = {"in turn": set(), "random": set()}
        for seed in range(begin, begin + 5):
            seen["in turn"] |= ids(split_in_turn(seed, queries, 0.2, 0.2)[2])
            seen["random"] |= ids(queries.split(0.2, seed)[0].split(0.2, seed)[1])
        for name, found in seen.items():
            counts[name].append(len(found))
    assert np.mean(counts["in turn"]) > 0.97 * np.mean(counts["random"])


def test_orders_differ_from_round_to_round():
    queries = make(50)
    rounds = [{frozenset(ids(split_in_turn(5 * r + t, queries, 0.2)[1])) for t in range(5)}
              for r in range(4)]  # fmt: skip
    assert len(set.union(*rounds)) == 20


def test_queries_that_are_held_outare_not_split():
    queries, held_out = make(20), make(4)
    assert split_in_turn(3, queries, held_out) == (queries, held_out, None)
    train, test, validation = split_in_turn(3, queries, held_out, 0.2)
    assert test is held_out
    assert (train, validation) == split_in_turn(3, queries, 0.2)[:2]


def test_a_share_of_nothing_is_refused():
    with pytest.raises(InputError, match="another share"):
        split_in_turn(0, make(3), 0.1)


def test_a_sweep_trains_and_measures_on_these_splits():
    queries, seen = make(11), []

    def fit(train, seed):
        seen.append((seed, "train", ids(train)))

        def score(queries):
            seen.append((seed, "held", ids(queries)))
            return queries.X[:, 0]

        return score

    sweep(Method("m", fit), queries, 0.2, validation=0.3, seeds=(0, 7, 12), n_resamples=0)
    want = []
    for seed in (0, 7, 12):
        train, test, validation = split_in_turn(seed, queries, 0.2, 0.3)
        want += [(seed, "train", ids(train)), (seed, "held", ids(validation)),
                 (seed, "held", ids(test))]  # fmt: skip
    assert seen == want
