"""The engine core: the scheduling of one server, one step at a time.

    decided = core.begin_step(now_ns)                # decide a batch and allocate its KV
    ...                                              # the driver runs the batch
    core.end_step(decided.batch, output, now_ns)     # process the result

Under overlap scheduling the driver calls the next `begin_step` before this batch's `end_step`.
The engine reads no clock and touches no tensor, so the simulator and the real runner drive the
same class.

There is one engine for all servers. It is made of parts, and any of them go together:

    results   how the tokens of a step's rows are taken in: of all rows in lockstep
              (`sim.engine.parts`), or of each row for itself (`sim.engine.rows`)
    role      what the server does for requests that it shares with servers of another role
              (`sim.engine.parts`)
    turns     whose turn it is, where micro-batches of a pipeline take turns
              (`sim.engine.pipeline`)

Fast-forward takes many decode steps at the cost of one. As long as no request can join or leave the
running batch and no page must be evicted, every decision is to decode the same rows again. All such
steps then update the counters together: what takes in results says how many there are, and takes
them. The logs are the same to the byte as those of single steps (docs/explanation/invariants.md,
INV-12).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sim.core.batch import Batch, Executor, ForwardMode, StepOutput
from sim.core.errors import InvariantError
from sim.core.request import Status
from sim.engine.decode_run import DecodeRun, DraftRun
from sim.engine.live_requests import LiveRequests
from sim.engine.parts import MANY_STEPS, Results, Role
from sim.engine.pipeline import Turns
from sim.engine.records import (
    Decided,
    Decision,
    Launch,
    Preempted,
    RequestRecord,
    Restored,
    StepState,
)
from sim.engine.request import NEVER_NS, Request
from sim.engine.scheduler import BaseScheduler

_NONE: frozenset[str] = frozenset()


class EngineCore(LiveRequests):
    """Takes requests in, decides batches, and returns a record of each request that has ended.

    Attributes:
        role: what the server does for requests that it shares with servers of another role.
        in_group: other ranks step together with this one (`sim.engine.ranks`). Then `begin_step`
            never says when to wake: `idle` does, once no rank has anything to launch.
    """

    def __init__(
        self,
        scheduler: BaseScheduler[Request],
        executor: Executor,
        *,
        results: Results,
        role: Role,
        num_places: int = 1,
    ) -> None:
        """Use `sim.families.build_engine` to make an engine.

        `num_places` steps may be in flight in a pipeline; 1: this is no pipeline.
        """
        super().__init__(scheduler, executor, results.clock, num_places)
        self.role = role
        self._results = results
        results.attach(self, scheduler, role)
        role.attach(self, scheduler)
        self._turns = Turns(scheduler, num_places) if scheduler.takes_turns else None
        # A decision may preempt requests and launch nothing. The next batch then reports them.
        self._preempted_since_batch: list[Preempted] = []
        self.in_group = False
        self._last_decision: Decision[Request] = Decision()
        self._over: list[RequestRecord] = []

    # ---- what its role says --------------------------------------------------------------------

    @property
    def num_unanswered(self) -> int:
        return len(self.requests) - len(self.role.sending)

    def _goes_on_without_client(self, rid: str) -> bool:
        return self.role.goes_on_without_client(rid)

    def _role_aborts(self, request: Request) -> bool:
        return self.role.aborts(request)

    # ---- one step ------------------------------------------------------------------------------

    def begin_step(self, now_ns: int) -> Decided:
        """Decide the next batch; of a pipeline whose micro-batches take turns, the next one's.

        Raises InvariantError: requests wait and nothing runs, but none of them can be admitted.
        """
        return self.role.begin_step(now_ns)

    def decide(self, now_ns: int) -> Decided:
        if self._turns is not None:
            self._turns.next()
        in_flight = self.in_flight[-1] if self.in_flight else None
        received = self.input_queue.poll()
        over: list[RequestRecord] = []
        if self.input_queue.has_polled:
            over = self._receive(received, now_ns)
        self.role.before_decision(now_ns, over)
        decision = self.scheduler.decide(now_ns, in_flight)
        if self.scheduler.awaits_ranks:
            self._over = over
            return Decided(None, None)
        return self._decided(decision, over, now_ns)

    def go_on(self, now_ns: int, *, others_prefill: bool) -> Decided:
        """End a decision that has waited for the other ranks (`BaseScheduler.awaits_ranks`)."""
        over, self._over = self._over, []
        decision = self.scheduler.go_on(others_prefill=others_prefill)
        return self._decided(decision, over, now_ns)

    def _decided(
        self, decision: Decision[Request], over: list[RequestRecord], now_ns: int
    ) -> Decided:
        """Note what was decided; `over` are records of requests that have ended before."""
        in_flight = bool(self.in_flight)
        preempted: Sequence[Preempted] = ()
        taken_out: Decision[Request] | None = None
        if decision.takes_out:
            taken_out = decision
            preempted = _rids_of(decision)
            over += self._take_out(decision)
            self._preempted_since_batch += preempted
        launch = decision.launch
        if launch is None:
            self.input_queue.note_decision(None, is_idle=not in_flight)
            wakes_ns = None
            if self.in_group:
                self._last_decision = decision
            elif not in_flight:
                wakes_ns = self.scheduler.idle(now_ns, decision)
            return Decided(None, None, over, wakes_ns, preempted)
        batch = self._launched(launch, now_ns, now_ns + decision.waited_ns)
        state = self.state(taken_out, decision.restored)
        if self.stopped_since_batch:
            self.stopped_since_batch, self._preempted_since_batch = [], []
        return Decided(batch, state, over, None, preempted, decision.waited_ns)

    def _launched(self, launch: Launch[Request], now_ns: int, at_ns: int) -> Batch:
        """Note that a launch is in flight; returns its batch."""
        self.in_flight.append(launch)
        if self._turns is not None:
            self._turns.launched()
        self.input_queue.note_decision(launch.mode, is_idle=False)
        for request in launch.prefill:
            if request.scheduled_ns == NEVER_NS:
                request.scheduled_ns = now_ns
                request.cached_tokens = request.prefix_len
                request.host_cached_tokens = request.loaded_len
        self.role.launched(launch, at_ns)
        return self._results.describe(launch, self.stopped_since_batch)

    def idle(self, now_ns: int) -> int | None:
        """Until when a rank waits, if no rank of its group launches or has launched anything.

        Returns:
            As `Decided.wakes_ns`.

        Raises InvariantError: requests wait, but none of them can be admitted.
        """
        if self.role.decides_again:
            return None
        wakes_ns = self.role.wakes_ns
        return self.scheduler.idle(now_ns, self._last_decision) if wakes_ns is None else wakes_ns

    def _take_out(self, decision: Decision[Request]) -> Sequence[RequestRecord]:
        """Note that the decision removed running requests; returns records of the aborted ones."""
        victims = [victim for _, group in decision.preempted for victim in group]
        for request in [*decision.retracted, *victims, *decision.aborted]:
            self.clock.leave(request)
            self.stopped_since_batch.append(request.rid)
        return [self._forget(request) for request in decision.aborted]

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
        if self._turns is not None:
            self._turns.return_to_oldest()
        records = self.drop_given_up()
        self.role.begin_result(output, now_ns)
        launch = self.in_flight.popleft()
        if launch.mode is not batch.mode:
            raise InvariantError(
                f"a {batch.mode.name} batch ended, but the oldest launch is {launch.mode.name}"
            )
        ended = frozenset(output.finished_rids) if output.finished_rids else _NONE
        if self.ending:
            ended |= self._ending_in(launch)
        finishing = self._results.take(launch, output, ended, now_ns, records)
        if len(finishing) > 1:
            finishing = self.scheduler.in_order_of_end(finishing)
        for request in finishing:
            records.append(self.finish(request, now_ns))
        self.role.result_taken(now_ns, records)
        return records

    # ---- fast-forward --------------------------------------------------------------------------

    def decode_horizon(self) -> int:
        """How many decode steps must follow the one in flight, unless a request is received.

        These steps have the same rows and need no eviction. An end token may finish a request
        sooner: only the executor knows when. A request that arrives meanwhile is received by the
        first decision that polls (`InputQueue.next_poll`).
        """
        if len(self.in_flight) != 1 or self.ending or self.role.has_news:
            return 0
        if self.in_group and not self._results.in_lockstep:
            return 0  # `pages_of_steps` is not known before.
        launch, queue = self.in_flight[0], self.input_queue
        horizon = self._results.horizon(launch) if launch.mode is ForwardMode.DECODE else 0
        if queue.is_empty or not horizon:
            return horizon
        num_unpolled = queue.num_unpolled_steps
        if num_unpolled:
            return min(horizon, num_unpolled)
        if queue.given_up or self.scheduler.has_limits:
            return 0
        # The next decision receives them. They may have to wait, so that this decision repeats.
        for request in queue.take():
            self.scheduler.enter(request)
        return self._results.horizon(launch)

    @property
    def draft_run(self) -> DraftRun | None:
        """The steps of the last `decode_horizon`, if they verify drafts; None: they do not."""
        return self._results.draft_run

    @property
    def next_aging_ns(self) -> int:
        return self.scheduler.next_aging_ns

    def fast_forward(self, ends_ns: NDArray[np.int64]) -> DecodeRun:
        """End the step in flight and begin the next one, `len(ends_ns)` times at once.

        Afterwards the last of these steps is in flight.

        `ends_ns` are end times, first that of the step in flight; int64, shape [num_steps], at most
        `decode_horizon` of them.
        """
        run = self._results.take_steps(self.in_flight[0], ends_ns)
        self.input_queue.pass_decisions(len(ends_ns))
        return run

    def pages_of_steps(self, num_steps: int) -> int:
        """New pages of `num_steps` steps, at most `decode_horizon`, or `idle_horizon`."""
        if not (self.in_flight and num_steps):
            return 0
        return self.scheduler.running.page_demand().after(num_steps)[0]

    def idle_horizon(self) -> int:
        """How many decisions of a rank without work must launch nothing, unless one arrives."""
        role, queue = self.role, self.input_queue
        num_live = len(self.requests) - len(queue.requests)
        if self.in_flight or self.scheduler.has_finished_rows or num_live > 0:
            return 0
        if role.has_news or role.decides_again or role.wakes_ns is not None:
            return 0
        return MANY_STEPS if queue.is_empty else queue.num_unpolled_steps

    # ---- state ---------------------------------------------------------------------------------

    @property
    def num_waiting(self) -> int:
        """Requests that the next decision may launch: waiting ones, and one between chunks."""
        scheduler = self.scheduler
        return self.role.num_launchable(scheduler.num_waiting + (scheduler.chunked_rid is not None))

    @property
    def num_missed_steps(self) -> int:
        if not (self.in_flight and self._results.in_lockstep) or self._turns is not None:
            return 0
        return int(self.in_flight[-1].mode is not ForwardMode.EXTEND)

    def state(
        self, decision: Decision[Request] | None = None, restored: tuple[Restored, ...] = ()
    ) -> StepState:
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
            restored,
        )


def _rids_of(decision: Decision[Request]) -> list[Preempted]:
    """The rid of each request that needed KV, with the rids of the requests put back for it."""
    return [
        (by.rid, tuple([victim.rid for victim in victims])) for by, victims in decision.preempted
    ]
