"""The keys of the pool of states: what they make, and what is refused in one line."""

import pytest

from sim.core.errors import InputError
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text
from sim.sglang.cache.settings import StateSettings

_SCENARIO = """
name: states
latency: {{kind: linear, step_s: 0.01,
          per_prefill_token_s: 0, per_decode_request_s: 0, per_context_token_s: 0}}
workload: {{kind: synthetic, num_requests: 1, arrivals: {{kind: poisson, rate_rps: 1}},
           prompt_tokens: {{kind: constant, value: 9}},
           output_tokens: {{kind: constant, value: 2}}}}
scheduler: {{max_mamba_cache_size: 100, max_total_tokens: 1000, {keys},
            max_running_requests: {rows}}}
"""


def _built(keys="page_size: 16", rows=20, **options):
    sets = [f"{key}={value}" for key, value in options.items()]
    return build(load_scenario_text(_SCENARIO.format(keys=keys, rows=rows), sets)).scheduler


def _settings(keys="page_size: 16", rows=20):
    return _built(keys, rows).states


def test_states_are_tracked_by_the_multiples_of_pages_kernels_and_interval():
    """Under overlap a request has two tracked states, otherwise one."""
    assert _settings() == StateSettings(100, 2, 64, 256, 64)
    normal = _settings("page_size: 128, mamba_track_interval: 384, disable_overlap_schedule: true")
    assert normal == StateSettings(100, 1, 128, 384, 64)
    assert _settings("page_size: 1, disable_overlap_schedule: true").num_tracked == 0


def test_ranks_share_the_states():
    """Two ranks with 50 states and 10 requests each, as many as the states allow."""
    config = _built(rows=40, **{"latency.dp": 2})
    assert (config.states.num_states, config.max_running_requests) == (50, 10)


@pytest.mark.parametrize(
    ("keys", "rows", "reason"),
    [
        ("version: '0.5.9'", 9, "with version 0.5.23 only"),
        (
            "speculative_algorithm: NEXTN, speculative_num_steps: 8, mamba_track_interval: 8",
            9,
            "must be at least the 9 tokens that a step verifies",
        ),
        ("mamba_radix_cache_strategy: no_buffer, page_size: 4", 9, "no_buffer needs page_size 1"),
        ("page_size: 48, chunked_prefill_size: 96", 9, "needs a page_size that divides 64"),
        ("page_size: 16, mamba_track_interval: 72", 9, "must be whole pages"),
        ("mamba_radix_cache_strategy: no_buffer", 9, "needs disable_overlap_schedule"),
    ],
)
def test_states_that_are_not_simulated_are_refused(keys, rows, reason):
    with pytest.raises(InputError, match=reason):
        _settings(keys, rows)
