"""What coefficients add to the times of requests if all decisions stay the same.

Two simulations with different coefficients differ by chance, too: an arrival just misses a step. So
coefficients with the same effect would seem to have different ones. Here one simulation is made
instead, and each of its steps is also timed with other coefficients.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from calibrate.measured.twin import Twin
from sim.commands.running.simulate import simulate_built
from sim.core.arrays import Float64, Int64
from sim.core.units import NS_PER_MS, NS_PER_S
from sim.des.run import RunOptions
from sim.latency.features import StepFeatures
from sim.latency.model import LatencyModel, ReplicaLatency, StepTime
from sim.runlog import RunLog
from sim.scenario.overrides import Change


@dataclass(frozen=True, slots=True)
class FrozenTimes:
    """A simulation, and how much longer requests would take in it.

    Attributes:
        log: the simulation.
        ttft_ms, decode_ms: added to these times of each request, in the log's order; shape
            [num_requests, num_alternatives].
    """

    log: RunLog
    ttft_ms: Float64
    decode_ms: Float64


def frozen_times(
    twin: Twin, changes: Sequence[Change], alternatives: Sequence[Sequence[Change]]
) -> FrozenTimes:
    """Simulate with the changes, and time the same steps with each alternative."""
    built = twin.built(changes)
    others = [twin.built(each) for each in alternatives]
    overlaps = built.scheduler.overlaps
    recorders: list[_Recorder] = []

    def recorded(latency: LatencyModel, same: Sequence[LatencyModel]) -> LatencyModel:
        recorders.append(_Recorder(latency, same, overlaps=overlaps))
        return recorders[-1]

    latencies: list[ReplicaLatency] = []
    for number, latency in enumerate(built.latencies):
        same = [other.latencies[number] for other in others]
        if isinstance(latency, tuple):
            ranks = [each for each in same if isinstance(each, tuple)]
            latencies.append(tuple(map(recorded, latency, zip(*ranks, strict=True))))
        else:
            latencies.append(
                recorded(latency, [each for each in same if not isinstance(each, tuple)])
            )
    log = simulate_built(replace(built, latencies=tuple(latencies)), RunOptions())
    ttft_ms, decode_ms = np.zeros((2, len(log.requests.rid), len(others)))
    requests = log.requests
    for replica, recorder in enumerate(recorders):
        mine = np.flatnonzero(requests.replica == replica)
        times = (requests.arrival_ns, requests.first_token_ns, requests.finish_ns)
        arrival, first, finish = (recorder.added_ns(log, replica, each[mine]) for each in times)
        ttft_ms[mine] = (first - arrival) / NS_PER_MS
        decode_ms[mine] = (finish - first) / NS_PER_MS
    front_ends = np.array([_front_end_s(each.loaded.scenario.host) for each in others])
    ttft_ms += (front_ends - _front_end_s(built.loaded.scenario.host)) * (NS_PER_S / NS_PER_MS)
    return FrozenTimes(log, ttft_ms, decode_ms)


def _front_end_s(host: object) -> float:
    return float(getattr(host, "front_end_s", 0.0))


@dataclass(slots=True)
class _Recorder:
    """A latency model that also asks others for the time of every step that ran."""

    model: LatencyModel
    others: Sequence[LatencyModel]
    overlaps: bool = field(kw_only=True)
    _num_steps: list[int] = field(default_factory=list)
    _added_ns: list[list[int]] = field(default_factory=list)

    def step_ns(self, step: StepFeatures) -> StepTime:
        return self.model.step_ns(step)

    def decode_run_ns(self, first: StepFeatures, num_steps: int) -> tuple[Int64, Int64]:
        return self.model.decode_run_ns(first, num_steps)

    def consume(self, first: StepFeatures, num_steps: int) -> None:
        own, *others = (
            self._total_ns(each, first, num_steps) for each in (self.model, *self.others)
        )
        self._num_steps.append(num_steps)
        self._added_ns.append([other - own for other in others])
        for each in (self.model, *self.others):
            each.consume(first, num_steps)

    def _total_ns(self, model: LatencyModel, first: StepFeatures, num_steps: int) -> int:
        if num_steps == 1:
            device_ns, host_ns = model.step_ns(first)
            return max(device_ns, host_ns) if self.overlaps else device_ns + host_ns
        times = model.decode_run_ns(first, num_steps)
        together = np.maximum(*times) if self.overlaps else np.add(*times)
        return int(together.sum())

    def added_ns(self, log: RunLog, replica: int, at_ns: Int64) -> Float64:
        """What the others' steps took longer up to these times; shape [num_times, num_others]."""
        if not self._added_ns:
            return np.zeros((len(at_ns), len(self.others)))
        mine = log.steps.replica == replica
        ends = np.cumsum(log.steps.num_steps[mine])
        consumed = np.cumsum(self._num_steps)
        added = np.cumsum(np.array(self._added_ns, dtype=np.float64), axis=0)
        at_end = added[np.minimum(np.searchsorted(consumed, ends), len(added) - 1)]
        at_start = np.vstack((np.zeros(added.shape[1]), at_end[:-1]))
        corners_ns = np.column_stack((log.steps.t_start_ns[mine], log.steps.t_end_ns[mine])).ravel()
        # With overlap a step may start before the one before has ended; times must ascend.
        corners_ns = np.maximum.accumulate(corners_ns)
        values = np.stack((at_start, at_end), axis=1).reshape(len(corners_ns), -1)
        return np.column_stack([np.interp(at_ns, corners_ns, column) for column in values.T])
