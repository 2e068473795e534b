"""The keys of sliding windows: what they make, and what is refused in one line."""

import pytest

from sim.core.errors import InputError
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text

_SCENARIO = """
name: windows
latency: {{kind: linear, step_s: 0.01,
          per_prefill_token_s: 0, per_decode_request_s: 0, per_context_token_s: 0}}
workload: {{kind: synthetic, num_requests: 1, arrivals: {{kind: poisson, rate_rps: 1}},
           prompt_tokens: {{kind: constant, value: 9}},
           output_tokens: {{kind: constant, value: 2}}}}
{more}
scheduler: {{sliding_window: {window}, max_total_tokens: 1000, {keys}}}
"""


def _settings(window="64", keys="page_size: 16", more=""):
    text = _SCENARIO.format(window=window, keys=keys, more=more)
    return build(load_scenario_text(text)).scheduler.window


def test_window_pool_is_a_share_of_the_pool_in_whole_pages():
    """0.8 of 992 tokens are 793, or 49 pages of 16."""
    settings = _settings()
    assert (settings.window, settings.pool_tokens, settings.eviction_interval) == (64, 784, 128)


def test_window_of_model_is_one_less_than_the_checkpoints():
    """GPT-OSS has windows of 128 tokens; SGLang takes 127."""
    assert _settings("model", more="model: openai/gpt-oss-20b").window == 127


def test_window_disabled_is_one_pool():
    assert _settings(keys="disable_hybrid_swa_memory: true") is None


@pytest.mark.parametrize(
    ("window", "keys", "more", "reason"),
    [
        ("64", "version: '0.5.9'", "", "with version 0.5.23 only"),
        ("64", "chunked_prefill_size: -1", "", "swa_full_tokens_ratio must be 1"),
        ("64", "swa_full_tokens_ratio: 0.065", "", "leaves 65 tokens of 1000 for sliding"),
        ("model", "page_size: 4", "", "model needs the scenario's model"),
        ("model", "page_size: 4", "model: Qwen/Qwen3-8B", "has no layers with one sliding window"),
        ("model", "page_size: 4", "model: google/gemma-3-27b-it", "SGLang keeps one pool for goo"),
    ],
)
def test_window_that_is_not_simulated_is_refused(window, keys, more, reason):
    with pytest.raises(InputError, match=reason):
        _settings(window, keys, more)
