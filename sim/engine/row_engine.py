"""The engine of servers that are decided row by row: a row may get any number of tokens in a step.

On most servers each decode row gets one token in each step. Their rows move in lockstep: counters
of the whole batch tell how long each row is (`sim.engine.running_batch`), and many equal steps are
taken at once (`sim.engine.fast_forward`). Here each row has counters of its own, and there is no
fast-forward. `sim.engine.server_config.goes_row_by_row` says which servers these are.

With speculative decoding a step verifies draft tokens. A row with k draft tokens computes 1 + k
tokens: its last known one and the drafts. If the target model accepts the first n drafts, the row
gets n + 1 tokens: those, and the one that the target model computed after them. KV of rejected
drafts is worthless, but its place stays allocated.
"""

from collections.abc import Sequence

from sim.core.batch import Batch, ForwardMode, StepOutput
from sim.core.errors import InvariantError
from sim.core.request import Status
from sim.engine.batch_of import prefill_rows
from sim.engine.core import EngineCore
from sim.engine.executor import Executor
from sim.engine.records import RequestRecord
from sim.engine.request import NEVER_NS, Request
from sim.engine.running_batch import R
from sim.engine.scheduler import BaseScheduler, Launch
from sim.engine.token_clock import RowClock


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


class RowEngine(EngineCore):
    """An engine whose rows may get several tokens in a step, or none."""

    def __init__(
        self,
        scheduler: BaseScheduler[Request],
        executor: Executor,
        *,
        num_places: int,
        drafts: bool,
    ) -> None:
        """Use `sim.families.build_engine` to make an engine.

        Args:
            scheduler: the server's scheduler; its launches are `RowLaunch`es.
            executor: runs the batches.
            num_places: steps that may be in flight in a pipeline; 1: this is no pipeline.
            drafts: whether steps verify draft tokens.
        """
        super().__init__(scheduler, executor)
        self.num_places = num_places
        self._drafts = drafts
        self._row_clock = RowClock()
        self.clock = self._row_clock

    def decode_horizon(self) -> int:
        """0: how many tokens a row gets is known only step by step."""
        return 0

    def _describe(self, launch: Launch[Request]) -> Batch:
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
            tuple(self._stopped_since_batch),
            (),
            max(contexts, default=0),
            min(contexts, default=0),
            tuple(launch.drafts) if self._drafts else (),
        )

    def end_step(self, batch: Batch, output: StepOutput, now_ns: int) -> Sequence[RequestRecord]:
        records = list(self.drop_given_up())
        launch = self.in_flight.popleft()
        if not isinstance(launch, RowLaunch):
            raise InvariantError("a launch says nothing of its rows")
        ended = frozenset(output.finished_rids)
        if self.ending:
            ended |= self._ending_in(launch)
        finishing = self._end_prefill(launch, output, ended, now_ns, records)
        finishing += self._end_decode(launch, output, ended, now_ns)
        if len(finishing) > 1:
            finishing = self.scheduler.in_order_of_end(finishing)
        records += [self._finish(request, now_ns) for request in finishing]
        return records

    def _end_prefill(
        self,
        launch: RowLaunch[Request],
        output: StepOutput,
        ended: frozenset[str],
        now_ns: int,
        records: list[RequestRecord],
    ) -> list[Request]:
        """Take in the results of the prefill rows; returns rows that are still to be finished."""
        scheduler, finishing = self.scheduler, list[Request]()
        num_proposed = output.num_proposed[: len(launch.prefill)]
        for request, num_tokens, padding, proposed in zip(
            launch.prefill, launch.lengths, launch.padding, num_proposed, strict=True
        ):
            if self._is_over(request):
                continue
            if request in launch.chunked:
                scheduler.chunk_done(request, num_tokens)
                continue
            scheduler.prompt_done(
                request, num_tokens=num_tokens, num_drafts=padding, num_proposed=proposed
            )
            if not (self._take(request, 1, now_ns) or request.rid in ended):
                scheduler.prefill_computed(request)
            elif scheduler.ends_in_batch_order:
                records.append(self._finish(request, now_ns))
            else:
                finishing.append(request)
        return finishing

    def _end_decode(
        self, launch: RowLaunch[Request], output: StepOutput, ended: frozenset[str], now_ns: int
    ) -> list[Request]:
        """Take in the results of the decode rows; returns the requests that end with them."""
        finishing = []
        num_proposed = output.num_proposed[len(launch.prefill) :]
        for request, num_drafts, num_sampled, proposed in zip(
            launch.decode, launch.drafts, output.num_sampled, num_proposed, strict=True
        ):
            if self._is_over(request):
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
            if self._take(request, num_kept, now_ns) or request.rid in ended:
                finishing.append(request)
        return finishing

    def _is_over(self, request: Request) -> bool:
        """Whether the request has ended, or has lost the tokens in flight."""
        status = request.status
        if status is Status.WAITING:
            return not self.scheduler.keeps_tokens_in_flight
        return status is not Status.RUNNING

    def _take(self, request: Request, num_kept: int, now_ns: int) -> bool:
        """Give a row its tokens; returns whether it is at its limit."""
        if request.first_token_ns == NEVER_NS:
            request.first_token_ns = now_ns
        self._row_clock.tokens(request, num_kept, now_ns)
        request.num_generated += num_kept
        return request.num_generated >= request.max_new_tokens
