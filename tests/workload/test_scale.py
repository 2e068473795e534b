"""The same traffic at another rate."""

import numpy as np
import pytest
from pydantic import TypeAdapter

from sim.workload.config import WorkloadConfig
from sim.workload.kinds.stats import load_of, rate_of, scaled
from sim.workload.traces.rows import TraceRows

LENGTHS = {
    "prompt_tokens": {"kind": "constant", "value": 9},
    "output_tokens": {"kind": "constant", "value": 9},
}
POISSON = {"kind": "poisson", "rate_rps": 4.0}
SYNTHETIC = {"kind": "synthetic", "num_requests": 3, "arrivals": POISSON, **LENGTHS}
BURSTS = {**SYNTHETIC, "arrivals": {"kind": "burst", "size": 6, "every_s": 2.0}}
CLIENTS = {
    "kind": "clients",
    "clients": 5,
    "requests_per_client": 2,
    "think_s": {"kind": "constant", "value": 1.0},
    **LENGTHS,
}
SESSIONS = {
    "kind": "sessions",
    "sessions": 9,
    "clients": 5,
    "turns": {"kind": "constant", "value": 2},
    "think_s": {"kind": "constant", "value": 1.0},
    "user_tokens": LENGTHS["prompt_tokens"],
    "output_tokens": LENGTHS["output_tokens"],
}
AT_A_TIME = {**SESSIONS, "clients": None, "at_a_time": 6}
AGENTS = {
    "kind": "agents",
    "sessions": 9,
    "arrivals": POISSON,
    "tasks": {"kind": "constant", "value": 2},
    "calls": {"kind": "constant", "value": 2},
    "task_tokens": LENGTHS["prompt_tokens"],
    "tool_tokens": LENGTHS["prompt_tokens"],
    "output_tokens": LENGTHS["output_tokens"],
    "think_s": {"kind": "constant", "value": 1.0},
    "tool_s": {"kind": "constant", "value": 1.0},
}
BENCH = {
    "kind": "bench",
    "client": "vllm",
    "num_prompts": 3,
    "input_len": 9,
    "output_len": 9,
    "request_rate": 2.0,
}
TRACE = {"kind": "trace", "format": "azure", "path": "a.csv", "time_scale": 0.5}
MIX = {
    "kind": "mix",
    "parts": [{"tenant": "a", "workload": SYNTHETIC}, {"tenant": "b", "workload": BURSTS}],
}


def config(data):
    return TypeAdapter(WorkloadConfig).validate_python(data)


def rows_of_11_requests(trace):
    """11 requests in 10 s."""
    times = np.arange(11, dtype=np.int64) * 10**9
    return TraceRows(
        arrival_ns=times, prompts=np.ones_like(times), output_tokens=np.ones_like(times)
    )


@pytest.mark.parametrize(
    ("data", "changes"),
    [
        (SYNTHETIC, {"arrivals.rate_rps": 6.0, "num_requests": 4}),
        (BURSTS, {"arrivals.every_s": 2 / 1.5, "num_requests": 4}),
        (CLIENTS, {"clients": 8}),
        (SESSIONS, {"clients": 8}),
        (AT_A_TIME, {"at_a_time": 9}),
        (AGENTS, {"arrivals.rate_rps": 6.0, "sessions": 14}),
        ({**TRACE, "format": "weka", "at_a_time": 4}, {"at_a_time": 6}),
        (BENCH, {"request_rate": 3.0, "num_prompts": 4}),
        (
            {**BENCH, "max_concurrency": 1},
            {"request_rate": 3.0, "max_concurrency": 2, "num_prompts": 4},
        ),
        (TRACE, {"time_scale": 0.5 / 1.5}),
        (
            MIX,
            {
                "parts.0.workload.arrivals.rate_rps": 6.0,
                "parts.0.workload.num_requests": 4,
                "parts.1.workload.arrivals.every_s": 2 / 1.5,
                "parts.1.workload.num_requests": 4,
            },
        ),
    ],
)
def test_scaled_traffic_comes_so_many_times_as_fast(data, changes):
    """The keys that change are those of the kind; the traffic lasts as long as before."""
    assert scaled(config(data), 1.5) == pytest.approx(changes)


@pytest.mark.parametrize(
    ("data", "rate"),
    [
        (SYNTHETIC, 4.0),
        (BURSTS, 3.0),
        (CLIENTS, None),
        (BENCH, 2.0),
        ({**BENCH, "max_concurrency": 1}, None),
        (TRACE, 2.2),
        (MIX, 7.0),
    ],
)
def test_rate_is_that_of_the_arrivals(data, rate):
    """None where it depends on the answers."""
    found = rate_of(config(data), rows_of_11_requests)
    assert found == (None if rate is None else pytest.approx(rate))


def test_faster_traffic_may_have_as_many_requests():
    """A search for the most load never has fewer than the scenario."""
    changes = scaled(config(SYNTHETIC), 0.5, 1.0)
    assert changes == {"arrivals.rate_rps": 2.0, "num_requests": SYNTHETIC["num_requests"]}


@pytest.mark.parametrize(
    ("data", "load"),
    [
        (SYNTHETIC, (4.0, "requests/s")),
        (MIX, (7.0, "requests/s")),
        (CLIENTS, (5, "clients")),
        (SESSIONS, (5, "clients")),
        (AT_A_TIME, (6, "at a time")),
        (AGENTS, (4.0, "sessions/s")),
        (
            {**{key: SESSIONS[key] for key in SESSIONS if key != "clients"},
             "arrivals": {"kind": "poisson", "rate_rps": 3}},
            (3.0, "sessions/s"),
        ),
        ({**BENCH, "max_concurrency": 6}, (6, "at a time")),
        (
            {"kind": "mix", "parts": [{"tenant": "a", "workload": CLIENTS}]},
            (1.0, "times the traffic"),
        ),
    ],
)  # fmt: skip
def test_load_is_the_number_that_grows(data, load):
    """In the unit in which people say it."""
    assert load_of(config(data), rows_of_11_requests) == load


def test_traffic_that_comes_all_at_once_cannot_come_faster():
    """No key would change."""
    assert not scaled(config({key: BENCH[key] for key in BENCH if key != "request_rate"}), 2.0)
