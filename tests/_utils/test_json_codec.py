"""The JSON codec: values come back as they were, and every wrong entry is named."""

import json
import math
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

import numpy as np
import pytest

from pairity._utils.json_codec import Place, decode, encode, from_plain, parse_document, to_plain
from pairity._utils.typing import Array
from pairity.exceptions import InputError

PLACE = Place("document", "Write it again.")


class Colour(Enum):
    RED = "a long sentence about red"
    BLUE = "a long sentence about blue"


@dataclass(frozen=True)
class Inner:
    number: float
    name: str | None = None


@dataclass(frozen=True, eq=False)
class Outer:
    lambda_: Array
    colour: Colour | None
    kind: Literal["a", "b"]
    pairs: tuple[tuple[int, str], ...]
    inner: tuple[Inner, ...]
    by_name: dict[str, Inner]
    types: str | tuple[str, ...]
    flag: bool
    anything: Any


def outer():
    return Outer(
        lambda_=np.array([[0.5, math.nan], [math.inf, 2.0]]),
        colour=Colour.RED,
        kind="b",
        pairs=((1, "x"), (2, "y")),
        inner=(Inner(math.nan), Inner(-math.inf, "n")),
        by_name={"k": Inner(1.0)},
        types=("f", "g"),
        flag=True,
        anything={"free": [1, None]},
    )


def test_a_dataclass_there_and_back():
    plain = json.loads(json.dumps(to_plain(outer()), allow_nan=False))
    assert plain["lambda"] == [[0.5, None], [{"float": "inf"}, 2.0]]
    assert plain["colour"] == "RED"
    read = from_plain(Outer, plain, PLACE)
    assert np.array_equal(read.lambda_, outer().lambda_, equal_nan=True)
    assert read.colour is Colour.RED
    assert (read.pairs, read.types, read.flag) == (((1, "x"), (2, "y")), ("f", "g"), True)
    assert math.isnan(read.inner[0].number)
    assert read.inner[1] == Inner(-math.inf, "n")
    assert read.by_name == {"k": Inner(1.0)}
    assert read.anything == {"free": [1, None]}
    assert to_plain(read) == plain


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("colour", "GREEN", "colour is 'GREEN', not one of RED, BLUE"),
        ("colour", "a long sentence about red", "not one of RED, BLUE"),
        ("kind", "c", "kind is 'c', not one of a, b"),
        ("pairs", [[1]], r"pairs\[0\] is a list of 1 entries, not 2"),
        ("pairs", [[True, "x"]], r"pairs\[0\]\[0\] is True, not an integer"),
        ("inner", [{"number": "1", "name": None}], r"inner\[0\].number is '1', not a number"),
        ("inner", [{"number": 10**400, "name": None}], "too large"),
        ("inner", [{"number": {"float": "x"}, "name": None}], r"inner\[0\].number is 'x'"),
        ("inner", [{"number": 1.0}], r"inner\[0\].name is missing"),
        ("inner", [{"number": 1.0, "name": None, "age": 3}], r"inner\[0\].age is unknown"),
        ("by_name", [], r"by_name is \[\], not an object"),
        ("types", 3, "types is 3, not a list"),
        ("flag", 1, "flag is 1, not true or false"),
        ("lambda", [[1.0], [1.0, 2.0]], "lambda is a table with rows of different lengths"),
        ("lambda", [["x"]], "lambda is 'x', not a number"),
    ],
)
def test_a_wrong_entry_is_named(key, value, message):
    plain = {**to_plain(outer()), key: value}
    with pytest.raises(InputError, match=message) as caught:
        from_plain(Outer, plain, PLACE)
    assert str(caught.value).startswith("The document is not as pairity wrote it: ")
    assert str(caught.value).endswith("Write it again.")


@pytest.mark.parametrize(
    "value",
    [
        None, True, 3, 0.1, "text", math.inf, [1, [2.0]], (1, (2, "x")), {(1, 2): {"a": None}},
        [{"float": "nan"}], {"tuple": [1]}, np.float32(0.5),
    ],
)  # fmt: skip
def test_settings_there_and_back(value):
    assert decode(json.loads(json.dumps(encode(value, {}))), {}, PLACE) == value


@pytest.mark.parametrize("dtype", ["<f8", "<f4", "<i8", "|b1", "|u1"])
def test_arrays_among_settings_keep_their_type(dtype):
    array = np.array([[0, 1], [1, 0]], dtype=dtype)
    read = decode(json.loads(json.dumps(encode(array, {}))), {}, PLACE)
    assert read.dtype == array.dtype
    assert np.array_equal(read, array)


def test_known_objects_among_settings():
    known = {"Inner": Inner}
    value = [Inner(0.5, "x")]
    assert decode(encode(value, known), known, PLACE) == value
    assert encode(value, {}) == {"not_stored": "a list"}
    with pytest.raises(InputError, match="'Inner', not one of"):
        decode(encode(value, known), {"Other": Outer}, PLACE)


def test_settings_are_not_nested_without_limit():
    value = []
    for _ in range(50):
        value = [value]
    assert encode(value, {}) == {"not_stored": "a list"}
    with pytest.raises(InputError, match="nested too deeply"):
        decode(value, {}, PLACE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format": "f", "a": NaN}', "is not JSON"),
        ('{"format": "f", "a": 1, "a": 2}', "the same key twice"),
        ('{"format": "g"}', "is not in format 'f'"),
        ("[]", "is not in format 'f'"),
        (b"\xff", "is not JSON"),
        (None, "is not JSON"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_documents_are_checked(text, message):
    with pytest.raises(InputError, match=message):
        parse_document(text, "f", PLACE)
    assert parse_document(b'{"format": "f", "a": 1}', "f", PLACE) == {"a": 1}
