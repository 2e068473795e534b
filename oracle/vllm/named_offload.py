"""The named cases of servers with KV in CPU memory."""

from dataclasses import replace

from oracle.vllm.load import Load
from oracle.vllm.named_case import NEW, OLD, Named

_EAGLE = {"method": "eagle", "num_speculative_tokens": 3, "by_position": [0.8, 0.7, 0.6]}
_ASYNC = {"async_scheduling": True}
_TIGHT_BLOCKS = {"num_gpu_blocks": 41, "block_size": 4, "max_model_len": 160, "max_num_seqs": 16}
_MEMORY = {
    "num_chunks": 60,
    "eviction_policy": "lru",
    "blocks_per_chunk": 1,
    "store_threshold": 0,
    "offload_prompt_only": True,
    "copy_ns_per_block": 50_021,
}
_SIMPLE = {
    "kv_connector": "SimpleCPUOffloadConnector",
    "lazy_offload": False,
    "num_chunks": 60,
    "copy_ns_per_block": 400_009,
}
_SHARED = Load(num_requests=60, longest_prompt=120, sharing=0.5, quoting=0.3, repeating=0.3)

_STORE = {
    "capacity_tokens": None,
    "lookup_s": 0.004_003,
    "read_latency_s": 0.001_003,
    "write_latency_s": 0.000_02,
    "read_tokens_per_s": 319_979.0,
    "write_tokens_per_s": 39_997.0,
    "pages_at_once": 1,
    "failed_read_share": 0.0,
    "failed_write_share": 0.0,
    "seed": 3,
}
_OLD_MEMORY = {key: _MEMORY[key] for key in _MEMORY if key != "offload_prompt_only"}
_FILES = {"type": "fs", "n_read_threads": 1, "n_write_threads": 1, "store": _STORE}
# Chunks of 16 tokens of qwen2.5-0.5b; a store takes about twice the high mark.
_PRESSURE = {
    "chunk_bytes": 16 * 12_288,
    "backpressure": {
        "policy": "throttle",
        "high_water_s": 0.004,
        "low_water_s": 0.002,
        "alpha": 0.5,
        "warmup_completions": 3,
        "decay_half_life_s": 0.5,
        "cooldown_s": 1.0,
        "failure_threshold": 2,
    },
}

OFFLOAD_CASES = {
    "offload": Named(
        "Prompts come back from CPU memory, which is full; copies take longer than steps",
        _SHARED,
        {"offload": _MEMORY | {"num_chunks": 20, "copy_ns_per_block": 3_000_017}}
        | {"num_gpu_blocks": 25, "enable_prefix_caching": False},
        versions=NEW,
    ),
    "offload_waits": Named(
        "Blocks of requests that have ended, or are preempted, are copied before they are reused",
        Load(
            num_requests=60,
            longest_prompt=60,
            longest_output=60,
            together=0.8,
            repeating=0.3,
            impatient=0.2,
        ),
        {"offload": _MEMORY | {"offload_prompt_only": False, "copy_ns_per_block": 1_000_003}}
        | _ASYNC
        | _TIGHT_BLOCKS,
        versions=NEW,
    ),
    "offload_simple": Named(
        "A second pool: what is computed is stored a step later, what has ended with the next step",
        replace(_SHARED, impatient=0.2),
        {"offload": _SIMPLE, "enable_prefix_caching": True} | _ASYNC | _TIGHT_BLOCKS,
        versions=NEW,
    ),
    "offload_simple_lazy": Named(
        "Free blocks are stored before they are allocated; one that is copied is not free",
        _SHARED,
        {"offload": _SIMPLE | {"lazy_offload": True, "num_chunks": 100}}
        | {"enable_prefix_caching": True}
        | _TIGHT_BLOCKS,
        versions=NEW,
    ),
    "offload_arc": Named(
        "ARC; chunks of two blocks are stored when they are offered for the second time",
        _SHARED,
        {
            "offload": _MEMORY
            | {"eviction_policy": "arc", "blocks_per_chunk": 2, "store_threshold": 2}
            | {"num_chunks": 25, "offload_prompt_only": False}
        }
        | _ASYNC
        | {"policy": "priority"}
        | _TIGHT_BLOCKS,
        versions=NEW,
    ),
    "offload_drafts": Named(
        "An EAGLE drafter: the last chunk of a hit is left out, that of an answer until it ends",
        _SHARED,
        {
            "offload": _MEMORY | {"num_chunks": 100, "offload_prompt_only": False},
            "speculation": _EAGLE,
        }
        | _ASYNC
        | _TIGHT_BLOCKS,
        versions=NEW,
    ),
    "offload_groups_drafter": Named(
        "An EAGLE drafter among layers with windows: their last chunk, and block, is left out",
        _SHARED,
        {
            "offload": _MEMORY | {"num_chunks": 60, "offload_prompt_only": False},
            "kv_cache_groups": [
                {"kind": "full_attention"},
                {"kind": "sliding_window", "sliding_window": 33, "has_drafter": True},
                {"kind": "chunked_local_attention", "attention_chunk_size": 48},
            ],
            "speculation": _EAGLE,
        }
        | _ASYNC
        | {"num_gpu_blocks": 60, "prefix_cache_retention_interval": 32},
        versions=NEW,
    ),
    "offload_windows": Named(
        "Windows of two lengths: their last chunks come back, and leave when the GPU needs blocks",
        _SHARED,
        {
            "offload": _MEMORY | {"blocks_per_chunk": 2, "offload_prompt_only": False},
            "kv_cache_groups": [
                {"kind": "full_attention"},
                {"kind": "sliding_window", "sliding_window": 33},
                {"kind": "sliding_window", "sliding_window": 70, "count": 2},
            ],
            "prefix_cache_retention_interval": None,
            "num_gpu_blocks": 60,
        }
        | _ASYNC,
        versions=NEW,
    ),
    "offload_states": Named(
        "States: those that are kept are handed over one by one, and one comes back for a prefix",
        _SHARED,
        {
            "offload": _MEMORY | {"num_chunks": 100},
            "kv_cache_groups": [
                {"kind": "full_attention"},
                {"kind": "mamba", "count": 2, "prefill_checkpoint_alignment": 1},
                {"kind": "sliding_window", "sliding_window": 33},
            ],
            "num_gpu_blocks": 40,
        },
        versions=NEW,
    ),
    "offload_sync": Named(
        "Steps wait for small loads; larger ones go on without a step",
        _SHARED,
        {
            "offload": _MEMORY
            | {"num_chunks": 100, "copy_ns_per_block": 400_009, "sync_load_tokens": 150},
            "num_gpu_blocks": 25,
        }
        | _ASYNC,
        versions=NEW,
    ),
    "offload_ranks": Named(
        "Two ranks, each with CPU memory of its own: steps without work while requests load",
        Load(num_requests=50, longest_prompt=100, repeating=0.5, gap_s=0.05, together=0.3),
        {"offload": _MEMORY | {"copy_ns_per_block": 3_000_017}, "ranks": 2}
        | {"enable_prefix_caching": False, "num_gpu_blocks": 25}
        | _ASYNC,
        versions=NEW,
    ),
    "offload_stages": Named(
        "Three stages: several decisions may launch nothing before one learns of a load",
        _SHARED,
        {"offload": _MEMORY | {"offload_prompt_only": False, "copy_ns_per_block": 1_000_003}}
        | {"stages": 3, "num_gpu_blocks": 25}
        | _ASYNC,
        versions=NEW,
    ),
    "offload_files": Named(
        "Chunks come back from files, also from a full store, whose reads sometimes fail",
        _SHARED,
        {
            "offload": _MEMORY
            | {"num_chunks": 20, "offload_prompt_only": False}
            | {
                "tier": _FILES
                | {"store": _STORE | {"capacity_tokens": 800, "failed_read_share": 0.1}}
            },
            "num_gpu_blocks": 25,
        }
        | _ASYNC,
        versions=NEW,
    ),
    "offload_objects": Named(
        "Objects are written more slowly than chunks come: some stores are dropped, some fail",
        _SHARED,
        {
            "offload": _MEMORY
            | {"num_chunks": 25, "eviction_policy": "arc"}
            | {
                "tier": {
                    **_FILES,
                    **_PRESSURE,
                    "type": "obj",
                    "store": _STORE | {"pages_at_once": 4, "failed_write_share": 0.2},
                }
            },
            "num_gpu_blocks": 25,
        },
        versions=NEW,
    ),
    "offload_files_groups": Named(
        "Windows and states: what they need of a prefix comes back from files",
        _SHARED,
        {
            "offload": _MEMORY | {"tier": _FILES},
            "kv_cache_groups": [
                {"kind": "full_attention"},
                {"kind": "mamba", "prefill_checkpoint_alignment": 1},
                {"kind": "sliding_window", "sliding_window": 33},
            ],
            "num_gpu_blocks": 40,
        }
        | _ASYNC,
        versions=NEW,
    ),
    "offload_files_ranks": Named(
        "Two ranks with one directory: each finds what the other has written, and waits for it",
        Load(num_requests=50, longest_prompt=120, sharing=0.6, repeating=0.4, gap_s=0.03),
        {"offload": _MEMORY | {"num_chunks": 12, "tier": _FILES}, "ranks": 2}
        | {"num_gpu_blocks": 17}
        | _ASYNC,
        versions=NEW,
    ),
    "offload_two_tiers": Named(
        "Objects below files: what the full directory has dropped comes back from the bucket",
        _SHARED,
        {
            "offload": _MEMORY
            | {
                "num_chunks": 20,
                "tier": _FILES | {"store": _STORE | {"capacity_tokens": 400}},
                "more_tiers": [
                    _FILES | {"type": "obj", "store": _STORE | {"lookup_s": 0.012_007, "seed": 4}}
                ],
            },
            "num_gpu_blocks": 25,
        }
        | _ASYNC,
        versions=NEW,
    ),
    "offload_prefill": Named(
        "A prefill server: prompts come back from CPU memory, and are kept there when they end",
        _SHARED,
        {"role": "prefill", "kv_load_failure_policy": "fail", "num_gpu_blocks": 25}
        | {"offload": _MEMORY | {"copy_ns_per_block": 1_000_003}}
        | _ASYNC,
        handover=(0.05, 0.0),
        versions=NEW,
    ),
    "offload_decode": Named(
        "A decode server: what is preempted comes back from CPU memory",
        Load(num_requests=60, longest_prompt=60, longest_output=60, together=0.8, repeating=0.3),
        {"role": "decode", "kv_load_failure_policy": "fail"}
        | {"offload": _MEMORY | {"offload_prompt_only": False, "copy_ns_per_block": 400_009}}
        | _ASYNC
        | _TIGHT_BLOCKS,
        handover=(0.02, 0.0),
        versions=NEW,
    ),
    "offload_decode_lost": Named(
        "A prompt whose KV was lost leaves room for itself when it loads what CPU memory has of it",
        Load(
            num_requests=50,
            longest_prompt=60,
            longest_output=12,
            sharing=0.5,
            quoting=0.5,
            repeating=0.3,
            impatient=1.0,
            patience_s=0.4,
            gap_s=0.03,
        ),
        {"role": "decode", "kv_load_failure_policy": "recompute"}
        | {"offload": _MEMORY | {"offload_prompt_only": False}}
        | _TIGHT_BLOCKS,
        handover=(0.01, 0.5),
        versions=NEW,
        seed=3,
    ),
    "offload_decode_groups": Named(
        "A decode server with states and windows: all groups go on from the same prefix",
        _SHARED,
        {
            "role": "decode",
            "kv_load_failure_policy": "fail",
            "offload": _MEMORY | {"num_chunks": 100, "offload_prompt_only": False},
            "kv_cache_groups": [
                {"kind": "full_attention"},
                {"kind": "mamba", "prefill_checkpoint_alignment": 1},
                {"kind": "sliding_window", "sliding_window": 33},
            ],
            "num_gpu_blocks": 40,
        }
        | _ASYNC,
        handover=(0.02, 0.0),
        versions=NEW,
    ),
    "offload_decode_shared": Named(
        "A decode server: a step waits for copies of blocks that a request finds, and fetches more",
        Load(num_requests=40, longest_prompt=70, longest_output=3, sharing=0.9, quoting=0.5),
        {"role": "decode", "kv_load_failure_policy": "fail", "num_gpu_blocks": 10}
        | {"offload": _MEMORY | {"store_threshold": 2, "copy_ns_per_block": 3_000_017}}
        | {"max_model_len": 80},
        handover=(0.005, 0.0),
        versions=NEW,
    ),
    "offload_old_prefill": Named(
        "A prefill server: chunks are found when their KV has been fetched, too",
        Load(
            num_requests=60,
            longest_prompt=120,
            sharing=0.7,
            quoting=0.4,
            repeating=0.3,
            endless=1.0,
        ),
        {"role": "prefill", "kv_load_failure_policy": "fail", "num_gpu_blocks": 25}
        | {"offload": _OLD_MEMORY | {"num_chunks": 60, "copy_ns_per_block": 1_000_003}}
        | {"enable_prefix_caching": False}
        | _ASYNC,
        handover=(0.2, 0.0),
        versions=OLD,
    ),
    "offload_old_decode": Named(
        "A decode server: what has ended keeps its blocks until it is copied",
        Load(num_requests=60, longest_prompt=60, longest_output=60, together=0.8, repeating=0.3),
        {"role": "decode", "kv_load_failure_policy": "fail"}
        | {"offload": _OLD_MEMORY | {"num_chunks": 60, "copy_ns_per_block": 1_000_003}}
        | _ASYNC
        | _TIGHT_BLOCKS,
        handover=(0.02, 0.0),
        versions=OLD,
    ),
    "offload_old": Named(
        "Chunks are found when their request has ended, whose blocks stay until they are copied",
        _SHARED,
        {"offload": _OLD_MEMORY | {"num_chunks": 20, "copy_ns_per_block": 3_000_017}}
        | {"num_gpu_blocks": 33, "max_num_seqs": 3},
        versions=OLD,
    ),
    "offload_old_async": Named(
        "ARC; chunks of two blocks that were looked up twice; preemption, clients who give up",
        Load(
            num_requests=60,
            longest_prompt=60,
            longest_output=60,
            together=0.8,
            sharing=0.5,
            quoting=0.3,
            repeating=0.3,
            impatient=0.2,
        ),
        {
            "offload": _OLD_MEMORY
            | {"eviction_policy": "arc", "blocks_per_chunk": 2, "store_threshold": 2}
            | {"num_chunks": 25, "copy_ns_per_block": 1_000_003}
        }
        | _ASYNC
        | {"policy": "priority", "max_num_seqs": 4}
        | _TIGHT_BLOCKS,
        versions=OLD,
    ),
    "offload_old_drafts": Named(
        "An EAGLE drafter: no chunk is left out; blocks for its drafts behind what was loaded",
        _SHARED,
        {
            "offload": _OLD_MEMORY | {"num_chunks": 100},
            "speculation": _EAGLE,
        }
        | _ASYNC
        | {"num_gpu_blocks": 40, "max_num_seqs": 4},
        versions=OLD,
    ),
}
