"""Tables from files: every format holds the same table; what is none is one clear error."""

import csv
import gzip
import re
import sys
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairity._utils import files
from pairity.data import text_tables
from pairity.data.tables import read_table
from pairity.exceptions import InputError


def test_formats_hold_the_same_table(tmp_path):
    jobs = tmp_path / "jobs.csv"
    rows = [f'q{k // 5},"person, {k}",{k},{k / 7!r},{"fm"[k % 2]}' for k in range(50)]
    jobs.write_text("\n".join(["search,name,age,x,gender", *rows]))
    want = read_table(jobs)
    zipped = tmp_path / "jobs.csv.gz"
    zipped.write_bytes(gzip.compress(jobs.read_bytes()))
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import feather, parquet

    arrow = pa.table({name: column.tolist() for name, column in want.columns.items()})
    parquet.write_table(arrow, tmp_path / "jobs.parquet")
    feather.write_feather(arrow, tmp_path / "jobs.feather")
    for name in ("jobs.csv.gz", "jobs.parquet", "jobs.feather"):
        got = read_table(tmp_path / name)
        assert list(got.columns) == list(want.columns)
        for column in want.columns:
            assert got[column].tolist() == want[column].tolist()


def test_kinds_of_columns(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text('\ufeffwhole,number,word,gap\n1,0.5,a,1\n-2,1e3,"b, c",\n3,NaN,,2.5\n')
    table = read_table(path)
    assert table["whole"].tolist() == [1, -2, 3]
    assert table["number"].tolist()[:2] == [0.5, 1000.0]
    assert np.isnan(table["number"][2])
    assert table["word"].tolist() == ["a", "b, c", None]
    assert np.isnan(table["gap"][1])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "has no header in line 1"),
        ("a.csv", b"x,y\n", "has no rows"),
        ("a.csv", b"x,x\n1,2\n", "2 columns named 'x'"),
        ("a.csv", b"x,\n1,2\n", "a column without a name"),
        ("a.csv", b"x,y\n1,2\n3\n", "Line 3 of .* has 1 entries, but the header has 2"),
        ("a.csv", b"x,y\n1,\xff\n", "Line 2 of .* is not UTF-8"),
        ("a.csv", b"x,y\n" + b"1,2\n" * 9_000 + b"1,\xff\n", "Line 9002 of .* is not UTF-8"),
        ("a.csv", b'x,y\n1,"2\n', "cannot be read: unexpected end of data"),
        ("a.csv", b"x\n" + b"9" * 2_000_000, "field larger than field limit"),
        ("a.csv.gz", b"\x1f\x8b\x08\x00broken", "cannot be read"),
        ("a.csv", "x,y\n1,2\n".encode("utf-16"), "is UTF-16"),
        ("a.csv", b",".join(b"c%d" % k for k in range(100_001)) + b"\n", "100,001 columns"),
        ("a.svm", b"1 qid:x 1:1\n", "is not a query id"),
        ("a.svm", b"1 qid:1 200000:1\n", "features up to 200,000"),
        ("a.txt", b"1 qid:1 1:1\n", "It looks like LETOR: --input-format letor"),
        ("a.txt", b"x,y\n1,2\n", "It looks like CSV: --input-format csv"),
        ("a.xyz", b"x\n1\n", "does not determine its format"),
        ("a", b"x\n1\n", "does not determine its format"),
    ],
)
def test_files_that_are_no_tables(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_table(path)


@pytest.mark.parametrize("name", ["a.parquet", "a.feather"])
def test_broken_arrow_files(tmp_path, name):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    path = tmp_path / name
    path.write_bytes(b"PAR1 not really")
    with pytest.raises(InputError, match="is not a readable"):
        read_table(path)


def test_no_file(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        read_table(tmp_path / "nothing.csv")
    with pytest.raises(InputError, match="is a folder"):
        read_table(tmp_path)


@pytest.mark.parametrize(
    ("name", "line"), [("a.csv", b"1,2\n"), ("a.svm", b"1 qid:1 1:1\n"), ("a.parquet", b"0")]
)
def test_a_file_that_unpacks_out_of_all_proportion(tmp_path, monkeypatch, name, line):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    monkeypatch.setattr(files, "_FREE_BYTES", 10_000)
    path = tmp_path / f"{name}.gz"
    path.write_bytes(gzip.compress(b"x,y\n" * (name == "a.csv") + line * 100_000))
    assert path.stat().st_size * 200 < min(100_000 * len(line), 2**20)  # less than the first block
    tracemalloc.start()
    with pytest.raises(InputError, match=r"expands to more than 200 times its size.*gunzip"):
        read_table(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 30e6


def test_a_line_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LONGEST_LINE", 1000)
    path = tmp_path / "a.csv"
    path.write_text("x\n1\n" + "2" * 2000)
    with pytest.raises(InputError, match=r"Line 3 of .* characters"):
        read_table(path)


# --- blocks of rows -------------------------------------------------------------------------------


def write_column(folder, entries):
    path = folder / "column.csv"
    path.write_text("x\n" + "".join(f"{entry}\n" for entry in entries))
    return read_table(path)["x"]


@pytest.fixture(params=["csv", "pyarrow"])
def short_blocks(request, monkeypatch):
    if request.param == "pyarrow":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    monkeypatch.setattr(text_tables, "_BLOCK_ROWS", 4)
    monkeypatch.setattr(text_tables, "_BLOCK_BYTES", 9)
    monkeypatch.setattr(text_tables, "LARGE", 0 if request.param == "pyarrow" else 2**60)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([*range(9)], [*range(9)]),
        ([1, 2, 3, 4, 5.5], [1.0, 2.0, 3.0, 4.0, 5.5]),
        ([1, 2, 3, 4, "NA", 6], [1.0, 2.0, 3.0, 4.0, None, 6.0]),
        (["01", "2", "3.0", "4", "a"], ["01", "2", "3.0", "4", "a"]),
        (["0.50", "NA", "3", "4", "5", "6", "7", "8", "w"], ["0.50", None, *"345678", "w"]),
        ([1, 2, 3, 4, 2**63], [*"1234", str(2**63)]),
        ([2**63, "NA", 2**63 + 1], [str(2**63), None, str(2**63 + 1)]),
        ([1e300, 2**63, 1], ["1e+300", str(2**63), "1"]),
        ([0.5, 10**17 + 1], [0.5, 1e17]),
        ([1, 10**17 + 1], [1, 10**17 + 1]),
        (["1_000", "2"], ["1_000", "2"]),
        (["\u0663", "2"], ["\u0663", "2"]),
        (["0x1F", "0X2", "3"], ["0x1F", "0X2", "3"]),
        ([0.5, 1.5, 2.5, 3.5, 4.5, "nan(1)"], ["0.5", "1.5", "2.5", "3.5", "4.5", "nan(1)"]),
        ([0.5, 1.5, 2.5, 3.5, "+4.5", " 5 "], [0.5, 1.5, 2.5, 3.5, 4.5, 5.0]),
        ([0.5, 1.5, 2.5, 3.5, 2**64], ["0.5", "1.5", "2.5", "3.5", str(2**64)]),
    ],
)
def test_what_a_column_holds_is_decided_by_all_of_it(tmp_path, short_blocks, entries, expected):
    found = write_column(tmp_path, entries).tolist()
    assert [None if value != value else value for value in found] == expected
    assert [type(v) for v in found if v == v] == [type(v) for v in expected if v is not None] or (
        None in expected
    )


def test_words_that_repeat_are_kept_once(tmp_path, short_blocks):
    column = write_column(tmp_path, ["women", "men"] * 100)
    assert len({id(word) for word in column}) == 2


def test_memory_is_that_of_the_columns(tmp_path):
    """Text takes several times the room of numbers; only blocks of it are held."""
    path = tmp_path / "long.csv"
    row = ",".join(["0.123456789"] * 20)
    path.write_text("\n".join([",".join(f"x{k}" for k in range(20)), *([row] * 30_000)]))
    tracemalloc.start()
    table = read_table(path, progress=False)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    typed = sum(column.nbytes for column in table.columns.values())
    assert typed == 30_000 * 20 * 8
    assert peak < 3.5 * typed


def test_another_delimiter(tmp_path, short_blocks):
    path = tmp_path / "a.csv"
    path.write_text("x;y\n1;0,5\n")
    assert read_table(path, delimiter=";")["y"].tolist() == ["0,5"]
    for wrong in ("", ";;", '"', "\n", "ä"):
        with pytest.raises(InputError, match=r"delimiter must be one ASCII character"):
            read_table(path, delimiter=wrong)


def test_the_limit_of_fields_is_put_back(tmp_path):
    before = csv.field_size_limit()
    write_column(tmp_path, [1, 2])
    assert csv.field_size_limit() == before


PIECES = st.sampled_from(
    [
        "0", "7", "-3", "+5", "0.5", "-.25", "1e3", "1e-320", "1e999", "123456789012345678", "1.",
        "9223372036854775808", "", "NA", "nan", "inf", "word", "ä", "1_0", " 1", "2 ", "-", "+",
        ".", "1e", "0x1", "1e5x", "12.5.1", "٣", "\t", "nan(1)", "-nan", '"7"', '"a,b"', '"a\nb"',
        '"say ""so"""', '""', '"x"y', 'x"y', ' "x"', '"open',
    ]
)  # fmt: skip


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    columns=st.lists(st.lists(PIECES, min_size=1, max_size=4), min_size=1, max_size=3),
    n_rows=st.integers(1, 12),
    end=st.sampled_from(["\n", "\r\n"]),
    odd=st.sampled_from(["", "", "", '"', "\r", "\n", "\xff", ",", "\x00"]),
    at=st.integers(0, 60),
    size=st.integers(1, 40),
)
def test_pyarrow_reads_what_csv_reads(columns, n_rows, end, odd, at, size):
    """Column by column and error by error, wherever blocks end."""
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    header = ",".join(f"c{k}" for k in range(len(columns)))
    rows = [",".join(c[row % len(c)] for c in columns) for row in range(n_rows)]
    text = end.join([header, *rows])
    content = (text[:at] + odd + text[at:]).encode(
        "latin-1" if odd == "\xff" else "utf-8", "replace"
    )
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder, "a.csv")
        path.write_bytes(content)
        told = []
        for large in (0, 2**60):
            patch.setattr(text_tables, "LARGE", large)
            patch.setattr(text_tables, "_BLOCK_BYTES", size)
            try:
                table = read_table(path, progress=False)
                told.append([(n, c.dtype, c.tolist()) for n, c in table.columns.items()])
            except InputError as error:
                told.append(re.sub(r"after line \d+", "", str(error)))
    assert repr(told[0]) == repr(told[1])


def test_csv_reads_large_files_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setattr(text_tables, "LARGE", 0)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert write_column(tmp_path, ["a", "b", "a"]).tolist() == ["a", "b", "a"]


def test_pyarrow_reads_quoted_fields(tmp_path, monkeypatch, short_blocks):
    """Quotes do not send a file to `csv`, unless they stand within a field."""
    path = tmp_path / "a.csv"
    path.write_text('x,"y, z"\n' + '1,"one, ""two""\nthree"\n' * 20)
    calls = []
    read_by_csv = text_tables._csv_blocks
    monkeypatch.setattr(text_tables, "_csv_blocks", lambda *a: calls.append(a) or read_by_csv(*a))
    table = read_table(path)
    # the header is read without progress, and by `csv` in any case
    assert {call[-1] for call in calls} == {False if text_tables.LARGE == 0 else "auto"}
    assert table["x"].tolist() == [1] * 20
    assert table["y, z"].tolist() == ['one, "two"\nthree'] * 20


# --- LETOR, as a table ----------------------------------------------------------------------------


def test_letor_as_a_table(tmp_path):
    path = tmp_path / "web.svm"
    path.write_text("2 qid:7 1:0.5 3:4\n0 qid:7 2:1\n")
    table = read_table(path)
    assert list(table.columns) == ["label", "qid", "1", "2", "3"]
    assert table.column_for("label", None) == "label"
    assert table.column_for("query", None) == "qid"
    X, names = table.features(None, ["2"], ["3"])
    assert names == ("1",)
    assert X.tolist() == [[0.5], [0.0]]
    X, _ = table.features(["1", "9"], (), ())  # a feature that no line has is 0
    assert X.tolist() == [[0.5, 0.0], [0.0, 0.0]]
    with pytest.raises(InputError, match="--group is missing"):
        table.column_for("group", None)


# --- Arrow ----------------------------------------------------------------------------------------


def test_kinds_of_arrow_columns(tmp_path):
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet

    columns = {
        "large": pa.array([2**63, 1], pa.uint64()),
        "small": pa.array([3, 1], pa.uint64()),
        "yes": [True, False],
        "gap": [True, None],
        "category": pa.array(["a", "b"]).dictionary_encode(),
        "codes": pa.array([5, None]).dictionary_encode(),
        "word": ["b", None],
        "whole": pa.array([1, None], pa.int8()),
    }
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    table = read_table(tmp_path / "a.parquet")
    assert table["large"].tolist() == [2**63, 1]
    assert table["small"].dtype == np.int64
    assert table["yes"].dtype == np.bool_
    assert table["gap"].tolist() == [True, None]
    assert table["category"].tolist() == ["a", "b"]
    assert table["codes"].dtype == np.float64
    assert table["word"].tolist() == ["b", None]
    assert table["whole"].tolist()[0] == 1.0
    assert np.isnan(table["whole"][1])


def test_words_of_arrow_files_are_kept_once(tmp_path):
    """A long word a million times takes the room of one."""
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import feather, parquet

    rows = pa.array([0] * 20_000 + [None], pa.int32())
    long = pa.DictionaryArray.from_arrays(rows, ["a" * 100_000])
    parquet.write_table(pa.table({"x": long}), tmp_path / "a.parquet", store_schema=False)
    before = pa.total_allocated_bytes()
    table = read_table(tmp_path / "a.parquet")
    assert len(table["x"]) == 20_001
    assert table["x"][0] is table["x"][19_999]
    assert pa.total_allocated_bytes() - before < 10**7
    entries = [*map(str, range(128)), None]  # as many as 8 bits tell apart
    rows = pa.array([*range(128), None], pa.int8())
    words = pa.DictionaryArray.from_arrays(rows, entries[:-1])
    feather.write_feather(pa.table({"x": words}), tmp_path / "a.feather", chunksize=50)
    assert read_table(tmp_path / "a.feather")["x"].tolist() == entries


def test_a_small_file_with_endless_rows_is_refused(tmp_path):
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    block = pa.table({f"x{k}": np.zeros(1_000_000) for k in range(20)})
    with parquet.ParquetWriter(path, block.schema) as writer:
        for _ in range(8):
            writer.write_table(block)
    assert path.stat().st_size < 10**6
    with pytest.raises(InputError, match="would take 1,280,000,000 in memory"):
        read_table(path)
