"""The values of SGLang's `Prefill batch` and `Decode batch` lines, from 0.4.6 to 0.5.23.

Sources: `sglang/srt/managers/scheduler.py` (0.4.6), `scheduler_metrics_mixin.py` (0.5),
`scheduler_components/metrics_reporter.py` and `pool_stats_observer.py` (0.5.23). All have the form
`name: value`; which ones a line has depends on the version, the kind of memory, drafts and the
server's role. A decode line is written every `decode_log_interval` steps of a rank, a prefill line
for each batch; both tell what the scheduler knew when it wrote the line, after the step.
"""

import re

from sim.server_log.pieces import COUNT, DECIMAL, PERCENT, YES_OR_NO, Piece

_COUNTS = {
    "#new-seq": "num_new_requests",
    "#new-token": "num_new_tokens",
    "#cached-token": "num_cached_tokens",
    "#running-req": "num_running",
    "#queue-req": "num_waiting",
    "#token": "num_used_tokens",
    "#full token": "num_used_full_tokens",
    "#swa token": "num_used_window_tokens",
    "#gpu token": "num_used_device_tokens",
    "#cpu token": "num_used_host_tokens",
    "mamba num": "num_used_states",
    "#pending-token": "num_pending_tokens",
    "#replay-token": "num_replayed_tokens",
    "#bootstrap-req": "num_bootstrapping",
    "#unbootstrapped-req": "num_bootstrapping",
    "#inflight-req": "num_sending",
    "#transferring-req": "num_sending",
    "#optimistic-req": "num_optimistic",
    "#prealloc-req": "num_preallocating",
    "#transfer-req": "num_receiving",
    "#retracted-req": "num_retracted",
    "#host-receive-req": "num_receiving_to_host",
    "waiting-image-req": "num_waiting_for_images",
}
_FRACTIONS = {
    "token usage": "token_usage_fraction",
    "full token usage": "full_token_usage_fraction",
    "swa token usage": "window_token_usage_fraction",
    "mamba usage": "state_usage_fraction",
    "gpu token usage": "device_token_usage_fraction",
    "cpu token usage": "host_token_usage_fraction",
    "pre-allocated usage": "preallocated_fraction",
    "accept len": "accepted_tokens_per_step",
    "accept rate": "accepted_fraction",
    "cap len": "capped_tokens_per_step",
    "block accept len": "block_accepted_tokens_per_step",
    "input throughput (token/s)": "prompt_tokens_per_s",
    "gen throughput (token/s)": "generated_tokens_per_s",
    "est. prefill TFLOPS/s (per GPU)": "prefill_tflops_per_gpu",
    "est. decode TFLOPS/s (per GPU)": "decode_tflops_per_gpu",
    "est. read BW (GB/s per GPU)": "read_gb_per_s_per_gpu",
    "est. write BW (GB/s per GPU)": "write_gb_per_s_per_gpu",
}


def _named(words: str, value: bytes) -> bytes:
    return re.escape(words.encode()) + b": " + value


PIECES = (
    *(Piece(name, _named(words, COUNT)) for words, name in _COUNTS.items()),
    *(Piece(name, _named(words, DECIMAL)) for words, name in _FRACTIONS.items()),
    Piece("hit_pct", _named("cache hit rate", PERCENT)),
    Piece("uses_graph", rb"(?:cuda|cpu|npu|musa|xpu) graph: " + YES_OR_NO),
)
# SGLang: `[2026-06-11 04:38:42.123 DP1 TP3] `, milliseconds with SGLANG_LOG_MS.
BEGIN = (
    rb"(.{0,300}?)\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,](\d{3}))?"
    rb"((?: [A-Z_]{1,10}\d{1,6}){0,6})\] "
)
# The number of the step, with SGLANG_LOG_FORWARD_ITERS.
_STEP = rb" batch(?: \[(\d{1,15})\])?[,.] {1,2}"
PREFILL_HEAD = BEGIN + rb"Prefill" + _STEP
DECODE_HEAD = BEGIN + rb"Decode" + _STEP
PREFILL_NEEDS = ("num_new_requests", "num_new_tokens", "num_cached_tokens")
DECODE_NEEDS = ("num_running", "generated_tokens_per_s")
