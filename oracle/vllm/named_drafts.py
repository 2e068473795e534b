"""The named cases with speculative decoding."""

from oracle.vllm.load import Load
from oracle.vllm.named_case import NEW, Named

_ASYNC = {"async_scheduling": True}
_TIGHT = {"num_gpu_blocks": 15}
_TIGHT_BLOCKS = {"num_gpu_blocks": 41, "block_size": 4, "max_model_len": 160, "max_num_seqs": 16}
_DRAFT_EAGLE = {"method": "eagle", "num_speculative_tokens": 3, "by_position": [0.8, 0.7, 0.6]}
_DRAFT_NGRAM = {
    "method": "ngram",
    "num_speculative_tokens": 5,
    "by_position": [0.7, 0.8, 0.9, 0.9, 1],
}
_DRAFT_SOMETIMES = {
    "method": "ngram",
    "num_speculative_tokens": 3,
    "by_position": [0.8, 0.8, 0.9],
    "proposed": [0.6, 0.1, 0.1, 0.2],
}
_DRAFT_MODEL = {"method": "draft_model", "num_speculative_tokens": 2, "by_position": [0.9, 0.5]}

DRAFT_CASES = {
    "drafts_eagle": Named(
        "Draft tokens under async scheduling: places for those in flight, and for the drafter's KV",
        Load(num_requests=40, sharing=0.6, quoting=0.4, repeating=0.2, longest_output=40),
        {"speculation": _DRAFT_EAGLE} | _ASYNC,
    ),
    "drafts_eagle_sync": Named(
        "The last block that a request finds is computed again, or found by the token behind it",
        Load(num_requests=40, sharing=0.8, quoting=0.6, repeating=0.4, whole_blocks=0.6),
        {"speculation": _DRAFT_EAGLE, "block_size": 8, "num_gpu_blocks": 41},
    ),
    "drafts_ngram": Named(
        "Drafts without a drafter take no places beyond their own; the budget cuts them short",
        Load(num_requests=40, longest_prompt=60, longest_output=50, together=0.6),
        {"speculation": _DRAFT_NGRAM, "max_num_batched_tokens": 20},
    ),
    "drafts_found_sometimes": Named(
        "The lookup finds no draft for most steps, and fewer than asked for for some",
        Load(num_requests=40, longest_prompt=60, longest_output=50, together=0.6),
        {"speculation": _DRAFT_SOMETIMES, "max_num_batched_tokens": 40} | _TIGHT,
    ),
    "drafts_model": Named(
        "A draft model takes a part of the budget",
        Load(num_requests=40, longest_prompt=100, longest_output=40, together=0.6),
        {"speculation": _DRAFT_MODEL, "max_num_batched_tokens": 32} | _ASYNC,
    ),
    "drafts_preemption": Named(
        "A small pool: victims lose their drafts and keep the tokens in flight",
        Load(num_requests=40, longest_prompt=60, longest_output=50, together=0.6),
        {"speculation": _DRAFT_EAGLE, "policy": "priority"} | _ASYNC | _TIGHT_BLOCKS,
    ),
    "drafts_padding": Named(
        "Repeated prompts lack one token at admission; from 0.33.0 on they are padded",
        Load(num_requests=50, repeating=0.7, sharing=0.5, endless=0.5, gap_s=0.01),
        {"speculation": _DRAFT_MODEL, "block_size": 1, "num_gpu_blocks": 400} | _ASYNC,
    ),
    "drafts_stages": Named(
        "Three stages, a small pool: rows are in every third step, with drafts not known yet",
        Load(num_requests=40, longest_prompt=60, longest_output=50, together=0.6),
        {"speculation": _DRAFT_EAGLE, "stages": 3} | _ASYNC | _TIGHT_BLOCKS,
        versions=NEW,
    ),
    "drafts_stages_found": Named(
        "Two stages: rows have places for drafts that the lookup does not find",
        Load(num_requests=40, longest_prompt=60, longest_output=50, together=0.6),
        {"speculation": _DRAFT_SOMETIMES, "stages": 2, "policy": "priority"} | _ASYNC | _TIGHT,
        versions=NEW,
    ),
    "drafts_stages_groups": Named(
        "Four stages, windows, chunks and states: four steps in flight keep what they read",
        Load(num_requests=40, longest_prompt=150, sharing=0.6, repeating=0.3, together=0.6),
        {
            "speculation": _DRAFT_MODEL,
            "num_gpu_blocks": 121,
            "kv_cache_groups": [
                {"kind": "full_attention"},
                {"kind": "sliding_window", "sliding_window": 20},
                {"kind": "chunked_local_attention", "attention_chunk_size": 32},
                {"kind": "mamba"},
            ],
        }
        | {"stages": 4, "max_num_batched_tokens": 24}
        | _ASYNC,
        versions=NEW,
    ),
    "drafts_ranks_groups": Named(
        "Two ranks with drafts, a window and states: each has block tables of its own",
        Load(num_requests=40, longest_prompt=120, sharing=0.6, repeating=0.3, together=0.4),
        {
            "speculation": _DRAFT_EAGLE,
            "ranks": 2,
            "num_gpu_blocks": 61,
            "kv_cache_groups": [
                {"kind": "full_attention"},
                {"kind": "sliding_window", "sliding_window": 20},
                {"kind": "mamba"},
            ],
        }
        | _ASYNC,
        versions=NEW,
    ),
}
