"""The server's loop in real time: the same engine as in the simulator, a real device under it.

Normal scheduling decides a step when the result of the one before is known. Overlap scheduling
prepares and launches a step while the one before runs, and takes results in one step late.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from realrun.clock import WallClock
from realrun.executor import Flight, TorchExecutor
from realrun.recorder import MeasuredTimes, Recorder, StepRecord
from realrun.traffic import Traffic
from sim.core.batch import Batch
from sim.engine.core import EngineCore
from sim.engine.records import RequestRecord, StepState

Watcher = Callable[[int, int], None]


class _Launched(NamedTuple):
    """A flight, and what was noted when it took off."""

    flight: Flight
    state: StepState
    looks_ns: tuple[int, ...]
    decided_ns: int
    enqueued_ns: int
    launched_ns: int
    schedule_ns: int
    ready_ns: int


class Server:
    """Serves traffic to its end. Everything happens in the caller's thread.

    Attributes:
        recorder: what happened.
    """

    def __init__(
        self,
        engine: EngineCore,
        executor: TorchExecutor,
        traffic: Traffic,
        clock: WallClock,
        *,
        overlaps: bool,
        watcher: Watcher | None = None,
    ) -> None:
        self.recorder = Recorder()
        self._engine = engine
        self._executor = executor
        self._traffic = traffic
        self._clock = clock
        self._overlaps = overlaps
        self._watcher = watcher
        self._looks_ns: list[int] = []
        # When the host last woke up, was done with a launch, or had a result.
        self._awake_ns = 0
        # When the next step could begin to be decided, in the sense of docs/reference/run-log.md.
        self._ready_ns = 0
        self._device_free_ns = 0
        self._wakes_ns: int | None = None

    def serve(self) -> None:
        """Return when every request is over."""
        flying: _Launched | None = None
        while flying is not None or self._engine.requests or self._traffic.next_ns is not None:
            launched = self._launch()
            landing = flying if self._overlaps else launched
            if landing is not None:
                self._land(landing)
            elif launched is None:
                self._sleep()
            if launched is not None and self._overlaps:
                self._ready_ns = max(launched.enqueued_ns, self._device_free_ns)
            flying = launched if self._overlaps else None

    # ---- one step ------------------------------------------------------------------------------

    def _launch(self) -> _Launched | None:
        now_ns = self._clock.now_ns()
        self._take_arrivals(now_ns)
        decided = self._engine.begin_step(now_ns)
        self._over(decided.over, now_ns)
        self._wakes_ns = decided.wakes_ns
        if decided.batch is None or decided.state is None:
            self._looks_ns.append(now_ns)
            return None
        scheduled_ns = self._clock.now_ns()
        flight = self._executor.launch(decided.batch)
        launched_ns = self._clock.now_ns()
        launched = _Launched(
            flight=flight,
            state=decided.state,
            looks_ns=tuple(self._looks_ns),
            decided_ns=now_ns,
            enqueued_ns=launched_ns - flight.launch_ns,
            launched_ns=launched_ns,
            schedule_ns=scheduled_ns - self._awake_ns,
            ready_ns=self._ready_ns,
        )
        self._looks_ns.clear()
        self._awake_ns = launched.launched_ns
        return launched

    def _land(self, launched: _Launched) -> None:
        batch = launched.flight.batch
        output = self._executor.land(launched.flight)
        known_ns = self._clock.now_ns()
        self._note_tokens(batch, known_ns)
        self._record(launched, known_ns)
        records = self._engine.end_step(batch, output, known_ns)
        self._executor.settle(batch)
        self._over(records, known_ns)
        self._awake_ns = known_ns

    def _note_tokens(self, batch: Batch, known_ns: int) -> None:
        """Tokens of requests that have ended meanwhile reach nobody."""
        sampling = [row.rid for row in batch.prefill if row.samples]
        for rid in [*sampling, *batch.decode_rids]:
            if self._engine.takes_token(rid):
                self.recorder.token(rid, known_ns)

    def _record(self, launched: _Launched, known_ns: int) -> None:
        flight, ticket = launched.flight, launched.flight.ticket
        device_start_ns = self._clock.of_counter_ns(ticket.start_ns)
        device_end_ns = self._clock.of_counter_ns(ticket.end_ns)
        forward_ns = max(ticket.forward_ns, 1)
        # What a simulator needs to come out at the same times: see docs/reference/run-log.md.
        if self._overlaps:
            ended_ns = device_end_ns
            busy_ns = ended_ns - max(launched.enqueued_ns, self._device_free_ns)
            host_ns = launched.enqueued_ns - launched.ready_ns
        else:
            ended_ns, busy_ns = known_ns, forward_ns
            host_ns = known_ns - forward_ns - launched.ready_ns
        self._ready_ns = ended_ns
        times = MeasuredTimes(
            decided_ns=launched.decided_ns,
            started_ns=ended_ns - max(busy_ns, 1),
            ended_ns=ended_ns,
            known_ns=known_ns,
            host_ns=max(host_ns, 0),
            forward_ns=forward_ns,
            idle_ns=max(device_start_ns - self._device_free_ns, 0),
            schedule_ns=launched.schedule_ns,
            plan_ns=flight.plan_ns,
            launch_ns=flight.launch_ns,
            sample_ns=flight.work.sample_ns,
            read_back_ns=max(known_ns - max(device_end_ns, launched.launched_ns), 0),
        )
        self._device_free_ns = device_end_ns
        self.recorder.stepped(
            StepRecord(
                flight.batch,
                launched.state,
                times,
                launched.looks_ns,
                flight.padded_rows,
                flight.max_decode_ctx,
            )
        )

    # ---- requests ------------------------------------------------------------------------------

    def _take_arrivals(self, now_ns: int) -> None:
        for request in self._traffic.arrived(now_ns):
            admitted = self._executor.tokens.admit(request)
            self.recorder.submitted(admitted.spec)
            rejection = self._engine.rejection(admitted.spec)
            if rejection is None:
                self._engine.submit(admitted.spec)
            else:
                self._executor.tokens.forget(admitted.spec.rid)
                self._over([rejection], now_ns)

    def _over(self, records: Sequence[RequestRecord], now_ns: int) -> None:
        for record in records:
            self.recorder.over(record)
            self._traffic.over(record.spec.rid, now_ns)
            if self._watcher is not None:
                self._watcher(self.recorder.num_over, now_ns)

    def _sleep(self) -> None:
        """Wait for work, or for the time from which the work that waits may start."""
        wakes_ns = self._wakes_ns
        if wakes_ns is not None or not self._engine.num_waiting:
            times_ns = [t for t in (wakes_ns, self._traffic.next_ns) if t is not None]
            if times_ns:
                self._clock.sleep_until(min(times_ns))
        self._awake_ns = self._ready_ns = self._clock.now_ns()
