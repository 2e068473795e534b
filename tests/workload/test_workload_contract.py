"""Every kind of traffic keeps the contract of workloads."""

import pytest
from pydantic import TypeAdapter

from sim.testing.contracts import WorkloadContract
from sim.workload.config import WorkloadConfig
from sim.workload.kinds.build import build_workload

LENGTH = {"kind": "uniform", "min": 5, "max": 50}
THINK = {"kind": "constant", "value": 0.1}
SYNTHETIC = {
    "kind": "synthetic", "num_requests": 30, "prompt_tokens": LENGTH, "output_tokens": LENGTH,
    "arrivals": {"kind": "poisson", "rate_rps": 5},
}  # fmt: skip
CLIENTS = {
    "kind": "clients", "clients": 3, "requests_per_client": 4, "think_s": THINK,
    "prompt_tokens": LENGTH, "output_tokens": LENGTH,
}  # fmt: skip
SESSIONS = {
    "kind": "sessions", "sessions": 4, "arrivals": {"kind": "poisson", "rate_rps": 5},
    "turns": {"kind": "constant", "value": 3}, "user_tokens": LENGTH, "output_tokens": LENGTH,
    "think_s": THINK,
}  # fmt: skip
MIX = {
    "kind": "mix",
    "parts": [{"tenant": "a", "workload": SYNTHETIC}, {"tenant": "b", "workload": CLIENTS}],
}
BENCH = {
    "kind": "bench", "client": "vllm", "num_prompts": 12, "request_rate": 20, "input_len": 64,
    "output_len": 8,
}  # fmt: skip
KINDS = [SYNTHETIC, CLIENTS, SESSIONS, MIX, BENCH]


class TestKinds(WorkloadContract):
    """All but traces, whose files have tests of their own."""

    @pytest.fixture(params=KINDS, ids=lambda section: section["kind"])
    def make_workload(self, request, tmp_path):
        config = TypeAdapter(WorkloadConfig).validate_python(request.param)
        return lambda: build_workload(config, seed=3, base_dir=tmp_path)
