"""Partitions: queries that are cut, empty partitions, categories and groups that differ."""

import numpy as np
import pandas as pd
import pytest

from pairity import FairRanker, InterGroup, audit
from pairity.exceptions import InputError
from support.clusters import FEATURES, OPTIONS, by_query, columns, engines, in_partitions

pytestmark = pytest.mark.filterwarnings("ignore")  # of Dask and of the engines


def test_a_query_on_two_partitions_is_refused_and_repartitioned(client, table):
    from pairity.data.distributed import repartition_by_query

    table = table.sample(frac=1.0, random_state=0)
    cut = in_partitions([table.iloc[:900], table.iloc[900:]])
    with pytest.raises(InputError, match=r"120 of 120 queries lie on more than one .*would be lo"):
        FairRanker(**OPTIONS).fit(**columns(cut))
    single_cut = table.sort_values("qid", kind="stable")
    single_cut = in_partitions([single_cut.iloc[:1010], single_cut.iloc[1010:]])
    with pytest.raises(InputError, match=r"1 of 120 queries.*repartition_by_query") as caught:
        FairRanker(**OPTIONS).fit(**columns(single_cut))
    implied, held = _pairs(table), _pairs(single_cut.partitions[0].compute())
    held += _pairs(single_cut.partitions[1].compute())
    assert f"imply {implied:,} preference pairs, the partitions hold {held:,}" in str(caught.value)
    whole = repartition_by_query(cut, "qid", npartitions=3)
    remote = FairRanker(**OPTIONS).fit(**columns(whole))
    single = FairRanker(**OPTIONS).fit(**columns(table))
    assert remote.history_[0].violation == pytest.approx(single.history_[0].violation, abs=1e-9)


def _pairs(table):
    return sum(
        int((own["y"].to_numpy()[:, None] > own["y"].to_numpy()).sum())
        for _, own in table.groupby("qid")
    )


@pytest.mark.parametrize("name", ["linear", "xgboost", "lightgbm"])
def test_partitions_without_rows_pairs_or_some_group(client, name, table):
    ids = np.unique(table["qid"])
    flat = table[table["qid"].isin(ids[:30])].assign(y=1.0)
    rest = table[table["qid"].isin(ids[30:90])]
    lonely = table[table["qid"].isin(ids[90:])].assign(group="group 3")
    parts = [flat, table.iloc[:0], rest, lonely, table.iloc[:0]]
    whole = pd.concat(parts)
    many, local_model = engines(name)
    settings = {**OPTIONS, "constraint": InterGroup(only=[("group 1", "group 2")])}
    settings |= {"schedule": "retrain", "validation": None}
    remote = FairRanker(many, **settings).fit(**columns(in_partitions(parts)))
    single = FairRanker(local_model, **settings).fit(**columns(whole))
    assert remote.groups_ == single.groups_ == ("group 1", "group 2", "group 3")
    assert remote.history_[0].violation == pytest.approx(single.history_[0].violation, abs=1e-9)
    np.testing.assert_allclose(
        remote.predict(whole[FEATURES]), single.predict(whole[FEATURES]), atol=1e-6
    )


def test_groups_whose_categories_differ_between_partitions_are_matched_by_name(client, table):
    ids = np.unique(table["qid"])
    flat = table[table["qid"].isin(ids[:30])].assign(y=1.0, group=None)
    rest = table[table["qid"].isin(ids[30:90])]
    lonely = table[table["qid"].isin(ids[90:])].assign(group="a group of its own")
    parts = [flat, table.iloc[:0], rest, lonely]
    whole = pd.concat([*parts[::2], lonely])
    named = in_partitions(
        [part.assign(group=pd.Categorical(part["group"])) for part in parts], verify_meta=False
    )
    remote = audit(
        named["y"], named["f0"], qid=named["qid"], sensitive_features=named["group"], n_resamples=50
    )
    single = audit(
        whole["y"], whole["f0"], qid=whole["qid"], sensitive_features=whole["group"], n_resamples=50
    )
    assert remote.groups == single.groups == ("a group of its own", "group 1", "group 2")
    assert (remote.group_sizes, remote.n_missing) == (single.group_sizes, single.n_missing)
    values, expected = (
        [e.value for e in result.estimates if e.measure != "noise_floor"]
        for result in (remote, single)
    )
    assert values == pytest.approx(expected, abs=1e-12, nan_ok=True)
    assert remote.noise_floor == pytest.approx(single.noise_floor, rel=0.3)  # other resamples


def test_only_empty_partitions_and_no_pairs_at_all(client, table):
    empty = in_partitions([table.iloc[:0], table.iloc[:0]])
    with pytest.raises(InputError, match="All partitions are empty"):
        FairRanker(**OPTIONS).fit(**columns(empty))
    with pytest.raises(InputError, match="No query has two different labels"):
        FairRanker(**OPTIONS).fit(**columns(by_query(table.assign(y=1.0), 2)))


def test_categories_that_differ_between_partitions_are_refused(client, table):
    ids = np.unique(table["qid"])
    parts = [table[table["qid"].isin(own)] for own in (ids[:60], ids[60:])]
    parts = [
        part.assign(f0=pd.Categorical(names, categories=sorted(set(names))))
        for part, names in zip(
            parts, (["a", "b"] * 600, ["b", "c"] * 600), strict=True
        )
    ]  # fmt: skip
    pytest.importorskip("lightgbm")
    with pytest.raises(InputError, match=r"categories of the feature 'f0' differ.*categorize"):
        FairRanker(engines("lightgbm")[0], **OPTIONS).fit(
            **columns(in_partitions(parts, verify_meta=False))
        )
