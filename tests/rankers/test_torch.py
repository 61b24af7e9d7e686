"""TorchRanker: the gradient it hands to torch, the minimum it comes to, what it leaves alone."""

import copy
import io
import pickle
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from pairity import FairRanker, InputError, LinearRanker, Queries
from pairity.datasets import make_biased_ranking
from pairity.exceptions import MissingExtraError, TrainingError
from pairity.pairs.cells import mean_auc, total_weight
from pairity.pairs.enumeration import iter_pairs
from pairity.pairs.logistic import pairwise_logistic
from pairity.rankers.adapters import as_ranker

torch = pytest.importorskip("torch")
nn = torch.nn

from pairity.rankers.torch import TorchRanker  # noqa: E402

TABLE = np.array([[0.3, 1.6], [0.9, 1.2]])
FULL = dict(batch_queries=None, random_state=0)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make(n_queries=16, n_items=15, **options):
    return make_biased_ranking(n_queries, n_items, **{"random_state": 0, **options})


DATA = make()
QUERIES = DATA.queries()


def net(n_features=5, *middle, seed=0, dtype=torch.float32):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = [nn.Linear(n_features, 8), nn.Tanh(), *middle, nn.Linear(8, 1, bias=False)]
        return nn.Sequential(*layers).to(dtype)


def linear(n_features=5):
    module = nn.Linear(n_features, 1, bias=False, dtype=torch.float64)
    nn.init.zeros_(module.weight)
    return module


def plain_sgd(parameters):
    return torch.optim.SGD(parameters, lr=1.0)


def one_step(module, queries=QUERIES, table=TABLE, **options):
    """The parameters' change in a single step of gradient descent: minus their gradient."""
    options = {"optimizer": plain_sgd, "epochs": 1, "standardise": False, **FULL, **options}
    ranker = TorchRanker(module, **options).fit_pairs(queries, table)
    after = ranker.model_.state_dict()
    return {name: after[name] - before for name, before in module.state_dict().items()}


def explicit_loss(module, queries, table):
    """The weighted mean loss, every pair written out, for autograd."""
    i, j = (np.concatenate(part) for part in zip(*iter_pairs(queries), strict=True))
    weight = queries.pad(table)[queries.group[i], queries.group[j]]
    weight = weight * queries.weight_of_query[queries.query[i]]
    if queries.item_weight is not None:
        weight = weight * queries.item_weight[i] * queries.item_weight[j]
    dtype = next(module.parameters()).dtype
    scores = module(torch.from_numpy(queries.X).to(dtype)).reshape(-1)
    losses = nn.functional.softplus(scores[j] - scores[i])
    weight = torch.from_numpy(weight).to(dtype)
    return (weight * losses).sum() / weight.sum()


def mean_loss(queries, scores, table):
    return pairwise_logistic(queries, scores, table).loss / total_weight(queries, table)


# --- the gradient, and the minimum ------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_gradient_is_autograds_on_explicit_pairs(dtype, atol, weighted):
    queries = QUERIES
    if weighted:
        rng = np.random.default_rng(0)
        group = np.where(rng.random(len(DATA.y)) < 0.1, None, DATA.sensitive_features)
        queries = Queries.from_arrays(
            DATA.X, DATA.y, qid=DATA.qid, sensitive_features=group,
            sample_weight=rng.integers(0, 3, len(DATA.y)), query_weight=1.0 + DATA.qid % 3,
        )  # fmt: skip
    module = net(dtype=dtype)
    moved = one_step(module, queries)
    explicit_loss(module, queries, TABLE).backward()
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(moved[name], -parameter.grad, rtol=1e-4, atol=atol)


def test_batches_add_up_to_the_whole():
    """With a vanishing learning rate, four batches move as far as four steps of the whole."""
    module = linear()
    tiny = dict(optimizer=lambda p: torch.optim.SGD(p, lr=1e-7), decay=False)
    whole = one_step(module, **tiny)["weight"]
    split = one_step(module, **tiny, batch_queries=5)["weight"]  # 16 queries in 4 batches
    torch.testing.assert_close(split, 4 * whole, rtol=1e-4, atol=0.0)


def test_training_equals_training_on_explicit_pairs():
    """The same optimizer, step by step, with torch doing all of it."""
    module = net(dtype=torch.float64)
    actual = TorchRanker(module, epochs=20, standardise=False, decay=False, **FULL)
    actual.fit_pairs(QUERIES, TABLE)
    reference = copy.deepcopy(module)
    optimizer = torch.optim.Adam(reference.parameters(), lr=0.01)
    curve = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = explicit_loss(reference, QUERIES, TABLE)
        loss.backward()
        optimizer.step()
        curve.append(loss.item())
    np.testing.assert_allclose(actual.loss_curve_, curve, rtol=1e-9)
    for name, parameter in reference.state_dict().items():
        torch.testing.assert_close(
            actual.model_.state_dict()[name], parameter, rtol=1e-6, atol=1e-8
        )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {
            "optimizer": lambda p: torch.optim.LBFGS(p, line_search_fn="strong_wolfe"),
            "epochs": 5, "batch_queries": None, "decay": False,
        },
    ],
    ids=["defaults", "LBFGS"],
)  # fmt: skip
def test_a_linear_module_comes_to_the_linear_minimum(options):
    data = make(60, 20)
    queries = data.queries()
    best = LinearRanker(alpha=0.0).fit_pairs(queries, TABLE)
    actual = TorchRanker(linear(), random_state=0, **options).fit_pairs(queries, TABLE)
    least = mean_loss(queries, best.predict(data.X), TABLE)
    assert mean_loss(queries, actual.predict(data.X), TABLE) == pytest.approx(least, rel=1e-3)


@pytest.mark.parametrize("loss", ["logistic", "hinge", "bpr", "lambdarank"])
def test_every_loss_learns_to_rank(loss):
    ranker = TorchRanker(net(), loss=loss, epochs=20, random_state=0).fit_pairs(QUERIES, TABLE)
    assert mean_auc(QUERIES, ranker.predict(DATA.X)) > 0.7
    assert len(ranker.loss_curve_) == (0 if loss == "lambdarank" else 20)


# --- what weights mean, and what does not matter ----------------------------------------------


def fitted(queries, table=TABLE, **options):
    options = {"epochs": 10, "standardise": False, **FULL, **options}
    return TorchRanker(net(dtype=torch.float64), **options).fit_pairs(queries, table)


def assert_same(one, other, X=DATA.X, rtol=1e-6):
    np.testing.assert_allclose(one.predict(X), other.predict(X), rtol=rtol, atol=1e-8)


@pytest.mark.parametrize("options", [{}, {"batch_queries": 4}])
def test_scaling_all_weights_changes_nothing(options):
    assert_same(fitted(QUERIES, TABLE, **options), fitted(QUERIES, 1e3 * TABLE, **options))


def test_a_whole_query_weight_equals_repeating_and_zero_equals_dropping():
    times = np.arange(16) % 3
    weighted = Queries.from_arrays(**{**DATA.queries(), "query_weight": times[DATA.qid]})
    rows = np.concatenate(
        [np.flatnonzero(DATA.qid == q) for q in range(16) for _ in range(times[q])]
    )
    n_lists = int(times.sum())
    repeated = Queries.from_arrays(
        DATA.X[rows], DATA.y[rows], qid=np.repeat(np.arange(n_lists), 15),
        sensitive_features=DATA.sensitive_features[rows],
    )  # fmt: skip
    assert_same(fitted(weighted), fitted(repeated))
    kept = QUERIES.take(np.flatnonzero(times))
    dropped = Queries.from_arrays(**{**DATA.queries(), "query_weight": 1.0 * (times > 0)[DATA.qid]})
    for options in ({}, {"batch_queries": 3, "standardise": True}):
        assert_same(fitted(dropped, **options), fitted(kept, **options))


def test_a_cell_of_weight_zero_is_not_trained_on():
    table = np.array([[1.0, 0.0], [1.0, 1.0]])
    y = DATA.y.copy()
    first = np.flatnonzero(DATA.qid == 0)
    group = DATA.sensitive_features.copy()
    group[first] = np.where(
        y[first] > 0, "group 1", "group 2"
    )  # only pairs of the cell of weight 0
    both = Queries.from_arrays(DATA.X, y, qid=DATA.qid, sensitive_features=group)
    assert_same(fitted(both, table), fitted(both.take(np.arange(1, 16)), table))


@pytest.mark.parametrize("options", [{}, {"batch_queries": 4, "standardise": True}])
def test_the_order_of_rows_does_not_matter(options):
    order = np.random.default_rng(0).permutation(len(DATA.y))
    mixed = Queries.from_arrays(
        DATA.X[order], DATA.y[order], qid=DATA.qid[order],
        sensitive_features=DATA.sensitive_features[order],
    )  # fmt: skip
    assert_same(fitted(QUERIES, **options), fitted(mixed, **options))


def test_sparse_equals_dense():
    X = np.where(np.abs(DATA.X) < 0.5, 0.0, DATA.X)
    known = {"y": DATA.y, "qid": DATA.qid}
    dense = TorchRanker(net(), epochs=5, random_state=0).fit(X, **known)
    sparse = TorchRanker(net(), epochs=5, random_state=0).fit(sp.csr_array(X), **known)
    np.testing.assert_allclose(sparse.predict(sp.csr_array(X)), dense.predict(X), rtol=1e-4)


def test_units_of_the_features_do_not_matter():
    units, zero = np.logspace(-6, 6, 5), np.array([0.0, 1e-3, 10.0, -1e4, 1e7])
    plain = TorchRanker(net(dtype=torch.float64), epochs=5, random_state=0)
    other = clone(plain, safe=False)
    known = {"y": DATA.y, "qid": DATA.qid}
    plain.fit(DATA.X, **known)
    other.fit(DATA.X * units + zero, **known)
    np.testing.assert_allclose(
        other.predict(DATA.X * units + zero), plain.predict(DATA.X), atol=1e-5
    )


def test_a_constant_feature_is_harmless():
    X = np.c_[DATA.X, np.full(len(DATA.y), 1e9)]
    ranker = TorchRanker(net(6), epochs=5, random_state=0).fit(X, DATA.y, qid=DATA.qid)
    assert np.isfinite(ranker.predict(X)).all()


# --- randomness, and what is left alone -------------------------------------------------------


def test_the_same_seed_gives_the_same_model():
    def scores(seed):
        module = net(5, nn.Dropout(0.3))
        return (
            TorchRanker(module, epochs=3, random_state=seed)
            .fit_pairs(QUERIES, TABLE)
            .predict(DATA.X)
        )

    np.testing.assert_array_equal(scores(0), scores(0))
    assert not np.array_equal(scores(0), scores(1))
    np.testing.assert_array_equal(
        scores(np.random.RandomState(3)), scores(np.random.RandomState(3))
    )


def test_without_a_seed_later_rounds_keep_the_first_ones():
    ranker = TorchRanker(net(5, nn.Dropout(0.3)), epochs=3)
    first = clone(ranker, safe=False).fit_pairs(QUERIES, TABLE)
    again = clone(ranker, safe=False).fit_pairs(QUERIES, TABLE, previous=first)
    np.testing.assert_array_equal(first.predict(DATA.X), again.predict(DATA.X))


@pytest.mark.parametrize("interrupted", [False, True])
def test_nothing_of_the_callers_is_changed(interrupted):
    class Interrupts(nn.Module):
        calls = 0

        def forward(self, x):
            Interrupts.calls += 1
            if interrupted and Interrupts.calls == 8:
                raise KeyboardInterrupt
            return x

    module = net(5, nn.BatchNorm1d(8), nn.Dropout(0.2), Interrupts()).train()
    before = copy.deepcopy(module.state_dict())
    random, numbers = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    ranker = TorchRanker(module, epochs=3, random_state=0)
    if interrupted:
        with pytest.raises(KeyboardInterrupt):
            ranker.fit_pairs(QUERIES, TABLE)
        assert not hasattr(ranker, "model_")
    else:
        ranker.fit_pairs(QUERIES, TABLE)
    assert module.training
    assert ranker.estimator is module
    assert all(parameter.grad is None for parameter in module.parameters())
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])
    assert torch.equal(torch.get_rng_state(), random)
    np.testing.assert_array_equal(np.random.get_state()[1], numbers)  # noqa: NPY002


def test_a_warm_start_begins_where_the_last_round_ended():
    first = fitted(QUERIES, epochs=40)
    held = copy.deepcopy(first.model_.state_dict())
    warm = TorchRanker(
        net(dtype=torch.float64), epochs=1, warm_start=True, standardise=False, **FULL
    )
    warm.fit_pairs(QUERIES, TABLE, previous=first)
    assert warm.loss_curve_[0] == pytest.approx(
        mean_loss(QUERIES, first.predict(DATA.X), TABLE), rel=1e-6
    )
    for name, value in first.model_.state_dict().items():
        assert torch.equal(value, held[name])
    cold = clone(warm, safe=False).set_params(warm_start=False)
    cold.fit_pairs(QUERIES, TABLE, previous=first)
    assert cold.loss_curve_[0] == fitted(QUERIES).loss_curve_[0]


# --- stopping ---------------------------------------------------------------------------------


def test_the_best_epoch_on_held_out_queries_is_kept():
    ranker = TorchRanker(
        net(dtype=torch.float64), validation=0.25, patience=3, epochs=200, learning_rate=0.1,
        random_state=0,
    ).fit_pairs(QUERIES, TABLE)  # fmt: skip
    assert ranker.n_epochs_ == ranker.best_epoch_ + 3 < 200
    assert ranker.best_epoch_ == 1 + int(np.argmin(ranker.validation_curve_))
    _, held = QUERIES.split(0.25, 0)
    assert mean_loss(held, ranker.predict(held.X), TABLE) == pytest.approx(
        min(ranker.validation_curve_), rel=1e-9
    )


def test_without_held_out_queries_the_training_loss_can_end_it():
    ranker = TorchRanker(linear(), patience=2, epochs=500, batch_queries=4, random_state=0)
    ranker.set_params(decay=False).fit_pairs(QUERIES, TABLE)
    assert ranker.n_epochs_ == len(ranker.loss_curve_) < 500


# --- in a FairRanker, and out of it -----------------------------------------------------------


@pytest.mark.parametrize("warm_start", [False, True])
def test_reweighting_lowers_the_violation(warm_start):
    data = make(40, 20, strength=1.5)
    ranker = TorchRanker(net(), epochs=10, warm_start=warm_start, random_state=0)
    model = FairRanker(ranker, "inter", tolerance=0.01, max_rounds=15)
    model.fit(data.X, data.y, qid=data.qid, sensitive_features=data.sensitive_features)
    assert model.history_[0].violation > 0.05
    assert model.violation_ <= 0.01


def test_a_bare_module_is_a_ranker():
    module = net()
    assert isinstance(as_ranker(module), TorchRanker)
    model = FairRanker(module, max_rounds=0).fit(
        DATA.X, DATA.y, qid=DATA.qid, sensitive_features=DATA.sensitive_features
    )
    assert model.predict(DATA.X).shape == DATA.y.shape


@pytest.mark.parametrize("standardise", [False, True])
def test_the_module_predicts_by_itself(standardise):
    X = 100.0 * DATA.X + 7.0 if standardise else DATA.X
    module = net(5, nn.BatchNorm1d(8), nn.Dropout(0.5))
    ranker = TorchRanker(module, epochs=3, standardise=standardise, random_state=0)
    scores = ranker.fit(X, DATA.y, qid=DATA.qid).predict(X)
    assert not ranker.model_.training
    with torch.no_grad():
        alone = ranker.model_(torch.from_numpy(X).float())
    np.testing.assert_allclose(alone[:, 0], scores, rtol=1e-6)
    file = io.BytesIO()
    torch.save(ranker.model_.state_dict(), file)
    file.seek(0)
    fresh = net(5, nn.BatchNorm1d(8), nn.Dropout(0.5), seed=1)
    if standardise:
        fresh = nn.Sequential(nn.BatchNorm1d(5, eps=0.0, affine=False), fresh)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    with torch.no_grad():
        loaded = fresh.eval()(torch.from_numpy(X).float())
    np.testing.assert_array_equal(loaded, alone)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(ranker)).predict(X), scores)  # noqa: S301
    np.testing.assert_allclose(ranker.predict(X[:1]), scores[:1], rtol=1e-5)


def test_lazy_layers_and_flat_scores():
    class Flat(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.LazyLinear(1)

        def forward(self, x):
            return self.layer(x)[:, 0]

    ranker = TorchRanker(Flat(), epochs=3, random_state=0).fit_pairs(QUERIES, TABLE)
    assert np.isfinite(ranker.predict(DATA.X)).all()


def test_embeddings_want_their_numbers_as_they_are():
    class Looks(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(4, 1)

        def forward(self, x):
            return self.table(x[:, 0].long())

    X = (DATA.X[:, :1] > 0) + 2.0 * (DATA.X[:, 1:2] > 0)
    with pytest.raises(InputError, match="standardise=False"):
        TorchRanker(Looks()).fit(X, DATA.y, qid=DATA.qid)
    ranker = TorchRanker(Looks(), standardise=False, epochs=3, random_state=0)
    assert ranker.fit(X, DATA.y, qid=DATA.qid).predict(X).shape == DATA.y.shape


# --- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimator": nn.Linear}, "Pass a torch.nn.Module"),
        ({"estimator": "net"}, "Pass a torch.nn.Module"),
        ({"estimator": nn.Identity()}, "no parameter that can be trained"),
        ({"estimator": nn.Linear(5, 2)}, r"shape \(15, 2\).*one score per item"),
        ({"estimator": nn.Linear(4, 1)}, r"cannot score features of shape \(15, 5\)"),
        ({"estimator": nn.LSTM(5, 1)}, "instead of a tensor"),
        ({"optimizer": "newton"}, "optimizer must be .*got 'newton'"),
        ({"learning_rate": 0}, "learning_rate must be .*got 0"),
        ({"learning_rate": "fast"}, "learning_rate must be .*got 'fast'"),
        ({"weight_decay": -1.0}, "weight_decay must be .*got -1"),
        ({"epochs": 0}, "epochs must be .*got 0"),
        ({"batch_queries": 0.5}, "batch_queries must be .*got 0.5"),
        ({"patience": 0}, "patience must be .*got 0"),
        ({"validation": 1.5}, "must lie between 0 and 1"),
        ({"validation": 0.01}, "leaves 0"),
        ({"loss": "lambdarank", "patience": 3}, "has no value, which validation and patience need"),
        ({"loss": "huber"}, "no loss named 'huber'"),
        ({"device": "toaster"}, "device must be .*got 'toaster'"),
        ({"random_state": "x"}, "random_state must be .*got 'x'"),
    ],
    ids=str,
)  # fmt: skip
def test_bad_parameters(options, message):
    options = {"estimator": linear(), "epochs": 1, **options}
    with pytest.raises(InputError, match=message):
        TorchRanker(**options).fit_pairs(QUERIES, TABLE)


def test_bad_data():
    ranker = TorchRanker(net(), epochs=1)
    with pytest.raises(InputError, match="total weight of 0"):
        ranker.fit_pairs(QUERIES, np.zeros((2, 2)))
    with pytest.raises(InputError, match="no features"):
        ranker.fit_pairs(Queries.from_arrays(None, DATA.y, qid=DATA.qid), np.ones((0, 0)))
    with pytest.raises(InputError, match="NaN"):
        ranker.fit(np.where(DATA.X > 2, np.nan, DATA.X), DATA.y, qid=DATA.qid)
    with pytest.raises(InputError, match="two different labels"):
        ranker.fit(DATA.X, np.ones(len(DATA.y)), qid=DATA.qid)
    ranker.fit(DATA.X, DATA.y, qid=DATA.qid)
    with pytest.raises(InputError, match="4 features"):
        ranker.predict(DATA.X[:, :4])


def test_scores_that_are_detached_cannot_be_trained():
    class Detached(nn.Linear):
        def forward(self, x):
            return super().forward(x).detach()

    with pytest.raises(InputError, match="do not depend on its parameters"):
        TorchRanker(Detached(5, 1), epochs=1).fit_pairs(QUERIES, TABLE)


def test_divergence_is_told():
    module = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 1))
    steep = TorchRanker(module, optimizer="sgd", learning_rate=1e30, epochs=5, random_state=0)
    with pytest.raises(TrainingError, match="Lower the learning rate"):
        steep.fit_pairs(QUERIES, TABLE)


def test_without_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r'pip install "pairity\[torch\]"'):
        TorchRanker(None).fit_pairs(QUERIES, TABLE)
