"""vLLM's KV memory: the blocks of all requests, in a block table for each group of layers.

Most models have one group: all layers keep KV of all tokens. Others have a group for each kind of
layers, and several groups of a kind (docs/explanation/layer-groups.md). All take blocks of one
pool. docs/explanation/vllm.md, rules 7 to 11, say what happens to blocks.

vLLM 0.33.0: `KVCacheCoordinator` (v1/core/kv_cache_coordinator.py) and `KVCacheManager`
(kv_cache_manager.py).
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from sim.core.block_keys import BlockKeys
from sim.core.errors import InvariantError
from sim.core.tokens import TokenIds
from sim.engine.page_pool import CacheListener, KeysOf, PageIdSpan, Span
from sim.engine.running_batch import KVMemory
from sim.vllm.cache.block_pool import BlockEvents, BlockPool
from sim.vllm.cache.hybrid_search import HybridSearch
from sim.vllm.cache.mamba import MambaManager
from sim.vllm.cache.managers import manager_of
from sim.vllm.cache.single_type_manager import (
    FULL,
    MAMBA,
    CacheRules,
    KVCacheSpec,
)
from sim.vllm.request import NO_BLOCKS, CacheHit, Chunk, RequestBlocks, ids_behind

# Of a model whose layers all keep KV of all tokens.
FULL_ATTENTION: Final = (KVCacheSpec(FULL),)
_RULES: Final = CacheRules()


class KVCacheCoordinator(KVMemory):
    """The KV memory of a server. A page is a block; free blocks count as free even if cached.

    Attributes:
        managers: one for each group of layers; so are a request's tables, and the blocks of a hit.
            They are walked by number: mypyc compiles that, and not a strict `zip`.
        num_decisions: decisions so far, counted by the scheduler. The number tells when a block
            became full: of several equal blocks, a request finds the one that was full first.
        count_host_tokens: counts the tokens in CPU memory; None: no KV is kept there.
        listen_to_host: adds a listener for the blocks in CPU memory; None: the same.
        tell_reserved: is told of blocks that rows in lockstep get; None: nobody is.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        groups: tuple[KVCacheSpec, ...] = FULL_ATTENTION,
        rules: CacheRules = _RULES,
    ) -> None:
        self.page_size = block_size
        self.num_pages = num_blocks
        self.num_decisions = 0
        self.count_host_tokens: Callable[[], int] | None = None
        self.listen_to_host: Callable[[CacheListener], None] | None = None
        self.tell_reserved: Callable[[list[int]], None] | None = None
        self.pool = BlockPool(num_blocks)
        self.managers = [
            manager_of(spec, number, self.pool, block_size, rules)
            for number, spec in enumerate(groups)
        ]
        drafters = [spec for spec in groups if spec.has_drafter]
        for manager in self.managers if drafters else ():
            # Groups with the same rules are looked up together.
            manager.drops_last = manager.drops_last and manager.spec in drafters
        self._rules = rules
        self._search: HybridSearch | None = None
        if len(groups) > 1:
            self._search = HybridSearch(self.managers, block_size, looks_behind=rules.looks_behind)
        kinds = {spec.kind for spec in groups}
        self._has_states = MAMBA in kinds
        self._finds_one_by_one = rules.fetches_states and {FULL, MAMBA} <= kinds
        self._tells_events = kinds == {FULL} and len(groups) == 1
        self._num_admitted = 0
        # Blocks that rows in lockstep have got and that are in no table yet.
        self._reserved: list[int] = []

    @property
    def num_free_pages(self) -> int:
        return self.pool.num_free_blocks

    @property
    def evictable_tokens(self) -> int:
        """Always 0: vLLM counts cached blocks that no request uses as free."""
        return 0

    @property
    def host_used_tokens(self) -> int | None:
        return None if self.count_host_tokens is None else self.count_host_tokens()

    def listen(self, device: CacheListener, host: CacheListener) -> KeysOf | None:
        if not self._tells_events:
            return None
        if self._rules.enable_caching:
            self.pool.events = BlockEvents(device, self.page_size)
        if self.listen_to_host is not None:
            self.listen_to_host(host)
        return self._block_keys

    def _block_keys(self, token_ids: TokenIds) -> list[int]:
        """The keys of a prompt's full blocks, as the events have them."""
        if self._rules.hash_lookahead:
            token_ids = ids_behind(token_ids)
        keys: list[int] = BlockKeys(self.page_size).of(token_ids).tolist()
        return keys

    # ---- admission -----------------------------------------------------------------------------

    def find_longest_cache_hit(self, kv: RequestBlocks, num_tokens: int) -> CacheHit:
        """What is cached of a request's first `num_tokens` tokens.

        Only full blocks are found. The last token is never found: it must be computed, because the
        next token is sampled from its output.
        """
        rules, managers = self._rules, self.managers
        if not rules.enable_caching:
            return CacheHit(0, [NO_BLOCKS for _ in managers], 0)
        if self._search is not None:
            if self._finds_one_by_one:
                hit = self._search.find_one_by_one(kv, num_tokens - 1)
                if hit is not None and len({len(blocks) for blocks in hit.blocks}) == 1:
                    return hit
            return self._search.find(kv, num_tokens - 1)
        blocks = managers[0].find_longest_cache_hit(
            kv, num_tokens - 1, managers, drops_last=managers[0].drops_last
        )
        num_found = len(blocks[0]) * self.page_size
        return CacheHit(num_found, blocks, num_found)

    def find_hit_to_load(self, kv: RequestBlocks, num_tokens: int) -> CacheHit:
        """The same, for a request that can fetch the KV of what it does not find here."""
        if self._search is not None and self._rules.enable_caching and self._finds_one_by_one:
            hit = self._search.find_one_by_one(kv, num_tokens - 1)
            if hit is not None:
                return hit
        return self.find_longest_cache_hit(kv, num_tokens)

    def may_find_more(self, kv: RequestBlocks, hit: CacheHit) -> bool:
        """Whether decoding may fill blocks that a request looks for, which has just found some."""
        if not self._rules.enable_caching:
            return False
        for number, manager in enumerate(self.managers):
            if manager.may_find_more(kv, hit.blocks[number]):
                return True
        return False

    def can_admit(
        self, hit: CacheHit, chunk: Chunk, num_whole: int, num_spare: int, num_reserved: int = 0
    ) -> bool:
        """Whether a request that has no blocks yet can have those of its first chunk.

        Args:
            hit: what was found of it.
            chunk: what it computes first.
            num_whole: there must be blocks for this many of its tokens; 0: it does not matter.
            num_spare: blocks that must be left over in both cases.
            num_reserved: blocks that its first chunk must leave to others besides.
        """
        if self._has_states and not self._are_ready(hit):
            return False
        num_free = self.pool.num_free_blocks - num_spare
        # The first chunk of layers without states needs at least what a shorter request does.
        if num_whole > chunk.end - chunk.num_ahead or (num_whole and self._has_states):
            whole = Chunk(chunk.start, num_whole, chunk.prefill_end)
            if self._num_new_blocks(hit, whole, is_whole=True) > num_free:
                return False
        return self._num_new_blocks(hit, chunk, is_whole=False) + num_reserved <= num_free

    def _are_ready(self, hit: CacheHit) -> bool:
        for number, manager in enumerate(self.managers):
            if not manager.is_ready(hit.blocks[number], self.num_decisions):
                return False
        return True

    def _num_new_blocks(self, hit: CacheHit, chunk: Chunk, *, is_whole: bool) -> int:
        found = enumerate(hit.blocks)
        return sum([self.managers[i].num_new_blocks(b, chunk, is_whole=is_whole) for i, b in found])

    def fits_behind(self, kv: RequestBlocks, chunk: Chunk, num_whole: int, num_spare: int) -> bool:
        """As `can_admit` for a request that has the blocks of the tokens before the chunk."""
        if num_whole:
            whole = Chunk(chunk.start, num_whole, chunk.prefill_end)
            if self.num_blocks_for_rest(kv, whole) + num_spare > self.num_free_pages:
                return False
        self.remove_skipped_blocks(kv, chunk.start)
        return self.num_blocks_to_allocate(kv, chunk) + num_spare <= self.num_free_pages

    def admit(
        self,
        kv: RequestBlocks,
        hit: CacheHit,
        chunk: Chunk,
        catch_up: Callable[[], None] | None = None,
    ) -> None:
        """Give a request the blocks of its hit, and new ones for its first chunk.

        `catch_up`: see `RequestBlocks`.
        """
        self._num_admitted += 1
        kv.junction = hit.longest if hit.longest > hit.num_tokens else 0
        kv.catch_up = catch_up
        kv.tables = [
            manager.admit(kv, hit.blocks[number], chunk.start, self._num_admitted)
            for number, manager in enumerate(self.managers)
        ]
        if chunk.start > hit.num_tokens:
            for number, manager in enumerate(self.managers):
                manager.allocate_to_load(kv.tables[number], chunk.start)
        self.allocate_new_blocks(kv, chunk)

    def cache_loaded(
        self, kv: RequestBlocks, num_tokens: int, catch_up: Callable[[], None] | None
    ) -> None:
        """KV of a request's first tokens has come from elsewhere: others find it from now on.

        `catch_up`: see `RequestBlocks`.
        """
        self._num_admitted += 1
        for table in self._tables(kv):
            table.number = self._num_admitted
        kv.catch_up = catch_up
        self.cache_blocks(kv, num_tokens, num_tokens)

    # ---- running requests ----------------------------------------------------------------------

    def remove_skipped_blocks(self, kv: RequestBlocks, num_processed: int) -> None:
        """Free the blocks that no token behind the first `num_processed` ones attends to."""
        tables = self._tables(kv)
        for number, manager in enumerate(self.managers):
            manager.remove_skipped_blocks(tables[number], num_processed)

    def skip_periods(self) -> list[tuple[int, int]]:
        """The `skip_period` of each group that has one."""
        return [each.skip_period for each in self.managers if each.skip_period is not None]

    def num_blocks_to_allocate(self, kv: RequestBlocks, chunk: Chunk) -> int:
        """How many blocks a running request lacks for its next chunk."""
        num_blocks, tables = 0, self._tables(kv)
        for number, manager in enumerate(self.managers):
            num_blocks += manager.num_blocks_to_allocate(tables[number], chunk)
        return num_blocks

    def num_blocks_for_rest(self, kv: RequestBlocks, rest: Chunk) -> int:
        """How many more blocks a request will need at a time until the rest is computed."""
        num_blocks, tables = 0, self._tables(kv)
        for number, manager in enumerate(self.managers):
            num_blocks += manager.num_blocks_for_rest(tables[number], rest)
        return num_blocks

    def num_blocks_for_whole(self, whole: Chunk) -> int:
        """How many blocks a request without blocks will need at a time."""
        none = CacheHit(0, [NO_BLOCKS for _ in self.managers], 0)
        return self._num_new_blocks(none, whole, is_whole=True)

    def num_lookahead_blocks(self, num_tokens: int) -> int:
        """How many blocks `num_tokens` tokens take behind those that have blocks."""
        return sum([manager.num_lookahead_blocks(num_tokens) for manager in self.managers])

    def allocate_new_blocks(self, kv: RequestBlocks, chunk: Chunk) -> None:
        """Allocate the blocks that a chunk lacks; the pool must have them."""
        for number, manager in enumerate(self.managers):
            manager.allocate_new_blocks(kv.tables[number], chunk)

    def cache_blocks(self, kv: RequestBlocks, num_tokens: int, num_known: int) -> None:
        """Let other requests find the full blocks of the first `num_tokens` tokens, from now on.

        `num_known` tokens of the request are known.
        """
        if not self._rules.enable_caching:
            return
        num_full = min(num_tokens, num_known - self._rules.hash_lookahead) // self.page_size
        tables = self._tables(kv)
        for number, manager in enumerate(self.managers):
            manager.cache_blocks(kv, tables[number], num_full, self.num_decisions)

    def hand_over_states(self) -> None:
        """From now on, `take_states` tells of the states that others can find."""
        for manager in self.managers:
            if isinstance(manager, MambaManager):
                manager.kept = []

    def take_states(self) -> dict[RequestBlocks, list[tuple[int, int, int]]]:
        """Of each request, the states that others can find since the last call.

        Each as the number of the group, the block, and the place of the block of tokens that it
        ends (vLLM 0.33.0: `take_boundary_state_offloads`).
        """
        taken: dict[RequestBlocks, list[tuple[int, int, int]]] = {}
        for number, manager in enumerate(self.managers):
            if isinstance(manager, MambaManager) and manager.kept:
                for kv, block, place in manager.kept:
                    taken.setdefault(kv, []).append((number, block, place))
                manager.kept = []
        return taken

    # ---- rows in lockstep ----------------------------------------------------------------------

    @property
    def reserving_evicts(self) -> bool:
        return self._rules.enable_caching

    @property
    def num_reserved_blocks(self) -> int:
        """Blocks of decode steps that are in no request's table yet."""
        return len(self._reserved)

    def reserve_pages(self, num_pages: int) -> None:
        """Reserve blocks for rows that decode in lockstep; each row gets its own later."""
        if num_pages:
            blocks = self.pool.get_new_blocks(num_pages)
            self._reserved += blocks
            if self.tell_reserved is not None:
                self.tell_reserved(blocks)

    def _hand_out(self, kv: RequestBlocks, num_tokens: int) -> None:
        """Move reserved blocks into a request's table until it has those of its tokens.

        It does not matter which of the reserved blocks a request gets: their contents are gone.
        """
        if not (self._reserved and kv.tables):
            return
        table = kv.tables[0]
        num_due = -(-num_tokens // self.page_size) - table.num_blocks
        if num_due > len(self._reserved):
            raise InvariantError(f"{num_due} blocks are due, {len(self._reserved)} are reserved")
        if num_due > 0:
            table.blocks += self._reserved[:num_due]
            del self._reserved[:num_due]

    def cache_decoded(self, kv: RequestBlocks, num_tokens: int, *, decisions_ago: int = 0) -> None:
        """Let other requests find the full blocks of the first `num_tokens` tokens.

        Blocks that are full but not cached yet were filled by decoding, one token at each decision;
        the last token `decisions_ago` decisions ago.
        """
        size = self.page_size
        num_full = num_tokens // size
        if not (self._rules.enable_caching and kv.tables and num_full > kv.tables[0].num_cached):
            return
        self._hand_out(kv, num_full * size)
        decision = self.num_decisions - decisions_ago - num_tokens % size
        for number, manager in enumerate(self.managers):
            manager.cache_blocks(kv, kv.tables[number], num_full, decision, size)

    def spans(self, kv: RequestBlocks, seq_len: int) -> list[Span]:
        """The blocks of a request's first `seq_len` tokens, for the real runner."""
        self._hand_out(kv, seq_len)
        num_blocks = -(-seq_len // self.page_size)
        return [
            PageIdSpan(np.array(table.blocks_from(0)[:num_blocks], dtype=np.int32))
            for table in kv.tables
        ]

    # ---- giving back ---------------------------------------------------------------------------

    def detach(self, kv: RequestBlocks, seq_len: int) -> None:
        """A request has ended, and its blocks will be freed later."""
        self._hand_out(kv, seq_len)
        for number, manager in enumerate(self.managers):
            manager.detach(kv, kv.tables[number])

    def free(self, kv: RequestBlocks, seq_len: int, *, together: bool = False) -> None:
        """Free a request's blocks; its last block will be allocated first.

        `together`: so are those of the last group; otherwise those of the first group.
        """
        self._hand_out(kv, seq_len)
        tables, numbers = self._tables(kv), list(range(len(self.managers)))
        if together and len(numbers) > 1:
            for number in numbers:
                self.managers[number].free_uncached(tables[number])
            numbers.reverse()
        for number in numbers:
            self.managers[number].free(kv, tables[number])
        kv.tables = []
        kv.catch_up = None  # refers to the request, which would keep itself in memory

    def _tables(self, kv: RequestBlocks) -> list[Any]:
        if not kv.tables:
            raise InvariantError("a request without blocks was asked for them")
        return kv.tables
