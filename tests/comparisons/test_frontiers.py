"""Frontiers: sweeps that can be resumed, averages over seeds, Pareto fronts, the rule to pick."""

import json
import sys
from dataclasses import fields
from math import sqrt

import numpy as np
import pytest
from scipy import stats

from pairity import FairRanker, InputError, LinearRanker, Queries, StatisticalParity, audit
from pairity.audits.estimates import Estimate
from pairity.baselines.methods import Method, Rankings, as_method
from pairity.comparisons.frontiers import Frontier
from pairity.comparisons.plots import save_plot
from pairity.comparisons.runs import Run
from pairity.comparisons.selection import Verdict
from pairity.comparisons.sweeps import sweep
from pairity.datasets import make_biased_ranking
from pairity.exceptions import MissingExtraError, PairityWarning, TargetNotReachedWarning

QUERIES = make_biased_ranking(60, 12, strength=2, separation=2, random_state=0).queries()


def by_hand(
    name="hand", *, weight=1.0, calls=None, fail_at=None, error=KeyboardInterrupt, **settings
):
    """The first feature times a weight, plus the second; counts its fits, and may end one."""

    def fit(train, seed):
        if calls is not None:
            calls.append((name, weight, seed))
            if len(calls) == fail_at:
                raise error("no luck")
        return lambda queries: weight * queries.X[:, 0] + queries.X[:, 1]

    return Method(name, fit, False, {"weight": weight, **settings})


# --- figures made by hand -------------------------------------------------------------------------


def run(method, auc, violation, *, seed=0, resampled=None, n_queries=1000, **settings):
    """A run whose test and validation figures are the same."""
    shared = {"n_queries": n_queries, "n_items": 10 * n_queries, "n_pairs": 100 * n_queries}
    estimates = {
        "auc": Estimate("auc", auc, auc - 0.02, auc + 0.02, **shared),
        "ndcg@10": Estimate("ndcg@10", 1 - auc, **shared),
        "inter": Estimate("violation", violation, constraint="inter", **shared),
    }
    resampled = {} if resampled is None else {"inter": tuple(resampled)}
    return Run(method, settings, seed, False, 0.5, dict(estimates), dict(estimates), resampled)


def failed(method, *, seed=0, **settings):
    return Run(method, settings, seed, error="ValueError: no luck")


def frontier(*runs, **options):
    return Frontier(tuple(runs), ("inter",), **options)


def labels(points):
    return [point.label for point in points]


# --- the Pareto front -----------------------------------------------------------------------------


def test_the_front_of_points_made_by_hand():
    made = frontier(
        run("a", 0.80, 0.30), run("b", 0.78, 0.20), run("c", 0.77, 0.25), run("d", 0.78, 0.10),
        run("e", 0.60, 0.05), run("f", 0.59, 0.05), run("g", 0.90, float("nan")), failed("h"),
    )  # fmt: skip
    # c loses to b in both; b is as useful as d, but less fair; f is as fair as e, but less useful
    assert labels(made.front("inter")) == ["a()", "d()", "e()"]
    rows = {row["method"]: row["front_inter"] for row in made.rows()}
    assert rows == dict.fromkeys("abcdefgh", False) | {"a": True, "d": True, "e": True}
    # by the other utility, which is 1 less the AUC
    assert labels(made.front("inter", "ndcg@10")) == ["f()"]


def test_equal_points_are_both_on_the_front():
    made = frontier(run("a", 0.7, 0.1), run("b", 0.7, 0.1), run("c", 0.7, 0.2))
    assert labels(made.front("inter")) == ["a()", "b()"]


def test_the_front_compares_means_over_seeds():
    made = frontier(
        run("a", 0.70, 0.10), run("a", 0.90, 0.30, seed=1),  # on average 0.8, 0.2
        run("b", 0.79, 0.21), run("b", 0.79, 0.21, seed=1),
        run("c", 0.95, 0.01), failed("c", seed=1),  # not compared on other splits
    )  # fmt: skip
    assert labels(made.front("inter")) == ["a()"]
    assert made.points[2].test == {}
    assert made.points[2].errors == ("ValueError: no luck",)


def test_averages_over_seeds():
    runs = [run("a", auc, 0.1, seed=seed) for seed, auc in enumerate((0.70, 0.72, 0.80))]
    mean, spread = (0.70 + 0.72 + 0.80) / 3, np.std([0.70, 0.72, 0.80], ddof=1)
    t = stats.t.ppf(0.975, 2)
    estimate = frontier(*runs).points[0].test["auc"]
    assert estimate.value == pytest.approx(mean)
    # the same queries for all seeds: intervals of ± 0.02, and t over seeds, in quadrature
    half = sqrt(0.02**2 + t**2 * spread**2 / 3)
    assert (estimate.low, estimate.high) == pytest.approx((mean - half, mean + half))
    # a split for each seed, one test query for four training queries
    estimate = frontier(*runs, test_ratio=0.25).points[0].test["auc"]
    half = t * spread * sqrt(1 / 3 + 0.25)
    assert (estimate.low, estimate.high) == pytest.approx((mean - half, min(mean + half, 1.0)))
    assert frontier(runs[0]).points[0].test["auc"].low == pytest.approx(0.68)
    # seeds that agree by chance do not make it narrower than the queries do
    runs = [run("a", 0.7, 0.1, seed=seed) for seed in range(3)]
    estimate = frontier(*runs, test_ratio=0.25).points[0].test["auc"]
    assert estimate.high == pytest.approx(0.7 + 0.02 * sqrt(1 / 3 + 0.25))


# --- the rule -------------------------------------------------------------------------------------

EVEN = np.linspace(-0.05, 0.05, 1001)  # the 95th percentile is 0.045 above the middle


def test_the_rule_on_figures_made_by_hand():
    made = frontier(
        run("wild", 0.9, 0.08, resampled=0.08 + EVEN),
        run("good", 0.8, 0.05, resampled=0.05 + EVEN),
        run("fair", 0.7, 0.02, resampled=0.02 + EVEN),
        failed("gone"),
    )
    choice = made.pick("inter", 0.1)  # 0.08 + 0.045 is above, 0.05 + 0.045 is within
    assert choice.verdict is Verdict.CHOSEN
    assert choice.point.label == "good()"
    assert choice.bound == pytest.approx(0.095, abs=5e-4)
    assert [point.method for point, _ in choice.bounds] == ["fair", "good", "wild"]
    assert "good() is the most accurate of 2 points out of 3" in str(choice)
    assert "on 1000 validation queries" in str(choice)
    assert made.pick("inter", 0.1, rule="fairest").point.label == "fair()"
    assert made.pick("inter", 0.1, confidence=None).point.label == "wild()"
    assert made.pick("inter", 0.1, confidence=0.5).point.label == "wild()"
    assert made.pick("inter", 0.2, utility="ndcg@10").point.label == "fair()"  # 1 less the AUC


def test_none_within_the_limit():
    made = frontier(
        run("a", 0.9, 0.08, resampled=0.08 + EVEN), run("b", 0.8, 0.05, resampled=0.05 + EVEN)
    )
    choice = made.pick("inter", 0.01)
    assert choice.verdict is Verdict.NONE
    assert choice.point is None
    assert choice.closest.label == "b()"
    assert choice.bound == pytest.approx(0.095, abs=5e-4)
    assert "No point has a violation (inter) of at most 0.01. The closest of 2 is b()" in str(
        choice
    )
    assert str(choice.verdict) == "No point's violation is within the limit."


def test_ties_are_broken_by_the_bound():
    made = frontier(
        run("a", 0.8, 0.05, resampled=0.05 + EVEN), run("b", 0.8, 0.04, resampled=0.04 + EVEN)
    )
    assert made.pick("inter", 0.2).point.label == "b()"


def test_bounds_are_wider_for_few_queries():
    many, few = (
        frontier(run("a", 0.8, 0.05, resampled=0.05 + EVEN, n_queries=n)).pick("inter", 1.0)
        for n in (1000, 5)
    )
    level = stats.norm.cdf(sqrt(5 / 4) * stats.t.ppf(0.95, 4))
    assert few.bound == pytest.approx(0.05 + np.quantile(EVEN, level))
    assert few.bound > many.bound + 0.003
    assert "These are few queries" in str(few)
    assert "These are few queries" not in str(many)


def test_settings_that_look_alike_are_told_apart():
    made = frontier(
        run("a", 0.9, 0.3, resampled=0.3 + 2 * EVEN, slack=1),
        run("a", 0.8, 0.05, resampled=0.05 + EVEN, slack="1"),
    )
    bounds = [bound for _, bound in made.pick("inter", 1.0).bounds]
    assert bounds == pytest.approx([0.095, 0.39], abs=1e-3)


def test_bounds_are_averaged_over_seeds():
    made = frontier(
        run("a", 0.8, 0.02, resampled=0.02 + EVEN),
        run("a", 0.8, 0.06, resampled=0.06 + EVEN, seed=1),
    )
    assert made.pick("inter", 1.0).bound == pytest.approx(0.04 + 0.045, abs=5e-4)


def test_simultaneous_bounds():
    # two points whose errors are opposite: in every resample one of them is |e| above
    made = frontier(
        run("a", 0.9, 0.08, resampled=0.08 + EVEN), run("b", 0.8, 0.05, resampled=0.05 - EVEN)
    )
    choice = made.pick("inter", 0.1, simultaneous=True)
    assert choice.bound == pytest.approx(0.05 + np.quantile(np.abs(EVEN), 0.95), abs=5e-4)
    assert made.pick("inter", 0.1).bound < choice.bound


def test_what_cannot_be_picked():
    bare = frontier(run("a", 0.8, 0.05))
    with pytest.raises(InputError, match=r"no interval.*confidence=None"):
        bare.pick("inter", 0.1)
    assert bare.pick("inter", 0.1, confidence=None).bound == 0.05
    with pytest.raises(InputError, match=r"'intra' was not measured.*'inter'"):
        bare.pick("intra", 0.1)
    for options, facts in (
        ({"epsilon": -1}, r"epsilon must be .* \(got -1"),
        ({"epsilon": True}, r"epsilon must be .* \(got True"),
        ({"confidence": 95}, "confidence must be .*got 95"),
        ({"rule": "best"}, "rule must be .*'best'"),
        ({"utility": "map"}, "utility must be .*'map'"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=facts):
            bare.pick("inter", **{"epsilon": 0.1, **options})
    with pytest.raises(InputError, match=r"all 2 runs failed.*no luck"):
        frontier(failed("a"), failed("b")).pick("inter", 0.1)
    with pytest.raises(InputError, match="frontier is empty"):
        frontier().pick("inter", 0.1)


def test_the_bound_holds_on_other_queries():
    """Of many validation samples, few give a bound below the violation on all queries."""
    data = make_biased_ranking(400, 12, strength=1, separation=1, random_state=1).queries()
    method = by_hand(weight=1.0)
    scorer = method.fit(data, 0)
    truth = audit(data, scorer(data), n_resamples=0).violation["statistical"]
    below = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        sample = data.take(np.sort(rng.choice(400, 25, replace=False)))
        made = sweep(method, data, sample, validation=sample, constraints="statistical",
                     n_resamples=200)  # fmt: skip
        below += made.pick("statistical", 1.0).bound < truth
    assert below <= 6  # 3 are expected; more than 6 happen once in 30 times


# --- a sweep --------------------------------------------------------------------------------------


def test_figures_are_those_of_the_audit():
    train, test = QUERIES.split(0.3, random_state=0)
    made = sweep(LinearRanker(), train, test, n_resamples=50)
    scores = as_method(LinearRanker())(train, test)
    want = audit(test, scores, n_resamples=50)
    found = {name: want.estimate("violation", constraint=name) for name in want.violation}
    found |= {name: want.estimate(name) for name in ("auc", "ndcg@10")}
    assert set(made.points[0].test) == set(found)
    for name, estimate in made.points[0].test.items():
        for part in fields(Estimate):
            got, expected = getattr(estimate, part.name), getattr(found[name], part.name)
            assert got == (pytest.approx(expected) if isinstance(expected, float) else expected)


def drawn(names=("up", "down"), share=0.75):
    """An order drawn at random: by the first feature, or the other way round."""

    def fit(_train, _seed):
        def score(queries):
            scores = np.column_stack([queries.X[:, 0], -queries.X[:, 0]])
            return Rankings(scores, np.tile([share, 1 - share], (queries.n_queries, 1)))

        return score

    return Method("drawn", fit)


def test_rankings_are_measured_in_expectation_and_resampled_by_query():
    train, test = QUERIES.split(0.5, random_state=0)
    made = sweep(drawn(), train, test, n_resamples=400)
    up, down = (audit(test, sign * test.X[:, 0], n_resamples=400) for sign in (1, -1))
    estimates = made.points[0].test
    assert estimates["auc"].value == pytest.approx(0.75 * up.auc + 0.25 * down.auc)
    assert estimates["ndcg@10"].value == pytest.approx(0.75 * up.ndcg[10] + 0.25 * down.ndcg[10])
    # the mirror's AUC is 1 less: 0.75 A + 0.25 (1 - A) = 0.25 + A / 2, so half as wide
    low, high = (0.25 + getattr(up.estimate("auc"), end) / 2 for end in ("low", "high"))
    assert (estimates["auc"].low, estimates["auc"].high) == pytest.approx((low, high))
    # R - 1/2 is turned around, so 0.75 - 0.25 = half of it is left
    want = up.estimate("violation", constraint="statistical")
    got = estimates["statistical"]
    assert (got.value, got.low, got.high) == pytest.approx(
        (want.value / 2, want.low / 2, want.high / 2)
    )
    assert (got.n_queries, got.n_pairs) == (want.n_queries, want.n_pairs)


def test_a_share_is_split_by_query_for_each_seed():
    seen = []

    def fit(train, seed):
        seen.append((seed, set(train.query_ids.tolist())))
        return lambda queries: queries.X[:, 0]

    made = sweep(Method("m", fit), QUERIES, 0.2, validation=0.25, seeds=(3, 4), n_resamples=10)
    assert [seed for seed, _ in seen] == [3, 4]
    assert [len(ids) for _, ids in seen] == [36, 36]  # 60 less 12, less 12
    assert seen[0][1] != seen[1][1]
    assert [run.seed for run in made.runs] == [3, 4]
    assert made.points[0].test["auc"].n_queries == 12
    assert made.test_ratio == pytest.approx(12 / 36)
    assert made.validation_ratio == pytest.approx(12 / 36)


def test_methods_in_every_shape():
    options = {"constraints": "inter", "n_resamples": 0}
    by_name = {"mine": [by_hand(weight=1.0), by_hand(weight=2.0)], "plain": LinearRanker()}
    made = sweep(by_name, QUERIES, seeds=(0, 1), **options)
    assert labels(made.points) == ["mine(weight=1.0)", "mine(weight=2.0)", "plain()"]
    assert [run.seed for run in made.runs] == [0, 1] * 3
    assert made.methods == ("mine", "plain")
    fair = [FairRanker(constraint=StatisticalParity(), max_rounds=n) for n in (0, 1)]
    made = sweep([*fair, LinearRanker(alpha=0.1)], QUERIES, **options)
    assert labels(made.points) == [
        "reweighted(constraint=StatisticalParity(), max_rounds=0)",
        "reweighted(constraint=StatisticalParity(), max_rounds=1)",
        "plain(alpha=0.1)",
    ]
    with pytest.raises(InputError, match=r"both known as hand\(weight=1.0\)"):
        sweep([by_hand(), by_hand()], QUERIES)
    with pytest.raises(InputError, match="no methods"):
        sweep([], QUERIES)
    with pytest.raises(InputError, match="'' is not a name"):
        sweep({"": by_hand()}, QUERIES)


def test_what_was_warned_of_is_noted():
    model = FairRanker(max_rounds=1, tolerance=0.0)
    made = sweep(model, QUERIES, n_resamples=0)  # warnings are errors here
    assert "the tolerance is 0;" in made.runs[0].notes[0]
    assert made.rows()[0]["notes"] == made.runs[0].notes[0]
    with pytest.warns(TargetNotReachedWarning):
        model.fit(**QUERIES)


def test_other_warnings_go_their_way():
    def fit(_train, _seed):
        import warnings

        warnings.warn("old", DeprecationWarning, stacklevel=1)
        return lambda queries: queries.X[:, 0]

    with pytest.warns(DeprecationWarning, match="old"):
        made = sweep(Method("m", fit), QUERIES, n_resamples=0)
    assert made.runs[0].notes == ()


def test_a_failing_method_is_recorded_and_does_not_lose_the_others():
    calls = []
    broken = by_hand("broken", calls=calls, fail_at=1, error=ValueError)
    short = Method("short", lambda train, seed: lambda queries: np.zeros(3))
    with pytest.warns(
        PairityWarning, match=r"2 of 3 runs failed.*broken\(weight=1.0\) with seed 0"
    ):
        made = sweep([broken, by_hand(), short], QUERIES, validation=0.25, n_resamples=10)
    assert made.failures[0].error == "ValueError: no luck"
    assert "scores has 3 entries" in made.failures[1].error
    assert made.failures[1].test == {}
    assert labels(made.front("inter")) == ["hand(weight=1.0)"]
    assert made.pick("inter", 1.0).point.label == "hand(weight=1.0)"
    assert "2 of 3 runs failed" in str(made)
    assert made.rows()[0]["error"] == "ValueError: no luck"


def test_several_at_a_time_give_the_same():
    methods = [by_hand(weight=w) for w in (0.5, 1.0, 2.0)]
    options = {"validation": 0.25, "seeds": (0, 1), "n_resamples": 20}
    one = sweep(methods, QUERIES, **options)
    two = sweep(methods, QUERIES, n_jobs=2, **options)
    for a, b in zip(one.runs, two.runs, strict=True):
        assert {**a.to_dict(), "seconds": 0} == {**b.to_dict(), "seconds": 0}


def test_groups_of_the_test_are_numbered_as_in_training():
    seen = []

    def fit(train, _seed):
        def score(queries):
            seen.append((queries.groups, queries.group.tolist()))
            return queries.X[:, 0]

        return score

    train = Queries.from_arrays(
        np.arange(6.0)[:, None], [0, 1, 0, 1, 1, 0], qid=[0, 0, 0, 1, 1, 1],
        sensitive_features=list("abcabc"),
    )  # fmt: skip
    test = Queries.from_arrays(
        np.arange(4.0)[:, None], [0, 1, 1, 0], qid=[0, 0, 1, 1], sensitive_features=list("bccb")
    )
    sweep(Method("m", fit, needs_group=True), train, test, constraints="inter", n_resamples=0)
    assert seen == [(("a", "b", "c"), [1, 2, 2, 1])]


def test_queries_of_weight_zero_are_not_measured_on():
    train, test = QUERIES.split(0.5, random_state=0)
    weight = np.where(test.query < 5, 0.0, 1.0)
    weighed = Queries.from_arrays(**{**test, "query_weight": weight})
    made = sweep(by_hand(), train, weighed, n_resamples=20)
    want = sweep(by_hand(), train, test.take(np.arange(5, 30)), n_resamples=20)
    assert made.points[0].test == want.points[0].test


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ({"seeds": 5}, r"seeds must be .* \(got 5"), ({"seeds": [0, 0]}, "seeds must be different"),
        ({"seeds": []}, "range"), ({"test": 1.5}, r"test must be .* \(got 1.5"),
        ({"test": "x"}, "test is 'x'"), ({"validation": 0}, r"validation must be .* \(got 0"),
        ({"n_resamples": -1}, "n_resamples must be"),
        ({"constraints": "interr"}, "Did you mean 'inter'"), ({"train": 3}, "train is 3"),
        ({"progress": "yes"}, r"progress must be .* \(got 'yes'"),
    ],
)  # fmt: skip
def test_what_a_sweep_refuses(change, facts):
    with pytest.raises(InputError, match=facts):
        sweep(**{"methods": by_hand(), "train": QUERIES, **change})


# --- to be resumed --------------------------------------------------------------------------------


def test_an_interrupted_sweep_goes_on_from_what_is_on_disk(tmp_path):
    def methods(calls, fail_at=None):
        return [by_hand(weight=float(w), calls=calls, fail_at=fail_at) for w in range(5)]

    options = {"directory": tmp_path / "runs", "validation": 0.25, "n_resamples": 20}
    calls = []
    with pytest.raises(KeyboardInterrupt) as caught:
        sweep(methods(calls, fail_at=3), QUERIES, **options)
    assert "2 of 5 runs were done and are stored in" in caught.value.__notes__[0]
    assert len(list((tmp_path / "runs").iterdir())) == 2
    again = []
    made = sweep(methods(again), QUERIES, **options)
    assert [weight for _, weight, _ in again] == [2.0, 3.0, 4.0]
    assert [point.settings["weight"] for point in made.points] == [0.0, 1.0, 2.0, 3.0, 4.0]
    want = sweep(methods(None), QUERIES, **{**options, "directory": None})
    for a, b in zip(made.runs, want.runs, strict=True):
        assert {**a.to_dict(), "seconds": 0} == {**b.to_dict(), "seconds": 0}
    assert made.pick("inter", 1.0).bound == want.pick("inter", 1.0).bound


def test_an_interruption_without_a_directory_says_what_is_lost():
    with pytest.raises(KeyboardInterrupt) as caught:
        sweep(by_hand(calls=[], fail_at=1), QUERIES)
    assert "0 of 1 runs were done and are lost. Pass a directory" in caught.value.__notes__[0]


def test_what_differs_is_done_anew(tmp_path):
    def fits(queries=QUERIES, method=None, **options):
        calls = []
        method = by_hand(calls=calls) if method is None else method(calls)
        sweep(method, queries, directory=tmp_path, **{"n_resamples": 5, **options})
        return len(calls)

    assert fits() == 1
    assert fits() == 0
    other = Queries.from_arrays(**{**QUERIES, "y": 1.0 - QUERIES.y})
    assert fits(other) == 1
    for changed in (
        {"seeds": (1,)}, {"test": 0.3}, {"validation": 0.2}, {"constraints": "inter"},
        {"n_resamples": 6}, {"confidence": 0.9}, {"method": lambda c: by_hand("other", calls=c)},
        {"method": lambda c: by_hand(weight=2.0, calls=c)},
    ):  # fmt: skip
        assert fits(**changed) == 1, changed
        assert fits(**changed) == 0, changed
    assert fits(seeds=(0, 1, 2)) == 1


def test_a_failed_run_is_tried_again(tmp_path):
    for n in (1, 1):
        with pytest.warns(PairityWarning, match="no luck"):
            sweep(by_hand(calls=[], fail_at=n, error=ValueError), QUERIES, directory=tmp_path)
    assert list(tmp_path.iterdir()) == []
    calls = []
    sweep(by_hand(calls=calls), QUERIES, directory=tmp_path)
    assert len(calls) == 1


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"format": "another"}', "run", "key", b"\xff\xfe", "[" * 100_000],
)
def test_a_broken_file_is_named_and_done_again(tmp_path, text):
    options = {"directory": tmp_path, "n_resamples": 5}
    sweep(by_hand(), QUERIES, **options)
    (path,) = tmp_path.iterdir()
    document = json.loads(path.read_text())
    if text == "run":
        document["run"]["test"]["auc"]["value"] = "high"
        text = json.dumps(document)
    elif text == "key":
        document["key"]["seed"] = 7
        text = json.dumps(document)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    calls = []
    with pytest.warns(PairityWarning, match=f"{path.name} should hold the run hand"):
        sweep(by_hand(calls=calls), QUERIES, **options)
    assert len(calls) == 1
    sweep(by_hand(calls=calls), QUERIES, **options)
    assert len(calls) == 1


def test_other_files_are_left_alone(tmp_path):
    (tmp_path / "notes.json").write_text("mine")
    sweep(by_hand(), QUERIES, directory=tmp_path, n_resamples=5)
    assert (tmp_path / "notes.json").read_text() == "mine"
    with pytest.raises(InputError, match="is a file"):
        sweep(by_hand(), QUERIES, directory=tmp_path / "notes.json")


# --- as a table, as JSON, as a figure -------------------------------------------------------------


@pytest.fixture(scope="module")
def swept():
    methods = {
        "by hand, at length": [by_hand(weight=w) for w in (0.2, 1.0, 5.0)],
        "drawn": drawn(),
        "shifted": Method("", lambda t, s: lambda q: q.X[:, 0] + q.group, needs_group=True),
    }
    return sweep(methods, QUERIES, validation=0.25, seeds=(0, 1), n_resamples=30)


def test_it_prints(swept):
    text = str(swept)
    for words in ("3 methods, 5 points, 2 seeds", "by hand, at length", "weight=0.2", "shifted †",
                  "statistical", "reads the groups", "*"):  # fmt: skip
        assert words in text
    assert max(map(len, text.splitlines())) < 190
    assert "n_points=5, n_runs=10" in repr(swept)
    assert str(frontier()) == "Frontier: no points"
    shown = str(
        frontier(run("a", 0.8, 0.1, eta=1, slack=0.1), run("a", 0.8, 0.2, eta=1, slack=0.2))
    )
    assert "slack=0.1" in shown
    assert "eta" not in shown  # it does not tell the two apart


@pytest.mark.parametrize("backend", ["pandas", "polars", "pyarrow"])
def test_frames(swept, backend):
    pytest.importorskip(backend)
    frame = swept.to_frame(backend)
    assert frame.shape[0] == 5
    each = swept.to_frame(backend, each_seed=True)
    assert each.shape[0] == 10
    for name in ("method", "settings", "seconds", "auc", "auc_low", "violation_inter_high",
                 "front_inter", "validation_violation_inter", "error"):  # fmt: skip
        assert name in (frame.column_names if backend == "pyarrow" else frame.columns)


def test_json_there_and_back(swept):
    read = Frontier.from_json(swept.to_json())
    assert read.to_json() == swept.to_json()
    assert labels(read.front("inter")) == labels(swept.front("inter"))
    assert read.pick("inter", 0.5).bound == swept.pick("inter", 0.5).bound
    assert str(read) == str(swept)


def test_json_is_checked(swept):
    document = json.loads(swept.to_json())
    run = document["runs"][0]
    for change, facts in (
        ({"format": "other"}, "pairity frontier 1"),
        ({"runs": 3}, "runs is 3, not a list"),
        ({"constraints": [1]}, r"constraints\[0\] is 1, not text"),
        ({"confidence": 2}, "confidence must be .*got 2"),
        ({"test_ratio": "x"}, "test_ratio is 'x', not a number"),
        ({"runs": [{}]}, r"runs\[0\].error is missing"),
        ({"constraints": ["fair"]}, r"runs\[0\] is without fair"),
        ({"runs": [{**run, "seed": True}]}, "seed is True"),
        ({"runs": [{**run, "notes": [1]}]}, r"notes\[0\] is 1, not text"),
        ({"runs": [{**run, "test": {"auc": {}}}]}, "test.auc.constraint is missing"),
        ({"runs": [{**run, "resampled": {"inter": ["x"]}}]}, "resampled.inter.0. is 'x', not a"),
    ):
        with pytest.raises(InputError, match=facts):
            Frontier.from_json(json.dumps({**document, **change}))
    for text in ("{", "[]", None):
        with pytest.raises(InputError):
            Frontier.from_json(text)


@pytest.fixture
def pyplot():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


def test_it_is_drawn(swept, pyplot, tmp_path):
    axes = swept.plot()
    assert [axis.get_title() for axis in axes] == list(swept.constraints)
    (legend,) = axes[0].figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "by hand, at length", "drawn", "shifted (reads groups)", "Pareto front",
    ]  # fmt: skip
    again = swept.plot()
    for ending in ("png", "svg", "pdf"):
        files = [tmp_path / f"{name}.{ending}" for name in ("frontier", "again")]
        save_plot(axes, files[0])
        save_plot(again, files[1])
        assert files[0].stat().st_size > 10_000
        assert files[0].read_bytes() == files[1].read_bytes()


def test_one_panel(swept, pyplot):
    _, axis = pyplot.subplots()
    assert swept.plot("inter", ax=axis, utility="ndcg@10", on="validation") is axis
    assert axis.get_ylabel() == "NDCG@10"
    (line,) = [each for each in axis.lines if each.get_drawstyle() == "steps-pre"]
    front = swept.front("inter", "ndcg@10", on="validation")
    assert line.get_xdata() == pytest.approx([1 - p.validation["inter"].value for p in front])
    assert line.get_ydata() == pytest.approx([p.validation["ndcg@10"].value for p in front])
    with pytest.raises(InputError, match="ax takes one constraint, but there are 4"):
        swept.plot(ax=axis)
    with pytest.raises(InputError, match="on must be one of 'test', 'validation'"):
        swept.plot(on="train")
    with pytest.raises(InputError, match="No run was measured on validation"):
        sweep(by_hand(), QUERIES, n_resamples=0).plot(on="validation")


@pytest.mark.parametrize("constraint", [None, "inter"])
def test_the_legend_fits_the_figure_and_the_points_fill_it(swept, pyplot, constraint):
    axes = np.ravel(swept.plot(constraint))
    figure = axes[0].figure
    figure.draw_without_rendering()
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1
    for axis in axes:
        fairness = [1 - point.test[axis.get_title()].value for point in swept.points]
        low, high = axis.get_xlim()
        assert low < min(fairness)
        assert max(fairness) < high
        assert high < 1.1


def test_more_methods_than_colours(pyplot):
    made = frontier(*(run(f"m{k}", 0.5 + k / 50, k / 50) for k in range(10)))
    assert len(made.plot().figure.legends[0].get_texts()) == 11


def test_without_matplotlib(swept, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)
    with pytest.raises(MissingExtraError, match=r'pip install "pairity\[plot\]"'):
        swept.plot()


def test_constraints_by_object_and_by_function():
    def taste(queries, scores):
        return np.array([0.1, 0.3])

    made = sweep(by_hand(), QUERIES, validation=0.25, constraints=["statistical", taste],
                 n_resamples=10)  # fmt: skip
    assert made.constraints == ("statistical", "taste")
    assert made.pick(StatisticalParity(), 1.0).constraint == "statistical"
    with pytest.raises(InputError, match=r"average='pair'.* was not measured"):
        made.pick(StatisticalParity(average="pair"), 1.0)
    assert made.points[0].test["taste"].value == pytest.approx(0.2)
    with pytest.raises(InputError, match="taste has no interval"):
        made.pick("taste", 0.5)
    assert made.pick("taste", 0.5, confidence=None).bound == pytest.approx(0.2)
