"""In which order waiting requests are admitted (rules 5 and 6)."""

import pytest

from sim.core.request import RequestSpec
from sim.core.tokens import SegmentPrompt
from sim.engine.request import OutputTokens
from sim.vllm.request import RequestBlocks, VllmRequest
from sim.vllm.scheduler.waiting_pass import build_waiting


def waiting_request(rid, *segments, **more):
    """A waiting request that belongs to no scheduler."""
    spec = RequestSpec(rid, 0, SegmentPrompt(segments), max_new_tokens=10, **more)
    return VllmRequest(spec, RequestBlocks(spec.prompt, OutputTokens(None, None)), limit=10)


def order(make_server, requests, **settings):
    """The order in which requests `(rid, priority, arrival_ns)` are admitted."""
    server = make_server(scheduling_policy="priority", **settings)
    for rid, priority, arrival_ns in requests:
        server.add(rid, 10, output=2, priority=priority, arrival_ns=arrival_ns)
    return "".join(dict.fromkeys(rid for step in server.finish() for rid in step))


@pytest.mark.parametrize("num_seats", [1, 16])
@pytest.mark.parametrize(
    ("requests", "wanted"),
    [
        ([("a", 2, 1), ("b", 1, 2), ("c", 0, 3)], "cba"),
        ([("a", 1, 3), ("b", 1, 1), ("c", 1, 2)], "bca"),
        ([("a", 2, 1), ("b", 1, 3), ("c", 1, 2), ("d", 0, 4), ("e", -1, 5)], "edcba"),
        ([("b", 0, 0), ("c", 0, 0), ("a", 0, 0)], "abc"),
    ],
    ids=["smaller values", "then arrival", "both", "then name"],
)
def test_priority_orders_the_queue(make_server, requests, wanted, num_seats):
    """Whatever the order of adding, and with one slot for all as with one for each."""
    assert order(make_server, requests, max_num_seqs=num_seats) == wanted


def test_fcfs_looks_at_no_priority(make_server):
    """Nor at the arrival's time or the name."""
    server = make_server(max_num_seqs=1)
    for rid, priority in (("b", 3), ("a", 1), ("c", 2)):
        server.add(rid, 10, output=1, priority=priority)
    assert server.finish() == [{"b": 10}, {"a": 10}, {"c": 10}]


def test_request_without_priority_counts_as_zero(make_server):
    """As vLLM's front end has it."""
    requests = [("a", 1, 0), ("b", None, 0), ("c", -1, 0)]
    assert order(make_server, requests) == "cba"


def test_priority_never_preempts_for_admission(make_server):
    """More important or not: who waits waits, for a slot as for blocks."""
    server = make_server(scheduling_policy="priority", max_num_seqs=2, num_gpu_blocks=21)
    server.add("a", 20, output=5, priority=5)
    server.add("b", 20, output=5, priority=5)
    server.step()
    server.add("c", 10, priority=0)
    assert server.step() == {"a": 1, "b": 1}
    assert (server.running, server.waiting) == ("ab", "c")
    server = make_server(scheduling_policy="priority", num_gpu_blocks=4)
    server.add("a", 40, output=5, priority=5)
    server.step()
    server.add("c", 10, output=5, priority=0)
    assert server.step() == {"a": 1}
    assert (server.preempted, server.waiting) == ([], "c")


def test_victim_goes_back_to_its_place_by_priority(make_server):
    """Not to the front: a more important request came meanwhile."""
    server = make_server(scheduling_policy="priority", num_gpu_blocks=11)
    server.add("a", 80, priority=1, output=3)
    server.add("b", 80, priority=2, output=3)
    server.step()
    server.add("z", 10, priority=1, output=3)
    assert server.step() == {"a": 1}
    assert server.preempted == [("a", "b")]
    assert server.step() == {"a": 1, "z": 10}
    assert server.waiting == "b"


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_queue_gives_up_whoever_is_asked_for(policy):
    """From the middle as from the front."""
    queue = build_waiting(policy)
    requests = [waiting_request(rid, (1, 5)) for rid in "abcde"]
    for request in requests:
        queue.add(request)
    queue.remove(requests[2])
    queue.remove(requests[0])
    order = []
    while len(queue):
        order.append(queue.next().rid)
        queue.remove(queue.next())
    assert order == ["b", "d", "e"]


def test_queue_fcfs_puts_back_in_front():
    """The last put back is the next."""
    queue = build_waiting("fcfs")
    a, b, c = (waiting_request(rid, (1, 5)) for rid in "abc")
    queue.add(a)
    queue.put_back(b)
    queue.put_back(c)
    assert [request.rid for request in queue.all()] == ["c", "b", "a"]
