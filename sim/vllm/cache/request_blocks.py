"""What one request holds of vLLM's block pool."""

from collections.abc import Callable

from sim.core.token_sequences import TokenSequence
from sim.core.tokens import Prompt, TokenIds
from sim.engine.request_tokens import RequestTokens
from sim.vllm.cache.unnamed import UnnamedBlocks


class RequestBlocks(RequestTokens):
    """A request's block table. Mutable; owned by the BlockManager.

    Attributes:
        blocks: in order of its tokens, those promised for decode steps left out.
        unnamed: what it has filled itself, None while it holds nothing.
        hashes: of the prefixes of its tokens, as far as they were made.
    """

    __slots__ = ("blocks", "hashes", "unnamed")

    def __init__(
        self,
        prompt: Prompt,
        output_ids: Callable[[int], TokenIds],
        output_part: Callable[[int, int], TokenSequence],
    ) -> None:
        super().__init__(prompt, output_ids, output_part)
        self.blocks: list[int] = []
        self.unnamed: UnnamedBlocks | None = None
        self.hashes: list[int] = []

    @property
    def num_cached_blocks(self) -> int:
        """The first blocks, which can be found by their contents."""
        return 0 if self.unnamed is None else self.unnamed.num_full
