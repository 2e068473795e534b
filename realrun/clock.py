"""Wall-clock time in whole nanoseconds since the start of a run."""

import time

# A sleep may last longer than requested, by up to this time. So `sleep_until` sleeps this much
# less, and then loops until the exact time.
_LATE_NS = 200_000


class WallClock:
    """Counts from its construction."""

    def __init__(self) -> None:
        self._begin_ns = time.perf_counter_ns()

    def now_ns(self) -> int:
        return time.perf_counter_ns() - self._begin_ns

    def of_counter_ns(self, counter_ns: int) -> int:
        """Convert a value of `time.perf_counter_ns` to a time of this clock."""
        return counter_ns - self._begin_ns

    def sleep_until(self, time_ns: int) -> None:
        """Return at `time_ns`, as exactly as possible; at once if it has passed."""
        rest_ns = time_ns - self.now_ns() - _LATE_NS
        if rest_ns > 0:
            time.sleep(rest_ns / 1e9)
        while self.now_ns() < time_ns:
            pass
