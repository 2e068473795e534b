"""vLLM's block pool: which blocks are free, in which order they are used again, what they hold.

Follows vLLM 0.19.0 (docs/vllm.md, rules 8 to 11). A free block keeps its contents until it is taken
for something else, and is found by their hash meanwhile.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from sim.core.errors import InvariantError


class BlockPool:
    """Blocks by number, 0 to num_blocks - 1; the null block that vLLM keeps back is none of them.

    Attributes:
        num_blocks: how many there are.
        num_users: requests that use each block.
        hash_of: hash of each block's contents; 0: it has none.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.num_users = [0] * num_blocks
        self.hash_of = [0] * num_blocks
        # In the order in which they are taken.
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))
        # Several blocks may have the same contents: vLLM does not put them together.
        self._holders: dict[int, list[int]] = {}

    @property
    def num_free_blocks(self) -> int:
        return len(self._free)

    @property
    def num_cached_blocks(self) -> int:
        """Blocks whose contents can be found."""
        return sum(map(len, self._holders.values()))

    def free_blocks(self) -> list[int]:
        """All that are free, the next to be taken first."""
        return list(self._free)

    def find(self, hashes: Iterable[int]) -> list[int]:
        """Blocks with these contents, up to the first that is missing; the oldest of each."""
        found = []
        holders = self._holders
        for content in hashes:
            blocks = holders.get(content)
            if blocks is None:
                break
            found.append(blocks[0])
        return found

    def num_unused(self, blocks: Iterable[int]) -> int:
        """How many of these blocks are free: using them takes them off the free ones."""
        num_users = self.num_users
        return sum([not num_users[block] for block in blocks])

    def use(self, blocks: Iterable[int]) -> None:
        """One more request uses these blocks, for what they hold."""
        num_users, free = self.num_users, self._free
        for block in blocks:
            if not num_users[block]:
                del free[block]
            num_users[block] += 1

    def take(self, num_blocks: int) -> list[int]:
        """The free blocks whose turn it is, for one request; what they held is gone.

        Raises:
            InvariantError: there are not so many.
        """
        free, hash_of = self._free, self.hash_of
        if num_blocks > len(free):
            raise InvariantError(f"{num_blocks} blocks taken, {len(free)} free")
        taken = []
        for _ in range(num_blocks):
            block = free.popitem(last=False)[0]
            self.num_users[block] = 1
            if hash_of[block]:
                self._forget(block)
            taken.append(block)
        return taken

    def cache(self, blocks: Sequence[int], hashes: Sequence[int]) -> None:
        """These blocks, full now, can be found by these hashes."""
        hash_of, holders = self.hash_of, self._holders
        for block, content in zip(blocks, hashes, strict=True):
            hash_of[block] = content
            found = holders.get(content)
            if found is None:
                holders[content] = [block]
            else:
                found.append(block)

    def give_back(self, blocks: Iterable[int]) -> None:
        """A request uses these blocks no more; the first one is to be taken first."""
        num_users, free = self.num_users, self._free
        for block in blocks:
            num_users[block] -= 1
            if not num_users[block]:
                free[block] = None
            elif num_users[block] < 0:
                raise InvariantError(f"block {block} was given back twice")

    def _forget(self, block: int) -> None:
        content = self.hash_of[block]
        self.hash_of[block] = 0
        blocks = self._holders[content]
        if len(blocks) == 1:
            del self._holders[content]
        else:
            blocks.remove(block)
