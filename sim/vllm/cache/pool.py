"""vLLM's block pool: which blocks are free, in which order they are used again, what they hold.

Follows vLLM 0.19.0 (docs/explanation/vllm.md, rules 8 to 11). A free block keeps its contents until
it is taken for something else, and is found by their hash meanwhile. Only blocks that somebody
might find are named (sim.vllm.cache.unnamed); the others belong to one request, or to nobody.
"""

from bisect import insort
from collections.abc import Iterable

from sim.vllm.cache.free_queue import FreeBlocks, FreedRun

# When a block became full, which admitted request filled it, the block.
Holder = tuple[int, int, int]


class BlockPool:
    """Blocks by number, 0 to num_blocks - 1; the null block that vLLM keeps back is none of them.

    Attributes:
        num_blocks: how many there are.
        hash_of: hash of each named block's contents.
        holders: the named blocks that hold what has a hash, the one that was full first before the
            others: vLLM does not put them together.
        unused: named blocks that nobody uses.
        other_users: of blocks that several requests use: how many but one.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.hash_of: dict[int, int] = {}
        self.unused: set[int] = set()
        self.other_users: dict[int, int] = {}
        self._free = FreeBlocks(num_blocks)
        self.holders: dict[int, list[Holder]] = {}

    @property
    def num_free_blocks(self) -> int:
        return len(self._free)

    @property
    def num_named_blocks(self) -> int:
        """Blocks that can be found; those in `hash_of`."""
        return sum(map(len, self.holders.values()))

    def free_blocks(self) -> list[int]:
        """All that are free, the next to be taken first."""
        return self._free.as_list()

    # ---- contents ------------------------------------------------------------------------------

    def find(self, content: int) -> int | None:
        """The block that holds this; of several the one that was full first."""
        holders = self.holders.get(content)
        return None if holders is None else holders[0][2]

    def name(self, content: int, holder: Holder, *, is_free: bool) -> None:
        """From now on a block is found by its contents.

        Args:
            content: what it is found by.
            holder: the block, unnamed so far; the decision that filled it; the number, in order of
                admission, of the request that it was filled for.
            is_free: nobody uses it.
        """
        block = holder[2]
        self.hash_of[block] = content
        if is_free:
            self.unused.add(block)
        holders = self.holders.get(content)
        if holders is None:
            self.holders[content] = [holder]
        else:
            insort(holders, holder)

    def _forget(self, block: int) -> None:
        content = self.hash_of.pop(block)
        self.unused.discard(block)
        holders = self.holders[content]
        if len(holders) == 1:
            del self.holders[content]
        else:
            self.holders[content] = [holder for holder in holders if holder[2] != block]

    # ---- users ---------------------------------------------------------------------------------

    def take(self, num_blocks: int) -> list[int]:
        """The free blocks whose turn it is, for one request; what they held is gone.

        Raises:
            InvariantError: there are not so many.
        """
        taken = self._free.take(num_blocks)
        if not self.hash_of.keys().isdisjoint(taken):
            for block in taken:
                if block in self.hash_of:
                    self._forget(block)
        return taken

    def num_unused(self, found: Iterable[int]) -> int:
        """How many of these named blocks are free: using them takes them off the free ones."""
        return len(self.unused.intersection(found))

    def use(self, found: Iterable[int]) -> None:
        """One more request uses these named blocks, for what they hold."""
        for block in found:
            if block in self.unused:
                self.unused.remove(block)
                self._free.remove(block)
            else:
                self.other_users[block] = self.other_users.get(block, 0) + 1

    def give_back(self, blocks: list[int], num_named: int) -> FreedRun:
        """A request uses these blocks no more; the last one is to be taken first.

        Args:
            blocks: all that it used, in order of its tokens.
            num_named: the first so many are named; others may use them too.
        """
        freed = blocks[num_named:]
        freed.reverse()
        for block in reversed(blocks[:num_named]):
            num_others = self.other_users.get(block, 0)
            if num_others > 1:
                self.other_users[block] = num_others - 1
            elif num_others:
                del self.other_users[block]
            else:
                self.unused.add(block)
                freed.append(block)
        run = FreedRun(freed)
        self._free.append(run)
        return run
