"""llm-d's routers before eight vLLM servers, beside their simulation.

Qwen3-32B on two H100s each; prompts of 150 groups with five users each, under loads from 3 to 60
requests/s, one after another with the caches of the ones before. Nothing is fitted.

Source: benchmarking/73-capacity of llm-d/llm-d-kv-cache, commit 7be76e11, Apache-2.0.
"""

import tempfile
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from silicon.published.prompts import GroupedPrompts
from sim.commands.running.simulate import run_built
from sim.core.units import NS_PER_S
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text


class Ttft(NamedTuple):
    """Of the requests of a load, in seconds."""

    mean_s: float
    p90_s: float


# The scorers of llm-d's four configurations. The estimate compares the first 256 blocks of 64
# characters, taken for 16 tokens, and remembers 31,250 of them for each server.
ROUTERS: Final[Mapping[str, str]] = {
    "precise": "{kind: scored, prefix_weight: 3, queue_weight: 2, kv_usage_weight: 2}",
    "estimated": "{kind: scored, prefix_weight: 1, kv_events: false, max_prefix_tokens: 4096,"
    " max_predicted_tokens: 500000}",
    "load": "{kind: scored, prefix_weight: 0}",
    "random": "random",
}
MEASURED: Final[Mapping[str, Mapping[int, Ttft]]] = {
    "precise": {
        3: Ttft(0.291, 0.498), 10: Ttft(0.335, 0.600), 15: Ttft(0.249, 0.400),
        20: Ttft(0.363, 0.600), 22: Ttft(0.300, 0.500), 25: Ttft(0.303, 0.583),
        30: Ttft(0.296, 0.509), 35: Ttft(0.275, 0.500),
        40: Ttft(0.269, 0.488), 43: Ttft(0.281, 0.500), 46: Ttft(0.293, 0.589),
        49: Ttft(0.311, 0.600), 52: Ttft(0.288, 0.507), 55: Ttft(0.308, 0.600),
        57: Ttft(0.319, 0.600), 60: Ttft(0.283, 0.500),
    },
    "estimated": {
        3: Ttft(0.300, 0.497), 10: Ttft(0.271, 0.499), 15: Ttft(0.232, 0.400),
        20: Ttft(0.329, 0.600), 22: Ttft(0.407, 0.700), 25: Ttft(0.370, 0.609),
        30: Ttft(0.373, 0.708), 35: Ttft(2.780, 2.459),
        40: Ttft(13.160, 43.018), 43: Ttft(16.941, 43.515), 46: Ttft(18.081, 44.930),
        49: Ttft(19.111, 46.335), 52: Ttft(21.940, 47.284), 55: Ttft(22.327, 50.108),
        57: Ttft(23.423, 49.930), 60: Ttft(24.281, 50.226),
    },
    "load": {
        3: Ttft(0.944, 1.609), 10: Ttft(2.241, 4.124), 15: Ttft(4.013, 7.002),
        20: Ttft(29.229, 77.707), 22: Ttft(28.710, 72.972), 25: Ttft(32.534, 85.979),
        30: Ttft(32.831, 83.806), 35: Ttft(33.874, 88.086),
        40: Ttft(53.545, 100.911), 43: Ttft(53.802, 101.524), 46: Ttft(56.746, 105.884),
        49: Ttft(55.208, 105.015), 52: Ttft(58.807, 108.572), 55: Ttft(58.467, 110.681),
        57: Ttft(61.750, 113.278), 60: Ttft(58.497, 110.184),
    },
    "random": {
        3: Ttft(0.622, 0.820), 10: Ttft(0.826, 1.398), 15: Ttft(1.278, 2.299),
        20: Ttft(25.073, 70.273), 22: Ttft(28.185, 78.420), 25: Ttft(30.689, 82.943),
        30: Ttft(32.212, 86.182), 35: Ttft(34.043, 91.519),
        40: Ttft(54.196, 101.272), 43: Ttft(53.247, 101.142), 46: Ttft(53.572, 101.265),
        49: Ttft(56.130, 103.514), 52: Ttft(56.035, 105.004), 55: Ttft(54.844, 104.321),
        57: Ttft(56.803, 106.816), 60: Ttft(57.426, 105.988),
    },
}  # fmt: skip
# Requests/s and seconds of each load. The first one fills the caches; nothing is published of it.
_STAGES = (
    (15, 50), (3, 20), (10, 20), (15, 20), (20, 38), (22, 34), (25, 30), (30, 25), (35, 21),
    (40, 38), (43, 36), (46, 33), (49, 30), (52, 29), (55, 27), (57, 26), (60, 25),
)  # fmt: skip
RATES = tuple(rate for rate, _ in _STAGES[1:])
# Loads in the table; the sentences above it count all.
_SHOWN = (3, 15, 20, 30, 35, 40, 49, 60)
_LONG_S, _DIFFERS = 10, 1.1
_PROMPTS = GroupedPrompts(
    num_groups=150,
    per_group=5,
    prefix_tokens=6_000,
    question_tokens=1_200,
    output_tokens=1_000,
    stages=_STAGES,
    stage_s=1000,
)
_POOL_TOKENS, _BLOCK_TOKENS = 307_328, 64
_SCENARIO = """\
name: llm-d's routers
model: Qwen/Qwen3-32B
hardware: h100-sxm
latency: {{kind: aiconfigurator, system: h100_sxm, backend: vllm, tp: 2}}
replicas: 8
workload: {{kind: trace, format: servetwin, path: workload.jsonl.gz}}
router: {router}
scheduler: {{family: vllm, block_size: {block_tokens}, num_gpu_blocks_override: {num_blocks},
  max_num_batched_tokens: 8192, max_num_seqs: 1024}}
"""


def simulated(router: str, num_loads: int) -> list[Ttft]:
    """The first loads of which something is published, with one of the routers."""
    with tempfile.TemporaryDirectory() as folder:
        _PROMPTS.write(Path(folder) / "workload.jsonl.gz", num_loads + 1)
        text = _SCENARIO.format(
            router=ROUTERS[router],
            block_tokens=_BLOCK_TOKENS,
            num_blocks=_POOL_TOKENS // _BLOCK_TOKENS + 1,
        )
        columns = run_built(build(load_scenario_text(text, base_dir=Path(folder)))).requests
    stage = columns.arrival_ns // (_PROMPTS.stage_s * NS_PER_S)
    ttft_s = (columns.first_token_ns - columns.arrival_ns) / NS_PER_S
    each = [ttft_s[stage == number + 1] for number in range(num_loads)]
    return [Ttft(float(of.mean()), float(np.percentile(of, 90))) for of in each]


def routers_board() -> str:
    """What comes out of the order and the limits of the routers, and the table of some loads."""
    found = {router: simulated(router, len(RATES)) for router in ROUTERS}
    titles = ["router", "requests/s", "TTFT mean s", "simulated", "error %", "p90 s", "simulated"]
    rows = [f"| {' | '.join([*titles, 'error %'])} |", f"|---|{'---:|' * 7}"]
    for router in ROUTERS:
        rows += rows_of(router, found[router])
    return "\n\n".join([_limits(found), _order(found), "\n".join(rows)])


def _limits(found: Mapping[str, Sequence[Ttft]]) -> str:
    """From which load on requests wait long, of each router."""

    def limit(ttft: Sequence[Ttft]) -> str:
        long = [rate for rate, each in zip(RATES, ttft, strict=True) if each.mean_s > _LONG_S]
        return str(long[0]) if long else "none"

    said = [
        f"`{router}` measured {limit(list(MEASURED[router].values()))}, simulated {limit(each)}"
        for router, each in found.items()
    ]
    return f"First load with a mean TTFT above {_LONG_S} s, in requests/s: {'; '.join(said)}."


def _order(found: Mapping[str, Sequence[Ttft]]) -> str:
    """How many pairs of routers come out in their order."""
    num_pairs = num_right = 0
    for number, rate in enumerate(RATES):
        for one, other in combinations(ROUTERS, 2):
            measured = MEASURED[one][rate].mean_s, MEASURED[other][rate].mean_s
            if max(measured) > _DIFFERS * min(measured):
                num_pairs += 1
                is_less = found[one][number].mean_s < found[other][number].mean_s
                num_right += is_less == (measured[0] < measured[1])
    return (
        f"Order: of {num_pairs} pairs of routers whose measured mean TTFT at a load differs by"
        f" more than 10 %, {num_right} come out in it."
    )


def rows_of(router: str, found: Sequence[Ttft]) -> list[str]:
    """The rows of those of the first loads that are shown."""
    rows = []
    for rate, ttft in zip(RATES, found, strict=False):
        if rate not in _SHOWN:
            continue
        cells = [f"`{router}`", str(rate)]
        for one, other in zip(MEASURED[router][rate], ttft, strict=True):
            cells += [f"{one:.2f}", f"{other:.2f}", f"{100 * (other / one - 1):+.0f}"]
        rows.append("| " + " | ".join(cells) + " |")
    return rows
