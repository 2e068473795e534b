"""Device times of decode steps with one number of rows, as a function of their contexts."""

import numpy as np

from sim.core.arrays import Float64, Int64, whole_ns
from sim.latency.curves import Curve
from sim.latency.layers.skew import Alphas


class LayersDecodeTimes:
    """A constant and a curve over the mean context, corrected for unequal contexts.

    Tables do not count the new token in a context; steps do. `step_ns` and `run_ns` compute by the
    same operations in the same order, so they agree to the bit.
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
        """Compose the times of steps with `rows` decode rows.

        Args:
            rows: number of decode rows.
            fixed_ns: the time that does not depend on contexts.
            curve: the time that does, over the mean context.
            scale_ns: the curve's unit of time, in ns.
            alphas: how much longer unequal contexts take; None: no longer than equal ones.
        """
        self._rows = rows
        self._fixed_ns = fixed_ns
        self._curve = curve
        self._scale_ns = scale_ns
        self._alphas = alphas if rows > 1 else None

    def step_ns(self, context: int, longest: int, shortest: int) -> int:
        """The time of a step, from its total, longest and shortest context; 0: not known."""
        mean = context / self._rows - 1.0
        time = self._curve.at(mean)
        if self._alphas is not None and longest:
            most, least = longest - 1.0, max(shortest - 1.0, 0.0)
            time = self._alphas.corrected(mean, most, least, (time, self._curve.at(most)))
        device_ns = round(self._fixed_ns + self._scale_ns * time)
        return max(1, device_ns)

    def run_ns(self, context: int, longest: int, shortest: int, num_steps: int) -> Int64:
        """Times of a step and the decode steps after it; shape [num_steps]."""
        steps = np.arange(num_steps, dtype=np.int64)
        mean: Float64 = (context + self._rows * steps) / self._rows - 1.0
        time = self._curve.at_many(mean)
        if self._alphas is not None and longest:
            most = steps.astype(np.float64) + (longest - 1.0)
            # A shortest context that is not known counts as 0.
            least = np.maximum((steps + shortest) - 1.0, 0.0) if shortest else np.zeros(num_steps)
            times = time, self._curve.at_many(most)
            time = self._alphas.corrected_many(mean, most, least, times)
        device_ns = self._fixed_ns + self._scale_ns * time
        return np.maximum(whole_ns(device_ns), 1)
