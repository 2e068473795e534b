"""Sequences of tokens that are cut and kept without being expanded."""

from typing import Protocol

import numpy as np

from sim.core.tokens import ArrayPrompt, Prompt, TokenIds


class TokenSequence(Protocol):
    """Token ids that may be made only when a slice is asked for; an array is one."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> TokenIds: ...


class LazyTokens:
    """Base of sequences that know their tokens without having them.

    Not an abstract base class: each look-up in the cache asks whether tokens are lazy, and of those
    `isinstance` takes several times as long.
    """

    def __len__(self) -> int:
        raise NotImplementedError

    def __getitem__(self, part: slice, /) -> TokenIds:
        raise NotImplementedError

    def part(self, start: int, stop: int) -> TokenSequence:
        """Tokens `start` to `stop`, to be kept: not expanded if that can be left for later."""
        raise NotImplementedError

    def page_key(self, start: int, page_size: int) -> int | bytes:
        """What the page from `start` on is found by: see `page_key`."""
        return page_key(self[start : start + page_size])


def page_key(page: TokenIds) -> int | bytes:
    """Equal for equal pages: the token of a page of one, else the tokens' bytes."""
    return int(page[0]) if len(page) == 1 else page.tobytes()


def kept_part(token_ids: TokenSequence, start: int, stop: int) -> TokenSequence:
    """Tokens `start` to `stop` of a sequence, in no more memory than they need."""
    if isinstance(token_ids, LazyTokens):
        return token_ids.part(start, stop)
    ids = token_ids[start:stop]
    # A small view would keep the whole array.
    is_small = isinstance(ids.base, np.ndarray) and ids.base.size > 2 * ids.size
    return ids.copy() if is_small else ids


class PromptPart(LazyTokens):
    """Tokens `start` to `stop` of a prompt."""

    __slots__ = ("_prompt", "_start", "_stop")

    def __init__(self, prompt: Prompt, start: int, stop: int) -> None:
        self._prompt = prompt
        self._start = start
        self._stop = stop

    def __len__(self) -> int:
        return self._stop - self._start

    def __getitem__(self, part: slice, /) -> TokenIds:
        start, stop, _ = part.indices(self._stop - self._start)
        return self._prompt.token_ids(self._start + start, self._start + max(start, stop))

    def part(self, start: int, stop: int) -> TokenSequence:
        return PromptPart(self._prompt, self._start + start, self._start + stop)


def prompt_part(prompt: Prompt, start: int, stop: int) -> TokenSequence:
    """Tokens `start` to `stop` of a prompt, to be kept; expanded now only if they exist already."""
    if isinstance(prompt, ArrayPrompt):
        return kept_part(prompt.ids, start, stop)
    return PromptPart(prompt, start, stop)


class JoinedTokens(LazyTokens):
    """One sequence after the other."""

    __slots__ = ("_first", "_second")

    def __init__(self, first: TokenSequence, second: TokenSequence) -> None:
        self._first = first
        self._second = second

    def __len__(self) -> int:
        return len(self._first) + len(self._second)

    def __getitem__(self, part: slice, /) -> TokenIds:
        start, stop, _ = part.indices(len(self))
        cut = len(self._first)
        if stop <= cut:
            return self._first[start:stop]
        second = self._second[max(start - cut, 0) : stop - cut]
        return second if start >= cut else np.concatenate([self._first[start:], second])

    def part(self, start: int, stop: int) -> TokenSequence:
        cut = len(self._first)
        if stop <= cut:
            return kept_part(self._first, start, stop)
        second = kept_part(self._second, max(start - cut, 0), stop - cut)
        return second if start >= cut else JoinedTokens(kept_part(self._first, start, cut), second)
