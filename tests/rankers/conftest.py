"""Data for the tests of the adapters of boosters. Tests share them and must not change them."""

import numpy as np
import pandas as pd
import pytest

from pairity.datasets import make_biased_ranking
from support.boosters import NAMES, eval_sets


@pytest.fixture(scope="session")
def ranking():
    """40 queries of 15 items with 3 labels."""
    return make_biased_ranking(40, 15, n_labels=3, random_state=0)


@pytest.fixture(scope="session")
def labels(ranking):
    """The arguments of `fit` besides the features."""
    return {name: getattr(ranking, name) for name in ("y", "qid", "sensitive_features")}


@pytest.fixture(scope="session")
def data(ranking, labels):
    """The arguments of `fit`."""
    return {"X": ranking.X, **labels}


@pytest.fixture(scope="session")
def queries(ranking):
    return ranking.queries()


@pytest.fixture(scope="session")
def held_ranking():
    """10 other queries of 12 items."""
    return make_biased_ranking(10, 12, n_labels=3, random_state=1)


@pytest.fixture(scope="session")
def held_sets(held_ranking):
    """The other queries as the evaluation set of `fit`."""
    return eval_sets(held_ranking)


@pytest.fixture(scope="session")
def letters(ranking):
    """The last feature in three categories."""
    return np.array(["x", "y", "z"])[np.digitize(ranking.X[:, 4], [-0.5, 0.5])]


@pytest.fixture(scope="session")
def categorical(ranking, letters):
    """The features as a pandas table, the last one in categories."""
    return pd.DataFrame(ranking.X, columns=NAMES).assign(e=pd.Categorical(letters))
