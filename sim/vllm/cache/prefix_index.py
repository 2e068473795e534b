"""Finds the cached blocks of a prefix. On the way it hashes blocks that may continue the prefix."""

from sim.vllm.cache.pool import BlockPool
from sim.vllm.cache.unhashed import TokenReader, UnhashedBlocks, extend_hashes

# Exhausted entries are dropped when the index has more entries than this number plus twice the
# number that was kept the last time.
_MOST_EXHAUSTED = 256
_MOST_AT_ONCE = 64


class PrefixIndex:
    """All cached blocks of a pool, those without a hash included."""

    def __init__(self, pool: BlockPool, block_size: int) -> None:
        self._pool = pool
        self._block_size = block_size
        # By the hash of the prefix before the blocks. Each value is a set, in order of admission.
        self._unhashed: dict[int, dict[UnhashedBlocks, None]] = {}
        self._num_unhashed = 0
        self._most_unhashed = _MOST_EXHAUSTED

    def add(self, unhashed: UnhashedBlocks) -> None:
        """Add the blocks that a request has filled or will fill."""
        self._unhashed.setdefault(unhashed.parent, {})[unhashed] = None
        self._num_unhashed += 1
        if self._num_unhashed > self._most_unhashed:
            self._drop_exhausted()

    def find(self, hashes: list[int], read_tokens: TokenReader, most: int) -> list[int]:
        """The first blocks of a sequence of tokens, up to the first that is not cached.

        Args:
            hashes: hashes of the sequence's prefixes, as far as they are computed; more are
                appended when they are needed.
            read_tokens: reads the sequence's tokens.
            most: the largest number of blocks to find.
        """
        block_of_hash, unhashed = self._pool.block_of_hash, self._unhashed
        found: list[int] = []
        while len(found) < most:
            first = len(found)
            parent = hashes[first - 1] if first else 0
            if parent in unhashed:
                self._hash_after(parent)
            if first == len(hashes):
                extend_hashes(hashes, read_tokens, most, self._block_size)
            # Many at a time, up to a block that is not cached or a prefix after which to hash.
            wanted = hashes[first : min(first + _MOST_AT_ONCE, most)]
            blocks = list(map(block_of_hash.get, wanted))
            num_found = blocks.index(None) if None in blocks else len(blocks)
            if not unhashed.keys().isdisjoint(wanted[:num_found]):
                num_found = 1 + next(i for i, end in enumerate(wanted) if end in unhashed)
            elif num_found < len(blocks):
                most = first + num_found
            found += [block for block in blocks[:num_found] if block is not None]
        return found

    def may_find_more(self, found: list[int]) -> bool:
        """Whether a running request may fill blocks that continue a prefix, or part of it.

        Args:
            found: the hashes of the prefix's blocks, right after `find` has found them.
        """
        unhashed = self._unhashed
        for parent in (0, *found):
            if parent in unhashed and any(not each.is_released for each in unhashed[parent]):
                return True
        return False

    def _hash_after(self, parent: int) -> None:
        """Hash the next blocks of all requests that continue the prefix with hash `parent`."""
        pool = self._pool
        continuing = self._unhashed.pop(parent)
        self._num_unhashed -= len(continuing)
        for unhashed in continuing:
            first, end = unhashed.hash_next(self._block_size)
            hashes, blocks = unhashed.hashes[first:end], unhashed.blocks[first:end]
            pool.add_hashes(hashes, blocks, unhashed.origin, are_free=unhashed.is_released)
            if not unhashed.is_exhausted:
                self.add(unhashed)

    def _drop_exhausted(self) -> None:
        kept = [u for same in self._unhashed.values() for u in same if not u.is_exhausted]
        self._unhashed.clear()
        self._num_unhashed = 0
        self._most_unhashed = 2 * len(kept) + _MOST_EXHAUSTED
        for unhashed in kept:
            self.add(unhashed)
