"""vLLM's block pool: which blocks are free, and which hash each block is found by.

docs/explanation/vllm.md, rules 8 to 11, say how it works. A free block keeps its contents until
it is allocated again; until then it can be found by its hash. The pool knows the hash of a block
only once some request has looked for a prefix that may continue in that block
(sim.vllm.cache.full_attention).

A request frees hundreds of blocks at once, and most of them are allocated again in the same order.
So the queue of free blocks has one entry for all blocks that were freed together.
"""

from bisect import insort
from collections import deque
from collections.abc import Callable, Collection, Iterable

from sim.core.errors import InvariantError
from sim.core.tokens import BlockKeys
from sim.engine.page_pool import CacheListener
from sim.vllm.request import RequestBlocks


class FreedGroup:
    """Blocks that one request freed together.

    Attributes:
        blocks: block numbers; the first is allocated first.
        num_plain: the first `num_plain` blocks have no hashes, so nobody else uses them.
        num_dequeued: entries at the front that have left the queue, stale ones included.
    """

    def __init__(self, blocks: list[int], num_plain: int = 0) -> None:
        self.blocks = blocks
        self.num_plain = num_plain
        self.num_dequeued = 0


class FreeBlockQueue:
    """The queue: blocks put first, then those never used, by number, then the groups, by age.

    A block that a request uses again while it is free stays in its group as a stale entry, which is
    skipped later. Blocks whose contents nobody can find may go to the front of the queue instead.
    The last of them is taken first, and none can be used again before it is taken.
    """

    def __init__(self, num_blocks: int) -> None:
        self._num_blocks = num_blocks
        self._num_ever_used = 0
        self._num_free = num_blocks
        self._first: list[int] = []
        self._groups: deque[FreedGroup] = deque()
        # By block: how many of its entries are stale. A block that is freed, used again and freed
        # again has two entries, and the older one is stale.
        self._num_stale: dict[int, int] = {}

    def __len__(self) -> int:
        return self._num_free

    def take(self, num_blocks: int) -> tuple[list[int], list[int]]:
        """Remove the first `num_blocks` blocks of the queue.

        Returns these blocks, and those of them that may have hashes.

        Raises InvariantError: fewer blocks are free.
        """
        if num_blocks > self._num_free:
            raise InvariantError(f"{num_blocks} blocks taken, but only {self._num_free} are free")
        self._num_free -= num_blocks
        taken: list[int] = []
        if self._first and num_blocks:
            taken = self._first[-num_blocks:]
            taken.reverse()
            del self._first[-num_blocks:]
        unused = self._num_ever_used
        self._num_ever_used = min(unused + num_blocks - len(taken), self._num_blocks)
        taken += range(unused, self._num_ever_used)
        may_have_hashes: list[int] = []
        while len(taken) < num_blocks:
            group = self._groups[0]
            if group.num_dequeued < group.num_plain:
                end = min(group.num_dequeued + num_blocks - len(taken), group.num_plain)
                taken += group.blocks[group.num_dequeued : end]
                group.num_dequeued = end
            else:
                others = self._dequeue(group, num_blocks - len(taken))
                taken += others
                may_have_hashes += others
            if group.num_dequeued == len(group.blocks):
                self._groups.popleft()
        return taken, may_have_hashes

    def _dequeue(self, group: FreedGroup, max_entries: int) -> list[int]:
        """Remove up to `max_entries` entries of a group; returns those not stale."""
        start = group.num_dequeued
        entries = group.blocks[start : start + max_entries]
        group.num_dequeued = start + len(entries)
        if self._num_stale and not self._num_stale.keys().isdisjoint(entries):
            return [block for block in entries if not self._drop_stale(block)]
        return entries

    def _drop_stale(self, block: int) -> bool:
        """Returns whether this entry of a block is stale; if it is, it is no longer counted."""
        num_stale = self._num_stale.get(block, 0)
        if num_stale > 1:
            self._num_stale[block] = num_stale - 1
        elif num_stale:
            del self._num_stale[block]
        return num_stale > 0

    def append(self, group: FreedGroup) -> None:
        """Add blocks that were freed together at the end; none of them may be in the queue."""
        if group.blocks:
            self._num_free += len(group.blocks)
            self._groups.append(group)

    def put_first(self, blocks: list[int]) -> None:
        """Add blocks at the front, the last of them first; none of them may be in the queue."""
        self._num_free += len(blocks)
        self._first += blocks

    def remove(self, blocks: Collection[int]) -> None:
        """Remove free blocks that are in groups, where their entries become stale."""
        self._num_free -= len(blocks)
        for block in blocks:
            self._num_stale[block] = self._num_stale.get(block, 0) + 1

    def as_list(self) -> list[int]:
        """All free blocks in the order of the queue; for tests and checks."""
        blocks = [*reversed(self._first), *range(self._num_ever_used, self._num_blocks)]
        num_stale = dict(self._num_stale)
        for group in self._groups:
            for block in group.blocks[group.num_dequeued :]:
                if num_stale.get(block, 0):
                    num_stale[block] -= 1
                else:
                    blocks.append(block)
        return blocks


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
        self._listener = listener
        self._size = block_size
        self._keys = BlockKeys(block_size)
        self._key_of: dict[int, int] = {}
        self._num_equal: dict[int, int] = {}

    def filled(self, kv: RequestBlocks, blocks: list[int], num_blocks: int) -> None:
        """The first `num_blocks` of a request's blocks are full."""
        key_of, num_equal = self._key_of, self._num_equal
        if not num_blocks or blocks[num_blocks - 1] in key_of:
            return
        keys: list[int] = self._keys.of(kv.ids(0, num_blocks * self._size)).tolist()
        new = []
        for block, key in zip(blocks, keys, strict=False):
            if block in key_of:
                continue
            key_of[block] = key
            num_equal[key] = num_equal.get(key, 0) + 1
            if num_equal[key] == 1:
                new.append(key)
        if new:
            self._listener.stored(new)

    def taken(self, blocks: list[int]) -> None:
        """Blocks are allocated: their old contents are lost."""
        gone = []
        for block in blocks:
            key = self._key_of.pop(block, None)
            if key is None:
                continue
            self._num_equal[key] -= 1
            if not self._num_equal[key]:
                del self._num_equal[key]
                gone.append(key)
        if gone:
            self._listener.removed(gone)


# (number of the decision that filled the block, admission number of the request that filled it,
# block). Sorted in this order, the first of several equal blocks is the one that vLLM finds.
HashedBlock = tuple[int, int, int]
# Returns the `HashedBlock` of a block number.
Origin = Callable[[int], HashedBlock]


class BlockPool:
    """Blocks 0 to num_blocks - 1. The null block, which vLLM never allocates, is not counted.

    Attributes:
        block_of_hash: for each hash, the block that is found by it.
        equal_blocks: for each hash that several blocks have, all of them, sorted. vLLM does not
            merge equal blocks (there: `cached_block_hash_to_block`).
        extra_users: for each block that several requests use, the number of users beyond the first.
        events: tells a listener of full blocks; None: nobody listens.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.hash_of: dict[int, int] = {}
        self.block_of_hash: dict[int, int] = {}
        self.equal_blocks: dict[int, list[HashedBlock]] = {}
        self.free_hashed: set[int] = set()
        self.extra_users: dict[int, int] = {}
        self.events: BlockEvents | None = None
        self._free = FreeBlockQueue(num_blocks)
        self._origin_of: dict[int, Origin] = {}

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

    # ---- hashes --------------------------------------------------------------------------------

    def add_hashes(
        self, hashes: list[int], blocks: list[int], origin: Origin, *, are_free: bool
    ) -> None:
        """Make blocks findable by their hashes.

        `hashes` are all different; the blocks, in the same order, have none yet. `origin` tells
        which decision and which request filled a block. `are_free`: no request uses the blocks.
        """
        self.hash_of.update(zip(blocks, hashes, strict=True))
        self._origin_of.update(dict.fromkeys(blocks, origin))
        if are_free:
            self.free_hashed.update(blocks)
        if self.block_of_hash.keys().isdisjoint(hashes):
            self.block_of_hash.update(zip(hashes, blocks, strict=True))
            return
        for block_hash, block in zip(hashes, blocks, strict=True):
            known = self.block_of_hash.setdefault(block_hash, block)
            if known != block:
                same = self.equal_blocks.get(block_hash) or [self._origin_of[known](known)]
                insort(same, origin(block))
                self._set_equal(block_hash, same)

    def _set_equal(self, block_hash: int, same: list[HashedBlock]) -> None:
        self.block_of_hash[block_hash] = same[0][2]
        if len(same) > 1:
            self.equal_blocks[block_hash] = same
        else:
            self.equal_blocks.pop(block_hash, None)

    def drop_hash(self, block: int) -> None:
        """A block's contents are replaced: its old hash no longer finds it."""
        if block in self.hash_of:
            self._drop_hashes([block])

    def _drop_hashes(self, blocks: list[int]) -> None:
        hashes = [self.hash_of.pop(block) for block in blocks]
        for block in blocks:
            del self._origin_of[block]
        self.free_hashed.difference_update(blocks)
        if self.equal_blocks.keys().isdisjoint(hashes):
            for block_hash in hashes:
                del self.block_of_hash[block_hash]
            return
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
        if may_have_hashes and not self.hash_of.keys().isdisjoint(may_have_hashes):
            self._drop_hashes([block for block in may_have_hashes if block in self.hash_of])
        if self.events is not None:
            self.events.taken(taken)
        return taken

    def num_free(self, found: Iterable[int]) -> int:
        """How many of these hashed blocks are free; `touch` takes them from `num_free_blocks`."""
        return len(self.free_hashed.intersection(found))

    def touch(self, found: list[int]) -> None:
        """Add one request as a user of these hashed blocks."""
        free = self.free_hashed.intersection(found)
        if free:
            self.free_hashed -= free
            self._free.remove(free)
        if len(free) < len(found):
            for block in found:
                if block not in free:
                    self.extra_users[block] = self.extra_users.get(block, 0) + 1

    def free_in_order(self, blocks: list[int], num_hashed: int) -> FreedGroup:
        """Remove one request as a user of its blocks; returns those that are free now.

        The last block will be allocated first, so that the beginning of a prompt stays findable
        longest.

        `blocks` are all of the request, in order of its tokens; the first `num_hashed` have hashes,
        and may have other users.
        """
        freed, hashed = blocks[num_hashed:], blocks[:num_hashed]
        freed.reverse()
        hashed.reverse()
        if not self.extra_users.keys().isdisjoint(hashed):
            hashed = [block for block in hashed if not self._drop_extra_user(block)]
        self.free_hashed.update(hashed)
        freed += hashed
        group = FreedGroup(freed, len(blocks) - num_hashed)
        self._free.append(group)
        return group

    def free_uncached(self, blocks: list[int]) -> None:
        """Free blocks of a request that nobody can find; they will be allocated first."""
        self._free.put_first(blocks)

    def free_blocks(self, blocks: list[int], *, uncached_first: bool) -> None:
        """Remove one request as a user of blocks; the first is allocated first.

        `uncached_first`: those without hashes are allocated before all others.
        """
        if self.extra_users:
            blocks = [block for block in blocks if not self._drop_extra_user(block)]
        hashed = [block for block in blocks if block in self.hash_of]
        self.free_hashed.update(hashed)
        if not uncached_first:
            self._free.append(FreedGroup(blocks))
            return
        if len(hashed) < len(blocks):
            others = [block for block in blocks if block not in self.hash_of]
            others.reverse()
            self._free.put_first(others)
        self._free.append(FreedGroup(hashed))

    def _drop_extra_user(self, block: int) -> bool:
        """Returns whether the block has other users; if it has, one user less is counted."""
        num_extra = self.extra_users.get(block, 0)
        if num_extra > 1:
            self.extra_users[block] = num_extra - 1
        elif num_extra:
            del self.extra_users[block]
        return num_extra > 0
