"""Step times of one of two runs, for any step, also for one that this run never had."""

from collections import deque
from collections.abc import Iterator, Sequence
from copy import copy
from itertools import takewhile
from typing import NamedTuple, Protocol

import numpy as np
from scipy.optimize import nnls

from calibrate.nearest_step import NearestStepLatency
from calibrate.step_times import measured_times
from sim.core.arrays import Bools, Float64, Int64
from sim.core.batch import ForwardMode
from sim.core.packed import Line
from sim.core.units import NS_PER_MS
from sim.latency.features import StepFeatures, line_features
from sim.latency.model import LatencyModel, StepTime, launching

# A time that is so much longer than steps like it is a stall.
_STALL_TIMES, _STALL_NS = 5, 20 * NS_PER_MS
_NUM_ROUNDS = 3
# A mode with fewer steps than this is fitted together with all others.
_FEWEST_STEPS = 20
# A recorded step is like another one if no quantity is further away than this share of its own.
_LIKE = 0.25


class StepTimes(Protocol):
    """The three times of a step in one of the runs, in ns (`sim.latency.model`)."""

    def device_ns(self, step: StepFeatures) -> int: ...
    def host_ns(self, step: StepFeatures) -> int: ...
    def launch_ns(self, step: StepFeatures) -> int: ...
    def consume(self, first: StepFeatures, num_steps: int) -> None: ...


class Stall(NamedTuple):
    """A step that took much longer than steps like it.

    Attributes:
        at_ns: when it was decided.
        num_tokens: how many tokens were computed before it. Another run has it after as many.
        lost_ns: how much longer it took.
        on_host: whether the host was late, not the device.
    """

    at_ns: int
    num_tokens: int
    lost_ns: int
    on_host: bool


class ModelTimes:
    """The times of a scenario's own latency model.

    Attributes:
        foresees: it can be asked for several steps at once.
    """

    def __init__(self, model: LatencyModel, *, foresees: bool = True) -> None:
        self._model, self._launching = model, launching(model)
        self.foresees = foresees

    def device_ns(self, step: StepFeatures) -> int:
        return self._model.step_ns(step).device_ns

    def host_ns(self, step: StepFeatures) -> int:
        return self._model.step_ns(step).host_ns

    def launch_ns(self, step: StepFeatures) -> int:
        return 0 if self._launching is None else self._launching.launch_ns(step)

    def decode_run_ns(self, first: StepFeatures, num_steps: int) -> tuple[Int64, Int64]:
        return self._model.decode_run_ns(first, num_steps)

    def consume(self, first: StepFeatures, num_steps: int) -> None:
        self._model.consume(first, num_steps)


class _Fitted:
    """One time of all recorded steps: what is usual for a step, and how far each one is from it.

    A step's usual time is a sum of non-negative terms of its quantities. A step that is like a
    recorded one takes its own usual time, as much longer or shorter as the recorded one was. So a
    step that was recorded gets its recorded time. A step like no other takes its usual time.
    """

    def __init__(self, steps: Sequence[StepFeatures], times_ns: Float64) -> None:
        self._terms: dict[ForwardMode, Float64] = {}
        usual = np.array([_quantities(step) for step in steps], dtype=np.float64)
        modes = np.array([step.mode for step in steps])
        everything = np.ones(len(steps), dtype=np.bool_)
        self._of_all = _robust_terms(usual, times_ns, everything)
        usual_ns = np.empty(len(steps))
        for mode in ForwardMode:
            rows = modes == mode
            if not rows.any():
                continue
            few = np.count_nonzero(rows) < _FEWEST_STEPS
            self._terms[mode] = self._of_all if few else _robust_terms(usual, times_ns, rows)
            usual_ns[rows] = np.maximum(usual[rows] @ self._terms[mode], 1)
        self.lost_ns = times_ns - usual_ns
        self.is_stall: Bools = self.lost_ns > _STALL_TIMES * usual_ns + _STALL_NS
        self._ratio = np.where(self.is_stall, 1.0, times_ns / usual_ns)

    def time_ns(self, step: StepFeatures, like: int | None) -> int:
        """The time of a step, given the number of a recorded one that is like it, if any."""
        terms = self._terms.get(step.mode, self._of_all)
        usual_ns = max(float(np.dot(_quantities(step), terms)), 1.0)
        return max(round(usual_ns * (1.0 if like is None else float(self._ratio[like]))), 0)


def _quantities(step: StepFeatures) -> tuple[float, ...]:
    return (
        1.0, step.num_prefill_tokens, step.prefill_attention, step.num_decode_rows,
        step.num_decode_context_tokens,
    )  # fmt: skip


def _robust_terms(quantities: Float64, times_ns: Float64, rows: Bools) -> Float64:
    """Coefficients of at least 0 with small relative residuals; stalls do not count."""
    of_rows, target = quantities[rows], times_ns[rows]
    typical = max(float(np.median(target)), 1.0)
    weight = 1 / np.maximum(target, 0.1 * typical)
    terms: Float64 = np.zeros(quantities.shape[1])
    for _ in range(_NUM_ROUNDS):
        scale = np.maximum(of_rows.max(axis=0), 1)
        found, _ = nnls(of_rows / scale * weight[:, None], target * weight)
        terms = found / scale
        usual = np.maximum(of_rows @ terms, 0.1 * typical)
        late = target > _STALL_TIMES * usual + _STALL_NS
        weight = np.where(late, 0.0, 1 / usual)
    return terms


class RecordedTimes:
    """The times of a run log's steps, without its stalls.

    Args:
        steps: the log's steps, at least one.
        overlaps: whether the run overlapped scheduling.
    """

    def __init__(self, steps: Sequence[Line], *, overlaps: bool) -> None:
        self._steps = [line_features(line) for line in steps]
        self._at_ns = [int(line["t_decided_ns"]) for line in steps]
        self._nearest = NearestStepLatency(steps, overlaps=overlaps)
        self._measured = measured_times(steps, overlaps=overlaps)
        device_ns = np.array([time.device_ns for time in self._measured], dtype=np.float64)
        host_ns = np.array([time.host_ns for time in self._measured], dtype=np.float64)
        self._device, self._host = _Fitted(self._steps, device_ns), _Fitted(self._steps, host_ns)
        self._begin()

    def _begin(self) -> None:
        self._asked: StepFeatures | None = None
        self._found: int | None = None
        self.num_asked, self.num_unlike = 0, 0

    def from_the_beginning(self) -> "RecordedTimes":
        """The same times for another simulation."""
        other = copy(self)
        other._nearest = self._nearest.from_the_beginning()
        other._begin()
        return other

    def stalls(self) -> list[Stall]:
        """What took much longer than steps like it, in the order of the log."""
        before = np.cumsum([0, *[step.num_tokens for step in self._steps]])
        return [
            Stall(
                self._at_ns[number],
                int(before[number]),
                round(float(part.lost_ns[number])),
                part is self._host,
            )
            for number in range(len(self._steps))
            for part in (self._device, self._host)
            if part.is_stall[number]
        ]

    def steps_of(self, *, prefills: bool) -> list[tuple[int, StepFeatures]]:
        """The steps with prompt tokens, or those without, each with its number."""
        return [
            (number, step)
            for number, step in enumerate(self._steps)
            if (step.mode is not ForwardMode.DECODE) == prefills
        ]

    def device_of(self, number: int) -> int:
        """The recorded time of a step of the log."""
        return self._measured[number].device_ns

    def host_of(self, number: int) -> int:
        """As `device_of`, of the host."""
        return self._measured[number].host_ns

    def device_ns(self, step: StepFeatures) -> int:
        like = self._like(step)
        self.num_asked += 1
        self.num_unlike += like is None
        return max(self._device.time_ns(step, like), 1)

    def host_ns(self, step: StepFeatures) -> int:
        return self._host.time_ns(step, self._like(step))

    def _like(self, step: StepFeatures) -> int | None:
        """The number of the nearest recorded step, if it is like this one."""
        if step is not self._asked:  # a step is asked for several times
            nearest = self._nearest.nearest(step)
            self._found = nearest if _alike(step, self._steps[nearest]) else None
            self._asked = step
        return self._found

    def launch_ns(self, step: StepFeatures) -> int:
        return self._measured[self._nearest.nearest(step)].launch_ns

    def consume(self, first: StepFeatures, num_steps: int) -> None:
        self._nearest.consume(first, num_steps)
        self._asked = None


def _alike(step: StepFeatures, other: StepFeatures) -> bool:
    pairs = zip(_quantities(step), _quantities(other), strict=True)
    return step.mode is other.mode and all(
        abs(own - their) <= _LIKE * max(own, 1) for own, their in pairs
    )


class BlendedLatency:
    """A latency model that takes each of a step's times from one of several runs.

    Args:
        prefill: the device's time of steps with prompt tokens, and their launches.
        decode: the device's time of all other steps.
        gaps: the host's time.
        stalls: what is added to steps, in order of `num_tokens`.
    """

    def __init__(
        self, prefill: StepTimes, decode: StepTimes, gaps: StepTimes, stalls: Sequence[Stall]
    ) -> None:
        self._prefill, self._decode, self._gaps = prefill, decode, gaps
        self._all = list({id(times): times for times in (prefill, decode, gaps)}.values())
        self._stalls = deque(stalls)
        self._num_tokens = 0

    @property
    def times(self) -> Sequence[StepTimes]:
        """The runs that it takes times from, each once."""
        return self._all

    def _of(self, step: StepFeatures) -> StepTimes:
        return self._decode if step.mode is ForwardMode.DECODE else self._prefill

    def step_ns(self, step: StepFeatures) -> StepTime:
        lost_ns = [0, 0]
        for stall in self._due():
            lost_ns[stall.on_host] += stall.lost_ns
        device_ns, host_ns = self._of(step).device_ns(step), self._gaps.host_ns(step)
        return StepTime(device_ns + lost_ns[0], host_ns + lost_ns[1])

    def _due(self) -> Iterator[Stall]:
        return takewhile(lambda stall: stall.num_tokens <= self._num_tokens, self._stalls)

    def launch_ns(self, step: StepFeatures) -> int:
        return self._of(step).launch_ns(step)

    def decode_run_ns(self, first: StepFeatures, num_steps: int) -> tuple[Int64, Int64]:
        """With a recording one step at a time: the next step's nearest depends on this one."""
        decode, gaps = self._decode, self._gaps
        if self._goes_on() and isinstance(decode, ModelTimes) and isinstance(gaps, ModelTimes):
            device_ns, _ = decode.decode_run_ns(first, num_steps)
            _, host_ns = gaps.decode_run_ns(first, num_steps)
            known = min(len(device_ns), len(host_ns))
            return device_ns[:known], host_ns[:known]
        time = self.step_ns(first)
        return np.array([time.device_ns]), np.array([time.host_ns])

    def _goes_on(self) -> bool:
        """Whether the times of several steps can be asked for at once."""
        foreseen = [isinstance(times, ModelTimes) and times.foresees for times in self._all]
        return not self._stalls and all(foreseen)

    def consume(self, first: StepFeatures, num_steps: int) -> None:
        if self._goes_on():
            for times in self._all:
                times.consume(first, num_steps)
            return
        step = first
        for _ in range(num_steps):
            for _ in list(self._due()):
                self._stalls.popleft()
            self._num_tokens += step.num_tokens
            for times in self._all:
                times.consume(step, 1)
            step = step.next_decode()


def asked_and_unlike(latency: BlendedLatency) -> tuple[int, int]:
    """For how many steps recordings were asked, and how many of these are like no recorded one."""
    recorded = [times for times in latency.times if isinstance(times, RecordedTimes)]
    return sum(one.num_asked for one in recorded), sum(one.num_unlike for one in recorded)
