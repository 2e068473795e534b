"""AIBrix's eight replicas of vLLM: routers under eleven loads, beside their simulation.

Each stack met its loads one after another without clearing caches, and is simulated so, in one run.
Nothing is fitted. Facts that are not in the results: servers had the flags of AIBrix's manifests;
they were H20, one of the two kinds that the manifests allow, because the other one, an A100 with 80
GB, has no memory for the requests that decoded at once; and all users share a system prompt. KV
stores in CPU memory have vLLM's rules, not those of their own.
"""

import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from sim.commands.running.simulate import run_built
from sim.core.packed import numbered_lines, open_text
from sim.core.units import NS_PER_MS
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text
from sim.workload.traces.servetwin import servetwin_line

_FILE = Path(__file__).parents[2] / "data/published/aibrix-8xvllm.jsonl.gz"
# Rules of before 0.19 are not known without chunked prefill.
_SCENARIO = """\
name: AIBrix's eight replicas
model: meta-llama/Llama-3.1-8B-Instruct
hardware: h20
latency: {kind: roofline, tp: 1}
host: vllm-0.10
replicas: 8
workload: {kind: trace, format: servetwin, path: workload.jsonl.gz}
scheduler: {family: vllm, async_scheduling: false, enable_chunked_prefill: false,
  max_model_len: 32000, max_num_batched_tokens: 32000, max_num_seqs: 256, """
# A Kubernetes Service; Envoy Gateway, whose default is the better of two; and AIBrix's own router,
# which looks at prefixes unless loads differ by more than 8 requests
# (`pkg/plugins/gateway/algorithms/prefix_cache.go`). The production stack's takes the replica that
# a user hashes to.
_ROUTERS = {
    "naive": "random",
    "aibrix_naive": "power-of-two",
    "aibrix_naive_prefix_routing": (
        "{kind: prefix-aware, balance_abs_threshold: 8, balance_rel_threshold: 1}"
    ),
    "ps_stack": "{kind: session-sticky, key: tenant, assignment: random, max_idle_s: null}",
}
# GiB of each replica (`LMCACHE_MAX_LOCAL_CPU_SIZE`).
_STORES = {"ps_stack": 120}
_SHARED_TOKENS, _FIRST_TOKENS, _LATER_TOKENS, _OUTPUT_TOKENS = 1010, 21073, 21202, 100


# Means that differ by less are a tie.
_TIE = 0.1


@dataclass(frozen=True, slots=True)
class Load:
    """A load of a stack: requests/s, and what was measured and simulated.

    Attributes:
        found_pct: requests with a TTFT below 0.5 s, which only a cached prompt can have.
        ttft_s, tpot_ms: means over requests.
    """

    stack: str
    qps: float
    found_pct: tuple[float, float]
    ttft_s: tuple[float, float]
    tpot_ms: tuple[float, float]


def published_loads() -> dict[str, list[Mapping[str, Any]]]:
    """The published loads of each stack, in the order in which they were measured."""
    found = defaultdict(list)
    for _, line in numbered_lines(_FILE):
        found[line["condition"]].append(line)
    return dict(found)


def simulated_loads(stack: str, loads: Sequence[Mapping[str, Any]]) -> list[Load]:
    """The loads of a stack, simulated in one run."""
    with tempfile.TemporaryDirectory() as folder:
        with open_text(Path(folder) / "workload.jsonl.gz") as file:
            file.writelines(_requests(loads))
        store = "version: 0.19.0"
        if stack in _STORES:
            store = f"version: 0.33.0, kv_offloading_size: {_STORES[stack]}"
        text = f"{_SCENARIO}{store}}}\nrouter: {_ROUTERS[stack]}\n"
        columns = run_built(build(load_scenario_text(text, base_dir=Path(folder)))).requests
    place = np.array([int(rid.partition(".")[0]) for rid in columns.rid])
    ttft_ms = (columns.first_token_ns - columns.arrival_ns) / NS_PER_MS
    tpot_ms = (columns.finish_ns - columns.first_token_ns) / NS_PER_MS / (_OUTPUT_TOKENS - 1)
    return [
        Load(
            stack,
            load["qps"],
            (load["result"]["below_500_ms_pct"], 100 * float((ttft_ms[place == i] < 500).mean())),
            (load["result"]["mean_ttft_ms"] / 1000, float(ttft_ms[place == i].mean()) / 1000),
            (load["result"]["mean_tpot_ms"], float(tpot_ms[place == i].mean())),
        )
        for i, load in enumerate(loads)
    ]


def _requests(loads: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The lines of the workload. A user's first prompt is the same in each load."""
    seed = 1 << 20
    for i, load in enumerate(loads):
        seen = set()
        times_ms = accumulate([round(1000 * load["start_s"]), *load["gaps_ms"]])
        for number, (at_ms, user) in enumerate(zip(times_ms, load["user_ids"], strict=True)):
            segments = [[0, _SHARED_TOKENS], [user, _FIRST_TOKENS - _SHARED_TOKENS]]
            if user in seen:
                segments.append([seed + 1, _LATER_TOKENS - _FIRST_TOKENS])
            seen.add(user)
            row = {
                "rid": f"{i}.{number}",
                "segments": segments,
                "output_len": _OUTPUT_TOKENS,
                "max_new_tokens": _OUTPUT_TOKENS,
                "ignore_eos": True,
                "output_seed": seed,
                "tenant": str(user),
            }
            seed += 2
            yield servetwin_line(at_ms * NS_PER_MS, row)


def stacks_board() -> str:
    """The table of all stacks: totals, each load, and which stacks are not simulated."""
    published = published_loads()
    found = {
        stack: sorted(simulated_loads(stack, published[stack]), key=lambda load: load.qps)
        for stack in _ROUTERS
    }
    titles = ["stack", "requests/s", "found %", "simulated"]
    titles += ["TTFT s", "simulated", "error %", "TPOT ms", "simulated", "error %"]
    rows = [f"| {' | '.join(titles)} |", f"|---|{'---:|' * 9}"]
    rows += [row_of(load) for loads in found.values() for load in loads]
    others = ", ".join(f"`{stack}`" for stack in published if stack not in found)
    text = "\n\n".join([_errors(found), _knees(found), _orders(found), "\n".join(rows)])
    return f"{text}\n\nNot simulated: {others}."


def row_of(load: Load) -> str:
    cells = [f"`{load.stack}`", f"{load.qps}", *(f"{share:.0f}" for share in load.found_pct)]
    for (measured, simulated), digits in ((load.ttft_s, 2), (load.tpot_ms, 1)):
        error = f"{_error_pct(measured, simulated):+.0f}"
        cells += [f"{measured:.{digits}f}", f"{simulated:.{digits}f}", error]
    return "| " + " | ".join(cells) + " |"


def _error_pct(measured: float, simulated: float) -> float:
    return 100 * (simulated / measured - 1)


def _errors(found: Mapping[str, Sequence[Load]]) -> str:
    medians = [
        f"`{stack}` {np.median([abs(_error_pct(*load.ttft_s)) for load in loads]):.0f} % (TTFT),"
        f" {np.median([abs(_error_pct(*load.tpot_ms)) for load in loads]):.0f} % (TPOT)"
        for stack, loads in found.items()
    ]
    return f"Median error: {'; '.join(medians)}."


def _knees(found: Mapping[str, Sequence[Load]]) -> str:
    """The load at which the mean TTFT rises most over the load before."""
    knees = []
    for stack, loads in found.items():
        measured, simulated = (
            max(pairwise(loads), key=lambda pair: pair[1].ttft_s[i] / pair[0].ttft_s[i])[1].qps
            for i in (0, 1)
        )
        knees.append(f"`{stack}` measured {measured}, simulated {simulated}")
    return f"Knee, the requests/s at which mean TTFT rises most: {'; '.join(knees)}."


def _orders(found: Mapping[str, Sequence[Load]]) -> str:
    pairs = [
        (one.ttft_s, other.ttft_s)
        for (_, loads), (_, others) in combinations(found.items(), 2)
        for one, other in zip(loads, others, strict=True)
        if abs(one.ttft_s[0] / other.ttft_s[0] - 1) > _TIE
    ]
    right = sum((a[0] < b[0]) == (a[1] < b[1]) for a, b in pairs)
    return (
        f"Order: of {len(pairs)} pairs of stacks whose measured mean TTFT at a load differs by more"
        f" than {100 * _TIE:.0f} %, {right} come out in it."
    )
