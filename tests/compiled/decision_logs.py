"""Simulates a fixed set of scenarios and writes all that was decided; for two builds to compare.

`python decision_logs.py OUT.jsonl all|some [MODULE ...]`: these modules must be compiled. With
`some`, each setting has one kind of traffic, and the kinds take turns, and one in eight of the
engines' cases is decided.
"""

import importlib
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from tempfile import TemporaryDirectory

from sim.commands.running.simulate import run_built
from sim.metrics.summary import summarise
from sim.new.__main__ import KINDS, start_texts
from sim.scenario.build import build
from sim.scenario.load import load_scenario, load_scenario_text
from tests.support.conformance import find_cases, serve_case
from tests.support.vllm_conformance import find_vllm_cases, serve_vllm_case

CASES = Path(__file__).parents[1] / "conformance" / "cases"
VLLM_CASES = CASES.with_name("vllm_cases")
# A pool that is always short of pages.
SCENARIO = """\
name: builds
seed: 5
replicas: 2
model: llama-3.1-8b
hardware: h100-sxm
latency: {kind: linear, step_s: 0.005, per_prefill_token_s: 4.0e-5, per_decode_request_s: 5.0e-5,
  per_context_token_s: 2.0e-8, host_s: 0.002, cold_start_s: 0.3}
workload: WORKLOAD
scheduler: {page_size: 16, max_total_tokens: 2048, context_length: 1500, chunked_prefill_size: 256,
  max_running_requests: 24, schedule_conservativeness: 0.0}
"""
SYNTHETIC = """
  kind: synthetic
  num_requests: 90
  arrivals: {kind: poisson, rate_rps: 80}
  prompt_tokens: {kind: lognormal, mean: 120, cv: 1.0, max: 900}
  output_tokens: {kind: lognormal, mean: 60, cv: 0.8, max: 400}
  prefixes: {groups: 8, tokens: {kind: uniform, min: 50, max: 400}, share_probability: 0.7}
  predicted_output: {kind: lognormal, sigma: 0.5}
  max_new_tokens: {factor: 2.0}
"""
SESSIONS = """
  kind: sessions
  sessions: 8
  arrivals: {kind: poisson, rate_rps: 4}
  turns: {kind: geometric, mean: 5}
  user_tokens: {kind: geometric, mean: 60}
  output_tokens: {kind: geometric, mean: 40}
  think_s: {kind: exponential, mean: 0.5}
  closed_loop: CLOSED
"""
WORKLOADS = (
    SYNTHETIC,
    SESSIONS.replace("CLOSED", "true"),
    SESSIONS.replace("CLOSED", "false"),
)
HOST_CACHE = "scheduler.host_cache={load_tokens_per_s: 500000, ratio: 1.0, write_policy: "
VLLM = """scheduler={family: vllm, num_gpu_blocks_override: 129, max_model_len: 1500,
  max_num_batched_tokens: 256, max_num_seqs: 24}"""
STATIC = ("scheduler.batching=static", "scheduler.static_batch_size=6")
SETTINGS = (
    (),
    *(
        (f"scheduler.schedule_policy={policy}",)
        for policy in (
            "lpm",
            "dfs-weight",
            "lof",
            "sjf",
            "random",
            "hrrn",
            "shortest-prefill-first",
        )
    ),
    ("scheduler.schedule_policy=priority", "scheduler.enable_priority_scheduling=true"),
    ("scheduler.page_size=1", "scheduler.disable_overlap_schedule=true"),
    ("scheduler.page_size=64", "scheduler.chunked_prefill_size=-1", "scheduler.decode_first=true"),
    ("scheduler.enable_mixed_chunk=true", "scheduler.radix_eviction_policy=lfu"),
    ("scheduler.disable_radix_cache=true",),
    ("scheduler.radix_eviction_policy=hit-benefit", "scheduler.retraction_policy=priority"),
    ("scheduler.disable_overlap_schedule=true", "scheduler.decode_max_requests=5"),
    *((f"{HOST_CACHE}{p}}}",) for p in ("write_through", "write_through_selective", "write_back")),
    STATIC,
    ("scheduler.admission={kind: pack}", "scheduler.max_prefill_tokens=512"),
    ("scheduler.fairness={kind: fairness_t, t_ms: 300}", "scheduler.schedule_policy=lpm"),
    ("scheduler.fairness={kind: k_lpm, k: 3}", "scheduler.schedule_policy=lpm"),
    (
        "scheduler.fairness={kind: aging_tokens_per_pass, tokens: 20}",
        "scheduler.schedule_policy=lpm",
    ),
    ("scheduler.fairness={kind: force_fifo_every, passes: 4}", "scheduler.schedule_policy=lpm"),
    ("router=prefix-aware",),
    ("router=session-sticky",),
    ("latency={kind: roofline}",),
    (VLLM,),
    (VLLM, "scheduler.async_scheduling=false", "scheduler.enable_prefix_caching=false"),
    (VLLM, "scheduler.scheduling_policy=priority", "scheduler.long_prefill_token_threshold=64"),
    (VLLM, "scheduler.block_size=1", "scheduler.num_gpu_blocks_override=2049"),
    ("latency={kind: profile, path: example/tiny-cpu}", "model=tiny"),
)
# Users' classes that override methods of compiled ones, and call them.
DERIVED = """\
from sim.latency.kinds.linear import LinearLatency
from sim.latency.model import StepTime
from sim.sglang.scheduler.waiting.fairness import NoFairness
from sim.sglang.scheduler.prefill.admission import WholeQueue


class Slowing(LinearLatency):
    decode_run_ns = None
    calls = 0

    def __init__(self):
        super().__init__(step_s=0.005, per_prefill_token_s=4.0e-5, per_decode_request_s=5.0e-5,
            per_context_token_s=2.0e-8)

    def step_ns(self, step):
        self.calls += 1
        return StepTime(super().step_ns(step).device_ns + self.calls, 0)


class LongestFirst(NoFairness):
    def reorder(self, ordered, now_ns, deferred):
        ordered = super().reorder(ordered, now_ns, deferred)
        return sorted(ordered, key=lambda request: -request.prompt_len)


class FirstThree(WholeQueue):
    def candidates(self, waiting, num_slots):
        return super().candidates(waiting, num_slots)[:3]
"""
DERIVING = (
    "latency=derived:Slowing",
    "scheduler.fairness=derived:LongestFirst",
    "scheduler.admission=derived:FirstThree",
)


def write_scenarios(out, *, with_all):
    """Every setting with one kind of workload, or with every one."""
    for number, workload in enumerate(WORKLOADS):
        text = SCENARIO.replace("WORKLOAD", workload.rstrip())
        for overrides in SETTINGS if with_all else SETTINGS[number :: len(WORKLOADS)]:
            out.write(f"{number} {overrides}\n")
            write_run(out, load_scenario_text(text, overrides, name="s.yaml", base_dir=Path()))


def write_user_classes(out):
    """Each start of a user's own class, and classes derived from compiled ones."""
    with TemporaryDirectory() as place:
        Path(place, "derived.py").write_text(DERIVED, encoding="utf-8")
        text = SCENARIO.replace("WORKLOAD", SYNTHETIC.rstrip())
        write_run(out, load_scenario_text(text, DERIVING, name="s.yaml", base_dir=Path(place)))
        for name, kind in KINDS.items():
            for file, text in start_texts(kind, f"own_{name}").items():
                Path(place, file).write_text(text, encoding="utf-8")
            out.write(f"{name}\n")
            tight = ("scheduler.max_total_tokens=2048", "scheduler.max_running_requests=4")
            write_run(out, load_scenario(Path(place, f"own_{name}.yaml"), tight))


def write_run(out, loaded):
    with TemporaryDirectory() as place:
        path = Path(place) / "decisions.jsonl"
        log = run_built(build(loaded), decisions=path)
        out.write(path.read_text(encoding="utf-8"))
    summary = {key: value for key, value in summarise(log).items() if key != "wall_seconds"}
    out.write(f"{summary}\n{log.token_gaps.gap_ns.tolist()}\n")


def write_conformance_cases(out, *, with_all):
    """Every case that the engines decided, or one in eight."""
    step = 1 if with_all else 8
    for case in find_cases(CASES)[::step]:
        for line in serve_case(case):
            out.write(f"{line}\n")
    for case in find_vllm_cases(VLLM_CASES)[::step]:
        for line in serve_vllm_case(case):
            out.write(f"{line}\n")


def main(path, which, modules):
    for module in modules:
        origin = importlib.import_module(module).__file__
        if not origin.endswith(tuple(EXTENSION_SUFFIXES)):
            sys.exit(f"{module} is not compiled: {origin}")
    with Path(path).open("w", encoding="utf-8") as out:
        write_scenarios(out, with_all=which == "all")
        write_user_classes(out)
        write_conformance_cases(out, with_all=which == "all")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
