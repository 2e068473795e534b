"""What one request holds of SGLang's KV cache."""

from collections.abc import Callable

from sim.core.token_sequences import TokenSequence
from sim.core.tokens import Prompt, TokenIds
from sim.engine.page_pool import Span
from sim.engine.request_tokens import RequestTokens
from sim.sglang.cache.radix_node import RadixNode


class RequestKV(RequestTokens):
    """One request's share. Mutable; owned by the KVCacheManager.

    A request's tokens are laid out as
    [0, protected_len) in pages of the prefix cache | [protected_len, seq_len) in pages of its own.

    Attributes:
        found: node the last match ended at, on the device; the next match starts there.
        found_on_host: node in host memory where that match's rest ended, or None.
        host_len: tokens of that rest.
        locked: node whose path this request keeps from eviction, None while it holds nothing.
        protected_len: tokens in pages of the cache; a multiple of the page size.
        counted_len: tokens whose use by this request the cache has counted.
        pages: own pages; those promised for decode steps but not yet redeemed are left out.
    """

    __slots__ = (
        "counted_len",
        "found",
        "found_on_host",
        "host_len",
        "locked",
        "pages",
        "protected_len",
    )

    def __init__(
        self,
        prompt: Prompt,
        output_ids: Callable[[int], TokenIds],
        *,
        output_part: Callable[[int, int], TokenSequence] | None = None,
        no_pages: Span,
    ) -> None:
        """A request that holds nothing: `no_pages` is an empty span; see RequestTokens."""
        super().__init__(prompt, output_ids, output_part)
        self.found: RadixNode | None = None
        self.found_on_host: RadixNode | None = None
        self.host_len = 0
        self.locked: RadixNode | None = None
        self.protected_len = self.counted_len = 0
        self.pages = no_pages
