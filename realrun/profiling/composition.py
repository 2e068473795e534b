"""The composition of a step: the lengths of its prefill rows and decode rows."""

from dataclasses import dataclass

from sim.core.batch import ForwardMode
from sim.latency.shapes import ModelShape


@dataclass(frozen=True, slots=True)
class Composition:
    """The lengths of all rows of one step.

    Attributes:
        prefill: `(cached tokens, new tokens)` of each prefill row.
        decode_contexts: tokens that each decode row attends to, its new token included.
    """

    prefill: tuple[tuple[int, int], ...] = ()
    decode_contexts: tuple[int, ...] = ()

    @property
    def mode(self) -> ForwardMode:
        if not self.decode_contexts:
            return ForwardMode.EXTEND
        return ForwardMode.MIXED if self.prefill else ForwardMode.DECODE

    @property
    def query_lens(self) -> list[int]:
        """New tokens of each row, prefill rows first."""
        return [extend for _, extend in self.prefill] + [1] * len(self.decode_contexts)

    @property
    def kv_lens(self) -> list[int]:
        """All tokens of each row after the step."""
        return [prefix + extend for prefix, extend in self.prefill] + [*self.decode_contexts]

    @property
    def num_rows(self) -> int:
        return len(self.prefill) + len(self.decode_contexts)

    @property
    def num_new_tokens(self) -> int:
        return sum(extend for _, extend in self.prefill) + len(self.decode_contexts)

    @property
    def num_context_tokens(self) -> int:
        """All tokens after the step, summed over the rows."""
        return sum(self.kv_lens)

    def num_pages(self, page_size: int) -> int:
        return sum(-(-length // page_size) for length in self.kv_lens)

    def flops(self, shape: ModelShape) -> float:
        """Floating-point operations of the step, to estimate its time relative to other steps."""
        pairs = sum(extend * (prefix + extend / 2) for prefix, extend in self.prefill)
        pairs += sum(self.decode_contexts)
        attention = 4 * shape.num_layers * shape.num_heads * shape.head_dim * pairs
        return 2 * shape.num_parameters * self.num_new_tokens + attention

    def is_at_least(self, other: "Composition") -> bool:
        """Whether it has the same mode, and at least as many new tokens and context tokens."""
        return (
            self.mode is other.mode
            and self.num_new_tokens >= other.num_new_tokens
            and self.num_context_tokens >= other.num_context_tokens
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GridLimits:
    """The largest steps that a runner can run.

    Attributes:
        page_size: tokens of a page.
        num_pages: pages of the pool.
        max_rows: largest number of rows of a step.
        max_context: largest number of tokens of a row.
        max_new_tokens: largest number of new tokens of a step's prefill rows.
    """

    page_size: int
    num_pages: int
    max_rows: int
    max_context: int
    max_new_tokens: int

    def allow(self, composition: Composition) -> bool:
        return (
            composition.num_rows <= self.max_rows
            and max(composition.kv_lens) <= self.max_context
            and sum(extend for _, extend in composition.prefill) <= self.max_new_tokens
            and composition.num_pages(self.page_size) <= self.num_pages
        )
