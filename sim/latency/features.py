"""The numbers of a step that its duration depends on. The only place that computes them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

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
        num_loaded_tokens: tokens whose KV comes back from host memory for this step.
    """

    mode: ForwardMode
    num_prefill_tokens: int
    prefill_attention: int
    num_prefill_rows: int
    num_decode_rows: int
    num_decode_context_tokens: int
    num_context_tokens: int
    num_loaded_tokens: int = 0

    def next_decode(self) -> "StepFeatures":
        """The same decode rows one step later: each attends to one token more."""
        rows = self.num_decode_rows
        return StepFeatures(
            self.mode,
            self.num_prefill_tokens,
            self.prefill_attention,
            self.num_prefill_rows,
            rows,
            self.num_decode_context_tokens + rows,
            self.num_context_tokens + rows,
            self.num_loaded_tokens,
        )


def step_features(batch: Batch) -> StepFeatures:
    """Features of a step that is about to run."""
    rows = [(row.prefix_len, row.extend_len, row.num_loaded_tokens) for row in batch.prefill]
    return _features(batch.mode, rows, len(batch.decode_rids), batch.num_context_tokens)


def line_features(line: Mapping[str, Any]) -> StepFeatures:
    """Features of a step or point of a run log."""
    loaded = dict(line.get("loaded", ()))
    return _features(
        ForwardMode[line["mode"].upper()],
        [
            (prefix_len, extend_len, loaded.get(rid, 0))
            for rid, prefix_len, extend_len in line["prefill"]
        ],
        line["n_decode"],
        line["ctx"],
    )


def _features(
    mode: ForwardMode,
    prefill: Sequence[tuple[int, int, int]],
    num_decode_rows: int,
    num_context_tokens: int,
) -> StepFeatures:
    """`prefill`: cached, new and loaded tokens of each row."""
    num_prefill_tokens = num_cached_tokens = num_loaded_tokens = prefill_attention = 0
    for prefix_len, extend_len, loaded_len in prefill:
        num_prefill_tokens += extend_len
        num_cached_tokens += prefix_len
        num_loaded_tokens += loaded_len
        prefill_attention += extend_len * (2 * prefix_len + extend_len)
    return StepFeatures(
        mode,
        num_prefill_tokens,
        prefill_attention,
        len(prefill),
        num_decode_rows,
        num_context_tokens - num_prefill_tokens - num_cached_tokens,
        num_context_tokens,
        num_loaded_tokens,
    )
