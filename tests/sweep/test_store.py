"""Stored points are used only if complete, of this version, and under the right name."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.core.errors import InputError
from sim.sweep.store import PointStore
from sim.workers.executor import TaskOutcome, TaskStatus

KEY = "0" * 63 + "a"
OTHER = "0" * 63 + "b"
POINT = TaskOutcome(
    KEY, TaskStatus.DONE, {"mean_ttft_ms": 0.1, "p99_ttft_ms": None}, wall_seconds=0.5
)


@pytest.fixture
def store(tmp_path):
    return PointStore(tmp_path, "1+code")


def test_store_gives_back_what_was_written(store, tmp_path):
    """Done or failed, to the last bit; and a person can read what was run."""
    failed = TaskOutcome(
        OTHER, TaskStatus.FAULT, message="KeyError: 3", trace="Trace\n", wall_seconds=1.0
    )
    store.write(POINT, {"settings": {"replicas": 2}})
    store.write(failed, {"settings": {"replicas": 3}})
    contents = store.read([KEY, OTHER])
    assert contents.outcomes == {KEY: POINT, OTHER: failed}
    assert (contents.num_other_code, contents.num_damaged) == (0, 0)
    assert json.loads((tmp_path / f"{KEY}.json").read_text())["settings"] == {"replicas": 2}


def test_store_of_other_code_is_counted_and_not_used(store, tmp_path):
    """Results of another version are not results of this one."""
    PointStore(tmp_path, "1+older").write(POINT, {})
    contents = store.read([KEY])
    assert (dict(contents.outcomes), contents.num_other_code) == ({}, 1)


def test_store_finds_single_points_without_looking_at_the_others(store, tmp_path):
    """What is absent, damaged or of other code is not found."""
    store.write(POINT, {})
    PointStore(tmp_path, "1+older").write(TaskOutcome(OTHER, TaskStatus.DONE, {}), {})
    assert store.find([OTHER, KEY]) == {KEY: POINT}
    (tmp_path / f"{KEY}.json").write_text("{")
    assert store.find([KEY]) == {}


def test_store_leaves_points_of_other_sweeps_alone(store):
    """What was not asked for is neither damaged nor returned."""
    store.write(POINT, {})
    contents = store.read([OTHER])
    assert (dict(contents.outcomes), contents.num_damaged) == ({}, 0)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.data())
def test_store_file_that_is_cut_or_changed_anywhere_is_not_used(store, tmp_path, data):
    """No prefix of a file passes for the file, and no other digit in it either."""
    store.write(POINT, {})
    path = tmp_path / f"{KEY}.json"
    whole = path.read_bytes()
    place = data.draw(st.integers(0, len(whole) - 3), label="place")
    if data.draw(st.booleans(), label="cut"):
        path.write_bytes(whole[:place])
    else:
        digit = whole.index(b"0.", place % whole.index(b"0.5"))
        path.write_bytes(whole[:digit] + b"7" + whole[digit + 1 :])
    contents = store.read([KEY])
    assert (dict(contents.outcomes), contents.num_damaged) == ({}, 1)


def test_store_file_under_another_name_is_not_used(store, tmp_path):
    """A copied file does not become another point."""
    store.write(POINT, {})
    (tmp_path / f"{KEY}.json").rename(tmp_path / f"{OTHER}.json")
    assert store.read([KEY, OTHER]).num_damaged == 1


def test_store_clears_what_a_killed_sweep_was_writing(store, tmp_path):
    """Temporary files of processes that are no more go; other files stay."""
    (tmp_path / ".999999999-3.tmp").write_text("{")
    (tmp_path / "notes.txt").write_text("mine")
    assert dict(store.read([KEY]).outcomes) == {}
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_store_that_cannot_be_written_keeps_what_it_has(store, tmp_path, monkeypatch):
    """A full disk: one line that says so, no half file, the earlier point as it was."""
    store.write(POINT, {})

    def full(self, *arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", full)
    with pytest.raises(InputError, match=r"b\.json: cannot be written: No space left on device$"):
        store.write(TaskOutcome(OTHER, TaskStatus.DONE, {}), {})
    assert [path.name for path in tmp_path.iterdir()] == [f"{KEY}.json"]
    assert store.read([KEY]).outcomes == {KEY: POINT}
