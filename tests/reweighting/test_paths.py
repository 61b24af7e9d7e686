"""Paths along x · λ* and along falling tolerances, as tables, frames and plots."""

import sys

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.base import BaseEstimator

from pairity import FairRanker, InputError, LinearRanker, Queries
from pairity.constraints import as_constraint, largest_gap
from pairity.datasets import make_biased_ranking
from pairity.exceptions import ConstraintError, MissingExtraError, TrainingError
from pairity.pairs.cells import mean_auc
from pairity.reweighting.paths import Path, lambda_path, tolerance_path
from pairity.reweighting.problem import Problem

mpl.use("Agg")

CONSTRAINTS = ["statistical", "inter", "marginal"]
TRAIN, TEST = (
    make_biased_ranking(120, 30, strength=1.5, random_state=0).queries().split(0.25, random_state=0)
)


@pytest.fixture(scope="module", params=CONSTRAINTS)
def fitted(request):
    return FairRanker(constraint=request.param, tolerance=0.005).fit(**TRAIN)


# --- along λ -------------------------------------------------------------------------------------


def test_it_starts_at_the_plain_ranker_and_passes_the_fitted_one(fitted):
    path = fitted.path(**TRAIN, values=[0, 1], keep_models=True)
    plain = LinearRanker().fit(TRAIN.X, TRAIN.y, qid=TRAIN["qid"])
    np.testing.assert_allclose(path[0].model.coef_, plain.coef_, atol=1e-5)
    np.testing.assert_allclose(path[1].model.predict(TEST.X), fitted.predict(TEST.X), atol=1e-5)
    assert path[0].violation == pytest.approx(fitted.history_[0].violation, abs=1e-4)
    assert path[1].violation == pytest.approx(fitted.violation_, abs=1e-4)
    np.testing.assert_array_equal(path[1].lambda_, fitted.lambda_)


def test_the_shape_of_the_papers_second_figure(fitted):
    path = fitted.path(**TRAIN)
    assert [point.x for point in path.points] == pytest.approx(np.linspace(0, 2, 9))
    fairness = [point.fairness for point in path.points]
    assert np.argmax(fairness) in (4, 5)  # a fit ends with the first round within the tolerance
    assert (np.diff(fairness[:5]) > 0).all()
    assert (np.diff(fairness[5:]) < 0).all()
    auc = [point.auc for point in path.points]
    assert (np.diff(auc) < 1e-3).all()
    assert auc[0] > auc[4] > auc[8]


def test_warm_starts_lead_where_cold_ones_do(fitted):
    path = fitted.path(**TRAIN, values=[0.5, 2.0, 1.5], keep_models=True)
    weigher = Problem(TRAIN, LinearRanker(), as_constraint(fitted.constraint)).weigher
    for point in path.points:
        cold = LinearRanker().fit_pairs(TRAIN, weigher.table(point.x * fitted.lambda_))
        np.testing.assert_allclose(point.model.coef_, cold.coef_, atol=1e-5)


def test_values_keep_their_order_and_may_repeat(fitted):
    path = fitted.path(**TRAIN, values=[2, 0.5, 2])
    assert [point.value for point in path.points] == [2, 0.5, 2]
    assert path[0] is path[2]
    assert path[0].model is None


def test_measurements_on_test_queries(fitted):
    path = fitted.path(**TRAIN, values=[1], test=TEST)
    scores = fitted.predict(TEST.X)
    expected = largest_gap(as_constraint(fitted.constraint).delta(TEST, scores))
    assert path[0].violation == pytest.approx(expected, abs=1e-4)
    assert path[0].auc == pytest.approx(mean_auc(TEST, scores), abs=1e-4)
    assert path[0].fairness == 1 - path[0].violation
    assert path.measured_on == "30 test queries"
    again = fitted.path(**TRAIN, values=[1], test=dict(TEST))
    assert again[0].violation == path[0].violation


def test_an_unfitted_model_is_fitted_first():
    model = FairRanker(tolerance=0.005)
    path = model.path(**TRAIN, values=[1])
    assert path[0].violation == pytest.approx(model.violation_, abs=1e-4)
    before = model.lambda_, model.ranker_
    model.path(**TRAIN, values=[0.5], along="lambda")
    assert (model.lambda_, model.ranker_) == before


def test_held_out_queries_are_held_out_again():
    draw = np.random.RandomState(0)  # a second split with it would differ
    model = FairRanker(validation=0.3, tolerance=0.02, random_state=draw).fit(**TRAIN)
    path = model.path(**TRAIN, values=[1])
    assert path.measured_on == "27 held-out queries"
    assert path[0].violation == pytest.approx(model.violation_, abs=1e-4)
    tolerances = model.path(**TRAIN, along="tolerance")
    assert all(point.violation <= point.value for point in tolerances.points if point.reached)
    other = FairRanker(validation=TEST, tolerance=0.02).fit(**TRAIN)
    assert other.path(**TRAIN, values=[1])[0].violation == pytest.approx(other.violation_, abs=1e-4)


def test_weightings_are_those_of_the_model():
    model = FairRanker(
        constraint=as_constraint("inter").__class__(average="pair"),
        weighting="closed-form",
        tolerance=0.005,
    ).fit(**TRAIN)
    path = model.path(**TRAIN, values=[1], keep_models=True)
    np.testing.assert_allclose(path[0].model.coef_, model.ranker_.coef_, atol=1e-5)


def test_groups_are_matched_by_name(fitted):
    assert fitted.groups_ == ("group 1", "group 2")
    names = np.where(TRAIN.group == 0, "group 1", "group 2").astype(object)
    path = fitted.path(**{**TRAIN, "sensitive_features": names}, values=[1])
    assert path[0].violation == pytest.approx(fitted.violation_, abs=1e-4)
    with pytest.raises(InputError, match="'other' was not among the training groups"):
        fitted.path(**{**TRAIN, "sensitive_features": np.where(TRAIN.group, "group 1", "other")})


# --- along tolerances ----------------------------------------------------------------------------


def test_tolerances_are_met_and_not_undercut_without_need(fitted):
    path = fitted.path(**TRAIN, along="tolerance")
    values = [point.value for point in path.points]
    assert values[0] == pytest.approx(fitted.history_[0].violation, abs=1e-4)
    assert values[-1] == pytest.approx(0.005)
    assert path[0].x == 0
    for point in path.points:
        assert point.reached
        assert point.violation <= point.value
        assert point.violation >= 0.8 * point.value - 0.001
    assert (np.diff([point.x for point in path.points]) > 0).all()
    assert path[0].auc > path[-1].auc


def test_a_smaller_tolerance_than_the_models_takes_another_run():
    model = FairRanker(constraint="statistical", tolerance=0.1).fit(**TRAIN)
    path = model.path(**TRAIN, along="tolerance", values=[0.15, 0.002], test=TEST)
    assert path[1].reached
    assert path.measured_on == "30 test queries"
    assert path[1].violation < path[0].violation
    on_training = model.path(**TRAIN, along="tolerance", values=[0.15, 0.002])
    assert on_training[1].violation <= 0.002
    assert [point.x for point in on_training.points] == [point.x for point in path.points]


def test_a_tolerance_out_of_reach_is_reported():
    constraint = as_constraint("statistical")
    lambda_ = np.array([[0.0, -0.3], [0.3, 0.0]])
    problem = Problem(TRAIN, LinearRanker(), constraint)
    path = tolerance_path(problem, lambda_, [0.3, 1e-6])
    assert [point.reached for point in path.points] == [True, False]
    assert path[1].x == 1
    assert path[1].violation == min(point.violation for point in path.points)
    assert str(path).count("not reached") == 1


class Stepwise(BaseEstimator):
    """Its scores change at once, between x = 0.9 and x = 1."""

    def __init__(self, plain, fair):
        self.plain, self.fair = plain, fair

    def fit_pairs(self, queries, table, *, previous=None):  # noqa: ARG002
        self.coef_ = self.fair if table[1, 0] > 1.28 else self.plain
        return self

    def predict(self, X):
        return np.asarray(X) @ self.coef_


def test_all_tolerances_use_the_same_trainings():
    plain = LinearRanker().fit(TRAIN.X, TRAIN.y, qid=TRAIN["qid"]).coef_
    fair = FairRanker(constraint="statistical", tolerance=0.005).fit(**TRAIN).ranker_.coef_
    lambda_ = np.array([[0.0, -0.6], [0.6, 0.0]])
    problem = Problem(TRAIN, Stepwise(plain, fair), as_constraint("statistical"), weighting="paper")
    path = tolerance_path(problem, lambda_, [0.1, 0.05, 0.01])
    assert len({point.x for point in path.points}) == 1
    assert 0.9 < path[0].x < 1
    few = tolerance_path(problem, lambda_, [0.1, 0.05, 0.01], max_searches=0)
    assert [point.x for point in few.points] == [1, 1, 1]


# --- any ranker ----------------------------------------------------------------------------------


def test_boosters_use_their_binned_data_again(monkeypatch):
    LGBMRanker = pytest.importorskip("lightgbm", reason="lightgbm is not installed").LGBMRanker
    model = FairRanker(
        LGBMRanker(n_estimators=10, num_leaves=7, verbose=-1, n_jobs=1), schedule="retrain",
        tolerance=0.03, validation=None,
    ).fit(**TRAIN)  # fmt: skip
    made = []
    cached = Queries.cached

    def counted(self, name, settings, make):
        def made_now():
            made.append(name)
            return make()

        return cached(self, name, settings, made_now)

    monkeypatch.setattr(Queries, "cached", counted)
    path = model.path(**TRAIN, values=[0, 0.5, 1], keep_models=True)
    assert path[1].model is not None
    assert made.count("lightgbm") == 1
    np.testing.assert_allclose(path[2].model.predict(TEST.X), model.predict(TEST.X))
    plain = FairRanker(
        LGBMRanker(n_estimators=10, num_leaves=7, verbose=-1, n_jobs=1), max_rounds=0
    )
    np.testing.assert_allclose(path[0].model.predict(TEST.X), plain.fit(**TRAIN).predict(TEST.X))


def test_an_interleaved_model_finds_tolerances_with_fixed_weights():
    LGBMRanker = pytest.importorskip("lightgbm", reason="lightgbm is not installed").LGBMRanker
    model = FairRanker(
        LGBMRanker(n_estimators=10, num_leaves=7, verbose=-1, n_jobs=1), schedule="interleaved",
        constraint="statistical", tolerance=0.05,
    ).fit(**TRAIN)  # fmt: skip
    path = model.path(**TRAIN, along="tolerance")
    assert path[0].x == 0
    assert all(point.violation <= point.value for point in path.points if point.reached)
    assert path[-1].reached


class Brittle(BaseEstimator):
    """Fails for weights that are not 1."""

    def fit_pairs(self, queries, table, *, previous=None):  # noqa: ARG002
        if (table != 1).any():
            raise RuntimeError("too much")
        return self

    def predict(self, X):
        return np.asarray(X)[:, 0]


def test_a_rankers_own_failure_names_the_share():
    lambda_ = np.array([[0.0, 1.0], [-1.0, 0.0]])
    problem = Problem(TRAIN, Brittle(), as_constraint("inter"))
    with pytest.raises(TrainingError, match=r"Brittle failed.*x = 0\.5 times λ.*too much"):
        lambda_path(problem, lambda_, [0, 0.5])


# --- what it shows -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def path():
    return FairRanker(tolerance=0.005).path(**TRAIN, values=[0, 1, 2])


@pytest.fixture(scope="module")
def tolerances():
    return FairRanker(tolerance=0.005).path(**TRAIN, along="tolerance", values=[0.05, 0.01])


def test_it_prints_as_a_table(path, tolerances):
    lines = str(path).splitlines()
    assert lines[0] == "InterGroup() on 90 training queries"
    assert lines[1].split() == ["x", "AUC", "fairness", "violation", "seconds"]
    assert len(lines) == 6
    assert lines[3].split()[:2] == ["0", f"{path[0].auc:.4f}"]
    assert str(tolerances).splitlines()[1].split()[0] == "tolerance"
    assert repr(path) == "Path(along='lambda', constraint=InterGroup(), values=[0, 1, 2])"
    assert len(path) == 3


@pytest.mark.parametrize("backend", [None, "pandas", "polars", "pyarrow"])
def test_as_a_frame(path, backend):
    frame = path.to_frame(backend)
    assert frame.shape[0] == 3
    names = list(getattr(frame, "column_names", frame.columns))
    assert names[:5] == ["x", "auc", "fairness", "violation", "seconds"]
    assert "lambda[group 1, group 2]" in names
    assert path.to_dict()["lambda[group 1, group 2]"] == [
        0,
        path[1].lambda_[0, 1],
        path[2].lambda_[0, 1],
    ]


def test_frames_of_one_multiplier_per_group_and_of_tolerances(tolerances):
    marginal = FairRanker(constraint="marginal", tolerance=0.005).path(**TRAIN, values=[1])
    assert list(marginal.to_dict())[-2:] == ["lambda[group 1]", "lambda[group 2]"]
    columns = tolerances.to_dict()
    assert columns["tolerance"] == [0.05, 0.01]
    assert columns["reached"] == [True, True]


def test_it_draws_without_a_display(path, tolerances, tmp_path):
    from matplotlib import pyplot as plt

    ax = path.plot()
    utility, fairness = ax.get_lines()
    np.testing.assert_allclose(utility.get_xdata(), [0, 1, 2])
    np.testing.assert_allclose(utility.get_ydata(), [point.auc for point in path.points])
    np.testing.assert_allclose(fairness.get_ydata(), [point.fairness for point in path.points])
    assert "90 training queries" in ax.get_ylabel()
    ax.figure.savefig(tmp_path / "path.png")
    assert (tmp_path / "path.png").stat().st_size > 1000
    _, own = plt.subplots()
    assert tolerances.plot(own) is own
    assert own.get_xlabel() == "tolerance"
    assert own.xaxis_inverted()
    plt.close("all")


def test_without_matplotlib(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"pairity\[plot\]"):
        path.plot()


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"along": "x"}, "along is 'x'"),
        ({"values": []}, "values is empty"),
        ({"values": 1.0}, "list of numbers"),
        ({"values": ["a"]}, "values contains 'a'"),
        ({"values": [np.nan]}, "finite"),
        ({"along": "tolerance", "values": [-0.1]}, "-0.1; a tolerance must be at least 0"),
        ({"test": [1, 2]}, "In test: list"),
    ],
)
def test_arguments_that_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        FairRanker(tolerance=0.005).path(**TRAIN, **options)


def test_unusable_queries_are_refused(fitted):
    one_group = Queries.from_arrays(
        TEST.X, TEST.y, qid=TEST["qid"], sensitive_features=["group 1"] * TEST.n_items
    )
    with pytest.raises(ConstraintError, match="In test: "):
        fitted.path(**TRAIN, test=one_group)
    with pytest.raises(InputError, match=r"2 features.*expecting 5"):
        fitted.path(**{**TRAIN, "X": TRAIN.X[:, :2]})
    with pytest.raises(InputError, match="X"):
        fitted.path(**{**TRAIN, "X": None})
    problem = Problem(TRAIN, LinearRanker(), as_constraint("inter"))
    with pytest.raises(InputError, match=r"shape \(3,\)"):
        lambda_path(problem, np.zeros(3), [1])


def test_a_path_is_what_fair_ranker_returns(path):
    assert isinstance(path, Path)
