"""Token sequences whose ids are made only when they are needed, and keys of their pages.

A *stream* is an endless, reproducible sequence of token ids named by a 32-bit seed. Prompts that
begin with the same segments of streams share the tokens of those segments as a prefix, and no
more. A prefix cache compares only tokens.
"""

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

# splitmix64 makes pseudo-random numbers from counters (Steele, Lea and Flood, 2014). The step of
# the counter is 2**64 divided by the golden ratio, made odd.
GOLDEN_RATIO = 0x9E3779B97F4A7C15
_FACTOR_1, _FACTOR_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_BITS_27, _BITS_30, _BITS_31, _BITS_34 = (np.uint64(bits) for bits in (27, 30, 31, 34))
_MASK = (1 << 64) - 1


def mixed(x: int) -> int:
    """`finalise` for one number."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & _MASK
    return x ^ x >> 31


def finalise(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix every number of an array, in place; different numbers stay different.

    Each bit of a result depends on all bits of its number.
    """
    x ^= x >> _BITS_30
    x *= _FACTOR_1
    x ^= x >> _BITS_27
    x *= _FACTOR_2
    x ^= x >> _BITS_31
    return x


TokenIds = NDArray[np.int64]

_FIRST_STREAM_TOKEN = np.uint64(1000)
_INDEX_BITS = 32
_BLOCK_TOKEN_BASE = 1 << 62
_BLOCK_INDEX_BITS = 20
_NO_TOKENS = np.empty(0, dtype=np.int64)

Segments = tuple[tuple[int, int], ...]
# A stream, the index of a token in it, and how many tokens from there on are the stream's;
# `NO_STREAM`: the token is not known to be a stream's. Blocks of a trace are streams with negative
# numbers.
Place = tuple[int, int, int]
NO_STREAM: Place = (0, 0, 0)
# Of a piece with fewer tokens of a stream, a key has the tokens themselves: in two streams they may
# be equal by chance.
_FEW_TOKENS = 3

# A page by its place in a stream, by the places of its pieces, or by its tokens; see `place_key`
# and `page_key`.
PageKey = int | tuple[Place | int, ...] | bytes


class Prompt(Protocol):
    """A prompt that makes only those token ids that are asked for."""

    def __len__(self) -> int: ...

    def token_ids(self, start: int = 0, stop: int | None = None) -> TokenIds:
        """Ids `start` to `stop`, int64; `stop` is at most, and by default, the prompt's length."""
        ...

    def token_id(self, index: int) -> int:
        """The token at `index`: the same as `token_ids(index, index + 1)`, but cheaper."""
        ...

    def stream_at(self, index: int) -> Place:
        """Where the token at `index` is in a stream, and how many tokens follow it from there."""
        ...


def stream_token_ids(seed: int, start: int, stop: int) -> TokenIds:
    """Tokens `start` to `stop` of stream `seed`: `1000 + (splitmix64(seed << 32 | k) >> 34)`.

    Returns int64, shape [stop - start], values 1000 to 1000 + 2**30 - 1.
    """
    # Add Python integers: numpy warns when the sum of two scalars wraps around.
    first = (((seed & 0xFFFFFFFF) << _INDEX_BITS) + GOLDEN_RATIO + start) & _MASK
    if first + stop - start > _MASK:
        return _to_token_ids(np.arange(stop - start, dtype=np.uint64) + np.uint64(first))
    return _to_token_ids(np.arange(first, first + stop - start, dtype=np.uint64))


def stream_token_id(seed: int, index: int) -> int:
    return 1000 + (mixed(((seed & 0xFFFFFFFF) << 32) + GOLDEN_RATIO + index & _MASK) >> 34)


def stream_tokens_at(seeds: NDArray[np.int64], indices: NDArray[np.int64]) -> TokenIds:
    """Token `indices[i]` of stream `seeds[i]`; int64, shape [len(seeds)]."""
    x = seeds.astype(np.uint64) << np.uint64(_INDEX_BITS)
    x += indices.astype(np.uint64)
    x += np.uint64(GOLDEN_RATIO)
    return _to_token_ids(x)


def _to_token_ids(x: NDArray[np.uint64]) -> TokenIds:
    """Turn splitmix64's counters into token ids, in place."""
    finalise(x)
    x >>= _BITS_34
    x += _FIRST_STREAM_TOKEN
    return x.view(np.int64)


class SegmentPrompt:
    """Segments `(seed, num_tokens)`, each the first `num_tokens` tokens of stream `seed`.

    With `earlier` they follow those of that prompt.
    """

    def __init__(self, segments: Segments, earlier: "SegmentPrompt | None" = None) -> None:
        self.segments = segments
        # The segment that was asked for last, and where it begins: a prompt is looked up from its
        # beginning on, and a conversation's has a segment for each message.
        self._num_tokens = self._number = self._start = 0
        if earlier is not None:
            self.segments = earlier.segments + segments
            self._num_tokens, self._number = len(earlier), earlier._number
            self._start = earlier._start
        self._num_tokens += sum([num_tokens for _, num_tokens in segments])

    def __repr__(self) -> str:
        return f"SegmentPrompt({self.segments})"

    def __len__(self) -> int:
        return self._num_tokens

    def token_ids(self, start: int = 0, stop: int | None = None) -> TokenIds:
        stop = len(self) if stop is None else stop
        parts = []
        segment_start = 0
        for seed, num_tokens in self.segments:
            first, last = max(start - segment_start, 0), min(stop - segment_start, num_tokens)
            if first < last:
                parts.append(stream_token_ids(seed, first, last))
            segment_start += num_tokens
        return parts[0] if len(parts) == 1 else np.concatenate([_NO_TOKENS, *parts])

    def token_id(self, index: int) -> int:
        seed, place, _ = self.stream_at(index)
        return stream_token_id(seed, place)

    def stream_at(self, index: int) -> Place:
        number, start = self._number, self._start
        if index < start:
            number = start = 0
        segments = self.segments
        while number < len(segments):
            seed, num_tokens = segments[number]
            place = index - start
            if place < num_tokens:
                self._number, self._start = number, start
                return seed & 0xFFFFFFFF, place, num_tokens - place
            start += num_tokens
            number += 1
        raise IndexError(index)


class BlockPrompt:
    """Blocks of `block_size` tokens named by ids (a trace's `hash_ids`); the last may be partial.

    Two prompts agree on a block exactly when they name the same id. Ids fit 41 bits.
    """

    def __init__(self, block_ids: NDArray[np.int64], block_size: int, num_tokens: int) -> None:
        self.block_ids: Final = block_ids
        self.block_size: Final = block_size
        self.num_tokens: Final = num_tokens

    def __len__(self) -> int:
        return self.num_tokens

    def token_ids(self, start: int = 0, stop: int | None = None) -> TokenIds:
        stop = self.num_tokens if stop is None else stop
        first_block, offset = divmod(start, self.block_size)
        if stop - start <= self.block_size - offset:
            if start >= stop:
                return _NO_TOKENS
            block_id = int(self.block_ids[first_block])
            first = _BLOCK_TOKEN_BASE + (block_id << _BLOCK_INDEX_BITS) + offset
            return np.arange(first, first + stop - start, dtype=np.int64)
        last_block = -(-stop // self.block_size)
        firsts = _BLOCK_TOKEN_BASE + (self.block_ids[first_block:last_block] << _BLOCK_INDEX_BITS)
        ids = firsts[:, None] + np.arange(self.block_size, dtype=np.int64)
        return ids.ravel()[offset : offset + stop - start]

    def token_id(self, index: int) -> int:
        block, offset = divmod(index, self.block_size)
        return _BLOCK_TOKEN_BASE + (int(self.block_ids[block]) << _BLOCK_INDEX_BITS) + offset

    def stream_at(self, index: int) -> Place:
        block, offset = divmod(index, self.block_size)
        num_tokens = min(self.block_size - offset, self.num_tokens - index)
        return ~int(self.block_ids[block]), offset, num_tokens


@dataclass(frozen=True, slots=True, eq=False)
class ArrayPrompt:
    """A prompt given by its token ids."""

    ids: TokenIds

    def __len__(self) -> int:
        return len(self.ids)

    def token_ids(self, start: int = 0, stop: int | None = None) -> TokenIds:
        return self.ids[start:stop]

    def token_id(self, index: int) -> int:
        return int(self.ids[index])

    def stream_at(self, index: int) -> Place:
        return NO_STREAM


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

    def place_key(self, start: int, page_size: int) -> PageKey | None:
        """The key by place of the page that begins at `start`; see the function `place_key`."""
        return place_key(self, start, start + page_size)

    def stream_at(self, index: int) -> Place:
        return NO_STREAM


def page_key(page: TokenIds) -> int | bytes:
    """A dictionary key for a page: the token of a one-token page, else the bytes of the tokens."""
    return int(page[0]) if len(page) == 1 else page.tobytes()


def place_key(tokens: LazyTokens, start: int, stop: int) -> PageKey | None:
    """A dictionary key for a page of two tokens or more, without making its tokens.

    Pages of one size with equal keys have equal tokens, and pages with equal tokens that are all
    known to be streams' have equal keys, but for a chance of 1 in 2**60. Example: the last 2 tokens
    of stream 7, which has 100, and 62 of stream 8 give `(token 98, token 99, (8, 0, 62))`.

    Returns None if the tokens are not all known to be streams'.
    """
    pieces: list[Place | int] = []
    while start < stop:
        seed, index, num_tokens = tokens.stream_at(start)
        if num_tokens >= stop - start and not pieces:
            return seed << _INDEX_BITS | index
        if not num_tokens:
            return None
        num_tokens = min(num_tokens, stop - start)
        if seed < 0 or num_tokens >= _FEW_TOKENS:
            pieces.append((seed, index, num_tokens))
        else:
            pieces += [stream_token_id(seed, index + i) for i in range(num_tokens)]
        start += num_tokens
    return tuple(pieces)


def kept_part(token_ids: TokenSequence, start: int, stop: int) -> TokenSequence:
    """Tokens `start` to `stop` of a sequence, to be stored."""
    if isinstance(token_ids, LazyTokens):
        return token_ids.part(start, stop)
    ids = token_ids[start:stop]
    # A view keeps the whole array in memory.
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

    def page_key(self, start: int, page_size: int) -> int | bytes:
        first = self._start + start
        if page_size == 1:
            return self._prompt.token_id(first)
        return page_key(self._prompt.token_ids(first, first + page_size))

    def stream_at(self, index: int) -> Place:
        seed, place, num_tokens = self._prompt.stream_at(self._start + index)
        return seed, place, min(num_tokens, self._stop - self._start - index)


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

    def stream_at(self, index: int) -> Place:
        cut = len(self._first)
        part, index = (self._first, index) if index < cut else (self._second, index - cut)
        return part.stream_at(index) if isinstance(part, LazyTokens) else NO_STREAM


def num_common_tokens(
    tokens: TokenSequence, others: TokenSequence, start: int, num_tokens: int
) -> int | None:
    """How many of the first tokens equal those of `others` from `start` on, without making them.

    Tokens at the same place of the same stream are equal. At different places they are not, but for
    one in 2**30, so one token is made of each.

    Returns at most `num_tokens`; None: some of the tokens are not known to be a stream's.
    """
    if not (isinstance(tokens, LazyTokens) and isinstance(others, LazyTokens)):
        return None
    num_equal = 0
    while num_equal < num_tokens:
        seed, index, num_left = tokens.stream_at(num_equal)
        other_seed, other_index, num_others_left = others.stream_at(start + num_equal)
        if not (num_left and num_others_left):
            return None
        if seed == other_seed and index == other_index:
            num_equal += min(num_left, num_others_left)
        elif min(seed, other_seed) < 0 or (
            stream_token_id(seed, index) != stream_token_id(other_seed, other_index)
        ):
            return num_equal
        else:
            num_equal += 1
    return num_tokens
