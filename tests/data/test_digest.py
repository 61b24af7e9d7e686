"""The digest of training data: any value changes it, how the table is held does not."""

import hashlib
import json

import numpy as np
import pytest
import scipy.sparse as sp

from pairity import Queries
from pairity._utils.text import make_frame
from pairity._utils.threads import limit_threads
from pairity.data import digest as module
from pairity.data.digest import digest
from pairity.datasets import make_biased_ranking

MADE = make_biased_ranking(6, 5, random_state=0)
BASE = {
    "X": MADE.X, "y": MADE.y, "qid": MADE.qid, "sensitive_features": MADE.sensitive_features,
    "sample_weight": np.ones(30), "query_weight": np.ones(30),
}  # fmt: skip


def of(**changed):
    return digest(Queries.from_arrays(**{**BASE, **changed}))


def test_as_it_is_described():
    queries = Queries.from_arrays([[0.5, 2.0], [1.0, 3.0]], [0, 1], qid=["q", "q"],
                                  sensitive_features=["f", "m"])  # fmt: skip
    block = hashlib.sha256(np.array([0.5, 2.0, 1.0, 3.0], "<f8").tobytes()).digest()
    said = json.dumps([2, 2, ["f", "m"], ["q"]]).encode()
    rest = (np.array([0.0, 1.0], "<f8"), np.zeros(2, "<i8"), np.array([0, 1], "<i4"))
    want = hashlib.sha256(block + said + b"".join(each.tobytes() for each in rest))
    assert digest(queries) == want.hexdigest()


@pytest.mark.parametrize("name", BASE)
def test_any_value_changes_it(name):
    column = np.array(BASE[name])
    column[-1] = "other" if column.dtype.kind in "UO" else column[-1] + 1
    if name == "query_weight":
        column[-5:] = column[-1]
    assert of(**{name: column}) != of()
    assert of() == of()


def test_the_order_of_rows_changes_it():
    assert of(**{name: column[::-1] for name, column in BASE.items()}) != of()


def test_weights_that_are_not_given_are_not_ones():
    assert of(sample_weight=None) != of()


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
@pytest.mark.parametrize("raw", [False, True])
def test_tables_and_matrices_agree(library, raw):
    pytest.importorskip(library, reason=f"{library} is not installed")
    table = make_frame({f"c{k}": column.tolist() for k, column in enumerate(MADE.X.T)}, library)
    assert of(X=table, raw=raw) == of() == of(X=np.asfortranarray(MADE.X))


def test_text_and_missing_values_of_tables():
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    table = pd.DataFrame({"a": MADE.X[:, 0], "b": pd.Categorical(["x", "y", None] * 10),
                          "c": pd.array([1, None, 3] * 10, dtype="Int64")})  # fmt: skip
    found = {of(X=table, raw=True)}
    for row, column, value in ((0, "a", np.nan), (0, "b", "y"), (1, "b", None), (0, "c", None),
                               (1, "c", 4)):  # fmt: skip
        changed = table.copy()
        changed.loc[row, column] = value
        found.add(of(X=changed, raw=True))
    assert len(found) == 6
    as_text = table.assign(b=table["b"].astype(object))
    assert of(X=as_text, raw=True) == of(X=table, raw=True)


def test_matrices_of_objects():
    X = np.array([["a", 1.5, None]] * 30, dtype=object)
    other = X.copy()
    other[3, 0] = "b"
    assert of(X=X, raw=True) != of(X=other, raw=True)


def test_sparse_matrices():
    X = sp.csr_array(np.where(np.abs(MADE.X) < 0.7, 0.0, MADE.X))
    assert of(X=X) == of(X=sp.coo_array(X)) == of(X=X, raw=True)
    moved = X.copy()
    moved.indices[0] = (moved.indices[0] + 1) % 2
    assert of(X=moved) != of(X=X)


def test_blocks_and_threads(monkeypatch):
    monkeypatch.setattr(module, "_BLOCK_ROWS", 7)
    with limit_threads(1):
        one = of()
    assert one == of()
    for X in (sp.csr_array(MADE.X), MADE.X.astype(object)):
        changed = X.copy()
        changed[29, 4] = 7.0
        assert of(X=X, raw=True) != of(X=changed, raw=True)
