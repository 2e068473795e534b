"""A replica with one engine, and the front end that requests pass before they reach a replica.

In a step of a server the engine decides the batch, the latency model says how long it takes, and
the executor which output tokens it gives.
"""

import heapq
from collections.abc import Sequence
from itertools import takewhile

from sim.core.batch import Batch, ScriptedExecutor
from sim.core.units import seconds_to_ns
from sim.des.clock import ARRIVAL, Clock, TimedEvent
from sim.des.replicas.replica import Replica, ServerOptions, Wait
from sim.des.replicas.timeline import Stages, UpcomingSteps, upcoming_steps
from sim.des.traffic import SimulationLog
from sim.engine.core import EngineCore
from sim.engine.decode_run import DraftRun
from sim.engine.records import StepState
from sim.latency.features import StepFeatures, step_features
from sim.latency.host import HostSection
from sim.latency.model import (
    LatencyModel,
    depends_on_step_alone,
    each_step_ns,
    launching,
)
from sim.runlog.builder import StepRun
from sim.workload.workload import ScriptedRequest


class Server(Replica):
    """A replica whose steps are those of one engine."""

    def __init__(
        self,
        env: Clock,
        number: int,
        *,
        engine: EngineCore,
        executor: ScriptedExecutor,
        latency: LatencyModel,
        reports: SimulationLog,
        options: ServerOptions,
    ) -> None:
        stages = Stages(latency) if engine.num_places > 1 else None
        super().__init__(env, number, options, stages)
        self._number = number
        self.engine = engine
        self._executor = executor
        self._latency = latency
        self._launching = launching(latency)
        self._reports = reports
        # The features of the first of the upcoming decode steps; with drafts, those of all.
        self._coming: list[StepFeatures] = []
        engine.foresees_drafts = depends_on_step_alone(latency)
        # How long the scheduler waited for copies to host memory in the latest decision.
        self._waited_ns = 0

    @property
    def engines(self) -> Sequence[EngineCore]:
        return (self.engine,)

    @property
    def num_unfinished(self) -> int:
        return len(self.engine.requests)

    @property
    def _has_arrivals(self) -> bool:
        return not self.engine.input_queue.is_empty

    @property
    def _num_waiting(self) -> int:
        return self.engine.num_waiting

    def submit(self, request: ScriptedRequest, front_end: int = 0) -> None:
        spec = request.spec
        self._reports.submitted(spec, self._number)
        rejection = self.engine.rejection(spec, self.engines)
        if rejection is not None:
            self._reports.over([rejection], self.env.now_ns)
            return
        self._executor.add(spec.rid, request.script, ignore_eos=spec.ignore_eos)
        self._end_wait_at_poll(self.engine)
        self.engine.submit(spec)
        self._wake()
        self._expect_end(spec)

    def begin(self, device_free_ns: int) -> StepRun | None:
        self.engine.scheduler.device_free_ns = device_free_ns
        decided = self.engine.begin_step(self.env.now_ns)
        self._waited_ns = decided.waited_ns
        if decided.over:
            self._reports.over(decided.over, self.env.now_ns)
        if decided.batch is None or decided.state is None:
            self._wakes_ns = decided.wakes_ns
            if self.engine.role.waits_without_step:
                self._held_ns = self.env.now_ns + decided.waited_ns
            return None
        return self._launch(decided.batch, decided.state, device_free_ns)

    def _launch(self, batch: Batch, state: StepState, device_free_ns: int) -> StepRun:
        features = step_features(batch)
        time = self._latency.step_ns(features)
        launch_ns = self._launch_ns(features)
        self._latency.consume(features, 1)
        decided_ns, host_ns = self.env.now_ns, time.host_ns + self._waited_ns
        ready_ns = decided_ns + host_ns
        start_ns = max(ready_ns, device_free_ns)
        end_ns = max(start_ns + time.device_ns, ready_ns + launch_ns)
        if self._stages is not None:
            part = (features, time.device_ns)
            start_ns, end_ns = self._stages.take(ready_ns, (part,), (batch,))
        self.engine.role.step_ends(end_ns)
        return StepRun(
            self._number,
            batch,
            state,
            decided_ns=decided_ns,
            host_ns=host_ns,
            start_ns=start_ns,
            first_end_ns=end_ns,
            launch_ns=launch_ns,
        )

    def _upcoming(self, step: StepRun, next_decision_ns: int) -> UpcomingSteps | None:
        num_steps, drafts = self.engine.decode_horizon(), self.engine.draft_run
        if num_steps and drafts is None:
            num_steps = min(num_steps, self._executor.steps_to_finish() - 1)
        if num_steps <= 0:
            return None
        first = step_features(step.batch).next_decode()
        if drafts is None:
            self._coming = [first]
            times = self._latency.decode_run_ns(first, num_steps)
        else:
            self._coming = self._verifying(first, drafts.first(num_steps))
            times = each_step_ns(self._latency.step_ns, self._coming)
        launch_ns = self._launch_ns(self._coming[0])
        steps = upcoming_steps(
            next_decision_ns, step.end_ns, times, launch_ns, overlaps=self._overlaps
        )
        if steps is not None:
            steps = steps.decided_before(self.engine.next_aging_ns)
        return None if steps is None else self._before_events(steps)

    def _launch_ns(self, step: StepFeatures) -> int:
        return 0 if self._launching is None else self._launching.launch_ns(step)

    def _verifying(self, first: StepFeatures, run: DraftRun) -> list[StepFeatures]:
        """The features of the steps of a run, whose rows are those of `first`.

        They have one launch time: as many steps as the first has.
        """
        contexts = run.contexts.tolist(), run.longest.tolist(), run.shortest.tolist()
        steps = [first.with_contexts(*of_rows) for of_rows in zip(*contexts, strict=True)]
        if self._launching is None:
            return steps
        launch_ns = self._launch_ns(steps[0])
        return list(takewhile(lambda step: self._launch_ns(step) == launch_ns, steps))

    def _take(self, step: StepRun, steps: UpcomingSteps, num_steps: int) -> None:
        state = self.engine.state()
        steps = steps.first(num_steps)
        run = self.engine.fast_forward(steps.known_ns)
        self.engine.role.step_ends(int(steps.ends_ns[-1]))
        self._executor.execute(step.batch, num_steps)
        if self.engine.draft_run is None:
            self._latency.consume(self._coming[0], num_steps)
        else:
            for verifying in self._coming[:num_steps]:
                self._latency.consume(verifying, 1)
        step.further = steps.logged(run, state)

    def finish(self, step: StepRun) -> None:
        step.first_step = self.num_steps
        self.num_steps += step.num_steps
        self._reports.stepped(step)
        self.env.note_step_end(self._end_priority)
        output = self._executor.execute(step.batch)
        now_ns = self.env.now_ns
        records = self.engine.end_step(step.batch, output, now_ns)
        self._reports.over(records, now_ns)
        if self._check is not None:
            self._check(self.engine)


class FrontEnd:
    """What a request passes before the scheduler can see it: HTTP, tokenizer, messages.

    Each process of a server's front end prepares one request after another, and takes `request_s`
    for each, and `prompt_token_s` for each token of its prompt. A request goes to the process that
    has been free for longest, or will be free first. With one process and 2 ms a request, three
    requests that arrive together reach the scheduler after 2, 4 and 6 ms; with two processes after
    2, 2 and 4 ms. All are later by `front_end_s`.
    """

    def __init__(
        self, env: Clock, host: HostSection, server: Replica, num_processes: int = 1
    ) -> None:
        """Requests are passed on to `server`; `host` has the times."""
        self._env = env
        self._server = server
        self._num_inside = 0
        self._latency_ns = seconds_to_ns(host.front_end_s)
        self._request_ns = seconds_to_ns(host.request_s)
        self._token_ns = host.prompt_token_s * 1e9
        # A heap: when each process is free, a count that puts the process with the older last
        # request first where these times are equal, and the process's number.
        self._processes = [(0, number, number) for number in range(num_processes)]
        self._num_requests = num_processes

    @property
    def num_unfinished(self) -> int:
        """Requests that were submitted here and have not ended; the router reads this."""
        return self._num_inside + self._server.num_unfinished

    def submit(self, request: ScriptedRequest) -> None:
        """A request arrives now; the replica gets it when a process has prepared it."""
        work_ns = self._request_ns + round(self._token_ns * len(request.spec.prompt))
        free_ns, _, number = self._processes[0]
        free_ns = max(free_ns, self._env.now_ns) + work_ns
        heapq.heapreplace(self._processes, (free_ns, self._num_requests, number))
        self._num_requests += 1
        delay_ns = free_ns + self._latency_ns - self._env.now_ns
        self._num_inside += 1
        self._env.process(self._pass_on(request, number, delay_ns))

    def _pass_on(self, request: ScriptedRequest, number: int, delay_ns: int) -> Wait:
        yield TimedEvent(self._env, delay_ns, ARRIVAL)
        self._num_inside -= 1
        self._server.submit(request, number)
