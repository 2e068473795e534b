"""Step times from a latency profile, which was fitted to a device (docs/explanation/profile.md)."""

from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path

import numpy as np
from mypy_extensions import mypyc_attr

from sim.core.arrays import Int64
from sim.core.batch import ForwardMode
from sim.core.errors import InputError
from sim.latency.features import StepFeatures, graph_rows
from sim.latency.model import RangeReport, StepTime
from sim.latency.profile.format import (
    FittedTerms,
    LatencyProfile,
    ModeName,
    Range,
    load_profile,
    mode_of,
)
from sim.latency.profile.quantities import MODE_TERMS, QUANTITIES
from sim.latency.profile.terms import ModeTime, ProfileDecodeTimes, TermSum
from sim.latency.range_counter import Limit, RangeCounter

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
        """The step as the measured device ran it: graphs of decode steps take any single tokens."""
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
    """The measured ranges of each mode of a profile."""
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
