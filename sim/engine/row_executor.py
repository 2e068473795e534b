"""The simulator's executor for servers whose rows get different numbers of tokens in a step."""

from sim.core.batch import Batch, StepOutput
from sim.engine.acceptance import Speculation
from sim.engine.executor import ScriptedExecutor


class RowExecutor(ScriptedExecutor):
    """Generates the tokens of each request's script; accepted drafts are among them.

    It counts the tokens of each request, because rows do not get one token each in a step.
    """

    def __init__(
        self, speculation: Speculation | None, *, keeps_tokens_in_flight: bool = True
    ) -> None:
        """`keeps_tokens_in_flight`: as the server's scheduler does."""
        super().__init__()
        self._speculation = speculation
        self._loses_tokens = not keeps_tokens_in_flight
        self._num_outputs: dict[str, int] = {}

    def execute(self, batch: Batch, num_steps: int = 1) -> StepOutput:
        """Run a batch for one step; runs of several steps do not exist here."""
        finished: list[str] = []
        for row in batch.prefill:
            if row.samples and row.rid in self._scripts:
                if self._loses_tokens:
                    self._num_outputs[row.rid] = row.num_prior_outputs
                if self._sample(row.rid, 1):
                    finished.append(row.rid)
        num_sampled: list[int] = []
        drafts = batch.drafts or [0] * len(batch.decode_rids)
        for rid, num_drafts in zip(batch.decode_rids, drafts, strict=True):
            if rid not in self._scripts:
                num_sampled.append(0)  # it ended with the step before
                continue
            place, script = self._num_outputs[rid], self._scripts[rid]
            num_tokens = 1
            if num_drafts and self._speculation is not None:
                acceptance, seed = self._speculation.acceptance, script.seed
                # SGLang verifies as many tokens even if a lookup finds fewer.
                num_found = acceptance.num_proposed(rid, seed, place, num_drafts)
                most = min(num_drafts, num_found)
                num_tokens += acceptance.num_accepted(rid, seed, place, most)
            if rid not in self._endless:
                num_tokens = min(num_tokens, script.num_tokens - place)
            num_sampled.append(num_tokens)
            if self._sample(rid, num_tokens):
                finished.append(rid)
        num_proposed = [
            self._propose(rid) for rid in [*(row.rid for row in batch.prefill), *batch.decode_rids]
        ]
        return StepOutput(tuple(finished), tuple(num_sampled), tuple(num_proposed))

    def join(
        self, rid: str, num_outputs: int, num_missed_steps: int, *, is_back: bool = False
    ) -> bool:
        """As in the base class; steps in flight do not matter, because each request is counted."""
        self._num_outputs[rid] = 0
        return self._sample(rid, num_outputs)

    def _propose(self, rid: str) -> int:
        """How many tokens are drafted after the output so far; none before its first token."""
        speculation, script = self._speculation, self._scripts.get(rid)
        place = self._num_outputs.get(rid, 0)
        if speculation is None or script is None or not place:
            return 0
        return speculation.acceptance.num_proposed(rid, script.seed, place, speculation.num_tokens)

    def _sample(self, rid: str, num_tokens: int) -> bool:
        """Generate tokens; returns whether the last one is an end token."""
        num_outputs = self._num_outputs.get(rid, 0) + num_tokens
        self._num_outputs[rid] = num_outputs
        return rid not in self._endless and num_outputs >= self._scripts[rid].num_tokens

    def forget(self, rid: str) -> None:
        super().forget(rid)
        self._num_outputs.pop(rid, None)
