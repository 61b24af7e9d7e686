"""as_ranker: which adapter serves which model."""

import subprocess
import sys

import pytest
from sklearn.linear_model import LogisticRegression, Ridge, RidgeCV
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline

from pairity import InputError, LinearRanker, rankers
from pairity.rankers.adapters import as_ranker


@pytest.mark.parametrize(
    ("library", "kind", "adapter"),
    [
        ("lightgbm", "LGBMRanker", "LightGBMRanker"),
        ("xgboost", "XGBRanker", "XGBoostRanker"),
        ("catboost", "CatBoostRanker", "CatBoostPairRanker"),
    ],
)
def test_engines(library, kind, adapter):
    engine = pytest.importorskip(library, reason=f"{library} is not installed")
    model = getattr(engine, kind)()
    found = as_ranker(model)
    assert type(found).__name__ == adapter
    assert found.estimator is model  # configured by the caller, and the caller's own
    mine = type("Mine", (getattr(engine, kind),), {})()
    assert type(as_ranker(mine)).__name__ == adapter
    regressor = kind.replace("Ranker", "Regressor")
    with pytest.raises(InputError, match=rf"{regressor} is not a ranking model.*{kind}"):
        as_ranker(getattr(engine, regressor)())


def test_modules_of_torch():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    assert type(as_ranker(torch.nn.Linear(3, 1))).__name__ == "TorchRanker"


def test_rankers_and_regressors():
    assert isinstance(as_ranker(None), LinearRanker)
    ranker = LinearRanker(alpha=3.0)
    assert as_ranker(ranker) is ranker
    assert type(as_ranker(Ridge())).__name__ == "RegressorRanker"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (LinearRanker, r"is the class LinearRanker. Pass an instance: LinearRanker\(\)"),
        (KNeighborsRegressor(), "takes no sample_weight"),
        (LogisticRegression(), r"needs fit_pairs"),
        ("lightgbm", "str is not a ranker"),
        (3.0, "float is not a ranker"),
    ],
)
def test_what_is_no_ranker(wrong, message):
    with pytest.raises(InputError, match=message):
        as_ranker(wrong)


@pytest.mark.parametrize(
    "search", [GridSearchCV(Ridge(), {}), RidgeCV(), make_pipeline(RidgeCV(cv=5))], ids=repr
)
def test_what_would_cut_queries_is_refused(search):
    with pytest.raises(InputError, match=r"loses its pairs.*GroupKFold\(\).*pairity\.tune"):
        as_ranker(search)


@pytest.mark.parametrize("library", ["lightgbm", "xgboost", "catboost"])
def test_the_cross_validation_of_engines_is_refused(library):
    engine = pytest.importorskip(library, reason=f"{library} is not installed")
    searches = [engine.cv, *([engine.CVBooster()] if hasattr(engine, "CVBooster") else [])]
    for search in searches:
        with pytest.raises(InputError, match=r"(cv|CVBooster) splits the rows .* loses its pairs"):
            as_ranker(search)


def test_no_engine_is_imported_before_its_model():
    code = """
import sys
from pairity.rankers.adapters import as_ranker
import pairity.rankers.lightgbm, pairity.rankers.xgboost
as_ranker(None)
assert not {"lightgbm", "xgboost", "catboost", "torch"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_package_exports_every_adapter_without_importing_its_engine():
    code = (
        "import sys\n"
        "from pairity import rankers\n"
        "assert [getattr(rankers, name).__name__ for name in rankers.__all__] == rankers.__all__\n"
        "assert not {'lightgbm', 'xgboost', 'catboost', 'torch'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="'NewtonRanker'"):
        rankers.NewtonRanker  # noqa: B018
