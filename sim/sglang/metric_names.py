"""SGLang's names of the metrics that `simulate serve` shows (0.5.23, observability/)."""

METRIC_NAMES = {
    "running": "sglang:num_running_reqs",
    "waiting": "sglang:num_queue_reqs",
    "kv_usage": "sglang:token_usage",
    "prompt_tokens": "sglang:prompt_tokens",
    "cached_tokens": "sglang:cached_tokens",
    "generation_tokens": "sglang:generation_tokens",
    "requests": "sglang:num_requests",
    "preemptions": "sglang:num_retracted_requests",
    "ttft_s": "sglang:time_to_first_token_seconds",
    "itl_s": "sglang:inter_token_latency_seconds",
    "e2e_s": "sglang:e2e_request_latency_seconds",
}
