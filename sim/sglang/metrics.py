"""SGLang's names of its metrics (0.5.23, observability/metrics_collector.py)."""

from sim.server_metrics.scrape import MetricNames

# Of `simulate serve`.
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
# Those that a real server has besides.
_FURTHER = {
    "pool_tokens": "sglang:max_total_num_tokens",
    "queue_s": "sglang:queue_time_seconds",
    "prompt_lengths": "sglang:prompt_tokens_histogram",
    "output_lengths": "sglang:generation_tokens_histogram",
}


def sglang_metrics() -> MetricNames:
    return MetricNames.of("sglang", METRIC_NAMES, _FURTHER)
