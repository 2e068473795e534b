"""How an engine takes in the results of a step: what its rows' tokens mean for their requests.

On most servers each decode row gets one token in each step. Their rows move in lockstep: counters
of the whole batch tell how long each row is (`sim.engine.running_batch`), and many equal steps are
taken at once (`sim.engine.fast_forward`). `LockstepResults` is for them. On others each row has
counters of its own (`sim.engine.results.rows`).
"""

from collections.abc import Iterator, Sequence

from sim.core.batch import Batch, ForwardMode, StepOutput
from sim.core.request import Status
from sim.engine.launch import Launch, batch_of
from sim.engine.live_requests import LiveRequests
from sim.engine.records import RequestRecord
from sim.engine.request import NEVER_NS, Request
from sim.engine.results.token_clock import TokenClock
from sim.engine.role import Role
from sim.engine.scheduler import BaseScheduler


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
