"""Files of any content: each reader reads it or raises one of our errors, in bounded time.

Contents are drawn from noise, from valid files that were cut, changed or glued, and from texts that
look like tables. The command ends with 0, 1 or 2 whatever it is given.
"""

import gzip
import json
import os
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pairity
from pairity._utils.files import read_lines
from pairity.cli import main
from pairity.comparisons.frontiers import Frontier
from pairity.data.letor import read_letor
from pairity.data.tables import read_table
from pairity.data.trec import read_trec
from pairity.exceptions import PairityError

FEW = settings(
    max_examples=int(os.environ.get("FUZZ", "100")),
    deadline=5000,
    derandomize="FUZZ" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
RUN = b"1 Q0 a 1 3.5 t\n1 Q0 b 2 2.5 t\n2 Q0 a 1 9 t\n"
QRELS = b"1 0 a 0\n1 0 b 2\n2 0 a 1\n"
GROUPS = b"a\tf\nb\tm\n"


def parquet_bytes():
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    import io

    from pyarrow import feather, parquet

    table = pa.table(
        {
            "q": [1, 1, 2, 2],
            "y": [0, 1, 1, 0],
            "g": ["f", "m", None, "m"],
            "s": [0.5, 1.5, None, 2.0],
            "nested": [[[1]], [], None, [[2], [3]]],
        }
    )
    made = []
    for write in (parquet.write_table, feather.write_feather):
        into = io.BytesIO()
        write(table, into)
        made.append(into.getvalue())
    return made


def changed(valid):
    """A valid file, cut off, with bytes overwritten, doubled or put in between."""

    @st.composite
    def draw_changed(draw):
        content = bytearray(draw(st.sampled_from(valid)))
        for _ in range(draw(st.integers(0, 4))):
            at = draw(st.integers(0, len(content)))
            match draw(st.integers(0, 3)):
                case 0:
                    del content[at:]
                case 1:
                    content[at : at + 4] = draw(st.binary(max_size=4))
                case 2:
                    content[at:at] = draw(st.binary(max_size=8))
                case 3:
                    content += content[:at]
        return bytes(content)

    return draw_changed()


ENTRIES = st.one_of(
    st.integers().map(str),
    st.floats().map(repr),
    st.text(max_size=8),
    st.sampled_from(["", "NA", '"', '""', '"a\nb"', "1_0", "nan", "-", "\x00", "1e999", " 1 "]),
    st.sampled_from(["9" * 400, "x" * 3000, "\ufeff", "\r", "1,2"]),
)


@st.composite
def texts(draw):
    """Something like a table: rows of entries, joined by some delimiter, in some encoding."""
    delimiter = draw(st.sampled_from([",", "\t", ";", " "]))
    width = draw(st.integers(1, 5))
    names = draw(st.sampled_from([["q", "y", "g", "s", "x"], ["q", "q", "y", "g", "s"]]))
    rows = draw(
        st.lists(st.lists(ENTRIES, min_size=width - 1, max_size=width + 1), min_size=0, max_size=8)
    )
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    text = end.join(delimiter.join(row) for row in [names[:width], *rows])
    encoding = draw(st.sampled_from(["utf-8", "utf-8", "utf-8", "utf-16", "latin-1", "utf-8-sig"]))
    return text.encode(encoding, "replace")


@st.composite
def zipped(draw, contents):
    """Now and then compressed, and then perhaps cut."""
    content = draw(contents)
    match draw(st.integers(0, 4)):
        case 0:
            return gzip.compress(content)
        case 1:
            whole = gzip.compress(content)
            return whole[: draw(st.integers(0, len(whole)))]
        case _:
            return content


def reads_or_refuses(read, files):
    """Hand files to a reader; anything but our errors is a failure."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        paths = []
        for name, content in files.items():
            paths.append(Path(folder, name))
            paths[-1].write_bytes(content)
        with suppress(PairityError):
            return read(*paths)
    return None


TABLES = [b"q,y,g,s,x\n1,0,f,0.5,3\n1,1,m,1.5,\n2,1,,2,4\n2,0,m,1,5\n"]
LETOR = [b"2 qid:1 1:0.5 3:1 # one\n0 qid:1 2:4\n1 qid:2 1:7\n"]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.svm"])
@FEW
@given(content=zipped(st.one_of(st.binary(max_size=300), texts(), changed(TABLES + LETOR))))
def test_text(name, content):
    table = reads_or_refuses(read_table, {name: content})
    if table is not None:
        assert len({len(column) for column in table.columns.values()}) == 1
        for column in table.columns.values():
            assert column.dtype.kind in "ifO"


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_arrow(kind):
    valid = parquet_bytes()

    @FEW
    @given(content=zipped(st.one_of(st.binary(max_size=300), changed(valid))))
    def check(content):
        reads_or_refuses(read_table, {f"a.{kind}": content})

    check()


@FEW
@given(
    which=st.integers(0, 2),
    content=zipped(
        st.one_of(st.binary(max_size=200), texts(), changed([RUN, QRELS, GROUPS]))
    ),
)  # fmt: skip
def test_trec(which, content):
    files = {"run": RUN, "qrels": QRELS, "groups": GROUPS}
    files[list(files)[which]] = content
    judged = reads_or_refuses(read_trec, files)
    if judged is not None:
        assert np.isfinite(judged.scores).all()


@FEW
@given(content=zipped(st.one_of(st.binary(max_size=200), texts())))
def test_side_files(content):
    def read(names):
        return read_letor(data, sensitive_features=names, progress=False)

    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "a.svm")
        data.write_bytes(LETOR[0])
        reads_or_refuses(read, {"names": content})
        reads_or_refuses(read_lines, {"names": content})


# --- JSON; saved models are in test_model_files.py ------------------------------------------------

VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=10)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)


@FEW
@given(content=st.one_of(st.binary(max_size=200), VALUES.map(json.dumps).map(str.encode)))
def test_frontiers_and_weights(content):
    for read in (Frontier.from_json, pairity.PairWeights.from_json):
        reads_or_refuses(lambda path, read=read: read(path.read_bytes()), {"a.json": content})


# --- the command ----------------------------------------------------------------------------------


@FEW
@given(content=zipped(st.one_of(texts(), changed(TABLES))))
def test_the_command_ends_with_a_status(content):
    """Status 2 and one message, never a traceback."""
    roles = ["--label", "y", "--query", "q", "--group", "g", "--score", "s", "--resamples", "5"]

    def audit(path):
        return main(["audit", str(path), *roles, "--quiet"])

    assert reads_or_refuses(audit, {"a.csv": content}) in (0, 1, 2)
