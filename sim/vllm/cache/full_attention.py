"""Layers with full attention: KV of all tokens is kept, and every full block can be found.

vLLM 0.33.0: `FullAttentionManager` (v1/core/single_type_kv_cache_manager.py).
"""

from typing import Any

from sim.vllm.cache.block_pool import BlockPool
from sim.vllm.cache.full_attention_table import FullAttentionTable
from sim.vllm.cache.kv_cache_spec import KVCacheSpec
from sim.vllm.cache.prefix_index import PrefixIndex
from sim.vllm.cache.request_blocks import RequestBlocks
from sim.vllm.cache.single_type_manager import CacheRules, SingleTypeManager


class FullAttentionManager(SingleTypeManager[FullAttentionTable]):
    """Blocks are hashed when another request may look for them (`FullAttentionTable`)."""

    def __init__(
        self, spec: KVCacheSpec, number: int, pool: BlockPool, block_size: int, rules: CacheRules
    ) -> None:
        super().__init__(spec, number, pool, block_size, rules)
        self._index = PrefixIndex(pool, block_size, self.salt)

    def find_longest_cache_hit(
        self,
        kv: RequestBlocks,
        num_tokens: int,
        alike: list[SingleTypeManager[Any]],
        *,
        drops_last: bool,
    ) -> list[list[int]]:
        """The first blocks, up to the first that some group lacks."""
        found = [each.find_from(kv, 0, num_tokens // self._block_size) for each in alike]
        shortest = min([len(blocks) for blocks in found])
        if drops_last and shortest:
            shortest -= 1
        for blocks in found:
            del blocks[shortest:]
        return found

    def find_from(self, kv: RequestBlocks, first: int, end: int) -> list[int]:
        return self._index.find(kv, end)[first:]

    def may_find_more(self, kv: RequestBlocks, num_found: int) -> bool:
        return self._index.may_find_more(kv, num_found)

    def admit(
        self, kv: RequestBlocks, found: list[int], num_tokens: int, number: int
    ) -> FullAttentionTable:
        self._pool.touch(found)
        table = FullAttentionTable(kv, found, number)
        if self._rules.enable_caching:
            self._index.add(table)
        return table

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
            self._pool.events.filled(kv, table.blocks, min(num_full, num_in_prompt))

    def remove_skipped_blocks(self, table: FullAttentionTable, num_processed: int) -> None:
        """None: every token attends to all tokens before it."""

    def detach(self, table: FullAttentionTable) -> None:
        table.keep_tokens(self._block_size)

    def free(self, kv: RequestBlocks, table: FullAttentionTable) -> None:
        pool, num_full = self._pool, table.num_cached
        if pool.events is not None:
            pool.events.filled(kv, table.blocks, num_full)
        if self._rules.reuses_uncached_first:
            pool.free_uncached(table.blocks[num_full:])
            del table.blocks[num_full:]
        table.freed(pool.free_in_order(table.blocks, table.num_hashed), self._block_size)
