"""The named cases for vLLM: `python -m oracle.vllm.named FOLDER VERSION` writes them.

When they have decisions, `python -m oracle.vllm.named FOLDER VERSION TARGET` compresses them into
TARGET.
"""

import gzip
import json
import random
import sys
from pathlib import Path
from typing import Any

from oracle.vllm.draw_handover import draw_handovers
from oracle.vllm.draw_ranks import dealt
from oracle.vllm.load import STEP_S, Config, Load, draw_rows
from oracle.vllm.named_case import NEW, OLD, Named
from oracle.vllm.named_drafts import DRAFT_CASES
from oracle.vllm.named_groups import GROUP_CASES
from oracle.vllm.named_handover import HANDOVER_CASES
from oracle.vllm.named_offload import OFFLOAD_CASES

_USUAL: Config = {
    "max_num_batched_tokens": 64,
    "max_num_seqs": 8,
    "max_model_len": 200,
    "block_size": 16,
    "num_gpu_blocks": 61,
    "enable_prefix_caching": True,
    "enable_chunked_prefill": True,
    "long_prefill_token_threshold": 0,
    "policy": "fcfs",
    "async_scheduling": False,
    "scheduler_reserve_full_isl": True,
    "latency": {"a": 0.005, "b": 2e-5, "c": 1e-4, "d": 2e-8},
}
_RANKS = {"ranks": 2}
_NO_CACHE = {"enable_prefix_caching": False}
_ASYNC = {"async_scheduling": True}
_PIPELINE = {"stages": 2}
_TIGHT = {"num_gpu_blocks": 15}
_OF_FOUR = {"stages": 4, "max_num_batched_tokens": 24}
_TIGHT_BLOCKS = {"num_gpu_blocks": 41, "block_size": 4, "max_model_len": 160, "max_num_seqs": 16}
_ONE_LENGTH = {"latency": {"a": STEP_S, "b": 0, "c": 0, "d": 0}}


_CASES = {
    "chunked_prefill": Named(
        "Prompts longer than a step's budget; decode rows take part of it",
        Load(num_requests=24, longest_prompt=150),
        _NO_CACHE,
        versions=OLD,
    ),
    "whole_prompts": Named(
        "No chunked prefill: a prompt too long for the rest of the budget blocks all behind it",
        Load(num_requests=24, longest_prompt=100, together=0.7),
        {"enable_chunked_prefill": False, "max_num_batched_tokens": 200},
        versions=OLD,
    ),
    "whole_prompts_threshold": Named(
        "No chunked prefill, but a threshold: long prompts are still computed in chunks",
        Load(num_requests=20, longest_prompt=150, together=0.7),
        {
            "enable_chunked_prefill": False,
            "max_num_batched_tokens": 200,
            "long_prefill_token_threshold": 24,
        },
    ),
    "small_budget": Named(
        "Running requests use up the budget; the request admitted last gets the rest of it",
        Load(num_requests=24, longest_prompt=120, longest_output=12, together=0.6),
        {"max_num_batched_tokens": 12, "max_num_seqs": 12, "long_prefill_token_threshold": 7},
        versions=OLD,
    ),
    "preemption": Named(
        "The pool runs out: the request admitted last goes back to the front of the queue",
        Load(num_requests=24, longest_prompt=60, longest_output=50),
        _TIGHT | _NO_CACHE,
        versions=OLD,
    ),
    "preemption_storm": Named(
        "The pool runs out again and again; victims find some of their blocks in the cache",
        Load(num_requests=40, longest_prompt=80, longest_output=60, together=0.8),
        _TIGHT_BLOCKS,
    ),
    "overcommitted": Named(
        "Admitted if the first chunk fits: prompts outgrow the pool and preempt themselves",
        Load(num_requests=20, longest_prompt=180, together=0.8),
        {"scheduler_reserve_full_isl": False, "long_prefill_token_threshold": 24} | _TIGHT,
    ),
    "one_seat": Named(
        "One request at a time",
        Load(num_requests=16, sharing=0.5, repeating=0.3, longest_output=12),
        {"max_num_seqs": 1, "num_gpu_blocks": 14},
    ),
    "shared_prefixes": Named(
        "Prompts with common prefixes, in a pool that is large enough to keep them",
        Load(num_requests=30, sharing=0.9, longest_prompt=120),
        {"num_gpu_blocks": 201, "max_num_batched_tokens": 256},
        versions=OLD,
    ),
    "full_hits": Named(
        "Prompts of whole blocks, repeated: the last block is computed again",
        Load(num_requests=30, repeating=0.6, whole_blocks=1.0, longest_prompt=80),
        {"num_gpu_blocks": 101},
    ),
    "duplicates_at_once": Named(
        "Equal prompts in one step: the second finds blocks that the first has yet to compute",
        Load(num_requests=30, repeating=0.8, together=0.9, longest_prompt=90),
        {"max_num_batched_tokens": 256, "num_gpu_blocks": 41},
    ),
    "eviction": Named(
        "New blocks replace old ones, in the order in which these were freed",
        Load(num_requests=40, sharing=0.4, quoting=0.3, repeating=0.2, longest_prompt=90),
        {"num_gpu_blocks": 25, "max_num_seqs": 4},
    ),
    "model_length": Named(
        "Outputs end at the model's length; prompts as long or longer are refused",
        Load(num_requests=40, longest_prompt=140, whole_blocks=0.5, too_long=0.8, endless=0.6),
        {"max_model_len": 64},
    ),
    "priority": Named(
        "Two priorities, many ties: by arrival, then by name",
        Load(num_requests=30, together=0.7, sharing=0.5, num_priorities=2),
        {"policy": "priority", "max_num_seqs": 3},
    ),
    "priority_preemption": Named(
        "The least important request is preempted, even if this step has scheduled it already",
        Load(num_requests=30, longest_prompt=60, longest_output=50, sharing=0.4),
        {"policy": "priority"} | _TIGHT,
        seed=22,
    ),
    "async": Named(
        "Steps are decided before the last result is known: rows are wasted after an end token",
        Load(num_requests=24, longest_prompt=150),
        _ASYNC | _NO_CACHE,
        versions=OLD,
    ),
    "async_sessions": Named(
        "Blocks of an answer are found only once its tokens are known",
        Load(num_requests=40, quoting=0.6, repeating=0.2, longest_prompt=40, longest_output=40),
        {"num_gpu_blocks": 41} | _ASYNC,
    ),
    "async_preemption": Named(
        "Victims with a token in flight; if it is their last token, they end while they wait",
        Load(num_requests=40, longest_prompt=60, longest_output=40, together=0.6),
        _TIGHT | _ASYNC,
        seed=72,
    ),
    "async_priority_preemption": Named(
        "A victim passed over in this step makes the pass skip another request",
        Load(num_requests=50, longest_prompt=60, longest_output=30, together=0.6, endless=0.5),
        {"policy": "priority", "long_prefill_token_threshold": 24} | _TIGHT | _ASYNC,
        seed=31,
    ),
    "async_small_blocks": Named(
        "Blocks of one token, no reservation, a threshold",
        Load(num_requests=24, longest_prompt=60, sharing=0.5, quoting=0.3, together=0.6),
        {
            "block_size": 1,
            "num_gpu_blocks": 161,
            "max_model_len": 120,
            "scheduler_reserve_full_isl": False,
            "long_prefill_token_threshold": 16,
        }
        | _ASYNC,
        seed=39,
        versions=OLD,
    ),
    "async_row_after_rest": Named(
        "A row without a token in one step fills a block in the next; a victim finds it there",
        Load(
            num_requests=24,
            gap_s=0.0,
            longest_prompt=28,
            longest_output=8,
            sharing=0.5,
            quoting=0.6,
            repeating=0.15,
        ),
        {
            "block_size": 1,
            "num_gpu_blocks": 61,
            "max_model_len": 56,
            "long_prefill_token_threshold": 5,
            "policy": "priority",
            "max_num_batched_tokens": 64,
            "max_num_seqs": 16,
        }
        | _ASYNC,
        seed=109,
        versions=OLD,
    ),
    "pipeline": Named(
        "Two stages: each micro-batch is decided when its result is known, the other is in flight",
        Load(num_requests=40, quoting=0.4, repeating=0.2, longest_prompt=150, longest_output=30),
        _PIPELINE,
        versions=OLD,
    ),
    "pipeline_preemption": Named(
        "Two stages, a small pool: victims may be in flight, and keep their tokens",
        Load(num_requests=40, longest_prompt=60, longest_output=50, together=0.6),
        _PIPELINE | _TIGHT,
    ),
    "pipeline_of_four": Named(
        "Four stages: up to four chunks of one prompt are in flight",
        Load(num_requests=24, longest_prompt=180, together=0.7, sharing=0.5),
        _OF_FOUR,
        versions=OLD,
    ),
    "async_pipeline": Named(
        "Three stages: a row is in every third step, decided before its last token is known",
        Load(num_requests=40, quoting=0.4, repeating=0.2, longest_prompt=150, longest_output=30),
        _ASYNC | {"stages": 3},
        versions=NEW,
    ),
    "async_pipeline_preemption": Named(
        "Two stages, a small pool: victims may be in two steps in flight",
        Load(num_requests=40, longest_prompt=60, longest_output=50, together=0.6),
        _ASYNC | _PIPELINE | _TIGHT,
        versions=NEW,
    ),
    "lone_request": Named(
        "The threshold spares a request that is alone, until another one arrives",
        Load(num_requests=16, longest_prompt=190, longest_output=12, gap_s=0.05, together=0.1),
        {"long_prefill_token_threshold": 20} | _NO_CACHE,
        versions=NEW,
    ),
    "fair_share": Named(
        "The threshold is at least an equal share of the budget",
        Load(num_requests=24, longest_prompt=180, together=0.7),
        {
            "long_prefill_token_threshold": 10,
            "long_prefill_token_threshold_adaptive": True,
            "max_num_batched_tokens": 128,
        }
        | _NO_CACHE,
        versions=NEW,
    ),
    "watermark": Named(
        "Requests wait that would fit, so that running ones are preempted less often",
        Load(num_requests=40, longest_prompt=80, longest_output=60, together=0.8),
        {"watermark": 0.2, "scheduler_reserve_full_isl": False} | _TIGHT_BLOCKS,
        versions=NEW,
    ),
    "cadence": Named(
        "While requests decode, prompts are only in every third step",
        Load(num_requests=40, longest_prompt=150, sharing=0.4, repeating=0.2, gap_s=0.03),
        {"prefill_schedule_interval": 3},
        versions=NEW,
    ),
    "async_cadence": Named(
        "The same, decided ahead, with priorities and a small pool",
        Load(num_requests=50, longest_prompt=60, longest_output=30, gap_s=0.02, endless=0.5),
        {"prefill_schedule_interval": 4, "policy": "priority"} | _TIGHT | _ASYNC,
        versions=NEW,
    ),
    "fewer_active": Named(
        "Fewer requests run than there are request slots",
        Load(num_requests=24, longest_prompt=60, together=0.7),
        {"max_num_active_seqs": 3} | _ASYNC,
        versions=NEW,
    ),
    "front_end_limits": Named(
        "The front end rejects requests when too many are there, or too many prompt tokens",
        Load(num_requests=60, longest_prompt=100, together=0.2, gap_s=0.004),
        {"max_num_queued_reqs": 10, "max_num_queued_tokens": 250} | _ASYNC,
        versions=NEW,
    ),
    "uncached_first": Named(
        "Blocks that are not full are taken again first, so that cached ones last longer",
        Load(num_requests=60, sharing=0.5, quoting=0.4, longest_prompt=60, longest_output=8),
        {"num_gpu_blocks": 21, "max_num_seqs": 3},
        versions=NEW,
    ),
    "priority_goes_on": Named(
        "Behind a request that preempted itself, others are scheduled",
        Load(num_requests=50, longest_prompt=60, longest_output=50, together=0.6, gap_s=0.02),
        {"policy": "priority", "long_prefill_token_threshold": 16} | _TIGHT_BLOCKS,
        versions=NEW,
    ),
    "pipeline_of_four_preemption": Named(
        "Victims with a step in flight are passed over; a decision without rows takes a place",
        Load(num_requests=40, longest_prompt=80, longest_output=50, together=0.8),
        {"scheduler_reserve_full_isl": False} | _OF_FOUR | _TIGHT_BLOCKS,
        seed=8,
        versions=NEW,
    ),
    "clients_give_up": Named(
        "Clients give up, some just when a step ends: their requests are dropped before its result",
        Load(num_requests=50, sharing=0.5, longest_output=40, impatient=0.7, patience_s=0.04),
        {"max_num_queued_reqs": 12} | _ONE_LENGTH | _ASYNC,
        versions=NEW,
    ),
    "clients_give_up_sync": Named(
        "The same without async scheduling, in a small pool",
        Load(num_requests=50, longest_output=40, impatient=0.6, patience_s=0.2, together=0.7),
        {"policy": "priority"} | _TIGHT_BLOCKS,
        versions=NEW,
    ),
    "step_boundaries": Named(
        "Steps of one length: requests arrive exactly when a step is decided",
        Load(num_requests=40, sharing=0.4, together=0.2),
        {"max_num_seqs": 4} | _ONE_LENGTH | _ASYNC,
        versions=OLD,
    ),
    "ranks": Named(
        "Two ranks: one runs along while the other works; both run idle until they ask",
        Load(num_requests=40, longest_prompt=60, longest_output=30, together=0.4, gap_s=0.05),
        _RANKS | _TIGHT_BLOCKS | _ASYNC | {"policy": "priority"},
        versions=NEW,
    ),
    "ranks_sync": Named(
        "Three ranks that decide when the result of the step before is known",
        Load(num_requests=40, longest_prompt=60, longest_output=20, together=0.4, gap_s=0.05),
        _RANKS | {"ranks": 3} | _NO_CACHE | _TIGHT,
        versions=NEW,
    ),
    "ranks_stopped": Named(
        "Ranks stop with a step in flight; requests arrive before it ends, and begin behind it",
        Load(num_requests=40, longest_prompt=40, longest_output=14, together=0.2, gap_s=0.05),
        _RANKS | _ASYNC,
        seed=170,
        versions=NEW,
    ),
}

_ALL = _CASES | DRAFT_CASES | GROUP_CASES | HANDOVER_CASES | OFFLOAD_CASES


def write_cases(folder: Path, version: str) -> None:
    """Write `NAME.json` for each case that is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, named in _ALL.items():
        path = folder / f"{name}.json"
        if version in named.versions and not path.exists():
            config = {"version": version, **_USUAL, **named.config}
            case: dict[str, Any] = {"name": name, "about": named.about, "config": config}
            rng = random.Random(named.seed)
            rows = draw_rows(rng, config, named.load)
            case["workload"] = rows
            if "role" in config:
                case["workload"] = draw_handovers(rng, rows, *named.handover)
            if "ranks" in config:
                case["workload"] = dealt(config, rows)
            path.write_text(json.dumps(case) + "\n", encoding="utf-8")


def pack_cases(folder: Path, version: str, target: Path) -> None:
    """Write `NAME.json.gz` for each case; equal cases give equal bytes."""
    target.mkdir(parents=True, exist_ok=True)
    for name, named in _ALL.items():
        if version in named.versions:
            text = (folder / f"{name}.json").read_bytes()
            (target / f"{name}.json.gz").write_bytes(gzip.compress(text, mtime=0))


if __name__ == "__main__":
    if len(sys.argv) > 3:
        pack_cases(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
    else:
        write_cases(Path(sys.argv[1]), sys.argv[2])
