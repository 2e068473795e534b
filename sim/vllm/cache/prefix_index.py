"""Finds the blocks of a prefix, naming what is there on the way."""

from sim.vllm.cache.pool import BlockPool
from sim.vllm.cache.unnamed import Ids, UnnamedBlocks, extend_hashes

# What is over is dropped once it is many.
_MOST_OVER = 256


class PrefixIndex:
    """What blocks hold, named or not."""

    def __init__(self, pool: BlockPool, block_size: int) -> None:
        self._pool = pool
        self._block_size = block_size
        # By the hash of the prefix before them; in order of admission.
        self._unnamed: dict[int, dict[UnnamedBlocks, None]] = {}
        self._num_unnamed = 0
        self._most_unnamed = _MOST_OVER

    def add(self, unnamed: UnnamedBlocks) -> None:
        """A request will fill these."""
        self._unnamed.setdefault(unnamed.parent, {})[unnamed] = None
        self._num_unnamed += 1
        if self._num_unnamed > self._most_unnamed:
            self._drop_over()

    def find(self, hashes: list[int], ids: Ids, most: int) -> list[int]:
        """The first blocks of a sequence of tokens, up to the first that nobody holds.

        Args:
            hashes: of its prefixes as far as they were made; they grow.
            ids: its tokens from one to another.
            most: how many blocks are looked for.
        """
        holders, unnamed = self._pool.holders, self._unnamed
        found: list[int] = []
        parent = 0
        for index in range(most):
            if parent in unnamed:
                self._name_after(parent)
            if index == len(hashes):
                extend_hashes(hashes, ids, most, self._block_size)
            parent = hashes[index]
            same = holders.get(parent)
            if same is None:
                break
            found.append(same[0][2])
        return found

    def _name_after(self, parent: int) -> None:
        """Name the next blocks of all that come after a prefix."""
        pool = self._pool
        waiting = self._unnamed.pop(parent)
        self._num_unnamed -= len(waiting)
        for unnamed in waiting:
            for index in unnamed.next_names(self._block_size):
                holder = unnamed.full_since(index), unnamed.number, unnamed.blocks[index]
                pool.name(unnamed.hashes[index], holder, is_free=unnamed.are_free)
            if not unnamed.are_over:
                self.add(unnamed)

    def _drop_over(self) -> None:
        alive = [u for same in self._unnamed.values() for u in same if not u.are_over]
        self._unnamed.clear()
        self._num_unnamed = 0
        self._most_unnamed = 2 * len(alive) + _MOST_OVER
        for unnamed in alive:
            self.add(unnamed)
