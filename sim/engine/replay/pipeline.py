"""Replay of a pipeline: fresh engines decide every step of a log again, several in flight.

The order of decisions and results is that of `sim.des.replicas.pipeline`; the times are the log's.
A server is replayed as a group of one rank.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sim.core.batch import Batch
from sim.engine.pipeline import decides_again
from sim.engine.ranks import tell_ranks
from sim.engine.records import Decided
from sim.engine.replay.decision import Divergence, Line
from sim.engine.replay.group import RankReplay, divergence_of, launches
from sim.engine.replay.one_server import ReplayArrivals


class _PipelineStep(NamedTuple):
    batches: Sequence[Batch | None]
    end_ns: int


def replay_pipeline(
    ranks: Sequence[RankReplay], steps: Sequence[Mapping[int, Line]]
) -> Divergence | None:
    """Decide every step of a log again; returns the first difference, or None.

    Args:
        ranks: all ranks of the pipeline.
        steps: the line of each rank that had work in a step, by rank; in order of launch.
    """
    return _PipelineReplay(ranks).run(steps)


class _PipelineReplay:
    def __init__(self, ranks: Sequence[RankReplay]) -> None:
        self._ranks = ranks
        self._engines = [rank.engine for rank in ranks]
        self._arrivals = [ReplayArrivals(rank.engine, rank.arrivals) for rank in ranks]
        first = self._engines[0]
        self._num_places, self._takes_turns = first.num_places, first.scheduler.takes_turns
        self._places: deque[_PipelineStep | None] = deque()
        if self._takes_turns:
            self._places.extend([None] * (self._num_places - 1))
        self._now_ns = 0
        for engine in self._engines:
            engine.in_group = len(ranks) > 1

    def run(self, steps: Sequence[Mapping[int, Line]]) -> Divergence | None:
        """Decide until all steps of the log were compared."""
        number = num_idle = 0
        while number < len(steps):
            step = steps[number]
            times = next(iter(step.values()))
            decided = self._decide()
            if not launches(decided):
                self._places.append(None)
                if not any(self._places):
                    if num_idle > self._num_places:
                        return _difference(decided, steps, number)
                    num_idle += 1
                    if self._must_wait(num_idle):
                        self._now_ns = max(self._now_ns, times["t_decided_ns"])
            else:
                if (divergence := _difference(decided, steps, number)) is not None:
                    return divergence
                number, num_idle = number + 1, 0
                self._places.append(
                    _PipelineStep([each.batch for each in decided], times["t_end_ns"])
                )
                self._now_ns = max(self._now_ns, times["t_decided_ns"] + times["host_ns"])
            if self._decides_again(decided):
                continue
            self._take_in(self._places.popleft())
        return None

    def _decide(self) -> list[Decided]:
        self._pass_on()
        decided = [engine.begin_step(self._now_ns) for engine in self._engines]
        if len(self._ranks) > 1:
            batches = [each.batch for each in decided]
            in_flight = any(self._places)
            tell_ranks(self._engines, batches, in_flight=in_flight)
            if not in_flight and not launches(decided):
                for engine in self._engines:
                    engine.idle(self._now_ns)
        return decided

    def _pass_on(self) -> None:
        for arrivals in self._arrivals:
            arrivals.pass_on(self._now_ns)

    def _must_wait(self, num_idle: int) -> bool:
        if self._takes_turns and num_idle < self._num_places:
            return False
        return not any(e.num_waiting or not e.input_queue.is_empty for e in self._engines)

    def _decides_again(self, decided: Sequence[Decided]) -> bool:
        oldest = self._places[0]
        return decides_again(
            self._engines,
            len(self._places),
            launched=launches(decided),
            oldest_runs=oldest is not None and oldest.end_ns > self._now_ns,
        )

    def _take_in(self, step: _PipelineStep | None) -> None:
        if step is not None:
            self._now_ns = max(self._now_ns, step.end_ns)
            self._pass_on()
            for rank, batch in zip(self._ranks, step.batches, strict=True):
                if batch is not None:
                    rank.engine.end_step(batch, rank.executor.execute(batch), self._now_ns)


def _difference(
    decided: Sequence[Decided], steps: Sequence[Mapping[int, Line]], number: int
) -> Divergence | None:
    before = steps[number - 1] if number else {}
    return divergence_of(decided, steps[number], before)
