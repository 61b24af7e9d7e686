"""query_weight="equal": every query's pairs have the same total weight, in training only."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeRegressor

from pairity import FairRanker, InputError, LinearRanker, Queries, load
from pairity.baselines import correlation_penalty, lagrangian
from pairity.constraints import InterGroup, as_constraint, largest_gap
from pairity.data.checks import suggests_equal_queries
from pairity.data.sources import open_queries
from pairity.datasets import make_biased_ranking
from pairity.pairs.cells import cell_means, mean_auc, pairs_by_cell, total_weight
from pairity.pairs.enumeration import iter_weighted_pairs
from pairity.pairs.losses import LOSSES
from pairity.rankers.regressor import RegressorRanker
from support.reference import pair_weight, pairs_of

MADE = make_biased_ranking(30, 30, n_labels=3, random_state=0)
# Lists of 2 to 30 items, in mixed order of rows, and one query without a preference.
LENGTHS = 2 + (MADE.qid * 7) % 29
ROWS = np.flatnonzero(np.arange(len(MADE.y)) % 30 < LENGTHS)
ROWS = np.random.default_rng(0).permutation(ROWS)
LABELS = np.where(MADE.qid == 5, 1, MADE.y)[ROWS]
DATA = {
    "X": MADE.X[ROWS], "y": LABELS, "qid": MADE.qid[ROWS],
    "sensitive_features": MADE.sensitive_features[ROWS],
}  # fmt: skip
PLAIN = Queries.from_arrays(**DATA)
EQUAL = PLAIN.with_equal_queries()
TABLE = np.array([[1.0, 1.75], [0.5, 1.25]])
TABLES = [TABLE, np.array([TABLE, [[0.25, 0.0], [0.5, 0.125]]])]


def total_of_pairs(queries):
    """The weight of all preference pairs of each query, the slow way."""
    preferred, other = pairs_of(queries)
    weight = pair_weight(queries, preferred, other)
    return np.bincount(queries.query[preferred], weight, queries.n_queries)


def by_hand(queries):
    """The same training weights, as explicit query weights of mean 1 over the pairs."""
    total = total_of_pairs(queries)
    weight = np.where(total > 0, 1.0 / np.where(total > 0, total, 1.0), 1.0)
    scale = total.sum() / np.count_nonzero(total)
    return replace(queries, query_weight=weight * scale, equal_queries=False)


BY_HAND = by_hand(PLAIN)
TRAINING = {"progress": False, "validation": None}  # measured on the training queries


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_weights_are_divided_by_those_of_all_pairs(data):
    n_items = data.draw(st.integers(1, 25))
    numbers = st.lists(st.integers(0, 3), min_size=n_items, max_size=n_items)
    y, qid = data.draw(numbers), data.draw(numbers)
    weight = data.draw(st.none() | numbers.filter(any))
    queries = Queries.from_arrays(None, y, qid=qid, sample_weight=weight, query_weight="equal")
    expected = total_of_pairs(queries)
    assert queries.layout.pair_weights() == pytest.approx(expected)
    assert queries.training_weight == pytest.approx(1 / np.where(expected > 0, expected, 1))
    assert (queries.weight_of_query == 1).all()
    assert queries.layout.pair_counts().sum() == queries.n_pairs == len(pairs_of(queries)[0])


def test_very_different_item_weights_do_not_cancel():
    weight = [1e-60, 1e-60, 1e60, 1.0]
    queries = Queries.from_arrays(None, [1, 0, 1, 0], qid=[0, 0, 1, 1], sample_weight=weight)
    assert queries.layout.pair_weights() == pytest.approx([1e-120, 1e60], rel=1e-12)


def test_parts_and_other_orders_keep_the_weights():
    ordered, rows = EQUAL.by_query()
    assert np.array_equal(ordered.training_weight, EQUAL.training_weight)
    assert ordered.between(3, 9).training_weight == pytest.approx(EQUAL.training_weight[3:9])
    assert EQUAL.take([2, 7]).training_weight == pytest.approx(EQUAL.training_weight[[2, 7]])
    again = Queries.from_arrays(**EQUAL)
    assert again == EQUAL != PLAIN
    assert EQUAL["query_weight"] == "equal"
    assert EQUAL.digest() == PLAIN.digest()
    assert len(rows) == EQUAL.n_items


# --- losses and pairs -----------------------------------------------------------------------------


@pytest.mark.parametrize("table", TABLES, ids=["one table", "two tables"])
@pytest.mark.parametrize("loss", LOSSES)
def test_losses_weigh_pairs_as_by_hand(loss, table):
    scores = np.random.default_rng(1).normal(size=PLAIN.n_items)
    scale = total_weight(BY_HAND, TABLE) / total_weight(EQUAL, TABLE)
    found = LOSSES[loss]().derivatives(EQUAL, scores, table)
    expected = LOSSES[loss]().derivatives(BY_HAND, scores, table)
    for values, slow in zip(found, expected, strict=True):
        assert scale * values == pytest.approx(slow, abs=1e-9 * np.abs(slow).max())


def test_listed_pairs_and_cells_weigh_as_by_hand():
    for table in TABLES:
        weights = []
        for queries in (EQUAL, BY_HAND):
            blocks = zip(*iter_weighted_pairs(queries, table), strict=True)
            weights.append([np.concatenate(block) for block in blocks])
        for found, expected in zip(*weights, strict=True):
            assert found == pytest.approx(expected)
    by_cell = pairs_by_cell(EQUAL)
    assert by_cell / by_cell.sum() == pytest.approx(
        pairs_by_cell(BY_HAND) / pairs_by_cell(BY_HAND).sum()
    )
    *_, weight = iter_weighted_pairs(EQUAL, np.ones((2, 2)), block=10**9)
    assert weight[2].mean() == pytest.approx(1.0)
    per_query = np.bincount(EQUAL.query[weight[0]], weight[2])
    assert np.ptp(per_query[per_query > 0]) == pytest.approx(0.0, abs=1e-9)


def test_measurements_are_those_without_it():
    scores = np.random.default_rng(2).normal(size=PLAIN.n_items)
    assert mean_auc(EQUAL, scores) == mean_auc(PLAIN, scores)
    for average in ("query", "pair"):
        for values in (cell_means, InterGroup(average=average).delta):
            assert np.array_equal(values(EQUAL, scores), values(PLAIN, scores), equal_nan=True)


# --- rankers --------------------------------------------------------------------------------------


def test_the_linear_ranker_minimises_the_loss_of_these_pairs():
    """At the minimum, the gradient over the pairs, written out, is zero."""
    model = LinearRanker(alpha=0.0, tol=1e-10).fit(**without_groups(), query_weight="equal")
    preferred, other = pairs_of(PLAIN)
    weight = 1 / total_of_pairs(PLAIN)[PLAIN.query[preferred]]
    difference = PLAIN.X[preferred] - PLAIN.X[other]
    slope = weight / (1 + np.exp(difference @ model.coef_))
    assert np.abs(slope @ difference).max() < 1e-5 * weight.sum()
    plain = LinearRanker(alpha=0.0).fit(**without_groups())
    assert np.abs(plain.coef_ - model.coef_).max() > 0.01


def without_groups():
    return {name: DATA[name] for name in ("X", "y", "qid")}


def lightgbm():
    lgb = pytest.importorskip("lightgbm")
    return lgb.LGBMRanker(n_estimators=8, num_leaves=7, n_jobs=1, verbose=-1)


def xgboost():
    return pytest.importorskip("xgboost").XGBRanker(n_estimators=8, max_depth=3, n_jobs=1)


def catboost():
    cb = pytest.importorskip("catboost")
    return cb.CatBoostRanker(
        iterations=8, thread_count=1, bootstrap_type="No", random_strength=0,
        allow_writing_files=False,
    )  # fmt: skip


def network():
    torch = pytest.importorskip("torch")
    from pairity.rankers.torch import TorchRanker

    torch.manual_seed(0)
    return TorchRanker(torch.nn.Linear(5, 1), epochs=3, random_state=0)


def trees():
    return RegressorRanker(DecisionTreeRegressor(max_depth=3, random_state=0), n_estimators=3)


ENGINES = [lightgbm, xgboost, catboost, network, trees]


@pytest.mark.parametrize("table", TABLES, ids=["one table", "two tables"])
@pytest.mark.parametrize("make", ENGINES)
def test_every_engine_trains_as_with_explicit_weights(make, table):
    from pairity.rankers.adapters import as_ranker

    found, expected, plain = (
        as_ranker(make()).fit_pairs(queries, table).predict(PLAIN.X)
        for queries in (EQUAL, BY_HAND, PLAIN)
    )
    assert found == pytest.approx(expected, abs=1e-5)
    assert np.abs(found - plain).max() > 1e-3


@pytest.mark.filterwarnings("ignore::pairity.exceptions.TargetNotReachedWarning")
def test_features_in_files(tmp_path):
    import pandas as pd

    from pairity.data import read_parquet

    rows = np.argsort(DATA["qid"], kind="stable")
    names = [f"x{k}" for k in range(5)]
    frame = pd.DataFrame(DATA["X"], columns=names).assign(
        y=DATA["y"], qid=DATA["qid"], group=DATA["sensitive_features"]
    )
    frame.iloc[rows].to_parquet(tmp_path / "data.parquet", row_group_size=50)
    streamed = read_parquet(
        tmp_path / "data.parquet", y="y", qid="qid", sensitive_features="group", features=names
    )
    settings = {"tolerance": 0.02, "max_rounds": 3, "progress": False}
    models = [
        FairRanker(**settings).fit(queries, query_weight="equal") for queries in (streamed, PLAIN)
    ]
    assert models[0].ranker_.coef_ == pytest.approx(models[1].ranker_.coef_, rel=1e-4)


# --- the fair ranker ------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::pairity.exceptions.TargetNotReachedWarning")
@pytest.mark.parametrize("make", [LinearRanker, lightgbm, xgboost])
def test_the_violation_is_measured_without_it(make):
    """Interleaved boosters take their training scores, and measure them the same way."""
    model = FairRanker(make(), "inter", max_rounds=2, tolerance=0.02, **TRAINING)
    model.fit(**DATA, query_weight="equal")
    delta = as_constraint("inter").delta(PLAIN, model.predict(PLAIN.X))
    assert model.violation_ == pytest.approx(largest_gap(delta), abs=1e-6)
    best = min(model.history_, key=lambda completed: completed.violation)
    assert best.auc == pytest.approx(mean_auc(PLAIN, model.predict(PLAIN.X)), abs=1e-6)
    ready = FairRanker(make(), "inter", max_rounds=2, tolerance=0.02, **TRAINING)
    ready.fit(PLAIN, query_weight="equal")
    assert ready.violation_ == model.violation_


def test_the_plain_round_is_the_plain_ranker():
    model = FairRanker(max_rounds=0, progress=False).fit(**DATA, query_weight="equal")
    plain = LinearRanker().fit(**without_groups(), query_weight="equal")
    assert model.ranker_.coef_ == pytest.approx(plain.coef_, rel=1e-6)
    path = model.path(**DATA, query_weight="equal", values=[0])
    assert path[0].violation == pytest.approx(model.violation_, abs=1e-9)


@pytest.mark.filterwarnings("ignore::pairity.exceptions.TargetNotReachedWarning")
def test_exported_pairs_have_the_weights_of_training(tmp_path):
    model = FairRanker(max_rounds=2, tolerance=0.02, progress=False)
    model.fit(**DATA, query_weight="equal")
    model.export_pairs(tmp_path / "own.tsv")
    winner, loser, weight = np.loadtxt(tmp_path / "own.tsv").T
    assert weight.mean() > 0
    table = model.pair_weights_
    tables = table.table if table.mirrored is None else np.array([table.table, table.mirrored])
    blocks = zip(*iter_weighted_pairs(BY_HAND, tables), strict=True)
    expected = [np.concatenate(block) for block in blocks]
    assert winner.tolist() == expected[0].tolist()
    assert loser.tolist() == expected[1].tolist()
    assert weight == pytest.approx(expected[2], rel=1e-6)
    model.save(tmp_path / "model")
    load(tmp_path / "model").export_pairs(tmp_path / "loaded.tsv", DATA)
    assert (tmp_path / "loaded.tsv").read_bytes() == (tmp_path / "own.tsv").read_bytes()


def test_a_checkpoint_of_other_weights_is_refused(tmp_path):
    model = FairRanker(max_rounds=1, tolerance=0.5, progress=False, checkpoint=tmp_path)
    model.fit(**DATA, query_weight="equal")
    model.fit(**DATA, query_weight="equal")
    with pytest.raises(InputError, match="equal_queries was true there and is false now"):
        model.fit(**DATA)


# --- baselines ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [lagrangian, correlation_penalty])
def test_baselines_that_average_over_queries_do_so_already(method):
    options = {"n_steps": 30} if method is lagrangian else {"strength": 0.5}
    found = method(InterGroup(), **options).fit(EQUAL, 0).coef
    assert found == pytest.approx(method(InterGroup(), **options).fit(PLAIN, 0).coef)
    by_pair = InterGroup(average="pair")
    equal, pooled = (method(by_pair, **options).fit(queries, 0) for queries in (EQUAL, PLAIN))
    assert np.abs(equal.coef - pooled.coef).max() > 1e-3
    plain = replace(EQUAL, equal_queries=False)
    delta = by_pair.delta(plain, equal(plain))
    if method is lagrangian:
        assert equal.violation == pytest.approx(largest_gap(delta))


# --- advice, and what is refused ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [([4, 4, 4, 4], False), ([4, 4, 4, 40], True), ([8, 10, 12, 9], False), ([30], False)],
)
def test_equal_queries_are_suggested_if_few_queries_count(lengths, expected):
    qid = np.repeat(np.arange(len(lengths)), lengths)
    queries = Queries.from_arrays(None, np.arange(len(qid)), qid=qid)
    pairs = np.array([n * (n - 1) / 2 for n in lengths])
    assert expected == (pairs.sum() ** 2 < 0.5 * len(pairs) * (pairs**2).sum())
    assert suggests_equal_queries(queries) is expected
    assert not suggests_equal_queries(queries.with_equal_queries())


@pytest.mark.parametrize("word", ["Equal", "balanced", ""])
def test_other_words_are_refused(word):
    message = r"query_weight is '.*'. Pass one weight per query"
    with pytest.raises(InputError, match=message):
        Queries.from_arrays(**DATA, query_weight=word)
    for model in (FairRanker(), LinearRanker()):
        for data in (without_groups(), {"X": PLAIN}):
            with pytest.raises(InputError, match=message):
                model.fit(**data, query_weight=word)


def test_weights_and_equal_together_are_refused():
    weighted = replace(PLAIN, query_weight=np.ones(PLAIN.n_queries))
    with pytest.raises(InputError, match="have weights already"):
        LinearRanker().fit(weighted, query_weight="equal")
    with (
        pytest.raises(InputError, match="but sample_weight was passed too"),
        open_queries({"X": PLAIN, "sample_weight": [1], "query_weight": "equal"}),
    ):
        pass


def test_the_ranker_foresees_how_it_responds():
    """The response is that of the weights of training: finite differences give the same."""
    queries, ones = PLAIN.with_equal_queries(), np.ones((2, 2))
    ranker = LinearRanker(tol=1e-11).fit_pairs(queries, ones)
    directions, coefficients = ranker.response(queries, ones)
    raised = ones + 1e-4 * np.array([[0.0, 1.0], [0.0, 0.0]])
    moved = LinearRanker(tol=1e-11).fit_pairs(queries, raised).predict(queries.X)
    change = (moved - ranker.predict(queries.X)) / 1e-4
    np.testing.assert_allclose(coefficients[0, 0, 1] @ directions, change, rtol=0.02, atol=1e-3)
