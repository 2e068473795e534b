"""Step times when a step also loads KV from host memory."""

from dataclasses import dataclass

from sim.core.arrays import Int64
from sim.latency.features import StepFeatures
from sim.latency.model import LatencyModel, Ranged, StepTime, latency_source, launching
from sim.latency.range_report import RangeReport


@dataclass(frozen=True, slots=True)
class LoadTimes:
    """How long loads take.

    Attributes:
        ns_per_token: time to load a token's KV.
        num_parts: into how many equal parts a load and a step are divided, usually the number of
            layers. A part of the step can run when its part of the load has arrived. 1: the step
            waits for the whole load.
    """

    ns_per_token: float
    num_parts: int = 1

    def load_ns(self, num_tokens: float) -> int:
        """The time of a load alone; rounded half-even."""
        return round(num_tokens * self.ns_per_token)

    def device_ns(self, compute_ns: int, num_tokens: float) -> int:
        """The time of a step that computes for `compute_ns` and loads `num_tokens` tokens.

        The link loads part after part while the device computes part after part. If the load takes
        longer, the last part of the computation runs after the whole load. If the computation takes
        longer, it runs without gaps after the first part of the load.
        """
        load_ns = self.load_ns(num_tokens)
        parts = self.num_parts
        return max(compute_ns + -(-load_ns // parts), load_ns + -(-compute_ns // parts))


class LoadingLatency:
    """Another model's times, longer for steps that load."""

    def __init__(self, model: LatencyModel, times: LoadTimes) -> None:
        self._model = model
        self._launching = launching(model)
        self._times = times

    @property
    def source(self) -> str | None:
        return latency_source(self._model)

    def step_ns(self, step: StepFeatures) -> StepTime:
        time = self._model.step_ns(step)
        if not step.num_loaded_tokens:
            return time
        device_ns = self._times.device_ns(time.device_ns, step.num_loaded_tokens)
        return time._replace(device_ns=device_ns)

    def decode_run_ns(self, first: StepFeatures, num_steps: int) -> tuple[Int64, Int64]:
        """The other model's times, because decode steps load nothing."""
        return self._model.decode_run_ns(first, num_steps)

    def launch_ns(self, step: StepFeatures) -> int:
        return 0 if self._launching is None else self._launching.launch_ns(step)

    def consume(self, first: StepFeatures, num_steps: int) -> None:
        self._model.consume(first, num_steps)

    def left_range(self) -> RangeReport:
        return self._model.left_range() if isinstance(self._model, Ranged) else RangeReport()
