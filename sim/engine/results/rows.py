"""Results row by row: a row may get any number of tokens in a step, and has counters of its own.

With draft tokens, rows get unequal numbers of tokens. In some families' pipelines a step leaves out
the rows that are in flight, and with groups of layers each row frees blocks in its own time. There
is no fast-forward then. `BaseScheduler.goes_row_by_row` says which servers these are.

With speculative decoding a step verifies draft tokens. A row with k draft tokens computes 1 + k
tokens: its last known one and the drafts. If the target model accepts the first n drafts, the row
gets n + 1 tokens: those, and the one that the target model computed after them. KV of rejected
drafts is worthless, but its place stays allocated.
"""

from collections.abc import Sequence

from sim.core.batch import Batch, ForwardMode, StepOutput
from sim.core.errors import InvariantError
from sim.engine.launch import Launch, prefill_rows
from sim.engine.records import RequestRecord
from sim.engine.request import NEVER_NS, Request
from sim.engine.results.lockstep import Results
from sim.engine.results.token_clock import RowClock
from sim.engine.running_batch import R


class RowLaunch(Launch[R]):
    """A launch whose decode rows may compute several tokens each.

    Attributes:
        drafts: draft tokens of each decode row.
        contexts: context length of each decode row after the step.
        padding: of each prefill row: tokens that stand for drafts; they are always rejected.
        lengths: of each prefill row: the tokens it computes, with its padding.
    """

    __slots__ = ("contexts", "drafts", "lengths", "padding")

    def __init__(
        self,
        mode: ForwardMode,
        prefill: list[R],
        decode: list[R],
        chunked: tuple[R, ...],
        *,
        drafts: list[int],
        contexts: list[int],
        padding: list[int],
    ) -> None:
        super().__init__(mode, prefill, decode, chunked)
        self.drafts = drafts
        self.contexts = contexts
        self.padding = padding
        self.lengths = [request.extend_len for request in prefill]


class RowResults(Results):
    """Of servers whose rows may get several tokens in a step, or none."""

    def __init__(self, *, has_drafts: bool) -> None:
        """`has_drafts`: steps verify draft tokens."""
        self._row_clock = RowClock()
        super().__init__(self._row_clock, repeats=False)
        self._has_drafts = has_drafts

    def describe(self, launch: Launch[Request], stopped_rids: Sequence[str]) -> Batch:
        if not isinstance(launch, RowLaunch):
            raise InvariantError("a launch says nothing of its rows")
        contexts = launch.contexts
        num_decode_context = sum(contexts)
        num_prefill_context = sum([request.extend_end for request in launch.prefill])
        return Batch(
            launch.mode,
            prefill_rows(launch),
            tuple([request.rid for request in launch.decode]),
            num_prefill_context + num_decode_context,
            num_decode_context,
            tuple(stopped_rids),
            (),
            max(contexts, default=0),
            min(contexts, default=0),
            tuple(launch.drafts) if self._has_drafts else (),
        )

    def take(
        self,
        launch: Launch[Request],
        output: StepOutput,
        ended: frozenset[str],
        now_ns: int,
        records: list[RequestRecord],
    ) -> list[Request]:
        if not isinstance(launch, RowLaunch):
            raise InvariantError("a launch says nothing of its rows")
        finishing = self._take_prefill(launch, output, ended, now_ns, records)
        return finishing + self._take_decode(launch, output, ended, now_ns)

    def _take_prefill(
        self,
        launch: RowLaunch[Request],
        output: StepOutput,
        ended: frozenset[str],
        now_ns: int,
        records: list[RequestRecord],
    ) -> list[Request]:
        """Take in the results of the prefill rows; returns rows that are still to be finished."""
        scheduler, role, finishing = self.scheduler, self.role, list[Request]()
        num_proposed = output.num_proposed[: len(launch.prefill)]
        for request, num_tokens, padding, proposed in zip(
            launch.prefill, launch.lengths, launch.padding, num_proposed, strict=True
        ):
            if scheduler.is_over(request, num_tokens):
                continue
            if request in launch.chunked:
                scheduler.chunk_done(request, num_tokens)
                role.chunk_computed(request)
                continue
            scheduler.prompt_done(
                request, num_tokens=num_tokens, num_drafts=padding, num_proposed=proposed
            )
            if role.keeps_prompts:
                role.prompt_computed(request, now_ns, records)
            elif not (self._give(request, 1, now_ns) or request.rid in ended):
                scheduler.prefill_computed(request)
            elif scheduler.ends_in_batch_order:
                records.append(self.engine.finish(request, now_ns))
            else:
                finishing.append(request)
        return finishing

    def _take_decode(
        self, launch: RowLaunch[Request], output: StepOutput, ended: frozenset[str], now_ns: int
    ) -> list[Request]:
        """Take in the results of the decode rows; returns the requests that end with them."""
        finishing = []
        num_proposed = output.num_proposed[len(launch.prefill) :]
        for request, num_drafts, num_sampled, proposed in zip(
            launch.decode, launch.drafts, output.num_sampled, num_proposed, strict=True
        ):
            if self.scheduler.is_over(request, 1 + num_drafts):
                continue
            num_kept = min(num_sampled, request.max_new_tokens - request.num_generated)
            if num_drafts:
                request.verify_steps += 1
                request.drafted_tokens += num_drafts
                request.accepted_tokens += num_kept - 1
            self.scheduler.verified(
                request,
                num_drafts=num_drafts,
                num_sampled=num_sampled,
                num_kept=num_kept,
                num_proposed=proposed,
            )
            if self._give(request, num_kept, now_ns) or request.rid in ended:
                finishing.append(request)
        return finishing

    def _give(self, request: Request, num_kept: int, now_ns: int) -> bool:
        """Give a row its tokens; returns whether it is at its limit."""
        if request.first_token_ns == NEVER_NS:
            request.first_token_ns = now_ns
        self._row_clock.tokens(request, num_kept, now_ns)
        request.num_generated += num_kept
        return request.num_generated >= request.max_new_tokens
