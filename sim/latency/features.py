"""The numbers of a step that its duration depends on. The only place that computes them."""

from typing import NamedTuple

from sim.core.batch import Batch, ForwardMode


class StepFeatures(NamedTuple):
    """What a latency model sees of a step.

    Attributes:
        mode: extend, decode or mixed.
        num_prefill_tokens: new tokens over all prefill rows.
        prefill_attention: sum over prefill rows of new x (cached + new / 2), doubled to stay whole:
            new x (2 x cached + new).
        num_prefill_rows: prefill rows.
        num_decode_rows: decode rows, one new token each.
        num_decode_context_tokens: tokens the decode rows attend to, their new one included.
        num_context_tokens: the same over all rows.
    """

    mode: ForwardMode
    num_prefill_tokens: int
    prefill_attention: int
    num_prefill_rows: int
    num_decode_rows: int
    num_decode_context_tokens: int
    num_context_tokens: int

    def next_decode(self) -> "StepFeatures":
        """The same decode rows one step later: each attends to one token more."""
        return self._replace(
            num_decode_context_tokens=self.num_decode_context_tokens + self.num_decode_rows,
            num_context_tokens=self.num_context_tokens + self.num_decode_rows,
        )


def step_features(batch: Batch) -> StepFeatures:
    num_prefill_tokens = prefill_attention = 0
    for row in batch.prefill:
        num_prefill_tokens += row.extend_len
        prefill_attention += row.extend_len * (2 * row.prefix_len + row.extend_len)
    return StepFeatures(
        mode=batch.mode,
        num_prefill_tokens=num_prefill_tokens,
        prefill_attention=prefill_attention,
        num_prefill_rows=len(batch.prefill),
        num_decode_rows=len(batch.decode_rids),
        num_decode_context_tokens=batch.num_decode_context_tokens,
        num_context_tokens=batch.num_context_tokens,
    )
