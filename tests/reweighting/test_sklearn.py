"""FairRanker and LinearRanker among scikit-learn's tools: its checks, routing, search, pickling."""

import pickle

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from pairity import FairRanker, InterGroup, LinearRanker, PlainStep, Queries, StatisticalParity
from pairity.datasets import make_biased_ranking

pytestmark = pytest.mark.filterwarnings("ignore::pairity.PairityWarning")

MADE = make_biased_ranking(12, 20, random_state=0)
DATA = {name: getattr(MADE, name) for name in ("X", "y", "qid", "sensitive_features")}
LABELS = {name: DATA[name] for name in ("qid", "sensitive_features")}
QUERIES = Queries.from_arrays(**DATA)


# --- scikit-learn's own checks --------------------------------------------------------------------


def queries_and_groups(X):
    """A query id and a group for each row, from the row itself, so that it may be repeated."""
    values = X.toarray() if sp.issparse(X) else np.asarray(X)
    first = np.zeros(values.shape[0] if values.ndim else 1)
    if values.ndim == 2 and values.shape[1] and values.dtype.kind in "iuf":
        first = np.nan_to_num(values[:, 0].astype(float), posinf=0.0, neginf=0.0)
    qid, group = np.floor(10 * first) % 2, np.floor(1000 * first) % 2
    if len(np.unique(group)) < 2:
        group = np.arange(len(first)) % 2
    return qid, group


class CheckedFairRanker(FairRanker):
    """FairRanker as the checks call it, with nothing but X, y and sample_weight."""

    def fit(self, X, y, sample_weight=None):
        qid, group = queries_and_groups(X)
        return super().fit(X, y, qid=qid, sensitive_features=group, sample_weight=sample_weight)

    def score(self, X, y):
        return super().score(X, y, qid=queries_and_groups(X)[0])


class CheckedLinearRanker(LinearRanker):
    """LinearRanker as the checks call it."""

    def fit(self, X, y, sample_weight=None):
        return super().fit(X, y, qid=queries_and_groups(X)[0], sample_weight=sample_weight)

    def score(self, X, y):
        return super().score(X, y, qid=queries_and_groups(X)[0])


SHARP = LinearRanker(alpha=1.0, tol=1e-9)  # some checks compare to seven digits
CHECKED = [
    CheckedLinearRanker(**SHARP.get_params()),
    CheckedFairRanker(SHARP, "statistical", tolerance=0.0, max_rounds=3),
]
EXPECTED_FAILURES: dict[str, str] = {}  # every check passes; a new failure needs its reason here


@parametrize_with_checks(CHECKED, expected_failed_checks=lambda _: EXPECTED_FAILURES)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", CHECKED, ids=lambda estimator: type(estimator).__name__)
def test_every_expected_failure_is_a_check_that_runs(estimator):
    """One that does not fail is a failure too: xfail is strict."""
    names = {check.func.__name__ for _, check in estimator_checks_generator(estimator)}
    assert len(names) > 40
    assert set(EXPECTED_FAILURES) <= names


# --- parameters -----------------------------------------------------------------------------------

MODELS = [
    FairRanker(),
    FairRanker(LinearRanker(alpha=0.1), InterGroup(average="pair"), solver=PlainStep(eta=2.0)),
    FairRanker(validation=QUERIES, random_state=0, progress=False),
    FairRanker(validation=0.25, constraint=StatisticalParity(only=[("group 1", "group 2")])),
]
each_model = pytest.mark.parametrize("model", MODELS, ids=lambda model: repr(model)[:60])


@each_model
def test_clone_has_the_same_parameters(model):
    copy = clone(model)
    assert copy is not model
    assert repr(copy) == repr(model)
    assert copy.get_params(deep=False).keys() == model.get_params(deep=False).keys()
    assert not hasattr(copy, "ranker_")


@each_model
def test_fit_leaves_the_parameters_alone(model):
    before = dict(model.get_params())
    state = pickle.dumps({name: value for name, value in before.items() if name != "validation"})
    fitted = clone(model, safe=True)
    parameters = dict(fitted.get_params())
    assert fitted.fit(**DATA) is fitted
    assert fitted.get_params().keys() == before.keys()
    assert all(fitted.get_params()[name] is value for name, value in parameters.items())
    after = {name: value for name, value in fitted.get_params().items() if name != "validation"}
    assert pickle.dumps(after) == state


def test_set_params_reaches_the_ranker():
    model = FairRanker(LinearRanker()).set_params(ranker__alpha=0.5, tolerance=0.2)
    assert model.ranker.alpha == 0.5
    assert model.tolerance == 0.2
    assert model.get_params()["ranker__alpha"] == 0.5
    assert clone(model).fit(**DATA).ranker_.alpha == 0.5


def test_the_ranker_given_is_not_fitted():
    ranker = LinearRanker()
    FairRanker(ranker, max_rounds=1).fit(**DATA)
    assert not hasattr(ranker, "coef_")


@each_model
def test_reprs(model):
    assert repr(model).startswith("FairRanker(")
    assert "FairRanker" in model._repr_html_()
    assert "FairRanker" in clone(model).fit(**DATA)._repr_html_()


@pytest.mark.parametrize("ranker", [FairRanker(), LinearRanker()], ids=repr)
def test_it_is_neither_a_classifier_nor_a_regressor(ranker):
    assert isinstance(ranker, BaseEstimator)
    assert not sklearn.base.is_classifier(ranker)
    assert not sklearn.base.is_regressor(ranker)
    tags = sklearn.utils.get_tags(ranker)
    assert tags.input_tags.sparse
    assert tags.target_tags.required


# --- routing --------------------------------------------------------------------------------------


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def routed(**parameters):
    model = FairRanker(LinearRanker(), "statistical", max_rounds=2, **parameters)
    return model.set_fit_request(qid=True, sensitive_features=True).set_score_request(qid=True)


def test_requests(routing):
    request = routed().get_metadata_routing()
    assert request.fit.requests["qid"] is True
    assert request.fit.requests["sensitive_features"] is True
    assert request.fit.requests.keys() == {
        "qid",
        "group",
        "sensitive_features",
        "sample_weight",
        "query_weight",
    }
    weights = dict.fromkeys(("group", "sample_weight", "query_weight"))
    assert request.score.requests == {"qid": True, **weights}


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_grid_search_by_query(routing, n_jobs):
    search = GridSearchCV(
        routed(),
        {"ranker__alpha": [1e-4, 10.0], "constraint": ["statistical", InterGroup()]},
        cv=GroupKFold(3),
        n_jobs=n_jobs,
        error_score="raise",
    )
    search.fit(DATA["X"], DATA["y"], **LABELS, groups=DATA["qid"])
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_.groups_ == ("group 1", "group 2")
    assert search.best_score_ == search.cv_results_["mean_test_score"].max()
    assert search.score(DATA["X"], DATA["y"], qid=DATA["qid"]) == pytest.approx(
        search.best_estimator_.score(DATA["X"], DATA["y"], qid=DATA["qid"])
    )


def test_cross_validation_is_what_it_says(routing):
    """The scores are those of models trained and scored by hand on whole queries."""
    params = {**LABELS, "groups": DATA["qid"]}
    scores = cross_val_score(routed(), DATA["X"], DATA["y"], cv=GroupKFold(3), params=params)
    by_hand = []
    for train, test in GroupKFold(3).split(DATA["X"], groups=DATA["qid"]):
        model = routed().fit(**{name: column[train] for name, column in DATA.items()})
        by_hand.append(model.score(DATA["X"][test], DATA["y"][test], qid=DATA["qid"][test]))
    np.testing.assert_allclose(scores, by_hand)


def test_in_a_pipeline(routing):
    pipeline = make_pipeline(StandardScaler(), routed())
    pipeline.fit(DATA["X"], DATA["y"], **LABELS)
    scaled = StandardScaler().fit_transform(DATA["X"])
    alone = routed().fit(**{**DATA, "X": scaled})
    np.testing.assert_allclose(pipeline.predict(DATA["X"]), alone.predict(scaled))
    assert pipeline.score(DATA["X"], DATA["y"], qid=DATA["qid"]) == pytest.approx(
        alone.score(scaled, DATA["y"], qid=DATA["qid"])
    )


def test_grid_search_over_a_pipeline(routing):
    pipeline = make_pipeline(StandardScaler(), routed())
    search = GridSearchCV(pipeline, {"fairranker__max_rounds": [0, 2]}, cv=GroupKFold(3))
    search.fit(DATA["X"], DATA["y"], **LABELS, groups=DATA["qid"])
    assert search.best_params_["fairranker__max_rounds"] in (0, 2)


def test_in_a_pipeline_without_routing():
    pipeline = make_pipeline(StandardScaler(), FairRanker(max_rounds=1))
    named = {f"fairranker__{name}": column for name, column in LABELS.items()}
    pipeline.fit(DATA["X"], DATA["y"], **named)
    assert pipeline.predict(DATA["X"]).shape == DATA["y"].shape


# --- pickling -------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickled_it_predicts_the_same(protocol):
    model = FairRanker(constraint="statistical", max_rounds=3).fit(**DATA)
    back = pickle.loads(pickle.dumps(model, protocol))  # noqa: S301
    np.testing.assert_array_equal(back.predict(DATA["X"]), model.predict(DATA["X"]))
    assert str(back.outcome_) == str(model.outcome_)
    assert str(back.pair_weights_) == str(model.pair_weights_)
    assert [r.violation for r in back.history_] == [r.violation for r in model.history_]
    assert repr(back) == repr(model)


def test_dumped_by_joblib_it_predicts_the_same(tmp_path):
    model = FairRanker(constraint="statistical", max_rounds=1).fit(**DATA)
    joblib.dump(model, tmp_path / "model.joblib")
    back = joblib.load(tmp_path / "model.joblib")
    np.testing.assert_array_equal(back.predict(DATA["X"]), model.predict(DATA["X"]))


def test_a_pickle_can_be_fitted_again():
    model = FairRanker(constraint="statistical", max_rounds=3).fit(**DATA)
    coef = model.ranker_.coef_
    again = pickle.loads(pickle.dumps(model)).fit(**DATA)  # noqa: S301
    np.testing.assert_array_equal(again.ranker_.coef_, coef)


def fit_and_return(model, data):
    return model.fit(**data)


def test_fitted_in_loky_workers():
    models = [FairRanker(constraint=name, max_rounds=2) for name in ("statistical", "inter")]
    fitted = joblib.Parallel(n_jobs=2, backend="loky")(
        joblib.delayed(fit_and_return)(clone(model), DATA) for model in models
    )
    for model, elsewhere in zip(models, fitted, strict=True):
        here = model.fit(**DATA).predict(DATA["X"])
        np.testing.assert_allclose(elsewhere.predict(DATA["X"]), here, rtol=1e-6, atol=1e-9)
