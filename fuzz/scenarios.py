"""Scenarios, small ones of every kind: some are attacked, others name a file that is."""

from collections.abc import Mapping
from typing import Any

_LINEAR = {
    "kind": "linear",
    "step_s": 0.005,
    "per_prefill_token_s": 4e-5,
    "per_decode_request_s": 5e-5,
    "per_context_token_s": 2e-8,
}
_SCHEDULER = {
    "schedule_policy": "lpm",
    "page_size": 16,
    "max_total_tokens": 4096,
    "context_length": 2048,
    "chunked_prefill_size": 256,
    "max_running_requests": 16,
}
_SIZES = {
    "prompt_tokens": {"kind": "uniform", "min": 20, "max": 300},
    "output_tokens": {"kind": "uniform", "min": 1, "max": 30},
}
_PREFIXES = {"groups": 3, "tokens": {"kind": "constant", "value": 160}, "share_probability": 0.5}
SYNTHETIC = {
    "kind": "synthetic",
    "num_requests": 20,
    "arrivals": {"kind": "poisson", "rate_rps": 20},
    **_SIZES,
    "prefixes": _PREFIXES,
}
BASE = {
    "name": "base",
    "seed": 3,
    "latency": _LINEAR,
    "workload": SYNTHETIC,
    "scheduler": _SCHEDULER,
    "slo": {"ttft_ms": 500, "tpot_ms": 50},
}
_VLLM = {
    "family": "vllm",
    "block_size": 16,
    "num_gpu_blocks_override": 512,
    "max_num_seqs": 16,
    "max_num_batched_tokens": 512,
    "max_model_len": 2048,
}

SCENARIOS: Mapping[str, Mapping[str, Any]] = {
    "base.yaml": BASE,
    "vllm.yaml": {**BASE, "scheduler": _VLLM},
    "drafts.yaml": {
        **BASE,
        "scheduler": {
            **_VLLM,
            "speculative_config": {"method": "eagle", "num_speculative_tokens": 3},
        },
        "acceptance": {"recorded": "accepted.jsonl"},
    },
    "clients.yaml": {
        **BASE,
        "workload": {
            "kind": "clients",
            "clients": 3,
            "requests_per_client": 4,
            "think_s": {"kind": "constant", "value": 0.1},
            **_SIZES,
        },
    },
    "mix.yaml": {
        **BASE,
        "replicas": 2,
        "router": {"kind": "prefix-aware"},
        "workload": {
            "kind": "mix",
            "parts": [
                {"tenant": "a", "workload": SYNTHETIC},
                {"tenant": "b", "workload": SYNTHETIC},
            ],
        },
        "scheduler": {
            **_SCHEDULER,
            "fairness": {"kind": "fairness_t", "t_ms": 100},
            "enable_mixed_chunk": True,
        },
    },
    "bench.yaml": {
        **BASE,
        "workload": {
            "kind": "bench",
            "client": "vllm",
            "num_prompts": 12,
            "request_rate": 20,
            "input_len": 64,
            "output_len": 8,
            "range_ratio": 0.2,
        },
    },
    "disaggregated.yaml": {
        **BASE,
        "pools": {
            "prefill": {"role": "prefill", "replicas": 2, "router": {"kind": "random"}},
            "decode": {"role": "decode", "latency": {"dp": 2}, "scheduler": {"decode_first": True}},
        },
        "transfer": {
            "bandwidth_gb_s": 10,
            "latency_s": 0.001,
            "failure_rate": 0.1,
            "max_retries": 1,
            "bytes_per_token": 1000,
        },
    },
    "pools.yaml": {
        **BASE,
        "pools": {"old": {"role": "both"}, "new": {"role": "both", "latency": {"step_s": 0.005}}},
    },
    "roofline.yaml": {
        **BASE,
        "model": "llama-3.1-8b",
        "hardware": "h100-sxm",
        "latency": {"kind": "roofline"},
        "scheduler": {
            **_SCHEDULER,
            "host_cache": {"capacity_tokens": 8192, "load_tokens_per_s": 1e6},
        },
    },
}
_LAYERS = {
    "kind": "layers",
    "path": "tables/perf_model.csv",
    "table_model": "llama2-70b",
    "table_hardware": "h100-80gb",
    "tp": 4,
}
OTHERS: Mapping[str, Mapping[str, Any]] = {
    "sweep.yaml": {
        **BASE,
        "sweep": {"scheduler.schedule_policy": ["lpm", "fcfs"], "seeds": [1, 2]},
    },
    "tune.yaml": {
        **BASE,
        "tune": {
            "objective": "goodput",
            "num_trials": 4,
            "seeds": [1, 2],
            "ranges": {"scheduler.max_running_requests": {"kind": "int", "min": 2, "max": 8}},
        },
    },
    "plan.yaml": {
        **BASE,
        "slo": {"ttft_ms": 500},
        "plan": {"min_slo_attainment": 0.5, "gpus": {"any": {}}, "max_replicas": 2},
    },
    "recorded.yaml": {**BASE, "latency": {"kind": "recorded", "path": "decisions.jsonl"}},
    "serial.yaml": {**BASE, "scheduler": {**_SCHEDULER, "disable_overlap_schedule": True}},
    "hosted.yaml": {**BASE, "latency": {**_LAYERS, "host": "host.json"}},
    "served.yaml": {**BASE, "model": "tiny"},
    "few.yaml": {
        **BASE,
        "workload": {
            **SYNTHETIC,
            "num_requests": 4,
            "arrivals": {"kind": "constant", "rate_rps": 400},
        },
    },
    "profiled.yaml": {
        **BASE,
        "model": "tiny",
        "latency": {"kind": "profile", "path": "profile.json"},
    },
    "launched.yaml": {
        **BASE,
        "model": "tiny",
        "latency": {"kind": "profile", "path": "launched.json"},
    },
    "modelled.yaml": {
        **BASE,
        "model": "./model",
        "hardware": "h100-sxm",
        "latency": {"kind": "roofline"},
    },
    "splitwise.yaml": {
        **BASE,
        "latency": _LAYERS,
    },
}
