"""Agents: tasks, calls, tools, sub-agents, and summaries that take the place of conversations."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sim.core.errors import InputError
from sim.workload.config import AgentsConfig
from sim.workload.kinds.build import build_workload
from sim.workload.workload import every_request


def constant(value):
    return {"kind": "constant", "value": value}


def uniform(low, high):
    return {"kind": "uniform", "min": low, "max": high}


SECTION = {
    "kind": "agents",
    "sessions": 3,
    "at_a_time": 2,
    "tasks": uniform(1, 3),
    "calls": uniform(1, 4),
    "task_tokens": uniform(5, 40),
    "tool_tokens": uniform(1, 60),
    "output_tokens": uniform(1, 9),
    "think_s": {"kind": "exponential", "mean": 20},
    "tool_s": {"kind": "exponential", "mean": 1},
    "system_prompts": {"count": 2, "tokens": 30},
}
SUB_AGENTS = {
    "share": 0.5,
    "count": uniform(1, 3),
    "calls": uniform(1, 3),
    "task_tokens": uniform(3, 30),
    "system_tokens": 11,
}
COMPACTION = {"above_tokens": 120, "summary_tokens": uniform(2, 50), "instruction_tokens": 7}


def ids(request):
    return request.spec.prompt.token_ids().tolist()


def quoted(request):
    """The answer as later prompts quote it: without its end token, or cut off at the limit."""
    limit, length = request.spec.max_new_tokens, request.script.num_tokens
    return request.script.token_ids(limit if limit < length else length - 1).tolist()


def chains_of(workload):
    """The turns of all agents and sub-agents."""
    waiting, found = [list(client) for client in workload.clients], []
    while waiting:
        turns = waiting.pop()
        found.append(turns)
        waiting += [list(each) for turn in turns for each in turn.sub_agents]
    return found


@given(seed=st.integers(0, 10**6), limit=st.sampled_from([None, 3]))
def test_a_prompt_is_the_conversation_so_far_and_a_new_text(tmp_path_factory, seed, limit):
    """Also a sub-agent's, which begins anew with the system prompt of all sub-agents."""
    section = SECTION | {"sub_agents": SUB_AGENTS, "max_new_tokens": limit}
    config = AgentsConfig.model_validate(section)
    workload = build_workload(config, seed=seed, base_dir=tmp_path_factory.getbasetemp())
    chains = chains_of(workload)
    assert workload.num_requests == sum(map(len, chains))
    rids = [request.spec.rid for request in every_request(workload)]
    assert len(set(rids)) == len(rids) == workload.num_requests
    for turns in chains:
        for before, after in pairwise([turn.request for turn in turns]):
            begin = ids(before) + quoted(before)
            assert ids(after)[: len(begin)] == begin
            assert len(ids(after)) == len(after.spec.prompt) > len(begin)
    systems = {tuple(ids(turns[0].request)[:11]) for turns in chains if is_sub(turns)}
    assert len(systems) <= 1


def is_sub(turns):
    return "." in turns[0].request.spec.rid


@given(seed=st.integers(0, 10**6))
def test_what_sub_agents_report_is_the_next_text_of_their_parent(tmp_path_factory, seed):
    """They start in place of a tool, so the parent goes on at once."""
    config = AgentsConfig.model_validate(SECTION | {"sub_agents": SUB_AGENTS})
    workload = build_workload(config, seed=seed, base_dir=tmp_path_factory.getbasetemp())
    for client in workload.clients:
        for turn, following in pairwise(client):
            if not turn.sub_agents:
                continue
            assert (following.think_ns, following.needs_tool) == (0, False)
            said = len(ids(turn.request)) + len(quoted(turn.request))
            reports = sum(len(quoted(list(each)[-1].request)) for each in turn.sub_agents)
            assert len(ids(following.request)) - said == max(1, reports)


@given(seed=st.integers(0, 10**6), compacts=st.booleans())
def test_an_answer_calls_a_tool_if_a_tool_or_sub_agents_follow(tmp_path_factory, seed, compacts):
    """A person follows the last answer of a task, nobody that of a session or of a sub-agent."""
    section = (
        SECTION | {"sub_agents": SUB_AGENTS} | ({"compaction": COMPACTION} if compacts else {})
    )
    config = AgentsConfig.model_validate(section)
    workload = build_workload(config, seed=seed, base_dir=tmp_path_factory.getbasetemp())
    for turns in chains_of(workload):
        for before, after in pairwise(turns):
            calls_tool = after.needs_tool or bool(before.sub_agents)
            assert before.request.spec.calls_tool == calls_tool
        assert not turns[-1].request.spec.calls_tool


@given(seed=st.integers(0, 10**6), above=st.integers(60, 250))
def test_a_summary_takes_the_place_of_a_long_conversation(tmp_path_factory, seed, above):
    """Prompts stay below the size; the one that asks for the summary has the conversation."""
    compaction = COMPACTION | {"above_tokens": above}
    section = SECTION | {"calls": uniform(8, 12), "compaction": compaction}
    config = AgentsConfig.model_validate(section)
    workload = build_workload(config, seed=seed, base_dir=tmp_path_factory.getbasetemp())
    num_summaries = 0
    for turns in chains_of(workload):
        system = ids(turns[0].request)[:30]
        for before, after in pairwise(turns):
            begin = ids(before.request) + quoted(before.request)
            if ids(after.request)[: len(begin)] == begin:
                continue
            # The prompt before is what the one before it had said, and the instruction.
            num_summaries += 1
            short = system + quoted(before.request)
            assert ids(after.request)[: len(short)] == short
            assert (after.think_ns, after.needs_tool) == (0, False)
            assert len(short) < len(ids(before.request))
    assert num_summaries > 0
    # A conversation above 80 tokens can be made shorter. A text has 60 at most, an answer 8 more.
    longest = max(len(request.spec.prompt) for request in every_request(workload))
    assert longest <= max(above, 80 + 60) + 8 + 7


def test_summaries_change_no_other_draw(build):
    """The same texts, answers and pauses, and the requests for summaries between them."""
    plain = [turn for client in build(SECTION, seed=4).clients for turn in client]
    with_them = build(SECTION | {"compaction": COMPACTION}, seed=4)
    lengths = [turn.request.script.num_tokens for turn in plain]
    longer = [turn.request.script.num_tokens for client in with_them.clients for turn in client]
    assert len(longer) > len(lengths)
    found = iter(longer)
    assert all(length in found for length in lengths)


def test_pauses_are_tools_within_a_task_and_thoughts_before_the_next(build):
    """Two tasks of three calls."""
    exact = {"tasks": constant(2), "calls": constant(3), "sessions": 1, "at_a_time": 1}
    pauses = {"tool_s": constant(2), "think_s": constant(50)}
    workload = build(SECTION | exact | pauses | {"tools": 4})
    [client] = workload.clients
    assert [turn.think_ns / 1e9 for turn in client] == [0, 2, 2, 50, 2, 2]
    assert [turn.needs_tool for turn in client] == [False, True, True, False, True, True]
    [group] = workload.groups
    assert (group.end, group.places, group.num_tools) == (1, 1, 4)


def test_sessions_begin_at_their_arrivals(build):
    """In place of a number at a time."""
    arrivals = {"kind": "burst", "size": 2, "every_s": 8}
    workload = build(SECTION | {"arrivals": arrivals, "at_a_time": None})
    assert [client[0].think_ns / 1e9 for client in workload.clients] == [0, 0, 8]
    assert not workload.groups


def test_agents_of_a_mix_keep_their_group_and_sub_agents(build):
    """Numbers of clients are those of the whole; ids begin with the tenant."""
    section = SECTION | {"sub_agents": SUB_AGENTS | {"share": 1.0}, "calls": constant(2)}
    part = {key: value for key, value in section.items() if key != "tenant"}
    parts = [{"tenant": name, "workload": part} for name in ("a", "b")]
    workload = build({"kind": "mix", "parts": parts})
    assert [(group.first, group.end) for group in workload.groups] == [(0, 3), (3, 6)]
    requests = list(every_request(workload))
    assert len(requests) == workload.num_requests
    assert {request.spec.tenant for request in requests} == {"a", "b"}
    assert any(turn.sub_agents for turn in workload.clients[5])
    texts = {bytes(np.array(ids(request)[-3:])) for request in requests}
    assert len(texts) > len(requests) // 2


def test_a_priority_is_every_requests_own(build):
    """Of a trace's requests, it is for those that have none."""
    workload = build(SECTION | {"priority": -3})
    assert {request.spec.priority for request in every_request(workload)} == {-3}
    assert {request.spec.priority for request in every_request(build(SECTION))} == {None}


def test_a_priority_is_for_rows_without_one(trace):
    """A row's own stays."""
    row = {"arrival": 0, "segments": [[1, 1]], "output_len": 10}
    workload = trace("servetwin", [row, row | {"priority": 9}], priority=2)
    assert [request.spec.priority for request in workload.arrivals()] == [2, 9]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"at_a_time": None}, "needs one of arrivals, at_a_time"),
        ({"arrivals": {"kind": "poisson", "rate_rps": 1}}, "exclude each other"),
        ({"tools": 0}, "greater than or equal to 1"),
        ({"sub_agents": SUB_AGENTS | {"share": 0}}, "greater than 0"),
    ],
)
def test_bad_agents_are_refused(options, words):
    """Before anything is drawn."""
    with pytest.raises(ValidationError, match=words):
        AgentsConfig.model_validate(SECTION | options)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"tasks": constant(10**7), "sessions": 11}, "workload.calls: drew 110000000 requests"),
        ({"task_tokens": constant(10**7)}, "workload: a prompt has "),
    ],
)
def test_agents_that_grow_absurd_are_refused(build, options, line):
    """Too many requests, or too long a conversation."""
    with pytest.raises(InputError, match=line):
        build(SECTION | options)
