"""Step times from a latency profile, which was fitted to a device (docs/explanation/profile.md).

The time of a step is a weighted sum of its quantities, times a factor: for the fit of a profile as
for its prediction.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path

import numpy as np
from mypy_extensions import mypyc_attr

from sim.core.arrays import Int64, whole_ns
from sim.core.batch import ForwardMode
from sim.core.errors import InputError
from sim.latency.curves import Curve
from sim.latency.features import StepFeatures, graph_rows
from sim.latency.model import RangeReport, StepTime
from sim.latency.profile.format import (
    Correction,
    DeviceModel,
    FittedTerms,
    LatencyProfile,
    ModeName,
    Range,
    Term,
    load_profile,
    mode_of,
)
from sim.latency.profile.quantities import MODE_TERMS, QUANTITIES
from sim.latency.range_counter import Limit, RangeCounter


def above(value: float, knee: float) -> float:
    """By how much a quantity exceeds a knee; the whole quantity if the knee is 0."""
    return value - knee if value > knee else 0.0


class Surface:
    """Interpolates between the knots of two axes; beyond its edges values stay constant."""

    def __init__(
        self,
        first_knots: Sequence[float],
        second_knots: Sequence[float],
        values: Sequence[Sequence[float]],
    ) -> None:
        """Take for each knot of the first axis a row of values, one for each knot of the second."""
        self._first_knots = list(first_knots)
        self._second_knots = list(second_knots)
        self._curves = [Curve(second_knots, row, held=True) for row in values]

    def at(self, first: float, second: float) -> float:
        index, share = self._locate(first)
        low = self._curves[index].at(second)
        if not share:
            return low
        return low + share * (self._curves[index + 1].at(second) - low)

    def curve(self, first: float) -> Curve:
        """The values over the second axis at one place of the first."""
        index, share = self._locate(first)
        low = self._curves[index]
        if not share:
            return low
        pairs = zip(low.values, self._curves[index + 1].values, strict=True)
        values = [below + share * (above - below) for below, above in pairs]
        return Curve(self._second_knots, values, held=True)

    def _locate(self, first: float) -> tuple[int, float]:
        """Returns the index of the knot below `first`, and the share of the way to the next one."""
        knots = self._first_knots
        index = bisect_right(knots, first) - 1
        if index < 0:
            return 0, 0.0
        if index == len(knots) - 1:
            return index, 0.0
        return index, (first - knots[index]) / (knots[index + 1] - knots[index])


# The quantities that grow within a run of decode steps. In a decode step both have the same value.
_GROWING = ("decode_context", "context")
_FLAT = Curve([0.0], [1.0])


class TermSum:
    """The sum of coefficients times quantities, added in the profile's order.

    Attributes:
        context_ns: ns for each token of decode context.
    """

    def __init__(self, terms: Sequence[Term]) -> None:
        self._fixed = [
            (QUANTITIES[term.term].read, term.knee, term.ns)
            for term in terms
            if term.term not in _GROWING
        ]
        self._growing = [
            (QUANTITIES[term.term].read, term.ns) for term in terms if term.term in _GROWING
        ]
        self.context_ns: float = sum((ns for _, ns in self._growing), start=0.0)

    def at(self, step: StepFeatures, graph: int) -> float:
        total = self.fixed_ns(step, graph)
        for read, ns in self._growing:
            total += ns * read(step, graph)
        return total

    def fixed_ns(self, step: StepFeatures, graph: int) -> float:
        """The terms that do not change as the context of decode rows grows."""
        total = 0.0
        for read, knee, ns in self._fixed:
            value = read(step, graph)
            total += ns * (above(value, knee) if knee else value)
        return total


class ModeTime:
    """Device time of one mode, in ns."""

    def __init__(self, model: DeviceModel) -> None:
        self.terms = TermSum(model.terms)
        self._surface: Surface | None = None
        if model.correction is not None:
            self._surface = surface_of(model.correction)
            first, second = (axis.quantity for axis in model.correction.axes)
            self._first, self._second = QUANTITIES[first].read, QUANTITIES[second].read

    def at(self, step: StepFeatures, graph: int) -> float:
        device_ns = self.terms.at(step, graph)
        if self._surface is None:
            return device_ns
        return device_ns * self._surface.at(self._first(step, graph), self._second(step, graph))

    def factors_of(self, step: StepFeatures, graph: int) -> Curve:
        """The factors over the second axis, at the first axis' value of `step`."""
        if self._surface is None:
            return _FLAT
        return self._surface.curve(self._first(step, graph))


def surface_of(correction: Correction) -> Surface:
    first, second = correction.axes
    return Surface(first.knots, second.knots, correction.factors)


class ProfileDecodeTimes:
    """Times of decode steps with one number of rows, as a function of their context.

    `step` and `run` compute by the same operations in the same order, so they agree to the bit.
    """

    def __init__(self, device: ModeTime, host: TermSum, *, rows: int, graph: int) -> None:
        step = StepFeatures(ForwardMode.DECODE, 0, 0, 0, rows, 0, 0)
        self._rows = rows
        self._device_ns = device.terms.fixed_ns(step, graph)
        self._device_context_ns = device.terms.context_ns
        self._host_ns = host.fixed_ns(step, graph)
        self._host_context_ns = host.context_ns
        self._factors = device.factors_of(step, graph)

    def step(self, context: int) -> StepTime:
        device_ns = self._device_ns + self._device_context_ns * context
        device_ns *= self._factors.at(context / self._rows)
        host_ns = self._host_ns + self._host_context_ns * context
        return StepTime(round(device_ns) or 1, round(host_ns))

    def run(self, context: Int64) -> tuple[Int64, Int64]:
        """Device and host ns at each of these contexts; shape [num_steps]."""
        device_ns = self._device_ns + self._device_context_ns * context
        device_ns *= self._factors.at_many(context / self._rows)
        host_ns = self._host_ns + self._host_context_ns * context
        return np.maximum(whole_ns(device_ns), 1), whole_ns(host_ns)


_EXTEND, _DECODE, _MIXED = ForwardMode.EXTEND, ForwardMode.DECODE, ForwardMode.MIXED


@mypyc_attr(allow_interpreted_subclasses=True)
class ProfileLatency:
    """Device and host time of a step, from a profile's terms and corrections.

    If the profile lacks a mode, steps of that mode raise InputError. Mixed steps are the exception:
    extend and decode are enough. Each decode row then counts as a prefill token of an extend step,
    and its context costs what it costs in a decode step.

    Steps that run without a graph have a launch time, if the profile knows one of any mode. A mode
    without a launch time of its own takes that of another, because all modes launch nearly the same
    kernels.
    """

    def __init__(self, profile: LatencyProfile, *, overlaps: bool = True) -> None:
        """Take a profile.

        `overlaps`: the scheduler decides a step while the one before runs, so host times measured
        with overlap are used. If the profile has none, those without overlap are.
        """
        self.profile = profile
        self._graph_sizes = profile.graph_sizes
        self._device = {mode_of(name): ModeTime(m) for name, m in profile.modes.items()}
        self._host = {mode: TermSum(terms.terms) for mode, terms in _host_of(profile, overlaps)}
        launch = {mode_of(name): TermSum(terms.terms) for name, terms in profile.launch.items()}
        self._launch = {
            mode: launch[similar]
            for mode in ForwardMode
            for similar in (_DECODE, _MIXED, _EXTEND, mode)
            if similar in launch
        }
        self._lines: dict[int, ProfileDecodeTimes] = {}
        self._ranges = RangeCounter(_limits(profile))
        self.depends_on_step_alone = True

    @classmethod
    def from_file(
        cls, name_or_path: str, *, base_dir: Path, overlaps: bool = True
    ) -> "ProfileLatency":
        """Read a shipped profile by name, or a file; see `load_profile`."""
        return cls(load_profile(name_or_path, base_dir), overlaps=overlaps)

    def step_ns(self, step: StepFeatures) -> StepTime:
        step = self._as_run(step)
        if step.mode is _DECODE:
            return self._line(step).step(step.num_decode_context_tokens)
        return StepTime(max(round(self._device_ns(step)), 1), round(self._host_ns(step)))

    def decode_run_ns(self, first: StepFeatures, num_steps: int) -> tuple[Int64, Int64]:
        grown = first.num_decode_rows * np.arange(num_steps, dtype=np.int64)
        return self._line(first).run(first.num_decode_context_tokens + grown)

    def launch_ns(self, step: StepFeatures) -> int:
        step = self._as_run(step)
        launch = self._launch.get(step.mode)
        if launch is None:
            return 0
        if step.mode is _DECODE and graph_rows(step.num_decode_rows, self._graph_sizes):
            return 0
        return round(launch.at(step, 0))

    def consume(self, first: StepFeatures, num_steps: int) -> None:
        """Count the steps that ran, and how many of them were outside the range."""
        self._ranges.count(self._as_run(first), num_steps)

    def left_range(self) -> RangeReport:
        """How many steps so far were outside the profile's range, and in which quantities."""
        return self._ranges.report()

    def _as_run(self, step: StepFeatures) -> StepFeatures:
        """The step as the measured device ran it: decode graphs take prefill rows of one token."""
        if not self._graph_sizes or _DECODE not in self._device:
            return step
        return step.with_single_tokens_as_decodes()

    def _line(self, step: StepFeatures) -> ProfileDecodeTimes:
        """The times of decode steps with this step's number of rows, for any context length."""
        rows = step.num_decode_rows
        line = self._lines.get(rows)
        if line is None:
            device = self._device.get(_DECODE)
            if device is None:
                raise self._never_measured(_DECODE)
            graph = graph_rows(rows, self._graph_sizes)
            line = ProfileDecodeTimes(device, self._host[_DECODE], rows=rows, graph=graph)
            self._lines[rows] = line
        return line

    def _device_ns(self, step: StepFeatures) -> float:
        device = self._device.get(step.mode)
        if device is not None:
            return device.at(step, 0)
        extend, decode = self._device.get(_EXTEND), self._device.get(_DECODE)
        if step.mode is not _MIXED or extend is None or decode is None:
            raise self._never_measured(step.mode)
        rows = step.num_decode_rows
        as_prefill = step.copy()
        as_prefill.num_prefill_tokens += rows
        as_prefill.num_context_tokens += rows
        context_ns = decode.terms.context_ns * step.num_decode_context_tokens
        return extend.at(as_prefill, 0) + context_ns

    def _host_ns(self, step: StepFeatures) -> float:
        host = self._host.get(step.mode)
        if host is not None:
            return host.at(step, 0)
        # Only mixed steps get here, if they were not measured: take the longer of both host times.
        return max(self._host[_EXTEND].at(step, 0), self._host[_DECODE].at(step, 0))

    def _never_measured(self, mode: ForwardMode) -> InputError:
        known = ", ".join(self.profile.modes)
        return InputError(
            f"profile {self.profile.name}: has no times of {mode.name.lower()} steps,"
            f" which this run needs (it has: {known})"
        )


def _host_of(profile: LatencyProfile, overlaps: bool) -> list[tuple[ForwardMode, FittedTerms]]:
    """The host terms of each mode, from the best source that the profile has for it.

    The best source is the way of scheduling asked for, then the other way, then `not measured`.
    """
    worst_first = ("normal", "overlap") if overlaps else ("overlap", "normal")
    found: dict[ModeName, FittedTerms] = {}
    for scheduling in ("not measured", *worst_first):
        for host in profile.host:
            if host.scheduling == scheduling:
                found.update(host.modes)
    return [(mode_of(name), terms) for name, terms in found.items()]


def _limits(profile: LatencyProfile) -> Mapping[ForwardMode, tuple[Limit, ...]]:
    return {
        mode_of(name): tuple(
            _limit(feature, device.range[feature]) for feature in MODE_TERMS[mode_of(name)].ranges
        )
        for name, device in profile.modes.items()
    }


def _limit(feature: str, measured: Range) -> Limit:
    label, low, high = QUANTITIES[feature].label, measured.low, measured.high
    if feature == "mean_context":
        context, rows = map(attrgetter, ("num_decode_context_tokens", "num_decode_rows"))
        return Limit(label, context, low, high, rows)
    read = QUANTITIES[feature].read
    return Limit(label, lambda step: read(step, 0), low, high)
