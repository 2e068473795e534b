"""Prints digests of the logs of many scenarios, to check that a change leaves all logs the same.

    python -m bench.log_digests > before.txt    # before the change
    python -m bench.log_digests > after.txt     # after it; both files must be the same

One line for each scenario: its name, a digest of all columns of its run log, and a digest of its
decision log.
"""

import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from bench.places import REPOSITORY, TRACE
from sim.commands.running.simulate import run_built
from sim.runlog import RunLog
from sim.scenario.build import build
from sim.scenario.load import load_scenario

_SMOKE = "scenarios/smoke.yaml"
_MOONCAKE = "bench/scenarios/conversation.yaml"

# Options (`--set`) that the scenarios below share.
_BUSY = (
    "workload.arrivals.rate_rps=40",
    "workload.num_requests=600",
    "scheduler.max_running_requests=24",
)
_TIGHT = (*_BUSY, "scheduler.max_total_tokens=3072", "scheduler.schedule_conservativeness=0.1")
_VLLM = (
    *_BUSY[:2],
    "scheduler={family: vllm, version: 0.19.0, max_num_batched_tokens: 512, max_num_seqs: 64}",
    "scheduler.num_gpu_blocks_override=513",
    "scheduler.max_model_len=4096",
)
_TIGHT_VLLM = (*_VLLM, "scheduler.num_gpu_blocks_override=161", "scheduler.max_model_len=2000")
_NEWEST = "scheduler.version=0.33.0"
_CLIENTS = (
    "workload={kind: clients, clients: 40, requests_per_client: 8, system_prompt_tokens: 100}",
    "workload.think_s={kind: constant, value: 0.2}",
    "workload.prompt_tokens={kind: uniform, min: 20, max: 400}",
    "workload.output_tokens={kind: uniform, min: 5, max: 120}",
)
_PRIORITIES = "workload={kind: trace, format: servetwin, path: priorities.jsonl}"
_BY_PRIORITY = (
    "scheduler.enable_priority_scheduling=true",
    "scheduler.priority_scheduling_preemption_threshold=0",
    "scheduler.schedule_policy=fcfs",
)
_DISAGGREGATED = (
    "pools={prefill: {role: prefill, replicas: 2}, decode: {role: decode, replicas: 2}}",
    "transfer={bandwidth_gb_s: 1, latency_s: 0.001, bytes_per_token: 131072}",
)
_POLICIES = ("fcfs", "lpm", "dfs-weight", "lof", "sjf", "random", "hrrn", "shortest-prefill-first")

# By name: the scenario file and its options.
SCENARIOS: dict[str, tuple[str, tuple[str, ...]]] = {
    **{
        f"sglang-{policy}": (_SMOKE, (*_BUSY, f"scheduler.schedule_policy={policy}"))
        for policy in _POLICIES
    },
    "sglang-tight-pool": (_SMOKE, _TIGHT),
    "sglang-normal": (_SMOKE, (*_BUSY, "scheduler.disable_overlap_schedule=true")),
    "sglang-mixed": (_SMOKE, (*_BUSY, "scheduler.enable_mixed_chunk=true", "latency.host_s=0.004")),
    "sglang-mixed-tight": (_SMOKE, (*_TIGHT, "scheduler.enable_mixed_chunk=true")),
    "sglang-page-1": (_SMOKE, (*_BUSY, "scheduler.page_size=1")),
    "sglang-no-cache": (
        _SMOKE,
        (*_BUSY, "scheduler.disable_radix_cache=true", "scheduler.schedule_policy=fcfs"),
    ),
    "sglang-lfu": (_SMOKE, (*_TIGHT, "scheduler.radix_eviction_policy=lfu")),
    "sglang-hit-benefit": (_SMOKE, (*_TIGHT, "scheduler.radix_eviction_policy=hit-benefit")),
    "sglang-fairness-t": (_SMOKE, (*_BUSY, "scheduler.fairness={kind: fairness_t, t_ms: 100}")),
    "sglang-k-lpm": (_SMOKE, (*_BUSY, "scheduler.fairness={kind: k_lpm, k: 4}")),
    "sglang-host-cache": (
        _SMOKE,
        (*_TIGHT, "scheduler.host_cache={ratio: 4, load_tokens_per_s: 200000}"),
    ),
    "sglang-write-back": (
        _SMOKE,
        (
            *_TIGHT,
            "scheduler.host_cache={ratio: 1, write_policy: write_back, load_tokens_per_s: 200000}",
        ),
    ),
    "sglang-pack": (_SMOKE, (*_BUSY, "scheduler.admission={kind: pack}")),
    "sglang-static": (_SMOKE, (*_BUSY, "scheduler.batching=static")),
    "sglang-turns": (
        _SMOKE,
        (
            *_BUSY,
            "scheduler.decode_max_requests=8",
            "scheduler.decode_first=true",
            "scheduler.disable_overlap_schedule=true",
        ),
    ),
    "vllm-async": (_SMOKE, _VLLM),
    "vllm-sync": (_SMOKE, (*_VLLM, "scheduler.async_scheduling=false")),
    "vllm-tight": (_SMOKE, _TIGHT_VLLM),
    "vllm-tight-sync": (_SMOKE, (*_TIGHT_VLLM, "scheduler.async_scheduling=false")),
    "vllm-priority": (
        _SMOKE,
        (*_TIGHT_VLLM, _PRIORITIES, "scheduler.scheduling_policy=priority"),
    ),
    "vllm-newest-tight": (_SMOKE, (*_TIGHT_VLLM, _NEWEST)),
    "vllm-newest-priority": (
        _SMOKE,
        (*_TIGHT_VLLM, _PRIORITIES, "scheduler.scheduling_policy=priority", _NEWEST),
    ),
    "vllm-newest-cadence": (
        _SMOKE,
        (*_TIGHT_VLLM, _NEWEST, "scheduler.prefill_schedule_interval=4", "scheduler.watermark=0.1"),
    ),
    "sglang-priority": (_SMOKE, (*_TIGHT, _PRIORITIES, *_BY_PRIORITY)),
    "vllm-threshold": (_SMOKE, (*_VLLM, "scheduler.long_prefill_token_threshold=64")),
    "sglang-clients": (_SMOKE, _CLIENTS),
    "vllm-clients": (_SMOKE, (*_CLIENTS, *_VLLM[2:])),
    **{
        f"router-{kind}": (_SMOKE, (*_BUSY, "replicas=3", f"router={{kind: {kind}}}"))
        for kind in ("round-robin", "least-loaded", "prefix-aware", "session-sticky")
    },
    "sglang-disaggregated": (_SMOKE, (*_BUSY, *_DISAGGREGATED)),
    "sglang-disaggregated-tight": (_SMOKE, (*_TIGHT, *_DISAGGREGATED)),
    "sglang-disaggregated-ranks": (_SMOKE, (*_BUSY, *_DISAGGREGATED, "latency.dp=2")),
    "vllm-disaggregated": (_SMOKE, (*_VLLM, *_DISAGGREGATED)),
    "vllm-disaggregated-tight": (_SMOKE, (*_TIGHT_VLLM, *_DISAGGREGATED)),
    "mooncake-1": (_MOONCAKE, ()),
    "mooncake-4": (_MOONCAKE, ("replicas=4",)),
    "mooncake-4-page-1": (_MOONCAKE, ("replicas=4", "scheduler.page_size=1")),
    "mooncake-lpm-x4": (
        _MOONCAKE,
        ("workload.time_scale=0.25", "scheduler.schedule_policy=lpm"),
    ),
    "mooncake-vllm": (
        _MOONCAKE,
        (
            "scheduler={family: vllm, version: 0.19.0, max_num_batched_tokens: 8192}",
            "scheduler.max_num_seqs=256",
            "scheduler.block_size=64",
            "scheduler.num_gpu_blocks_override=12801",
        ),
    ),
}


def main(chosen: list[str]) -> None:
    """Print a line for each scenario, or for those whose names begin with one of `chosen`."""
    for name, (file, overrides) in SCENARIOS.items():
        if chosen and not name.startswith(tuple(chosen)):
            continue
        if file == _MOONCAKE and not TRACE.exists():
            sys.stderr.write(f"{name} is left out: there is no {TRACE}\n")
            continue
        sys.stdout.write(" ".join([name, *_digests(REPOSITORY / file, overrides)]) + "\n")
        sys.stdout.flush()


def _digests(scenario: Path, overrides: tuple[str, ...]) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        _write_priorities(Path(folder) / "priorities.jsonl")
        sets = [s.replace("priorities.jsonl", f"{folder}/priorities.jsonl") for s in overrides]
        built = build(load_scenario(scenario, sets))
        decisions = Path(folder) / "decisions.jsonl"
        log = run_built(built, decisions=decisions)
        yield _digest_of_columns(log)
        yield hashlib.sha256(decisions.read_bytes()).hexdigest()[:24]


def _write_priorities(path: Path) -> None:
    """Write a trace of requests whose priorities often change from one to the next."""
    rows = [
        {
            "rid": f"r{i}",
            "arrival": i * 0.02,
            "segments": [[1 + i % 5, 60], [100 + i, 20 + 7 * (i % 40)]],
            "output_len": 10 + 11 * (i % 13),
            "priority": i * 7 % 4,
        }
        for i in range(500)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _digest_of_columns(log: RunLog) -> str:
    digest = hashlib.sha256()
    for columns in (log.requests, log.steps, log.token_gaps):
        for field in fields(columns):
            if field.name == "warm_up" and not log.requests.warm_up.any():
                continue
            column = getattr(columns, field.name)
            data = repr(column).encode() if isinstance(column, list) else column.tobytes()
            digest.update(field.name.encode() + data)
    return digest.hexdigest()[:24]


if __name__ == "__main__":
    main(sys.argv[1:])
