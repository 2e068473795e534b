"""Clients that wait for answers, arrivals at the edge of a step, and several servers."""

import pytest

from sim.sglang.config import SchedulerConfig
from sim.workload.workload import Turn, listed
from tests.support.serve import linear_latency, serve
from tests.support.workloads import scripted

_STEP_NS = 5_000_000


def constant_latency():
    """Every step takes 5 ms."""
    return linear_latency(
        per_prefill_token_s=0, per_decode_request_s=0, per_context_token_s=0, step_s=0.005
    )


def client(name, num_turns, think_ns, *, first_think_ns=0, prompt_len=20, output=4):
    return [
        Turn(
            think_ns if i else first_think_ns,
            scripted(f"{name}.{i}", (seed_of(name) + i, prompt_len), output=output),
        )
        for i in range(num_turns)
    ]


def seed_of(name):
    return 100 * sum(name.encode())


def arrival_and_end(served, rid):
    request = served.request(rid)
    return request["arrival_ns"], request["finish_ns"]


@pytest.mark.parametrize("fast_forward", [True, False])
@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("think_ns", [0, 1, 12_345_678])
def test_client_sends_the_next_request_a_think_time_after_the_last_ended(
    think_ns, overlap, fast_forward
):
    """To the nanosecond, also with no think time at all."""
    clients = [client("a", 4, think_ns, first_think_ns=7), client("b", 3, think_ns)]
    config = SchedulerConfig(disable_overlap_schedule=not overlap)
    served = serve(listed([], clients), config, fast_forward=fast_forward)
    for name, num_turns, first_ns in (("a", 4, 7), ("b", 3, 0)):
        expected_ns = first_ns
        for i in range(num_turns):
            arrival_ns, finish_ns = arrival_and_end(served, f"{name}.{i}")
            assert arrival_ns == expected_ns
            expected_ns = finish_ns + think_ns


def test_client_goes_on_after_a_rejected_turn():
    """A request that is turned away is over at once: think time counts from there."""
    turns = client("a", 3, 1_000)
    turns[1] = Turn(1_000, scripted("big", (1, 5_000), output=4))
    served = serve(
        listed([], [turns]), SchedulerConfig(max_total_tokens=1_000, context_length=5_000)
    )
    _, first_end_ns = arrival_and_end(served, "a.0")
    assert served.request("big")["status"] == "rejected"
    assert served.request("big")["arrival_ns"] == first_end_ns + 1_000
    assert served.request("a.2")["arrival_ns"] == first_end_ns + 2_000
    assert served.request("a.2")["status"] == "finished"


def test_client_without_think_time_is_served_by_the_very_next_step():
    """Normal scheduling: the request that an end brings about is seen by the next decision."""
    clients = [client("a", 3, 0, output=2)]
    config = SchedulerConfig(disable_overlap_schedule=True)
    served = serve(listed([], clients), config, [constant_latency()])
    assert [step["t_start_ns"] for step in served.steps] == [i * _STEP_NS for i in range(6)]
    assert served.request("a.1")["scheduled_ns"] == served.request("a.0")["finish_ns"]


@pytest.mark.parametrize("fast_forward", [True, False])
def test_client_without_think_time_joins_others_at_once(fast_forward):
    """While another request decodes on, the next turn is in the batch decided at that instant."""
    long = scripted("long", (1, 20), output=40)
    config = SchedulerConfig(disable_overlap_schedule=True)
    workload = listed([long], [client("a", 3, 0, output=2)])
    served = serve(workload, config, [constant_latency()], fast_forward=fast_forward)
    for turn in (1, 2):
        _, ended_ns = arrival_and_end(served, f"a.{turn - 1}")
        assert served.request(f"a.{turn}")["scheduled_ns"] == ended_ns


@pytest.mark.parametrize("fast_forward", [True, False])
@pytest.mark.parametrize(("late_ns", "num_steps_later"), [(-1, 0), (0, 0), (1, 1)])
def test_arrival_at_a_decision_is_seen_by_it(late_ns, num_steps_later, fast_forward):
    """At the instant of the decision or before: in its batch. A nanosecond later: in the next."""
    requests = [
        scripted("a", (1, 20), output=30),
        scripted("b", (2, 20), output=3, arrival_ns=10 * _STEP_NS + late_ns),
    ]
    config = SchedulerConfig(disable_overlap_schedule=True)
    served = serve(listed(requests), config, [constant_latency()], fast_forward=fast_forward)
    assert served.request("b")["scheduled_ns"] == (10 + num_steps_later) * _STEP_NS


@pytest.mark.parametrize("fast_forward", [True, False])
@pytest.mark.parametrize("late_ns", [-1, 0, 1])
def test_arrival_under_overlap_is_served_one_step_after_its_decision(late_ns, fast_forward):
    """While step k runs, k + 1 is decided at its start: an arrival then waits for k's end."""
    requests = [
        scripted("a", (1, 20), output=30),
        scripted("b", (2, 20), output=3, arrival_ns=10 * _STEP_NS + late_ns),
    ]
    served = serve(
        listed(requests), SchedulerConfig(), [constant_latency()], fast_forward=fast_forward
    )
    start_ns = next(s["t_start_ns"] for s in served.steps if s["prefill"][:1] == [["b", 0, 20]])
    decided_ns = served.request("b")["scheduled_ns"]
    assert decided_ns == (10 + (late_ns > 0)) * _STEP_NS
    assert start_ns == decided_ns + _STEP_NS


def test_router_round_robin_deals_in_turn():
    """Open-loop requests and clients alike, rejected ones included."""
    requests = [scripted(f"r{i}", (i, 20), output=3, arrival_ns=i) for i in range(6)]
    requests.insert(2, scripted("big", (9, 5_000), output=3, arrival_ns=1))
    served = serve(
        listed(requests),
        SchedulerConfig(max_total_tokens=1_000),
        [constant_latency() for _ in range(3)],
    )
    assert served.log.requests.replica.tolist() == [0, 1, 2, 0, 1, 2, 0]


def test_servers_side_by_side_do_not_disturb_each_other():
    """Each serves its share as it would alone."""
    requests = [scripted(f"r{i}", (i, 20), output=3 + i, arrival_ns=i * 10**6) for i in range(8)]
    pair = serve(listed(requests), SchedulerConfig(), [constant_latency() for _ in range(2)])
    for replica in range(2):
        alone = serve(listed(requests[replica::2]), SchedulerConfig(), [constant_latency()])
        mine = [step | {"replica": 0} for step in pair.steps if step["replica"] == replica]
        assert mine == alone.steps
