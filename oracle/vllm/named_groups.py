"""The named cases with groups of layers."""

from oracle.vllm.load import Load
from oracle.vllm.named_case import NEW, Named

_FULL = {"kind": "full_attention"}
_WINDOW = {"kind": "sliding_window", "sliding_window": 33}
_WIDE = {"kind": "sliding_window", "sliding_window": 70}
_CHUNK = {"kind": "chunked_local_attention", "attention_chunk_size": 48}
_STATE = {"kind": "mamba"}
_SHARED = Load(num_requests=30, longest_prompt=120, sharing=0.7, quoting=0.4, repeating=0.2)
_BUSY = Load(num_requests=40, longest_prompt=60, longest_output=50, together=0.6, sharing=0.5)
_ASYNC = {"async_scheduling": True}

GROUP_CASES = {
    "groups_window": Named(
        "Windows beside full attention: blocks that a window has left are free",
        _SHARED,
        {"kv_cache_groups": [_WINDOW, _FULL], "num_gpu_blocks": 40},
    ),
    "groups_window_only": Named(
        "Windows in all layers: a prefix is found if its last window is cached",
        _SHARED,
        {"kv_cache_groups": [_WINDOW], "num_gpu_blocks": 20},
    ),
    "groups_async": Named(
        "Five groups with windows; steps in flight still read the blocks that a window has left",
        _BUSY,
        {"kv_cache_groups": [_WINDOW | {"count": 5}, _FULL], "num_gpu_blocks": 85} | _ASYNC,
    ),
    "groups_two_windows": Named(
        "Windows of two lengths: the groups are asked until they agree on a prefix",
        _SHARED,
        {"kv_cache_groups": [_WINDOW, _WIDE, _FULL], "num_gpu_blocks": 60},
        seed=3,
    ),
    "groups_chunked": Named(
        "Chunked local attention: tokens before the current chunk need no blocks",
        _SHARED,
        {"kv_cache_groups": [_FULL, _CHUNK | {"count": 3}], "num_gpu_blocks": 60},
    ),
    "groups_states": Named(
        "States that are cached: chunks end where blocks end, and a step's states are for the next",
        _SHARED,
        {"kv_cache_groups": [_FULL, _STATE | {"count": 3}], "num_gpu_blocks": 40},
        seed=1,
    ),
    "groups_states_tight": Named(
        "States without prefix caching: one block each; a small pool",
        _BUSY,
        {"kv_cache_groups": [_FULL, _STATE], "num_gpu_blocks": 20, "enable_prefix_caching": False}
        | _ASYNC,
    ),
    "groups_drafts": Named(
        "Drafts of an EAGLE layer with windows",
        _BUSY,
        {
            "kv_cache_groups": [_WINDOW, _FULL],
            "num_gpu_blocks": 40,
            "speculation": {
                "method": "eagle",
                "num_speculative_tokens": 2,
                "by_position": [0.8, 0.6],
            },
        }
        | _ASYNC,
    ),
    "groups_interval": Named(
        "Windows and states are kept every 64 tokens; a kernel writes checkpoints inside chunks",
        _SHARED,
        {
            "kv_cache_groups": [_FULL, _STATE | {"prefill_checkpoint_alignment": 1}, _WINDOW],
            "num_gpu_blocks": 60,
            "prefix_cache_retention_interval": 64,
        },
        versions=NEW,
    ),
    "groups_checkpoints": Named(
        "Checkpoints inside the last chunk of a prompt, under priorities and in a small pool",
        _BUSY,
        {
            "kv_cache_groups": [_FULL, _STATE | {"prefill_checkpoint_alignment": 1}],
            "num_gpu_blocks": 20,
            "prefix_cache_retention_interval": 0,
            "policy": "priority",
        }
        | _ASYNC,
        seed=1,
        versions=NEW,
    ),
}
