"""`simulate plan` with sizes of memory: what is taken at which price, and what is left out."""

import json
from pathlib import Path

import pytest

import sim.commands.running.sweeps
from sim.scenario.load import load_scenario
from sim.sweep.capacity.candidates import in_words
from sim.sweep.capacity.plan import plan_capacity
from sim.workers.process_pool import ProcessPool
from tests.support.serve import LINEAR_LATENCY

# 12 kB of KV a token: the traffic has some 2.5 GB, a GPU's pool a sixth of it.
SESSIONS = (
    f"name: study\nmodel: qwen2.5-0.5b\n{LINEAR_LATENCY}"
    """\
workload:
  kind: sessions
  sessions: 14
  arrivals: {kind: constant, rate_rps: 1}
  turns: {kind: constant, value: 5}
  user_tokens: {kind: constant, value: 3000}
  output_tokens: {kind: constant, value: 8}
  think_s: {kind: constant, value: 6}
scheduler: {page_size: 16, max_total_tokens: 32768}
slo: {ttft_ms: 250}
"""
)
PLAN = """\
plan:
  min_slo_attainment: 0.7
  max_replicas: 8
  num_shown: 1
  gpus: {any: {price_per_hour: 2}}
  servers:
    - settings: {scheduler.host_cache.load_tokens_per_s: 1e7}
      grid: {router: [prefix-aware]}
"""
MEMORY = """\
  memory:
    dram_gb: [0, 1, 4, 8]
    dram_price_per_gb_hour: 0.01
"""
STORE = "plan.memory.store={preset: nvme, read_tokens_per_s: 1e6, write_tokens_per_s: 1e6}"
NVME = (STORE, "plan.memory.store_tb=[0, 1]", "plan.memory.store_price_per_tb_hour=0.001")


@pytest.fixture
def planned(folder):
    """A study whose sessions fit into no GPU."""
    Path("study.yaml").write_text(SESSIONS + PLAN + MEMORY, encoding="utf-8")
    return "study.yaml"


def options(*overrides):
    return [part for each in overrides for part in ("--set", each)]


@pytest.fixture
def found(simulate, inline, planned):
    """The deployments of a plan with these options, the best first, and the file's other parts."""

    def run(*overrides):
        simulate("plan", planned, "--out", "out", *options(*overrides))
        content = json.loads(Path("out", "results.json").read_text(encoding="utf-8"))
        return content["deployments"], content

    return run


def test_memory_is_taken_while_it_is_cheaper_than_servers(found, simulate, planned):
    """At no price it never costs more than without; at an endless one there is none."""
    [bare], _ = found("plan.memory=null", "plan.servers=[{settings: {router: prefix-aware}}]")
    costs = []
    for sizes in ("[0]", "[0, 1]", "[0, 1, 4]"):
        free, _ = found(f"plan.memory.dram_gb={sizes}", "plan.memory.dram_price_per_gb_hour=0")
        costs.append(free[0]["cost"])
    assert costs[0] == bare["cost"]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < bare["cost"]
    dear, _ = found("plan.memory.dram_price_per_gb_hour=1e9")
    assert (dear[0]["dram_gb"], dear[0]["cost"]) == (0, bare["cost"])


def test_memory_costs_what_its_servers_have(found, simulate, planned):
    """By hand: GPUs and GB of all servers; and the price of the tokens that finished."""
    [best, *_], _ = found()
    assert best["dram_gb"] == 4
    assert best["cost"] == pytest.approx(best["replicas"] * (2 + 4 * 0.01))
    settings = options(*(f"{key}={json.dumps(value)}" for key, value in best["settings"].items()))
    summary = json.loads(simulate("run", planned, "--format", "json", *settings).out)
    hours = summary["total_throughput"] * 3600 / 1e6
    assert best["cost_per_million_tokens"] == pytest.approx(best["cost"] / hours)
    assert best["cache_hit_rate_pct"] == summary["cache_hit_rate_pct"]
    assert best["host_hit_rate_pct"] == summary["host_hit_rate_pct"] > 0


def test_memory_that_holds_all_kv_is_not_tried_in_larger_sizes(found, simulate, planned):
    """Because its runs are the same: nothing is ever evicted there."""
    deployments, content = found("plan.num_shown=9")
    assert sorted(one["dram_gb"] for one in deployments) == [0, 1, 4]
    assert content["memory"]["num_useless"] == 1
    assert content["memory"]["most_tokens"] * 12_288 < 4e9
    ended = {}
    for size_gb in (1, 4, 8):
        host = f"scheduler.host_cache={{load_tokens_per_s: 1e7, size_gb: {size_gb}}}"
        simulate("run", planned, *options(host), "--decisions", f"{size_gb}.jsonl")
        lines = Path(f"{size_gb}.jsonl").read_text(encoding="utf-8").splitlines()
        ended[size_gb] = [line for line in lines if '"kind":"step"' in line]
    assert ended[4] == ended[8] != ended[1]


@pytest.fixture
def candidates(planned):
    """What a plan with these options may try."""

    def listed(*overrides):
        return plan_capacity(load_scenario(planned, [*NVME, *overrides])).candidates

    return listed


def sizes_of(found):
    return [(one.memory.dram_gb, one.memory.store_tb) for one in found]


def test_stores_of_ones_own_below_memory_that_holds_all_are_not_tried(candidates):
    """A shared one is: other servers' KV is there. It is paid for once."""
    own = candidates()
    assert sizes_of(own) == [(0, 0), (0, 1), (1, 0), (1, 1), (4, 0)]
    assert own[1].reason == "SGLang has a store for KV only below host memory"
    assert own[3].cost((3,)) == pytest.approx(3 * (2 + 0.01 + 0.001))
    shared = candidates("plan.memory.store.shared=true")
    assert sizes_of(shared) == [(0, 0), (0, 1), (1, 0), (1, 1), (4, 0), (4, 1), (8, 1)]
    assert shared[3].cost((3,)) == pytest.approx(3 * (2 + 0.01) + 0.001)


def test_policies_of_a_tier_are_tried_where_it_is(candidates):
    """Without host memory, or without a store, their policies make no further candidates."""
    grid = (
        "plan.servers.0.grid={scheduler.host_cache.write_policy: [write_through, write_back],"
        " scheduler.host_cache.storage.prefetch_policy: [timeout, best_effort],"
        " router: [prefix-aware]}"
    )
    places = sizes_of(candidates(grid, "plan.memory.dram_gb=[0, 1]"))
    assert [places.count(place) for place in ((0, 0), (1, 0), (0, 1), (1, 1))] == [1, 2, 1, 4]


def test_both_families_get_their_own_keys(candidates):
    """SGLang's whole GB of each GPU, and vLLM's GiB of all; each its own way to use a store."""
    vllm = "{family: vllm, settings: {scheduler.num_gpu_blocks_override: 2048}}"
    sglang = "{settings: {scheduler.host_cache.load_tokens_per_s: 1e7}}"
    found = candidates(f"plan.servers=[{sglang}, {vllm}]", "plan.memory.dram_gb=[0.5, 2]")
    by_words = {in_words(one): one for one in found}
    of_sglang, of_vllm = (
        by_words[f"any, tp 1, {family}, DRAM 2 GB"].settings for family in ("sglang", "vllm")
    )
    assert of_sglang["scheduler.host_cache.size_gb"] == 2
    assert of_vllm["scheduler.kv_offloading_size"] == pytest.approx(2e9 / 2**30)
    with_store = by_words["any, tp 1, vllm, DRAM 2 GB, store 1 TB"].settings
    assert with_store["scheduler.kv_offloading.secondary_tiers"] == [{"type": "fs"}]
    reasons = {words: one.reason for words, one in by_words.items() if one.reason}
    in_gb = "0.5 GB of DRAM are 0.5 GB for each GPU, but --hicache-size takes whole GB"
    assert reasons == {
        "any, tp 1, sglang, DRAM 0.5 GB": in_gb,
        "any, tp 1, sglang, DRAM 0.5 GB, store 1 TB": in_gb,
    }


def test_plan_with_memory_says_what_it_rests_on(simulate, inline, planned):
    """And the bound, what servers cost without, and the launch flag."""
    ended = simulate("plan", planned, "--out", "out")
    assert ended.code == 0
    assert "1 candidate with more memory than can help left out: the traffic has no more" in (
        ended.out
    )
    assert "Caches: an unlimited one finds" in ended.out
    assert "follow from their bandwidths: they were not measured, and" in ended.out
    assert "Without memory beside the GPUs: " in ended.out
    assert "--hicache-size 4" in ended.out
    assert "behind a router (prefix-aware)" in ended.out or "One server." in ended.out


def test_plan_with_memory_by_worker_processes_gives_the_same(
    simulate, inline, planned, monkeypatch
):
    """To the byte, with one worker and with two."""
    whole = simulate("plan", planned, "--out", "whole")
    monkeypatch.setattr(sim.commands.running.sweeps, "ProcessPool", ProcessPool)
    assert simulate("plan", planned, "--out", "two", "--jobs", "2") == whole
    for name in ("results.json", "results.csv"):
        assert Path("two", name).read_bytes() == Path("whole", name).read_bytes()


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("plan.memory.dram_price_per_gb_hour=null", "dram_gb needs dram_price_per_gb_hour"),
        ("plan.memory.dram_price_per_gb_hour=-1", "must be at least 0, got -1"),
        ("plan.memory.dram_price_per_gb_hour=free", "must be a number, got the string 'free'"),
        ("plan.memory.dram_gb=[-4]", "plan.memory.dram_gb.0: must be at least 0, got -4"),
        ("plan.memory.dram_gb=64", "plan.memory.dram_gb=64: must be a list, got 64"),
        ("plan.memory.dram_gb=[64GB]", "must be a number, got the string '64GB'"),
        ("plan.memory.dram_gb=[1, 1]", "dram_gb has a size twice"),
        ("plan.memory.store_tb=[1]", "store_tb needs store_price_per_tb_hour"),
        (
            "plan.memory={store_tb: [1], store_price_per_tb_hour: 1}",
            "store_tb needs store",
        ),
        (
            "plan.memory.store={preset: nvme, capacity_gb: 10}",
            "store has no size here: store_tb lists the sizes to try",
        ),
        ("plan.memory.store=floppy", "unknown store preset 'floppy'"),
        ("plan.gpus={any: {}}", "any has no price_per_hour, but memory has prices"),
        (
            "plan.disaggregated={gpu_bandwidth_gb_s: 5}",
            "memory is not simulated together with disaggregated",
        ),
        (
            "scheduler.host_cache={load_tokens_per_s: 1e7}",
            "plan.memory lists sizes: give the other keys in plan.servers",
        ),
    ],
)
def test_plan_with_bad_memory_is_one_line(simulate, planned, override, reason):
    """With file, line or option, and key; exit code 2."""
    ended = simulate("plan", planned, "--set", override)
    assert ended.code == 2
    [line] = ended.err.splitlines()
    assert reason in line
