"""Settings of prefill and decode servers that are not simulated."""

import json

import pytest

from sim.core.errors import InputError
from sim.scenario.load import load_scenario_text
from sim.sglang.section.scheduler import SglangSection

SCENARIO = """\
name: x
latency: {kind: linear, step_s: 0.01, per_prefill_token_s: 0, per_decode_request_s: 0,
          per_context_token_s: 0}
workload: {kind: trace, format: servetwin, path: x}
"""
DEFAULTS = {
    "optimistic_prefill_attempts": 0,
    "disaggregation_decode_allocation_policy": "early",
    "disaggregation_decode_host_receive_threshold": 1.0,
    "disaggregation_decode_enable_offload_kvcache": False,
    "enable_pd_role_switch": False,
}


def test_roles_defaults_of_what_is_not_simulated_change_nothing():
    assert SglangSection.model_validate(DEFAULTS) == SglangSection()


@pytest.mark.parametrize(
    ("key", "value", "simulated"),
    [
        ("optimistic_prefill_attempts", 1, "0"),
        ("disaggregation_decode_allocation_policy", "prefill_complete", "early"),
        ("disaggregation_decode_host_receive_threshold", 0.5, "1"),
        ("disaggregation_decode_enable_offload_kvcache", True, "false"),
        ("enable_pd_role_switch", True, "false"),
    ],
)
def test_roles_settings_that_are_not_simulated_are_refused_by_name(key, value, simulated):
    text = f"{SCENARIO}scheduler: {json.dumps({'max_total_tokens': 5000, key: value})}\n"
    with pytest.raises(InputError) as caught:
        load_scenario_text(text)
    reason = f"{key}: only {simulated} is simulated (docs/explanation/disaggregation.md)"
    assert str(caught.value) == f"scenario:5: scheduler: {reason}"
