"""What one request holds of vLLM's block pool."""

from collections.abc import Callable

from sim.core.token_sequences import TokenSequence
from sim.core.tokens import Prompt, TokenIds
from sim.kvcache.block_hashes import prefix_hashes
from sim.kvcache.page_pool import PageCount
from sim.kvcache.request_kv import RequestKV

_NO_PAGES = PageCount(0)


class RequestBlocks(RequestKV):
    """A request's block table. Mutable; owned by the BlockManager.

    Attributes:
        blocks: in order of its tokens, those promised for decode steps left out.
        num_cached_blocks: the first blocks, which can be found by their contents.
    """

    __slots__ = ("_hashes", "blocks", "num_cached_blocks")

    def __init__(
        self,
        prompt: Prompt,
        output_ids: Callable[[int], TokenIds],
        output_part: Callable[[int, int], TokenSequence],
    ) -> None:
        super().__init__(prompt, output_ids, output_part=output_part, no_pages=_NO_PAGES)
        self.blocks: list[int] = []
        self.num_cached_blocks = 0
        self._hashes: list[int] = []

    def hashes(self, num_blocks: int, block_size: int) -> list[int]:
        """Of the first blocks of prompt and output so far, or of a few more."""
        known = self._hashes
        num_known = len(known)
        if num_known < num_blocks:
            token_ids = self.ids(num_known * block_size, num_blocks * block_size)
            before = known[-1] if known else 0
            known += prefix_hashes(token_ids, block_size, num_known, before)
        return known
