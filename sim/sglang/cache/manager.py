"""KV memory of an SGLang server: requests' pages, and what goes into the prefix cache.

Follows SGLang 0.5.23 (docs/explanation/sglang.md, rules 11, 12 and 14).
"""

from collections.abc import Sequence

from sim.core.block_keys import BlockKeys
from sim.core.errors import InvariantError
from sim.core.tokens import Prompt, TokenIds, TokenSequence
from sim.engine.page_pool import CacheListener, KeysOf, PagePool
from sim.engine.request import OutputTokens
from sim.engine.store import Store
from sim.sglang.cache.pages import KVPages
from sim.sglang.cache.part import MemoryPart
from sim.sglang.cache.storage.tier import StorageTier
from sim.sglang.cache.tree.prefix_cache import Pairs, PrefixCache, pairs_of
from sim.sglang.cache.tree.radix_cache import RadixCache
from sim.sglang.cache.tree.radix_node import RadixNode
from sim.sglang.cache.tree.radix_tree import Conversations
from sim.sglang.request import RequestKV, SglangRequest

# A prompt's nodes count one more than the request's priority, but fit into 64 bits.
_MAX_PRIORITY = (1 << 63) - 1


class KVCacheManager(KVPages):
    """Finds, allocates, caches and frees the KV of requests."""

    def __init__(
        self,
        pool: PagePool,
        cache: PrefixCache,
        parts: Sequence[MemoryPart] = (),
        *,
        compares_pairs: bool = False,
        storage: StorageTier | None = None,
    ) -> None:
        """`compares_pairs`: the cache compares pairs of tokens (see `Pairs`).

        `storage`: what is below host memory; None: nothing.
        """
        super().__init__(pool, cache, parts)
        self.storage = storage
        self.compares_pairs = compares_pairs
        # A sequence has one pair fewer than tokens.
        self._fewer = int(compares_pairs)
        # SGLang's `checkpoint_into_tree` ends a node at the end of the prompt only if the tree has
        # one component.
        self._splits_prompts = all(part.pool is None for part in self.parts)
        self._conversations = Conversations()
        # Where parts have pools, every match begins at the root.
        self._remembers_turns = cache.enabled and self._splits_prompts

    @property
    def watched_cache(self) -> RadixCache | None:
        """The prefix cache, if it notes what happens to watched nodes (`RadixCache.changes`).

        None: it has more than the KV of tokens in one pool, compares pairs, or never hits.
        """
        cache = self.cache
        if self.parts or self.compares_pairs:
            return None
        return cache if isinstance(cache, RadixCache) else None

    def listen(self, device: CacheListener, host: CacheListener) -> KeysOf:
        self.cache.listen(device)
        for part in self.parts:
            part.listen(host)
        return self._block_keys

    @property
    def store(self) -> Store | None:
        return None if self.storage is None else self.storage.store

    def _block_keys(self, token_ids: TokenIds) -> list[int]:
        """The keys of a prompt's pages, as the cache reports them."""
        if self.compares_pairs:
            token_ids = pairs_of(token_ids)
        keys: list[int] = BlockKeys(self.page_size).of(token_ids).tolist()
        return keys

    def new_request(
        self, prompt: Prompt, outputs: OutputTokens, conversation: str = ""
    ) -> RequestKV:
        """`conversation`: the requests of one are likely to begin with the same tokens."""
        kv = RequestKV(prompt, outputs, self.pool.empty)
        if self._remembers_turns:
            kv.turn = self._conversations.begin(conversation, prompt, self._fewer)
            kv.start = None if kv.turn is None else kv.turn.start
        for part in self.parts:
            part.join(kv)
        return kv

    # ---- prefixes ------------------------------------------------------------------------------

    def find_prefix(self, kv: RequestKV, num_tokens: int, limit: int) -> int:
        """Find the cached prefix of a request's tokens, and mark it as used.

        The request has `num_tokens` tokens, the prefix at most `limit`.

        Returns tokens found on the device, a multiple of the page size. `kv.host_len` more tokens
        are in host memory.
        """
        if not self.cache.enabled:
            return 0
        keys = self._keys(kv, num_tokens)
        match = self.cache.match(keys, max(limit - self._fewer, 0), kv.found or kv.start)
        kv.found = self.cache.touch(match)
        for part in self.parts:
            part.found(kv, match)
        return match.num_tokens

    def match_waiting(self, request: SglangRequest) -> None:
        """Match all tokens of a waiting request (rule 8); sets `prefix_len` and `matched_len`."""
        num_tokens = request.num_tokens
        request.found(self.find_prefix(request.kv, num_tokens, num_tokens))
        request.matched_len = min(request.prefix_len + request.kv.host_len, num_tokens - 1)

    def _keys(self, kv: RequestKV, num_tokens: int) -> TokenSequence:
        """What the cache compares of the first `num_tokens` tokens: these, or their pairs."""
        token_ids = kv.token_ids(num_tokens)
        return Pairs(token_ids) if self.compares_pairs else token_ids

    def lock_prefix(self, kv: RequestKV) -> None:
        """Protect the prefix that `find_prefix` found last from eviction."""
        kv.locked = kv.found or self.cache.root
        kv.protected_len = kv.locked.end
        self.cache.lock(kv.locked)
        for part in self.parts:
            part.lock(kv)

    def lock_for_transfer(self, kv: RequestKV) -> None:
        """As `lock_prefix`, for a prefix whose continuation is computed on another server."""
        self.lock_prefix(kv)
        for part in self.parts:
            part.locked_for_transfer(kv)

    def unlock_prefix(self, kv: RequestKV) -> None:
        if kv.locked is None:
            raise InvariantError("a prefix was unlocked although it was not locked")
        for part in self.parts:
            part.unlock(kv)
        self.cache.unlock(kv.locked)
        kv.locked = None
        kv.protected_len = 0

    def load_prefix(self, kv: RequestKV) -> int:
        """Load the part of the prefix that was found in host memory, and lock it too.

        The part on the device must be locked already. Pages are allocated at once; other nodes may
        be evicted for them. `kv.load_tokens` says what the load takes.

        Returns by how many tokens the prefix on the device has grown. 0: nothing was loaded,
        because it is too little, or because too few pages can be freed.
        """
        end, found = kv.found_on_host, kv.found
        if end is None or found is None:
            return 0
        cost_tokens = self._load(kv, end)
        if cost_tokens is None:
            return 0
        num_loaded = end.end - found.end
        self.lock_longer_prefix(kv, end)
        kv.load_tokens = cost_tokens
        return num_loaded

    def _load(self, kv: RequestKV, end: RadixNode) -> float | None:
        """Load the prefix that ends at a node; returns what `MemoryPart.load` returns."""
        for part in self.parts:
            part.begin_load(kv, end)
        cost_tokens = None
        for part in self.parts:
            cost_tokens = part.load(end)
            if cost_tokens is not None:
                break
        for part in self.parts:
            part.end_load(kv, end, is_loaded=cost_tokens is not None)
        return cost_tokens

    def lock_longer_prefix(self, kv: RequestKV, end: RadixNode) -> None:
        """The prefix on the device ends at this node now: lock it in place of the one before."""
        self.unlock_prefix(kv)
        kv.found = end
        self.lock_prefix(kv)
        kv.found_on_host = None

    def restore_prefix(self, kv: RequestKV, num_tokens: int) -> tuple[RadixNode, int]:
        """Load what host memory has of a request's first tokens, which were found before.

        The request keeps what it has locked and allocated meanwhile.

        `num_tokens` were found, on the device and in host memory. By now they may be loaded, or
        lost.

        Returns the node at the end of what is on the device now, and how many tokens were loaded.
        """
        keys = self._keys(kv, num_tokens + self._fewer)
        match = self.cache.match(keys, num_tokens, kv.locked)
        found = self.cache.touch(match)
        if match.host is None or self._load(kv, match.end) is None:
            return found, 0
        return match.end, match.end.end - found.end

    # ---- giving back ---------------------------------------------------------------------------

    def checkpoint(
        self,
        kv: RequestKV,
        num_tokens: int,
        *,
        prompt_len: int,
        seq_len: int,
        is_finished: bool = False,
    ) -> None:
        """Give the whole pages of the first `num_tokens` tokens to the prefix cache.

        The request keeps using these tokens: its lock moves to the new node. The node is split at
        the end of the prompt, so that an output can be evicted while its prompt stays.

        `num_tokens` tokens are computed; KV of `seq_len`, at least as many, is allocated.
        """
        # Example: 4 tokens a page, a prompt of 10 tokens, 5 outputs, num_tokens = seq_len = 15. The
        # cache had the first page before, so protected_len was 4.
        #
        #   position     0       4       8       12      16
        #   pages        |-------|-------|-------|-------|
        #   tokens       |<---- prompt ----->|<output->|
        #   before       |<cache>|<----- own pages ----->|
        #   this call            |<--- given --->|<-kept>|
        #   new nodes            |<prompt|output>|              split at floor_page(10) = 8
        #
        # given: the whole pages up to aligned = 12. The cache owns them now; protected_len is 12.
        # kept: the partial page stays the request's own. The prompt's last two tokens share a page
        # with outputs, so they belong to the output's node.
        if not self.cache.enabled:
            return
        end = num_tokens
        for part in self.parts:
            end = min(end, part.end_of_insertion(kv, num_tokens, is_finished=is_finished))
        for part in self.parts:
            part.begin_insertion(kv, end - self._fewer, is_finished=is_finished)
        aligned = self.floor_page(end - self._fewer)
        if aligned > 0:
            self._insert(kv, aligned, prompt_len, seq_len)
        elif end > 0 and self.cache.keeps_priorities:
            # Less than a page leaves its priority to what is fetched below the root, as in
            # `begin_insert` of SGLang's mem_cache/unified_cache/unified_tree_core.py.
            self.cache.note_priority(self.cache.root, kv.priority)
        for part in self.parts:
            part.end_insertion(kv, num_tokens - self._fewer, is_finished=is_finished)

    def _insert(self, kv: RequestKV, aligned: int, prompt_len: int, seq_len: int) -> None:
        """Give the pages of the first `aligned` tokens to the prefix cache."""
        self._take_reserved(kv, seq_len)
        keys = self._keys(kv, aligned + self._fewer)
        given, kept = kv.pages.split((aligned - kv.protected_len) // self.page_size)
        node, _ = self.cache.insert(keys, kv.protected_len, given, kv.locked)
        is_new = node is self.cache.new_leaf
        if not is_new:  # It is copied to host memory before it gets a state.
            self._count_use(kv, node, aligned)
        for part in self.parts:
            part.inserted(kv, node, is_new=is_new)
        if is_new:
            self._count_use(kv, node, aligned)
        else:
            self.cache.inserted_again(node)
        prompt_aligned = self.floor_page(prompt_len - self._fewer)
        has_output = self._splits_prompts and 0 < prompt_aligned < aligned
        prompt_node = node
        if has_output:
            keys = self._keys(kv, prompt_aligned + self._fewer)
            prompt_node, _ = self.cache.insert(keys, prompt_aligned, self.pool.empty, node)
        if self.cache.keeps_priorities:
            self.cache.note_priority(node, kv.priority)
            if has_output:
                self.cache.note_priority(prompt_node, min(kv.priority + 1, _MAX_PRIORITY))
        if kv.locked is not None and not self.parts:
            self.cache.move_lock(kv.locked, node)
            kv.found = kv.locked = node
            kv.protected_len = node.end
        else:
            if kv.locked is not None:
                self.unlock_prefix(kv)
            kv.found = node
            self.lock_prefix(kv)
        kv.pages = kept

    def _count_use(self, kv: RequestKV, node: RadixNode, aligned: int) -> None:
        self.cache.count_use(node, kv.counted_len)
        kv.counted_len = max(kv.counted_len, aligned)

    def release(self, kv: RequestKV, seq_len: int) -> None:
        """Free a request's own pages and unlock its prefix."""
        self._take_reserved(kv, seq_len)
        for part in self.parts:
            part.release(kv, seq_len)
        self.pool.free(kv.pages)
        kv.pages = self.pool.empty
        kv.counted_len = 0
        if kv.turn is not None and kv.found is not None:
            self._conversations.end(kv.turn, kv.found)
        self.unlock_prefix(kv)
