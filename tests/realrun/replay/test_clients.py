"""The replay's clients: sub-agents side by side, places that are taken in turn, shared tools."""

import asyncio

import pytest

from realrun.replay.sender import ReplaySender
from sim.workload.workload import ClientGroup, Turn, listed
from tests.support.workloads import scripted


def turn(name, *sub_agents, tool=False):
    return Turn(0, scripted(name, (1, 4), output=1), sub_agents, tool)


def replayed(clients, *groups, steps=None):
    """What begins and ends, in order; a request takes as many turns of the loop as `steps` says."""
    events = []

    async def send(request):
        rid = request.spec.rid
        events.append(f"+{rid}")
        for _ in range((steps or {}).get(rid, 1)):
            await asyncio.sleep(0)
        events.append(f"-{rid}")

    asyncio.run(ReplaySender(listed([], clients, groups=groups), send).run())
    return events


def test_parent_waits_for_all_of_its_sub_agents():
    """They are under way together; the next turn follows the slower one."""
    client = [turn("ask", [turn("slow")], [turn("a"), turn("b")]), turn("go-on")]
    events = replayed([client], steps={"slow": 50})
    assert events[:2] == ["+ask", "-ask"]
    assert set(events[2:4]) == {"+slow", "+a"}
    assert events.index("+b") < events.index("-slow") < events.index("+go-on")
    assert events[-1] == "-go-on"


@pytest.mark.parametrize("places", [1, 2])
def test_no_more_clients_are_under_way_than_there_are_places(places):
    """And all are served."""
    clients = [[turn(f"{c}0"), turn(f"{c}1")] for c in "abcd"]
    events = replayed(clients, ClientGroup(first=0, end=4, places=places))
    under_way, most = set(), 0
    for event in events:
        client, is_last = event[1], event[2] == "1"
        if event[0] == "+":
            under_way.add(client)
        elif is_last:
            under_way.remove(client)
        most = max(most, len(under_way))
    assert most == places
    assert len(events) == 16


def test_tools_are_asked_for_their_place():
    """Calls that take no time leave nobody waiting."""
    clients = [[turn(f"{c}0"), turn(f"{c}1", tool=True)] for c in "ab"]
    events = replayed(clients, ClientGroup(first=0, end=2, num_tools=1))
    assert sorted(events) == sorted(f"{s}{c}{i}" for s in "+-" for c in "ab" for i in "01")
