"""Victims of prefill servers of vLLM 0.19.0 whose tokens were in flight."""

import pytest
import yaml

import servetwin
from sim.core.errors import InputError

# Prompts outgrow the prefill server's pool.
TIGHT = """\
name: tight
latency:
  kind: linear
  step_s: 0.005
  per_prefill_token_s: 0.00004
  per_decode_request_s: 0.0002
  per_context_token_s: 0
workload:
  kind: synthetic
  num_requests: 40
  arrivals: {kind: poisson, rate_rps: 100}
  prompt_tokens: {kind: uniform, min: 20, max: 150}
  output_tokens: {kind: constant, value: 4}
scheduler:
  family: vllm
  num_gpu_blocks_override: 41
  block_size: 4
  max_num_seqs: 16
  max_model_len: 160
  max_num_batched_tokens: 64
  scheduler_reserve_full_isl: false
  long_prefill_token_threshold: 24
pools: {p: {role: prefill}, d: {role: decode}}
transfer: {bandwidth_gb_s: 10, latency_s: 0.002, bytes_per_token: 131072}
"""


def test_victim_without_kv_ends_the_run_as_its_decode_server_would_end():
    scenario = yaml.safe_load(TIGHT)
    scenario["scheduler"]["version"] = "0.19.0"
    with pytest.raises(InputError, match="and its decode server fails"):
        servetwin.run(scenario)


@pytest.mark.parametrize("changed", [{"version": "0.33.0"}, {"async_scheduling": False}])
def test_victims_are_computed_again_otherwise(changed):
    scenario = yaml.safe_load(TIGHT)
    scenario["scheduler"] |= {"version": "0.19.0"} | changed
    summary = servetwin.run(scenario).summary
    assert summary["completed"] == 40
    assert summary["preemptions"] > 0
