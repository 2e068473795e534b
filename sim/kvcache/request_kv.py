"""What one request holds of the KV cache."""

from collections.abc import Callable

import numpy as np

from sim.core.tokens import Prompt, TokenIds
from sim.kvcache.page_pool import Span
from sim.kvcache.radix_node import RadixNode


class RequestKV:
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
        pages: own pages, those promised for decode steps but not yet redeemed left out.
    """

    __slots__ = (
        "_output_ids",
        "_prompt",
        "_prompt_ids",
        "counted_len",
        "found",
        "found_on_host",
        "host_len",
        "locked",
        "pages",
        "protected_len",
    )

    def __init__(
        self, prompt: Prompt, output_ids: Callable[[int], TokenIds], *, no_pages: Span
    ) -> None:
        self._prompt = prompt
        self._output_ids = output_ids
        self._prompt_ids: TokenIds | None = None
        self.found: RadixNode | None = None
        self.found_on_host: RadixNode | None = None
        self.host_len = 0
        self.locked: RadixNode | None = None
        self.protected_len = self.counted_len = 0
        self.pages = no_pages

    def token_ids(self, num_tokens: int) -> TokenIds:
        """The first tokens of prompt and output so far; int64, shape [num_tokens]."""
        if self._prompt_ids is None:
            self._prompt_ids = self._prompt.token_ids()
        num_outputs = num_tokens - len(self._prompt_ids)
        if num_outputs <= 0:
            return self._prompt_ids[:num_tokens]
        return np.concatenate([self._prompt_ids, self._output_ids(num_outputs)])
