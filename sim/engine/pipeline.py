"""Pipelines: several steps are in flight, each with requests of its own.

The model is split into stages on different GPUs. While the second stage computes one step, the
first can compute another. But the next token of a request needs its last one, so two steps in
flight have no row in common that decodes. Such a part of the running requests is a *micro-batch*:

    micro-batch 0    decide   in flight ............ take in   decide   in flight ...
    micro-batch 1             decide   in flight ............ take in   decide ...

The waiting queue and the pool belong to all. Chunks of one prompt may be in several steps in
flight: they need only the KV of the chunks before, which each stage has computed by then.

In some families micro-batches take turns and each has a running batch of its own
(`PipelineEngine`). In others each row has counters of its own, and a step leaves out the rows that
are in flight (`sim.engine.row_engine`).
"""

from collections import deque
from collections.abc import Sequence

from sim.core.batch import Batch, ForwardMode, StepOutput
from sim.engine.core import EngineCore
from sim.engine.executor import Executor
from sim.engine.records import Decided, RequestRecord
from sim.engine.request import Request
from sim.engine.scheduler import BaseScheduler
from sim.engine.token_clock import RowClock


def decides_again(engine: EngineCore, num_taken: int, *, launched: bool, oldest_runs: bool) -> bool:
    """Whether a pipeline decides the next step before it takes in the oldest result.

    Only if there is a place left. A decision that launched nothing takes a place, too. Most
    schedulers then take in a result first, or if the oldest step has ended. One that fills its
    places does so while there are any requests.

    Args:
        engine: the pipeline's engine.
        num_taken: places that are taken.
        launched: the last decision launched a step.
        oldest_runs: the oldest step has not ended.
    """
    if engine.scheduler.takes_turns or num_taken >= engine.num_places:
        return False
    if engine.scheduler.fills_places:
        return launched or len(engine.requests) > 0
    return launched and oldest_runs


class PipelineEngine(EngineCore):
    """An engine whose micro-batches are decided in a fixed order."""

    def __init__(
        self, scheduler: BaseScheduler[Request], executor: Executor, num_micro_batches: int
    ) -> None:
        """Use `sim.families.build_engine` to make an engine."""
        super().__init__(scheduler, executor)
        self.num_places = num_micro_batches
        self._row_clock = RowClock()
        self.clock = self._row_clock
        # Of the steps in flight, oldest first.
        self._numbers: deque[int] = deque()
        self._number = 0
        self._turn = -1

    def begin_step(self, now_ns: int) -> Decided:
        """Decide the next micro-batch. At least one must not be in flight."""
        self._turn = (self._turn + 1) % self.num_places
        self._use(self._turn)
        decided = super().begin_step(now_ns)
        if decided.batch is not None:
            self._numbers.append(self._number)
        return decided

    def end_step(self, batch: Batch, output: StepOutput, now_ns: int) -> Sequence[RequestRecord]:
        self._use(self._numbers.popleft())
        if batch.mode is not ForwardMode.EXTEND:
            self._row_clock.tick_rows(self.scheduler.running.requests, now_ns)
        return super().end_step(batch, output, now_ns)

    def _use(self, number: int) -> None:
        self._number = number
        self.scheduler.use_micro_batch(number)
