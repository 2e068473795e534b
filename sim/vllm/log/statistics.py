"""The values of vLLM's lines of statistics, iterations and drafts, from 0.8 to 0.33.

Sources: `vllm/v1/metrics/loggers.py`, `vllm/v1/spec_decode/metrics.py` (0.33.0 and older), and
`vllm/engine/metrics.py` (the engine of before V1). Statistics are written every ten seconds while
requests are served, and are means over that time; an iteration (with
`--enable-logging-iteration-details`) is one step of an engine. A rank's idle step beside busy ones
is an iteration without requests.
"""

import re

from sim.server_log.pieces import COUNT, DECIMAL, PERCENT, Piece

# vLLM: `(EngineCore pid=232) INFO 06-05 05:33:41 [core.py:112] `, before 0.8 without brackets.
BEGIN = (
    rb"(.{0,300}?)(?:INFO|WARNING|ERROR|DEBUG) (\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,](\d{3}))? "
    rb"(?:\[[^\]]{1,100}\]|[\w.]{1,100}:\d{1,7}\]) "
)
_ENGINE = rb"(?:Engine (\d{1,6}): |(\d{1,6}) Engines Aggregated: |)"


def _of(words: str, value: bytes, unit: str = "") -> bytes:
    return re.escape(words.encode()) + b": " + value + re.escape(unit.encode())


STATISTICS_HEAD = BEGIN + _ENGINE + rb"(?=Avg prompt throughput: )"
STATISTICS_NEEDS = ("prompt_tokens_per_s", "generated_tokens_per_s", "num_running", "num_waiting")
STATISTICS = (
    Piece("prompt_tokens_per_s", _of("Avg prompt throughput", DECIMAL, " tokens/s")),
    Piece("generated_tokens_per_s", _of("Avg generation throughput", DECIMAL, " tokens/s")),
    Piece("num_running", _of("Running", COUNT, " reqs")),
    Piece("num_waiting", rb"(?:Waiting|Pending): " + COUNT + rb" reqs"),
    Piece("num_swapped", _of("Swapped", COUNT, " reqs")),
    Piece("num_deferred", _of("Deferred", COUNT, " reqs")),
    Piece("num_waiting_to_fetch", _of("KV fetch", COUNT, " waiting to start")),
    Piece("num_fetching", COUNT + rb" in progress"),
    Piece("num_fetched_waiting", COUNT + rb" completed waiting"),
    Piece("num_preempted", _of("Preemptions", COUNT)),
    Piece("num_corrupted", _of("Corrupted", COUNT, " reqs")),
    Piece("cpu_kv_usage_pct", _of("CPU KV cache usage", PERCENT) + rb"\.?"),
    Piece("kv_usage_pct", rb"[A-Z]{1,10} KV cache usage: " + PERCENT),
    Piece("prefix_hit_pct", _of("Prefix cache hit rate", PERCENT)),
    Piece("external_prefix_hit_pct", _of("External prefix cache hit rate", PERCENT)),
    Piece("multimodal_hit_pct", _of("MM cache hit rate", PERCENT)),
)
ITERATION_HEAD = BEGIN + _ENGINE + rb"Iteration\((\d{1,15})\): "
ITERATION_NEEDS = ("num_prefill_requests", "num_decode_requests", "elapsed_ms")
ITERATION = (
    Piece("num_prefill_requests", COUNT + rb" context requests"),
    Piece("num_prefill_tokens", COUNT + rb" context tokens"),
    Piece("num_decode_requests", COUNT + rb" generation requests"),
    Piece("num_decode_tokens", COUNT + rb" generation tokens"),
    Piece("elapsed_ms", _of("iteration elapsed time", DECIMAL, " ms") + rb"(?: \(dummy\))?"),
    Piece("kv_usage_pct", rb"[A-Z]{1,10} KV cache usage: " + PERCENT),
    Piece("num_encoder_inputs", _of("encoder inputs", COUNT)),
    Piece("num_encoder_tokens", _of("encoder output embeddings", COUNT)),
)
SPECULATION_HEAD = BEGIN + _ENGINE + rb"SpecDecoding metrics: "
SPECULATION_NEEDS = ("num_accepted_tokens", "num_draft_tokens")
SPECULATION = (
    Piece("accepted_tokens_per_step", _of("Mean acceptance length", DECIMAL)),
    Piece("accepted_tokens_per_s", _of("Accepted throughput", DECIMAL, " tokens/s")),
    Piece("draft_tokens_per_s", _of("Drafted throughput", DECIMAL, " tokens/s")),
    Piece("num_accepted_tokens", _of("Accepted", COUNT, " tokens")),
    Piece("num_draft_tokens", _of("Drafted", COUNT, " tokens")),
    Piece(
        "accepted_fraction_by_position", _of("Per-position acceptance rate", DECIMAL), is_list=True
    ),
    Piece("", DECIMAL, continues=True),
    Piece("accepted_pct", rb"(?:Avg )?Draft acceptance rate: " + PERCENT),
)
