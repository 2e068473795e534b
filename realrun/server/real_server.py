"""The loop of a real server: the simulator's engine decides, and a real device runs the batches.

Normal scheduling decides a step when the result of the one before is known. Overlap scheduling
decides and launches a step while the one before runs, and processes results one step later.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from realrun.clock import WallClock
from realrun.server.executor import LaunchedBatch, TorchExecutor
from realrun.server.run_recorder import MeasuredTimes, RunRecorder, StepRecord
from realrun.server.traffic import GivenUp, IncomingTraffic
from sim.core.batch import Batch, StepOutput
from sim.engine.account import Account
from sim.engine.core import EngineCore
from sim.engine.records import RequestRecord, StepState


class TokenListener(Protocol):
    """What learns of tokens and ends, in the server's thread."""

    def generated(self, num_tokens: Mapping[str, int], now_ns: int) -> None:
        """A step has ended: requests that have this many output tokens now, and go on."""

    def over(self, record: RequestRecord, now_ns: int) -> None:
        """A request has ended."""


class _StepInFlight(NamedTuple):
    """A launched batch, with the state and the times of its launch."""

    launched: LaunchedBatch
    state: StepState
    idle_decisions_ns: tuple[int, ...]
    decided_ns: int
    enqueued_ns: int
    launched_ns: int
    schedule_ns: int
    ready_ns: int


class RealServer:
    """Serves all requests of its traffic in real time, in the caller's thread.

    Attributes:
        recorder: collects the steps and requests for the run log.
    """

    def __init__(
        self,
        engine: EngineCore,
        executor: TorchExecutor,
        traffic: IncomingTraffic,
        clock: WallClock,
        *,
        overlaps: bool,
        listener: TokenListener | None = None,
        recorder: RunRecorder | None = None,
    ) -> None:
        self.recorder = RunRecorder() if recorder is None else recorder
        self._account = Account()
        self._engine = engine
        self._executor = executor
        self._traffic = traffic
        self._clock = clock
        self._overlaps = overlaps
        self._listener = listener
        self._idle_decisions_ns: list[int] = []
        # When the host last woke up, finished a launch, or got a result.
        self._awake_ns = 0
        # Start of the next step's host time, as a simulator counts it (docs/reference/run-log.md).
        self._ready_ns = 0
        self._device_free_ns = 0
        self._wakes_ns: int | None = None

    def serve(self) -> None:
        """Serve until all requests have ended.

        Raises:
            AccountError: something is left over of a request.
        """
        in_flight: _StepInFlight | None = None
        while in_flight is not None or self._engine.requests or not self._traffic.is_over:
            step = self._launch()
            to_finish = in_flight if self._overlaps else step
            if to_finish is not None:
                self._take_result(to_finish)
            elif step is None:
                self._wait_for_work()
            if step is not None and self._overlaps:
                self._ready_ns = max(step.enqueued_ns, self._device_free_ns)
            in_flight = step if self._overlaps else None
        self._account.close([self._engine])

    # ---- one step ------------------------------------------------------------------------------

    def _launch(self) -> _StepInFlight | None:
        now_ns = self._clock.now_ns()
        self._take_arrivals(now_ns)
        decided = self._engine.begin_step(now_ns)
        self._over(decided.over, now_ns)
        self._wakes_ns = decided.wakes_ns
        if decided.batch is None or decided.state is None:
            self._idle_decisions_ns.append(now_ns)
            return None
        decision_end_ns = self._clock.now_ns()
        launched = self._executor.launch(decided.batch)
        launched_ns = self._clock.now_ns()
        step = _StepInFlight(
            launched=launched,
            state=decided.state,
            idle_decisions_ns=tuple(self._idle_decisions_ns),
            decided_ns=now_ns,
            enqueued_ns=launched_ns - launched.launch_ns,
            launched_ns=launched_ns,
            schedule_ns=decision_end_ns - self._awake_ns,
            ready_ns=self._ready_ns,
        )
        self._idle_decisions_ns.clear()
        self._awake_ns = step.launched_ns
        return step

    def _take_result(self, step: _StepInFlight) -> None:
        batch = step.launched.batch
        output = self._executor.take_result(step.launched)
        known_ns = self._clock.now_ns()
        self._note_tokens(batch, output, known_ns)
        ended_ns = self._record(step, known_ns)
        # What came later is seen by the next decision, so that a replay needs no other times.
        self._take_arrivals(ended_ns)
        records = self._engine.end_step(batch, output, known_ns)
        self._executor.note_cached_prefills(batch)
        self._tell(batch, known_ns)
        self._over(records, known_ns)
        self._awake_ns = known_ns

    def _tell(self, batch: Batch, known_ns: int) -> None:
        """Tell the listener of the tokens of requests that go on."""
        if self._listener is None:
            return
        rids = [*(row.rid for row in batch.prefill if row.samples), *batch.decode_rids]
        requests = self._engine.requests
        num_tokens = {rid: requests[rid].num_generated for rid in rids if rid in requests}
        self._listener.generated(num_tokens, known_ns)

    def _note_tokens(self, batch: Batch, output: StepOutput, known_ns: int) -> None:
        """Record the tokens' times, but not for requests that have ended since the launch."""
        for row in batch.prefill:
            if row.samples and self._engine.takes_token(row.rid):
                self.recorder.token(row.rid, known_ns)
        counts = output.num_sampled or [1] * len(batch.decode_rids)
        for rid, count in zip(batch.decode_rids, counts, strict=True):
            if self._engine.takes_token(rid):
                request = self._engine.requests[rid]
                num_left = request.max_new_tokens - request.num_generated
                for _ in range(min(count, num_left) if output.num_sampled else 1):
                    self.recorder.token(rid, known_ns)

    def _record(self, step: _StepInFlight, known_ns: int) -> int:
        """Record a step; returns when it ended, as a simulator counts it."""
        launched, submitted = step.launched, step.launched.submitted
        device_start_ns = self._clock.of_counter_ns(submitted.start_ns)
        device_end_ns = self._clock.of_counter_ns(submitted.end_ns)
        forward_ns = max(submitted.forward_ns, 1)
        # From these times a simulator computes the same schedule (docs/reference/run-log.md).
        if self._overlaps:
            ended_ns = device_end_ns
            busy_ns = ended_ns - max(step.enqueued_ns, self._device_free_ns)
            host_ns = step.enqueued_ns - step.ready_ns
        else:
            ended_ns, busy_ns = known_ns, forward_ns
            host_ns = known_ns - forward_ns - step.ready_ns
        self._ready_ns = ended_ns
        times = MeasuredTimes(
            decided_ns=step.decided_ns,
            started_ns=ended_ns - max(busy_ns, 1),
            ended_ns=ended_ns,
            known_ns=known_ns,
            host_ns=max(host_ns, 0),
            forward_ns=forward_ns,
            idle_ns=max(device_start_ns - self._device_free_ns, 0),
            schedule_ns=step.schedule_ns,
            plan_ns=launched.plan_ns,
            launch_ns=launched.launch_ns,
            sample_ns=launched.work.sample_ns,
            # Under overlap the host has launched the next step meanwhile, and was awake after that.
            read_back_ns=max(known_ns - max(device_end_ns, self._awake_ns), 0),
        )
        self._device_free_ns = device_end_ns
        self.recorder.stepped(
            StepRecord(
                launched.batch,
                step.state,
                times,
                step.idle_decisions_ns,
                launched.padded_rows,
                launched.max_decode_ctx,
                launched.copies,
            )
        )
        return ended_ns

    # ---- requests ------------------------------------------------------------------------------

    def _take_arrivals(self, now_ns: int) -> None:
        for arrival in self._traffic.arrived(now_ns):
            if isinstance(arrival, GivenUp):
                self._engine.give_up(arrival.rid)
                continue
            self._account.arrived(arrival.spec.rid)
            prepared = self._executor.tokens.add(arrival)
            self.recorder.submitted(prepared.spec)
            rejection = self._engine.rejection(prepared.spec, (self._engine,))
            if rejection is None:
                self._engine.submit(prepared.spec)
            else:
                self._executor.tokens.forget(prepared.spec.rid)
                self._over([rejection], now_ns)

    def _over(self, records: Sequence[RequestRecord], now_ns: int) -> None:
        for record in records:
            self._account.over(record.spec.rid, record.status)
            self.recorder.over(record)
            self._traffic.over(record.spec.rid, now_ns)
            if self._listener is not None:
                self._listener.over(record, now_ns)

    def _wait_for_work(self) -> None:
        """Wait until a request arrives, or until a waiting request may start."""
        wakes_ns = self._wakes_ns
        polls_again = bool(self._engine.input_queue.requests)
        if not polls_again and (wakes_ns is not None or not self._engine.num_waiting):
            self._traffic.wait(self._clock, wakes_ns)
        self._awake_ns = self._ready_ns = self._clock.now_ns()
