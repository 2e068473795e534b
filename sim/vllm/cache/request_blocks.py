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

    __slots__ = ("_token", "_token_place", "blocks", "hashes", "unhashed")

    def __init__(self, prompt: Prompt, outputs: OutputTokens) -> None:
        super().__init__(prompt, outputs)
        self.blocks: list[int] = []
        self.unhashed: UnhashedBlocks | None = None
        self.hashes: list[int] = []
        # The latest token read, and its place: a request is looked up and then admitted.
        self._token = ANY_TOKEN
        self._token_place = -1

    def first_token(self, place: int) -> int:
        """The token at a place of the prompt; `ANY_TOKEN` for an output token."""
        if place >= self._prompt_len:
            return ANY_TOKEN
        if self._token_place != place:
            self._token = self._prompt.token_id(place)
            self._token_place = place
        return self._token
