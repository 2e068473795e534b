"""Compares our decisions with those of SGLang's own scheduler, step by step.

A reference case is three files: `NN.config.json` (SGLang's settings and the step time's
coefficients), `NN.workload.jsonl[.gz]` (format servetwin) and `NN.decisions.jsonl[.gz]` (what
SGLang's scheduler classes decided), as `make oracle` makes them.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sim.core.errors import InputError, InvariantError
from sim.core.packed import Line, numbered_lines, read_json_object
from sim.des.clock import Clock
from sim.des.deployment import Deployment
from sim.des.run import PoolFactory, Running, RunOptions, simulate
from sim.des.traffic import SimulationLog, start_traffic
from sim.engine.logged_decision import DECIDED_FIELDS, DRAFT_FIELDS, HOST_FIELDS, Divergence
from sim.engine.page_pool import PageCounts
from sim.latency.model import ReplicaLatency, each_latency
from sim.latency.wrappers import StagedLatency
from sim.runlog.decisions import StepLines
from sim.runlog.run_log_file import first_difference
from sim.scenario.build import BuiltScenario, build
from sim.scenario.load import load_scenario_text
from sim.workload.workload import Workload

# Fields of a step that must be equal. Ratios and times may differ by the tolerances below: the
# digits that SGLang's ratio is printed with, and a microsecond.
EXACT_FIELDS = tuple(name for name in DECIDED_FIELDS if name != "ratio")
_RATIO_TOLERANCE = 2e-9
_TIME_TOLERANCE_S = 1e-6
_SAME_NAME = (
    "page_size", "max_prefill_tokens", "max_running_requests", "prefill_max_requests",
    "schedule_conservativeness", "clip_max_new_tokens", "enable_mixed_chunk",
    "disable_radix_cache", "enable_priority_scheduling", "schedule_low_priority_values_first",
    "disable_priority_preemption", "retraction_policy", "random_seed", "init_new_token_ratio",
    "min_new_token_ratio_factor", "new_token_ratio_decay_steps", "retract_decode_steps",
    "prefill_decode_interval", "prefill_decode_interval_min_bs", "min_free_slots_delay",
    "prefill_delayer", "max_queued_requests", "waiting_timeout_s", "running_timeout_s",
    "sliding_window", "swa_full_tokens_ratio", "swa_eviction_interval", "max_mamba_cache_size",
    "mamba_radix_cache_strategy", "mamba_track_interval",
)  # fmt: skip
_OTHER_NAME = {
    "policy": "schedule_policy",
    "kv_pool_tokens": "max_total_tokens",
    "context_len": "context_length",
    "priority_preemption_threshold": "priority_scheduling_preemption_threshold",
    "eviction_policy": "radix_eviction_policy",
    "in_batch_check_threshold": "in_batch_prefix_check_threshold",
    "in_batch_deprioritize_threshold": "in_batch_prefix_deprioritize_threshold",
}
# The layers of the model in cases with host memory (oracle/sglang/memory.py): half of them have a
# window, if some have, and one has states in place of KV.
_HOST_LAYERS = 4
_STORAGE = {
    "hicache_storage_prefetch_policy": "prefetch_policy",
    "hicache_storage_prefetch_retry_poll_interval": "prefetch_retry_poll_interval",
    "hicache_storage_prefetch_retry_max_attempts": "prefetch_retry_max_attempts",
    **{
        key: key
        for key in ("prefetch_threshold", "prefetch_timeout_base", "prefetch_timeout_per_ki_token")
    },
}
_STORE_IN_OTHER_UNITS = ("capacity_pages", "read_s_per_token", "write_s_per_token")
_DEFAULT_LATENCY = {"a": 0.005, "b": 2e-5, "c": 1e-4, "d": 1e-8}


@dataclass(frozen=True)
class ReferenceCase:
    """One case on disk: its `folder`, and the `name` that its files begin with."""

    folder: Path
    name: str

    def read_lines(self, part: str) -> Iterator[Line]:
        """Lines of the `workload` or `decisions` file."""
        path = self.folder / f"{self.name}.{part}.jsonl"
        found = path if path.exists() else Path(f"{path}.gz")
        return (line for _, line in numbered_lines(found))

    def config(self) -> Line:
        return read_json_object(self.folder / f"{self.name}.config.json")


def find_cases(folder: Path) -> list[ReferenceCase]:
    """All cases of a folder, sorted by name."""
    names = sorted(path.name.split(".")[0] for path in folder.glob("*.config.json"))
    return [ReferenceCase(folder, name) for name in names]


def scenario_of(config: Line) -> Line:
    """The scenario for a case's configuration; its trace is `workload.jsonl`."""
    scheduler = {name: config[name] for name in _SAME_NAME if name in config}
    scheduler |= {ours: config[theirs] for theirs, ours in _OTHER_NAME.items() if theirs in config}
    chunk = config.get("chunked_prefill_size", 8192)
    scheduler["chunked_prefill_size"] = chunk if chunk and chunk > 0 else -1
    scheduler["disable_overlap_schedule"] = not config.get("enable_overlap", False)
    scheduler.setdefault("max_total_tokens", 32768)
    if settings := config.get("eviction_policy_config"):
        scheduler["radix_eviction_policy_config"] = settings
    drafts = config.get("speculation")
    scenario: Line = (
        {} if drafts is None else {"acceptance": {"by_position": drafts["by_position"]}}
    )
    if drafts is not None:
        names = ("algorithm", "num_steps", "num_draft_tokens")
        scheduler |= {f"speculative_{name}": drafts[name] for name in names}
    if copy_s := config.get("copy_s_per_token"):
        share = 1 - 1 / _HOST_LAYERS if config.get("max_mamba_cache_size") else 1.0
        scheduler["host_cache"] = {
            "ratio": config["hicache_ratio"],
            "write_policy": config["hicache_write_policy"],
            "load_tokens_per_s": 1 / (copy_s * share),
            "overlap_layers": _HOST_LAYERS,
        }
        if share < 1 and config.get("sliding_window"):
            scheduler["host_cache"]["window_share"] = 1 / 3
        if state_tokens := config.get("state_copy_tokens"):
            scheduler["host_cache"]["state_tokens"] = state_tokens / share
    if (store := config.get("store")) is not None:
        scheduler["host_cache"]["storage"] = {
            ours: config[theirs] for theirs, ours in _STORAGE.items() if theirs in config
        }
        scenario["store"] = _store_of(store, config["page_size"])
    return case_scenario(config.get("latency", _DEFAULT_LATENCY), scheduler) | scenario


def _store_of(store: Line, page_size: int) -> Line:
    """The section `store` for that of a case, whose speeds are times of a token."""
    section = {key: value for key, value in store.items() if key not in _STORE_IN_OTHER_UNITS}
    if (num_pages := store["capacity_pages"]) is not None:
        section["capacity_tokens"] = num_pages * page_size
    for direction in ("read", "write"):
        section[f"{direction}_tokens_per_s"] = 1 / store[f"{direction}_s_per_token"]
    return section


def case_scenario(latency: Line, scheduler: Line) -> Line:
    """The scenario of a case with these step time coefficients and this scheduler."""
    return {
        "name": "reference-case",
        "latency": {
            "kind": "linear",
            "step_s": latency["a"],
            "per_prefill_token_s": latency["b"],
            "per_decode_request_s": latency["c"],
            "per_context_token_s": latency["d"],
        },
        "workload": {"kind": "trace", "format": "servetwin", "path": "workload.jsonl"},
        "scheduler": scheduler,
    }


def serve_case(
    case: ReferenceCase, *, fast_forward: bool = True, pool: PoolFactory = PageCounts
) -> list[Line]:
    """Run a case like any scenario; returns our decision log."""
    options = RunOptions(fast_forward=fast_forward, pool=pool)
    config = case.config()
    stages, ranks = config.get("stages", 1), config.get("ranks", 1)
    rows = _trace_of(case, config)
    return serve_scenario(scenario_of(config), rows, options, num_stages=stages, num_ranks=ranks)


def case_until_error(case: ReferenceCase) -> list[Line]:
    """Our steps of a case that ends with an error."""
    config = case.config()
    stages, ranks = config.get("stages", 1), config.get("ranks", 1)
    with TemporaryDirectory() as name:
        rows = _trace_of(case, config)
        workload, deployment = _built(scenario_of(config), rows, Path(name), stages, ranks)
        env, steps = Clock(), StepLines(1, ranks)
        log = SimulationLog(steps)
        options = RunOptions(fast_forward=False)
        run = Running(env, deployment.numbered(), log, options, clients_react=False)
        start_traffic(env, workload, run.submit, log)
        with suppress(InputError, InvariantError):
            run.run()
        lines = [json.loads(line) for line in steps.in_order()]
        steps.discard()
        return lines


def _trace_of(case: ReferenceCase, config: Line) -> Iterator[Line]:
    ignore_eos = bool(config.get("ignore_eos", False))
    return (trace_row({"ignore_eos": ignore_eos, **row}) for row in case.read_lines("workload"))


def trace_row(row: Line) -> Line:
    """A row of our trace format: a routing key is a session there."""
    key = row.get("routing_key")
    others = {name: value for name, value in row.items() if name != "routing_key"}
    return others if key is None else {**others, "session": key}


def serve_scenario(
    scenario: Line,
    rows: Iterable[Line],
    options: RunOptions,
    *,
    num_stages: int = 1,
    num_ranks: int = 1,
) -> list[Line]:
    """Run a case's scenario on the rows of its workload; returns our decision log.

    With several stages, each has an equal part of a step's time. The settings are those of each
    rank.
    """
    with TemporaryDirectory() as name:
        folder = Path(name)
        workload, deployment = _built(scenario, rows, folder, num_stages, num_ranks)
        log = folder / "decisions.jsonl"
        simulate(workload, deployment, replace(options, decisions=log))
        return [line for _, line in numbered_lines(log)]


def _built(
    scenario: Line, rows: Iterable[Line], folder: Path, num_stages: int, num_ranks: int
) -> tuple[Workload, Deployment]:
    trace = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "workload.jsonl").write_text(trace, encoding="utf-8")
    # JSON is YAML.
    built = build(load_scenario_text(json.dumps(scenario, indent=1), base_dir=folder))
    config, latencies = in_stages(built, num_stages)
    if num_ranks > 1:
        latencies = [(each,) * num_ranks for each in each_latency(latencies)]
    return built.workload, Deployment.of_one_kind(config, latencies)


def in_stages(built: BuiltScenario, number: int) -> tuple[Any, Sequence[ReplicaLatency]]:
    """The settings and latency models of a server with this many equal stages."""
    config: Any = built.scheduler
    if number == 1:
        return config, built.latencies
    equal = [1] * number
    latencies = [StagedLatency(each, each, equal) for each in each_latency(built.latencies)]
    return replace(config, micro_batches=number), latencies


def first_divergence(ours: Sequence[Line], theirs: Sequence[Line]) -> Divergence | None:
    """Compare our decision log with SGLang's: every step, then every request."""
    our_steps = (line for line in ours if line["kind"] == "step")
    their_steps = (_in_ns(line) for line in theirs if line["kind"] == "step")
    if divergence := first_difference(our_steps, their_steps, _differing_fields):
        return divergence
    ours_by_rid = {line["rid"]: line for line in ours if line["kind"] == "req"}
    for line in theirs:
        if line["kind"] == "req":
            mine = ours_by_rid[line["rid"]]
            if differing := _differing_results(mine, line):
                return Divergence(f"request {line['rid']}", differing, mine, line)
    return None


def _in_ns(step: Line) -> Line:
    return step | {
        "t_start_ns": round(step["t_start"] * 1e9),
        "t_end_ns": round(step["t_end"] * 1e9),
    }


def _differing_fields(ours: Line, theirs: Line) -> list[str]:
    differing = [name for name in EXACT_FIELDS if ours[name] != theirs[name]]
    differing += [name for name in DRAFT_FIELDS if ours.get(name, []) != theirs.get(name, [])]
    names = (*HOST_FIELDS, "rank")
    differing += [name for name in names if name in theirs and ours.get(name) != theirs[name]]
    if "rank" in theirs and ours["step"] != theirs["step"]:
        differing.append("step")
    if abs(ours["ratio"] - theirs["ratio"]) > _RATIO_TOLERANCE:
        differing.append("ratio")
    differing += [
        name
        for name in ("t_start_ns", "t_end_ns")
        if abs(ours[name] - theirs[name]) > _TIME_TOLERANCE_S * 1e9
    ]
    return differing


def _differing_results(ours: Line, theirs: Line) -> tuple[str, ...]:
    names = ("status", "retractions", "preemptions")
    differing = [name for name in names if ours[name] != theirs[name]]
    if ours["cached_at_admit"] != (theirs["cached_at_admit"] or 0):
        differing.append("cached_at_admit")
    differing += [
        name for name in ("ttft", "finish") if not _same_time(ours[f"{name}_ns"], theirs[name])
    ]
    return tuple(differing)


def _same_time(ours_ns: int | None, theirs_s: float | None) -> bool:
    if ours_ns is None or theirs_s is None:
        return ours_ns is theirs_s
    return abs(ours_ns / 1e9 - theirs_s) <= _TIME_TOLERANCE_S
