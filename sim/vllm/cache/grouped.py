"""vLLM's KV memory of a model with several groups of layers, or with windows in all layers.

All groups take blocks of one pool. docs/explanation/layer-groups.md says how it works.
"""

from collections.abc import Callable
from dataclasses import dataclass

from sim.core.errors import InvariantError
from sim.vllm.cache.block_pool import HashedBlock
from sim.vllm.cache.cache_hits import Coordinator
from sim.vllm.cache.full_attention import hash_blocks
from sim.vllm.cache.kv_cache_coordinator import KVCacheCoordinator
from sim.vllm.cache.kv_cache_spec import FULL, MAMBA, KVCacheSpec
from sim.vllm.cache.mamba import MambaRules
from sim.vllm.cache.request_blocks import NULL, CacheHit, Chunk, GroupTables, RequestBlocks
from sim.vllm.cache.sliding_window import manager_of


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRules:
    """How a server keeps KV of groups.

    Attributes:
        caches_all: every full block is cached.
        interval: otherwise, `prefix_cache_retention_interval`.
        reuses_uncached_first: see `sim.vllm.version_rules`.
        hash_lookahead, drops_last_block, looks_behind: see `sim.vllm.scheduler.drafting`.
        states: how layers with states keep them.
        most_blocks: for each group, the most blocks that count when a request is admitted, 0: all;
            empty: all count.
    """

    caches_all: bool
    interval: int | None
    reuses_uncached_first: bool
    hash_lookahead: int = 0
    drops_last_block: bool = False
    looks_behind: bool = False
    states: MambaRules
    most_blocks: tuple[int, ...]


class GroupedBlockManager(KVCacheCoordinator):
    """vLLM's KV memory with a block table for each group of layers of each request."""

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        groups: tuple[KVCacheSpec, ...],
        rules: GroupRules,
        *,
        caches: bool,
    ) -> None:
        super().__init__(num_blocks, block_size, caches=caches)
        self.managers = [
            manager_of(group, number, self.pool, block_size, rules.states)
            for number, group in enumerate(groups)
        ]
        self._rules = rules
        self._most_blocks = list(rules.most_blocks) or [0] * len(groups)
        for manager in self.managers:
            manager.drops_last = rules.drops_last_block
        self._coordinator = Coordinator(
            self.managers,
            block_size,
            drops_last=rules.drops_last_block,
            looks_behind=rules.looks_behind,
        )
        kinds = {group.kind for group in groups}
        self._finds_apart = FULL in kinds and MAMBA in kinds
        self._num_admitted = 0

    # ---- admission -----------------------------------------------------------------------------

    def find_longest_cache_hit(self, kv: RequestBlocks, num_tokens: int) -> CacheHit:
        if not self.caches:
            return CacheHit(0, [[] for _ in self.managers], 0)
        return self._coordinator.find(kv, num_tokens - 1)

    def find_hit_to_load(self, kv: RequestBlocks, num_tokens: int) -> CacheHit:
        if not (self.caches and self._finds_apart):
            return self.find_longest_cache_hit(kv, num_tokens)
        return self._coordinator.find_to_load(kv, num_tokens - 1)

    def can_admit(
        self, hit: CacheHit, chunk: Chunk, num_whole: int, num_spare: int, num_reserved: int = 0
    ) -> bool:
        for manager, found in zip(self.managers, hit.blocks, strict=True):
            if not manager.is_ready(found, self.num_decisions):
                return False
        num_free = self.pool.num_free_blocks - num_spare
        if num_whole:
            whole = Chunk(chunk.start, num_whole, chunk.prefill_end)
            if self._num_new(hit, whole, self._most_blocks) > num_free:
                return False
        return self._num_new(hit, chunk, [0] * len(self.managers)) + num_reserved <= num_free

    def _num_new(self, hit: CacheHit, chunk: Chunk, most_blocks: list[int]) -> int:
        of_groups = zip(self.managers, hit.blocks, most_blocks, strict=True)
        return sum([manager.num_new(found, chunk, most) for manager, found, most in of_groups])

    def admit(
        self,
        kv: RequestBlocks,
        hit: CacheHit,
        chunk: Chunk,
        catch_up: Callable[[], None] | None = None,
    ) -> None:
        self._num_admitted += 1
        junction = hit.longest if hit.longest > hit.num_tokens else 0
        tables = [manager.new_table() for manager in self.managers]
        kv.tables = GroupTables(tables, self._num_admitted, kv.prompt_len, junction)
        for manager, table, found in zip(self.managers, tables, hit.blocks, strict=True):
            manager.adopt(table, found, chunk.start)
        if chunk.start > hit.num_tokens:
            for manager, table in zip(self.managers, tables, strict=True):
                manager.make_room_for_load(table, chunk.start)
        self.allocate_new_blocks(kv, chunk)

    def cache_loaded(
        self, kv: RequestBlocks, num_tokens: int, catch_up: Callable[[], None] | None
    ) -> None:
        # Of equal blocks that become full with one decision, the one that was noted first is found.
        self._num_admitted += 1
        self._tables(kv).number = self._num_admitted
        super().cache_loaded(kv, num_tokens, catch_up)

    # ---- running requests ----------------------------------------------------------------------

    def remove_skipped_blocks(self, kv: RequestBlocks, num_processed: int) -> None:
        for manager, table in zip(self.managers, self._tables(kv).of_groups, strict=True):
            dropped = manager.remove_skipped_blocks(table, num_processed)
            if dropped:
                self._free(dropped)
            dropped = manager.drop_state(table, num_processed)
            if dropped:
                self._free(dropped)

    def num_blocks_to_allocate(self, kv: RequestBlocks, chunk: Chunk) -> int:
        of_groups = zip(self.managers, self._tables(kv).of_groups, strict=True)
        return sum([manager.num_missing(table, chunk) for manager, table in of_groups])

    def num_blocks_for_rest(self, kv: RequestBlocks, rest: Chunk) -> int:
        tables = self._tables(kv).of_groups
        of_groups = zip(self.managers, tables, self._most_blocks, strict=True)
        return sum([each.num_blocks_for_rest(table, rest, most) for each, table, most in of_groups])

    def num_lookahead_blocks(self, num_tokens: int) -> int:
        return sum([manager.num_ahead(num_tokens) for manager in self.managers])

    def allocate_new_blocks(self, kv: RequestBlocks, chunk: Chunk) -> None:
        for manager, table in zip(self.managers, self._tables(kv).of_groups, strict=True):
            manager.grow(table, chunk)

    def cache_blocks(self, kv: RequestBlocks, num_tokens: int, num_known: int) -> None:
        if not self.caches:
            return
        tables = self._tables(kv)
        num_full = min(num_tokens, num_known - self._rules.hash_lookahead) // self.page_size
        for manager, table in zip(self.managers, tables.of_groups, strict=True):
            first = table.num_cached
            if first >= num_full:
                continue
            table.num_cached = num_full
            worth: list[bool] | None = None
            if not self._rules.caches_all:
                worth = manager.are_worth_caching(
                    first, num_full, self._boundaries(tables), self._rules.interval
                )
            places = [
                i
                for i in range(first, num_full)
                if table.blocks[i] != NULL and (worth is None or worth[i - first])
            ]
            if places:
                hash_blocks(kv, num_full, self.page_size)
                hashes = [kv.hashes[i] ^ manager.salt for i in places]
                self._add_hashes(hashes, [table.blocks[i] for i in places], tables.number)
                manager.note_cached(hashes, self.num_decisions)

    def _boundaries(self, tables: GroupTables) -> list[int]:
        """After how many tokens other requests are likely to go on, as groups may match there.

        Where the last block is left out, the same prompt goes on a block earlier, and so does one
        that parts from it right behind the junction (`replay_boundaries` and `cache_blocks`).
        """
        size, prompt_len, junction = self.page_size, tables.prompt_len, tables.junction
        if not self._rules.drops_last_block:
            return [prompt_len - 1, junction] if junction else [prompt_len - 1]
        ends = {max(end // size * size - size, 0) for end in (prompt_len - 1, prompt_len)}
        return sorted(ends) + ([junction, junction - size] if junction else [])

    def _add_hashes(self, hashes: list[int], blocks: list[int], number: int) -> None:
        decision = self.num_decisions

        def origin(block: int) -> HashedBlock:
            return decision, number, block

        self.pool.add_hashes(hashes, blocks, origin, are_free=False)

    # ---- giving back ---------------------------------------------------------------------------

    def free(self, kv: RequestBlocks, seq_len: int) -> None:
        for table in self._tables(kv).of_groups:
            self._free([block for block in reversed(table.blocks) if block != NULL])
        kv.tables = None

    def _free(self, blocks: list[int]) -> None:
        self.pool.give_back_one_by_one(blocks, uncached_first=self._rules.reuses_uncached_first)

    def _tables(self, kv: RequestBlocks) -> GroupTables:
        if kv.tables is None:
            raise InvariantError("a request without blocks was asked for them")
        return kv.tables
