"""vLLM's block pool: which blocks are free, and which hash each block is found by.

Follows vLLM 0.19.0 (docs/explanation/vllm.md, rules 8 to 11). A free block keeps its contents until
it is allocated again; until then it can be found by its hash. The pool knows the hash of a block
only once some request has looked for a prefix that may continue in that block
(sim.vllm.cache.unhashed).
"""

from bisect import insort
from collections.abc import Iterable

from sim.vllm.cache.free_queue import FreeBlockQueue, FreedGroup
from sim.vllm.cache.unhashed import ANY_TOKEN

# (number of the decision that filled the block, admission number of the request that filled it,
# block). Sorted in this order, the first of several equal blocks is the one that vLLM finds.
HashedBlock = tuple[int, int, int]


class BlockPool:
    """Blocks 0 to num_blocks - 1. The null block, which vLLM never allocates, is not counted.

    Attributes:
        num_blocks: blocks of the pool.
        hash_of: the hash of each hashed block.
        blocks_of_hash: for each hash, the blocks that have it, sorted. Equal blocks are all kept:
            vLLM does not merge them (there: `cached_block_hash_to_block`).
        free_hashed: hashed blocks that no request uses.
        extra_users: for each block that several requests use, the number of users beyond the first.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.hash_of: dict[int, int] = {}
        self.free_hashed: set[int] = set()
        self.extra_users: dict[int, int] = {}
        self._free = FreeBlockQueue(num_blocks)
        self.blocks_of_hash: dict[int, list[HashedBlock]] = {}
        # Of each hash, the hash of the prefix before the block, and the block's first token or
        # `ANY_TOKEN`; and for how many hashes these are the same.
        self._begin_of_hash: dict[int, tuple[int, int]] = {}
        self._num_begins: dict[tuple[int, int], int] = {}

    @property
    def num_free_blocks(self) -> int:
        return len(self._free)

    @property
    def num_hashed_blocks(self) -> int:
        return sum(map(len, self.blocks_of_hash.values()))

    def free_blocks(self) -> list[int]:
        """All free blocks, in the order in which they will be allocated."""
        return self._free.as_list()

    # ---- hashes --------------------------------------------------------------------------------

    def may_continue(self, parent: int, token: int) -> bool:
        """Whether a block with a hash may continue the prefix with hash `parent` with `token`."""
        begins = self._num_begins
        return token == ANY_TOKEN or (parent, token) in begins or (parent, ANY_TOKEN) in begins

    def add_hash(
        self, block_hash: int, hashed: HashedBlock, begin: tuple[int, int], *, is_free: bool
    ) -> None:
        """Make a block findable by its hash.

        Args:
            block_hash: the hash of its contents.
            hashed: the block, with the decision and the request that filled it. It has no hash yet.
            begin: the hash of the prefix before the block, and its first token or `ANY_TOKEN`.
            is_free: no request uses the block.
        """
        block = hashed[2]
        self.hash_of[block] = block_hash
        if is_free:
            self.free_hashed.add(block)
        same = self.blocks_of_hash.get(block_hash)
        if same is None:
            self.blocks_of_hash[block_hash] = [hashed]
            self._begin_of_hash[block_hash] = begin
            self._num_begins[begin] = self._num_begins.get(begin, 0) + 1
        else:
            insort(same, hashed)

    def _drop_hash(self, block: int) -> None:
        block_hash = self.hash_of.pop(block)
        self.free_hashed.discard(block)
        same = self.blocks_of_hash[block_hash]
        if len(same) == 1:
            del self.blocks_of_hash[block_hash]
            self._drop_begin(block_hash)
        else:
            self.blocks_of_hash[block_hash] = [hashed for hashed in same if hashed[2] != block]

    def _drop_begin(self, block_hash: int) -> None:
        begin = self._begin_of_hash.pop(block_hash)
        num_same = self._num_begins[begin]
        if num_same == 1:
            del self._num_begins[begin]
        else:
            self._num_begins[begin] = num_same - 1

    # ---- users ---------------------------------------------------------------------------------

    def take(self, num_blocks: int) -> list[int]:
        """Allocate the first free blocks to one request; their old contents are lost.

        Raises:
            InvariantError: fewer blocks are free.
        """
        taken = self._free.take(num_blocks)
        if not self.hash_of.keys().isdisjoint(taken):
            for block in taken:
                if block in self.hash_of:
                    self._drop_hash(block)
        return taken

    def num_free(self, found: Iterable[int]) -> int:
        """How many of these hashed blocks are free; `use` takes them from `num_free_blocks`."""
        return len(self.free_hashed.intersection(found))

    def use(self, found: Iterable[int]) -> None:
        """Add one request as a user of these hashed blocks."""
        for block in found:
            if block in self.free_hashed:
                self.free_hashed.remove(block)
                self._free.remove(block)
            else:
                self.extra_users[block] = self.extra_users.get(block, 0) + 1

    def give_back(self, blocks: list[int], num_hashed: int) -> FreedGroup:
        """Remove one request as a user of its blocks; returns those that are free now.

        The last block will be allocated first, so that the beginning of a prompt stays findable
        longest.

        Args:
            blocks: all blocks of the request, in order of its tokens.
            num_hashed: the first `num_hashed` blocks have hashes, and may have other users.
        """
        freed = blocks[num_hashed:]
        freed.reverse()
        for block in reversed(blocks[:num_hashed]):
            num_extra = self.extra_users.get(block, 0)
            if num_extra > 1:
                self.extra_users[block] = num_extra - 1
            elif num_extra:
                del self.extra_users[block]
            else:
                self.free_hashed.add(block)
                freed.append(block)
        group = FreedGroup(freed)
        self._free.append(group)
        return group
