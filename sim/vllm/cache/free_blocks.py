"""The queue of vLLM's free blocks (docs/explanation/vllm.md, rules 8 to 11).

A request frees hundreds of blocks at once, and most of them are allocated again in the same order.
So the queue has one entry for all blocks that were freed together.
"""

from collections import deque

import numpy as np
from numpy.typing import NDArray

from sim.core.errors import InvariantError
from sim.vllm.request import NO_BLOCKS, BlockIds, block_ids

# So many entries of a group are looked at together, because most of them may be stale.
_MANY_ENTRIES = 256


class FreedGroup:
    """Blocks that one request freed together, those without hashes before the others.

    Attributes:
        number: groups are numbered by age, from 1.
        plain: blocks that had no hash when they were freed; the first is allocated first.
        num_plain: the first `num_plain` of them still have none, so nobody else uses them.
        hashed: the others, behind them.
        num_dequeued: entries at the front that have left the queue, stale ones included.
    """

    def __init__(self, number: int, plain: list[int], hashed: BlockIds) -> None:
        self.number = number
        self.plain = plain
        self.num_plain = len(plain)
        self.hashed = hashed
        self.num_dequeued = 0
        self._rest: BlockIds | None = None

    def __len__(self) -> int:
        return len(self.plain) + len(self.hashed)

    def rest(self) -> BlockIds:
        """The entries behind the first `num_plain`."""
        if self.num_plain == len(self.plain):
            return self.hashed
        return np.concatenate([block_ids(self.plain[self.num_plain :]), self.hashed])

    def dequeue_rest(self, group_of: NDArray[np.int64], num_blocks: int) -> BlockIds:
        """Remove up to `num_blocks` of these entries, and the stale ones on the way.

        All before them are gone. `group_of`: see `FreeBlockQueue`.
        """
        if self._rest is None:
            self._rest = self.rest()
        start = self.num_dequeued - self.num_plain
        entries = self._rest[start : start + max(_MANY_ENTRIES, num_blocks)]
        places = (group_of[entries] == self.number).nonzero()[0]
        if len(places) > num_blocks:
            places = places[:num_blocks]
            self.num_dequeued += int(places[-1]) + 1
        else:
            self.num_dequeued += len(entries)
        blocks: BlockIds = entries[places]
        return blocks


class FreeBlockQueue:
    """The queue: blocks put first, then those never used, by number, then the groups, by age.

    A block that a request uses again while it is free stays in its group as a stale entry, which is
    skipped later. Blocks whose contents nobody can find may go to the front of the queue instead.
    The last of them is taken first, and none can be used again before it is taken.

    Attributes:
        group_of: by block, the number of the group in which it is free; 0: it is in none, or has no
            hash. One place more, for `NULL`.
    """

    def __init__(self, num_blocks: int) -> None:
        self.group_of: NDArray[np.int64] = np.zeros(num_blocks + 1, dtype=np.int64)
        self._num_blocks = num_blocks
        self._num_ever_used = 0
        self._num_free = num_blocks
        self._first: list[int] = []
        self._groups: deque[FreedGroup] = deque()
        self._num_groups = 0

    def __len__(self) -> int:
        return self._num_free

    def take(self, num_blocks: int) -> tuple[list[int], BlockIds]:
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
        may_have_hashes = NO_BLOCKS
        while len(taken) < num_blocks:
            group = self._groups[0]
            if group.num_dequeued < group.num_plain:
                end = min(group.num_dequeued + num_blocks - len(taken), group.num_plain)
                taken += group.plain[group.num_dequeued : end]
                group.num_dequeued = end
            else:
                others = group.dequeue_rest(self.group_of, num_blocks - len(taken))
                self.group_of[others] = 0
                taken += others.tolist()
                may_have_hashes = (
                    np.concatenate([may_have_hashes, others]) if len(may_have_hashes) else others
                )
            if group.num_dequeued == len(group):
                self._groups.popleft()
        return taken, may_have_hashes

    def append(self, plain: list[int], hashed: BlockIds) -> FreedGroup:
        """Add blocks that were freed together at the end; none of them may be in the queue.

        `plain` have no hashes, and come first.
        """
        self._num_groups += 1
        group = FreedGroup(self._num_groups, plain, hashed)
        if len(group):
            self._num_free += len(group)
            self.group_of[hashed] = group.number
            self._groups.append(group)
        return group

    def put_first(self, blocks: list[int]) -> None:
        """Add blocks at the front, the last of them first; none of them may be in the queue."""
        self._num_free += len(blocks)
        self._first += blocks

    def remove(self, blocks: BlockIds) -> None:
        """Remove free blocks with hashes, whose entries in their groups become stale."""
        self._num_free -= len(blocks)
        self.group_of[blocks] = 0

    def as_list(self) -> list[int]:
        """All free blocks in the order of the queue; for tests and checks."""
        blocks = [*reversed(self._first), *range(self._num_ever_used, self._num_blocks)]
        for group in self._groups:
            blocks += group.plain[group.num_dequeued : group.num_plain]
            entries = group.rest()[max(group.num_dequeued - group.num_plain, 0) :]
            blocks += entries[self.group_of[entries] == group.number].tolist()
        return blocks

    def has(self, block: int) -> bool:
        """Whether a block is free."""
        if self.group_of[block]:
            return True
        return block >= self._num_ever_used or block in self._first

    def behind(self, block: int, most: int) -> list[int]:
        """The next free blocks behind a free one, at most `most`; `NULL`: from the front."""
        number, unused = int(self.group_of[block]), self._num_ever_used
        found: list[int] = []
        if not number:
            if block >= unused:
                unused = block + 1
            else:
                found = self._first[::-1]
                if block in found:
                    del found[: found.index(block) + 1]
            found += range(unused, min(self._num_blocks, unused + max(most - len(found), 0)))
        stale: set[FreedGroup] = set()
        for group in self._from(number):
            if len(found) >= most:
                break
            entries = group.rest()[max(group.num_dequeued - group.num_plain, 0) :]
            queued: list[int] = entries[self.group_of[entries] == group.number].tolist()
            if not queued:
                stale.add(group)
            found += queued[queued.index(block) + 1 :] if group.number == number else queued
        if stale:
            self._groups = deque([group for group in self._groups if group not in stale])
        return found[:most]

    def _from(self, number: int) -> list[FreedGroup]:
        """The groups from this one on."""
        groups: list[FreedGroup] = []
        for group in reversed(self._groups):
            if group.number < number:
                break
            groups.append(group)
        groups.reverse()
        return groups
