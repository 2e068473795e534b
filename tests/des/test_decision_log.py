"""The decision log: its keys and their meaning, its bytes, and the file after a failure."""

import gzip
import itertools
import json
import os
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sim.core.errors import InputError
from sim.des.deployment import Deployment
from sim.des.run import RunOptions, simulate
from sim.latency.kinds.recorded import RecordedLatency
from sim.sglang.config import SchedulerConfig
from sim.workload.workload import listed
from tests.support.serve import linear_latency, serve
from tests.support.workloads import scripted

_STEP_KEYS = """kind replica step t_decided_ns t_start_ns t_end_ns host_ns mode prefill n_decode
decode_crc ctx free evictable used retracted preempted aborted queue running full ratio chunked"""
_REQUEST_KEYS = """kind rid replica arrival_ns ttft_ns finish_ns cached_at_admit retractions
preemptions status"""


def workload(num_requests=6):
    requests = [
        scripted(f"r{i}", (1, 30), (10 + i, 20), output=5 + i, arrival_ns=i * 3_000_000)
        for i in range(num_requests)
    ]
    return listed([*requests, scripted("big", (9, 5_000), output=3, arrival_ns=10**9)])


_CONFIG = SchedulerConfig(max_total_tokens=1_000, page_size=4, chunked_prefill_size=64)
_DEPLOYMENT = Deployment.of_one_kind(_CONFIG, [linear_latency()])


@pytest.fixture(scope="module")
def served():
    return serve(workload(), replace(_CONFIG, disable_overlap_schedule=True))


def lines_of(served, kind):
    lines = [json.loads(line) for line in served.text.splitlines()]
    return [line for line in lines if line["kind"] == kind]


def write(path, **how):
    simulate(workload(), _DEPLOYMENT, RunOptions(decisions=path, **how))
    return path.read_bytes()


def test_log_lines_have_the_documented_keys(served):
    """Steps first, then requests; the keys in their order."""
    for kind, keys in (("step", _STEP_KEYS), ("req", _REQUEST_KEYS)):
        assert {tuple(line) for line in lines_of(served, kind)} == {tuple(keys.split())}
    kinds = [json.loads(line)["kind"] for line in served.text.splitlines()]
    assert kinds == ["step"] * kinds.count("step") + ["req"] * 7


def test_log_steps_are_numbered_and_in_order(served):
    """From 0, each after the one before."""
    steps = served.steps
    assert [step["step"] for step in steps] == list(range(len(steps)))
    for one, following in itertools.pairwise(steps):
        assert one["t_start_ns"] < one["t_end_ns"] <= following["t_start_ns"]


def test_log_step_says_what_ran(served):
    """Pool sums, context, decode rows by name; recomputed from the prefill rows alone."""
    running, length = [], {}
    finished_at = {line["rid"]: line["finish_ns"] for line in lines_of(served, "req")}
    for step in served.steps:
        assert step["free"] + step["evictable"] + step["used"] == 1_000
        if step["mode"] == "decode":
            assert step["n_decode"] == len(running)
            assert step["decode_crc"] == zlib.crc32(",".join(running).encode())
            length = {rid: n + (rid in running) for rid, n in length.items()}
            assert step["ctx"] == sum(length[rid] for rid in running)
        else:
            assert step["ctx"] == sum(prefix + extend for _, prefix, extend in step["prefill"])
        for rid, prefix, extend in step["prefill"]:
            length[rid] = prefix + extend
            if rid != step["chunked"]:
                running.append(rid)
        running = [rid for rid in running if finished_at[rid] != step["t_end_ns"]]


def test_log_requests_agree_with_the_run_log(served):
    """One line each in order of arrival; what never happened is null."""
    lines = lines_of(served, "req")
    assert [line["rid"] for line in lines] == [f"r{i}" for i in range(6)] + ["big"]
    for line in lines[:6]:
        row = served.request(line["rid"])
        assert line["ttft_ns"] == row["first_token_ns"] - row["arrival_ns"]
        assert line["finish_ns"] == row["finish_ns"]
        assert line["cached_at_admit"] == row["cached_tokens"]
        assert line["status"] == "finished"
    assert lines[6]["status"] == "rejected"
    assert lines[6]["finish_ns"] is None


def test_log_of_several_servers_is_merged_by_start():
    """Equal starts go by server; each server's steps are numbered by themselves."""
    requests = [scripted(f"r{i}", (i, 20), output=3 + i) for i in range(6)]
    latencies = [linear_latency() for _ in range(3)]
    steps = serve(listed(requests), _CONFIG, latencies).steps
    assert [step["t_start_ns"] for step in steps[:3]] == [0, 0, 0]
    order = [(step["t_start_ns"], step["replica"]) for step in steps]
    assert order == sorted(order)
    for replica in range(3):
        numbers = [step["step"] for step in steps if step["replica"] == replica]
        assert numbers == list(range(len(numbers)))
        assert numbers


def test_log_compressed_has_the_same_bytes_each_time(tmp_path):
    """No clock and no name inside; unpacked it is the plain log."""
    plain = write(tmp_path / "a.jsonl")
    (tmp_path / "other").mkdir()
    packed = write(tmp_path / "a.jsonl.gz")
    assert packed == write(tmp_path / "other" / "b.jsonl.gz")
    assert gzip.decompress(packed) == plain
    flags, time = packed[3], packed[4:8]
    assert (flags, time) == (0, bytes(4))


def test_log_replaces_an_older_file_whole(tmp_path):
    """And leaves nothing else beside it."""
    path = tmp_path / "d.jsonl"
    path.write_text("old " * 100_000)
    assert write(path).startswith(b'{"kind":"step"')
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("name", "reason"), [("none/d.jsonl", "does not exist"), (".", "is a folder")]
)
def test_log_that_cannot_be_written_fails_before_the_run(tmp_path, name, reason):
    """One line that names the file; nothing is left behind."""
    path = tmp_path / name
    told = []
    with pytest.raises(InputError, match=reason) as error:
        write(path, watcher=lambda *progress: told.append(progress))
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    assert told == []
    assert list(tmp_path.iterdir()) == []


def test_log_never_takes_the_place_of_a_pipe_or_a_device(tmp_path):
    """Renaming over it would destroy it: `--decisions /dev/null` as root, for one."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(InputError, match="not a regular file"):
        write(path)
    assert path.is_fifo()


def test_log_of_a_run_that_fails_is_not_written(tmp_path):
    """The recording ends too soon: an older log stays, no half of a new one appears."""
    path = tmp_path / "d.jsonl"
    path.write_text("older")
    times_ns = np.full(5, 1_000_000)
    latency = RecordedLatency(Path("short.jsonl"), times_ns, times_ns)
    with pytest.raises(InputError, match="recorded steps"):
        simulate(workload(), Deployment.of_one_kind(_CONFIG, [latency]), RunOptions(decisions=path))
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_text() == "older"


def test_log_is_not_needed_to_run():
    """Without one the run log is the same."""
    log = simulate(workload(), _DEPLOYMENT)
    with_decisions = serve(workload(), _CONFIG).log
    assert log.requests.finish_ns.tolist() == with_decisions.requests.finish_ns.tolist()
    assert log.meta["simulated_steps"] == log.steps.num_steps.sum()


def test_watcher_is_told_of_each_request_that_is_over():
    """Counts go up by one, times never back."""
    told = []
    options = RunOptions(watcher=lambda *progress: told.append(progress))
    simulate(workload(), _DEPLOYMENT, options)
    assert [num_over for num_over, _ in told] == list(range(1, 8))
    times_ns = [now_ns for _, now_ns in told]
    assert times_ns == sorted(times_ns)
