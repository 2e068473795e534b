"""The engine core: the scheduling of one server, one step at a time.

    decided = core.begin_step(now_ns)                # decide a batch and allocate its KV
    ...                                              # the driver runs the batch
    core.end_step(decided.batch, output, now_ns)     # process the result

Under overlap scheduling the driver calls the next `begin_step` before this batch's `end_step`.
The engine reads no clock and touches no tensor, so the simulator and the real runner drive the
same class.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from sim.core.batch import Batch, ForwardMode, StepOutput
from sim.core.errors import InvariantError
from sim.core.request import Status
from sim.engine.batch_of import batch_of
from sim.engine.executor import Executor
from sim.engine.fast_forward import MANY_STEPS, DecodeRun, decode_horizon, take_decode_steps
from sim.engine.intake import Intake
from sim.engine.records import Decided, Preempted, RequestRecord, StepState
from sim.engine.request import NEVER_NS, Request
from sim.engine.scheduler import BaseScheduler, Decision, Launch


class EngineCore(Intake):
    """Takes requests in, decides batches, and returns a record of each request that has ended.

    Attributes:
        in_group: other ranks step together with this one (`sim.engine.ranks`). Then `begin_step`
            never says when to wake: `idle` does, once no rank has anything to launch.
        num_places: steps that may be in flight in a pipeline; 1: this is no pipeline.
    """

    def __init__(self, scheduler: BaseScheduler[Request], executor: Executor) -> None:
        super().__init__(scheduler, executor)
        # A decision may preempt requests and launch nothing. The next batch then reports them.
        self._preempted_since_batch: list[Preempted] = []
        self.in_group = False
        self.num_places = 1
        self._last_decision: Decision[Request] = Decision()

    # ---- one step ------------------------------------------------------------------------------

    def begin_step(self, now_ns: int) -> Decided:
        """Decide the next batch.

        Raises:
            InvariantError: requests wait and nothing runs, but none of them can be admitted.
        """
        in_flight = self.in_flight[-1] if self.in_flight else None
        received = self.input_queue.poll()
        over: list[RequestRecord] = []
        if self.input_queue.has_polled:
            over = self._receive(received, now_ns)
        self._before_decision(now_ns, over)
        decision = self.scheduler.decide(now_ns, in_flight)
        preempted: Sequence[Preempted] = ()
        taken_out: Decision[Request] | None = None
        if decision.takes_out:
            taken_out = decision
            preempted = _rids_of(decision)
            over += self._take_out(decision)
            self._preempted_since_batch += preempted
        launch = decision.launch
        if launch is None:
            self.input_queue.note_decision(None, is_idle=in_flight is None)
            wakes_ns = None
            if self.in_group:
                self._last_decision = decision
            elif in_flight is None:
                wakes_ns = self.scheduler.idle(now_ns, decision)
            return Decided(None, None, over, wakes_ns, preempted)
        self.in_flight.append(launch)
        self.input_queue.note_decision(launch.mode, is_idle=False)
        for request in launch.prefill:
            if request.scheduled_ns == NEVER_NS:
                request.scheduled_ns = now_ns
                request.cached_tokens = request.prefix_len
                request.host_cached_tokens = request.loaded_len
        batch = self._describe(launch)
        state = self.state(taken_out)
        if self._stopped_since_batch:
            self._stopped_since_batch, self._preempted_since_batch = [], []
        return Decided(batch, state, over, None, preempted, decision.waited_ns)

    def _before_decision(self, now_ns: int, over: list[RequestRecord]) -> None:
        """Act on what other servers have done; adds records of requests that end by it."""

    def idle(self, now_ns: int) -> int | None:
        """Until when a rank waits, if no rank of its group launches or has launched anything.

        Returns:
            As `Decided.wakes_ns`.

        Raises:
            InvariantError: requests wait, but none of them can be admitted.
        """
        return self.scheduler.idle(now_ns, self._last_decision)

    def _take_out(self, decision: Decision[Request]) -> Sequence[RequestRecord]:
        """Note that the decision removed running requests; returns records of the aborted ones."""
        victims = [victim for _, group in decision.preempted for victim in group]
        for request in [*decision.retracted, *victims, *decision.aborted]:
            self.clock.leave(request)
            self._stopped_since_batch.append(request.rid)
        return [self._forget(request) for request in decision.aborted]

    def _take_turns(self, launch: Launch[Request]) -> None:
        """Stop the token clock of rows that rest in this launch; restart it for resumed rows."""
        for request in launch.resting:
            self.clock.leave(request)
        for request in launch.resumed:
            if request.in_running_batch:
                self.clock.resume(request)
        launch.resting = launch.resumed = ()

    def _describe(self, launch: Launch[Request]) -> Batch:
        return batch_of(launch, self.scheduler, self._stopped_since_batch)

    def takes_token(self, rid: str) -> bool:
        """Whether a request keeps the token that the oldest launch in flight computes for it.

        A request that has ended since the launch loses it. So does a request that was put back
        into the queue, unless it is in `Launch.put_back`.
        """
        request = self.requests.get(rid)
        if request is None:
            return False
        return request.status is Status.RUNNING or request in self.in_flight[0].put_back

    def end_step(self, batch: Batch, output: StepOutput, now_ns: int) -> Sequence[RequestRecord]:
        """Take in the result of the oldest launch; returns records of the requests it finished."""
        over = self.drop_given_up()
        launch = self.in_flight.popleft()
        if launch.mode is not batch.mode:
            raise InvariantError(
                f"a {batch.mode.name} batch ended, but the oldest launch is {launch.mode.name}"
            )
        ended = frozenset(output.finished_rids)
        if self.ending:
            ended |= self._ending_in(launch)
        decodes = launch.mode is not ForwardMode.EXTEND
        if launch.resting or launch.resumed:
            self._take_turns(launch)
        if decodes:
            self.scheduler.running.finish_steps()
            self.clock.tick(now_ns)
        records = over
        finishing = self._take_prefill(launch, ended, now_ns, records)
        if decodes:
            finishing.extend(self._finishing_decode_rows(launch, ended, finishing))
        if launch.put_back:
            finishing.extend(self._finishing_put_back(launch, ended, now_ns))
        if len(finishing) > 1:
            finishing = self.scheduler.in_order_of_end(finishing)
        records.extend([self._finish(request, now_ns) for request in finishing])
        return records

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
        for request in launch.prefill:
            if request in launch.chunked or request.status is not Status.RUNNING:
                continue
            self._add_first_token(request, now_ns, already_counted=decodes)
            if request.rid not in ended and request.num_generated < request.max_new_tokens:
                self.scheduler.prefill_computed(request)
                request.chunk_computed()
            elif in_order:
                records.append(self._finish(request, now_ns))
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
            row = self.requests.get(rid)
            if row is not None:
                rows.append(row)
        return [row for row in rows if row.status is Status.RUNNING]

    def _finish(self, request: Request, now_ns: int) -> RequestRecord:
        if request.status is Status.WAITING:
            self.scheduler.withdraw(request)
        else:
            self.scheduler.give_back(request)
            self.scheduler.has_finished_rows |= request.in_running_batch
        self.clock.leave(request)
        if request.rid in self.ending:
            return self._give_back_unserved(request, request.end_status)
        request.status = Status.FINISHED
        return self._forget(request, now_ns)

    # ---- fast-forward --------------------------------------------------------------------------

    def decode_horizon(self) -> int:
        """How many decode steps must follow the one in flight, unless a request is received.

        These steps have the same rows and need no eviction. An end token may finish a request
        sooner: only the executor knows when. A request that arrives meanwhile is received by the
        first decision that polls (`InputQueue.next_poll`).
        """
        if len(self.in_flight) != 1 or self.ending:
            return 0
        queue = self.input_queue
        if queue.is_empty:
            return decode_horizon(self.in_flight[0], self.scheduler)
        num_unpolled = queue.num_unpolled_steps
        if num_unpolled:
            return min(decode_horizon(self.in_flight[0], self.scheduler), num_unpolled)
        if queue.given_up or self.scheduler.has_limits:
            return 0
        # The next decision receives them. They may have to wait, so that this decision repeats.
        for request in queue.take():
            self.scheduler.enter(request)
        return decode_horizon(self.in_flight[0], self.scheduler)

    @property
    def next_aging_ns(self) -> int:
        return self.scheduler.next_aging_ns

    def fast_forward(self, ends_ns: NDArray[np.int64]) -> DecodeRun:
        """End the step in flight and begin the next one, `len(ends_ns)` times at once.

        Afterwards the last of these steps is in flight.

        Args:
            ends_ns: end times, first that of the step in flight; int64, shape [num_steps], at
                most `decode_horizon` of them.
        """
        self._take_turns(self.in_flight[0])
        run = take_decode_steps(len(ends_ns), self.scheduler)
        self.input_queue.pass_decisions(len(ends_ns))
        self.clock.tick_many(ends_ns)
        return run

    def idle_horizon(self) -> int:
        """How many decisions of a rank without work must launch nothing, unless one arrives."""
        queue = self.input_queue
        num_live = len(self.requests) - len(queue.requests)
        if self.in_flight or self.scheduler.has_finished_rows or num_live > 0:
            return 0
        return MANY_STEPS if queue.is_empty else queue.num_unpolled_steps

    # ---- state ---------------------------------------------------------------------------------

    @property
    def num_waiting(self) -> int:
        """Requests that the next decision may launch: waiting ones, and one between chunks."""
        scheduler = self.scheduler
        return scheduler.num_waiting + (scheduler.chunked_rid is not None)

    def state(self, decision: Decision[Request] | None = None) -> StepState:
        """The server's state now, with the requests that the latest `decision` took out."""
        scheduler, kv = self.scheduler, self.kv
        mixed = bool(self.in_flight) and self.in_flight[-1].mode is ForwardMode.MIXED
        free, evictable = kv.free_tokens, kv.evictable_tokens
        retracted: tuple[str, ...] = ()
        aborted: tuple[str, ...] = ()
        if decision is not None:
            retracted = tuple([request.rid for request in decision.retracted])
            aborted = tuple([request.rid for request in decision.aborted])
        return StepState(
            free,
            evictable,
            kv.pool_tokens - free - evictable,
            scheduler.num_waiting,
            scheduler.num_running_shown(is_mixed=mixed),
            scheduler.num_slots_used,
            scheduler.batch_is_full,
            scheduler.new_token_ratio,
            scheduler.chunked_rid,
            retracted,
            aborted,
            tuple(self._preempted_since_batch),
            kv.host_used_tokens,
        )


def _rids_of(decision: Decision[Request]) -> list[Preempted]:
    """The rid of each request that needed room, with the rids of the requests put back for it."""
    return [
        (by.rid, tuple([victim.rid for victim in victims])) for by, victims in decision.preempted
    ]
