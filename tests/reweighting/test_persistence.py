"""Saved models load bit for bit, and every fault of a folder has its own error."""

import copy
import functools
import json
import os
import pickle
import shutil
import subprocess
import sys
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import pairity
from pairity import FairRanker, InputError, InterGroup, LinearRanker, PlainStep
from pairity._utils import model_folder as folders
from pairity.exceptions import MissingExtraError, ModelFileError, PairityWarning
from support.model_catalogue import (
    ENGINES,
    OPTIONS,
    labels_of,
    load_arguments,
    make_model,
    make_module,
    make_new_items,
    make_ranking,
    need,
    same_bits,
)

GOLDEN = Path(__file__).parents[1] / "golden"


def save_and_load(model, folder, **given):
    model.save(folder)
    return pairity.load(folder, **given)


@pytest.fixture(scope="session")
def ranking():
    return make_ranking()


@pytest.fixture(scope="session")
def labels(ranking):
    return labels_of(ranking)


@pytest.fixture(scope="session")
def new_items():
    return make_new_items()


@pytest.fixture(scope="session")
def fit(ranking, labels):
    """A function that fits a model on the features of `ranking` or on others."""

    def fit_model(model, X=ranking.X):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PairityWarning)
            return model.fit(X, **labels)

    return fit_model


@pytest.fixture(scope="module", params=ENGINES)
def saved(fit, request, tmp_path_factory):
    """(engine, the fitted model, its folder), which tests do not change."""
    model = fit(make_model(request.param))
    folder = tmp_path_factory.mktemp(request.param) / "model"
    model.save(folder)
    return request.param, model, folder


@pytest.fixture(scope="module")
def linear(fit, tmp_path_factory):
    folder = tmp_path_factory.mktemp("linear") / "model"
    fit(make_model("linear")).save(folder)
    return folder


@pytest.fixture
def folder(linear, tmp_path):
    """A saved model to spoil."""
    return Path(shutil.copytree(linear, tmp_path / "model"))


def forge(folder, change):
    """Change what the manifest says as one who knows about its digest would."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest.pop("digest")
    change(manifest)
    manifest["digest"] = folders._digest(manifest)
    path.write_text(json.dumps(manifest))


def refused(folder, *words, error=ModelFileError, **given):
    with pytest.raises(error) as caught:
        pairity.load(folder, **given)
    for word in words:
        assert word in str(caught.value), str(caught.value)
    return str(caught.value)


# --- saved and loaded -----------------------------------------------------------------------------


def test_bit_for_bit(ranking, new_items, saved):
    engine, model, folder = saved
    loaded = pairity.load(folder, **load_arguments(engine))
    for X in (new_items, ranking.X):
        assert same_bits(loaded.predict(X), model.predict(X))
    assert type(loaded) is FairRanker
    assert type(loaded.ranker_) is type(model.ranker_)


def test_all_that_was_learned(saved):
    engine, model, folder = saved
    loaded = pairity.load(folder, **load_arguments(engine))
    assert loaded.groups_ == model.groups_ == loaded.pair_weights_.groups
    assert np.array_equal(loaded.pair_weights_, model.pair_weights_)
    assert np.array_equal(loaded.lambda_, model.lambda_)
    assert str(loaded.outcome_) == str(model.outcome_)
    assert loaded.violation_ == model.violation_
    assert loaded.training_digest_ == model.training_digest_
    assert loaded.n_features_in_ == 5
    assert not hasattr(loaded, "feature_names_in_")
    assert len(loaded.history_) == len(model.history_)
    for after, before in zip(loaded.history_, model.history_, strict=True):
        assert np.array_equal(after.delta, before.delta, equal_nan=True)
        assert np.array_equal(after.lambda_, before.lambda_)
        for name in ("number", "violation", "auc", "seconds"):
            assert getattr(after, name) == getattr(before, name)
    learnt = {name for name in vars(model) if name.endswith("_") and name != "history_"}
    assert learnt <= set(vars(loaded))
    inner = {name for name in vars(model.ranker_) if name.endswith("_")}
    assert inner <= set(vars(loaded.ranker_))


def test_a_clone_fits_to_the_same_model(fit, new_items, saved):
    engine, model, folder = saved
    loaded = pairity.load(folder, **load_arguments(engine))
    again = fit(clone(loaded))
    assert same_bits(again.predict(new_items), model.predict(new_items))
    assert type(loaded.ranker) is type(model.ranker)
    own = {name: value for name, value in model.get_params(deep=False).items() if name != "ranker"}
    assert own == {name: getattr(loaded, name) for name in own}
    if engine not in ("torch", "newton"):
        assert repr(loaded) == repr(model)


def test_saved_again_it_is_the_same(new_items, saved, tmp_path):
    engine, _, folder = saved
    loaded = pairity.load(folder, **load_arguments(engine))
    again = save_and_load(loaded, tmp_path / "again", **load_arguments(engine))
    assert same_bits(again.predict(new_items), loaded.predict(new_items))
    first, second = (json.loads((at / "manifest.json").read_text()) for at in
                     (folder, tmp_path / "again"))  # fmt: skip
    for name in ("model", "ranker", "versions"):
        assert first[name] == second[name]


def test_a_ranker_alone(ranking, new_items, saved, tmp_path):
    engine, model, _ = saved
    ranker = clone(model.ranker_)
    ranker.fit(ranking.X, ranking.y, qid=ranking.qid)
    loaded = save_and_load(ranker, tmp_path / "ranker", **load_arguments(engine))
    assert type(loaded) is type(ranker)
    assert same_bits(loaded.predict(new_items), ranker.predict(new_items))
    assert "model" not in json.loads((tmp_path / "ranker" / "manifest.json").read_text())
    with pytest.raises(InputError, match="X has 4 features"):
        loaded.predict(new_items[:, :4])


def test_the_manifest(saved):
    engine, model, folder = saved
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["format"], manifest["format_version"]) == ("pairity model", folders.VERSION)
    assert set(os.listdir(folder)) == {"manifest.json", *manifest["files"]}
    assert manifest["versions"]["pairity"] == pairity.__version__
    assert manifest["versions"]["numpy"] == np.__version__
    for library in ENGINES[engine]:
        assert manifest["versions"][library][0].isdigit()
    said = manifest["model"]
    assert said["constraint"]["name"] == "inter"
    assert said["settings"]["tolerance"] == OPTIONS["tolerance"]
    assert said["pair_weights"] == model.pair_weights_.table.tolist()
    assert said["features"] == {"number": 5, "names": None, "types": "float64"}
    sizes = {"items": 360, "queries": 30, "equal_queries": False}
    assert said["training"] == {**sizes, "digest": model.training_digest_}
    described = (Path(__file__).parents[2] / "MODEL_FORMAT.md").read_text()
    for name in (*manifest, *(f"model.{key}" for key in said if key != "class")):
        assert f"`{name}`" in described or f"`{name}." in described, name


def test_nothing_is_pickled(new_items, saved, monkeypatch):
    engine, model, folder = saved

    def never(*_, **__):
        raise AssertionError("unpickled")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, never)
    loaded = pairity.load(folder, **load_arguments(engine))
    assert same_bits(loaded.predict(new_items), model.predict(new_items))
    for path in folder.iterdir():
        assert b"cposix" not in path.read_bytes()
        assert not path.read_bytes().startswith(b"\x80")


def test_settings_of_every_kind(fit, new_items, tmp_path):
    constraint = InterGroup(
        average="pair", only=[("group 1", "group 2")], target={("group 1", "group 2"): 0.01}
    )
    model = FairRanker(
        constraint=constraint, solver=PlainStep(eta=np.float64(0.5)), validation=0.25,
        random_state=np.int64(4), progress=False, max_rounds=2, tolerance=0.2,
    )  # fmt: skip
    loaded = save_and_load(fit(model), tmp_path / "model")
    assert loaded.get_params() == model.get_params()
    assert same_bits(fit(clone(loaded)).predict(new_items), model.predict(new_items))


def test_marginal_multipliers_are_by_group(fit, tmp_path):
    model = fit(FairRanker(constraint="marginal", **OPTIONS))
    loaded = save_and_load(model, tmp_path / "model")
    assert loaded.lambda_.shape == (2,)
    assert np.array_equal(loaded.lambda_, model.lambda_)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_names_and_types_of_features(ranking, fit, new_items, tmp_path, library):
    pytest.importorskip(library, reason=f"{library} is not installed")
    from pairity._utils.text import make_frame

    columns = {name: ranking.X[:, k].tolist() for k, name in enumerate("vwxyz")}
    columns["y"] = np.arange(len(ranking.X)).tolist()
    table = make_frame(columns, library)
    model = fit(FairRanker(**OPTIONS), table)
    loaded = save_and_load(model, tmp_path / "model")
    assert same_bits(loaded.predict(table), model.predict(table))
    features = json.loads((tmp_path / "model" / "manifest.json").read_text())["model"]["features"]
    assert features["names"] == list("vwxyz")
    assert features["types"] == ["Float64", "Float64", "Float64", "Int64", "Float64"]
    turned = make_frame(dict(reversed(columns.items())), library)
    for X, words in (
        (turned, "must be in the same order"),
        (make_frame({name: columns[name] for name in "vwxy"}, library), "z"),
        (make_frame({f"{name}{name}": columns[name] for name in "vwxyz"}, library), "vv"),
        (new_items[:, :4], "X has 4 features, but FairRanker is expecting 5"),
    ):
        with pytest.raises(InputError, match=words):
            loaded.predict(X)


def test_sparse_features(ranking, fit, tmp_path):
    X = sp.csr_array(np.where(np.abs(ranking.X) < 0.7, 0.0, ranking.X))
    for engine in ("linear", "lightgbm", "xgboost", "catboost"):
        if any(map(_absent, ENGINES[engine])):
            continue
        model = fit(make_model(engine), X)
        loaded = save_and_load(model, tmp_path / engine)
        assert same_bits(loaded.predict(X), model.predict(X))
        assert same_bits(loaded.predict(X[:3].toarray()), model.predict(X[:3].toarray()))


def _absent(library):
    import importlib.util

    return importlib.util.find_spec(library) is None


def categorical_table(ranking):
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    table = pd.DataFrame(ranking.X.copy(), columns=list("abcde"))
    table["c"] = pd.Categorical(
        np.array(["low", "mid", "high"])[np.digitize(ranking.X[:, 2], [0, 1])]
    )
    table.loc[::7, "a"] = np.nan
    table.loc[::11, "c"] = None
    return table


@pytest.mark.parametrize("engine", ["lightgbm", "xgboost", "catboost", "newton"])
def test_categories_and_missing_values(ranking, fit, tmp_path, engine):
    need(engine)
    table = categorical_table(ranking)
    if engine == "lightgbm":
        from lightgbm import LGBMRanker

        ranker = LGBMRanker(n_estimators=8, num_leaves=4, min_child_samples=5, n_jobs=1)
    elif engine == "xgboost":
        from xgboost import XGBRanker

        ranker = XGBRanker(n_estimators=8, max_depth=3, enable_categorical=True, n_jobs=1)
    elif engine == "catboost":
        from catboost import CatBoostRanker

        table["c"] = table["c"].astype(object).fillna("none")
        ranker = CatBoostRanker(iterations=8, depth=3, cat_features=["c"], thread_count=1)
    else:
        from sklearn.ensemble import HistGradientBoostingRegressor

        from pairity.rankers.regressor import RegressorRanker

        few = HistGradientBoostingRegressor(max_iter=2, max_leaf_nodes=4, random_state=0)
        ranker = RegressorRanker(few, n_estimators=2)
    model = fit(FairRanker(ranker, tolerance=0.05, max_rounds=1), table)
    loaded = save_and_load(model, tmp_path / "model")
    assert same_bits(loaded.predict(table), model.predict(table))
    turned = table[::-1].copy()
    if engine != "catboost":
        turned["c"] = turned["c"].cat.reorder_categories(["mid", "high", "low"])
    assert same_bits(loaded.predict(turned), model.predict(turned))
    assert list(loaded.feature_names_in_) == list("abcde")
    with pytest.raises(InputError, match="same order"):
        loaded.predict(table[list("bacde")])
    again = fit(copy.deepcopy(loaded), table)
    assert same_bits(again.predict(table), model.predict(table))


@pytest.mark.parametrize("engine", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("categories", [False, True])
def test_after_early_stopping(ranking, tmp_path, engine, categories):
    need(engine)
    table = categorical_table(ranking) if categories else ranking.X
    if engine == "lightgbm":
        import lightgbm

        ranker = lightgbm.LGBMRanker(n_estimators=60, num_leaves=8, min_child_samples=2, n_jobs=1)
        more = {"callbacks": [lightgbm.early_stopping(2, verbose=False)]}
    else:
        from xgboost import XGBRanker

        ranker = XGBRanker(
            n_estimators=60, early_stopping_rounds=2, n_jobs=1, enable_categorical=categories
        )
        more = {}
    from pairity.rankers.adapters import as_ranker

    ranker = as_ranker(ranker)
    ranker.fit(table, ranking.y, qid=ranking.qid, eval_set=[(table[:60], ranking.y[:60][::-1])],
               eval_qid=[ranking.qid[:60]], **more)  # fmt: skip
    loaded = save_and_load(ranker, tmp_path / "ranker")
    assert same_bits(loaded.predict(table), ranker.predict(table))
    assert loaded.best_iteration_ == ranker.best_iteration_ < 55
    assert loaded.evals_result_ == ranker.evals_result_


@pytest.mark.parametrize("booster", ["dart", "gblinear"])
def test_other_boosters(fit, new_items, tmp_path, booster):
    need("xgboost")
    from xgboost import XGBRanker

    ranker = XGBRanker(n_estimators=6, booster=booster, n_jobs=1, random_state=0)
    model = fit(FairRanker(ranker, max_rounds=1))
    loaded = save_and_load(model, tmp_path / "model")
    assert same_bits(loaded.predict(new_items), model.predict(new_items))


def test_many_groups_with_odd_names(ranking, tmp_path):
    names = ["<script>", '"quoted"', "日本", "\ud800", "a" * 10_000, "../../x", "null"]
    groups = np.array(names, dtype=object)[np.arange(len(ranking.y)) % len(names)]
    model = FairRanker(constraint="statistical", max_rounds=0)
    model.fit(ranking.X, ranking.y, qid=ranking.qid, sensitive_features=groups)
    loaded = save_and_load(model, tmp_path / "model")
    assert loaded.groups_ == model.groups_


# --- what no file can hold ----------------------------------------------------------------------


def my_gap(queries, scores):
    return np.zeros(queries.n_groups)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("constraint", my_gap, "the function my_gap"),
        ("random_state", np.random.RandomState(0), "a RandomState"),
        ("validation", {}, "a dict"),  # the test fills it
        ("solver", type("Own", (PlainStep,), {})(), "a Own"),
    ],
)
def test_a_setting_that_is_not_stored(ranking, labels, fit, new_items, tmp_path, name, value, said):
    if name == "validation":
        value = {"X": ranking.X, **labels}
    model = fit(FairRanker(**{**OPTIONS, name: value}))
    loaded = save_and_load(model, tmp_path / "model")
    assert same_bits(loaded.predict(new_items), model.predict(new_items))
    assert said in repr(getattr(loaded, name))
    for unfitted in (loaded, clone(loaded), copy.deepcopy(loaded)):
        with pytest.raises(InputError, match=rf"{name} was {said}.*set_params\({name}=") as caught:
            fit(unfitted)
        assert not isinstance(caught.value, ModelFileError)
    if name == "constraint":
        manifest = json.loads((tmp_path / "model" / "manifest.json").read_text())
        assert manifest["model"]["constraint"] == {"name": "my_gap"}
    again = save_and_load(loaded, tmp_path / "again")
    assert getattr(again, name) == getattr(loaded, name)
    fit(clone(loaded).set_params(**{name: value}))


def test_an_engines_setting_that_is_not_stored(fit, new_items, tmp_path):
    need("lightgbm")
    from lightgbm import LGBMRanker

    state = np.random.RandomState(0)
    model = fit(FairRanker(LGBMRanker(n_estimators=3, random_state=state, n_jobs=1), **OPTIONS))
    loaded = save_and_load(model, tmp_path / "model")
    assert same_bits(loaded.predict(new_items), model.predict(new_items))
    with pytest.raises(InputError, match=r"ranker.random_state was .*ranker__random_state="):
        fit(clone(loaded))
    fit(clone(loaded).set_params(ranker__random_state=0))


def test_saving_draws_no_random_number(fit, new_items, tmp_path):
    need("xgboost")
    from xgboost import XGBRanker

    state = np.random.RandomState(0)
    model = fit(FairRanker(XGBRanker(n_estimators=3, random_state=state, n_jobs=1), **OPTIONS))
    model.ranker_.estimator.random_state = state
    before = state.get_state()[2]
    loaded = save_and_load(model, tmp_path / "model")
    assert state.get_state()[2] == before  # XGBoost would draw when asked for its parameters
    assert same_bits(loaded.predict(new_items), model.predict(new_items))


def test_an_object_of_another_class_is_not_stored(fit, new_items, tmp_path):
    need("lightgbm")
    from lightgbm import LGBMRanker

    class Mine(LGBMRanker):
        pass

    model = fit(FairRanker(Mine(n_estimators=3, n_jobs=1), **OPTIONS))
    loaded = save_and_load(model, tmp_path / "model")
    assert same_bits(loaded.predict(new_items), model.predict(new_items))
    with pytest.raises(InputError, match="ranker was a Mine"):
        fit(clone(loaded))


def test_training_data_is_not_in_the_files(ranking, labels, fit, tmp_path):
    model = fit(FairRanker(**OPTIONS))
    loaded = save_and_load(model, tmp_path / "model")
    with pytest.raises(InputError, match="does not have its training data"):
        loaded.export_pairs(tmp_path / "a.pairs")
    model.export_pairs(tmp_path / "a.pairs")
    loaded.export_pairs(tmp_path / "b.pairs", labels)
    assert (tmp_path / "a.pairs").read_bytes() == (tmp_path / "b.pairs").read_bytes()
    first, second = (m.path(ranking.X, **labels, values=[0, 1]) for m in (model, loaded))
    assert first[1].violation == second[1].violation
    held = fit(FairRanker(validation=0.25, random_state=0, **OPTIONS))
    loaded = save_and_load(held, tmp_path / "held")
    first, second = (m.path(ranking.X, **labels, values=[1]) for m in (held, loaded))
    assert first[0].violation == second[0].violation == pytest.approx(held.violation_, abs=1e-4)


def test_rankers_that_cannot_be_saved(fit, tmp_path):
    class Own:
        def fit_pairs(self, *_, **__):
            self.coef_ = np.ones(5)
            return self

        def predict(self, X):
            return X @ self.coef_

        def get_params(self, **_):
            return {}

    class Sub(LinearRanker):
        pass

    for ranker, name in ((Own(), "Own"), (Sub(), "Sub")):
        with pytest.raises(ModelFileError, match=f"cannot save the ranker {name}"):
            fit(FairRanker(ranker, **OPTIONS)).save(tmp_path / "model")
    with pytest.raises(NotFittedError):
        FairRanker().save(tmp_path / "model")
    with pytest.raises(NotFittedError):
        LinearRanker().save(tmp_path / "model")
    assert not os.listdir(tmp_path)


# --- PyTorch -------------------------------------------------------------------------------------


def test_a_torch_model_needs_its_module():
    need("torch")
    import torch

    folder = GOLDEN / "v1" / "torch"
    refused(folder, "not its code (it was a Sequential)", "load(path, module=my_module)")
    refused(folder, "module is", module=torch.nn.Linear)
    refused(folder, "module is 3", module=3)
    refused(
        folder, "is not the one that was saved", "Size([7])", "Size([4])", module=make_module(7)
    )
    refused(folder, "torch.float64", module=make_module().double())
    deeper = torch.nn.Sequential(*make_module(), torch.nn.Linear(1, 1))
    refused(folder, 'Missing key(s) in state_dict: "1.3.weight"', module=deeper)
    refused(
        folder, "Unexpected key(s) in state_dict", module=torch.nn.Sequential(torch.nn.Linear(5, 4))
    )
    module = make_module()
    before = copy.deepcopy(module.state_dict())
    pairity.load(folder, module=module)
    assert all(torch.equal(before[name], now) for name, now in module.state_dict().items())


def test_modules_of_other_kinds(ranking, new_items, tmp_path):
    need("torch")
    import torch

    from pairity.rankers.torch import TorchRanker

    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one = torch.nn.Linear(5, 5, bias=False, dtype=torch.float64)
            self.two = torch.nn.Linear(5, 5, bias=False, dtype=torch.float64)
            self.two.weight = self.one.weight
            self.norm = torch.nn.BatchNorm1d(5, dtype=torch.float64)

        def forward(self, X):
            return self.two(torch.tanh(self.norm(self.one(X)))).sum(dim=1)

    torch.manual_seed(0)
    module = Tied()
    ranker = TorchRanker(module, epochs=2, standardise=False, random_state=0, device="cpu")
    ranker.fit(ranking.X, ranking.y, qid=ranking.qid)
    loaded = save_and_load(ranker, tmp_path / "ranker", module=Tied())
    assert same_bits(loaded.predict(new_items), ranker.predict(new_items))


def test_module_is_for_torch_only(linear):
    refused(linear, "module is for PyTorch", "LinearRanker", error=InputError, module=object())


# --- scikit-learn --------------------------------------------------------------------------------


def test_regressors(ranking, new_items, tmp_path):
    need("newton")
    from sklearn.ensemble import ExtraTreesRegressor, GradientBoostingRegressor
    from sklearn.linear_model import SGDRegressor
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.tree import DecisionTreeRegressor

    from pairity.rankers.regressor import RegressorRanker

    for number, regressor in enumerate(
        [
            DecisionTreeRegressor(max_depth=2, random_state=0),
            ExtraTreesRegressor(n_estimators=2, max_depth=2, random_state=0),
            GradientBoostingRegressor(n_estimators=2, random_state=0),
            MLPRegressor(hidden_layer_sizes=(3,), max_iter=300, tol=1e-2, random_state=0),
            make_pipeline(StandardScaler(), SGDRegressor(random_state=0)),
        ]
    ):
        ranker = RegressorRanker(regressor, n_estimators=2, loss="hinge")
        ranker.fit(ranking.X, ranking.y, qid=ranking.qid)
        loaded = save_and_load(ranker, tmp_path / f"{number}")
        assert same_bits(loaded.predict(new_items), ranker.predict(new_items))
        assert repr(loaded) == repr(ranker)


def test_other_types_are_neither_saved_nor_constructed(ranking, tmp_path):
    need("newton")
    import skops.io
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    from pairity.rankers.regressor import RegressorRanker

    ranker = RegressorRanker(
        make_pipeline(FunctionTransformer(my_gap_free), Ridge()), n_estimators=2
    )
    ranker.fit(ranking.X, ranking.y, qid=ranking.qid)
    with pytest.raises(ModelFileError, match=r"test_persistence\.my_gap_free"):
        ranker.save(tmp_path / "ranker")
    assert not os.listdir(tmp_path)

    folder = tmp_path / "forged"
    RegressorRanker(Ridge(), n_estimators=2).fit(ranking.X, ranking.y, qid=ranking.qid).save(folder)
    for content in (
        {"regressor": Ridge(), "estimators": [Hostile()]},
        {"regressor": Ridge(), "estimators": [os.system]},
        {"regressor": Ridge(), "estimators": [functools.partial(os.system, "true")]},
    ):
        replace_file(folder, "ranker.skops", skops.io.dumps(content))
        refused(folder, "only NumPy's and scikit-learn's own types")
    for content in ([], {"regressor": Ridge()}, {"regressor": Ridge(), "estimators": [1]}):
        replace_file(folder, "ranker.skops", skops.io.dumps(content))
        refused(folder, "ranker.skops", "no list of regressors")


def my_gap_free(X):
    return X


class Hostile:
    """Notices when anybody makes one of its kind."""

    def __setstate__(self, state):
        raise AssertionError("made")

    def __getstate__(self):
        return {"a": 1}


def replace_file(folder, name, data):
    """Another file in its place, with the manifest forged to go with it."""
    (folder / name).write_bytes(data)
    listed = {"size": len(data), "sha256": folders._sha256(data)}
    forge(folder, lambda manifest: manifest["files"].update({name: listed}))


# --- what can be wrong with a folder -------------------------------------------------------------


def test_not_a_model(tmp_path, folder):
    refused(tmp_path / "nowhere", "does not exist", "save()")
    refused(tmp_path, "contains no manifest.json")
    refused(folder / "manifest.json", "is a file")
    for text in ("{}", "[]", "3", '{"format": "other"}'):
        (folder / "manifest.json").write_text(text)
        refused(folder, "manifest.json", "is not in format 'pairity model'")


@pytest.mark.parametrize("text", ["", "{", "\x00", '{"a": 1, "a": 2}', "[" * 100_000, "{'a': 1}"])
def test_invalid_json(folder, text):
    (folder / "manifest.json").write_text(text)
    refused(folder, "is not JSON", "Get the model again")


def test_other_encodings(folder):
    path = folder / "manifest.json"
    path.write_bytes(path.read_text().encode("utf-16"))
    refused(folder, "is not JSON")


def test_a_newer_format(folder):
    forge(folder, lambda manifest: manifest.update(format_version=3, news=[1]))
    refused(folder, "format version 3", "reads versions up to 2", "pip install --upgrade pairity")
    for version in (0, -1, "1", 1.0, None, True):
        forge(folder, lambda manifest, v=version: manifest.update(format_version=v))
        refused(folder, "format_version")


def test_a_changed_manifest(folder):
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"tolerance": 0.05', '"tolerance": 0.06'))
    refused(folder, "manifest.json", "was changed after it was saved")
    path.write_text(path.read_text().replace('"digest"', '"digits"', 1))
    refused(folder, "was changed after it was saved")


def test_spaces_in_a_manifest_do_not_matter(folder):
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()), indent=7))
    pairity.load(folder)


def test_a_missing_file(folder):
    (folder / "ranker.npz").unlink()
    refused(folder, "ranker.npz' is missing")


def test_an_unknown_file(folder):
    (folder / "notes.txt").write_text("mine")
    refused(folder, "'notes.txt'", "does not list", "move it away")


def test_changed_and_truncated_files(saved, tmp_path):
    engine, _, original = saved
    folder = Path(shutil.copytree(original, tmp_path / "model"))
    name = next(path.name for path in folder.iterdir() if path.suffix != ".json")
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:-1])
    refused(
        folder, name, f"has {len(content) - 1} bytes, but {len(content)}", **load_arguments(engine)
    )
    (folder / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    refused(folder, name, "its SHA-256 is not that", **load_arguments(engine))
    (folder / name).write_bytes(content)
    pairity.load(folder, **load_arguments(engine))


@pytest.mark.parametrize(
    "name",
    ["../ranker.npz", "/etc/passwd", "a/b", "a\\b", ".", "..", "", ".hidden", "manifest.json",
     "C:x", "a\x00b", "a\n", "ranker.npz/", "x" * 300 + "/y", "ｒanker.npz"],
)  # fmt: skip
def test_paths_in_the_manifest(folder, name):
    def change(manifest):
        manifest["files"][name] = manifest["files"]["ranker.npz"]

    forge(folder, change)
    refused(folder, "not the plain name of a file")


def test_links(folder, tmp_path):
    (folder / "ranker.npz").rename(tmp_path / "elsewhere.npz")
    (folder / "ranker.npz").symlink_to(tmp_path / "elsewhere.npz")
    refused(folder, "ranker.npz", "not a regular file")
    (folder / "ranker.npz").unlink()
    os.mkfifo(folder / "ranker.npz")  # which one could wait for without end
    refused(folder, "ranker.npz", "not a regular file")
    (folder / "manifest.json").rename(tmp_path / "manifest.json")
    (folder / "manifest.json").symlink_to(tmp_path / "manifest.json")
    refused(folder, "manifest.json", "not a regular file")


def test_a_link_to_the_folder_is_fine(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    pairity.load(tmp_path / "link").save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    pairity.load(folder)


def test_too_large_a_manifest(folder, monkeypatch):
    monkeypatch.setattr(folders, "_MAX_MANIFEST_BYTES", 100)
    refused(folder, "too large for a manifest")


def test_sizes_that_no_machine_has(folder):
    def change(manifest):
        manifest["files"]["ranker.npz"]["size"] = 2**62

    forge(folder, change)
    refused(folder, "was truncated or changed")


def test_missing_extras(saved, tmp_path, monkeypatch):
    engine, model, folder = saved
    given = load_arguments(engine)
    for library in ENGINES[engine]:
        extra = "torch" if library == "safetensors" else library
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, library, None)
            for part in ("io", "torch"):
                patch.setitem(sys.modules, f"{library}.{part}", None)
            words = (library, f'pip install "pairity[{extra}]"')
            refused(folder, *words, error=MissingExtraError, **given)
            if library in ("safetensors", "skops"):
                with pytest.raises(MissingExtraError, match=library):
                    model.save(tmp_path / "other")


@pytest.mark.parametrize(
    ("where", "value", "words"),
    [
        (("ranker", "class"), "os.system", "ranker.class is 'os.system'"),
        (("ranker", "file"), "other", "ranker.file"),
        (("ranker", "settings", "alpha"), {"object": "system", "settings": {}}, "not one of"),
        (("ranker", "settings", "beta"), 1, "ranker.settings.beta is unknown"),
        (("ranker", "features", "number"), 6, "one number for each of 6 features"),
        (("ranker", "state", "loss"), "x", "ranker.state.loss is 'x', not a number"),
        (("ranker", "state", "n_iter"), -1, "ranker.state.n_iter is -1"),
        (("model", "class"), "Other", "model.class"),
        (("model", "features", "number"), 4, "model.features.number"),
        (("model", "features", "names"), ["a"], "1 names for 5"),
        (("model", "groups"), ["a", "a"], "model.pair_weights is refused by PairWeights"),
        (("model", "groups"), ["a", 1], "model.groups"),
        (("model", "pair_weights"), [[1.0, 1.0], [1.0]], "rows of different lengths"),
        (("model", "pair_weights"), [[1.0, -1.0], [1.0, 1.0]], "is refused by PairWeights"),
        (("model", "lambda"), [1.0, 2.0, 3.0], "model.lambda is of shape (3,)"),
        (("model", "outcome", "kind"), "GOOD", "model.outcome.kind is 'GOOD'"),
        (("model", "ranker_given"), "wrapped", "model.ranker_given"),
        (("model", "history"), [3], "model.history[0]"),
        (("model", "settings", "constraint"), {"object": "InterGroup", "settings": {"x": 1}}, "x"),
        (("model", "settings", "constraint"),
         {"object": "InterGroup", "settings": {"average": "no"}}, "got 'no'"),
        (("files",), [], "files is [], not an object"),
        (("files", "ranker.npz", "sha256"), None, "sha256"),
    ],
)  # fmt: skip
def test_wrong_entries_of_a_manifest(folder, where, value, words):
    def change(manifest):
        for key in where[:-1]:
            manifest = manifest[key]
        manifest[where[-1]] = value

    forge(folder, change)
    refused(folder, words)


# --- where it is written -------------------------------------------------------------------------


@pytest.mark.parametrize("in_one_step", [True, False])
def test_a_model_is_replaced(fit, folder, tmp_path, monkeypatch, in_one_step):
    if not in_one_step:
        monkeypatch.setattr(folders, "_exchange", lambda *_: False)
    other = fit(make_model("linear", constraint="statistical"))
    other.save(folder)
    assert pairity.load(folder).constraint == "statistical"
    assert os.listdir(tmp_path) == ["model"]
    (tmp_path / "empty").mkdir()
    other.save(str(tmp_path / "empty"))
    pairity.load(str(tmp_path / "empty"))


def test_places_that_are_refused(folder, tmp_path):
    model = pairity.load(folder)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    (tmp_path / "file").write_text("x")
    (folder / "notes.txt").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    for place, words in (
        (tmp_path / "mine", "contains 'thesis.tex' and is not a saved model"),
        (tmp_path / "file", "is a file"),
        (tmp_path / "nowhere" / "model", "nowhere' is not a folder"),
        (folder, "'notes.txt', which is not part of it and would be lost"),
    ):
        with pytest.raises(ModelFileError, match=words):
            model.save(place)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
@pytest.mark.parametrize("step", ["first", "second", "move"])
def test_an_interrupted_save_leaves_the_old_model(fit, folder, tmp_path, monkeypatch, error, step):
    other = fit(make_model("linear", constraint="statistical"))
    calls = []
    real = folders._write if step != "move" else Path.rename

    def interrupted(path, *rest):
        calls.append(path)
        if len(calls) == (1 if step == "first" else 2):
            raise error
        return real(path, *rest)

    if step == "move":
        monkeypatch.setattr(folders, "_exchange", lambda *_: False)
        monkeypatch.setattr(Path, "rename", interrupted)
    else:
        monkeypatch.setattr(folders, "_write", interrupted)
    kind = KeyboardInterrupt if error is KeyboardInterrupt else ModelFileError
    with pytest.raises(kind, match=None if error is KeyboardInterrupt else "No space left"):
        other.save(folder)
    monkeypatch.undo()
    assert len(calls) >= 1
    assert os.listdir(tmp_path) == ["model"]
    assert pairity.load(folder).constraint == "inter"


def test_a_save_that_is_killed_leaves_the_old_model(folder, tmp_path):
    code = """if True:
        import os, sys, pairity
        from pairity._utils import model_folder
        model = pairity.load(sys.argv[1])
        model.constraint = "statistical"
        write = model_folder._write
        model_folder._write = lambda *given: (write(*given), os._exit(9))
        model.save(sys.argv[1])
    """
    done = subprocess.run([sys.executable, "-c", code, str(folder)], check=False)
    assert done.returncode == 9
    assert len(os.listdir(tmp_path)) == 2
    assert pairity.load(folder).constraint == "inter"


def test_a_setting_of_a_later_version_takes_its_default(folder):
    def change(manifest):
        del manifest["model"]["settings"]["schedule"]
        del manifest["ranker"]["settings"]["tol"]

    forge(folder, change)
    loaded = pairity.load(folder)
    assert (loaded.schedule, loaded.ranker.tol) == ("auto", 1e-6)


# --- anything at all -----------------------------------------------------------------------------


def test_flipped_and_truncated_bytes_give_a_model_file_error(saved, tmp_path):
    engine, _, original = saved
    contents = {path.name: path.read_bytes() for path in original.iterdir()}
    more = load_arguments(engine)
    folder = Path(shutil.copytree(original, tmp_path / "model"))

    @settings(max_examples=60)
    @given(st.data())
    def run(data):
        name = data.draw(st.sampled_from(sorted(contents)))
        content = bytearray(contents[name])
        at = data.draw(st.integers(0, len(content) - 1))
        if data.draw(st.booleans()):
            del content[at:]
        else:
            content[at] ^= data.draw(st.integers(1, 255))
        (folder / name).write_bytes(content)
        try:
            pairity.load(folder, **more)
        except ModelFileError:
            pass
        else:  # a space in the manifest, or its last line's end
            assert json.loads(content) == json.loads(contents[name])
        finally:
            (folder / name).write_bytes(contents[name])

    run()


def test_a_number_that_is_too_large_gives_a_model_file_error(saved, tmp_path):
    engine, _, original = saved
    folder = Path(shutil.copytree(original, tmp_path / "model"))
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    content["model"]["violation"] = 1.5
    path.write_text(json.dumps(content).replace('"violation": 1.5', '"violation": 1e999'))
    with pytest.raises(ModelFileError, match="digest"):
        pairity.load(folder, **load_arguments(engine))


def test_forged_files_give_a_model_file_error(new_items, saved, tmp_path):
    """Readers that are not an engine's hold against files whose digests were forged as well."""
    engine, _, original = saved
    if engine not in ("linear", "torch", "newton"):
        pytest.skip("the engine reads its own file, and may crash on a forged one")
    folder = Path(shutil.copytree(original, tmp_path / "model"))
    name = next(path.name for path in folder.iterdir() if path.suffix != ".json")
    original_bytes = (folder / name).read_bytes()
    more = load_arguments(engine)

    @settings(max_examples=150)
    @given(st.data())
    def run(data):
        content = bytearray(original_bytes)
        for _ in range(data.draw(st.integers(1, 3))):
            at = data.draw(st.integers(0, max(0, len(content) - 1)))
            if data.draw(st.integers(0, 4)) == 0:
                del content[at:]
            elif len(content):
                content[at] = data.draw(st.integers(0, 255))
        replace_file(folder, name, bytes(content))
        try:
            loaded = pairity.load(folder, **more)
        except ModelFileError:
            return
        if engine != "newton":  # whose regressors may be of any kind now
            assert loaded.predict(new_items).shape == (len(new_items),)

    run()


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5) | st.sampled_from(["array", "tuple", "dict", "float", "object", "nan"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["array", "dtype", "tuple", "dict", "float", "object", "settings",
                         "not_stored", "class", "params", "size"]) | st.text(max_size=3),
        inner, max_size=3,
    ),
    max_leaves=8,
)  # fmt: skip


def places(value, at=()):
    """Every place in a manifest."""
    listed = enumerate(value) if isinstance(value, list) else ()
    for key, part in value.items() if isinstance(value, dict) else listed:
        yield (*at, key)
        yield from places(part, (*at, key))


def test_forged_manifests_give_a_model_file_error(saved, tmp_path):
    engine, _, unspoilt = saved
    folder = Path(shutil.copytree(unspoilt, tmp_path / "model"))
    original = (folder / "manifest.json").read_text()
    anywhere = list(places(json.loads(original)))
    more = load_arguments(engine)

    @settings(max_examples=120)
    @given(st.sampled_from(anywhere), ANYTHING, st.booleans())
    def run(place, value, gone):
        def change(manifest):
            for key in place[:-1]:
                manifest = manifest[key]
            if gone:
                del manifest[place[-1]]
            else:
                manifest[place[-1]] = value

        (folder / "manifest.json").write_text(original)
        if place == ("digest",):
            return
        forge(folder, change)
        with suppress(ModelFileError):
            pairity.load(folder, **more)

    run()


# --- what earlier versions wrote -----------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("version", sorted(path.name for path in GOLDEN.glob("v*")))
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.InconsistentVersionWarning")
def test_golden_models_are_read(version, engine):
    need(engine)
    expected = json.loads((GOLDEN / version / "expected.json").read_text())
    loaded = pairity.load(GOLDEN / version / engine, **load_arguments(engine))
    scores = loaded.predict(np.array(expected["X"]))
    assert scores == pytest.approx(np.array(expected["scores"][engine]), rel=1e-6, abs=1e-9)
    assert loaded.groups_ == ("group 1", "group 2")
    assert loaded.tolerance == OPTIONS["tolerance"]


def test_every_version_has_golden_models():
    versions = range(1, folders.VERSION + 1)
    assert {path.name for path in GOLDEN.glob("v*")} == {f"v{number}" for number in versions}
    for number in versions:
        assert set(ENGINES) <= set(os.listdir(GOLDEN / f"v{number}"))
