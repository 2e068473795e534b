"""Finds the cached blocks of a prefix. On the way it hashes blocks that may continue the prefix.

Blocks are compared by their last tokens before they are hashed: where prompts share nothing, no
block is hashed at all.
"""

from sim.vllm.cache.block_hashes import extend_hashes
from sim.vllm.cache.block_pool import BlockPool
from sim.vllm.cache.full_attention_table import FullAttentionTable
from sim.vllm.cache.request_blocks import ANY_TOKEN, RequestBlocks

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

        Args:
            kv: the request. More of its hashes are computed when they are needed.
            most: the largest number of blocks to find.
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

        Args:
            kv: the request that looks for the prefix.
            num_found: blocks that `find` has just found.
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

        Args:
            parent: hash of the prefix.
            last_token: the other request's last token of the block after the prefix.
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
    """The tokens that may be the same as `token`."""
    return list(by_token) if token == ANY_TOKEN else [token, ANY_TOKEN]
