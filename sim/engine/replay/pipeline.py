"""Replay of a pipeline: a fresh engine decides every step of a log again, several in flight.

The order of decisions and results is that of `sim.des.replicas.pipeline`; the times are the log's.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sim.core.batch import Batch
from sim.core.request import RequestSpec
from sim.engine.core import EngineCore
from sim.engine.executor import ScriptedExecutor
from sim.engine.pipeline import decides_again
from sim.engine.records import Decided
from sim.engine.replay.decision import Divergence, Line, decode_crc, describe_decision
from sim.engine.replay.one_server import ReplayArrivals, differing_fields


class _PipelineStep(NamedTuple):
    batch: Batch
    end_ns: int


def replay_pipeline(
    engine: EngineCore,
    executor: ScriptedExecutor,
    arrivals: Iterable[RequestSpec],
    steps: Sequence[Line],
) -> Divergence | None:
    """Decide every step of a log again; returns the first difference, or None.

    Args:
        engine: a fresh engine with the settings of the log's server.
        executor: the engine's executor, which has the scripts of all arrivals.
        arrivals: requests in order of arrival, with the log's arrival times.
        steps: the log's steps, in order of launch.
    """
    return _PipelineReplay(engine, executor, arrivals).run(steps)


class _PipelineReplay:
    def __init__(
        self, engine: EngineCore, executor: ScriptedExecutor, arrivals: Iterable[RequestSpec]
    ) -> None:
        self._engine = engine
        self._executor = executor
        self._arrivals = ReplayArrivals(engine, arrivals)
        most = engine.num_places
        self._places: deque[_PipelineStep | None] = deque()
        if engine.scheduler.takes_turns:
            self._places.extend([None] * (most - 1))
        self._now_ns = 0

    def run(self, steps: Sequence[Line]) -> Divergence | None:
        """Decide until all steps of the log were compared."""
        number = num_idle = 0
        while number < len(steps):
            step = steps[number]
            decided = self._decide()
            if decided.batch is None:
                self._places.append(None)
                if not any(self._places):
                    if num_idle > self._engine.num_places:
                        return _divergence(number, None, steps)
                    num_idle += 1
                    if self._must_wait(num_idle):
                        self._now_ns = max(self._now_ns, step["t_decided_ns"])
            else:
                if (divergence := _divergence(number, decided, steps)) is not None:
                    return divergence
                number, num_idle = number + 1, 0
                self._places.append(_PipelineStep(decided.batch, step["t_end_ns"]))
                self._now_ns = max(self._now_ns, step["t_decided_ns"] + step["host_ns"])
            if self._decides_again(decided):
                continue
            self._take_in(self._places.popleft())
        return None

    def _decide(self) -> Decided:
        self._arrivals.pass_on(self._now_ns)
        return self._engine.begin_step(self._now_ns)

    def _must_wait(self, num_idle: int) -> bool:
        engine = self._engine
        if engine.scheduler.takes_turns and num_idle < engine.num_places:
            return False
        return engine.input_queue.is_empty and not engine.num_waiting

    def _decides_again(self, decided: Decided) -> bool:
        oldest = self._places[0]
        return decides_again(
            self._engine,
            len(self._places),
            launched=decided.batch is not None,
            oldest_runs=oldest is not None and oldest.end_ns > self._now_ns,
        )

    def _take_in(self, step: _PipelineStep | None) -> None:
        if step is not None:
            self._now_ns = max(self._now_ns, step.end_ns)
            self._arrivals.pass_on(self._now_ns)
            output = self._executor.execute(step.batch)
            self._engine.end_step(step.batch, output, self._now_ns)


def _divergence(number: int, decided: Decided | None, steps: Sequence[Line]) -> Divergence | None:
    step, before = steps[number], steps[number - 1] if number else None
    ours = None
    if decided is not None and decided.batch is not None and decided.state is not None:
        ours = describe_decision(decided.batch, decided.state, decode_crc(decided.batch))
    fields = differing_fields(ours, step)
    return Divergence(f"step {number}", fields, ours, step, before) if fields else None
