"""Device times of decode steps of one number of rows, as a function of their context."""

import numpy as np

from sim.latency.curves import Curve, Float64
from sim.latency.layers.skew import Alphas
from sim.latency.model import Int64


class LayersDecodeTimes:
    """A constant and a curve over the mean context, corrected where contexts are unequal.

    Contexts are those of tables: the tokens before the new one. One step and a run of steps take
    the same operations in the same order.
    """

    def __init__(
        self,
        rows: int,
        fixed_ns: float,
        curve: Curve,
        *,
        scale_ns: float = 1.0,
        alphas: Alphas | None = None,
    ) -> None:
        """Put together the times of so many rows.

        Args:
            rows: how many.
            fixed_ns: what does not depend on their context.
            curve: what does.
            scale_ns: nanoseconds of the curve's unit.
            alphas: how much longer unequal contexts take; none: no longer than equal ones.
        """
        self._rows = rows
        self._fixed_ns = fixed_ns
        self._curve = curve
        self._scale_ns = scale_ns
        self._alphas = alphas if rows > 1 else None

    def step_ns(self, context: int, longest: int, shortest: int) -> int:
        """Of rows with so much context, their new tokens included; an end 0: not known."""
        mean = context / self._rows - 1.0
        time = self._curve.at(mean)
        if self._alphas is not None and longest:
            most, least = longest - 1.0, max(shortest - 1.0, 0.0)
            time = self._alphas.corrected(mean, most, least, (time, self._curve.at(most)))
        device_ns = round(self._fixed_ns + self._scale_ns * time)
        return max(1, device_ns)

    def run_ns(self, context: int, longest: int, shortest: int, num_steps: int) -> Int64:
        """Of a step and those after it, in which every row grows by a token; shape [num_steps]."""
        steps = np.arange(num_steps, dtype=np.int64)
        mean: Float64 = (context + self._rows * steps) / self._rows - 1.0
        time = self._curve.at_many(mean)
        if self._alphas is not None and longest:
            most = steps.astype(np.float64) + (longest - 1.0)
            # One that is not known stays 0.
            least = np.maximum((steps + shortest) - 1.0, 0.0) if shortest else np.zeros(num_steps)
            times = time, self._curve.at_many(most)
            time = self._alphas.corrected_many(mean, most, least, times)
        device_ns = self._fixed_ns + self._scale_ns * time
        return np.maximum(np.rint(device_ns).astype(np.int64), 1)
