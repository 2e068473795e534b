"""Where chunks of prompts end if layers keep states: where blocks end, so that states are found.

vLLM 0.19.0 and 0.33.0: `_mamba_block_aligned_split` (v1/core/sched/scheduler.py).
"""

from sim.vllm.cache.kv_cache_spec import MAMBA, checkpoint_before, has_checkpoint
from sim.vllm.cache.request_blocks import Chunk
from sim.vllm.config import VllmConfig
from sim.vllm.request import VllmRequest
from sim.vllm.scheduler.drafting import drafting_of


class AlignedChunks:
    """Shortens chunks so that they end where a state is worth keeping."""

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

        Args:
            request: a waiting or running request.
            start: tokens whose KV it has.
            num_tokens: what it would compute otherwise.
            junction: see `GroupTables`.
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
