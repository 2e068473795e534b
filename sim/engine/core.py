"""The engine core: one server's scheduling, stepped by whoever has a clock.

    batch = core.begin_step(now_ns)          # decide; KV is allocated
    ...                                      # run it, for as long as it takes
    core.end_step(batch, output, now_ns)     # what came out

Under overlap scheduling the next `begin_step` comes before this batch's `end_step`. Reads no clock
and touches no tensor, so a simulator and a real runner drive the same object.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sim.core.batch import Batch, ForwardMode, PrefillRow, StepOutput
from sim.core.errors import InvariantError
from sim.core.request import RequestSpec, Status
from sim.engine.fast_forward import DecodeRun, decode_horizon, take_decode_steps
from sim.engine.kv_memory import KVMemory
from sim.engine.launch import Launch
from sim.engine.protocols import Executor
from sim.engine.records import Preempted, RequestRecord, StepState
from sim.engine.request import NEVER_NS, Request
from sim.engine.scheduler import BaseScheduler
from sim.engine.token_clock import TokenClock


class EngineCore:
    """Requests in, batches out, records back.

    Attributes:
        kv, scheduler: what it drives; for tests and checks, not for drivers.
        in_flight: launches whose results are not known, oldest first.
        clock: inter-token latencies so far.
        wakes_ns: the last decision found nothing to run, and waits for this time or for an arrival.
        requests: requests that are not over, by rid.
    """

    def __init__(
        self,
        *,
        kv: KVMemory,
        scheduler: BaseScheduler,
        executor: Executor,
        least_priority: int,
    ) -> None:
        """Put the parts together: see `build_engine`.

        Args:
            kv: the memory that the scheduler decides about.
            scheduler: of any family.
            executor: runs the batches.
            least_priority: what a request without a priority counts as.
        """
        self._least_priority = least_priority
        self.kv = kv
        self.scheduler = scheduler
        self._executor = executor
        self.in_flight: deque[Launch] = deque()
        self._stopped: list[str] = []
        self._preempted: list[Preempted] = []
        self._last_preempted: tuple[Preempted, ...] = ()
        self._aborted: list[RequestRecord] = []
        self.clock = TokenClock()
        self.wakes_ns: int | None = None
        self.requests: dict[str, Request] = {}

    # ---- arrivals ------------------------------------------------------------------------------

    def rejection(self, spec: RequestSpec) -> RequestRecord | None:
        """The record of a request this server will never take (rule 1); None if it will."""
        if self.scheduler.token_limit(len(spec.prompt), spec.max_new_tokens) > 0:
            return None
        request = self._new_request(spec)
        request.status = Status.REJECTED
        return _record(request)

    def submit(self, spec: RequestSpec) -> None:
        """Queue a request that is not rejected.

        Raises:
            InvariantError: it is, or a request of that rid is not over yet.
        """
        request = self._new_request(spec)
        if spec.rid in self.requests or request.max_new_tokens <= 0:
            raise InvariantError(f"request {spec.rid} was submitted twice, or rejected before")
        self.requests[spec.rid] = request
        self.scheduler.enter(request)

    def _new_request(self, spec: RequestSpec) -> Request:
        prompt_len = len(spec.prompt)
        limit = self.scheduler.token_limit(prompt_len, spec.max_new_tokens)
        executor, rid = self._executor, spec.rid
        kv = self.kv.new_request(
            spec.prompt, partial(executor.output_ids, rid), partial(executor.output_part, rid)
        )
        request = Request(spec, kv, prompt_len=prompt_len, limit=limit)
        if spec.priority is None:
            request.priority = self._least_priority
        return request

    # ---- one step ------------------------------------------------------------------------------

    def begin_step(self, now_ns: int) -> Batch | None:
        """Decide the next batch, or None if nothing can run before something changes.

        Raises:
            InvariantError: requests wait, nothing runs, and still nothing can be admitted.
        """
        scheduler = self.scheduler
        self.wakes_ns = None
        in_flight = self.in_flight[-1] if self.in_flight else None
        launch = scheduler.next_launch(now_ns, in_flight)
        self._note_stopped()
        if launch is None:
            if in_flight is None:
                self.wakes_ns = scheduler.idle(now_ns)
            return None
        self.in_flight.append(launch)
        for request in launch.prefill:
            if request.scheduled_ns == NEVER_NS:
                request.scheduled_ns = now_ns
                request.cached_tokens = request.prefix_len
                request.host_cached_tokens = request.loaded_len
        batch = self._describe(launch)
        self._stopped = []
        self._last_preempted, self._preempted = tuple(self._preempted), []
        return batch

    def _note_stopped(self) -> None:
        decisions = self.scheduler.decisions
        if not (decisions.retracted or decisions.preempted or decisions.aborted):
            return
        victims = [victim for _, group in decisions.preempted for victim in group]
        # A decision that preempts may launch nothing: its victims show with the next launch.
        self._preempted += [(by.rid, tuple([v.rid for v in vs])) for by, vs in decisions.preempted]
        for request in [*decisions.retracted, *victims, *decisions.aborted]:
            self.clock.leave(request)
            self._stopped.append(request.rid)
        self._aborted.extend(self._forget(request) for request in decisions.aborted)

    def _take_turns(self, launch: Launch) -> None:
        """Requests that rest get no token from this launch, those whose turn it is do again."""
        for request in launch.resting:
            self.clock.leave(request)
        for request in launch.resumed:
            if request.in_running_batch:
                self.clock.resume(request)
        launch.resting = launch.resumed = ()

    def _describe(self, launch: Launch) -> Batch:
        running = self.scheduler.running
        rows = []
        num_prefill_context = 0
        for request in launch.prefill:
            rows.append(
                PrefillRow(
                    request.rid,
                    request.prefix_len,
                    request.extend_len,
                    request.num_generated,
                    request not in launch.chunked,
                    request.loaded_len,
                )
            )
            num_prefill_context += request.extend_end
        decodes = launch.mode is not ForwardMode.EXTEND
        num_decode_context = running.num_tokens if decodes else 0
        resting = self.scheduler.resting
        return Batch(
            launch.mode,
            tuple(rows),
            running.rids if decodes else (),
            num_prefill_context + num_decode_context,
            num_decode_context,
            tuple(self._stopped),
            tuple([request.rid for request in resting]) if resting else (),
            running.max_seq_len if decodes else 0,
            running.min_seq_len if decodes else 0,
        )

    def takes_token(self, rid: str) -> bool:
        """Whether a request takes the token that the oldest launch in flight has for it.

        It does not if it has ended since, or was put back in a way that loses such tokens.
        """
        request = self.requests.get(rid)
        if request is None:
            return False
        return request.status is Status.RUNNING or request in self.in_flight[0].put_back

    def end_step(self, batch: Batch, output: StepOutput, now_ns: int) -> Sequence[RequestRecord]:
        """Take in what a batch produced, in order of launch; returns the requests now over."""
        launch = self.in_flight.popleft()
        if launch.mode is not batch.mode:
            raise InvariantError(f"a {batch.mode.name} batch ended, {launch.mode.name} was next")
        ended = frozenset(output.finished_rids)
        finishing: list[Request] = []
        decodes = launch.mode is not ForwardMode.EXTEND
        if launch.resting or launch.resumed:
            self._take_turns(launch)
        if decodes:
            self.scheduler.running.finish_steps()
            self.clock.tick(now_ns)
        for request in launch.prefill:
            if request not in launch.chunked and request.status is Status.RUNNING:
                self._add_first_token(request, now_ns, already_counted=decodes)
                if request.rid in ended or self._generated(request) >= request.max_new_tokens:
                    finishing.append(request)
                else:
                    self._checkpoint(request)
        if decodes:
            finishing.extend(self._finishing_decode_rows(launch, ended, finishing))
        if launch.put_back:
            finishing.extend(self._finishing_put_back(launch, ended, now_ns))
        if len(finishing) > 1:
            finishing = self.scheduler.in_order_of_end(finishing)
        return [self._finish(request, now_ns) for request in finishing]

    def _add_first_token(self, request: Request, now_ns: int, *, already_counted: bool) -> None:
        """A prefill gave its token: the first, or after a retraction the next one."""
        if not request.in_running_batch:
            request.num_generated += 1
        elif not already_counted:
            self.scheduler.running.add_first_token(request)
        if request.first_token_ns == NEVER_NS:
            request.first_token_ns = now_ns
        self.clock.join(request, now_ns)

    def _finishing_decode_rows(
        self, launch: Launch, ended: frozenset[str], finishing: list[Request]
    ) -> list[Request]:
        """Decode rows whose last token this was, in batch order.

        Under overlap, rows that the launch prefilled may be among the running ones, or have left
        them: those `finishing` already are not counted again.
        """
        due = [*launch.leaving, *self._running_rows_at_end(ended)]
        rows = {r.rid: r for r in due if r.status is Status.RUNNING and r not in finishing}
        for request in launch.leaving:
            if request.rid in rows:
                request.num_generated += 1
        if len(rows) <= 1:
            return list(rows.values())
        return [request for request in launch.decode if request.rid in rows]

    def _finishing_put_back(
        self, launch: Launch, ended: frozenset[str], now_ns: int
    ) -> Iterator[Request]:
        """Rows that were preempted meanwhile get their token, and may have all they want."""
        for request in launch.put_back:
            request.num_generated += 1
            self.clock.late(request, now_ns)
            if request.first_token_ns == NEVER_NS:
                request.first_token_ns = now_ns
            if request.rid in ended or request.num_generated >= request.max_new_tokens:
                yield request

    def _running_rows_at_end(self, ended: frozenset[str]) -> list[Request]:
        """Rows of the running batch that are at their limit, or whose output ended."""
        rows = self.scheduler.running.rows_at_limit()
        for rid in ended:
            row = self.requests.get(rid)
            if row is not None:
                rows.append(row)
        return [row for row in rows if row.status is Status.RUNNING]

    def _generated(self, request: Request) -> int:
        if request.in_running_batch:
            return self.scheduler.running.num_generated(request)
        return request.num_generated

    def seq_len(self, request: Request) -> int:
        """Tokens of a request whose KV is allocated."""
        if request.in_running_batch:
            return self.scheduler.running.seq_len(request)
        return request.seq_len

    def _checkpoint(self, request: Request) -> None:
        """A finished prefill goes into the prefix cache (rule 14)."""
        self.kv.checkpoint(
            request.kv,
            request.extend_end,
            prompt_len=request.prompt_len,
            seq_len=self.seq_len(request),
        )
        request.prefix_len = request.extend_end

    def _finish(self, request: Request, now_ns: int) -> RequestRecord:
        if request.status is Status.WAITING:
            self.scheduler.withdraw(request)
        else:
            self._give_back(request)
        request.status = Status.FINISHED
        request.finish_ns = now_ns
        self.clock.leave(request)
        return self._forget(request)

    def _give_back(self, request: Request) -> None:
        request.seq_len = self.seq_len(request)
        request.num_generated = self._generated(request)
        request.status = Status.FINISHED
        self.kv.checkpoint(
            request.kv,
            self.scheduler.num_tokens_kept(request),
            prompt_len=request.prompt_len,
            seq_len=request.seq_len,
        )
        self.scheduler.release(request)
        self.scheduler.has_finished_rows |= request.in_running_batch

    def _forget(self, request: Request) -> RequestRecord:
        del self.requests[request.rid]
        self._executor.forget(request.rid)
        return _record(request)

    def take_aborted(self) -> Sequence[RequestRecord]:
        """Requests given up by the last decision because they can never fit (rule 11)."""
        aborted, self._aborted = self._aborted, []
        return aborted

    # ---- fast-forward --------------------------------------------------------------------------

    def decode_horizon(self) -> int:
        """How many further decode steps must follow the one in flight, unless a request arrives.

        They have the same rows and need no eviction. The executor may end a request sooner.
        """
        if len(self.in_flight) != 1:
            return 0
        return decode_horizon(self.in_flight[0], self.scheduler, self.kv)

    @property
    def next_aging_ns(self) -> int:
        """From then on a decision may differ though nobody arrives or leaves."""
        return self.scheduler.next_aging_ns

    def fast_forward(self, ends_ns: NDArray[np.int64]) -> DecodeRun:
        """Take `len(ends_ns)` steps at once, at most the horizon: each ends, the next begins.

        Afterwards one step is in flight as before: the last of them.

        Args:
            ends_ns: when the steps that end here end; int64, shape [num_steps].
        """
        self._take_turns(self.in_flight[0])
        run = take_decode_steps(len(ends_ns), self.scheduler, self.kv)
        self.clock.tick_many(ends_ns)
        return run

    # ---- what is going on ----------------------------------------------------------------------

    @property
    def num_waiting(self) -> int:
        return self.scheduler.num_waiting

    def state(self) -> StepState:
        """The server's state; meant to be read between `begin_step` and its `end_step`."""
        scheduler, kv = self.scheduler, self.kv
        mixed = bool(self.in_flight) and self.in_flight[-1].mode is ForwardMode.MIXED
        free, evictable = kv.free_tokens, kv.evictable_tokens
        decided = scheduler.decisions
        return StepState(
            free,
            evictable,
            kv.pool_tokens - free - evictable,
            scheduler.num_waiting,
            scheduler.num_running_shown(is_mixed=mixed),
            scheduler.num_slots_used,
            scheduler.is_full,
            scheduler.new_token_ratio,
            scheduler.chunked_rid,
            tuple([r.rid for r in decided.retracted]) if decided.retracted else (),
            tuple([r.rid for r in decided.aborted]) if decided.aborted else (),
            self._last_preempted,
            None if kv.host is None else kv.host.memory.used_tokens,
        )


def _record(request: Request) -> RequestRecord:
    return RequestRecord(
        spec=request.spec,
        status=request.status,
        prompt_tokens=request.prompt_len,
        output_tokens=request.num_generated,
        cached_tokens=request.cached_tokens,
        host_cached_tokens=request.host_cached_tokens,
        scheduled_ns=request.scheduled_ns,
        first_token_ns=request.first_token_ns,
        finish_ns=request.finish_ns,
        retractions=request.retractions,
        preemptions=request.preemptions,
        aged=request.is_aged,
    )
