"""A request on a vLLM server: its state, its blocks, and the hashes by which blocks are found.

A block is found by its own tokens and all tokens before them. vLLM chains cryptographic hashes:
each block's hash covers its parent's hash and its own tokens. Here a hash has 64 bits, and the
hashes of many blocks are computed at once: each block's tokens are mixed with the block's position,
and the hash of a prefix is the sum over its blocks. Two different prefixes have the same hash with
probability 2**-64. Among ten million blocks, the probability that any two collide is 3e-6.
"""

from collections.abc import Callable
from functools import cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.core.request import RequestSpec
from sim.core.tokens import (
    GOLDEN_RATIO,
    BlockPrompt,
    Prompt,
    SegmentPrompt,
    TokenIds,
    TokenSequence,
    finalise,
)
from sim.engine.records import Decision, Launch
from sim.engine.request import OutputTokens, Request, RequestTokens
from sim.engine.running_batch import RunningBatch

Hashes = NDArray[np.uint64]
BlockIds = NDArray[np.int64]

# Returns the tokens of a sequence from one position to another.
TokenReader = Callable[[int, int], TokenIds]

# The first hashes of a sequence are those of this many tokens, but at least of this many blocks.
_FIRST_TOKENS = 1024
_FIRST_BLOCKS = 8
_STEP = np.uint64(GOLDEN_RATIO)
_ONE = np.uint64(1)
_NO_HASHES: Final[Hashes] = np.empty(0, dtype=np.uint64)
NO_BLOCKS: Final[BlockIds] = np.empty(0, dtype=np.int64)


def block_ids(blocks: list[int]) -> BlockIds:
    """Block numbers as an array."""
    return np.array(blocks, dtype=np.int64)


def prefix_hashes(token_ids: TokenIds, block_size: int, first: int, before: int) -> Hashes:
    """Hashes of the prefixes that end with each of the given blocks.

    `token_ids` are of whole blocks; int64, shape [num_blocks * block_size]. `first` is the position
    of the first of them in its sequence, from 0. `before` is the hash of the prefix that ends where
    they start; 0: they start at 0.

    Returns one hash for each block. 0, which means "no prefix", comes out with probability 2**-64.
    """
    blocks = token_ids.view(np.uint64).reshape(-1, block_size)
    contents = finalise(blocks + _ONE) @ _weights(block_size)
    num_blocks = len(contents)
    # For all first blocks of a prompt at once: numpy takes longer to begin than to compute a few.
    num_places = 1 << (first + num_blocks).bit_length()
    contents ^= _places(num_places)[first : first + num_blocks]
    sums: Hashes = np.add.accumulate(finalise(contents))
    sums += np.uint64(before)
    return sums


@cache
def _places(num_blocks: int) -> Hashes:
    """A number for the place of each of the first blocks of a sequence."""
    return finalise(np.arange(1, num_blocks + 1, dtype=np.uint64) * _STEP)


@cache
def _weights(block_size: int) -> Hashes:
    """Odd multipliers, one for each token of a block."""
    return finalise(np.arange(1, block_size + 1, dtype=np.uint64) * _STEP) | np.uint64(1)


class PrefixHashes:
    """Hashes of a sequence's prefixes that end with each of its first blocks, as far as computed.

    Attributes:
        values: one for each block; uint64, shape [num_blocks].
    """

    def __init__(self) -> None:
        self.values: Hashes = _NO_HASHES

    def __len__(self) -> int:
        return len(self.values)

    def at(self, block: int) -> int:
        """The hash of the prefix that ends with a block."""
        return int(self.values[block])

    def before(self, block: int) -> int:
        """The hash of the prefix that ends where a block begins; 0: no prefix."""
        return int(self.values[block - 1]) if block else 0

    def extend(self, read_tokens: TokenReader, num_blocks: int, block_size: int) -> None:
        """Compute more hashes: a few at first, later as many as there are.

        The sequence, which `read_tokens` reads, has `num_blocks` full blocks, more than that.
        """
        first = len(self.values)
        end = min(max(2 * first, _FIRST_TOKENS // block_size, _FIRST_BLOCKS), num_blocks)
        token_ids = read_tokens(first * block_size, end * block_size)
        more = prefix_hashes(token_ids, block_size, first, self.before(first))
        self.values = np.concatenate([self.values, more]) if first else more


# Stands in a table where the layers need no block (vLLM's null block).
NULL: Final = -1
# Stands for a token that is not looked at.
ANY_TOKEN: Final = -1


def num_alike(prompt: Prompt, other: Prompt) -> int:
    """How many of the first tokens of two prompts are equal, as far as that is seen at once.

    They may have more in common.
    """
    num_equal = 0
    if isinstance(prompt, SegmentPrompt) and isinstance(other, SegmentPrompt):
        for (seed, num_tokens), (other_seed, num_others) in zip(
            prompt.segments, other.segments, strict=False
        ):
            if seed == other_seed:
                num_equal += min(num_tokens, num_others)
            if seed != other_seed or num_tokens != num_others:
                return num_equal
    elif (
        isinstance(prompt, BlockPrompt)
        and isinstance(other, BlockPrompt)
        and prompt.block_size == other.block_size
    ):
        most = min(len(prompt.block_ids), len(other.block_ids))
        differ = prompt.block_ids[:most] != other.block_ids[:most]
        first = int(differ.argmax())
        num_blocks = first if differ[first] else most
        num_equal = min(num_blocks * prompt.block_size, len(prompt), len(other))
    return num_equal


class CacheHit(NamedTuple):
    """The cached beginning of a request.

    Attributes:
        num_tokens: tokens that need not be computed.
        blocks: for each group of layers, the blocks that hold them.
        longest: tokens that the group with the longest hit alone has.
    """

    num_tokens: int
    blocks: list[BlockIds]
    longest: int


class Chunk(NamedTuple):
    """What a request computes in a step.

    Attributes:
        start: tokens whose KV it has.
        end: tokens that it needs blocks for.
        prefill_end: where its prompt ends, or its output before a preemption.
        num_ahead: those of the tokens up to `end` that only a drafter computes KV of.
    """

    start: int
    end: int
    prefill_end: int
    num_ahead: int = 0


class BlockTable:
    """A request's blocks for one group of layers. Layers of some kinds keep more there.

    Attributes:
        blocks: in order of its tokens; `NULL` where the layers need none. Without blocks that are
            only reserved for decode steps, and those that the table keeps elsewhere.
        number: the request's admission number. Of equal blocks that become full with one decision,
            the one of the smaller number is found.
        num_cached: the first `num_cached` blocks are done with: found, or cached, or not worth it.
    """

    def __init__(self, number: int) -> None:
        self.blocks: list[int] = []
        self.number = number
        self.num_cached = 0

    @property
    def num_blocks(self) -> int:
        """Places in the table."""
        return len(self.blocks)

    def blocks_from(self, place: int) -> list[int]:
        """The blocks from a place on."""
        return self.blocks[place:]


class RequestBlocks(RequestTokens):
    """A request's tokens, and its block tables. Mutable; owned by the KVCacheCoordinator.

    Attributes:
        tables: for each group of layers, its block table; empty while it is not admitted.
        hashes: hashes of the prefixes of its tokens, as far as they are computed.
        junction: tokens that it shares with earlier requests, if not all groups could go on from
            there; 0: they could. Other requests are likely to share them, too.
        prompt_len: tokens of its prompt that are computed on this server.
        catch_up: tells of the blocks that it has filled by decoding (`cache_decoded`). Called when
            another request looks for them. None: they are told of after each step.
    """

    # A block is found only if this many tokens behind it are equal, too.
    _lookahead = 0

    def __init__(self, prompt: Prompt, outputs: OutputTokens) -> None:
        super().__init__(prompt, outputs)
        self.tables: list[BlockTable] = []
        self.hashes = PrefixHashes()
        self.junction = 0
        self.prompt_len = self._prompt_len
        self.catch_up: Callable[[], None] | None = None
        # The latest result of `last_token`: a request is looked up and then admitted.
        self._last_token = ANY_TOKEN
        self._last_block = -1

    @property
    def num_left_out(self) -> int:
        """Tokens at the end of its prompt that are hashed here, but not computed."""
        return self._prompt_len - self.prompt_len

    @property
    def prompt(self) -> Prompt:
        """Its tokens without the output."""
        return self._prompt

    def take_hashes(self, hashes: PrefixHashes, prompt: Prompt, block_size: int) -> bool:
        """Take over the hashes that another request has of the same blocks of its prompt.

        Returns whether there are more of them than were known here.
        """
        num_blocks = (num_alike(self._prompt, prompt) - self._lookahead) // block_size
        if min(num_blocks, len(hashes)) <= len(self.hashes):
            return False
        self.hashes.values = hashes.values[:num_blocks]
        return True

    def hash_blocks(self, num_blocks: int, block_size: int) -> None:
        """Compute the hashes of at least the first `num_blocks` blocks; their tokens are known."""
        while len(self.hashes) < num_blocks:
            self.hashes.extend(self.ids, num_blocks, block_size)

    def behind(self, first: int, end: int) -> "RequestBlocks":
        """Its blocks from `first` to `end`, which are hashed, as if no others were before them."""
        rest = RequestBlocks(self._prompt, self._outputs)
        rest.hashes.values = self.hashes.values[first:end]
        return rest

    def last_token(self, block: int, block_size: int) -> int:
        """The last token of a block of the prompt; `ANY_TOKEN` for an output token."""
        place = (block + 1) * block_size - 1
        if place >= self._prompt_len:
            return ANY_TOKEN
        if self._last_block != block:
            self._last_token = self._prompt.token_id(place)
            self._last_block = block
        return self._last_token


def ids_behind(token_ids: TokenIds) -> TokenIds:
    """What `LookaheadBlocks` hashes of all but the last of a sequence's first tokens."""
    return np.concatenate([token_ids[1:2] ^ (token_ids[:1] << 32), token_ids[2:]])


class LookaheadBlocks(RequestBlocks):
    """The same where a block is found only if the token behind it is equal, too.

    An EAGLE drafter's KV of a block depends on that token. So each block is hashed with the tokens
    one place later, and the first token is mixed into the one after it (vLLM 0.33.0:
    `get_request_block_hasher` of v1/core/kv_cache_utils.py).
    """

    _lookahead = 1

    def ids(self, start: int, stop: int) -> TokenIds:
        if start:
            return super().ids(start + 1, stop + 1)
        return ids_behind(super().ids(0, stop + 1))

    def part(self, start: int, stop: int) -> TokenSequence:
        if start:
            return super().part(start + 1, stop + 1)
        return self.ids(start, stop)

    def last_token(self, block: int, block_size: int) -> int:
        place = (block + 1) * block_size
        if place >= self._prompt_len:
            return ANY_TOKEN
        token = self._prompt.token_id(place)
        return token ^ self._prompt.token_id(0) << 32 if place == 1 else token


class VllmRequest(Request):
    """A request on a vLLM server.

    `seq_len` is vLLM's `num_computed_tokens`: it counts on all draft tokens in flight. The counters
    from `num_drafts` on are kept for requests that are decided row by row. While a request is in
    the running batch, they follow from its counters (`sim.vllm.scheduler.decode_rows`).

    Attributes:
        kv: its tokens and its block tables.
        entry: number of its entry into the waiting queue, counted over all requests.
        admission: number of its latest admission, counted over all requests.
        fill_len: tokens that must be computed before it decodes, set at its admission.
        pulls: on a decode server: the KV of its prompt is to be fetched.
        num_drafts: draft tokens that its next decode row may verify.
        num_placeholders: under async scheduling, tokens in flight whose values are not known yet,
            draft tokens included (vLLM's `num_output_placeholders`).
        num_in_flight: tokens that the steps in flight compute for it.
        num_stale: those of them that were in flight when it was preempted.
        num_samples: steps in flight that give it a token.
        next_decode_step: under async scheduling, the number of the decision from which on it may
            decode again (vLLM's `next_decode_eligible_step`).
        padding: tokens of its current prefill step that stand for drafts.
    """

    def __init__(self, spec: RequestSpec, kv: RequestBlocks, *, limit: int) -> None:
        super().__init__(spec, limit=limit, priority=spec.priority or 0)
        self.kv = kv
        self.entry = self.admission = self.fill_len = 0
        self.pulls = False
        self.num_drafts = self.num_placeholders = self.num_samples = self.next_decode_step = 0
        self.num_in_flight = self.num_stale = self.padding = 0

    @property
    def is_prefilling(self) -> bool:
        """Some of the prompt, or of the output before a preemption, still has to be computed."""
        return self.extend_end < self.fill_len

    @property
    def prefill_end(self) -> int:
        """Where its prompt ends, or its output before a preemption."""
        return max(self.prompt_len, self.num_tokens - 1)

    def result_came(self, num_tokens: int) -> bool:
        """A step with `num_tokens` tokens of it ended; whether it was preempted since."""
        self.num_in_flight -= num_tokens
        if self.num_stale <= 0:
            return False
        self.num_stale -= num_tokens
        return True


VllmBatch = RunningBatch[VllmRequest]
VllmLaunch = Launch[VllmRequest]
VllmDecision = Decision[VllmRequest]
