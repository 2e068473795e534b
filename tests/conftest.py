"""Fixtures that tests of several packages use."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine is no failure.
settings.register_profile("servetwin", deadline=None)
settings.load_profile("servetwin")

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Reference data beside the checkout, or where SERVETWIN_SHARED says; skips if absent."""
    path = Path(os.environ.get("SERVETWIN_SHARED", REPOSITORY / ".." / "shared"))
    if not path.is_dir():
        pytest.skip(f"no reference data at {path}")
    return path
