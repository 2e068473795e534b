"""The times of many consecutive decode steps, computed together; and those of a pipeline's stages.

Notation: step i is decided at t(i) and takes host time h(i). Then its launch begins, which takes
the host l. The device computes it for d(i), from s(i) to e(i). `sim.des.replicas.replica` draws all
this.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

import numpy as np

from sim.core.arrays import Int64
from sim.core.batch import Batch
from sim.core.errors import InvariantError
from sim.core.units import MAX_TIME_NS
from sim.engine.decode_run import DecodeRun
from sim.engine.records import StepState
from sim.latency.features import StepFeatures
from sim.latency.model import LatencyModel
from sim.latency.wrappers import StagedLatency
from sim.runlog.builder import FurtherSteps

# Of shorter arrays Python has the sum of a list, and its maximum, before numpy has begun.
_MANY = 64


def _sum(times_ns: Int64) -> int:
    if len(times_ns) < _MANY:
        return sum(times_ns.tolist())
    return int(np.add.reduce(times_ns))


def _longest(times_ns: Int64) -> int:
    if len(times_ns) < _MANY:
        longest_ns: int = max(times_ns.tolist())
        return longest_ns
    return int(np.maximum.reduce(times_ns))


# Device time and host time of each of many steps; int64 ns, shape [num_steps] each.
StepTimes = tuple[Int64, Int64]


def slower_of(one: StepTimes, other: StepTimes) -> StepTimes:
    """The times of the slower of two ranks in each step that both know."""
    num_steps = min(len(one[0]), len(other[0]))
    device_ns = np.maximum(one[0][:num_steps], other[0][:num_steps])
    if one[1] is other[1]:
        return device_ns, one[1]
    return device_ns, np.maximum(one[1][:num_steps], other[1][:num_steps])


class UpcomingSteps:
    """The times of the decode steps that follow the one in flight; int64 ns.

    Attributes:
        decided_ns: when each step is decided, and when the step after the last one is decided;
            shape [num_steps + 1].
        starts_ns, ends_ns, host_ns: device start, device end and host time; shape [num_steps].
        known_ns: for each step, when the scheduler processes the result of the step before it;
            shape [num_steps].
    """

    def __init__(
        self,
        decided_ns: Int64,
        starts_ns: Int64,
        ends_ns: Int64,
        host_ns: Int64,
        known_ns: Int64,
        launch_ns: int,
    ) -> None:
        self.decided_ns: Final = decided_ns
        self.starts_ns: Final = starts_ns
        self.ends_ns: Final = ends_ns
        self.host_ns: Final = host_ns
        self.known_ns: Final = known_ns
        self.launch_ns: Final = launch_ns
        self._sums_ns: tuple[int, int] | None = None

    @property
    def sums_ns(self) -> tuple[int, int]:
        """Device time and host time of all steps."""
        if self._sums_ns is None:
            self._sums_ns = _sum(self.ends_ns - self.starts_ns), _sum(self.host_ns)
        return self._sums_ns

    @property
    def num_steps(self) -> int:
        return len(self.ends_ns)

    def first(self, num_steps: int) -> "UpcomingSteps":
        if num_steps == len(self.ends_ns):
            return self
        return UpcomingSteps(
            self.decided_ns[: num_steps + 1],
            self.starts_ns[:num_steps],
            self.ends_ns[:num_steps],
            self.host_ns[:num_steps],
            self.known_ns[:num_steps],
            self.launch_ns,
        )

    def logged(self, run: DecodeRun, state: StepState) -> FurtherSteps:
        """The steps as the run log has them; see there for `run` and `state`."""
        times = (self.decided_ns[:-1], self.starts_ns, self.ends_ns, self.host_ns)
        return FurtherSteps(times, self.sums_ns, self.launch_ns, run, state)

    def decided_before(self, time_ns: int) -> "UpcomingSteps | None":
        return self._before(self.decided_ns[:-1], time_ns)

    def followed_before(self, time_ns: int) -> "UpcomingSteps | None":
        """The steps whose next step is decided before `time_ns`, too; None: there are none."""
        return self._before(self.decided_ns[1:], time_ns)

    def known_before(self, time_ns: int) -> "UpcomingSteps | None":
        return self._before(self.known_ns, time_ns)

    def _before(self, times_ns: Int64, time_ns: int) -> "UpcomingSteps | None":
        if time_ns > times_ns[-1]:
            return self
        num_steps = int(times_ns.searchsorted(time_ns, side="left"))
        return self.first(num_steps) if num_steps else None


def upcoming_steps(
    decided_ns: int, end_ns: int, times: StepTimes, launch_ns: int, *, overlaps: bool
) -> UpcomingSteps | None:
    """The times of the decode steps that follow the one in flight.

    `decided_ns` is when the first of them is decided; it is used only if scheduling overlaps.
    `end_ns` is the end of the step in flight. `times` and `launch_ns` are those of each step that
    follows; shape [num_steps], not empty.

    Returns:
        Those that certainly end by `MAX_TIME_NS`, the latest time of the clock; None: none does.
    """
    device_ns, host_ns = times
    longest_ns = _longest(device_ns) + _longest(host_ns) + launch_ns
    if end_ns + longest_ns * len(device_ns) > MAX_TIME_NS:
        num_steps = (MAX_TIME_NS - end_ns) // longest_ns
        if num_steps <= 0:
            return None
        device_ns, host_ns = device_ns[:num_steps], host_ns[:num_steps]
    if not overlaps:
        return serial_steps(end_ns, np.maximum(device_ns, launch_ns), host_ns, launch_ns)
    if launch_ns:
        return launched_steps(decided_ns, end_ns, device_ns, host_ns, launch_ns)
    return overlapped_steps(decided_ns, end_ns, device_ns, host_ns)


def serial_steps(
    end_ns: int, device_ns: Int64, host_ns: Int64, launch_ns: int = 0
) -> UpcomingSteps:
    """Normal scheduling: t(i) = e(i-1), s(i) = t(i) + h(i), e(i) = s(i) + d(i).

    Every device time must be at least the launch time.
    """
    decided = np.full(len(device_ns) + 1, end_ns, dtype=np.int64)
    decided[1:] += (device_ns + host_ns).cumsum()
    return UpcomingSteps(
        decided, decided[:-1] + host_ns, decided[1:], host_ns, decided[:-1], launch_ns
    )


def overlapped_steps(
    decided_ns: int, end_ns: int, device_ns: Int64, host_ns: Int64
) -> UpcomingSteps:
    """Overlap scheduling without launch times: s(i) = max(t(i) + h(i), e(i-1)), t(i+1) = s(i).

    When step i starts, the scheduler processes the result of step i-1 and decides step i+1.
    """
    decided = np.empty(len(device_ns) + 1, dtype=np.int64)
    decided[0] = decided_ns
    starts = decided[1:]
    starts[0] = max(decided_ns + int(host_ns[0]), end_ns)
    np.maximum(host_ns[1:], device_ns[:-1], out=starts[1:])
    np.add.accumulate(starts, out=starts)
    return UpcomingSteps(decided, starts, starts + device_ns, host_ns, starts, 0)


def launched_steps(
    decided_ns: int, end_ns: int, device_ns: Int64, host_ns: Int64, launch_ns: int
) -> UpcomingSteps:
    """Overlap scheduling of steps that the host launches kernel by kernel.

    The launch begins at b(i) = t(i) + h(i). Then s(i) = max(b(i), e(i-1)),
    e(i) = max(s(i) + d(i), b(i) + l), and t(i+1) = max(b(i) + l, e(i-1)).
    """
    num_steps = len(device_ns)
    decided = np.empty(num_steps + 1, dtype=np.int64)
    starts = np.empty(num_steps, dtype=np.int64)
    ends = np.empty(num_steps, dtype=np.int64)
    decided[0] = decided_ns
    times = zip(device_ns.tolist(), host_ns.tolist(), strict=True)
    for i, (device, host) in enumerate(times):
        launched_ns = decided_ns + host + launch_ns
        decided_ns = max(launched_ns, end_ns)
        starts[i] = start_ns = max(launched_ns - launch_ns, end_ns)
        ends[i] = end_ns = max(start_ns + device, launched_ns)
        decided[i + 1] = decided_ns
    return UpcomingSteps(decided, starts, ends, host_ns, decided[1:], launch_ns)


class Stages:
    """The stages of a replica, of which no step is fast-forwarded.

        stage 0   | step 0 | step 1 |        | step 2 | step 3 | ...
        stage 1            | step 0 | step 1 |        | step 2 | ...
                                    ^ result of step 0: its requests are in step 2

    A step goes through all stages. Each stage begins it when the stage before has ended it, and
    when the stage itself has ended the step before. Steps in flight have different rows, so the
    first stage need not wait for the result of the last. docs/explanation/pipeline.md has the
    rules.
    """

    def __init__(self, latency: LatencyModel) -> None:
        """`latency` says what each stage has of a step.

        Raises InvariantError: it knows no stages.
        """
        if not isinstance(latency, StagedLatency):
            raise InvariantError("a pipeline needs the times of its stages")
        self._shares_ns = latency.stages_ns
        # When each stage has ended its last step.
        self._free_ns = [0] * latency.num_stages
        # Of the last decided steps, one for each stage: when their tokens are known. 0: the
        # decision launched nothing, or the step samples no token.
        self._tokens_ns: deque[int] = deque([0] * latency.num_stages)

    @property
    def first_free_ns(self) -> int:
        """When the first stage has computed the steps launched so far."""
        return self._free_ns[0]

    def take(
        self, ready_ns: int, parts: Iterable[tuple[StepFeatures, int]], batches: Iterable[Batch]
    ) -> tuple[int, int]:
        """A step enters the first stage; returns when that begins it, and when the last ends it.

        A stage computes a step for as long as the slowest rank. Under async scheduling rows may
        decode before the result of their last step is taken in. The first stage then waits for the
        tokens of the step that was decided as many decisions ago as there are stages.
        Source: vLLM 0.33.0, `PPHandler.get_prev_sampled_outputs` (v1/worker/gpu/pp_utils.py).

        The host has prepared the step at `ready_ns`. `parts` has of each rank with work its part of
        the step, and the device time of that.
        """
        shares = [self._shares_ns(features, device_ns) for features, device_ns in parts]
        start_ns = end_ns = max(ready_ns, self._free_ns[0], self._tokens_ns[0])
        for stage, of_ranks in enumerate(zip(*shares, strict=True)):
            end_ns = max(end_ns, self._free_ns[stage]) + max(of_ranks)
            self._free_ns[stage] = end_ns
        samples = any(b.decode_rids or any(r.samples for r in b.prefill) for b in batches)
        self._tokens_ns.append(end_ns if samples else 0)
        return start_ns, end_ns

    def decided(self, *, launched: bool) -> None:
        """A decision has been taken; one that launched nothing samples no token."""
        if not launched:
            self._tokens_ns.append(0)
        self._tokens_ns.popleft()
