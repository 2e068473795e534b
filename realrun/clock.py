"""Wall-clock time as whole nanoseconds since a run began."""

import time

# The operating system wakes a sleeper late by up to this much; the rest is waited for awake.
_LATE_NS = 200_000


class WallClock:
    """Counts from its making, or from its last `restart`."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin to count from 0."""
        self._begin_ns = time.perf_counter_ns()

    def now_ns(self) -> int:
        return time.perf_counter_ns() - self._begin_ns

    def of_counter_ns(self, counter_ns: int) -> int:
        """A reading of `time.perf_counter_ns` on this clock."""
        return counter_ns - self._begin_ns

    def sleep_until(self, time_ns: int) -> None:
        """Return at `time_ns`, as exactly as can be, or at once if it has passed."""
        rest_ns = time_ns - self.now_ns() - _LATE_NS
        if rest_ns > 0:
            time.sleep(rest_ns / 1e9)
        while self.now_ns() < time_ns:
            pass
