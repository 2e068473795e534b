"""Blocks of requests as vLLM keeps them: found, allocated, cached by their contents, freed.

Follows vLLM 0.19.0 (docs/explanation/vllm.md, rules 7 to 11).
"""

from collections.abc import Callable

import numpy as np

from sim.core.errors import InvariantError
from sim.core.token_sequences import TokenSequence
from sim.core.tokens import Prompt, TokenIds
from sim.engine.page_pool import KVMemory, PageIdSpan, Span
from sim.vllm.cache.pool import BlockPool
from sim.vllm.cache.prefix_index import PrefixIndex
from sim.vllm.cache.request_blocks import RequestBlocks
from sim.vllm.cache.unnamed import UnnamedBlocks


class BlockManager(KVMemory):
    """vLLM's KV memory. A page is a block; all free blocks count as free, whatever they hold.

    Attributes:
        pool: the blocks.
        caches: blocks are found again by their contents.
        num_decisions: steps decided so far, kept by the scheduler: of equal blocks the one that was
            full first is found.
    """

    def __init__(self, num_blocks: int, block_size: int, *, caches: bool = True) -> None:
        self.pool = BlockPool(num_blocks)
        self.caches = caches
        self.page_size = block_size
        self.num_pages = num_blocks
        self.num_decisions = 0
        self._index = PrefixIndex(self.pool, block_size)
        self._promised: list[int] = []
        self._num_admitted = 0

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
    ) -> RequestBlocks:
        return RequestBlocks(prompt, output_ids, output_part)

    # ---- admission -----------------------------------------------------------------------------

    def find_prefix(self, kv: RequestBlocks, num_tokens: int) -> list[int]:
        """Blocks that hold the first tokens of a request that holds nothing.

        Full blocks only; the last of its `num_tokens` tokens is never found, as it has to be
        computed to sample from.
        """
        if not self.caches:
            return []
        return self._index.find(kv.hashes, kv.ids, (num_tokens - 1) // self.page_size)

    def fits(self, found: list[int], num_tokens: int) -> bool:
        """Whether a request that found these blocks can have blocks for so many tokens in all."""
        num_new = -(-num_tokens // self.page_size) - len(found)
        return num_new + self.pool.num_unused(found) <= self.pool.num_free_blocks

    def admit(
        self,
        kv: RequestBlocks,
        found: list[int],
        num_tokens: int,
        catch_up: Callable[[], None] | None = None,
    ) -> None:
        """Use the blocks found, and take others for the rest of the first `num_tokens` tokens.

        Args:
            kv: the request's; it holds nothing.
            found: what it found.
            num_tokens: of them, that are computed next; they must fit.
            catch_up: called when others look for what it decodes, to call `cache_full_blocks`;
                None: that is called whenever it has decoded something.
        """
        self.pool.use(found)
        kv.blocks = found
        self._num_admitted += 1
        unnamed = UnnamedBlocks(self._num_admitted, found, kv.hashes, kv.ids)
        kv.unnamed = unnamed
        self.grow(kv, num_tokens)
        if self.caches:
            unnamed.catch_up = catch_up
            self._index.add(unnamed)

    def grow(self, kv: RequestBlocks, num_tokens: int) -> None:
        """Take blocks for the first `num_tokens` tokens, all of them known; they must fit."""
        kv.blocks += self.pool.take(-(-num_tokens // self.page_size) - len(kv.blocks))
        if self.caches and kv.unnamed is not None:
            num_full = num_tokens // self.page_size - kv.unnamed.num_full
            kv.unnamed.full_at += [self.num_decisions] * num_full

    def num_missing(self, kv: RequestBlocks, num_tokens: int) -> int:
        """Blocks a request has to take for its first `num_tokens` tokens, none promised to it."""
        return -(-num_tokens // self.page_size) - len(kv.blocks)

    def cache_full_blocks(self, kv: RequestBlocks, num_tokens: int, *, ago: int = 0) -> None:
        """Full blocks of the first `num_tokens` tokens, known and computed, can be found.

        Those that could not be found before have been decoded, a token at each decision; the last
        token so many decisions ago.
        """
        size = self.page_size
        if not self.caches or kv.unnamed is None:
            return
        first, end = kv.unnamed.num_full, num_tokens // size
        if end > first:
            self._hand_out(kv, end)
            last_full = self.num_decisions - ago - num_tokens % size
            kv.unnamed.full_at += range(last_full - (end - first - 1) * size, last_full + 1, size)

    # ---- decode --------------------------------------------------------------------------------

    def promise_pages(self, num_pages: int) -> None:
        if num_pages:
            self._promised += self.pool.take(num_pages)

    def _hand_out(self, kv: RequestBlocks, num_blocks: int) -> None:
        """Blocks that were promised to a request go into its table.

        Which of those promised it gets makes no difference: what they held is gone.
        """
        num_due = num_blocks - len(kv.blocks)
        if num_due > len(self._promised):
            raise InvariantError(f"{num_due} blocks due, {len(self._promised)} promised")
        if num_due > 0:
            kv.blocks += self._promised[:num_due]
            del self._promised[:num_due]

    # ---- giving back ---------------------------------------------------------------------------

    def release(self, kv: RequestBlocks, seq_len: int) -> None:
        """Free a request's blocks, the last one to be taken first."""
        self._hand_out(kv, -(-seq_len // self.page_size))
        unnamed = kv.unnamed
        if unnamed is None:
            raise InvariantError("a request gave back blocks without having any")
        run = self.pool.give_back(kv.blocks, unnamed.num_named)
        unnamed.freed(run, kv.part, self.page_size)
        kv.blocks, kv.unnamed = [], None

    def spans(self, kv: RequestBlocks, seq_len: int) -> list[Span]:
        num_blocks = -(-seq_len // self.page_size)
        self._hand_out(kv, num_blocks)
        return [PageIdSpan(np.array(kv.blocks[:num_blocks], dtype=np.int32))]
