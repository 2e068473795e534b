"""What bringing KV back from host memory adds to a step."""

from dataclasses import dataclass

from sim.latency.features import StepFeatures
from sim.latency.model import Int64, LatencyModel, Ranged, StepTime, latency_source
from sim.latency.range_report import RangeReport


@dataclass(frozen=True, slots=True)
class LoadTimes:
    """How long loads take.

    Attributes:
        ns_per_token: a token's KV from host memory to the device.
        num_parts: a load arrives in so many equal parts, the layers of a model, and a part of the
            step can run once its part of the load is there. 1: the step waits for all of it.
    """

    ns_per_token: float
    num_parts: int = 1

    def load_ns(self, num_tokens: int) -> int:
        """A load by itself; rounded half-even."""
        return round(num_tokens * self.ns_per_token)

    def device_ns(self, compute_ns: int, num_tokens: int) -> int:
        """A step of `compute_ns` that loads so many tokens.

        Loads follow one another on the link, parts of the step on the device. Whichever takes
        longer has no gaps, and one part of the other comes before or after it.
        """
        load_ns = self.load_ns(num_tokens)
        parts = self.num_parts
        return max(compute_ns + -(-load_ns // parts), load_ns + -(-compute_ns // parts))


class LoadingLatency:
    """Another model's times, longer where a step loads."""

    def __init__(self, model: LatencyModel, times: LoadTimes) -> None:
        self._model = model
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
        """The model's own: decode steps load nothing."""
        return self._model.decode_run_ns(first, num_steps)

    def consume(self, first: StepFeatures, num_steps: int) -> None:
        self._model.consume(first, num_steps)

    def left_range(self) -> RangeReport:
        return self._model.left_range() if isinstance(self._model, Ranged) else RangeReport()
