"""Replay: a fresh engine decides every step of a log again, from the log's arrivals and times.

The replay finds the first step that the engine decides differently. For example, it reveals a step
that the log's server decided with the result of a step that had not ended yet. The log may come
from the simulator or from a real server.
"""

import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sim.core.batch import Batch
from sim.core.request import RequestSpec
from sim.engine.core import EngineCore
from sim.engine.executor import ScriptedExecutor
from sim.engine.records import Decided
from sim.engine.replay.decision import (
    DECIDED_FIELDS,
    DRAFT_FIELDS,
    HOST_FIELDS,
    Divergence,
    Line,
    decode_crc,
    describe_decision,
)


class Replay(NamedTuple):
    """A log to replay.

    Attributes:
        arrivals: requests in order of arrival, with the log's arrival times.
        steps: the log's steps, in order of launch.
        overlaps: whether the log's server used overlap scheduling.
    """

    arrivals: Iterable[RequestSpec]
    steps: Sequence[Line]
    overlaps: bool


def replay(engine: EngineCore, executor: ScriptedExecutor, recorded: Replay) -> Divergence | None:
    """Decide every step of the log again; returns the first difference, or None.

    Args:
        engine: a fresh engine with the settings of the log's server.
        executor: the engine's executor, which has the scripts of all arrivals.
        recorded: the log.
    """
    return _ServerReplay(engine, executor, recorded).run()


class _ServerReplay:
    def __init__(self, engine: EngineCore, executor: ScriptedExecutor, recorded: Replay) -> None:
        self._engine = engine
        self._executor = executor
        self._recorded = recorded
        self._arrivals = ReplayArrivals(engine, recorded.arrivals)
        self._in_flight: tuple[Batch, Line] | None = None
        self._free_ns = 0

    def run(self) -> Divergence | None:
        before: Line | None = None
        for number, step in enumerate(self._recorded.steps):
            if not self._catch_up(step):
                return Divergence(f"step {number}", ("launched too early",), None, step, before)
            decided = self._decide(step["t_decided_ns"])
            while decided.batch is None and "looks_ns" not in step and self._again(decided, step):
                decided = self._decide(step["t_decided_ns"])
            batch, ours = decided.batch, None
            if batch is not None and decided.state is not None:
                ours = describe_decision(batch, decided.state, decode_crc(batch))
            fields = differing_fields(ours, step)
            if fields or batch is None:
                return Divergence(f"step {number}", fields, ours, step, before)
            if self._recorded.overlaps:
                self._end_step()
                self._in_flight = (batch, step)
            else:
                self._in_flight = (batch, step)
                self._end_step()
            before = step
        return None

    def _catch_up(self, step: Line) -> bool:
        """Repeat decisions that launched nothing in the log, between the last step and this one.

        Returns:
            False if the engine launches a batch in one of them.
        """
        if "looks_ns" in step:
            return all(self._launches_nothing(look_ns) for look_ns in step["looks_ns"])
        # Logs of simulated servers leave out decisions that launched nothing, but this step tells
        # whether there were any. Under overlap there was one when the host had launched the step
        # before, if this step was decided later than that and after the end of that one. There was
        # one more, at that end, if the server was idle between the two steps; and further ones when
        # it woke up by itself, for example at the end of a copy.
        decided_ns = step["t_decided_ns"]
        if self._in_flight is not None and self._in_flight[1]["t_end_ns"] <= decided_ns:
            launched_ns = host_free_ns(self._in_flight[1], self._free_ns)
            if launched_ns < decided_ns:
                self._launches_nothing(launched_ns)
        wakes_ns: int | None = self._free_ns if self._in_flight is None else None
        while wakes_ns is not None and wakes_ns < decided_ns:
            wakes_ns = self._decide(wakes_ns).wakes_ns
        return True

    def _again(self, decided: Decided, step: Line) -> bool:
        """Whether a simulated server that launched nothing decides again at once.

        It does so, too, if the step in flight ended at the very time of the decision, because its
        launch held the host up until then. This ends that step.
        """
        engine = self._engine
        waits = engine.num_waiting > 0 or not engine.input_queue.is_empty
        is_idle = self._in_flight is None and decided.wakes_ns is None
        if decided.preempted or (is_idle and waits):
            return True
        if self._in_flight is not None and self._in_flight[1]["t_end_ns"] <= step["t_decided_ns"]:
            self._end_step()
            return True
        return False

    def _launches_nothing(self, now_ns: int) -> bool:
        """Decide, and end the step in flight; returns whether the decision launched nothing."""
        decided = self._decide(now_ns)
        self._end_step()
        return decided.batch is None

    def _decide(self, now_ns: int) -> Decided:
        self._arrivals.pass_on(now_ns)
        ends_ns = 0 if self._in_flight is None else self._in_flight[1]["t_end_ns"]
        self._engine.scheduler.device_free_ns = ends_ns
        return self._engine.begin_step(now_ns)

    def _end_step(self) -> None:
        if self._in_flight is not None:
            batch, step = self._in_flight
            self._arrivals.pass_on(step["t_end_ns"])
            self._engine.end_step(batch, self._executor.execute(batch), step["t_end_ns"])
            self._free_ns = step["t_end_ns"]
            self._in_flight = None


def host_free_ns(step: Line, device_free_ns: int) -> int:
    """When a simulated server with overlap, which had launched a step, could decide again.

    Without launch time this is the step's start. With launch time, the host launches the step's
    kernels first, and then waits for the result of the step before.

    Args:
        step: the step's line.
        device_free_ns: the end of the step before.
    """
    launch_ns: int = step.get("launch_ns", 0)
    if not launch_ns:
        return int(step["t_start_ns"])
    launched_ns: int = step["t_decided_ns"] + step["host_ns"] + launch_ns
    return max(launched_ns, device_free_ns)


def differing_fields(ours: Line | None, theirs: Line) -> tuple[str, ...]:
    """Where a step that was decided now (None: nothing was launched) differs from the log's."""
    if ours is None:
        return ("nothing to launch",)
    differing = [name for name in DECIDED_FIELDS if ours[name] != theirs.get(name)]
    differing += [
        name for name in (*HOST_FIELDS, *DRAFT_FIELDS) if ours.get(name) != theirs.get(name)
    ]
    return tuple(differing)


class ReplayArrivals:
    """Requests in order of arrival; those that the engine does not take in are left out."""

    def __init__(self, engine: EngineCore, specs: Iterable[RequestSpec]) -> None:
        self._engine = engine
        self._specs = deque(spec for spec in specs if engine.rejection(spec) is None)
        self._given_up: list[tuple[int, str]] = []

    def pass_on(self, now_ns: int) -> None:
        """What has happened until now: clients that give up go before arrivals of the same time."""
        while self._specs and self._specs[0].arrival_ns <= now_ns:
            spec = self._specs.popleft()
            self._give_up(spec.arrival_ns)
            self._engine.submit(spec)
            if spec.gives_up_ns is not None:
                heapq.heappush(self._given_up, (spec.arrival_ns + spec.gives_up_ns, spec.rid))
        self._give_up(now_ns)

    def _give_up(self, now_ns: int) -> None:
        while self._given_up and self._given_up[0][0] <= now_ns:
            self._engine.give_up(heapq.heappop(self._given_up)[1])
