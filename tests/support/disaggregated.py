"""A small scenario with prefill and decode servers, for tests."""

# Three prefill servers of two pools, and two decode servers of two ranks each.
DISAGGREGATED = """\
name: disaggregated
seed: 1
latency:
  kind: linear
  step_s: 0.01
  per_prefill_token_s: 0.00005
  per_decode_request_s: 0.0001
  per_context_token_s: 1.0e-8
workload:
  kind: synthetic
  num_requests: 80
  arrivals: {kind: poisson, rate_rps: 20}
  prompt_tokens: {kind: uniform, min: 100, max: 3000}
  output_tokens: {kind: uniform, min: 1, max: 100}
scheduler: {max_total_tokens: 50000, page_size: 16, chunked_prefill_size: 2048}
pools:
  east: {role: prefill, replicas: 2, router: least-loaded}
  west: {role: prefill, router: least-loaded, scheduler: {max_total_tokens: 20000}}
  decode: {role: decode, replicas: 2, latency: {dp: 2}, scheduler: {max_total_tokens: 30000}}
transfer: {bandwidth_gb_s: 10, latency_s: 0.001, bytes_per_token: 131072}
"""
# The same hardware, with servers that compute whole requests, of two kinds.
TOGETHER = (
    DISAGGREGATED.partition("pools:")[0]
    + """\
pools:
  old: {role: both, replicas: 2}
  new: {role: both, latency: {step_s: 0.005}, scheduler: {max_total_tokens: 90000}}
"""
)
