"""Another model's steps, on a device that is faster or slower than the one it describes."""

import numpy as np

from sim.core.arrays import Int64
from sim.latency.features import StepFeatures
from sim.latency.model import LatencyModel, Ranged, StepTime, latency_source
from sim.latency.range_report import RangeReport


class ScaledLatency:
    """Another model whose device times are divided by an efficiency; host times stay the same."""

    def __init__(self, model: LatencyModel, efficiency: float) -> None:
        self._model = model
        self._efficiency = efficiency
        self.num_layers = int(getattr(model, "num_layers", 0))

    @property
    def source(self) -> str | None:
        return latency_source(self._model)

    def step_ns(self, step: StepFeatures) -> StepTime:
        device_ns, host_ns = self._model.step_ns(step)
        return StepTime(max(1, round(device_ns / self._efficiency)), host_ns)

    def decode_run_ns(self, first: StepFeatures, num_steps: int) -> tuple[Int64, Int64]:
        device_ns, host_ns = self._model.decode_run_ns(first, num_steps)
        scaled = np.rint(device_ns / self._efficiency).astype(np.int64)
        return np.maximum(scaled, 1), host_ns

    def consume(self, first: StepFeatures, num_steps: int) -> None:
        self._model.consume(first, num_steps)

    def left_range(self) -> RangeReport:
        return self._model.left_range() if isinstance(self._model, Ranged) else RangeReport()
