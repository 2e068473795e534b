"""Token sequences that can be cut and stored without making their token ids."""

from typing import Protocol

import numpy as np

from sim.core.tokens import ArrayPrompt, Prompt, TokenIds


class TokenSequence(Protocol):
    """Token ids, which may be made only when a slice is asked for. A numpy array is one, too."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> TokenIds: ...


class LazyTokens:
    """Base class of sequences that make their token ids on demand.

    It is not an abstract base class (ABC): each cache look-up calls `isinstance` with it, which
    takes several times longer for an ABC.
    """

    def __len__(self) -> int:
        raise NotImplementedError

    def __getitem__(self, part: slice, /) -> TokenIds:
        raise NotImplementedError

    def part(self, start: int, stop: int) -> TokenSequence:
        """Tokens `start` to `stop`, to be stored; still lazy if possible."""
        raise NotImplementedError

    def page_key(self, start: int, page_size: int) -> int | bytes:
        """The key of the page that begins at `start`; see the function `page_key`."""
        return page_key(self[start : start + page_size])


def page_key(page: TokenIds) -> int | bytes:
    """A dictionary key for a page: the token of a one-token page, else the bytes of the tokens."""
    return int(page[0]) if len(page) == 1 else page.tobytes()


def kept_part(token_ids: TokenSequence, start: int, stop: int) -> TokenSequence:
    """Tokens `start` to `stop` of a sequence, to be stored: they keep no larger array alive."""
    if isinstance(token_ids, LazyTokens):
        return token_ids.part(start, stop)
    ids = token_ids[start:stop]
    # A small view would keep the whole array in memory.
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
    """Tokens `start` to `stop` of a prompt, to be stored; lazy unless the prompt is an array."""
    if isinstance(prompt, ArrayPrompt):
        return kept_part(prompt.ids, start, stop)
    return PromptPart(prompt, start, stop)


class JoinedTokens(LazyTokens):
    """Two sequences as one: the second follows the first."""

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
