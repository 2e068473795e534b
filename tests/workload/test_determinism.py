"""The same section and seed give the same requests, whatever Python's hash seed."""

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
# Prints one digest of everything random: names, times, ids, limits, guesses, answers.
SCRIPT = """
import hashlib
from pathlib import Path
from pydantic import TypeAdapter
from sim.workload.kinds.build import build_workload
from sim.workload.config import WorkloadConfig

length = {"kind": "lognormal", "mean": 50, "cv": 1}
think = {"kind": "exponential", "mean": 1}
arrivals = {"kind": "gamma", "rate_rps": 5, "cv": 2}
prefixes = {"groups": 3, "tokens": length, "share_probability": 0.5}
lengths = {"prompt_tokens": length, "output_tokens": length}
sessions = {
    "kind": "sessions", "sessions": 9, "arrivals": arrivals, "turns": length | {"max": 5},
    "user_tokens": length, "output_tokens": length, "think_s": think,
    "system_prompts": {"count": 4, "tokens": 9},
}
parts = {
    "one": lengths | {
        "kind": "synthetic", "num_requests": 50, "arrivals": arrivals, "prefixes": prefixes,
        "predicted_output": {"kind": "lognormal", "sigma": 0.3},
    },
    "two": sessions,
    "three": sessions | {"closed_loop": False},
    "four": lengths | {
        "kind": "clients", "clients": 5, "requests_per_client": 4, "think_s": think,
        "prefixes": prefixes,
    },
}
section = {
    "kind": "mix",
    "parts": [{"tenant": tenant, "workload": part} for tenant, part in parts.items()],
}
config = TypeAdapter(WorkloadConfig).validate_python(section)
workload = build_workload(config, seed=11, base_dir=Path())
digest = hashlib.sha256()
turns = [turn for client in workload.clients for turn in client]
digest.update(repr([turn.think_ns for turn in turns]).encode())
for request in [*workload.arrivals(), *(turn.request for turn in turns)]:
    digest.update(repr((request.spec.rid, request.spec.arrival_ns)).encode())
    digest.update(repr((request.script.num_tokens, request.script.seed)).encode())
    digest.update(repr((request.spec.max_new_tokens, request.spec.tenant)).encode())
    digest.update(repr(request.spec.predicted_output_tokens).encode())
    digest.update(request.spec.prompt.token_ids().tobytes())
print(workload.num_requests, digest.hexdigest())
"""


def output_of(hash_seed):
    env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", SCRIPT]
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout


def test_workload_is_the_same_under_any_hash_seed():
    """A mix of all kinds, digested in two processes."""
    first = output_of("1")
    assert int(first.split()[0]) > 70
    assert output_of("4294967295") == first
