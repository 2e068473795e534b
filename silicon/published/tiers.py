"""llm-d's servers with KV in CPU memory, beside their simulation.

Eight vLLM servers with Qwen3-32B on two H100s each, with and without CPU memory, under two kinds of
traffic. Nothing is fitted.

Sources: guides/tiered-prefix-cache of llm-d/llm-d (README.md, cpu/README.md), and
guide_tiered-prefix-cache_1.yaml of llm-d/llm-d-benchmark; both are Apache-2.0.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from silicon.published.prompts import GroupedPrompts
from sim.commands.running.simulate import run_built
from sim.core.units import NS_PER_S
from sim.runlog.columns import RequestColumns
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text


class Means(NamedTuple):
    """Means over the requests of a load."""

    ttft_s: float
    latency_s: float


# Of each load: without, and with CPU memory. Nothing is published of 15 requests/s.
MEASURED: Final[Mapping[str, tuple[Means, Means]]] = {
    "45 clients": (Means(9.0, 37.8), Means(6.7, 31.0)),
    "5/s": (Means(1.62, 11.98), Means(1.17, 11.49)),
    "10/s": (Means(8.08, 26.28), Means(0.41, 6.97)),
    "20/s": (Means(43.67, 62.29), Means(0.89, 9.03)),
}
# Requests/s of stages of a minute, one after another with the caches of the ones before.
_RATES = (5, 10, 15, 20)
_PROMPTS = GroupedPrompts(
    num_groups=250,
    per_group=5,
    prefix_tokens=16_000,
    question_tokens=256,
    output_tokens=256,
    stages=[(rate, 60) for rate in _RATES],
    stage_s=600,
)
# Tokens of a replica's GPU pool and of its CPU memory: an eighth of the guide's 2,384,000 and
# 10,496,000; and the 9,271 and 41,000 blocks of the guide's older servers.
_STAGES_TOKENS, _CLIENTS_TOKENS = (298_000, 1_312_000), (9_271 * 16, 41_000 * 16)
_TRACE = "{kind: trace, format: servetwin, path: workload.jsonl.gz}"
# Nothing says how many requests there were. Here each prompt is sent once.
_CLIENTS = """{kind: clients, clients: 45, requests_per_client: 10,
  think_s: {kind: constant, value: 0}, prompt_tokens: {kind: constant, value: 256},
  output_tokens: {kind: constant, value: 1024},
  prefixes: {groups: 45, tokens: {kind: constant, value: 30000}, share_probability: 1, zipf: 0}}"""
_SCENARIO = """\
name: llm-d's servers
model: Qwen/Qwen3-32B
hardware: h100-sxm
latency: {{kind: aiconfigurator, system: h100_sxm, backend: vllm, tp: 2}}
replicas: 8
workload: {workload}
router: {router}
scheduler: {{family: vllm, num_gpu_blocks_override: {num_blocks}, max_num_batched_tokens: 8192,
  max_num_seqs: 1024{offloading}}}
"""


def simulated_clients(*, has_host: bool) -> Means:
    """45 clients, with prompts that begin with one of 45 prefixes of 30,000 tokens."""
    # Of the guide's scorers, loads weigh twice as much as prefixes.
    columns = _run(_CLIENTS, "least-loaded", _CLIENTS_TOKENS, Path(), has_host=has_host)
    return means_of(columns, np.ones(len(columns.rid), dtype=np.bool_))


def simulated_stages(num_stages: int, *, has_host: bool) -> list[Means]:
    """The first stages with random arrivals, 1,250 prompts with 250 prefixes of 16,000 tokens."""
    with tempfile.TemporaryDirectory() as folder:
        _PROMPTS.write(Path(folder) / "workload.jsonl.gz", num_stages)
        # Loads and prefixes weigh the same. A router remembers about as much as the servers do.
        tree_tokens = _STAGES_TOKENS[0] + _STAGES_TOKENS[1] * has_host
        router = f"{{kind: prefix-aware, max_tree_tokens: {tree_tokens}}}"
        columns = _run(_TRACE, router, _STAGES_TOKENS, Path(folder), has_host=has_host)
    stage = columns.arrival_ns // (_PROMPTS.stage_s * NS_PER_S)
    return [means_of(columns, stage == i) for i in range(num_stages)]


def _run(
    workload: str, router: str, tokens: tuple[int, int], folder: Path, *, has_host: bool
) -> RequestColumns:
    on_gpu, in_host = tokens
    text = _SCENARIO.format(
        workload=workload,
        router=router,
        num_blocks=on_gpu // 16 + 1,
        offloading=f", kv_offloading: {{capacity_tokens: {in_host}}}" if has_host else "",
    )
    return run_built(build(load_scenario_text(text, base_dir=folder))).requests


def means_of(columns: RequestColumns, rows: NDArray[np.bool_]) -> Means:
    """Means over some of the requests."""
    arrival_ns = columns.arrival_ns[rows]
    ttft_ns = columns.first_token_ns[rows] - arrival_ns
    latency_ns = columns.finish_ns[rows] - arrival_ns
    return Means(float(ttft_ns.mean()) / NS_PER_S, float(latency_ns.mean()) / NS_PER_S)


def tiers_board() -> str:
    """The table of both servers under each load."""
    titles = ["load", "KV in", "TTFT s", "simulated", "error %", "latency s", "simulated"]
    rows = [f"| {' | '.join([*titles, 'error %'])} |", f"|---|---|{'---:|' * 6}"]
    for has_host in (False, True):
        found = {"45 clients": simulated_clients(has_host=has_host)}
        stages = simulated_stages(len(_RATES), has_host=has_host)
        found |= {f"{rate}/s": means for rate, means in zip(_RATES, stages, strict=True)}
        rows += [row_of(load, found[load], has_host=has_host) for load in MEASURED]
    return "\n".join(rows)


def row_of(load: str, simulated: Means, *, has_host: bool) -> str:
    kept_in = "GPU and CPU memory" if has_host else "GPU memory"
    return " | ".join([f"| {load}", kept_in, *cells_of(MEASURED[load][has_host], simulated)]) + " |"


def cells_of(measured: Means, simulated: Means) -> list[str]:
    """What was measured, what is simulated, and the error in %: of TTFT, and of latency."""
    cells = []
    for one, other in zip(measured, simulated, strict=True):
        cells += [f"{one:.2f}", f"{other:.2f}", f"{100 * (other / one - 1):+.0f}"]
    return cells
