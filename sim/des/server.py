"""A simulated server as a SimPy process: decide a step, let its time pass, process its result.

The engine decides the batch, the latency model gives its duration, the executor its output tokens.
Fast-forward: if the next decode steps must all repeat one decision, they pass as one wait. If a
request arrives, the wait ends at the decision that receives it, exactly as if the steps had been
taken singly.
"""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from simpy.events import Event

from sim.core.batch import Batch
from sim.des.clock import Clock, DecodeWait, TimedEvent, step_begin, step_end
from sim.des.timeline import UpcomingSteps, overlapped_steps, serial_steps
from sim.des.traffic import SimulationLog
from sim.engine.core import EngineCore
from sim.engine.executor import ScriptedExecutor
from sim.engine.records import Decided, StepState
from sim.latency.features import StepFeatures, step_features
from sim.latency.model import LatencyModel
from sim.runlog.builder import FurtherSteps, StepRun
from sim.workload.workload import ScriptedRequest

Wait = Generator[Event, Any, None]


class ServerOptions(NamedTuple):
    """How a server is simulated.

    Attributes:
        overlaps: use overlap scheduling: decide a step while the one before runs.
        fast_forward: if the next decode steps must repeat one decision, pass them as one wait.
        clients_react: whether closed-loop clients may submit a request at the very time when one
            ends.
        check: called after every step; None: there is no check.
    """

    overlaps: bool
    fast_forward: bool
    clients_react: bool
    check: Callable[[EngineCore], None] | None


class Server:
    """One replica. Clients call `submit`; all else happens in the server's own SimPy process."""

    def __init__(
        self,
        env: Clock,
        replica: int,
        *,
        engine: EngineCore,
        executor: ScriptedExecutor,
        latency: LatencyModel,
        reports: SimulationLog,
        options: ServerOptions,
    ) -> None:
        self.env = env
        self.replica = replica
        self._end_priority, self._begin_priority = step_end(replica), step_begin(replica)
        self.engine = engine
        self.num_steps = 0
        self._executor = executor
        self._latency = latency
        self._reports = reports
        self._arrived = env.event()
        self._wait: DecodeWait | None = None
        self._overlaps, self._fast_forward, self._clients_react, self._check = options

    @property
    def num_unfinished(self) -> int:
        """Requests that were submitted here and have not ended; the router reads this."""
        return len(self.engine.requests)

    def start(self) -> None:
        """Start the server's process. It comes after the processes of all clients."""
        self.env.process(self._overlap() if self._overlaps else self._serve())

    def submit(self, request: ScriptedRequest) -> None:
        """A request arrives now."""
        spec = request.spec
        self._reports.submitted(spec, self.replica)
        rejection = self.engine.rejection(spec)
        if rejection is not None:
            self._reports.over([rejection], self.env.now_ns)
            return
        self._executor.add(spec.rid, request.script, ignore_eos=spec.ignore_eos)
        input_queue = self.engine.input_queue
        if self._wait is not None and not input_queue.requests:
            self._wait.cut_short(input_queue.next_poll(self._wait.next_step))
        self.engine.submit(spec)
        if not self._arrived.triggered:
            self._arrived.succeed()

    # ---- normal and overlap scheduling ---------------------------------------------------------

    def _serve(self) -> Wait:
        """Normal scheduling: decide a step when the result of the one before is known."""
        while True:
            if self._others_are_due:
                yield self._after_others()
            decided = self._decide()
            if decided.batch is None or decided.state is None:
                yield from self._wait_for_work(decided.wakes_ns)
                continue
            step = self._launch(decided.batch, decided.state, device_free_ns=0)
            yield from self._wait_for_decision(step, step.end_ns)
            self._finish(step)

    def _overlap(self) -> Wait:
        """Overlap scheduling: decide a step while the one before runs, without its result.

            host    | decide k+1, prepare it |  wait  | process k, decide k+2, ...
            device  | step k ..........................| step k+1 ......................
                    ^ decided_ns             ^ ready_ns ^ start_ns of k+1

        Step k+1 starts when the host has prepared it and step k has ended. At that time the host
        processes the result of step k and makes the next decision.
        """
        env = self.env
        running: StepRun | None = None
        while True:
            if self._others_are_due:
                yield self._after_others()
            if running is not None:
                time_passed = yield from self._wait_for_decision(running, env.now_ns)
                if time_passed and self._others_are_due:
                    yield self._after_others()
            decided = self._decide()
            step = None
            if decided.batch is not None and decided.state is not None:
                free_ns = running.end_ns if running is not None else 0
                step = self._launch(decided.batch, decided.state, device_free_ns=free_ns)
            if running is not None:
                known_ns = step.start_ns if step is not None else running.end_ns
                if not env.skip_to(known_ns):
                    yield self._at(known_ns)
                self._finish(running)
            elif step is not None:
                if not env.skip_to(step.ready_ns):
                    yield self._at(step.ready_ns)
            else:
                yield from self._wait_for_work(decided.wakes_ns)
            running = step

    # ---- one step ------------------------------------------------------------------------------

    def _decide(self) -> Decided:
        decided = self.engine.begin_step(self.env.now_ns)
        if decided.over:
            self._reports.over(decided.over, self.env.now_ns)
        return decided

    def _launch(self, batch: Batch, state: StepState, device_free_ns: int) -> StepRun:
        features = step_features(batch)
        time = self._latency.step_ns(features)
        self._latency.consume(features, 1)
        decided_ns = self.env.now_ns
        start_ns = max(decided_ns + time.host_ns, device_free_ns)
        return StepRun(
            self.replica,
            batch,
            state,
            decided_ns=decided_ns,
            host_ns=time.host_ns,
            start_ns=start_ns,
            first_end_ns=start_ns + time.device_ns,
        )

    def _wait_for_decision(
        self, step: StepRun, next_decision_ns: int
    ) -> Generator[Event, Any, bool]:
        """Wait for the next decision that may differ, and take the decode steps before it.

        Args:
            step: the only step in flight; the steps taken are added to it.
            next_decision_ns: when the next step is decided.

        Returns:
            Whether simulated time passed.
        """
        plan = self._upcoming_steps(step, next_decision_ns)
        if plan is None:
            if next_decision_ns <= self.env.now_ns:
                return False
            if not self.env.skip_to(next_decision_ns):
                yield self._at(next_decision_ns)
            return True
        first, steps = plan
        num_steps = steps.num_steps
        if not self.env.skip_to(int(steps.decided_ns[-1])):
            wait = self._wait = DecodeWait(self.env, steps.decided_ns, self._end_priority)
            yield wait.end
            self._wait = None
            num_steps = wait.num_steps
        if num_steps:
            self._take_steps(step, first, steps, num_steps)
        return True

    def _upcoming_steps(
        self, step: StepRun, next_decision_ns: int
    ) -> tuple[StepFeatures, UpcomingSteps] | None:
        """The decode steps that must follow `step` if no request arrives.

        Returns:
            The features of the first of them, and their times. None: the next step may differ.
        """
        if not self._fast_forward:
            return None
        num_steps = self.engine.decode_horizon()
        if num_steps:
            num_steps = min(num_steps, self._executor.steps_to_finish() - 1)
        if num_steps <= 0:
            return None
        first = step_features(step.batch).next_decode()
        times = self._latency.decode_run_ns(first, num_steps)
        if self._overlaps:
            steps = overlapped_steps(next_decision_ns, step.end_ns, *times)
        else:
            steps = serial_steps(step.end_ns, *times)
        steps_left = steps.decided_before(self.engine.next_aging_ns)
        return None if steps_left is None else (first, steps_left)

    def _take_steps(
        self, step: StepRun, first: StepFeatures, steps: UpcomingSteps, num_steps: int
    ) -> None:
        """End the step in flight and `num_steps` - 1 of the upcoming ones; launch one more."""
        state = self.engine.state()
        run = self.engine.fast_forward(steps.known_ns[:num_steps])
        self._executor.execute(step.batch, num_steps)
        self._latency.consume(first, num_steps)
        step.further = FurtherSteps(
            steps.decided_ns[:num_steps],
            steps.starts_ns[:num_steps],
            steps.ends_ns[:num_steps],
            steps.host_ns[:num_steps],
            run,
            state,
        )

    def _finish(self, step: StepRun) -> None:
        step.first_step = self.num_steps
        self.num_steps += step.num_steps
        self._reports.stepped(step)
        output = self._executor.execute(step.batch)
        records = self.engine.end_step(step.batch, output, self.env.now_ns)
        self._reports.over(records, self.env.now_ns)
        if self._check is not None:
            self._check(self.engine)

    # ---- waiting -------------------------------------------------------------------------------

    def _at(self, time_ns: int) -> TimedEvent:
        return TimedEvent(self.env, time_ns - self.env.now_ns, self._end_priority)

    @property
    def _others_are_due(self) -> bool:
        """Whether events of this same time may be reactions of clients to a request that ended."""
        return self._clients_react and not self.env.skip_to(self.env.now_ns)

    def _after_others(self) -> TimedEvent:
        """An event that follows all other events of this time."""
        return TimedEvent(self.env, 0, self._begin_priority)

    def _wait_for_work(self, wakes_ns: int | None) -> Wait:
        """Wait until a request arrives, or until `wakes_ns`, when a waiting request may start."""
        if self.engine.input_queue.requests:
            return
        if wakes_ns is not None:
            self._arrived = self.env.event()
            yield self._arrived | self._at(wakes_ns)
        elif not self.engine.num_waiting:
            self._arrived = self.env.event()
            yield self._arrived
