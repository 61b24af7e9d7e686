"""The door: what becomes a `Queries`, what is refused and how, and the layout behind it."""

import copy
import pickle
from dataclasses import FrozenInstanceError
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import DataConversionWarning

from pairity import InputError, PairityError, Queries
from pairity.data.checks import require_groups, require_preferences

X = np.array([[0.5, 1.0], [1.5, 0.0], [0.0, 2.0], [3.0, 0.0], [0.0, 0.0], [2.0, 1.0]])
Y = [2, 0, 1, 0, 1, 0]
QID = ["b", "a", "b", "a", "c", "b"]
GROUP = ["f", "m", None, "m", "f", "m"]


def table(**changed):
    return {"X": X, "y": Y, "qid": QID, "sensitive_features": GROUP, **changed}


def make(**changed):
    return Queries.from_arrays(**table(**changed))


def refused(facts, call, *args, **kwargs):
    """One error of our own, with all the facts in it, and nothing else on the way."""
    with pytest.raises(InputError) as caught:
        call(*args, **kwargs)
    for fact in facts if isinstance(facts, list) else [facts]:
        assert str(fact) in str(caught.value)


def test_what_a_table_becomes():
    queries = make(sample_weight=[1, 2, 3, 4, 5, 6], query_weight={"a": 1, "b": 2, "c": 3})
    assert queries.query_ids.tolist() == ["a", "b", "c"]
    assert queries.query.tolist() == [1, 0, 1, 0, 2, 1]
    assert queries.groups == ("f", "m")
    assert queries.group.tolist() == [0, 1, 2, 1, 0, 1]
    assert queries.y.tolist() == Y
    assert queries.item_weight.tolist() == [1, 2, 3, 4, 5, 6]
    assert queries.query_weight.tolist() == [1, 2, 3]
    assert (queries.n_items, queries.n_queries, queries.n_groups) == (6, 3, 2)
    assert (queries.n_missing, queries.n_codes) == (1, 3)
    assert queries.weight_of_query.tolist() == [1, 2, 3]
    assert make().weight_of_query.tolist() == [1, 1, 1]
    np.testing.assert_array_equal(queries.pad([[1, 2], [3, 4]]), [[1, 2, 1], [3, 4, 1], [1, 1, 1]])
    assert repr(queries) == (
        "Queries(n_queries=3, n_items=6, n_features=2, groups=('f', 'm'), n_missing=1)"
    )


# --- every kind of table is the same table ------------------------------------------------------

FRAME = {"a": X[:, 0], "b": X[:, 1]}
ARROW_STRINGS = pd.ArrowDtype(pa.string())

FEATURES = {
    "nested lists": X.tolist(),
    "tuples": tuple(map(tuple, X.tolist())),
    "float32": X.astype(np.float32),
    "big-endian": X.astype(">f8"),
    "column-major": np.asfortranarray(X),
    "objects": X.astype(object),
    "decimals": np.vectorize(lambda v: Decimal(str(v)), otypes=[object])(X),
    "pandas": pd.DataFrame(FRAME),
    "pandas, numbered": pd.DataFrame(X),
    "pandas, nullable": pd.DataFrame(FRAME).convert_dtypes(),
    "pandas, Arrow": pd.DataFrame(FRAME).convert_dtypes(dtype_backend="pyarrow"),
    "pandas, objects": pd.DataFrame(FRAME, dtype=object),
    "pandas, sparse": pd.DataFrame(FRAME).astype("Sparse[float64]"),
    "polars": pl.DataFrame(FRAME),
    "polars, decimals": pl.DataFrame(FRAME).cast(pl.Decimal(10, 3)),
    "pyarrow": pa.table(FRAME),
    "pyarrow batch": pa.record_batch(FRAME),
}


@pytest.mark.parametrize("kind", FEATURES)
def test_features_of_every_kind(kind):
    queries = make(X=FEATURES[kind])
    assert queries == make()
    assert queries.X.dtype == np.float64
    named = None if isinstance(FEATURES[kind], (list, tuple, np.ndarray)) else ("a", "b")
    assert queries.feature_names == (None if kind == "pandas, numbered" else named)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"])
@pytest.mark.parametrize("form", ["array", "matrix"])
def test_sparse_features_become_csr(kind, form):
    queries = make(X=getattr(sp, f"{kind}_{form}")(X))
    assert isinstance(queries.X, sp.csr_array)
    np.testing.assert_array_equal(queries.X.toarray(), X)
    assert queries == make(X=sp.csr_array(X))
    assert queries != make()


def test_whole_number_and_boolean_features_are_numbers():
    mixed = {"a": [1, 2, 3, 4, 5, 6], "b": [True, False] * 3, "c": [0.5] * 6}
    for frame in (pd.DataFrame(mixed), pl.DataFrame(mixed), pa.table(mixed)):
        assert make(X=frame).X.tolist() == [[i + 1, i % 2 == 0, 0.5] for i in range(6)]


COLUMNS = {
    "array": np.array,
    "objects": lambda values: np.array(values, dtype=object),
    "column vector": lambda values: np.array(values, dtype=object)[:, None],
    "tuple": tuple,
    "pandas": pd.Series,
    "pandas, other index": lambda values: pd.Series(values, index=range(len(values), 0, -1)),
    "pandas, nullable": lambda values: pd.Series(values).convert_dtypes(),
    "pandas, Arrow": lambda values: pd.Series(values).convert_dtypes(dtype_backend="pyarrow"),
    "pandas, categories": lambda values: pd.Series(values, dtype="category"),
    "pandas array": lambda values: pd.array(values),
    "pandas index": pd.Index,
    "pandas Categorical": pd.Categorical,
    "pandas frame": lambda values: pd.DataFrame({0: values}),
    "polars": pl.Series,
    "polars frame": lambda values: pl.DataFrame({"it": values}),
    "pyarrow array": pa.array,
    "pyarrow chunks": lambda values: pa.chunked_array([values[:2], values[2:]]),
    "pyarrow dictionary": lambda values: pa.array(values).dictionary_encode(),
    "pyarrow dictionaries": lambda values: pa.chunked_array([values]).dictionary_encode(),
    "pyarrow table": lambda values: pa.table({"it": values}),
    "pyarrow scalars": lambda values: list(pa.array(values)),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_columns_of_every_kind(kind):
    column = COLUMNS[kind]
    changed = {"qid": column(QID), "sensitive_features": column(GROUP)}
    if kind != "column vector":  # of which y warns, see below
        changed["y"] = Y if kind == "pyarrow scalars" else column(Y)
    assert make(**changed) == make()


@pytest.mark.parametrize("dtype", [pl.Categorical, pl.Enum(["m", "f", "unused"]), pl.String])
def test_polars_text_of_every_type(dtype):
    queries = make(sensitive_features=pl.Series(GROUP, dtype=dtype))
    assert queries.groups == (("m", "f") if isinstance(dtype, pl.Enum) else ("f", "m"))
    assert queries.n_missing == 1


def test_labels_may_be_binary_graded_or_real():
    for y in ([True, False] * 3, [0, 4, 1, 2, 3, 1], [-0.5, 1e300, 0.25, -1e-300, 0, 7]):
        assert make(y=y).y.tolist() == y
    assert make(y=[Decimal("0.5"), Fraction(1, 4), np.float32(2), 1, True, 2**60]).y[0] == 0.5


def test_a_column_vector_of_labels_warns_as_in_scikit_learn():
    with pytest.warns(DataConversionWarning, match="column-vector y"):
        assert make(y=np.array(Y)[:, None]) == make()


IDS = {
    "integers": [7, -1],
    "integers beyond int64": [2**63, 2**64],
    "integers that float64 cannot tell apart": [2**53, 2**53 + 1, 0.5],
    "NumPy integers that float64 cannot tell apart": [np.int64(2**53), np.int64(2**53 + 1), 0.5],
    "enormous integers": [10**5000, 10**5000 + 1, "text beside them"],
    "floats": [0.5, -np.inf, np.float64(3)],
    "booleans": [True, False],
    "strings": ["x", "", "x "],
    "numerals": [1, "1"],
    "NumPy numerals": [np.int64(1), np.str_("1")],
    "bytes": [b"a", b"a\x00", "a"],
    "NumPy bytes": [np.bytes_(b"a"), np.bytes_(b"a\x00")],
    "tuples": [("shop", 1), ("shop", 2), ("shop", None)],
    "nested tuples": [((1,), "x"), ((1, 2), "x")],
    "dates": [date(2024, 1, 1), date(2024, 1, 2)],
    "times": [datetime(2024, 1, 1, 5), datetime(2024, 1, 1, 6)],
    "NumPy times": [np.datetime64("2024-01-01T05", "ns"), np.datetime64("2024-01-02", "ns")],
    "spans": [timedelta(1), timedelta(2)],
    "decimals": [Decimal("1.10"), Decimal("1.2")],
    "complex": [1j, 2j],
    "UUIDs": [UUID(int=1), UUID(int=2)],
    "a mixture": [1, "a", 2.5, b"a", (1, "a"), date(2024, 1, 1), frozenset([1])],
}


@pytest.mark.parametrize("kind", IDS)
def test_query_ids_of_every_kind_in_any_order(kind):
    ids = IDS[kind]
    at = np.random.default_rng(0).permutation(np.repeat(np.arange(len(ids)), 5))
    given_as = [ids[k] for k in at]
    y = np.arange(len(at)) % 2
    queries = Queries.from_arrays(None, y, qid=given_as)
    assert queries.n_queries == len(ids)
    back = [queries.query_ids[q] for q in queries.query]
    assert all(mine == theirs for mine, theirs in zip(back, given_as, strict=True))
    assert Queries.from_arrays(**queries) == queries
    backwards = Queries.from_arrays(None, y[::-1], qid=given_as[::-1])
    assert backwards.query.tolist() == queries.query[::-1].tolist()
    weight = {value: 1.0 + k for k, value in enumerate(ids)}
    weighted = Queries.from_arrays(None, y, qid=given_as, query_weight=weight)
    assert weighted.query_weight[weighted.query].tolist() == (1.0 + at).tolist()


@pytest.mark.parametrize("odd", ["", "é", "\U0001f600", "\ud800", "q1\0", "q" * 100])
def test_many_texts_are_sorted_as_few_are(odd):
    ids = [odd, *(f"q{k}" for k in np.random.default_rng(0).permutation(12_000))]
    queries = Queries.from_arrays(None, np.zeros(len(ids)), qid=ids)
    assert queries.query_ids.tolist() == sorted(ids)
    assert queries.query_ids[queries.query].tolist() == ids


def test_equal_ids_are_one_query():
    assert make(qid=[1, 1.0, True, np.int8(1), Decimal(1), "1"]).n_queries == 2


@pytest.mark.parametrize("unit", ["D", "ns"])
def test_times_as_ids_of_tables(unit):
    times = np.array(["2024-01-02", "2024-01-01"] * 3, dtype=f"M8[{unit}]")
    for column in (times, pd.Series(times), pl.Series(times), pa.array(times)):
        assert make(qid=column).query.tolist() == [1, 0] * 3
    times[4] = "NaT"
    for column in (times, pd.Series(times), pl.Series(times), pa.array(times)):
        refused(["qid", "1 rows", "row 4"], make, qid=column)


def test_times_that_python_cannot_write():
    far = pl.Series([2**62] * 6).cast(pl.Datetime("ms"))  # polars panics over it
    refused(["qid", "Datetime", "Convert"], make, qid=far)


# --- what is refused ----------------------------------------------------------------------------


class Stubborn:
    """Refuses to be hashed, compared or converted."""

    def _refuse(self, *_, **__):
        raise RuntimeError("no")

    __hash__ = __eq__ = __ne__ = __lt__ = __float__ = __array__ = __bool__ = _refuse


def six(value, usual=1):
    return [usual, usual, usual, value, usual, value]


def numbers_with(value):
    changed = X.copy()
    changed[3, 1] = value
    return changed


STRUCTURED = np.zeros(6, dtype=[("left", int), ("right", float)])
LAZY = pl.LazyFrame({"a": [1] * 6})
TWINS = pd.DataFrame(X, columns=["twin", "twin"])

NOT_A_COLUMN = [
    ({"a": 1}, "dict"),
    ({1, 2, 3, 4, 5, 6}, "set"),
    (frozenset(range(6)), "frozenset"),
    ((i for i in range(6)), "generator"),
    (iter([1, 2, 3, 4, 5, 6]), "list_iterator"),
    (dict.fromkeys(range(6)).values(), "dict_values"),
    (3, "int"),
    (np.float64(3), "()"),
    (np.array(3), "()"),
    ("abcdef", "str"),
    (b"abcdef", "bytes"),
    (bytearray(6), "bytearray"),
    (object(), "object"),
    (int, "type"),
    (len, "builtin_function_or_method"),
    (Stubborn(), "Stubborn"),
    (np.ones((6, 2, 2)), "(6, 2, 2)"),
    (np.ma.masked_array(range(6), mask=[0, 1, 0, 0, 1, 0]), ["masked", "2 of its 6"]),
    (STRUCTURED, ["structured", "left, right"]),
    (STRUCTURED.view(np.recarray), "left, right"),
    (np.zeros(6, "V4"), "raw bytes"),
    (sp.csr_array(np.ones((6, 1))), "sparse"),
    (sp.dok_array(np.ones((6, 1))), "sparse"),
    (LAZY, ["lazy", "collect()"]),
    (TWINS, ["'twin' 2 times", "Rename"]),
    ([1] * 5, ["5 entries", "6 rows"]),
    (np.ones(7), ["7 entries", "6 rows"]),
    ([], ["0 entries", "6 rows"]),
    (pl.Series([1] * 5), ["5 entries", "6 rows"]),
]


@pytest.mark.parametrize("argument", ["y", "qid", "sensitive_features", "sample_weight"])
@pytest.mark.parametrize(("value", "facts"), NOT_A_COLUMN, ids=lambda v: type(v).__name__)
def test_what_is_not_a_column(argument, value, facts):
    if type(value) is dict and argument == "sensitive_features":  # it may have columns, but 1
        facts = "int"
    refused([argument, *(facts if isinstance(facts, list) else [facts])], make, **{argument: value})


@pytest.mark.parametrize("argument", ["y", "qid", "sample_weight", "query_weight"])
def test_several_columns_where_one_is_needed(argument):
    for two in (pd.DataFrame(FRAME), pl.DataFrame(FRAME), pa.table(FRAME)):
        refused([argument, "2 columns"], make, **{argument: two})
    refused([argument, "(6, 2)"], make, **{argument: X})


NOT_NUMBERS = [
    (six("high"), ["'high'", "row 3"]),
    (six("1"), ["'1'", "row 3"]),
    (np.array(six("1")), ["'1'", "row 0"]),
    (np.array(six("1"), dtype=np.dtypes.StringDType()), ["'1'", "row 0"]),
    (six(b"1"), ["b'1'", "row 3"]),
    (six([1]), ["[1]", "row 3"]),
    (six((1, 2)), ["(1, 2)", "row 3"]),
    (six({}), ["{}", "row 3"]),
    (six(1j), ["1j", "row 3"]),
    (np.full(6, 1j), "complex"),
    (six(date(2024, 1, 1)), ["date", "row 3"]),
    (np.full(6, np.datetime64("2024-01-01")), ["2024-01-01", "row 0"]),
    (np.full(6, np.timedelta64(1, "s")), ["timedelta64", "row 0"]),
    (six(np.timedelta64(1, "s")), ["timedelta64", "row 3"]),
    (pd.Series(pd.date_range("2024", periods=6)), ["2024", "row 0"]),
    (pd.Series(["lo", "hi"] * 3, dtype="category"), ["'lo'", "row 0"]),
    (pl.Series([["nested"]] * 6), ["nested", "row 0"]),
    (six(np.ones(2)), ["array", "row 3"]),
    (six(Stubborn()), ["Stubborn", "row 3"]),
    (six("x" * 10_000), ["xxx...xxx", "row 3"]),
    (six(10**400), ["float64", "row 3"]),
    (six(-(10**5000)), ["float64", "row 3"]),
    (six(Fraction(10**400, 3)), ["float64", "row 3"]),
]


@pytest.mark.parametrize("argument", ["y", "sample_weight", "query_weight"])
@pytest.mark.parametrize(("value", "facts"), NOT_NUMBERS)
def test_what_is_not_a_number(argument, value, facts):
    refused([argument, *(facts if isinstance(facts, list) else [facts])], make, **{argument: value})


NOT_FINITE = {
    "NaN": six(np.nan),
    "infinity": six(np.inf),
    "minus infinity": six(-np.inf),
    "None": six(None),
    "pandas.NA": six(pd.NA),
    "NaT": six(pd.NaT),
    "Decimal NaN": six(Decimal("NaN")),
    "signalling NaN": six(Decimal("sNaN")),
    "beyond float64": np.array(six("1e4000", "1"), dtype=np.longdouble),
    "pandas": pd.Series(six(None)),
    "pandas, nullable": pd.Series(six(None), dtype="Int64"),
    "pandas, Arrow": pd.Series(six(None), dtype="int64[pyarrow]"),
    "polars": pl.Series(six(None)),
    "polars NaN": pl.Series(six(np.nan, 1.0)),
    "pyarrow": pa.array(six(None)),
    "pyarrow chunks": pa.chunked_array([six(None)]),
}


@pytest.mark.parametrize("argument", ["y", "sample_weight", "query_weight"])
@pytest.mark.parametrize("kind", NOT_FINITE)
def test_what_is_not_finite(argument, kind):
    refused([argument, "2 entries", "NaN", "row 3"], make, **{argument: NOT_FINITE[kind]})


MISSING_IDS = ["None", "NaN", "pandas.NA", "NaT", "signalling NaN", "pandas", "polars", "pyarrow"]


@pytest.mark.parametrize("kind", MISSING_IDS)
def test_a_missing_query_id(kind):
    refused(["qid", "2 rows", "row 3", "Pass a query id"], make, qid=NOT_FINITE[kind])


@pytest.mark.parametrize(
    ("ids", "facts"),
    [
        (six(("shop", np.nan), ("shop", 1.0)), ["missing", "row 3"]),
        (six(complex("nan"), 1j), ["missing", "row 3"]),
        (six([1]), ["hashed", "tuples"]),
        (six({1}), "hashed"),
        (six(([],)), "hashed"),
        (six(np.ones(2)), "hashed"),
        (six(Stubborn()), "hashed"),
        (pl.Series([[1]] * 6), "hashed"),
        (pa.array([{"a": 1}] * 6), "hashed"),
    ],
)
def test_other_query_ids_that_are_refused(ids, facts):
    refused(["qid", *(facts if isinstance(facts, list) else [facts])], make, qid=ids)


NOT_FEATURES = [
    (3, ["int", "2D array"]),
    ("text", ["str", "2D array"]),
    ({"a": [1] * 6}, ["dict", "2D array"]),
    ({1, 2}, ["set", "2D array"]),
    ((row for row in X), ["generator", "2D array"]),
    (LAZY, ["lazy", "collect()"]),
    (Stubborn(), "Stubborn"),
    (X[:, 0], ["2D array", "(6,)", "Reshape your data"]),
    (np.ones((6, 2, 2)), ["2D array", "(6, 2, 2)"]),
    (pd.Series(X[:, 0]), ["2D array", "6 entries", "to_frame"]),
    (pl.Series([[1, 2]] * 6), ["2D array", "6 entries"]),
    (pa.array(X[:, 0]), ["2D array", "6 entries"]),
    (sp.coo_array(np.ones(6)), ["2D array", "1D"]),
    ([], "0 sample(s)"),
    (np.empty((0, 2)), ["0 sample(s)", "(0, 2)"]),
    (np.empty((6, 0)), ["0 feature(s)", "(6, 0)"]),
    (sp.csr_array((6, 0)), ["0 feature(s)", "(6, 0)"]),
    (pd.DataFrame(), "0 sample(s)"),
    (pd.DataFrame(index=range(6)), ["0 feature(s)", "(6, 0)"]),
    (pl.DataFrame({"a": []}), "0 sample(s)"),
    (pa.table({}), "0 sample(s)"),
    ([[1, 2], [3]] * 3, ["inhomogeneous", "one number per feature"]),
    (X * 1j, "Complex data"),
    (sp.csr_array(X * 1j), "Complex data"),
    (np.ma.masked_array(X, mask=X > 2), ["masked", "1 of its 12"]),
    (np.zeros((6, 2), dtype=[("left", int)]), ["structured", "left"]),
    (np.full((6, 2), np.datetime64("2024-01-01")), ["Column 0", "2024-01-01"]),
    (np.full((6, 2), np.timedelta64(1, "s")), ["Column 0", "timedelta64"]),
    (np.full((6, 2), "1"), ["Column 0", "'1'", "row 0"]),
    ([[1, 2]] * 5 + [[1, "two"]], ["Column 1", "'two'", "row 5"]),
    ([[1, 10**400]] * 6, ["Column 1", "float64", "row 0"]),
    (pd.DataFrame({"a": [1] * 6, "b": list("uvwxyz")}), ["'b'", "String"]),
    (pd.DataFrame({"a": [1] * 6, "b": pd.Categorical([1] * 6)}), ["'b'", "Categorical"]),
    (pd.DataFrame({"a": six({"b": 1})}), ["'a'", "{'b': 1}", "row 3"]),
    (pl.DataFrame({"a": [date(2024, 1, 1)] * 6}), ["'a'", "Date"]),
    (pl.DataFrame({"a": [[1]] * 6}), ["'a'", "List"]),
    (pa.table({"a": ["x"] * 6}), ["'a'", "String"]),
    (TWINS, ["'twin' 2 times", "Rename"]),
    (pd.DataFrame(X, columns=["a", 1]), ["column names", "such as 1", "text"]),
    (numbers_with(np.nan), ["NaN", "1 values", "row 3", "column 1"]),
    (numbers_with(-np.inf), ["infinity", "row 3", "column 1", "-inf"]),
    (sp.csc_array(numbers_with(np.nan)), ["NaN", "1 values", "row 3", "column 1"]),
    (numbers_with(np.nan).astype(object), ["NaN", "row 3", "column 1"]),
    (pd.DataFrame(numbers_with(np.nan), columns=["a", "b"]), ["row 3", "column 'b'"]),
    (pd.DataFrame({"a": six(None)}, dtype="Int64"), ["row 3", "column 'a'"]),
    (pd.DataFrame({"a": six(None)}, dtype="float64[pyarrow]"), ["row 3", "column 'a'"]),
    (pl.DataFrame({"a": six(None)}), ["2 values", "row 3", "column 'a'"]),
    (pl.DataFrame({"a": six(None, True)}), ["2 values", "row 3", "column 'a'"]),
    (pa.table({"a": six(None)}), ["2 values", "row 3", "column 'a'"]),
    (X.astype(np.longdouble) * np.longdouble("1e4000"), ["infinity", "row 0", "column 0"]),
]


@pytest.mark.parametrize(("value", "facts"), NOT_FEATURES)
def test_features_that_are_refused(value, facts):
    refused(["X", *(facts if isinstance(facts, list) else [facts])], make, X=value)


def test_a_sparse_matrix_with_indices_out_of_bounds():
    broken = sp.csr_array(X)
    broken.indices[0] = 99
    refused(["X", "sparse", "indices"], make, X=broken)


def test_features_too_large_to_add_up_are_finite_all_the_same():
    assert make(X=np.full((6, 2), 1.7e308)).X[0, 0] == 1.7e308


def test_an_object_among_the_features_is_a_type_error_too():
    """As scikit-learn's check_dtype_object wants it."""
    features = X.astype(object)
    features[0, 0] = {"foo": "bar"}
    with pytest.raises(TypeError, match=r"argument must be .* string.* number"):
        make(X=features)


REFUSED = [
    ({"y": None}, ["requires y to be passed, but the target y is None"]),
    ({"qid": None}, ["qid is missing", "group"]),
    ({"X": None, "y": [], "qid": []}, ["y", "0 entries", "empty"]),
    ({"X": X[:4]}, ["y", "6 entries", "4 rows"]),
    ({"y": [2**60 + i for i in range(6)]}, ["y", "6 different labels", "only 1."]),
    ({"y": [2**53 + 1, 2**53, 0, 0, 0, 0]}, ["y", "3 different labels", "only 2."]),
    ({"sample_weight": six(-2)}, ["sample_weight", "2 negative", "row 3", "-2"]),
    ({"sample_weight": [0] * 6}, ["sample_weight", "zero in all 6 rows"]),
    ({"sample_weight": six(1e200)}, ["sample_weight", "1e+200", "Divide"]),
    ({"sample_weight": six(1e-200)}, ["sample_weight", "1e-200", "Divide"]),
    ({"query_weight": [-1] * 6}, ["query_weight", "6 negative", "row 0"]),
    ({"query_weight": [1, 2, 1, 2, 3, 4]}, ["query_weight", "differs", "'b'", "row 0"]),
    ({"query_weight": {"a": 1, "c": 1}}, ["query_weight", "1 queries", "'b'"]),
    ({"query_weight": {"a": 1, "b": -1, "c": 1}}, ["query_weight", "negative", "row 0"]),
    ({"query_weight": {"a": "x", "b": 1, "c": 1}}, ["query_weight", "'x'", "row 1"]),
    ({"query_weight": {}}, ["query_weight", "3 queries", "'a'"]),
]


@pytest.mark.parametrize(("changed", "facts"), REFUSED)
def test_other_tables_that_are_refused(changed, facts):
    refused(facts, make, **changed)


def test_queries_that_prefer_nothing():
    refused(["3 queries", "y, qid and the weights"], require_preferences, make(y=[1] * 6))
    refused(["6 queries"], require_preferences, make(qid=range(6)))
    require_preferences(make())


def test_fewer_than_two_groups():
    refused(["only the group 'f'", "6 rows"], require_groups, make(sensitive_features=["f"] * 6))
    refused(["has no group in", "6 rows"], require_groups, make(sensitive_features=[None] * 6))
    refused(["has no group in"], require_groups, make(sensitive_features=None))
    require_groups(make())


# --- Hypothesis at the door ---------------------------------------------------------------------

ENTRIES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.decimals(),
    st.fractions(),
    st.dates(),
    st.datetimes(),
    st.timedeltas(),
    st.uuids(),
    st.tuples(st.integers(0, 2), st.floats() | st.none()),
    st.lists(st.integers(), max_size=2),
    st.frozensets(st.integers(), max_size=2),
    st.builds(Stubborn),
    st.sampled_from(
        [pd.NA, pd.NaT, np.nan, np.ma.masked, np.int8(1), np.float32(0.5), np.str_("a"),
         np.bool_(True), np.datetime64("NaT"), np.datetime64("2024"), np.timedelta64(1, "h"),
         np.longdouble("1e4000"), np.ones(1), np.zeros((0,)), {}, set(), object(),
         int, 10**400, 2**63, -(2**63), 2**53 + 1, pd.Timestamp("2024", tz="UTC"),
         pd.Interval(0, 1), pd.Period("2024"), Decimal("sNaN"), "\ud800", "×"]
    ),
)  # fmt: skip
PLAIN = st.one_of(
    st.integers(-3, 3), st.floats(-2, 2), st.sampled_from("abc"), st.booleans(), st.none()
)
DTYPES = [bool, np.int8, np.uint64, np.float16, np.float64, np.longdouble, np.complex64, "U2",
          "S2", object, "M8[D]", "m8[s]", "V3", np.dtypes.StringDType()]  # fmt: skip
WRAPPERS = [
    list, tuple, np.array, lambda v: np.array(v, dtype=object), lambda v: np.ma.masked_array(v),
    pd.Series, pd.Index, pd.array, lambda v: pd.Series(v, dtype="category"),
    lambda v: pd.Series(v).convert_dtypes(), lambda v: pd.DataFrame({"a": v}),
    lambda v: pd.DataFrame({"a": v, "b": v}), pl.Series, lambda v: pl.Series(v, strict=False),
    lambda v: pl.Series(v, dtype=pl.Categorical), lambda v: pl.DataFrame({"a": v, "b": v}),
    pa.array, lambda v: pa.array(v).dictionary_encode(), lambda v: pa.chunked_array([v]),
    lambda v: pa.table({"a": v}), iter, set, lambda v: dict(enumerate(v)), lambda v: [v] * len(v),
    lambda v: np.array([v, v]).T, lambda v: [[entry] for entry in v], lambda v: v[0],
    lambda v: sp.coo_array(np.array(v, dtype=float)), lambda v: {"a": v, 1: v},
]  # fmt: skip


TABLES = [
    lambda rows: rows,
    np.array,
    lambda rows: np.array(rows, dtype=object),
    lambda rows: np.array(rows, dtype=np.longdouble),
    lambda rows: sp.csc_array(np.array(rows, dtype=np.float64)),
    pd.DataFrame,
    lambda rows: pd.DataFrame(rows).convert_dtypes(),
    lambda rows: pl.DataFrame(rows, orient="row", strict=False),
    lambda rows: pa.table(pd.DataFrame(rows).rename(columns=str)),
]


@st.composite
def entries(draw, size):
    kind = draw(st.sampled_from([PLAIN, PLAIN, ENTRIES, *map(st.just, (1, "a", None))]))
    if draw(st.booleans()):
        either = draw(kind), draw(kind)
        return [either[draw(st.integers(0, 1))] for _ in range(size)]
    return [draw(kind) for _ in range(size)]


@st.composite
def columns(draw, n_rows):
    """Something that might be meant as a column, or a table, of that many rows."""
    size = n_rows if draw(st.integers(0, 9)) else draw(st.integers(0, 5))
    values = draw(entries(size))
    form = draw(st.sampled_from(["column", "array", "table"]))
    try:
        if form == "column":
            return draw(st.sampled_from(WRAPPERS))(values)
        if form == "array":
            return np.array(values, dtype=draw(st.sampled_from(DTYPES)))
        rows = [list(row) for row in zip(values, draw(entries(size)), strict=True)]
        return draw(st.sampled_from(TABLES))(rows)
    except (Exception, pl.exceptions.PanicException):  # no such array, series or table
        return values


@st.composite
def tables(draw):
    n_rows = draw(st.integers(1, 5))
    good = {
        "X": np.arange(2.0 * n_rows).reshape(n_rows, 2),
        "y": [k % 2 for k in range(n_rows)],
        "qid": [k // 3 for k in range(n_rows)],
        "sensitive_features": ["f", "m", None, "f", "m"][:n_rows],
        "sample_weight": None,
        "query_weight": None,
    }
    bad = draw(st.sets(st.sampled_from(sorted(good)), min_size=1, max_size=2))
    return good | {argument: draw(columns(n_rows)) for argument in sorted(bad)}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
@given(tables())
@settings(max_examples=800)
def test_only_our_own_errors_come_out(given_table):
    try:
        queries = Queries.from_arrays(**given_table)
    except InputError as error:
        assert str(error)  # noqa: PT017
        return
    n = queries.n_items
    assert queries.X is None or queries.X.shape[0] == n
    assert queries.y.shape == queries.query.shape == queries.group.shape == (n,)
    assert np.isfinite(queries.y).all()
    assert set(queries.query) == set(range(queries.n_queries))
    assert queries.group.min() >= 0
    assert queries.group.max() <= queries.n_groups
    assert len(set(queries.groups)) == queries.n_groups
    assert queries.layout.longest >= 1
    assert repr(queries)
    assert Queries.from_arrays(**queries) == queries


# --- the mapping --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"X": None},
        {"X": sp.csr_array(X)},
        {"sensitive_features": None},
        {"sensitive_features": [9, 10, 11, 100, 9, None]},
        {"sensitive_features": pd.Categorical(["mid", "low", "high"] * 2, ["low", "mid", "high"])},
        {"sensitive_features": pd.DataFrame({"sex": ["f", "m"] * 3, "age": [9, 10, 9, 9, 10, 9]})},
        {"sample_weight": range(1, 7)},
        {"query_weight": {"a": 1, "b": 2, "c": 3}, "sample_weight": range(6)},
        {"qid": [(1, "a"), (1, "b")] * 3},
        {"qid": np.array(["2024", "2025"] * 3, dtype="M8[ns]")},
    ],
)
def test_a_round_trip_gives_an_equal_object(changed):
    queries = make(**changed)
    assert Queries.from_arrays(**queries) == queries
    part = queries.take([0])
    assert part.groups == queries.groups
    assert Queries.from_arrays(**part) == part
    assert pickle.loads(pickle.dumps(queries)) == queries  # noqa: S301
    assert copy.deepcopy(queries) == queries


def test_keys_are_what_fit_takes():
    assert list(make()) == ["X", "y", "qid", "sensitive_features"]
    weighted = make(sample_weight=[1] * 6, query_weight=[2] * 6)
    assert list(weighted)[4:] == ["sample_weight", "query_weight"]
    assert (len(make()), len(weighted)) == (4, 6)
    assert "sample_weight" not in make()
    assert make().get("query_weight") is None
    assert weighted["query_weight"].tolist() == [2] * 6
    assert make()["qid"].tolist() == QID
    assert make()["sensitive_features"].tolist() == GROUP
    with pytest.raises(KeyError):
        make()["group"]


def test_groups_that_were_changed_on_the_way_are_read_afresh():
    names = make()["sensitive_features"]
    names[0] = "other"
    assert make(sensitive_features=names).groups == ("f", "m", "other")
    names[0] = ["f"]
    refused(["sensitive_features", "hashed"], make, sensitive_features=names)


@pytest.mark.parametrize(
    "changed",
    [
        {"X": X + 1},
        {"X": X[:, :1]},
        {"X": None},
        {"X": sp.csr_array(X)},
        {"y": [0, 0, 1, 0, 1, 0]},
        {"qid": ["b", "a", "b", "a", "b", "b"]},
        {"qid": ["b", "a", "b", "a", "d", "b"]},
        {"sensitive_features": ["f", "m", "f", "m", "f", "m"]},
        {"sensitive_features": ["f", "n", None, "n", "f", "n"]},
        {"sample_weight": [1] * 6},
        {"query_weight": [1] * 6},
    ],
)
def test_a_table_that_differs_is_not_equal(changed):
    assert make() != make(**changed)
    assert make(**changed) == make(**changed)
    assert make() != dict(make(**changed))


def test_the_container_is_frozen():
    queries = make(sample_weight=[1] * 6, query_weight=[1] * 6)
    with pytest.raises(FrozenInstanceError):
        queries.y = np.ones(6)
    for name in ("y", "query", "query_ids", "group", "item_weight", "query_weight"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(queries, name)[0] = getattr(queries, name)[1]
    with pytest.raises(TypeError, match="unhashable"):
        hash(queries)


def test_the_callers_arrays_stay_as_they_are():
    y, weight, qid = np.array(Y, dtype=float), np.ones(6), np.array(QID, dtype=object)
    queries = make(y=y, sample_weight=weight, qid=qid)
    y[:], weight[:], qid[:] = 7, 7, "z"
    assert queries == make(sample_weight=[1] * 6)


# --- subsets ------------------------------------------------------------------------------------


def test_take_keeps_whole_queries_and_the_order_of_rows():
    queries = make(sample_weight=range(1, 7), query_weight={"a": 1, "b": 2, "c": 3})
    part = queries.take([2, 1])
    rows = [0, 2, 4, 5]
    assert part == Queries.from_arrays(
        X[rows], np.array(Y)[rows], qid=np.array(QID)[rows],
        sensitive_features=np.array(GROUP)[rows],
        sample_weight=np.arange(1, 7)[rows], query_weight={"b": 2, "c": 3},
    )  # fmt: skip
    assert part == queries.take([False, True, True]) == queries.take([-1, -2])
    assert queries.take([0, 1, 2]) == queries
    assert queries.take(2).query_ids.tolist() == ["c"]
    assert queries.take([0]).groups == ("f", "m")


@pytest.mark.parametrize("choice", [[3], [-4], [True], [0.0], ["a"], None, [[0], [1, 2]], "b"])
def test_a_choice_that_is_not_among_the_queries(choice):
    refused(["3 queries", "0 to 2"], make().take, choice)


def test_a_choice_of_nothing_or_of_something_twice():
    refused(["None of the 3 queries"], make().take, [])
    refused(["None of the 3 queries"], make().take, [False] * 3)
    refused(["3 entries", "2 different", "query_weight"], make().take, [0, 1, 1])


@given(st.integers(2, 40), st.floats(0.01, 0.99), st.integers(0, 2**32 - 1))
@settings(max_examples=100)
def test_split_is_disjoint_complete_and_seeded(n_queries, fraction, seed):
    rng = np.random.default_rng(seed)
    qid = rng.permutation(np.repeat(np.arange(n_queries), 3))
    queries = Queries.from_arrays(np.arange(len(qid))[:, None], qid % 2, qid=qid)
    held = round(n_queries * fraction)
    if held in (0, n_queries):
        refused([f"{n_queries} queries", "another share"], queries.split, fraction, seed)
        return
    kept, out = queries.split(fraction, seed)
    assert out.n_queries == held
    assert sorted([*kept.query_ids, *out.query_ids]) == list(range(n_queries))
    for part in (kept, out):
        rows = np.flatnonzero(np.isin(qid, part.query_ids))  # whole queries, rows in order
        np.testing.assert_array_equal(part.X[:, 0], rows)
    assert queries.split(fraction, seed) == (kept, out)
    order = rng.permutation(len(qid))
    shuffled = Queries.from_arrays(None, (qid % 2)[order], qid=qid[order])
    assert shuffled.split(fraction, seed)[1].query_ids.tolist() == out.query_ids.tolist()


@pytest.mark.parametrize("share", [0, 1, -0.5, 1.5, np.nan, True, "half", None, 1j])
def test_a_share_that_is_none(share):
    refused(["share", "between 0 and 1"], make().split, share)


@pytest.mark.parametrize("seed", ["seed", -1, 1.5, [1]])
def test_a_random_state_that_is_none(seed):
    refused(["random_state", "whole number"], make().split, 0.5, seed)


def test_groups_are_matched_by_name():
    train = make(sensitive_features=["x", "f", "m", "m", None, "x"])
    test = make().with_groups_of(train)
    assert test.groups == ("f", "m", "x")
    assert test.group.tolist() == [0, 1, 3, 1, 0, 1]
    assert test["sensitive_features"].tolist() == GROUP
    assert test == Queries.from_arrays(**test)
    assert test.with_groups_of(make()) == make()  # 'x' holds no item
    refused(["'x'", "'f', 'm'"], train.with_groups_of, make())


# --- the layout ---------------------------------------------------------------------------------


@st.composite
def ranked(draw):
    n = draw(st.integers(1, 30))
    column = {
        "y": st.sampled_from([-1.5, -0.0, 0.0, 0.5, 3.0]),
        "qid": st.sampled_from(["b", "a", "c", "aa"]),
        "sensitive_features": st.sampled_from(["f", "m", "x", None]),
        "sample_weight": st.floats(0.1, 2),
    }
    drawn = {k: draw(st.lists(v, min_size=n, max_size=n)) for k, v in column.items()}
    if draw(st.booleans()):
        del drawn["sample_weight"]
    return {"X": np.arange(float(n))[:, None], **drawn}


@given(ranked())
@settings(max_examples=300)
def test_the_layout_equals_the_slow_version(data):
    queries = Queries.from_arrays(**data)
    layout, y, group = queries.layout, queries.y, queries.group
    assert sorted(layout.order) == list(range(queries.n_items))
    assert layout.bounds[0] == 0
    assert layout.bounds[-1] == queries.n_items
    weight = data.get("sample_weight", [1.0] * queries.n_items)
    lengths = []
    for q in range(queries.n_queries):
        here = slice(layout.bounds[q], layout.bounds[q + 1])
        rows = layout.order[here]
        lengths.append(len(rows))
        assert sorted(rows) == [i for i in range(queries.n_items) if queries.query[i] == q]
        assert list(y[rows]) == sorted(y[rows], reverse=True)
        for at, i in enumerate(rows):
            lower = [k for k, j in enumerate(rows) if y[j] < y[i]]
            assert list(range(layout.start[here][at], len(rows))) == lower
            assert layout.level[here][at] == len({y[rows[k]] for k in lower})
            assert layout.code[here][at] == group[i]
            assert layout.weight[here][at] == weight[i]
        listed = sorted(range(len(rows)), key=lambda k: (group[rows[k]], -y[rows[k]], k))
        assert layout.by_group[here].tolist() == listed
    assert layout.longest == max(lengths)
    assert layout.uniform == ("sample_weight" not in data)


@given(ranked(), st.randoms(use_true_random=False))
@settings(max_examples=200)
def test_the_order_of_rows_does_not_matter(data, random):
    order = list(range(len(data["y"])))
    random.shuffle(order)
    shuffled = {key: [column[i] for i in order] for key, column in data.items()}
    before, after = Queries.from_arrays(**data), Queries.from_arrays(**shuffled)
    assert after.groups == before.groups
    assert after.query_ids.tolist() == before.query_ids.tolist()
    for name in ("X", "y", "query", "group", "item_weight"):
        if getattr(before, name) is not None:
            np.testing.assert_array_equal(getattr(after, name), getattr(before, name)[order])
    for name in ("bounds", "start", "level", "code", "by_group"):
        np.testing.assert_array_equal(getattr(after.layout, name), getattr(before.layout, name))
    of_both = before.group[before.layout.order], after.group[after.layout.order]
    np.testing.assert_array_equal(*of_both)


def test_our_errors_have_one_family():
    assert issubclass(InputError, PairityError)
    assert issubclass(InputError, ValueError)


def test_features_can_be_added_later():
    """Queries of labels alone, given features, are those that were made with them."""
    X, y, qid = np.arange(8.0).reshape(4, 2), [1, 0, 0, 1], [0, 0, 1, 1]
    later = Queries.from_arrays(None, y, qid=qid).with_features(X, ("a", "b"))
    assert later == Queries.from_arrays(pd.DataFrame(X, columns=["a", "b"]), y, qid=qid)
    assert later.feature_names == ("a", "b")
    with pytest.raises(InputError, match="X has 3 rows, but the queries have 4 items"):
        later.with_features(X[:3])
