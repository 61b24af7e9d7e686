"""FairRanker: what does not matter, what weights mean, how fits end."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

from pairity import (
    FairRanker,
    InputError,
    InterGroup,
    LinearRanker,
    PlainStep,
    Queries,
    StatisticalParity,
)
from pairity.constraints import as_constraint, largest_gap
from pairity.datasets import BiasedWorld, make_biased_ranking
from pairity.exceptions import MemorisedWarning, TargetNotReachedWarning
from pairity.pairs.cells import mean_auc
from pairity.reweighting.outcomes import Outcome
from pairity.reweighting.solvers import DampedStep
from pairity.reweighting.weights import GROWTH, MOST, REVERSAL, START
from support.fit_cases import NAMES, MinimalRanker, fit, make

CONSTRAINTS = ["statistical", "inter", "intra", "marginal"]


@pytest.fixture(scope="session")
def three_groups():
    return make(n_groups=3, n_items=30)


def rows(data, chosen):
    return {name: column[chosen] for name, column in data.items()}


def assert_same_fit(first, second, rtol=1e-6):
    """The same rounds, weights, violation and coefficients."""
    assert first.outcome_.reached is second.outcome_.reached
    assert first.groups_ == second.groups_
    assert len(first.history_) == len(second.history_)
    np.testing.assert_allclose(first.pair_weights_.table, second.pair_weights_.table, rtol=rtol)
    np.testing.assert_allclose(first.violation_, second.violation_, rtol=rtol)
    for round_, expected in zip(first.history_, second.history_, strict=True):
        np.testing.assert_allclose(round_.delta, expected.delta, rtol=rtol, atol=1e-9)
        assert round_.auc == pytest.approx(expected.auc, rel=rtol)
    np.testing.assert_allclose(first.ranker_.coef_, second.ranker_.coef_, rtol=rtol, atol=rtol)


# --- what does not matter -------------------------------------------------------------------------


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_no_rounds_is_the_plain_ranker(two_groups, constraint):
    model = fit(two_groups, constraint, max_rounds=0)
    plain = LinearRanker(tol=1e-11).fit(two_groups["X"], two_groups["y"], qid=two_groups["qid"])
    np.testing.assert_allclose(model.predict(two_groups["X"]), plain.predict(two_groups["X"]))
    np.testing.assert_array_equal(model.pair_weights_.table, np.ones((2, 2)))
    assert model.outcome_.kind is Outcome.NO_ROUNDS
    assert len(model.history_) == 1


def test_no_rounds_needs_no_warning(two_groups):
    FairRanker(max_rounds=0, tolerance=0.0).fit(**two_groups)  # warnings are errors


def test_default_ranker_is_linear(two_groups):
    model = FairRanker(max_rounds=0).fit(**two_groups)
    assert isinstance(model.ranker_, LinearRanker)
    assert model.ranker is None


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_order_of_rows_does_not_matter(three_groups, constraint):
    shuffled = np.random.default_rng(1).permutation(len(three_groups["y"]))
    first, second = fit(three_groups, constraint), fit(rows(three_groups, shuffled), constraint)
    assert_same_fit(first, second)
    scores = first.predict(three_groups["X"])
    np.testing.assert_allclose(
        first.predict(three_groups["X"][shuffled]), scores[shuffled], rtol=1e-12
    )
    np.testing.assert_allclose(second.predict(three_groups["X"]), scores, rtol=1e-6, atol=1e-9)


def test_scores_come_back_in_the_callers_order(two_groups):
    """Queries woven into each other: row i's score is row i's."""
    woven = np.argsort(np.arange(len(two_groups["y"])) % 20, kind="stable")
    model = fit(rows(two_groups, woven))
    np.testing.assert_allclose(
        model.predict(two_groups["X"]),
        two_groups["X"] @ model.ranker_.coef_,
        rtol=1e-12,
        atol=1e-12,
    )


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_renaming_groups_permutes_the_table(three_groups, constraint):
    new = {"group 1": "b", "group 2": "c", "group 3": "a"}
    renamed = [new[name] for name in three_groups["sensitive_features"]]
    before = fit(three_groups, constraint)
    after = fit({**three_groups, "sensitive_features": renamed}, constraint)
    assert after.groups_ == ("a", "b", "c")
    for first in new:
        for second in new:
            weight = after.pair_weights_[new[first], new[second]]
            assert weight == pytest.approx(before.pair_weights_[first, second], rel=1e-6)
    assert after.violation_ == pytest.approx(before.violation_)
    np.testing.assert_allclose(after.ranker_.coef_, before.ranker_.coef_, rtol=1e-5, atol=1e-8)


def test_names_of_queries_do_not_matter(two_groups):
    named = [f"query {number:03d}" for number in two_groups["qid"]]
    assert_same_fit(fit(two_groups), fit({**two_groups, "qid": named}))


def test_order_of_rows_does_not_decide_what_is_held_out(two_groups):
    named = {
        **two_groups,
        "qid": np.array([f"query {number}" for number in two_groups["qid"]], dtype=object),
    }
    shuffled = np.random.default_rng(1).permutation(len(two_groups["y"]))
    first, second = (
        fit(data, validation=0.25, random_state=0) for data in (named, rows(named, shuffled))
    )
    assert_same_fit(first, second)


@pytest.mark.parametrize("validation", [None, 0.25])
def test_same_data_gives_the_same_model_twice(three_groups, validation):
    first, second = (fit(three_groups, validation=validation, random_state=3) for _ in range(2))
    np.testing.assert_array_equal(first.ranker_.coef_, second.ranker_.coef_)
    np.testing.assert_array_equal(first.pair_weights_.table, second.pair_weights_.table)


TABLES = {  # features and other columns, from arrays and from two pandas tables
    "lists": lambda data, _, columns: (data["X"].tolist(), columns.to_dict("list")),
    "fortran": lambda data, *_: (np.asfortranarray(data["X"]), data),
    "pandas": lambda _, frame, columns: (frame, columns),
    "pandas, index shuffled": lambda _, frame, columns: (
        frame.set_index(np.arange(len(frame))[::-1]),
        columns.set_index(np.arange(len(frame)) * 7),
    ),
    "polars": lambda _, *tables: map(pl.from_pandas, tables),
    "pyarrow": lambda _, *tables: map(pa.table, tables),
    "csr": lambda data, *_: (sp.csr_array(data["X"]), data),
    "csc matrix": lambda data, *_: (sp.csc_matrix(data["X"]), data),
    "coo": lambda data, *_: (sp.coo_array(data["X"]), data),
}


@pytest.mark.parametrize("kind", TABLES)
def test_kind_of_table_does_not_matter(two_groups, frame, kind):
    names = ("y", "qid", "sensitive_features")
    columns = pd.DataFrame({name: two_groups[name] for name in names})
    X, columns = TABLES[kind](two_groups, frame, columns)
    model, reference = fit({"X": X, **{name: columns[name] for name in names}}), fit(two_groups)
    assert_same_fit(model, reference)
    np.testing.assert_allclose(
        model.predict(X), reference.predict(two_groups["X"]), rtol=1e-6, atol=1e-9
    )


@pytest.mark.parametrize("dtype", [np.float32, np.int64, object])
def test_dtype_of_features_does_not_matter(two_groups, dtype):
    whole = np.round(4 * two_groups["X"])
    first, second = fit({**two_groups, "X": whole}), fit({**two_groups, "X": whole.astype(dtype)})
    assert_same_fit(first, second)


# --- features at prediction -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "convert", [lambda frame: frame, pl.from_pandas, pa.table], ids=["pandas", "polars", "pyarrow"]
)
@pytest.mark.parametrize("ranker", [FairRanker(max_rounds=0), LinearRanker()], ids=repr)
def test_feature_names_are_remembered(two_groups, frame, convert, ranker):
    table = convert(frame)
    data = {**two_groups, "X": table}
    if isinstance(ranker, LinearRanker):
        del data["sensitive_features"]
    model = ranker.fit(**data)
    assert model.feature_names_in_.tolist() == NAMES
    assert model.n_features_in_ == len(NAMES)
    assert model.predict(table).shape == (len(frame),)


@pytest.mark.parametrize("ranker", [FairRanker(max_rounds=0), LinearRanker()], ids=repr)
@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (lambda frame: frame[NAMES[::-1]], "same order"),
        (lambda frame: frame.rename(columns={"f0": "g0"}), "g0"),
        (lambda frame: frame[NAMES[:4]], "f4"),
        (lambda frame: frame.assign(f5=0.0), "f5"),
        (lambda frame: pl.from_pandas(frame[NAMES[::-1]]), "same order"),
        (lambda frame: frame.assign(f0="text"), "f0"),
        (lambda frame: frame.assign(f0=np.nan), "NaN"),
        (lambda frame: frame[:0], "0 sample"),
    ],
    ids=["order", "names", "fewer", "more", "polars", "text", "NaN", "empty"],
)
def test_other_features_at_prediction_are_refused(two_groups, frame, ranker, change, facts):
    data = {"X": frame, "y": two_groups["y"], "qid": two_groups["qid"]}
    if isinstance(ranker, FairRanker):
        data["sensitive_features"] = two_groups["sensitive_features"]
    model = ranker.fit(**data)
    with pytest.raises(InputError, match=facts):
        model.predict(change(frame))


@pytest.mark.parametrize("n_features", [1, 4, 6])
def test_another_number_of_features_is_refused(two_groups, n_features):
    model = fit(two_groups, max_rounds=0)
    with pytest.raises(InputError, match=f"X has {n_features} features.* expecting 5 features"):
        model.predict(np.zeros((3, n_features)))


def test_mixed_column_names_are_refused_before_training(two_groups, frame):
    mixed = frame.rename(columns={"f0": 0})
    with pytest.raises(InputError, match="column names that are text and others that are not"):
        FairRanker(MinimalRanker(lambda _: pytest.fail("trained"))).fit(
            **{**two_groups, "X": mixed}
        )


@pytest.mark.parametrize("method", ["predict", "score"])
@pytest.mark.parametrize("ranker", [FairRanker(), LinearRanker()], ids=repr)
def test_not_fitted(two_groups, ranker, method):
    arguments = (two_groups["X"],) if method == "predict" else (two_groups["X"], two_groups["y"])
    named = {} if method == "predict" else {"qid": two_groups["qid"]}
    with pytest.raises(NotFittedError):
        getattr(ranker, method)(*arguments, **named)


def test_score_is_the_mean_auc(two_groups):
    model = fit(two_groups)
    expected = mean_auc(Queries.from_arrays(**two_groups), model.predict(two_groups["X"]))
    assert model.score(two_groups["X"], two_groups["y"], qid=two_groups["qid"]) == pytest.approx(
        expected
    )
    assert model.history_[-1].auc != model.history_[0].auc


def test_a_weighted_score_is_that_of_items_and_queries_repeated(two_groups):
    model = fit(two_groups)
    times = np.random.default_rng(5).integers(0, 4, len(two_groups["y"]))
    repeated = {name: np.repeat(column, times, axis=0) for name, column in two_groups.items()}
    del repeated["sensitive_features"]
    weighted = model.score(
        two_groups["X"], two_groups["y"], qid=two_groups["qid"], sample_weight=times
    )
    assert weighted == pytest.approx(model.score(**repeated))
    often = np.arange(12) % 3
    repeated = repeated_queries({name: two_groups[name] for name in ("X", "y", "qid")}, often)
    weighted = model.score(
        two_groups["X"],
        two_groups["y"],
        qid=two_groups["qid"],
        query_weight=often[two_groups["qid"]],
    )
    assert weighted == pytest.approx(model.score(**repeated))


@pytest.mark.parametrize("ranker", [FairRanker(max_rounds=0), LinearRanker()], ids=repr)
def test_score_needs_preferences(two_groups, ranker):
    data = (
        two_groups
        if isinstance(ranker, FairRanker)
        else {k: two_groups[k] for k in ("X", "y", "qid")}
    )
    model = ranker.fit(**data)
    with pytest.raises(InputError, match="No query has two different labels"):
        model.score(two_groups["X"], np.ones(len(two_groups["y"])), qid=two_groups["qid"])


# --- items without a group ------------------------------------------------------------------------


@pytest.mark.parametrize("constraint", [StatisticalParity, InterGroup])
@pytest.mark.parametrize("nothing", [None, np.nan])
def test_a_missing_group_weighs_1_and_is_not_compared(two_groups, constraint, nothing):
    """As if it were a third group that the constraint leaves out."""
    rng = np.random.default_rng(0)
    hidden = rng.random(len(two_groups["y"])) < 0.3
    missing = np.where(hidden, nothing, two_groups["sensitive_features"])
    third = np.where(hidden, "unknown", two_groups["sensitive_features"])
    model = fit({**two_groups, "sensitive_features": missing}, constraint())
    known = ("group 1", "group 2")
    reference = fit({**two_groups, "sensitive_features": third}, constraint(only=[known]))
    assert model.groups_ == known
    np.testing.assert_array_equal(reference.pair_weights_.table[2], 1.0)
    np.testing.assert_array_equal(reference.pair_weights_.table[:, 2], 1.0)
    assert np.abs(np.log(model.pair_weights_["group 1", "group 2"])) > 0.1
    np.testing.assert_allclose(
        model.pair_weights_.table, reference.pair_weights_.table[:2, :2], rtol=1e-6
    )
    np.testing.assert_allclose(model.ranker_.coef_, reference.ranker_.coef_, rtol=1e-6)
    assert model.violation_ == pytest.approx(reference.violation_)


def test_a_missing_group_is_not_dropped_from_training(two_groups):
    hidden = np.arange(len(two_groups["y"])) % 3 == 0
    missing = np.where(hidden, None, two_groups["sensitive_features"])
    kept = fit({**two_groups, "sensitive_features": missing})
    dropped = fit(rows(two_groups, ~hidden))
    assert np.abs(kept.ranker_.coef_ - dropped.ranker_.coef_).max() > 1e-3


# --- weights of items and queries -----------------------------------------------------------------


def repeated_queries(data, times):
    """Every query as often as `times` says, each time under another id."""
    parts = []
    for query, count in enumerate(times):
        mine = rows(data, data["qid"] == query)
        parts += [{**mine, "qid": mine["qid"] + 1000 * copy} for copy in range(count)]
    return {name: np.concatenate([part[name] for part in parts]) for name in data}


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_a_whole_item_weight_is_the_item_repeated(two_groups, constraint):
    times = np.random.default_rng(5).integers(0, 4, len(two_groups["y"]))
    weighted = fit({**two_groups, "sample_weight": times}, constraint)
    repeated = fit(
        {name: np.repeat(column, times, axis=0) for name, column in two_groups.items()}, constraint
    )
    assert_same_fit(weighted, repeated)
    assert len(weighted.history_) > 1


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("average", ["query", "pair"])
def test_a_whole_query_weight_is_the_query_repeated(two_groups, constraint, average):
    times = np.array([1, 2, 3, 1, 1, 2, 1, 1, 3, 1, 2, 1])
    constraint = type(as_constraint(constraint))(average=average)
    # Repeated queries look like independent ones, so their noise floor is lower, and a search that
    # ends in the noise may end earlier or later.
    solver = DampedStep(patience_in_noise=6)
    data = {**two_groups, "query_weight": times[two_groups["qid"]]}
    weighted = fit(data, constraint, solver=solver)
    repeated = fit(repeated_queries(two_groups, times), constraint, solver=solver)
    assert_same_fit(weighted, repeated)
    assert len(weighted.history_) > 1


@pytest.mark.parametrize("name", ["sample_weight", "query_weight"])
def test_weight_zero_is_dropping(two_groups, name):
    if name == "sample_weight":
        weight = (np.arange(len(two_groups["y"])) % 4 > 0).astype(float)
    else:
        weight = (two_groups["qid"] % 4 > 0).astype(float)
    assert_same_fit(fit({**two_groups, name: weight}), fit(rows(two_groups, weight > 0)))


def test_query_weights_by_id(two_groups):
    weight = {query: 1.0 + query % 3 for query in range(12)}
    by_row = fit({**two_groups, "query_weight": [weight[query] for query in two_groups["qid"]]})
    assert_same_fit(fit({**two_groups, "query_weight": weight}), by_row)


@pytest.mark.parametrize("name", ["sample_weight", "query_weight"])
def test_equal_weights_are_no_weights(two_groups, name):
    assert_same_fit(fit({**two_groups, name: np.full(len(two_groups["y"]), 3.0)}), fit(two_groups))


# --- validation -----------------------------------------------------------------------------------


def assert_measured_on(model, constraint, queries, ranker=None):
    """violation and AUC of the kept round are those of these queries, by the model or a ranker."""
    kept = next(r for r in model.history_ if r.violation == model.violation_)
    scores = (ranker or model).predict(queries.X)
    assert model.violation_ == kept.violation
    np.testing.assert_allclose(kept.delta, constraint.delta(queries, scores), atol=1e-12)
    assert largest_gap(constraint.delta(queries, scores)) == pytest.approx(model.violation_)
    assert mean_auc(queries, scores) == pytest.approx(kept.auc)


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_measured_on_the_training_queries(two_groups, constraint):
    assert_measured_on(
        fit(two_groups, constraint), as_constraint(constraint), Queries.from_arrays(**two_groups)
    )


@pytest.mark.parametrize("share", [0.2, 0.5, np.float32(0.25)])
def test_a_share_of_the_queries_is_held_out(two_groups, share):
    model = fit(two_groups, validation=share, random_state=0)
    train, held = Queries.from_arrays(**two_groups).split(float(share), 0)
    assert train.n_queries + held.n_queries == 12
    assert held.n_queries == round(12 * float(share))
    weights = model.pair_weights_.tables
    again = LinearRanker(tol=1e-11).fit_pairs(train, weights)
    assert_measured_on(model, StatisticalParity(), held, again)
    final = LinearRanker(tol=1e-11).fit_pairs(Queries.from_arrays(**two_groups), weights)
    np.testing.assert_allclose(model.ranker_.coef_, final.coef_, rtol=1e-6)


def test_the_seed_draws_the_held_out_queries(two_groups):
    first, second = (fit(two_groups, validation=0.25, random_state=seed) for seed in (0, 1))
    assert first.history_[0].auc != second.history_[0].auc


@pytest.mark.parametrize(
    "convert",
    [
        lambda data: data,
        lambda data: Queries.from_arrays(**data),
        lambda data: {**data, "X": sp.csr_array(data["X"])},
    ],
    ids=["dict", "Queries", "sparse"],
)
def test_validation_data_given(two_groups, held_out, convert):
    model = fit(two_groups, validation=convert(held_out))
    assert_measured_on(model, StatisticalParity(), Queries.from_arrays(**held_out))
    again = LinearRanker(tol=1e-11).fit_pairs(
        Queries.from_arrays(**two_groups), model.pair_weights_.table
    )
    np.testing.assert_allclose(model.ranker_.coef_, again.coef_, rtol=1e-6)
    assert fit(two_groups).history_[0].violation != model.history_[0].violation


def test_validation_weights_count(two_groups, held_out):
    weight = np.where(held_out["qid"] < 4, 1.0, 0.0)
    model = fit(two_groups, validation={**held_out, "query_weight": weight})
    assert_measured_on(
        model, StatisticalParity(), Queries.from_arrays(**rows(held_out, weight > 0))
    )


def test_groups_of_validation_are_matched_by_name(three_groups):
    """Only two of three groups, listed in another order, in the validation data."""
    few = make(8, 20, random_state=7)
    few["sensitive_features"] = np.where(
        few["sensitive_features"] == "group 1", "group 3", "group 1"
    )
    constraint = StatisticalParity(only=[("group 1", "group 3")])
    model = fit(three_groups, constraint, validation=few)
    scores = model.predict(few["X"])
    expected = StatisticalParity().delta(Queries.from_arrays(**few), scores)
    assert model.violation_ == pytest.approx(largest_gap(expected))


# --- how fits end ---------------------------------------------------------------------------------

REACHABLE = make(60, 30, separation=2.0)
HARD = make(20, 20, n_groups=3, strength=3.0, world=BiasedWorld(n_features=2))


def one_feature():
    """With a single feature only the sign of its coefficient decides: nothing can be evened out."""
    data = make(n_groups=3, n_items=30)
    X = (data["sensitive_features"] == "group 1")[:, None] + 0.5 * data["X"][:, :1]
    return {**data, "X": X}


@pytest.mark.parametrize("solver", ["damped", PlainStep(eta=5.0)])
def test_stops_at_the_tolerance(solver):
    model = FairRanker(constraint="statistical", tolerance=0.01, solver=solver).fit(**REACHABLE)
    *before, last = model.history_
    assert before
    assert all(round_.violation > 0.01 for round_ in before)
    assert last.violation <= 0.01
    assert model.violation_ == last.violation
    assert model.outcome_.kind is Outcome.WITHIN_TOLERANCE
    assert str(model.outcome_).startswith("The violation came within the tolerance.")


def test_a_wide_tolerance_needs_no_second_round(two_groups):
    model = FairRanker(tolerance=1.0).fit(**two_groups)
    assert len(model.history_) == 1
    assert model.outcome_.kind is Outcome.WITHIN_TOLERANCE


def test_a_constant_feature_ties_everything(two_groups):
    model = FairRanker(tolerance=0.0).fit(**{**two_groups, "X": np.ones((len(two_groups["y"]), 1))})
    assert model.violation_ == 0.0
    assert model.outcome_.kind is Outcome.WITHIN_TOLERANCE


def test_history_has_every_round():
    model = fit(HARD, max_rounds=5, solver="plain")
    assert [round_.number for round_ in model.history_] == list(range(6))
    lambda_ = np.zeros((3, 3))
    for round_ in model.history_:
        np.testing.assert_allclose(round_.lambda_, lambda_)
        assert round_.delta.shape == (3, 3)
        assert round_.violation == pytest.approx(largest_gap(round_.delta))
        assert 0.5 < round_.auc < 1.0
        assert 0.0 < round_.seconds < 10.0
        lambda_ = lambda_ - np.nan_to_num(round_.delta)


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("eta", [1.0, 20.0])
def test_the_best_round_is_kept(two_groups, constraint, eta):
    """Also where the plain update overshoots and the last round is not the best."""
    model = fit(two_groups, constraint, solver=PlainStep(eta=eta), max_rounds=6)
    best = min(model.history_, key=lambda round_: round_.violation)
    assert model.violation_ == best.violation
    np.testing.assert_array_equal(model.lambda_, best.lambda_)
    queries = Queries.from_arrays(**two_groups)
    violation = as_constraint(constraint).delta(queries, model.predict(two_groups["X"]))
    assert largest_gap(violation) == pytest.approx(best.violation)


@pytest.mark.parametrize(
    ("data", "parameters", "outcome"),
    [
        (HARD, {"max_rounds": 1}, Outcome.ROUNDS_EXHAUSTED),
        (HARD, {"max_rounds": 2, "solver": PlainStep(eta=0.1)}, Outcome.ROUNDS_EXHAUSTED),
        (one_feature(), {"max_rounds": 200}, Outcome.UNREACHABLE),
        (HARD, {"max_rounds": 200}, Outcome.UNREACHABLE),
        (
            one_feature(),
            {"max_rounds": 200, "solver": PlainStep(eta=1.0), "weighting": "paper"},
            Outcome.UNREACHABLE,
        ),
    ],
    ids=["one round", "small steps", "one feature", "tolerance 0", "lambda runs away"],
)
def test_a_missed_target_is_reported(data, parameters, outcome):
    model = FairRanker(constraint="statistical", tolerance=0.0, **parameters)
    with pytest.warns(TargetNotReachedWarning) as caught:
        model.fit(**data)
    if model.violation_ <= model.outcome_.noise_floor:
        outcome = Outcome.WITHIN_NOISE
    assert model.outcome_.kind is outcome
    (warning,) = caught
    message = str(warning.message)
    assert message.startswith(str(outcome))
    assert str(outcome).endswith(".")
    queries = Queries.from_arrays(**data)
    for fact in (
        "StatisticalParity()",
        f"{queries.n_queries} training queries",
        f"the plain ranker's was {model.history_[0].violation:.4f}",
        f"{model.violation_:.4f}",
    ):
        assert fact in message
    assert warning.filename == __file__  # it points at the caller's line
    assert len(model.history_) < 200
    assert model.predict(data["X"]).shape == data["y"].shape


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_weights_follow_from_lambda(three_groups, constraint):
    model = fit(three_groups, constraint)
    lambda_ = model.lambda_ if model.lambda_.ndim == 2 else np.tile(model.lambda_[:, None], 3)
    largest = np.minimum(lambda_, MOST)
    grown = GROWTH * np.maximum(np.exp(largest - START) - 1.0, 0.0)
    np.testing.assert_allclose(model.pair_weights_.table, 2 / (1 + np.exp(-largest)) + grown)
    reversed_ = REVERSAL * np.maximum(np.exp(-lambda_ - START) - 1.0, 0.0)
    np.testing.assert_allclose(model.pair_weights_.mirrored, reversed_)
    assert model.pair_weights_.groups == model.groups_ == ("group 1", "group 2", "group 3")


# --- Ctrl-C ---------------------------------------------------------------------------------------


def interrupt_in(fit_number):
    def act(number):
        if number == fit_number:
            raise KeyboardInterrupt

    return MinimalRanker(act)


def test_ctrl_c_keeps_the_best_round_so_far(two_groups):
    model = FairRanker(interrupt_in(2), "statistical", tolerance=0.0, solver="plain")
    with pytest.warns(TargetNotReachedWarning, match="interrupted"):
        model.fit(**two_groups)
    assert model.outcome_.kind is Outcome.INTERRUPTED
    assert len(model.history_) == 2
    assert model.violation_ == min(round_.violation for round_ in model.history_)
    violation = StatisticalParity().delta(
        Queries.from_arrays(**two_groups), model.predict(two_groups["X"])
    )
    assert largest_gap(violation) == pytest.approx(model.violation_)


def test_ctrl_c_in_the_first_fit_ends_it(two_groups):
    model = FairRanker(interrupt_in(0))
    with pytest.raises(KeyboardInterrupt):
        model.fit(**two_groups)
    with pytest.raises(NotFittedError):
        model.predict(two_groups["X"])


# --- rankers of other people ----------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["damped", "plain"])
def test_a_ranker_that_knows_neither_scikit_learn_nor_pairity(solver):
    ranker = MinimalRanker()
    model = fit(REACHABLE, ranker=ranker, solver=solver, max_rounds=10)
    assert not hasattr(ranker, "direction")  # a copy was trained
    assert model.violation_ < 0.5 * model.history_[0].violation
    assert model.ranker_.number == min(model.history_, key=lambda round_: round_.violation).number
    assert model.predict(REACHABLE["X"]).shape == REACHABLE["y"].shape


class HalfHearted:
    """A solver with the required methods only, which gives up after two rounds."""

    def start(self, *_):
        return 2

    def step(self, current, state, _):
        if not state:
            return None, state
        return current.lambda_ - np.nan_to_num(current.delta), state - 1


def test_a_user_defined_solver(two_groups):
    model = fit(two_groups, solver=HalfHearted(), max_rounds=50)
    assert len(model.history_) == 3
    assert model.outcome_.kind is Outcome.UNREACHABLE


@pytest.mark.parametrize("fit_number", [0, 2])
def test_an_error_names_its_round(two_groups, fit_number):
    def act(number):
        if number == fit_number:
            raise MemoryError("engine")

    with pytest.raises(MemoryError, match="engine") as caught:
        fit(two_groups, ranker=MinimalRanker(act), solver="plain")
    assert any(f"round {fit_number} of at most 4" in note for note in caught.value.__notes__)


class Careless(MinimalRanker):
    def __init__(self, careless):
        super().__init__()
        self.careless = careless

    def predict(self, X):
        return self.careless(super().predict(X))


@pytest.mark.parametrize(
    ("careless", "facts"),
    [
        (lambda scores: scores[:, None], r"shape \(240, 1\) for 240 items"),
        (lambda scores: scores[:-1], r"shape \(239,\) for 240 items"),
        (lambda scores: scores * np.nan, "240 scores that are NaN"),
    ],
)
def test_scores_are_checked(two_groups, careless, facts):
    with pytest.raises(InputError, match=facts):
        fit(two_groups, ranker=Careless(careless))


def test_scores_are_float64_whatever_the_ranker_returns(two_groups):
    model = fit(two_groups, ranker=Careless(lambda scores: scores.astype(np.float32).tolist()))
    assert model.predict(two_groups["X"]).dtype == np.float64


# --- memorised training queries ------------------------------------------------------------------


def test_a_ranker_that_memorised_the_training_queries_is_reported():
    data = make_biased_ranking(
        40, 10, strength=0.0, world=BiasedWorld(noise=0.0), random_state=0
    ).queries()
    with pytest.warns(MemorisedWarning, match=r"training pairs.*validation=0\.2"):
        FairRanker(LinearRanker(alpha=1e-6), max_rounds=3, tolerance=0.5).fit(**data)
    FairRanker(LinearRanker(alpha=1e-6), max_rounds=3, tolerance=0.5, validation=0.3).fit(**data)


# --- other forms of the data ----------------------------------------------------------------------


def test_queries_and_group_sizes_give_the_same_fit_as_columns(two_groups):
    columns = FairRanker(tolerance=0.02).fit(**two_groups)
    queries = Queries.from_arrays(**two_groups)
    sizes = np.bincount(queries.query)
    for model in (
        FairRanker(tolerance=0.02).fit(queries),
        FairRanker(tolerance=0.02).fit(
            two_groups["X"],
            two_groups["y"],
            group=sizes,
            sensitive_features=two_groups["sensitive_features"],
        ),
    ):
        np.testing.assert_array_equal(model.lambda_, columns.lambda_)
        np.testing.assert_array_equal(
            model.predict(two_groups["X"]), columns.predict(two_groups["X"])
        )
    assert model.score(queries) == columns.score(two_groups["X"], two_groups["y"], group=sizes)
    points = [model.path(queries, values=[0.5])[0], columns.path(**two_groups, values=[0.5])[0]]
    assert points[0].violation == points[1].violation
    with pytest.raises(InputError, match="X is Queries, which contains labels"):
        FairRanker().fit(queries, two_groups["y"])


def test_queries_keep_the_names_of_their_features(two_groups, frame):
    """A model fitted on queries made from a data frame knows its columns; no warning either way."""
    queries = Queries.from_arrays(**{**two_groups, "X": frame})
    model = FairRanker(max_rounds=0).fit(queries)
    assert list(model.feature_names_in_) == NAMES
    scores = model.predict(queries)
    for X in (queries.X, frame):
        np.testing.assert_array_equal(model.predict(X), scores)
    other = Queries.from_arrays(**{**two_groups, "X": frame[NAMES[::-1]]})
    with pytest.raises(InputError, match="column 0 is 'f4' instead of 'f0'"):
        model.predict(other)
