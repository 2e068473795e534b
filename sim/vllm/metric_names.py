"""vLLM's names of the metrics that `simulate serve` shows (0.33.0, v1/metrics/loggers.py)."""

METRIC_NAMES = {
    "running": "vllm:num_requests_running",
    "waiting": "vllm:num_requests_waiting",
    "kv_usage": "vllm:kv_cache_usage_perc",
    "prompt_tokens": "vllm:prompt_tokens",
    "cached_tokens": "vllm:prefix_cache_hits",
    "generation_tokens": "vllm:generation_tokens",
    "requests": "vllm:request_success",
    "preemptions": "vllm:num_preemptions",
    "ttft_s": "vllm:time_to_first_token_seconds",
    "itl_s": "vllm:inter_token_latency_seconds",
    "e2e_s": "vllm:e2e_request_latency_seconds",
}
