"""FairRanker: invalid parameters and data are refused with the facts and a remedy."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

from pairity import (
    FairRanker,
    InputError,
    InterGroup,
    IntraGroup,
    LinearRanker,
    Marginal,
    PlainStep,
)
from pairity.exceptions import ConstraintError
from support.fit_cases import NAMES, fit

# --- what is refused: parameters ------------------------------------------------------------------

BAD_WHATEVER_THE_DATA = [
    ({"tolerance": -0.1}, r"tolerance must .*\(got -0.1\)"),
    ({"tolerance": np.nan}, r"tolerance must .*\(got nan\)"),
    ({"tolerance": np.inf}, r"tolerance must .*\(got inf\)"),
    ({"tolerance": "0.1"}, r"tolerance must .*\(got '0.1'\)"),
    ({"tolerance": None}, r"tolerance must .*\(got None\)"),
    ({"tolerance": True}, r"tolerance must .*\(got True\)"),
    ({"max_rounds": -1}, r"max_rounds must .*\(got -1\)"),
    ({"max_rounds": 5.0}, r"max_rounds must .*\(got 5.0\)"),
    ({"max_rounds": np.nan}, r"max_rounds must .*\(got nan\)"),
    ({"max_rounds": True}, r"max_rounds must .*\(got True\)"),
    ({"max_rounds": "5"}, r"max_rounds must .*\(got '5'\)"),
    ({"max_rounds": None}, r"max_rounds must .*\(got None\)"),
    ({"solver": "newton"}, "'newton'.*'damped'.*'plain'"),
    ({"solver": PlainStep}, r"PlainStep\(eta"),
    ({"solver": 3}, "not a solver"),
    ({"constraint": "parity"}, "'parity'.*'statistical', 'inter', 'intra', 'marginal'"),
    ({"constraint": InterGroup}, r"InterGroup\(\)"),
    ({"constraint": None}, "None is not a constraint"),
    ({"ranker": LinearRanker}, r"LinearRanker\(\)"),
    ({"ranker": LogisticRegression()}, r"LogisticRegression.*fit_pairs.*LinearRanker\(\)"),
    ({"ranker": "linear"}, r"str is not a ranker.*LinearRanker\(\)"),
    ({"progress": "no"}, r"progress must be True, False or 'auto' \(got 'no'\)"),
    ({"progress": 2}, r"progress must .*\(got 2\)"),
    ({"validation": "0.2"}, r"validation must be one of 'auto' \(got '0.2'\)"),
    ({"tolerance": "low"}, r"tolerance must be one of 'auto' \(got 'low'\)"),
    ({"max_loss": -0.1}, "max_loss is -0.1.*such as 0.02"),
    ({"max_loss": {"map": 0.1}}, "max_loss is .*ndcg@10"),
    ({"max_loss": {"ndcg@0": 0.1}}, "max_loss is .*ndcg@10"),
    ({"max_loss": {"auc": 0.1, "ndcg@5": 0.1}}, "max_loss is .*ndcg@10"),
    ({"random_state": "x"}, r"random_state must .*\(got 'x'\)"),
]
BAD_WITH_THIS_DATA = [  # validation may be a function of the held-out data
    ({"constraint": InterGroup(only=[("group 1", "group 9")])}, "'group 9'.*'group 2'"),
    ({"constraint": IntraGroup(only=["group 9", "group 1"])}, "'group 9'.*'group 2'"),
    ({"constraint": Marginal(only=["group 1"])}, "needs 2"),
    ({"constraint": lambda queries, _: queries.y}, r"shape \(240,\).*2 groups"),
    ({"enumeration": "all"}, "enumeration must be one of 'preference', 'both'"),
    ({"weighting": "exact"}, "weighting must be one of .*'paper'.*'exact'"),
    ({"enumeration": "both", "constraint": "intra"}, "enumeration='preference'"),
    ({"weighting": "closed-form"}, "average='pair'"),
    ({"enumeration": "both", "weighting": "reversible"}, "weighting='paper'"),
    ({"ranker": LinearRanker(alpha=-1.0)}, r"alpha must .*\(got -1"),
    ({"validation": True}, "bool is not validation data.*0.2"),
    ({"validation": -2}, "-2.*between 0 and 1"),
    ({"validation": 2.5}, "validation must be a whole number, 2 or greater"),
    ({"validation": 13}, "13 folds of 12 queries are not possible"),
    ({"validation": (1, 2)}, "not validation data.*mapping"),
    ({"validation": 0.0}, "0.0.*between 0 and 1"),
    ({"validation": 1.0}, "1.0.*between 0 and 1"),
    ({"validation": np.nan}, "nan.*between 0 and 1"),
    ({"validation": 0.01}, "0.01 of 12 queries"),
    ({"validation": lambda held: {"X": held["X"]}}, "validation: 'y' is missing.*Pass X, y, qid"),
    ({"validation": lambda held: {**held, "groups": 1}}, "validation: 'groups' is not known"),
    (
        {"validation": lambda held: {**held, "X": held["X"][:, :2]}},
        "X has 2 features.*training data has 5",
    ),
    ({"validation": lambda held: {**held, "X": None}}, "validation: The queries have no features"),
    ({"validation": lambda held: {**held, "y": held["y"][:9]}}, "validation: y has 9 entries"),
    (
        {"validation": lambda held: {**held, "y": np.ones(160)}},
        "validation queries: No query has two",
    ),
    (
        {"validation": lambda held: {**held, "sensitive_features": ["other"] * 160}},
        "validation: The group 'other' was not among the training groups",
    ),
    (
        {"validation": lambda held: {**held, "sensitive_features": ["group 1"] * 160}},
        "validation queries: None of the . queries contains both 'group 1' and 'group 2'",
    ),
]


@pytest.mark.parametrize(("parameters", "facts"), BAD_WITH_THIS_DATA)
def test_bad_parameters(two_groups, held_out, parameters, facts):
    if callable(parameters.get("validation")):
        parameters = {"validation": parameters["validation"](held_out)}
    with pytest.raises(InputError, match=f"(?s){facts}"):
        FairRanker(**parameters).fit(**two_groups)


@pytest.mark.parametrize(("parameters", "facts"), BAD_WHATEVER_THE_DATA, ids=str)
def test_bad_parameters_are_found_before_the_data_are_read(parameters, facts):
    with pytest.raises(InputError, match=facts):
        FairRanker(**parameters).fit([[np.nan]], [1], qid=[], sensitive_features=[])


@pytest.mark.parametrize("columns", [NAMES[::-1], ["g", *NAMES[1:]]])
def test_columns_of_validation_must_be_those_of_training(two_groups, held_out, frame, columns):
    held = {**held_out, "X": pd.DataFrame(held_out["X"], columns=columns)}
    with pytest.raises(InputError, match=r"validation: column 0 of X is .*'f0' in the"):
        FairRanker(validation=held).fit(**{**two_groups, "X": frame})


@pytest.mark.parametrize(
    "parameters",
    [
        {"tolerance": np.float32(0.5), "max_rounds": np.int64(2)},
        {"tolerance": 1, "random_state": np.random.RandomState(0), "validation": 0.3},
        {"tolerance": 1, "progress": True, "solver": PlainStep(eta=2)},
    ],
)
def test_numbers_may_be_numpys(two_groups, parameters):
    FairRanker(**parameters).fit(**two_groups)


# --- what is refused: data ------------------------------------------------------------------------


def by_query(*groups):
    """A function of the data: the first group in the even queries, the second in the odd ones."""
    return lambda data: np.array(groups)[data["qid"] % 2]


def in_group_1(data):
    return (data["sensitive_features"] == "group 1").astype(int)


@pytest.mark.parametrize(
    ("change", "constraint", "facts"),
    [
        ({"sensitive_features": by_query("a", "b")}, "inter", "12 queries.*'a' and 'b'"),
        ({"sensitive_features": by_query("a", "b")}, "statistical", "'a' and 'b'.*IntraGroup"),
        ({"sensitive_features": by_query("a", "a")}, "inter", "only the group 'a' in 240 rows"),
        ({"sensitive_features": [None] * 240}, "inter", "has no group in"),
        ({"sensitive_features": None}, "inter", "has no group in"),
        ({"y": np.ones(240)}, "inter", "No query has two different labels.*12 queries"),
        ({"y": np.ones(240)}, "statistical", "No query has two different labels"),
        ({"qid": np.arange(240)}, "statistical", "240 queries"),
        ({"y": in_group_1}, "inter", "'group 2' above 'group 1'.*StatisticalParity"),
        (
            {"y": in_group_1},
            "intra",
            "prefers an item of the group 'group 1' to another item of it",
        ),
        (
            {"y": in_group_1},
            "marginal",
            "prefers an item of the group 'group 2' to any other item.*only",
        ),
        ({"X": None}, "inter", "no features.*Pass X"),
        ({"y": None}, "inter", "y is None"),
        ({"qid": lambda data: data["qid"][:9]}, "inter", "qid has 9 entries.*240 rows"),
    ],
)
def test_bad_data(two_groups, change, constraint, facts):
    """A column is changed to a value, or to that of a function of the data."""
    changed = {
        name: value(two_groups) if callable(value) else value for name, value in change.items()
    }
    with pytest.raises(InputError, match=f"(?s){facts}"):
        FairRanker(constraint=constraint).fit(**{**two_groups, **changed})


def test_a_constraint_that_compares_nothing(two_groups):
    def nothing(queries, scores):
        return np.full((2, 2), np.nan)

    with pytest.raises(ConstraintError, match="has nothing to compare in the 12 queries"):
        FairRanker(constraint=nothing).fit(**two_groups)


def test_a_constraint_must_compare_the_same_entries_for_all_scores(two_groups):
    def moody(queries, scores):
        return np.array([0.5, np.nan if scores.any() else 0.0])

    with pytest.raises(ConstraintError, match="NaN only where the data") as caught:
        FairRanker(constraint=moody).fit(**two_groups)
    assert "round 0" in caught.value.__notes__[0]


def test_groups_that_never_meet_can_be_compared_inside(two_groups):
    fit({**two_groups, "sensitive_features": by_query("a", "b")(two_groups)}, "intra", max_rounds=1)


def test_a_failed_fit_leaves_nothing_fitted(two_groups):
    model = FairRanker()
    with pytest.raises(InputError):
        model.fit(**{**two_groups, "y": np.ones(240)})
    with pytest.raises(NotFittedError):
        model.predict(two_groups["X"])
