"""Executors run an engine's batches; `ScriptedExecutor` is the simulator's, without a model."""

import heapq
from collections.abc import Mapping
from typing import Final, Protocol

import numpy as np

from sim.core.batch import Batch, ForwardMode, StepOutput
from sim.core.tokens import (
    NO_STREAM,
    Place,
    TokenIds,
    TokenSequence,
    prompt_part,
    stream_token_id,
    stream_token_ids,
)
from sim.engine.acceptance import Speculation

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
        """Whether all tokens are known."""
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
        script: the script.
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
    in the heap. Where rows get different numbers of tokens, each is counted (`RowCounts`).
    """

    def __init__(self, rows: "RowCounts | None" = None) -> None:
        """`rows` counts the tokens of each row; None: rows move in lockstep."""
        self._rows = rows
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
        """Run a batch; with counted rows for one step only."""
        if self._rows is not None:
            return self._rows.execute(batch, self._outputs)
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

        Args:
            rid: the request.
            num_outputs: how many output tokens it has.
            num_missed_steps: decode steps in flight, which run without it; not used where each row
                is counted.
            is_back: the batch in flight says that the request has stopped; it has joined again.

        Returns:
            Whether its output ends with the last of these tokens.
        """
        if self._rows is not None:
            return self._rows.join(rid, num_outputs, self._outputs[rid])
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
        if self._rows is not None:
            self._rows.forget(rid)


class RowCounts:
    """Counts the tokens of each row, where rows do not all get one token in a step."""

    def __init__(
        self, speculation: Speculation | None, *, keeps_tokens_in_flight: bool = True
    ) -> None:
        """`keeps_tokens_in_flight`: see `BaseScheduler`."""
        self._speculation = speculation
        self._loses_tokens = not keeps_tokens_in_flight
        self._num_outputs: dict[str, int] = {}

    def execute(self, batch: Batch, outputs: Mapping[str, ScriptedOutput]) -> StepOutput:
        """What a batch generates; accepted drafts are among the tokens."""
        finished: list[str] = []
        for row in batch.prefill:
            if row.samples and row.rid in outputs:
                if self._loses_tokens:
                    self._num_outputs[row.rid] = row.num_prior_outputs
                if self._sample(row.rid, 1, outputs[row.rid]):
                    finished.append(row.rid)
        num_sampled: list[int] = []
        drafts = batch.drafts or [0] * len(batch.decode_rids)
        for rid, num_drafts in zip(batch.decode_rids, drafts, strict=True):
            output = outputs.get(rid)
            if output is None:
                num_sampled.append(0)  # it ended with the step before
                continue
            num_tokens = 1 + self._num_accepted(rid, num_drafts, output.script.seed)
            if not output.is_endless:
                num_tokens = min(num_tokens, len(output) - self._num_outputs[rid])
            num_sampled.append(num_tokens)
            if self._sample(rid, num_tokens, output):
                finished.append(rid)
        rids = [*[row.rid for row in batch.prefill], *batch.decode_rids]
        num_proposed = [self._num_proposed(rid, outputs.get(rid)) for rid in rids]
        return StepOutput(tuple(finished), tuple(num_sampled), tuple(num_proposed))

    def join(self, rid: str, num_outputs: int, output: ScriptedOutput) -> bool:
        """A request begins to decode with tokens from elsewhere; returns whether it has ended."""
        self._num_outputs[rid] = 0
        return self._sample(rid, num_outputs, output)

    def forget(self, rid: str) -> None:
        self._num_outputs.pop(rid, None)

    def _num_accepted(self, rid: str, num_drafts: int, seed: int) -> int:
        """How many of a row's draft tokens are accepted."""
        if not num_drafts or self._speculation is None:
            return 0
        acceptance, place = self._speculation.acceptance, self._num_outputs[rid]
        # SGLang verifies `num_drafts` tokens even if the lookup found fewer.
        num_found = acceptance.num_proposed(rid, seed, place, num_drafts)
        return acceptance.num_accepted(rid, seed, place, min(num_drafts, num_found))

    def _num_proposed(self, rid: str, output: ScriptedOutput | None) -> int:
        """How many tokens are drafted after the output so far; none before its first token."""
        speculation, place = self._speculation, self._num_outputs.get(rid, 0)
        if speculation is None or output is None or not place:
            return 0
        seed = output.script.seed
        return speculation.acceptance.num_proposed(rid, seed, place, speculation.num_tokens)

    def _sample(self, rid: str, num_tokens: int, output: ScriptedOutput) -> bool:
        """Generate tokens; returns whether the last one is an end token."""
        num_outputs = self._num_outputs.get(rid, 0) + num_tokens
        self._num_outputs[rid] = num_outputs
        return not output.is_endless and num_outputs >= len(output)
