"""How time passes on a replica: decide a step, let its time pass, process its result.

A replica is one server (`one_server`) or a group of ranks that step together (`group`). Each says
what a step is. Its device may be a pipeline (`Stages`).

Fast-forward: if the next decode steps must all repeat one decision, they pass as one wait. If a
request arrives, the wait ends at the decision that receives it, exactly as if the steps had been
taken singly.
"""

from collections import deque
from collections.abc import Callable, Generator, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

from simpy.events import Event

from sim.core.request import RequestSpec
from sim.core.units import MAX_TIME_NS
from sim.des.clock import GIVING_UP, Clock, DecodeWait, TimedEvent, step_begin, step_end
from sim.des.replicas.timeline import Stages, UpcomingSteps
from sim.engine.core import EngineCore
from sim.engine.pipeline import decides_again
from sim.runlog.builder import StepRun
from sim.workload.workload import ScriptedRequest

Wait = Generator[Event, Any, None]


class ServerOptions(NamedTuple):
    """How a server is simulated.

    Attributes:
        overlaps: use overlap scheduling: decide a step while the one before runs.
        fast_forward: if the next decode steps must repeat one decision, pass them as one wait.
        clients_react: whether closed-loop clients may submit a request at the very time when one
            ends.
        check: called for every engine after every step; None: there is no check.
    """

    overlaps: bool
    fast_forward: bool
    clients_react: bool
    check: Callable[[EngineCore], None] | None


class Replica:
    """Base class. Clients call `submit`; all else happens in the replica's own SimPy process.

    Attributes:
        num_steps: steps that have ended.
        next_sample_ns: when an autoscaler reads the engines' metrics next. No wait over several
            steps may be under way then: until it ends, the engines are as at its beginning.
    """

    def __init__(
        self, env: Clock, number: int, options: ServerOptions, stages: Stages | None
    ) -> None:
        """`number` counts replicas from 0. `stages`: of a pipeline; None: this is none."""
        self.env = env
        self._stages = stages
        self.num_steps = 0
        self.next_sample_ns = MAX_TIME_NS
        self._end_priority, self._begin_priority = step_end(number), step_begin(number)
        self._arrived = env.event()
        self._wait: DecodeWait | None = None
        self._wakes_ns: int | None = None
        # Until when a decision that launched nothing waits for copies.
        self._held_ns = 0
        # When clients give up, with their requests.
        self._patience: list[tuple[int, str]] = []
        self._overlaps, self._fast_forward, self._clients_react, self._check = options

    # ---- what a step is ------------------------------------------------------------------------

    @property
    def engines(self) -> Sequence[EngineCore]:
        """One for each rank."""
        raise NotImplementedError

    @property
    def num_unfinished(self) -> int:
        """Requests that were submitted here and have not ended; the router reads this."""
        raise NotImplementedError

    @property
    def _has_arrivals(self) -> bool:
        """Whether requests have arrived that no decision has received yet."""
        raise NotImplementedError

    @property
    def _num_waiting(self) -> int:
        raise NotImplementedError

    def submit(self, request: ScriptedRequest, front_end: int = 0) -> None:
        """A request arrives now, from this process of the front end."""
        raise NotImplementedError

    def give_up(self, rid: str) -> None:
        """A request's client gives up now, if the request has not ended."""
        for engine in self.engines:
            if rid in engine.requests:
                self._end_wait_at_poll(engine)
                engine.give_up(rid)
                self._wake()

    def pass_single_steps(self) -> None:
        """Fast-forward no decode steps from now on."""
        self._fast_forward = False

    def _expect_end(self, spec: RequestSpec) -> None:
        """Note when the client of a request that was submitted now gives up."""
        if spec.gives_up_ns is not None:
            late_ns = spec.arrival_ns + spec.gives_up_ns - self.env.now_ns
            heappush(self._patience, (self.env.now_ns + max(late_ns, 0), spec.rid))
            event = TimedEvent(self.env, max(late_ns, 0), GIVING_UP)
            event.callbacks.append(lambda _: self.give_up(spec.rid))

    def _before_events(self, steps: UpcomingSteps) -> UpcomingSteps | None:
        """The decode steps that nothing interrupts; None: there are none.

        They have passed before an autoscaler reads the engines' metrics, and no request is dropped
        before one of their results.
        """
        undisturbed = steps.followed_before(self.next_sample_ns)
        engines, patience = self.engines, self._patience
        if undisturbed is None or not (patience and engines[0].scheduler.aborts_before_results):
            return undisturbed
        while patience and not any(patience[0][1] in each.requests for each in engines):
            heappop(patience)
        return undisturbed.known_before(patience[0][0]) if patience else undisturbed

    def _end_wait_at_poll(self, engine: EngineCore) -> None:
        """End a wait over decode steps at the decision that polls the engine's input queue."""
        input_queue = engine.input_queue
        if self._wait is not None and input_queue.is_empty:
            self._wait.cut_short(input_queue.next_poll(self._wait.next_step))

    def notify(self, rid: str, news: Callable[[EngineCore], None]) -> None:
        """A server of another role has news of a request; the next decision acts on it."""
        for engine in self.engines:
            if engine.knows(rid):
                if self._wait is not None:
                    self._wait.cut_short(self._wait.next_step)
                engine.role.now_ns = self.env.now_ns
                news(engine)
                self._wake()

    def begin(self, device_free_ns: int) -> StepRun | None:
        """Decide a step and launch it.

        If nothing can run, `_wakes_ns` becomes the time of the next decision that may launch
        something, or None.
        """
        raise NotImplementedError

    def _upcoming(self, step: StepRun, next_decision_ns: int) -> UpcomingSteps | None:
        """The decode steps that must follow `step` if no request arrives; None: none must."""
        raise NotImplementedError

    def _take(self, step: StepRun, steps: UpcomingSteps, num_steps: int) -> None:
        """Take `num_steps` of the upcoming steps: all are launched, all but the last have ended."""
        raise NotImplementedError

    def finish(self, step: StepRun) -> None:
        """Process the result of the oldest step in flight."""
        raise NotImplementedError

    # ---- normal and overlap scheduling, and pipelines ------------------------------------------

    def start(self) -> None:
        """Start the replica's process. It comes after the processes of all clients."""
        if self._stages is not None:
            self.env.process(self._keep_full(self._stages))
        else:
            self.env.process(self._overlap() if self._overlaps else self._serve())

    def _serve(self) -> Wait:
        """Normal scheduling: decide a step when the result of the one before is known."""
        while True:
            if self.others_are_due:
                yield self.after_others()
            step = self.begin(0)
            if step is None:
                yield from self.wait_for_work()
                continue
            yield from self._wait_for_decision(step, step.end_ns)
            self.finish(step)

    def _overlap(self) -> Wait:
        """Overlap scheduling: decide a step while the one before runs, without its result.

            host    | decide k+1, prepare it |  wait  | process k, decide k+2, ...
            device  | step k ..........................| step k+1 ......................
                    ^ decided_ns             ^ ready_ns ^ start_ns of k+1

        Step k+1 starts when the host has prepared it and step k has ended. At that time the host
        processes the result of step k and makes the next decision.

        A step without a CUDA graph is launched kernel by kernel. This holds the host up, and the
        device cannot end the step before its last kernel is launched:

            host    | decide k+1 | launch k+1 ..............| process k, decide k+2 | launch ...
            device  | step k ..........| step k+1, waits .....|                     | step k+2
                                 ^ ready_ns                 ^ launched_ns

        The host processes the result of step k when it has launched step k+1 and step k has ended.
        """
        env = self.env
        running: StepRun | None = None
        while True:
            if self.others_are_due:
                yield self.after_others()
            if running is not None:
                time_passed = yield from self._wait_for_decision(running, env.now_ns)
                if time_passed and self.others_are_due:
                    yield self.after_others()
            step = self.begin(running.end_ns if running is not None else 0)
            if running is not None:
                known_ns = running.end_ns
                launched_ns = self._held_ns if step is None else step.launched_ns
                known_ns = max(launched_ns, known_ns)
                if not env.skip_to(known_ns):
                    yield self.at(known_ns)
                self.finish(running)
            elif step is not None:
                if not env.skip_to(step.launched_ns):
                    yield self.at(step.launched_ns)
            else:
                yield from self.wait_for_work()
            running = step

    def _keep_full(self, stages: Stages) -> Wait:
        """Decide steps until as many are in flight as may be, then wait for the oldest result.

        Where micro-batches take turns, each decision is followed by the oldest result. Otherwise
        the next step may be decided at once (`decides_again`). A decision that launched nothing
        takes a place, too; its result is known at once.
        """
        env, engines = self.env, self.engines
        most, takes_turns = engines[0].num_places, engines[0].scheduler.takes_turns
        places: deque[StepRun | None] = deque()
        if takes_turns:
            places.extend([None] * (most - 1))
        num_idle = 0
        while True:
            if self.others_are_due:
                yield self.after_others()
            step = self.begin(stages.first_free_ns)
            places.append(step)
            if step is not None:
                num_idle = 0
                if not env.skip_to(step.ready_ns):
                    yield self.at(step.ready_ns)
            else:
                yield from self.wait_for_copies()
            stages.decided(launched=step is not None)
            if decides_again(
                engines,
                len(places),
                launched=step is not None,
                oldest_runs=_runs(places[0], env.now_ns),
            ):
                continue
            if not any(places):
                num_idle += 1
                settled = not any(engine.role.decides_again for engine in engines)
                if settled and (num_idle >= most or not takes_turns):
                    yield from self.wait_for_work()
            yield from _take_in(places.popleft(), self)

    # ---- waiting -------------------------------------------------------------------------------

    def _wait_for_decision(
        self, step: StepRun, next_decision_ns: int
    ) -> Generator[Event, Any, bool]:
        """Wait for the next decision that may differ, and take the decode steps before it.

        `step` is the only one in flight; the steps taken are added to it.

        Returns whether simulated time passed.
        """
        steps = self._upcoming(step, next_decision_ns) if self._fast_forward else None
        if steps is None:
            if next_decision_ns <= self.env.now_ns:
                return False
            if not self.env.skip_to(next_decision_ns):
                yield self.at(next_decision_ns)
            return True
        num_steps = steps.num_steps
        if not self.env.skip_to(int(steps.decided_ns[-1])):
            wait = self._wait = DecodeWait(self.env, steps.decided_ns, self._end_priority)
            yield wait.end
            self._wait = None
            num_steps = wait.num_steps
        if num_steps:
            self._take(step, steps, num_steps)
        return True

    def at(self, time_ns: int) -> TimedEvent:
        return TimedEvent(self.env, time_ns - self.env.now_ns, self._end_priority)

    @property
    def others_are_due(self) -> bool:
        """Whether clients may react to what just happened, and events of this time are due."""
        return self._clients_react and not self.env.skip_to(self.env.now_ns)

    def after_others(self) -> TimedEvent:
        """An event that follows all other events of this time."""
        return TimedEvent(self.env, 0, self._begin_priority)

    def wait_for_work(self) -> Wait:
        """Wait until a request arrives, or until `_wakes_ns`, when a waiting request may start."""
        if self._held_ns > self.env.now_ns:
            yield from self.wait_for_copies()
            return
        if self._has_arrivals:
            return
        if self._wakes_ns is not None:
            self._arrived = self.env.event()
            yield self._arrived | self.at(self._wakes_ns)
        elif not self._num_waiting:
            self._arrived = self.env.event()
            yield self._arrived

    def wait_for_copies(self) -> Wait:
        """After a decision that launched nothing: wait for what it waits for."""
        if self._held_ns > self.env.now_ns and not self.env.skip_to(self._held_ns):
            yield self.at(self._held_ns)

    def _wake(self) -> None:
        if not self._arrived.triggered:
            self._arrived.succeed()


def _take_in(step: StepRun | None, replica: Replica) -> Wait:
    """Wait for the result of a step; None: the decision launched nothing."""
    if step is None:
        for engine in replica.engines:
            engine.role.nothing_came(replica.env.now_ns)
    else:
        env = replica.env
        if _runs(step, env.now_ns) and not env.skip_to(step.end_ns):
            yield replica.at(step.end_ns)
        replica.finish(step)


def _runs(step: StepRun | None, now_ns: int) -> bool:
    return step is not None and step.end_ns > now_ns
