"""Protected groups: names, order, intersections, what is refused, and quantiles."""

from datetime import date
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairity import InputError, quantile_groups
from pairity.data.groups import encode_groups, name_groups


def encode(values, n_rows=None):
    codes, names = encode_groups(values, len(values) if n_rows is None else n_rows)
    assert codes.dtype == np.int32
    return codes.tolist(), names


def refused(facts, call, *args, **kwargs):
    with pytest.raises(InputError) as caught:
        call(*args, **kwargs)
    for fact in facts:
        assert str(fact) in str(caught.value)


LOW_HIGH = ["low", "mid", "high"]

GROUPS = {
    "strings": (["m", "f", "m"], ([1, 0, 1], ("f", "m"))),
    "integers": ([10, 9, 10], ([1, 0, 1], ("9", "10"))),
    "whole floats": ([1.0, 0.0, -2.0], ([2, 1, 0], ("-2", "0", "1"))),
    "large floats": ([1e300, 0.0], ([1, 0], ("0", "1e+300"))),
    "float32": (np.array([2, 1], np.float32), ([1, 0], ("1", "2"))),
    "booleans": ([True, False], ([1, 0], ("False", "True"))),
    "boolean array": (np.array([True, False]), ([1, 0], ("False", "True"))),
    "integers beyond int64": ([2**70, 1], ([1, 0], ("1", str(2**70)))),
    "decimals": ([Decimal(2), Decimal(1)], ([1, 0], ("1", "2"))),
    "dates": ([date(2024, 1, 2), date(2024, 1, 1)], ([1, 0], ("2024-01-01", "2024-01-02"))),
    "several kinds": (["b", 2, "a", 10], ([3, 1, 2, 0], ("10", "2", "a", "b"))),
    "True among numbers": ([True, 1, 0, "x"], ([1, 1, 0, 2], ("0", "1", "x"))),
    "minus zero": ([0.0, -0.0, 1.0], ([0, 0, 1], ("0", "1"))),
    "text array": (np.array(["b", "a"]), ([1, 0], ("a", "b"))),
    "variable-width text": (
        np.array(["b", None], dtype=np.dtypes.StringDType(na_object=None)),
        ([0, 1], ("b",)),
    ),
    "pandas categories": (
        pd.Series(pd.Categorical(["high", "low"], LOW_HIGH)),
        ([1, 0], ("low", "high")),
    ),
    "ordered pandas categories": (
        pd.Series(pd.Categorical(["high", "low"], LOW_HIGH, ordered=True)),
        ([1, 0], ("low", "high")),
    ),
    "pandas Categorical": (pd.Categorical(["high", "low"], LOW_HIGH), ([1, 0], ("low", "high"))),
    "pandas CategoricalIndex": (
        pd.CategoricalIndex(["high", "low"], LOW_HIGH),
        ([1, 0], ("low", "high")),
    ),
    "numbers as categories": (pd.Categorical([0.5, 0.1], [0.5, 0.1]), ([0, 1], ("0.5", "0.1"))),
    "pandas.cut": (pd.cut(pd.Series([30, 9, 10]), [0, 9, 99]), ([1, 0, 1], ("(0, 9]", "(9, 99]"))),
    "polars enumeration": (
        pl.Series(["high", "low"], dtype=pl.Enum(LOW_HIGH)),
        ([1, 0], ("low", "high")),
    ),
    "polars categories": (pl.Series(["m", "f"], dtype=pl.Categorical), ([1, 0], ("f", "m"))),
    "pyarrow dictionary": (pa.array(["m", "f"]).dictionary_encode(), ([1, 0], ("f", "m"))),
    "pandas, Arrow dictionary": (
        pd.Series(["m", "f"], dtype=pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string()))),
        ([1, 0], ("f", "m")),
    ),
}


@pytest.mark.parametrize("kind", GROUPS)
def test_names_and_their_order(kind):
    values, expected = GROUPS[kind]
    assert encode(values) == expected


MISSING = {
    "None": ["m", None, "f"],
    "NaN": ["m", np.nan, "f"],
    "NaT": ["m", pd.NaT, "f"],
    "NumPy NaT": ["m", np.datetime64("NaT"), "f"],
    "pandas.NA": ["m", pd.NA, "f"],
    "Decimal NaN": ["m", Decimal("sNaN"), "f"],
    "pandas": pd.Series(["m", None, "f"]),
    "pandas, nullable": pd.Series(["m", None, "f"], dtype="string"),
    "pandas, Arrow": pd.Series(["m", None, "f"], dtype="string[pyarrow]"),
    "pandas categories": pd.Series(["m", None, "f"], dtype="category").cat.reorder_categories(
        ["f", "m"]
    ),
    "polars": pl.Series(["m", None, "f"]),
    "polars categories": pl.Series(["m", None, "f"], dtype=pl.Categorical),
    "pyarrow": pa.array(["m", None, "f"]),
    "pyarrow dictionary": pa.chunked_array([pa.array(["m", None, "f"]).dictionary_encode()]),
}


@pytest.mark.parametrize("kind", MISSING)
def test_a_missing_group_has_the_last_code(kind):
    assert encode(MISSING[kind]) == ([1, 2, 0], ("f", "m"))


@pytest.mark.parametrize(
    "numbers",
    [
        [1, None, 0],
        np.array([1, np.nan, 0]),
        np.array([1, np.nan, 0], dtype=object),
        pd.Series([1, None, 0]),
        pd.Series([1, None, 0], dtype="Int8"),
        pd.Series([1, None, 0], dtype="int64[pyarrow]"),
        pl.Series([1, None, 0]),
        pl.Series([1, float("nan"), 0], strict=False),
        pa.array([1, None, 0]),
    ],
)
def test_a_missing_number_is_a_missing_group(numbers):
    assert encode(numbers) == ([1, 2, 0], ("0", "1"))


def test_all_missing_is_no_group():
    for values in ([None] * 3, np.full(3, np.nan), pl.Series([None] * 3), pa.nulls(3)):
        assert encode(values) == ([0, 0, 0], ())


# --- intersections ------------------------------------------------------------------------------

SEX = ["female", "male", "female", None, "female"]
AGE = ["over 50", "to 50", "to 50", "to 50", None]
JOINT = [0, 2, 1, 3, 3], ("female × over 50", "female × to 50", "male × to 50")


@pytest.mark.parametrize(
    "both",
    [
        {"sex": SEX, "age": AGE},
        pd.DataFrame({"sex": SEX, "age": AGE}),
        pd.DataFrame({0: SEX, 1: AGE}),
        pd.DataFrame({("a", 1): SEX, ("a", 2): AGE}),
        pl.DataFrame({"sex": SEX, "age": AGE}),
        pa.table({"sex": SEX, "age": AGE}),
        pa.record_batch({"sex": SEX, "age": AGE}),
        np.array([SEX, AGE], dtype=object).T,
        list(zip(SEX, AGE, strict=True)),
        [list(row) for row in zip(SEX, AGE, strict=True)],
    ],
    ids=lambda both: type(both).__name__,
)
def test_several_columns_are_their_intersection(both):
    assert encode(both, 5) == JOINT


def test_intersections_keep_the_order_of_categories():
    both = {"level": pd.Categorical(["low", "high"], LOW_HIGH), "sex": ["m", "f"]}
    assert encode(both, 2) == ([0, 1], ("low × m", "high × f"))
    three = pl.DataFrame({"a": [1, 2], "b": [True, False], "c": ["x", "y"]})
    assert encode(three, 2) == ([0, 1], ("1 × True × x", "2 × False × y"))


# --- what is refused ----------------------------------------------------------------------------

MANY = np.arange(50)

REFUSED = [
    (np.linspace(0, 1, 50), ["50 different numbers", "0.0", "1.0", "quantile_groups"]),
    ([0.5, 1.0, 1.5], ["3 different numbers", "2 of them not whole", "continuous"]),
    ([0.0, np.inf], ["2 different numbers", "1 of them not whole", "inf"]),
    ([Fraction(1, 3), 1, 2], ["3 different numbers", "not whole"]),
    (MANY, ["50 different numbers", "from 0 to 49", "quantile_groups", "strings"]),
    (MANY.astype(object), ["50 different numbers"]),
    (np.array(list(MANY), dtype=object), ["50 different numbers"]),
    ([10**400, *range(50)], ["51 different numbers", "from 0 to 1000"]),
    (pd.Series(MANY, dtype="Int64"), ["50 different numbers"]),
    (pl.Series([*MANY[1:], None]), ["49 different numbers", "from 1 to 49"]),
    ([f"id {k}" for k in range(101)], ["101 groups", "more than 100"]),
    ([1, "1"], ["both written '1'", "string"]),
    ([b"a", "b'a'"], ["both written", "string"]),
    ({"one": ["x", "x × y"], "other": ["y × z", "z"]}, ["both written 'x × y × z'"]),
    ([10**5000, 1], ["cannot be written", "strings"]),
    ([object(), object()], ["object", "cannot name a group"]),
    ([1j, 2j], ["1j", "cannot name a group"]),
    (np.array([1j, 2j]), ["1j", "cannot name a group"]),
    (["a", {}], ["hashed", "dict"]),
    (["a", ["b"]], ["hashed", "list"]),
    ([["a", "b"], ["c"]], ["2 entries in row 0", "1 in row 1"]),
    ({}, ["no column"]),
    (pd.DataFrame(index=range(3)), ["no column"]),
    (np.empty((3, 0)), ["no column"]),
    ({"sex": ["f"]}, ["column 'sex'", "1 entries", "2 rows"]),
    ({"sex": 3}, ["['sex']", "int"]),
    ({"sex": ["f", "m"], "age": [0.1, 0.2]}, ["column 'age'", "continuous"]),
    (pd.DataFrame([["a", "b"]] * 2, columns=["s", "s"]), ["'s' 2 times"]),
]


@pytest.mark.parametrize(("values", "facts"), REFUSED)
def test_groups_that_are_refused(values, facts):
    n_rows = 2 if isinstance(values, dict) else len(values)
    refused(["sensitive_features", *facts], encode_groups, values, n_rows)


def test_numbers_declared_as_categories_are_groups():
    assert len(encode(pd.Categorical(MANY))[1]) == 50
    assert len(encode([str(k) for k in MANY])[1]) == 50


# --- there and back -----------------------------------------------------------------------------

NAMES = st.lists(st.text(max_size=3), min_size=1, max_size=6, unique=True)


@given(NAMES, st.data())
@settings(max_examples=100)
def test_named_groups_are_encoded_back(names, data):
    codes = data.draw(st.lists(st.integers(0, len(names)), min_size=1, max_size=10))
    named = name_groups(np.array(codes, dtype=np.int32), tuple(names))
    assert named.tolist() == [[*names, None][code] for code in codes]
    assert encode(named) == (codes, tuple(names))
    assert encode(named[1:]) == (codes[1:], tuple(names))


@given(st.lists(st.sampled_from([1, 2, "2", "a", True, 0.0, None, (1, 2), b"x"]), min_size=1))
@settings(max_examples=200)
def test_rows_have_the_group_they_say(values):
    try:
        codes, names = encode(np.fromiter(values, object))
    except InputError as error:
        assert "'2'" in str(error)  # noqa: PT017
        return
    for value, code in zip(values, codes, strict=True):
        if value is None:
            assert code == len(names)
        else:
            assert names[code] in (str(value), {True: "1", 0.0: "0"}.get(value))
    backwards = encode(np.fromiter(values[::-1], object))
    assert backwards == (codes[::-1], names)


# --- quantiles ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "n_groups", "expected"),
    [
        ([1, 2, 3, 4], 2, ["≤ 2", "≤ 2", "> 2", "> 2"]),
        ([4, 3, 2, 1], 4, ["> 3", "> 2 to 3", "> 1 to 2", "≤ 1"]),
        ([1, 2, 2, 2], 2, ["all"] * 4),  # the median is the largest
        ([1, 1, 1, 2], 2, ["≤ 1", "≤ 1", "≤ 1", "> 1"]),
        ([5, 5, 5], 3, ["all"] * 3),
        ([1, None, 2], 2, ["≤ 1", None, "> 1"]),
        ([1, np.nan, 2], 2, ["≤ 1", None, "> 1"]),
        (pd.Series([1, None, 2], dtype="Int64"), 2, ["≤ 1", None, "> 1"]),
        (pl.Series([1, None, 2]), 2, ["≤ 1", None, "> 1"]),
        (pa.array([1, None, 2]), 2, ["≤ 1", None, "> 1"]),
        ([True, False], 2, ["> 0", "≤ 0"]),
        ([1_000_000, 2_500_000], 2, ["≤ 1000000", "> 1000000"]),
        ([0.1, 0.25], 2, ["≤ 0.1", "> 0.1"]),
        ([1e6 + 0.1, 1e6 + 0.2, 1e6 + 0.3], 3, ["≤ 1000000.1", "> 1000000.1 to 1000000.2",
                                                "> 1000000.2"]),
        ([-1.7e308, 1.7e308], 2, ["≤ -1.7e+308", "> -1.7e+308"]),
        ([1, 2], np.int64(2), ["≤ 1", "> 1"]),
    ],
)  # fmt: skip
def test_quantiles(values, n_groups, expected):
    assert quantile_groups(values, n_groups).tolist() == expected


def test_quantiles_by_the_callers_names():
    assert quantile_groups([3, 1, 2], 3, labels=LOW_HIGH).tolist() == ["high", "low", "mid"]
    assert quantile_groups([3, 1], 2, labels=(1, 2)).tolist() == ["2", "1"]


@pytest.mark.parametrize(
    ("values", "changed", "facts"),
    [
        ([1, 2], {"n_groups": 1}, ["n_groups", "1", "2 to 100"]),
        ([1, 2], {"n_groups": 2.5}, ["n_groups", "2.5"]),
        ([1, 2], {"n_groups": True}, ["n_groups", "True"]),
        ([1, 2], {"n_groups": "two"}, ["n_groups", "'two'"]),
        ([1, 2], {"n_groups": None}, ["n_groups", "None"]),
        ([1, 2], {"n_groups": 10**9}, ["n_groups", "1000000000"]),
        ([1, 2], {"labels": ["one"]}, ["labels", "1 names", "2 groups", "cut at 1"]),
        ([1, 1], {"labels": ["low", "high"]}, ["labels", "2 names", "1 groups", "tied"]),
        ([1, 2], {"labels": ["x", "x"]}, ["labels", "both written 'x'"]),
        ([1, 2], {"labels": "ab"}, ["labels", "str"]),
        ([1, 2], {"labels": {"a", "b"}}, ["labels", "set"]),
        ([], {}, ["values", "0 entries"]),
        ([None, np.nan], {}, ["values", "2 entries", "none"]),
        ([1, np.inf, 2], {}, ["values", "1 infinite", "row 1"]),
        (["1", "2"], {}, ["values", "'1'", "row 0"]),
        ([1, "2"], {}, ["values", "'2'", "row 1"]),
        ([1, 2j], {}, ["values", "2j"]),
        (np.array([1j, 2j]), {}, ["values", "complex"]),
        (np.array(["2024"] * 2, dtype="M8[D]"), {}, ["values", "2024"]),
        (np.ma.masked_array([1, 2], mask=[0, 1]), {}, ["values", "masked"]),
        (np.ones((2, 2)), {}, ["values", "(2, 2)"]),
        (3, {}, ["values", "int"]),
        (None, {}, ["values", "None"]),
        ([10**400, 1], {}, ["values", "float64", "row 0"]),
    ],
)
def test_quantiles_that_are_refused(values, changed, facts):
    refused(facts, quantile_groups, values, **{"n_groups": 2, **changed})


NUMBERS = st.one_of(st.none(), st.integers(-5, 5), st.floats(allow_infinity=False))


@given(st.lists(NUMBERS, min_size=1, max_size=30), st.integers(2, 8))
@settings(max_examples=300)
def test_quantiles_of_any_numbers(values, n_groups):
    absent = [value is None or value != value for value in values]
    if all(absent):
        refused(["values"], quantile_groups, values, n_groups)
        return
    groups = quantile_groups(values, n_groups)
    assert [group is None for group in groups] == absent
    present = sorted((float(v), g) for v, g in zip(values, groups, strict=True) if g is not None)
    names = list(dict.fromkeys(group for _, group in sorted(present, key=lambda it: it[0])))
    assert len(names) <= n_groups
    ends = {name: max(v for v, g in present if g == name) for name in names}
    assert [ends[name] for name in names] == sorted(set(ends.values()))  # no group within another
    for value, group in present:
        at = names.index(group)
        assert at == 0 or value > ends[names[at - 1]]  # ties are together, in the lower group
    if len({value for value, _ in present}) == len(present):
        sizes = [sum(g == name for _, g in present) for name in names]
        assert max(sizes) - min(sizes) <= 1
    codes, encoded = encode(groups)
    assert len(encoded) == len(names)
    assert codes.count(len(names)) == sum(absent)


@pytest.mark.parametrize(
    ("shares", "names", "sizes"),
    [
        ((0.3,), ("≤ 3", "> 3"), [3, 7]),
        ([0.1, 0.7], ("≤ 1", "> 1 to 7", "> 7"), [1, 6, 3]),
        (np.array([0.25, 0.5, 0.75]), ("≤ 3", "> 3 to 5", "> 5 to 8", "> 8"), [3, 2, 3, 2]),
    ],
)
def test_quantile_groups_of_given_shares(shares, names, sizes):
    """The value at which the share is reached is the lower group's: 0.3 of ten is the third."""
    codes, found = encode_groups(quantile_groups(np.arange(1, 11), shares), 10)
    assert found == names
    assert np.bincount(codes).tolist() == sizes


@pytest.mark.parametrize("shares", [(), (0.0,), (0.5, 0.5), (0.7, 0.3), (1.0,), ("a",)])
def test_quantile_groups_refuses_other_shares(shares):
    with pytest.raises(InputError):
        quantile_groups([1, 2, 3], shares)
