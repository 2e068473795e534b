"""Traces that Chrome's and Perfetto's viewers can read."""

import gzip
import json
from collections import Counter

import pytest

from sim.core.errors import InputError
from sim.report.perfetto import write_perfetto
from tests.support.run_logs import request_columns, run_log, step_columns
from tests.support.toy_server import toy_log

US = 1_000


def small_log():
    requests = request_columns(
        rid=['a"quoted', "b", "c", "d"],
        status=["finished", "running", "rejected", "waiting"],
        arrival_ns=[0, 5 * US, 6 * US, 7 * US],
        scheduled_ns=[1 * US, 10 * US, -1, -1],
        first_token_ns=[3 * US, -1, -1, -1],
        finish_ns=[10 * US, -1, -1, -1],
        replica=[0, 1, 0, 0],
    )
    steps = step_columns(
        replica=[0, 0, 1], mode=[0, 1, 0], num_steps=[1, 7, 1],
        t_start_ns=[1 * US, 3 * US, 10 * US], t_end_ns=[3 * US, 10 * US, 20 * US],
        num_decode_rows=[0, 1, 0], used_tokens=[5, 6, 7], queue=[3, 2, 1],
    )  # fmt: skip
    return run_log(requests, steps, meta={"name": "smoke"})


def written(log, path, **options):
    write_perfetto(log, path, **options)
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        return json.load(file)


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_trace_is_valid_json_in_order_of_time(tmp_path, name):
    """Plain and compressed."""
    trace = written(toy_log(150, rate_rps=10), tmp_path / name)
    times = [event["ts"] for event in trace["traceEvents"] if event["ph"] != "M"]
    assert times == sorted(times)
    assert len(times) > 1_000
    assert trace["otherData"] == {"name": "run", "requests_shown": 150, "requests_total": 150}


def test_trace_steps_are_slices_with_their_numbers(tmp_path):
    """Names are modes, times are microseconds, replicas are processes."""
    events = written(small_log(), tmp_path / "t.json")["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert [(s["name"], s["pid"], s["ts"], s["dur"]) for s in slices] == [
        ("extend", 0, 1.0, 2.0), ("decode", 0, 3.0, 7.0), ("extend", 1, 10.0, 10.0),
    ]  # fmt: skip
    assert slices[1]["args"]["steps"] == 7
    assert slices[1]["args"]["decode_rows"] == 1
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert processes == {0: "replica 0", 1: "replica 1"}
    counters = [e for e in events if e["ph"] == "C" and e["pid"] == 0]
    assert [e["args"]["requests"] for e in counters if e["name"] == "queue"] == [3, 2]
    kv = [e["args"] for e in counters if e["name"] == "KV tokens"]
    assert kv[0] == {"used": 5, "evictable": 0, "free": 0}


def test_trace_requests_open_and_close_their_slices_in_nested_order(tmp_path):
    """Every begin has its end, also for requests the log ends without."""
    events = written(small_log(), tmp_path / "t.json")["traceEvents"]
    stories = {}
    for event in events:
        if event.get("cat") == "request":
            stories.setdefault(event["id"], []).append((event["ph"], event["name"], event["ts"]))
    assert stories["0"] == [
        ("b", 'a"quoted', 0.0), ("b", "queued", 0.0), ("e", "queued", 1.0), ("b", "prefill", 1.0),
        ("e", "prefill", 3.0), ("b", "decode", 3.0), ("e", "decode", 10.0), ("e", 'a"quoted', 10.0),
    ]  # fmt: skip
    assert stories["1"][-2:] == [("e", "prefill", 20.0), ("e", "b", 20.0)]
    assert [story[-1][2] for story in stories.values()] == [10.0, 20.0, 6.0, 20.0]
    for story in stories.values():
        open_slices = Counter()
        for phase, name, _ in story:
            open_slices[name] += 1 if phase == "b" else -1
            assert open_slices[name] >= 0
        assert not any(open_slices.values())


def test_trace_beyond_the_limit_says_how_many_requests_it_shows(tmp_path):
    """The first to arrive are shown, and the file says so."""
    trace = written(small_log(), tmp_path / "t.json", max_requests=2)
    shown = {event["id"] for event in trace["traceEvents"] if event.get("cat") == "request"}
    assert shown == {"0", "1"}
    assert trace["otherData"] == {"name": "smoke", "requests_shown": 2, "requests_total": 4}


def test_trace_compressed_twice_has_equal_bytes(tmp_path):
    """The header carries neither name nor time."""
    for name in ("a.json.gz", "b.json.gz"):
        write_perfetto(small_log(), tmp_path / name)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def test_trace_into_missing_directory_is_refused(tmp_path):
    """One line, no traceback."""
    with pytest.raises(InputError, match=r"its folder .*nowhere does not exist"):
        write_perfetto(small_log(), tmp_path / "nowhere" / "t.json")
