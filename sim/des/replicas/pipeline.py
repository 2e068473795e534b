"""A simulated server whose device is a pipeline of stages.

    stage 0   | step 0 | step 1 |        | step 2 | step 3 | ...
    stage 1            | step 0 | step 1 |        | step 2 | ...
                                ^ result of step 0: its requests are in step 2

A step goes through all stages. Each stage begins it when the stage before has ended it, and when
the stage itself has ended the step before. Steps in flight have different rows, so the first stage
need not wait for the result of the last. docs/explanation/pipeline.md has the rules.
"""

from collections import deque

from sim.core.batch import Batch
from sim.des.clock import Clock
from sim.des.replicas.one_server import Server
from sim.des.replicas.replica import ServerOptions, Wait
from sim.des.traffic import SimulationLog
from sim.engine.core import EngineCore
from sim.engine.executor import ScriptedExecutor
from sim.engine.pipeline import decides_again
from sim.engine.records import StepState
from sim.latency.features import step_features
from sim.latency.stages import StagedLatency
from sim.runlog.builder import StepRun


class Pipeline(Server):
    """A server with several steps in flight. They are never fast-forwarded."""

    def __init__(
        self,
        env: Clock,
        number: int,
        *,
        engine: EngineCore,
        executor: ScriptedExecutor,
        latency: StagedLatency,
        reports: SimulationLog,
        options: ServerOptions,
    ) -> None:
        super().__init__(
            env,
            number,
            engine=engine,
            executor=executor,
            latency=latency,
            reports=reports,
            options=options,
        )
        self._takes_turns = engine.scheduler.takes_turns
        self._staged = latency
        # The last decided steps, one for each stage; None: the decision launched nothing.
        self._latest: deque[StepRun | None] = deque([None] * latency.num_stages)
        # When each stage has ended its last step.
        self._free_ns = [0] * latency.num_stages

    def start(self) -> None:
        self.env.process(self._keep_full())

    def _launch(self, batch: Batch, state: StepState, device_free_ns: int) -> StepRun:
        features = step_features(batch)
        device_ns, host_ns = self._latency.step_ns(features)
        host_ns += self._waited_ns
        self._latency.consume(features, 1)
        decided_ns = self.env.now_ns
        end_ns = decided_ns + host_ns
        start_ns = end_ns = max(end_ns, self._free_ns[0], self._tokens_known_ns)
        for stage, stage_ns in enumerate(self._staged.stages_ns(features, device_ns)):
            end_ns = max(end_ns, self._free_ns[stage]) + stage_ns
            self._free_ns[stage] = end_ns
        return StepRun(
            self._number,
            batch,
            state,
            decided_ns=decided_ns,
            host_ns=host_ns,
            start_ns=start_ns,
            first_end_ns=end_ns,
        )

    @property
    def _tokens_known_ns(self) -> int:
        """When the first stage knows the tokens of the step `num_stages` decisions ago.

        Under async scheduling the rows of that step may decode before its result is taken in.
        Source: vLLM 0.33.0, `PPHandler.get_prev_sampled_outputs` (v1/worker/gpu/pp_utils.py).
        """
        step = self._latest[0]
        if step is None or not (
            step.batch.decode_rids or any(r.samples for r in step.batch.prefill)
        ):
            return 0
        return step.end_ns

    def _keep_full(self) -> Wait:
        """Decide steps until as many are in flight as may be, then wait for the oldest result.

        Where micro-batches take turns, each decision is followed by the oldest result. Otherwise
        the next step may be decided at once (`decides_again`). A decision that
        launched nothing takes a place, too; its result is known at once.
        """
        env, most = self.env, self.engine.num_places
        places: deque[StepRun | None] = deque()
        if self._takes_turns:
            places.extend([None] * (most - 1))
        num_idle = 0
        while True:
            if self._others_are_due:
                yield self._after_others()
            step = self._begin(0)
            places.append(step)
            self._latest.popleft()
            self._latest.append(step)
            if step is not None:
                num_idle = 0
                if not env.skip_to(step.ready_ns):
                    yield self._at(step.ready_ns)
            if decides_again(
                self.engine,
                len(places),
                launched=step is not None,
                oldest_runs=self._is_running(places[0]),
            ):
                continue
            if not any(places):
                num_idle += 1
                if num_idle >= most or not self._takes_turns:
                    yield from self._wait_for_work()
            yield from self._take_in(places.popleft())

    def _take_in(self, step: StepRun | None) -> Wait:
        """Wait for the result of a step; None: the decision launched nothing."""
        if step is not None:
            if self._is_running(step) and not self.env.skip_to(step.end_ns):
                yield self._at(step.end_ns)
            self._finish(step)

    def _is_running(self, step: StepRun | None) -> bool:
        return step is not None and step.end_ns > self.env.now_ns
