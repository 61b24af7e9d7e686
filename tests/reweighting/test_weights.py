"""PairWeights: look-up by name, formats, and a read-only table."""

import importlib.util
import json

import numpy as np
import pytest

from pairity import InputError, PairWeights
from pairity.exceptions import MissingExtraError

TABLE = [[1.0, 1.25], [0.5, 1.0]]


def weights(groups=("f", "m")):
    return PairWeights(np.array(TABLE), groups)


def test_look_up_by_name():
    assert weights()["f", "m"] == 1.25
    assert weights()["m", "f"] == 0.5
    assert type(weights()["f", "f"]) is float


def test_whole_numbers_are_names_too():
    labelled = weights(("1", "0"))  # group 0 has the position 1
    assert labelled[1, 0] == 1.25
    assert labelled[np.int64(0), 1] == 0.5


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (("f", "x"), "no group 'x'; the groups are 'f', 'm'"),
        ((0, 1), "no group '0'"),
        ("fm", "'fm' is not a pair of groups"),
        (("f",), "not a pair of groups"),
    ],
)
def test_look_up_of_what_is_not_there(cell, message):
    with pytest.raises(InputError, match=message):
        weights()[cell]


def test_shape_must_fit_the_groups():
    with pytest.raises(InputError, match=r"shape \(2, 2\).*3 groups.*per group"):
        weights(("a", "b", "c"))


def test_the_table_cannot_be_changed():
    table = np.array(TABLE)
    labelled = PairWeights(table, ("f", "m"))
    table[0, 1] = 9.0
    assert labelled["f", "m"] == 1.25
    with pytest.raises(ValueError, match="read-only"):
        labelled.table[0, 1] = 9.0
    copy = np.array(labelled)
    copy[0, 1] = 9.0
    assert labelled["f", "m"] == 1.25


def test_as_array():
    assert np.asarray(weights()).tolist() == TABLE
    assert np.asarray(weights(), dtype=np.float32).dtype == np.float32
    assert (2 * np.asarray(weights())).tolist() == [[2.0, 2.5], [1.0, 2.0]]
    with pytest.raises(ValueError, match="copy"):
        np.array(weights(), dtype=np.float32, copy=False)


def test_dict_and_json():
    zero = {"f": {"f": 0.0, "m": 0.0}, "m": {"f": 0.0, "m": 0.0}}
    observed = {"f": {"f": 1.0, "m": 1.25}, "m": {"f": 0.5, "m": 1.0}}
    assert weights().to_dict() == {"observed": observed, "mirrored": zero}
    assert json.loads(weights().to_json()) == weights().to_dict()
    assert type(weights().to_dict()["observed"]["f"]["m"]) is float
    assert PairWeights.from_dict({"observed": observed}).to_dict() == weights().to_dict()


def test_two_tables():
    both = PairWeights(np.array(TABLE), ("f", "m"), [[0.0, 0.0], [0.75, 0.0]])
    assert PairWeights.from_json(both.to_json()).to_dict() == both.to_dict()
    assert both.tables.tolist() == [TABLE, [[0.0, 0.0], [0.75, 0.0]]]
    assert PairWeights.of(both.tables, both.groups).to_dict() == both.to_dict()
    assert weights().tables.tolist() == TABLE  # without mirrored pairs there is one table
    assert both.reversed() == [("m", "f")]  # 0.75 > 0.5
    assert weights().reversed() == []
    assert str(both).splitlines()[-1].split() == ["m", "0.500", "/", "0.750", "1.000"]
    assert repr(both).endswith("mirrored=[[0.0, 0.0], [0.75, 0.0]])")
    with pytest.raises(ValueError, match="read-only"):
        both.mirrored[0, 1] = 9.0
    with pytest.raises(InputError, match=r"shape \(3, 3\).*2 groups"):
        PairWeights(TABLE, ("f", "m"), np.zeros((3, 3)))


def test_extreme_cells_count_a_hundred_times_as_much_as_other_pairs_or_as_little():
    assert weights().extreme() == []
    table = [[1.0, 101.0, 99.0], [0.011, 0.009, 0.0], [2.0, 1.5, 1.0]]
    mirrored = np.zeros((3, 3))
    mirrored[1, 2] = 0.5
    extreme = PairWeights(table, ("a", "b", "c"), mirrored).extreme()
    assert extreme == [("a", "b"), ("b", "b")]


@pytest.mark.parametrize("backend", ["pandas", "polars", "pyarrow"])
def test_frame(backend):
    import narwhals as nw

    frame = nw.from_native(weights().to_frame(backend), eager_only=True)
    assert frame.to_dict(as_series=False) == {
        "preferred": ["f", "f", "m", "m"],
        "other": ["f", "m", "f", "m"],
        "weight": [1.0, 1.25, 0.5, 1.0],
        "mirrored_weight": [0.0, 0.0, 0.0, 0.0],
    }


def test_frame_without_any_library(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match="pandas, polars or pyarrow"):
        weights().to_frame()


def test_text():
    assert str(weights()) == (
        "preferred \\ other      f      m\n"
        "-------------------------------\n"
        "f                  1.000  1.250\n"
        "m                  0.500  1.000"
    )
    assert repr(weights()) == "PairWeights(groups=('f', 'm'), table=[[1.0, 1.25], [0.5, 1.0]])"


def test_text_of_hostile_names():
    text = str(weights(("[red]a\nb" + "x" * 10_000, "x" * 10_000)))
    assert "[red]a\\nb" in text
    assert len(text.splitlines()) == 4
    assert max(map(len, text.splitlines())) <= 70
