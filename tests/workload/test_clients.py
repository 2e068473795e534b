"""Closed-loop clients."""

import pytest
from pydantic import ValidationError

SECTION = {
    "kind": "clients",
    "clients": 8,
    "requests_per_client": 5,
    "think_s": {"kind": "exponential", "mean": 2.0},
    "prompt_tokens": {"kind": "geometric", "mean": 50},
    "output_tokens": {"kind": "geometric", "mean": 20},
    "system_prompt_tokens": 12,
}


def test_clients_send_their_requests_one_after_another(build):
    """Eight clients of five turns; the first turn is sent at once."""
    workload = build(SECTION)
    clients = workload.clients
    assert [len(turns) for turns in clients] == [5] * 8
    assert workload.num_requests == 40
    assert list(workload.arrivals()) == []
    assert [turns[0].think_ns for turns in clients] == [0] * 8
    assert all(turn.think_ns > 0 for turns in clients for turn in turns[1:])


def test_clients_have_unique_requests_with_the_same_system_prompt(build):
    """Request ids say client and turn; only the system prompt is shared."""
    turns = [turn for client in build(SECTION).clients for turn in client]
    rids = [turn.request.spec.rid for turn in turns]
    assert rids == [f"{client}-{turn}" for client in range(8) for turn in range(5)]
    segments = [turn.request.spec.prompt.segments for turn in turns]
    assert len({system for system, _ in segments}) == 1
    assert len({own[0] for _, own in segments}) == 40


def test_clients_are_sessions_of_their_own(build):
    """What a client sends is one session; independent requests have none."""
    clients = build(SECTION).clients
    names = [[turn.request.spec.session for turn in client] for client in clients]
    assert names == [[str(client)] * 5 for client in range(8)]


def test_clients_think_as_long_as_their_distribution_says(build):
    """Mean 2 s over all turns but the first."""
    workload = build(SECTION | {"clients": 100, "requests_per_client": 51})
    think = [turn.think_ns for client in workload.clients for turn in client[1:]]
    assert sum(think) / len(think) == pytest.approx(2e9, rel=0.05)


def test_clients_are_the_same_when_asked_again(build, facts):
    """Turns are made at each access, and are equal each time."""
    workload = build(SECTION)
    assert facts(workload) == facts(workload)
    assert facts(workload) != facts(build(SECTION, seed=1))


def test_clients_with_too_many_requests_in_all_are_refused(build):
    """Each number is legal, their product is not."""
    with pytest.raises(ValidationError, match="clients x requests_per_client is above 100000000"):
        build(SECTION | {"clients": 10**5, "requests_per_client": 10**4})
