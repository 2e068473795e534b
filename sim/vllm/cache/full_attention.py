"""Layers with full attention: KV of all tokens is kept, and every full block can be found.

vLLM (0.33.0: `FullAttentionManager` of v1/core/single_type_kv_cache_manager.py) hashes every block
as soon as it is full. Most hashes are never looked for, so here hashing is put off: a request's
next blocks are hashed, a few at a time, when another request has found the prefix before them and
looks for what follows. Blocks are compared by their last tokens first: where prompts share nothing,
no block is hashed at all. Requests find the same blocks either way.

Example: request A fills blocks for the prefixes P1, P2, P3. Later request B has found P1 and looks
for what follows it. Only then are A's next blocks hashed; a block that has been allocated to
another request meanwhile is left out.
"""

from typing import Any

from sim.core.errors import InvariantError
from sim.core.tokens import TokenIds, TokenSequence
from sim.vllm.cache.block_pool import BlockPool, FreedGroup, HashedBlock
from sim.vllm.cache.single_type_manager import CacheRules, KVCacheSpec, SingleTypeManager
from sim.vllm.request import ANY_TOKEN, BlockTable, RequestBlocks, extend_hashes


class FullAttentionTable(BlockTable):
    """The object outlives the request: blocks keep their contents until they are allocated again.

    Of the attributes of all tables, `num_cached` counts the full blocks, found ones included.

    Attributes:
        hashes: hashes of the request's prefixes, as far as they are computed; its own list.
        num_hashed: the first `num_hashed` blocks can be found in the pool.
        full_at: for each block that the request filled, in order, the number of the decision at
            which the block became full. Blocks that the request found in the cache are left out.
    """

    def __init__(self, kv: RequestBlocks, found: list[int], number: int) -> None:
        """Start with the blocks that an admitted request found; all of them have hashes."""
        super().__init__(number)
        self.blocks = found
        self.hashes = kv.hashes
        self.num_cached = self.num_hashed = len(found)
        self.full_at: list[int] = []
        self._kv: RequestBlocks | None = kv
        # Of an ended request: its tokens from `_kept_from` on, as far as they may be hashed.
        self._kept: TokenSequence | None = None
        self._kept_from = 0
        self._freed: FreedGroup | None = None

    @property
    def parent(self) -> int:
        """Hash of the prefix that ends where the blocks without hashes start; 0: no prefix."""
        return self.hashes[self.num_hashed - 1] if self.num_hashed else 0

    def last_token(self, block_size: int) -> int:
        """The last token of the first block without a hash; `ANY_TOKEN`: it may be any."""
        if self._kv is not None:
            return self._kv.last_token(self.num_hashed, block_size)
        if self.num_intact <= self.num_hashed:
            return ANY_TOKEN
        end = (self.num_hashed + 1) * block_size
        return int(self._read(end - 1, end)[0])

    @property
    def num_intact(self) -> int:
        """How many of the full blocks, from the first on, still hold the request's tokens.

        Freed blocks are allocated again from the last to the first.
        """
        if self._freed is None:
            return self.num_cached
        return min(self.num_cached, len(self.blocks) - self._freed.num_dequeued)

    @property
    def is_freed(self) -> bool:
        return self._freed is not None

    @property
    def is_exhausted(self) -> bool:
        """No block is left to hash, and none will come."""
        return self._freed is not None and self.num_intact <= self.num_hashed

    def hash_next(self, block_size: int) -> tuple[int, int]:
        """Hash the next few full blocks; returns where they begin and end in `blocks`."""
        if self._kv is not None and self._kv.catch_up is not None:
            self._kv.catch_up()
        first, end = self.num_hashed, self.num_intact
        if first >= end:
            return first, first
        if len(self.hashes) <= first:
            extend_hashes(self.hashes, self._read, end, block_size)
        end = min(end, len(self.hashes))
        self.num_hashed = end
        if self._freed is not None:
            self._freed.num_plain = len(self.blocks) - end
        return first, end

    def origin(self, block: int) -> HashedBlock:
        """When, and by which request, one of the blocks was filled; not for found blocks."""
        num_found = self.num_cached - len(self.full_at)
        return self.full_at[self.blocks.index(block) - num_found], self.number, block

    def freed(self, group: FreedGroup, block_size: int) -> None:
        """The request has freed its blocks; the queue of free blocks has them as `group`."""
        self._freed = group
        self.keep_tokens(block_size)

    def keep_tokens(self, block_size: int) -> None:
        """The request ends, or is preempted: its tokens are kept here."""
        if self._kv is not None:
            start, end = self.num_hashed * block_size, self.num_cached * block_size
            if start < end:
                self._kept, self._kept_from = self._kv.part(start, end), start
            self._kv = None

    def _read(self, start: int, stop: int) -> TokenIds:
        if self._kv is not None:
            return self._kv.ids(start, stop)
        if self._kept is None:
            raise InvariantError(f"tokens {start} to {stop} were read, but no tokens were kept")
        return self._kept[start - self._kept_from : stop - self._kept_from]


# Exhausted entries are dropped when the index has more entries than this number plus twice the
# number that was kept the last time.
_MOST_EXHAUSTED = 256
_MOST_AT_ONCE = 64


class PrefixIndex:
    """All cached blocks of a group of layers, those without a hash included.

    Hashes are known to the pool with the group's `salt`; here they are without it.
    """

    def __init__(self, pool: BlockPool, block_size: int, salt: int) -> None:
        self._pool = pool
        self._salt = salt
        self._block_size = block_size
        # By the hash of the prefix before the blocks, then by the last token of the first of them.
        self._unhashed: dict[int, dict[int, list[FullAttentionTable]]] = {}
        self._num_unhashed = 0
        self._most_unhashed = _MOST_EXHAUSTED
        # Hashes of first blocks, salted, by their last token; those of evicted blocks included.
        self._begins: dict[int, set[int]] = {}
        self._most_begins = _MOST_EXHAUSTED

    def add(self, unhashed: FullAttentionTable) -> None:
        """Add the blocks that a request has filled or will fill."""
        by_token = self._unhashed.get(unhashed.parent)
        if by_token is None:
            by_token = self._unhashed[unhashed.parent] = {}
        token = unhashed.last_token(self._block_size)
        same = by_token.get(token)
        if same is None:
            by_token[token] = [unhashed]
        else:
            same.append(unhashed)
        self._num_unhashed += 1
        if self._num_unhashed > self._most_unhashed:
            self._drop_exhausted()

    def find(self, kv: RequestBlocks, most: int) -> list[int]:
        """The first blocks of a request's tokens, up to the first that is not cached.

        At most `most`. More of the request's hashes are computed when they are needed.
        """
        hashes, size = kv.hashes, self._block_size
        block_of_hash, unhashed = self._pool.block_of_hash, self._unhashed
        found: list[int] = []
        while len(found) < most:
            first = len(found)
            parent = hashes[first - 1] if first else 0
            if parent in unhashed:
                self._hash_after(parent, kv.last_token(first, size))
            if first == len(hashes):
                if first == 0 and not self._may_begin(kv.last_token(0, size)):
                    break
                extend_hashes(hashes, kv.ids, most, size)
            # Many at a time, up to a block that is not cached or a prefix after which to hash.
            wanted = hashes[first : min(first + _MOST_AT_ONCE, most)]
            salted = [each ^ self._salt for each in wanted] if self._salt else wanted
            blocks = list(map(block_of_hash.get, salted))
            num_found = blocks.index(None) if None in blocks else len(blocks)
            if not unhashed.keys().isdisjoint(wanted[:num_found]):
                num_found = 1 + next(i for i, end in enumerate(wanted) if end in unhashed)
            elif num_found < len(blocks):
                most = first + num_found
            found += [block for block in blocks[:num_found] if block is not None]
        return found

    def may_find_more(self, kv: RequestBlocks, num_found: int) -> bool:
        """Whether a running request may fill blocks that continue a prefix, or part of it.

        `kv` looks for the prefix, of which `find` has just found `num_found` blocks.
        """
        for index, parent in enumerate((0, *kv.hashes[:num_found])):
            by_token = self._unhashed.get(parent)
            if by_token is None:
                continue
            for token in _alike(by_token, kv.last_token(index, self._block_size)):
                if any(not each.is_freed for each in by_token.get(token, ())):
                    return True
        return False

    def _may_begin(self, token: int) -> bool:
        """Whether the first block of a request may have the hash of a cached one."""
        known = self._pool.block_of_hash.keys()
        return token == ANY_TOKEN or any(
            not known.isdisjoint(self._begins.get(each, ())) for each in (token, ANY_TOKEN)
        )

    def _hash_after(self, parent: int, last_token: int) -> None:
        """Hash the next blocks of all requests that may continue a prefix as another request does.

        `parent` is the hash of the prefix, `last_token` the other request's last token of the block
        after it.
        """
        pool, by_token = self._pool, self._unhashed[parent]
        taken = [(token, by_token.pop(token, [])) for token in _alike(by_token, last_token)]
        if not by_token:
            del self._unhashed[parent]
        self._num_unhashed -= sum([len(continuing) for _, continuing in taken])
        for token, continuing in taken:
            for unhashed in continuing:
                first, end = unhashed.hash_next(self._block_size)
                hashes, blocks = unhashed.hashes[first:end], unhashed.blocks[first:end]
                if self._salt:
                    hashes = [each ^ self._salt for each in hashes]
                pool.add_hashes(hashes, blocks, unhashed.origin, are_free=unhashed.is_freed)
                if parent == 0 and hashes:
                    self._begins.setdefault(token, set()).add(hashes[0])
                if not unhashed.is_exhausted:
                    self.add(unhashed)
        if len(self._begins) > self._most_begins:
            self._drop_evicted()

    def _drop_evicted(self) -> None:
        known = self._pool.block_of_hash.keys()
        kept = ((token, known & hashes) for token, hashes in self._begins.items())
        self._begins = {token: hashes for token, hashes in kept if hashes}
        self._most_begins = 2 * len(self._begins) + _MOST_EXHAUSTED

    def _drop_exhausted(self) -> None:
        kept: dict[int, dict[int, list[FullAttentionTable]]] = {}
        num_kept = 0
        for parent, by_token in self._unhashed.items():
            for token, same in by_token.items():
                left = [unhashed for unhashed in same if not unhashed.is_exhausted]
                if left:
                    kept.setdefault(parent, {})[token] = left
                    num_kept += len(left)
        self._unhashed = kept
        self._num_unhashed = num_kept
        self._most_unhashed = 2 * num_kept + _MOST_EXHAUSTED


def _alike(by_token: dict[int, list[FullAttentionTable]], token: int) -> list[int]:
    return list(by_token) if token == ANY_TOKEN else [token, ANY_TOKEN]


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
        num_blocks = num_tokens // self._block_size
        if len(alike) == 1:  # as in most models
            blocks = self._index.find(kv, num_blocks)
            if drops_last and blocks:
                del blocks[-1]
            return [blocks]
        found = [each.find_from(kv, 0, num_blocks) for each in alike]
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
        """No block is skipped: every token attends to all tokens before it."""

    def detach(self, kv: RequestBlocks, table: FullAttentionTable) -> None:
        if self._pool.events is not None:
            # Later the request's tokens are gone.
            self._pool.events.filled(kv, table.blocks, table.num_cached)
        table.keep_tokens(self._block_size)

    def free(self, kv: RequestBlocks, table: FullAttentionTable) -> None:
        pool, num_full = self._pool, table.num_cached
        if pool.events is not None:
            pool.events.filled(kv, table.blocks, num_full)
        if self._rules.reuses_uncached_first:
            pool.free_uncached(table.blocks[num_full:])
            del table.blocks[num_full:]
        table.freed(pool.free_in_order(table.blocks, table.num_hashed), self._block_size)
