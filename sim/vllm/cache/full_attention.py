"""Layers with full attention: KV of all tokens is kept, and every full block can be found.

vLLM 0.33.0: `FullAttentionManager` of v1/core/single_type_kv_cache_manager.py.
"""

from typing import Any

import numpy as np

from sim.vllm.cache.block_pool import BlockPool
from sim.vllm.cache.prefix_index import FullAttentionTable, PrefixIndex
from sim.vllm.cache.single_type_manager import CacheRules, KVCacheSpec, SingleTypeManager
from sim.vllm.request import NO_BLOCKS, BlockIds, BlockTable, RequestBlocks


class FullAttentionManager(SingleTypeManager[FullAttentionTable]):
    """Blocks are hashed when another request may look for them (`FullAttentionTable`)."""

    def __init__(
        self, spec: KVCacheSpec, number: int, pool: BlockPool, block_size: int, rules: CacheRules
    ) -> None:
        super().__init__(spec, number, pool, block_size, rules)
        self._index = PrefixIndex(pool, block_size, self.salt)
        # The latest lookup: whose, of how many blocks, and what was found.
        self._latest: RequestBlocks | None = None
        self._most = 0
        self._found = NO_BLOCKS
        # The same request, if it cannot find more until another one is admitted, and what its
        # blocks had then.
        self._settled: RequestBlocks | None = None
        self._contents = pool.contents_of(NO_BLOCKS)

    def find_longest_cache_hit(
        self,
        kv: RequestBlocks,
        num_tokens: int,
        alike: list[SingleTypeManager[Any]],
        *,
        drops_last: bool,
    ) -> list[BlockIds]:
        """The first blocks, up to the first that some group lacks."""
        num_blocks = num_tokens // self._block_size
        if len(alike) == 1:  # as in most models
            blocks = self._find(kv, num_blocks)
            return [blocks[:-1] if drops_last else blocks]
        found = [each.find_from(kv, 0, num_blocks) for each in alike]
        shortest = min([len(blocks) for blocks in found])
        if drops_last and shortest:
            shortest -= 1
        return [blocks[:shortest] for blocks in found]

    def _find(self, kv: RequestBlocks, most: int) -> BlockIds:
        """The first cached blocks of a request, at most `most`.

        A request that was refused finds the same blocks again, as long as none of them has been
        evicted since: then no lookup is needed.
        """
        is_same = kv is self._settled and most == self._most
        if is_same and np.array_equal(self._pool.contents_of(self._found), self._contents):
            return self._found
        self._found = self._index.find(kv, most)
        self._latest, self._most, self._settled = kv, most, None
        return self._found

    def find_from(self, kv: RequestBlocks, first: int, end: int) -> BlockIds:
        return self._index.find(kv, end)[first:]

    def may_find_more(self, kv: RequestBlocks, found: BlockIds) -> bool:
        may_find_more = self._index.may_find_more(kv, found)
        if not may_find_more and kv is self._latest and len(found) == len(self._found):
            self._settled, self._contents = kv, self._pool.contents_of(self._found)
        return may_find_more

    def admit(
        self, kv: RequestBlocks, found: BlockIds, num_tokens: int, number: int
    ) -> FullAttentionTable:
        if not self._rules.enable_caching:
            return FullAttentionTable(kv, found, number)
        self._latest = self._settled = None
        self._pool.touch(found)
        return self._index.admit(kv, found, number)

    def cache_blocks(
        self,
        kv: RequestBlocks,
        table: FullAttentionTable,
        num_full: int,
        decision: int,
        decisions_per_block: int = 0,
    ) -> None:
        """See the base class.

        Example of rows in lockstep: 4 tokens a block, 1 full block cached, decision 50 is the last
        one and computed token 13. So the third block became full with token 12 at decision 49, and
        the second with token 8 at decision 45.
        """
        num_new = num_full - table.num_cached
        if num_new <= 0:
            return
        table.num_cached = num_full
        if decisions_per_block:
            first = decision - (num_new - 1) * decisions_per_block
            table.full_at += range(first, decision + 1, decisions_per_block)
        else:
            table.full_at += [decision] * num_new
        if self._pool.events is not None:
            num_in_prompt = (kv.prompt_len - self._rules.hash_lookahead) // self._block_size
            self._pool.events.filled(kv, table.blocks_from(0), min(num_full, num_in_prompt))

    def remove_skipped_blocks(self, table: FullAttentionTable, num_processed: int) -> None:
        """No block is skipped: every token attends to all tokens before it."""

    def detach(self, kv: RequestBlocks, table: FullAttentionTable) -> None:
        if self._pool.events is not None:
            # Later the request's tokens are gone.
            self._pool.events.filled(kv, table.blocks_from(0), table.num_cached)
        table.keep_tokens(self._block_size)

    def free(self, kv: RequestBlocks, table: FullAttentionTable) -> None:
        pool = self._pool
        if pool.events is not None:
            pool.events.filled(kv, table.blocks_from(0), table.num_cached)
        if self._rules.reuses_uncached_first:
            self.free_uncached(table)
        table.freed(pool.free_in_order(table.hashed, table.blocks), self._block_size)

    def free_uncached(self, table: FullAttentionTable) -> None:
        first = table.num_cached - len(table.hashed)
        self._pool.free_uncached(table.blocks[first:])
        del table.blocks[first:]


class HashedFullAttentionManager(SingleTypeManager[BlockTable]):
    """Blocks are hashed when they become full: something besides requests asks for their hashes."""

    def find_longest_cache_hit(
        self,
        kv: RequestBlocks,
        num_tokens: int,
        alike: list[SingleTypeManager[Any]],
        *,
        drops_last: bool,
    ) -> list[BlockIds]:
        found = [each.find_from(kv, 0, num_tokens // self._block_size) for each in alike]
        shortest = min([len(blocks) for blocks in found])
        if drops_last and shortest:
            shortest -= 1
        return [blocks[:shortest] for blocks in found]

    def new_table(self, number: int) -> BlockTable:
        return BlockTable(number)

    def cache_blocks(
        self,
        kv: RequestBlocks,
        table: BlockTable,
        num_full: int,
        decision: int,
        decisions_per_block: int = 0,
    ) -> None:
        super().cache_blocks(kv, table, num_full, decision, decisions_per_block)
        num_in_prompt = (kv.prompt_len - self._rules.hash_lookahead) // self._block_size
        self._tell(kv, table, min(num_full, num_in_prompt))

    def detach(self, kv: RequestBlocks, table: BlockTable) -> None:
        self._tell(kv, table, table.num_cached)

    def free(self, kv: RequestBlocks, table: BlockTable) -> None:
        self._tell(kv, table, table.num_cached)
        super().free(kv, table)

    def _tell(self, kv: RequestBlocks, table: BlockTable, num_blocks: int) -> None:
        if self._pool.events is not None:
            self._pool.events.filled(kv, table.blocks, num_blocks)
