"""One step of the model: what the scheduler decided to run, who runs it, and what came out.

Executors run an engine's batches; `ScriptedExecutor` is the simulator's, without a model.
"""

import heapq
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, Protocol

import numpy as np

from sim.core.tokens import (
    NO_STREAM,
    Place,
    TokenIds,
    TokenSequence,
    prompt_part,
    stream_token_id,
    stream_token_ids,
)


class ForwardMode(IntEnum):
    """What a step computes: prefill only, decode only, or both in one forward pass."""

    EXTEND = 0
    DECODE = 1
    MIXED = 2


class Rids(Protocol):
    """The rids of rows, in order: a tuple, or a `RowNames`."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[str]: ...

    def __getitem__(self, index: int, /) -> str: ...


class PrefillRow:
    """One prefill row of a batch.

    Attributes:
        prefix_len: tokens of the prompt before this chunk. Their KV was cached, computed by earlier
            chunks, or is loaded from host memory.
        extend_len: tokens computed in this step.
        num_prior_outputs: output tokens generated before (after a retraction or preemption).
        samples: whether the row yields a token; False for a chunk that is not the request's last.
        num_loaded_tokens: how many of the prefix's last tokens this step loads from host memory
            before it attends to them.
        load_tokens: the size of these loads, as a number of tokens with the KV of all layers. It is
            below `num_loaded_tokens` where windows need less, above it where states come with them.
    """

    def __init__(
        self,
        rid: str,
        prefix_len: int,
        extend_len: int,
        num_prior_outputs: int,
        samples: bool,
        num_loaded_tokens: int = 0,
        load_tokens: float | None = None,
    ) -> None:
        self.rid: Final = rid
        self.prefix_len: Final = prefix_len
        self.extend_len: Final = extend_len
        self.num_prior_outputs: Final = num_prior_outputs
        self.samples: Final = samples
        self.num_loaded_tokens: Final = num_loaded_tokens
        self.load_tokens: Final = float(num_loaded_tokens) if load_tokens is None else load_tokens


class Batch:
    """What runs in one step, for executors, latency models and logs.

    Attributes:
        mode: extend, decode or mixed.
        prefill: rows that compute prompt tokens, in batch order.
        decode_rids: rows that compute one token each, and their draft tokens, in batch order, after
            the prefill rows.
        num_context_tokens: context length after the step, summed over all rows.
        num_decode_context_tokens: the decode rows' share of it.
        stopped_rids: requests that left the running batch since the last step without finishing:
            they were retracted, preempted or aborted.
        resting_rids: running requests that get no token in this step.
        max_decode_context_tokens, min_decode_context_tokens: context length after the step of the
            longest and of the shortest decode row.
        drafts: draft tokens that each decode row verifies; empty without speculative decoding.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - an argument for each field
        self,
        mode: ForwardMode,
        prefill: tuple[PrefillRow, ...],
        decode_rids: Rids,
        num_context_tokens: int,
        num_decode_context_tokens: int,
        stopped_rids: tuple[str, ...] = (),
        resting_rids: tuple[str, ...] = (),
        max_decode_context_tokens: int = 0,
        min_decode_context_tokens: int = 0,
        drafts: tuple[int, ...] = (),
    ) -> None:
        self.mode: Final = mode
        self.prefill: Final = prefill
        self.decode_rids: Final = decode_rids
        self.num_context_tokens: Final = num_context_tokens
        self.num_decode_context_tokens: Final = num_decode_context_tokens
        self.stopped_rids: Final = stopped_rids
        self.resting_rids: Final = resting_rids
        self.max_decode_context_tokens: Final = max_decode_context_tokens
        self.min_decode_context_tokens: Final = min_decode_context_tokens
        self.drafts: Final = drafts


class StepOutput:
    """What a step produced: every sampling row got one more token, or several with drafts.

    Attributes:
        finished_rids: requests whose new tokens end their output.
        num_sampled: new tokens of each decode row; empty without speculative decoding.
        num_proposed: draft tokens that follow the new tokens of each row, prefill rows first; empty
            without speculative decoding.
    """

    def __init__(
        self,
        finished_rids: tuple[str, ...],
        num_sampled: tuple[int, ...] = (),
        num_proposed: tuple[int, ...] = (),
    ) -> None:
        self.finished_rids: Final = finished_rids
        self.num_sampled: Final = num_sampled
        self.num_proposed: Final = num_proposed


_NO_IDS: TokenIds = np.empty(0, dtype=np.int64)


class Executor(Protocol):
    """Runs batches and remembers the tokens that they generated."""

    def execute(self, batch: Batch, num_steps: int = 1) -> StepOutput:
        """Run a batch; a decode batch for `num_steps` steps in a row.

        Only the last of these steps may finish a request: see `steps_to_finish`.
        """

    def steps_to_finish(self) -> int:
        """Decode steps until one generates an end token; `NEVER_STEPS` if none will."""

    def output_ids(self, rid: str, num_tokens: int) -> TokenIds:
        """The first `num_tokens` output tokens of a request; it has generated that many."""

    def output_part(self, rid: str, start: int, stop: int) -> TokenSequence:
        """Generated output tokens `start` to `stop`, in a form that outlives `forget`."""

    def forget(self, rid: str) -> None:
        """Drop the tokens of a request that has ended; they are not read again."""


class JoiningExecutor(Executor, Protocol):
    """An executor whose requests may begin with tokens that another server has generated."""

    def join(
        self, rid: str, num_outputs: int, num_missed_steps: int, *, is_back: bool = False
    ) -> bool:
        """A request begins to decode: see `ScriptedExecutor.join`."""


class OutputScript:
    """The output that a request will generate. Only the executor may read it.

    The output has `num_tokens` tokens and the last one is an end token, unless `max_new_tokens` is
    smaller or the request ignores end tokens. Every other token is the token at the same position
    of the stream `seed`.

    Of an output that a model generated, the first tokens are `known_ids`. If all are known, the
    output ends with the last of them, whatever it is.
    """

    def __init__(self, num_tokens: int, seed: int, known_ids: TokenIds = _NO_IDS) -> None:
        self.num_tokens: Final = num_tokens
        self.seed: Final = seed
        self.known_ids: Final = known_ids

    @property
    def is_known(self) -> bool:
        return len(self.known_ids) >= self.num_tokens

    def __repr__(self) -> str:
        return f"OutputScript({self.num_tokens}, {self.seed})"

    def token_ids(self, num_tokens: int) -> TokenIds:
        """The first `num_tokens` tokens, none of them replaced by an end token; int64."""
        known = self.known_ids[:num_tokens]
        drawn = stream_token_ids(self.seed, len(known), num_tokens)
        return np.concatenate([known, drawn]) if len(known) else drawn


END_TOKEN = 2
NEVER_STEPS = 1 << 62


class ScriptedOutput:
    """The tokens of a script; the last one is the end token if the output ends with one.

    Attributes:
        is_endless: the output goes on to the request's limit, as no end token ends it.
    """

    def __init__(self, script: OutputScript, *, ignore_eos: bool) -> None:
        self.script: Final = script
        self.is_endless: Final = ignore_eos and not script.is_known
        self._ends = not (ignore_eos or script.is_known)

    def __len__(self) -> int:
        return self.script.num_tokens

    def token_ids(self, start: int = 0, stop: int | None = None) -> TokenIds:
        last = self.script.num_tokens - 1
        stop = last + 1 if stop is None else stop
        known = self.script.known_ids[start:stop]
        ids = stream_token_ids(self.script.seed, start + len(known), stop)
        if len(known):
            ids = np.concatenate([known, ids])
        if self._ends and start <= last < stop:
            ids[last - start] = END_TOKEN
        return ids

    def token_id(self, index: int) -> int:
        if self._ends and index == self.script.num_tokens - 1:
            return END_TOKEN
        if index < len(self.script.known_ids):
            return int(self.script.known_ids[index])
        return stream_token_id(self.script.seed, index)

    def stream_at(self, index: int) -> Place:
        num_tokens = self.script.num_tokens - self._ends - index
        if index < len(self.script.known_ids):
            return NO_STREAM
        return (self.script.seed & 0xFFFFFFFF, index, num_tokens) if num_tokens else NO_STREAM


class ScriptedExecutor:
    """Generates the tokens of each request's script.

    In lockstep, all decode rows get one token a step, so the step in which a request generates its
    end token is known in advance: it is a count of decode steps, and a heap holds these counts.
    Each decode step in which a request rests moves its end one step later. Endless outputs are not
    in the heap. Servers whose rows get different numbers of tokens have a `RowExecutor`.
    """

    def __init__(self) -> None:
        self._outputs: dict[str, ScriptedOutput] = {}
        self._end_step: dict[str, int] = {}
        # Requests that the batch in flight names in `stopped_rids`, but that have joined again.
        self._rejoined: set[str] = set()
        self._heap: list[tuple[int, int, str]] = []
        self._num_pushed = 0
        self._num_steps = 0

    def add(self, rid: str, script: OutputScript, *, ignore_eos: bool) -> None:
        """Register the script of a request before its first step."""
        self._outputs[rid] = ScriptedOutput(script, ignore_eos=ignore_eos)

    def execute(self, batch: Batch, num_steps: int = 1) -> StepOutput:
        for rid in batch.stopped_rids:
            if rid not in self._rejoined:
                self._end_step.pop(rid, None)
        self._rejoined.clear()
        decodes = batch.mode is not ForwardMode.EXTEND
        if decodes:
            self._num_steps += num_steps
            for rid in batch.resting_rids:
                if rid in self._end_step:
                    self._schedule_end(rid, self._end_step[rid] + num_steps)
        finished = [
            row.rid
            for row in batch.prefill
            # A request that was aborted while the step ran has no output any more.
            if row.samples
            and row.rid in self._outputs
            and self._end_or_schedule(row.rid, row.num_prior_outputs + 1, num_missed_steps=0)
        ]
        while decodes and self.steps_to_finish() <= 0:
            rid = heapq.heappop(self._heap)[2]
            del self._end_step[rid]
            finished.append(rid)
        return StepOutput(tuple(finished))

    def join(
        self, rid: str, num_outputs: int, num_missed_steps: int, *, is_back: bool = False
    ) -> bool:
        """A request begins to decode with output tokens that it has from elsewhere.

        `num_missed_steps` decode steps are in flight, which run without it. With `is_back` the
        batch in flight says that the request has stopped; it has joined again.

        Returns whether its output ends with the last of these tokens.
        """
        ends = self._end_or_schedule(rid, num_outputs, num_missed_steps)
        if is_back and not ends:
            self._rejoined.add(rid)
        return ends

    def _end_or_schedule(self, rid: str, num_outputs: int, num_missed_steps: int) -> bool:
        """Whether an output has ended with its last token; else note the step it will end in."""
        output = self._outputs[rid]
        if output.is_endless:
            return False
        num_left = len(output) - num_outputs
        if num_left <= 0:
            return True
        self._schedule_end(rid, self._num_steps + num_missed_steps + num_left)
        return False

    def _schedule_end(self, rid: str, end_step: int) -> None:
        self._end_step[rid] = end_step
        self._num_pushed += 1
        heapq.heappush(self._heap, (end_step, self._num_pushed, rid))

    def steps_to_finish(self) -> int:
        heap = self._heap
        while heap and self._end_step.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] - self._num_steps if heap else NEVER_STEPS

    def output_ids(self, rid: str, num_tokens: int) -> TokenIds:
        return self._outputs[rid].token_ids(0, num_tokens)

    def output_part(self, rid: str, start: int, stop: int) -> TokenSequence:
        return prompt_part(self._outputs[rid], start, stop)

    def forget(self, rid: str) -> None:
        self._end_step.pop(rid, None)
        self._outputs.pop(rid, None)
