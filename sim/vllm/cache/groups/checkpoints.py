"""Where a kernel can write a state of linear attention inside a chunk.

vLLM 0.33.0: `get_mamba_prefill_checkpoint_position` and `is_mamba_prefill_checkpoint_valid`
(v1/kv_cache_interface.py).
"""

from typing import NamedTuple

from sim.vllm.cache.groups.group import CacheGroup
from sim.vllm.cache.memory import Chunk


class Checkpoint(NamedTuple):
    """A state that a chunk writes before its end.

    Attributes:
        num_tokens: the state is that after this many tokens.
        place: the place of its block in the table. If the last block of a hit is left out, this is
            one place behind the block of tokens that the state ends.
    """

    num_tokens: int
    place: int


def checkpoint_before(num_tokens: int, block_size: int, *, drops_last: bool = False) -> int:
    """The last end of a block that a request with these tokens could go on from.

    The last token is computed in any case. `drops_last`: instead, the last block is.
    """
    if drops_last:
        return max(num_tokens // block_size * block_size - block_size, 0)
    return (num_tokens - 1) // block_size * block_size


def has_checkpoint(chunk: Chunk, place: int, group: CacheGroup, block_size: int) -> bool:
    """Whether the state after `place` tokens can be written while a chunk is computed."""
    start, alignment = chunk.start, group.checkpoint_alignment
    if not alignment or start % block_size:
        return False
    if -(-chunk.end // block_size) - 2 <= (start - 1) // block_size:
        return False
    return start + block_size <= place < chunk.end and (place - start) % alignment == 0
