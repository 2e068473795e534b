"""Another model's steps with draft tokens, and the passes that draft the next ones."""

import numpy as np

from sim.core.arrays import Int64
from sim.latency.features import StepFeatures
from sim.latency.model import LatencyModel, Launching, Ranged, StepTime, latency_source
from sim.latency.range_report import RangeReport


class DraftingLatency:
    """A model that knows steps without drafts, in a server that verifies some.

    Each pass of the drafter takes a share of a decode step of the same rows without drafts.
    """

    def __init__(self, model: LatencyModel, drafting_share: float, *, as_prefill: bool) -> None:
        """Wrap a model.

        Args:
            model: the model.
            drafting_share: of all passes of a step together.
            as_prefill: a row that verifies drafts costs what a prefill row of as many tokens costs.
                Otherwise the model itself knows what draft tokens cost.
        """
        self._model = model
        self._drafting_share = drafting_share
        self._as_prefill = as_prefill
        self.num_layers = int(getattr(model, "num_layers", 0))

    @property
    def source(self) -> str | None:
        return latency_source(self._model)

    def step_ns(self, step: StepFeatures) -> StepTime:
        if not step.num_draft_tokens:
            return self._model.step_ns(step)
        device_ns, host_ns = self._model.step_ns(self._as_run(step))
        if self._drafting_share:
            plain = self._model.step_ns(step.decode_rows_alone())
            device_ns += round(self._drafting_share * plain.device_ns)
        return StepTime(device_ns, host_ns)

    def decode_run_ns(self, first: StepFeatures, num_steps: int) -> tuple[Int64, Int64]:
        if not first.num_draft_tokens:
            return self._model.decode_run_ns(first, num_steps)
        device_ns, host_ns = np.empty((2, num_steps), dtype=np.int64)
        for number in range(num_steps):
            device_ns[number], host_ns[number] = self.step_ns(first)
            first = first.next_decode()
        return device_ns, host_ns

    def launch_ns(self, step: StepFeatures) -> int:
        model = self._model
        return model.launch_ns(self._as_run(step)) if isinstance(model, Launching) else 0

    def consume(self, first: StepFeatures, num_steps: int) -> None:
        self._model.consume(self._as_run(first), num_steps)

    def left_range(self) -> RangeReport:
        return self._model.left_range() if isinstance(self._model, Ranged) else RangeReport()

    def _as_run(self, step: StepFeatures) -> StepFeatures:
        if self._as_prefill and step.num_draft_tokens:
            return step.with_verified_rows_as_prefill()
        return step
