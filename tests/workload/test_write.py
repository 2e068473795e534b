"""Writing a workload in servetwin's format and reading it back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from sim.core.errors import InputError
from sim.workload.config import WorkloadConfig
from sim.workload.kinds.build import build_workload
from tests.support.facts import facts_of
from tests.support.trace_files import write_servetwin

ADAPTER = TypeAdapter(WorkloadConfig)
SAVED = {"kind": "trace", "format": "servetwin", "path": "saved"}
SYNTHETIC = {
    "kind": "synthetic",
    "num_requests": 30,
    "arrivals": {"kind": "gamma", "rate_rps": 1, "cv": 3},
    "prompt_tokens": {"kind": "geometric", "mean": 20},
    "output_tokens": {"kind": "geometric", "mean": 20},
    "prefixes": {
        "groups": 3,
        "tokens": {"kind": "constant", "value": 8},
        "share_probability": 0.5,
    },
    "max_new_tokens": {"factor": 1000.0},
    "tenant": "chat",
}
SESSIONS = {
    "kind": "sessions",
    "sessions": 6,
    "arrivals": {"kind": "burst", "size": 4, "every_s": 1e6},
    "turns": {"kind": "geometric", "mean": 3},
    "user_tokens": {"kind": "geometric", "mean": 9},
    "output_tokens": {"kind": "geometric", "mean": 9},
    "think_s": {"kind": "exponential", "mean": 1e5},
    "closed_loop": False,
}
MIX = {
    "kind": "mix",
    "parts": [
        {"tenant": "a", "workload": SESSIONS},
        {"tenant": "b", "workload": SYNTHETIC | {"tenant": ""}},
    ],
}


@given(section=st.sampled_from([SYNTHETIC, SESSIONS, MIX]), seed=st.integers(0, 10**6))
def test_write_then_read_gives_equal_requests(tmp_path_factory, section, seed):
    """Every field of every request, times to the nanosecond even after weeks."""
    folder = tmp_path_factory.mktemp("written")
    workload = build_workload(ADAPTER.validate_python(section), seed=seed, base_dir=folder)
    write_servetwin(workload, folder / "saved")
    again = build_workload(ADAPTER.validate_python(SAVED), seed=0, base_dir=folder)
    for before, after in zip(workload.arrivals(), again.arrivals(), strict=True):
        assert facts_of(after) == facts_of(before)


def test_write_of_a_trace_with_every_field_reads_back_equal(trace, build, facts, tmp_path):
    """Token ids, priorities of all kinds, `ignore_eos`, tenants, unsorted rows."""
    rows = [
        {"rid": "z", "arrival": 3, "input_ids": [1, 2**62], "output_len": 4, "priority": 0},
        {"rid": 'a"é', "arrival": 2.000000001, "segments": [[7, 3]], "output_len": 1},
        {"arrival": 2, "segments": [[7, 3]], "output_len": 4, "ignore_eos": True, "tenant": "é"},
        {"arrival": 2, "segments": [[7, 3], [9, 1]], "output_len": 4, "priority": -3},
    ]
    workload = trace("servetwin", rows)
    write_servetwin(workload, tmp_path / "saved")
    assert facts(build(SAVED)) == facts(workload)


def test_write_twice_gives_the_same_bytes_and_leaves_nothing_beside(build, tmp_path):
    """An older file is replaced; no temporary file stays."""
    for name in ("one", "other", "other"):
        write_servetwin(build(MIX), tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "other"]


CLIENTS = {
    "kind": "clients",
    "clients": 1,
    "requests_per_client": 1,
    "think_s": {"kind": "constant", "value": 1},
    "prompt_tokens": {"kind": "constant", "value": 1},
    "output_tokens": {"kind": "constant", "value": 1},
}
# (section, the error line)
CANNOT = [
    (CLIENTS, "closed-loop clients have no arrival times to write"),
    (SESSIONS | {"closed_loop": True}, "closed-loop clients have no arrival times to write"),
    (SYNTHETIC | {"predicted_output": {"kind": "exact"}},
     "request 0: predicted output lengths cannot be written"),
    ({"kind": "trace", "format": "mooncake", "path": "blocks"},
     "request 0: block ids cannot be written"),
]  # fmt: skip


@pytest.mark.parametrize(("section", "reason"), CANNOT)
def test_write_of_what_the_format_cannot_hold_keeps_the_old_file(build, tmp_path, section, reason):
    """One line, and neither a half-written nor a temporary file."""
    row = {"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [0]}
    (tmp_path / "blocks").write_text(json.dumps(row))
    target = tmp_path / "saved"
    target.write_text("old")
    with pytest.raises(InputError) as caught:
        write_servetwin(build(section), target)
    assert str(caught.value) == f"{target}: {reason}"
    assert target.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["blocks", "saved"]


def test_write_where_nothing_can_be_written_is_refused(build, tmp_path):
    """The folder does not exist, or the target is one."""
    folder, absent = tmp_path / "folder", tmp_path / "absent"
    folder.mkdir()
    for target, reason in (
        (absent / "saved", f"its folder {absent} does not exist"),
        (folder, "is a folder, expected a file to write"),
    ):
        with pytest.raises(InputError) as caught:
            write_servetwin(build(SYNTHETIC), target)
        assert str(caught.value) == f"{target}: {reason}"
    assert list(tmp_path.iterdir()) == [folder]
