"""Virtual time for SGLang's modules that read a clock."""

import time as real_time
from typing import Any

from sglang.srt.managers import prefill_delayer, scheduler
from sglang.srt.observability import req_time_stats
from sglang.srt.utils import poll_timer

# SGLang takes 0 for "not yet". A read of the clock takes a moment, so that no two are equal.
_START_S = 1000.0
_MOMENT_S = 1e-12


class VirtualClock:
    """Stands in for the module `time`."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._num_reads = 0

    def perf_counter(self) -> float:
        self._num_reads += 1
        return _START_S + self.now_s + self._num_reads * _MOMENT_S

    def __getattr__(self, name: str) -> Any:
        return getattr(real_time, name)

    def install(self) -> None:
        for module in (prefill_delayer, scheduler, req_time_stats, poll_timer):
            module.time = self
        # The class has kept the real clock.
        state = prefill_delayer._State
        prefill_delayer._State = lambda: state(start_time=self.perf_counter())
