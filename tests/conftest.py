"""Shared by all tests: where the real data is, and quiet Hypothesis settings."""

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
