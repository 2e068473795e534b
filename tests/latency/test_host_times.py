"""Host times on disk: what is read back, and what is refused in one line."""

import json
from pathlib import Path

import pytest

from sim.core.errors import InputError
from sim.latency.host_times import HostTimes, read_host_times, write_host_times

TIMES = HostTimes(0.0021, 1.5e-6)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "host.json"


def test_host_times_read_back_the_same(path):
    """With whatever is known of the fit beside them; the same bytes twice."""
    write_host_times(TIMES, {"measured": "run.jsonl", "num_requests": 60}, path)
    text = path.read_text(encoding="utf-8")
    assert read_host_times(path) == TIMES
    assert json.loads(text) == {
        "format": "servetwin-host-times",
        "version": 1,
        "host_s": 0.0021,
        "host_per_request_s": 1.5e-6,
        "fit": {"measured": "run.jsonl", "num_requests": 60},
    }
    write_host_times(TIMES, {"measured": "run.jsonl", "num_requests": 60}, path)
    assert path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": "profile"}, "format: expected 'servetwin-host-times', as calibrate fit writes"),
        ({"version": 2}, "version: expected 1, got 2"),
        ({"host_s": -1}, "host_s: must be seconds from 0 to 60, got -1"),
        ({"host_s": True}, "host_s: must be seconds from 0 to 60, got True"),
        ({"host_per_request_s": None}, "host_per_request_s: must be seconds from 0 to 60, got"),
        ({"host_per_request_s": float("nan")}, "host_per_request_s: must be seconds from 0 to 60"),
    ],
)
def test_host_times_that_are_none_are_refused(path, change, reason):
    """The file and the key."""
    write_host_times(TIMES, {}, path)
    data = {**json.loads(path.read_text(encoding="utf-8")), **change}
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(InputError) as error:
        read_host_times(path)
    assert str(error.value).startswith(f"{path}: {reason}")


@pytest.mark.parametrize("text", ["{", "\xff", "[1]"])
def test_host_times_of_another_file_are_refused(path, text):
    """No traceback."""
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=r"not JSON|format: expected"):
        read_host_times(path)


def test_host_times_of_no_file_are_refused(path):
    """Nor is a folder written over."""
    with pytest.raises(InputError, match="No such file"):
        read_host_times(path)
    with pytest.raises(InputError, match="is a folder"):
        write_host_times(TIMES, {}, Path(path.parent))
