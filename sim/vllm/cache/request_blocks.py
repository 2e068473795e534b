"""The blocks of one request."""

from collections.abc import Callable

from sim.core.tokens import Prompt, TokenIds, TokenSequence
from sim.engine.request import RequestTokens
from sim.vllm.cache.unhashed import UnhashedBlocks


class RequestBlocks(RequestTokens):
    """A request's block table. Mutable; owned by the BlockManager.

    Attributes:
        blocks: in order of its tokens, without blocks that are only promised (for decode steps).
        unhashed: its full blocks that may still have to be hashed; None while it has no blocks.
        hashes: hashes of the prefixes of its tokens, as far as they are computed.
    """

    __slots__ = ("blocks", "hashes", "unhashed")

    def __init__(
        self,
        prompt: Prompt,
        output_ids: Callable[[int], TokenIds],
        output_part: Callable[[int, int], TokenSequence],
    ) -> None:
        super().__init__(prompt, output_ids, output_part)
        self.blocks: list[int] = []
        self.unhashed: UnhashedBlocks | None = None
        self.hashes: list[int] = []
