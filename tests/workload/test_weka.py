"""Weka's sessions of coding agents: pauses of tools, blocks of their own, sub-agents."""

import gzip
import json

import numpy as np
import pytest
from pydantic import ValidationError

from sim.workload.workload import every_request


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


def outputs(turns):
    return [turn.request.script.num_tokens for turn in turns]


def test_weka_sub_agents_run_side_by_side_and_their_parent_waits(trace):
    """Both begin after the request before them. Their clocks are their own."""
    other = {"type": "subagent", "t": 9.0, "requests": [call(0.0, out=5), call(5.0, out=6)]}
    calls = call(0.0, out=2), SUB_AGENT, other, call(60, out=3, think_time=2)
    workload = trace("weka", [session(*calls), session(call(0.0, out=4))])
    first, second = workload.clients
    assert (outputs(first), outputs(second)) == ([2, 3], [4])
    assert [turn.think_ns / 1e9 for turn in first] == [0, 2]
    one, two = first[0].sub_agents
    assert (outputs(one), outputs(two)) == ([9, 9], [5, 6])
    assert [turn.think_ns / 1e9 for turn in one] == [0, 1]
    assert not first[1].sub_agents
    names = [request.spec.session for request in every_request(workload)]
    assert names == ["0"] * 6 + ["1"]
    assert workload.num_requests == 7


def test_weka_pause_after_sub_agents_counts_from_the_end_of_the_last(trace):
    """`think_time` of the request that waited has their time in it."""
    ended = [
        {"type": "subagent", "requests": [call(0.0)], "t": t, "duration_ms": 9} for t in (7, 4)
    ]
    calls = call(0.0, api_time=1.0), *ended, call(12, think_time=11), call(20, think_time=3)
    (found,) = trace("weka", [session(*calls)]).clients
    assert [turn.think_ns / 1e9 for turn in found] == [0, 5, 3]


def test_weka_session_that_begins_with_a_sub_agent_waits_for_it(trace):
    """No request of the session's own could have started it."""
    (found,) = trace("weka", [session(SUB_AGENT, call(60, think_time=2))]).clients
    assert [turn.think_ns / 1e9 for turn in found] == [0, 1, 2]
    assert not any(turn.sub_agents for turn in found)


def test_weka_sessions_follow_one_another_at_a_time(trace):
    """Two places for three sessions; in place of times at which they begin."""
    sessions = [session(call(0.0), call(1.0))] * 3
    workload = trace("weka", sessions, at_a_time=2)
    assert [turns[0].think_ns for turns in workload.clients] == [0, 0, 0]
    [group] = workload.groups
    assert (group.first, group.end, group.places) == (0, 3, 2)


def test_weka_at_a_time_excludes_arrivals(trace):
    """Both say when sessions begin."""
    arrivals = {"kind": "burst", "size": 2, "every_s": 8}
    with pytest.raises(ValidationError, match="arrivals and at_a_time exclude each other"):
        trace("weka", [session(call(0.0))], arrivals=arrivals, at_a_time=2)


def test_at_a_time_needs_requests_that_wait(error_of):
    """Rows with times alone are an open loop."""
    row = {"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": [1]}
    assert error_of("mooncake", [row], at_a_time=2) == (
        "workload.at_a_time: the requests of this file do not wait for each other"
    )


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


def test_weka_answers_end_in_a_tool_call_if_they_stopped_for_one(trace):
    calls = [
        call(0, stop="tool_use"),
        call(9, stop="end_turn"),
        call(20, stop="tool_use"),
        call(30),
    ]
    (turns,) = trace("weka", [session(*calls)]).clients
    assert [turn.request.spec.calls_tool for turn in turns] == [True, False, True, False]
