"""Dumps of a real vLLM 0.26.0 server on an H100, with faults that were planted (data/README.md)."""

import re
from pathlib import Path

import pytest

from sim.scenario.build import build
from sim.scenario.load import load_scenario, load_scenario_text
from tests.calibrate.watch.conftest import watch_dump
from tests.support.vllm_server import MEASURED

pytest.importorskip("aiconfigurator_core", reason="pip install -e '.[aiconfigurator]'")

SCENARIO = Path(__file__).parents[3] / "scenarios/validation/vllm-0.26-h100-llama-3.1-8b.yaml"
# When the faults began and ended (*.times in the data), in seconds since the first scrape.
STALLS_S, NEIGHBOUR_S = (36.2, 50.2), (62.0, 84.7)


def seen(folder, *overrides, **options):
    dump = MEASURED / f"vllm-0.26-h100-llama-3.1-8b-{folder}" / "metrics.txt.gz"
    return watch_dump(dump, build(load_scenario(SCENARIO, overrides)), **options)


@pytest.mark.parametrize("window_s", [3, 5])
def test_a_process_that_stalls_is_found_and_then_a_second_program_on_the_gpu(window_s):
    found = seen("faults", window_s=window_s)
    (stalls_s, stalls), (neighbour_s, neighbour) = found.drifts
    assert STALLS_S[0] < stalls_s < STALLS_S[1] + window_s
    assert "Likely: stalls: " in stalls
    assert NEIGHBOUR_S[0] < neighbour_s < NEIGHBOUR_S[1]
    assert neighbour.startswith("DRIFT: TPOT ")
    assert "Likely: slower steps: TPOT is 1." in neighbour
    # Nothing is wrong in the first half minute, nor between both faults.
    (over_s,) = [at_s for at_s, note in found.notes if note == "drift is over"]
    assert stalls_s < over_s < neighbour_s


def test_the_page_shows_what_the_command_says():
    page = Path(__file__).parents[3] / "docs/how-to/watch.md"
    shown = re.findall(r"^\d\d:\d\d:\d\d  (DRIFT: .*|learned: .*|drift is over)$",
                       page.read_text(encoding="utf-8"), re.MULTILINE)  # fmt: skip
    found = seen("faults", window_s=3, num_draws=4, seed=0)
    assert shown == [note for _, note in found.notes if note[:5] in {"DRIFT", "learn", "drift"}]


def test_a_server_that_preempts_as_its_twin_does_raises_no_alarm():
    """Its pool of 38,400 tokens is full nearly all the time; it serves 20/s, and then a burst."""
    found = seen("small-pool", "scheduler.num_gpu_blocks_override=2400", window_s=3)
    assert not found.drifts
    busiest = max(found.windows, key=lambda row: row.window.figures["waiting"])
    assert busiest.window.figures["waiting"] > 100


QWEN = """\
name: qwen
model: Qwen/Qwen3-30B-A3B
latency: {kind: aiconfigurator, system: h200_sxm, backend: vllm, tp: 1}
host: vllm-async
workload:
  kind: synthetic
  num_requests: 10
  arrivals: {kind: poisson, rate_rps: 1}
  prompt_tokens: {kind: constant, value: 800}
  output_tokens: {kind: constant, value: 120}
scheduler: {family: vllm, num_gpu_blocks_override: 8192, max_num_seqs: 1024, max_model_len: 8192}
"""


def test_a_server_whose_traffic_changes_all_the_time_raises_no_alarm():
    """Rates of 4 and 12, 64 clients, prefixes that nine of ten prompts share, and a burst."""
    dump = MEASURED / "vllm-0.26-h200-qwen3-30b-a3b" / "metrics.txt.gz"
    found = watch_dump(dump, build(load_scenario_text(QWEN, name="qwen")), window_s=5)
    assert not found.drifts
    told = " ".join(note for _, note in found.notes)
    assert "requests/s" in told
    assert "cache hits" in told


def test_another_pool_than_the_scenarios_is_told_at_once():
    found = seen("small-pool", window_s=3)
    assert found.notes[0][1] == "KV pool: 38,400 tokens, but 444,784 in the scenario"
