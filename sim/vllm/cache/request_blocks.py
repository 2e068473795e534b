"""The blocks of one request."""

from sim.core.tokens import Prompt
from sim.engine.request import OutputTokens, RequestTokens
from sim.vllm.cache.unhashed import ANY_TOKEN, UnhashedBlocks


class RequestBlocks(RequestTokens):
    """A request's block table. Mutable; owned by the BlockManager.

    Attributes:
        blocks: in order of its tokens, without blocks that are only promised (for decode steps).
        unhashed: its full blocks that may still have to be hashed; None while it has no blocks.
        hashes: hashes of the prefixes of its tokens, as far as they are computed.
    """

    __slots__ = ("_last_block", "_last_token", "blocks", "hashes", "unhashed")

    def __init__(self, prompt: Prompt, outputs: OutputTokens) -> None:
        super().__init__(prompt, outputs)
        self.blocks: list[int] = []
        self.unhashed: UnhashedBlocks | None = None
        self.hashes: list[int] = []
        # The latest result of `last_token`: a request is looked up and then admitted.
        self._last_token = ANY_TOKEN
        self._last_block = -1

    def last_token(self, block: int, block_size: int) -> int:
        """The last token of a block of the prompt; `ANY_TOKEN` for an output token."""
        place = (block + 1) * block_size - 1
        if place >= self._prompt_len:
            return ANY_TOKEN
        if self._last_block != block:
            self._last_token = self._prompt.token_id(place)
            self._last_block = block
        return self._last_token
