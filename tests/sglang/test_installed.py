"""What an installed SGLang is told of a server's settings."""

from sim.installed.inside.sglang.settings import DEFAULTS
from sim.scenario.build import build
from sim.scenario.load import load_scenario_data
from sim.sglang.installed import engine_settings

SCENARIO = {
    "name": "asked",
    "latency": {
        "kind": "linear", "step_s": 0.01, "per_prefill_token_s": 0, "per_decode_request_s": 0,
        "per_context_token_s": 0,
    },
    "workload": {
        "kind": "synthetic", "num_requests": 1, "arrivals": {"kind": "constant", "rate_rps": 1},
        "prompt_tokens": {"kind": "constant", "value": 8},
        "output_tokens": {"kind": "constant", "value": 2},
    },
}  # fmt: skip


def told(**scheduler):
    scenario = SCENARIO | {"scheduler": {"max_total_tokens": 32768} | scheduler}
    return engine_settings(build(load_scenario_data(scenario)).scheduler)


def test_settings_of_an_installed_sglang_are_those_that_it_knows():
    """Our defaults are its defaults, but for overlap, which the oracle's cases turn on."""
    settings = told()
    assert settings | {"enable_overlap": False} == {name: DEFAULTS[name] for name in settings}


def test_settings_of_an_installed_sglang_have_its_units_and_names():
    settings = told(
        chunked_prefill_size=-1,
        waiting_timeout_s=1.5,
        radix_eviction_policy="tlru",
        radix_eviction_policy_config={"threshold": 9, "next_prompt_estimate": 4},
        prefill_delayer={"max_delay_passes": 3, "max_delay_ms": 2.5},
    )
    assert settings["chunked_prefill_size"] is None
    assert settings["waiting_timeout_s"] == 1.5
    assert settings["eviction_policy_config"] == {"threshold": 9, "next_prompt_estimate": 4}
    assert settings["prefill_delayer"]["max_delay_ms"] == 2.5
