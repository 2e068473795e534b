"""How an engine takes in the results of a step: what its rows' tokens mean for their requests.

On most servers each decode row gets one token in each step (`LockstepResults`). Their rows move in
lockstep: counters of the whole batch tell how long each row is (`sim.engine.running_batch`), and
many equal steps are taken at once (`sim.engine.core`).

On others a row may get any number of tokens in a step, and has counters of its own (`RowResults`):
with draft tokens, rows get unequal numbers of tokens. In some families' pipelines a step leaves out
the rows that are in flight, and with groups of layers each row frees blocks in its own time. There
is no fast-forward then. `BaseScheduler.goes_row_by_row` says which servers these are.

With speculative decoding a step verifies draft tokens. A row with k draft tokens computes 1 + k
tokens: its last known one and the drafts. If the target model accepts the first n drafts, the row
gets n + 1 tokens: those, and the one that the target model computed after them. KV of rejected
drafts is worthless, but its place stays allocated.
"""

from collections.abc import Iterator, Sequence

from sim.core.batch import Batch, ForwardMode, StepOutput
from sim.core.errors import InvariantError
from sim.core.request import Status
from sim.engine.live_requests import LiveRequests
from sim.engine.records import Launch, RequestRecord, batch_of, prefill_rows
from sim.engine.request import NEVER_NS, Request
from sim.engine.role import Role
from sim.engine.running_batch import R
from sim.engine.scheduler import BaseScheduler
from sim.engine.token_clock import RowClock, TokenClock


class Results:
    """Base class.

    Attributes:
        clock: inter-token latencies so far.
        repeats: the rows move in lockstep, so that a decode step may repeat the one before.
        engine, scheduler, role: the engine that these results are of, its scheduler and its role.
    """

    def __init__(self, clock: TokenClock, *, repeats: bool) -> None:
        self.clock = clock
        self.repeats = repeats

    def attach(self, engine: LiveRequests, scheduler: BaseScheduler[Request], role: Role) -> None:
        """Called once, when the engine is made."""
        self.engine = engine
        self.scheduler = scheduler
        self.role = role

    def describe(self, launch: Launch[Request], stopped_rids: Sequence[str]) -> Batch:
        """The batch of a launch that was just decided.

        `stopped_rids` are the requests that were taken out of the running batch since the last one.
        """
        raise NotImplementedError

    def take(
        self,
        launch: Launch[Request],
        output: StepOutput,
        ended: frozenset[str],
        now_ns: int,
        records: list[RequestRecord],
    ) -> list[Request]:
        """Give the rows of a launch their tokens; returns requests that are still to be finished.

        Args:
            launch: the launch.
            output: its result.
            ended: requests that end with this result, by an end token or because they must.
            now_ns: when the result is known.
            records: gets those of requests that end here at once.
        """
        raise NotImplementedError

    def take_turns(self, launch: Launch[Request]) -> None:
        """Stop the token clock of rows that rest in this launch; restart it for resumed rows."""


class LockstepResults(Results):
    """Of servers on which each decode row gets one token in each step."""

    def __init__(self, clock: TokenClock) -> None:
        super().__init__(clock, repeats=True)

    def describe(self, launch: Launch[Request], stopped_rids: Sequence[str]) -> Batch:
        scheduler = self.scheduler
        return batch_of(launch, scheduler.running, scheduler.resting, stopped_rids)

    def take(
        self,
        launch: Launch[Request],
        output: StepOutput,
        ended: frozenset[str],
        now_ns: int,
        records: list[RequestRecord],
    ) -> list[Request]:
        decodes = launch.mode is not ForwardMode.EXTEND
        if launch.resting or launch.resumed:
            self.take_turns(launch)
        if decodes:
            running = self.scheduler.running
            running.finish_steps()
            self.clock.tick(now_ns, running.requests)
        finishing = self._take_prefill(launch, ended, now_ns, records)
        if decodes:
            finishing.extend(self._finishing_decode_rows(launch, ended, finishing))
        if launch.put_back:
            finishing.extend(self._finishing_put_back(launch, ended, now_ns))
        return finishing

    def take_turns(self, launch: Launch[Request]) -> None:
        for request in launch.resting:
            self.clock.leave(request)
        for request in launch.resumed:
            if request.in_running_batch:
                self.clock.resume(request)
        launch.resting = launch.resumed = ()

    def _take_prefill(
        self,
        launch: Launch[Request],
        ended: frozenset[str],
        now_ns: int,
        records: list[RequestRecord],
    ) -> list[Request]:
        """Give the prefill rows their tokens; returns rows that are still to be finished."""
        finishing: list[Request] = []
        in_order = self.scheduler.ends_in_batch_order
        decodes = launch.mode is not ForwardMode.EXTEND
        role = self.role
        for request in launch.prefill:
            if request.status is not Status.RUNNING:
                continue
            if request in launch.chunked:
                role.chunk_computed(request)
                continue
            if role.keeps_prompts:
                role.prompt_computed(request, now_ns, records)
                continue
            self._add_first_token(request, now_ns, already_counted=decodes)
            if request.rid not in ended and request.num_generated < request.max_new_tokens:
                self.scheduler.prefill_computed(request)
                request.chunk_computed()
            elif in_order:
                records.append(self.engine.finish(request, now_ns))
            else:
                finishing.append(request)
        return finishing

    def _add_first_token(self, request: Request, now_ns: int, *, already_counted: bool) -> None:
        """Count the token of a prefill: the first, or the next one after a retraction."""
        if not request.in_running_batch:
            request.num_generated += 1
        elif not already_counted:
            self.scheduler.running.add_first_token(request)
        if request.first_token_ns == NEVER_NS:
            request.first_token_ns = now_ns
        self.clock.join(request, now_ns)

    def _finishing_decode_rows(
        self, launch: Launch[Request], ended: frozenset[str], finishing: list[Request]
    ) -> list[Request]:
        """Decode rows that finish with this result, in batch order.

        Under overlap, the next decision may already have put a row that this launch prefilled into
        the running batch. If that row finishes, it has ended or is in `finishing`, and is not
        returned again.
        """
        due = self._running_rows_at_end(ended)
        if launch.leaving:
            due = [*launch.leaving, *due]
        if not due:
            return []
        rows = {r.rid: r for r in due if r.status is Status.RUNNING and r not in finishing}
        for request in launch.leaving:
            if request.rid in rows:
                request.num_generated += 1
        if len(rows) <= 1:
            return list(rows.values())
        return [request for request in launch.decode if request.rid in rows]

    def _finishing_put_back(
        self, launch: Launch[Request], ended: frozenset[str], now_ns: int
    ) -> Iterator[Request]:
        """Give each row that was put back after the launch its token; yields the finished ones."""
        for request in launch.put_back:
            if request.status is Status.ABORTED:
                continue
            request.num_generated += 1
            self.clock.single_token(request, now_ns)
            if request.first_token_ns == NEVER_NS:
                request.first_token_ns = now_ns
            if request.rid in ended or request.num_generated >= request.max_new_tokens:
                yield request

    def _running_rows_at_end(self, ended: frozenset[str]) -> list[Request]:
        """Running rows that are at their token limit, or that generated an end token."""
        rows = self.scheduler.running.rows_at_limit()
        if not (rows or ended):
            return rows
        for rid in ended:
            row = self.engine.requests.get(rid)
            if row is not None:
                rows.append(row)
        return [row for row in rows if row.status is Status.RUNNING]


class RowLaunch(Launch[R]):
    """A launch whose decode rows may compute several tokens each.

    Attributes:
        drafts: draft tokens of each decode row.
        contexts: context length of each decode row after the step.
        padding: of each prefill row: tokens that stand for drafts; they are always rejected.
        lengths: of each prefill row: the tokens it computes, with its padding.
    """

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
