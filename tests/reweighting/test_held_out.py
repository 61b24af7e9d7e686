"""Out of fold, held-out shares, max_loss, tolerance="auto", and which round is kept."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairity import FairRanker, LinearRanker, Outcome, PlainStep, Queries, StatisticalParity
from pairity.constraints import as_constraint, largest_gap, noise_of
from pairity.datasets import BiasedWorld, make_biased_ranking
from pairity.exceptions import InputError, MemorisedWarning, TargetNotReachedWarning
from pairity.metrics.utility import ndcg
from pairity.pairs.cells import mean_auc
from pairity.rankers.regressor import RegressorRanker
from pairity.reweighting.algorithm import Round, Trace
from pairity.reweighting.limits import groups_of_largest_gap, separation
from pairity.reweighting.problem import Measured, Trained, make_folds

DATA = make_biased_ranking(
    40, 20, strength=1.5, separation=2.0, world=BiasedWorld(noise=0.5), random_state=0
)
QUERIES = DATA.queries()
PARITY = StatisticalParity()


def fit(ranker=None, constraint="statistical", queries=QUERIES, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TargetNotReachedWarning)
        warnings.simplefilter("ignore", MemorisedWarning)
        return FairRanker(ranker, constraint, progress=False, **options).fit(queries)


def small_trees(**options):
    LGBMRanker = pytest.importorskip("lightgbm", reason="lightgbm is not installed").LGBMRanker
    return LGBMRanker(
        **{"n_estimators": 20, "num_leaves": 5, "min_child_samples": 5, "n_jobs": 1, **options}
    )


# --- folds ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_folds", [2, 5])
def test_every_query_is_held_out_once(n_folds):
    folds = make_folds(QUERIES, n_folds, 3)
    assert sum(fold.held_out.n_queries for fold in folds) == QUERIES.n_queries
    for fold in folds:
        assert not set(fold.train.query_ids) & set(fold.held_out.query_ids)
        assert fold.train.n_queries + fold.held_out.n_queries == QUERIES.n_queries
        np.testing.assert_array_equal(QUERIES.X[fold.rows], fold.held_out.X)


@pytest.mark.parametrize("n_folds", [2, 3])
def test_each_query_is_scored_by_a_ranker_that_did_not_train_on_it(n_folds):
    ranker = LinearRanker(tol=1e-10)
    model = fit(ranker, validation=n_folds, random_state=7)
    scores = np.empty(QUERIES.n_items)
    for fold in make_folds(QUERIES, n_folds, 7):
        own = LinearRanker(tol=1e-10).fit_pairs(fold.train, model.pair_weights_.tables)
        scores[fold.rows] = own.predict(fold.held_out.X)
    delta = PARITY.delta(QUERIES, scores)
    assert model.violation_ == pytest.approx(largest_gap(delta), abs=1e-6)
    kept = next(r for r in model.history_ if r.violation == model.violation_)
    assert kept.auc == pytest.approx(mean_auc(QUERIES, scores), abs=1e-6)
    assert model.outcome_.measured_on == "40 queries out of fold"


def test_the_final_ranker_is_trained_on_all_queries():
    for validation in (2, 0.3):
        model = fit(LinearRanker(tol=1e-10), validation=validation)
        again = LinearRanker(tol=1e-10).fit_pairs(QUERIES, model.pair_weights_.tables)
        np.testing.assert_allclose(model.ranker_.coef_, again.coef_, rtol=1e-5)
        training = largest_gap(PARITY.delta(QUERIES, model.predict(DATA.X)))
        assert model.outcome_.training_violation == pytest.approx(training)
        assert model.outcome_.error > 0.0


def test_by_default_rankers_that_may_memorise_are_measured_out_of_fold():
    assert fit().outcome_.measured_on == "40 training queries"
    assert fit(small_trees()).outcome_.measured_on == "40 queries out of fold"
    assert fit(small_trees(), schedule="retrain", max_rounds=2).outcome_.measured_on == (
        "40 queries out of fold"
    )
    few = QUERIES.take([0, 1, 2])
    assert fit(small_trees(), queries=few).outcome_.measured_on == "3 training queries"
    plain = fit(small_trees(), max_rounds=0)
    assert plain.outcome_.measured_on == "40 training queries"


def test_folds_are_the_same_without_a_seed():
    first, second, zero = (fit(validation=2, random_state=seed) for seed in (None, None, 0))
    assert first.violation_ == second.violation_ == zero.violation_
    assert fit(validation=2, random_state=1).violation_ != zero.violation_


def test_the_last_interleaved_run_corrects_the_optimism_of_its_training_queries():
    model = fit(small_trees(n_estimators=40))
    (only,) = model.history_
    assert model.ranker_.model_.num_trees() == 40
    assert np.abs(only.lambda_).max() > 0.0
    plain = fit(small_trees(n_estimators=40), max_rounds=0)
    assert not np.array_equal(plain.predict(DATA.X), model.predict(DATA.X))
    folds = make_folds(QUERIES, 2, 0)
    scores = np.empty(QUERIES.n_items)
    for fold in folds:
        half = fit(small_trees(n_estimators=40), max_rounds=0, queries=fold.train)
        scores[fold.rows] = half.predict(fold.held_out.X)
    assert only.violation < 0.7 * largest_gap(PARITY.delta(QUERIES, scores))
    # The weights are those of the last trees, and not those of a run that believes its training.
    assert model.lambda_ is only.lambda_
    in_training = fit(small_trees(n_estimators=40), validation=None)
    assert not np.allclose(in_training.history_[0].lambda_, only.lambda_, atol=1e-3)


def test_a_fold_without_a_preference():
    """By default the training queries are then measured; asked for folds, it is an error."""
    y = np.where(QUERIES.query == 0, QUERIES.y, 0.0)
    queries = Queries.from_arrays(
        DATA.X, y, qid=DATA.qid, sensitive_features=DATA.sensitive_features
    )
    model = fit(small_trees(), queries=queries, max_rounds=1)
    assert "training queries" in model.outcome_.measured_on
    with pytest.raises(InputError, match="training queries of one of 2 folds: No query has two"):
        fit(queries=queries, validation=2)


def test_a_group_in_one_fold_only():
    groups = DATA.sensitive_features.astype(str).astype("<U9")
    groups[QUERIES.query == 3] = np.where(np.arange(20) % 2, "rare", groups[QUERIES.query == 3])
    queries = Queries.from_arrays(DATA.X, DATA.y, qid=DATA.qid, sensitive_features=groups)
    for ranker in (None, small_trees()):
        model = fit(ranker, queries=queries, validation=2, max_rounds=3)
        assert model.groups_ == ("group 1", "group 2", "rare")
        assert np.isfinite(model.violation_)


def test_one_query_is_measured_in_training():
    one = QUERIES.take([0])
    model = fit(small_trees(min_child_samples=2), queries=one, max_rounds=1)
    assert model.outcome_.measured_on == "1 training query"
    assert np.isnan(model.outcome_.noise_floor)
    with pytest.raises(InputError, match="2 folds of 1 queries are not possible"):
        fit(queries=one, validation=2)


@pytest.mark.parametrize(("n_queries", "few"), [(7, True), (8, False)])
def test_few_queries_are_measured_in_training_with_the_papers_weights(n_queries, few):
    queries = QUERIES.take(np.arange(n_queries))
    model = fit(small_trees(), queries=queries, tolerance=0.0)
    assert model.outcome_.measured_on == f"{n_queries} " + (
        "training queries" if few else "queries out of fold"
    )
    chosen = fit(small_trees(), queries=queries, tolerance=0.0, weighting="paper", validation=None)
    assert np.array_equal(model.predict(DATA.X), chosen.predict(DATA.X)) == few
    linear = fit(queries=queries, tolerance=0.0)  # does not memorise
    assert linear.outcome_.measured_on == f"{n_queries} training queries"


def test_a_fit_with_folds_is_resumed(tmp_path):
    options = {"validation": 2, "tolerance": 0.0}
    whole = fit(**options, max_rounds=4)
    fit(**options, max_rounds=2, checkpoint=tmp_path)
    resumed = fit(**options, max_rounds=4, checkpoint=tmp_path)
    assert [r.violation for r in resumed.history_] == pytest.approx(
        [r.violation for r in whole.history_], abs=1e-9
    )
    np.testing.assert_allclose(resumed.ranker_.coef_, whole.ranker_.coef_, rtol=1e-5)
    with pytest.raises(InputError, match="validation"):
        fit(**{**options, "validation": 3}, checkpoint=tmp_path)


def test_networks_and_regressors_are_measured_out_of_fold():
    from sklearn.tree import DecisionTreeRegressor

    tree = RegressorRanker(DecisionTreeRegressor(max_depth=3, random_state=0), n_estimators=3)
    model = fit(tree, max_rounds=3, tolerance=0.0)
    assert model.outcome_.measured_on == "40 queries out of fold"
    assert model.violation_ == min(r.violation for r in model.history_ if r.usable)


# --- max_loss -------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranker", ["linear", "interleaved", "retrain"])
def test_no_round_that_loses_more_is_kept(ranker):
    linear = ranker == "linear"
    options = {} if linear else {"schedule": ranker}
    model = fit(
        LinearRanker() if linear else small_trees(), tolerance=0.0, max_loss=0.01, max_rounds=8,
        **options,
    )  # fmt: skip
    plain = model.history_[0]
    kept = next(r for r in model.history_ if r.violation == model.violation_)
    assert plain.number == 0
    assert plain.auc - kept.auc <= 0.01
    assert model.outcome_.kind is Outcome.LIMITED_BY_LOSS
    assert not all(r.usable for r in model.history_)
    free = fit(LinearRanker() if linear else small_trees(), tolerance=0.0, max_rounds=8, **options)
    assert free.violation_ < model.violation_ < plain.violation


def test_the_loss_may_be_of_ndcg():
    model = fit(tolerance=0.0, max_loss={"ndcg@5": 0.02}, max_rounds=8)
    kept = next(r for r in model.history_ if r.violation == model.violation_)
    scores = model.predict(DATA.X)
    assert kept.utility == pytest.approx(np.nanmean(ndcg(QUERIES, scores, k=5)))
    assert model.history_[0].utility - kept.utility <= 0.02


def test_a_loss_that_nothing_satisfies_keeps_the_plain_ranker():
    model = fit(max_loss=0.0, tolerance=0.0)
    assert model.history_[0].auc - max(r.auc for r in model.history_ if r.usable) <= 0.0
    if model.violation_ == model.history_[0].violation:
        assert not model.lambda_.any()
    assert model.outcome_.kind is Outcome.LIMITED_BY_LOSS
    assert "max_loss" in str(model.outcome_)


def test_a_wide_loss_changes_nothing():
    free, limited = fit(), fit(max_loss=0.9)
    np.testing.assert_array_equal(free.ranker_.coef_, limited.ranker_.coef_)


# --- tolerance="auto" and the noise floor ---------------------------------------------------------


def test_the_noise_floor_stands_beside_every_violation():
    model = fit(tolerance=0.0, max_rounds=3)
    plain = LinearRanker().fit_pairs(QUERIES, np.ones((2, 2)))
    floor = noise_of(PARITY, QUERIES, plain.predict(DATA.X)).floor
    assert [r.noise_floor for r in model.history_] == pytest.approx([floor] * len(model.history_))
    assert model.outcome_.noise_floor == pytest.approx(floor)
    assert f"the noise floor is {floor:.4f}" in str(model.outcome_)


def test_automatic_tolerance_is_the_noise_floor():
    model = fit(tolerance="auto")
    assert model.outcome_.tolerance == model.outcome_.noise_floor == model.history_[0].noise_floor
    assert model.outcome_.reached
    assert model.violation_ <= model.outcome_.noise_floor
    strict = fit(tolerance=0.001)
    assert mean_auc(QUERIES, model.predict(DATA.X)) >= mean_auc(QUERIES, strict.predict(DATA.X))


def test_automatic_tolerance_without_a_floor():
    inter = as_constraint("inter")
    model = fit(constraint=lambda queries, scores: inter.delta(queries, scores), tolerance="auto")
    assert np.isnan(model.outcome_.noise_floor)
    assert model.outcome_.tolerance == 0.01


def test_within_noise():
    """No disparity in the world: what is left above the tolerance is noise."""
    fair = make_biased_ranking(12, 10, strength=0.0, separation=0.0, random_state=1)
    model = fit(queries=fair.queries(), tolerance=0.0, max_rounds=1)
    assert model.outcome_.kind is Outcome.WITHIN_NOISE
    assert model.violation_ <= model.outcome_.noise_floor


# --- which round is kept --------------------------------------------------------------------------

ROUNDS = st.lists(
    st.tuples(
        st.sampled_from([0.1, 0.101, 0.15, 0.2, 0.3]),
        st.sampled_from([0.45, 0.55, 0.6, 0.7, 0.701]),
        st.sampled_from([0.0, 0.5, 1.0, 4.0]),
    ),
    min_size=1,
    max_size=8,
)


@given(ROUNDS)
def test_the_kept_round_is_not_dominated_and_makes_little_effort(rounds):
    trace = Trace(0.0, 10)
    for number, (violation, auc, size) in enumerate(rounds):
        measured = Measured(np.zeros(2), violation, auc, auc, 0.01, 0.01)
        trained = Trained(number, np.full(2, size), measured, 0.0)
        trace.round(number, None, lambda _, trained=trained: trained)
    best = trace.best
    assert trace.model == best.number
    usable = [r for r in trace.rounds if r.usable]
    if usable:
        assert best.usable
        assert not any(r.beats(best) for r in usable)
        assert best.violation <= 1.02 * min(r.violation for r in usable)
    alike = [r for r in usable if (r.violation, r.auc) == (best.violation, best.auc)]
    assert all(np.linalg.norm(best.lambda_) <= np.linalg.norm(r.lambda_) for r in alike)


def test_a_round_with_an_auc_below_a_half_is_not_usable():
    trace = Trace(0.0, 10)
    for number, auc in enumerate((0.6, 0.49)):
        measured = Measured(np.zeros(2), 0.3 - 0.1 * number, auc, auc, 0.01, 0.01)
        trace.round(number, None, lambda _, m=measured: Trained(None, np.zeros(2), m, 0.0))
    assert trace.best.number == 0
    assert isinstance(trace.rounds[1], Round)
    assert not trace.rounds[1].usable


# --- what limits a fit ----------------------------------------------------------------------------


def test_what_limits_a_fit_is_named():
    model = fit(tolerance=0.0, max_rounds=3)
    text = str(model.outcome_)
    labels = largest_gap(PARITY.delta(QUERIES, QUERIES.y))
    assert f"an order by the labels has a violation of {labels:.3f}" in text
    assert "noise between 40 queries" in text
    assert "hardly tell" not in text  # the features of this world tell the groups apart
    assert "pairity.baselines.exposure_lp" in text
    assert fit(tolerance=0.5).outcome_.limits == ()


def test_features_that_do_not_tell_the_groups_apart():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(QUERIES.n_items, 3))
    noise = Queries.from_arrays(X, DATA.y, qid=DATA.qid, sensitive_features=DATA.sensitive_features)
    model = fit(queries=noise, tolerance=0.0, max_rounds=2, weighting="paper")
    assert "hardly tell the groups 'group 1' and 'group 2' apart" in str(model.outcome_)
    assert "where the law allows it" in str(model.outcome_)
    assert 0.4 < separation(noise, 0, 1) < 0.6
    assert separation(QUERIES, 0, 1) > 0.8
    assert separation(QUERIES.take([0]), 0, 1) is None


def test_weights_at_their_limits_are_named():
    model = fit(tolerance=0.0, weighting="paper", solver=PlainStep(eta=40.0), max_rounds=2)
    assert "Weights are at their limits for 'group " in str(model.outcome_)
    assert "weighting='reversible' reach further" in str(model.outcome_)


@pytest.mark.parametrize("constraint", ["statistical", "inter", "intra", "marginal"])
def test_the_groups_of_the_largest_gap(constraint):
    scores = np.random.default_rng(1).normal(size=QUERIES.n_items)
    delta = as_constraint(constraint).delta(QUERIES, scores)
    assert sorted(groups_of_largest_gap(delta)) == [0, 1]


def test_lists_of_very_different_lengths():
    few = (np.arange(QUERIES.n_items) % 20 < 3) | (QUERIES.query < 3)
    columns = {"X": DATA.X, "y": DATA.y, "qid": DATA.qid}
    kept = {name: column[few] for name, column in columns.items()}
    queries = Queries.from_arrays(**kept, sensitive_features=DATA.sensitive_features[few])
    model = fit(queries=queries, tolerance=0.0, max_rounds=1)
    assert "query_weight='equal' may help" in str(model.outcome_)
