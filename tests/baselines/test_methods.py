"""Methods: scorers without groups, rankings drawn at random, and methods from models."""

import numpy as np
import pytest

from pairity import FairRanker, InputError, LinearRanker, Queries, audit
from pairity.baselines.methods import Method, Rankings, as_method
from pairity.constraints import as_constraint
from pairity.datasets import make_biased_ranking
from pairity.pairs.cells import mean_auc

QUERIES = Queries.from_arrays(
    [[0.0], [1.0], [2.0], [0.0], [1.0]], [1, 0, 0, 0, 1], qid=[0, 0, 0, 1, 1],
    sensitive_features=["f", "m", "m", "f", "m"],
)  # fmt: skip
UP, DOWN = np.arange(5.0), -np.arange(5.0)
MIXED = Rankings(np.column_stack([UP, DOWN]), np.array([[0.25, 0.75], [1.0, 0.0]]))


def test_the_expectation_over_rankings():
    repeated, scores = MIXED.expected(QUERIES)
    assert repeated.n_queries == 3
    # query 0: 0 of 2 pairs when going up, 2 of 2 going down; query 1 always goes up: 1 of 1
    assert mean_auc(repeated, scores) == pytest.approx((0.25 * 0 + 0.75 * 1 + 1) / 2)
    assert audit(repeated, scores, n_resamples=0).auc == pytest.approx(0.875)
    violation = as_constraint("inter").delta(repeated, scores)
    one, other = (as_constraint("inter").delta(QUERIES, each) for each in (UP, DOWN))
    assert violation.shape == one.shape == other.shape


def test_samples_follow_the_probabilities():
    draws = np.array([MIXED.sample(QUERIES, seed) for seed in range(400)])
    assert set(draws[:, 1]) == {1.0, -1.0}
    assert (draws[:, 3] == 3.0).all()
    assert (draws[:, 1] == 1.0).mean() == pytest.approx(0.25, abs=0.07)
    assert (MIXED.sample(QUERIES, 7) == MIXED.sample(QUERIES, 7)).all()


def test_a_scorer_sees_groups_only_where_it_says_so():
    def fit(_train, _seed):
        return lambda queries: np.full(queries.n_items, float(queries.n_groups))

    assert Method("blind", fit)(QUERIES, QUERIES).tolist() == [0.0] * 5
    assert Method("seeing", fit, needs_group=True)(QUERIES, QUERIES).tolist() == [2.0] * 5


def test_methods_from_models():
    train, test = make_biased_ranking(60, 20, random_state=0).queries().split(0.3, random_state=0)
    plain = as_method(LinearRanker())
    assert repr(plain) == "plain()"
    expected = LinearRanker().fit(train.X, train.y, qid=train["qid"]).predict(test.X)
    np.testing.assert_allclose(plain(train, test), expected)
    fair = as_method(FairRanker(), tolerance=0.05)
    assert repr(fair) == "reweighted(tolerance=0.05)"
    expected = FairRanker(tolerance=0.05).fit(**train).predict(test.X)
    np.testing.assert_allclose(fair(train, test), expected)
    three = train.with_groups_of((*train.groups, "rare"))  # as in a split without the rare group
    np.testing.assert_allclose(fair(three, test), expected)
    assert as_method(fair) is fair
    with pytest.raises(
        InputError, match=r"setting of FairRanker must be .*'tolerance'.*\(got 'tolerence'"
    ):
        as_method(FairRanker(), tolerence=0.1)
