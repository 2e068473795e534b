"""llm-d's servers with KV in storage below CPU memory, beside their simulation.

Four vLLM servers with Llama-3.3-70B on four H100s each, with KV in CPU memory alone, and with
Lustre below it. Nothing is fitted.

Source: guides/tiered-prefix-cache/storage of llm-d/llm-d (README.md, and storage_class.yaml of its
backend lustre); Apache-2.0.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from silicon.published.tiers import Means, cells_of, means_of
from sim.commands.running.simulate import run_built
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text

# By tokens of a prompt's beginning: with CPU memory alone, and with storage.
MEASURED: Final[Mapping[int, tuple[Means, Means]]] = {
    50_000: (Means(25.38, 56.21), Means(20.12, 45.83)),
    70_000: (Means(58.02, 87.99), Means(45.0, 68.28)),
}
# Requests of each of 20 clients. The guide sent 2,700 in all; the first ones, which found nothing,
# are left out here.
_NUM_REQUESTS, _NUM_LEFT_OUT = 15, 5
# 20 GB of each GPU, with 320 KiB of KV a token.
_CPU_TOKENS: Final = 4 * 20 * 10**9 // (320 * 1024)
# 18,000 GiB of a storage that is sold with 1,000 MB/s for each TiB.
_STORE = "store: {read_bandwidth_gb_s: 17.6, write_bandwidth_gb_s: 17.6, shared: true}"
_SCENARIO = """\
name: llm-d's servers with storage
model: meta-llama/Llama-3.3-70B-Instruct
hardware: h100-sxm
latency: {{kind: aiconfigurator, system: h100_sxm, backend: vllm, tp: 4}}
replicas: 4
router: least-loaded
workload: {{kind: clients, clients: 20, requests_per_client: {num_requests},
  think_s: {{kind: constant, value: 0}}, prompt_tokens: {{kind: constant, value: 256}},
  output_tokens: {{kind: constant, value: 1024}},
  prefixes: {{groups: 50, tokens: {{kind: constant, value: {prefix_tokens}}},
    share_probability: 1, zipf: 0}}}}
scheduler: {{family: vllm, num_gpu_blocks_override: 10768, max_num_batched_tokens: 8192,
  max_num_seqs: 1024,
  kv_offloading: {{capacity_tokens: {cpu_tokens}, blocks_per_chunk: 16{tiers}}}}}
{store}
"""


def simulated(prefix_tokens: int, *, has_storage: bool) -> Means:
    """20 clients, with prompts that begin with one of 50 prefixes of this length."""
    text = _SCENARIO.format(
        num_requests=_NUM_REQUESTS,
        prefix_tokens=prefix_tokens,
        cpu_tokens=_CPU_TOKENS,
        tiers=", secondary_tiers: [{type: fs}]" if has_storage else "",
        store=_STORE if has_storage else "",
    )
    columns = run_built(build(load_scenario_text(text))).requests
    number = np.array([int(rid.rpartition("-")[2]) for rid in columns.rid])
    return means_of(columns, number >= _NUM_LEFT_OUT)


def storage_board() -> str:
    """The table of both workloads, without and with storage."""
    titles = ["beginning", "KV in", "TTFT s", "simulated", "error %", "latency s", "simulated"]
    rows = [f"| {' | '.join([*titles, 'error %'])} |", f"|---:|---|{'---:|' * 6}"]
    for has_storage in (False, True):
        for prefix_tokens in MEASURED:
            found = simulated(prefix_tokens, has_storage=has_storage)
            rows.append(row_of(prefix_tokens, found, has_storage=has_storage))
    return "\n".join(rows)


def row_of(prefix_tokens: int, found: Means, *, has_storage: bool) -> str:
    kept_in = "GPU and CPU memory, and storage" if has_storage else "GPU and CPU memory"
    measured = MEASURED[prefix_tokens][has_storage]
    return " | ".join([f"| {prefix_tokens:,}", kept_in, *cells_of(measured, found)]) + " |"
