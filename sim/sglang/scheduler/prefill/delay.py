"""Holding prefills back until enough requests can be admitted together.

Rule 20 of docs/explanation/sglang.md. Source: SGLang 0.5.23, managers/prefill_delayer.py.
"""

from collections import deque

from sim.sglang.config import DelayerSettings, SchedulerConfig

# SGLANG_PREFILL_DELAYER_MAX_PREFILL_BS_WINDOW_SIZE
_KEPT_SIZES = 16


class PrefillDelayer:
    """Delays passes while few slots are free, so that prefills are larger; for one rank."""

    def __init__(
        self,
        settings: DelayerSettings,
        max_running_requests: int,
        prefill_max_requests: int | None,
    ) -> None:
        self.settings = settings
        self.max_running_requests = max_running_requests
        self.prefill_max_requests = prefill_max_requests
        # Rows of the largest of the last prefills, delayed ones estimated.
        self.largest = 0
        self.is_first = True
        self.num_delayed = 0
        self.since_ns = 0
        self._sizes: deque[int] = deque(maxlen=_KEPT_SIZES)

    def note_size(self, num_rows: int) -> None:
        """A pass has launched, or would have launched, this many rows."""
        if num_rows > 0:
            self._sizes.append(num_rows)
            self.largest = max(self._sizes)

    def must_wait(self, num_running: int, num_waiting: int, now_ns: int) -> bool:
        """Whether there are too few slots, or too few waiting requests."""
        if self.max_running_requests - num_running < self.largest:
            return True
        ratio = self.settings.queue_min_ratio
        if ratio is None or not num_running:
            return False
        most = self.largest if self.prefill_max_requests is None else self.prefill_max_requests
        wanted = min(int(num_running * ratio), most)
        is_late = self.num_delayed > 0 and now_ns - self.since_ns >= self.settings.max_delay_ns
        return num_waiting < wanted and not is_late


class DelayedPass:
    """One pass under the delayer; `allows` is asked for the first candidate that fits."""

    def __init__(
        self, delayer: PrefillDelayer, *, token_usage: float, num_waiting: int, now_ns: int
    ) -> None:
        self._delayer = delayer
        self._token_usage = token_usage
        self._num_waiting = num_waiting
        self._now_ns = now_ns
        self._is_asked = self._allows = False
        self._num_attempted = 0

    def allows(self, num_running: int) -> bool:
        """Whether requests may be admitted; `num_running` are in the running batch now."""
        free = max(self._delayer.max_running_requests - num_running, 1)
        self._num_attempted = max(self._num_attempted, min(max(self._num_waiting, 1), free))
        if not self._is_asked:
            self._is_asked = True
            self._allows = self._decide(num_running)
        return self._allows

    def _decide(self, num_running: int) -> bool:
        delayer = self._delayer
        settings = delayer.settings
        watermark = settings.token_usage_low_watermark
        is_low = watermark is not None and self._token_usage < watermark
        if not is_low and delayer.must_wait(num_running, self._num_waiting, self._now_ns):
            if delayer.is_first:
                delayer.is_first = False
            elif delayer.num_delayed < settings.max_delay_passes - 1:
                if not delayer.num_delayed:
                    delayer.since_ns = self._now_ns
                delayer.num_delayed += 1
                return False
        delayer.num_delayed = 0
        return True

    def end(self, num_rows: int) -> None:
        """The pass is over and launched `num_rows` rows."""
        if not self._is_asked:
            self._delayer.num_delayed = 0
        self._delayer.note_size(num_rows or self._num_attempted)


def build_delayer(config: SchedulerConfig) -> PrefillDelayer | None:
    if config.prefill_delayer is None:
        return None
    return PrefillDelayer(
        config.prefill_delayer, config.max_running_requests, config.prefill_max_requests
    )
