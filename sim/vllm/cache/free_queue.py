"""vLLM's queue of free blocks, without a place in it for each of them.

A request gives back hundreds of blocks at once, and they are mostly taken again in that order: they
stand in the queue as one run. A block that leaves the queue from the middle leaves a void place.
"""

from collections import deque

from sim.core.errors import InvariantError


class FreedRun:
    """Blocks that were given back together.

    Attributes:
        blocks: the next to be taken first.
        num_passed: how many of them have been, or left the queue before.
    """

    __slots__ = ("blocks", "num_passed")

    def __init__(self, blocks: list[int]) -> None:
        self.blocks = blocks
        self.num_passed = 0

    @property
    def is_over(self) -> bool:
        return self.num_passed == len(self.blocks)


class FreeBlocks:
    """The queue: first the blocks never used, by number, then runs of those given back."""

    def __init__(self, num_blocks: int) -> None:
        self._num_blocks = num_blocks
        self._num_ever_used = 0
        self._num_free = num_blocks
        self._runs: deque[FreedRun] = deque()
        # Blocks that left the queue from the middle, and how many places of theirs are void.
        self._voids: dict[int, int] = {}

    def __len__(self) -> int:
        return self._num_free

    def take(self, num_blocks: int) -> list[int]:
        """The blocks whose turn it is.

        Raises:
            InvariantError: there are not so many.
        """
        if num_blocks > self._num_free:
            raise InvariantError(f"{num_blocks} blocks taken, {self._num_free} free")
        self._num_free -= num_blocks
        first = self._num_ever_used
        self._num_ever_used = min(first + num_blocks, self._num_blocks)
        taken = list(range(first, self._num_ever_used))
        while len(taken) < num_blocks:
            taken += self._pass(num_blocks - len(taken))
        return taken

    def _pass(self, num_places: int) -> list[int]:
        """Blocks of the next places, at most so many, void ones left out."""
        run = self._runs[0]
        start = run.num_passed
        passed = run.blocks[start : start + num_places]
        run.num_passed = start + len(passed)
        if run.is_over:
            self._runs.popleft()
        if self._voids and not self._voids.keys().isdisjoint(passed):
            return [block for block in passed if not self._was_void(block)]
        return passed

    def _was_void(self, block: int) -> bool:
        """Whether this place of a block is void; then there is one less."""
        num_voids = self._voids.get(block, 0)
        if num_voids > 1:
            self._voids[block] = num_voids - 1
        elif num_voids:
            del self._voids[block]
        return num_voids > 0

    def append(self, run: FreedRun) -> None:
        """Blocks are given back; none of them is in the queue."""
        if run.blocks:
            self._num_free += len(run.blocks)
            self._runs.append(run)

    def remove(self, block: int) -> None:
        """A block leaves the queue, from wherever it stands. It has been used before."""
        self._num_free -= 1
        self._voids[block] = self._voids.get(block, 0) + 1

    def as_list(self) -> list[int]:
        """All of them, the next to be taken first; for tests and checks."""
        blocks = list(range(self._num_ever_used, self._num_blocks))
        voids = dict(self._voids)
        for run in self._runs:
            for block in run.blocks[run.num_passed :]:
                if voids.get(block, 0):
                    voids[block] -= 1
                else:
                    blocks.append(block)
        return blocks
