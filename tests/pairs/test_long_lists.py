"""The fast sums against slow, obvious ones."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.special import expit

from pairity.pairs.kernels.long_lists import (
    boxes,
    hessian_product_long,
    logistic_long,
    sweeps,
    visits,
)

# Errors are held against the sum of the absolute terms of each entry, so entries as small as 1e-290
# must be right, and only entries whose terms cancel may lose digits.
TOLERANCE = 3e-12
TINY = 1e-290


def reference(scores, start, codes, table, weight, vector):
    """Everything, by rows of pairs; with each entry the sum of the absolute terms behind it."""
    n, n_groups = len(scores), len(table)
    names = ("gradient", "hessian", "product", "gradient size", "product size")
    out = {name: np.zeros(n) for name in names}
    out["cells"] = np.zeros((n_groups, n_groups))
    out["loss"] = 0.0
    for i in range(n):
        j = slice(start[i], n)
        d = scores[i] - scores[j]
        both = weight[i] * weight[j]
        w = table[codes[i], codes[j]] * both
        t, h = w * expit(-d), w * expit(-d) * expit(d)
        change, size = h * (vector[i] - vector[j]), h * (abs(vector[i]) + abs(vector[j]))
        for name, row, column in (
            ("gradient", -t, t),
            ("gradient size", t, t),
            ("hessian", h, h),
            ("product", change, -change),
            ("product size", size, size),
        ):
            out[name][i] += row.sum()
            out[name][j] += column
        out["cells"][codes[i]] += np.bincount(codes[j], both * expit(-d), n_groups)
        out["loss"] += (w * np.logaddexp(0.0, -d)).sum()
    return out


def run(scores, start, codes, table, weight, vector):
    """The same from the functions under test; outputs begin as NaN, to see them overwritten."""
    n, n_groups = len(scores), len(table)
    gradient, hessian, product = np.full((3, n), np.nan)
    cells = np.full((n_groups, n_groups), np.nan)
    loss = logistic_long(scores, start, codes, table, weight, True, gradient, hessian, cells)
    hessian_product_long(scores, start, codes, table, weight, vector, product)
    return {
        "gradient": gradient,
        "hessian": hessian,
        "product": product,
        "cells": cells,
        "loss": loss,
    }


def check(found, wanted):
    sizes = {
        "gradient": wanted["gradient size"],
        "hessian": wanted["hessian"],
        "product": wanted["product size"],
        "cells": wanted["cells"],
        "loss": wanted["loss"],
    }
    for name, size in sizes.items():
        assert np.all(np.isfinite(found[name])), name
        error = np.abs(found[name] - wanted[name])
        assert np.all(error <= TOLERANCE * size + TINY), (name, np.max(error / (size + TINY)))


def starts(labels):
    """For items sorted by falling label, the first position with a lower one."""
    return np.searchsorted(-labels, -labels, side="right").astype(np.int32)


def draw_labels(kind, n, rng):
    if kind == "all":
        return np.arange(n, 0, -1)
    shares = {"binary": [0.85, 0.15], "graded": [0.5, 0.25, 0.15, 0.07, 0.03]}[kind]
    return np.sort(rng.choice(len(shares), n, p=shares))[::-1]


def draw_scores(kind, n, rng):
    if kind == "equal":
        return np.full(n, 3.25)
    if kind == "ties":
        return rng.integers(-6, 7, n) * 1.5
    if kind == "outlier":
        scores = rng.normal(0.0, 2.0, n)
        scores[n // 3] = 1e5
        return scores
    if kind == "clusters":  # tight, and farther apart than any number of boxes
        return rng.choice([-1e300, -1e17, -50.0, 0.0, 40.0, 1e9, 1e9 + 3.0, 1e300], n) + rng.normal(
            0.0, 1.0, n
        )
    if kind == "shifted":
        return 1e6 + rng.uniform(-8.0, 8.0, n)
    return rng.uniform(-0.5, 0.5, n) * kind


def draw(labels, scores, n, n_groups, seed):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, n_groups, n).astype(np.int32)
    table = rng.uniform(0.1, 3.0, (n_groups, n_groups))
    weight = rng.uniform(0.1, 2.0, n) * (rng.random(n) > 0.1)
    start = starts(draw_labels(labels, n, rng))
    return draw_scores(scores, n, rng), start, codes, table, weight, rng.normal(0.0, 1.0, n)


@pytest.mark.parametrize("labels", ["binary", "graded", "all"])
@pytest.mark.parametrize(
    "scores",
    [0.01, 17.0, 69.0, 300.0, 1e4, 1e300, "equal", "ties", "outlier", "clusters", "shifted"],
)
@pytest.mark.parametrize("n_groups", [1, 3])
def test_agrees_with_all_pairs(labels, scores, n_groups):
    data = draw(labels, scores, 1300, n_groups, seed=7)
    check(run(*data), reference(*data))


@pytest.mark.parametrize("n_groups", [2, 4, 5, 6])
@pytest.mark.parametrize("labels", ["binary", "graded", "all"])
def test_any_number_of_groups(labels, n_groups):
    data = draw(labels, 30.0, 1500, n_groups, seed=n_groups)
    data[3][n_groups - 1] = 0.0  # no pair counts whose preferred item is in the last group
    data[3][0, 1] = 0.0
    check(run(*data), reference(*data))


def test_separated_labels_leave_tiny_derivatives():
    """The preferred items lead by 20 to 60: every derivative is tiny and must still be right."""
    scores, *rest = draw("binary", 17.0, 1500, 2, seed=3)
    start = rest[0]
    scores[start == start[0]] += 40.0
    found, wanted = run(scores, *rest), reference(scores, *rest)
    assert np.abs(wanted["gradient"]).max() < 1e-3
    check(found, wanted)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    centres=st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=6),
    spread=st.sampled_from([0.0, 1e-3, 1.0, 10.0, 200.0, 3e3]),
    levels=st.sampled_from([1, 2, 3, 7, 40, 10_000]),
    n=st.integers(1, 1200),
    n_groups=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
)
def test_agrees_whatever_the_list(centres, spread, levels, n, n_groups, seed):
    rng = np.random.default_rng(seed)
    data = list(draw("all", 1.0, n, n_groups, seed))
    data[0] = rng.choice(centres, n) + rng.normal(0.0, 1.0, n) * spread
    data[1] = starts(np.sort(rng.integers(0, levels, n))[::-1])
    check(run(*data), reference(*data))


def test_every_pair_is_in_one_task():
    """With as many boxes as items, chunks are cut again; no pair is lost or met twice."""
    n = 100_000
    labels = np.sort(np.random.default_rng(1).integers(0, 30_000, n))[::-1]
    scores, start = draw("all", 1e300, n, 1, seed=11)[0], starts(labels)
    box, _, where = boxes.place_items(scores)
    tasks = boxes.plan(start, box, where, 1, 1.0)
    assert np.count_nonzero(tasks[:, 2]) > 1

    def pairs_within(low, high):
        return np.sum(high - start[low:high].astype(np.int64))

    pairs = 0
    for low, high, most in tasks:
        pairs += pairs_within(low, high)
        if most > 0:
            bounds = boxes.cut(start, low, high, most)
            pairs -= sum(map(pairs_within, bounds[:-1], bounds[1:]))
    assert pairs == pairs_within(0, n)


@pytest.mark.parametrize("scores", [1e300, 3e3, 20.0])
def test_sweep_over_a_part(scores):
    """A part of a list, by sweeps and by visiting its pairs; the rest must not be touched."""
    n, low, high = 5000, 1000, 3500
    data = scores, start, codes, table, weight, vector = draw("all", scores, n, 2, seed=11)
    start = np.minimum(start, high).astype(np.int32)
    box, place, where = boxes.place_items(scores)
    bounds = boxes.cut(start, low, high, 100)
    results = []
    for swept in (True, False):
        gradient, hessian, product = np.zeros((3, n))
        cells = np.zeros((2, 2))
        loss = 0.0
        if swept:
            part = low, high, 100, start, box, place, where, codes, table, weight
            loss += sweeps.sweep(*part, True, gradient, hessian, cells)
            sweeps.sweep_product(*part, vector, weight * vector, product)
        for first, last in pairwise(bounds) if swept else [(low, high)]:
            part = first, last, scores, start, codes, table, weight
            loss += visits.direct(*part, True, gradient, hessian, cells)
            visits.direct_product(*part, vector, product)
        results.append(
            {"gradient": gradient, "hessian": hessian, "product": product, "cells": cells}
            | {"loss": loss}
        )
    inside = slice(low, high)
    wanted = reference(*(a[inside] for a in data[:1]), start[inside] - low, codes[inside], table,
                       weight[inside], vector[inside])  # fmt: skip
    for found in results:
        for name in ("gradient", "hessian", "product"):
            assert np.count_nonzero(found[name][:low]) == 0
            assert np.count_nonzero(found[name][high:]) == 0
            found[name] = found[name][inside]
        check(found, wanted)


@pytest.mark.parametrize("labels", ["binary", "graded", "all"])
def test_rows_of_a_very_long_list(labels):
    n = 200_000
    data = draw(labels, 25.0, n, 2, seed=5)
    scores, start, codes, table, weight, vector = data
    found = run(*data)
    position = np.arange(n)
    for i in np.random.default_rng(0).integers(0, n, 40):
        below, above = position >= start[i], start <= i
        d = scores[i] - scores
        w = weight[i] * weight * np.where(below, table[codes[i], codes], table[codes, codes[i]])
        t, h = w * expit(-d), w * expit(-d) * expit(d)
        lost, won = t[below].sum(), (w * expit(d))[above].sum()
        assert found["gradient"][i] == pytest.approx(won - lost, abs=TOLERANCE * (won + lost))
        h = np.where(below | above, h, 0.0)
        assert found["hessian"][i] == pytest.approx(h.sum(), rel=TOLERANCE)
        change = h * (vector[i] - vector)
        assert found["product"][i] == pytest.approx(
            change.sum(), abs=TOLERANCE * np.abs(change).sum()
        )
    moved = np.bincount(codes, found["gradient"], 2).sum()
    assert moved == pytest.approx(0.0, abs=TOLERANCE * np.abs(found["gradient"]).sum())


def test_turned_round():
    """Negated scores in reverse order, with W transposed, make the same pairs."""
    rng = np.random.default_rng(2)
    n = 3000
    labels = np.sort(rng.integers(0, 50, n))[::-1]
    scores, _, codes, table, weight, vector = draw("all", 40.0, n, 3, seed=2)
    one = run(scores, starts(labels), codes, table, weight, vector)
    turned = [np.ascontiguousarray(a[::-1]) for a in (-scores, codes, weight, vector)]
    two = run(turned[0], starts(-labels[::-1]), turned[1], table.T.copy(), turned[2], turned[3])
    assert two["loss"] == pytest.approx(one["loss"], rel=TOLERANCE)
    np.testing.assert_allclose(two["cells"].T, one["cells"], rtol=TOLERANCE)
    np.testing.assert_allclose(two["hessian"][::-1], one["hessian"], rtol=TOLERANCE)
    size = np.abs(one["gradient"]).max()
    np.testing.assert_allclose(two["gradient"][::-1], -one["gradient"], atol=TOLERANCE * size)


def test_product_is_symmetric_and_ignores_constants():
    scores, start, codes, table, weight, v = draw("graded", 20.0, 5000, 2, seed=9)
    w = np.random.default_rng(1).normal(0.0, 1.0, 5000)
    hv, hw, moved = np.empty((3, 5000))
    hessian_product_long(scores, start, codes, table, weight, v, hv)
    hessian_product_long(scores, start, codes, table, weight, w, hw)
    hessian_product_long(scores, start, codes, table, weight, v + 1e6, moved)
    assert v @ hw == pytest.approx(w @ hv, rel=1e-11)
    np.testing.assert_allclose(moved, hv, atol=1e-9 * np.abs(hv).max())
    hessian_product_long(scores, start, codes, table, weight, np.full(5000, 7.0), moved)
    assert np.all(moved == 0.0)


@pytest.mark.parametrize("n", [0, 1, 2000])
def test_no_pairs(n):
    scores, _, codes, table, weight, vector = draw("all", 20.0, n, 2, seed=0)
    found = run(scores, np.full(n, n, np.int32), codes, table, weight, vector)
    for value in found.values():
        assert np.all(value == 0.0)


def test_loss_only_when_asked_for():
    scores, start, codes, table, weight, _ = draw("graded", 20.0, 2000, 2, seed=4)
    one, two = np.empty((2, 2000)), np.empty((2, 2000))
    cells = np.empty((2, 2, 2))
    assert logistic_long(scores, start, codes, table, weight, True, *one, cells[0]) > 0.0
    assert logistic_long(scores, start, codes, table, weight, False, *two, cells[1]) == 0.0
    np.testing.assert_allclose(one, two, rtol=1e-9)
    np.testing.assert_allclose(cells[0], cells[1], rtol=TOLERANCE)


def test_only_the_loss_overflows():
    """2000 preferred items at -1e300 and as many at 1e300, each of weight 1e6."""
    n = 4000
    scores = np.repeat([-1e300, 1e300], n // 2)
    start = np.repeat(np.int32([n // 2, n]), n // 2)
    codes, table = np.zeros(n, np.int32), np.ones((1, 1))
    gradient, hessian = np.empty((2, n))
    cells = np.empty((1, 1))
    arguments = scores, start, codes, table, np.full(n, 1e6), True, gradient, hessian, cells
    assert logistic_long(*arguments) == np.inf
    assert cells[0, 0] == pytest.approx(1e12 * (n // 2) ** 2)
    np.testing.assert_allclose(np.abs(gradient), 1e12 * (n // 2))
    np.testing.assert_allclose(hessian, 0.0, atol=1e-280)
