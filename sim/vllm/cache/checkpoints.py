"""Where a kernel can write a state of linear attention inside a chunk.

vLLM 0.33.0: `get_mamba_prefill_checkpoint_position` and `is_mamba_prefill_checkpoint_valid`
(v1/kv_cache_interface.py).
"""

from sim.vllm.cache.kv_cache_coordinator import Chunk
from sim.vllm.cache.kv_cache_spec import KVCacheSpec


def checkpoint_before(num_tokens: int, block_size: int, *, drops_last: bool = False) -> int:
    """The last end of a block that a request with these tokens could go on from.

    The last token is computed in any case. `drops_last`: instead, the last block is.
    """
    if drops_last:
        return max(num_tokens // block_size * block_size - block_size, 0)
    return (num_tokens - 1) // block_size * block_size


def has_checkpoint(chunk: Chunk, place: int, group: KVCacheSpec, block_size: int) -> bool:
    """Whether the state after `place` tokens can be written while a chunk is computed."""
    start, alignment = chunk.start, group.checkpoint_alignment
    if not alignment or start % block_size:
        return False
    if -(-chunk.end // block_size) - 2 <= (start - 1) // block_size:
        return False
    return start + block_size <= place < chunk.end and (place - start) % alignment == 0
