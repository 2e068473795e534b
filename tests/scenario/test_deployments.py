"""Whole deployments as people serve them, each with several features at once."""

from dataclasses import replace
from pathlib import Path

import pytest

from sim.commands.running.simulate import simulate_here
from sim.des.servers import RunOptions
from sim.metrics.summary import summarise
from sim.scenario.build import build
from sim.scenario.load import load_scenario

FOLDER = Path(__file__).parents[2] / "scenarios" / "deployments"
RANKS = "ranks"
# What a run with each feature counts.
DRAFTS, POOLS, HOST = "accepted_tokens", "kv_sent_gb", "total_loaded_tokens"
# Settings of the scheduler.
STATES, WINDOWS = "max_mamba_cache_size", "sliding_window"
HAS = {
    "sglang-deepseek-r1-disaggregated": {RANKS, DRAFTS, POOLS},
    "sglang-deepseek-r1-host-memory": {RANKS, DRAFTS, HOST},
    "sglang-qwen3-next-mtp": {STATES, DRAFTS},
    "sglang-gpt-oss-120b-host-memory": {WINDOWS, DRAFTS, HOST},
    "sglang-llama-70b-host-memory-disaggregated": {POOLS, HOST, DRAFTS},
    "vllm-deepseek-r1-disaggregated": {RANKS, DRAFTS, POOLS},
    "vllm-qwen3-next-mtp": {STATES, DRAFTS},
    "vllm-gpt-oss-120b-disaggregated": {WINDOWS, DRAFTS, POOLS},
}
# The same in family vllm: kinds of groups of layers.
GROUPS = {STATES: "mamba", WINDOWS: "sliding_window"}
# Enough for caches to evict. vLLM's checks look at every block after every step: few of them.
NUM_REQUESTS = 80
FEW = {
    "sglang": [f"workload.num_requests={NUM_REQUESTS}"],
    "vllm": [f"workload.num_requests={NUM_REQUESTS}", "scheduler.num_gpu_blocks_override=2200"],
}


def test_every_deployment_is_listed():
    """A new one says what it has."""
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(HAS)


@pytest.mark.parametrize("name", HAS)
def test_deployment_runs_with_what_it_has(name, tmp_path):
    """Step by step with all invariants checked, and fast-forward, which decides the same."""
    path = FOLDER / f"{name}.yaml"
    built = build(load_scenario(path, FEW[name.partition("-")[0]]))
    options = RunOptions(fast_forward=False, check=True, decisions=tmp_path / "slow")
    log, _ = simulate_here(built, options)
    assert list(log.requests.status) == ["finished"] * NUM_REQUESTS
    fast = replace(options, fast_forward=True, check=False, decisions=tmp_path / "fast")
    simulate_here(built, fast)
    assert (tmp_path / "fast").read_bytes() == (tmp_path / "slow").read_bytes()
    summary, scenario = summarise(log), built.loaded.scenario
    scheduler = scenario.scheduler
    groups = getattr(scheduler, "kv_cache_groups", None) or ()
    kinds = set(GROUPS.values()) if groups == "model" else {group.kind for group in groups}
    for feature in HAS[name]:
        if feature == RANKS:
            assert scenario.latency.dp > 1
        elif feature in GROUPS:
            assert getattr(scheduler, feature, None) or GROUPS[feature] in kinds
        else:
            assert summary[feature] > 0, feature
