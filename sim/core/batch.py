"""One step of the model: what the scheduler decided to run, and what came out."""

from collections.abc import Iterator
from enum import IntEnum
from typing import Final, Protocol


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
        rid: the request.
        prefix_len: tokens of the prompt before this chunk. Their KV was cached, computed by earlier
            chunks, or is loaded from host memory.
        extend_len: tokens computed in this step.
        num_prior_outputs: output tokens generated before (after a retraction or preemption).
        samples: whether the row yields a token; False for a chunk that is not the request's last.
        num_loaded_tokens: how many of the prefix's last tokens this step loads from host memory
            before it attends to them.
        load_tokens: these loads take as long as those of this many tokens of all layers: with
            windows or states, less or more is loaded.
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
