"""The synthetic generator: what it promises of bias and of the unbiased labels."""

import numpy as np
import pytest
from scipy.special import expit, logit

from pairity import StatisticalParity
from pairity.constraints import largest_gap
from pairity.datasets import BiasedWorld, make_biased_ranking
from pairity.exceptions import InputError


@pytest.mark.parametrize("n_groups", [1, 2, 5])
@pytest.mark.parametrize("n_labels", [2, 5])
def test_shapes(n_groups, n_labels):
    data = make_biased_ranking(
        7, 20, n_groups=n_groups, n_labels=n_labels, world=BiasedWorld(n_features=3), random_state=0
    )
    assert data.X.shape == (140, 3)
    assert set(np.unique(data.y)) == set(range(n_labels))
    assert data.queries().n_groups == n_groups
    assert data.unbiased().n_queries == 7


def test_same_seed_same_data():
    one, two = (make_biased_ranking(5, 10, random_state=3) for _ in range(2))
    np.testing.assert_array_equal(one.X, two.X)
    np.testing.assert_array_equal(one.y, two.y)


def parity(queries):
    return StatisticalParity().delta(queries, queries.y)


def test_biased_scores_favour_the_first_group_and_unbiased_ones_nobody():
    data = make_biased_ranking(300, 40, strength=1.0, random_state=0)
    assert parity(data.queries())[0, 1] > 0.1
    assert largest_gap(parity(data.unbiased())) < 0.03
    other = make_biased_ranking(
        300, 40, strength=1.0, world=BiasedWorld(favoured=[-0.5, 0.5]), random_state=0
    )
    assert parity(other.queries())[0, 1] < -0.1


def test_no_strength_is_no_bias():
    data = make_biased_ranking(20, 20, strength=0.0, random_state=0)
    np.testing.assert_array_equal(data.y, data.y_unbiased)


def test_merit_gap_is_no_bias():
    data = make_biased_ranking(
        200, 40, strength=0.0, world=BiasedWorld(merit_gap=1.0), random_state=0
    )
    assert parity(data.unbiased())[0, 1] > 0.1


def test_pairs_are_biased_as_proposition_1_says():
    """logit of the biased probability is that of the unbiased one less λ_kl, cell by cell."""
    data = make_biased_ranking(
        50,
        20,
        n_groups=3,
        strength=1.2,
        world=BiasedWorld(bias="pairs", expected=True),
        random_state=0,
    )
    np.testing.assert_allclose(data.lambda_, -data.lambda_.T)
    first = data.y[0::2] == 1  # the comparison's first item wins
    biased, unbiased = data.query_weight[0::2][first], data.query_weight_unbiased[0::2][first]
    group = np.array([int(name[-1]) - 1 for name in data.sensitive_features])
    k, j = group[0::2][first], group[1::2][first]
    scores = data.X @ data.coef
    np.testing.assert_allclose(unbiased, expit(scores[0::2] - scores[1::2])[first])
    np.testing.assert_allclose(logit(biased), logit(unbiased) - data.lambda_[k, j])


def test_drawn_pairs_have_the_expected_frequencies():
    data = make_biased_ranking(
        300, 100, strength=1.0, world=BiasedWorld(bias="pairs"), random_state=0
    )
    scores = data.X @ data.coef
    group = np.array([int(name[-1]) - 1 for name in data.sensitive_features])
    lambda_ = data.lambda_[group[0::2], group[1::2]]
    expected = expit(scores[0::2] - scores[1::2] - lambda_)
    error = (data.y[0::2] - expected).mean()
    assert abs(error) < 4 * 0.5 / np.sqrt(len(expected))
    assert (data.y[0::2] + data.y[1::2] == 1).all()


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        (dict(world=dict(bias="items")), "'items'"),
        (dict(world=dict(expected=True)), "requires bias='pairs'"),
        (dict(n_items=1), "n_items"),
        (dict(world=dict(favoured=[1, 2, 3])), r"has shape \(3,\)\. Pass 2, one per group"),
    ],
)
def test_bad_arguments(options, fact):
    with pytest.raises(InputError, match=fact):
        make_biased_ranking(3, **{**options, "world": BiasedWorld(**options.get("world", {}))})
