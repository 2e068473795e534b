"""What one request has in KV memory."""

from sim.core.tokens import Prompt
from sim.engine.page_pool import Span
from sim.engine.request import OutputTokens, RequestTokens
from sim.sglang.cache.radix_node import RadixNode


class RequestKV(RequestTokens):
    """The tokens and pages of one request. Mutable; owned by the KVCacheManager.

    The KV of the tokens [0, protected_len) is in pages of the prefix cache, that of the tokens
    [protected_len, seq_len) in the request's own pages.

    Attributes:
        found: node on the device at which the last match ended; the next match starts there.
        found_on_host: node in host memory at which the last match ended; None: it found none there.
        host_len: tokens that the last match found in host memory, after those on the device.
        locked: the request protects the path to this node from eviction; None: it has no KV.
        protected_len: tokens in pages of the cache; a multiple of the page size.
        counted_len: tokens for which the cache has counted a use by this request.
        pages: the request's own pages, without those that are only promised (for decode steps).
        priority: the request's, for eviction policy `priority`.
    """

    __slots__ = (
        "counted_len",
        "found",
        "found_on_host",
        "host_len",
        "locked",
        "pages",
        "priority",
        "protected_len",
    )

    def __init__(self, prompt: Prompt, outputs: OutputTokens, no_pages: Span) -> None:
        """A request without KV; `no_pages` is an empty span."""
        super().__init__(prompt, outputs)
        self.found: RadixNode | None = None
        self.found_on_host: RadixNode | None = None
        self.host_len = 0
        self.locked: RadixNode | None = None
        self.protected_len = self.counted_len = 0
        self.pages = no_pages
        self.priority = 0
