"""Replay of a group: fresh engines of all its ranks decide every step of a log again, together."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sim.core.batch import Batch
from sim.core.request import RequestSpec
from sim.engine.core import EngineCore
from sim.engine.executor import ScriptedExecutor
from sim.engine.ranks import tell_ranks
from sim.engine.records import Decided
from sim.engine.replay.decision import Divergence, Line, decode_crc, describe_decision
from sim.engine.replay.one_server import ReplayArrivals, differing_fields, host_free_ns


class RankReplay(NamedTuple):
    """A rank of a group to replay.

    Attributes:
        engine: a fresh engine with the settings of the rank.
        executor: the engine's executor, which has the scripts of all arrivals.
        arrivals: the rank's requests in order of arrival, with the log's arrival times.
    """

    engine: EngineCore
    executor: ScriptedExecutor
    arrivals: Iterable[RequestSpec]


def replay_group(
    ranks: Sequence[RankReplay], steps: Iterable[Mapping[int, Line]], *, overlaps: bool
) -> Divergence | None:
    """Decide every step of a group again; returns the first difference, or None.

    Args:
        ranks: all ranks of the group.
        steps: the line of each rank that had work in a step, by rank; in order of launch.
        overlaps: whether the group used overlap scheduling.
    """
    return _GroupReplay(ranks).run(steps, overlaps=overlaps)


def by_step(lines: Iterable[Line]) -> list[dict[int, Line]]:
    """The lines of each step of a group by rank, in order of launch."""
    steps: dict[int, dict[int, Line]] = {}
    for line in lines:
        steps.setdefault(line["step"], {})[line.get("rank", 0)] = line
    return [steps[number] for number in sorted(steps)]


class _GroupStep(NamedTuple):
    batches: Sequence[Batch | None]
    line: Line


class _GroupReplay:
    def __init__(self, ranks: Sequence[RankReplay]) -> None:
        self._ranks = ranks
        self._arrivals = [ReplayArrivals(rank.engine, rank.arrivals) for rank in ranks]
        self._in_flight: _GroupStep | None = None
        self._free_ns = 0
        self._wakes_ns: int | None = None
        for rank in ranks:
            rank.engine.in_group = True

    def run(self, steps: Iterable[Mapping[int, Line]], *, overlaps: bool) -> Divergence | None:
        before: Mapping[int, Line] = {}
        for step in steps:
            times = next(iter(step.values()))
            self._catch_up(times["t_decided_ns"])
            decided = self._decide(times["t_decided_ns"])
            while not launches(decided) and self._decides_again(times["t_decided_ns"]):
                decided = self._decide(times["t_decided_ns"])
            divergence = divergence_of(decided, step, before)
            if divergence is not None:
                return divergence
            if overlaps:
                self._end_step()
            batches = [each.batch for each in decided]
            self._in_flight = _GroupStep(batches, times)
            if not overlaps:
                self._end_step()
            before = step
        return None

    def _catch_up(self, decided_ns: int) -> None:
        """Repeat decisions of no launch since the last step; see `sim.engine.replay.one_server`."""
        if self._in_flight is not None and self._in_flight.line["t_end_ns"] <= decided_ns:
            launched_ns = host_free_ns(self._in_flight.line, self._free_ns)
            if launched_ns < decided_ns:
                self._decide(launched_ns)
                self._end_step()
        wakes_ns: int | None = self._free_ns if self._in_flight is None else None
        while wakes_ns is not None and wakes_ns < decided_ns:
            self._decide(wakes_ns)
            wakes_ns = self._wakes_ns

    def _decide(self, now_ns: int) -> list[Decided]:
        decided = []
        ends_ns = 0 if self._in_flight is None else self._in_flight.line["t_end_ns"]
        for rank, arrivals in zip(self._ranks, self._arrivals, strict=True):
            arrivals.pass_on(now_ns)
            rank.engine.scheduler.device_free_ns = ends_ns
            decided.append(rank.engine.begin_step(now_ns))
        in_flight = self._in_flight is not None
        batches = [each.batch for each in decided]
        tell_ranks([rank.engine for rank in self._ranks], batches, in_flight=in_flight)
        if not in_flight and not launches(decided):
            wakes_ns = [rank.engine.idle(now_ns) for rank in self._ranks]
            at_ns = [wake_ns for wake_ns in wakes_ns if wake_ns is not None]
            self._wakes_ns = min(at_ns) if at_ns else None
        return decided

    def _decides_again(self, decided_ns: int) -> bool:
        """Whether a simulated group that launched nothing decides again at once.

        See `sim.engine.replay.one_server`: this may end the step in flight.
        """
        if self._in_flight is not None:
            has_ended: bool = self._in_flight.line["t_end_ns"] <= decided_ns
            if has_ended:
                self._end_step()
            return has_ended
        if any(not rank.engine.input_queue.is_empty for rank in self._ranks):
            return True
        return self._wakes_ns is None and any(rank.engine.num_waiting for rank in self._ranks)

    def _end_step(self) -> None:
        if self._in_flight is None:
            return
        batches, line = self._in_flight
        end_ns = line["t_end_ns"]
        for arrivals in self._arrivals:
            arrivals.pass_on(end_ns)
        for rank, batch in zip(self._ranks, batches, strict=True):
            if batch is not None:
                rank.engine.end_step(batch, rank.executor.execute(batch), end_ns)
        self._free_ns = end_ns
        self._in_flight = None


def launches(decided: Sequence[Decided]) -> bool:
    """Whether any rank launches something."""
    return any(each.batch is not None for each in decided)


def divergence_of(
    decided: Sequence[Decided], step: Mapping[int, Line], before: Mapping[int, Line]
) -> Divergence | None:
    """Where the ranks decide otherwise than in a log: in this step of it, after the one before."""
    for rank, each in enumerate(decided):
        where = f"rank {rank}, " if len(decided) > 1 else ""
        divergence = _divergence(where, each, step.get(rank), before.get(rank))
        if divergence is not None:
            return divergence
    return None


def _divergence(
    where: str, decided: Decided, theirs: Line | None, before: Line | None
) -> Divergence | None:
    ours = None
    if decided.batch is not None and decided.state is not None:
        ours = describe_decision(decided.batch, decided.state, decode_crc(decided.batch))
    if ours is None and theirs is None:
        return None
    if theirs is None:
        return Divergence(f"{where}no step", ("nothing was launched",), ours, None, before)
    fields = differing_fields(ours, theirs)
    if not fields:
        return None
    return Divergence(f"{where}step {theirs['step']}", fields, ours, theirs, before)
