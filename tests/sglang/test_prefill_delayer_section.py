"""The section of the prefill delayer with ranks: which intervals do not go with it."""

import pytest

from sim.core.errors import InputError
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text

_SCENARIO = """
name: delayed-ranks
latency: {{kind: linear, dp: {ranks}, step_s: 0.01, per_prefill_token_s: 0,
          per_decode_request_s: 0, per_context_token_s: 0}}
scheduler: {{max_total_tokens: 4096, prefill_delayer: {{max_delay_passes: 3}}, {keys}}}
workload:
  kind: synthetic
  num_requests: 10
  arrivals: {{kind: poisson, rate_rps: 10}}
  prompt_tokens: {{kind: constant, value: 10}}
  output_tokens: {{kind: constant, value: 5}}
"""


def built(keys, ranks):
    return build(load_scenario_text(_SCENARIO.format(keys=keys, ranks=ranks))).scheduler


@pytest.mark.parametrize(
    "keys", ["decode_first: true", "prefill_decode_interval: 2, prefill_decode_interval_min_bs: 3"]
)
def test_delayer_needs_intervals_that_all_ranks_hold_together(keys):
    """Alone, such a server starts; SGLang's ranks would wait for each other in different places."""
    assert built(keys, 1).prefill_delayer.max_delay_passes == 3
    with pytest.raises(InputError, match=r"scheduler.prefill_delayer: .*_should_defer_prefill"):
        built(keys, 2)


def test_delayer_goes_with_ranks_and_an_interval():
    """An interval for any number of rows is the same on all ranks."""
    assert built("prefill_decode_interval: 2", 2).prefill_delayer.max_delay_passes == 3
