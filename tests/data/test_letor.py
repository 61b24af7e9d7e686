"""LETOR files: every number exact, every malformed line refused with its file and number."""

import gzip
import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from pairity._utils.threads import limit_threads
from pairity.data import letor, read_letor, read_letor_arrays
from pairity.exceptions import InputError

TEXT = b"2 qid:1 1:0.5 3:1e1 # docid = 7\n0 qid:1 2:-4\n\n# nothing\n1 qid:30 1:+7 3:.25\n"
X = [[0.5, 0, 10], [0, -4, 0], [7, 0, 0.25]]


def zipped(content):
    """With no time in it: such bytes name tests, and the names must agree between processes."""
    return gzip.compress(content, mtime=0)


@pytest.fixture
def write(tmp_path):
    def file(content, name="some.txt"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return file


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """For Hypothesis, which wants no fixture that begins anew with each example."""
    return tmp_path_factory.mktemp("letor")


# --- what a file says ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        TEXT,
        TEXT.rstrip(b"\n"),
        TEXT.replace(b"\n", b"\r\n"),
        TEXT.replace(b" ", b" \t "),
        b"\xef\xbb\xbf" + TEXT,
        b"\n  \n\t\r\n" + TEXT + b"\n\n#",
        TEXT.replace(b" # docid", b"#docid"),
        zipped(TEXT),
        zipped(TEXT[:20]) + zipped(TEXT[20:]),
    ],
)
@pytest.mark.parametrize("sparse", [False, True])
def test_the_same_rows_however_they_are_written(write, content, sparse):
    arrays = read_letor_arrays(write(content), sparse=sparse)
    assert sp.issparse(arrays.X) == sparse
    np.testing.assert_array_equal(arrays.X.toarray() if sparse else arrays.X, X)
    np.testing.assert_array_equal(arrays.y, [2, 0, 1])
    np.testing.assert_array_equal(arrays.qid, [1, 1, 30])
    assert arrays.y.dtype == np.float64
    assert arrays.qid.dtype == np.int64


@pytest.mark.parametrize("block", [1, 7, 64])
@pytest.mark.parametrize("threads", [1, 3])
def test_the_size_of_blocks_does_not_matter(write, monkeypatch, block, threads):
    monkeypatch.setattr(letor, "_BLOCK", block)
    monkeypatch.setattr(letor, "_CHUNK", 64)
    monkeypatch.setenv("PAIRITY_NUM_THREADS", str(threads))
    rng = np.random.default_rng(0)
    wanted = rng.normal(size=(60, 4)) * (rng.random((60, 4)) < 0.5)
    wanted[-1, 3] = 1.0
    lines = [
        f"{row % 3} qid:{row // 5} "
        + " ".join(f"{k + 1}:{float(v)!r}" for k, v in enumerate(values) if v)
        for row, values in enumerate(wanted)
    ]
    path = write("\n".join(lines))
    np.testing.assert_array_equal(read_letor_arrays(path).X, wanted)
    np.testing.assert_array_equal(read_letor_arrays(path, sparse=True).X.toarray(), wanted)
    np.testing.assert_array_equal(read_letor_arrays(path).qid, np.arange(60) // 5)


def test_several_files_are_joined(write):
    paths = [write("1 qid:1 1:1\n", "a"), write(zipped(b"0 qid:2 4:3"), "b")]
    arrays = read_letor_arrays(paths)
    np.testing.assert_array_equal(arrays.X, [[1, 0, 0, 0], [0, 0, 0, 3]])
    np.testing.assert_array_equal(arrays.qid, [1, 2])


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("line", "options", "row"),
    [
        ("1 qid:1 1:5 2:6", {}, [5, 6]),
        ("1 qid:1 1:5 2:6", dict(n_features=4), [5, 6, 0, 0]),
        ("1 qid:1 1:5 2:6", dict(first_index=0), [0, 5, 6]),
        ("1 qid:1 1:5 2:6", dict(first_index="auto"), [5, 6]),
        ("1 qid:1 0:5 2:6", dict(first_index=0), [5, 0, 6]),
        ("1 qid:1 0:5 2:6", dict(first_index="auto"), [5, 0, 6]),
        ("1 qid:1 0:5 2:6", dict(first_index="auto", n_features=3), [5, 0, 6]),
    ],
)
def test_where_indices_begin_and_end(write, line, options, row, sparse):
    found = read_letor_arrays(write(line), sparse=sparse, **options).X
    np.testing.assert_array_equal(found.toarray() if sparse else found, [row])


def test_sparse_leaves_out_zeros(write):
    found = read_letor_arrays(write("1 qid:1 1:0 2:3 9:-0.0\n0 qid:1 1:0\n"), sparse=True).X
    assert found.nnz == 1
    assert found.shape == (2, 9)
    found.check_format()


def test_queries_with_groups(write):
    path = write(TEXT)
    queries = read_letor(path, sensitive_features=write("f\n\nm\n", "groups"))
    assert queries.groups == ("f", "m")
    assert queries.n_missing == 1
    assert queries == read_letor(path, sensitive_features=["f", None, "m"])
    assert queries.query_ids.tolist() == [1, 30]


def test_queries_without_ids(write):
    path = write("1 1:2\n0 1:3\n2 1:4\n")
    assert read_letor_arrays(path).qid is None
    sizes = write("2\n1\n", "train.query")
    for options in (dict(qid=[0, 0, 1]), dict(group=[2, 1]), dict(group=sizes)):
        assert read_letor(path, **options)["qid"].tolist() == [0, 0, 1]
    with pytest.raises(InputError, match="no query ids"):
        read_letor(path)
    with pytest.raises(InputError, match="group has 2 queries with 2 rows, but there are 3"):
        read_letor(path, group=[1, 1])
    with pytest.raises(InputError, match="'x'"):
        read_letor(path, group=write("x", "bad.query"))
    with pytest.raises(InputError, match=r"some\.txt has query ids. Do not pass qid"):
        read_letor(write(TEXT), qid=[1, 2, 3])
    assert read_letor(write(TEXT), group=[2, 1]) == read_letor(write(TEXT))
    with pytest.raises(InputError, match="group and qid disagree"):
        read_letor(write(TEXT), group=[1, 2])


def test_agrees_with_scikit_learn(tmp_path):
    rng = np.random.default_rng(0)
    wanted = rng.normal(size=(50, 6)) * 10.0 ** rng.integers(-30, 30, (50, 6))
    path = tmp_path / "dumped.svm"
    dump_svmlight_file(wanted, rng.integers(0, 5, 50), str(path), query_id=np.arange(50) // 9)
    X, y, qid = load_svmlight_file(str(path), query_id=True)
    ours = read_letor_arrays(path, first_index="auto")
    np.testing.assert_array_equal(ours.X, X.toarray())
    np.testing.assert_array_equal(ours.y, y)
    np.testing.assert_array_equal(ours.qid, qid)


def test_lightgbm_example(shared_data):
    folder = shared_data / "lightgbm_rank"
    train = read_letor(folder / "rank.train.gz", group=folder / "rank.train.query")
    assert (train.n_items, train.n_queries, train.X.shape[1]) == (3005, 201, 300)
    np.testing.assert_array_equal(np.bincount(train.y.astype(int)), [645, 1211, 858, 222, 69])


# --- numbers -------------------------------------------------------------------------------------


def same_bits(folder, words):
    """Read as values and as labels, and compare with Python's float, to the last bit."""
    path = folder / "numbers.txt"
    entries = " ".join(f"{k}:{word}" for k, word in enumerate(words, 1))
    path.write_text(f"0 {entries}\n" + "".join(f"{word}\n" for word in words))
    wanted = np.array([float(word) for word in words])
    found = read_letor_arrays(path)
    np.testing.assert_array_equal(found.X[0].view(np.uint64), wanted.view(np.uint64))
    np.testing.assert_array_equal(found.y[1:].view(np.uint64), wanted.view(np.uint64))


finite = st.floats(allow_nan=False, allow_infinity=False)
spelt = st.one_of(
    finite.map(repr),
    st.builds("{:.{}e}".format, finite, st.integers(0, 40)).filter(
        lambda w: math.isfinite(float(w))
    ),
    st.builds("{:.{}f}".format, st.floats(-1e9, 1e9), st.integers(0, 30)),
    st.integers(-(10**60), 10**60).map(str),
    st.from_regex(r"\A[+-]?(\d{1,30}\.?\d{0,30}|\.\d{1,40})([eE][+-]?\d{1,2})?\Z").filter(
        str.isascii
    ),
)


@settings(max_examples=300)
@given(words=st.lists(spelt, min_size=1, max_size=30))
def test_numbers_are_those_of_python(folder, words):
    same_bits(folder, words)


def decimal(value):
    """All digits of a fraction whose denominator is a power of two."""
    places = value.denominator.bit_length() - 1
    digits = str(abs(value.numerator) * 5**places).rjust(places + 1, "0")
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[: len(digits) - places]}.{digits[len(digits) - places :] or 0}"


@settings(max_examples=200)
@given(value=finite, further=st.sampled_from(["", "0", "1", "000000000000000000001"]))
def test_halfway_between_two_doubles(folder, value, further):
    above = math.nextafter(value, math.inf)
    if math.isfinite(above):
        middle = decimal((Fraction(value) + Fraction(above)) / 2)
        same_bits(folder, [middle + further, middle[:-1], repr(value), decimal(Fraction(value))])


def test_hard_numbers(folder):
    same_bits(
        folder,
        [
            "9007199254740993", "9007199254740992", "9007199254740991e22", "9007199254740993e-22",
            "1e22", "1e23", "8.5e22", "1e-22", "1e-23", "123456789012345678e-25",
            "1.7976931348623157e308", "1.7976931348623158e308", "2.2250738585072014e-308",
            "2.2250738585072011e-308", "5e-324", "2.4703282292062327e-324", "1e-400",
            "0e99999999999", "-0", "-0.0e5",
            "0.000000000000000000000000000000000000000000000000000000000000001",
            "100000000000000000000000000000000000000000000000000000000000000e-62", "1e-0000000001",
            "18446744073709551615", "18446744073709551616", "9999999999999999999", "1" + "0" * 400
            + "e-400", "0." + "0" * 400 + "1e400", "6.9294956446009195e15", "3.7455744005952583e15",
            "2.5e-1", "1.e2", ".5", "+3", "0.1", "0.10000000000000000555", "4.35",
            "4.349999999999999",
        ],
    )  # fmt: skip


# --- what is refused -----------------------------------------------------------------------------

GOOD = "1 qid:1 1:2\n0 qid:1 1:3 # fine\n"
BAD = [
    ("x qid:1 1:2", "label 'x'"),
    ("1,2 qid:1 1:2", "label '1,2'"),
    ("nan qid:1 1:2", "label 'nan'"),
    ("1e999 qid:1 1:2", "label '1e999'"),
    ("1:3 qid:1 1:2", "label '1:3'"),
    ("1 qid: 1:2", "not a query id"),
    ("1 qid:x 1:2", "'qid:x' is not a query id"),
    ("1 qid:1.5 1:2", "'qid:1.5' is not a query id"),
    ("1 qid:-1 1:2", "'qid:-1' is not a query id"),
    ("1 qid:9223372036854775808 1:2", "above 2\\^63"),
    ("1 qid:99999999999999999999999999 1:2", "above 2\\^63"),
    ("1 1:2", "no query id"),
    ("1", "no query id"),
    ("1 qid:1 1", "'1' is not a feature"),
    ("1 qid:1 2:1 a:2", "'a:2' is not a feature"),
    ("1 qid:1 cost:2", "'cost:2' is not a feature"),
    ("1 qid:1 1.5:2", "'1.5:2' is not a feature"),
    ("1 qid:1 :2", "':2' is not a feature"),
    ("1 qid:1 qid:1", "'qid:1' is not a feature"),
    ("1 qid:1 0:2", "first_index=0"),
    ("1 qid:1 2147483648:2", "above 2147483647"),
    ("1 qid:1 99999999999999999999:2", "above 2147483647"),
    ("1 qid:1 2:1 2:1", "'2:1' appears twice"),
    ("1 qid:1 2:1 1:1", "'1:1' is below"),
    ("1 qid:1 1:", "'1:' is not a finite number"),
    ("1 qid:1 1:2:3", "'1:2:3' is not a finite number"),
    ("1 qid:1 12: 3", "'12:' is not a finite number"),
    ("1 qid:1 1:nan", "'1:nan' is not a finite number"),
    ("1 qid:1 1:-inf", "'1:-inf' is not a finite number"),
    ("1 qid:1 17:1e309", "'17:1e309' is not a finite number"),
    ("1 qid:1 1:1e", "'1:1e' is not a finite number"),
    ("1 qid:1 1:1e+", "'1:1e\\+' is not a finite number"),
    ("1 qid:1 1:1_0", "not a finite number"),
    ("1 qid:1 1:0x1", "not a finite number"),
    ("1 qid:1 1:-", "not a finite number"),
    ("1 qid:1 1:.", "not a finite number"),
    ("1 qid:1 1:2\0", "not a finite number"),
    ("1 qid:1 1:٣", "not a finite number"),
]


@pytest.mark.parametrize(("line", "fact"), BAD)
@pytest.mark.parametrize("last", ["", "\n", "\n1 qid:1 x\n"])
def test_one_error_names_file_and_line(write, line, fact, last):
    with pytest.raises(InputError, match=fact) as caught:
        read_letor_arrays(write(GOOD + line + last))
    assert str(caught.value).count("some.txt, line 3: ") == 1


def test_the_line_is_counted_over_blocks_and_files(write, monkeypatch):
    monkeypatch.setattr(letor, "_BLOCK", 16)
    paths = [write(GOOD, "a.txt"), write(GOOD * 20 + "\r\n#\n1 qid:1 2:x\n", "b.txt")]
    with pytest.raises(InputError, match=r"b\.txt, line 43: "):
        read_letor_arrays(paths)
    with pytest.raises(InputError, match=r"b\.txt, line 1: the row has a query id"):
        read_letor_arrays([write("1 1:1", "c.txt"), paths[1]])


def test_incomplete_rows_can_be_refused(write):
    path = write("1 qid:1 1:1 2:2\n1 qid:1 1:1\n")
    assert read_letor_arrays(path).X.shape == (2, 2)
    with pytest.raises(InputError, match=r"line 2.* lacks some of the features from 1 to 2"):
        read_letor_arrays(path, n_features=2, complete=True)
    with pytest.raises(InputError, match="requires n_features"):
        read_letor_arrays(path, complete=True)


@pytest.mark.parametrize(
    ("content", "options", "fact"),
    [
        ("", {}, "no rows"),
        ("# only\n\n", {}, "no rows"),
        ("1 qid:1\n0 qid:1", {}, "no features"),
        (TEXT, dict(n_features=2), "'3:1e1' is above 2"),
        ("1 qid:1 0:1 2:1", dict(first_index="auto", n_features=2), "n_features=2"),
        (TEXT, dict(n_features=0), r"a whole number, 1 or greater \(got 0\)"),
        (TEXT, dict(n_features=2.5), "whole number"),
        (TEXT, dict(first_index=2), r"first_index must be .*\(got 2\)"),
        ("1 qid:1 2147483647:1", {}, "sparse=True"),
        (TEXT, dict(n_features=2**31 - 1), "sparse=True"),
        (zipped(TEXT)[:-9], {}, "complete"),
        (zipped(TEXT)[:40], {}, "complete"),
        (b"\x1f\x8b", {}, "cannot be read"),
        (zipped(TEXT) + b"x", {}, "cannot be read"),
    ],
)
def test_files_that_cannot_be_used(write, content, options, fact):
    with pytest.raises(InputError, match=fact):
        read_letor_arrays(write(content), **options)


def test_no_file(tmp_path):
    for path, fact in ((tmp_path / "nowhere.txt", "does not exist"), (tmp_path, "is a folder")):
        with pytest.raises(InputError, match=fact):
            read_letor_arrays(path)
    with pytest.raises(InputError, match="no path"):
        read_letor_arrays([])


def test_a_line_without_end(write, monkeypatch):
    monkeypatch.setattr(letor, "_BLOCK", 64)
    monkeypatch.setattr(letor, "_LONGEST_LINE", 256)
    with pytest.raises(InputError, match="line end"):
        read_letor_arrays(write(b"1 " * 1000))


pieces = st.sampled_from(
    [
        b"1", b"0", b" ", b"\n", b"qid:", b"qid:1 ", b"1:", b":", b"2:3 ", b"9", b"e", b"-", b".",
        b"#", b"\r\n", b"nan", b"1 qid:1 ", b"\0", b"\xff", b"99999999999", b"1e400", b"q", b"\t",
    ]
)  # fmt: skip


@settings(max_examples=500)
@given(
    content=st.one_of(st.binary(max_size=60), st.lists(pieces, max_size=25).map(b"".join)),
    zipped=st.booleans(),
    sparse=st.booleans(),
    first_index=st.sampled_from([0, 1, "auto"]),
)
def test_whatever_the_bytes_only_an_input_error(folder, content, zipped, sparse, first_index):
    path = folder / "any.txt"
    path.write_bytes(gzip.compress(content) if zipped else content)
    try:
        arrays = read_letor_arrays(path, sparse=sparse, first_index=first_index)
    except InputError:
        return
    assert arrays.X.shape[0] == len(arrays.y) > 0
    assert np.isfinite(arrays.y).all()


@settings(max_examples=100)
@given(data=st.data())
def test_a_damaged_file_is_refused_or_read(folder, data):
    content = bytearray(TEXT * 3)
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = folder / "damaged.txt"
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        with limit_threads(1):
            read_letor(path)
    except InputError as error:
        assert str(path) in str(error)  # noqa: PT017
