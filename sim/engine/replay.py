"""Replaying a log: the same arrivals and the same times, decided anew.

If a log's decisions followed from what was known when they were made, a fresh engine that is told
the same things at the same times makes them again. It does not matter whether a simulator or a real
server wrote the log.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sim.core.batch import Batch
from sim.core.request import RequestSpec
from sim.engine.core import EngineCore
from sim.engine.decision import (
    DECIDED_FIELDS,
    HOST_FIELDS,
    Divergence,
    Line,
    decode_crc,
    describe_decision,
)
from sim.engine.records import Decided
from sim.engine.scripted import ScriptedExecutor


class Replay(NamedTuple):
    """A log to replay.

    Attributes:
        arrivals: requests in order of arrival, with their times of arrival there.
        steps: the log's steps, in order of launch.
        overlaps: the log's server decided a step while the one before ran.
    """

    arrivals: Iterable[RequestSpec]
    steps: Sequence[Line]
    overlaps: bool


def replay(engine: EngineCore, executor: ScriptedExecutor, recorded: Replay) -> Divergence | None:
    """Make every decision of the log again; returns the first that comes out otherwise.

    Args:
        engine: fresh, with the settings of the log's server.
        executor: the engine's; knows the scripts of all arrivals.
        recorded: the log.
    """
    return _Replayer(engine, executor, recorded).run()


class _Replayer:
    def __init__(self, engine: EngineCore, executor: ScriptedExecutor, recorded: Replay) -> None:
        self._engine = engine
        self._executor = executor
        self._recorded = recorded
        taken = (spec for spec in recorded.arrivals if engine.rejection(spec) is None)
        self._arrivals = deque(taken)
        self._flying: tuple[Batch, Line] | None = None
        self._free_ns = 0

    def run(self) -> Divergence | None:
        before: Line | None = None
        for number, step in enumerate(self._recorded.steps):
            if not self._catch_up(step):
                return Divergence(f"step {number}", ("looked and found",), None, step, before)
            decided = self._decide(step["t_decided_ns"])
            while decided.batch is None and "looks_ns" not in step and decided.preempted:
                # A simulated server decides again at once.
                decided = self._decide(step["t_decided_ns"])
            batch, ours = decided.batch, None
            if batch is not None and decided.state is not None:
                ours = describe_decision(batch, decided.state, decode_crc(batch))
            fields = _differing(ours, step)
            if fields or batch is None:
                return Divergence(f"step {number}", fields, ours, step, before)
            if self._recorded.overlaps:
                self._land()
                self._flying = (batch, step)
            else:
                self._flying = (batch, step)
                self._land()
            before = step
        return None

    def _catch_up(self, step: Line) -> bool:
        """What the log's server did since its last step without launching one.

        Returns:
            False if the log's server found nothing to launch where this one does.
        """
        if "looks_ns" in step:
            return all(self._look(look_ns) for look_ns in step["looks_ns"])
        # A simulated server: under overlap it looked once more while the last step ran, found
        # nothing, and took in the result; with nothing left to do it looked once and found that.
        decided_ns = step["t_decided_ns"]
        if self._flying is not None and self._flying[1]["t_end_ns"] <= decided_ns:
            self._look(self._flying[1]["t_start_ns"])
        idle = not self._arrivals or self._arrivals[0].arrival_ns > self._free_ns
        if idle and not self._engine.requests:
            self._engine.begin_step(decided_ns)
        return True

    def _look(self, now_ns: int) -> bool:
        """Look for a step, find none, take in the result of the one that runs."""
        decided = self._decide(now_ns)
        self._land()
        return decided.batch is None

    def _decide(self, now_ns: int) -> Decided:
        while self._arrivals and self._arrivals[0].arrival_ns <= now_ns:
            self._engine.submit(self._arrivals.popleft())
        return self._engine.begin_step(now_ns)

    def _land(self) -> None:
        if self._flying is not None:
            batch, step = self._flying
            self._engine.end_step(batch, self._executor.execute(batch), step["t_end_ns"])
            self._free_ns = step["t_end_ns"]
            self._flying = None


def _differing(ours: Line | None, theirs: Line) -> tuple[str, ...]:
    if ours is None:
        return ("nothing to launch",)
    differing = [name for name in DECIDED_FIELDS if ours[name] != theirs[name]]
    differing += [name for name in HOST_FIELDS if ours.get(name) != theirs.get(name)]
    return tuple(differing)
