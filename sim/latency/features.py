"""The numbers of a step that its duration depends on. No other module computes them."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sim.core.batch import Batch, ForwardMode


class PrefillChunk(NamedTuple):
    """New tokens of one prefill row, and the cached tokens before them."""

    new: float
    cached: float


class StepFeatures:
    """What a latency model knows of a step.

    Attributes:
        num_prefill_tokens: new tokens over all prefill rows.
        prefill_attention: twice the query-key pairs of the prefill rows: the sum over rows of new x
            (2 x cached + new). It is doubled so that it is a whole number.
        num_decode_rows: decode rows, one new token each, and their draft tokens.
        num_decode_context_tokens: tokens that all decode rows together attend to, their new tokens
            included.
        num_context_tokens: tokens that all rows together attend to, their new tokens included.
        num_loaded_tokens: this step loads from host memory, for as long as this many tokens of all
            layers take.
        max_decode_context_tokens, min_decode_context_tokens: the longest and the shortest context
            of a decode row; 0: not known.
        prefill_rows: (cached tokens, new tokens) of each prefill row; empty: none, or not known.
        num_group_tokens: new tokens of the step over all ranks that step together, and those of the
            batches that ranks without work run; 0: there is one rank.
        max_rank_tokens: new tokens of the rank with the most; 0: there is one rank.
        group_prefills: some of these ranks prefill, so none runs a CUDA graph.
        num_draft_tokens: draft tokens that all decode rows together verify.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - an argument for each field
        self,
        mode: ForwardMode,
        num_prefill_tokens: int,
        prefill_attention: int,
        num_prefill_rows: int,
        num_decode_rows: int,
        num_decode_context_tokens: int,
        num_context_tokens: int,
        num_loaded_tokens: float = 0.0,
        max_decode_context_tokens: int = 0,
        min_decode_context_tokens: int = 0,
        prefill_rows: tuple[tuple[int, int], ...] = (),
        num_group_tokens: int = 0,
        max_rank_tokens: int = 0,
        group_prefills: bool = False,
        num_draft_tokens: int = 0,
    ) -> None:
        self.mode = mode
        self.num_prefill_tokens = num_prefill_tokens
        self.prefill_attention = prefill_attention
        self.num_prefill_rows = num_prefill_rows
        self.num_decode_rows = num_decode_rows
        self.num_decode_context_tokens = num_decode_context_tokens
        self.num_context_tokens = num_context_tokens
        self.num_loaded_tokens = num_loaded_tokens
        self.max_decode_context_tokens = max_decode_context_tokens
        self.min_decode_context_tokens = min_decode_context_tokens
        self.prefill_rows = prefill_rows
        self.num_group_tokens = num_group_tokens
        self.max_rank_tokens = max_rank_tokens
        self.group_prefills = group_prefills
        self.num_draft_tokens = num_draft_tokens

    @property
    def num_tokens(self) -> int:
        """New tokens of the step: prefill, decode and draft tokens."""
        return self.num_prefill_tokens + self.num_decode_rows + self.num_draft_tokens

    def expert_tokens(self, num_ranks: int) -> int:
        """New tokens that the experts of all ranks compute together.

        If all ranks decode, they run CUDA graphs, for which SGLang and vLLM pad each rank to the
        largest. If nothing is known of the other ranks, they have as many tokens as this one.
        """
        if not self.num_group_tokens:
            return num_ranks * self.num_tokens
        if self.group_prefills:
            return self.num_group_tokens
        return num_ranks * self.max_rank_tokens

    @property
    def totals(self) -> tuple[float, ...]:
        """All features that are sums over rows."""
        return (
            self.num_prefill_tokens,
            self.prefill_attention,
            self.num_prefill_rows,
            self.num_decode_rows,
            self.num_decode_context_tokens,
            self.num_context_tokens,
            self.num_loaded_tokens,
        )

    def in_group(self, num_tokens: int, max_rank_tokens: int, *, prefills: bool) -> "StepFeatures":
        """The same step of a rank, with what the rank must know of the others."""
        step = self.copy()
        step.join_group(num_tokens, max_rank_tokens, prefills=prefills)
        return step

    def join_group(self, num_tokens: int, max_rank_tokens: int, *, prefills: bool) -> None:
        """Note what the rank of this step must know of the others."""
        self.num_group_tokens = num_tokens
        self.max_rank_tokens = max_rank_tokens
        self.group_prefills = prefills

    def with_single_tokens_as_decodes(self) -> "StepFeatures":
        """The same step with its prefill rows counted as decode rows, if each has one new token.

        Such a row costs what a decode row costs. It comes from a request whose other tokens are all
        cached.
        """
        rows = self.num_prefill_rows
        if not rows or self.num_prefill_tokens != rows:
            return self
        step = self.copy()
        step.mode = ForwardMode.DECODE
        step.num_prefill_tokens = step.prefill_attention = step.num_prefill_rows = 0
        step.num_decode_rows += rows
        step.num_decode_context_tokens = step.num_context_tokens
        step.max_decode_context_tokens = step.min_decode_context_tokens = 0
        step.prefill_rows = ()
        return step

    def with_verified_rows_as_prefill(self) -> "StepFeatures":
        """The same step, in which rows with draft tokens compute a short end of a prompt.

        A row with k drafts has 1 + k new tokens after the others of its context. Rows are taken to
        be equal, as only their sums are known.
        """
        rows, step = self.num_decode_rows, self.copy()
        num_new = rows + self.num_draft_tokens
        num_cached = self.num_decode_context_tokens - num_new
        step.mode = ForwardMode.EXTEND
        step.num_prefill_tokens += num_new
        step.prefill_attention += num_new * (2 * num_cached + num_new) // rows
        step.num_prefill_rows += rows
        step.num_decode_rows = step.num_decode_context_tokens = step.num_draft_tokens = 0
        step.max_decode_context_tokens = step.min_decode_context_tokens = 0
        step.prefill_rows = ()
        return step

    def decode_rows_alone(self) -> "StepFeatures":
        """A step of the same decode rows, without prefill rows and without draft tokens."""
        step = self.copy()
        step.mode = ForwardMode.DECODE
        step.num_prefill_tokens = step.prefill_attention = step.num_prefill_rows = 0
        step.num_draft_tokens = 0
        step.num_loaded_tokens = 0.0
        step.num_context_tokens = step.num_decode_context_tokens
        step.prefill_rows = ()
        return step

    def next_decode(self) -> "StepFeatures":
        """The same decode rows one step later, when each attends to one token more."""
        rows = self.num_decode_rows
        step = self.copy()
        step.num_decode_context_tokens += rows
        step.num_context_tokens += rows
        if step.max_decode_context_tokens:
            step.max_decode_context_tokens += 1
        if step.min_decode_context_tokens:
            step.min_decode_context_tokens += 1
        return step

    def with_contexts(self, num_tokens: int, longest: int, shortest: int) -> "StepFeatures":
        """The same decode rows with other contexts: over all of them, the longest, the shortest."""
        step = self.copy()
        step.num_decode_context_tokens = step.num_context_tokens = num_tokens
        step.max_decode_context_tokens = longest
        step.min_decode_context_tokens = shortest
        return step

    def prefill_chunks(self) -> list[PrefillChunk]:
        """The prefill rows, longest chunk first, then most cached tokens first.

        If only sums over the rows are known, the result is equal chunks that have the same sums of
        new tokens and of query-key pairs.
        """
        if self.prefill_rows:
            chunks = [PrefillChunk(new, cached) for cached, new in self.prefill_rows]
            if len(chunks) > 1:
                chunks.sort(reverse=True)
            return chunks
        new = self.num_prefill_tokens / self.num_prefill_rows
        cached = max((self.prefill_attention / self.num_prefill_tokens - new) / 2, 0.0)
        return [PrefillChunk(new, cached)] * self.num_prefill_rows

    def copy(self) -> "StepFeatures":
        return StepFeatures(
            self.mode,
            self.num_prefill_tokens,
            self.prefill_attention,
            self.num_prefill_rows,
            self.num_decode_rows,
            self.num_decode_context_tokens,
            self.num_context_tokens,
            self.num_loaded_tokens,
            self.max_decode_context_tokens,
            self.min_decode_context_tokens,
            self.prefill_rows,
            self.num_group_tokens,
            self.max_rank_tokens,
            self.group_prefills,
            self.num_draft_tokens,
        )


def step_features(batch: Batch) -> StepFeatures:
    prefill_rows: tuple[tuple[int, int], ...] = ()
    num_loaded = 0.0
    if batch.prefill:
        prefill_rows = tuple([(row.prefix_len, row.extend_len) for row in batch.prefill])
        for row in batch.prefill:
            num_loaded += row.load_tokens
    return _features(
        batch.mode,
        prefill_rows,
        num_loaded,
        (
            len(batch.decode_rids),
            batch.max_decode_context_tokens,
            batch.min_decode_context_tokens,
        ),
        batch.num_context_tokens,
        sum(batch.drafts) if batch.drafts else 0,
    )


def line_features(line: Mapping[str, Any]) -> StepFeatures:
    """Features of a step, or of a measured point, from its line in a run log."""
    return _features(
        ForwardMode[line["mode"].upper()],
        tuple([(prefix_len, extend_len) for _, prefix_len, extend_len in line["prefill"]]),
        sum(num_tokens for _, num_tokens in line.get("loaded", ())),
        (line["n_decode"], line.get("max_decode_ctx") or 0, 0),
        line["ctx"],
        sum(line.get("drafts", ())),
    )


def _features(
    mode: ForwardMode,
    prefill_rows: tuple[tuple[int, int], ...],
    num_loaded_tokens: float,
    decode: tuple[int, int, int],
    num_context_tokens: int,
    num_draft_tokens: int,
) -> StepFeatures:
    """Features from rows; `decode`: number of decode rows, their longest and shortest context."""
    num_prefill_tokens = num_cached_tokens = prefill_attention = 0
    for prefix_len, extend_len in prefill_rows:
        num_prefill_tokens += extend_len
        num_cached_tokens += prefix_len
        prefill_attention += extend_len * (2 * prefix_len + extend_len)
    num_decode_rows, max_decode_context_tokens, min_decode_context_tokens = decode
    return StepFeatures(
        mode,
        num_prefill_tokens,
        prefill_attention,
        len(prefill_rows),
        num_decode_rows,
        num_context_tokens - num_prefill_tokens - num_cached_tokens,
        num_context_tokens,
        num_loaded_tokens,
        max_decode_context_tokens,
        min_decode_context_tokens,
        prefill_rows,
        num_draft_tokens=num_draft_tokens,
    )


def graph_rows(num_rows: int, graph_sizes: Sequence[int]) -> int:
    """Rows of the smallest CUDA graph that takes `num_rows` decode rows; 0: none does.

    Kernels are captured for some numbers of rows; other numbers are padded. Of graphs for 1, 2, 4,
    8, 12 and 16 rows, 13 decode rows run as 16, and 17 run without a graph.
    """
    index = bisect_left(graph_sizes, num_rows)
    return graph_sizes[index] if index < len(graph_sizes) else 0


def padded_rows(num_rows: int, graph_sizes: Sequence[int]) -> int:
    """Rows that the kernels of a step of `num_rows` decode rows compute."""
    return graph_rows(num_rows, graph_sizes) or num_rows


def equal_prefills(num_rows: int, cached: int, new: int) -> StepFeatures:
    """The features of a step that prefills rows which are alike, behind `cached` tokens each."""
    rows = ((cached, new),) * num_rows
    return _features(ForwardMode.EXTEND, rows, 0.0, (0, 0, 0), num_rows * (cached + new), 0)


def equal_decodes(num_rows: int, context: int) -> StepFeatures:
    """The features of a step that decodes rows with `context` tokens each, the new one included."""
    decode = num_rows, context, context
    return _features(ForwardMode.DECODE, (), 0.0, decode, num_rows * context, 0)
