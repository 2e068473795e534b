"""Kind aiconfigurator in a scenario, and the source of step times in what a run prints."""

from dataclasses import replace
from pathlib import Path

import pytest

from sim.commands.run import run_built
from sim.core.errors import InputError
from sim.latency.linear import LinearLatency
from sim.metrics.summary import summarise
from sim.report.summary_text import summary_text
from sim.scenario.build import build, build_scheduler_config
from sim.scenario.load import load_scenario_text

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


def test_scenario_number_of_devices_is_a_power_of_two():
    """The message lists the allowed numbers."""
    with pytest.raises(InputError, match=r"latency.tp: must be one of 1, 2, 4, 8, got 3"):
        load("{kind: aiconfigurator, system: h200_sxm, tp: 3}")


def test_scenario_split_model_needs_its_pool_size():
    """A size can be derived for one device only."""
    split = "{kind: aiconfigurator, system: h200_sxm, tp: 2}"
    with pytest.raises(InputError, match=r"max_total_tokens: is required with latency.tp above 1"):
        build_scheduler_config(load(split).scenario)
    given = load(split, "scheduler.max_total_tokens=5000").scenario
    assert build_scheduler_config(given).max_total_tokens == 5_000


def test_run_names_the_source_of_its_step_times():
    """In the log, in the summary, and below the table."""
    built = build(load(LINEAR))
    model = MeasuredElsewhere(step_s=0.01, **dict.fromkeys(WEIGHTS, 0.0))
    log = run_built(replace(built, latencies=(model,)))
    assert log.meta["latency_source"] == summarise(log)["latency_source"] == "measurements [1.0]"
    table = summary_text(summarise(log))
    assert table.splitlines()[-1] == "step times: measurements [1.0]"


def test_run_of_our_own_model_names_no_source():
    """A formula has no source."""
    log = run_built(build(load(LINEAR)))
    assert "latency_source" not in log.meta
    assert "latency_source" not in summarise(log)
    assert "step times" not in summary_text(summarise(log))
