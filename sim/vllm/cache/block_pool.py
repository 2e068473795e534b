"""vLLM's block pool: which blocks are free, and which hash each block is found by.

docs/explanation/vllm.md, rules 8 to 11, say how it works. A free block keeps its contents until
it is allocated again; until then it can be found by its hash. The pool knows the hash of a block
only once some request has looked for a prefix that may continue in that block
(sim.vllm.cache.prefix_index).
"""

from bisect import insort

import numpy as np
from numpy.typing import NDArray

from sim.core.block_keys import BlockKeys
from sim.engine.page_pool import CacheListener, CountedKeys
from sim.vllm.cache.free_blocks import FreeBlockQueue, FreedGroup
from sim.vllm.request import NO_BLOCKS, BlockIds, Hashes, RequestBlocks, block_ids


class BlockEvents:
    """Tells a listener of full blocks, and of the end of their contents.

    vLLM 0.33.0 emits BlockStored for every full block that gets a hash, and BlockRemoved when such
    a block is allocated again (`cache_full_blocks` and `_maybe_evict_cached_block` of
    v1/core/block_pool.py). Of equal blocks it reports each. Here, as behind the filter that Dynamo
    puts before its index (kv_router/publisher/dedup.rs), the first is reported stored and the last
    removed. Deliberate difference: blocks with output tokens are reported when their request ends
    or is preempted, not as they become full.
    """

    def __init__(self, listener: CacheListener, block_size: int) -> None:
        self._told = CountedKeys(listener)
        self._size = block_size
        self._keys = BlockKeys(block_size)
        self._key_of: dict[int, int] = {}

    def filled(self, kv: RequestBlocks, blocks: list[int], num_blocks: int) -> None:
        """The first `num_blocks` of a request's blocks are full."""
        key_of = self._key_of
        if not num_blocks or blocks[num_blocks - 1] in key_of:
            return
        keys: list[int] = self._keys.of(kv.ids(0, num_blocks * self._size)).tolist()
        new = []
        for block, key in zip(blocks, keys, strict=False):
            if block in key_of:
                continue
            key_of[block] = key
            new.append(key)
        self._told.add(new)

    def taken(self, blocks: list[int]) -> None:
        """Blocks are allocated: their old contents are lost."""
        keys = [self._key_of.pop(block, None) for block in blocks]
        self._told.remove([key for key in keys if key is not None])


# (number of the decision that filled the block, admission number of the request that filled it,
# block). Sorted in this order, the first of several equal blocks is the one that vLLM finds.
HashedBlock = tuple[int, int, int]


class BlockPool:
    """Blocks 0 to num_blocks - 1. The null block, which vLLM never allocates, is not counted.

    What is known of blocks is in arrays by block, with one place more, for `NULL`.

    Attributes:
        hash_of: hashes of the blocks; 0: none. uint64, shape [num_blocks + 1], as all arrays.
        block_of_hash: for each hash, the block that is found by it.
        equal_blocks: for each hash that several blocks have, all of them, sorted. vLLM does not
            merge equal blocks (there: `cached_block_hash_to_block`).
        is_second: an equal block is found instead of this one.
        extra_users: the number of users beyond the first.
        number_of: the admission number of the request that filled a block with a hash.
        path_of: of a block with a hash, the admission number of the latest request that has used
            it. What follows in its table is likely to be looked for next.
        is_waited_behind: blocks without a hash may follow (`PrefixIndex`).
        events: tells a listener of full blocks; None: nobody listens.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.hash_of: Hashes = np.zeros(num_blocks + 1, dtype=np.uint64)
        self.block_of_hash: dict[int, int] = {}
        self.equal_blocks: dict[int, list[HashedBlock]] = {}
        self.is_second: NDArray[np.bool_] = np.zeros(num_blocks + 1, dtype=np.bool_)
        self.extra_users: NDArray[np.int64] = np.zeros(num_blocks + 1, dtype=np.int64)
        self.path_of: NDArray[np.int64] = np.zeros(num_blocks + 1, dtype=np.int64)
        self.is_waited_behind: NDArray[np.bool_] = np.zeros(num_blocks + 1, dtype=np.bool_)
        self.events: BlockEvents | None = None
        self._free = FreeBlockQueue(num_blocks)
        # The number of the decision that filled a block.
        self._full_at: NDArray[np.int64] = np.zeros(num_blocks + 1, dtype=np.int64)
        self.number_of: NDArray[np.int64] = np.zeros(num_blocks + 1, dtype=np.int64)

    @property
    def num_free_blocks(self) -> int:
        return len(self._free)

    @property
    def num_hashed_blocks(self) -> int:
        num_more = sum([len(same) - 1 for same in self.equal_blocks.values()])
        return len(self.block_of_hash) + num_more

    def queued_blocks(self) -> list[int]:
        """All free blocks, in the order in which they will be allocated."""
        return self._free.as_list()

    def is_free(self, block: int) -> bool:
        return self._free.has(block)

    def queued_behind(self, block: int, most: int) -> list[int]:
        """The next free blocks behind this one in this order; see `FreeBlockQueue.behind`."""
        return self._free.behind(block, most)

    # ---- hashes --------------------------------------------------------------------------------

    def hash_at(self, block: int) -> int:
        """The hash of a block; 0: it has none."""
        return int(self.hash_of[block])

    def contents_of(self, blocks: BlockIds) -> Hashes:
        """Numbers that change if blocks get other contents, or the same ones anew."""
        contents: Hashes = self.hash_of[blocks] + self._full_at[blocks].view(np.uint64)
        return contents

    def add_hashes(
        self,
        hashes: Hashes,
        blocks: BlockIds,
        full_at: "NDArray[np.int64] | int",
        number: int,
        group: FreedGroup | None = None,
    ) -> list[tuple[int, int]]:
        """Make blocks findable by their hashes.

        `hashes` are all different; the blocks, in the same order, have none yet. They were filled
        at the decisions `full_at`, by the request with this admission number. `group`: no request
        uses the blocks, which were freed together; None: one does.

        Returns which of the blocks have a hash that another block has, by their places here, and
        that block.
        """
        self.hash_of[blocks] = hashes
        self._full_at[blocks] = full_at
        self.number_of[blocks] = self.path_of[blocks] = number
        if group is not None:
            self._free.group_of[blocks] = group.number
        found: dict[int, int] = dict(zip(hashes.tolist(), blocks.tolist(), strict=True))
        if self.block_of_hash.keys().isdisjoint(found):
            self.block_of_hash.update(found)
            return []
        equal = []
        for place, (block_hash, block) in enumerate(found.items()):
            known = self.block_of_hash.setdefault(block_hash, block)
            if known != block:
                equal.append((place, known))
                same = self.equal_blocks.get(block_hash) or [self._hashed(known)]
                insort(same, self._hashed(block))
                self._set_equal(block_hash, same)
        return equal

    def _hashed(self, block: int) -> HashedBlock:
        return int(self._full_at[block]), int(self.number_of[block]), block

    def _set_equal(self, block_hash: int, same: list[HashedBlock]) -> None:
        """Several blocks have a hash, or had: `same` are left."""
        first, before = same[0][2], self.block_of_hash[block_hash]
        self.block_of_hash[block_hash] = first
        self.is_waited_behind[first] |= self.is_waited_behind[before]
        for place, hashed in enumerate(same):
            self.is_second[hashed[2]] = place > 0
        if len(same) > 1:
            self.equal_blocks[block_hash] = same
        else:
            self.equal_blocks.pop(block_hash, None)

    def drop_hash(self, block: int) -> None:
        """A block's contents are replaced: its old hash no longer finds it."""
        if self.hash_of[block]:
            self._drop_hashes(block_ids([block]))

    def _drop_hashes(self, blocks: BlockIds) -> None:
        hashes: list[int] = self.hash_of[blocks].tolist()
        if self.equal_blocks.keys().isdisjoint(hashes):
            for block_hash in hashes:
                del self.block_of_hash[block_hash]
        else:
            self._drop_equal(hashes, blocks.tolist())
        self.hash_of[blocks] = 0
        self.is_second[blocks] = self.is_waited_behind[blocks] = False

    def _drop_equal(self, hashes: list[int], blocks: list[int]) -> None:
        for block_hash, block in zip(hashes, blocks, strict=True):
            same = self.equal_blocks.get(block_hash)
            if same is None:
                del self.block_of_hash[block_hash]
            else:
                self._set_equal(block_hash, [hashed for hashed in same if hashed[2] != block])

    # ---- users ---------------------------------------------------------------------------------

    def get_new_blocks(self, num_blocks: int) -> list[int]:
        """Allocate the first free blocks to one request; their old contents are lost.

        Raises InvariantError: fewer blocks are free.
        """
        taken, may_have_hashes = self._free.take(num_blocks)
        if len(may_have_hashes):
            hashed = may_have_hashes[self.hash_of[may_have_hashes] != 0]
            if len(hashed):
                self._drop_hashes(hashed)
        if self.events is not None:
            self.events.taken(taken)
        return taken

    def num_free(self, found: BlockIds) -> int:
        """How many of these hashed blocks are free; `touch` takes them from `num_free_blocks`."""
        return int(np.count_nonzero(self._free.group_of[found])) if len(found) else 0

    def touch(self, found: BlockIds) -> None:
        """Add one request as a user of these hashed blocks."""
        if not len(found):
            return
        groups = self._free.group_of[found]
        num_free = np.count_nonzero(groups)
        if num_free:
            self._free.remove(found if num_free == len(found) else found[groups != 0])
        if num_free < len(found):
            self.extra_users[found[groups == 0] if num_free else found] += 1

    def free_in_order(self, hashed: BlockIds, plain: list[int]) -> FreedGroup:
        """Remove one request as a user of its blocks; returns those that are free now.

        The last block will be allocated first, so that the beginning of a prompt stays findable
        longest.

        `hashed` and then `plain` are all blocks of the request, in order of its tokens; `hashed`
        have hashes, and may have other users.
        """
        return self._free.append(plain[::-1], self._without_users(hashed[::-1]))

    def free_uncached(self, blocks: list[int]) -> None:
        """Free blocks of a request that nobody can find; they will be allocated first."""
        self._free.put_first(blocks)

    def free_blocks(self, blocks: list[int], *, uncached_first: bool) -> None:
        """Remove one request as a user of blocks; the first is allocated first.

        `uncached_first`: those without hashes are allocated before all others.
        """
        freed = self._without_users(block_ids(blocks))
        if uncached_first:
            has_hash = self.hash_of[freed] != 0
            self._free.put_first(freed[~has_hash][::-1].tolist())
            freed = freed[has_hash]
        self._free.append([], freed)

    def _without_users(self, blocks: BlockIds) -> BlockIds:
        """Those of the blocks that have no other users; of the rest, one user less is counted."""
        if not len(blocks):
            return blocks
        num_extra = self.extra_users[blocks]
        num_shared = np.count_nonzero(num_extra)
        if not num_shared:
            return blocks
        if num_shared == len(blocks):
            self.extra_users[blocks] -= 1
            return NO_BLOCKS
        self.extra_users[blocks[num_extra > 0]] -= 1
        left: BlockIds = blocks[num_extra == 0]
        return left
