"""LinearRanker: the minimum it promises, against scikit-learn and against itself."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_info

from pairity import LinearRanker, Queries
from pairity.datasets import BiasedWorld, make_biased_ranking
from pairity.exceptions import ConvergenceWarning, InputError
from pairity.pairs.enumeration import iter_pairs

TIGHT = dict(tol=1e-8)


def data(n_queries=40, n_items=25, n_features=6, n_groups=3, seed=0, n_labels=3):
    made = make_biased_ranking(
        n_queries, n_items, n_groups=n_groups, n_labels=n_labels,
        world=BiasedWorld(n_features=n_features), random_state=seed,
    )  # fmt: skip
    X = made.X * np.logspace(-2, 2, n_features) + 5.0
    return Queries.from_arrays(X, made.y, qid=made.qid, sensitive_features=made.sensitive_features)


def some_table(n_groups=3, seed=0):
    return np.random.default_rng(seed).uniform(0.2, 2.0, (n_groups, n_groups))


@pytest.mark.parametrize("weighted", [False, True])
def test_equals_logistic_regression_on_difference_vectors(weighted):
    queries = data()
    table = some_table() if weighted else np.ones((3, 3))
    alpha = 1e-3
    actual = LinearRanker(alpha=alpha, **TIGHT).fit_pairs(queries, table)
    i, j = (np.concatenate(part) for part in zip(*iter_pairs(queries), strict=True))
    scale = queries.X.std(axis=0)
    differences = (queries.X[i] - queries.X[j]) / scale
    weight = table[queries.group[i], queries.group[j]]
    reference = LogisticRegression(
        C=1.0 / (alpha * weight.sum()), fit_intercept=False, tol=1e-10, max_iter=10_000
    )
    both = np.r_[differences, -differences]  # it wants two classes
    reference.fit(both, np.repeat([1, 0], len(i)), sample_weight=np.tile(weight / 2, 2))
    np.testing.assert_allclose(actual.coef_ * scale, reference.coef_[0], atol=1e-6)


def test_a_margin_is_that_of_the_loss_on_explicit_pairs():
    queries, table, alpha = data(), some_table(), 1e-3
    actual = LinearRanker(alpha=alpha, margin=1.5, **TIGHT).fit_pairs(queries, table)
    i, j = (np.concatenate(part) for part in zip(*iter_pairs(queries), strict=True))
    scale = queries.X.std(axis=0)
    differences = (queries.X[i] - queries.X[j]) / scale
    weight = table[queries.group[i], queries.group[j]]
    weight = weight / weight.sum()
    ahead = 1.5 * (queries.y[i] - queries.y[j])  # every query has the labels 0, 1 and 2

    def loss(beta):
        lost = ahead - differences @ beta
        gradient = -differences.T @ (weight * expit(lost)) + alpha * beta
        return weight @ np.logaddexp(0.0, lost) + 0.5 * alpha * beta @ beta, gradient

    found = minimize(loss, np.zeros(6), jac=True, options={"gtol": 1e-9})
    np.testing.assert_allclose(actual.coef_ * scale, found.x, atol=1e-6)
    np.testing.assert_allclose(actual.loss_, found.fun, rtol=1e-10)
    assert np.unique(queries.y).tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("form", [sp.csr_array, sp.csc_array, sp.coo_matrix])
def test_sparse_equals_dense(form):
    queries = data()
    X = np.where(np.abs(queries.X - 5.0) < np.median(np.abs(queries.X - 5.0)), 0.0, queries.X)
    kwargs = {key: queries[key] for key in ("y", "qid")}
    dense = LinearRanker(**TIGHT).fit(X, **kwargs)
    sparse = LinearRanker(**TIGHT).fit(form(X), **kwargs)
    np.testing.assert_allclose(sparse.coef_, dense.coef_, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(sparse.predict(form(X)), dense.predict(X), rtol=1e-5, atol=1e-8)


def test_more_features_than_fit_in_a_matrix():
    """Beyond 1,500 features the preconditioner is diagonal; the minimum is the same."""
    rng = np.random.default_rng(0)
    X = sp.random_array((600, 1600), density=0.02, random_state=rng, format="csr")
    y = np.asarray(X[:, :5].sum(axis=1)).ravel() + 0.1 * rng.normal(size=600) > 0.05
    qid = np.arange(600) // 20
    ranker = LinearRanker(alpha=1e-2).fit(X, y, qid=qid)
    reference = LinearRanker(alpha=1e-2, **TIGHT)
    few = ranker.coef_.copy()
    reference.fit(X.toarray(), y, qid=qid)
    np.testing.assert_allclose(few, reference.coef_, atol=1e-3 * np.abs(reference.coef_).max())


def test_a_whole_weight_equals_repeating_and_zero_equals_dropping():
    """A pair of cell (k, l) that weighs 3 is the same as three such pairs; 0 as none."""
    queries = data(n_queries=12, n_items=8)
    table = np.array([[1, 3, 0], [2, 1, 1], [0, 1, 2.0]])
    weighted = LinearRanker(**TIGHT).fit_pairs(queries, table)
    i, j = (np.concatenate(part) for part in zip(*iter_pairs(queries), strict=True))
    times = table[queries.group[i], queries.group[j]].astype(int)
    i, j = np.repeat(i, times), np.repeat(j, times)
    rows = np.stack([i, j], axis=1).ravel()
    pairs = Queries.from_arrays(
        queries.X[rows], np.tile([1, 0], len(i)), qid=np.repeat(np.arange(len(i)), 2)
    )
    # the penalty is in units of the items' own spread, so it is taken from the same items
    repeated = LinearRanker(alpha=0.0, **TIGHT).fit_pairs(pairs, np.ones((0, 0)))
    weighted = LinearRanker(alpha=0.0, **TIGHT).fit_pairs(queries, table)
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-5)


def test_scaling_all_weights_changes_nothing():
    queries, table = data(), some_table()
    one = LinearRanker(**TIGHT).fit_pairs(queries, table)
    ten = LinearRanker(**TIGHT).fit_pairs(queries, 10.0 * table)
    np.testing.assert_allclose(ten.coef_, one.coef_, rtol=1e-6)


def test_units_of_the_features_do_not_matter():
    queries = data()
    units = np.logspace(-6, 6, 6)
    other = Queries.from_arrays(
        queries.X * units, queries.y, qid=queries["qid"],
        sensitive_features=queries["sensitive_features"],
    )  # fmt: skip
    one = LinearRanker().fit_pairs(queries, np.ones((3, 3)))
    two = LinearRanker().fit_pairs(other, np.ones((3, 3)))
    np.testing.assert_allclose(two.coef_ * units, one.coef_, rtol=1e-4)


def test_a_warm_start_ends_in_the_same_place_sooner():
    queries, table = data(200), some_table()
    cold = LinearRanker(**TIGHT).fit_pairs(queries, table)
    before = LinearRanker(**TIGHT).fit_pairs(queries, np.ones((3, 3)))
    held = before.coef_.copy()
    warm = LinearRanker(**TIGHT).fit_pairs(queries, table, previous=before)
    np.testing.assert_allclose(warm.coef_, cold.coef_, rtol=1e-6)
    assert warm.n_evaluations_ <= cold.n_evaluations_
    np.testing.assert_array_equal(before.coef_, held)
    again = LinearRanker().fit_pairs(queries, table, previous=warm)
    assert again.n_evaluations_ == 1


def test_two_fits_are_the_same():
    queries, table = data(), some_table()
    first = LinearRanker().fit_pairs(queries, table)
    second = LinearRanker().fit_pairs(queries, table)
    np.testing.assert_array_equal(first.coef_, second.coef_)


def test_constant_and_collinear_features_are_harmless():
    queries = data()
    X = np.c_[queries.X, np.full(queries.n_items, 1e9), queries.X[:, 0], queries.query]
    wide = LinearRanker(**TIGHT).fit(X, queries.y, qid=queries["qid"])
    plain = LinearRanker(alpha=5e-5, **TIGHT).fit(queries.X, queries.y, qid=queries["qid"])
    assert np.isfinite(wide.coef_).all()
    assert wide.coef_[6] == 0.0
    assert wide.coef_[8] == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(wide.coef_[0], wide.coef_[7], rtol=1e-6)
    np.testing.assert_allclose(wide.coef_[0] + wide.coef_[7], plain.coef_[0], rtol=1e-2)


@pytest.mark.parametrize("margin", [0.0, 2.0])
def test_the_response_is_the_derivative_of_the_fit(margin):
    queries, table = data(200), some_table()
    ranker = LinearRanker(margin=margin, **TIGHT)
    model = clone(ranker).fit_pairs(queries, table)
    change = np.random.default_rng(1).normal(size=(3, 3))
    step = 1e-4
    up = clone(ranker).fit_pairs(queries, table + step * change, previous=model)
    down = clone(ranker).fit_pairs(queries, table - step * change, previous=model)
    expected = queries.X @ (up.coef_ - down.coef_) / (2 * step)
    directions, coefficients = model.response(queries, table)
    actual = np.tensordot(change, coefficients[0], axes=2) @ directions
    inside = expected - np.bincount(queries.query, expected)[queries.query] / 25
    actual = actual - np.bincount(queries.query, actual)[queries.query] / 25
    np.testing.assert_allclose(actual, inside, atol=0.05 * np.abs(inside).max())


def test_the_response_to_mirrored_pairs_is_the_derivative_of_the_fit():
    queries, tables = data(200), np.stack([some_table(), 0.3 * some_table().T])
    model = LinearRanker(**TIGHT).fit_pairs(queries, tables)
    change = np.random.default_rng(1).normal(size=(2, 3, 3))
    step = 1e-4
    up, down = (
        LinearRanker(**TIGHT).fit_pairs(queries, tables + sign * step * change, previous=model)
        for sign in (1.0, -1.0)
    )
    expected = queries.X @ (up.coef_ - down.coef_) / (2 * step)
    directions, coefficients = model.response(queries, tables)
    actual = np.tensordot(change, coefficients, axes=3) @ directions
    np.testing.assert_allclose(actual, expected, atol=0.01 * np.abs(expected).max())


def test_says_when_it_has_not_converged():
    queries = data()
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        LinearRanker(max_iter=1, **TIGHT).fit_pairs(queries, np.ones((3, 3)))


def test_bad_input():
    queries = data()
    with pytest.raises(InputError, match=r"alpha must be .*got -1"):
        LinearRanker(alpha=-1).fit_pairs(queries, np.ones((3, 3)))
    with pytest.raises(InputError, match=r"margin must be .*got -1"):
        LinearRanker(margin=-1).fit_pairs(queries, np.ones((3, 3)))
    with pytest.raises(InputError, match="have weight 0"):
        LinearRanker().fit_pairs(queries, np.zeros((3, 3)))
    with pytest.raises(InputError, match="No query has two different labels"):
        LinearRanker().fit(queries.X, np.ones(queries.n_items), qid=queries["qid"])
    without = Queries.from_arrays(None, queries.y, qid=queries["qid"])
    with pytest.raises(InputError, match="no features"):
        LinearRanker().fit_pairs(without, np.ones((0, 0)))


def test_a_start_from_other_data_changes_nothing():
    queries = data()
    table = np.ones((3, 3))
    other = LinearRanker().fit_pairs(
        Queries.from_arrays(100.0 * queries.X, queries.y, qid=queries["qid"]), np.ones((0, 0))
    )
    cold = LinearRanker(alpha=0.1, **TIGHT).fit_pairs(queries, table)
    warm = LinearRanker(alpha=0.1, **TIGHT).fit_pairs(queries, table, previous=other)
    np.testing.assert_allclose(warm.coef_, cold.coef_, rtol=1e-5)
    narrow = LinearRanker().fit(queries.X[:, :2], queries.y, qid=queries["qid"])
    LinearRanker().fit_pairs(queries, table, previous=narrow)


@pytest.mark.parametrize("n_queries", [80, 100, 131])
def test_a_constant_sparse_column_has_no_say(n_queries):
    queries = data(n_queries)
    X = np.c_[queries.X, np.full(queries.n_items, 3.0)]
    weight = np.random.default_rng(0).uniform(0.5, 2.0, queries.n_items)
    ranker = LinearRanker().fit(
        sp.csr_array(X), queries.y, qid=queries["qid"], sample_weight=weight
    )
    assert ranker.coef_[-1] == 0.0


def test_overlapping_fits_leave_blas_as_it_was():
    queries = data()
    model = LinearRanker().fit(queries.X, queries.y, qid=queries["qid"])
    before = [library["num_threads"] for library in threadpool_info()]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: model.predict(queries.X), range(200)))
    assert [library["num_threads"] for library in threadpool_info()] == before
