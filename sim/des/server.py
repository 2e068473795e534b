"""A server as a SimPy process: decide a step, let its time pass, take in its result.

The engine decides, the latency model says how long it takes, the executor what comes out. Where
nothing can be decided for many steps they pass as one wait; an arrival cuts that wait at the next
decision, just as if the steps had been taken one by one.
"""

from collections.abc import Callable, Generator
from typing import Any

from simpy.events import Event

from sim.core.batch import Batch
from sim.core.request import RequestSpec
from sim.des.boundary import Boundary, Clock, step_begin, step_end
from sim.des.flight import Flight
from sim.des.glide import Glide
from sim.des.journal import Journal
from sim.des.timeline import Steps, overlapped_steps, serial_steps
from sim.engine.core import EngineCore
from sim.engine.records import Decided, StepState
from sim.engine.scripted import ScriptedExecutor
from sim.latency.features import step_features
from sim.latency.model import LatencyModel
from sim.workload.workload import ScriptedRequest

Wait = Generator[Event, Any, None]
Check = Callable[[EngineCore], None]


class Server:
    """One replica. `submit` comes from outside; everything else happens in its process."""

    def __init__(
        self,
        env: Clock,
        replica: int,
        *,
        engine: EngineCore,
        executor: ScriptedExecutor,
        latency: LatencyModel,
        journal: Journal,
    ) -> None:
        self.env = env
        self.replica = replica
        self._end_priority, self._begin_priority = step_end(replica), step_begin(replica)
        self.engine = engine
        self.num_steps = 0
        self._executor = executor
        self._latency = latency
        self._journal = journal
        self._arrived = env.event()
        self._glide: Glide | None = None
        self._at_the_door: list[RequestSpec] = []
        self._check: Check | None = None
        self._fast_forward = True
        self._clients_react = False
        self._overlaps = False

    @property
    def num_unfinished(self) -> int:
        """Requests that came here and are not over, for the router."""
        return len(self.engine.requests) + len(self._at_the_door)

    def start(
        self, *, overlaps: bool, fast_forward: bool, clients_react: bool, check: Check | None
    ) -> None:
        """Begin to serve.

        Args:
            overlaps: decide a step while the one before runs.
            fast_forward: pass decode steps that decide nothing in one wait.
            clients_react: a request's end may bring another one at the same instant.
            check: called after every step.
        """
        self._overlaps = overlaps
        self._fast_forward = fast_forward
        self._clients_react = clients_react
        self._check = check
        self.env.process(self._overlap() if self._overlaps else self._serve())

    def submit(self, request: ScriptedRequest) -> None:
        """A request arrives now."""
        spec = request.spec
        self._journal.submitted(spec, self.replica)
        rejection = self.engine.rejection(spec)
        if rejection is not None:
            self._journal.over([rejection], self.env.now_ns)
            return
        self._executor.add(spec.rid, request.script, ignore_eos=spec.ignore_eos)
        if self._glide is None:
            self._enter(spec)
            return
        self._at_the_door.append(spec)
        if len(self._at_the_door) == 1:
            self._glide.cut_short()

    def _enter(self, spec: RequestSpec) -> None:
        self.engine.submit(spec)
        if not self._arrived.triggered:
            self._arrived.succeed()

    # ---- the two ways to serve -----------------------------------------------------------------

    def _serve(self) -> Wait:
        """Normal: a step is decided when the result of the one before is known."""
        while True:
            if self._must_settle:
                yield self._settled()
            decided = self._decide()
            if decided.batch is None or decided.state is None:
                yield from self._sleep(decided.wakes_ns)
                continue
            flight = self._launch(decided.batch, decided.state, device_free_ns=0)
            yield from self._pass(flight, flight.end_ns)
            self._finish(flight)

    def _overlap(self) -> Wait:
        """Overlap: a step is decided while the one before runs, its result not yet known."""
        env = self.env
        flying: Flight | None = None
        while True:
            if self._must_settle:
                yield self._settled()
            if flying is not None:
                time_passed = yield from self._pass(flying, env.now_ns)
                if time_passed and self._must_settle:
                    yield self._settled()
            decided = self._decide()
            flight = None
            if decided.batch is not None and decided.state is not None:
                free_ns = flying.end_ns if flying is not None else 0
                flight = self._launch(decided.batch, decided.state, device_free_ns=free_ns)
            if flying is not None:
                known_ns = flight.start_ns if flight is not None else flying.end_ns
                if not env.skip_to(known_ns):
                    yield self._at(known_ns)
                self._finish(flying)
            elif flight is not None:
                if not env.skip_to(flight.ready_ns):
                    yield self._at(flight.ready_ns)
            else:
                yield from self._sleep(decided.wakes_ns)
            flying = flight

    # ---- one step ------------------------------------------------------------------------------

    def _decide(self) -> Decided:
        decided = self.engine.begin_step(self.env.now_ns)
        if decided.over:
            self._journal.over(decided.over, self.env.now_ns)
        return decided

    def _launch(self, batch: Batch, state: StepState, device_free_ns: int) -> Flight:
        features = step_features(batch)
        time = self._latency.step_ns(features)
        self._latency.consume(1)
        return Flight(
            batch,
            features,
            state,
            decided_ns=self.env.now_ns,
            device_free_ns=device_free_ns,
            time=time,
        )

    def _pass(self, flight: Flight, next_decision_ns: int) -> Generator[Event, Any, bool]:
        """Wait for the next decision that may differ, taking the steps before it.

        Args:
            flight: the only launch in flight. Grows by the steps taken.
            next_decision_ns: when the next step is decided.

        Returns:
            Whether time passed.
        """
        steps = self._plan(flight, next_decision_ns)
        if steps is None:
            if next_decision_ns <= self.env.now_ns:
                return False
            if not self.env.skip_to(next_decision_ns):
                yield self._at(next_decision_ns)
            return True
        num_steps = steps.num_steps
        if not self.env.skip_to(int(steps.decided_ns[-1])):
            glide = self._glide = Glide(self.env, steps.decided_ns, self._end_priority)
            yield glide.landing
            self._glide = None
            num_steps = glide.num_steps
        if num_steps:
            self._take(flight, steps, num_steps)
        while self._at_the_door:
            self._enter(self._at_the_door.pop(0))
        return True

    def _plan(self, flight: Flight, next_decision_ns: int) -> Steps | None:
        """The steps that must follow if no request arrives; None if the next may differ."""
        if not self._fast_forward:
            return None
        num_steps = self.engine.decode_horizon()
        if num_steps:
            num_steps = min(num_steps, self._executor.steps_to_finish() - 1)
        if num_steps <= 0:
            return None
        times = self._latency.decode_run_ns(flight.features.next_decode(), num_steps)
        if self._overlaps:
            steps = overlapped_steps(next_decision_ns, flight.end_ns, *times)
        else:
            steps = serial_steps(flight.end_ns, *times)
        return steps.decided_before(self.engine.next_aging_ns)

    def _take(self, flight: Flight, steps: Steps, num_steps: int) -> None:
        """The first of these steps were launched, and all but the last ended."""
        state = self.engine.state()
        run = self.engine.fast_forward(steps.known_ns[:num_steps])
        self._executor.execute(flight.batch, num_steps)
        self._latency.consume(num_steps)
        flight.extend(steps, run, state)

    def _finish(self, flight: Flight) -> None:
        self._journal.stepped(flight.as_run(self.replica, self.num_steps))
        self.num_steps += flight.num_steps
        output = self._executor.execute(flight.batch)
        records = self.engine.end_step(flight.batch, output, self.env.now_ns)
        self._journal.over(records, self.env.now_ns)
        if self._check is not None:
            self._check(self.engine)

    # ---- waiting -------------------------------------------------------------------------------

    def _at(self, time_ns: int) -> Boundary:
        return Boundary(self.env, time_ns - self.env.now_ns, self._end_priority)

    @property
    def _must_settle(self) -> bool:
        """Clients may react to what just happened, and somebody has yet to act at this instant."""
        return self._clients_react and not self.env.skip_to(self.env.now_ns)

    def _settled(self) -> Boundary:
        """Everything else of this instant has happened."""
        return Boundary(self.env, 0, self._begin_priority)

    def _sleep(self, wakes_ns: int | None) -> Wait:
        """Wait for work, or for the time from which the work that waits may start."""
        if wakes_ns is not None:
            self._arrived = self.env.event()
            yield self._arrived | self._at(wakes_ns)
        elif not self.engine.num_waiting:
            self._arrived = self.env.event()
            yield self._arrived
