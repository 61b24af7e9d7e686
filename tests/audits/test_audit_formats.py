"""Audits as text, dict, JSON and data frames."""

from __future__ import annotations

import importlib.util
import json

import numpy as np
import pytest

from pairity import InputError, audit
from pairity._utils.text import shorten
from pairity.exceptions import MissingExtraError
from support.audit_cases import approx, golden, random_queries

GOLDEN_TEXT = """\
Audit of three lists: 3 queries, 11 items, 10 preference pairs
Items by group: f (6), m (5)

all items            value  95 % interval  queries
--------------------------------------------------
AUC                 0.875*              -        2
NDCG@2              0.807*              -        2
average precision   0.875*              -        2
AWRF (1 is parity)  0.998*              -        3
NDKL (0 is parity)  0.190*              -        3

violation     value  95 % interval  noise floor  higher for  lower for  queries  pairs  constraint
---------------------------------------------------------------------------------------------------------------
statistical  0.167*              -            -  m           f                2     10  statistical parity
inter        0.250*              -            -  m           f                2      2  inter-group preferences
intra        0.250*              -            -  m           f                2      2  intra-group preferences
marginal     0.250*              -            -  m           f                2      5  marginal preferences

by group                      f       m
"""  # noqa: E501


def test_text_golden():
    text = str(golden(name="three lists", n_resamples=0))
    assert text.startswith(GOLDEN_TEXT)
    assert "* Fewer than 10 queries or 100 pairs: too few to rely on." in text
    assert "NDCG@2 inside the group" in text
    assert "The noise floor" not in text  # it is unknown without resamples


def test_the_noise_floor_stands_beside_the_violation():
    queries, scores = random_queries(5)
    result = audit(queries, scores, constraints=["statistical", "intra"], n_resamples=200)
    floors = [f"{result.noise_floor[name]:.3f}" for name in ("statistical", "intra")]
    rows = [line.split() for line in str(result).splitlines()]
    assert [row[5] for row in rows if row[:1] in (["statistical"], ["intra"])] == floors
    note = "The noise floor is the mean violation that variation between the queries alone produces"
    for text in (str(result), result._repr_html_()):
        assert all(floor in text for floor in floors)
        assert note in text
    floors = [e["value"] for e in result.to_dict()["estimates"] if e["measure"] == "noise_floor"]
    assert floors == list(result.noise_floor.values())
    frame = result.to_frame("pandas")
    assert frame[frame.measure == "noise_floor"].value.tolist() == floors


@pytest.mark.parametrize("bias", [0.0, 3.0])
def test_a_violation_within_the_noise_floor_is_named(bias):
    queries, _ = random_queries(5, n_queries=60)
    scores = np.random.default_rng(5).normal(size=queries.n_items) + bias * queries.group
    result = audit(queries, scores, constraints="statistical", n_resamples=200)
    within = result.violation["statistical"] <= result.noise_floor["statistical"]
    assert within == (bias == 0.0)
    sentence = "Within the noise floor: statistical. These 60 queries could not show a smaller"
    assert (sentence in str(result)) == within


def test_text_has_intervals_and_counts():
    text = str(golden())
    assert "0.750 to 1.000" in text
    table = text[text.index("How often the preferred item") :].splitlines()
    assert [line.split() for line in table[1:5:2]] == [
        ["preferred", "f", "pairs", "m", "pairs"],
        ["f", "0.750*", "2", "0.750*", "3"],
    ]


@pytest.mark.parametrize("groups", [("female", "male"), ("female", "male", "non-binary")])
def test_text_fits_120_columns(groups):
    queries, scores = random_queries(17, n_queries=400, groups=groups)
    text = str(audit(queries, scores, name="a linear ranker"))
    assert max(map(len, text.splitlines())) <= 120
    assert "*" not in text  # nothing is small
    assert not any(line != line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("x" * 10_000, "xxx…"),
        ("two\nlines\x1b[31m", "two\\nlines\\x1b[31m"),
        ("[red]bold[/red]", "[red]bold[/red]"),
        ("東京" * 30, "東京東"),
        ("a" + "\u0301" * 9_000, "a"),
        ("\u202egnp.exe\ud800", "\\u202egnp.exe\\ud800"),
        ("  ", "'  '"),
        ("", "''"),
    ],
)
def test_text_shows_hostile_names_as_text(hostile, shown):
    options = {"qid": [1] * 4, "sensitive_features": [hostile, "m"] * 2}
    result = audit([1, 0, 1, 0], [4, 3, 2, 1], name=hostile, **options)
    text = str(result)
    assert shown in text
    assert max(map(len, text.splitlines())) <= 140
    assert all(line.isprintable() for line in text.split("\n"))
    assert json.loads(result.to_json())["groups"].count(hostile) == 1
    assert result.estimate("exposure", group=hostile).n_items == 2


def test_text_distinguishes_long_names():
    names = ["the same long beginning, then a", "the same long beginning, then b"]
    result = audit([1, 0], [1, 2], qid=[1, 1], sensitive_features=names)
    assert "the same long b… (1)" in str(result)
    assert "the same long b… (2)" in str(result)


def test_text_shows_the_first_of_many_groups():
    y, groups = np.tile([1, 0], 20), [f"g{k:02d}" for k in range(40)]
    text = str(audit(y, np.arange(40), qid=[1] * 40, sensitive_features=groups))
    assert "g07 (1), 32 more groups (32)" in text
    assert "g09 " not in text[text.index("by group  ") :]


def test_shorten_counts_columns():
    assert shorten("short", 5) == "short"
    assert shorten("shorter", 5) == "shor…"
    assert shorten("東京都", 5) == "東京…"
    assert shorten("東京都", 6) == "東京都"


def test_dict_and_json_have_everything():
    result = golden(name="three lists")
    plain = result.to_dict()
    assert json.loads(result.to_json(), parse_constant=pytest.fail) == plain
    assert plain["groups"] == ["f", "m"]
    assert plain["n_pairs"] == 10
    assert (plain["k"], plain["confidence"], plain["name"]) == ([2], 0.95, "three lists")
    assert len(plain["estimates"]) == len(result.estimates)
    assert plain["estimates"][0]["measure"] == "auc"
    assert plain["estimates"][0]["group"] is None
    assert plain["estimates"][0]["small"] is True
    empty = golden(n_resamples=0).to_dict()["estimates"][0]
    assert (empty["low"], empty["high"]) == (None, None)


def test_frame_pandas():
    frame = golden().to_frame("pandas")
    assert len(frame) == len(golden().estimates)
    overall = frame[(frame.measure == "auc") & frame.group.isna()].iloc[0]
    assert overall.value == approx(0.875)
    assert (overall.n_queries, overall.n_items, overall.n_pairs) == (2, 9, 10)
    assert frame.value.dtype == frame.low.dtype == float
    worst = frame[frame.measure == "violation"].set_index("constraint").value
    assert worst.to_dict() == approx(golden().violation)


def test_frame_polars():
    import polars as pl

    frame = golden().to_frame("polars")
    assert frame["n_pairs"].dtype == pl.Int64
    assert frame["small"].dtype == pl.Boolean
    cell = frame.filter(measure="preferred_above", group="f", other="m")
    assert cell["value"].to_list() == approx([0.75])
    assert cell["n_pairs"].to_list() == [3]


def test_frame_pyarrow():
    import pyarrow as pa

    table = golden(n_resamples=0).to_frame("pyarrow")
    assert table.schema.field("value").type == table.schema.field("low").type == pa.float64()
    assert table.num_rows == len(golden().estimates)
    assert table.column("group").to_pylist()[0] is None


def test_frame_takes_the_first_that_is_installed(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pandas" else find(name)
    )
    assert type(golden().to_frame()).__module__.startswith("polars")
    with pytest.raises(MissingExtraError, match="pip install pandas"):
        golden().to_frame("pandas")


def test_frame_without_any_library(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"pandas, polars or pyarrow.*to_dict"):
        golden().to_frame()


def test_frame_of_another_library():
    with pytest.raises(InputError, match=r"'pandas', 'polars', 'pyarrow' \(got 'dask'\)"):
        golden().to_frame("dask")
