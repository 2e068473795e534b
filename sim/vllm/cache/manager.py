"""vLLM's KV cache manager: finds, allocates, caches and frees the blocks of requests.

docs/explanation/vllm.md, rules 7 to 11, say what it does.
"""

from collections.abc import Callable

import numpy as np

from sim.core.block_keys import BlockKeys
from sim.core.errors import InvariantError
from sim.core.tokens import TokenIds
from sim.engine.cache_events import CacheListener, KeysOf
from sim.engine.page_pool import PageIdSpan, Span
from sim.vllm.cache.events import BlockEvents
from sim.vllm.cache.kv_cache_coordinator import KVCacheCoordinator
from sim.vllm.cache.prefix_index import PrefixIndex
from sim.vllm.cache.request_blocks import CacheHit, Chunk, RequestBlocks, ids_behind
from sim.vllm.cache.unhashed import UnhashedBlocks


class BlockManager(KVCacheCoordinator):
    """vLLM's KV memory of a model whose layers all keep KV of all tokens. A page is a block."""

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        caches: bool = True,
        reuses_uncached_first: bool = True,
        hash_lookahead: int = 0,
        drops_last_block: bool = False,
    ) -> None:
        """`reuses_uncached_first`: see `sim.vllm.version_rules`.

        `hash_lookahead`, `drops_last_block`: see `sim.vllm.scheduler.drafting`.
        """
        super().__init__(num_blocks, block_size, caches=caches)
        self._reuses_uncached_first = reuses_uncached_first
        self._hash_lookahead = hash_lookahead
        self._drops_last_block = drops_last_block
        self._index = PrefixIndex(self.pool, block_size)
        self._promised: list[int] = []
        self._num_admitted = 0
        self._events: BlockEvents | None = None

    def listen(self, listener: CacheListener) -> KeysOf:
        if self.caches:
            self._events = BlockEvents(listener, self.page_size)
        return self._block_keys

    def _block_keys(self, token_ids: TokenIds) -> list[int]:
        """The keys of a prompt's full blocks, as the events have them."""
        if self._hash_lookahead:
            token_ids = ids_behind(token_ids)
        keys: list[int] = BlockKeys(self.page_size).of(token_ids).tolist()
        return keys

    def _take(self, num_blocks: int) -> list[int]:
        """Allocate free blocks; the pool must have room."""
        taken = self.pool.take(num_blocks)
        if self._events is not None:
            self._events.taken(taken)
        return taken

    def _tell_of_prompt(self, kv: RequestBlocks) -> None:
        """Report the full blocks of a prompt to the router that listens to cache events, if any."""
        if self._events is not None and kv.unhashed is not None:
            num_in_prompt = (kv.prompt_len - self._hash_lookahead) // self.page_size
            self._events.filled(kv, min(kv.unhashed.num_full, num_in_prompt))

    @property
    def num_promised_pages(self) -> int:
        """Blocks allocated for decode steps that are not in any request's table yet."""
        return len(self._promised)

    # ---- admission -----------------------------------------------------------------------------

    def find_prefix(self, kv: RequestBlocks, num_tokens: int) -> list[int]:
        """The cached blocks that hold the first tokens of a request; the request has no blocks yet.

        Only full blocks are found. The last of the request's `num_tokens` tokens is never found: it
        must be computed, because the next token is sampled from its output.
        """
        if not self.caches:
            return []
        return self._index.find(kv, (num_tokens - 1) // self.page_size)

    def may_find_more(self, kv: RequestBlocks, num_found: int) -> bool:
        """Whether decoding may fill blocks that a request looks for, which has just found some."""
        return self.caches and self._index.may_find_more(kv, num_found)

    def fits(self, found: list[int], num_tokens: int, num_spare: int = 0) -> bool:
        """Whether a request that found these blocks can have blocks for `num_tokens` tokens.

        `num_spare` blocks stay free then.
        """
        num_new = -(-num_tokens // self.page_size) - len(found)
        return num_new + self.pool.num_free(found) + num_spare <= self.pool.num_free_blocks

    def begin_with(
        self,
        kv: RequestBlocks,
        found: list[int],
        num_tokens: int,
        catch_up: Callable[[], None] | None = None,
    ) -> None:
        """Give a request the blocks that it found, and new blocks up to `num_tokens` tokens.

        Args:
            kv: the request's blocks; it has none yet.
            found: the blocks that `find_prefix` found.
            num_tokens: tokens that need blocks, found ones included; see `fits`.
            catch_up: calls `cache_decoded` for this request. It is called when another request
                looks for blocks that this one may have filled by decoding. None: the caller calls
                `cache_decoded` after each step by itself.
        """
        self.pool.use(found)
        kv.blocks = found
        self._num_admitted += 1
        unhashed = UnhashedBlocks(self._num_admitted, found, kv.hashes, kv.ids, kv.last_token)
        kv.unhashed = unhashed
        self.grow(kv, num_tokens)
        if self.caches:
            unhashed.catch_up = catch_up
            self._index.add(unhashed)

    def grow(self, kv: RequestBlocks, num_tokens: int) -> None:
        """Allocate blocks up to `num_tokens` tokens, all of them known; the pool must have room."""
        kv.blocks += self._take(-(-num_tokens // self.page_size) - len(kv.blocks))
        if self.caches and kv.unhashed is not None:
            num_full = num_tokens // self.page_size - kv.unhashed.num_full
            kv.unhashed.full_at += [self.num_decisions] * num_full
            self._tell_of_prompt(kv)

    def num_missing(self, kv: RequestBlocks, num_tokens: int) -> int:
        """How many blocks a request's table lacks for its first `num_tokens` tokens."""
        return -(-num_tokens // self.page_size) - len(kv.blocks)

    def cache_decoded(self, kv: RequestBlocks, num_tokens: int, *, decisions_ago: int = 0) -> None:
        """Let other requests find the full blocks of the first `num_tokens` tokens.

        The tokens must be computed. Blocks that are full but not cached yet were filled by
        decoding, one token at each decision; the last token `decisions_ago` decisions ago. This
        tells at which decision each block became full.

        Example: 4 tokens a block, 1 full block cached, `num_tokens` 13, decision 50 is the last one
        and computed token 13. So the third block became full with token 12 at decision 49, and the
        second with token 8 at decision 45.
        """
        size = self.page_size
        if not self.caches or kv.unhashed is None:
            return
        first, end = kv.unhashed.num_full, num_tokens // size
        if end > first:
            self._hand_out(kv, end)
            last_full = self.num_decisions - decisions_ago - num_tokens % size
            kv.unhashed.full_at += range(last_full - (end - first - 1) * size, last_full + 1, size)

    # ---- servers that share their requests with others -----------------------------------------

    def cache_loaded(
        self, kv: RequestBlocks, num_tokens: int, catch_up: Callable[[], None] | None
    ) -> None:
        if kv.unhashed is None:
            raise InvariantError("KV has come for a request without blocks")
        self.cache_blocks(kv, num_tokens, num_tokens)
        # Of equal blocks that become full with one decision, the one that was noted first is found.
        self._num_admitted += 1
        kv.unhashed.number = self._num_admitted
        if self.caches:
            kv.unhashed.catch_up = catch_up

    def detach(self, kv: RequestBlocks, seq_len: int) -> None:
        self._hand_out(kv, -(-seq_len // self.page_size))
        if kv.unhashed is not None:
            kv.unhashed.keep_tokens(kv.part, self.page_size)

    # ---- chunks of any length ------------------------------------------------------------------

    def find_longest_cache_hit(self, kv: RequestBlocks, num_tokens: int) -> CacheHit:
        found = self.find_prefix(kv, num_tokens)
        if self._drops_last_block and found:
            found.pop()
        num_found = len(found) * self.page_size
        return CacheHit(num_found, [found], num_found)

    def can_admit(
        self, hit: CacheHit, chunk: Chunk, num_whole: int, num_spare: int, num_reserved: int = 0
    ) -> bool:
        found = hit.blocks[0]
        if num_whole > chunk.end and not self.fits(found, num_whole, num_spare):
            return False
        return self.fits(found, chunk.end, num_spare + num_reserved)

    def admit(
        self,
        kv: RequestBlocks,
        hit: CacheHit,
        chunk: Chunk,
        catch_up: Callable[[], None] | None = None,
    ) -> None:
        self.begin_with(kv, hit.blocks[0], hit.num_tokens, catch_up)
        self.allocate_new_blocks(kv, chunk)

    def num_blocks_for_rest(self, kv: RequestBlocks, rest: Chunk) -> int:
        return max(self.num_missing(kv, rest.end), 0)

    def num_lookahead_blocks(self, num_tokens: int) -> int:
        return -(-num_tokens // self.page_size)

    def num_blocks_to_allocate(self, kv: RequestBlocks, chunk: Chunk) -> int:
        return self.num_missing(kv, chunk.end)

    def allocate_new_blocks(self, kv: RequestBlocks, chunk: Chunk) -> None:
        num_missing = self.num_missing(kv, chunk.end)
        if num_missing > 0:
            kv.blocks += self._take(num_missing)

    def cache_blocks(self, kv: RequestBlocks, num_tokens: int, num_known: int) -> None:
        if self.caches and kv.unhashed is not None:
            num_tokens = min(num_tokens, num_known - self._hash_lookahead)
            num_full = num_tokens // self.page_size - kv.unhashed.num_full
            kv.unhashed.full_at += [self.num_decisions] * num_full
            self._tell_of_prompt(kv)

    # ---- decode --------------------------------------------------------------------------------

    def promise_pages(self, num_pages: int) -> None:
        if num_pages:
            self._promised += self._take(num_pages)

    def _hand_out(self, kv: RequestBlocks, num_blocks: int) -> None:
        """Move promised blocks into a request's table until it has `num_blocks` blocks.

        It does not matter which of the promised blocks a request gets: their contents are gone.
        """
        num_due = num_blocks - len(kv.blocks)
        if num_due > len(self._promised):
            raise InvariantError(
                f"a request needs {num_due} promised blocks, but {len(self._promised)} are promised"
            )
        if num_due > 0:
            kv.blocks += self._promised[:num_due]
            del self._promised[:num_due]

    # ---- giving back ---------------------------------------------------------------------------

    def free(self, kv: RequestBlocks, seq_len: int) -> None:
        """Free a request's blocks; its last block will be allocated first.

        Blocks without cached contents are allocated before all others, or queue with them.
        """
        self._hand_out(kv, -(-seq_len // self.page_size))
        unhashed = kv.unhashed
        if unhashed is None:
            raise InvariantError("a request without blocks gave blocks back")
        if self._events is not None:
            self._events.filled(kv, unhashed.num_full)
        if self._reuses_uncached_first:
            # `unhashed` keeps the same list, without the blocks that hold nothing of use.
            self.pool.give_back_uncached(kv.blocks[unhashed.num_full :])
            del kv.blocks[unhashed.num_full :]
        group = self.pool.give_back(kv.blocks, unhashed.num_hashed)
        unhashed.release(group, kv.part, self.page_size)
        kv.blocks, kv.unhashed = [], None

    def spans(self, kv: RequestBlocks, seq_len: int) -> list[Span]:
        num_blocks = -(-seq_len // self.page_size)
        self._hand_out(kv, num_blocks)
        return [PageIdSpan(np.array(kv.blocks[:num_blocks], dtype=np.int32))]
