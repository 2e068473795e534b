"""An engine for a pipeline: several steps in flight, each with requests of its own.

The model is split into stages on different GPUs. While the second stage computes one step, the
first can compute another. But the next token of a request needs its last one, so two steps in
flight have no row in common that decodes. Such a part of the running requests is a *micro-batch*:

    micro-batch 0    decide   in flight ............ take in   decide   in flight ...
    micro-batch 1             decide   in flight ............ take in   decide ...

Each micro-batch has a running batch of its own. The waiting queue and the pool belong to all.
Chunks of one prompt may be in several steps in flight: they need only the KV of the chunks before,
which each stage has computed by then.
"""

from collections import deque
from collections.abc import Sequence

from sim.core.batch import Batch, ForwardMode, StepOutput
from sim.engine.core import EngineCore
from sim.engine.executor import Executor, ScriptedExecutor
from sim.engine.records import Decided, RequestRecord
from sim.engine.request import Request
from sim.engine.scheduler import BaseScheduler
from sim.engine.token_clock import RowClock


class PipelineEngine(EngineCore):
    """An engine that chooses the micro-batch of each decision, and of each result."""

    def __init__(
        self, scheduler: BaseScheduler[Request], executor: Executor, num_micro_batches: int
    ) -> None:
        """Use `sim.families.build_engine` to make an engine."""
        super().__init__(scheduler, executor)
        self.num_micro_batches = num_micro_batches
        self._row_clock = RowClock()
        self.clock = self._row_clock
        # Of the steps in flight, oldest first.
        self._numbers: deque[int] = deque()
        self._number = 0
        self._turn = -1

    @property
    def takes_turns(self) -> bool:
        """Micro-batches are decided in a fixed order; otherwise any that is not in flight."""
        return self.scheduler.takes_turns

    def decides_again(self, num_places: int, *, launched: bool, oldest_runs: bool) -> bool:
        """Whether the next step is decided before the oldest result is taken in.

        Only if there is a place left. A decision that launched nothing takes a place, too. Most
        schedulers then take in a result first, or if the oldest step has ended. One that fills its
        places does so while there are any requests.

        Args:
            num_places: places that are taken.
            launched: the last decision launched a step.
            oldest_runs: the oldest step has not ended.
        """
        if self.takes_turns or num_places >= self.num_micro_batches:
            return False
        if self.scheduler.fills_places:
            return launched or len(self.requests) > 0
        return launched and oldest_runs

    def begin_step(self, now_ns: int) -> Decided:
        """Decide the next micro-batch. At least one must not be in flight."""
        self._use(self._next_number())
        decided = super().begin_step(now_ns)
        if decided.batch is not None:
            self._numbers.append(self._number)
        return decided

    def end_step(self, batch: Batch, output: StepOutput, now_ns: int) -> Sequence[RequestRecord]:
        self._use(self._numbers.popleft())
        if batch.mode is not ForwardMode.EXTEND:
            self._row_clock.tick_rows(self.scheduler.running.requests, now_ns)
        return super().end_step(batch, output, now_ns)

    def _next_number(self) -> int:
        """With a fixed order, the one whose turn it is; else that of the last result, or a new one.

        Only the micro-batch of the last result can have rows: the others that are not in flight had
        nothing to launch when they were decided.
        """
        if self.takes_turns:
            self._turn = (self._turn + 1) % self.num_micro_batches
            return self._turn
        if self._number not in self._numbers:
            return self._number
        return min(set(range(self.num_micro_batches)) - set(self._numbers))

    def _use(self, number: int) -> None:
        self._number = number
        self.scheduler.use_micro_batch(number, self.in_flight)


class PipelineExecutor(ScriptedExecutor):
    """The same scripts, with a count of tokens for each request, as not all decode in a step."""

    def __init__(self) -> None:
        super().__init__()
        self._num_outputs: dict[str, int] = {}

    def execute(self, batch: Batch, num_steps: int = 1) -> StepOutput:
        """Run a batch for one step; runs of several steps do not exist here."""
        finished = [
            row.rid
            for row in batch.prefill
            if row.samples
            and row.rid in self._scripts
            and self._ends_with(row.rid, row.num_prior_outputs + 1)
        ]
        finished += [
            rid
            for rid in batch.decode_rids
            if rid in self._scripts and self._ends_with(rid, self._num_outputs[rid] + 1)
        ]
        return StepOutput(tuple(finished))

    def _ends_with(self, rid: str, num_outputs: int) -> bool:
        self._num_outputs[rid] = num_outputs
        return rid not in self._endless and num_outputs >= self._scripts[rid].num_tokens

    def forget(self, rid: str) -> None:
        super().forget(rid)
        self._num_outputs.pop(rid, None)
