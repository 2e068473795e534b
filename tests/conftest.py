"""Shared by all tests: how many examples property tests draw, and reference data."""

import gc
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.time_limits import time_limit

# Before numpy is loaded: a test has one core, where several threads would wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Help and tables would be as wide as the terminal from which the tests were started.
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)
# The suite draws the same few examples of each property every time, so that it says the same of
# the same code; `make draws` looks for new ones, at length. No deadline, and no check of how long a
# draw takes: a test on a busy machine is slow, not wrong.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("suite", _PATIENT, max_examples=12, derandomize=True)
settings.register_profile("long", _PATIENT, max_examples=600)
settings.load_profile("suite")

# The slowest test takes 15 s where it has a core to itself: a machine may be very busy.
LIMIT_S = 240.0
LIMIT_S_PER_EXAMPLE = 12.0

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Reference data, beside the checkout or in SERVETWIN_SHARED; skips the test without them."""
    path = Path(os.environ.get("SERVETWIN_SHARED", REPOSITORY / ".." / "shared"))
    if not path.is_dir():
        pytest.skip(f"no reference data at {path}")
    return path


def _limited(item: pytest.Item) -> AbstractContextManager[None]:
    # Known only when the command line has been read.
    return time_limit(item, max(LIMIT_S, LIMIT_S_PER_EXAMPLE * settings().max_examples))


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """No garbage is looked for among modules and tests, which stay: that took 4 s of loading."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """What a test needs has a limit of its own."""
    with _limited(item):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """No test may hang."""
    with _limited(item):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Nor what tidies up after it."""
    with _limited(item):
        yield
