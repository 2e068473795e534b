"""Finds the cached blocks of a prefix. On the way it hashes blocks that may continue the prefix.

Blocks are compared by their first tokens before they are hashed: where prompts share nothing, no
block is hashed at all.
"""

from sim.vllm.cache.pool import BlockPool
from sim.vllm.cache.request_blocks import RequestBlocks
from sim.vllm.cache.unhashed import ANY_TOKEN, UnhashedBlocks, extend_hashes

# Exhausted entries are dropped when the index has more entries than this number plus twice the
# number that was kept the last time.
_MOST_EXHAUSTED = 256


class PrefixIndex:
    """All cached blocks of a pool, those without a hash included."""

    def __init__(self, pool: BlockPool, block_size: int) -> None:
        self._pool = pool
        self._block_size = block_size
        # By the hash of the prefix before the blocks, then by the first token of the blocks.
        self._unhashed: dict[int, dict[int, list[UnhashedBlocks]]] = {}
        self._num_unhashed = 0
        self._most_unhashed = _MOST_EXHAUSTED

    def add(self, unhashed: UnhashedBlocks) -> None:
        """Add the blocks that a request has filled or will fill."""
        by_token = self._unhashed.get(unhashed.parent)
        if by_token is None:
            by_token = self._unhashed[unhashed.parent] = {}
        token = unhashed.first_token(self._block_size)
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

        Args:
            kv: the request. More of its hashes are computed when they are needed.
            most: the largest number of blocks to find.
        """
        pool, hashes, size = self._pool, kv.hashes, self._block_size
        found: list[int] = []
        parent = 0
        for index in range(most):
            if parent in self._unhashed:
                self._hash_after(parent, kv.first_token(index * size))
            if index == len(hashes):
                if not pool.may_continue(parent, kv.first_token(index * size)):
                    break
                extend_hashes(hashes, kv.ids, most, size)
            parent = hashes[index]
            same = pool.blocks_of_hash.get(parent)
            if same is None:
                break
            found.append(same[0][2])
        return found

    def _hash_after(self, parent: int, token: int) -> None:
        """Hash the next blocks of all requests that continue a prefix with a token.

        Args:
            parent: hash of the prefix.
            token: the token, or `ANY_TOKEN`.
        """
        by_token = self._unhashed[parent]
        tokens = list(by_token) if token == ANY_TOKEN else [token, ANY_TOKEN]
        continuing = [each for one in tokens for each in by_token.pop(one, ())]
        if not by_token:
            del self._unhashed[parent]
        self._num_unhashed -= len(continuing)
        for unhashed in continuing:
            self._hash_next(unhashed)
            if not unhashed.is_exhausted:
                self.add(unhashed)

    def _hash_next(self, unhashed: UnhashedBlocks) -> None:
        pool = self._pool
        parent, token = unhashed.parent, unhashed.first_token(self._block_size)
        for index in unhashed.hash_next(self._block_size):
            decision = unhashed.decision_that_filled(index)
            hashed = decision, unhashed.number, unhashed.blocks[index]
            block_hash = unhashed.hashes[index]
            pool.add_hash(block_hash, hashed, (parent, token), is_free=unhashed.is_released)
            parent, token = block_hash, ANY_TOKEN

    def _drop_exhausted(self) -> None:
        kept: dict[int, dict[int, list[UnhashedBlocks]]] = {}
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
