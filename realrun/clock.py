"""Time: the wall clock of a run, and a limit on the time that a command may take."""

import math
import time
from collections.abc import Callable

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


class Budget:
    """A number of seconds that begins at `began_s` on the clock; None is no limit."""

    def __init__(
        self, seconds: float | None, *, began_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.total_s = math.inf if seconds is None else seconds
        self.clock = clock
        self._end_s = began_s + self.total_s

    def left_s(self) -> float:
        return self._end_s - self.clock()

    def extend(self, seconds: float) -> None:
        """Add seconds, because something took time that does not count."""
        self._end_s += seconds
