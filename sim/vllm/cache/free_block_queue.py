"""The queue of free blocks, in vLLM's order but with one entry for a whole group of blocks.

A request frees hundreds of blocks at once, and most of them are allocated again in the same order.
So the queue stores the blocks that were freed together as one group. A block that a request uses
again while it is free stays in its group as a stale entry, which is skipped later.

Blocks whose contents nobody can find may go to the front of the queue instead. The last of them is
taken first, and none can be used again before.
"""

from collections import deque
from collections.abc import Collection

from sim.core.errors import InvariantError


class FreedGroup:
    """Blocks that one request freed together.

    Attributes:
        blocks: block numbers; the first is allocated first.
        num_plain: the first `num_plain` blocks have no hashes, so nobody else uses them.
        num_dequeued: entries at the front that have left the queue, stale ones included.
    """

    __slots__ = ("blocks", "num_dequeued", "num_plain")

    def __init__(self, blocks: list[int], num_plain: int = 0) -> None:
        self.blocks = blocks
        self.num_plain = num_plain
        self.num_dequeued = 0


class FreeBlockQueue:
    """The queue: blocks put first, then those never used, by number, then the groups, by age."""

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

        Returns:
            These blocks, and those of them that may have hashes.

        Raises:
            InvariantError: fewer blocks are free.
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
        """Remove free blocks that are in groups."""
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
