"""Runs of servers whose step times are known, measured by clients' time stamps alone."""

from pathlib import Path

import numpy as np
import pytest

from sim.commands.running.simulate import simulate_built
from sim.des.run import RunOptions
from sim.runlog import NOT_YET_NS
from sim.runlog.run_log_file import MeasuredRun, write_measured
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text
from sim.scenario.strict_yaml import yaml_text

LINEAR = {
    "kind": "linear",
    "step_s": 0.006,
    "per_prefill_token_s": 4e-5,
    "per_decode_request_s": 1e-4,
    "per_context_token_s": 6e-8,
}
SERVER = {
    "max_total_tokens": 200_000,
    "context_length": 8192,
    "chunked_prefill_size": 2048,
    "max_running_requests": 64,
}
OPEN = {
    "kind": "synthetic",
    "num_requests": 100,
    "arrivals": {"kind": "poisson", "rate_rps": 6},
    "prompt_tokens": {"kind": "uniform", "min": 50, "max": 1500},
    "output_tokens": {"kind": "uniform", "min": 10, "max": 200},
}


@pytest.fixture(scope="session")
def true_times():
    return LINEAR


@pytest.fixture(scope="session")
def server():
    return SERVER


@pytest.fixture(scope="session")
def closed():
    return _closed


def _closed(num_clients, num_prompts=60):
    """Equal requests, `num_clients` of them at a time."""
    return {
        "kind": "bench",
        "client": "sglang",
        "num_prompts": num_prompts,
        "input_len": 512,
        "output_len": 64,
        "range_ratio": 1.0,
        "max_concurrency": num_clients,
    }


@pytest.fixture
def measure(folder):
    """Serve with these sections and write what a client measured, with a little noise."""

    def serve(name, workload=OPEN, noise=0.02, **sections):
        data = {"name": "served", "latency": LINEAR, "workload": workload, "scheduler": SERVER}
        loaded = load_scenario_text(yaml_text({**data, **sections}))
        served = simulate_built(build(loaded), RunOptions()).requests
        rng = np.random.default_rng(7)
        ttft, decode = (
            (after - before) * np.exp(noise * rng.standard_normal(len(served.rid)))
            for before, after in (
                (served.arrival_ns, served.first_token_ns),
                (served.first_token_ns, served.finish_ns),
            )
        )
        first_ns = served.arrival_ns + ttft.astype(np.int64)
        columns = (
            served.arrival_ns,
            np.full(len(first_ns), NOT_YET_NS),
            first_ns,
            first_ns + decode.astype(np.int64),
            served.prompt_tokens,
            served.output_tokens,
        )
        clients = np.flatnonzero(served.warm_up == 0).tolist()
        rid = [served.rid[row] for row in clients]
        write_measured(MeasuredRun(rid, *(column[clients] for column in columns)), Path(name))
        return name

    return serve
