"""Input and output tokens of a real run: outputs follow scripts (forced) or the model (greedy)."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from sim.core.arrays import Int64
from sim.core.batch import END_TOKEN, Batch, Rids, ScriptedExecutor, StepOutput
from sim.core.tokens import ArrayPrompt, TokenIds, stream_tokens_at
from sim.workload.workload import ScriptedRequest

# Stands for a request's last sampled token, which only the device knows while a step runs.
SAMPLED_LAST = -1
_NO_END = -1


class Tokens(Protocol):
    """The tokens of all requests; decides when an output ends.

    `final_outputs` has the generated tokens of requests that have ended, if they are not scripted.
    """

    final_outputs: dict[str, list[int]]

    def add(self, request: ScriptedRequest) -> ScriptedRequest:
        """Register a request before it is submitted; returns the request to submit."""
        ...

    def decode_inputs(self, rids: Rids, kv_lens: Int64) -> Int64:
        """The input token of each decode row, or SAMPLED_LAST; shape [num_rows].

        Args:
            rids: the rows in batch order; the same object as long as the rows are the same.
            kv_lens: tokens of each row after the step.
        """
        ...

    def take(self, batch: Batch, sampled: Int64) -> StepOutput:
        """Process a batch's result; `sampled` has a token for each row that samples, in order."""
        ...

    def continuation(self, rid: str, start: int, sampled: Int64) -> Int64:
        """The output tokens from index `start` on, as many as were sampled, up to the end.

        With draft tokens, `sampled` has what the model sampled after each of them.
        """
        ...

    def extend(self, rid: str, start: int, token_ids: Int64) -> bool:
        """Put tokens into an output from index `start` on; returns whether they end it."""
        ...

    def all_outputs(self, rid: str) -> TokenIds:
        """The output tokens that `extend` has added."""
        ...

    def output_ids(self, rid: str, num_tokens: int) -> TokenIds:
        """The first `num_tokens` output tokens."""
        ...

    def forget(self, rid: str) -> None:
        """A request has ended."""
        ...


class ForcedTokens:
    """Outputs are the workload's scripts; the tokens that the model samples are ignored.

    So the cache holds the same tokens as in a simulation of the same scenario, and the two runs
    can be compared step by step.
    """

    def __init__(self) -> None:
        self.final_outputs: dict[str, list[int]] = {}
        self._script = ScriptedExecutor()
        # The seed of the script, the length of the prompt, the output index of the end token.
        self._requests: dict[str, tuple[int, int, int]] = {}
        self._num_outputs: dict[str, int] = {}
        self._known_ids: dict[str, Int64] = {}
        self._rids: Rids = ()
        self._rows = np.empty((0, 3), dtype=np.int64)
        self._known_rows: list[tuple[int, Int64]] = []

    def add(self, request: ScriptedRequest) -> ScriptedRequest:
        spec, script = request.spec, request.script
        self._script.add(spec.rid, script, ignore_eos=spec.ignore_eos)
        # A script with known tokens ends with them: there are no others.
        endless = spec.ignore_eos and not script.is_known
        end_index = _NO_END if endless else script.num_tokens - 1
        if len(script.known_ids):
            self._known_ids[spec.rid] = script.known_ids
        self._requests[spec.rid] = (script.seed, len(spec.prompt), end_index)
        return request

    def decode_inputs(self, rids: Rids, kv_lens: Int64) -> Int64:
        if rids is not self._rids:
            self._rids = rids
            self._rows = np.array([self._requests[rid] for rid in rids], dtype=np.int64)
            known = self._known_ids
            self._known_rows = [(row, known[rid]) for row, rid in enumerate(rids) if rid in known]
        seeds, prompt_lens, end_indices = self._rows.T
        indices = kv_lens - 1 - prompt_lens
        inputs = np.where(indices == end_indices, END_TOKEN, stream_tokens_at(seeds, indices))
        for row, known_ids in self._known_rows:
            if indices[row] < len(known_ids):
                inputs[row] = known_ids[indices[row]]
        return inputs

    def take(self, batch: Batch, sampled: Int64) -> StepOutput:
        return self._script.execute(batch)

    def continuation(self, rid: str, start: int, sampled: Int64) -> Int64:
        end_index, stop = self._requests[rid][2], start + len(sampled)
        stop = stop if end_index == _NO_END else min(stop, end_index + 1)
        return self._script.output_ids(rid, stop)[start:]

    def extend(self, rid: str, start: int, token_ids: Int64) -> bool:
        self._num_outputs[rid] = start + len(token_ids)
        return self._num_outputs[rid] - 1 == self._requests[rid][2]

    def all_outputs(self, rid: str) -> TokenIds:
        return self.output_ids(rid, self._num_outputs[rid])

    def output_ids(self, rid: str, num_tokens: int) -> TokenIds:
        return self._script.output_ids(rid, num_tokens)

    def forget(self, rid: str) -> None:
        self._script.forget(rid)
        self._requests.pop(rid, None)
        self._num_outputs.pop(rid, None)
        self._known_ids.pop(rid, None)


class GreedyTokens:
    """Outputs are the model's most likely tokens, up to an end token or `max_new_tokens`.

    Prompt tokens are first taken modulo the vocabulary, so that the cache and the model use the
    same tokens.
    """

    def __init__(self, vocab_size: int, end_ids: frozenset[int]) -> None:
        self._vocab_size = vocab_size
        self.end_ids = end_ids
        self._outputs: dict[str, list[int]] = {}
        self._endless: set[str] = set()
        self.final_outputs: dict[str, list[int]] = {}

    def add(self, request: ScriptedRequest) -> ScriptedRequest:
        spec = request.spec
        self._outputs[spec.rid] = []
        if spec.ignore_eos:
            self._endless.add(spec.rid)
        spec = spec.copy()
        spec.prompt = ArrayPrompt(spec.prompt.token_ids() % self._vocab_size)
        return ScriptedRequest(spec, request.script)

    def decode_inputs(self, rids: Rids, kv_lens: Int64) -> Int64:
        return np.full(len(rids), SAMPLED_LAST, dtype=np.int64)

    def take(self, batch: Batch, sampled: Int64) -> StepOutput:
        prefill = [row for row in batch.prefill if row.samples]
        for row in prefill:
            # If a token was in flight when the request was put back, this step computed it again.
            del self._outputs[row.rid][row.num_prior_outputs :]
        rids = [*(row.rid for row in prefill), *batch.decode_rids]
        ended = []
        for rid, token in zip(rids, sampled.tolist(), strict=True):
            # Under overlap a request may have ended while this step ran.
            if rid in self._outputs:
                self._outputs[rid].append(token)
                if self.ends(rid, self._outputs[rid]):
                    ended.append(rid)
        return StepOutput(tuple(ended))

    def ends(self, rid: str, output: Sequence[int]) -> bool:
        """Whether an output ends with the last of these tokens."""
        return output[-1] in self.end_ids and rid not in self._endless

    def continuation(self, rid: str, start: int, sampled: Int64) -> Int64:
        output = self._outputs[rid][:start]
        for number, token in enumerate(sampled.tolist()):
            output.append(token)
            if self.ends(rid, output):
                return sampled[: number + 1]
        return sampled

    def extend(self, rid: str, start: int, token_ids: Int64) -> bool:
        self._outputs[rid][start:] = token_ids.tolist()
        return self.ends(rid, self._outputs[rid])

    def all_outputs(self, rid: str) -> TokenIds:
        return np.array(self._outputs[rid], dtype=np.int64)

    def output_ids(self, rid: str, num_tokens: int) -> TokenIds:
        return np.array(self._outputs[rid][:num_tokens], dtype=np.int64)

    def forget(self, rid: str) -> None:
        outputs = self._outputs.pop(rid, None)
        if outputs is not None:
            self.final_outputs[rid] = outputs
        self._endless.discard(rid)
