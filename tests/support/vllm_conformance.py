"""Compares our decisions with those of vLLM's own scheduler classes, step by step.

A reference case is one JSON file: `config` (vLLM's settings and the step time's coefficients),
`workload` (rows of format servetwin) and `decisions` (what vLLM decided); see oracle/README.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from zlib import crc32

from sim.core.packed import Line, parse_json_object, read_file
from sim.des.run import RunOptions
from sim.engine.logged_decision import Divergence
from sim.runlog.run_log_file import first_difference
from sim.vllm.offload.settings import SIMPLE
from sim.vllm.version_rules import version_with_rules_of
from tests.support.conformance import case_scenario, serve_scenario
from tests.support.vllm_handover import serve_handover

_SAME_NAME = (
    "max_num_batched_tokens", "max_num_seqs", "max_model_len", "block_size",
    "enable_prefix_caching", "enable_chunked_prefill", "long_prefill_token_threshold",
    "async_scheduling", "scheduler_reserve_full_isl", "max_num_active_seqs", "watermark",
    "long_prefill_token_threshold_adaptive", "prefill_schedule_interval", "max_num_queued_reqs",
    "max_num_queued_tokens", "kv_cache_groups", "prefix_cache_retention_interval",
    "kv_load_failure_policy",
)  # fmt: skip
_STEP_FIELDS = (
    "t_start_ns", "t_end_ns", "prefill", "n_decode", "decode_crc", "ctx", "free", "queue",
    "running", "preempted",
)  # fmt: skip
_RANK_FIELDS = "step", "rank"
_REQUEST_FIELDS = (
    "arrival_ns", "ttft_ns", "finish_ns", "cached_at_admit", "preemptions", "status", "load",
)  # fmt: skip


@dataclass(frozen=True)
class VllmCase:
    """One case: settings, traffic and vLLM's decisions, which are empty if vLLM has not run it.

    `label` has its version, too.
    """

    name: str
    config: Line
    workload: Sequence[Line]
    decisions: Sequence[Line]

    @property
    def label(self) -> str:
        return f"{self.config['version']} {self.name}"


@cache
def find_vllm_cases(folder: Path) -> list[VllmCase]:
    """All cases of a folder and of those in it, sorted by their paths. Do not change them."""
    return [read_vllm_case(path) for path in sorted(folder.rglob("*.json*"))]


def read_vllm_case(path: Path) -> VllmCase:
    """Read a case, plain or gzipped."""
    case = parse_json_object(read_file(path))
    name = path.name.split(".")[0]
    return VllmCase(name, case["config"], case["workload"], case.get("decisions", ()))


def vllm_scenario_of(config: Line) -> Line:
    """The scenario for a case's configuration; its trace is `workload.jsonl`."""
    scheduler = {
        "family": "vllm",
        "version": version_with_rules_of(config["version"]),
        **{name: config[name] for name in _SAME_NAME if name in config},
        "num_gpu_blocks_override": config["num_gpu_blocks"],
        "scheduling_policy": config["policy"],
    }
    tier = config.get("offload", {}).get("tier")
    if "offload" in config:
        scheduler["kv_offloading"] = _offloading(config)
    scenario = case_scenario(config["latency"], scheduler)
    if tier is not None:
        scenario["store"] = _given(tier["store"])
        if any("chunk_bytes" in each for each in (tier, *config["offload"].get("more_tiers", ()))):
            scenario["model"] = "qwen2.5-0.5b"
    drafts = config.get("speculation")
    if drafts is None:
        return scenario
    scheduler["speculative_config"] = {
        name: drafts[name] for name in ("method", "num_speculative_tokens")
    }
    acceptance = {
        name: [float(share) for share in drafts[name]]
        for name in ("by_position", "proposed")
        if name in drafts
    }
    return scenario | {"acceptance": acceptance}


def _given(section: Line) -> Line:
    return {key: value for key, value in section.items() if value is not None}


def _tier(tier: Line) -> Line:
    return {key: value for key, value in tier.items() if key not in ("store", "chunk_bytes")}


def _offloading(config: Line) -> Line:
    keys = dict(config["offload"])
    is_simple = keys.get("kv_connector") == SIMPLE
    # vLLM never uses the first block of a pool.
    num_blocks = keys.pop("num_chunks") * keys.get("blocks_per_chunk", 1) + is_simple
    ns_per_block = float(keys.pop("copy_ns_per_block"))
    if num_tokens := keys.pop("sync_load_tokens", 0):
        keys["sync_load_budget_tokens"] = num_tokens
    if "tier" in keys:
        more: list[Line] = keys.pop("more_tiers", [])
        own = [_tier(tier) | {"store": _given(tier["store"])} for tier in more]
        keys["secondary_tiers"] = [_tier(keys.pop("tier")), *own]
    return keys | {
        "capacity_tokens": num_blocks * config["block_size"],
        "load_tokens_per_s": config["block_size"] * 1e9 / ns_per_block,
    }


def serve_vllm_case(
    case: VllmCase, *, fast_forward: bool = True, check: bool = False
) -> list[Line]:
    """Run a case like any scenario; returns our decision log."""
    options = RunOptions(fast_forward=fast_forward, check=check)
    scenario, stages = vllm_scenario_of(case.config), case.config.get("stages", 1)
    if "role" in case.config:
        role = case.config["role"]
        return serve_handover(scenario, case.workload, role, options, micro_batches=stages)
    ranks = case.config.get("ranks", 1)
    rows = [{name: row[name] for name in row if name != "rank"} for row in case.workload]
    return serve_scenario(scenario, rows, options, num_stages=stages, num_ranks=ranks)


def first_vllm_divergence(ours: Sequence[Line], case: VllmCase) -> Divergence | None:
    """Compare our decision log with vLLM's: every step, then every request."""
    our_steps = (_victims_only(line) for line in ours if line["kind"] == "step")
    if divergence := first_difference(our_steps, vllm_steps(case), _differing_fields):
        return divergence
    ours_by_rid = {line["rid"]: line for line in ours if line["kind"] == "req"}
    for line in case.decisions:
        if line["kind"] == "req":
            mine = ours_by_rid[line["rid"]]
            theirs = line | {"cached_at_admit": line["cached_at_admit"] or 0}
            if line["status"] == "failed":
                theirs |= {"status": "aborted", "finish_ns": None}
            if differing := tuple(n for n in _REQUEST_FIELDS if mine.get(n) != theirs.get(n)):
                return Divergence(f"request {line['rid']}", differing, mine, theirs)
    return None


def _victims_only(step: Line) -> Line:
    """The step with the preempted requests only, without those that they made room for."""
    return step | {"preempted": [rid for _, victims in step["preempted"] for rid in victims]}


def _differing_fields(ours: Line, theirs: Line) -> list[str]:
    names = (*_STEP_FIELDS, *_RANK_FIELDS) if "rank" in theirs else _STEP_FIELDS
    if "host_used" in theirs:
        names = (*names, "host_used")
    return [name for name in names if ours[name] != theirs[name]]


def vllm_steps(case: VllmCase) -> list[Line]:
    """Steps of vLLM with the fields of our log. vLLM lists prefill and decode rows together."""
    steps = (line for line in case.decisions if line["kind"] == "step")
    block_size = case.config["block_size"]
    chunk_tokens = block_size * case.config.get("offload", {}).get("blocks_per_chunk", 1)
    return [
        _as_ours(step, block_size)
        | ({"host_used": step["host_chunks"] * chunk_tokens} if "host_chunks" in step else {})
        for step in steps
    ]


def _as_ours(theirs: Line, block_size: int) -> Line:
    rows, prefilled = theirs["scheduled"], frozenset(theirs["prefill"])
    decode = [rid for rid, _, _ in rows if rid not in prefilled]
    return theirs | {
        "prefill": [row for row in rows if row[0] in prefilled],
        "n_decode": len(decode),
        "decode_crc": crc32(",".join(decode).encode()),
        "ctx": sum(num_computed + num_new for _, num_computed, num_new in rows),
        "free": theirs["free_blocks"] * block_size,
        "queue": len(theirs["waiting"]),
        "running": len(theirs["running"]),
        "preempted": [*theirs["preempted_idle"], *theirs["preempted"]],
    }
