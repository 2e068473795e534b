"""Run logs on disk: what was written is read back, and damage is reported in one line."""

import gzip
import json

import numpy as np
import pytest

from sim.core.errors import InputError
from sim.runlog.run_log_file import (
    RecordedRun,
    load_run_log,
    read_decisions,
    read_run_log,
    write_run_log,
)

META = {"source": "realrun", "fingerprint": {"device": "x"}, "replicas": 1}
STEP = {
    "kind": "step", "replica": 0, "step": 0, "t_decided_ns": 5, "t_start_ns": 10, "t_end_ns": 30,
    "t_known_ns": 31, "looks_ns": [], "host_ns": 5, "forward_ns": 20, "mode": "mixed",
    "prefill": [["a", 16, 8], ["b", 0, 4]], "n_decode": 2, "ctx": 60, "free": 100, "evictable": 20,
    "used": 40, "queue": 3, "ratio": 0.5, "slots": 4,
}  # fmt: skip
REQUEST = {
    "kind": "req", "rid": "a", "replica": 0, "arrival_ns": 2, "scheduled_ns": 5, "finish_ns": 71,
    "prompt_tokens": 24, "cached_at_admit": 16, "output_tokens": 3, "retractions": 1,
    "preemptions": 0, "status": "finished", "token_ns": [31, 50, 71],
}  # fmt: skip
REJECTED = REQUEST | {
    "rid": "b", "scheduled_ns": None, "finish_ns": None, "output_tokens": 0, "token_ns": [],
    "status": "rejected",
}  # fmt: skip
POINT = {
    "kind": "point", "mode": "decode", "prefill": [], "n_decode": 4, "ctx": 400,
    "forward_ns": 1000, "repeats": 5,
}  # fmt: skip
LINES = [STEP, REQUEST, REJECTED]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "log.jsonl"


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_run_log_written_is_read(tmp_path, suffix):
    """Lines come back by kind, plain or compressed; the same lines give the same bytes."""
    first, second = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    for path in (first, second):
        write_run_log(path, META, [STEP, POINT, REQUEST])
    assert first.read_bytes() == second.read_bytes()
    read = read_run_log(first)
    assert read.meta == {"kind": "meta", "schema": 1, **META}
    assert (read.steps, read.points, read.requests) == ([STEP], [POINT], [REQUEST])
    assert read.fingerprint == {"device": "x"}


def test_run_log_is_a_decision_log_too(path):
    """Readers of decisions pass over what they do not know."""
    write_run_log(path, META, LINES)
    steps, requests = read_decisions(path)
    assert (steps, requests) == ([STEP], [REQUEST, REJECTED])


def test_run_log_as_columns():
    """The columns that reports read, hand-computed."""
    log = load_run_log(RecordedRun.of_lines(META, LINES))
    assert log.requests.first_token_ns.tolist() == [31, -1]
    assert log.requests.finish_ns.tolist() == [71, -1]
    assert log.requests.cached_tokens.tolist() == [16, 16]
    assert log.steps.num_prefill_tokens.tolist() == [12]
    assert log.steps.num_cached_tokens.tolist() == [16]
    assert log.steps.device_ns.tolist() == [20]
    assert log.steps.running.tolist() == [4]
    assert log.token_gaps.gap_ns.tolist() == [19, 21]
    assert log.token_gaps.count.dtype == np.int64


def lines_of(path):
    return path.read_text().splitlines()


def test_run_log_cut_at_a_line_is_truncated(path):
    """Without its end line a log is not whole."""
    write_run_log(path, META, LINES)
    path.write_text("\n".join(lines_of(path)[:-1]) + "\n")
    with pytest.raises(InputError, match=r"log\.jsonl: is truncated: it has no end line"):
        read_run_log(path)


def test_run_log_with_lines_lost_is_truncated(path):
    """The end line counts."""
    write_run_log(path, META, LINES)
    lines = lines_of(path)
    path.write_text("\n".join([*lines[:1], *lines[2:]]) + "\n")
    with pytest.raises(InputError, match="it has 2 lines, but its end line says 3"):
        read_run_log(path)


def test_run_log_cut_in_a_gzip_block_is_damaged(tmp_path):
    """A compressed log that was cut anywhere."""
    path = tmp_path / "log.jsonl.gz"
    write_run_log(path, META, LINES)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="gzip data are cut off or corrupt"):
        read_run_log(path)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ({"kind": "step"}, ":1: kind: a run log begins with meta, got the string 'step'"),
        ({"kind": "meta", "schema": 2}, ":1: schema: must be 1, got 2"),
        ({"kind": "meta", "schema": 1, "source": "realrun"}, ":1: fingerprint: missing"),
        ({"kind": "meta", "schema": 1, "source": 3, "fingerprint": {}}, ":1: source: must be"),
        (
            {"kind": "meta", "schema": 1, "source": "x", "fingerprint": {"device": "\ud800"}},
            ":1: fingerprint: must not have half a surrogate pair, got a mapping",
        ),
    ],
)
def test_run_log_bad_first_line_is_refused(path, line, reason):
    """Another schema, another file."""
    path.write_text(json.dumps(line) + "\n")
    with pytest.raises(InputError) as refused:
        read_run_log(path)
    assert reason in str(refused.value)


@pytest.mark.parametrize("kind", ["step", "point", "req"])
def test_run_log_line_without_a_key_is_refused(path, kind):
    """The message names line and key."""
    line = {"step": STEP, "point": POINT, "req": REQUEST}[kind]
    broken = dict(line)
    missing = list(broken)[3]
    del broken[missing]
    write_run_log(path, META, [broken])
    with pytest.raises(InputError, match=rf"log\.jsonl:2: {missing}: missing"):
        read_run_log(path)


def test_run_log_line_of_another_kind_is_refused(path):
    """So is a line after the end."""
    write_run_log(path, META, [{"kind": "tea"}])
    with pytest.raises(InputError, match=":2: kind: must be one of step, point, req, got"):
        read_run_log(path)
    write_run_log(path, META, LINES)
    path.write_text(path.read_text() + json.dumps(STEP) + "\n")
    with pytest.raises(InputError, match=":6: a line after the end line"):
        read_run_log(path)


def test_run_log_empty_file_is_refused(path):
    """Nothing at all is not a log."""
    path.write_bytes(gzip.compress(b""))
    with pytest.raises(InputError, match="is empty, expected a run log"):
        read_run_log(path)
