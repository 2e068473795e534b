"""Clients whose sub-agents run side by side, that take places in turn, or share tools."""

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from realrun.server.traffic import WorkloadTraffic
from sim.sglang.config import SchedulerConfig
from sim.workload.workload import ClientGroup, Tools, Turn, every_request, listed
from tests.support.serve import linear_latency, serve
from tests.support.workloads import scripted

# Every step takes 5 ms, so a request of `output` tokens that nothing delays takes 5 ms for each.
STEP_NS = 5_000_000


def turn(name, think_ns=0, *sub_agents, output=1, tool=False):
    seed = 100 + sum(place * ord(char) for place, char in enumerate(name, start=1))
    return Turn(think_ns, scripted(name, (seed, 20), output=output), sub_agents, tool)


def served(clients, *groups, fast_forward=True):
    latency = linear_latency(
        per_prefill_token_s=0, per_decode_request_s=0, per_context_token_s=0, step_s=0.005
    )
    config = SchedulerConfig(disable_overlap_schedule=True)
    workload = listed([], clients, groups=groups)
    return serve(workload, config, [latency], fast_forward=fast_forward)


def times(run, rid):
    row = run.request(rid)
    return int(row["arrival_ns"]), int(row["finish_ns"])


def test_parent_waits_for_the_slower_of_two_sub_agents():
    """They begin when the answer is there; the next pause begins when both have ended."""
    short = [turn("short", 7)]
    long = [turn("long0", 0), turn("long1", STEP_NS * 3)]
    run = served([[turn("ask", 0, short, long), turn("go-on", 11)]])
    asked_ns = times(run, "ask")[1]
    assert times(run, "short")[0] == asked_ns + 7
    assert times(run, "long0")[0] == asked_ns
    ends = [times(run, name)[1] for name in ("short", "long1")]
    assert ends[0] < ends[1]
    assert times(run, "go-on")[0] == ends[1] + 11


def test_sub_agents_may_have_sub_agents():
    """A join inside of a join."""
    inner = [turn("inner", 5)]
    middle = [turn("middle", 3, inner), turn("report", 2)]
    run = served([[turn("ask", 0, middle), turn("go-on", 1)]])
    assert times(run, "inner")[0] == times(run, "middle")[1] + 5
    assert times(run, "report")[0] == times(run, "inner")[1] + 2
    assert times(run, "go-on")[0] == times(run, "report")[1] + 1


def test_the_next_client_begins_when_a_place_is_free():
    """Two places, three clients; the first pause counts from there."""
    clients = [[turn("a", 0, output=9)], [turn("b", 0), turn("b2", 4)], [turn("c", 6)]]
    run = served(clients, ClientGroup(first=0, end=3, places=2))
    assert (times(run, "a")[0], times(run, "b")[0]) == (0, 0)
    assert times(run, "c")[0] == times(run, "b2")[1] + 6
    assert times(run, "c")[0] < times(run, "a")[1]


def test_clients_outside_of_a_group_begin_at_once():
    """The group has numbers 1 and 2."""
    clients = [[turn(name)] for name in ("a", "b", "c", "d")]
    run = served(clients, ClientGroup(first=1, end=3, places=1))
    assert [times(run, name)[0] for name in ("a", "b", "d")] == [0, 0, 0]
    assert times(run, "c")[0] == times(run, "b")[1]


def test_one_tool_makes_calls_wait_for_each_other():
    """Both are asked for when the step ends; the second begins when the first is done."""
    clients = [[turn(f"{c}0"), turn(f"{c}1", STEP_NS * 4, tool=True)] for c in "ab"]
    run = served(clients, ClientGroup(first=0, end=2, num_tools=1))
    asked_ns = times(run, "a0")[1]
    assert times(run, "b0")[1] == asked_ns
    assert times(run, "a1")[0] == asked_ns + STEP_NS * 4
    assert times(run, "b1")[0] == asked_ns + STEP_NS * 8
    free = served(clients, ClientGroup(first=0, end=2, num_tools=2))
    assert times(free, "b1")[0] == asked_ns + STEP_NS * 4


def test_a_pause_that_is_no_tools_waits_for_none():
    """A person thinks at once."""
    clients = [[turn("a0"), turn("a1", 9, tool=True)], [turn("b0"), turn("b1", 9)]]
    run = served(clients, ClientGroup(first=0, end=2, num_tools=1))
    assert times(run, "b1")[0] == times(run, "b0")[1] + 9


@given(
    calls=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=20),
    num=st.integers(1, 4),
)
def test_tools_work_in_order_and_never_more_than_there_are(calls, num):
    """A call begins when it is asked for, or when the earliest of the tools is free."""
    tools, busy_until, now = Tools(num), [0] * num, 0
    for gap, work in calls:
        now += gap
        begins = max(now, min(busy_until))
        busy_until[busy_until.index(min(busy_until))] = begins + work
        assert tools.done_ns(now, work) == begins + work


def chains(depth):
    """Turns with sub-agents down to `depth`."""
    sub = chains(depth - 1) if depth else st.just([])
    one = st.tuples(st.integers(0, 3), st.lists(sub, max_size=2) if depth else st.just([]),
                    st.booleans(), st.integers(1, 4))  # fmt: skip
    return st.lists(one, min_size=1, max_size=3)


def turns_of(drawn, name):
    made = []
    for place, (think, subs, tool, output) in enumerate(drawn):
        rid = f"{name}.{place}"
        sub_agents = [turns_of(sub, f"{rid}.{number}") for number, sub in enumerate(subs)]
        made.append(turn(rid, think * STEP_NS, *sub_agents, output=output, tool=tool))
    return made


@given(
    drawn=st.lists(chains(1), min_size=1, max_size=4),
    places=st.sampled_from([None, 1, 2]),
    tools=st.sampled_from([None, 1, 2]),
)
def test_a_real_servers_clients_send_at_the_same_times(drawn, places, tools):
    """Played without a server: each request ends when it ended in the simulation."""
    clients = [turns_of(each, str(number)) for number, each in enumerate(drawn)]
    group = ClientGroup(first=0, end=len(clients), places=places, num_tools=tools)
    run = served(clients, group)
    workload = listed([], clients, groups=[group])
    assert workload.num_requests == len({r.spec.rid for r in every_request(workload)})
    traffic, ends = WorkloadTraffic(workload), []
    sent, now = {}, 0
    while True:
        for request in traffic.arrived(now):
            rid = request.spec.rid
            sent[rid] = request.spec.arrival_ns
            heapq.heappush(ends, (times(run, rid)[1], rid))
        if not ends and traffic.is_over:
            break
        due = [ends[0][0]] if ends else []
        now = min(due + ([] if traffic.is_over else [traffic._next_arrival_ns]))
        if due and due[0] == now:
            # Those that end in the same step do so in the order of the log.
            at_once = [heapq.heappop(ends)[1] for end in list(ends) if end[0] == now]
            for rid in sorted(at_once, key=run.log.requests.rid.index):
                traffic.over(rid, now)
    assert sent == {rid: times(run, rid)[0] for rid in sent}
    assert len(sent) == workload.num_requests


@given(
    drawn=st.lists(chains(1), min_size=1, max_size=4),
    places=st.sampled_from([None, 1, 2]),
    tools=st.sampled_from([None, 1]),
)
def test_fast_forward_decides_the_same(drawn, places, tools):
    """Every step, to the byte."""
    clients = [turns_of(each, str(number)) for number, each in enumerate(drawn)]
    group = ClientGroup(first=0, end=len(clients), places=places, num_tools=tools)
    fast, slow = (served(clients, group, fast_forward=flag) for flag in (True, False))
    assert fast.steps == slow.steps


@pytest.mark.parametrize("places", [None, 2])
def test_every_client_is_served(places):
    """As many requests end as there are."""
    clients = [[turn(f"{c}0", 0, [turn(f"{c}s", 1)]), turn(f"{c}1", 2)] for c in "abc"]
    run = served(clients, ClientGroup(first=0, end=3, places=places))
    assert run.num_ended == 9
