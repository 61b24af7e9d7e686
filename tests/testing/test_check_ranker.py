"""check_ranker: every ranker of pairity passes, and each broken ranker gets its own error."""
# ruff: noqa: ARG002 - rankers have the protocol's arguments, needed or not

import copy
import pickle
import threading

import numpy as np
import pytest
from scipy.special import expit
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.tree import DecisionTreeRegressor
from threadpoolctl import threadpool_limits

from pairity import InputError, LinearRanker
from pairity.exceptions import ContractError, PairityError
from pairity.pairs.losses import LambdaRank, Sampled
from pairity.rankers.catboost import CatBoostPairRanker
from pairity.rankers.lightgbm import LightGBMRanker
from pairity.rankers.regressor import RegressorRanker
from pairity.rankers.torch import TorchRanker
from pairity.rankers.xgboost import XGBoostRanker
from pairity.testing import RANKER_CHECKS, check_ranker, ranker_checks
from support import reference


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Many small fits: threads would mostly wait for each other."""
    with threadpool_limits(1):
        yield


# --- plain training, the slow way ---------------------------------------------------------------


def all_pairs(queries):
    better = (queries.query[:, None] == queries.query) & (queries.y[:, None] > queries.y)
    return np.argwhere(better).T


def logistic_by_pairs(queries):
    """An engine's custom objective on a list of pairs."""
    i, j = all_pairs(queries)

    def derivatives(scores, _data=None):
        p = expit(scores[j].astype(float) - scores[i])
        gradient, hessian = np.zeros(len(scores)), np.zeros(len(scores))
        np.add.at(gradient, i, -p)
        np.add.at(gradient, j, p)
        for at in (i, j):
            np.add.at(hessian, at, p * (1 - p))
        return gradient, hessian

    return derivatives


def lambdarank_by_pairs(queries, k):
    def derivatives(scores, _data=None):
        loss, ones = LambdaRank(k=k), np.ones((queries.n_groups, queries.n_groups))
        return reference.lambdarank(loss, scores.astype(float), queries, ones)

    return derivatives


def plain_linear(queries, alpha=1e-4):
    i, j = all_pairs(queries)
    scale = queries.X.std(axis=0)
    sign = np.where(np.arange(len(i)) % 2, 1.0, -1.0)  # both classes are needed
    differences = sign[:, None] * (queries.X[i] - queries.X[j]) / scale
    model = LogisticRegression(C=1 / (alpha * len(i)), fit_intercept=False, tol=1e-10)
    return queries.X @ (model.fit(differences, sign).coef_[0] / scale)


# --- the catalogue ------------------------------------------------------------------------------

BOOTSTRAP = {
    "row order": "rows are drawn at random, by number",
    "integer weights": "copies of a row are drawn apart",
}
BATCHES = {"integer weights": "a query and its copy are seen in different steps"}
DRAWS = {
    "unit weights": "the lower items are numbered by group, and drawn by number",
    "row order": "pairs are drawn by row",
    "integer weights": "a query and its copy draw other pairs",
}


def lightgbm(loss, lacks=(), **params):
    lgb = pytest.importorskip("lightgbm", reason="lightgbm is not installed")
    given = lgb.LGBMRanker(n_estimators=20, n_jobs=1, random_state=0, **params)

    def plain(queries):
        settings = {**params, "num_threads": 1, "verbosity": -1, "seed": 0}
        settings["objective"] = (
            lambdarank_by_pairs(queries, 30) if loss is None else logistic_by_pairs(queries)
        )
        data = lgb.Dataset(queries.X, queries.y)
        return lgb.train(settings, data, num_boost_round=20).predict(queries.X)

    has_plain = loss in (None, "logistic", "bpr")
    return LightGBMRanker(given, loss=loss), plain if has_plain else None, dict(lacks)


def xgboost(lacks=(), *, loss=None, **params):
    xgb = pytest.importorskip("xgboost", reason="xgboost is not installed")
    given = xgb.XGBRanker(n_estimators=20, n_jobs=1, random_state=0, **params)

    def plain(queries):
        data = xgb.DMatrix(queries.X, queries.y)
        settings = {"nthread": 1, "base_score": 0.0, "tree_method": "hist"}
        slow = logistic_by_pairs(queries) if params else lambdarank_by_pairs(queries, 32)

        def doubled(scores, data):  # as XGBoost's own ranking objectives have it
            gradient, hessian = slow(scores, data)
            return gradient, 2.0 * hessian

        booster = xgb.train(settings, data, 20, obj=doubled)
        return booster.predict(data, output_margin=True)

    has_plain = loss is None and params in ({}, {"objective": "rank:pairwise"})
    return XGBoostRanker(given, loss=loss), plain if has_plain else None, dict(lacks)


def catboost(lacks=(), **params):
    cb = pytest.importorskip("catboost", reason="catboost is not installed")
    params = {"iterations": 15, "thread_count": 1, "random_seed": 0, **params}

    def plain(queries):
        quiet = {"loss_function": "PairLogit", "logging_level": "Silent"}
        model = cb.CatBoostRanker(**params, **quiet, allow_writing_files=False)
        pool = cb.Pool(queries.X, queries.y, group_id=queries.query)
        return model.fit(pool).predict(queries.X)

    return CatBoostPairRanker(cb.CatBoostRanker(**params)), None if lacks else plain, dict(lacks)


def torch_module(lacks=(), **params):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)
        ).double()

    def plain(queries):
        i, j = map(torch.as_tensor, all_pairs(queries))
        X = torch.as_tensor((queries.X - queries.X.mean(axis=0)) / queries.X.std(axis=0))
        module = copy.deepcopy(net)
        optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
        for _ in range(params["epochs"]):
            optimizer.zero_grad()
            scores = module(X)[:, 0]
            torch.nn.functional.softplus(scores[j] - scores[i]).mean().backward()
            optimizer.step()
        return module(X)[:, 0].detach().numpy()

    ranker = TorchRanker(net, random_state=0, **params)
    return ranker, None if lacks else plain, dict(lacks)


def newton(regressor, **params):
    return RegressorRanker(regressor, **params), None, {}


CATALOGUE = {
    "linear": lambda: (LinearRanker(), plain_linear, {}),
    "linear with a margin": lambda: (LinearRanker(margin=4.0), None, {}),
    "lightgbm": lambda: lightgbm("logistic"),
    "lightgbm lambdarank": lambda: lightgbm(None),
    "lightgbm hinge": lambda: lightgbm("hinge"),
    "lightgbm bpr": lambda: lightgbm("bpr"),
    "lightgbm three draws": lambda: lightgbm(Sampled(n_pairs=3), DRAWS),
    "lightgbm dart": lambda: lightgbm("logistic", boosting_type="dart"),
    "lightgbm bagging": lambda: lightgbm(
        "logistic", BOOTSTRAP, subsample=0.7, subsample_freq=1, min_child_samples=5
    ),
    "xgboost rank:pairwise": lambda: xgboost(objective="rank:pairwise"),
    "xgboost rank:ndcg": lambda: xgboost(),
    "xgboost hinge": lambda: xgboost(loss="hinge"),
    "xgboost exact": lambda: xgboost(objective="rank:pairwise", tree_method="exact"),
    "xgboost approx": lambda: xgboost(objective="rank:pairwise", tree_method="approx"),
    "xgboost dart": lambda: xgboost(objective="rank:pairwise", booster="dart", rate_drop=0.2),
    "catboost": lambda: catboost(bootstrap_type="No", random_strength=0),
    "catboost bootstrap": lambda: catboost(BOOTSTRAP),
    "torch": lambda: torch_module(epochs=20, batch_queries=None, decay=False),
    "torch batches": lambda: torch_module(BATCHES, epochs=2, learning_rate=0.05),
    "newton ridge": lambda: newton(Ridge(), n_estimators=10),
    "newton boosting": lambda: newton(
        HistGradientBoostingRegressor(max_iter=4, random_state=0), n_estimators=4
    ),
    "newton tree": lambda: newton(
        DecisionTreeRegressor(max_depth=3, random_state=0), n_estimators=8
    ),
}


@pytest.mark.parametrize("name", RANKER_CHECKS)
@pytest.mark.parametrize("model", CATALOGUE)
def test_rankers_of_pairity(model, name):
    ranker, plain, lacks = CATALOGUE[model]()
    if name in lacks:
        with pytest.raises(ContractError, match="scores differ"):
            RANKER_CHECKS[name](ranker)
    else:
        RANKER_CHECKS[name](ranker, plain=plain)


def test_models_are_wrapped():
    for model in (None, DecisionTreeRegressor(max_depth=3, random_state=0)):
        RANKER_CHECKS["learns"](model)


# --- a third party's ranker, and ways to get it wrong -------------------------------------------


class Small(BaseEstimator):
    """A linear ranker that knows nothing of pairity but the protocol; slow and obvious."""

    def __init__(self, alpha=0.01):
        self.alpha = alpha

    def fit_pairs(self, queries, table, *, previous=None):
        i, j = self.pairs(queries)
        weight = self.weigh(queries, table, i, j)
        self.coef_ = self.solve(queries.X[i] - queries.X[j], weight, previous)
        return self

    def predict(self, X):
        return X @ self.coef_

    def pairs(self, queries):
        return all_pairs(queries)

    def weigh(self, queries, table, i, j):
        weight = self.pad(table)[queries.group[i], queries.group[j]]
        if queries.query_weight is not None:
            weight = weight * queries.query_weight[queries.query[i]]
        if queries.item_weight is not None:
            weight = weight * queries.item_weight[i] * queries.item_weight[j]
        return weight

    def pad(self, table):
        return np.pad(table, (0, 1), constant_values=1.0)

    def solve(self, differences, weight, previous):
        return self.newton(differences, weight / weight.sum(), np.zeros(differences.shape[1]))

    def newton(self, differences, weight, coef, n_steps=8):
        for _ in range(n_steps):
            p = expit(-differences @ coef)
            gradient = self.alpha * coef - differences.T @ (weight * p)
            hessian = differences.T @ (differences * (weight * p * (1 - p))[:, None])
            coef = coef - np.linalg.solve(hessian + self.alpha * np.eye(len(coef)), gradient)
        return coef


class UpsideDown(Small):
    def predict(self, X):
        return -X @ self.coef_


class FitOfItsOwn(Small):
    def fit(self, X, y, *, qid):
        self.coef_ = np.linalg.lstsq(X, y)[0]
        return self


class SumsTheLoss(Small):
    def solve(self, differences, weight, previous):
        return self.newton(differences, 0.001 * weight, np.zeros(differences.shape[1]))


class IgnoresTheTable(Small):
    def pad(self, table):
        return np.ones((len(table) + 1, len(table) + 1))


class TurnsTheTable(Small):
    def pad(self, table):
        return super().pad(table).T


class SquaresWeights(Small):
    def weigh(self, queries, table, i, j):
        return super().weigh(queries, table, i, j) ** 2


class CountsZeros(Small):
    def solve(self, differences, weight, previous):
        relative = 0.001 * weight / weight.mean()
        return self.newton(differences, relative, np.zeros(differences.shape[1]))


class DropsItemWeights(Small):
    def weigh(self, queries, table, i, j):
        weight = self.pad(table)[queries.group[i], queries.group[j]]
        by_query = queries.query_weight
        return weight if by_query is None else weight * by_query[queries.query[i]]


class DropsTheUnknown(Small):
    def pad(self, table):
        return np.pad(table, (0, 1), constant_values=0.0) if len(table) else np.ones((1, 1))


class ReadsRunsOfRows(Small):
    def pairs(self, queries):
        run = np.cumsum(np.r_[True, queries.query[1:] != queries.query[:-1]])
        better = (run[:, None] == run) & (queries.y[:, None] > queries.y)
        return np.argwhere(better).T


class NoParameters:
    fit_pairs, predict, pairs, weigh = Small.fit_pairs, Small.predict, Small.pairs, Small.weigh
    pad, solve, newton = Small.pad, Small.solve, Small.newton
    alpha = 0.01


class LearnsInTheClass(Small):
    def fit_pairs(self, queries, table, *, previous=None):
        type(self).learnt = super().fit_pairs(queries, table).coef_
        return self

    def predict(self, X):
        return X @ self.learnt


class GrowsAParameter(Small):
    def __init__(self, alpha=0.01, seen=None):
        self.alpha = alpha
        self.seen = [] if seen is None else seen

    def fit_pairs(self, queries, table, *, previous=None):
        self.seen.append(queries.n_items)
        return super().fit_pairs(queries, table)


class FitsWhatItWasGiven(Small):
    def __init__(self, alpha=0.01, regressor=None):
        self.alpha = alpha
        self.regressor = regressor

    def fit_pairs(self, queries, table, *, previous=None):
        self.regressor.fit(queries.X, queries.y)
        return super().fit_pairs(queries, table)


class WritesToTheTable(Small):
    def fit_pairs(self, queries, table, *, previous=None):
        super().fit_pairs(queries, table)
        table *= 2.0
        return self


class ReturnsNothing(Small):
    def fit_pairs(self, queries, table, *, previous=None):
        super().fit_pairs(queries, table)


class StopsEarly(Small):
    def solve(self, differences, weight, previous):
        start = np.zeros(differences.shape[1]) if previous is None else previous.coef_
        return self.newton(differences, weight / weight.sum(), start, n_steps=1)


class TakesOver(Small):
    def solve(self, differences, weight, previous):
        coef = super().solve(differences, weight, previous)
        if previous is None:
            return coef
        previous.coef_[:] = coef
        return previous.coef_


class CentresScores(Small):
    def predict(self, X):
        return super().predict(X) - super().predict(X).mean()


class HalfPrecision(Small):
    def predict(self, X):
        return super().predict(X).astype(np.float32)


class RemembersRows(Small):
    def fit_pairs(self, queries, table, *, previous=None):
        super().fit_pairs(queries, table)
        self.scores_ = super().predict(queries.X)
        return self

    def predict(self, X):
        return self.scores_[: len(X)]


class DrawsAnywhere(Small):
    def solve(self, differences, weight, previous):
        drawn = weight * (np.random.random(len(weight)) < 0.9)  # noqa: NPY002
        return super().solve(differences, drawn, previous)


class LeavesAMess(Small):
    def fit_pairs(self, queries, table, *, previous=None):
        kept = queries.cached("a mess", None, dict)
        busy = kept.get("busy", False)
        kept["busy"] = True
        super().fit_pairs(queries, table)
        if busy:
            self.coef_ = 0.5 * self.coef_
        kept["busy"] = False
        return self


class BorrowsTheFirst(Small):
    def fit_pairs(self, queries, table, *, previous=None):
        if previous is not None:
            coef, previous.coef_ = previous.coef_, np.zeros(4)
        super().fit_pairs(queries, table)
        if previous is not None:
            previous.coef_ = coef
        return self


class CannotBeStopped(Small):
    def fit_pairs(self, queries, table, *, previous=None):
        while True:
            try:
                return super().fit_pairs(queries, table)
            except KeyboardInterrupt:
                continue


class FollowsNothing(Small):
    def fit_following(self, queries, follow, *, measured_on=None):
        return self.fit_pairs(queries, np.ones((queries.n_groups, queries.n_groups)))


class ForetellsTheOpposite(Small):
    def response(self, queries, table):
        k = queries.n_groups
        cells = np.eye(k * k).reshape(-1, k, k)
        moved = [self._at(queries, table - 0.1 * cell) for cell in cells]
        directions = (np.array(moved) - self._at(queries, table)) / 0.1
        observed = np.eye(k * k).reshape(k, k, -1)
        return directions, np.stack([observed, np.zeros_like(observed)])

    def _at(self, queries, table):
        return type(self)(self.alpha).fit_pairs(queries, table).predict(queries.X)


class HoldsALock(Small):
    def fit_pairs(self, queries, table, *, previous=None):
        self.lock_ = threading.Lock()
        return super().fit_pairs(queries, table)


BROKEN = [
    (UpsideDown(), {"learns", "weights matter"}, "the AUC is 0.[0-3]"),
    (FitOfItsOwn(), {"unit weights"}, "fit_pairs with ones against fit"),
    (SumsTheLoss(), {"scale", "weights multiply"}, "Divide the weights by their mean"),
    (
        IgnoresTheTable(), {"weights matter", "zero weights", "weights multiply"},
        "Multiply the loss of a pair by table",
    ),
    (
        TurnsTheTable(), {"weights matter", "integer weights", "zero weights", "weights multiply"},
        "Multiply the loss of a pair by table",
    ),
    (SquaresWeights(), {"integer weights"}, "not by a power"),
    (CountsZeros(), {"zero weights"}, "no such pairs.*every count"),
    (DropsItemWeights(), {"weights multiply"}, "of a cell and of its items"),
    (DropsTheUnknown(), {"missing groups"}, "have weight 1: see `Queries.pad`"),
    (ReadsRunsOfRows(), {"row order"}, "shuffled rows.*need not be contiguous"),
    (NoParameters(), {"clone"}, "no get_params"),
    (LearnsInTheClass(), {"clone", "previous", "interruption"}, "predicts before it is fitted"),
    (GrowsAParameter(), {"parameters"}, "its parameters: seen"),
    (FitsWhatItWasGiven(regressor=Ridge()), {"parameters"}, "regressor, now fitted"),
    (WritesToTheTable(), {"parameters"}, "changed the features or the table"),
    (ReturnsNothing(), {"parameters"}, "return self"),
    (StopsEarly(), {"previous", "interruption"}, "with and without a previous fit"),
    (TakesOver(), {"previous", "interruption"}, "Copy what you start from"),
    (CentresScores(), {"predict"}, "Score each row by itself"),
    (HalfPrecision(), {"predict"}, "predict returned float32"),
    (RemembersRows(), {"predict"}, "the same rows reversed"),
    (LeavesAMess(), {"interruption"}, "interrupted at its call.*finally"),
    (BorrowsTheFirst(), {"interruption"}, "the first model scores differently"),
    (CannotBeStopped(), {"interruption"}, "no fit raised KeyboardInterrupt"),
    (FollowsNothing(), {"following"}, "Let both train in the same way"),
    (ForetellsTheOpposite(), {"response"}, "or no response"),
    (HoldsALock(), {"FairRanker"}, "raised TypeError: cannot pickle"),
]  # fmt: skip


def test_a_ranker_that_does_not_import_pairity():
    check_ranker(Small(), rtol=1e-6)


@pytest.mark.parametrize(
    ("ranker", "properties", "message"), BROKEN, ids=lambda value: type(value).__name__
)
def test_broken_rankers_fail_with_advice(ranker, properties, message):
    with pytest.raises(ContractError, match=message) as caught:
        check_ranker(ranker)
    assert set(caught.value.properties) == properties
    for name in properties:
        with pytest.raises(ContractError, match=f"^{type(ranker).__name__} fails '{name}': "):
            RANKER_CHECKS[name](ranker)


def test_a_ranker_without_a_seed():
    with pytest.raises(ContractError, match=r"fails 'seed': the same fit twice.*random_state"):
        RANKER_CHECKS["seed"](DrawsAnywhere())


def test_every_property_can_fail():
    assert set().union(*(names for _, names, _ in BROKEN)) | {"seed"} == set(RANKER_CHECKS)


# --- the checks themselves ----------------------------------------------------------------------


def test_one_failure_and_several():
    with pytest.raises(ContractError, match=r"^SquaresWeights fails 'integer weights'") as one:
        check_ranker(SquaresWeights())
    with pytest.raises(ContractError, match=r"^2 of 18 properties fail.\n- Ups") as two:
        check_ranker(UpsideDown())
    assert one.value.properties == ("integer weights",)
    assert two.value.properties == ("learns", "weights matter")
    assert isinstance(one.value, AssertionError)
    assert isinstance(one.value, PairityError)
    check_ranker(UpsideDown(), skip=two.value.properties)
    read = pickle.loads(pickle.dumps(two.value))  # noqa: S301
    assert (str(read), read.properties) == (str(two.value), two.value.properties)


def test_checks_one_by_one():
    checks = dict(ranker_checks(NoParameters(), skip="clone"))
    assert list(checks) == [name for name in RANKER_CHECKS if name != "clone"]
    for check in checks.values():
        check()
    notes = check_ranker.__doc__.split("Notes")[1]
    for name, check in RANKER_CHECKS.items():
        assert f"\n    {name}\n" in notes
        assert check.__doc__


def test_arguments_are_checked():
    with pytest.raises(InputError, match=r"skip must be .*'row order'.*\(got 'order'"):
        check_ranker(Small(), skip=["order"])
    with pytest.raises(InputError, match="is not a ranker"):
        check_ranker(object())


def test_plain_training_that_differs():
    with pytest.raises(ContractError, match="against the plain training"):
        check_ranker(Small(), plain=lambda queries: queries.y)


def test_the_tolerance_is_a_share_of_the_spread():
    with pytest.raises(ContractError, match=r"of their spread \(rtol is 1e-14\)"):
        check_ranker(LinearRanker(), rtol=1e-14)


def test_nothing_global_is_left_behind():
    import random
    import sys

    before = np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    profile, hook = sys.getprofile(), sys.unraisablehook
    check_ranker(Small())
    assert (np.random.get_state()[1].tolist(), random.getstate()) == before  # noqa: NPY002
    assert (sys.getprofile(), sys.unraisablehook) == (profile, hook)
