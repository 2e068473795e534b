"""Which blocks a decision gives to requests; of other requests it is noted that they lose them."""

from collections.abc import Iterable, Sequence

from sim.vllm.offload.offloaded import Offloaded
from sim.vllm.offload.search import OffloadGroup
from sim.vllm.request import NULL


class GivenBlocks:
    """Blocks that one decision has given to requests.

    Attributes:
        blocks: their numbers.
    """

    def __init__(self, groups: Sequence[OffloadGroup], blocks_per_chunk: int) -> None:
        """`groups`: the groups of layers whose chunks are offered."""
        self.blocks: set[int] = set()
        self._windows = [group.number for group in groups if group.is_sparse]
        self._blocks_per_chunk = blocks_per_chunk

    def note(self, scheduled: Sequence[Offloaded], others: Iterable[Offloaded]) -> None:
        """Note which blocks these requests have got, and that others have lost some to them."""
        given: list[tuple[list[int], list[int]]] = []
        for state in scheduled:
            for known, table in zip(state.blocks, state.request.kv.tables, strict=True):
                num_known = len(known)
                if table.num_blocks > num_known:
                    new = table.blocks_from(num_known)
                    given.append((known, new))
                    self.blocks.update(new)
        self.blocks.discard(NULL)
        if self._windows and self.blocks:
            for state in others:
                self._take_from(state)
        for known, found in given:
            known.extend(found)

    def _take_from(self, state: Offloaded) -> None:
        """A window that moves on leaves blocks behind, which another request may have got now."""
        for number in self._windows:
            blocks = state.blocks[number]
            for place in range(state.next_chunks[number] * self._blocks_per_chunk, len(blocks)):
                if blocks[place] in self.blocks:
                    blocks[place] = NULL
