"""Audits: golden lists, agreement with slow versions, properties, errors."""

from __future__ import annotations

import json
from math import log2

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy
from sklearn.metrics import average_precision_score, ndcg_score, roc_auc_score

from pairity import InputError, InterGroup, Queries, StatisticalParity, audit, metrics
from pairity.constraints import CATALOGUE, Constraint, largest_gap
from pairity.exceptions import ConstraintError
from pairity.pairs.cells import cell_counts
from support.audit_cases import (
    FIFTH,
    FOURTH,
    GROUP,
    NAN,
    QID,
    SCORES,
    SECOND,
    THIRD,
    Y,
    approx,
    assert_same_numbers,
    by_pair,
    golden,
    random_queries,
    rebuild,
    slowly,
)
from support.reference import ranked_lists


def test_golden_sizes():
    result = golden(name="three lists")
    assert (result.n_queries, result.n_items, result.n_missing) == (3, 4 + 5 + 2, 0)
    assert result.n_pairs == 2 * 2 + 2 * 3 + 0  # relevant times not relevant
    assert (result.groups, result.group_sizes) == (("f", "m"), (2 + 2 + 2, 2 + 3 + 0))
    assert repr(result) == "Audit(name='three lists', n_queries=3, auc=0.8750)"


def test_golden_utility():
    result = golden()
    # list 1 is perfect; in list 2 the tie counts one half, and f 1 is below m 0 at 0.40
    assert result.auc == approx((4 / 4 + (1 + 1 + 1 + 0.5 + 0 + 1) / 6) / 2)
    assert result.ndcg == {2: approx((1 + 1 / (1 + SECOND)) / 2)}
    assert result.average_precision == approx((1 + (1 / 1 + 2 / 4) / 2) / 2)


def test_golden_tables():
    result = golden()
    #        list 1, list 2                     of f            of m
    preferred_above = [
        [(1 / 1 + 0.5 / 1) / 2, (1 / 1 + 1 / 2) / 2],  # f preferred
        [(1 / 1 + 1 / 1) / 2, (1 / 1 + 2 / 2) / 2],  # m preferred
    ]
    assert result.table() == approx(np.array(preferred_above))
    f_above_m = (2 / 4 + 2 / 6) / 2
    above = [[(1 / 2 + 1 / 2 + 1 / 2) / 3, f_above_m], [1 - f_above_m, 1 / 2]]
    assert result.table("above") == approx(np.array(above))


def test_golden_counts_behind_the_tables():
    result = golden()
    assert result.table(what="n_pairs").tolist() == [[1 + 1, 1 + 2], [1 + 1, 1 + 2]]
    assert result.table(what="n_queries").tolist() == [[2, 2], [2, 2]]
    assert result.table(what="n_items").tolist() == [[2 + 2, 4 + 5], [4 + 5, 2 + 3]]
    assert result.table("above", "n_pairs").tolist() == [[2 + 2 + 2, 4 + 6], [4 + 6, 2 + 6]]
    assert result.table("above", "n_queries").tolist() == [[3, 2], [2, 2]]
    assert result.table("above", "n_items").tolist() == [[2 + 2 + 2, 4 + 5], [4 + 5, 2 + 3]]
    assert result.table(what="small").all()
    overall = result.estimate("auc")
    assert (overall.n_queries, overall.n_items, overall.n_pairs) == (2, 4 + 5, 10)
    seen = result.estimate("exposure", group="m")
    assert (seen.n_queries, seen.n_items, seen.n_pairs) == (2, 2 + 3, None)


def test_golden_violations_by_query():
    result = golden()
    f_above_m = (2 / 4 + 2 / 6) / 2
    assert result.violation == {
        "statistical": approx((1 - f_above_m) - f_above_m),
        "inter": approx((1 / 1 + 1 / 1) / 2 - (1 / 1 + 1 / 2) / 2),
        "intra": approx((1 / 1 + 2 / 2) / 2 - (1 / 1 + 0.5 / 1) / 2),
        "marginal": approx((2 / 2 + 3 / 3) / 2 - (2 / 2 + 1.5 / 3) / 2),
    }
    assert result.fairness == {name: approx(1 - gap) for name, gap in result.violation.items()}


def test_golden_violations_by_pair():
    result = golden(constraints=by_pair())
    assert result.violation == {
        "statistical": approx((2 + 4) / 10 - (2 + 2) / 10),
        "inter": approx((1 + 1) / 2 - (1 + 1) / 3),
        "intra": approx((1 + 2) / 3 - (1 + 0.5) / 2),
        "marginal": approx((2 + 3) / 5 - (2 + 1.5) / 5),
    }


def test_golden_gaps_and_their_counts():
    result = golden()
    expected = {  # value, queries, items and pairs of the weaker end
        "statistical": (-1 / 6, 2, 9, 10),
        "inter": (3 / 4 - 1, 2, 9, 2),
        "intra": (3 / 4 - 1, 2, 2 + 2, 2),
        "marginal": (3 / 4 - 1, 2, 2 + 2, 5),
    }
    for name, (value, *counts) in expected.items():
        gap = result.estimate("gap", group="f", other="m", constraint=name)
        worst = result.estimate("violation", constraint=name)
        assert gap.value == approx(value)
        for estimate in (gap, worst):
            assert [estimate.n_queries, estimate.n_items, estimate.n_pairs] == counts
            assert estimate.small


def test_golden_awrf_and_ndkl():
    result = golden()
    first = jensenshannon([1 + 1 / 2, 1 + SECOND], [2, 2], base=2) ** 2  # f, m: ranks 1 4, 2 3
    second = jensenshannon([SECOND + 1 / 2, 1 + 1 + 1 / log2(5)], [2, 3], base=2) ** 2
    assert result.awrf == approx((1 - first + 1 - second + 1) / 3)
    total = [1 + SECOND + THIRD + FOURTH, 1 + SECOND + THIRD + FOURTH + FIFTH]
    # shares of f in each prefix; list 1 has a half of f, list 2 two fifths, its tie half of each
    first = [(1, 1), (SECOND, 1 / 2), (THIRD, 1 / 3), (FOURTH, 2 / 4)]
    second = [(1, 0), (SECOND, 0), (THIRD, 1 / 3), (FOURTH, 2 / 4), (FIFTH, 2 / 5)]
    divergence = [
        sum(v * entropy([f, 1 - f], [share, 1 - share]) for v, f in prefixes)
        for prefixes, share in ((first, 2 / 4), (second, 2 / 5))
    ]
    assert result.ndkl == approx((divergence[0] / total[0] + divergence[1] / total[1] + 0) / 3)


def test_golden_by_group():
    result = golden()
    expected = {
        "auc": ((2 / 2 + 1.5 / 3) / 2, (2 / 2 + 3 / 3) / 2),
        "auc_within": ((1 + 0.5) / 2, (1 + 2 / 2) / 2),
        "ndcg_within@2": ((1 + (1 + SECOND) / 2) / 2, (1 + 1) / 2),
        "merit": ((1 / 2 + 1 / 2 + 0) / 3, (1 / 2 + 1 / 3) / 2),
        "exposure": (
            ((1 + FOURTH) / 2 + (THIRD + FOURTH) / 2 + (1 + SECOND) / 2) / 3,
            ((SECOND + THIRD) / 2 + (1 + SECOND + FIFTH) / 3) / 2,
        ),
        "exposure_to_merit": (
            ((1 + FOURTH) / 2 / (1 / 2) + (THIRD + FOURTH) / 2 / (1 / 2)) / 2,
            ((SECOND + THIRD) / 2 / (1 / 2) + (1 + SECOND + FIFTH) / 3 / (1 / 3)) / 2,
        ),
        "click_to_merit": (
            (1 / 2 / (1 / 2) + (THIRD + FOURTH) / 2 / 2 / (1 / 2)) / 2,
            (SECOND / 2 / (1 / 2) + 1 / 3 / (1 / 3)) / 2,
        ),
        "top_share@2": ((1 / 2 + 0 / 2 + 2 / 2) / 3, (1 / 2 + 2 / 2 + 0 / 2) / 3),
        "population_share": ((2 / 4 + 2 / 5 + 2 / 2) / 3, (2 / 4 + 3 / 5 + 0 / 2) / 3),
    }
    for measure, (f, m) in expected.items():
        assert result.estimate(measure, group="f").value == approx(f), measure
        assert result.estimate(measure, group="m").value == approx(m), measure


def test_golden_three_groups():
    groups, scores = ["a", "b", "c", "c"], [0.9, 0.8, 0.7, 0.6]
    result = audit([0, 1, 0, 1], scores, qid=[1] * 4, sensitive_features=groups)
    # preferred: b over a (wrong), b over c (right), c over a (wrong), c over c (wrong)
    assert result.table() == approx(
        np.array([[NAN, NAN, NAN], [0, NAN, 1], [0, NAN, 0]]), nan_ok=True
    )
    # a and b are above c in all pairs, a above b
    assert result.violation["statistical"] == 1
    # no pair in the mirror cells: against A = 1/4, b over c has 1 - 1/4, b over a 0 - 1/4
    assert result.violation["inter"] == approx(3 / 4)
    assert np.isnan(result.violation["intra"])  # only c prefers inside
    assert result.violation["marginal"] == approx(1 / 2 - 0 / 2)
    assert np.isnan(result.fairness["intra"])
    assert result.estimate("violation", constraint="intra").small


def test_small_is_fewer_than_10_queries_or_100_pairs():
    def flags(n_queries, n_lower):
        y = ([1] + [0] * n_lower) * n_queries
        qid = np.repeat(np.arange(n_queries), n_lower + 1)
        result = audit(y, np.arange(len(y)), qid=qid, sensitive_features=["a", "b"] * (len(y) // 2))
        assert result.n_pairs == n_queries * n_lower
        return result.estimate("auc").small, result.estimate("awrf").small

    assert flags(10, 11) == (False, False)
    assert flags(9, 21) == (True, True)  # too few queries
    assert flags(10, 9) == (True, False)  # too few pairs, which AWRF does not need


# --- agreement -----------------------------------------------------------------------------------


def per_query(queries, scores, measure, defined=lambda y: 0 < y.sum() < len(y)):
    values = []
    for q in range(queries.n_queries):
        rows = queries.query == q
        if defined(queries.y[rows]):
            values.append(measure(queries.y[rows], scores[rows]))
    return np.mean(values)


def test_utility_agrees_with_sklearn():
    queries, scores = random_queries(0, binary=True)
    result = audit(queries, scores, k=[3, 7], gain="linear", n_resamples=0)
    assert result.auc == approx(per_query(queries, scores, roc_auc_score))
    assert result.average_precision == approx(
        per_query(queries, scores, average_precision_score, defined=np.any)
    )
    for k in (3, 7):
        expected = per_query(
            queries, scores, lambda y, s, k=k: ndcg_score([y], [s], k=k), defined=np.any
        )
        assert result.ndcg[k] == approx(expected)


def test_measures_are_means_of_the_metrics():
    queries, scores = random_queries(
        1, groups=("f", "m", None), query_weight={q: q for q in range(30)}
    )
    weight = queries.query_weight

    def mean(values):
        defined = ~np.isnan(values)
        return np.average(values[defined], weights=weight[defined])

    result = audit(queries, scores, k=3, n_resamples=0)
    assert result.awrf == approx(mean(metrics.awrf(queries, scores)))
    assert result.ndkl == approx(mean(metrics.ndkl(queries, scores)))
    assert result.ndcg[3] == approx(mean(metrics.ndcg(queries, scores, k=3)))
    trec = metrics.exposure(queries, scores, discount="trec")
    for k, group in enumerate(queries.groups):
        assert result.estimate("exposure_trec", group=group).value == approx(mean(trec[:, k]))
        shares = metrics.top_share(queries, scores, k=3)
        assert result.estimate("top_share@3", group=group).value == approx(mean(shares[:, k]))


@pytest.mark.parametrize("average", ["query", "pair"])
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("kind", CATALOGUE.values())
def test_violation_has_one_definition(kind, soft, average):
    queries, scores = random_queries(2, groups=("a", "b", "c", None))
    constraint = kind(average=average, soft=soft)
    result = audit(queries, scores, constraints=constraint, n_resamples=0)
    assert result.violation == {kind.name: largest_gap(constraint.delta(queries, scores))}


def test_weights_of_items_and_queries_act_on_violations():
    rng = np.random.default_rng(3)
    plain, scores = random_queries(3)
    weights = {
        "sample_weight": rng.integers(0, 3, plain.n_items).astype(float),
        "query_weight": {q: float(q % 4) for q in range(plain.n_queries)},
    }
    queries = Queries.from_arrays(**{**plain, **weights})
    result = audit(queries, scores, n_resamples=0)
    for name, constraint in CATALOGUE.items():
        assert result.violation[name] == approx(largest_gap(constraint().delta(queries, scores)))
    assert result.auc != approx(audit(plain, scores, n_resamples=0).auc)


def test_arrays_and_queries_give_the_same():
    queries, scores = random_queries(4, groups=("f", "m", None))
    columns = {key: value for key, value in queries.items() if key != "X"}
    assert audit(queries, scores).to_json() == audit(scores=scores, **columns).to_json()


def test_group_sizes_are_query_ids():
    sizes = {"qid": None, "group": [4, 5, 2]}
    assert golden(**sizes).to_json() == golden().to_json()
    with pytest.raises(InputError, match="group"):
        golden(qid=None, group=[4, 5])


def test_an_unknown_keyword_is_an_error():
    with pytest.raises(TypeError, match="confidance"):
        golden(confidance=0.9)


def test_a_whole_query_weight_is_repeating_and_zero_is_dropping():
    queries, scores = random_queries(5, n_queries=6)
    times = np.array([0, 1, 2, 3, 1, 0])
    weighted = audit(
        queries.y, scores, qid=queries["qid"], sensitive_features=queries["sensitive_features"],
        query_weight=times[queries.query],
    )  # fmt: skip
    repeated = rebuild(queries, scores, times, n_resamples=0)
    assert weighted.violation == approx(repeated.violation)
    assert weighted.auc == approx(repeated.auc)
    positive = times[queries.query] > 0
    dropped = audit(
        queries.y[positive], scores[positive], qid=queries["qid"][positive],
        sensitive_features=queries["sensitive_features"][positive],
        query_weight=times[queries.query][positive],
    )  # fmt: skip
    assert weighted.to_json() == dropped.to_json()
    assert weighted.n_queries == 4


def test_pairs_are_counted_whatever_their_weight():
    plain, scores = random_queries(6)
    light = audit(Queries.from_arrays(**plain, sample_weight=np.full(plain.n_items, 1e-3)), scores)
    assert_same_numbers(light, audit(plain, scores))
    weight = np.ones(plain.n_items)
    weight[plain.query == 0] = 0.0
    some = audit(Queries.from_arrays(**plain, sample_weight=weight), scores)
    without = audit(plain.take(np.arange(1, plain.n_queries)), scores[plain.query > 0])
    assert some.n_pairs == without.n_pairs
    assert some.table(what="n_pairs").tolist() == without.table(what="n_pairs").tolist()


# --- constraints ---------------------------------------------------------------------------------


def top_of_group(queries, scores):
    return np.array([scores[queries.group == k].max() for k in range(queries.n_groups)])


def test_a_function_is_a_constraint_without_an_interval():
    result = golden(constraints=[top_of_group])
    worst = result.estimate("violation", constraint="top_of_group")
    assert worst.value == approx(0.9 - 0.9)
    assert np.isnan(worst.low)
    assert np.isnan(result.noise_floor["top_of_group"])
    assert (worst.n_queries, worst.n_items, worst.n_pairs) == (3, 11, None)
    gap = result.estimate("gap", group="f", other="m", constraint="top_of_group")
    assert gap.value == approx(0.0)


def test_a_user_defined_constraint_may_compare_across_and_within():
    class Everything(Constraint):
        def delta(self, queries, scores):
            return np.array([[0.1, 0.2], [0.5, 0.7]]) * (len(scores) == queries.n_items)

    result = golden(constraints=[Everything()])
    assert result.violation == {"Everything": approx(0.7 - 0.1)}
    groups = {"group": "f", "other": "m", "constraint": "Everything"}
    assert result.estimate("gap", **groups).value == approx(0.2 - 0.5)
    assert result.estimate("gap_within", **groups).value == approx(0.1 - 0.7)


def test_constraints_with_one_name_are_listed_by_repr():
    result = golden(constraints=["inter", InterGroup(average="pair"), "intra"])
    assert result.violation == {
        "InterGroup()": approx(1 / 4),
        "InterGroup(average='pair')": approx(1 / 3),
        "intra": approx(1 / 4),
    }
    assert "InterGroup(average='pair')" in str(result)


def test_no_constraint_is_fine():
    result = golden(constraints=[])
    assert result.violation == {}
    assert "fairness" not in str(result)


def test_only_limits_what_is_compared():
    queries, scores = random_queries(7, groups=("a", "b", "c"))
    result = audit(queries, scores, constraints=[StatisticalParity(only=[("a", "c")])])
    gaps = [f for f in result.estimates if f.measure == "gap"]
    assert [(gap.group, gap.other) for gap in gaps] == [("a", "c")]
    assert result.violation["statistical"] == abs(gaps[0].value)


# --- properties ----------------------------------------------------------------------------------


@st.composite
def auditable(draw, **options):
    queries, scores = draw(ranked_lists(**options))
    assume(queries.n_groups >= 2 and cell_counts(queries).any())
    assume(queries.query_weight is None or queries.query_weight.all())
    return queries, np.asarray(scores, dtype=float)


def ranks(scores):
    """The same order and the same ties, as small numbers."""
    return np.unique(scores, return_inverse=True)[1].astype(float)


@slowly
@given(auditable())
def test_increasing_maps_change_nothing(case):
    queries, scores = case
    plain = audit(queries, scores, n_resamples=5)
    assert plain.to_json() == audit(queries, 3.0 * ranks(scores) - 7.0, n_resamples=5).to_json()
    assert plain.to_json() == audit(queries, np.exp2(ranks(scores)), n_resamples=5).to_json()


@slowly
@given(auditable(), st.randoms(use_true_random=False))
def test_negated_scores_reverse_the_tables(case, random):
    queries, _ = case
    scores = np.array(random.sample(range(queries.n_items), queries.n_items), dtype=float)
    up, down = (audit(queries, s, n_resamples=0) for s in (scores, -scores))
    assert down.auc == approx(1 - up.auc)
    for measure in ("preferred_above", "above"):
        assert down.table(measure) == approx(1 - up.table(measure), nan_ok=True)
    assert down.violation == approx(up.violation, nan_ok=True)


@slowly
@given(auditable())
def test_r_kl_and_r_lk_add_up_to_one(case):
    queries, scores = case
    above = audit(queries, scores, n_resamples=0).table("above")
    assert above + above.T == approx(np.where(np.isnan(above), NAN, 1.0), nan_ok=True)


@slowly
@given(auditable(), st.randoms(use_true_random=False))
def test_order_of_rows_does_not_matter(case, random):
    queries, scores = case
    order = random.sample(range(queries.n_items), queries.n_items)
    columns = {key: value[order] for key, value in queries.items()}
    shuffled = Queries.from_arrays(**columns)
    assert_same_numbers(audit(queries, scores), audit(shuffled, scores[order]))


@slowly
@given(auditable(), st.randoms(use_true_random=False))
def test_renamed_groups_permute(case, random):
    queries, scores = case
    new = random.sample([f"group {k}" for k in range(queries.n_groups)], queries.n_groups)
    names = np.array([*new, None], dtype=object)[queries.group]
    renamed = audit(
        Queries.from_arrays(**{**queries, "sensitive_features": names}), scores, n_resamples=0
    )
    plain = audit(queries, scores, n_resamples=0)
    order = [new.index(name) for name in renamed.groups]
    for measure in ("preferred_above", "above"):
        expected = plain.table(measure)[np.ix_(order, order)]
        assert renamed.table(measure) == approx(expected, nan_ok=True)
    assert renamed.violation == approx(plain.violation, nan_ok=True)
    assert renamed.awrf == approx(plain.awrf)
    for old, name in zip(queries.groups, new, strict=True):
        one, other = (r.estimate("exposure", group=g) for r, g in ((plain, old), (renamed, name)))
        assert one.value == approx(other.value, nan_ok=True)


@slowly
@given(auditable(weights=False), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_items_without_a_group_are_counted_but_not_compared(case, n_more, seed):
    queries, scores = case
    rng = np.random.default_rng(seed)
    more = {
        "y": rng.integers(0, 3, n_more),
        "qid": rng.choice(queries["qid"], n_more),
        "sensitive_features": np.full(n_more, None),
    }
    columns = {key: np.r_[queries[key], value] for key, value in more.items()}
    plain = audit(queries, scores, n_resamples=0)
    result = audit(scores=np.r_[scores, rng.choice(scores, n_more)], **columns, n_resamples=0)
    assert result.n_missing == plain.n_missing + n_more
    assert result.n_items == plain.n_items + n_more
    assert result.group_sizes == plain.group_sizes
    assert result.violation == approx(plain.violation, nan_ok=True)
    for measure in ("preferred_above", "above"):
        for what in ("value", "n_queries", "n_items", "n_pairs"):
            expected = plain.table(measure, what)
            assert result.table(measure, what) == approx(expected, nan_ok=True)


@slowly
@given(auditable())
def test_every_estimate_is_plain_and_in_its_range(case):
    result = audit(*case, n_resamples=5)
    for estimate in result.estimates:
        assert type(estimate.value) is type(estimate.low) is type(estimate.high) is float
        assert type(estimate.n_queries) is type(estimate.n_items) is int
        assert estimate.n_pairs is None or type(estimate.n_pairs) is int
        if estimate.measure == "noise_floor":  # it needs queries that vary
            assert estimate.value >= 0 or np.isnan(estimate.value)
            assert np.isnan([estimate.low, estimate.high]).all()
            continue
        assert np.isnan(estimate.value) == (estimate.n_queries == 0)
        if estimate.measure in ("auc", "auc_within", "preferred_above", "above", "awrf"):
            assert -1e-12 <= estimate.value <= 1 + 1e-12 or estimate.n_queries == 0
    assert str(result)
    json.loads(result.to_json(), parse_constant=pytest.fail)


# --- many groups, few items ----------------------------------------------------------------------


@pytest.mark.parametrize("n_groups", range(2, 7))
def test_groups_absent_from_queries(n_groups):
    rng = np.random.default_rng(n_groups)
    qid = np.r_[np.repeat(np.arange(8), 3), 8, 9]  # the last two have one item
    names = np.array([f"group {k}" for k in range(n_groups)])
    groups = names[rng.integers(0, n_groups, len(qid))]
    groups[:n_groups] = names
    y, scores = np.tile([1, 0], 13), rng.normal(size=len(qid))
    result = audit(y, scores, qid=qid, sensitive_features=groups, n_resamples=50)
    assert result.n_queries == 10
    assert result.table().shape == (n_groups, n_groups)
    assert str(result)


def test_a_split_without_some_of_the_groups():
    queries, scores = random_queries(14, groups=("a", "b"))
    names = queries["sensitive_features"].copy()
    names[np.flatnonzero(queries.query == 0)] = "c"
    everything = Queries.from_arrays(**{**queries, "sensitive_features": names})
    rows = everything.query > 0
    result = audit(everything.take(np.arange(1, 30)), scores[rows])
    assert result.group_sizes[2] == 0
    assert result.estimate("ndcg_within@5", group="c").n_queries == 0
    assert np.isnan(result.table()[2]).all()
    assert result.violation["inter"] > 0
    nobody = audit(everything.take([0]), scores[~rows])  # only c is left: nothing to compare
    assert np.isnan(nobody.violation["statistical"])
    assert "-" in str(nobody)


def test_labels_may_be_negative_or_large():
    queries, scores = random_queries(15)
    for y in (queries.y - 2.0, queries.y * 1e6, queries.y / 3.0):
        result = audit(Queries.from_arrays(**{**queries, "y": y}), scores, n_resamples=20)
        assert result.auc == approx(audit(queries, scores, n_resamples=0).auc)


def test_gain_auto_is_exponential_for_grades_only():
    queries, scores = random_queries(16)
    real = Queries.from_arrays(**{**queries, "y": queries.y / 2})
    for labelled, gain in ((queries, "exponential"), (real, "linear")):
        auto, named = (audit(labelled, scores, gain=g, n_resamples=0).ndcg for g in ("auto", gain))
        assert auto == named


# --- bad input -----------------------------------------------------------------------------------


BAD = {
    "scores too short": ({"scores": SCORES[:-1]}, "scores has 10 entries.*11 rows"),
    "qid too short": ({"qid": QID[:-1]}, "qid has 10 entries.*11 rows"),
    "groups too short": ({"sensitive_features": ["f"]}, "sensitive_features has 1 entr.*11 rows"),
    "scores NaN": ({"scores": [NAN, *SCORES[1:]]}, "scores has 1 entr.*row 0"),
    "scores infinite": ({"scores": [*SCORES[:-1], -np.inf]}, "scores has 1 entr.*row 10"),
    "labels NaN": ({"y": [NAN, *Y[1:]]}, "y has 1 entr.*row 0"),
    "one group": ({"sensitive_features": ["f"] * 11}, "only the group 'f' in 11 rows.*two groups"),
    "no group": ({"sensitive_features": [None] * 11}, "has no group in 11 rows"),
    "no preference": ({"y": [1] * 11}, "No query has two different labels.*3 queries"),
    "no pair": ({"qid": range(11)}, "No query has two different labels.*11 queries"),
    "qid missing": ({"qid": None}, "qid is missing.*qid=.*sensitive_features="),
    "groups missing": ({"sensitive_features": None}, "sensitive_features is missing"),
    "k zero": ({"k": 0}, r"k must be one or more whole numbers of at least 1 \(got 0\)"),
    "k half": ({"k": [5, 2.5]}, r"k must be .*got \[5, 2.5\]"),
    "k true": ({"k": True}, "k must be .*got True"),
    "k word": ({"k": "ten"}, "k must be .*got 'ten'"),
    "k none": ({"k": []}, r"k must be .*got \[\]"),
    "confidence one": ({"confidence": 1.0}, "confidence must be .*between 0 and 1.*got 1.0"),
    "confidence percent": ({"confidence": 95}, "confidence must be .*such as 0.95.*got 95"),
    "confidence NaN": ({"confidence": NAN}, "confidence must be .*got nan"),
    "confidence word": ({"confidence": "high"}, "confidence must be .*got 'high'"),
    "resamples negative": ({"n_resamples": -1}, "n_resamples must be .*0 for no intervals.*got -1"),
    "resamples half": ({"n_resamples": 0.5}, "n_resamples must be .*got 0.5"),
    "gain": ({"gain": "cubic"}, "gain is 'cubic'. .*'auto', 'exponential', 'linear'"),
    "gain too high": ({"gain": "exponential", "y": np.multiply(Y, 40)}, "label is 40.*linear"),
    "twice": (
        {"constraints": ["intra", "intra"]},
        "2 entries with the name 'IntraGroup.*Leave one",
    ),
}


@pytest.mark.parametrize(("changed", "message"), BAD.values(), ids=BAD)
def test_bad_input(changed, message):
    arguments = {"y": Y, "scores": SCORES, "qid": QID, "sensitive_features": GROUP, **changed}
    with pytest.raises(InputError, match=message):
        audit(**arguments)


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        ("equal", "no constraint named 'equal'.*'statistical', 'inter', 'intra', 'marginal'"),
        (InterGroup, r"InterGroup\(\), not the class"),
        (InterGroup(only=[("f", "x")]), "no group 'x'"),
        (3, "3 is not a constraint"),
    ],
)
def test_unknown_constraint(constraint, message):
    with pytest.raises(ConstraintError, match=message):
        golden(constraints=[constraint])


def test_functions_need_different_names():
    with pytest.raises(InputError, match=r"with the name '<lambda>'.*different names"):
        golden(constraints=[lambda *_: np.zeros(2), lambda *_: np.ones(2)])


@pytest.mark.parametrize("key", ["qid", "sensitive_features", "sample_weight", "query_weight"])
def test_queries_and_a_column_are_refused(key):
    queries, scores = random_queries(18)
    with pytest.raises(InputError, match=f"y is Queries.*{key}.*Leave it out"):
        audit(queries, scores, **{key: scores})


def test_an_estimate_that_does_not_exist():
    result = golden()
    with pytest.raises(InputError, match=r"no estimate 'map'.*Its measures are auc, ndcg@2"):
        result.estimate("map")
    with pytest.raises(InputError, match=r"group='m', other='f'.*group='f', other='m'"):
        result.estimate("gap", group="m", other="f", constraint="inter")
    with pytest.raises(InputError, match="no estimate 'auc'"):
        result.table("auc")
