"""Intervals of audits: the bootstrap over queries, against rebuilt ones."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from pairity import InterGroup, IntraGroup, Marginal, Queries, StatisticalParity, audit
from pairity.audits import estimates
from pairity.constraints import CATALOGUE, largest_gap, noise_of
from support.audit_cases import approx, golden, random_queries, rebuild


def record_draws(monkeypatch):
    drawn = []

    draw_queries = estimates.draw_queries

    def recording(*arguments):
        for block in draw_queries(*arguments):
            drawn.append(block)
            yield block

    monkeypatch.setattr(estimates, "draw_queries", recording)
    return drawn


@pytest.mark.parametrize("groups", [("f", "m"), ("f", "m", "rare", None)])
def test_intervals_equal_a_bootstrap_of_rebuilt_queries(monkeypatch, groups):
    queries, scores = random_queries(8, n_queries=12, groups=groups)
    drawn = record_draws(monkeypatch)
    constraints = [StatisticalParity(), IntraGroup(), Marginal(), InterGroup(average="pair")]
    fast = audit(queries, scores, constraints=constraints, n_resamples=60, confidence=0.8)
    (times,) = drawn
    assert times.shape == (60, 12)
    assert (times.sum(axis=1) == 12).all()
    options = {"constraints": constraints, "n_resamples": 0}
    slow = [rebuild(queries, scores, draw, **options) for draw in times]
    expected = np.percentile([result.auc for result in slow], [10, 90])
    assert [fast.estimate("auc").low, fast.estimate("auc").high] == approx(expected)
    for name in fast.violation:
        worst = fast.estimate("violation", constraint=name)
        values = [result.violation[name] for result in slow]
        assert [worst.low, worst.high] == approx(np.nanpercentile(values, [10, 90])), name
    cell = fast.estimate("preferred_above", group="f", other="m")
    values = [result.table()[0, 1] for result in slow]
    assert [cell.low, cell.high] == approx(np.nanpercentile(values, [10, 90]))


@pytest.mark.parametrize("constraint", [kind() for kind in CATALOGUE.values()], ids=CATALOGUE)
@pytest.mark.parametrize("confidence", [0.2, 0.8])
def test_intervals_where_resamples_lack_cells(monkeypatch, constraint, confidence):
    rng = np.random.default_rng(211)
    qid, group = np.repeat(np.arange(12), 3), rng.choice(list("abc"), 36)
    y, scores = rng.integers(0, 2, 36), rng.normal(size=36)
    queries = Queries.from_arrays(None, y, qid=qid, sensitive_features=group)
    drawn = record_draws(monkeypatch)
    fast = audit(queries, scores, constraints=constraint, n_resamples=99, confidence=confidence)
    slow = []
    for draw in drawn[0].astype(int):
        rows = (3 * np.repeat(np.arange(12), draw)[:, None] + np.arange(3)).ravel()
        sample = Queries.from_arrays(None, y[rows], qid=qid, sensitive_features=group[rows])
        slow.append(largest_gap(constraint.delta(sample.with_groups_of(queries), scores[rows])))
    worst = fast.estimate("violation", constraint=constraint.name)
    percent = [50 - 50 * confidence, 50 + 50 * confidence]
    assert [worst.low, worst.high] == approx(np.nanpercentile(slow, percent))


def test_intervals_respect_query_weights(monkeypatch):
    plain, scores = random_queries(9, n_queries=8)
    weight = np.array([1, 2, 3, 1, 1, 5, 1, 2])
    queries = Queries.from_arrays(**plain, query_weight=weight[plain.query])
    drawn = record_draws(monkeypatch)
    fast = audit(queries, scores, n_resamples=50, confidence=0.8)
    slow = [rebuild(plain, scores, draw, n_resamples=0) for draw in drawn[0]]
    assert (drawn[0] % weight == 0).all()
    for key, estimate in fast._index.items():
        if key[0] in ("auc", "awrf", "violation", "exposure"):
            values = [result._index[key].value for result in slow]
            assert [estimate.low, estimate.high] == approx(np.nanpercentile(values, [10, 90])), key


def test_intervals_are_seeded_and_in_order():
    queries, scores = random_queries(10)
    one = audit(queries, scores, random_state=7)
    assert one.to_json() == audit(queries, scores, random_state=7).to_json()
    assert one.to_json() != audit(queries, scores, random_state=8).to_json()
    instance = audit(queries, scores, random_state=np.random.RandomState(7))
    assert instance.to_json() == one.to_json()
    for estimate in one.estimates:
        if estimate.measure == "noise_floor":
            assert np.isnan([estimate.low, estimate.high]).all()
            continue
        assert estimate.low <= estimate.high
        assert estimate.measure == "violation" or estimate.low <= estimate.value <= estimate.high


def test_wider_confidence_is_a_wider_interval():
    queries, scores = random_queries(11)
    narrow, wide = (audit(queries, scores, confidence=c).estimate("auc") for c in (0.5, 0.99))
    assert wide.low < narrow.low < narrow.high < wide.high


@pytest.mark.parametrize("entries", [1, 30 * 7, 30 * 64])
def test_blocks_of_resampling_do_not_matter(monkeypatch, entries):
    queries, scores = random_queries(12, groups=("a", "b", "c"))
    at_once = audit(queries, scores, n_resamples=100)
    monkeypatch.setattr(estimates, "_BLOCK_ENTRIES", entries)
    blocks = audit(queries, scores, n_resamples=100)
    for one, other in zip(at_once.estimates, blocks.estimates, strict=True):
        assert [one.low, one.high] == approx([other.low, other.high], nan_ok=True)


def test_one_query_has_no_interval():
    result = audit([1, 0, 1, 0], [4, 3, 2, 1], qid=[1] * 4, sensitive_features=list("abab"))
    assert all(np.isnan(estimate.low) and np.isnan(estimate.high) for estimate in result.estimates)
    assert np.isnan(list(result.noise_floor.values())).all()


def test_the_noise_floor_is_the_mean_largest_change_of_a_gap(monkeypatch):
    queries, scores = random_queries(14, n_queries=40, groups=("f", "m", "x"))
    drawn = record_draws(monkeypatch)
    fast = audit(queries, scores, n_resamples=40)
    slow = [rebuild(queries, scores, draw, n_resamples=0) for draw in drawn[0]]
    for name, floor in fast.noise_floor.items():
        gaps = [key for key in fast._index if (key[0], key[3]) == ("gap", name)]
        assert len(gaps) == 3
        changes = [
            [abs(result._index[key].value - fast._index[key].value) for key in gaps]
            for result in slow
        ]
        assert floor == approx(np.mean(np.max(changes, axis=1))), name
        violation = fast.estimate("violation", constraint=name)
        noise = fast.estimate("noise_floor", constraint=name)
        assert (noise.n_queries, noise.n_pairs) == (violation.n_queries, violation.n_pairs)


@pytest.mark.parametrize("average", ["query", "pair"])
def test_the_noise_floor_of_an_audit_is_that_of_training(average):
    queries, scores = random_queries(15, n_queries=150, groups=("f", "m", "x"))
    constraints = [kind(average=average) for kind in CATALOGUE.values()]
    floors = audit(queries, scores, constraints=constraints).noise_floor.values()
    expected = [noise_of(constraint, queries, scores).floor for constraint in constraints]
    assert list(floors) == approx(expected, rel=0.06)


def test_a_gap_of_one_query_is_left_out_of_the_noise_floor():
    queries, scores = random_queries(13)
    names = queries["sensitive_features"].copy()
    names[np.flatnonzero(queries.query == 0)[:2]] = "rare"
    one, other = (
        audit(queries.y, scores, qid=queries["qid"], sensitive_features=names, constraints=kind)
        for kind in (StatisticalParity(), StatisticalParity(only=[("f", "m")]))
    )
    assert one.noise_floor == approx(other.noise_floor)


def test_a_cell_of_one_query_has_no_interval():
    queries, scores = random_queries(13)
    names = queries["sensitive_features"].copy()
    names[np.flatnonzero(queries.query == 0)[:2]] = "rare"
    result = audit(queries.y, scores, qid=queries["qid"], sensitive_features=names)
    assert not np.isnan(result.estimate("auc").low)
    rare = result.estimate("exposure", group="rare")
    assert (rare.n_queries, rare.n_items, rare.small) == (1, 2, True)
    assert np.isnan(rare.low)


def test_no_resamples_no_intervals():
    result = golden(n_resamples=0)
    assert all(np.isnan(estimate.low) for estimate in result.estimates)


def test_the_interval_of_auc_covers_the_truth():
    truth = norm.cdf(1 / np.sqrt(2))  # P(1 + e > e'), both noises standard normal
    y, qid = np.tile([0, 0, 1, 1, 0, 1], 100), np.repeat(np.arange(100), 6)
    covered = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        scores, groups = y + rng.normal(size=600), rng.choice(["f", "m"], 600)
        options = {"qid": qid, "sensitive_features": groups, "constraints": [], "n_resamples": 300}
        interval = audit(y, scores, random_state=seed, **options).estimate("auc")
        covered += interval.low <= truth <= interval.high
    assert covered >= 52  # of 60; 57 are expected, and fewer than 52 has a chance of 3 in 1000
