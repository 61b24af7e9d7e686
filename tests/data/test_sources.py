"""The one entry point for data: columns, ready queries, sizes of queries in place of ids."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from pairity import FairRanker, LinearRanker, Queries, audit
from pairity.data.sources import open_queries, queries_type, read_alike
from pairity.datasets import BiasedWorld, make_biased_ranking
from pairity.exceptions import InputError

Y = [1, 0, 1, 0, 1, 0, 0]
SIZES = [2, 3, 2]
QID = ["b", "b", "a", "a", "a", "c", "c"]
GROUPS = ["f", "m", "m", "f", "m", "f", "m"]


def table(**changed):
    X = np.arange(14.0).reshape(7, 2)
    return {"X": X, "y": Y, "qid": QID, "sensitive_features": GROUPS, **changed}


@pytest.fixture(scope="module")
def data():
    made = make_biased_ranking(20, 20, world=BiasedWorld(n_features=3), random_state=0)
    frame = pd.DataFrame(made.X, columns=["a", "b", "c"])
    return {
        "X": frame, "y": made.y, "qid": made.qid, "sensitive_features": made.sensitive_features,
    }  # fmt: skip


# --- sizes of queries ----------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [SIZES, np.array(SIZES), (2.0, 3.0, 2.0), pd.Series(SIZES)])
def test_sizes_stand_for_ids(sizes):
    by_size = Queries.from_arrays(**table(qid=None, group=sizes))
    assert by_size == Queries.from_arrays(**table(qid=np.repeat([0, 1, 2], SIZES)))
    assert by_size.query_ids.tolist() == [0, 1, 2]


def test_sizes_and_ids_that_agree():
    assert Queries.from_arrays(**table(group=SIZES)) == Queries.from_arrays(**table())


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ([2, 3], "2 queries with 5 rows, but there are 7 rows"),
        ([2, 3, 3], "3 queries with 8 rows, but there are 7 rows"),
        ([2, 0, 5], "group holds 0, but must hold .* positive whole numbers"),
        ([4, -1, 4], "group holds -1"),
        ([2, 2.5, 2.5], "group holds 2.5"),
        ([2, np.nan, 5], "group holds nan"),
        ([True] * 7, "group holds True"),
        (GROUPS, "group holds 'f'.*protected groups as sensitive_features"),
        ([], "group is empty"),
    ],
)
def test_sizes_that_are_refused(sizes, message):
    with pytest.raises(InputError, match=message):
        Queries.from_arrays(**table(qid=None, group=sizes))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"group": [3, 2, 2]}, "by qid a query starts in row 2, by group it does not"),
        ({"group": [2, 2, 1, 2]}, "by group a query starts in row 4, by qid it does not"),
        ({"group": [1, 4, 2]}, "by group a query starts in row 1, by qid it does not"),
        ({"qid": ["b", "a", "b", "a", "a", "c", "c"]}, "query 'b' continues in row 2 .* Sort"),
        (
            {"qid": ["b", "b", "a", "a", "a", "b", "b"]},
            "contiguous, .*'b' continues in row 5",
        ),
    ],
)
def test_sizes_and_ids_that_disagree(changed, message):
    with pytest.raises(InputError, match=message):
        Queries.from_arrays(**table(**{"group": SIZES, **changed}))


def test_neither_sizes_nor_ids():
    with pytest.raises(InputError, match=r"qid is missing\..*group"):
        Queries.from_arrays(**table(qid=None))


# --- ready queries -------------------------------------------------------------------------------


def test_models_and_audits_accept_queries(data):
    queries = Queries.from_arrays(**data)
    model = FairRanker(tolerance=0.03).fit(**data)
    ready = FairRanker(tolerance=0.03).fit(queries)
    assert ready.feature_names_in_.tolist() == ["a", "b", "c"]
    assert ready.training_digest_ == model.training_digest_
    np.testing.assert_array_equal(ready.lambda_, model.lambda_)
    scores = ready.predict(data["X"])
    np.testing.assert_array_equal(scores, model.predict(data["X"]))
    path = model.path(**data, values=[0, 1])
    assert [point.auc for point in ready.path(queries, values=[0, 1]).points] == [
        point.auc for point in path.points
    ]
    columns = {key: value for key, value in data.items() if key not in ("X", "y")}
    whole = audit(data["y"], scores, **columns)
    assert audit(queries, scores).to_dict() == whole.to_dict()
    ranker = LinearRanker().fit(queries)
    np.testing.assert_allclose(
        ranker.coef_, LinearRanker().fit(data["X"], data["y"], qid=data["qid"]).coef_, rtol=1e-12
    )


def test_models_and_audits_accept_sizes(data):
    sizes = {**data, "qid": None, "group": [20] * 20}
    plain = FairRanker(max_rounds=0)
    assert clone(plain).fit(**sizes).training_digest_ == plain.fit(**data).training_digest_
    scores = data["X"]["a"]
    by_size = audit(
        data["y"], scores, group=[20] * 20, sensitive_features=data["sensitive_features"]
    )
    by_id = audit(data["y"], scores, qid=data["qid"], sensitive_features=data["sensitive_features"])
    assert by_size.to_dict() == by_id.to_dict()


@pytest.mark.parametrize("extra", [{"y": Y}, {"qid": QID}, {"group": SIZES}])
def test_columns_beside_queries_are_refused(extra):
    queries, (name,) = Queries.from_arrays(**table()), extra
    with pytest.raises(InputError, match=f"X is Queries, .* but {name} was passed too. Leave it"):
        FairRanker().fit(queries, **extra)


def test_raw_queries_are_validated_for_rankers_that_need_numbers(data):
    gaps = data["X"].assign(a=data["X"]["a"].where(data["X"]["a"] > -1))
    queries = Queries.from_arrays(**{**data, "X": gaps}, raw=True)
    with pytest.raises(InputError, match="NaN or infinity"):
        FairRanker().fit(queries)
    with open_queries({"X": queries}, raw=True) as unchanged:
        assert unchanged is queries
    raw = Queries.from_arrays(**data, raw=True)
    with open_queries({"X": raw}) as validated:
        assert validated == Queries.from_arrays(**data)
        assert validated.feature_types == ["Float64"] * 3


def test_further_queries_have_the_features_and_groups_of_the_first(data):
    queries = Queries.from_arrays(**data)
    some = {name: column[:40] for name, column in data.items()}
    assert read_alike(some, queries, raw=False).groups == queries.groups
    sized = {**some, "group": [20, 20]}
    del sized["qid"]
    assert read_alike(sized, queries, raw=False).n_queries == 2
    assert read_alike(Queries.from_arrays(**some), queries, raw=False).n_queries == 2
    with pytest.raises(InputError, match="column 0 of X is 'd', but 'a' in the training data"):
        read_alike({**some, "X": some["X"].rename(columns={"a": "d"})}, queries, raw=False)
    with pytest.raises(InputError, match="X has 2 features, but the training data has 3"):
        read_alike({**some, "X": some["X"][["a", "b"]]}, queries, raw=False)
    with pytest.raises(InputError, match="'qid' is missing"):
        read_alike({name: some[name] for name in some if name != "qid"}, queries, raw=False)
    with pytest.raises(InputError, match="list is not validation data"):
        read_alike([1], queries, raw=False)


def test_data_in_memory_import_no_dask(data):
    assert queries_type(data) is Queries
    code = (
        "import sys, pairity\n"
        "pairity.FairRanker(max_rounds=1, tolerance=1).fit([[0.], [1.]] * 2, [0, 1] * 2,"
        " qid=[0, 0, 1, 1], sensitive_features=['f', 'm', 'm', 'f'])\n"
        "print({'dask', 'distributed', 'pairity.data.distributed'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
