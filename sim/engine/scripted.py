"""An executor that plays scripts: the simulator's stand-in for a model."""

import heapq
from dataclasses import dataclass

from sim.core.batch import Batch, ForwardMode, StepOutput
from sim.core.token_sequences import TokenSequence, prompt_part
from sim.core.tokens import TokenIds, stream_token_ids


@dataclass(frozen=True, slots=True)
class OutputScript:
    """What a request will generate. Only the executor may read it.

    The `num_tokens`-th token ends the output, unless `max_new_tokens` comes first or the request
    ignores end tokens. Token k is token k of stream `seed`.
    """

    num_tokens: int
    seed: int

    def token_ids(self, num_tokens: int) -> TokenIds:
        return self.tokens_between(0, num_tokens)

    def tokens_between(self, start: int, stop: int) -> TokenIds:
        """Tokens `start` to `stop`; int64."""
        return stream_token_ids(self.seed, start, stop)


END_TOKEN = 2
NEVER_STEPS = 1 << 62


class ScriptedOutput:
    """A script's tokens, with the end token where it ends."""

    def __init__(self, script: OutputScript, *, ends: bool) -> None:
        self._script = script
        self._ends = ends

    def __len__(self) -> int:
        return self._script.num_tokens

    def token_ids(self, start: int = 0, stop: int | None = None) -> TokenIds:
        last = self._script.num_tokens - 1
        stop = last + 1 if stop is None else stop
        ids = self._script.tokens_between(start, stop)
        if self._ends and start <= last < stop:
            ids[last - start] = END_TOKEN
        return ids


class ScriptedExecutor:
    """Generates what each request's script says. The only reader of scripts.

    Decode rows advance in lockstep, so a request's end is known as a count of decode steps, and
    moves by one with each that it rests; the ends sit in a heap. Requests that ignore end tokens
    have no end of their own.
    """

    def __init__(self) -> None:
        self._scripts: dict[str, OutputScript] = {}
        self._endless: set[str] = set()
        self._end_step: dict[str, int] = {}
        self._heap: list[tuple[int, int, str]] = []
        self._num_pushed = 0
        self._num_steps = 0

    def add(self, rid: str, script: OutputScript, *, ignore_eos: bool) -> None:
        """Learn a request's script before it runs."""
        self._scripts[rid] = script
        if ignore_eos:
            self._endless.add(rid)

    def execute(self, batch: Batch, num_steps: int = 1) -> StepOutput:
        for rid in batch.stopped_rids:
            self._end_step.pop(rid, None)
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
        """Note when a request that joins the decode rows ends; True if it just did."""
        if rid in self._endless:
            return False
        num_left = self._scripts[rid].num_tokens - num_outputs
        if num_left <= 0:
            return True
        self._note_end(rid, self._num_steps + num_left)
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

    def _output(self, rid: str) -> "ScriptedOutput":
        return ScriptedOutput(self._scripts[rid], ends=rid not in self._endless)

    def forget(self, rid: str) -> None:
        self._end_step.pop(rid, None)
        self._scripts.pop(rid, None)
        self._endless.discard(rid)
