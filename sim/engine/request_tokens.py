"""The tokens of a request, prompt and output so far, made only when somebody looks at them."""

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


class RequestTokens:
    """What a request's cache entries are made of. A family's KV holdings derive from this."""

    __slots__ = ("_key", "_key_start", "_output_ids", "_output_part", "_prompt", "_prompt_len")

    def __init__(
        self,
        prompt: Prompt,
        output_ids: Callable[[int], TokenIds],
        output_part: Callable[[int, int], TokenSequence] | None = None,
    ) -> None:
        """Take the sources of the tokens.

        Args:
            prompt: its tokens.
            output_ids: returns the first n output tokens, all generated already.
            output_part: returns output tokens from one position to another, to be kept; None: they
                are cut from `output_ids`.
        """
        self._prompt = prompt
        self._output_ids = output_ids
        self._output_part = output_part
        self._prompt_len = len(prompt)
        # The key asked for last: a waiting request is looked up again and again.
        self._key: int | bytes = 0
        self._key_start = -1

    def token_ids(self, num_tokens: int) -> "FirstTokens":
        """The first `num_tokens` tokens of prompt and output."""
        return FirstTokens(self, num_tokens)

    def part(self, start: int, stop: int) -> TokenSequence:
        """Tokens `start` to `stop`, to be kept."""
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
        """Tokens `start` to `stop`; int64, shape [stop - start]."""
        prompt_len = self._prompt_len
        if stop > prompt_len:
            outputs = self._output_ids(stop - prompt_len)
            if start >= prompt_len:
                return outputs[start - prompt_len :]
            return np.concatenate([self._prompt.token_ids(start, prompt_len), outputs])
        return self._prompt.token_ids(start, stop)

    def page_key(self, start: int, page_size: int) -> int | bytes:
        """The key by which a cache finds the page that begins at token `start`."""
        if start + page_size > self._prompt_len:
            return page_key(self.ids(start, start + page_size))
        if self._key_start != start:
            self._key = page_key(self._prompt.token_ids(start, start + page_size))
            self._key_start = start
        return self._key


class FirstTokens(LazyTokens):
    """The first tokens of a request, expanded as slices of them are asked for."""

    __slots__ = ("_num_tokens", "_tokens")

    def __init__(self, tokens: RequestTokens, num_tokens: int) -> None:
        self._tokens = tokens
        self._num_tokens = num_tokens

    def __len__(self) -> int:
        return self._num_tokens

    def __getitem__(self, part: slice, /) -> TokenIds:
        start, stop, _ = part.indices(self._num_tokens)
        return self._tokens.ids(start, max(start, stop))

    def part(self, start: int, stop: int) -> TokenSequence:
        return self._tokens.part(start, stop)

    def page_key(self, start: int, page_size: int) -> int | bytes:
        return self._tokens.page_key(start, page_size)
