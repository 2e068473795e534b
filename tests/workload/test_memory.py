"""Large workloads are columns of numbers; a request object exists only while it is used."""

import tracemalloc
from itertools import islice

NUM_REQUESTS = 200_000
SECTIONS = {
    "synthetic": {
        "kind": "synthetic",
        "num_requests": NUM_REQUESTS,
        "arrivals": {"kind": "poisson", "rate_rps": 100},
        "prompt_tokens": {"kind": "geometric", "mean": 500},
        "output_tokens": {"kind": "geometric", "mean": 100},
        "prefixes": {
            "groups": 100,
            "tokens": {"kind": "constant", "value": 200},
            "share_probability": 0.5,
        },
        "predicted_output": {"kind": "lognormal", "sigma": 0.3},
    },
    "clients": {
        "kind": "clients",
        "clients": 100,
        "requests_per_client": NUM_REQUESTS // 100,
        "think_s": {"kind": "exponential", "mean": 1},
        "prompt_tokens": {"kind": "geometric", "mean": 500},
        "output_tokens": {"kind": "geometric", "mean": 100},
    },
}


def peak_bytes(function):
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_workload_of_many_requests_takes_a_few_numbers_a_request(build):
    """Below 200 bytes each while drawing; as objects they would take above 500."""
    for section in SECTIONS.values():
        assert peak_bytes(lambda section=section: build(section)) < 200 * NUM_REQUESTS


def test_workload_arrivals_keep_no_request(build):
    """Twenty thousand requests pass by in the memory of a few."""
    workload = build(SECTIONS["synthetic"])

    def iterate():
        for _ in islice(workload.arrivals(), 20_000):
            pass

    assert peak_bytes(iterate) < 100_000


def test_workload_clients_keep_no_turn(build):
    """All clients are held, as a server's clients are; a turn is made when it is sent."""
    clients = build(SECTIONS["clients"]).clients

    def interleave():
        held = list(clients)
        for turn in range(20):
            for client in held:
                assert client[turn].request.spec.rid

    assert len(clients[0]) == 2000
    assert peak_bytes(interleave) < 200_000
