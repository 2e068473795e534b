"""The blocks that each request of a workload looks up and leaves in a cache, as numbers."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, merge
from itertools import count
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from sim.core.arrays import Int64
from sim.core.errors import InputError
from sim.core.tokens import GOLDEN_RATIO, ArrayPrompt, BlockPrompt, Prompt, SegmentPrompt, finalise
from sim.workload.senders import ClientSender
from sim.workload.workload import ScriptedRequest, Workload

# Of prompts that are not given by a trace's blocks: vLLM's.
_BLOCK_SIZE = 16
# Each takes 140 bytes of memory while a curve is computed.
MAX_BLOCKS = 50_000_000

_UInt64 = NDArray[np.uint64]
_GOLDEN = np.uint64(GOLDEN_RATIO)
_BITS_32 = np.uint64(32)


@dataclass(frozen=True, slots=True)
class ReadBlocks:
    """The blocks of all requests, in the order in which the requests look them up.

    Attributes:
        keys: names of full blocks, request by request, each from its first block on. Two blocks
            have equal names if their tokens and all before them are equal; by chance, others have
            with a probability of 2**-64.
        offsets: request i has blocks `offsets[i]` to `offsets[i + 1]`: prompt and answer.
        findable: how many of a request's blocks it may find. The block of a prompt's last token is
            not among them: engines always compute that token.
        prompt_tokens: of the requests that count; 0 for warm-up requests, with nothing findable.
        block_size: tokens of a block.
    """

    keys: _UInt64
    offsets: Int64
    findable: Int64
    prompt_tokens: Int64
    block_size: int


def block_size_of(prompt: Prompt) -> int:
    """The size of the blocks by which a trace gives a prompt; 16 tokens of other prompts."""
    return prompt.block_size if isinstance(prompt, BlockPrompt) else _BLOCK_SIZE


def request_blocks(workload: Workload, block_size: int | None) -> ReadBlocks:
    """The blocks of a workload; `block_size` None: that of its first prompt.

    Segments are compared by seed and blocks of a trace by id, without making tokens, unless some
    prompts are given by token ids: then all are compared by tokens.

    Raises:
        InputError: there are more than `MAX_BLOCKS`.
    """
    if block_size is None:
        first = next(in_time_order(workload), None)
        block_size = _BLOCK_SIZE if first is None else block_size_of(first.spec.prompt)
    named = _Pieces(block_size)
    for request in in_time_order(workload):
        if not named.add(request):
            break
    else:
        return named.blocks()
    by_tokens = _Pieces(block_size)
    for request in in_time_order(workload):
        by_tokens.add_tokens(request)
    return by_tokens.blocks()


def in_time_order(workload: Workload) -> Iterator[ScriptedRequest]:
    """All requests in the order in which they are sent if answers take no time.

    The phases of a benchmark come last.
    """
    due = ((request.spec.arrival_ns, request) for request in workload.arrivals())
    yield from (request for _, request in merge(due, _of_clients(workload), key=itemgetter(0)))
    for phase in workload.phases:
        yield from (turn.request for turn in phase.turns)


def _of_clients(workload: Workload) -> Iterator[tuple[int, ScriptedRequest]]:
    sender, serial = ClientSender(workload), count()
    due = [(first.spec.arrival_ns, next(serial), first) for first in sender.begin()]
    heapify(due)
    while due:
        at_ns, _, request = heappop(due)
        yield at_ns, request
        for following in sender.over(request.spec.rid, at_ns):
            heappush(due, (following.spec.arrival_ns, next(serial), following))


class _Pieces:
    """The requests' tokens as pieces of named streams, which grow while requests are added."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._names, self._lengths = array("q"), array("q")
        self._ends, self._prompts, self._findable = array("q"), array("q"), array("q")

    def add(self, request: ScriptedRequest) -> bool:
        """Take a request by the names of its parts; returns False if it is given by token ids."""
        prompt, script = request.spec.prompt, request.script
        if isinstance(prompt, ArrayPrompt) or len(script.known_ids):
            return False
        if isinstance(prompt, BlockPrompt):
            # Ids become negative, so that none is equal to the seed of a segment.
            self._names.frombytes((~prompt.block_ids).tobytes())
            num_blocks = len(prompt.block_ids)
            last = len(prompt) - (num_blocks - 1) * prompt.block_size
            self._lengths.extend([prompt.block_size] * (num_blocks - 1))
            self._lengths.append(last)
        elif isinstance(prompt, SegmentPrompt):
            for seed, num_tokens in prompt.segments:
                if num_tokens:
                    self._names.append(seed & 0xFFFFFFFF)
                    self._lengths.append(num_tokens)
        else:
            return False
        num_answer = _num_kept(request)
        if num_answer:
            self._names.append(script.seed & 0xFFFFFFFF)
            self._lengths.append(num_answer)
        self._end(request)
        return True

    def add_tokens(self, request: ScriptedRequest) -> None:
        """Take a request by its token ids: each full block is a piece."""
        size = self._block_size
        answer = request.script.token_ids(_num_kept(request))
        ids = np.concatenate((request.spec.prompt.token_ids(), answer)).astype(np.uint64)
        num_full, num_left = divmod(len(ids), size)
        places = np.arange(1, size + 1, dtype=np.uint64) << _BITS_32
        full = ids[: num_full * size].reshape(num_full, size)
        hashes = finalise(finalise(full * _GOLDEN) ^ places).sum(axis=1, dtype=np.uint64)
        self._names.frombytes(hashes.tobytes())
        self._lengths.extend([size] * num_full)
        if num_left:
            self._names.append(0)
            self._lengths.append(num_left)
        self._end(request)

    def _end(self, request: ScriptedRequest) -> None:
        counts = not request.spec.warm_up
        num_tokens = len(request.spec.prompt)
        self._ends.append(len(self._names))
        self._prompts.append(num_tokens if counts else 0)
        self._findable.append((num_tokens - 1) // self._block_size if counts else 0)

    def blocks(self) -> ReadBlocks:
        """The blocks of what was added.

        A block's key is a sum of hashes: those of all pieces of its request before the one in which
        it ends, and that of this piece up to the block's end.
        """
        size = self._block_size
        names, lengths = _numpy(self._names).view(np.uint64), _numpy(self._lengths)
        ends = _numpy(self._ends)
        firsts = np.concatenate(([0], ends[:-1])) if len(ends) else ends
        num_pieces = ends - firsts
        # Each piece's place in its request, and where the tokens of pieces and requests begin.
        places = np.arange(len(names)) - np.repeat(firsts, num_pieces)
        piece_ends = np.cumsum(lengths)
        token_ends = piece_ends[ends - 1] if len(ends) else ends
        token_starts = np.concatenate(([0], token_ends[:-1])) if len(ends) else ends
        num_blocks = (token_ends - token_starts) // size
        offsets = np.concatenate(([0], np.cumsum(num_blocks)))
        if offsets[-1] > MAX_BLOCKS:
            raise InputError(
                f"the requests use {offsets[-1]:,} blocks of {size} tokens, above {MAX_BLOCKS:,}:"
                " make the blocks larger (--block-size)"
            )
        numbers = np.arange(offsets[-1]) - np.repeat(offsets[:-1], num_blocks)
        block_ends = np.repeat(token_starts, num_blocks) + (numbers + 1) * size
        whole = _hashed(names, lengths, places)
        sums = np.cumsum(whole) - whole  # of all pieces before
        sums -= np.repeat(sums[firsts], num_pieces) if len(ends) else sums
        piece = np.searchsorted(piece_ends, block_ends)
        part = block_ends - (piece_ends - lengths)[piece]
        keys = sums[piece] + _hashed(names[piece], part, places[piece])
        return ReadBlocks(keys, offsets, _numpy(self._findable), _numpy(self._prompts), size)


def num_generated(request: ScriptedRequest) -> int:
    """Tokens of the answer, cut at the client's limit."""
    limit = request.spec.max_new_tokens
    return limit if request.spec.ignore_eos else min(limit, request.script.num_tokens)


def _num_kept(request: ScriptedRequest) -> int:
    """Tokens of the answer whose KV is computed: all but the last one."""
    return num_generated(request) - 1


def _hashed(names: _UInt64, lengths: Int64, places: Int64) -> _UInt64:
    """A number for the first `lengths` tokens of a stream that is at a place in its request."""
    where = places.astype(np.uint64) << _BITS_32 | lengths.astype(np.uint64)
    return finalise(finalise(names * _GOLDEN) ^ where)


def _numpy(column: "array[int]") -> Int64:
    return np.frombuffer(column, dtype=np.int64) if column else np.zeros(0, dtype=np.int64)
