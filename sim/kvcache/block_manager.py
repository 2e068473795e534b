"""Blocks of requests as vLLM keeps them: found, allocated, cached by their contents, freed.

Follows vLLM 0.19.0 (docs/vllm.md, rules 7 to 11).
"""

from collections.abc import Callable

import numpy as np

from sim.core.errors import InvariantError
from sim.core.token_sequences import TokenSequence
from sim.core.tokens import Prompt, TokenIds
from sim.kvcache.block_pool import BlockPool
from sim.kvcache.memory import KVMemory
from sim.kvcache.page_pool import PageIdSpan, Span
from sim.kvcache.request_blocks import RequestBlocks
from sim.kvcache.request_kv import RequestKV


class BlockManager(KVMemory):
    """vLLM's KV memory. A page is a block; all free blocks count as free, whatever they hold.

    Attributes:
        pool: the blocks.
        caches: blocks are found again by their contents.
    """

    def __init__(self, num_blocks: int, block_size: int, *, caches: bool = True) -> None:
        self.pool = BlockPool(num_blocks)
        self.caches = caches
        self.page_size = block_size
        self.num_pages = num_blocks
        self.host = None
        self._promised: list[int] = []

    @property
    def num_free_pages(self) -> int:
        return self.pool.num_free_blocks

    @property
    def num_promised_pages(self) -> int:
        """Blocks that decode steps took and no request has in its table yet."""
        return len(self._promised)

    @property
    def evictable_tokens(self) -> int:
        """None: vLLM counts cached blocks that nobody uses among the free ones."""
        return 0

    def new_request(
        self,
        prompt: Prompt,
        output_ids: Callable[[int], TokenIds],
        output_part: Callable[[int, int], TokenSequence],
    ) -> RequestKV:
        return RequestBlocks(prompt, output_ids, output_part)

    # ---- admission -----------------------------------------------------------------------------

    def find_prefix(self, kv: RequestKV, num_tokens: int) -> list[int]:
        """Blocks that hold the first tokens of a request that holds nothing.

        Full blocks only; the last of its `num_tokens` tokens is never found, as it has to be
        computed to sample from.
        """
        if not self.caches:
            return []
        num_blocks = (num_tokens - 1) // self.page_size
        return self.pool.find(_table(kv).hashes(num_blocks, self.page_size)[:num_blocks])

    def fits(self, found: list[int], num_tokens: int) -> bool:
        """Whether a request that found these blocks can have blocks for so many tokens in all."""
        num_new = -(-num_tokens // self.page_size) - len(found)
        return num_new + self.pool.num_unused(found) <= self.pool.num_free_blocks

    def admit(self, kv: RequestKV, found: list[int], num_tokens: int) -> None:
        """Use the blocks found, and take others for the rest of the first `num_tokens` tokens."""
        table = _table(kv)
        self.pool.use(found)
        table.blocks = found
        table.num_cached_blocks = len(found)
        self.grow(kv, num_tokens)

    def grow(self, kv: RequestKV, num_tokens: int) -> None:
        """Take blocks for the first `num_tokens` tokens, all of them known; they must fit."""
        table = _table(kv)
        table.blocks += self.pool.take(-(-num_tokens // self.page_size) - len(table.blocks))
        self.cache_full_blocks(kv, num_tokens)

    def num_missing(self, kv: RequestKV, num_tokens: int) -> int:
        """Blocks a request has to take for its first `num_tokens` tokens, none promised to it."""
        return -(-num_tokens // self.page_size) - len(_table(kv).blocks)

    def cache_full_blocks(self, kv: RequestKV, num_tokens: int) -> None:
        """Full blocks of the first `num_tokens` tokens, known and computed, can be found."""
        table, size = _table(kv), self.page_size
        first, end = table.num_cached_blocks, num_tokens // size
        if not self.caches or end <= first:
            return
        self._hand_out(table, end)
        self.pool.cache(table.blocks[first:end], table.hashes(end, size)[first:end])
        table.num_cached_blocks = end

    # ---- decode --------------------------------------------------------------------------------

    def promise_pages(self, num_pages: int) -> None:
        self._promised += self.pool.take(num_pages)

    def _hand_out(self, table: RequestBlocks, num_blocks: int) -> None:
        """Blocks that were promised to a request go into its table.

        Which of those promised it gets makes no difference: what they held is gone.
        """
        num_due = num_blocks - len(table.blocks)
        if num_due > len(self._promised):
            raise InvariantError(f"{num_due} blocks due, {len(self._promised)} promised")
        if num_due > 0:
            table.blocks += self._promised[:num_due]
            del self._promised[:num_due]

    # ---- giving back ---------------------------------------------------------------------------

    def checkpoint(self, kv: RequestKV, num_tokens: int, *, prompt_len: int, seq_len: int) -> None:
        self.cache_full_blocks(kv, num_tokens)

    def release(self, kv: RequestKV, seq_len: int) -> None:
        """Free a request's blocks, the last one to be taken first."""
        table = _table(kv)
        self._hand_out(table, -(-seq_len // self.page_size))
        self.pool.give_back(reversed(table.blocks))
        table.blocks = []
        table.num_cached_blocks = 0

    def spans(self, kv: RequestKV, seq_len: int) -> list[Span]:
        table = _table(kv)
        num_blocks = -(-seq_len // self.page_size)
        self._hand_out(table, num_blocks)
        return [PageIdSpan(np.array(table.blocks[:num_blocks], dtype=np.int32))]


def _table(kv: RequestKV) -> RequestBlocks:
    if not isinstance(kv, RequestBlocks):
        raise InvariantError("a request of another family came to vLLM's block manager")
    return kv
