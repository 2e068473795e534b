"""Sections whose models are loaded when one is there behave as if they had been there always."""

import pytest

from sim.core.errors import InputError
from sim.scenario.load import load_scenario_text
from sim.scenario.schema import Scenario
from sim.scenario.sections import Sections
from sim.scenario.sweep_section import SweepSection
from sim.scenario.tune_section import TuneSection

BASE = """
name: x
latency: {kind: linear, step_s: 0.01, per_prefill_token_s: 0, per_decode_request_s: 0,
          per_context_token_s: 0}
workload:
  kind: synthetic
  num_requests: 2
  arrivals: {kind: constant, rate_rps: 1}
  prompt_tokens: {kind: constant, value: 8}
  output_tokens: {kind: constant, value: 2}
scheduler: {max_total_tokens: 4096}
"""


def test_section_loaded_later_is_its_model():
    """Values come as they do from the section's own model."""
    scenario = load_scenario_text(BASE + "sweep: {replicas: [1, 2], seeds: [3]}").scenario
    assert scenario.sweep == SweepSection.model_validate({"replicas": [1, 2], "seeds": [3]})
    assert scenario.tune is None


def test_section_loaded_later_says_which_of_its_keys_is_wrong():
    """Several levels below, with line and path, as anywhere else in the file."""
    tune = "tune:\n  objective: goodput\n  num_trials: 3\n  ranges:\n    replicas:\n"
    with pytest.raises(InputError) as wrong:
        load_scenario_text(BASE + tune + "      {kind: int, min: 4, max: 1}\n", name="s.yaml")
    assert (
        str(wrong.value) == "s.yaml:17: tune.ranges.replicas: max must be at least min, got 4 to 1"
    )


def test_section_loaded_later_is_in_the_schema():
    """Its keys are known to whoever looks for a misspelled one."""
    found = Sections.of(Scenario).locate(("tune", "objektive"))
    assert found.path == ("tune", "objektive")
    assert set(found.siblings) == set(TuneSection.model_fields)
