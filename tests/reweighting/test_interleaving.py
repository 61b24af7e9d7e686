"""Schedules: λ moves during one training run, by DualAscent."""

from functools import partial

import numpy as np
import pytest

from pairity import FairRanker, InputError, LinearRanker, Queries
from pairity.constraints import as_constraint, spread
from pairity.datasets import BiasedWorld, make_biased_ranking
from pairity.exceptions import TargetNotReachedWarning
from pairity.pairs.losses import Logistic
from pairity.rankers._objective import Objective
from pairity.rankers.lightgbm import LightGBMRanker
from pairity.rankers.xgboost import XGBoostRanker
from pairity.reweighting.interleaving import DualAscent, as_schedule, expected_optimism
from pairity.reweighting.outcomes import Outcome
from pairity.reweighting.problem import Problem
from pairity.reweighting.solvers import PlainStep
from pairity.reweighting.weights import FARTHEST, START, Weigher

MADE = make_biased_ranking(
    100, 16, strength=1.5, separation=3.0, world=BiasedWorld(noise=0.5), random_state=0
)
QUERIES = MADE.queries()
DATA = {name: getattr(MADE, name) for name in ("X", "y", "qid", "sensitive_features")}
HELD = make_biased_ranking(
    30, 12, strength=1.5, separation=3.0, world=BiasedWorld(noise=0.5), random_state=1
)
ONES = np.ones((2, 2))


@pytest.fixture(params=["lightgbm", "xgboost"])
def make(request):
    """Makes the adapter of an engine's ranker."""
    library = pytest.importorskip(request.param, reason=f"{request.param} is not installed")
    if request.param == "lightgbm":
        return lambda **params: LightGBMRanker(
            library.LGBMRanker(**{"n_estimators": 20, "num_leaves": 7, "n_jobs": 1, **params})
        )
    return lambda **params: XGBoostRanker(
        library.XGBRanker(**{"n_estimators": 20, "max_depth": 3, "n_jobs": 1, **params})
    )


class Copying(Weigher):
    """Its table is λ, which a test can then read."""

    def table(self, lambda_):
        return lambda_.copy()


class FixedDelta:
    """A constraint that returns the given deltas in turn."""

    def __init__(self, values):
        self.values, self.asked = list(values), 0

    def delta(self, _queries, _scores):
        self.asked += 1
        return np.asarray(self.values[min(self.asked, len(self.values)) - 1], dtype=float)


def follow(values, n_total=100, lambda_=None, scale=None):
    """An ascent that measured these deltas in turn, and its multipliers."""
    start = np.zeros(len(values[0])) if lambda_ is None else np.asarray(lambda_, dtype=float)
    scale = np.ones(len(start)) if scale is None else np.asarray(scale, dtype=float)
    ascent = DualAscent(FixedDelta(values), None, Copying("exponential", scale, ONES), start)
    tables = [ascent(n, n_total, lambda: np.zeros(0)) for n in range(n_total)]
    return ascent, np.array(tables)


# --- how lambda moves -----------------------------------------------------------------------------


def test_it_moves_every_third_tree_against_the_violation():
    ascent, tables = follow([[0.01, -0.02]])
    moved = np.flatnonzero(np.abs(np.diff(tables[:, 0])) > 0) + 1
    assert moved[:3].tolist() == [3, 6, 9]
    step = 5.0 * 1.1
    assert tables[3] == pytest.approx([-step * 0.015, step * 0.015])  # less the mean, -0.005
    assert ascent.constraint.asked == 32  # trees 3 to 96; from 98 on lambda is fixed


def test_short_runs_move_at_every_tree():
    _, tables = follow([[0.01, -0.01]], n_total=20)
    assert (np.diff(tables[:, 0]) < 0).all()


def test_a_change_of_sign_halves_the_step_of_that_entry():
    _, tables = follow([[0.01, 0.01, -0.02], [-0.01, 0.02, -0.01]])
    first, second = tables[3] - tables[2], tables[6] - tables[5]
    trend = 0.25 * 1 * (-0.01 - 0.01)  # after one update
    assert second[0] == pytest.approx(0.5 * (-0.01 + trend) / 0.01 * first[0])
    assert second[1] == pytest.approx(1.1 * (0.02 + 0.25 * 0.01) / 0.01 * first[1])


def test_one_update_changes_lambda_by_a_limit_that_grows():
    _, tables = follow([[0.5, -0.5], [0.5, -0.5], [-0.5, 0.5]])
    assert tables[3] == pytest.approx([-0.3 * 1.2, 0.3 * 1.2])
    assert tables[6] - tables[3] == pytest.approx([-0.3 * 1.2**2, 0.3 * 1.2**2])
    assert tables[9] - tables[6] == pytest.approx([0.3, -0.3])  # 0.3 * 1.2**2 * 0.5 is below


def test_a_falling_delta_moves_lambda_less():
    values = [[0.006, -0.006], [0.006, -0.006], [0.004, -0.004]]
    _, tables = follow(values)  # the third: Δ + 0.25 · 2 · (Δ - 1.5 Δ) = 0.75 Δ
    steps = tables[6] - tables[3], tables[9] - tables[6]
    assert steps[1] == pytest.approx(1.1 * 0.75 / 1.5 * steps[0])


def test_steps_grow_up_to_a_limit():
    _, tables = follow([[1e-3, -1e-3]])
    steps = -np.diff(tables[::3, 0])
    assert steps.max() == pytest.approx(4 * 5.0 * 1e-3)


def test_lambda_stays_where_weights_can_change():
    _, tables = follow([[1.0, -1.0]], scale=[1.0, 0.1])
    assert tables.min(axis=0) == pytest.approx([-FARTHEST, 0.0])
    assert tables.max(axis=0) == pytest.approx([0.0, 0.1 * FARTHEST])


def test_at_the_end_lambda_is_fixed_at_the_mean_of_the_last():
    ascent, tables = follow([[0.1, 0.0], [-0.1, 0.0]] * 20)
    assert (tables[98:] == tables[98]).all()
    last = tables[3:98:3][-10:]  # three tenths of 32 moves
    assert tables[98] == pytest.approx(last.mean(axis=0))
    assert ascent.lambda_ == pytest.approx(tables[-1])


def test_what_all_entries_have_in_common_moves_nothing():
    _, tables = follow([[0.1, 0.1]])
    assert tables == pytest.approx(np.zeros((100, 2)), abs=1e-12)
    across = np.array([[np.nan, 0.2], [0.1, np.nan]])  # inter-group: only the difference counts
    weigher = Copying("exponential", ONES, ONES)
    ascent = DualAscent(FixedDelta([across]), None, weigher, np.zeros((2, 2)))
    table = [ascent(n, 100, lambda: np.zeros(0)) for n in range(4)][-1]
    assert table == pytest.approx(5.5 * np.array([[0.0, -0.05], [0.05, 0.0]]))


def test_entries_without_pairs_stay():
    _, tables = follow([[np.nan, 0.1]], lambda_=[0.3, 0.0])
    assert (tables[:, 0] == 0.3).all()


def test_one_tree_leaves_lambda_alone():
    ascent, tables = follow([[0.1, 0.1]], n_total=1)
    assert ascent.constraint.asked == 0
    assert tables.tolist() == [[0.0, 0.0]]


def test_a_run_on_other_queries_records_the_optimism_of_its_training_queries():
    class ByQueries:
        def delta(self, queries, scores):
            return np.array(queries) + scores

    weigher = Copying("exponential", np.ones(2), ONES)
    ascent = DualAscent(ByQueries(), [0.3, -0.3], weigher, np.zeros(2), trained_on=[0.1, np.nan])
    for n_trees in range(10):
        ascent(n_trees, 100, lambda training=False: np.full(2, 0.05 if training else 0.0))
    assert len(ascent.optimism) == 3  # trees 3, 6 and 9
    assert ascent.optimism[0] == pytest.approx([0.3 - 0.15, 0.0])  # unknown in training: none


def test_a_run_on_all_queries_expects_a_share_of_the_optimism():
    folds = [follow([[0.1, -0.1]])[0] for _ in range(2)]
    folds[0].optimism = [np.array([0.2, 0.0]), np.array([0.4, 0.0])]
    folds[1].optimism = [np.array([0.0, 0.2])]
    expected = partial(expected_optimism, folds, 0.5)
    assert expected(0) == pytest.approx([0.5 * 0.1, 0.5 * 0.1])
    assert expected(5) == pytest.approx([0.5 * 0.2, 0.5 * 0.1])  # after the last, the last
    constraint = FixedDelta([[-0.05, -0.05]])  # what was expected is no violation
    weigher = Copying("exponential", np.ones(2), ONES)
    ascent = DualAscent(constraint, None, weigher, np.zeros(2), correction=lambda _: expected(0))
    for n_trees in range(10):
        ascent(n_trees, 100, lambda: np.zeros(0))
    assert ascent.lambda_ == pytest.approx([0.0, 0.0])
    folds[0].optimism = folds[1].optimism = []  # too few trees for an update
    assert expected(0) == 0.0


def test_a_run_below_one_half_is_replaced_by_the_plain_ranker(monkeypatch):
    """Scores and their negatives have the same violation, so the first run may be upside down."""
    lgb = pytest.importorskip("lightgbm", reason="lightgbm is not installed")
    measure = Problem.measure

    def upside_down(self, scores):
        measured = measure(self, scores)
        return measured if seen.setdefault("runs", 0) else measured._replace(auc=0.4)

    def train_following(self, lambda_, label):
        trained = following(self, lambda_, label)
        seen["runs"] = 1
        return trained

    seen, following = {}, Problem.train_following
    monkeypatch.setattr(Problem, "measure", upside_down)
    monkeypatch.setattr(Problem, "train_following", train_following)
    model = FairRanker(lgb.LGBMRanker(n_estimators=20, n_jobs=1), "statistical", tolerance=1.0)
    model.fit(**DATA)
    assert [completed.usable for completed in model.history_] == [False, True]
    assert not model.lambda_.any()
    plain = FairRanker(lgb.LGBMRanker(n_estimators=20, n_jobs=1), max_rounds=0).fit(**DATA)
    assert np.array_equal(model.predict(MADE.X), plain.predict(MADE.X))


# --- what the engines report ----------------------------------------------------------------------


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("shuffled", [False, True])
def test_the_scores_are_those_of_the_trees_so_far(make, elsewhere, shuffled):
    order = np.arange(len(MADE.y))
    if shuffled:
        order = np.argsort(np.random.default_rng(0).random(len(order)))
    queries = type(QUERIES).from_arrays(**{name: column[order] for name, column in DATA.items()})
    measured_on, seen, in_training = (HELD.queries() if elsewhere else None), {}, {}

    def follow(n_trees, n_total, scores):
        assert n_total == 20
        if n_trees in (0, 1, 4, 5, 11):
            seen[n_trees] = scores().copy()
            in_training[n_trees] = scores(training=True).copy()
        return ONES

    ranker = make().fit_following(queries, follow, measured_on=measured_on)
    X = HELD.X if elsewhere else MADE.X[order]
    assert not seen[0].any()
    for n_trees in (1, 4, 5, 11):
        known = make(n_estimators=n_trees).fit_pairs(queries, ONES)
        assert seen[n_trees] == pytest.approx(known.predict(X), abs=1e-5)
        assert in_training[n_trees] == pytest.approx(known.predict(queries.X), abs=1e-5)
    plain = make().fit_pairs(queries, ONES)
    assert np.array_equal(ranker.predict(X), plain.predict(X))


def test_trees_without_a_split_are_not_counted_twice():
    lgb = pytest.importorskip("lightgbm", reason="lightgbm is not installed")
    ranker = LightGBMRanker(lgb.LGBMRanker(
        n_estimators=60, num_leaves=2, n_jobs=1, min_split_gain=20.0, subsample=0.2,
        subsample_freq=1, learning_rate=0.5,
    ))  # fmt: skip
    seen = []

    def follow(n_trees, n_total, scores):
        seen.append(scores().copy())
        return ONES

    ranker.fit_following(QUERIES, follow, measured_on=HELD.queries())
    assert 1 < ranker.model_.num_trees() < 60  # some found nothing to split by
    booster = ranker.model_
    parts = [booster.predict(HELD.X, num_iteration=n) for n in range(1, booster.num_trees() + 1)]
    for scores in seen[1:]:
        assert min(np.abs(scores - part).max() for part in parts) < 1e-9
    assert np.abs(seen[-1] - parts[-2]).max() < 1e-9 or np.abs(seen[-1] - parts[-1]).max() < 1e-9


def test_steps_of_items_in_mirrored_pairs_are_limited():
    """Two items far apart in the observed order, which mirrored pairs ask to be turned round."""
    queries = Queries.from_arrays(None, [1, 0], qid=[0, 0], sensitive_features=["f", "m"])
    scores = np.array([10.0, -10.0])
    tables = np.array([[[1.0, 0.2], [1.0, 1.0]], [[0.0, 0.3], [0.0, 0.0]]])
    own = Logistic().derivatives(queries, scores, tables / 0.2)
    assert abs(own[0][0]) / own[1][0] > 1e8  # a Newton step without bounds
    gradient, hessian = Objective(queries, Logistic(), lambda *_: tables)(scores)
    assert gradient / gradient[0] == pytest.approx([1.0, -1.0])
    assert np.abs(gradient) / hessian == pytest.approx([2.0, 2.0])
    observed = Objective(queries, Logistic(), lambda *_: tables[0])(-scores)
    assert observed[0][0] / observed[1][0] < -1e8  # as in the engine's own training


def test_a_base_score_is_not_added_up():
    xgb = pytest.importorskip("xgboost", reason="xgboost is not installed")
    seen = []

    def follow(n_trees, n_total, scores):
        seen.append(scores().copy())
        return ONES

    ranker = XGBoostRanker(xgb.XGBRanker(n_estimators=5, n_jobs=1, base_score=3.0))
    ranker.fit_following(QUERIES, follow, measured_on=HELD.queries())
    known = XGBoostRanker(xgb.XGBRanker(n_estimators=4, n_jobs=1)).fit_pairs(QUERIES, ONES)
    assert seen[-1] == pytest.approx(known.predict(HELD.X), abs=1e-4)


def test_boosters_that_change_earlier_trees_are_refused(make):
    lightgbm = isinstance(make(), LightGBMRanker)
    name, kinds = ("boosting", ["dart"]) if lightgbm else ("booster", ["dart", "gblinear"])
    for kind in kinds:
        with pytest.raises(InputError, match=f"'{kind}' changes.*schedule='retrain'"):
            FairRanker(make(**{name: kind}), schedule="interleaved").fit(**DATA)


# --- through FairRanker ---------------------------------------------------------------------------


def test_one_run_usually_suffices(make):
    fair = FairRanker(
        make(n_estimators=60), tolerance=0.04, schedule="interleaved", validation=None
    ).fit(**DATA)
    assert fair.outcome_.kind is Outcome.WITHIN_TOLERANCE
    assert [round_.number for round_ in fair.history_] == list(range(1, len(fair.history_) + 1))
    assert len(fair.history_) <= 2
    assert np.abs(fair.lambda_).max() < START  # where the weights are the paper's
    assert fair.pair_weights_.table == pytest.approx(2.0 / (1.0 + np.exp(-spread(fair.lambda_))))
    violation = as_constraint("inter").delta(QUERIES, fair.predict(MADE.X))
    assert fair.history_[-1].delta == pytest.approx(violation, nan_ok=True)


def test_it_ends_when_another_run_does_not_help(make):
    fair = FairRanker(make(), tolerance=0.0, schedule="interleaved", validation=None)
    with pytest.warns(TargetNotReachedWarning):
        fair.fit(**DATA)
    assert fair.outcome_.kind in (Outcome.UNREACHABLE, Outcome.WITHIN_NOISE)
    assert len(fair.history_) < 15
    assert fair.violation_ == min(round_.violation for round_ in fair.history_)


def test_without_rounds_it_is_the_plain_ranker(make):
    fair = FairRanker(make(), max_rounds=0, schedule="interleaved").fit(**DATA)
    assert fair.outcome_.kind is Outcome.NO_ROUNDS
    plain = make().fit_pairs(QUERIES, ONES)
    assert np.array_equal(fair.predict(MADE.X), plain.predict(MADE.X))


@pytest.mark.parametrize("constraint", ["statistical", "inter", "intra", "marginal"])
def test_constraints(make, constraint):
    made = make_biased_ranking(
        60,
        16,
        strength=1.5,
        separation=3.0,
        n_groups=3,
        world=BiasedWorld(noise=0.5),
        random_state=0,
    )
    data = {name: getattr(made, name) for name in DATA}
    before = FairRanker(make(n_estimators=40), constraint, max_rounds=0).fit(**data)
    after = FairRanker(make(n_estimators=40), constraint, schedule="interleaved", tolerance=0.25)
    after.fit(**data)
    assert after.violation_ < max(0.5 * before.violation_, 0.1)


def test_rankers_without_trees_cannot_interleave():
    with pytest.raises(InputError, match="LinearRanker cannot change pair weights during training"):
        FairRanker(LinearRanker(), schedule="interleaved").fit(**DATA)


def test_unknown_schedules_are_refused():
    with pytest.raises(InputError, match="schedule is 'sometimes'; choose 'auto', 'retrain' or"):
        FairRanker(schedule="sometimes").fit(**DATA)
    assert as_schedule("retrain", LinearRanker()) == "retrain"


def test_auto_interleaves_where_it_can(make):
    assert as_schedule("auto", LinearRanker()) == "retrain"
    assert as_schedule("auto", make()) == "interleaved"
    assert as_schedule("auto", make(), "plain") == "retrain"
    assert as_schedule("auto", make(), PlainStep()) == "retrain"
    assert as_schedule("auto", make(), "damped", {"eval_set": []}) == "retrain"


def test_auto_retrains_what_changes_its_earlier_trees():
    pytest.importorskip("lightgbm", reason="lightgbm is not installed")
    from lightgbm import LGBMRanker

    assert as_schedule("auto", LightGBMRanker(LGBMRanker(boosting_type="dart"))) == "retrain"
