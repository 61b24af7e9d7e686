"""Audits on worker processes have the estimates of one machine."""

import numpy as np
import pytest

from pairity import audit
from support.clusters import by_query

pytestmark = pytest.mark.filterwarnings("ignore")  # of Dask and of the engines


def test_an_audit_on_workers_has_the_estimates_of_one_machine(client, spread, table):
    scores = np.random.default_rng(0).normal(size=len(table)) + table["y"]
    both = by_query(table.assign(score=scores), 4)
    there = audit(
        both["y"], both["score"], qid=both["qid"], sensitive_features=both["group"], name="x"
    )
    here = audit(table["y"], scores, qid=table["qid"], sensitive_features=table["group"])
    for name in ("groups", "n_queries", "n_items", "n_pairs", "group_sizes", "n_missing"):
        assert getattr(there, name) == getattr(here, name)
    for ours, theirs in zip(there.estimates, here.estimates, strict=True):
        same = ("measure", "group", "other", "constraint", "n_queries", "n_items", "n_pairs")
        assert [getattr(ours, each) for each in same] == [getattr(theirs, each) for each in same]
        assert ours.value == pytest.approx(theirs.value, abs=1e-12, nan_ok=True)
        width = theirs.high - theirs.low
        assert ours.low == pytest.approx(theirs.low, abs=0.15 * width + 1e-9, nan_ok=True)
        assert ours.high == pytest.approx(theirs.high, abs=0.15 * width + 1e-9, nan_ok=True)
    assert "120 queries" in str(there)


@pytest.mark.parametrize(("n_queries", "n_resamples"), [(120, 0), (1, 10)])
def test_an_audit_on_workers_without_resamples(client, n_queries, n_resamples, table):
    some = table[table["qid"] < table["qid"].min() + n_queries]
    given = [
        audit(
            data["y"], data["f0"], qid=data["qid"], sensitive_features=data["group"],
            n_resamples=n_resamples,
        )
        for data in (by_query(some, 1), some)
    ]  # fmt: skip
    there, here = ([(e.value, e.low, e.high) for e in each.estimates] for each in given)
    np.testing.assert_allclose(there, here, atol=1e-12)
