"""A limit on the time that a command may take."""

import math
import time
from collections.abc import Callable


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
