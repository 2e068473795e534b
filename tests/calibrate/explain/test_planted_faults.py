"""Logs of the real server on a made-up device, with a fault planted in the second one."""

import pytest

from calibrate.explain.causes import explain
from calibrate.explain.logs import run_of_logs
from sim.scenario.load import load_scenario_text
from tests.support.made_up_device import MS, US, USUAL, Times, serve

SCENARIO = """\
name: planted
seed: {seed}
latency: {{kind: linear, step_s: 0, per_prefill_token_s: 0, per_decode_request_s: 0, per_context_token_s: 0}}
workload:
  kind: synthetic
  num_requests: 120
  arrivals: {{kind: poisson, rate_rps: 22}}
  prompt_tokens: {{kind: uniform, min: 20, max: 900}}
  output_tokens: {{kind: uniform, min: 2, max: 60}}
  prefixes: {{groups: 8, tokens: {{kind: uniform, min: 300, max: 900}}, share_probability: 0.7}}
scheduler: {{page_size: 16, max_total_tokens: 40960, context_length: 4096, chunked_prefill_size: 2048,
  max_running_requests: 12}}
"""  # noqa: E501
SLOWER = Times(device_ns=3 * MS, device_ns_per_token=22 * US)
NO_GRAPHS = Times(graph_sizes=())
SLOW_HOST = Times(plan_ns=4 * MS)
STALLED = Times(stalls=((1_000 * MS, 700 * MS), (2_500 * MS, 900 * MS), (4_000 * MS, 600 * MS)))
# The cause that must come first: its name, and what changes.
FAULTS = {
    "slower GPU": (("decode steps", "prefill steps"), {"times": SLOWER}),
    "no CUDA graphs": (("decode steps",), {"times": NO_GRAPHS}),
    "slow host": (("between steps",), {"times": SLOW_HOST}),
    "stalls": (("stalls",), {"times": STALLED}),
    "smaller pool": (("KV pool",), {"options": ["scheduler.max_total_tokens=5120"]}),
    "smaller chunks": (
        ("chunked_prefill_size",),
        {"options": ["scheduler.chunked_prefill_size=128"]},
    ),
    "no prefix cache": (
        ("disable_radix_cache",),
        {"options": ["scheduler.disable_radix_cache=true"]},
    ),
    "fewer requests at a time": (
        ("max_running_requests",),
        {"options": ["scheduler.max_running_requests=3"]},
    ),
    "no overlap": (
        ("disable_overlap_schedule",),
        {"options": ["scheduler.disable_overlap_schedule=true"]},
    ),
    "more traffic": (("traffic",), {"options": ["workload.arrivals.rate_rps=45"]}),
    "longer prompts": (
        ("traffic",),
        {"options": ["workload.prompt_tokens={kind: uniform, min: 900, max: 1800}"]},
    ),
}


def explained(folder, fault, seed=3):
    """Two runs, and why they differ. `fault`: the second run's times, or settings."""
    text = SCENARIO.format(seed=seed)
    runs = []
    for name, times, options in (
        ("before", USUAL, []),
        ("after", fault.get("times", USUAL), fault.get("options", [])),
    ):
        path = folder / f"{name}.jsonl"
        serve(path, load_scenario_text(text, options), times)
        runs.append(run_of_logs([path]))
    return explain(*runs)


@pytest.mark.parametrize("fault", FAULTS)
def test_explain_names_the_planted_fault_first(tmp_path, fault):
    names, change = FAULTS[fault]
    found = explained(tmp_path, change)
    assert found.causes[0].name in names
    largest_ms = max(abs(cause.effect_ms["ttft_ms"]) for cause in found.causes)
    assert abs(found.unexplained_ms["ttft_ms"]) < 0.15 * largest_ms
    assert found.parted is not None


def test_explain_finds_nothing_between_equal_runs(tmp_path):
    found = explained(tmp_path, {})
    assert (found.causes, found.parted) == ([], None)
    assert found.before_ms == found.after_ms


def test_explain_says_when_the_host_stalled(tmp_path):
    detail = explained(tmp_path, FAULTS["stalls"][1]).causes[0].detail
    assert detail.startswith("none -> 0.70 s at 1.0 s (host), 0.90 s at 2.5 s (host)")
