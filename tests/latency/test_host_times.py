"""Host times: a constant and a time for each request, written to a file and read back."""

import json

import pytest

from sim.core.errors import InputError
from sim.latency.host import HostTimes, read_host_times, write_host_times

DATA = {
    "format": "servetwin-host-times",
    "version": 1,
    "host_s": 0.0015,
    "host_per_request_s": 2e-05,
    "fit": {"num_steps": 900},
}


def test_host_times_add_up_to_whole_nanoseconds():
    """1.5 ms and 20 us for each of three rows; 0 by default."""
    assert HostTimes(0.0015, 2e-5).host_ns(3) == 1_560_000
    assert HostTimes().host_ns(100) == 0
    assert HostTimes(per_request_s=1e-9 / 3).host_ns(4) == 1


def test_host_times_are_read_as_they_were_written(tmp_path):
    """The facts about the fit are written, too, for people to read."""
    path = tmp_path / "host.json"
    write_host_times(HostTimes(0.0015, 2e-05), {"num_steps": 900}, path)
    assert read_host_times(path) == HostTimes(0.0015, 2e-05)
    assert json.loads(path.read_text()) == DATA
    assert [file.name for file in tmp_path.iterdir()] == ["host.json"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "format: must be servetwin-host-times, got 'other'"),
        ({"version": 2}, "version: must be 1, got 2"),
        ({"host_s": "1"}, "host_s: must be a number of seconds, got '1'"),
        ({"host_s": True}, "host_s: must be a number of seconds, got True"),
        ({"host_s": -0.1}, "host_s: must be between 0 and 60 seconds, got -0.1"),
        ({"host_per_request_s": float("nan")}, "host_per_request_s: must be between 0 and 60"),
        ({"host_per_request_s": None}, "host_per_request_s: must be a number of seconds, got None"),
        ({"host_ms": 1}, "host_ms: unknown key"),
        ({"fit": 3}, "fit: must be an object, got 3"),
    ],
)
def test_host_times_spoilt_file_says_which_key(tmp_path, change, message):
    """File, key, reason."""
    path = tmp_path / "host.json"
    path.write_text(json.dumps(DATA | change))
    with pytest.raises(InputError) as caught:
        read_host_times(path)
    assert str(caught.value).startswith(f"{path}: {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [("{\n,", "host.json:2: not JSON: "), ("[]", "host.json: not a JSON object")],
)
def test_host_times_other_files_are_refused(tmp_path, text, message):
    """Files that are not JSON, hold no object, or do not exist."""
    path = tmp_path / "host.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_host_times(path)
    with pytest.raises(InputError, match=r"absent.json: cannot be read: No such file"):
        read_host_times(tmp_path / "absent.json")


def test_host_times_that_cannot_be_written_leave_nothing(tmp_path):
    """The folder does not exist, or a number is not finite."""
    with pytest.raises(InputError, match="does not exist"):
        write_host_times(HostTimes(), {}, tmp_path / "absent" / "host.json")
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_host_times(HostTimes(), {"error": float("nan")}, tmp_path / "host.json")
    assert not list(tmp_path.iterdir())
