"""Audits on worker processes have the estimates of one machine."""

import numpy as np
import pytest

from pairity import audit
from support.clusters import by_query

pytestmark = pytest.mark.filterwarnings("ignore")  # of Dask and of the engines


def test_an_audit_on_workers_has_the_estimates_of_one_machine(client, spread, table):
    scores = np.random.default_rng(0).normal(size=len(table)) + table["y"]
    both = by_query(table.assign(score=scores), 4)
    remote = audit(
        both["y"], both["score"], qid=both["qid"], sensitive_features=both["group"], name="x"
    )
    single = audit(table["y"], scores, qid=table["qid"], sensitive_features=table["group"])
    for name in ("groups", "n_queries", "n_items", "n_pairs", "group_sizes", "n_missing"):
        assert getattr(remote, name) == getattr(single, name)
    for estimate, expected in zip(remote.estimates, single.estimates, strict=True):
        same = ("measure", "group", "other", "constraint", "n_queries", "n_items", "n_pairs")
        assert [getattr(estimate, name) for name in same] == [
            getattr(expected, name) for name in same
        ]
        if estimate.measure == "noise_floor":  # a mean over resamples, which are drawn differently
            assert estimate.value == pytest.approx(expected.value, rel=0.08)
            continue
        assert estimate.value == pytest.approx(expected.value, abs=1e-12, nan_ok=True)
        width = expected.high - expected.low
        assert estimate.low == pytest.approx(expected.low, abs=0.15 * width + 1e-9, nan_ok=True)
        assert estimate.high == pytest.approx(expected.high, abs=0.15 * width + 1e-9, nan_ok=True)
    assert "120 queries" in str(remote)


@pytest.mark.parametrize(("n_queries", "n_resamples"), [(120, 0), (1, 10)])
def test_an_audit_on_workers_without_resamples(client, n_queries, n_resamples, table):
    some = table[table["qid"] < table["qid"].min() + n_queries]
    audits = [
        audit(
            data["y"], data["f0"], qid=data["qid"], sensitive_features=data["group"],
            n_resamples=n_resamples,
        )
        for data in (by_query(some, 1), some)
    ]  # fmt: skip
    remote, single = ([(e.value, e.low, e.high) for e in result.estimates] for result in audits)
    np.testing.assert_allclose(remote, single, atol=1e-12)
