"""Clients that give up while KV is about to be sent leave no blocks behind."""

import yaml

import servetwin

# A pool has blocks for one prompt, and a decode server waits 50 ms for the first byte of its KV.
GIVES_UP_BEFORE_THE_FIRST_BYTE = """\
name: gives-up
latency:
  kind: linear
  step_s: 0.001
  per_prefill_token_s: 0.00005
  per_decode_request_s: 0.00005
  per_context_token_s: 2.0e-8
workload:
  kind: synthetic
  num_requests: 40
  arrivals: {kind: poisson, rate_rps: 4}
  prompt_tokens: {kind: uniform, min: 170, max: 178}
  output_tokens: {kind: constant, value: 14}
  give_up: {share: 0.5, after_s: {kind: exponential, mean: 0.05}}
scheduler: {family: vllm, num_gpu_blocks_override: 19}
pools: {p: {role: prefill}, d: {role: decode}}
transfer: {bandwidth_gb_s: 1, latency_s: 0.05, bytes_per_token: 131072}
"""


def test_a_fetch_whose_client_has_left_ends_and_frees_its_blocks():
    run = servetwin.run(yaml.safe_load(GIVES_UP_BEFORE_THE_FIRST_BYTE))
    requests = run.summary
    assert requests["submitted"] == 40
    assert requests["unfinished"] == 0
    assert requests["aborted"] + requests["completed"] == 40
    # Fetched, though their clients had left.
    assert requests["transfers"] > requests["completed"]
