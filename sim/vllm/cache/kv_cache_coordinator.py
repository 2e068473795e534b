"""What the scheduler asks of vLLM's KV memory."""

from collections.abc import Callable

from sim.engine.page_pool import KVMemory, Span
from sim.vllm.cache.block_pool import BlockPool
from sim.vllm.cache.request_blocks import CacheHit, Chunk, RequestBlocks


class KVCacheCoordinator(KVMemory):
    """Base class: vLLM's KV memory. Free blocks count as free even if they are cached.

    Attributes:
        pool: the blocks.
        caches: whether prefix caching is on: other requests can find full blocks.
        num_decisions: decisions so far, counted by the scheduler. The number tells when a block
            became full: of several equal blocks, a request finds the one that was full first.
    """

    def __init__(self, num_blocks: int, block_size: int, *, caches: bool) -> None:
        self.pool = BlockPool(num_blocks)
        self.caches = caches
        self.page_size = block_size
        self.num_pages = num_blocks
        self.num_decisions = 0

    @property
    def num_free_pages(self) -> int:
        return self.pool.num_free_blocks

    @property
    def evictable_tokens(self) -> int:
        """Always 0: vLLM counts cached blocks that no request uses as free."""
        return 0

    @property
    def promising_evicts(self) -> bool:
        return self.caches

    def find_longest_cache_hit(self, kv: RequestBlocks, num_tokens: int) -> CacheHit:
        """What is cached of a request's first `num_tokens` tokens; the last one never is."""
        raise NotImplementedError

    def find_hit_to_load(self, kv: RequestBlocks, num_tokens: int) -> CacheHit:
        """The same, for a request that can fetch the KV of what it does not find here."""
        return self.find_longest_cache_hit(kv, num_tokens)

    def may_find_more(self, kv: RequestBlocks, num_found: int) -> bool:
        """Whether decoding may fill blocks that a request looks for, which has just found some."""
        raise NotImplementedError

    def can_admit(
        self, hit: CacheHit, chunk: Chunk, num_whole: int, num_spare: int, num_reserved: int = 0
    ) -> bool:
        """Whether a request that has no blocks yet can have those of its first chunk.

        Args:
            hit: what `find_longest_cache_hit` found.
            chunk: what it computes first.
            num_whole: there must be blocks for this many of its tokens; 0: it does not matter.
            num_spare: blocks that must be left over in both cases.
            num_reserved: blocks that its first chunk must leave to others besides.
        """
        raise NotImplementedError

    def fits_behind(self, kv: RequestBlocks, chunk: Chunk, num_whole: int, num_spare: int) -> bool:
        """The same for a request that has the blocks of the tokens before the chunk."""
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

        `catch_up`: see `BlockManager.admit`.
        """
        raise NotImplementedError

    def remove_skipped_blocks(self, kv: RequestBlocks, num_processed: int) -> None:
        """Free the blocks that no token behind the first `num_processed` ones attends to."""

    def num_blocks_to_allocate(self, kv: RequestBlocks, chunk: Chunk) -> int:
        """How many blocks a running request lacks for its next chunk."""
        raise NotImplementedError

    def num_blocks_for_rest(self, kv: RequestBlocks, rest: Chunk) -> int:
        """How many more blocks a request will need at a time until the rest is computed."""
        raise NotImplementedError

    def num_lookahead_blocks(self, num_tokens: int) -> int:
        """How many blocks `num_tokens` tokens take behind those that have blocks."""
        raise NotImplementedError

    def allocate_new_blocks(self, kv: RequestBlocks, chunk: Chunk) -> None:
        """Allocate these blocks; the pool must have room."""
        raise NotImplementedError

    def cache_blocks(self, kv: RequestBlocks, num_tokens: int, num_known: int) -> None:
        """Let other requests find the full blocks of the first `num_tokens` tokens, from now on.

        `num_known` tokens of the request are known.
        """
        raise NotImplementedError

    def cache_decoded(self, kv: RequestBlocks, num_tokens: int, *, decisions_ago: int = 0) -> None:
        """The same for a row in lockstep, whose blocks were filled one token a decision.

        `decisions_ago`: how many decisions ago the last of the tokens was computed.
        """
        raise NotImplementedError

    def cache_loaded(
        self, kv: RequestBlocks, num_tokens: int, catch_up: Callable[[], None] | None
    ) -> None:
        """KV of a request's first tokens has come from elsewhere: others find it from now on.

        `catch_up`: see `BlockManager.admit`.
        """
        self.cache_blocks(kv, num_tokens, num_tokens)

    def detach(self, kv: RequestBlocks, seq_len: int) -> None:
        """A request has ended, and its blocks will be released later."""

    def free(self, kv: RequestBlocks, seq_len: int) -> None:
        """Free a request's blocks; its last block will be allocated first."""
        raise NotImplementedError

    def spans(self, kv: RequestBlocks, seq_len: int) -> list[Span]:
        """The blocks of a request's first `seq_len` tokens, for the real runner."""
        raise NotImplementedError
