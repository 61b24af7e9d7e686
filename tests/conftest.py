"""Shared by all tests: Hypothesis settings, the real data, small data, and Dask clusters.

Data of session fixtures are shared, so a test that changes them must copy them first.
"""

import gc
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "pairity",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
settings.load_profile("pairity")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets, beside the project; tests that need it skip without it."""
    folder = Path(os.environ.get("PAIRITY_SHARED", Path(__file__).parents[2] / "shared")) / "data"
    if not folder.is_dir():
        pytest.skip("the real data sets are not beside this checkout")
    return folder


# --- small data to fit on -------------------------------------------------------------------------


@pytest.fixture(scope="session")
def two_groups():
    """The arguments of `fit`: 12 queries of 20 items in two groups."""
    from support.fit_cases import make

    return make()


@pytest.fixture(scope="session")
def held_out():
    """The same for 8 other queries."""
    from support.fit_cases import make

    return make(8, 20, random_state=7)


@pytest.fixture(scope="session")
def frame(two_groups):
    """The features of `two_groups` as a pandas DataFrame with the columns `NAMES`."""
    import pandas as pd

    from support.fit_cases import NAMES

    return pd.DataFrame(two_groups["X"], columns=NAMES)


# --- Dask ----------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def table():
    """A table of biased rankings, for clusters; see `support.clusters.columns`."""
    from support.clusters import make_table

    return make_table()


@pytest.fixture(scope="module")
def spread(table):
    """The same table as a Dask DataFrame with four partitions."""
    from support.clusters import by_query

    return by_query(table, 4)


@pytest.fixture(scope="module")
def workers():
    """Two worker processes; restores the environment, in which nannies set OMP_NUM_THREADS=1."""
    from support.clusters import TwoWorkers

    before = dict(os.environ)
    two = TwoWorkers()
    yield two
    two.stop()
    gc.collect()  # closes the sockets that Dask leaves open, before other tests find them
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def client(workers):
    """A client of the two workers."""
    return workers.client()
