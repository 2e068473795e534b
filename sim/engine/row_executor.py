"""The executor of servers whose rows do not all get one token in each step.

How many draft tokens a step accepts depends on the request and on the place in its output alone
(`sim.engine.acceptance`). So the steps of a row are known as soon as it decodes, and many of them
can be taken at once:

    output tokens so far      1    4    5    9   11   12     `_Row.ends`, from the row's first step
    a step gains                3    1    4    2    1        `_Row.gained`
    three steps are done                     ^ `_Row.at`: the row has 9 tokens

A step that verifies fewer drafts than a server drafts, as in a mixed step, leaves these places. The
steps after it are then worked out anew.
"""

from collections.abc import Sequence

import numpy as np

from sim.core.arrays import Int64
from sim.core.batch import (
    NEVER_STEPS,
    Batch,
    OutputScript,
    Rids,
    ScriptedExecutor,
    ScriptedOutput,
    StepOutput,
)
from sim.engine.acceptance import Speculation

# Output tokens whose steps are worked out together, at least.
_TOKENS_AHEAD = 2048
_NO_ENDS: Int64 = np.zeros(1, dtype=np.int64)
# More tokens than any output has. Larger numbers take longer to compute with.
_ENDLESS = 1 << 60


class _Row:
    """How far a request's output is, and its coming steps, if each verifies all its drafts.

    Attributes:
        end: tokens of the output; `_ENDLESS` if it goes on to the request's limit.
        num_outputs: tokens so far.
        has_begun: it has got a token, or has come with tokens from another server.
        gained: new tokens of each step worked out; empty: none is.
        ends: output tokens before the first of these steps, and after each; shape [1 + steps].
        at: how many of these steps are done.
        is_whole: these steps reach the output's end.
    """

    def __init__(self, output: ScriptedOutput) -> None:
        self.seed = output.script.seed
        self.end = _ENDLESS if output.is_endless else len(output)
        self.num_outputs = 0
        self.has_begun = False
        self.gained = b""
        self.ends = _NO_ENDS
        self.at = 0
        self.is_whole = False

    def sample(self, num_tokens: int) -> bool:
        """Generate tokens; returns whether the last one is an end token."""
        self.has_begun = True
        self.num_outputs += num_tokens
        return self.num_outputs >= self.end

    def leave_steps(self) -> None:
        """The next tokens are not those of the steps worked out."""
        if self.gained:
            self.gained, self.at, self.is_whole = b"", 0, False

    def knows_steps(self, num_steps: int) -> bool:
        """Whether the next `num_steps` are worked out, or all up to the output's end."""
        return self.at + num_steps <= len(self.gained) or self.is_whole

    def work_out(self, rid: str, speculation: Speculation, num_steps: int) -> None:
        """Work out at least the next `num_steps`, or all up to the output's end."""
        most, place = speculation.num_tokens, self.num_outputs
        end = min(self.end, place + max(_TOKENS_AHEAD, num_steps * (1 + most)))
        self.gained = speculation.acceptance.num_gained(rid, self.seed, place, most, end)
        self.ends = np.zeros(1 + len(self.gained), dtype=np.int64)
        np.frombuffer(self.gained, dtype=np.uint8).cumsum(dtype=np.int64, out=self.ends[1:])
        self.ends += place
        self.at, self.is_whole = 0, end == self.end

    def num_steps_before(self, num_outputs: int) -> int:
        """How many coming steps end with fewer than `num_outputs` tokens, as far as worked out."""
        return int(self.ends.searchsorted(num_outputs)) - self.at - 1


class RowExecutor(ScriptedExecutor):
    """Generates the tokens of each request's script where each row's tokens are counted."""

    def __init__(
        self, speculation: Speculation | None, *, keeps_tokens_in_flight: bool = True
    ) -> None:
        """`keeps_tokens_in_flight`: see `BaseScheduler`."""
        super().__init__()
        self._speculation = speculation
        self._most = 0 if speculation is None else speculation.num_tokens
        self._loses_tokens = not keeps_tokens_in_flight
        # Coming steps were asked for, so they are worked out even if a single one is executed.
        self._is_asked = False
        self._rows: dict[str, _Row] = {}

    def add(self, rid: str, script: OutputScript, *, ignore_eos: bool) -> None:
        super().add(rid, script, ignore_eos=ignore_eos)
        self._rows[rid] = _Row(self._outputs[rid])

    def execute(self, batch: Batch, num_steps: int = 1) -> StepOutput:
        """Run a batch; accepted drafts are among the tokens.

        Several steps with drafts: they verify all of them.
        """
        rows = self._rows
        finished: list[str] = []
        for prefill in batch.prefill:
            row = rows.get(prefill.rid)
            if prefill.samples and row is not None:
                if self._loses_tokens:
                    row.num_outputs = prefill.num_prior_outputs
                row.leave_steps()
                if row.sample(1):
                    finished.append(prefill.rid)
        num_sampled: list[int] = []
        num_proposed = [self._num_proposed(row.rid, rows.get(row.rid)) for row in batch.prefill]
        drafts = batch.drafts or [0] * len(batch.decode_rids)
        for rid, num_drafts in zip(batch.decode_rids, drafts, strict=True):
            row = rows.get(rid)
            if row is None:
                num_sampled.append(0)  # it ended with the step before
                num_proposed.append(0)
                continue
            if num_drafts:
                num_tokens = self._num_gained(rid, row, num_drafts, num_steps)
            else:
                row.leave_steps()
                num_tokens = num_steps
            num_tokens = min(num_tokens, row.end - row.num_outputs)
            num_sampled.append(num_tokens)
            if row.sample(num_tokens):
                finished.append(rid)
            num_proposed.append(self._num_proposed(rid, row))
        return StepOutput(tuple(finished), tuple(num_sampled), tuple(num_proposed))

    def join(
        self, rid: str, num_outputs: int, num_missed_steps: int, *, is_back: bool = False
    ) -> bool:
        row = self._rows[rid]
        row.num_outputs = 0
        row.leave_steps()
        return row.sample(num_outputs)

    def steps_to_finish(self) -> int:
        num_steps = NEVER_STEPS
        for row in self._rows.values():
            if row.has_begun and row.end < _ENDLESS:
                num_steps = min(num_steps, row.end - row.num_outputs)
        return num_steps

    def outputs_ahead(self, rids: Rids, num_left: Sequence[int], most: int) -> Int64 | None:
        """How many output tokens each row will have after the next steps, which verify all drafts.

        The steps are those before the first that ends a row: its output ends, or the row has got as
        many tokens as `num_left` says. There are `most` of them at most.

        Returns int64, shape [num_rows, 1 + num_steps]: tokens now, and after each step; None: no
        such step is known.
        """
        speculation = self._speculation
        if speculation is None:
            return None
        self._is_asked = True
        chosen: list[_Row] = []
        for rid, left in zip(rids, num_left, strict=True):
            row = self._rows[rid]
            if not row.knows_steps(most):
                row.work_out(rid, speculation, most)
            end = min(row.num_outputs + left, row.end)
            if end - row.num_outputs <= most * (1 + self._most):
                most = min(most, row.num_steps_before(end))
                if most <= 0:
                    return None
            chosen.append(row)
        ahead = [row.ends[row.at : row.at + most + 1] for row in chosen]
        return np.concatenate(ahead).reshape(len(ahead), 1 + most)

    def forget(self, rid: str) -> None:
        super().forget(rid)
        self._rows.pop(rid, None)

    def _num_gained(self, rid: str, row: _Row, num_drafts: int, num_steps: int) -> int:
        """New tokens of a row that verifies drafts: one in each step, and the accepted drafts."""
        speculation = self._speculation
        if speculation is None:
            return num_steps
        if num_drafts == self._most and self._is_asked and not row.knows_steps(num_steps):
            row.work_out(rid, speculation, num_steps)
        at = row.at
        if num_drafts == self._most and at + num_steps <= len(row.gained):
            row.at += num_steps
            if num_steps == 1:
                return row.gained[at]
            return int(row.ends[row.at]) - row.num_outputs
        row.leave_steps()
        acceptance, place = speculation.acceptance, row.num_outputs
        # SGLang verifies `num_drafts` tokens even if the lookup found fewer.
        num_found = acceptance.num_proposed(rid, row.seed, place, num_drafts)
        return 1 + acceptance.num_accepted(rid, row.seed, place, min(num_drafts, num_found))

    def _num_proposed(self, rid: str, row: _Row | None) -> int:
        """How many tokens are drafted after the output so far; none before its first token."""
        speculation = self._speculation
        if speculation is None or row is None or not row.num_outputs:
            return 0
        return speculation.acceptance.num_proposed(rid, row.seed, row.num_outputs, self._most)
