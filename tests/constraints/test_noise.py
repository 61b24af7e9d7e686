"""The noise floor of a violation has the size that resampled queries show."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairity import Queries
from pairity.constraints import (
    CATALOGUE,
    Contrasts,
    FunctionConstraint,
    InterGroup,
    StatisticalParity,
    noise_of,
)
from pairity.datasets import make_biased_ranking


def biased(n_queries=120, n_groups=2, weighted=False):
    """Queries with a disparity, and scores."""
    data = make_biased_ranking(n_queries, 24, n_groups=n_groups, n_labels=3, random_state=0)
    queries, rng = data.queries(), np.random.default_rng(0)
    if weighted:
        weight = rng.choice([0.0, 0.5, 1.0, 3.0], n_queries)
        queries = replace(queries, query_weight=weight, item_weight=rng.uniform(size=data.y.size))
    return queries, queries.X[:, 0] + rng.normal(size=queries.n_items)


def resampled_gaps(constraint, queries, scores, n_resamples):
    """The gaps of the data, and those of queries drawn with replacement."""
    contrasts = Contrasts.of(constraint.delta(queries, scores))
    rng, n = np.random.default_rng(1), queries.n_queries
    times = rng.multinomial(n, np.full(n, 1 / n), size=n_resamples)
    weights = queries.weight_of_query * np.vstack([np.ones(n), times])
    resamples = (replace(queries, query_weight=weight) for weight in weights)
    gaps = np.array([contrasts.gaps(constraint.delta(part, scores)) for part in resamples])
    return gaps[0], gaps[1:]


@pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"])
@pytest.mark.parametrize("n_groups", [2, 5])
@pytest.mark.parametrize("average", ["query", "pair"])
@pytest.mark.parametrize("name", CATALOGUE)
def test_the_noise_is_that_of_resampled_queries(name, average, n_groups, weighted):
    queries, scores = biased(n_groups=n_groups, weighted=weighted)
    constraint = CATALOGUE[name](average=average)
    gaps, resampled = resampled_gaps(constraint, queries, scores, 600)
    noise = noise_of(constraint, queries, scores)
    largest = np.argmax(np.abs(gaps))
    assert noise.floor == pytest.approx(np.abs(resampled - gaps).max(axis=1).mean(), rel=0.08)
    assert noise.error == pytest.approx(resampled[:, largest].std(), rel=0.12)
    expected, scale = np.cov(resampled.T).reshape(noise.covariance.shape), resampled.std(axis=0)
    assert np.abs((noise.covariance - expected) / np.outer(scale, scale)).max() < 0.25


def test_one_gap_between_two_queries():
    # Above: the f is above both m, or below both. R_fm is 1 and 0 in the two queries, on average
    # 1/2, so the gap 2 R_fm - 1 has influences 2 (1 - 1/2) / 2 and 2 (0 - 1/2) / 2.
    queries = Queries.from_arrays(
        None, [1, 0, 0] * 2, qid=[0, 0, 0, 1, 1, 1], sensitive_features=list("fmm") * 2
    )
    noise = noise_of(StatisticalParity(), queries, np.array([3.0, 2, 1, 1, 2, 3]))
    variance = 2 / (2 - 1) * (0.5**2 + 0.5**2)
    assert noise.covariance == pytest.approx(np.array([[variance]]))
    assert noise.floor == pytest.approx(np.sqrt(2 / np.pi * variance))
    assert noise.error == pytest.approx(np.sqrt(variance))


def test_an_entry_without_a_mirror_varies_with_the_reference():
    # Only f is preferred to m, so A_fm is compared with A, over the pairs f-m and m-m. By query
    # A_fm = 1, 0, 1 and A = (1 + 1) / 2, (0 + 1) / 2, (1 + 0) / 2.
    queries = Queries.from_arrays(
        None, [2, 2, 1] * 3, qid=np.repeat([0, 1, 2], 3), sensitive_features=list("fmm") * 3
    )
    scores = np.array([3, 2, 1, 1, 3, 2, 3, 1, 2.0])
    own, all_pairs = np.array([1, 0, 1]), np.array([1, 1 / 2, 1 / 2])
    influence = ((own - own.mean()) - (all_pairs - all_pairs.mean())) / 3
    noise = noise_of(InterGroup(), queries, scores)
    assert noise.covariance == pytest.approx(np.array([[3 / 2 * np.sum(influence**2)]]))


@given(st.integers(2, 40), st.sampled_from(sorted(CATALOGUE)), st.integers(2, 4))
def test_the_floor_falls_with_the_root_of_the_number_of_queries(n_queries, name, n_groups):
    queries, scores = biased(n_queries, n_groups)
    constraint = CATALOGUE[name]()
    noise = noise_of(constraint, queries, scores)
    four_times = Queries.from_arrays(
        None, np.tile(queries.y, 4), qid=np.repeat(np.arange(4), queries.n_items) * n_queries
        + np.tile(queries.query, 4), sensitive_features=np.tile(queries.group, 4),
    )  # fmt: skip
    fourfold = noise_of(constraint, four_times, np.tile(scores, 4))
    known = ~np.isnan(noise.covariance.diagonal())
    factor = (n_queries - 1) / (4 * n_queries - 1)  # C has the factor n / (n - 1)
    if known.all() and (constraint.counts(queries) > 0).all():
        assert fourfold.floor == pytest.approx(np.sqrt(factor) * noise.floor, rel=1e-6)
    values = np.linalg.eigvalsh(noise.covariance[np.ix_(known, known)])
    assert values.min(initial=0.0) >= -1e-12


class InParts:
    """Queries in three parts, whose totals add up as those on workers do."""

    def __init__(self, queries, scores):
        self.groups, number = queries.groups, np.arange(queries.n_queries) % 3
        self._parts = [queries.take(number == part) for part in range(3)]
        self.scores = [scores[number[queries.query] == part] for part in range(3)]

    def total(self, function, scores):
        return sum(function(*part) for part in zip(self._parts, scores, strict=True))


@pytest.mark.parametrize("average", ["query", "pair"])
@pytest.mark.parametrize("name", CATALOGUE)
def test_parts_of_the_data_have_the_noise_of_all(name, average):
    queries, scores = biased(40, 3, weighted=True)
    constraint, parts = CATALOGUE[name](average=average), InParts(queries, scores)
    noise, expected = (
        noise_of(constraint, parts, parts.scores), noise_of(constraint, queries, scores)
    )  # fmt: skip
    np.testing.assert_allclose(noise.covariance, expected.covariance, atol=1e-12)
    np.testing.assert_allclose(noise.delta, constraint.delta(queries, scores), atol=1e-12)
    assert noise.floor == pytest.approx(expected.floor)
    assert noise.error == pytest.approx(expected.error)


@pytest.mark.parametrize("name", CATALOGUE)
def test_one_query_has_no_known_noise(name):
    queries, scores = biased(1)
    noise = noise_of(CATALOGUE[name](), queries, scores)
    assert np.isnan(noise.covariance).all()
    assert np.isnan([noise.floor, noise.error]).all()


def test_a_gap_that_one_query_measures_is_left_out_of_the_floor():
    queries, scores = biased(30, 2)
    group = queries.group.copy()
    group[:4] = 2  # items of the first query
    three = replace(queries, group=group, groups=("a", "b", "c"))
    constraint = StatisticalParity()
    noise = noise_of(constraint, three, scores)
    assert np.isnan(noise.covariance.diagonal()).tolist() == [False, True, True]  # ab, ac, bc
    only = noise_of(StatisticalParity(only=[("a", "b")]), three, scores)
    assert noise.floor == pytest.approx(only.floor)
    assert noise.covariance[0, 0] == pytest.approx(only.covariance[0, 0])


def test_the_noise_of_a_users_function_is_unknown():
    queries, scores = biased(10, 3)
    noise = noise_of(FunctionConstraint(lambda *_: np.array([0.1, 0.2, 0.0])), queries, scores)
    assert noise.covariance.shape == (3, 3)
    assert np.isnan([noise.floor, noise.error, *noise.covariance.ravel()]).all()


def test_no_gap_has_no_noise():
    queries, scores = biased(10, 2)
    alone = replace(queries, group=np.zeros_like(queries.group), groups=("a",))
    noise = noise_of(StatisticalParity(), alone, scores)
    assert noise.covariance.shape == (0, 0)
    assert np.isnan([noise.floor, noise.error]).all()
