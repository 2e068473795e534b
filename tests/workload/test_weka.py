"""Weka's sessions of coding agents: pauses of tools, blocks of their own, sub-agents."""

import gzip
import json

import numpy as np
import pytest


def call(t, *, tokens=200, out=9, ids=None, **fields):
    ids = list(range(1, tokens // 64 + 1)) if ids is None else ids
    return {"t": t, "type": "s", "in": tokens, "out": out, "hash_ids": ids} | fields


def session(*requests, **fields):
    return {
        "id": "a", "block_size": 64, "hash_id_scope": "local", "tool_tokens": 0,
        "requests": list(requests),
    } | fields  # fmt: skip


SUB_AGENT = {"type": "subagent", "t": 9.0, "requests": [call(0.0), call(5.0, think_time=1)]}


def test_weka_pauses_are_those_of_the_client(trace):
    """`think_time`, or else the time between two requests without what the server took."""
    turns = (
        call(0.0, api_time=2.0), call(10, think_time=1.5), call(16, api_time=20.5), call(17),
    )  # fmt: skip
    (found,) = trace("weka", [session(*turns)], time_scale=0.5, max_pause_s=5).clients
    assert [turn.think_ns / 1e9 for turn in found] == [0, 0.75, 2.5, 0]


def test_weka_sub_agent_comes_before_what_waits_for_it(trace):
    """Its requests are in the session, and its clock is its own."""
    (found,) = trace("weka", [session(call(0.0), SUB_AGENT, call(60, think_time=2))]).clients
    assert [turn.think_ns / 1e9 for turn in found] == [0, 0, 1, 2]
    assert {turn.request.spec.session for turn in found} == {"0"}


def test_weka_last_partial_block_is_the_request_s_own(trace):
    """200 tokens are three blocks with ids, and eight tokens that nothing else shares."""
    (turns,) = trace("weka", [session(call(0.0), call(1.0))]).clients
    one, other = (turn.request.spec.prompt.token_ids() for turn in turns)
    assert (one == other).tolist() == [True] * 192 + [False] * 8


@pytest.mark.parametrize(("scope", "shared"), [("local", False), ("global", True)])
def test_weka_ids_of_two_sessions_are_equal_only_in_a_global_scope(trace, scope, shared):
    """Local ids mean nothing in another session."""
    sessions = [session(call(0.0), hash_id_scope=scope)] * 2
    one, other = (turns[0].request.spec.prompt for turns in clients(trace("weka", sessions)))
    assert np.array_equal(one.token_ids()[:192], other.token_ids()[:192]) == shared


def clients(workload):
    """Sessions of one request each do not wait, so they are an open loop."""
    return [*workload.clients] or [[_Only(request)] for request in workload.arrivals()]


class _Only:
    def __init__(self, request):
        self.request = request


def test_weka_sessions_begin_at_drawn_times(trace):
    """The files have no dates."""
    sessions = [session(call(0.0), call(1.0))] * 3
    arrivals = {"kind": "burst", "size": 2, "every_s": 8}
    found = trace("weka", sessions, arrivals=arrivals).clients
    assert [turns[0].think_ns / 1e9 for turns in found] == [0, 0, 8]


def test_weka_reads_a_folder_by_name(trace, tmp_path):
    """One session a file, written on one line or on many, plain or gzip."""
    folder = tmp_path / "sessions"
    folder.mkdir()
    (folder / "b.json").write_text(json.dumps(session(call(0.0, out=2), call(1)), indent=1))
    (folder / "a.json.gz").write_bytes(gzip.compress(json.dumps(session(call(0, out=1))).encode()))
    (folder / "README.md").write_text("not a trace")
    workload = trace("weka", [], path="sessions")
    assert [turns[0].request.script.num_tokens for turns in workload.clients] == [1, 2]
    assert trace("weka", [], path="sessions", limit=2).num_requests == 2


BAD = [
    (session(call(0, tokens=0)), "requests[0].in: 0 is below 1"),
    (session(call(0), call("x")), 'requests[1].t: "x" is not a finite number'),
    (session(call(0, ids=[1, 2, 3, 4, 5])),
     "requests[0].hash_ids: 5 ids of 64 tokens, but 200 tokens in"),
    (session(7), "requests[0]: 7 is not an object"),
    (session({"type": "subagent", "requests": [SUB_AGENT]}),
     "requests[0].requests[0].type: is a sub-agent inside of a sub-agent"),
    (session(block_size=16), "block_size: 16, but the sessions before have 64"),
    (session(hash_id_scope="wide"), 'hash_id_scope: "wide" is neither local nor global'),
    ({"block_size": 64}, "requests: missing"),
    ([], "not a JSON object"),
]  # fmt: skip


@pytest.mark.parametrize(("bad", "reason"), BAD, ids=[reason for _, reason in BAD])
def test_weka_bad_session_names_line_and_place(error_of, bad, reason):
    """A line is a session."""
    assert error_of("weka", [session(call(0)), bad]) == f"t:2: {reason}"


def test_weka_folder_without_traces_is_refused(error_of, tmp_path):
    """Nothing to simulate is a mistake."""
    (tmp_path / "empty").mkdir()
    reason = "empty: holds no file that ends in .json, .jsonl, .json.gz, .jsonl.gz"
    assert error_of("weka", [], path="empty") == reason
