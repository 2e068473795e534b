"""The one door to KV memory: who holds which pages, and what the prefix cache keeps.

Follows SGLang 0.5.23 (docs/explanation/sglang.md, rules 11, 12 and 14).
"""

from collections.abc import Callable, Iterable
from typing import Any

from sim.core.errors import InvariantError
from sim.core.token_sequences import TokenSequence
from sim.core.tokens import Prompt, TokenIds
from sim.engine.page_pool import KVMemory, PagePool, Span
from sim.engine.request import RequestTokens
from sim.sglang.cache.prefix_cache import PrefixCache
from sim.sglang.cache.radix_node import RadixNode
from sim.sglang.cache.tiered_cache import TieredRadixCache


class RequestKV(RequestTokens):
    """One request's share. Mutable; owned by the KVCacheManager.

    A request's tokens are laid out as
    [0, protected_len) in pages of the prefix cache | [protected_len, seq_len) in pages of its own.

    Attributes:
        found: node the last match ended at, on the device; the next match starts there.
        found_on_host: node in host memory where that match's rest ended, or None.
        host_len: tokens of that rest.
        locked: node whose path this request keeps from eviction, None while it holds nothing.
        protected_len: tokens in pages of the cache; a multiple of the page size.
        counted_len: tokens whose use by this request the cache has counted.
        pages: own pages; those promised for decode steps but not yet redeemed are left out.
    """

    __slots__ = (
        "counted_len",
        "found",
        "found_on_host",
        "host_len",
        "locked",
        "pages",
        "protected_len",
    )

    def __init__(
        self,
        prompt: Prompt,
        output_ids: Callable[[int], TokenIds],
        *,
        output_part: Callable[[int, int], TokenSequence] | None = None,
        no_pages: Span,
    ) -> None:
        """A request that holds nothing: `no_pages` is an empty span; see RequestTokens."""
        super().__init__(prompt, output_ids, output_part)
        self.found: RadixNode | None = None
        self.found_on_host: RadixNode | None = None
        self.host_len = 0
        self.locked: RadixNode | None = None
        self.protected_len = self.counted_len = 0
        self.pages = no_pages


class KVCacheManager(KVMemory):
    """Matches, extends, checkpoints and releases the KV of requests."""

    def __init__(self, pool: PagePool[Any], cache: PrefixCache) -> None:
        self.pool = pool
        self.cache = cache
        self.host = cache if isinstance(cache, TieredRadixCache) else None
        self.page_size = pool.page_size
        self.num_pages = pool.num_pages

    def new_request(
        self,
        prompt: Prompt,
        output_ids: Callable[[int], TokenIds],
        output_part: Callable[[int, int], TokenSequence],
    ) -> RequestKV:
        return RequestKV(prompt, output_ids, output_part=output_part, no_pages=self.pool.empty)

    # ---- sizes ---------------------------------------------------------------------------------

    @property
    def num_free_pages(self) -> int:
        return self.pool.num_free_pages

    @property
    def evictable_tokens(self) -> int:
        return self.cache.evictable_tokens

    @property
    def available_tokens(self) -> int:
        """Tokens free now or after evicting everything that may be evicted."""
        return self.pool.num_free_pages * self.page_size + self.cache.evictable_tokens

    @property
    def host_used_tokens(self) -> int | None:
        return None if self.host is None else self.host.memory.used_tokens

    # ---- prefixes ------------------------------------------------------------------------------

    def find_prefix(self, kv: RequestKV, num_tokens: int, limit: int) -> int:
        """Match the first `num_tokens` tokens up to `limit`, and mark what was found as used.

        Returns:
            Tokens found on the device, a multiple of the page size. `kv.host_len` more are in host
            memory.
        """
        if not self.cache.enabled:
            return 0
        match = self.cache.match(kv.token_ids(num_tokens), limit, kv.found)
        kv.found = self.cache.touch(match)
        if self.host is not None:
            kv.found_on_host = self.host.touch_host(match)
            kv.host_len = match.num_host_tokens
        return match.num_tokens

    def lock_prefix(self, kv: RequestKV) -> None:
        """Keep the prefix found last from eviction."""
        kv.locked = kv.found or self.cache.root
        kv.protected_len = kv.locked.end
        self.cache.lock(kv.locked)

    def unlock_prefix(self, kv: RequestKV) -> None:
        if kv.locked is None:
            raise InvariantError("a prefix was unlocked that was not locked")
        self.cache.unlock(kv.locked)
        kv.locked = None
        kv.protected_len = 0

    def load_prefix(self, kv: RequestKV) -> int:
        """Bring what was found in host memory back to the device, and lock it too.

        The prefix is locked. Pages are allocated now, evicting if need be.

        Returns:
            Tokens loaded: all that were found, or 0 if they are too few or have no room.
        """
        end, locked = kv.found_on_host, kv.locked
        if self.host is None or end is None or locked is None or not self.host.load(end):
            return 0
        self.cache.lock(end)
        self.cache.unlock(locked)
        kv.found = kv.locked = end
        kv.protected_len = end.end
        num_loaded, kv.host_len = kv.host_len, 0
        kv.found_on_host = None
        return num_loaded

    # ---- growth --------------------------------------------------------------------------------

    def evict_until_free(self, num_tokens: int) -> bool:
        """Evict until `num_tokens` are free; whole leaves, so often more. False: not enough."""
        shortfall = num_tokens - self.free_tokens
        if shortfall > 0:
            self.cache.evict(shortfall)
        return self.free_tokens >= num_tokens

    def extend(self, rows: Iterable[tuple[RequestKV, int, int]]) -> None:
        """Allocate pages for prefill rows `(kv, prefix_len, extend_len)`.

        Evicts for the exact number of tokens at page size 1, and for one page more a row otherwise
        (rule 12). Raises InvariantError if the pool is too small: admission must have seen to it.
        """
        rows = list(rows)
        num_tokens = sum(extend_len for _, _, extend_len in rows)
        slack = self.page_size * len(rows) if self.page_size > 1 else 0
        self.evict_until_free(num_tokens + slack)
        for kv, prefix_len, extend_len in rows:
            end = self.ceil_page(prefix_len + extend_len)
            num_pages = (end - self.ceil_page(prefix_len)) // self.page_size
            self.pool.promise(num_pages)
            kv.pages = kv.pages.concat(self.pool.redeem(num_pages))

    def can_decode(self, num_new_pages: int) -> bool:
        """Whether a decode step that starts so many pages fits; evicts to make it fit."""
        return self.evict_until_free(num_new_pages * self.page_size)

    def decode(self, num_rows: int, num_new_pages: int) -> None:
        """Promise the new pages of a decode step of `num_rows` rows.

        Evicts for one page a row whatever is needed (rule 12; at page size 1 that is exact).
        """
        self.evict_until_free(num_rows * self.page_size)
        self.pool.promise(num_new_pages)

    def promise_pages(self, num_pages: int) -> None:
        self.pool.promise(num_pages)

    # ---- giving back ---------------------------------------------------------------------------

    def checkpoint(self, kv: RequestKV, num_tokens: int, *, prompt_len: int, seq_len: int) -> None:
        """Give the whole pages of the first `num_tokens` tokens to the prefix cache; stay on them.

        The leaf is cut at the prompt's end, so that an output can be evicted without its prompt.
        """
        aligned = self.floor_page(num_tokens)
        if not (self.cache.enabled and aligned):
            return
        self._redeem(kv, seq_len)
        token_ids = kv.token_ids(aligned)
        given, kept = kv.pages.split((aligned - kv.protected_len) // self.page_size)
        node, _ = self.cache.insert(token_ids, kv.protected_len, given, kv.locked)
        self.cache.count_use(node, kv.counted_len)
        kv.counted_len = max(kv.counted_len, aligned)
        prompt_aligned = self.floor_page(prompt_len)
        if 0 < prompt_aligned < aligned:
            self.cache.insert(kv.token_ids(prompt_aligned), prompt_aligned, self.pool.empty, node)
        if kv.locked is not None:
            self.cache.unlock(kv.locked)
        self.cache.lock(node)
        kv.locked = kv.found = node
        kv.pages = kept
        kv.protected_len = aligned

    def release(self, kv: RequestKV, seq_len: int) -> None:
        """Free a request's own pages and let go of its prefix."""
        self._redeem(kv, seq_len)
        self.pool.free(kv.pages)
        kv.pages = self.pool.empty
        kv.counted_len = 0
        self.unlock_prefix(kv)

    # ---- where it is, for who computes with it ---------------------------------------------------

    def spans(self, kv: RequestKV, seq_len: int) -> list[Span]:
        """The pages of a request's first tokens: those of the prefix cache, then its own."""
        self._redeem(kv, seq_len)
        spans = [kv.pages]
        node = kv.locked
        while node is not None and node.parent is not None:
            spans.append(node.pages)
            node = node.parent
        return spans[::-1]

    def _redeem(self, kv: RequestKV, seq_len: int) -> None:
        """Collect the pages promised to a request by decode steps."""
        due = (self.ceil_page(seq_len) - kv.protected_len) // self.page_size - len(kv.pages)
        if due:
            kv.pages = kv.pages.concat(self.pool.redeem(due))
