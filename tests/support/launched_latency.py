"""A latency model of a host that launches large steps kernel by kernel, for tests."""

from sim.core.arrays import Int64
from sim.latency.features import StepFeatures
from sim.latency.model import LatencyModel, StepTime


class LaunchedLatency:
    """Another model's times, and a launch time.

    Only decode steps of up to `graph_rows` rows replay a graph. Every other step's launch takes
    `launch_ns`, and 1 us for each of its tokens.
    """

    def __init__(self, model: LatencyModel, launch_ns: int, graph_rows: int) -> None:
        self._model = model
        self._launch_ns = launch_ns
        self._graph_rows = graph_rows

    def step_ns(self, step: StepFeatures) -> StepTime:
        return self._model.step_ns(step)

    def decode_run_ns(self, first: StepFeatures, num_steps: int) -> tuple[Int64, Int64]:
        return self._model.decode_run_ns(first, num_steps)

    def launch_ns(self, step: StepFeatures) -> int:
        if not step.num_prefill_rows and step.num_decode_rows <= self._graph_rows:
            return 0
        return self._launch_ns + 1_000 * step.num_tokens

    def consume(self, first: StepFeatures, num_steps: int) -> None:
        self._model.consume(first, num_steps)
