"""What drafts and states make of the tokens of a step.

vLLM 0.19.0 and 0.33.0: `Scheduler.__init__`, `_mamba_block_aligned_split`
(v1/core/sched/scheduler.py).
"""

from dataclasses import dataclass
from typing import Final

from sim.engine.server_config import BOTH
from sim.vllm.cache.single_type_manager import MAMBA, checkpoint_before, has_checkpoint
from sim.vllm.config import VllmConfig
from sim.vllm.request import Chunk, VllmRequest

# They read the target model's hidden states.
EAGLE_METHODS: Final = ("eagle", "eagle3", "mtp")


@dataclass(frozen=True, slots=True)
class Drafting:
    """What a method of drafting asks of the scheduler.

    vLLM 0.19.0: `_set_max_num_scheduled_tokens` (config/vllm.py), `max_num_new_slots_for_drafting`
    (config/speculative.py). vLLM 0.33.0: `num_lookahead_tokens` and `num_hash_lookahead_tokens`
    (config/vllm.py).

    Attributes:
        num_tokens: draft tokens of a row in a step.
        lookahead: places for the drafter's own KV behind the tokens of a step.
        step_tokens: the budget of a step; a draft model of its own may take a part of it.
        row_slots: what each row takes of the budget besides its tokens.
        drops_last_block: the last block that a request finds is computed again, because the drafter
            lacks the hidden states to go on from it. Servers with a KV connector do so in all
            versions (`num_hash_lookahead_tokens`).
        looks_behind: among groups of layers, the block that is left out may lie behind the prefix
            that all of them share (`find_longest_cache_hit` of v1/core/kv_cache_coordinator.py).
        hash_lookahead: tokens behind a block that a request must share to find the block.
    """

    num_tokens: int
    lookahead: int
    step_tokens: int
    row_slots: int
    drops_last_block: bool
    looks_behind: bool
    hash_lookahead: int


def drafting_of(config: VllmConfig) -> Drafting:
    """What the method of a configuration asks for; without speculative decoding, nothing."""
    speculation = config.speculation
    method, num_tokens = (speculation.method, speculation.num_tokens) if speculation else ("", 0)
    is_eagle, has_model = method in EAGLE_METHODS, method == "draft_model"
    by_row = config.rules.slots_by_row
    has_connector = config.role != BOTH or config.offload is not None
    hashes_ahead = config.rules.hashes_ahead and not has_connector
    step_tokens = config.max_num_batched_tokens
    if has_model and not by_row:
        step_tokens -= config.max_num_seqs
    return Drafting(
        num_tokens=num_tokens,
        lookahead=num_tokens if is_eagle or has_model else 0,
        step_tokens=step_tokens,
        row_slots=int(has_model and by_row),
        drops_last_block=is_eagle and not hashes_ahead,
        looks_behind=config.rules.hashes_ahead,
        hash_lookahead=int(is_eagle and hashes_ahead and config.enable_prefix_caching),
    )


class AlignedChunks:
    """Where chunks of prompts end if layers keep states: where blocks end, to find states there."""

    def __init__(self, config: VllmConfig) -> None:
        self._size = config.block_size
        self._rules = config.rules
        self._drops_last = drafting_of(config).drops_last_block
        groups = [group for group in config.kv_cache_groups if group.kind == MAMBA]
        # The scheduler asks the first group alone, but each must have room for a checkpoint.
        has_all = all(group.checkpoint_alignment for group in groups)
        self._group = groups[0] if has_all else None
        threshold = config.long_prefill_token_threshold or config.max_num_batched_tokens
        self._longest_chunk = min(threshold, config.max_num_batched_tokens)

    def num_tokens(self, request: VllmRequest, start: int, num_tokens: int, junction: int) -> int:
        """How many of the next `num_tokens` tokens the request computes in this step.

        `start` tokens have KV. For `junction` see `GroupTables`.
        """
        prefill_end = max(request.prompt_len, request.num_tokens - 1)
        if start >= prefill_end:
            return num_tokens
        if not self._rules.stops_at_junctions:
            return self._up_to_whole_blocks(request.num_tokens, start, num_tokens)
        size, end = self._size, start + num_tokens
        chunk = Chunk(start, end, prefill_end)
        checkpoint = checkpoint_before(prefill_end, size, drops_last=self._drops_last)
        has_one = (
            self._group is not None
            and end >= prefill_end
            and has_checkpoint(chunk, checkpoint, self._group, size)
        )
        if end < prefill_end:
            whole = end // size * size
            if whole > start or size <= self._longest_chunk:
                end = whole
        stops = []
        if not has_one:
            known = request.num_tokens
            stops.append(checkpoint_before(known, size, drops_last=self._drops_last))
            if start % size:
                stops.append((start // size + 1) * size)
        if start < junction < end:
            stops.append(start + (junction - start) // size * size)
        end = min([stop for stop in stops if start < stop < end], default=end)
        return max(end - start, 0)

    def _up_to_whole_blocks(self, num_known: int, start: int, num_tokens: int) -> int:
        """As in 0.19.0: whole blocks, as long as there are any."""
        last = num_known - num_known % self._size
        if start + num_tokens < last:
            return num_tokens // self._size * self._size
        return last - start if start < last else num_tokens


def aligned_chunks_of(config: VllmConfig) -> AlignedChunks | None:
    """Where chunks end; None: anywhere."""
    return AlignedChunks(config) if config.has_states and config.enable_prefix_caching else None
