"""A test that hangs fails, and the next one runs; tests in a process of their own."""

import re
import subprocess
import sys
from pathlib import Path

CONFTEST = """\
import pytest

from tests.support.time_limits import time_limit


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    with time_limit(item, 1.0):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    with time_limit(item, 1.0):
        yield
"""
TESTS = """\
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


@settings(deadline=None, derandomize=True, database=None)
@given(st.integers(0, 100))
def test_property(number):
    while number >= 0:
        time.sleep(0.01)


@pytest.fixture
def made_slowly():
    time.sleep(1000)


def test_of_what_is_made_slowly(made_slowly):
    pass


@pytest.mark.time_limit(0.5)
@pytest.mark.parametrize("words", ["a b"])
def test_that_goes_on_after_every_exception(words):
    while True:
        try:
            time.sleep(1000)
        except Exception:
            pass


def test_after_all_of_them():
    pass
"""


def test_a_test_that_hangs_fails_and_shows_where_and_with_what(tmp_path):
    """With the example of a property, once: Hypothesis does not run it again."""
    (tmp_path / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (tmp_path / "test_slow.py").write_text(TESTS, encoding="utf-8")
    options = ("-q", "-p", "no:cacheprovider", "-o", "markers=time_limit", f"--rootdir={tmp_path}")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert lines[-1].startswith("2 failed, 1 passed, 1 error"), done.stdout + done.stderr
    assert "took longer than 1 s" in done.stdout
    assert "took longer than 0.5 s" in done.stdout
    assert re.search(r"^E +number = \d+$", done.stdout, re.MULTILINE)
    assert re.search(r"^E +words = 'a b'$", done.stdout, re.MULTILINE)
    assert any(line.endswith("time.sleep(0.01)") for line in lines)
