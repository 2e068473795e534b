"""Shared by all tests: how many examples property tests draw, and reference data."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Before numpy is loaded: a test has one core, where several threads would wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# The suite draws the same few examples of each property every time, so that it says the same of
# the same code; `make draws` looks for new ones, at length. No deadline, and no check of how long a
# draw takes: a test on a busy machine is slow, not wrong.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("suite", _PATIENT, max_examples=30, derandomize=True)
settings.register_profile("long", _PATIENT, max_examples=600)
settings.load_profile("suite")

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Reference data, beside the checkout or in SERVETWIN_SHARED; skips the test without them."""
    path = Path(os.environ.get("SERVETWIN_SHARED", REPOSITORY / ".." / "shared"))
    if not path.is_dir():
        pytest.skip(f"no reference data at {path}")
    return path
