"""The time of a step: a weighted sum of its quantities, times a factor.

Both the fit of a profile and its prediction use these definitions.
"""

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from sim.core.arrays import Int64, whole_ns
from sim.core.batch import ForwardMode
from sim.latency.curves import Curve
from sim.latency.features import StepFeatures
from sim.latency.model import StepTime
from sim.latency.profile.format import Correction, DeviceModel, Term
from sim.latency.profile.quantities import QUANTITIES


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
