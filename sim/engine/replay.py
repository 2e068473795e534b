"""Replay: fresh engines decide every step of a log again, from the log's arrivals and times.

The replay finds the first step that the engines decide differently. For example, it reveals a step
that the log's server decided with the result of a step that had not ended yet. The log may come
from the simulator or from a real server. A server is replayed as a group of one rank.
"""

import heapq
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sim.core.batch import Batch, ScriptedExecutor
from sim.core.request import RequestSpec
from sim.engine.core import EngineCore
from sim.engine.logged_decision import Divergence, Line, divergence_of
from sim.engine.pipeline import decides_again
from sim.engine.ranks import Meeting
from sim.engine.records import Decided

# The line of each rank that had work in a step, by rank.
StepOfRanks = Mapping[int, Line]


class RankReplay(NamedTuple):
    """A server, or a rank of a group, to replay.

    Attributes:
        engine: a fresh engine with the settings of the log's server, or of the rank.
        executor: the engine's executor, which has the scripts of all arrivals.
        arrivals: its requests in order of arrival, with the log's arrival times.
    """

    engine: EngineCore
    executor: ScriptedExecutor
    arrivals: Iterable[RequestSpec]


def replay(
    ranks: Sequence[RankReplay], steps: Sequence[StepOfRanks], *, overlaps: bool
) -> Divergence | None:
    """Decide every step of a log again; returns the first difference, or None.

    `ranks` are the server, or all ranks of a group; `steps` are in order of launch; `overlaps`: the
    log's server used overlap scheduling.
    """
    if ranks[0].engine.num_places > 1:
        return _PipelineReplay(ranks).run(steps)
    return _Replay(ranks).run(steps, overlaps=overlaps)


def of_one_server(lines: Iterable[Line]) -> list[StepOfRanks]:
    """The steps of a server without ranks, in the order of their lines."""
    return [{0: line} for line in lines]


def by_step(lines: Iterable[Line]) -> list[StepOfRanks]:
    """The lines of each step of a group, or of a pipeline, in order of launch."""
    steps: dict[int, dict[int, Line]] = {}
    for line in lines:
        steps.setdefault(line["step"], {})[line.get("rank", 0)] = line
    return [steps[number] for number in sorted(steps)]


class _Engines:
    """The engines of all ranks, which decide and take in results together.

    Attributes:
        wakes_ns: if the last decision launched nothing and nothing was in flight: when the next
            one may launch something. None: not known.
    """

    def __init__(self, ranks: Sequence[RankReplay]) -> None:
        self._ranks = ranks
        self._arrivals = [_Arrivals(rank.engine, rank.arrivals) for rank in ranks]
        self.engines = [rank.engine for rank in ranks]
        self.is_group = len(ranks) > 1
        self.wakes_ns: int | None = None
        self._meeting = Meeting(self.engines) if self.is_group else None

    def decide(self, now_ns: int, *, in_flight: bool) -> Sequence[Decided]:
        self.pass_on(now_ns)
        if self._meeting is None:
            decided = self.engines[0].begin_step(now_ns)
            self.wakes_ns = decided.wakes_ns
            return [decided]
        of_ranks = self._meeting.decide(now_ns, in_flight=in_flight)
        self.wakes_ns = None
        if not in_flight and not _launches(of_ranks):
            wakes_ns = [engine.idle(now_ns) for engine in self.engines]
            self.wakes_ns = min((ns for ns in wakes_ns if ns is not None), default=None)
        return of_ranks

    def pass_on(self, now_ns: int) -> None:
        """Give the engines what has arrived until now."""
        for arrivals in self._arrivals:
            arrivals.pass_on(now_ns)

    def end_step(self, batches: Sequence[Batch | None], now_ns: int) -> None:
        self.pass_on(now_ns)
        for rank, batch in zip(self._ranks, batches, strict=True):
            if batch is not None:
                rank.engine.end_step(batch, rank.executor.execute(batch), now_ns)

    @property
    def has_arrivals(self) -> bool:
        """Whether requests have arrived that no decision has received yet."""
        return any(not engine.input_queue.is_empty for engine in self.engines)

    @property
    def has_waiting(self) -> bool:
        return any(engine.num_waiting for engine in self.engines)


class _Replay:
    """Replays a server, or a group, that has at most one step in flight while it decides."""

    def __init__(self, ranks: Sequence[RankReplay]) -> None:
        self._server = _Engines(ranks)
        self._in_flight: tuple[Sequence[Batch | None], Line] | None = None
        self._free_ns = 0

    def run(self, steps: Sequence[StepOfRanks], *, overlaps: bool) -> Divergence | None:
        before: StepOfRanks = {}
        for number, step in enumerate(steps):
            times = next(iter(step.values()))
            if not self._catch_up(times):
                return Divergence(
                    f"step {number}", ("launched too early",), None, times, before.get(0)
                )
            decided = self._decide(times["t_decided_ns"])
            while not _launches(decided) and self._decides_again(decided, times):
                decided = self._decide(times["t_decided_ns"])
            name = times["step"] if self._server.is_group else number
            divergence = divergence_of(decided, step, before, name)
            if divergence is not None:
                return divergence
            if overlaps:
                self._end_step()
            self._in_flight = ([each.batch for each in decided], times)
            if not overlaps:
                self._end_step()
            before = step
        return None

    def _catch_up(self, step: Line) -> bool:
        """Repeat decisions that launched nothing in the log, between the last step and this one.

        Returns False if an engine launches a batch in one of those that the log names.
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
            launched_ns = _host_free_ns(self._in_flight[1], self._free_ns)
            if launched_ns < decided_ns:
                self._launches_nothing(launched_ns)
        wakes_ns: int | None = self._free_ns if self._in_flight is None else None
        while wakes_ns is not None and wakes_ns < decided_ns:
            self._decide(wakes_ns)
            wakes_ns = self._server.wakes_ns
        return True

    def _decides_again(self, decided: Sequence[Decided], step: Line) -> bool:
        """Whether a simulated server that launched nothing decides again at once.

        It does so, too, if the step in flight ended exactly when it decides, because its
        launch held the host up until then. This ends that step.
        """
        server = self._server
        if "looks_ns" in step:
            return False
        if not server.is_group and decided[0].preempted:
            return True
        if self._in_flight is not None:
            has_ended: bool = self._in_flight[1]["t_end_ns"] <= step["t_decided_ns"]
            if has_ended:
                self._end_step()
            return has_ended
        if server.is_group and server.has_arrivals:
            return True
        if server.wakes_ns is not None:
            return bool(server.wakes_ns <= step["t_decided_ns"])
        return server.has_waiting or server.has_arrivals

    def _launches_nothing(self, now_ns: int) -> bool:
        """Decide, and end the step in flight; returns whether the decision launched nothing."""
        decided = self._decide(now_ns)
        self._end_step()
        return not _launches(decided)

    def _decide(self, now_ns: int) -> Sequence[Decided]:
        ends_ns = 0 if self._in_flight is None else self._in_flight[1]["t_end_ns"]
        for engine in self._server.engines:
            engine.scheduler.device_free_ns = ends_ns
        return self._server.decide(now_ns, in_flight=self._in_flight is not None)

    def _end_step(self) -> None:
        if self._in_flight is not None:
            batches, line = self._in_flight
            self._free_ns = line["t_end_ns"]
            self._server.end_step(batches, self._free_ns)
            self._in_flight = None


def _launches(decided: Sequence[Decided]) -> bool:
    return any(each.batch is not None for each in decided)


def _host_free_ns(step: Line, device_free_ns: int) -> int:
    """When a simulated server with overlap, which had launched a step, could decide again.

    Without launch time this is the step's start. With launch time, the host launches the step's
    kernels first, and then waits for the result of the step before.

    `device_free_ns` is the end of the step before.
    """
    launch_ns: int = step.get("launch_ns", 0)
    if not launch_ns:
        return int(step["t_start_ns"])
    launched_ns: int = step["t_decided_ns"] + step["host_ns"] + launch_ns
    return max(launched_ns, device_free_ns)


class _Arrivals:
    """Passes requests to an engine at their arrival, but none that it would reject."""

    def __init__(self, engine: EngineCore, specs: Iterable[RequestSpec]) -> None:
        self._engine = engine
        self._specs = deque(spec for spec in specs if engine.rejection(spec) is None)
        self._given_up: list[tuple[int, str]] = []

    def pass_on(self, now_ns: int) -> None:
        """Submit what has arrived until now; of equal times, clients that give up go first."""
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


class _PipelineReplay:
    """Replays a pipeline, which has several steps in flight.

    The order of decisions and results is that of `Stages` (`sim.des.replicas.replica`); the times
    are the log's.
    """

    def __init__(self, ranks: Sequence[RankReplay]) -> None:
        self._server = _Engines(ranks)
        first = ranks[0].engine
        self._num_places, self._takes_turns = first.num_places, first.scheduler.takes_turns
        # The batches of each step and its end; None: a decision that launched nothing.
        self._places: deque[tuple[Sequence[Batch | None], int] | None] = deque()
        if self._takes_turns:
            self._places.extend([None] * (self._num_places - 1))
        self._now_ns = 0

    def run(self, steps: Sequence[StepOfRanks]) -> Divergence | None:
        """Decide until all steps of the log were compared."""
        number = num_idle = 0
        while number < len(steps):
            times = next(iter(steps[number].values()))
            decided = self._server.decide(self._now_ns, in_flight=any(self._places))
            launched = _launches(decided)
            before = steps[number - 1] if number else {}
            if launched or (not any(self._places) and num_idle > self._num_places):
                divergence = divergence_of(decided, steps[number], before, times["step"])
                if divergence is not None or not launched:
                    return divergence
                self._places.append(([each.batch for each in decided], times["t_end_ns"]))
                number, num_idle = number + 1, 0
                self._now_ns = max(self._now_ns, times["t_decided_ns"] + times["host_ns"])
            else:
                self._places.append(None)
                if not any(self._places):
                    num_idle += 1
                    if self._must_wait(num_idle):
                        self._now_ns = max(self._now_ns, times["t_decided_ns"])
            if not self._decides_again(launched=launched):
                self._take_in(self._places.popleft())
        return None

    def _must_wait(self, num_idle: int) -> bool:
        """Whether an idle pipeline launches nothing before something arrives."""
        if self._takes_turns and num_idle < self._num_places:
            return False
        return not (self._server.has_waiting or self._server.has_arrivals)

    def _decides_again(self, *, launched: bool) -> bool:
        oldest = self._places[0]
        return decides_again(
            self._server.engines,
            len(self._places),
            launched=launched,
            oldest_runs=oldest is not None and oldest[1] > self._now_ns,
        )

    def _take_in(self, step: tuple[Sequence[Batch | None], int] | None) -> None:
        if step is not None:
            batches, end_ns = step
            self._now_ns = max(self._now_ns, end_ns)
            self._server.end_step(batches, self._now_ns)
