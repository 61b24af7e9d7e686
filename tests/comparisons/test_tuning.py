"""Tuning: the same trials for everybody, held-out queries, one rule."""

from functools import partial

import numpy as np
import pytest
from scipy.stats import loguniform, randint, uniform

from pairity import FairRanker, InputError, LinearRanker, audit
from pairity.baselines.methods import Method, Rankings, as_method
from pairity.comparisons.catalogue import METHODS
from pairity.comparisons.sweeps import sweep
from pairity.comparisons.tuning import draw_settings, tune, tune_all, tuned
from pairity.data.splits import query_folds
from pairity.datasets import make_biased_ranking
from pairity.exceptions import PairityWarning, TargetNotReachedWarning

QUERIES = make_biased_ranking(60, 12, strength=2, separation=2, random_state=0).queries()
SPACES = {name: entry.paper_range for name, entry in METHODS.items()}
RULE = {"constraint": "statistical", "epsilon": 0.6, "n_resamples": 50}


def hand(weight=1.0, *, name="hand", seen=None, shift=0.0):
    """The first feature times a weight, plus the second."""

    def fit(train, seed):
        if seen is not None:
            seen.append((weight, seed, frozenset(train.query_ids.tolist())))
        return lambda queries: weight * queries.X[:, 0] + queries.X[:, 1]

    return Method(name, fit, False, {})


# --- which settings are tried ---------------------------------------------------------------------


def test_a_grid_is_everything():
    assert draw_settings({"a": [1, 2], "b": ["x", "y"]}, "grid", 4, 0) == [
        {"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"}, {"a": 2, "b": "y"},
    ]  # fmt: skip
    assert draw_settings([{"a": [1, 2]}, {"b": np.arange(2)}], "grid", 4, 0) == [
        {"a": 1}, {"a": 2}, {"b": 0}, {"b": 1},
    ]  # fmt: skip
    assert draw_settings({}, "grid", 4, 0) == [{}]
    assert draw_settings({"a": [1, 1, 2]}, "grid", 2, 0) == [{"a": 1}, {"a": 2}]


def test_random_search_draws_as_many_as_the_budget_and_none_twice():
    drawn = draw_settings({"a": loguniform(0.01, 1), "b": [1, 2]}, "random", 30, 0)
    assert len(drawn) == 30
    assert all(0.01 <= entry["a"] <= 1 for entry in drawn)
    assert drawn == draw_settings({"a": loguniform(0.01, 1), "b": [1, 2]}, "random", 30, 0)
    assert drawn != draw_settings({"a": loguniform(0.01, 1), "b": [1, 2]}, "random", 30, 1)
    integers = draw_settings({"a": randint(0, 6)}, "random", 6, 0)
    assert sorted(entry["a"] for entry in integers) == [0, 1, 2, 3, 4, 5]
    listed = draw_settings({"a": list(range(100))}, "random", 5, 0)
    assert len({entry["a"] for entry in listed}) == 5
    assert draw_settings({"a": [1, 2]}, "random", 5, 0) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    ("space", "search", "budget", "facts"),
    [
        ({"a": [1, 2, 3]}, "grid", 2, "3 settings, but the budget is 2"),
        ({"a": uniform()}, "grid", 2, "'a' is a distribution"),
        ({"a": [1]}, "bayes", 2, "search must be .* 'random'.*'bayes'"),
        ({"a": [1]}, "grid", 0, r"budget must be .* \(got 0"),
        ({"a": [1]}, "grid", True, r"budget must be .* \(got True"),
        ({"a": []}, "grid", 2, "values of 'a'"),
        ({"a": "text"}, "grid", 2, "values of 'a'"),
        ({1: [1]}, "grid", 2, "not a mapping from names"),
        (3, "grid", 2, "The space is 3"),
        ([], "grid", 2, "The space is"),
    ],
)
def test_what_cannot_be_searched(space, search, budget, facts):
    with pytest.raises(InputError, match=facts):
        draw_settings(space, search, budget, 0)


# --- on held-out queries --------------------------------------------------------------------------


def test_folds_hold_every_query_once():
    folds = query_folds(11, 3, 0)
    assert sorted(np.concatenate(folds)) == list(range(11))
    assert sorted(map(len, folds)) == [3, 4, 4]
    for n in (1, 12):
        with pytest.raises(InputError, match=f"{n} folds of 11 queries"):
            query_folds(11, n, 0)


def test_a_share_is_held_out_by_query():
    seen = []
    best = tune(partial(hand, seen=seen), {"weight": [0.5, 1.0]}, QUERIES, cv=0.2, **RULE)
    assert [len(ids) for _, _, ids in seen] == [48, 48]
    assert seen[0][2] == seen[1][2]  # the same split for all
    rest, held_out = QUERIES.split(0.2, 0)
    assert seen[0][2] == set(rest.query_ids.tolist())
    want = audit(held_out, 0.5 * held_out.X[:, 0] + held_out.X[:, 1], n_resamples=0)
    estimates = best.trials.points[0].validation
    assert estimates["statistical"].value == pytest.approx(want.violation["statistical"])
    assert estimates["auc"].value == pytest.approx(want.auc)
    assert best.trials.points[0].test == {}


def test_cross_validation_orders_every_query_by_the_fit_that_did_not_see_it():
    seen = []

    def make(weight):
        def fit(train, seed):
            ids = set(train.query_ids.tolist())
            seen.append(ids)

            def score(queries):
                assert not ids & set(queries.query_ids.tolist())
                return weight * queries.X[:, 0] + len(ids) * queries.X[:, 1]

            return score

        return Method("m", fit)

    best = tune(make, {"weight": [30.0]}, QUERIES, cv=3, **RULE)
    assert [len(ids) for ids in seen] == [40, 40, 40]
    estimates = best.trials.points[0].validation
    want = audit(QUERIES, 30 * QUERIES.X[:, 0] + 40 * QUERIES.X[:, 1], n_resamples=50)
    assert estimates["auc"].value == pytest.approx(want.auc)
    assert estimates["auc"].n_queries == 60
    estimate = want.estimate("violation", constraint="statistical")
    assert estimates["statistical"].low == pytest.approx(estimate.low)


def test_folds_of_rankings_are_pooled():
    def make(n):
        def fit(train, seed):
            def score(queries):
                k = 1 + (0 in queries.query_ids)  # folds with one ranking, and with two
                scores = np.tile(queries.X[:, :1], (1, k))
                return Rankings(scores, np.full((queries.n_queries, k), 1 / k))

            return score

        return Method("m", fit)

    best = tune(make, {"n": [1]}, QUERIES, cv=4, **{**RULE, "epsilon": 0.9})
    want = audit(QUERIES, QUERIES.X[:, 0], n_resamples=0)
    estimates = best.trials.points[0].validation
    assert estimates["auc"].value == pytest.approx(want.auc)
    assert estimates["statistical"].value == pytest.approx(want.violation["statistical"])


def test_given_validation_queries():
    train, held_out = QUERIES.split(0.5, random_state=3)
    seen = []
    best = tune(partial(hand, seen=seen), {"weight": [1.0]}, train, cv=held_out, **RULE)
    assert seen[0][2] == set(train.query_ids.tolist())
    assert best.trials.points[0].validation["auc"].n_queries == held_out.n_queries


# --- the choice -----------------------------------------------------------------------------------


def test_the_choice_is_that_of_the_rule():
    space = {"weight": [-2.0, -0.5, 0.0, 0.5, 2.0]}
    best = tune(hand, space, QUERIES, cv=3, **RULE)
    assert best.choice.point.label == f"hand(weight={best.settings['weight']})"
    assert best.method.settings == best.settings
    picked = best.trials.pick("statistical", 0.6)
    assert picked.point is best.choice.point
    assert picked.bound == best.choice.bound <= 0.6
    assert "most accurate" in str(best)
    plain = tune(hand, space, QUERIES, cv=3, **{**RULE, "confidence": None, "rule": "fairest"})
    least = min(p.validation["statistical"].value for p in plain.trials.points)
    assert plain.choice.bound == least


def test_none_within_the_limit_is_warned_of():
    options = {**RULE, "epsilon": 0.0}
    with pytest.warns(TargetNotReachedWarning, match="The closest of 3 is hand"):
        best = tune(hand, {"weight": [0.1, 1.0, 2.0]}, QUERIES, cv=3, **options)
    assert best.choice.point is None
    assert best.settings == {"weight": best.choice.closest.settings["weight"]}


def test_settings_that_make_the_same_method_are_tried_once():
    def make(weight=1.0):
        return Method("hand", hand(weight).fit, False, {"weight": weight})

    best = tune(make, [{}, {"weight": [1.0, 2.0]}], QUERIES, **RULE)
    assert [point.settings for point in best.trials.points] == [{"weight": 1.0}, {"weight": 2.0}]


def test_a_failing_trial_is_left_out():
    def make(weight):
        if weight == 1.0:
            return Method("hand", lambda train, seed: 1 / 0)
        return hand(weight)

    with pytest.warns(PairityWarning, match="1 of 2 runs failed.*ZeroDivisionError"):
        best = tune(make, {"weight": [1.0, 2.0]}, QUERIES, **RULE)
    assert best.settings == {"weight": 2.0}


def test_tuning_goes_on_from_what_is_on_disk(tmp_path):
    for cv in (3, 0.2):
        seen = []
        for _ in range(2):
            best = tune(partial(hand, seen=seen), {"weight": [1.0, 2.0]}, QUERIES, cv=cv,
                        directory=tmp_path, **RULE)  # fmt: skip
        assert len(seen) == (6 if cv == 3 else 2)
        assert len(best.trials.runs) == 2


# --- everybody alike ------------------------------------------------------------------------------


def test_every_method_has_the_same_budget_split_and_rule():
    seen = {"one": [], "two": []}
    makers = {
        name: (partial(hand, seen=seen[name]), {"weight": uniform(0, high)})
        for name, high in (("one", 1), ("two", 3))
    }
    best = tune_all(makers, QUERIES, search="random", budget=4, cv=0.3, **RULE)
    assert {name: len(entry.trials.points) for name, entry in best.items()} == {"one": 4, "two": 4}
    assert best["one"].method.name == "one"
    assert {ids for _, _, ids in seen["one"]} == {ids for _, _, ids in seen["two"]}
    assert best["one"].choice.epsilon == best["two"].choice.epsilon
    made = sweep([entry.method for entry in best.values()], QUERIES, n_resamples=0)
    assert made.methods == ("one", "two")


def test_a_method_that_tunes_itself():
    seen = []
    method = tuned(partial(hand, seen=seen), {"weight": [0.5, 2.0]}, cv=0.25, **RULE)
    assert (method.name, method.needs_group) == ("hand", False)
    made = sweep(method, QUERIES, 0.2, seeds=(0, 1), n_resamples=0)
    assert [len(ids) for _, _, ids in seen] == [36, 36, 48] * 2  # two trials, then all 48
    assert [seed for _, seed, _ in seen] == [0] * 3 + [1] * 3
    assert len(made.points) == 1
    assert made.points[0].settings["epsilon"] == 0.6
    assert "0.5" in made.points[0].settings["space"]
    with pytest.raises(InputError, match="seed of the fit is the random_state"):
        tuned(hand, {"weight": [1.0]}, random_state=3, **RULE)
    of_draws = tuned(hand, {"weight": uniform(0, 1)}, search="random", budget=2, **RULE)
    assert "uniform(0, 1)" in of_draws.settings["space"]


# --- the paper's ranges ---------------------------------------------------------------------------


def test_the_spaces_of_the_paper():
    assert SPACES["reweighted"]["max_rounds"] == [10, 20, 30, 40, 50]
    assert [step.eta for step in SPACES["reweighted"]["solver"]] == [1.0]
    assert min(SPACES["item weights"]["max_rounds"]) == 50
    assert max(SPACES["item weights"]["max_rounds"]) == 100
    assert np.allclose(np.diff(SPACES["exposure lp"]["slack"]), 0.10)
    assert np.allclose(np.diff(SPACES["lagrangian"]["slack"]), 0.05)


def test_spaces_fit_their_methods():
    from pairity.baselines.correlation_penalty import correlation_penalty
    from pairity.baselines.exposure_lp import exposure_lp
    from pairity.baselines.item_weights import item_weights
    from pairity.baselines.lagrangian import lagrangian

    made = {
        "reweighted": partial(as_method, FairRanker()), "item weights": item_weights,
        "exposure lp": exposure_lp, "lagrangian": lagrangian,
        "correlation penalty": correlation_penalty,
        "plain": partial(as_method, LinearRanker()),
    }  # fmt: skip
    assert set(made) == set(SPACES)
    for name, make in made.items():
        trials = draw_settings(SPACES[name], "grid", 20, 0)
        assert {make(**settings).name for settings in trials} == {name}


def test_the_default_space_is_the_papers():
    easy = {**RULE, "epsilon": 0.9}
    best = tune(partial(as_method, LinearRanker()), None, QUERIES, **easy)
    assert best.settings == {}
    model = FairRanker(constraint="statistical", tolerance=0.3)
    best = tune(partial(as_method, model), None, QUERIES, **easy)
    assert len(best.trials.points) == 5
    assert best.settings["max_rounds"] in (10, 20, 30, 40, 50)
    assert tune(hand, "plain", QUERIES, **easy).settings == {}
    with pytest.raises(InputError, match="no space for 'hand'"):
        tune(hand, None, QUERIES, **RULE)
    with pytest.raises(InputError, match="settings to try are unknown"):
        tune(lambda weight: hand(weight), None, QUERIES, **RULE)


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ({"make": 3}, r"make must be a function .* \(got 3"),
        ({"make": lambda weight: 3}, r"make must return a Method \(got 3"),
        ({"space": {"wait": [1]}}, "make does not take"), ({"cv": 1}, "1 folds of 60"),
        ({"cv": 1.5}, r"cv must be .* \(got 1.5"), ({"cv": True}, "cv is True"),
        ({"epsilon": -1}, "epsilon must be"),
        ({"constraint": ["inter", "intra"]}, "Pass one to tune by"),
        ({"rule": "best"}, "rule must be .*'best'"),
        ({"utility": "map"}, "utility must be .*'map'"),
    ],
)  # fmt: skip
def test_what_tuning_refuses(change, facts):
    arguments = {"make": hand, "space": {"weight": [1.0]}, "train": QUERIES, **RULE, **change}
    with pytest.raises(InputError, match=facts):
        tune(**arguments)
    with pytest.raises(InputError, match="no methods"):
        tune_all({}, QUERIES, **RULE)
