"""What the layers of a group keep, and where states can be kept inside a chunk.

vLLM 0.33.0: v1/kv_cache_interface.py (there `get_mamba_prefill_checkpoint_position` and
`is_mamba_prefill_checkpoint_valid`, too).
"""

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from sim.vllm.cache.request_blocks import Chunk

FULL: Final = "full_attention"
WINDOW: Final = "sliding_window"
CHUNKED: Final = "chunked_local_attention"
MAMBA: Final = "mamba"

GroupKind = Literal["full_attention", "sliding_window", "chunked_local_attention", "mamba"]


@dataclass(frozen=True, slots=True)
class KVCacheSpec:
    """A group of layers with one block table for each request.

    Attributes:
        kind: `full_attention` layers keep KV of all tokens; `sliding_window` layers that of the
            last tokens; `chunked_local_attention` layers that of the tokens since the last multiple
            of a chunk; `mamba` layers one state, however many tokens there are.
        size: tokens of the window, or of the chunk; 0 for other kinds.
        checkpoint_alignment: of layers with states: a kernel can write a state inside a chunk after
            a multiple of this many tokens of it; 0: it cannot.
    """

    kind: GroupKind
    size: int = 0
    checkpoint_alignment: int = 0

    def most_blocks(
        self,
        num_in_flight: int,
        longest: int,
        block_size: int,
        *,
        caches: bool,
        num_chunks: int = 1,
        num_drafts: int = 0,
    ) -> int:
        """The most blocks that a request holds at a time.

        vLLM: `max_admission_blocks_per_request` of each spec.

        Args:
            num_in_flight: tokens of all steps that may be in flight.
            longest: tokens of the longest request.
            block_size: tokens in a block.
            caches: prefix caching is on.
            num_chunks: chunks of a prompt that may be in flight in a pipeline. With fewer states
                than they need, vLLM may compute and preempt the same chunks for ever.
            num_drafts: draft tokens of a row; each has a state of its own.
        """
        if self.kind == WINDOW:
            num_tokens = min(self.size - 1 + num_in_flight, longest)
            # One more, because the window may begin inside a block.
            return -(-num_tokens // block_size) + 1
        if self.kind == MAMBA:
            num_states = 1 + (self.checkpoint_alignment > 0)
            return num_drafts + (1 + num_states * num_chunks if caches else 1)
        num_tokens = longest
        if self.kind == CHUNKED:
            num_tokens = min(self.size + num_in_flight, longest)
        return -(-num_tokens // block_size)


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


def has_checkpoint(chunk: Chunk, place: int, group: KVCacheSpec, block_size: int) -> bool:
    """Whether the state after `place` tokens can be written while a chunk is computed."""
    start, alignment = chunk.start, group.checkpoint_alignment
    if not alignment or start % block_size:
        return False
    if -(-chunk.end // block_size) - 2 <= (start - 1) // block_size:
        return False
    return start + block_size <= place < chunk.end and (place - start) % alignment == 0
