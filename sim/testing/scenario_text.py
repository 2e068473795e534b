"""Scenario sections that many tests share, as text."""

# The same step times as those of `sim.testing.serve.linear_latency`.
LINEAR_LATENCY = """\
latency:
  kind: linear
  step_s: 0.005
  per_prefill_token_s: 4e-5
  per_decode_request_s: 5e-5
  per_context_token_s: 2e-8
"""
