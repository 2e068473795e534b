"""The latency model over a table's device times: adds host time, counts steps outside the table."""

import numpy as np

from sim.core.arrays import Int64
from sim.latency.features import StepFeatures
from sim.latency.host import HostTimes
from sim.latency.layers.composition import LayerComposition
from sim.latency.layers.decode_times import LayersDecodeTimes
from sim.latency.layers.splitwise import WholeModel
from sim.latency.model import RangeReport, StepTime, equal_ns
from sim.latency.range_counter import RangeCounter

# Kept at a time, by decode rows and tokens of all ranks.
_MOST_LINES = 4096


class LayersLatency:
    """Device times composed from a table, plus host time.

    Host times are fitted to latencies that a server's clients saw. Under overlap scheduling these
    show only the part of the host's work that overlap did not hide. So with overlap the fitted
    times count as device time, of which overlap hides nothing.
    """

    def __init__(
        self,
        composition: LayerComposition | WholeModel,
        host: HostTimes | None = None,
        *,
        overlaps: bool = False,
        corrects_spread: bool = True,
    ) -> None:
        """Compose.

        `overlaps`: the scheduler decides a step while the one before runs. `corrects_spread`: apply
        the table's correction for decode rows of unequal context.
        """
        self.source = composition.source
        self._overlaps = overlaps
        self._corrects_spread = corrects_spread
        self._composition = composition
        self._host = host or HostTimes()
        self._lines: dict[tuple[int, int], LayersDecodeTimes] = {}
        self._ranges = RangeCounter(composition.limits)

    def step_ns(self, step: StepFeatures) -> StepTime:
        rows = step.num_decode_rows
        host_ns = self._host.host_ns(step.num_prefill_rows + rows)
        if step.num_prefill_rows:
            if not self._corrects_spread:
                step = step.copy()
                step.max_decode_context_tokens = 0
            device_ns = max(1, round(self._composition.prefill_ns(step)))
        else:
            device_ns = self._line(step).step_ns(*self._contexts(step))
        if step.num_draft_tokens:
            device_ns += round(self._composition.drafts_ns(step))
        return StepTime(device_ns + host_ns, 0) if self._overlaps else StepTime(device_ns, host_ns)

    def decode_run_ns(self, first: StepFeatures, num_steps: int) -> tuple[Int64, Int64]:
        rows = first.num_decode_rows
        device_ns = self._line(first).run_ns(*self._contexts(first), num_steps)
        host_ns = equal_ns(self._host.host_ns(rows), num_steps)
        if self._overlaps:
            return device_ns + host_ns, np.zeros_like(host_ns)
        return device_ns, host_ns

    def consume(self, first: StepFeatures, num_steps: int) -> None:
        """Count the steps that ran, and how many of them were outside the table."""
        self._ranges.count(first, num_steps)

    def left_range(self) -> RangeReport:
        """How many steps so far were outside the table, and in which sizes."""
        return self._ranges.report()

    def _line(self, step: StepFeatures) -> LayersDecodeTimes:
        key = step.num_decode_rows, self._composition.spread_tokens(step)
        line = self._lines.get(key)
        if line is None:
            if len(self._lines) >= _MOST_LINES:
                self._lines.clear()
            line = self._lines[key] = self._composition.decode_line(*key)
        return line

    def _contexts(self, step: StepFeatures) -> tuple[int, int, int]:
        """The total, longest and shortest context of the decode rows; 0: not to be used."""
        context = step.num_decode_context_tokens
        if not self._corrects_spread:
            return context, 0, 0
        return context, step.max_decode_context_tokens, step.min_decode_context_tokens
