"""What an engine needs of a server's KV memory, whichever scheduler family decides about it."""

from collections.abc import Callable

from sim.core.token_sequences import TokenSequence
from sim.core.tokens import Prompt, TokenIds
from sim.engine.page_pool import Span
from sim.sglang.cache.request_kv import RequestKV
from sim.sglang.cache.tiered_cache import TieredRadixCache


class KVMemory:
    """A base class. Token counts are multiples of the page size.

    Attributes:
        page_size: tokens a page; a page is vLLM's block.
        num_pages: pages there are.
        host: the prefix cache, if it has a host tier.
    """

    page_size: int
    num_pages: int
    host: TieredRadixCache | None

    @property
    def num_free_pages(self) -> int:
        """Pages that can be had without evicting what `evictable_tokens` counts."""
        raise NotImplementedError

    @property
    def evictable_tokens(self) -> int:
        """Cached tokens that nobody uses, and that are not among the free ones."""
        raise NotImplementedError

    @property
    def pool_tokens(self) -> int:
        return self.num_pages * self.page_size

    @property
    def free_tokens(self) -> int:
        return self.num_free_pages * self.page_size

    def ceil_page(self, num_tokens: int) -> int:
        return -(-num_tokens // self.page_size) * self.page_size

    def floor_page(self, num_tokens: int) -> int:
        return num_tokens // self.page_size * self.page_size

    def new_request(
        self,
        prompt: Prompt,
        output_ids: Callable[[int], TokenIds],
        output_part: Callable[[int, int], TokenSequence],
    ) -> RequestKV:
        """The share of a request that holds nothing yet; see RequestKV."""
        raise NotImplementedError

    def promise_pages(self, num_pages: int) -> None:
        """Take pages off the free ones for decode steps; which rows get them shows later."""
        raise NotImplementedError

    def checkpoint(self, kv: RequestKV, num_tokens: int, *, prompt_len: int, seq_len: int) -> None:
        """The first `num_tokens` tokens are known and computed: others may find them."""
        raise NotImplementedError

    def release(self, kv: RequestKV, seq_len: int) -> None:
        """Give back what a request holds for its `seq_len` tokens."""
        raise NotImplementedError

    def spans(self, kv: RequestKV, seq_len: int) -> list[Span]:
        """The pages of a request's first `seq_len` tokens, allocated all, in order of its tokens.

        Pages promised to decode steps are handed out.
        """
        raise NotImplementedError
