"""The named cases of servers that only prefill, or only decode."""

from oracle.vllm.load import Load
from oracle.vllm.named_case import BOTH, NEW, OLD, Named

_TIGHT = {"num_gpu_blocks": 15}
_TIGHT_BLOCKS = {"num_gpu_blocks": 41, "block_size": 4, "max_model_len": 160, "max_num_seqs": 16}
_ASYNC = {"async_scheduling": True}
_PREFILL = {"role": "prefill", "kv_load_failure_policy": "fail"}
_DECODE = {"role": "decode", "kv_load_failure_policy": "fail"}
_RECOMPUTE = {"role": "decode", "kv_load_failure_policy": "recompute"}
_BUSY = Load(num_requests=40, longest_prompt=60, longest_output=60, together=0.8)

_EAGLE = {
    "speculation": {
        "method": "eagle",
        "num_speculative_tokens": 3,
        "by_position": [0.8, 0.7, 0.6],
    }
}
_FULL, _STATES = {"kind": "full_attention"}, {"kind": "mamba"}
_INSIDE = _STATES | {"prefill_checkpoint_alignment": 1}
_WINDOW = {"kind": "sliding_window", "sliding_window": 20}
_CHUNKS = {"kind": "chunked_local_attention", "attention_chunk_size": 16}
_ALL_KEEP = {"prefix_cache_retention_interval": None}

HANDOVER_CASES = {
    "prefill_server": Named(
        "Blocks of a computed prompt stay until they are fetched; requests wait for them",
        Load(num_requests=40, longest_prompt=120, sharing=0.6, together=0.6),
        _PREFILL | _TIGHT,
        versions=NEW,
        handover=(0.03, 0.0),
    ),
    "prefill_server_victims": Named(
        "Prompts outgrow the pool: the token of a victim in flight is dropped, not delivered",
        Load(num_requests=60, longest_prompt=150, together=0.8, gap_s=0.005),
        _PREFILL
        | _TIGHT_BLOCKS
        | _ASYNC
        | {"scheduler_reserve_full_isl": False, "long_prefill_token_threshold": 24},
        versions=NEW,
        handover=(0.01, 0.0),
    ),
    "prefill_server_ends_victims": Named(
        "Version 0.19.0: a victim ends with its token in flight, and its KV is gone",
        Load(num_requests=16, longest_prompt=100, together=0.9, gap_s=0.005, endless=1.0),
        _PREFILL
        | _TIGHT_BLOCKS
        | _ASYNC
        | {"scheduler_reserve_full_isl": False, "long_prefill_token_threshold": 24},
        versions=OLD,
        handover=(0.005, 0.0),
    ),
    "prefill_server_idle": Named(
        "Version 0.19.0, when nothing is left to compute: what it still sees of KV that has left",
        Load(num_requests=40, longest_prompt=120, together=0.3, gap_s=0.02, endless=1.0),
        _PREFILL | _TIGHT | _ASYNC,
        versions=OLD,
        handover=(0.001, 0.0),
    ),
    "decode_server": Named(
        "Blocks for whole prompts, less what is cached; the last token is computed again",
        Load(num_requests=40, longest_prompt=80, sharing=0.6, quoting=0.3, repeating=0.2),
        _DECODE | {"num_gpu_blocks": 25},
        versions=BOTH,
        handover=(0.02, 0.0),
    ),
    "decode_server_fences": Named(
        "A victim with a step in flight keeps its blocks: rows behind it rest instead",
        _BUSY,
        _DECODE | _ASYNC | _TIGHT_BLOCKS,
        versions=NEW,
        handover=(0.005, 0.0),
    ),
    "decode_server_lost": Named(
        "KV that is lost on its way is computed here, by requests that keep their turn",
        Load(num_requests=40, longest_prompt=80, longest_output=30, impatient=0.3, together=0.7),
        _RECOMPUTE | _ASYNC | _TIGHT_BLOCKS | {"long_prefill_token_threshold": 8},
        versions=NEW,
        handover=(0.02, 0.4),
    ),
    "prefill_server_parts": Named(
        "States, windows and a drafter: the last token of a prompt is the decode server's",
        Load(num_requests=40, longest_prompt=120, sharing=0.6, repeating=0.3, together=0.6),
        _PREFILL | _EAGLE | {"num_gpu_blocks": 61, "kv_cache_groups": [_FULL, _STATES, _WINDOW]},
        versions=NEW,
        handover=(0.02, 0.0),
    ),
    "prefill_server_checkpoints": Named(
        "With a drafter a state is kept a block before the end, in the block of the tokens behind",
        Load(num_requests=40, longest_prompt=120, sharing=0.6, repeating=0.4, together=0.6),
        _PREFILL | _ASYNC | _EAGLE | {"num_gpu_blocks": 61, "kv_cache_groups": [_FULL, _INSIDE]},
        versions=NEW,
        handover=(0.02, 0.0),
    ),
    "decode_server_drafts": Named(
        "Rows whose KV came are padded; loads leave room for the first steps of others with drafts",
        _BUSY,
        _RECOMPUTE | _ASYNC | _EAGLE | {"num_gpu_blocks": 81} | {"block_size": 4},
        versions=NEW,
        handover=(0.01, 0.2),
    ),
    "decode_server_windows": Named(
        "What a window has left is not fetched; with a drafter the last block found is left out",
        _BUSY,
        _RECOMPUTE | _ASYNC | _EAGLE | {"num_gpu_blocks": 41, "kv_cache_groups": [_FULL, _WINDOW]},
        versions=NEW,
        handover=(0.01, 0.2),
    ),
    "decode_server_states": Named(
        "The state before the last token is fetched; layers with states may find less here",
        Load(num_requests=40, longest_prompt=100, sharing=0.6, quoting=0.3, together=0.6),
        _RECOMPUTE | _ALL_KEEP | {"num_gpu_blocks": 31, "kv_cache_groups": [_FULL, _STATES]},
        versions=NEW,
        handover=(0.02, 0.2),
    ),
    "decode_server_windows_fenced": Named(
        "Blocks of all groups that steps in flight held are freed as one list, from its end",
        Load(
            num_requests=40,
            longest_prompt=90,
            longest_output=8,
            sharing=0.8,
            quoting=0.4,
            repeating=0.2,
            together=0.6,
            endless=0.0,
        ),
        _DECODE
        | _ASYNC
        | {"num_gpu_blocks": 48, "block_size": 8, "max_model_len": 112, "max_num_seqs": 4}
        | {
            "kv_cache_groups": [_FULL, _WINDOW | {"count": 2}],
            "prefix_cache_retention_interval": 8,
        },
        versions=NEW,
        handover=(0.01, 0.0),
        seed=7,
    ),
    "decode_server_gives_up": Named(
        "A request whose KV is lost waits for blocks of one behind it, until a client gives up",
        Load(
            num_requests=40,
            longest_prompt=100,
            longest_output=30,
            impatient=0.7,
            together=0.7,
            gap_s=0.01,
        ),
        _RECOMPUTE
        | {"num_gpu_blocks": 57, "block_size": 8, "max_model_len": 112}
        | {"kv_cache_groups": [_FULL, _CHUNKS | {"count": 3}]},
        versions=NEW,
        handover=(0.003, 0.6),
        seed=3,
    ),
    "decode_server_checkpoints": Named(
        "A load leaves room for the checkpoints of others, whose chunks of this step are to come",
        Load(
            num_requests=60,
            longest_prompt=120,
            longest_output=40,
            sharing=0.4,
            together=0.8,
            gap_s=0.005,
        ),
        _DECODE
        | {"num_gpu_blocks": 15, "block_size": 32, "policy": "priority"}
        | {"long_prefill_token_threshold": 24, "scheduler_reserve_full_isl": False}
        | {
            "kv_cache_groups": [_FULL, _INSIDE | {"count": 2}],
            "prefix_cache_retention_interval": 0,
        },
        versions=NEW,
        handover=(0.001, 0.0),
        seed=5,
    ),
    "groups_states_drafts": Named(
        "Each draft has a state of its own; those of rejected drafts are used again",
        _BUSY,
        _ASYNC | _EAGLE | {"num_gpu_blocks": 61, "kv_cache_groups": [_FULL, _STATES]},
        versions=NEW,
    ),
}
