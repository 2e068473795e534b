"""Executors run an engine's batches; `ScriptedExecutor` is the simulator's, without a model."""

import heapq
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

_NO_IDS: TokenIds = np.empty(0, dtype=np.int64)


class Executor(Protocol):
    """Runs batches and remembers the tokens that they generated."""

    def execute(self, batch: Batch, num_steps: int = 1) -> StepOutput:
        """Run a batch; a decode batch for `num_steps` steps in a row.

        Only the last of these steps may finish a request: see `steps_to_finish`.
        """

    def steps_to_finish(self) -> int:
        """Decode steps from now until one generates an end token; a huge number if none will."""

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

    def __init__(
        self,
        num_tokens: int,
        seed: int,
        known_ids: TokenIds = _NO_IDS,
    ) -> None:
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
    """The tokens of a script; with `ends`, the last one is the end token."""

    def __init__(self, script: OutputScript, *, ends: bool) -> None:
        self._script = script
        self._ends = ends and not script.is_known

    def __len__(self) -> int:
        return self._script.num_tokens

    def token_ids(self, start: int = 0, stop: int | None = None) -> TokenIds:
        last = self._script.num_tokens - 1
        stop = last + 1 if stop is None else stop
        known = self._script.known_ids[start:stop]
        ids = stream_token_ids(self._script.seed, start + len(known), stop)
        if len(known):
            ids = np.concatenate([known, ids])
        if self._ends and start <= last < stop:
            ids[last - start] = END_TOKEN
        return ids

    def token_id(self, index: int) -> int:
        if self._ends and index == self._script.num_tokens - 1:
            return END_TOKEN
        if index < len(self._script.known_ids):
            return int(self._script.known_ids[index])
        return stream_token_id(self._script.seed, index)

    def stream_at(self, index: int) -> Place:
        num_tokens = self._script.num_tokens - self._ends - index
        if index < len(self._script.known_ids):
            return NO_STREAM
        return (self._script.seed & 0xFFFFFFFF, index, num_tokens) if num_tokens else NO_STREAM


class ScriptedExecutor:
    """Generates the tokens of each request's script.

    All decode rows get one token a step, so the step in which a request generates its end token
    is known in advance: it is a count of decode steps, and a heap holds these counts. Each decode
    step in which a request rests moves its end one step later. Requests that ignore end tokens are
    not in the heap.
    """

    def __init__(self) -> None:
        self._scripts: dict[str, OutputScript] = {}
        self._endless: set[str] = set()
        self._end_step: dict[str, int] = {}
        self._back: set[str] = set()
        self._heap: list[tuple[int, int, str]] = []
        self._num_pushed = 0
        self._num_steps = 0

    def add(self, rid: str, script: OutputScript, *, ignore_eos: bool) -> None:
        """Register the script of a request before its first step."""
        self._scripts[rid] = script
        if ignore_eos and not script.is_known:
            self._endless.add(rid)

    def execute(self, batch: Batch, num_steps: int = 1) -> StepOutput:
        for rid in batch.stopped_rids:
            if rid not in self._back:
                self._end_step.pop(rid, None)
        self._back.clear()
        decodes = batch.mode is not ForwardMode.EXTEND
        if decodes:
            self._num_steps += num_steps
            for rid in batch.resting_rids:
                if rid in self._end_step:
                    self._note_end(rid, self._end_step[rid] + num_steps)
        finished = [
            row.rid
            for row in batch.prefill
            if row.samples and self._first_token_ends(row.rid, row.num_prior_outputs + 1)
        ]
        while decodes and self.steps_to_finish() <= 0:
            rid = heapq.heappop(self._heap)[2]
            del self._end_step[rid]
            finished.append(rid)
        return StepOutput(tuple(finished))

    def _first_token_ends(self, rid: str, num_outputs: int) -> bool:
        """Whether the output ends with its prefill's token; else note the step it will end in.

        A request that was aborted while the step ran has no script any more.
        """
        script = self._scripts.get(rid)
        if script is None or rid in self._endless:
            return False
        num_left = script.num_tokens - num_outputs
        if num_left <= 0:
            return True
        self._note_end(rid, self._num_steps + num_left)
        return False

    def join(
        self, rid: str, num_outputs: int, num_missed_steps: int, *, is_back: bool = False
    ) -> bool:
        """A request begins to decode with output tokens that it has from elsewhere.

        Args:
            rid: the request.
            num_outputs: how many output tokens it has.
            num_missed_steps: decode steps in flight, which run without it.
            is_back: the batch in flight says that the request has stopped; it has joined again.

        Returns:
            Whether its output ends with the last of these tokens.
        """
        if rid in self._endless:
            return False
        num_left = self._scripts[rid].num_tokens - num_outputs
        if num_left <= 0:
            return True
        self._note_end(rid, self._num_steps + num_missed_steps + num_left)
        if is_back:
            self._back.add(rid)
        return False

    def _note_end(self, rid: str, end_step: int) -> None:
        self._end_step[rid] = end_step
        self._num_pushed += 1
        heapq.heappush(self._heap, (end_step, self._num_pushed, rid))

    def steps_to_finish(self) -> int:
        heap = self._heap
        while heap and self._end_step.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] - self._num_steps if heap else NEVER_STEPS

    def output_ids(self, rid: str, num_tokens: int) -> TokenIds:
        return self._output(rid).token_ids(0, num_tokens)

    def output_part(self, rid: str, start: int, stop: int) -> TokenSequence:
        return prompt_part(self._output(rid), start, stop)

    def _output(self, rid: str) -> ScriptedOutput:
        return ScriptedOutput(self._scripts[rid], ends=rid not in self._endless)

    def forget(self, rid: str) -> None:
        self._end_step.pop(rid, None)
        self._scripts.pop(rid, None)
        self._endless.discard(rid)
