"""vLLM's names of its metrics (0.33.0, v1/metrics/loggers.py), and older ones."""

from sim.server_metrics.scrape import MetricNames

# Of `simulate serve`.
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
# Those that a real server has besides or instead, and those that versions before 0.10 had.
# `prompt_tokens_cached` has what host memory held, too.
_FURTHER = {
    "kv_usage": "vllm:gpu_cache_usage_perc",
    "cached_tokens": "vllm:prompt_tokens_cached",
    "itl_s": "vllm:time_per_output_token_seconds",
    "queried_tokens": "vllm:prefix_cache_queries",
    "queue_s": "vllm:request_queue_time_seconds",
    "prefill_s": "vllm:request_prefill_time_seconds",
    "prompt_lengths": "vllm:request_prompt_tokens",
    "output_lengths": "vllm:request_generation_tokens",
}


def vllm_metrics() -> MetricNames:
    return MetricNames.of(
        "vllm",
        METRIC_NAMES,
        _FURTHER,
        info="vllm:cache_config_info",
        pool=("num_gpu_blocks", "block_size"),
    )
