"""Replaying the step times of a decision log."""

import gzip
import json
from itertools import pairwise

import pytest

from sim.core.batch import ForwardMode
from sim.core.errors import InputError
from sim.latency.features import StepFeatures
from sim.latency.kinds.recorded import RecordedLatency

STEP = StepFeatures(ForwardMode.DECODE, 0, 0, 0, 2, 20, 20)
NEW_LOG = [
    {"kind": "step", "step": 0, "t_start_ns": 100, "t_end_ns": 150},
    {"kind": "req", "rid": "a", "finish_ns": 150},
    {"kind": "step", "step": 1, "t_start_ns": 150, "t_end_ns": 157},
    {"kind": "step", "step": 2, "t_start_ns": 200, "t_end_ns": 201},
]


def write_log(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def read_all(path, num_steps):
    model = RecordedLatency.from_file(path)
    return [tuple(column.tolist()) for column in model.decode_run_ns(STEP, num_steps)]


def test_recorded_steps_come_in_the_logs_order(tmp_path):
    """Step i takes what step i of the log took; lines of other kinds are passed over."""
    model = RecordedLatency.from_file(write_log(tmp_path / "log.jsonl", NEW_LOG))
    times = []
    for _ in range(3):
        times.append(model.step_ns(STEP))
        model.consume(STEP, 1)
    assert times == [(50, 0), (7, 0), (1, 0)]


def test_recorded_run_cut_short_advances_by_what_ran(tmp_path):
    """Asking is free: only the steps that ran are used up."""
    model = RecordedLatency.from_file(write_log(tmp_path / "log.jsonl", NEW_LOG))
    assert model.decode_run_ns(STEP, 2)[0].tolist() == [50, 7]
    model.consume(STEP, 1)
    assert model.decode_run_ns(STEP, 2)[0].tolist() == [7, 1]
    assert model.step_ns(STEP) == (7, 0)


def test_recorded_run_past_the_end_gives_what_is_left(tmp_path):
    """A run may ask for more steps than are recorded: it gets the rest."""
    assert read_all(write_log(tmp_path / "log.jsonl", NEW_LOG), 100)[0] == (50, 7, 1)


def test_recorded_run_result_is_the_callers_own(tmp_path):
    """Changing an answer in place leaves the recording as it was."""
    model = RecordedLatency.from_file(write_log(tmp_path / "log.jsonl", NEW_LOG))
    model.decode_run_ns(STEP, 3)[0][:] = 0
    assert model.step_ns(STEP) == (50, 0)


def test_recorded_ended_log_is_an_error_that_names_the_file(tmp_path):
    """Running out is bad input, not a guess."""
    model = RecordedLatency.from_file(write_log(tmp_path / "log.jsonl", NEW_LOG))
    model.consume(STEP, 3)
    for ask in (lambda: model.step_ns(STEP), lambda: model.decode_run_ns(STEP, 1)):
        with pytest.raises(InputError, match=r"log\.jsonl: .*3 recorded steps"):
            ask()


def test_recorded_seconds_add_up_to_the_logs_own_times(tmp_path):
    """Float seconds are rounded at the ends, so consecutive steps lose nothing."""
    ends = [0.1 * i + 1e-10 for i in range(50)]
    steps = [{"kind": "step", "t_start": start, "t_end": end} for start, end in pairwise(ends)]
    device_ns, host_ns = read_all(write_log(tmp_path / "log.jsonl", steps), 49)
    assert sum(device_ns) == 4_900_000_000
    assert set(host_ns) == {0}


def test_recorded_device_and_host_times_are_taken_where_present(tmp_path):
    """Separate device and host times win over the step's ends."""
    record = {"kind": "step", "t_start_ns": 0, "t_end_ns": 99, "device_ns": 30, "host_ns": 12}
    assert read_all(write_log(tmp_path / "log.jsonl", [record]), 1) == [(30,), (12,)]


def test_recorded_gzip_is_known_by_content(tmp_path):
    """A compressed log reads as the plain one does, whatever its name."""
    plain = write_log(tmp_path / "log.jsonl", NEW_LOG)
    zipped = tmp_path / "log.dat"
    zipped.write_bytes(gzip.compress(plain.read_bytes()))
    assert read_all(zipped, 3) == read_all(plain, 3)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", 'no line with "kind": "step"'),
        ('{"kind": "req"}\n', 'no line with "kind": "step"'),
        ('{"kind": "req"}\n{"kind": "st', ":2: not JSON"),
        ("[1]\n", ":1: not a JSON object"),
        ('{"kind": "step"}\n', ":1: t_end: must be a number of seconds, got null"),
        ('{"kind": "step", "t_start": NaN, "t_end": 1}', ":1: t_start: must be"),
        ('{"kind": "step", "t_start": 0, "t_end": Infinity}', ":1: t_end: must be"),
        ('{"kind": "step", "t_start": 2, "t_end": true}', ":1: t_end: must be"),
        ('{"kind": "step", "t_start": 2, "t_end": 1}', ":1: a step must take at least 1 ns"),
        ('{"kind": "step", "t_start_ns": 1.5, "t_end_ns": 9}', ":1: t_start_ns: must be whole"),
        ('{"kind": "step", "t_start_ns": 1}', ":1: t_end_ns: must be whole"),
        ('{"kind": "step", "device_ns": 1, "host_ns": -1}', ":1: a step must take"),
        ('{"kind": "step", "device_ns": 1e30}', ":1: device_ns: must be whole"),
    ],
)
def test_recorded_unusable_log_is_one_line_naming_file_and_place(tmp_path, text, reason):
    """Every defect of a log is told in one line with file and line number."""
    path = tmp_path / "log.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        RecordedLatency.from_file(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert reason in message
    assert "\n" not in message


def test_recorded_damaged_or_missing_file_is_bad_input(tmp_path):
    """A truncated or corrupt archive, a folder and a missing file are all told by name."""
    whole = gzip.compress(json.dumps(NEW_LOG[0]).encode() * 50)
    for name, content in (("cut.gz", whole[:-9]), ("bad.gz", whole[:12] + b"\xff" * 30)):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=f"{name}:1: gzip data are cut off or corrupt"):
            RecordedLatency.from_file(tmp_path / name)
    for path in (tmp_path, tmp_path / "missing.jsonl"):
        with pytest.raises(InputError, match=str(path)):
            RecordedLatency.from_file(path)


def test_recorded_reference_log_replays_its_own_durations(shared_dir):
    """A log written elsewhere, in float seconds, replays to the nanosecond."""
    path = shared_dir / "oracle" / "cases" / "00.decisions.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        steps = [record for record in map(json.loads, lines) if record["kind"] == "step"]
    device_ns, _ = read_all(path, len(steps) + 1)
    assert len(device_ns) == len(steps)
    for took_ns, step in zip(device_ns, steps, strict=True):
        assert took_ns == pytest.approx((step["t_end"] - step["t_start"]) * 1e9, abs=1.01)


def test_recorded_log_of_several_servers_gives_each_its_own(tmp_path):
    """Server i takes the steps of server i; one the log does not have is told so."""
    records = [
        {"kind": "step", "replica": i % 2, "t_start_ns": 0, "t_end_ns": 10 + i} for i in range(5)
    ]
    path = write_log(tmp_path / "log.jsonl", records)
    for replica, times in enumerate([[10, 12, 14], [11, 13]]):
        model = RecordedLatency.from_file(path, replica)
        assert model.decode_run_ns(STEP, 9)[0].tolist() == times
    with pytest.raises(InputError, match="has steps of 2 servers, none of server 2"):
        RecordedLatency.from_file(path, 2)


def test_recorded_log_of_one_server_serves_any(tmp_path):
    """Whatever number it has in its own run."""
    records = [{"kind": "step", "replica": 3, "t_start_ns": 0, "t_end_ns": 10}]
    path = write_log(tmp_path / "log.jsonl", records)
    assert RecordedLatency.from_file(path, 1).step_ns(STEP) == (10, 0)
