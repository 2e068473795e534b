"""Kind aiconfigurator in a scenario, and the source of step times in what a run prints."""

from dataclasses import replace
from pathlib import Path

import pytest

from sim.commands.running.simulate import run_built, summary_with_confidence
from sim.core.errors import InputError
from sim.latency.aiconfigurator.kv_pool import GpuMemory
from sim.latency.kinds.linear import LinearLatency
from sim.metrics.summary import summarise
from sim.report.summary_text import summary_text
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text
from tests.support.scheduler_settings import build_scheduler_config

WEIGHTS = ("per_prefill_token_s", "per_decode_request_s", "per_context_token_s")
LINEAR = "{kind: linear, step_s: 0.01, " + ", ".join(f"{name}: 0" for name in WEIGHTS) + "}"
TEXT = """
name: small
model: llama-3.1-8b
hardware: h200-sxm
latency: LATENCY
workload:
  kind: synthetic
  num_requests: 3
  arrivals: {kind: constant, rate_rps: 10}
  prompt_tokens: {kind: constant, value: 20}
  output_tokens: {kind: constant, value: 4}
scheduler: {page_size: 1}
"""


class MeasuredElsewhere:
    """A model whose times were measured by others."""

    source = "measurements [1.0]"

    def __init__(self, **weights):
        model = LinearLatency(**weights)
        self.step_ns, self.decode_run_ns = model.step_ns, model.decode_run_ns
        self.consume = model.consume


def load(latency, *overrides):
    text = TEXT.replace("LATENCY", latency)
    return load_scenario_text(text, overrides, name="study.yaml", base_dir=Path())


@pytest.mark.parametrize("experts", ["moe_ep: 3", "moe_tp: 2, moe_ep: 4"])
def test_scenario_experts_are_spread_over_all_gpus(experts):
    """The message names both numbers of GPUs."""
    with pytest.raises(InputError, match="does not fit the 4 GPUs of tp 2 x dp 2"):
        load("{kind: aiconfigurator, system: h200_sxm, tp: 2, dp: 2, " + experts + "}")


def test_scenario_pool_size_is_what_the_package_leaves():
    """More GPUs, more room, whether they share layers or have some each; a given size wins."""
    pytest.importorskip("aiconfigurator_core.sdk.engine")

    def pool(tp, *overrides, pp=1):
        latency = f"{{kind: aiconfigurator, system: h200_sxm, tp: {tp}, pp: {pp}}}"
        return build_scheduler_config(load(latency, *overrides).scenario).max_total_tokens

    assert 2 * pool(1) < pool(2) < 2.5 * pool(1)
    assert pool(1, pp=2) == pytest.approx(pool(2), rel=0.05)
    assert 2 * pool(2) < pool(2, pp=2)
    assert pool(2, "scheduler.max_total_tokens=5000") == 5_000


@pytest.mark.parametrize(
    ("scheduler", "expected"),
    [
        ("{max_running_requests: 64, chunked_prefill_size: 8192, max_prefill_tokens: 512}",
         {"max_rows": 16, "max_step_tokens": 2048}),
        ("{family: vllm, max_num_seqs: 64, max_num_batched_tokens: 8192}",
         {"max_rows": 64, "max_step_tokens": 8192}),
    ],
)  # fmt: skip
def test_scenario_pool_of_a_rank_leaves_room_for_its_share(monkeypatch, scheduler, expected):
    """SGLang divides slots and chunks by the ranks; vLLM gives each rank all of them."""
    pytest.importorskip("aiconfigurator_core.sdk.engine")
    asked = []

    def room(_deployment, _share, **sizes):
        asked.append({key: sizes[key] for key in expected})
        return GpuMemory(100_000, 0.0, 0.0, 0.0)

    monkeypatch.setattr("sim.latency.aiconfigurator.kv_pool.memory_for_kv", room)
    latency = "{kind: aiconfigurator, system: h200_sxm, dp: 4, moe_ep: 4}"
    model = "model=Qwen/Qwen3-30B-A3B"
    build_scheduler_config(load(latency, model, f"scheduler={scheduler}").scenario)
    assert asked == [expected]


def test_run_names_the_source_of_its_step_times():
    """In the log, in the summary, and below the table."""
    built = build(load(LINEAR))
    model = MeasuredElsewhere(step_s=0.01, **dict.fromkeys(WEIGHTS, 0.0))
    log = run_built(replace(built, latencies=(model,)))
    assert log.meta["latency_source"] == summarise(log)["latency_source"] == "measurements [1.0]"
    table = summary_text(summary_with_confidence(log, built))
    assert table.splitlines()[-1].endswith(": nothing is claimed: measurements [1.0]")


def test_run_of_our_own_model_names_no_source():
    """A formula has no source."""
    log = run_built(build(load(LINEAR)))
    assert "latency_source" not in log.meta
    assert "latency_source" not in summarise(log)
    assert "step times" not in summary_text(summarise(log))


def test_scenario_of_a_model_without_a_shape_is_built():
    """MiMo-V2-Flash is described by the package alone; other kinds refuse it."""
    pytest.importorskip("aiconfigurator_core.sdk.engine")
    model = ("model=XiaomiMiMo/MiMo-V2-Flash", "hardware=null")
    built = build(load("{kind: aiconfigurator, system: h200_sxm, tp: 8}", *model))
    assert built.model is None
    assert built.scheduler.pool_tokens > 0
    with pytest.raises(InputError, match="unknown architecture 'mimo_v2_flash'"):
        build(load("{kind: roofline}", model[0]))


def test_scenario_whose_weights_do_not_fit_is_one_line():
    """The package's own error is about its memory model."""
    pytest.importorskip("aiconfigurator_core.sdk.engine")
    loaded = load("{kind: aiconfigurator, system: h200_sxm, tp: 8}", "model=zai-org/GLM-5")
    with pytest.raises(InputError, match="model=zai-org/GLM-5: zai-org/GLM-5 does not fit"):
        build(loaded)
