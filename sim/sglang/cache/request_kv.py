"""What one request holds of the KV cache."""

from collections.abc import Callable

import numpy as np

from sim.core.token_sequences import (
    JoinedTokens,
    LazyTokens,
    TokenSequence,
    kept_part,
    page_key,
    prompt_part,
)
from sim.core.tokens import Prompt, TokenIds
from sim.engine.page_pool import Span
from sim.sglang.cache.radix_node import RadixNode


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
        "_key",
        "_key_start",
        "_output_ids",
        "_output_part",
        "_prompt",
        "_prompt_len",
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
        """A request that holds nothing.

        Args:
            prompt: its tokens.
            output_ids: its first so many output tokens, generated already.
            output_part: the same from one to another, to be kept; None: made of `output_ids`.
            no_pages: an empty span.
        """
        self._prompt = prompt
        self._output_ids = output_ids
        self._output_part = output_part
        self._prompt_len = len(prompt)
        # The prompt's page asked for last: a waiting request is looked up again and again.
        self._key: int | bytes = 0
        self._key_start = -1
        self.found: RadixNode | None = None
        self.found_on_host: RadixNode | None = None
        self.host_len = 0
        self.locked: RadixNode | None = None
        self.protected_len = self.counted_len = 0
        self.pages = no_pages

    def token_ids(self, num_tokens: int) -> "RequestTokens":
        """The first tokens of prompt and output so far."""
        return RequestTokens(self, num_tokens)

    def part(self, start: int, stop: int) -> TokenSequence:
        """Tokens `start` to `stop` of prompt and output so far, to be kept."""
        prompt_len = self._prompt_len
        if stop <= prompt_len:
            return prompt_part(self._prompt, start, stop)
        if self._output_part is None:
            return kept_part(self.ids(start, stop), 0, stop - start)
        output = self._output_part(max(start - prompt_len, 0), stop - prompt_len)
        if start >= prompt_len:
            return output
        return JoinedTokens(prompt_part(self._prompt, start, prompt_len), output)

    def ids(self, start: int, stop: int) -> TokenIds:
        """Tokens `start` to `stop` of prompt and output so far; int64, shape [stop - start]."""
        prompt_len = self._prompt_len
        if stop > prompt_len:
            outputs = self._output_ids(stop - prompt_len)
            if start >= prompt_len:
                return outputs[start - prompt_len :]
            return np.concatenate([self._prompt.token_ids(start, prompt_len), outputs])
        return self._prompt.token_ids(start, stop)

    def page_key(self, start: int, page_size: int) -> int | bytes:
        """What the page from `start` on is found by."""
        if start + page_size > self._prompt_len:
            return page_key(self.ids(start, start + page_size))
        if self._key_start != start:
            self._key = page_key(self._prompt.token_ids(start, start + page_size))
            self._key_start = start
        return self._key


class RequestTokens(LazyTokens):
    """A request's first tokens, expanded as slices of them are asked for."""

    __slots__ = ("_kv", "_num_tokens")

    def __init__(self, kv: RequestKV, num_tokens: int) -> None:
        self._kv = kv
        self._num_tokens = num_tokens

    def __len__(self) -> int:
        return self._num_tokens

    def __getitem__(self, part: slice, /) -> TokenIds:
        start, stop, _ = part.indices(self._num_tokens)
        return self._kv.ids(start, max(start, stop))

    def part(self, start: int, stop: int) -> TokenSequence:
        return self._kv.part(start, stop)

    def page_key(self, start: int, page_size: int) -> int | bytes:
        return self._kv.page_key(start, page_size)
